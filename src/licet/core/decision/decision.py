"""The result of a decision: Allow, Deny or Ask, with the rules behind it, and the events that a log records.

There are events for checks, approvals, budgets, the sandbox and the session. All have the same fields. The events of a
receipt do not repeat what the receipt has in other fields.
"""

from datetime import datetime
from typing import ClassVar, NoReturn

from msgspec import Struct

from licet.core.algebra.use import Use
from licet.core.compared import Compared
from licet.core.decision.reach import Reach, not_admitted_grounds
from licet.core.decision.request import REASON_OF_DOMAIN, Approval, Ground, Reason, Request
from licet.core.policy.manifest import Manifest

# A Deny would be true like most objects, and `if decide(…)` would allow everything. So `bool` raises.
_NO_TRUTH = "a decision has no truth value: match on Allow, Deny and Ask, or compare `.verdict`"


class Allow(Struct, frozen=True):
    """The call may run with its grant."""

    request: Request
    reach: Reach

    @property
    def verdict(self) -> str:
        """The decision in one word."""
        return "allow"

    @property
    def rules(self) -> tuple[Ground, ...]:
        """The rules that allow each use of the request."""
        return tuple(ground for use in self.request.uses for ground in self.reach.grounds_of(use))

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Allow({self.request.tool!r})"


class Deny(Struct, frozen=True):
    """The call may not run; `rules` are the reasons."""

    request: Request
    _source: tuple[Ground, ...] | Reach | Manifest  # the reasons, or what they are computed from
    use: Use | None = None

    @property
    def verdict(self) -> str:
        """The decision in one word."""
        return "deny"

    @property
    def rules(self) -> tuple[Ground, ...]:
        """Every reason for the refusal, each with the change that would remove it."""
        if isinstance(self._source, tuple):
            return self._source
        if isinstance(self._source, Reach):
            return self._source.obstacles_of(self.use) if self.use is not None else self._source.grounds
        return not_admitted_grounds(self._source, self.request.tool, self.request.uses)

    @property
    def reason(self) -> Reason:
        """The code of the first reason."""
        return self.rules[0].reason

    @property
    def lacking(self) -> str:
        """The capability that the tool needs and does not get, so that every call is refused; else empty."""
        first = self.rules[0].capability if self.use is None else ""
        known = first.partition(":")[0] in REASON_OF_DOMAIN
        return first if known and first != f"tool:call:{self.request.tool}" else ""

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Deny({self.request.tool!r}, {self.reason}, {'; '.join(map(str, self.rules))})"


class Ask(Struct, frozen=True):
    """A person must approve the call first; `rules` are the reasons."""

    request: Request
    approval: Approval
    rules: tuple[Ground, ...]
    use: Use | None = None
    also: tuple[Approval, ...] = ()  # further approvals that this call is known to need
    verdict = "ask"

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Ask({self.request.tool!r}, {'; '.join(map(str, self.rules))})"


Decision = Allow | Deny | Ask


class CallEvent(Compared, frozen=True):
    """Base of all events: what happened in which call, and when. Two events are equal if the same happened."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"time", "agent", "session", "receipt", "duration_ms", "count"})

    capability: str  # the call, as `tool:call:NAME`, or one use inside it
    tool_name: str
    reason: str = ""  # the reason code of a refusal, or of what ended the call
    rule: str = ""  # the deciding rules, or details in words
    time: datetime | None = None
    agent: str = ""
    session: str = ""
    receipt: str = ""  # the id of the call
    duration_ms: float = 0.0  # since the call began
    count: int = 0  # the number of a question in its call; of an event that stands for others, how many they are


class CapabilityGranted(CallEvent, frozen=True):
    """Event: a check allowed a use."""


class CapabilityDenied(CallEvent, frozen=True):
    """Event: a check refused a use."""


def events(decision: Decision) -> tuple[CapabilityGranted | CapabilityDenied, ...]:
    """One event per check of a decision, granted or denied, with the deciding rules."""
    request = decision.request
    stopped = None if isinstance(decision, Allow) else decision
    passed = request.uses
    if stopped is not None:
        passed = passed[: passed.index(stopped.use)] if stopped.use in passed else ()
    granted = tuple(CapabilityGranted(str(use), request.tool, "", _rules_text(decision, use)) for use in passed)
    if stopped is None:
        return granted or (CapabilityGranted(f"tool:call:{request.tool}", request.tool, "", ""),)
    lacking = stopped.lacking if isinstance(stopped, Deny) else ""
    asked = str(stopped.use) if stopped.use else lacking or f"tool:call:{request.tool}"
    reason = stopped.reason if isinstance(stopped, Deny) else "APPROVAL_REQUIRED"
    return (*granted, CapabilityDenied(asked, request.tool, reason, "; ".join(map(str, stopped.rules))))


def _rules_text(decision: Decision, use: Use) -> str:
    return "; ".join(map(str, decision.reach.grounds_of(use))) if isinstance(decision, Allow) else ""


class Happened(CallEvent, frozen=True):
    """Base of the events that are not checks."""

    # How many of a kind a receipt lists, where a tool or a server can cause any number. The others are counted.
    most: ClassVar[int | None] = None


class ApprovalAsked(Happened, frozen=True):
    """Event: an approval was requested."""


class ApprovalAnswered(Happened, frozen=True):
    """Event: the approver answered, or the request expired."""


class ApprovalRemembered(Happened, frozen=True):
    """Event: an earlier approval for the session covers this call."""


class BudgetReserved(Happened, frozen=True):
    """Event: one call and its cost were reserved."""


class BudgetSettled(Happened, frozen=True):
    """Event: the reserved cost was replaced by the real cost."""


class BudgetRefunded(Happened, frozen=True):
    """Event: the reservation was cancelled, because the call never ran."""


class BudgetUnsettled(Happened, frozen=True):
    """Event: the store could not record the real cost, so the reserved cost counts as spent."""


class SandboxEntered(Happened, frozen=True):
    """Event: the tool is about to run; `rule` names the walls."""


class SandboxStopped(Happened, frozen=True):
    """Event: the tool was stopped by a limit, or because it did not respond."""


class ToolPrinted(Happened, frozen=True):
    """Event: a tool in a worker printed something, or raised an error; `rule` is the text. No receipt has it."""


class ResultNoted(Happened, frozen=True):
    """Event: something in the result of a server was changed, or is worth a look; `rule` says what."""

    most = 50


class ServerAsked(Happened, frozen=True):
    """Event: a server asked the client for sampling, elicitation or roots; `count` is its number in the call."""


class ServerAnswered(Happened, frozen=True):
    """Event: a server got the client's answer to that question, or a refusal, which has a `reason`."""


class ServerAskRefused(Happened, frozen=True):
    """Event: a server asked what it may not ask, or more often than it may; the client was not asked."""

    most = 50


class SessionOpened(Happened, frozen=True):
    """Event: the first call of a session, or the first one after the session was opened again."""


class SessionEnded(Happened, frozen=True):
    """Event: the session has ended and accepts no more calls."""


Event = CapabilityGranted | CapabilityDenied | Happened


def all_events(decision: Decision) -> tuple[Event, ...]:
    """The events of a decision: its checks, and before them the end of the session if that is the reason."""
    checks, tool = events(decision), decision.request.tool
    if isinstance(decision, Deny) and decision.use is None and decision.reason == "SESSION_ENDED":
        return (SessionEnded(f"tool:call:{tool}", tool), *checks)
    return checks
