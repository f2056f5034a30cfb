"""Carries lines to a server process, or to the client of this process. It knows no message.

Nothing that comes is held without a limit: a line is read only when it is asked for, so a side that floods has to wait.
Of a line that is longer than anybody waits for, only the two ends are kept; one of more than 32 MiB ends the link. What
a server writes to stderr goes to a callback and never to the client.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from licet.guard.redaction.redact import Redactor, in_turn, shown
from licet.mcp.jsonrpc import failed_answer, refused_request
from licet.mcp.limits import (
    END_BYTES,
    GRACE_SECONDS,
    LOG_BUFFER_BYTES,
    LOG_LINES_A_SECOND,
    LOG_LINES_AT_ONCE,
    LONGEST_LOG_LINE,
    MOST_IN_A_ROW,
    MOST_LINE_BYTES,
    TURN_BYTES,
)
from licet.sandbox.streams import Gone, Sink, Source, pipe_sink, pipe_source, shared_sink, shared_source

__all__ = ["Flood", "Gone", "Lines", "Link", "LogLines", "PipeLink", "Rate", "StdioLink"]


class Flood(Exception):
    """The other side sent a line that is too long."""


class Link(Protocol):
    """Lines to and from the other side. One task at a time receives.

    `longest` says how many bytes a line may have now. An answer that is longer becomes an error.
    """

    longest: Callable[[], int]

    async def receive(self) -> bytes:
        """One line without its newline; no bytes when it has ended. Raises `Flood`."""

    async def send(self, line: bytes) -> None:
        """Send a line, which ends with a newline, or wait for the other side to read. Raises `Gone`.

        The line is sent whole or not at all, also if the caller is cancelled.
        """

    async def close(self) -> None:
        """End it. Lines that were not read are dropped."""


class Rate:
    """A rate limit (token bucket): `at_once` events immediately, then `a_second` a second."""

    def __init__(self, at_once: int, a_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._a_second, self._clock = at_once, a_second, clock
        self._left, self._since = float(at_once), clock()

    def take(self) -> bool:
        """Whether one more is allowed; it then counts."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._since) * self._a_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Lines:
    """The lines of a source, without blank ones. A last line without a newline is dropped: its writer has crashed.

    A line of more than `most` bytes is a `Flood`. One of more than `longest()` is not kept: what `instead` makes of its
    two ends and its size takes its place.
    """

    def __init__(
        self,
        source: Source,
        most: int = MOST_LINE_BYTES,
        longest: Callable[[], int] | None = None,
        instead: Callable[[bytes, bytes, int], bytes] = lambda first, last, size: b"",
    ) -> None:
        self._source = source
        self._most = most
        self._longest = longest or (lambda: most)
        self._instead = instead
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer that have no newline
        self._first = b""  # of a line that is too long
        self._dropped = 0  # bytes of it that are not in the buffer
        self._in_a_row = 0

    async def receive(self) -> bytes:
        """The next line; no bytes at the end. Raises `Flood`."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if self._dropped + (end if end >= 0 else len(self._buffer)) > self._most:
                raise Flood(f"a line of more than {self._most} bytes")
            if end >= 0:
                line = self._line(end)
                del self._buffer[: end + 1]
                self._searched = 0
                await self._share(len(line))
                if line and not line.isspace():
                    return line
                continue
            if self._first or len(self._buffer) > self._longest():
                self._drop(len(self._buffer))
            self._searched = len(self._buffer)
            data = await self._source.read()
            if not data:
                return b""
            self._buffer += data
            await self._share(len(data))

    def _line(self, end: int) -> bytes:
        if not self._first and end <= self._longest():
            return bytes(memoryview(self._buffer)[:end])
        size = self._dropped + end
        first = self._first or bytes(self._buffer[:END_BYTES])
        self._first, self._dropped = b"", 0
        return self._instead(first, bytes(self._buffer[max(0, end - END_BYTES) : end]), size)

    def _drop(self, size: int) -> None:
        """Keep no more than the two ends of a line that is too long."""
        self._first = self._first or bytes(self._buffer[:END_BYTES])
        if size > END_BYTES:
            self._dropped += size - END_BYTES
            del self._buffer[: size - END_BYTES]

    async def _share(self, size: int) -> None:
        """Let other tasks run now and then: a side that floods must not stop the others."""
        self._in_a_row += 1 + size // TURN_BYTES
        if self._in_a_row >= MOST_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)


class PipeLink:
    """Lines to and from a server process, over the pipes of its standard streams. The link owns the pipes.

    The secrets of `redactor` are taken out of each line that comes, also on stderr, before anybody sees it.
    """

    def __init__(
        self,
        stdin: int,
        stdout: int,
        stderr: int | None = None,
        *,
        redactor: Redactor | None = None,
        log: Callable[[str], None] | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._sink = pipe_sink(stdin)
        self._source = pipe_source(stdout)
        self._lines = Lines(self._source, MOST_LINE_BYTES, lambda: self.longest(), self._too_long)
        self.longest: Callable[[], int] = lambda: MOST_LINE_BYTES
        self._log = log
        self._redactor = redactor or None  # one without secrets has nothing to do
        self._grace = grace
        self._errors = pipe_source(stderr) if stderr is not None else None
        self._logging: asyncio.Task[None] | None = None
        if self._errors is not None:
            self._logging = asyncio.create_task(LogLines(log, self._redactor).drain(self._errors))

    async def receive(self) -> bytes:
        """One line without its newline; no bytes when the server has ended. Raises `Flood`."""
        line = await self._lines.receive()
        if self._redactor is not None and line:
            # In turn with other work: a long line takes a minute, which may cost this server time, and no other.
            work = self._redactor.work(line, as_json=line.lstrip().startswith(b"{"))
            line = await in_turn(work)
        return line

    def _too_long(self, first: bytes, last: bytes, size: int) -> bytes:
        """An error in the place of an answer that is too long, so that only its request fails.

        A request that is too long is answered here, unless the server leaves what it was sent unread.
        """
        text = f"a message of {size} bytes, more than the {self.longest()} that are read"
        if not (instead := failed_answer(first, last, text)):
            if self._log is not None:
                self._log(f"it sent {text}")
            if answer := refused_request(first, last, text):
                self._sink.write_now(answer)
        return instead

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
        redactor: Redactor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._redactor = redactor or None
        self._rate = Rate(LOG_LINES_AT_ONCE, LOG_LINES_A_SECOND, clock)
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
        *complete, rest = data.split(b"\n", LOG_LINES_AT_ONCE)
        for part in complete:
            self._keep(part)
            self._tell(bytes(self._buffer))
            self._buffer.clear()
        # The rate lets no more through from one read: the others are counted, and not looked at.
        if more := rest.count(b"\n"):
            self._dropped += more
            rest = rest[rest.rindex(b"\n") + 1 :]
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._buffer += part[: LOG_BUFFER_BYTES - len(self._buffer)]

    def _tell(self, line: bytes) -> None:
        if self._log is None or not line.strip():
            return
        if not self._rate.take():
            self._dropped += 1
            return
        self._tell_dropped()
        if self._redactor is None:
            text, is_cut = line.decode(errors="replace"), False
        else:  # no more than the part that is shown is searched
            text, is_cut = shown(self._redactor.beginning(line, LONGEST_LOG_LINE)), len(line) > LONGEST_LOG_LINE
        text = text.rstrip("\r")
        is_cut |= len(text) > LONGEST_LOG_LINE
        self._log(text[:LONGEST_LOG_LINE] + " …" if is_cut else text)

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

    def send_now(self, line: bytes) -> bool:
        """Send a line if the client has read all others; returns whether it was sent."""
        return self._sink.write_now(line)

    async def close(self, grace: float = GRACE_SECONDS) -> None:
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
