"""Just enough HTTP/1.1 for a proxy that trusts neither side: request heads and bodies in, reply heads out.

Strict where laxness has led requests astray: one length, no folded lines, no bare line ends, names that are names.
"""

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from io import BytesIO
from typing import NamedTuple

from licet.core.algebra.domains import TOKEN
from licet.guard.handles.messages import METHOD_OVERRIDES
from licet.guard.meter import Meter
from licet.sandbox.programs.streams import Stream

MOST_BODY = 32 << 20
MOST_CHUNKS = 1 << 17  # of a body: each costs the same, however little is in it
_MOST_LINES = 256  # of trailers, which nobody reads
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_BODILESS = ("GET", "HEAD")
_LENGTH = re.compile(r"[0-9]{1,12}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")

# What is between a client and its proxy alone, or will be said anew for what is really sent.
_OURS = frozenset({"connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "te", "trailer"})
_OURS |= {"transfer-encoding", "upgrade"}

Pairs = tuple[tuple[str, str], ...]


class BadHead(ValueError):
    """What a client sent is no request that can be passed on."""

    def __init__(self, text: str, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


class Head(NamedTuple):
    """The head of a request."""

    method: str
    target: str
    headers: Pairs

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for each, value in self.headers if each.lower() == name]

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for a word before it sends its body."""
        return "100-continue" in [value.lower() for value in self.all("expect")]

    @property
    def passed_on(self) -> Pairs:
        """The headers that go to the other side: not those of the connection, nor those that it names as such."""
        named = {word.strip().lower() for value in self.all("connection") for word in value.split(",")}
        return tuple(
            (name, value)
            for name, value in self.headers
            if name.lower() not in _OURS | named and not name.lower().startswith("proxy-")
        )


async def read_head(first: bytes, stream: Stream, until: float, meter: Meter) -> Head:
    """The head that begins with a byte; `BadHead` if it is none, `Exceeded` if it has too many lines."""
    raw = first + await stream.through(b"\r\n\r\n", until)
    meter.check_headers(raw.count(b"\r\n") - 2)  # without the first line and the empty one
    try:
        start, *lines = raw[:-4].decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise BadHead("the head of the request is not ASCII") from None
    parts = start.split(" ")
    if len(parts) != 3 or not TOKEN.fullmatch(parts[0]) or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadHead("the first line is no request")
    return Head(parts[0], parts[1], tuple(map(_header, lines)))


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
        raise BadHead("a header is not one line with a name and a value")
    if name.lower().replace("_", "-") in METHOD_OVERRIDES:
        raise BadHead(f"the header {name} names another method than the one that is checked: send that one")
    return name, value


async def read_body(head: Head, stream: Stream, until: float, take: Callable[[int], None]) -> bytes:
    """The whole body of a request; `BadHead` if nobody can tell where it ends, or it is too long.

    `take` is told of each piece before it is kept.
    """
    codings, lengths = head.all("transfer-encoding"), head.all("content-length")
    if head.method in _BODILESS and (codings or lengths not in ([], ["0"])):
        raise BadHead(f"{head.method} has no body through this proxy")
    if codings:
        if lengths or [coding.lower() for coding in codings] != ["chunked"]:
            raise BadHead("the length of the body is said in two ways, or in one that is not known")
        return await _chunked(stream, until, take)
    if not lengths:
        return b""
    if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        raise BadHead("the length of the body is no number")
    if int(lengths[0]) > MOST_BODY:
        raise BadHead(f"the body has more than {MOST_BODY} bytes", too_large=True)
    body = BytesIO()
    await stream.gather(int(lengths[0]), until, take, body)
    return body.getvalue()


async def _chunked(stream: Stream, until: float, take: Callable[[int], None]) -> bytes:
    body = BytesIO()
    for _ in range(MOST_CHUNKS):
        line = _CHUNK_SIZE.fullmatch(await stream.through(b"\r\n", until))
        if line is None:
            raise BadHead("a chunk of the body has no size")
        size = int(line[1], 16)
        if body.tell() + size > MOST_BODY:
            raise BadHead(f"the body has more than {MOST_BODY} bytes", too_large=True)
        if not size:
            break
        await stream.gather(size, until, take, body)
        if await stream.exactly(2, until) != b"\r\n":
            raise BadHead("a chunk of the body is longer than it says")
    else:
        raise BadHead(f"the body has more than {MOST_CHUNKS} chunks", too_large=True)
    for _ in range(_MOST_LINES):
        if await stream.through(b"\r\n", until) == b"\r\n":  # trailers say nothing that is passed on
            return body.getvalue()
    raise BadHead("the request has too many headers")


def reply_head(status: int, text: str | None = None, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """The head of an answer after which the connection ends; with a text, the whole answer."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "-"
    lines = [f"HTTP/1.1 {status} {phrase}", "Connection: close"]
    hidden = _OURS - {"content-length"}
    lines += [f"{name}: {value}" for name, value in headers if name.lower() not in hidden]
    body = b""
    if text is not None:
        body = f"{text}\n".encode()
        lines += ["Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}", "X-Licet: refused"]
    return "\r\n".join((*lines, "", "")).encode("latin-1", "replace") + body
