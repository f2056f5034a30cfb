"""Calls with an id through the gateway: a client that lost its connection calls again, and the server is asked once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from licet.mcp.protocol import CALL_ID_KEY
from sandbox.levels import needs_walls

from .clients import Client, Failed, process_client, text_of
from .test_stdio import GIVEN, LICET, SERVER
from .workspaces import AGENT, Workspace

ONE: dict[str, Any] = {CALL_ID_KEY: "order-1"}


@pytest.fixture
def workspace(tmp_path: Path, store_path: Path) -> Workspace:
    needs_walls()
    return Workspace(tmp_path / "policy", store_path / "state", {"s": SERVER}, GIVEN)


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_call_that_comes_again_over_another_connection_asks_no_server(workspace: Workspace, era: str) -> None:
    place = str(workspace.place)
    command = [*LICET, "gateway", f"{place}/{AGENT}", "--state", str(workspace.state), "--workdir", place]

    async def connection() -> tuple[str, str, str]:
        async with process_client([*command, "--session", "mine"], era) as (client, _):
            first, other = await client.say("pid", **ONE), await client.say("echo", {"a": 1}, **ONE)
            wrong = await client.call("echo", {"a": 2}, **ONE)
            assert wrong["isError"] is True
            return first, other, text_of(wrong)

    one, two = (asyncio.run(connection()) for _ in range(2))
    assert one[:2] == two[:2]  # another process of the server has another id
    assert one[2].startswith("CALL_ID_REUSED: the id `order-1` was used for a call with other arguments")
    repeats = [(entry.reason, entry.tool) for entry in workspace.receipts("mine") if isinstance(entry.repeats, str)]
    assert repeats == [("ALLOWED", "s.pid"), ("ALLOWED", "s.echo")]


def test_an_id_that_would_have_no_effect_is_an_error(workspace: Workspace) -> None:
    async def steps(client: Client) -> list[str]:
        found = []
        for method, given in (("tools/call", "a b"), ("tools/call", 7), ("tools/call", ""), ("tools/list", "order-1")):
            with pytest.raises(Failed) as failed:
                await client.request(method, {"name": "echo", "arguments": {}}, **{CALL_ID_KEY: given})
            found.append(str(failed.value))
        await client.say("echo", {}, **{CALL_ID_KEY: None})
        return found

    async def scene() -> list[str]:
        async with workspace.gateway("2025") as client:
            return await steps(client)

    found = asyncio.run(scene())
    assert all("expected `licet/call-id` to be text of 1 to 128 visible ASCII characters" in one for one in found[:3])
    assert "is for `tools/call` alone" in found[3]
    assert [entry.call_id for entry in workspace.receipts()] == [UNSET]
