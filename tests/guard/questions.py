"""Questions for approvers, without a gate."""

from typing import Any

from msgspec.structs import replace

from licet import Capability, CapabilitySet, ToolSpec
from licet.core.decision.request import Approval
from licet.core.values import digest
from licet.guard.ports import Question

SPEC = ToolSpec("pay", CapabilitySet(["network:https:post@bank.example"]), effect="write_limited", sandbox="restricted")
ARGUMENTS = {"to": "alice", "amount": 5}


def question(scope: str = "call", arguments: dict[str, Any] | None = None, **changes: Any) -> Question:
    """The question about a call of `pay`; `changes` replace fields of the question or of its approval."""
    given = ARGUMENTS if arguments is None else arguments
    exact = "" if scope == "session" else digest(given)
    bound = Approval(
        "sha256:" + "0" * 64, "pay", "s-1", exact, "network:https:delete@bank.example/x" * (scope == "use")
    )
    bound = replace(bound, **{name: changes.pop(name) for name in ("manifest", "tool", "session") if name in changes})
    asked = Question(
        approval=bound,
        spec=SPEC,
        arguments=given,
        stakes=(Capability("network:https:post@bank.example"),),
        why="class write_limited asks before each call",
        expires_seconds=300,
        agent="clerk",
        effect="write_limited",
        workdir="/srv",
    )
    return replace(asked, **changes)
