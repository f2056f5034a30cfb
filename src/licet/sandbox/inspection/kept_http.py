"""Which bytes does a program say inside TLS that ends here? The server side of TLS, and of HTTP/1.1 above it.

A connection carries requests one after the other, each read as strictly as a request to the proxy. What follows a
request is not parsed before that one is answered, and bodies stream: nothing here holds a whole one.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import TypeVar

import h11

from licet.guard.meter import Meter
from licet.sandbox.limits import (
    ANSWER_SECONDS,
    CHUNK,
    CHUNKS_AT_ONCE,
    IDLE_SECONDS,
    LARGEST_REQUEST_HEAD,
    MOST_UNHEARD,
    REQUEST_SECONDS,
    UNHEARD_SECONDS,
)
from licet.sandbox.programs.http_connection import (
    BadProxyRequest,
    ProxyRequest,
    head_too_long,
    next_event,
    parsed_head,
    refusal,
    reset,
    response_head,
)

_Done = TypeVar("_Done")
_HTTP2_PREFACE = b"PRI * HTTP/2"
_END_OF_HEAD = b"\r\n\r\n"


class Http2Preface(BadProxyRequest):
    """A program speaks HTTP/2, which was not agreed on."""


class WatchedReader(asyncio.StreamReader):
    """Reads a connection, and calls `ended` as soon as the other side has closed it, if that is set."""

    ended: Callable[[], object] | None = None

    def feed_eof(self) -> None:
        """The other side has ended."""
        super().feed_eof()
        self._tell()

    def set_exception(self, exc: BaseException) -> None:
        """The connection broke."""
        super().set_exception(exc)  # type: ignore[arg-type]
        self._tell()

    def _tell(self) -> None:
        if self.ended is not None:
            self.ended()


class TlsConnection:
    """The server side of TLS over a connection that was accepted.

    Built on `ssl.SSLObject`, because bytes of the handshake may have been read with what came before it.
    """

    def __init__(
        self,
        reader: WatchedReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
        is_host: Callable[[str], bool],
    ) -> None:
        self.reader, self.writer, self._context, self._is_host = reader, writer, context, is_host
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.other_host = ""  # that the program asked for in its handshake

    async def shake_hands(self) -> None:
        """Begin TLS. Raises `TimeoutError`, and `ssl.SSLError` if the program disagrees, or asks for another host."""

        def step() -> None:
            # The context belongs to all connections to one host. It is called back within this step alone.
            self._context.sni_callback = self._named
            try:
                self._tls.do_handshake()
            finally:
                self._context.sni_callback = None

        async with asyncio.timeout(REQUEST_SECONDS):
            await self._until_done(step)

    def _named(self, _: object, name: str | None, __: object) -> int | None:
        if name is None or self._is_host(name):  # none for an address
            return None
        self.other_host = name
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    @property
    def has_protocol(self) -> bool:
        """Whether both sides agreed on a protocol inside TLS."""
        return self._tls.selected_alpn_protocol() is not None

    async def read(self) -> bytes:
        """Some bytes, or none at the end. Raises `ssl.SSLError` for what is no TLS."""
        try:
            data = await self._until_done(lambda: self._tls.read(CHUNK))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # what ends here is complete by the lengths of HTTP, or not
            return b""
        with suppress(ssl.SSLError):  # an error comes again when nothing is left before it
            while 0 < len(data) < CHUNK and (more := self._tls.read(CHUNK - len(data))):
                data += more
        return data

    async def write(self, data: bytes) -> None:
        """Write bytes; returns when more can be taken."""
        self.push(data)
        await self.writer.drain()

    def push(self, data: bytes) -> None:
        """Write bytes, however many are unsent."""
        if data:
            self._tls.write(data)
            self.writer.write(self._outgoing.read())

    async def end(self, *, heard: bool) -> None:
        """Say that nothing follows. Unless all is `heard`, let the program read what was sent before the end."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        await self._flush()
        if heard:
            return
        if self.writer.can_write_eof():
            self.writer.write_eof()
        unheard = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(UNHEARD_SECONDS):
                # Bytes that arrive at a closed connection would reset it, and the program could lose the answer.
                while unheard < MOST_UNHEARD and (data := await self.reader.read(CHUNK)):
                    unheard += len(data)

    async def _until_done(self, step: Callable[[], _Done]) -> _Done:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self._flush()
                if data := await self.reader.read(CHUNK):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError:
                await self._flush()  # the alert
                raise
            else:
                if self._outgoing.pending:
                    await self._flush()
                return done

    async def _flush(self) -> None:
        if self._outgoing.pending:
            self.writer.write(self._outgoing.read())
            await self.writer.drain()


