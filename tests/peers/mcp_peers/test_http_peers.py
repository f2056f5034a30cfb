"""Remote servers of the official SDKs, seen through the gateway's own client.

`LICET_MCP1_PYTHON` and `LICET_MCP2_PYTHON` name Pythons with mcp 1.x and 2.x, and `LICET_NPM` names a directory whose
`node_modules` have `@modelcontextprotocol/server-everything`. What is not there is skipped.
"""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.http_servers import link_to
from gateway.servers import SECONDS, RecordingPeer, call, text_of
from licet.mcp.listing import definitions
from licet.mcp.upstream import Upstream

SERVER = Path(__file__).with_name("sdk_http_server.py")
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
SDKS = [
    (variable, mode, era)
    for variable, eras in (("LICET_MCP1_PYTHON", ("2025",)), ("LICET_MCP2_PYTHON", ("2025", "2026")))
    for mode in ("events", "json", "stateless")
    for era in eras
]
ASKING = [
    (variable, "events", era)
    for variable, mode, era in SDKS
    if mode == "events" and (variable, era) != ("LICET_MCP2_PYTHON", "2026")  # there, tools ask in another way
]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def needed(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return value


@asynccontextmanager
async def opened(
    words: Callable[[int], list[str]], era: Any, peer: RecordingPeer | None = None, environment: Any = None
) -> AsyncIterator[Upstream]:
    """A server process, seen through an Upstream that is open."""
    port = free_port()
    process = subprocess.Popen(words(port), env={**os.environ, **(environment or {}), "PORT": str(port)})
    try:
        await _answers(port)
        link = link_to(f"http://127.0.0.1:{port}/mcp", schemas={"near": REGION})
        upstream = Upstream("far", link, peer or RecordingPeer(), {"elicitation": {}})
        try:
            opened = await upstream.open(era, seconds=SECONDS)
            assert not era or opened.era == era
            yield upstream
        finally:
            await upstream.close()
    finally:
        process.kill()
        process.wait()


async def _answers(port: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def sdk(python: str, mode: str) -> Callable[[int], list[str]]:
    return lambda port: [python, str(SERVER), str(port), mode]


def run(work: Coroutine[Any, Any, Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await work

    asyncio.run(bounded())


@pytest.mark.parametrize(("variable", "mode", "era"), SDKS)
def test_a_server_of_an_sdk_is_listed_and_called(variable: str, mode: str, era: str) -> None:
    async def work(python: str) -> None:
        async with opened(sdk(python, mode), era) as upstream:
            found = await definitions(upstream, upstream.opened, seconds=SECONDS)
            assert [one["name"] for one in found.tools] == ["echo", "count", "wait", "near", "ask"]
            assert text_of(await call(upstream, "echo", {"text": "grüße\n"})) == "grüße\n"
            large = "x" * 1_000_000
            assert text_of(await call(upstream, "echo", {"text": large}, most=4 << 20)) == large
            texts = [f"{number}" for number in range(30)]
            answers = await asyncio.gather(*(call(upstream, "echo", {"text": text}) for text in texts))
            assert [text_of(answer) for answer in answers] == texts
            assert text_of(await call(upstream, "near", {"region": "größe"})) == "größe"

    run(work(needed(variable)))


@pytest.mark.parametrize(("variable", "era"), [("LICET_MCP1_PYTHON", "2025"), ("LICET_MCP2_PYTHON", "2026")])
def test_the_era_is_found_out(variable: str, era: str) -> None:
    async def work(python: str) -> None:
        async with opened(sdk(python, "events"), "") as upstream:
            assert upstream.opened.era == era

    run(work(needed(variable)))


@pytest.mark.parametrize(("variable", "mode", "era"), [one for one in SDKS if one[1] == "events"])
def test_progress_comes_and_a_cancelled_call_ends(variable: str, mode: str, era: str) -> None:
    async def work(python: str) -> None:
        async with opened(sdk(python, mode), era) as upstream:
            steps: list[float] = []
            answer = await call(upstream, "count", {"to": 3}, progress=lambda step: steps.append(step["progress"]))
            assert (text_of(answer), steps) == ("counted to 3", [1, 2, 3])
            waiting = asyncio.create_task(call(upstream, "wait"))
            await call(upstream, "echo", {"text": "a"})
            waiting.cancel()
            await asyncio.wait([waiting])
            assert text_of(await call(upstream, "echo", {"text": "b"})) == "b"

    run(work(needed(variable)))


@pytest.mark.parametrize(("variable", "mode", "era"), ASKING)
def test_a_server_asks_during_a_call(variable: str, mode: str, era: str) -> None:
    async def work(python: str) -> None:
        peer = RecordingPeer({"elicitation/create": {"action": "accept", "content": {"name": "Ada"}}})
        async with opened(sdk(python, mode), era, peer) as upstream:
            assert text_of(await call(upstream, "ask")) == "Ada"

    run(work(needed(variable)))


def test_the_everything_server_of_the_typescript_sdk() -> None:
    script = Path(needed("LICET_NPM"), "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")

    async def work() -> None:
        async with opened(lambda _: ["node", str(script), "streamableHttp"], "") as upstream:
            assert upstream.opened.era == "2025"
            found = await definitions(upstream, upstream.opened, seconds=SECONDS)
            assert "echo" in {one["name"] for one in found.tools}
            assert text_of(await call(upstream, "echo", {"message": "a"})) == "Echo: a"
            steps: list[float] = []
            tool = next(one["name"] for one in found.tools if "long" in one["name"].lower())
            await call(
                upstream, tool, {"duration": 0.4, "steps": 4}, progress=lambda step: steps.append(step["progress"])
            )
            assert steps == [1, 2, 3, 4]

    run(work())
