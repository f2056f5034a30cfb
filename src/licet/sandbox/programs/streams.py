"""One connection, read and written, without transports and with few turns of the loop: a proxy makes very many.

What can be read or sent is, at once. Only what cannot waits in the loop, and never beyond the time that it is given.
Whoever always has more to say is no exception: after some reads, others have their turn and the time is looked at.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

CHUNK = 1 << 16  # bytes read at once; and the longest line, or head, that is looked for
FOR_EVER = float("inf")
MOST_READS = 32  # that need not wait, before others have their turn


class TooFar(EOFError):
    """What was looked for does not come within reach."""


class Stream:
    """A connected socket, which belongs to this stream from now on.

    `before_waiting` is awaited before this stream waits for the other side to say something: what is to be sent
    elsewhere can be kept together until then.
    """

    __slots__ = ("_before_waiting", "_buffer", "_end", "_loop", "_reads", "_unsent")

    def __init__(self, end: socket.socket, before_waiting: Callable[[], Awaitable[None]] | None = None) -> None:
        end.setblocking(False)
        if end.family in (socket.AF_INET, socket.AF_INET6):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._unsent = bytearray()
        self._reads = 0
        self._before_waiting = before_waiting

    def clock(self, seconds: float) -> float:
        """The time when so many seconds will be over."""
        return self._loop.time() + seconds

    # Reading

    async def read(self, most: int, until: float) -> bytes:
        """Some bytes, none at the end; `TimeoutError` if none come in time."""
        await self._turn(until)
        if not self._buffer:
            data = await self._received(until)
            if len(data) == CHUNK:  # where more comes than is asked for, others have their turn
                await asyncio.sleep(0)
            if len(data) <= most:
                return data
            self._buffer += data
        return self._taken(min(most, len(self._buffer)))

    async def exactly(self, size: int, until: float) -> bytes:
        """So many bytes, or `EOFError`."""
        await self._turn(until)
        while len(self._buffer) < size:
            await self._more(until)
        return self._taken(size)

    async def gather(self, size: int, until: float, take: Callable[[int], None], into: BytesIO) -> None:
        """So many bytes into memory, or `EOFError`; `take` is told of each piece before it is kept."""
        while size:
            piece = await self.read(min(size, CHUNK), until)
            if not piece:
                raise EOFError
            take(len(piece))
            into.write(piece)
            size -= len(piece)

    async def through(self, mark: bytes, until: float) -> bytes:
        """Everything up to a mark and the mark, or `EOFError`; `TooFar` if that is too much."""
        await self._turn(until)
        searched = 0
        while (found := self._buffer.find(mark, searched)) < 0:
            if len(self._buffer) > CHUNK:
                raise TooFar
            searched = max(0, len(self._buffer) - len(mark) + 1)
            await self._more(until)
        return self._taken(found + len(mark))

    def _taken(self, size: int) -> bytes:
        with memoryview(self._buffer) as view:
            data = bytes(view[:size])
        del self._buffer[:size]
        return data

    async def _turn(self, until: float) -> None:
        """Count a read; after so many, let others go on, and look at the time, which nobody does who never waits."""
        self._reads += 1
        if self._reads < MOST_READS:
            return
        self._reads = 0
        await asyncio.sleep(0)
        if self._loop.time() > until:
            raise TimeoutError

    async def _more(self, until: float) -> None:
        await self._turn(until)
        data = await self._received(until)
        if not data:
            raise EOFError
        self._buffer += data

    async def _received(self, until: float) -> bytes:
        while True:
            try:
                return self._end.recv(CHUNK)
            except (BlockingIOError, InterruptedError):
                if self._before_waiting is not None:
                    await self._before_waiting()
                await self._wait(self._loop.add_reader, self._loop.remove_reader, until)

    # Writing

    def write(self, data: bytes) -> None:
        """Have bytes sent with the next that are sent."""
        self._unsent += data

    async def send(self, data: bytes = b"", until: float = FOR_EVER) -> None:
        """Send bytes, and all that were written before."""
        if len(data) < CHUNK or not self._unsent:
            data = bytes(self._unsent) + data if self._unsent else data
        else:
            await self.send(b"", until)
        self._unsent.clear()
        left = memoryview(data)  # of which nothing is copied, however long it is
        while left:
            try:
                left = left[self._end.send(left) :]
            except (BlockingIOError, InterruptedError):
                await self._wait(self._loop.add_writer, self._loop.remove_writer, until)

    def end_writing(self) -> None:
        """Say that nothing more will come."""
        self._end.shutdown(socket.SHUT_WR)

    async def _wait(self, add: Callable[..., None], remove: Callable[..., object], until: float) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        late: Any = self._loop.call_at(until, _late, ready) if until != FOR_EVER else None
        fd = self._end.fileno()
        add(fd, _ready, ready)
        try:
            await ready
        finally:
            if late is not None:
                late.cancel()
            if self._end.fileno() == fd:  # it was not closed meanwhile, when the number may be another's by now
                remove(fd)

    # The end

    def close(self) -> None:
        """End the connection. What was sent ends quietly, though the other side may not have been heard out."""
        with suppress(OSError):
            self.end_writing()
        self.abort()

    def abort(self) -> None:
        """End the connection, whatever was said."""
        if self._end.fileno() >= 0:
            for remove in (self._loop.remove_reader, self._loop.remove_writer):
                remove(self._end.fileno())
            self._end.close()

    def break_off(self) -> None:
        """End the connection with a reset: half an answer that ends quietly would be taken for a whole one."""
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.abort()


_AT_ONCE = b"\1\0\0\0\0\0\0\0"  # a `struct linger` that is on, of no seconds


def _ready(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def _late(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_exception(TimeoutError())
