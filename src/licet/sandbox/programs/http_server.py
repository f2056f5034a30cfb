"""One HTTP/1.1 connection of a program to the proxy: one request in, one response out.

h11 parses and writes HTTP. `_check_text` and `_check_request` refuse what h11 accepts and another reader could take for
a different request: see there for the list.
"""

import asyncio
import re
import socket
import struct
from collections.abc import Callable, Iterable
from http import HTTPStatus

import h11
from msgspec import Struct

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

MOST_HEAD = 1 << 16  # bytes
MOST_BODY = 32 << 20
MOST_CHUNKS = 1 << 17  # of a body: each takes the same time, however short it is
CHUNK = 1 << 16  # bytes read at once
_CHUNKS_AT_ONCE = 64  # before other tasks run
_LENGTH = re.compile(rb"[0-9]{1,12}")
_RESET = struct.pack("ii", 1, 0)  # a `struct linger`: on, of no seconds


class BadProxyRequest(Exception):
    """The bytes that a program sent are not a request that the proxy passes on."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class ProxyRequest(Struct, frozen=True):
    """The head of a request."""

    method: str
    target: str
    headers: Pairs

    @property
    def passed_on(self) -> Pairs:
        """The headers for the server: without those of this connection, and those that `Connection` lists."""
        named = {
            word.strip().lower()
            for name, value in self.headers
            if name.lower() == "connection"
            for word in value.split(",")
        }
        return tuple(
            (name, value)
            for name, value in self.headers
            if name.lower() not in named and not is_connections_own(name.lower())
        )


class HttpConnection:
    """The server side of one connection, for one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, meter: Meter) -> None:
        self.reader, self.writer, self._meter = reader, writer, meter
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
        self._has_body = True  # of the response

    async def read_request(self, first: bytes) -> ProxyRequest:
        """The request whose first byte was read. Raises `BadProxyRequest`, and `Exceeded` for too many headers."""
        try:
            raw = first + await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise BadProxyRequest(f"the head of the request has more than {MOST_HEAD} bytes", 431) from None
        self._meter.check_headers(raw.count(b"\r\n") - 2)  # without the request line and the empty line
        _check_text(raw)
        if b"\r\nhost:" not in raw.lower():
            # The target names the host, and some programs send nothing else; h11 expects the header nevertheless.
            raw = raw[:-2] + b"Host:\r\n\r\n"
        self._http.receive_data(raw)
        event = self._next_event()
        if not isinstance(event, h11.Request):
            raise BadProxyRequest("expected an HTTP request")
        headers = tuple((name.decode("ascii"), value.decode("ascii")) for name, value in event.headers.raw_items())
        request = ProxyRequest(event.method.decode("ascii"), event.target.decode("ascii"), headers)
        try:
            _check_request(request, raw)
        except BadRequest as wrong:
            raise BadProxyRequest(str(wrong)) from None
        self._has_body = request.method != "HEAD"
        return request

    async def read_body(self, take: Callable[[int], None]) -> bytes:
        """The body of the request; `take` is called with the size of each piece before it is kept."""
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
        body, chunks = bytearray(), 0
        while not isinstance(event := self._next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                self._http.receive_data(await self.reader.read(CHUNK))
                continue
            chunks += event.chunk_start
            if chunks >= MOST_CHUNKS:
                raise BadProxyRequest(f"the body has more than {MOST_CHUNKS} chunks", 413)
            if len(body) + len(event.data) > MOST_BODY:
                raise BadProxyRequest(f"the body has more than {MOST_BODY} bytes", 413)
            take(len(event.data))
            body += event.data
            if chunks % _CHUNKS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return bytes(body)

    def _next_event(self) -> object:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as wrong:
            raise BadProxyRequest(f"the request is not valid HTTP/1.1: {wrong}") from None

    # The response

    async def respond(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the head of the response. Raises `h11.LocalProtocolError` if it is not valid HTTP."""
        kept = [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP - {"content-length"}]
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept]
        head = h11.Response(status_code=status, headers=[(b"Connection", b"close"), *encoded], reason=_reason(status))
        await self._send(head)

    async def send(self, data: bytes) -> None:
        """Send a piece of the response's body."""
        if self._has_body:
            await self._send(h11.Data(data))

    async def end(self) -> None:
        """Complete the response."""
        await self._send(h11.EndOfMessage())

    async def refuse(self, status: int, text: str) -> None:
        """Send a response that says why there is none from the server."""
        body = f"{text}\n".encode()
        length = str(len(body))
        kind = ("Content-Type", "text/plain; charset=utf-8")
        await self.respond(status, [kind, ("Content-Length", length), ("X-Licet", "refused")])
        await self.send(body)
        await self.end()

    async def accept_tunnel(self) -> None:
        """Answer `CONNECT`: from now on the connection carries bytes."""
        await self._send(h11.Response(status_code=200, headers=[], reason="Connection established"))

    def break_off(self) -> None:
        """Reset the connection: a program could take half a response that ends quietly for a complete one."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()

    async def _send(self, event: h11.Event) -> None:
        self.writer.write(self._http.send(event) or b"")
        await self.writer.drain()


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
    """Refuse control characters, deceptive headers, bodies without meaning, and a length stated twice or too large.

    h11 merges lengths that are equal, so they are counted in the raw bytes.
    """
    for name, value in request.headers:
        if not HEADER_VALUE.fullmatch(value):
            raise BadProxyRequest(f"the header {name} has a value that is not one line of visible ASCII")
        check_header_name(name)
    lines = [line.split(b":", 1) for line in raw[:-4].split(b"\r\n")[1:]]
    lengths = [value.strip(b" \t") for name, value in lines if name.lower() == b"content-length"]
    chunked = any(name.lower() == b"transfer-encoding" for name, _ in lines)
    if len(lengths) + chunked > 1:
        raise BadProxyRequest("the length of the body is stated in two ways")
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise BadProxyRequest("the length of the body is not a number")
    length = int(lengths[0]) if lengths else 0
    if chunked or length:
        check_may_have_body(request.method)
    if length > MOST_BODY:
        raise BadProxyRequest(f"the body has more than {MOST_BODY} bytes", 413)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
