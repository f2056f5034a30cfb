"""What an event that cannot be read, or was not decided, says of itself: enough for a receipt, never for a decision.

A call that is refused because its event is no event of its agent would else be missing from the ledger. The event is
read leniently here, so nothing of it is believed: a session must be known already, and a tool must have a name.
"""

import json
from hashlib import sha256
from time import monotonic
from typing import Any

from msgspec import Struct

from licet.hooks.agent_event import AgentEvent
from licet.hooks.agent_tools import is_tool_name, tool_name
from licet.hooks.limits import PAYLOAD_BYTES

UNREAD = "unread"  # in place of a name that cannot be read, of a tool or a session
SESSION_KEYS = ("session_id", "sessionId", "sessionID", "conversation_id")
_TOOLS = ("tool_name", "toolName", "tool")
_LONGEST_ID = 4096  # characters


class UnderWay(Struct):
    """How far the answer to an event has come."""

    until: float  # monotonic: when there must be an answer
    event: AgentEvent | None = None  # once it was read
    is_recorded: bool = False  # from here on whatever is done about its call writes the receipt

    def begin(self) -> None:
        """Leave the receipt to what follows. Raises `TimeoutError` if it is too late for an answer."""
        if monotonic() >= self.until:
            raise TimeoutError
        self.is_recorded = True


class Claimed(Struct, frozen=True):
    """What a payload says of itself."""

    session: str  # as the agent names it; may be empty
    tool: str  # the name for the receipt
    digest: str  # of the payload


def claimed(agent: str, payload: bytes, event: AgentEvent | None) -> Claimed:
    """What to record of a call. `event` is the event if it could be read. Raises nothing."""
    digest = f"sha256:{sha256(payload).hexdigest()}"
    if event is not None:
        return Claimed(event.session, _named(agent, event.tool), digest)
    try:
        fields: Any = json.loads(payload[: PAYLOAD_BYTES + 1].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        fields = {}
    found = fields if isinstance(fields, dict) else {}
    session = next((found[name] for name in SESSION_KEYS if isinstance(found.get(name), str)), "")
    tool = next((found[name] for name in _TOOLS if isinstance(found.get(name), str)), "")
    return Claimed(session if len(session) <= _LONGEST_ID else "", _named(agent, tool), digest)


def _named(agent: str, tool: str) -> str:
    name = tool_name(agent, tool)
    return name if tool and is_tool_name(name) else tool_name(agent, UNREAD)
