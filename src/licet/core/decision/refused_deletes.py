"""The message about deletes that a program was refused because nobody has approved them."""

from collections.abc import Iterable

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.algebra.scope import visible
from licet.core.decision.decide import unapproved_deletes_ground
from licet.core.decision.decision import CapabilityDenied, Event
from licet.core.decision.reach import Reach
from licet.core.limits import DELETES_SHOWN


def refused_delete(event: Event) -> str:
    """The path of a delete that nobody had approved; empty for another event."""
    if isinstance(event, CapabilityDenied) and event.reason == "APPROVAL_REQUIRED":
        try:
            use = Use(event.capability)
        except InvalidUse:
            return ""
        return use.target if (use.domain, use.action) == ("fs", "delete") else ""
    return ""


def refused_deletes_line(events: Iterable[Event], reach: Reach | None) -> str:
    """The deletes among some events that were refused, and the command that approves them; empty without any."""
    paths = list(dict.fromkeys(filter(None, map(refused_delete, events))))
    if not paths:
        return ""
    names = ", ".join(f"`{visible(path)}`" for path in paths[:DELETES_SHOWN])
    more = f" and {len(paths) - DELETES_SHOWN} more" if len(paths) > DELETES_SHOWN else ""
    fix = unapproved_deletes_ground(reach).fix if reach is not None else ""
    settled = f"; to approve deletes for 30 days: {visible(fix)}" if fix else ""
    return f"not deleted, since nobody has approved deletes, and it was there before: {names}{more}{settled}"
