"""The proxy of one call: the only way from programs behind walls to the network. It serves HTTP, CONNECT and SOCKS5.

A plain request is parsed, checked like a request of `ctx.fetch`, and sent again by the http port: the bytes of the
program are never passed on. Such a connection carries one request, so that every request is checked. The content of a
tunnel is not seen, so a tunnel needs `network:tcp:host:port`; if no rule speaks of requests to that place, it covers
plain ones, too. A connection to a host under `inspect` is no tunnel: `inspection.inspected` serves it. Names are
resolved here, never behind the wall: once for each connection, and every address is checked.
"""

import asyncio
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import h11

from licet.core.algebra.domains import HTTP, HTTPS
from licet.core.algebra.rules import Destination, InvalidUse, Use, destination
from licet.core.algebra.scope import is_address
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.handles.fetch import at_first_address, checked_addresses
from licet.guard.handles.messages import Pairs
from licet.guard.meter import Exceeded
from licet.guard.ports import Exchange, Http, Reply, Unconnected, Unreached
from licet.sandbox.limits import (
    ACCEPT_SECONDS,
    BODY_COPIES,
    CONNECT_SECONDS,
    CONNECTION_FILES,
    LARGEST_REQUEST_HEAD,
    MOST_CONNECTIONS,
    MOST_REQUESTS,
    REQUEST_SECONDS,
)
from licet.sandbox.programs.http_connection import (
    BadProxyRequest,
    HttpConnection,
    ProxyRequest,
    connection_use,
    status_of,
)
from licet.sandbox.streams import Readable, carry, close_when_sent


async def connect(grant: Grant, http: Http | None, host: str, port: int) -> socket.socket:
    """A non-blocking socket that is connected to a host which the call holds. Raises `Refused`."""
    try:
        use = connection_use(host, port)
    except InvalidUse as wrong:
        grant.invalid("HOST_NOT_ALLOWED", wrong)
    grant.check(use)
    resolver = grant.backend(http, use)
    text = "no connection"
    for address in await checked_addresses(grant, resolver, use):
        if not is_address(address) and not is_address(f"[{address}]"):
            continue  # a backend that returns a name would have it resolved again, unchecked
        try:
            return await _connected(address, port)
        except TimeoutError:
            text = "no connection in time"
        except ConnectionRefusedError:
            text = "connection refused"
        except OSError:
            text = "no connection"
    grant.refuse("CONNECT_FAILED", text, use)


