"""Which requests of a program pass, where the proxy looks into its HTTPS? Ends TLS, checks each request, sends it on.

A connection to a place under `inspect` is accepted without connecting anywhere: TLS ends here, with a certificate of
the run. Each request in it is checked like one of `ctx.fetch` and sent anew over TLS that is verified; bodies stream,
both ways. A refused request is the last of its connection, so that nothing behind it counts. No rule opens a tunnel to
such a place; an upgrade becomes one, and needs the rule for it.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING

import h11
from msgspec import Struct

from licet.core.algebra.rules import Destination, InvalidUse, Use, destination
from licet.core.algebra.scope import visible
from licet.core.decision.decision import RequestMade
from licet.core.policy.inspection import Inspection, is_inspected, place_with_port
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.handles.fetch import at_first_address, checked_addresses
from licet.guard.handles.messages import Pairs
from licet.guard.meter import Exceeded
from licet.guard.ports import Exchange, Http, Reply, StreamingHttp, Unconnected, Unreached
from licet.sandbox.inspection.kept_http import Http2Preface, KeptHttp, TlsConnection, WatchedReader, relay
from licet.sandbox.inspection.key_checks import KeyChecks, RequestKeys
from licet.sandbox.inspection.tunnels import Tunnels
from licet.sandbox.limits import (
    ADDRESS_SECONDS,
    ANSWER_SECONDS,
    BODY_COPIES,
    CHUNK,
    ENDED_SECONDS,
    LARGEST_REQUEST_HEAD,
    MOST_DISTRUSTFUL,
)
from licet.sandbox.programs.http_connection import BadProxyRequest, ProxyRequest, connection_use, status_of
from licet.sandbox.streams import Readable

if TYPE_CHECKING:
    from licet.sandbox.inspection.authority import Authority
    from licet.sandbox.inspection.stand_ins import StandIns

_NO_TLS = frozenset({"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE"})


class Inspecting(Struct, frozen=True):
    """What the proxy of one run looks into HTTPS with."""

    inspection: Inspection
    authority: "Authority"
    keys: "StandIns"
    tell: Callable[[Use, str], None] | None = None  # of a place that a program does not let be looked into, and why


class Inspected:
    """The inspected connections of one run."""

    def __init__(self, grant: Grant, http: Http, inspecting: Inspecting) -> None:
        self.grant, self.http = grant, http
        self.streaming = http if isinstance(http, StreamingHttp) else None
        self.keys = (
            KeyChecks(grant, inspecting.inspection, inspecting.keys) if inspecting.inspection.stand_ins else None
        )
        self._places, self._authority = inspecting.inspection.places, inspecting.authority
        self.tunnels = Tunnels(grant, http, inspecting.inspection)
        self._idle: dict[KeptHttp, None] = {}  # connections without a request, the longest first
        self._distrustful: set[tuple[Use, str]] = set()
        self._tell = inspecting.tell

    def place(self, host: str, port: int) -> Use | None:
        """The place that a program wants to connect to, if connections there are looked into."""
        try:
            use = connection_use(host, port)
            return use if is_inspected(self._places, use.target, port) else None
        except InvalidUse:
            return None  # nothing connects there

    async def check_tunnel(self, host: str, port: int) -> None:
        """Refuse a tunnel to the address of a place that is looked into, unless a rule names the address."""
        with suppress(InvalidUse):  # nothing connects there
            await self.tunnels.check(connection_use(host, port))

    def tunnel_reader(self, host: str, port: int, server: socket.socket, reader: asyncio.StreamReader) -> Readable:
        """What a program sends in a tunnel, which breaks off if it asks for a place that is looked into."""
        return self.tunnels.reader(connection_use(host, port), server.getpeername()[0], reader)

    def covers(self, use: Use) -> bool:
        """Whether connections to the place of a use are looked into."""
        return is_inspected(self._places, use.target, use.port or 0)

    def keys_of_plain(self, use: Use) -> RequestKeys | None:
        """The keys of a request that a program sent to the proxy itself; None if the run has none."""
        return None if self.keys is None else self.keys.of_request(use, secure=False)

    def note(self, there: Destination, keys: RequestKeys | None, status: int | None, size: int) -> None:
        """Record a request that was sent on; without a status, no answer came."""
        path = _target(there.url).partition("?")[0]
        shown = path if keys is None else keys.shown(path)
        answer = "no answer" if status is None else f"{status}, {size} bytes"
        self.grant.note_about(RequestMade, about=str(there.use), rule=f"{there.method} {shown} → {answer}")

    async def opened(self, end: socket.socket) -> tuple[WatchedReader, asyncio.StreamWriter]:
        """An accepted connection, as streams that notice when the program ends it."""
        loop = asyncio.get_running_loop()
        reader = WatchedReader(limit=LARGEST_REQUEST_HEAD, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.create_connection(lambda: protocol, sock=end)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def serve(self, place: Use, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of one connection, which a program believes to lead to a place."""
        assert isinstance(reader, WatchedReader)  # noqa: S101 - of `opened`
        tls = TlsConnection(reader, writer, self._authority.context(place.target), lambda name: _is(place, name))
        try:
            await tls.shake_hands()
        except (ssl.SSLError, ConnectionError) as wrong:
            await self._report(place, _why(wrong, tls))
            return
        except TimeoutError:
            return
        client = KeptHttp(tls, self.grant.meter)
        try:
            await self._serve(place, tls, client)
        except BadProxyRequest as wrong:
            if isinstance(wrong, Http2Preface):
                await self._report(place, "it speaks HTTP/2 alone")
            else:
                await self.note_malformed(wrong, place)
            await client.refuse(wrong.status, str(wrong))
        except Exceeded as over:
            with suppress(Refused):
                self.grant.exceeded(over)
            with suppress(Refused):  # that the ledger is full: the answer is a refusal already
                await self.grant.settle()
            await client.refuse(431, str(over))
        except TimeoutError:
            await client.refuse(408, "the request takes too long to arrive")
        await tls.end(heard=client.is_idle)

    async def _serve(self, place: Use, tls: TlsConnection, client: KeptHttp) -> None:
        """Answer requests until one of them is the last."""
        connection = _Connection(self, place, tls, client)
        try:
            request = await self._next(client)
        except ssl.SSLError as wrong:  # an alert, from a program that looks at certificates after its handshake
            await self._report(place, _why(wrong, tls))
            raise
        except ConnectionError:
            request = None
        if request is None and not tls.has_protocol and not client.waited_in_vain:
            await self._report(place, "it ended the connection, perhaps because it speaks HTTP/2 alone")
        while request is not None and await connection.answer(request):
            request = await self._next(client)

    async def _next(self, client: KeptHttp) -> ProxyRequest | None:
        self._idle[client] = None
        try:
            return await client.next_request()
        finally:
            self._idle.pop(client, None)

    def end_idle(self) -> bool:
        """End the connection that has been idle for longest, to make room; False if each of them is in use."""
        return any(client.give_up() for client in tuple(self._idle))

    async def note_malformed(self, wrong: BadProxyRequest, place: Use | None = None) -> None:
        """Record the refusal of what is no request, without what was in it; returns once that is on disk.

        The place of the connection is named in words: as the use of the refusal, it would look like one that a rule
        could allow.
        """
        where = f", in a connection to {place.scope}" if place is not None else ""
        with suppress(Refused):
            self.grant.refuse("INPUT_INVALID", wrong.shown + where)
        with suppress(Refused):  # that the ledger is full: the answer is a refusal already
            await self.grant.settle()

    async def _report(self, place: Use, why: str) -> None:
        """Record, once for each place and reason, that a program does not let its connection be looked into."""
        if (place, why) in self._distrustful or len(self._distrustful) >= MOST_DISTRUSTFUL:
            return
        self._distrustful.add((place, why))
        if self._tell is not None:
            self._tell(place, why)
            return
        # With no edit: any program can break off a handshake, and what ends that is a tunnel, which sees no request.
        text = f"a program does not let its connection to {place.target}:{place.port} be looked into: {why}"
        self.grant.limited("CONNECT_FAILED", text, None, "")
        with suppress(Refused):
            await self.grant.settle()


