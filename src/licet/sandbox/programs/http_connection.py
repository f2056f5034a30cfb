"""HTTP/1.1 connections of programs to the proxy: which bytes are a request, and how an answer is written.

h11 parses and writes HTTP. `_check_text` and `_check_request` refuse what h11 accepts and another reader could take for
a different request: see there for the list. `HttpConnection` carries one request; for those that carry more, of
inspected programs, see `inspection/kept_http.py`.
"""

import asyncio
import re
import socket
import struct
from collections.abc import Callable, Iterable
from http import HTTPStatus

import h11
from msgspec import Struct

from licet.core.algebra.rules import Use
from licet.errors import Refused
from licet.guard.handles.messages import (
    HEADER_VALUE,
    HOP_BY_HOP,
    BadRequest,
    Pairs,
    check_header_name,
    check_may_have_body,
    is_connections_own,
)
from licet.guard.meter import Meter
from licet.sandbox.limits import (
    CHUNK,
    CHUNKS_AT_ONCE,
    LARGEST_REQUEST_BODY,
    LARGEST_REQUEST_HEAD,
    MOST_CHUNKS,
)

_STATUS = {"RESOLVE_FAILED": 502, "CONNECT_FAILED": 502, "LIMIT_HOST_MEMORY": 413, "LIMIT_HEADERS": 431}
_LENGTH = re.compile(rb"[0-9]{1,12}")
_NOT_PASSED_BACK = HOP_BY_HOP - {"content-length"}
_RESET = struct.pack("ii", 1, 0)  # a `struct linger`: on, of no seconds


class BadProxyRequest(Exception):
    """The bytes that a program sent are not a request that the proxy passes on."""

    def __init__(self, text: str, status: int = 400, *, shown: str = "") -> None:
        super().__init__(text)
        self.status, self.shown = status, shown or text  # in a receipt: without what the program sent


class ProxyRequest(Struct, frozen=True):
    """The head of a request."""

    method: str
    target: str
    headers: Pairs

    @property
    def length(self) -> int | None:
        """The bytes of the body; None if they come in chunks."""
        if self.values("transfer-encoding"):
            return None
        return int(next(iter(self.values("content-length")), "0"))

    def values(self, name: str) -> list[str]:
        """The values of all headers with this name, which is in lower case."""
        return [value for known, value in self.headers if known.lower() == name]

    @property
    def connection(self) -> frozenset[str]:
        """The words that `Connection` lists, in lower case."""
        return frozenset(word.strip().lower() for value in self.values("connection") for word in value.split(","))

    @property
    def passed_on(self) -> Pairs:
        """The headers for the server: without those of this connection, and those that `Connection` lists."""
        named = self.connection
        return tuple(
            (name, value)
            for name, value in self.headers
            if name.lower() not in named and not is_connections_own(name.lower())
        )


class HttpConnection:
    """The server side of one connection, for one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, meter: Meter) -> None:
        self.reader, self.writer, self._meter = reader, writer, meter
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_REQUEST_HEAD)
        self._has_body = True  # of the response

    async def read_request(self, first: bytes) -> ProxyRequest:
        """The request whose first byte was read. Raises `BadProxyRequest`, and `Exceeded` for too many headers."""
        try:
            raw = first + await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise head_too_long() from None
        request = parsed_head(raw, self._http, self._meter)
        if request.length is not None and request.length > LARGEST_REQUEST_BODY:
            raise _body_too_long()
        self._has_body = request.method != "HEAD"
        return request

    async def read_body(self, take: Callable[[int], None]) -> bytes:
        """The body of the request; `take` is called with the size of each piece before it is kept."""
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
        body, chunks = bytearray(), 0
        while not isinstance(event := next_event(self._http), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                self._http.receive_data(await self.reader.read(CHUNK))
                continue
            chunks += event.chunk_start
            if chunks >= MOST_CHUNKS:
                raise BadProxyRequest(f"the body has more than {MOST_CHUNKS} chunks", 413)
            if len(body) + len(event.data) > LARGEST_REQUEST_BODY:
                raise _body_too_long()
            take(len(event.data))
            body += event.data
            if chunks % CHUNKS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return bytes(body)

    # The response

    async def respond(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the head of the response. Raises `h11.LocalProtocolError` if it is not valid HTTP."""
        await self._send(response_head(status, headers, last=True))

    async def send(self, data: bytes) -> None:
        """Send a piece of the response's body."""
        if self._has_body:
            await self._send(h11.Data(data))

    async def end(self) -> None:
        """Complete the response."""
        await self._send(h11.EndOfMessage())

    async def refuse(self, status: int, text: str) -> None:
        """Send a response that says why there is none from the server."""
        headers, body = refusal(text)
        await self.respond(status, headers)
        await self.send(body)
        await self.end()

    async def accept_tunnel(self) -> None:
        """Answer `CONNECT`: from now on the connection carries bytes."""
        await self._send(h11.Response(status_code=200, headers=[], reason="Connection established"))

    def break_off(self) -> None:
        """Reset the connection: a program could take half a response that ends quietly for a complete one."""
        reset(self.writer)

    async def _send(self, event: h11.Event) -> None:
        self.writer.write(self._http.send(event) or b"")
        await self.writer.drain()