async def _connected(address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made


if TYPE_CHECKING:
    from licet.sandbox.inspection.inspected import Inspected, Inspecting
    from licet.sandbox.inspection.key_checks import RequestKeys

_PORT = re.compile(r"[0-9]{1,5}")

_SOCKS = 5
_NO_PASSWORD, _NO_METHOD = 0, 0xFF
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _NOT_ALLOWED, _UNREACHABLE, _NO_SUCH_COMMAND, _NO_SUCH_ADDRESS = 0, 2, 4, 7, 8


class Egress:
    """Serves the connections to a listener in another network namespace, with what one call holds."""

    def __init__(
        self, grant: Grant, http: Http, *, most_requests: int | None = None, inspecting: "Inspecting | None" = None
    ) -> None:
        self._grant, self._http, self._most_requests = grant, http, most_requests or MOST_REQUESTS
        self._inspected = None if inspecting is None else _inspected(grant, http, inspecting)
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._reported = False  # that connections had to wait

    def serve(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        listener.setblocking(False)
        self._listener = listener
        self._loop.add_reader(listener, self._accept)

    async def close(self) -> None:
        """Accept nothing more, and close all connections."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self) -> None:
        """Accept one connection; the loop calls this again if there are more."""
        if self._listener is None:
            return
        meter = self._grant.meter
        try:
            meter.take_files(CONNECTION_FILES)
        except Exceeded as over:  # waiting connections stay in the kernel's queue
            if self._inspected is not None and self._inspected.end_idle():
                self._pause()
                return
            if not self._reported:
                self._reported = True
                self._grant.limited(over.reason, f"connections of a program wait: {over}", None, over.fix)
            self._pause()
            return
        try:
            end, _ = self._listener.accept()
        except OSError as wrong:
            meter.give_files(CONNECTION_FILES)
            if not isinstance(wrong, BlockingIOError | InterruptedError | ConnectionAbortedError):
                self._pause()  # perhaps this process may not open more files
            return
        if self._inspected is None:  # otherwise those that are not inspected are counted, once that is known
            self._requests += 1
        crowded = len(self._open) >= MOST_CONNECTIONS
        if crowded and self._inspected is not None:
            crowded = not self._inspected.end_idle()
        if crowded or (self._inspected is None and self._requests > self._most_requests):
            end.close()
            meter.give_files(CONNECTION_FILES)
            return
        task = self._loop.create_task(self._serve(end))
        self._open.add(task)
        task.add_done_callback(lambda ended: self._closed(ended, end))

    def _closed(self, ended: "asyncio.Task[None]", end: socket.socket) -> None:
        self._open.discard(ended)
        end.close()  # a task that was cancelled before it ran has not
        self._grant.meter.give_files(CONNECTION_FILES)
        self._accept_again()  # there is room now

    def _pause(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._loop.call_later(ACCEPT_SECONDS, self._accept_again)

    def _accept_again(self) -> None:
        if self._listener is not None:
            self._loop.add_reader(self._listener, self._accept)

    async def _serve(self, end: socket.socket) -> None:
        if end.family != socket.AF_UNIX:  # or what is small waits for an acknowledgement
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = _opened(end) if self._inspected is None else self._inspected.opened(end)
        reader, writer = await made
        client = HttpConnection(reader, writer, self._grant.meter)
        try:
            # An error here concerns one program and its peer: it ends this connection alone.
            with suppress(OSError, EOFError, h11.LocalProtocolError):
                await self._talk(client)
                await close_when_sent(writer)
        finally:
            writer.transport.abort()

    async def _talk(self, client: HttpConnection) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                first = await client.reader.readexactly(1)
                wanted = await (_socks_target(client) if first[0] == _SOCKS else self._request(first, client))
            if self._inspected is not None and await self._is_served(self._inspected, wanted, client):
                return
            if isinstance(wanted, tuple):
                await self._socks(*wanted, client)
            elif wanted is not None and wanted.method == "CONNECT":
                await self._connect(wanted, client)
            elif wanted is not None:
                await self._forward(wanted, client)
        except BadProxyRequest as wrong:
            if self._inspected is not None:
                await self._inspected.note_malformed(wrong)
            await client.refuse(wrong.status, str(wrong))
        except Refused as refusal:
            await self._settle()
            await client.refuse(status_of(refusal), str(refusal))

    async def _settle(self) -> None:
        """Let a refusal be on disk before the program hears of it, in a run that looks into HTTPS."""
        if self._inspected is not None:
            with suppress(Refused):  # that the ledger is full: the answer is a refusal already
                await self._grant.settle()

    async def _is_served(
        self, inspected: "Inspected", wanted: tuple[str, int] | ProxyRequest | None, client: HttpConnection
    ) -> bool:
        """Serve a connection if it is to be looked into, or if too many others were made; False if it is neither."""
        if isinstance(wanted, ProxyRequest) and wanted.method == "CONNECT":
            host, _, port = wanted.target.rpartition(":")
            place = inspected.place(host, int(port)) if _PORT.fullmatch(port) else None
        else:
            place = inspected.place(*wanted) if isinstance(wanted, tuple) else None
        if place is None:
            self._requests += 1
            if self._requests == self._most_requests + 1:
                text = f"a program made more than {self._most_requests} connections that are not looked into"
                self._grant.limited("CONNECT_FAILED", text, None, "further ones are closed without an answer")
                await self._settle()
            return self._requests > self._most_requests
        if isinstance(wanted, tuple):
            client.writer.write(_socks_reply(_GRANTED))
        else:
            await client.accept_tunnel()
        await inspected.serve(place, client.reader, client.writer)
        return True

    async def _request(self, first: bytes, client: HttpConnection) -> ProxyRequest:
        try:
            return await client.read_request(first)
        except Exceeded as over:
            self._grant.exceeded(over)

    # Tunnels

    async def _socks(self, host: str, port: int, client: HttpConnection) -> None:
        try:
            server, reader = await self._tunnel(host, port, client)
        except Refused as refusal:
            await self._settle()
            client.writer.write(_socks_reply(_UNREACHABLE if status_of(refusal) == 502 else _NOT_ALLOWED))
            return
        client.writer.write(_socks_reply(_GRANTED))
        await carry(reader, client.writer, server)

    async def _connect(self, request: ProxyRequest, client: HttpConnection) -> None:
        host, _, port = request.target.rpartition(":")
        if not _PORT.fullmatch(port) or not 0 < int(port) < 1 << 16:
            self._grant.invalid("HOST_NOT_ALLOWED", InvalidUse(request.target, "a host and a port from 1 to 65535"))
        server, reader = await self._tunnel(host, int(port), client)
        await client.accept_tunnel()
        await carry(reader, client.writer, server)

    async def _tunnel(self, host: str, port: int, client: HttpConnection) -> tuple[socket.socket, Readable]:
        """A connection to a host, and what the program sends there."""
        if self._inspected is None:
            return await connect(self._grant, self._http, host, port), client.reader
        await self._inspected.check_tunnel(host, port)
        server = await connect(self._grant, self._http, host, port)
        try:
            return server, self._inspected.tunnel_reader(host, port, server, client.reader)
        except BaseException:  # the connection may have broken already
            server.close()
            raise

    # Plain requests

    async def _forward(self, request: ProxyRequest, client: HttpConnection) -> None:
        """Check a request and send it; its body counts as memory of the call until it is answered."""
        grant = self._grant
        try:
            there = destination(request.method, request.target)
        except InvalidUse as wrong:
            grant.invalid("HOST_NOT_ALLOWED", wrong)
        use = self._allowing(there.use)
        keys, headers = None if self._inspected is None else self._inspected.keys_of_plain(there.use), request.passed_on
        if keys is not None:  # first: an attempt to send a key away is recorded as one, wherever it was to go
            _, headers = keys.head(there.url, headers)
        await grant.permit(use)
        addresses = await checked_addresses(grant, self._http, use)
        with grant.meter.share() as share:
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    body = await client.read_body(lambda size: share.take(BODY_COPIES * size))
            except Exceeded as over:
                grant.exceeded(over, there.use)
            if keys is not None:
                await keys.check_body(body)
            await self._exchange(there, headers, body, addresses, client, keys)

    def _allowing(self, use: Use) -> Use:
        """The use that allows a plain request: the request itself, or else a connection to the same place.

        A program that may open a tunnel can send the same bytes through it. Where rules speak of requests, they decide.
        """
        if self._inspected is not None and self._inspected.covers(use):
            return use  # no rule opens a tunnel there
        held, tunnel = self._grant.capabilities, Use(f"network:tcp:{use.target}:{use.port}")
        at_port, at_host = held.atoms_at(use)
        unspoken = not (at_port | at_host) & (HTTP | HTTPS) and held.verdict(use) is None
        return tunnel if unspoken and held.has(tunnel) else use

    async def _exchange(
        self,
        there: Destination,
        headers: Pairs,
        body: bytes,
        addresses: tuple[str, ...],
        client: HttpConnection,
        keys: "RequestKeys | None",
    ) -> None:
        use = there.use

        async def send(address: str) -> None:
            exchange = Exchange(
                there.method, there.url, use.target, use.port or 0, address, headers, body, REQUEST_SECONDS
            )
            started, is_sent, status, size = False, True, None, [0]  # `started`: to pass on a response
            try:
                async with self._http.send(exchange) as received:
                    status = received.status
                    reply = received if keys is None else keys.clean(received, there.method)
                    await _respond(client, reply)
                    started = True
                    await self._pass_on(reply, client, size)
            except Unreached:
                is_sent = False
                raise
            except Unconnected:
                if not started:
                    raise
                client.break_off()
            finally:
                if is_sent and self._inspected is not None:
                    self._inspected.note(there, keys, status, size[0])

        await at_first_address(self._grant, use, addresses, send)

    async def _pass_on(self, reply: Reply, client: HttpConnection, size: list[int]) -> None:
        async for piece in reply.body:
            if self._grant.over:
                client.break_off()
                return
            size[0] += len(piece)
            await client.send(piece)
        await client.end()


def _inspected(grant: Grant, http: Http, inspecting: "Inspecting") -> "Inspected":
    from licet.sandbox.inspection.inspected import Inspected  # few runs look into HTTPS

    return Inspected(grant, http, inspecting)


async def _opened(end: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(sock=end, limit=LARGEST_REQUEST_HEAD)


async def _respond(client: HttpConnection, reply: Reply) -> None:
    try:
        await client.respond(reply.status, reply.headers)
    except h11.LocalProtocolError:
        raise Unconnected("the head of the response is not valid HTTP/1.1") from None


async def _socks_target(client: HttpConnection) -> tuple[str, int] | None:
    """The host and port that a SOCKS5 client asks for; None after a reply that refuses it (RFC 1928)."""
    read, write = client.reader.readexactly, client.writer.write
    methods = await read((await read(1))[0])
    if _NO_PASSWORD not in methods:
        write(bytes((_SOCKS, _NO_METHOD)))
        return None
    write(bytes((_SOCKS, _NO_PASSWORD)))
    version, command, _, kind = await read(4)
    if kind == _NAME:
        host = (await read((await read(1))[0])).decode("ascii", "replace")
    elif kind == _IPV4:
        host = socket.inet_ntop(socket.AF_INET, await read(4))
    elif kind == _IPV6:
        host = socket.inet_ntop(socket.AF_INET6, await read(16))
    else:
        write(_socks_reply(_NO_SUCH_ADDRESS))
        return None
    port = int.from_bytes(await read(2), "big")
    if version != _SOCKS or command != 1:  # neither listening sockets nor datagrams
        write(_socks_reply(_NO_SUCH_COMMAND))
        return None
    return host, port


def _socks_reply(code: int) -> bytes:
    return bytes((_SOCKS, code, 0, _IPV4)) + bytes(6)
