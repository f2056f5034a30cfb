"""The types of backends: what secrets, files, network, stores, programs and records are made of. They are protocols.

A backend does what it is told and decides nothing: the grant was checked before it is called. What it cannot do, it
says with the exceptions of this module, and the call is refused.
"""

from licet.core.budget import Spent
from licet.core.decision import Approval, Usage
from licet.core.effects import Level
from licet.core.manifest import Budget
from licet.declare.context import Json
from licet.guard.layers import Layers
from licet.guard.people import Answer, Answered, Approver, ApproverFunction, Question
from licet.guard.ports import (
    ArgumentRules,
    Budgets,
    Claim,
    Clock,
    Command,
    Entry,
    Escaped,
    Exchange,
    Files,
    Finished,
    Held,
    Http,
    Kv,
    Ledger,
    LedgerUnavailable,
    Ports,
    Processes,
    Reply,
    Reservation,
    Sandbox,
    SandboxUnavailable,
    Secrets,
    SecretsFunction,
    Stat,
    TooLarge,
    ToolCall,
    Unavailable,
    Unconnected,
    Unreached,
    Unresolved,
    Walls,
)
from licet.guard.running import Ending, Running, Streams, Used, Watch
from licet.guard.turns import Turn

__all__ = [
    "Answer",
    "Answered",
    "Approval",
    "Approver",
    "ApproverFunction",
    "ArgumentRules",
    "Budget",
    "Budgets",
    "Claim",
    "Clock",
    "Command",
    "Ending",
    "Entry",
    "Escaped",
    "Exchange",
    "Files",
    "Finished",
    "Held",
    "Http",
    "Json",
    "Kv",
    "Layers",
    "Ledger",
    "LedgerUnavailable",
    "Level",
    "Ports",
    "Processes",
    "Question",
    "Reply",
    "Reservation",
    "Running",
    "Sandbox",
    "SandboxUnavailable",
    "Secrets",
    "SecretsFunction",
    "Spent",
    "Stat",
    "Streams",
    "TooLarge",
    "ToolCall",
    "Turn",
    "Unavailable",
    "Unconnected",
    "Unreached",
    "Unresolved",
    "Usage",
    "Used",
    "Walls",
    "Watch",
]
