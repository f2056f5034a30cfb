"""Starts scripted servers, and records what the gateway is asked and told."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from licet.mcp.exchange import Answer
from licet.mcp.jsonrpc import Id, Notification, ProtocolError, Request
from licet.mcp.link import PipeLink
from licet.mcp.upstream import Peer, Upstream

SCRIPTED = Path(__file__).with_name("scripted_server.py")
SECONDS = 30.0  # for what is expected to happen; no test waits so long

Answering = Callable[[Request], Awaitable[dict[str, Any]]]


def command(script: dict[str, Any] | str) -> list[str]:
    """The command that starts a scripted server. A text is `@` and the file of a long script."""
    return [sys.executable, "-I", "-S", str(SCRIPTED), script if isinstance(script, str) else json.dumps(script)]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run what must end within the time for what is expected to happen."""

    async def limited() -> None:
        async with asyncio.timeout(SECONDS):
            await work

    asyncio.run(limited())


def bounded(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs in an event loop, and must end in time."""

    @wraps(test)
    def running(**given: Any) -> None:
        run(test(**given))

    return running


class RecordingPeer(Peer):
    """Answers the requests of a server with data, or as a function says, and keeps everything."""

    def __init__(self, answers: dict[str, dict[str, Any]] | Answering | None = None) -> None:
        self.answers = answers or {}
        self.asks: list[tuple[Request, Id | None]] = []
        self.notes: list[Notification] = []
        self.reports: list[str] = []
        self.told_one = asyncio.Event()

    async def asked(self, server: str, request: Request, during: Id | None) -> dict[str, Any]:
        self.asks.append((request, during))
        if callable(self.answers):
            return await self.answers(request)
        if request.method not in self.answers:
            raise ProtocolError(-32000, "not now")
        return self.answers[request.method]

    def told(self, server: str, notification: Notification) -> None:
        self.notes.append(notification)
        self.told_one.set()

    def dropped(self, server: str, text: str) -> None:
        self.reports.append(text)


@asynccontextmanager
async def linked(
    words: Sequence[str], *, grace: float = 2.0, **options: Any
) -> AsyncIterator[tuple[PipeLink, "subprocess.Popen[bytes]"]]:
    """A link to a process. The process is killed at the end if it still runs."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env={}) as process:
        try:
            files = process.stdin, process.stdout, process.stderr
            ends = []
            for file in files:
                assert file is not None
                ends.append(os.dup(file.fileno()))
                file.close()
            link = PipeLink(*ends, grace=grace, **options)
            try:
                yield link, process
            finally:
                await link.close()
        finally:
            process.kill()


@asynccontextmanager
async def serving(
    script: dict[str, Any] | str,
    peer: RecordingPeer | None = None,
    offers: dict[str, Any] | None = None,
    *,
    prefer: Any = "",
    is_opened: bool = True,
    grace: float = 2.0,
    **options: Any,
) -> AsyncIterator[Upstream]:
    """A scripted server, seen through an Upstream that is open."""
    async with linked(command(script), grace=grace) as (link, _):
        upstream = Upstream("files", link, peer or RecordingPeer(), offers or {}, **options)
        try:
            if is_opened:
                await upstream.open(prefer, seconds=SECONDS)
            yield upstream
        finally:
            await upstream.close()


async def call(upstream: Upstream, tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> Answer:
    """Call a tool of a server."""
    options.setdefault("seconds", SECONDS)
    return await upstream.request("tools/call", {"name": tool, "arguments": arguments or {}}, **options)


def text_of(answer: Answer) -> str:
    """The text of a tool result."""
    text = answer.data["content"][0]["text"]
    assert isinstance(text, str)
    return text


async def seen(upstream: Upstream) -> list[dict[str, Any]]:
    """All messages that came to a server whose tool `seen` shows them."""
    messages: list[dict[str, Any]] = json.loads(text_of(await call(upstream, "seen")))
    return messages
