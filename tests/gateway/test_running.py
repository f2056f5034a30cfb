"""A server while the gateway runs: compared with its lock, looked at again, restarted; and what a bad one costs."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from licet.core.policy.lock import LockedServer
from licet.core.policy.servers import Server
from licet.gateway import running_server
from licet.gateway.running_server import NotRunning, RunningServer
from licet.mcp.link import Gone, Link
from sandbox.levels import needs_walls

from .clients import SECONDS, Client, text_of
from .scripted_server import LEGACY, MODERN, tool
from .servers import RecordingPeer, call, command, linked, seen
from .servers import text_of as text_of_answer
from .workspaces import Workspace

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
CHANGING = {"tools": {"listChanged": True}}
SEEN: dict[str, Any] = {"seen": [["seen"]]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two starts."""
    monkeypatch.setattr(running_server, "RESTART_PAUSES", (0.0,))
    monkeypatch.setattr(running_server, "LOOK_AGAIN_SECONDS", 0.01)


def changed_to(*tools: Any) -> list[Any]:
    """A call that gives the server other tools, and says so."""
    return [["tools", list(tools)], ["notify", "notifications/tools/list_changed", {}], ["text", "changed"]]


class Kept:
    """A server that is kept running, without walls, and what it reports."""

    def __init__(self, scripts: Sequence[dict[str, Any]], locked: Sequence[Any] | None, era: str) -> None:
        self.reports: list[str] = []
        self.peer = RecordingPeer()
        self.changes = 0
        self.starts = 0
        self._scripts = list(scripts)
        version = MODERN if era == "2026" else LEGACY[0]
        lock = LockedServer(version=version, tools=tuple(tool(one) for one in locked or ()))
        links, server = self._links, Server(name="s")
        changed = self._count
        self.one = RunningServer(server, lock, links, self.peer, self.reports.append, offers_changed=changed)

    def _count(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def _links(self) -> AsyncIterator[Link]:
        self.starts += 1
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        async with linked(command(script)) as (link, _):
            yield link

    async def until(self, found: Callable[[], Any]) -> None:
        async with asyncio.timeout(SECONDS):
            while not found():
                await asyncio.sleep(0.01)


def kept(
    steps: Callable[[Kept], Awaitable[None]], *scripts: dict[str, Any], locked: Sequence[Any] = (), era: str = "2025"
) -> None:
    async def scene() -> None:
        server = Kept([{"era": era, **script} for script in scripts], locked, era)
        server.one.start()
        try:
            async with asyncio.timeout(SECONDS):
                await server.one.settled()
            await steps(server)
        finally:
            await server.one.close()

    asyncio.run(scene())


@both_eras
def test_a_changed_definition_refuses_the_tool_until_it_is_what_was_locked_again(era: str) -> None:
    was, other = {**tool("a"), "description": "x"}, {**tool("a"), "description": "y"}
    script = {
        "tools": [was, "worse", "better"],
        "capabilities": CHANGING,
        "calls": {"worse": changed_to(other, "worse", "better", "more"), "better": changed_to(was, "worse", "better")},
    }

    async def steps(server: Kept) -> None:
        one = server.one
        assert one.refusal_of("tools", "a") == ""
        await call(one.upstream(), "worse")
        await server.until(lambda: one.refusal_of("tools", "a"))
        assert "`a` of the server `s` has another description" in one.refusal_of("tools", "a")
        assert not one.is_shown("tools", "a")
        assert "is new" in one.refusal_of("tools", "more")
        assert one.refusal_of("tools", "worse") == ""
        await call(one.upstream(), "better")
        await server.until(lambda: not one.refusal_of("tools", "a"))
        assert [line for line in server.reports if "`more` is new" in line] == [
            "s: tool `more` is new, unlike in licet.lock"
        ]
        assert server.changes == 3

    kept(steps, script, locked=[was, "worse", "better"], era=era)


@both_eras
def test_calls_wait_until_it_is_known_what_changed(era: str) -> None:
    """Otherwise a call right after the announcement would still be compared with the old definitions."""
    was, other = {**tool("a"), "description": "x"}, {**tool("a"), "description": "y"}
    script = {"tools": [was, "worse"], "capabilities": CHANGING, "calls": {"worse": changed_to(other, "worse")}}

    async def steps(server: Kept) -> None:
        await call(server.one.upstream(), "worse")
        await server.until(lambda: server.one.upstream().changed.is_set() or not server.one._settled.is_set())
        await asyncio.sleep(0)
        await server.one.settled()
        assert "has another description" in server.one.refusal_of("tools", "a")

    kept(steps, script, locked=[was, "worse"], era=era)


@both_eras
def test_a_server_that_does_not_say_what_changed_is_not_called(era: str) -> None:
    script = {
        "tools": ["a", "odd", "again"],
        "capabilities": CHANGING,
        "calls": {
            "odd": [["on", "tools/list", [["result", {"tools": 7}]]], *changed_to("a")],
            "again": [["on", "tools/list", [["default"]]], *changed_to("a", "odd", "again")],
        },
    }

    async def steps(server: Kept) -> None:
        one = server.one
        await call(one.upstream(), "odd")
        await server.until(lambda: one.refusal_of("tools", "a"))
        assert "says that its lists changed, but not how" in one.refusal_of("tools", "a")
        assert not one.is_shown("tools", "a")
        await call(one.upstream(), "again")
        await server.until(lambda: one.is_shown("tools", "a"))

    kept(steps, script, locked=["a", "odd", "again"], era=era)


@both_eras
def test_a_server_that_ends_is_started_again_in_its_era(era: str) -> None:
    script = {"era": "both", "tools": ["dies", "seen"], "calls": {"dies": [["exit", 3]], **SEEN}}

    async def steps(server: Kept) -> None:
        with pytest.raises(Gone):
            await call(server.one.upstream(), "dies")
        await server.until(lambda: any("it is started again" in line for line in server.reports))
        await server.until(lambda: is_running(server.one))
        first = (await seen(server.one.upstream()))[0]["method"]
        assert first == ("server/discover" if era == "2026" else "initialize")

    kept(steps, script, locked=["dies", "seen"], era=era)


def is_running(one: RunningServer) -> bool:
    try:
        one.upstream()
    except NotRunning:
        return False
    return True


@pytest.mark.parametrize(
    "script",
    [
        {"start": [["exit", 1]]},
        {"start": [["line", "no JSON"], ["exit", 1]]},
        {"on": {"initialize": [["error", -32000, "not today"]]}},
        {"on": {"tools/list": [["result", {"tools": 7}]]}},
    ],
    ids=["ends", "noise", "refuses", "odd list"],
)
def test_a_server_that_does_not_start_settles_and_is_tried_again(script: dict[str, Any]) -> None:
    async def steps(server: Kept) -> None:
        assert not server.one.is_shown("tools", "a")
        await server.until(lambda: len([line for line in server.reports if "it is started again" in line]) > 1)
        await server.until(lambda: is_running(server.one))
        assert server.one.is_shown("tools", "a")
        assert server.changes >= 2

    kept(steps, script, script, {"tools": ["a"]}, locked=["a"])


@both_eras
def test_subscriptions_outlive_a_process(era: str) -> None:
    uri = "file:///a"
    told = ["notify", "notifications/resources/updated", {"uri": uri}]
    script = {
        "tools": ["dies", "tell", "seen"],
        "resources": [{"uri": uri, "name": "a"}],
        "calls": {"dies": [["exit", 3]], "tell": [told, ["text", "told"]], **SEEN},
    }

    async def steps(server: Kept) -> None:
        await server.one.subscribe(uri, seconds=SECONDS)
        with pytest.raises(Gone):
            await call(server.one.upstream(), "dies")
        await server.until(lambda: any("it is started again" in line for line in server.reports))
        await server.until(lambda: is_running(server.one))
        while "file:///a" not in json.dumps(await seen(server.one.upstream())):  # 2026 subscribes a moment later
            pass
        await call(server.one.upstream(), "tell")
        await server.until(lambda: [note.params for note in server.peer.notes] == [{"uri": uri}])

    kept(steps, script, locked=["dies", "tell", "seen"], era=era)


# Behind a gateway -----------------------------------------------------------------------------------------------------

BAD: dict[str, list[Any]] = {
    "dies": [["exit", 1]],
    "floods a line": [["bytes", "x" * 1024, 33 << 10]],
    "floods lines": [["repeat", 20_000, ["line", "noise"]]],
    "wrong id": [["line", '{"jsonrpc":"2.0","id":999,"result":{}}'], ["hang"]],
    "twice": [["text", "one"], ["text", "two"]],
    "no JSON": [["line", "{"], ["text", "one"]],
    "odd result": [["line", '{"jsonrpc":"2.0","id":{id},"result":[]}']],
    "hangs": [["hang"]],
    "stops reading": [["stop_reading"]],
}
REASONS = {
    "dies": "TOOL_NOT_AVAILABLE", "floods a line": "TOOL_NOT_AVAILABLE", "floods lines": "TOOL_NOT_AVAILABLE",
    "wrong id": "LIMIT_TIME", "odd result": "TOOL_FAILED", "hangs": "LIMIT_TIME", "stops reading": "LIMIT_TIME",
}  # fmt: skip


@pytest.mark.parametrize("how", BAD)
@pytest.mark.sampled(4)
def test_a_bad_server_costs_only_its_own_calls(tmp_path: Path, store_path: Path, how: str) -> None:
    needs_walls()
    # The limit is short only where a call is expected to end at it: a busy machine takes its time for the others.
    seconds = 1 if REASONS.get(how) == "LIMIT_TIME" else SECONDS
    entry = {"effect": "read_only", "limits": {"wall_seconds": seconds}}
    servers: dict[str, Any] = {
        "bad": {"script": {"tools": ["bad"], "calls": {"bad": BAD[how]}}, "tools": {"*": entry}},
        "good": {"script": {}, "tools": {"*": {"effect": "read_only"}}},
    }
    workspace = Workspace(tmp_path, store_path, servers, {"tools": ["bad.bad", "good.echo"]})

    async def scene() -> tuple[dict[str, Any], list[str], Client]:
        async with workspace.gateway() as client:
            bad = asyncio.create_task(client.call("bad__bad"))
            good = [await client.say("good__echo", {"n": n}) for n in range(20)]
            return await bad, good, client

    bad, good, client = asyncio.run(scene())
    assert good == [f'{{"n": {n}}}' for n in range(20)]
    assert client.twice == []
    if how in REASONS:
        assert bad["isError"] is True
        assert text_of(bad).startswith(f"{REASONS[how]}: ")
    else:
        assert text_of(bad) == "one"
    [receipt] = [one for one in workspace.receipts() if one.tool == "bad.bad"]
    assert receipt.reason == REASONS.get(how, "ALLOWED")
    assert receipt.code == {"TOOL_NOT_AVAILABLE": "not_available", "LIMIT_TIME": "timed_out"}.get(
        receipt.reason, "execution_failed" if how in REASONS else "ok"
    )


@both_eras
def test_calls_go_on_after_a_crash_and_none_is_repeated(tmp_path: Path, store_path: Path, era: str) -> None:
    needs_walls()
    log = tmp_path / "data" / "log"
    log.parent.mkdir()
    server = {
        "script": {"era": era, "tools": ["dies", "echo"], "calls": {"dies": [["append", str(log), "x"], ["exit", 1]]}},
        "grants": ["fs:write:${workdir}/data"],
        "tools": {"*": {"effect": "write_limited"}},
    }
    given = {
        "tools": ["s.dies", "s.echo"], "fs_reach": {"write": ["${workdir}/data"]},
        "max_side_effect_class": "write_limited", "approvals": {"write": "manifest"},
    }  # fmt: skip
    workspace = Workspace(tmp_path, store_path, {"s": server}, given)

    async def scene() -> tuple[str, str]:
        async with workspace.gateway("2025") as client:
            died = await client.say("dies")
            while (said := await client.say("echo")).startswith("TOOL_NOT_AVAILABLE"):
                await asyncio.sleep(0.05)
            return died, said

    died, said = asyncio.run(scene())
    assert "whether the call had an effect is not known" in died
    assert said == "{}"
    assert log.read_text() == "x"


# A standing approval --------------------------------------------------------------------------------------------------


def test_a_server_is_started_again_when_its_standing_approval_ends() -> None:
    """The next call waits for the new process, whether a call or the clock notices the end first."""
    script = {"tools": ["a"], "calls": {"a": [["text", "one"]]}}
    again = {"tools": ["a"], "calls": {"a": [["text", "two"]]}}

    async def steps(server: Kept) -> None:
        one = server.one
        assert text_of_answer(await call(one.upstream(), "a")) == "one"
        one._stands = lambda: server.starts > 1  # the first process was started under the approval
        await one.settled()
        assert text_of_answer(await call(one.upstream(), "a")) == "two"
        assert server.reports == [
            "s: the standing approval of deletes has ended; it is started again without it",
        ]

    kept(steps, script, again, locked=["a"])


def test_the_end_of_a_standing_approval_is_noticed_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_server, "STANDING_SECONDS", 0.01)

    async def steps(server: Kept) -> None:
        server.one._stands = lambda: server.starts > 1
        await server.until(lambda: server.starts == 2)
        await server.one.settled()
        assert server.one.upstream()

    kept(steps, {"tools": ["a"]}, {"tools": ["a"]}, locked=["a"])


# A freeze -------------------------------------------------------------------------------------------------------------


def test_the_process_of_a_frozen_server_ends_and_starts_again_after_the_thaw() -> None:
    async def steps(server: Kept) -> None:
        one, frozen = server.one, ["stop"]
        one._frozen = lambda: "".join(frozen)
        await server.until(lambda: server.reports)
        assert server.reports == ["s: it is frozen: stop"]
        with pytest.raises(NotRunning, match="it is frozen: stop"):
            one.upstream()
        assert server.starts == 1
        frozen.clear()
        await one.settled()  # a call that comes now waits for the new process
        assert text_of_answer(await call(one.upstream(), "a")) == "two"
        assert server.starts == 2

    one, two = ({"tools": ["a"], "calls": {"a": [["text", text]]}} for text in ("one", "two"))
    kept(steps, one, two, locked=["a"])