def parsed_head(raw: bytes, http: h11.Connection, meter: Meter) -> ProxyRequest:
    """A head up to its empty line, as a request. Raises `BadProxyRequest`, and `Exceeded` for too many headers."""
    meter.check_headers(raw.count(b"\r\n") - 2)  # without the request line and the empty line
    _check_text(raw)
    if b"\r\nhost:" not in raw.lower():
        # The target names the host, and some programs send nothing else; h11 expects the header nevertheless.
        raw = raw[:-2] + b"Host:\r\n\r\n"
    http.receive_data(raw)
    event = next_event(http)
    if not isinstance(event, h11.Request):
        raise BadProxyRequest("expected an HTTP request")
    headers = tuple((name.decode("ascii"), value.decode("ascii")) for name, value in event.headers.raw_items())
    request = ProxyRequest(event.method.decode("ascii"), event.target.decode("ascii"), headers)
    try:
        _check_request(request, raw)
    except BadRequest as wrong:
        raise BadProxyRequest(str(wrong)) from None
    return request


def next_event(http: h11.Connection) -> object:
    """What comes next in what was received; `BadProxyRequest` if it is not HTTP."""
    try:
        return http.next_event()
    except h11.RemoteProtocolError as wrong:
        text = "the request is not valid HTTP/1.1"
        raise BadProxyRequest(f"{text}: {wrong}", shown=text) from None


def head_too_long() -> BadProxyRequest:
    """The refusal of a head that does not end."""
    return BadProxyRequest(f"the head of the request has more than {LARGEST_REQUEST_HEAD} bytes", 431)


def _body_too_long() -> BadProxyRequest:
    return BadProxyRequest(f"the body has more than {LARGEST_REQUEST_BODY} bytes", 413)


def _check_text(raw: bytes) -> None:
    """Refuse bytes that readers understand differently: not ASCII, bare line ends, folded lines, other versions."""
    if not raw.isascii():
        raise BadProxyRequest("the head of the request is not ASCII")
    start, *lines = raw[:-4].split(b"\r\n")
    if any(b"\r" in line or b"\n" in line for line in (start, *lines)):
        raise BadProxyRequest("a line of the head does not end with CR LF")
    if any(line.startswith((b" ", b"\t")) for line in lines):
        raise BadProxyRequest("a header is continued on a second line")
    if not start.endswith((b" HTTP/1.1", b" HTTP/1.0")):
        raise BadProxyRequest("the first line is not a request of HTTP/1.1 or HTTP/1.0")


def _check_request(request: ProxyRequest, raw: bytes) -> None:
    """Refuse control characters, deceptive headers, bodies without meaning, and a length that is stated twice.

    h11 merges lengths that are equal, so they are counted in the raw bytes.
    """
    for name, value in request.headers:
        if not HEADER_VALUE.fullmatch(value):
            text = "has a value that is not one line of visible ASCII"
            raise BadProxyRequest(f"the header {name} {text}", shown=f"a header {text}")
        check_header_name(name)
    lines = [line.split(b":", 1) for line in raw[:-4].split(b"\r\n")[1:]]
    lengths = [value.strip(b" \t") for name, value in lines if name.lower() == b"content-length"]
    chunked = any(name.lower() == b"transfer-encoding" for name, _ in lines)
    if len(lengths) + chunked > 1:
        raise BadProxyRequest("the length of the body is stated in two ways")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise BadProxyRequest("the length of the body is not a number")
    if chunked or (lengths and int(lengths[0])):
        check_may_have_body(request.method)


def response_head(status: int, headers: Iterable[tuple[str, str]], *, last: bool) -> h11.Response:
    """The head of an answer, without headers of the other connection; with `last` no request may follow it."""
    kept = [(name, value) for name, value in headers if name.lower() not in _NOT_PASSED_BACK]
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept]
    closing = [(b"Connection", b"close")] if last else []
    return h11.Response(status_code=status, headers=[*closing, *encoded], reason=_reason(status))


def connection_use(host: str, port: int) -> Use:
    """The use of a connection; an address may be in brackets. Raises `InvalidUse`."""
    bare = host.strip("[]")
    return Use(f"network:tcp:{f'[{bare}]' if ':' in bare else host}:{port}")


def status_of(refused: Refused) -> int:
    """The status of the answer that tells of a refusal."""
    return _STATUS.get(refused.code, 403)


def refusal(text: str) -> tuple[Pairs, bytes]:
    """The headers and the body of an answer that says why there is none from the server."""
    body = f"{text}\n".encode()
    kind = ("Content-Type", "text/plain; charset=utf-8")
    return (kind, ("Content-Length", str(len(body))), ("X-Licet", "refused")), body


def reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection: a program could take half a response that ends quietly for a complete one."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
