"""Tools of a workspace as an MCP client sees them, for `licet serve`."""

from typing import Any

import msgspec


def own_definition(tool: Any) -> dict[str, Any]:
    """The definition of a tool of the workspace. Its annotations come from its declaration."""
    effect = tool.effect or "destructive"
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.schema) or {"type": "object"},
        "annotations": {"readOnlyHint": effect == "read_only", "destructiveHint": effect in ("full", "destructive")},
    }


def own_result(value: Any, *, cut: str = "") -> dict[str, Any]:
    """The result of a tool of the workspace: its value as text, and as it is if it is an object.

    A result that was cut is a piece of text, and says so with the line `cut`.
    """
    if cut:
        return {"content": [{"type": "text", "text": f"{value}"}, {"type": "text", "text": cut}], "isError": True}
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    return {**result, "structuredContent": value} if isinstance(value, dict) else result
