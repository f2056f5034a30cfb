"""The way out for programs behind walls: one proxy that speaks HTTP, CONNECT and SOCKS5, for one call.

A request in plain is taken apart, checked as `ctx.fetch` would, and sent anew: what a program wrote is never passed on
as it is. A tunnel carries what nobody sees, so it needs `network:tcp:host:port`. One request per connection: the next
one is checked like the first. Names are resolved here, never behind the wall.
"""

import asyncio
import socket
import struct
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from licet.core.url import Destination, destination
from licet.core.use import InvalidUse
from licet.errors import Refused
from licet.guard.addresses import checked_addresses
from licet.guard.holding import Holding
from licet.guard.ports import Exchange, Http, Reply, Unconnected, Unreached
from licet.sandbox.dial import dial
from licet.sandbox.http_heads import BadHead, Head, read_body, read_head, reply_head
from licet.sandbox.plain_http import send_plain

MOST_OPEN = 128  # connections at once
MOST_REQUESTS = 10_000  # of one call: each is remembered, and memory is not endless
_SECONDS = 30.0  # for a program to say what it wants, and for each wait after that
_CHUNK = 1 << 16
_NOT_REACHED = ("RESOLVE_FAILED", "CONNECT_FAILED")
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
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._requests = 0

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=_CHUNK)

    async def close(self) -> None:
        """Accept nothing more, and end what is open."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Coroutine[Any, Any, None]:
        return self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._requests += 1
        if len(self._open) >= MOST_OPEN or self._requests > MOST_REQUESTS:
            writer.transport.abort()
            return
        self._open.add(task)
        # Whatever goes wrong here is between this program and its peer: it ends this connection alone.
        try:
            with suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, asyncio.CancelledError):
                await self._talk(reader, writer)
                await writer.drain()
        finally:
            self._open.discard(task)
            with suppress(Exception):
                writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_SECONDS):
            first = await reader.readexactly(1)
            if first[0] == _SOCKS:
                wanted = await _socks_target(reader, writer)
            else:
                try:
                    head = await read_head(first, reader)
                except BadHead as wrong:
                    writer.write(reply_head(400, str(wrong)))
                    return
        if first[0] == _SOCKS:
            if wanted is not None:
                await self._socks(*wanted, reader, writer)
        elif head.method == "CONNECT":
            await self._connect(head, reader, writer)
        else:
            await self._plain(head, reader, writer)

    # Tunnels

    async def _socks(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far = await dial(self._holding, self._http, host, port)
        except Refused as refusal:
            writer.write(_socks_reply(_UNREACHABLE if refusal.code in _NOT_REACHED else _NOT_ALLOWED))
            return
        await _tunnel(far, _socks_reply(_GRANTED), reader, writer)

    async def _connect(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = head.target.rpartition(":")
        try:
            if not port.isdecimal() or not port.isascii():
                self._holding.invalid("HOST_NOT_ALLOWED", InvalidUse(head.target, "a host and a port"))
            far = await dial(self._holding, self._http, host, int(port[:6]))
        except Refused as refusal:
            writer.write(_refusal(refusal))
            return
        await _tunnel(far, _OPENED, reader, writer)

    # Requests in plain

    async def _plain(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        holding = self._holding
        try:
            try:
                there = destination(head.method, head.target)
            except InvalidUse as wrong:
                holding.invalid("HOST_NOT_ALLOWED", wrong)
            await holding.permit(there.use)
            addresses = await checked_addresses(holding, self._http, there.use)
            if head.expects_continue:
                writer.write(_CONTINUE)
            try:
                async with asyncio.timeout(_SECONDS):
                    body = await read_body(head, reader)
            except BadHead as wrong:
                writer.write(reply_head(413 if wrong.too_large else 400, str(wrong)))
                return
            await self._exchange(there, head, body, addresses, writer)
        except Refused as refusal:
            writer.write(_refusal(refusal))

    async def _exchange(
        self, there: Destination, head: Head, body: bytes, addresses: tuple[str, ...], writer: asyncio.StreamWriter
    ) -> None:
        use, text = there.use, "no connection"
        for address in addresses:
            exchange = Exchange(
                there.method, there.url, use.target, use.port or 0, address, head.passed_on, body, _SECONDS
            )
            begun = False
            try:
                async with (send_plain if use.action == "http" else self._http.send)(exchange) as reply:
                    begun = True
                    await self._relay(reply, there.method, writer)
            except Unreached as failed:
                text = str(failed)
            except Unconnected as broken:
                if begun:
                    _break_off(writer)
                    return
                self._holding.refuse("CONNECT_FAILED", str(broken), use)
            else:
                return
        self._holding.refuse("CONNECT_FAILED", text, use)

    async def _relay(self, reply: Reply, method: str, writer: asyncio.StreamWriter) -> None:
        writer.write(reply_head(reply.status, headers=reply.headers))
        if method != "HEAD":
            async for piece in reply.body:
                if self._holding.over:
                    return
                writer.write(piece)
                await writer.drain()


def _break_off(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset: half an answer that ends quietly would be taken for a whole one."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _refusal(refusal: Refused) -> bytes:
    return reply_head(502 if refusal.code in _NOT_REACHED else 403, str(refusal))


async def _socks_target(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int] | None:
    """What a SOCKS5 client wants to be connected to; None if it was told that this is not to be had (RFC 1928)."""
    methods = await reader.readexactly((await reader.readexactly(1))[0])
    if _NO_PASSWORD not in methods:
        writer.write(bytes((_SOCKS, _NO_METHOD)))
        return None
    writer.write(bytes((_SOCKS, _NO_PASSWORD)))
    version, command, _, kind = await reader.readexactly(4)
    if kind == _NAME:
        raw = await reader.readexactly((await reader.readexactly(1))[0])
        host = raw.decode("ascii", "replace")
    elif kind == _IPV4:
        host = socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
    elif kind == _IPV6:
        host = socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16))
    else:
        writer.write(_socks_reply(_NO_SUCH_ADDRESS))
        return None
    port = int.from_bytes(await reader.readexactly(2), "big")
    if version != _SOCKS or command != 1:  # neither listening for a program nor datagrams
        writer.write(_socks_reply(_NO_SUCH_COMMAND))
        return None
    return host, port


def _socks_reply(code: int) -> bytes:
    return bytes((_SOCKS, code, 0, _IPV4)) + bytes(6)


async def _tunnel(
    far: socket.socket, opening: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry bytes both ways until both sides have said all."""
    far_reader, far_writer = await asyncio.open_connection(sock=far)
    writer.write(opening)
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_pump(reader, far_writer))
            both.create_task(_pump(far_reader, writer))
    except* OSError:
        writer.transport.abort()
    finally:
        far_writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
