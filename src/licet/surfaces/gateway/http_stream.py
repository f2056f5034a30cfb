"""Reads the messages in the body of an HTTP answer: one JSON text, or a stream of server-sent events.

Events are parsed as bytes, and not by a parser of text: messages stay the bytes that came, and unfinished ones can be
counted. A message has at most as many bytes as somebody waits for, after decompression. All messages of one server that
are unfinished, or that nobody has received yet, share 64 MiB.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterator

from licet.backends.http_stream import Pace
from licet.guard.handles.messages import Corrupt, Decoder, Headers
from licet.guard.meter import Exceeded, Meter
from licet.guard.ports import Reply, Unconnected
from licet.surfaces.gateway.jsonrpc import MOST_BYTES
from licet.surfaces.gateway.link import Flood, Gone

HELD_MB = 64  # of messages that were not yet received, in all streams of one server
LONGEST_ID = 1_000  # bytes of the id of an event
_SLICE = 1 << 11  # bytes that are split into lines at once
_ENDLESS = 1 << 62  # bytes of a stream; each message in it is limited
_VISIBLE = re.compile(rb"[\x21-\x7e]+")
_NUMBER = re.compile(rb"[0-9]{1,9}")


def new_meter() -> Meter:
    """A meter of what the streams of one server hold."""
    return Meter({"host_memory_mb": HELD_MB})


class Events:
    """Parses a stream of server-sent events, and keeps what is needed to continue it on another connection."""

    def __init__(self, longest: Callable[[], int] = lambda: MOST_BYTES) -> None:
        self._longest = longest
        self.last_id = ""
        self.retry: float | None = None  # seconds to wait, as the server said
        self.restart()

    def restart(self) -> None:
        """Forget what is unfinished: the next bytes are those of a new connection."""
        self._buffer = bytearray()
        self._after_return = False  # a line ended with "\r": a "\n" that follows belongs to it
        self._data: list[bytes] = []
        self._size = 0  # of the data
        self._name, self._id = b"", b""

    @property
    def held(self) -> int:
        """The bytes of the unfinished event."""
        return len(self._buffer) + self._size

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of each event that is complete now. Raises `Flood`."""
        if self._after_return and piece:
            piece = piece.removeprefix(b"\n")
            self._after_return = False
        for line in piece.splitlines(keepends=True):  # of bytes: only at "\n", "\r" and both
            self._after_return = line.endswith(b"\r")
            self._buffer += line.rstrip(b"\r\n")
            if line.endswith((b"\r", b"\n")):
                ready = self._take(bytes(self._buffer))
                self._buffer.clear()
                yield from ready
        self._check()

    def _take(self, line: bytes) -> list[bytes]:
        if not line:
            return self._finished()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._size += len(value) + 1
                self._check()
            case b"event":
                self._name = value[:100]
            case b"id" if len(value) <= LONGEST_ID and _VISIBLE.fullmatch(value):
                self._id = value
            case b"retry" if _NUMBER.fullmatch(value):
                self.retry = int(value) / 1000
        return []

    def _finished(self) -> list[bytes]:
        data, name = b"\n".join(self._data), self._name
        self._data, self._size, self._name = [], 0, b""
        self.last_id = self._id.decode() or self.last_id
        return [data] if data and name in (b"", b"message") else []

    def _check(self) -> None:
        _check_size(self.held, self._longest())


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise Flood(f"a message of more than {most} bytes")


def content_type(headers: Headers) -> str:
    """The type of an answer in lower case, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def event_data(reply: Reply, events: Events, meter: Meter) -> AsyncGenerator[bytes]:
    """The messages of a stream. Raises `Gone` if it breaks or floods."""
    events.restart()
    counted, pace = 0, Pace()
    try:
        async for piece in _pieces(reply):
            for start in range(0, len(piece), _SLICE):
                await pace.keep()  # each line costs time, and a piece may be nothing but ends of lines
                part = piece[start : start + _SLICE]
                meter.take_memory(len(part))
                counted += len(part)
                for data in events.feed(part):
                    yield data
                meter.give_memory(counted - events.held)
                counted = events.held
    except (Exceeded, Flood) as flood:
        raise Gone(_sent(flood)) from None
    finally:
        meter.give_memory(counted)


async def whole_body(reply: Reply, meter: Meter, most: int = MOST_BYTES) -> bytes:
    """A complete body. Raises `Gone` if it breaks or is too long."""
    parts: list[bytes] = []
    size = 0
    try:
        async for piece in _pieces(reply):
            _check_size(size + len(piece), most)
            meter.take_memory(len(piece))
            size += len(piece)
            parts.append(piece)
    except (Exceeded, Flood) as flood:
        raise Gone(_sent(flood)) from None
    finally:
        meter.give_memory(size)
    return b"".join(parts)


def _sent(flood: Exception) -> str:
    return f"it sent {flood}" if isinstance(flood, Flood) else "it sent too much at once"


async def _pieces(reply: Reply) -> AsyncGenerator[bytes]:
    decoder = Decoder(Headers(reply.headers).get("content-encoding", ""), _ENDLESS)
    pace = Pace()
    try:
        async for raw in reply.body:
            for piece in decoder.feed(raw):
                await pace.keep()  # a piece may be one byte, and a few bytes may decompress to many
                if piece:
                    yield piece
        decoder.finish()
    except (Corrupt, Unconnected) as broken:
        raise Gone(str(broken)) from None
