"""The way out for programs behind walls: one proxy that speaks HTTP, CONNECT and SOCKS5, for one call.

A request in plain is taken apart, checked as `ctx.fetch` would, and sent anew: what a program wrote is never passed on
as it is. A tunnel carries what nobody sees, so it needs `network:tcp:host:port`. One request per connection: the next
one is checked like the first. Names are resolved here, never behind the wall.
"""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress

from licet.core.algebra.use import Destination, InvalidUse, destination
from licet.errors import Refused
from licet.guard.grant import Holding
from licet.guard.handles.fetch import checked_addresses
from licet.guard.meter import Exceeded, Share
from licet.guard.ports import Exchange, Http, Reply, Unconnected, Unreached
from licet.sandbox.programs.dial import dial
from licet.sandbox.programs.http_heads import BadHead, Head, read_body, read_head, reply_head
from licet.sandbox.programs.plain_http import send_plain
from licet.sandbox.programs.streams import CHUNK, FOR_EVER, Stream

MOST_OPEN = 128  # connections at once
MOST_REQUESTS = 10_000  # of one call: each is remembered, and memory is not endless
_SECONDS = 30.0  # for a program to say what it wants, and for each wait after that
_PAUSE = 0.05  # seconds before the next connection is taken, if there was no room for one
_COPIES = 2  # of a body that there may be for a moment, when its buffer grows
_FILES = 2  # that a connection takes: from the program, and to its peer
_NOT_REACHED = ("RESOLVE_FAILED", "CONNECT_FAILED")
_STATUS: Mapping[str, int] = {"LIMIT_HOST_MEMORY": 413, "LIMIT_HEADERS": 431}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_SOCKS = 5
_NO_PASSWORD, _NO_METHOD = 0, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _NOT_ALLOWED, _UNREACHABLE, _NO_SUCH_COMMAND, _NO_SUCH_ADDRESS = 0, 2, 4, 7, 8


class Egress:
    """Serves the connections that come in on a listener of another network, with what one call holds."""

    def __init__(self, holding: Holding, http: Http) -> None:
        self._holding, self._http = holding, http
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._told = False  # that connections had to wait

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        listener.setblocking(False)
        self._listener = listener
        self._loop.add_reader(listener, self._accept)

    async def close(self) -> None:
        """Accept nothing more, and end what is open."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self) -> None:
        """Take one connection; if there are more, this is called again."""
        if self._listener is None:
            return
        meter = self._holding.meter
        try:
            meter.take_files(_FILES)
        except Exceeded as over:  # the kernel keeps those that wait, until others are closed
            if not self._told:
                self._told = True
                self._holding.limited(over.reason, f"connections of a program wait: {over}", None, over.fix)
            self._wait()
            return
        try:
            end, _ = self._listener.accept()
        except OSError as wrong:
            meter.give_files(_FILES)
            if not isinstance(wrong, BlockingIOError | InterruptedError | ConnectionAbortedError):
                self._wait()  # no more files can be opened, perhaps: whoever waits has to wait for longer
            return
        self._requests += 1
        if len(self._open) >= MOST_OPEN or self._requests > MOST_REQUESTS:
            end.close()
            meter.give_files(_FILES)
            return
        near = Stream(end)
        task = self._loop.create_task(self._serve(near))
        self._open.add(task)
        task.add_done_callback(lambda ended: self._over(ended, near))

    def _over(self, ended: "asyncio.Task[None]", near: Stream) -> None:
        self._open.discard(ended)
        near.close()
        self._holding.meter.give_files(_FILES)

    def _wait(self) -> None:
        """Accept nothing for a moment."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_PAUSE, self._accept_again)

    def _accept_again(self) -> None:
        if self._listener is not None:
            self._loop.add_reader(self._listener, self._accept)

    async def _serve(self, near: Stream) -> None:
        # Whatever goes wrong here is between this program and its peer: it ends this connection alone.
        with suppress(OSError, EOFError, asyncio.CancelledError):
            await self._talk(near)
            await near.send()

    async def _talk(self, near: Stream) -> None:
        until = near.clock(_SECONDS)
        first = await near.exactly(1, until)
        if first[0] == _SOCKS:
            wanted = await _socks_target(near, until)
            if wanted is not None:
                await self._socks(*wanted, near)
            return
        try:
            head = await read_head(first, near, until, self._holding.meter)
        except BadHead as wrong:
            near.write(reply_head(400, str(wrong)))
            return
        except Exceeded as over:
            try:
                self._holding.exceeded(over)
            except Refused as refusal:
                near.write(_refusal(refusal))
            return
        if head.method == "CONNECT":
            await self._connect(head, near)
        else:
            await self._plain(head, near)

    # Tunnels

    async def _socks(self, host: str, port: int, near: Stream) -> None:
        try:
            far = await dial(self._holding, self._http, host, port)
        except Refused as refusal:
            near.write(_socks_reply(_UNREACHABLE if refusal.code in _NOT_REACHED else _NOT_ALLOWED))
            return
        await _tunnel(Stream(far), _socks_reply(_GRANTED), near)

    async def _connect(self, head: Head, near: Stream) -> None:
        host, _, port = head.target.rpartition(":")
        try:
            if not port.isdecimal() or not port.isascii():
                self._holding.invalid("HOST_NOT_ALLOWED", InvalidUse(head.target, "a host and a port"))
            far = await dial(self._holding, self._http, host, int(port[:6]))
        except Refused as refusal:
            near.write(_refusal(refusal))
            return
        await _tunnel(Stream(far), _OPENED, near)

    # Requests in plain

    async def _plain(self, head: Head, near: Stream) -> None:
        holding = self._holding
        with holding.meter.share() as share:
            await self._shared(head, near, share)

    async def _shared(self, head: Head, near: Stream, share: Share) -> None:
        """Send a request whose body counts as memory of the call until it is answered."""
        holding = self._holding
        try:
            try:
                there = destination(head.method, head.target)
            except InvalidUse as wrong:
                holding.invalid("HOST_NOT_ALLOWED", wrong)
            await holding.permit(there.use)
            addresses = await checked_addresses(holding, self._http, there.use)
            if head.expects_continue:
                await near.send(_CONTINUE)
            try:
                body = await read_body(head, near, near.clock(_SECONDS), lambda size: share.take(_COPIES * size))
            except BadHead as wrong:
                near.write(reply_head(413 if wrong.too_large else 400, str(wrong)))
                return
            except Exceeded as over:
                holding.exceeded(over, there.use)
            await self._exchange(there, head, body, addresses, near)
        except Refused as refusal:
            near.write(_refusal(refusal))

    async def _exchange(
        self, there: Destination, head: Head, body: bytes, addresses: tuple[str, ...], near: Stream
    ) -> None:
        use, text = there.use, "no connection"
        for address in addresses:
            exchange = Exchange(
                there.method, there.url, use.target, use.port or 0, address, head.passed_on, body, _SECONDS
            )
            begun = False
            try:
                sent = send_plain(exchange, near.send) if use.action == "http" else self._http.send(exchange)
                async with sent as reply:
                    begun = True
                    await self._relay(reply, there.method, near, together=use.action == "http")
            except Unreached as failed:
                text = str(failed)
            except Unconnected as broken:
                if begun:
                    near.break_off()
                    return
                self._holding.refuse("CONNECT_FAILED", str(broken), use)
            else:
                return
        self._holding.refuse("CONNECT_FAILED", text, use)

    async def _relay(self, reply: Reply, method: str, near: Stream, *, together: bool) -> None:
        """Pass an answer on; where it comes together with its beginning, it leaves together."""
        near.write(reply_head(reply.status, headers=reply.headers))
        if not together:
            await near.send()
        if method != "HEAD":
            async for piece in reply.body:
                if self._holding.over:
                    return
                await near.send(piece)


