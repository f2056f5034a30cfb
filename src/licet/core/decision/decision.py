"""The result of a decision: Allow, Deny or Ask, with the rules behind it, and the events that a log records.

There are events for checks and for what else happens in a call: approvals, budgets, the sandbox, the session. All have
the same fields. An event decides nothing. A receipt does not repeat in its events what has a field of its own.
"""

from typing import NoReturn

from msgspec import Struct

from licet.core.algebra.use import Use
from licet.core.decision.reach import Reach, outside
from licet.core.decision.request import REASON_OF_DOMAIN, Approval, Ground, Reason, Request
from licet.core.policy.manifest import Manifest

# A refusal is a value like any other, and so true: `if decide(…)` would let everything pass.
_NO_TRUTH = "a decision has no truth value: match on Allow, Deny and Ask, or compare `.verdict`"


class Allow(Struct, frozen=True):
    """The call may run, holding its grant."""

    request: Request
    reach: Reach

    @property
    def verdict(self) -> str:
        """The decision in one word."""
        return "allow"

    @property
    def rules(self) -> tuple[Ground, ...]:
        """The rules that allow it, use by use."""
        return tuple(ground for use in self.request.uses for ground in self.reach.grounds_of(use))

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Allow({self.request.tool!r})"


class Deny(Struct, frozen=True):
    """The call may not run: why, and every rule or missing rule behind it."""

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
        return outside(self._source, self.request.tool, self.request.uses)

    @property
    def reason(self) -> Reason:
        """The code of the first reason."""
        return self.rules[0].reason

    @property
    def lacking(self) -> str:
        """The needed capability for which a complete call is refused; empty if there is another reason."""
        first = self.rules[0].capability if self.use is None else ""
        known = first.partition(":")[0] in REASON_OF_DOMAIN
        return first if known and first != f"tool:call:{self.request.tool}" else ""

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Deny({self.request.tool!r}, {self.reason}, {'; '.join(map(str, self.rules))})"


class Ask(Struct, frozen=True):
    """A person must agree first: to what exactly, and because of which rules."""

    request: Request
    approval: Approval
    rules: tuple[Ground, ...]
    use: Use | None = None
    also: tuple[Approval, ...] = ()  # what this call will ask in any case besides the first
    verdict = "ask"

    def __bool__(self) -> NoReturn:
        raise TypeError(_NO_TRUTH)

    def __repr__(self) -> str:
        return f"Ask({self.request.tool!r}, {'; '.join(map(str, self.rules))})"


Decision = Allow | Deny | Ask


class CapabilityGranted(Struct, frozen=True):
    """The event of one allowed check."""

    capability: str
    tool_name: str
    reason: str
    rule: str


class CapabilityDenied(Struct, frozen=True):
    """The event of one refused check."""

    capability: str
    tool_name: str
    reason: str
    rule: str


def events(decision: Decision) -> tuple[CapabilityGranted | CapabilityDenied, ...]:
    """What a log records of a decision: one event per check, granted or denied, with the deciding rules."""
    request = decision.request
    stopped = None if isinstance(decision, Allow) else decision
    passed = request.uses
    if stopped is not None:
        passed = passed[: passed.index(stopped.use)] if stopped.use in passed else ()
    granted = tuple(CapabilityGranted(str(use), request.tool, "", _said(decision, use)) for use in passed)
    if stopped is None:
        return granted or (CapabilityGranted(f"tool:call:{request.tool}", request.tool, "", ""),)
    lacking = stopped.lacking if isinstance(stopped, Deny) else ""
    asked = str(stopped.use) if stopped.use else lacking or f"tool:call:{request.tool}"
    reason = stopped.reason if isinstance(stopped, Deny) else "APPROVAL_REQUIRED"
    return (*granted, CapabilityDenied(asked, request.tool, reason, "; ".join(map(str, stopped.rules))))


def _said(decision: Decision, use: Use) -> str:
    return "; ".join(map(str, decision.reach.grounds_of(use))) if isinstance(decision, Allow) else ""


class Happened(Struct, frozen=True):
    """The event of something that is no check."""

    capability: str  # what it is about: the call itself, or one use inside it
    tool_name: str
    reason: str = ""  # the stable code, where something ended the call
    rule: str = ""  # what there is to say, in words


class ApprovalAsked(Happened, frozen=True):
    """A person is asked."""


class ApprovalAnswered(Happened, frozen=True):
    """They have answered, or nobody has."""


class ApprovalRemembered(Happened, frozen=True):
    """They had agreed to it before, for the whole session."""


class BudgetReserved(Happened, frozen=True):
    """A call and its cost are set aside."""


class BudgetSettled(Happened, frozen=True):
    """What was set aside became what was spent."""


class BudgetRefunded(Happened, frozen=True):
    """The call never ran: what was set aside was given back."""


class BudgetUnsettled(Happened, frozen=True):
    """The store could not be told how the call ended: what was set aside counts as spent."""


class SandboxEntered(Happened, frozen=True):
    """The tool is about to run, behind the walls that are named."""


class SandboxStopped(Happened, frozen=True):
    """The tool was ended from outside: by a limit, or because it gave no answer."""


class SessionOpened(Happened, frozen=True):
    """The first call of a session, or the first since it was opened again."""


class SessionEnded(Happened, frozen=True):
    """The session is over, and takes no calls any more."""


Event = CapabilityGranted | CapabilityDenied | Happened


def all_events(decision: Decision) -> tuple[Event, ...]:
    """What a log records of a decision before anything was held: its checks, and what they followed from."""
    told, tool = events(decision), decision.request.tool
    if isinstance(decision, Deny) and decision.use is None and decision.reason == "SESSION_ENDED":
        return (SessionEnded(f"tool:call:{tool}", tool), *told)
    return told