class _NotUpgraded(BadProxyRequest):
    """An upgrade that no rule allows. It is recorded already, and the program hears of the rule."""


class _Connection:
    """One connection of a program, and the request on it that is answered."""

    def __init__(self, run: Inspected, place: Use, tls: TlsConnection, client: KeptHttp) -> None:
        self._run, self._place, self._tls, self._client = run, place, tls, client
        self._grant = run.grant
        self._found: tuple[float, tuple[str, ...]] = 0.0, ()  # until when addresses of the place hold, and which

    async def answer(self, request: ProxyRequest) -> bool:
        """Answer a request; returns whether another one may follow."""
        client = self._client
        try:
            return await self._forward(self._destination(request), request)
        except BadProxyRequest as wrong:
            if not isinstance(wrong, _NotUpgraded):
                await self._run.note_malformed(wrong, self._place)
            status, text = wrong.status, str(wrong)
        except Refused as refusal:
            status, text = status_of(refusal), str(refusal)
        except TimeoutError:
            status, text = 408, "the request takes too long to arrive"
        with suppress(Refused):  # that the ledger is full: this answer is a refusal already
            await self._grant.settle()
        if client.started:
            client.break_off()
        else:
            await client.refuse(status, text)
        return False

    def _destination(self, request: ProxyRequest) -> Destination:
        """The request with its URL. It must name the place of the connection, wherever it names one.

        No rule lets it name another, so such a refusal has no use: advice about one would open something else.
        """
        grant, place, target = self._grant, self._place, request.target
        hosts = request.values("host")
        if len(hosts) != 1 or not _is(place, hosts[0], with_port=True):
            shown = visible(", ".join(hosts)) or "no host"
            grant.refuse("HOST_NOT_ALLOWED", f"a request to `{shown}` in a connection to {place.scope}")
        in_origin_form = target.startswith("/")
        try:
            there = destination(request.method, f"https://{place.scope}{target}" if in_origin_form else target)
        except InvalidUse as wrong:
            grant.invalid("HOST_NOT_ALLOWED", wrong)
        if there.origin != ("https", place.target, place.port):
            grant.refuse("HOST_NOT_ALLOWED", f"a request to `{there.use}` in a connection to {place.scope}")
        return there

    async def _forward(self, there: Destination, request: ProxyRequest) -> bool:
        """Check a request, and send it on."""
        grant, run, use = self._grant, self._run, there.use
        target, headers = _target(there.url), request.passed_on
        origin = there.url[: -len(target)]
        keys = None if run.keys is None else run.keys.of_request(use, secure=True)
        if keys is not None:  # first: an attempt to send a key away is recorded as one, wherever it was to go
            target, headers = keys.head(target, headers)
        await grant.permit(use)
        upgrade = self._upgrade(there, request)
        http = run.streaming
        if http is None:
            grant.refuse("BACKEND_MISSING", "the network of this run sends no bodies while they arrive", use)
        whole, begun = b"" if request.length == 0 else None, _Begun()
        with grant.meter.share() as share:
            if keys is not None and request.length != 0 and (most := keys.wants_body):
                try:
                    begun = await self._begun(request, most, lambda size: share.take(BODY_COPIES * size))
                except Exceeded as over:
                    grant.exceeded(over, use)
                if begun.rest is None:
                    whole = await keys.whole_body(begun.body, next(iter(request.values("content-type")), ""))
            addresses = await self._addresses(use)
            if keys is not None:
                await keys.note_placed()
            sending = _Sending(there, f"{origin}{target}", headers, whole, begun, upgrade, request, keys)
            try:
                return await self._exchange(sending, http, addresses)
            finally:
                if keys is not None:
                    keys.note_kept()

    def _upgrade(self, there: Destination, request: ProxyRequest) -> str:
        """The protocol that a request upgrades its connection to, if that is allowed; empty if it does not."""
        protocol = next(iter(request.values("upgrade")), "")
        if not protocol or "upgrade" not in request.connection or protocol.lower() == "h2c":
            return ""  # a server may ignore the wish, and this one does: h2c is for connections without TLS
        if there.method != "GET" or request.length != 0:
            raise BadProxyRequest("only a GET without a body upgrades its connection")
        if not self._grant.capabilities.has(self._place):
            text = f"an upgrade to {visible(protocol)} is a connection that nobody looks into: it needs `{self._place}`"
            fix = f"add `{self._place}` under `grants`, beside the rule for the GET"
            self._grant.limited("HOST_NOT_ALLOWED", text, self._place, fix)
            raise _NotUpgraded(text, 403)
        self._grant.check(self._place)
        return protocol

    async def _begun(self, request: ProxyRequest, most: int, take: Callable[[int], None]) -> "_Begun":
        """A body as a whole, because a field in it may hold a key; or if it is longer, its beginning and the rest."""
        rest = self._client.body()
        if (request.length or 0) > most:
            return _Begun(b"", rest)
        body = bytearray()
        async for piece in rest:
            take(len(piece))
            body += piece
            if len(body) > most:
                return _Begun(bytes(body), rest)
        return _Begun(bytes(body))

    async def _addresses(self, use: Use) -> tuple[str, ...]:
        """The checked addresses of the host: a connection uses one answer of the resolver for a while."""
        now = asyncio.get_running_loop().time()
        until, addresses = self._found
        if until <= now:
            addresses = await checked_addresses(self._grant, self._run.http, use)
            self._found = now + ADDRESS_SECONDS, addresses
            self._run.tunnels.found(addresses, use.port or 0)
        return addresses

    async def _exchange(self, sending: "_Sending", http: StreamingHttp, addresses: tuple[str, ...]) -> bool:
        use = sending.there.use

        async def send(address: str) -> bool:
            exchange = Exchange(
                *(sending.there.method, sending.url, use.target, use.port or 0, address),
                *(sending.headers, sending.whole or b"", ANSWER_SECONDS),
            )
            try:
                return await self._answered(sending, self._opened(sending, http, exchange))
            except Unreached:
                self._found = 0.0, ()  # the host may have moved
                raise
            except Unconnected:
                if not self._client.started:
                    raise
                self._client.break_off()
                return False

        return await at_first_address(self._grant, use, addresses, send)

    def _opened(
        self, sending: "_Sending", http: StreamingHttp, exchange: Exchange
    ) -> AbstractAsyncContextManager[Reply]:
        if sending.upgrade:
            return http.upgrade(exchange, sending.upgrade)
        if sending.whole is not None:
            return http.send(exchange)
        body = self._client.body() if sending.begun.rest is None else _joined(sending.begun.body, sending.begun.rest)
        if sending.keys is not None:
            body = sending.keys.streamed(body)
        return http.send_streamed(exchange, body, sending.request.length)

    async def _answered(self, sending: "_Sending", opened: AbstractAsyncContextManager[Reply]) -> bool:
        """Send a request, and pass its answer on while the program waits for it."""
        reader, reply, passed, is_sent = self._tls.reader, None, _Passed(), True
        try:
            async with asyncio.timeout(None) as gone:
                reader.ended = lambda: None if gone.expired() else gone.reschedule(_until(reader))
                if reader.at_eof() or reader.exception() is not None:  # while nobody was to be told
                    reader.ended()
                try:
                    async with opened as reply:
                        return await self._pass_on(reply, sending, passed)
                finally:
                    reader.ended = None
        except Unreached:
            is_sent = False
            raise
        except TimeoutError:
            if not gone.expired():
                raise
            raise ConnectionAbortedError from None  # by the program: nobody is there to be answered
        finally:
            if is_sent:  # the server may have acted on it, whether it answered or not
                self._run.note(sending.there, sending.keys, None if reply is None else reply.status, passed.size)

    async def _pass_on(self, reply: Reply, sending: "_Sending", passed: "_Passed") -> bool:
        client = self._client
        if reply.upgraded is not None and sending.upgrade:
            try:
                first = await client.switch(self._clean(reply, sending).headers, sending.upgrade)
            except h11.LocalProtocolError:
                raise Unconnected("the answer is not valid HTTP/1.1") from None
            read, keys = reply.upgraded.read, sending.keys
            await relay(self._tls, first, _all(read) if keys is None else keys.carried(read), reply.upgraded.write)
            return False
        reply = self._clean(reply, sending)
        try:
            await client.respond(reply.status, reply.headers)
            async for piece in reply.body:
                if self._grant.over:
                    client.break_off()
                    return False
                passed.size += len(piece)
                await client.send(piece)
            return await client.end()
        except h11.LocalProtocolError:
            raise Unconnected("the answer is not valid HTTP/1.1") from None

    def _clean(self, reply: Reply, sending: "_Sending") -> Reply:
        return reply if sending.keys is None else sending.keys.clean(reply, sending.there.method)


