"""One server holds up only itself: lists come from the lock at once, and a request waits for its own server alone."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from licet.core.policy.lock import Resolved, read_lock, write_lock
from licet.gateway import running_server
from licet.gateway.limits import LONGEST_REPORT
from sandbox.levels import needs_walls

from .clients import SECONDS, Client, text_of
from .scripted_server import tool
from .workspaces import Workspace, notes

LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
CHANGING = {"tools": {"listChanged": True}}
CHANGED = ["notify", "notifications/tools/list_changed", {}]
ENTRY = {"effect": "read_only"}
GOOD = {"script": {}, "tools": {"*": ENTRY}}


def played(
    place: Path, state: Path, bad: dict[str, Any], steps: Callable[[Client], Awaitable[Any]], **servers: Any
) -> tuple[Any, Workspace]:
    needs_walls()
    offered = {**bad["script"], **bad.get("locked", {})}.get("tools", ["echo"])
    names = [f"bad.{one if isinstance(one, str) else one['name']}" for one in offered]
    entry = {**ENTRY, "limits": {"wall_seconds": bad.pop("seconds", SECONDS)}}
    everything = {"bad": {"tools": {"*": entry}, **bad}, "good": GOOD, **servers}
    workspace = Workspace(
        place, state, everything, {"tools": [*names, "good.echo"], "fs_reach": {"read": [str(place)]}}
    )

    async def scene() -> Any:
        async with asyncio.timeout(SECONDS), workspace.gateway() as client:
            return await steps(client)

    return asyncio.run(scene()), workspace


async def until_gone(client: Client, name: str) -> dict[str, Any]:
    """The tools without this one, after the client was told that they changed."""
    await client.until_told("notifications/tools/list_changed")
    while name in (tools := await client.tools()):
        await client.until_told("notifications/tools/list_changed")
    return tools


SILENT: dict[str, dict[str, Any]] = {
    "it does not start": {"start": [["sleep", 600]]},
    "it does not open": {"on": {"initialize": [["hang"]], "server/discover": [["hang"]]}},
    "it lists nothing": {"on": {"tools/list": [["hang"]]}},
}


@pytest.mark.parametrize("how", SILENT)
def test_a_silent_server_holds_up_no_list_and_no_other_server(how: str, tmp_path: Path, store_path: Path) -> None:
    async def steps(client: Client) -> tuple[list[str], str, dict[str, Any]]:
        call = asyncio.create_task(client.call("bad__echo"))
        for method in LISTS:
            await client.request(method)
        return list(await client.tools()), await client.say("good__echo", {"a": 1}), await call

    bad = {"script": SILENT[how], "seconds": 1}
    (tools, said, refused), workspace = played(tmp_path, store_path, bad, steps)
    assert tools == ["bad__echo", "good__echo"]
    assert said == '{"a": 1}'
    assert text_of(refused).startswith("LIMIT_TIME: ")
    assert [one.reason for one in workspace.receipts() if one.tool == "bad.echo"] == ["LIMIT_TIME"]


def test_a_server_that_does_not_say_what_changed_holds_up_no_list(tmp_path: Path, store_path: Path) -> None:
    change = [["on", "tools/list", [["hang"]]], CHANGED, ["text", "changed"]]
    script = {"tools": ["change", "echo"], "capabilities": CHANGING, "calls": {"change": change}}

    async def steps(client: Client) -> tuple[str, list[str], str, str]:
        changed = await client.say("bad__change")
        waiting = asyncio.create_task(client.say("bad__echo"))
        tools, said = list(await client.tools()), await client.say("good__echo")
        return changed, tools, said, await waiting

    bad = {"script": script, "seconds": 1}
    (changed, tools, said, waited), _ = played(tmp_path, store_path, bad, steps)
    assert (changed, said) == ("changed", "{}")
    assert tools == ["bad__change", "bad__echo", "good__echo"]
    assert waited.startswith("LIMIT_TIME: ")


FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "it ends": ({"script": {"start": [["exit", 3]]}}, "TOOL_NOT_AVAILABLE: the server `bad` is not running"),
    "it refuses": (
        {"script": {"on": {"tools/list": [["error", -32603, "not today"]]}}},
        "TOOL_NOT_AVAILABLE: the server `bad` is not running",
    ),
    "it differs": (
        {"script": {"tools": ["echo"]}, "locked": {"tools": [{**tool("echo"), "description": "another"}]}},
        "MANIFEST_CHANGED: `echo` of the server `bad` has another description",
    ),
    "it lacks the tool": (
        {"script": {"tools": ["other"]}, "locked": {"tools": ["echo"]}},
        "TOOL_NOT_AVAILABLE: the server `bad` does not offer `echo` to this client",
    ),
    "the tool is malformed now": (
        {"script": {"tools": [{"name": "echo", "inputSchema": {}}]}, "locked": {"tools": ["echo"]}},
        "TOOL_NOT_AVAILABLE: the server `bad` does not offer `echo` to this client",
    ),
}


@pytest.mark.parametrize("how", FAILING)
def test_what_a_server_does_not_offer_after_all_leaves_the_lists_and_is_refused_with_the_reason(
    how: str, tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_server, "RESTART_PAUSES", (600.0,))
    bad, reason = FAILING[how]
    bad = {**bad, "script": {**bad["script"], "tools": bad["script"].get("tools", ["echo"])}}

    async def steps(client: Client) -> tuple[list[str], str]:
        return list(await until_gone(client, "bad__echo")), await client.say("bad__echo")

    (tools, said), workspace = played(tmp_path, store_path, {"tools": {"*": ENTRY}, **bad}, steps)
    assert tools == ["good__echo"]
    assert said.startswith(reason)
    receipts = [one for one in workspace.receipts() if one.tool == "bad.echo"]
    assert [one.reason for one in receipts if one.reason != "UNKNOWN_TOOL"] == [reason.partition(":")[0]]


def test_a_server_that_starts_after_all_comes_back_into_the_lists(
    tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_server, "RESTART_PAUSES", (0.01,))
    (tmp_path / "data").mkdir()
    first = tmp_path / "data" / "first"
    script = {"start": [["once", str(first), ["exit", 3]]]}

    async def steps(client: Client) -> str:
        await until_gone(client, "bad__echo")
        while "bad__echo" not in await client.tools():
            await client.until_told("notifications/tools/list_changed")
        return await client.say("bad__echo")

    bad = {"script": script, "grants": [f"fs:write:{tmp_path / 'data'}"]}
    needs_walls()
    workspace = Workspace(
        tmp_path,
        store_path,
        {"bad": {"tools": {"*": {"effect": "write_limited"}}, **bad}, "good": GOOD},
        {
            "tools": ["bad.echo", "good.echo"], "fs_reach": {"write": [str(tmp_path / "data")]},
            "max_side_effect_class": "write_limited", "approvals": {"write": "manifest"},
        },
    )  # fmt: skip

    async def scene() -> str:
        async with asyncio.timeout(SECONDS), workspace.gateway() as client:
            return await steps(client)

    assert asyncio.run(scene()) == "{}"


# What is known before any start ---------------------------------------------------------------------------------------


def altered(workspace: Workspace, change: Callable[[Any], Any]) -> None:
    """Write the lock again with another entry of the server `bad`."""
    place = workspace.place / "licet.lock"
    lock = read_lock(place.read_bytes())
    entry = change(lock.servers["bad"])
    others = {name: one for name, one in lock.servers.items() if name != "bad"}
    place.write_bytes(write_lock(replace(lock, servers={**others, **({"bad": entry} if entry is not None else {})})))


def elsewhere(entry: Any) -> Any:
    pins = {"plan9-mips-cp311": {"a==1": "sha256:" + "0" * 64}}
    return replace(entry, resolved=Resolved("pypi", "a", "1", "a", pins))


BEFORE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no entry": (lambda entry: None, "the server `bad` is not in licet.lock"),
    "another platform": (elsewhere, "does not have the server `bad` for this platform"),
    "another command": (lambda entry: replace(entry, command=("x",)), "has another command than in licet.lock"),
    "no such tool": (lambda entry: replace(entry, tools=()), "did not offer it when it was locked"),
    "a refused tool": (
        lambda entry: replace(entry, tools=(), refused={"tools/echo": "a reason"}),
        "a reason",
    ),
    "a malformed tool": (
        lambda entry: replace(entry, tools=({"name": "echo", "inputSchema": {}},)),
        "it does not fit the MCP schema",
    ),
}


@pytest.mark.parametrize("how", BEFORE)
def test_what_is_known_before_any_start_is_not_listed_and_recorded_once(
    how: str, tmp_path: Path, store_path: Path
) -> None:
    needs_walls()
    change, reason = BEFORE[how]
    entry = {"script": {}, "tools": {"*": ENTRY}}
    workspace = Workspace(tmp_path, store_path, {"bad": entry, "good": GOOD}, {"tools": ["bad.echo", "good.echo"]})
    altered(workspace, change)

    async def scene() -> tuple[list[str], str]:
        async with asyncio.timeout(SECONDS), workspace.gateway() as client:
            tools, said = list(await client.tools()), await client.say("good__echo")
            while not workspace.receipts():
                await asyncio.sleep(0.01)
            return tools, said

    tools, said = asyncio.run(scene())
    assert ("bad__echo" in tools, said) == (False, "{}")
    [receipt] = [one for one in workspace.receipts() if one.tool == "bad.echo"]
    assert (receipt.verdict, receipt.reason) == ("deny", "TOOL_NOT_AVAILABLE")
    assert reason in json.dumps(receipt.rules)
    assert notes(receipt) == []


# Bounds ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["\u200b", "x", "\\u200b"], ids=ascii)
def test_a_result_that_is_too_long_is_not_read_and_costs_its_call_alone(
    tmp_path: Path, store_path: Path, text: str
) -> None:
    begin = '{"jsonrpc":"2.0","id":{id},"result":{"content":[{"type":"text","text":"'
    count = (30 << 20) // len(text.encode())
    flood = [["bytes", begin, 1], ["bytes", text, count], ["line", '"}]}}']]
    script = {"tools": ["flood", "echo"], "calls": {"flood": flood}}

    async def steps(client: Client) -> tuple[str, str, str]:
        return await client.say("bad__flood"), await client.say("bad__echo"), await client.say("good__echo")

    (flooded, said, other), _ = played(tmp_path, store_path, {"script": script}, steps)
    assert "more than the 2162688 that are read" in flooded
    assert (said, other) == ("{}", "{}")


def test_other_tasks_have_their_turn_while_a_server_floods(tmp_path: Path, store_path: Path) -> None:
    """A ping is answered between two reads of a line that has no end yet."""
    script = {"tools": ["flood"], "calls": {"flood": [["bytes", "\u200b" * 1024, 9 << 10], ["hang"]]}}

    async def steps(client: Client) -> tuple[int, str]:
        flood, pings = asyncio.create_task(client.say("bad__flood")), 0
        while not flood.done():
            await client.request("ping")
            pings += 1
            await asyncio.sleep(0)
        return pings, await flood

    (pings, said), _ = played(tmp_path, store_path, {"script": script, "seconds": 2}, steps)
    assert said.startswith("LIMIT_TIME: ")
    assert pings > 20


def test_what_is_kept_about_a_server_that_keeps_changing_is_short(tmp_path: Path, store_path: Path) -> None:
    long = {"type": "object", "properties": {"k" * 200_000: {"type": "string"}}}
    other = {"name": "echo", "inputSchema": long}
    change = [["tools", [other]], CHANGED, ["text", "changed"]]
    path = tmp_path / "script"
    path.write_text(json.dumps({"tools": ["echo", "change"], "capabilities": CHANGING, "calls": {"change": change}}))
    script = {"tools": ["echo", "change"]}
    bad = {"script": script, "command": command_of(path), "grants": [f"fs:read:{path}"]}

    async def steps(client: Client) -> list[str]:
        await client.say("bad__change")
        return list(await until_gone(client, "bad__echo"))

    tools, workspace = played(tmp_path, store_path, bad, steps)
    assert tools == ["good__echo"]
    assert max(map(len, workspace.reports)) <= LONGEST_REPORT


def command_of(path: Path) -> list[str]:
    from .servers import command

    return command(f"@{path}")
