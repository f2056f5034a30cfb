"""The events of a call, for observers: `Gate(…, observers=[function])` and `result.events`. See docs/calls.md."""

from licet.assemble.recording import record_calls
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
    ToolPrinted,
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
    "ToolPrinted",
    "record_calls",
]