class KeptHttp:
    """The server side of HTTP/1.1 on one connection, one request after the other."""

    def __init__(self, tls: TlsConnection, meter: Meter) -> None:
        self._tls, self._meter = tls, meter
        self._unread = bytearray()  # has arrived, and is not parsed yet
        self._http = h11.Connection(h11.SERVER)
        self._is_head = False  # whether the request is a HEAD, whose answer has no body
        self._is_read = False  # the whole request
        self._unsent = bytearray()  # of the answer
        self._pushing: asyncio.Handle | None = None
        self._waiting: asyncio.Timeout | None = None
        self.started = False  # the answer to the request
        self.is_idle = True  # no request has begun since the last answer
        self.waited_in_vain = False  # for a next request: this side ended the connection

    # The request

    async def next_request(self) -> ProxyRequest | None:
        """The head of the next request, or None when the program ends the connection, or asks nothing for minutes.

        Raises `BadProxyRequest`, and `Exceeded` for too many headers.
        """
        self.started, self.is_idle, self._is_head = False, True, False
        try:
            async with asyncio.timeout(IDLE_SECONDS) as waiting:
                self._waiting = waiting
                while not self._unread:
                    if not (data := await self._tls.read()):
                        return None
                    self._unread += data
        except TimeoutError:
            self.waited_in_vain = True
            return None
        finally:
            self._waiting = None
        self.is_idle = False
        async with asyncio.timeout(REQUEST_SECONDS):
            raw = await self._head()
        if raw.startswith(_HTTP2_PREFACE):
            raise Http2Preface("expected HTTP/1.1, found HTTP/2", 505)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_REQUEST_HEAD)
        request = parsed_head(raw, self._http, self._meter)
        self._is_head = request.method == "HEAD"
        self._is_read = request.length == 0
        if self._is_read:
            next_event(self._http)  # its end
        return request

    def give_up(self) -> bool:
        """End the wait for a next request; False if there is none to be ended."""
        if self._waiting is None or self._waiting.expired():
            return False
        waiting, self._waiting = self._waiting, None
        waiting.reschedule(0)
        return True

    async def _head(self) -> bytes:
        searched = 0
        while (end := self._unread.find(_END_OF_HEAD, searched)) < 0:
            if len(self._unread) > LARGEST_REQUEST_HEAD:
                raise head_too_long()
            searched = max(0, len(self._unread) - len(_END_OF_HEAD))
            if not (data := await self._tls.read()):
                raise BadProxyRequest("the request ends in the middle of its head")
            self._unread += data
        if end > LARGEST_REQUEST_HEAD:
            raise head_too_long()
        raw = bytes(self._unread[: end + len(_END_OF_HEAD)])
        del self._unread[: len(raw)]
        return raw

    async def body(self) -> AsyncGenerator[bytes]:
        """The body as it arrives. What arrives together comes as one piece, however many chunks it has.

        Raises `BadProxyRequest` for what is not HTTP, and `TimeoutError` if the program sends nothing for long.
        """
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"), now=True)
        if self._unread:  # nothing would be the end of the connection
            self._http.receive_data(bytes(self._unread))
            self._unread.clear()
        arrived, chunks = bytearray(), 0
        while not isinstance(event := next_event(self._http), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                arrived += event.data
                chunks += event.chunk_start
                if event.chunk_start and chunks % CHUNKS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                continue
            if arrived:
                piece = bytes(arrived)
                arrived.clear()
                yield piece
            async with asyncio.timeout(ANSWER_SECONDS):
                data = await self._tls.read()
            self._http.receive_data(data)
        self._is_read = True
        self._unread += self._http.trailing_data[0]
        if arrived:
            yield bytes(arrived)

    # The answer

    async def respond(self, status: int, headers: Iterable[tuple[str, str]], *, last: bool = False) -> None:
        """Send the head of the answer. Raises `h11.LocalProtocolError` if it is not valid HTTP."""
        await self._send(response_head(status, headers, last=last or not self._is_read))
        self.started = True

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer's body."""
        if not self._is_head:
            await self._send(h11.Data(data))

    async def end(self) -> bool:
        """Complete the answer; returns whether another request may follow."""
        await self._send(h11.EndOfMessage(), now=True)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def refuse(self, status: int, text: str) -> None:
        """Answer with why there is no answer from the server. No request may follow."""
        headers, body = refusal(text)
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._http = h11.Connection(h11.SERVER)  # what was read is no request: any answer fits it
            self._is_head = False
        await self.respond(status, headers, last=True)
        await self.send(body)
        await self.end()

    async def switch(self, headers: Iterable[tuple[str, str]], protocol: str) -> bytes:
        """Agree to an upgrade; returns what the program has sent already. From now on the connection carries bytes."""
        head = response_head(200, headers, last=False)
        lines = [line for line in head.headers.raw_items() if line[0].lower() != b"content-length"]
        upgrade = [(b"Connection", b"Upgrade"), (b"Upgrade", protocol.encode("ascii"))]
        await self._send(
            h11.InformationalResponse(status_code=101, headers=[*upgrade, *lines], reason="Switching"), now=True
        )
        self.started = True
        return bytes(self._unread)

    def break_off(self) -> None:
        """Reset the connection: half an answer must not be taken for a complete one."""
        self._taken()
        reset(self._tls.writer)

    async def _send(self, event: h11.Event, *, now: bool = False) -> None:
        """Write a part of the answer: together with those that follow before other tasks run."""
        self._unsent += self._http.send(event) or b""
        if now or len(self._unsent) >= CHUNK:
            await self._tls.write(self._taken())
        elif self._pushing is None:
            self._pushing = asyncio.get_running_loop().call_soon(self._push)
            await self._tls.writer.drain()

    def _push(self) -> None:
        with suppress(ssl.SSLError):  # the connection has ended: whoever writes next is told
            self._tls.push(self._taken())

    def _taken(self) -> bytes:
        if self._pushing is not None:
            self._pushing.cancel()
            self._pushing = None
        data = bytes(self._unsent)
        self._unsent.clear()
        return data


async def relay(program: TlsConnection, first: bytes, incoming: AsyncGenerator[bytes], write: "Write") -> None:
    """Carry bytes between a program and a server, both ways, until one of them ends; `incoming` is what it sends."""

    async def outwards() -> None:
        await write(first)
        while data := await program.read():
            await write(data)

    async def inwards() -> None:
        async with aclosing(incoming):
            async for data in incoming:
                await program.write(data)

    both = [asyncio.ensure_future(outwards()), asyncio.ensure_future(inwards())]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)


Write = Callable[[bytes], Awaitable[None]]
