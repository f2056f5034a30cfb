"""The events of a call, for observers: `Gate(…, observers=[function])` and `result.events`. See docs/calls.md."""

from licet.core.decision.decision import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRemembered,
    BudgetRefunded,
    BudgetReserved,
    BudgetSettled,
    BudgetUnsettled,
    CallEvent,
    CapabilityDenied,
    CapabilityGranted,
    Event,
    Happened,
    ResultNoted,
    SandboxEntered,
    SandboxStopped,
    SessionEnded,
    SessionOpened,
)
from licet.guard.grant import Observer

__all__ = [
    "ApprovalAnswered",
    "ApprovalAsked",
    "ApprovalRemembered",
    "BudgetRefunded",
    "BudgetReserved",
    "BudgetSettled",
    "BudgetUnsettled",
    "CallEvent",
    "CapabilityDenied",
    "CapabilityGranted",
    "Event",
    "Happened",
    "Observer",
    "ResultNoted",
    "SandboxEntered",
    "SandboxStopped",
    "SessionEnded",
    "SessionOpened",
]
