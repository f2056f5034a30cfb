"""Reads the messages in the body of an HTTP answer: one JSON text, or a stream of server-sent events.

Events are parsed as bytes, and not by a parser of text: messages stay the bytes that came, and unfinished ones can be
counted. A message has at most as many bytes as somebody waits for, after decompression. All messages of one server that
are unfinished, or that nobody has received yet, share 64 MiB.

The headers that carry a message of MCP over HTTP.

Since 2026-07-28 the method, the name of the tool and some arguments are repeated in headers, so that intermediaries
need not parse the body. Servers refuse a request whose headers say something else than its body.
"""

import base64
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

from licet.backends.http import Pace
from licet.core.algebra.domains import TOKEN
from licet.guard.handles.messages import Corrupt, Decoder, Headers, Pairs
from licet.guard.meter import Exceeded, Meter
from licet.guard.ports import Reply, Unconnected
from licet.mcp.limits import HELD_MB, LONGEST_EVENT_ID, MOST_HEADER_BYTES, MOST_LINE_BYTES, SLICE_BYTES
from licet.mcp.link import Flood, Gone
from licet.mcp.protocol import VERSION_KEY

_ENDLESS = 1 << 62  # bytes of a stream; each message in it is limited
_VISIBLE = re.compile(rb"[\x21-\x7e]+")
_NUMBER = re.compile(rb"[0-9]{1,9}")


def new_meter() -> Meter:
    """A meter of what the streams of one server hold."""
    return Meter({"host_memory_mb": HELD_MB})


class Events:
    """Parses a stream of server-sent events, and keeps what is needed to continue it on another connection."""

    def __init__(self, longest: Callable[[], int] = lambda: MOST_LINE_BYTES) -> None:
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
            case b"id" if len(value) <= LONGEST_EVENT_ID and _VISIBLE.fullmatch(value):
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
            for start in range(0, len(piece), SLICE_BYTES):
                await pace.keep()  # each line costs time, and a piece may be nothing but ends of lines
                part = piece[start : start + SLICE_BYTES]
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


async def whole_body(reply: Reply, meter: Meter, most: int = MOST_LINE_BYTES) -> bytes:
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


ANNOTATION = "x-mcp-header"  # in the schema of an argument: the header that repeats it
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TYPES = ("string", "integer", "boolean")


class BadHeaders(Exception):
    """A request cannot be sent, because its headers cannot be written."""


def modern_version(params: Mapping[str, Any]) -> str:
    """The version that a request states in `_meta`, since 2026-07-28; empty for older ones."""
    meta = params.get("_meta")
    version = meta.get(VERSION_KEY) if isinstance(meta, Mapping) else None
    return version if isinstance(version, str) else ""


def modern_headers(method: str, params: Mapping[str, Any], schema: Mapping[str, Any]) -> Pairs:
    """The headers of a request since 2026-07-28. `schema` is that of the arguments of the tool that is called."""
    pairs = [("MCP-Protocol-Version", modern_version(params)), ("Mcp-Method", method)]
    name = params.get(_NAMED_BY.get(method, ""))
    if isinstance(name, str):
        pairs.append(("Mcp-Name", header_text(name)))
    arguments = params.get("arguments")
    if method == "tools/call" and isinstance(arguments, Mapping):
        pairs += _argument_headers(schema, arguments)
    if sum(len(key) + len(value) for key, value in pairs) > MOST_HEADER_BYTES:
        raise BadHeaders(f"the name and the arguments that headers repeat have more than {MOST_HEADER_BYTES} bytes")
    return tuple(pairs)


def header_text(text: str) -> str:
    """A text as the value of a header: as it is if it is plain ASCII, else in base64.

    >>> header_text("search"), header_text("größe")
    ('search', '=?base64?Z3LDtsOfZQ==?=')
    """
    if not text or (_PLAIN.fullmatch(text) and not _ENCODED.fullmatch(text)):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode('ascii')}?="


def _argument_headers(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for path, header, kind in annotated(schema):
        if not isinstance(header, str) or not TOKEN.fullmatch(header) or kind not in _TYPES or header.lower() in seen:
            raise BadHeaders(f"the tool's schema has an invalid `{ANNOTATION}` at `{'.'.join(path)}`")
        seen.add(header.lower())
        value = _at(arguments, path)
        if isinstance(value, bool):
            yield f"Mcp-Param-{header}", "true" if value else "false"
        elif isinstance(value, str | int | float):
            yield f"Mcp-Param-{header}", header_text(str(value))


def annotated(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The arguments that headers repeat: the path through `properties`, the name of the header, the type."""
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) and len(path) < 20 else ():
        if isinstance(inner, Mapping):
            if ANNOTATION in inner:
                yield (*path, name), inner[ANNOTATION], inner.get("type")
            yield from annotated(inner, (*path, name))


def _at(arguments: Mapping[str, Any], path: tuple[str, ...]) -> object:
    value: object = arguments
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
