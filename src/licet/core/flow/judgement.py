"""What a judgement says: which arguments of a call have an origin that the policy takes, and which have none.

`licet.core.decision.flow_judgement` makes it, `decide` turns it into a question or a refusal, and a receipt keeps it
without its texts.
"""

from typing import Literal

from msgspec import Struct

from licet.core.policy.flow import FlowOrigin
from licet.core.values import Origin

FlowReason = Literal["FLOW_ORIGIN", "FLOW_SECRET", "FLOW_NOT_ASKED_FOR"]


class Found(Struct, frozen=True):
    """One origin of a value: where it stands."""

    origin: FlowOrigin
    receipt: str = ""  # of the result that it stands in
    tool: str = ""  # that returned this result
    pointer: str = ""  # of the leaf
    label: str = ""  # of the leaf


class Unmet(Struct, frozen=True):
    """One rule of flow that a call does not meet."""

    reason: FlowReason
    argument: str = ""  # empty if it is about the call
    pointer: str = ""  # of the value in the argument
    value: str = ""  # for a person, cut to 500 characters
    record: str = ""  # that the value stands in, for a person, cut in the same way
    found: tuple[Found, ...] = ()
    allowed: tuple[FlowOrigin, ...] = ()
    text: str = ""  # one line for the model, without a value that would pass
    place: Origin | None = None  # of the rule
    fix: str = ""


class Met(Struct, frozen=True):
    """An argument with a rule that it meets."""

    argument: str
    pointer: str
    found: tuple[Found, ...] = ()


class Judgement(Struct, frozen=True):
    """What flow says about one call."""

    unmet: tuple[Unmet, ...] = ()
    met: tuple[Met, ...] = ()
    tainted_by: tuple[str, ...] = ()  # receipts, or reasons; empty if nothing untrusted was read
    enforced: bool = True  # false under `watch`
    reopened: bool = False  # whether values that the session has read before it was opened again are unknown

    @property
    def stops(self) -> bool:
        """Whether the call is asked about, or refused."""
        return self.enforced and bool(self.unmet)

    @property
    def subject(self) -> str:
        """What a person agrees to beside the exact arguments: the rules that are not met. Empty if all are met.

        Origins are no part of it: a value that stands in one more result meanwhile is no other question.
        """
        return "; ".join(sorted({f"{one.reason} {one.argument}{one.pointer}".rstrip() for one in self.unmet}))


def value_name(argument: str, pointer: str) -> str:
    """The name of a value in an argument, as a person writes it: `recipients[0]`, `mail.to`."""
    name = argument
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        name += f"[{part}]" if part.isascii() and part.isdigit() else f".{part}"
    return name