class _Begun(Struct, frozen=True):
    """What has been read of a body, and what follows if that is not all."""

    body: bytes = b""
    rest: AsyncGenerator[bytes] | None = None


async def _joined(begin: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    for start in range(0, len(begin), CHUNK):
        yield begin[start : start + CHUNK]
    async for piece in rest:
        yield piece


class _Sending(Struct, frozen=True):
    """One request on its way."""

    there: Destination
    url: str
    headers: Pairs
    whole: bytes | None  # the body, if it does not stream
    begun: _Begun
    upgrade: str
    request: ProxyRequest
    keys: RequestKeys | None


class _Passed(Struct):
    """What has been passed on of one answer."""

    size: int = 0


async def _all(read: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[bytes]:
    while data := await read():
        yield data


def _until(reader: asyncio.StreamReader) -> float:
    """Until when a program hears its answer that sends no more: it may have ended its own side alone."""
    return asyncio.get_running_loop().time() + (0 if reader.exception() else ENDED_SECONDS)


def _target(url: str) -> str:
    """The path and the query of a canonical URL."""
    return "/" + url.split("/", 3)[3]


def _is(place: Use, name: str, *, with_port: bool = False) -> bool:
    """Whether a name that a program sent is that of a place."""
    try:
        return Use(f"network:tcp:{place_with_port(name) if with_port else f'{name}:{place.port}'}") == place
    except InvalidUse:
        return False


def _why(wrong: OSError, tls: TlsConnection) -> str:
    """What a failure of TLS says about a program."""
    reason = (wrong.reason if isinstance(wrong, ssl.SSLError) else "") or ""
    if tls.other_host:
        return f"it asks for {visible(tls.other_host)} in it"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "CA" in reason.split("_")):
        return "it does not accept the certificate of this run"
    if reason in _NO_TLS:
        return "it speaks no TLS"
    if not reason:
        return "it ended the connection before TLS was agreed, by chance or because it accepts one certificate alone"
    return "it ended the handshake of TLS, perhaps because it accepts one certificate alone"
