"""`licet gateway` as a process: a client over its standard streams, its end, and the ends of its servers."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from licet.cli.gateway import report
from pins import trust
from sandbox.levels import needs_walls

from .clients import SECONDS, Client, process_client
from .workspaces import AGENT, Workspace

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
LICET = [sys.executable, "-c", "from licet.cli import program; program()"]
SERVER: dict[str, Any] = {
    "script": {
        "tools": ["echo", "noise", "stays", "pid"],
        "calls": {"noise": [["stderr", "hear me \u202e"], ["text", "x"]], "stays": [["hang"]], "pid": [["pid"]]},
    },
    "tools": {"*": {"effect": "read_only"}},
}
GIVEN = {"tools": [f"s.{name}" for name in ("echo", "noise", "stays", "pid")]}


@pytest.fixture
def workspace(tmp_path: Path, store_path: Path) -> Workspace:
    needs_walls()
    return Workspace(tmp_path / "policy", store_path / "state", {"s": SERVER}, GIVEN)


def words(workspace: Workspace, *more: str) -> list[str]:
    place = workspace.place
    return [*LICET, "gateway", str(place / AGENT), "--state", str(workspace.state), "--workdir", str(place), *more]


def played(
    workspace: Workspace, steps: Callable[[Client, "asyncio.subprocess.Process"], Awaitable[Any]], *more: str,
    era: str = "2025", is_open: bool = True,
) -> tuple[Any, str, int | None]:  # fmt: skip
    """What the steps return, what is on standard error, and the exit code."""

    async def scene() -> tuple[Any, str, int | None]:
        async with process_client(words(workspace, *more), era, is_open=is_open) as (client, process):
            found = await steps(client, process)
        return found, "".join(client.errors), process.returncode

    return asyncio.run(scene())


@both_eras
def test_a_client_is_served_over_standard_streams(workspace: Workspace, era: str) -> None:
    async def steps(client: Client, _: Any) -> Any:
        shown = await client.tools()
        return sorted(shown), await client.say("noise"), json.loads(await client.say("echo", {"é": "\u2028"}))

    (shown, said, echoed), errors, code = played(workspace, steps, era=era)
    assert shown == ["echo", "noise", "pid", "stays"]
    assert (said, echoed) == ("x", {"é": "\u2028"})
    assert "licet: s wrote: hear me \\u202e" in errors
    assert code == 0


def test_without_a_working_directory_it_is_that_of_the_policy(workspace: Workspace) -> None:
    """Clients start their servers anywhere, often in `/`: `${workdir}` must not be the whole disk then."""
    command = [*LICET, "gateway", str(workspace.place / AGENT), "--state", str(workspace.state)]

    async def scene() -> str:
        async with process_client(["env", "--chdir=/", *command]) as (client, _):
            await client.tools()
        return "".join(client.errors)

    assert f"licet: ${{workdir}} is {workspace.place}\n" in asyncio.run(scene())


def test_a_working_directory_that_is_not_there_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    command = [*LICET, "gateway", str(workspace.place / AGENT), "--workdir", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, "there is no such directory" in done.stderr) == (1, True)


def test_one_connection_is_one_session_and_a_session_can_be_continued(workspace: Workspace) -> None:
    async def steps(client: Client, _: Any) -> str:
        return await client.say("echo")

    for more in ((), (), ("--session", "mine"), ("--session", "mine")):
        played(workspace, steps, *more)
    first, second, *named = (one.session for one in workspace.receipts())
    assert first.startswith("g-")
    assert second.startswith("g-")
    assert first != second
    assert named == ["mine", "mine"]


@pytest.mark.parametrize(
    ("more", "text"),
    [(("--session", "no spaces"), "expected a session id"), (("--session", ""), "expected a session id")],
)
@pytest.mark.sampled(1)
def test_a_session_id_that_is_none_is_refused(workspace: Workspace, more: tuple[str, ...], text: str) -> None:
    async def steps(client: Client, process: "asyncio.subprocess.Process") -> None:
        async with asyncio.timeout(SECONDS):
            await process.wait()

    _, errors, code = played(workspace, steps, *more, is_open=False)
    assert text in errors
    assert "Traceback" not in errors
    assert code not in (0, None)


LINES: list[tuple[bytes, dict[str, Any] | None]] = [
    (b"{", None),
    (b"[]", None),
    (b'{"jsonrpc":"2.0","id":5,"method":7}', {"id": 5, "code": -32600}),
    (b'{"jsonrpc":"2.0","id":6,"method":"tasks/list"}', {"id": 6, "code": -32601}),
    (b'{"jsonrpc":"2.0","method":"vendor/news"}', None),
    (b'{"jsonrpc":"2.0","id":"x","result":7}', None),
]


def test_bad_lines_of_a_client_cost_only_themselves(workspace: Workspace) -> None:
    async def steps(client: Client, process: "asyncio.subprocess.Process") -> list[Any]:
        assert process.stdin is not None
        for line, _ in LINES:
            process.stdin.write(line + b"\n")
        await client.say("echo")
        return client.twice

    answers, _, code = played(workspace, steps)
    expected = [answer for _, answer in LINES if answer]
    assert [{"id": one["id"], "code": one["error"]["code"]} for one in answers] == expected
    assert code == 0


def test_the_end_of_the_client_ends_calls_and_servers(workspace: Workspace) -> None:
    async def steps(client: Client, process: "asyncio.subprocess.Process") -> int:
        await client.say("echo")
        await client.begin("tools/call", {"name": "stays", "arguments": {}})
        while not any(one.tool == "s.stays" for one in workspace.entries()):
            await asyncio.sleep(0.02)
        return servers_of(process.pid)[0]

    pid, _, code = played(workspace, steps)
    assert code == 0
    assert not is_alive(pid)
    assert [(one.tool, one.code) for one in workspace.receipts()] == [("s.echo", "ok"), ("s.stays", "execution_failed")]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.sampled(1)
def test_no_server_outlives_a_gateway_that_is_ended(workspace: Workspace, how: signal.Signals) -> None:
    async def steps(client: Client, process: "asyncio.subprocess.Process") -> list[int]:
        await client.say("echo")
        pids = servers_of(process.pid)
        process.send_signal(how)
        async with asyncio.timeout(SECONDS):
            await process.wait()
        return pids

    pids, errors, _ = played(workspace, steps)
    assert pids
    assert "Traceback" not in errors
    for pid in pids:
        for _ in range(500):
            if not is_alive(pid):
                break
            signal.sigtimedwait([], 0.01)
        assert not is_alive(pid)


def test_without_servers_the_command_says_what_to_use(tmp_path: Path, store_path: Path) -> None:
    (tmp_path / AGENT).write_text('{"agent": "a", "capabilities": {}}')
    trust(tmp_path / AGENT)

    async def scene() -> tuple[str, int | None]:
        async with process_client([*LICET, "gateway", str(tmp_path / AGENT)], is_open=False) as (client, process):
            async with asyncio.timeout(SECONDS):
                await process.wait()
        return "".join(client.errors), process.returncode

    errors, code = asyncio.run(scene())
    assert "there are no `servers:` to stand in front of" in errors
    assert code not in (0, None)


def test_a_report_that_nobody_reads_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as end, os.fdopen(writing, "w") as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        for _ in range(1_000):
            report("x" * 10_000)
        written = end.read1()
    assert written.startswith(b"licet: xxx")
    assert max(map(len, written.split(b"\n"))) <= 4_000


@pytest.mark.parametrize("closed", [None, io.StringIO()], ids=["none", "no file"])
def test_a_report_needs_no_standard_error(monkeypatch: pytest.MonkeyPatch, closed: io.StringIO | None) -> None:
    monkeypatch.setattr(sys, "stderr", closed)
    report("x")
    assert closed is None or closed.getvalue() == "licet: x\n"


def servers_of(pid: int) -> list[int]:
    """The scripted servers among the descendants of a process."""
    parents: dict[int, int] = {}
    scripted: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"scripted_server.py" in (entry / "cmdline").read_bytes():
                    scripted.append(int(entry.name))
            except OSError:
                continue
    return [one for one in scripted if pid in _above(one, parents)]


def _above(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while pid in parents:
        pid = parents[pid]
        found.append(pid)
    return found


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
