"""Carries lines to a server process, or to the client of this process. It knows no message.

Nothing that comes is held without a limit: a line has at most 32 MiB, and is read only when it is asked for, so a side
that floods has to wait. What a server writes to stderr goes to a callback and never to the client.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from licet.surfaces.gateway.byte_streams import (
    Gone,
    Sink,
    Source,
    pipe_sink,
    pipe_source,
    shared_sink,
    shared_source,
)
from licet.surfaces.gateway.jsonrpc import MOST_BYTES

__all__ = ["Flood", "Gone", "Lines", "Link", "LogLines", "PipeLink", "StdioLink"]

_MOST_IN_A_ROW = 32  # lines before other tasks get a turn
_LONGEST_LOG_LINE = 2_000  # characters
_LOG_BUFFER = 1 << 16  # bytes of a log line that are kept until its end comes
_LOG_LINES = 200  # at once
_LOG_LINES_A_SECOND = 20


class Flood(Exception):
    """The other side sent a line that is too long."""


class Link(Protocol):
    """Lines to and from the other side. One task at a time receives."""

    async def receive(self) -> bytes:
        """One line without its newline; no bytes when it has ended. Raises `Flood`."""

    async def send(self, line: bytes) -> None:
        """Send a line, which ends with a newline, or wait for the other side to read. Raises `Gone`.

        The line is sent whole or not at all, also if the caller is cancelled.
        """

    async def close(self) -> None:
        """End it. Lines that were not read are dropped."""


class Lines:
    """The lines of a source, without blank ones. A last line without a newline is dropped: its writer has crashed."""

    def __init__(self, source: Source, most: int = MOST_BYTES) -> None:
        self._source = source
        self._most = most
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer that have no newline
        self._in_a_row = 0

    async def receive(self) -> bytes:
        """The next line; no bytes at the end. Raises `Flood`."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end > self._most or (end < 0 and len(self._buffer) > self._most):
                raise Flood(f"a line of more than {self._most} bytes")
            if end >= 0:
                line = bytes(memoryview(self._buffer)[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                await self._share()
                if line and not line.isspace():
                    return line
                continue
            self._searched = len(self._buffer)
            data = await self._source.read()
            if not data:
                return b""
            self._buffer += data

    async def _share(self) -> None:
        """Let other tasks run now and then: a side that floods must not stop the others."""
        self._in_a_row += 1
        if self._in_a_row >= _MOST_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)


class PipeLink:
    """Lines to and from a server process, over the pipes of its standard streams. The link owns the pipes.

    `filter` is applied to each line that comes, also on stderr, before anybody sees it. It sees one line at a time.
    """

    def __init__(
        self,
        stdin: int,
        stdout: int,
        stderr: int | None = None,
        *,
        filter: Callable[[bytes], bytes] | None = None,  # noqa: A002
        log: Callable[[str], None] | None = None,
        grace: float = 2.0,
    ) -> None:
        self._sink = pipe_sink(stdin)
        self._source = pipe_source(stdout)
        self._lines = Lines(self._source)
        self._filter = filter
        self._grace = grace
        self._errors = pipe_source(stderr) if stderr is not None else None
        self._logging: asyncio.Task[None] | None = None
        if self._errors is not None:
            self._logging = asyncio.create_task(LogLines(log, filter).drain(self._errors))

    async def receive(self) -> bytes:
        """One line without its newline; no bytes when the server has ended. Raises `Flood`."""
        while line := await self._lines.receive():
            if self._filter is not None:
                line = self._filter(line)
            if line:
                return line
        return b""

    async def send(self, line: bytes) -> None:
        """Send a line, or wait for the server to read. Raises `Gone`."""
        await self._sink.write(line)

    async def close(self) -> None:
        """Close the server's input, give it some time to end by itself, and close the rest. Its output is dropped."""
        self._sink.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace):
                    while await self._source.read():
                        await asyncio.sleep(0)
                    if self._logging is not None:
                        await asyncio.wait([self._logging])
        finally:
            self._source.close()
            if self._errors is not None:
                self._errors.close()
            if self._logging is not None:
                self._logging.cancel()


class LogLines:
    """Hands on lines of a log: each cut to a length, and all of them to a rate. The rest is dropped and counted."""

    def __init__(
        self,
        log: Callable[[str], None] | None,
        filter: Callable[[bytes], bytes] | None = None,  # noqa: A002
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._filter = filter
        self._clock = clock
        self._allowance, self._since = float(_LOG_LINES), clock()
        self._dropped = 0
        self._buffer = bytearray()

    async def drain(self, source: Source) -> None:
        """Read a source to its end, so that its writer never waits."""
        while data := await source.read():
            self.feed(data)
            await asyncio.sleep(0)
        self.feed(b"\n")
        self._tell_dropped()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the log."""
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._keep(part)
            self._tell(bytes(self._buffer))
            self._buffer.clear()
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._buffer += part[: _LOG_BUFFER - len(self._buffer)]

    def _tell(self, line: bytes) -> None:
        if self._log is None or not line.strip():
            return
        now = self._clock()
        self._allowance = min(_LOG_LINES, self._allowance + (now - self._since) * _LOG_LINES_A_SECOND)
        self._since = now
        if self._allowance < 1:
            self._dropped += 1
            return
        self._tell_dropped()
        self._allowance -= 1
        if self._filter is not None:
            line = self._filter(line)
        text = line.decode(errors="replace").rstrip("\r")
        self._log(text if len(text) <= _LONGEST_LOG_LINE else text[:_LONGEST_LOG_LINE] + " …")

    def _tell_dropped(self) -> None:
        if self._dropped and self._log is not None:
            self._log(f"… {self._dropped} lines dropped")
            self._dropped = 0


class StdioLink:
    """Lines to and from the client of this process, over its own standard input and output.

    The link moves both streams to descriptors that nothing else knows. Until `close`, descriptor 0 is empty and
    descriptor 1 is standard error: whatever this process or a child of it prints cannot get between the messages.
    """

    def __init__(self) -> None:
        self._saved: tuple[int, ...] = (os.dup(0), os.dup(1))  # not inherited
        self._source = shared_source(os.dup(0))
        self._sink: Sink = shared_sink(os.dup(1))
        self._lines = Lines(self._source)
        _divert()

    async def receive(self) -> bytes:
        """One line without its newline; no bytes when the client has ended. Raises `Flood`."""
        return await self._lines.receive()

    async def send(self, line: bytes) -> None:
        """Send a line, or wait for the client to read. Raises `Gone`."""
        await self._sink.write(line)

    async def close(self, grace: float = 2.0) -> None:
        """Wait a little until all lines are written, and put the standard streams back."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._sink.flushed()
        self._sink.close()
        self._source.close()
        for place, saved in enumerate(self._saved):
            os.dup2(saved, place)
            os.close(saved)
        self._saved = ()


def _divert() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed
        os.dup2(nothing, 1)
    os.close(nothing)
