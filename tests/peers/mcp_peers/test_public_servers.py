"""Public MCP servers, seen through an Upstream: the era they are opened in, their definitions, and one call each.

LICET_MCP2_PYTHON is a Python with `mcp` 2.x, mcp-server-time and mcp-server-git; LICET_MCP1_PYTHON one with `mcp` 1.x
and mcp-server-sqlite; LICET_NPM a directory where npm installed server-everything and server-filesystem.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.servers import RecordingPeer, call, text_of
from licet.mcp.exchange import TimedOut, UpstreamError
from licet.mcp.jsonrpc import Notification
from licet.mcp.link import PipeLink
from licet.mcp.listing import Definitions, definitions
from licet.mcp.upstream import Upstream

SECONDS = 60.0
OFFERS: dict[str, Any] = {"sampling": {}, "elicitation": {"form": {}}, "roots": {"listChanged": True}}


def python(variable: str, *words: str) -> list[str]:
    """The command of a server that runs in another Python."""
    program = os.environ.get(variable)
    if not program:
        pytest.skip(f"{variable} names no Python")
    return [program, *words]


def script(variable: str, name: str, *words: str) -> list[str]:
    """The command of a program that is installed next to another Python."""
    return [str(Path(python(variable)[0]).with_name(name)), *words]


def node(name: str, *words: str) -> list[str]:
    """The command of a server of npm."""
    place = os.environ.get("LICET_NPM")
    if not place:
        pytest.skip("LICET_NPM names no directory")
    return ["node", f"{place}/node_modules/@modelcontextprotocol/{name}/dist/index.js", *words]


@asynccontextmanager
async def running(
    words: list[str], peer: RecordingPeer | None = None, offers: dict[str, Any] | None = None, prefer: Any = ""
) -> AsyncIterator[Upstream]:
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        files = process.stdin, process.stdout, process.stderr
        ends = []
        for file in files:
            assert file is not None
            ends.append(os.dup(file.fileno()))
            file.close()
        upstream = Upstream("peer", PipeLink(*ends, grace=10), peer or RecordingPeer(), offers or {})
        try:
            await upstream.open(prefer, seconds=SECONDS)
            yield upstream
        finally:
            await upstream.close()
            process.kill()


def names(found: Definitions) -> set[str]:
    return {tool["name"] for tool in found.tools}


async def listed(upstream: Upstream) -> Definitions:
    return await definitions(upstream, upstream.opened, seconds=SECONDS)


@pytest.mark.parametrize(("prefer", "era"), [("", "2026"), ("2026", "2026"), ("2025", "2025")])
def test_mcp_server_time(prefer: str, era: str) -> None:
    async def scene() -> tuple[str, set[str], str]:
        words = python("LICET_MCP2_PYTHON", "-m", "mcp_server_time")
        async with running(words, prefer=prefer) as upstream:
            answer = await call(upstream, "get_current_time", {"timezone": "UTC"})
            with pytest.raises(UpstreamError, match="nope"):
                await call(upstream, "nope")
            return upstream.opened.era, names(await listed(upstream)), text_of(answer)

    opened, tools, text = asyncio.run(scene())
    assert (opened, tools) == (era, {"get_current_time", "convert_time"})
    assert '"timezone": "UTC"' in text


def test_mcp_server_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(tmp_path)], check=True)

    async def scene() -> tuple[str, set[str], str]:
        async with running(python("LICET_MCP2_PYTHON", "-m", "mcp_server_git")) as upstream:
            answer = await call(upstream, "git_status", {"repo_path": str(tmp_path)})
            return upstream.opened.era, names(await listed(upstream)), text_of(answer)

    opened, tools, text = asyncio.run(scene())
    assert opened == "2026"
    assert {"git_status", "git_commit"} <= tools
    assert "On branch main" in text


def test_mcp_server_sqlite(tmp_path: Path) -> None:
    async def scene() -> tuple[str, Definitions, str]:
        words = script("LICET_MCP1_PYTHON", "mcp-server-sqlite", "--db-path", str(tmp_path / "a.db"))
        async with running(words) as upstream:
            found = await listed(upstream)
            return upstream.opened.era, found, text_of(await call(upstream, "list_tables"))

    opened, found, text = asyncio.run(scene())
    assert (opened, text) == ("2025", "[]")
    assert len(found.tools) == 6
    assert (len(found.resources), len(found.templates), len(found.prompts)) == (1, 0, 1)


def test_server_filesystem(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")

    async def scene() -> tuple[str, str, bool]:
        async with running(node("server-filesystem", str(tmp_path))) as upstream:
            inside = await call(upstream, "read_text_file", {"path": str(tmp_path / "a.txt")})
            outside = await call(upstream, "read_text_file", {"path": "/etc/passwd"})
            return upstream.opened.era, text_of(inside), outside.data["isError"]

    assert asyncio.run(scene()) == ("2025", "hello", True)


@pytest.mark.parametrize(("offers", "count"), [({}, 13), (OFFERS, 16)])
def test_server_everything_offers_what_the_client_can_do(offers: dict[str, Any], count: int) -> None:
    peer = RecordingPeer({"roots/list": {"roots": []}})

    async def scene() -> Definitions:
        async with running(node("server-everything"), peer, offers) as upstream:
            return await listed(upstream)

    found = asyncio.run(scene())
    assert len(found.tools) == count
    assert (len(found.resources), len(found.templates), len(found.prompts)) == (7, 2, 4)
    assert Notification("notifications/tools/list_changed", {}) in peer.notes


def test_server_everything_asks_and_shows_progress_and_is_cancelled() -> None:
    sampled = {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "m"}
    answers: dict[str, dict[str, Any]] = {
        "roots/list": {"roots": []},
        "sampling/createMessage": sampled,
        "elicitation/create": {"action": "decline"},
    }
    peer = RecordingPeer(answers)
    steps: list[Any] = []

    async def scene() -> tuple[str, str]:
        async with running(node("server-everything"), peer, OFFERS) as upstream:
            await listed(upstream)
            slow = {"duration": 0.1, "steps": 2}
            await call(upstream, "trigger-long-running-operation", slow, progress=steps.append)
            with pytest.raises(TimedOut):
                await call(upstream, "trigger-long-running-operation", {"duration": 60, "steps": 2}, seconds=0.2)
            first = await call(upstream, "trigger-sampling-request", {"prompt": "2+2"}, caller="c-1")
            second = await call(upstream, "trigger-elicitation-request", caller="c-2")
            return text_of(first), text_of(second)

    sampling, elicited = asyncio.run(scene())
    assert steps == [{"progress": 1, "total": 2}, {"progress": 2, "total": 2}]
    assert "four" in sampling
    assert "declined" in elicited
    assert ("sampling/createMessage", "c-1") in [(request.method, during) for request, during in peer.asks]
    assert ("elicitation/create", "c-2") in [(request.method, during) for request, during in peer.asks]
