"""The words of a decision: what was asked, what had been spent, and Allow, Deny or Ask with the rules behind it.

What happens in a call beside its checks: people are asked, money is set aside, walls are entered, a session opens.

Each is an event of the same shape as a check, so that whoever reads events needs to know one shape. None of them
decides anything. What a receipt tells in a field of its own, its events do not repeat.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, NoReturn

from msgspec import Struct

from licet.core.algebra.use import Use
from licet.core.origin import Origin

Reason = Literal[
    "ALLOWED",
    # declare, validate, decide
    "UNKNOWN_TOOL",
    "TOOL_NOT_IN_BUNDLE",
    "INPUT_INVALID",
    "ARGUMENT_NOT_ALLOWED",
    "SIDE_EFFECT_EXCEEDED",
    "CONNECTOR_NOT_ALLOWED",
    "SANDBOX_NOT_DECLARED",
    "NATIVE_NOT_ALLOWED",
    "DECISION_FAILED",
    # ask, reserve, record, bind
    "APPROVAL_REQUIRED",
    "APPROVAL_DENIED",
    "APPROVAL_EXPIRED",
    "BUDGET_EXCEEDED",
    "LEDGER_UNAVAILABLE",
    "BACKEND_MISSING",
    "TOOL_NOT_AVAILABLE",
    # run
    "HOST_NOT_ALLOWED",
    "ADDRESS_NOT_ALLOWED",
    "PATH_NOT_REACHABLE",
    "SECRET_NOT_DECLARED",
    "BINARY_NOT_ALLOWED",
    "ENV_NOT_ALLOWED",
    "STORAGE_NOT_DECLARED",
    "RESOLVE_FAILED",
    "CONNECT_FAILED",
    "LIMIT_TIME",
    "LIMIT_SIZE",
    "LIMIT_REDIRECTS",
    "LIMIT_CPU",
    "LIMIT_MEMORY",
    "LIMIT_OUTPUT",
    "LIMIT_FILES",
    "LIMIT_PROCESSES",
    "LIMIT_FILE_SIZE",
    "LIMIT_DISK",
    "LIMIT_HOST_MEMORY",
    "LIMIT_HOST_FILES",
    "LIMIT_WAITING",
    "LIMIT_HEADERS",
    "TOOL_FAILED",
    "TOOL_CRASHED",
    # always
    "FROZEN",
    "SESSION_ENDED",
    "MANIFEST_CHANGED",
    "SANDBOX_UNAVAILABLE",
    "INTERRUPTED",
]

REASON_OF_DOMAIN: dict[str, Reason] = {
    "network": "HOST_NOT_ALLOWED",
    "fs": "PATH_NOT_REACHABLE",
    "secret": "SECRET_NOT_DECLARED",
    "process": "BINARY_NOT_ALLOWED",
    "env": "ENV_NOT_ALLOWED",
    "storage": "STORAGE_NOT_DECLARED",
    "tool": "TOOL_NOT_IN_BUNDLE",
    "connector": "CONNECTOR_NOT_ALLOWED",
}


class Approval(Struct, frozen=True):
    """What a person agreed to: never wider than one tool of one session under one manifest."""

    manifest: str
    tool: str
    session: str
    arguments: str = ""  # the digest of the exact arguments, where only this call was meant
    use: str = ""  # the one act, where only that was meant


class Request(Struct, frozen=True):
    """One call: the tool, and the uses that are known before it starts."""

    tool: str
    uses: tuple[Use, ...] = ()
    session: str = ""
    arguments: str = ""  # the digest of the arguments

    @property
    def sound(self) -> bool:
        """Whether the fields have exactly the declared types; any other request is denied."""
        # A subclass could answer differently each time it is asked.
        return type(self.tool) is str and type(self.uses) is tuple and all(type(use) is Use for use in self.uses)


class Spelled(Request, frozen=True):
    """A request of which one use was refused, with what the caller wrote for it: refusals repeat that, and no more."""

    sent: str = ""


class Usage(Struct, frozen=True):
    """What a session has already spent, and what has been agreed to for it."""

    calls: int = 0
    calls_of_tool: Mapping[str, int] = {}
    cost_usd: Decimal = Decimal(0)
    cost_usd_today: Decimal = Decimal(0)
    cost_usd_of_tool: Mapping[str, Decimal] = {}
    calls_today: int = 0  # of its agent, in all sessions
    approved: frozenset[Approval] = frozenset()
    bundles: Mapping[str, "Usage"] = {}  # what the tools of a bundle have spent together


UNUSED = Usage()


class Ground(Struct, frozen=True):
    """One thing that decided: a rule or a missing one, where it is written, and the change that would allow."""

    reason: Reason
    text: str
    origin: Origin | None = None
    fix: str = ""
    capability: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.origin})" if self.origin else self.text


# A refusal is a value like any other, and so true: `if decide(…)` would let everything pass.
_NO_TRUTH = "a decision has no truth value: match on Allow, Deny and Ask, or compare `.verdict`"


class Allow(Struct, frozen=True):
    """The call may run, holding its grant."""

    request: Request
    reach: Any  # licet.core.decision.reach.Reach

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
    _source: Any  # the grounds, or the Reach or Manifest that can tell them
    use: Use | None = None

    @property
    def verdict(self) -> str:
        """The decision in one word."""
        return "deny"

    @property
    def rules(self) -> tuple[Ground, ...]:
        """Every reason for the refusal, each with the change that would remove it."""
        from licet.core.decision.reach import Reach, outside

        if isinstance(self._source, tuple):
            return self._source
        if isinstance(self._source, Reach) and self.use is not None:
            return self._source.obstacles_of(self.use)
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
