"""Tools that a server keeps for its own pages (MCP Apps): no model is shown one, whatever the policy admits."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from licet.mcp.listing import hidden_from_models
from sandbox.levels import needs_walls

from .clients import Client
from .test_listing import read
from .workspaces import Workspace

SCHEMA = {"type": "object"}
APP: dict[str, Any] = {"ui": {"resourceUri": "ui://desk/form", "visibility": ["app"]}}
WHY = "its server hides it from models (`_meta` `ui.visibility` is stated without `model`)"


def submit(meta: Any) -> dict[str, Any]:
    return {"name": "submit", "description": "Submits.", "inputSchema": SCHEMA, "_meta": meta}


HIDDEN: list[Any] = [
    APP,
    {"ui": {"visibility": []}},
    {"ui": {"visibility": ["apps"]}},
    {"ui": {"visibility": "app"}},
    {"ui": {"visibility": {"model": True}}},
    {"ui/resourceUri": "ui://desk/form", "ui/visibility": ["app"]},
    {"ui": {"visibility": ["model", "app"]}, "ui/visibility": ["app"]},
    {"openai/visibility": "private"},
    {"openai/visibility": ["public"]},
]
SHOWN: list[Any] = [
    None,
    [],
    {},
    {"ui": None},
    {"ui": {"resourceUri": "ui://desk/form"}},
    {"ui": {"visibility": None}},
    {"ui": {"visibility": ["model"]}},
    {"ui": {"visibility": ["model", "app"]}},
    {"ui/resourceUri": "ui://desk/form"},
    {"openai/visibility": "public", "openai/widgetAccessible": True},
]


@pytest.mark.parametrize("meta", HIDDEN, ids=str)
def test_a_tool_that_is_not_for_models_is_left_out_with_the_reason(meta: Any) -> None:
    assert hidden_from_models(submit(meta)).startswith("its server hides it from models")


@pytest.mark.parametrize("meta", SHOWN, ids=str)
def test_a_tool_that_says_nothing_of_it_is_for_models(meta: Any) -> None:
    assert hidden_from_models(submit(meta)) == ""


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_it_is_not_among_the_definitions(era: str) -> None:
    found = read({"era": era, "tools": ["echo", submit(APP)]})
    assert [tool["name"] for tool in found.tools] == ["echo"]
    assert found.left_out == {"tools/submit": WHY}


@pytest.mark.parametrize("locked", ["by an older version", "today"])
def test_no_client_is_shown_it_and_no_call_reaches_it(tmp_path: Path, store_path: Path, locked: str) -> None:
    """An older version locked it as any other tool. The server says what it is for when it is started."""
    needs_walls()
    shown = ["echo", submit({})] if locked == "by an older version" else ["echo"]
    server = {
        "script": {"tools": ["echo", submit(APP)]},
        "locked": {"tools": shown},
        "tools": {"*": {"effect": "read_only"}},
    }
    workspace = Workspace(tmp_path / "p", store_path / "state", {"s": server}, {"tools": ["s.echo", "s.submit"]})

    async def steps(client: Client) -> tuple[str, str, set[str]]:
        return await client.say("echo"), await client.say("submit"), set(await client.tools())

    async def scene() -> tuple[str, str, set[str]]:
        async with workspace.gateway() as client:
            return await steps(client)

    echo, refused, tools = asyncio.run(scene())
    assert (echo, tools) == ("{}", {"echo"})
    assert refused.startswith(("UNKNOWN_TOOL", "TOOL_NOT_AVAILABLE"))
    assert any(f"tools/submit is left out: {WHY}" in line for line in workspace.reports)
