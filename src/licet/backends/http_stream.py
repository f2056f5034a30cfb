"""Lets other tasks run while an answer is parsed, however many small parts it has.

The parsers of HTTP return to the event loop only to read. One read can hold thousands of interim answers (status 1xx),
chunks or frames, and each of them costs as much as a long one. So the head of an answer, and everything of HTTP/2, is
read in small pieces, and a parser that has worked for a millisecond yields to the event loop.
"""

import asyncio
import weakref
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpcore2

MOST_HEAD = 128 << 10  # bytes of an answer before its body, with all interim answers; `ctx.fetch` takes fewer
_SMALL = 2 << 10  # bytes read at once where each of them may cost time: most heads are shorter
_MOST_LINES = 1_000  # of all these heads: each costs as much as many bytes, and real answers have fewer than a hundred
_MOST_ANSWERS = 32  # status lines before the body: real servers send one or two interim answers
_SLICE, _REST = 0.001, 0.002  # seconds: a call needs many turns of the loop, and may wait for a slice at each


class HeadTooLong(Exception):
    """An answer has too many interim answers, or a head with too many bytes or lines."""


# By event loop: who has worked for long rests one after the other, so that many of them delay others no more than one.
_RESTING: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = weakref.WeakKeyDictionary()


class Pace:
    """Lets other tasks run each time that this one has worked for a moment without waiting for anything."""

    __slots__ = ("_since", "_turned")

    def __init__(self) -> None:
        self._since = 0.0
        self._turned = True  # whether the event loop has run something else since the last look

    async def keep(self) -> None:
        """Rest if other tasks have waited for this one for too long."""
        if not self._turned:
            if monotonic() - self._since < _SLICE:
                return
            async with _RESTING.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                await asyncio.sleep(_REST)
        self._turned, self._since = False, monotonic()
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turned = True


class PacedStream:
    """A connection below a parser of HTTP, with the methods of `httpcore2.AsyncNetworkStream`."""

    def __init__(self, stream: "httpcore2.AsyncNetworkStream") -> None:
        self.pace = Pace()
        self._stream = stream
        self._head: int | None = 0  # bytes of the head so far; None while a body is read
        self._answers = self._lines = 0
        secured: Any = stream.get_extra_info("ssl_object")
        self._has_frames = secured is not None and secured.selected_alpn_protocol() == "h2"

    def expect_head(self) -> None:
        """The next bytes are the head of an answer."""
        self._head = self._answers = self._lines = 0

    def expect_body(self) -> None:
        """The head has been read."""
        self._head = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes; `HeadTooLong` if there are too many before the body."""
        await self.pace.keep()
        is_head = self._head is not None
        data = await self._stream.read(min(max_bytes, _SMALL) if is_head or self._has_frames else max_bytes, timeout)
        if self._head is not None:
            self._head += len(data)
            self._answers += data.count(b"HTTP/1.")
            if self._head > MOST_HEAD or self._answers > _MOST_ANSWERS or self._lines > _MOST_LINES:
                raise HeadTooLong
            self._lines += data.count(b"\n")  # counted from the next read on: these may be lines of a body
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write bytes."""
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **kwargs: Any) -> "httpcore2.AsyncNetworkStream":
        """Begin TLS."""
        return await self._stream.start_tls(*args, **kwargs)

    def get_extra_info(self, info: str) -> Any:
        """What the connection knows about itself."""
        return self._stream.get_extra_info(info)