def _refusal(refusal: Refused) -> bytes:
    status = 502 if refusal.code in _NOT_REACHED else _STATUS.get(refusal.code, 403)
    return reply_head(status, str(refusal))


async def _socks_target(near: Stream, until: float) -> tuple[str, int] | None:
    """What a SOCKS5 client wants to be connected to; None if it was told that this is not to be had (RFC 1928)."""
    methods = await near.exactly((await near.exactly(1, until))[0], until)
    if _NO_PASSWORD not in methods:
        near.write(bytes((_SOCKS, _NO_METHOD)))
        return None
    await near.send(bytes((_SOCKS, _NO_PASSWORD)), until)
    version, command, _, kind = await near.exactly(4, until)
    if kind == _NAME:
        raw = await near.exactly((await near.exactly(1, until))[0], until)
        host = raw.decode("ascii", "replace")
    elif kind == _IPV4:
        host = socket.inet_ntop(socket.AF_INET, await near.exactly(4, until))
    elif kind == _IPV6:
        host = socket.inet_ntop(socket.AF_INET6, await near.exactly(16, until))
    else:
        near.write(_socks_reply(_NO_SUCH_ADDRESS))
        return None
    port = int.from_bytes(await near.exactly(2, until), "big")
    if version != _SOCKS or command != 1:  # neither listening for a program nor datagrams
        near.write(_socks_reply(_NO_SUCH_COMMAND))
        return None
    return host, port


def _socks_reply(code: int) -> bytes:
    return bytes((_SOCKS, code, 0, _IPV4)) + bytes(6)


async def _tunnel(far: Stream, opening: bytes, near: Stream) -> None:
    """Carry bytes both ways until both sides have said all."""
    try:
        await near.send(opening)
        async with asyncio.TaskGroup() as both:
            both.create_task(_pump(near, far))
            both.create_task(_pump(far, near))
    except* OSError:
        near.abort()
    finally:
        far.abort()


async def _pump(source: Stream, sink: Stream) -> None:
    while data := await source.read(CHUNK, FOR_EVER):
        await sink.send(data)
    sink.end_writing()
