"""What happens in a call beside its checks: people are asked, money is set aside, walls are entered, a session opens.

Each is an event of the same shape as a check, so that whoever reads events needs to know one shape. None of them
decides anything. What a receipt tells in a field of its own, its events do not repeat.
"""

from licet.core.decision import CapabilityDenied, CapabilityGranted, Decision, Deny, events
from licet.values import dataclass


@dataclass(frozen=True, slots=True)
class Happened:
    """The event of something that is no check."""

    capability: str  # what it is about: the call itself, or one use inside it
    tool_name: str
    reason: str = ""  # the stable code, where something ended the call
    rule: str = ""  # what there is to say, in words


class ApprovalAsked(Happened):
    """A person is asked."""

    __slots__ = ()


class ApprovalAnswered(Happened):
    """They have answered, or nobody has."""

    __slots__ = ()


class ApprovalRemembered(Happened):
    """They had agreed to it before, for the whole session."""

    __slots__ = ()


class BudgetReserved(Happened):
    """A call and its cost are set aside."""

    __slots__ = ()


class BudgetSettled(Happened):
    """What was set aside became what was spent."""

    __slots__ = ()


class BudgetRefunded(Happened):
    """The call never ran: what was set aside was given back."""

    __slots__ = ()


class BudgetUnsettled(Happened):
    """The store could not be told how the call ended: what was set aside counts as spent."""

    __slots__ = ()


class SandboxEntered(Happened):
    """The tool is about to run, behind the walls that are named."""

    __slots__ = ()


class SandboxStopped(Happened):
    """The tool was ended from outside: by a limit, or because it gave no answer."""

    __slots__ = ()


class SessionOpened(Happened):
    """The first call of a session, or the first since it was opened again."""

    __slots__ = ()


class SessionEnded(Happened):
    """The session is over, and takes no calls any more."""

    __slots__ = ()


Event = CapabilityGranted | CapabilityDenied | Happened


def all_events(decision: Decision) -> tuple[Event, ...]:
    """What a log records of a decision before anything was held: its checks, and what they followed from."""
    told, tool = events(decision), decision.request.tool
    if isinstance(decision, Deny) and decision.use is None and decision.reason == "SESSION_ENDED":
        return (SessionEnded(f"tool:call:{tool}", tool), *told)
    return told
