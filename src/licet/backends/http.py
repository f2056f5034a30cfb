"""The network of this machine: sends each request to the address that it carries, with TLS for its host name.

Built on httpcore2, below any client that would read proxies, `.netrc` or certificates from the environment, follow
redirects or keep cookies. The addresses were checked before; this module checks no rule.
"""

import asyncio
import importlib
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from licet.backends.http_stream import HeadTooLong, Pace, PacedStream
from licet.backends.lookups import Lookups
from licet.core.algebra.domains import DEFAULT_PORTS
from licet.core.algebra.scope import is_address
from licet.guard.ports import LOOKED_UP_FOR, Exchange, Reply, Unconnected, Unreached, Unresolved

if TYPE_CHECKING:
    import httpcore2

RESOLVE_SECONDS = 10.0
CONNECT_SECONDS = 10.0  # for each address, so that a silent one leaves time for those after it
KEEP_ALIVE_SECONDS = 30.0
MOST_IDLE = 64  # connections

# The modules that a request imports, with those that anyio selects at run time and the encoding of host names.
_HTTP_STACK = ("httpcore2", "httpx2", "anyio._backends._asyncio", "anyio.streams.tls", "encodings.idna")

# Other methods may have a body, but not every server reads it: what is left of it would be taken for the next request.
_READ_BODIES = ("POST", "PUT", "PATCH")

Key = tuple[str, str, int, str]  # protocol, host, port, address


class _Connection:
    """One connection, for one request at a time, so that one call cannot break the requests of another.

    HTTP/2 could carry several at once, but a request that is cancelled while it is written breaks the connection.
    """

    __slots__ = ("paced", "pool", "streams")

    def __init__(self, pool: "httpcore2.AsyncConnectionPool", streams: list[Any], paced: list[PacedStream]) -> None:
        self.pool = pool
        self.streams = streams
        self.paced = paced  # the stream that is read; none before the first request

    def has_unread(self) -> bool:
        """Whether more than the answer has arrived over HTTP/1.1; the next request would take it for its answer.

        httpcore2 notices what is still in the kernel. What the layers above have read has no public name; if a
        private one is missing, the connection is not used again.
        """
        try:
            (one,) = self.pool.connections
            http: Any = one._connection  # type: ignore[attr-defined]
            if http._h11_state.trailing_data[0] or self.streams[-1]._stream._protocol.read_queue:
                return True
            secured = http._network_stream.get_extra_info("ssl_object")
            if secured is not None:
                secured.read(1)
        except ssl.SSLWantReadError:
            return False
        except Exception:  # also: the server has closed the connection
            return True
        return secured is not None

    async def close(self) -> None:
        """Close the connection; errors are ignored."""
        with suppress(Exception):
            await self.pool.aclose()
        # httpcore2 forgets a connection that was cancelled while it was made.
        for stream in self.streams:
            with suppress(Exception):
                await stream.aclose()


class _Connections:
    """The connections of one event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.idle: list[tuple[Key, _Connection]] = []  # least recently used first
        self.busy: set[_Connection] = set()
        self.keeper = self._close_with_loop()

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        # An event loop closes its asynchronous generators before it ends. This generator exists only for that: it
        # closes idle connections with their loop, even if `close` is never called.
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """Close every connection, also those in use."""
        connections = [*self.busy, *(connection for _, connection in self.idle)]
        self.idle.clear()
        self.busy.clear()
        for connection in connections:
            await connection.close()

    def take(self, key: Key, new: Callable[[], _Connection]) -> _Connection:
        """Return an idle connection to the same host at the same address, or a new one."""
        place = next((at for at in reversed(range(len(self.idle))) if self.idle[at][0] == key), None)
        connection = new() if place is None else self.idle.pop(place)[1]
        self.busy.add(connection)
        return connection

    async def release(self, key: Key, connection: _Connection, *, sound: bool) -> None:
        """Keep a connection for the next request, or close it. Also closes idle ones above the limit."""
        closing = [] if sound and connection in self.busy else [connection]
        self.busy.discard(connection)
        if not closing:
            self.idle.append((key, connection))
            closing = [old for _, old in self.idle[: -self.most]]
            del self.idle[: -self.most]
        for one in closing:
            await one.close()


class HttpClient:
    """The network of this machine. Trusts the authorities of the system, of a file, or of your own SSL context."""

    def __init__(
        self, *, ca_file: str | None = None, ssl_context: ssl.SSLContext | None = None, most_idle: int = MOST_IDLE
    ) -> None:
        self._ca_file = ca_file
        self._context = ssl_context
        self._most = most_idle
        self._lookups = Lookups()
        self._loops: dict[asyncio.AbstractEventLoop, _Connections] = {}

    def load_code(self) -> None:
        """Import the complete HTTP stack: its parts import each other when the first connection is made."""
        for name in _HTTP_STACK:
            importlib.import_module(name)
        self._trust()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return every address of a name, in the order of the system's resolver; an address is returned as it is."""
        if is_address(host):
            return (host.strip("[]"),)
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await self._lookups.find(host, port, LOOKED_UP_FOR.get())
        except TimeoutError as late:
            raise Unresolved("the resolver does not answer") from late
        except (OSError, UnicodeError) as unknown:
            raise Unresolved("no resolver knows the name") from unknown
        return tuple(dict.fromkeys(str(address[0]) for *_, address in found))

    @asynccontextmanager
    async def send(self, exchange: Exchange) -> AsyncGenerator[Reply]:
        """Send a request to its address, and stream the answer. The connection is released at the end."""
        import httpcore2

        protocol, _, rest = exchange.url.partition("://")
        host = exchange.host.strip("[]")
        key = (protocol, host, exchange.port, exchange.address)
        connections = await self._connections()
        connection = connections.take(key, lambda: self._new_connection(protocol, exchange.address))
        complete, version = False, ""

        async def body() -> AsyncGenerator[bytes]:
            nonlocal complete
            pace = Pace()
            try:
                async with aclosing(aiter(response.stream)) as pieces:
                    async for piece in pieces:
                        if piece:
                            await pace.keep()
                            yield piece
            except Exception as wrong:
                raise _failure(wrong) from wrong
            complete = True

        try:
            for stream in connection.paced:
                stream.expect_head()
            try:
                response: Any = await connection.pool.handle_async_request(
                    httpcore2.Request(
                        exchange.method.encode("ascii"),
                        httpcore2.URL(
                            scheme=protocol.encode("ascii"),
                            host=host.encode("ascii"),
                            port=exchange.port,
                            target=f"/{rest.partition('/')[2]}".encode("ascii"),
                        ),
                        headers=_headers(exchange, protocol),
                        content=exchange.body,
                        extensions={"timeout": _timeouts(exchange.timeout)},
                    )
                )
            except Exception as wrong:
                raise _failure(wrong) from wrong
            for stream in connection.paced:
                stream.expect_body()
            version = response.extensions["http_version"].decode("ascii")
            try:
                async with aclosing(body()) as pieces:
                    yield Reply(response.status, _plain(response.headers), pieces, version)
            finally:
                # the answer is complete, so an error now only means that the connection is not used again
                with suppress(Exception):
                    await response.stream.aclose()
        finally:
            # After an unfinished answer the rest of it would still arrive.
            sound = complete and not _is_last(exchange) and (version == "HTTP/2" or not connection.has_unread())
            await connections.release(key, connection, sound=sound)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        connections = self._loops.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.keeper.aclose()

    async def _connections(self) -> _Connections:
        loop = asyncio.get_running_loop()
        connections = self._loops.get(loop)
        if connections is None:
            for ended in [each for each in self._loops if each.is_closed()]:
                del self._loops[ended]
            connections = self._loops[loop] = _Connections(self._most)
            await anext(connections.keeper)
        return connections

    def _new_connection(self, protocol: str, address: str) -> _Connection:
        import httpcore2

        streams: list[Any] = []
        paced: list[PacedStream] = []

        def kept(stream: httpcore2.AsyncNetworkStream) -> Any:
            paced[:] = [PacedStream(stream)]
            return paced[0]

        class Dial(httpcore2.AnyIOBackend):
            async def connect_tcp(self, host: str, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
                # The host has been resolved and its addresses checked, so no name is looked up from here.
                stream = await super().connect_tcp(address, *args, **kwargs)
                streams[:] = [each for each in streams if each.get_extra_info("socket").fileno() != -1]
                streams.append(stream)
                return Handshake(stream) if protocol == "https" else kept(stream)

        class Handshake(httpcore2.AsyncNetworkStream):
            """A connection before TLS, kept to be closed: httpcore2 leaves it open if the handshake is cancelled."""

            def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
                self.stream = stream

            async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
                try:
                    secured = await self.stream.start_tls(*args, **kwargs)
                except BaseException:
                    await self.stream.aclose()
                    raise
                return kept(secured)  # type: ignore[no-any-return]

        connections = httpcore2.AsyncConnectionPool(
            ssl_context=self._trust(),
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=KEEP_ALIVE_SECONDS,
            http1=True,
            http2=True,
            network_backend=Dial(),
        )
        return _Connection(connections, streams, paced)

    def _trust(self) -> ssl.SSLContext:
        if self._context is None and self._ca_file is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._context.load_verify_locations(self._ca_file)
        elif self._context is None:
            import httpx2

            # Not the default of the standard library: it takes authorities from `SSL_CERT_FILE`, and does not find
            # those of the system on macOS, on Windows, or with a Python that was built elsewhere.
            self._context = httpx2.create_ssl_context(trust_env=False)
        return self._context


def _headers(exchange: Exchange, protocol: str) -> list[tuple[bytes, bytes]]:
    port = "" if exchange.port == DEFAULT_PORTS[protocol] else f":{exchange.port}"
    headers = [(b"Host", f"{exchange.host}{port}".encode("ascii"))]
    headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in exchange.headers]
    if exchange.body or exchange.method in _READ_BODIES:
        headers.append((b"Content-Length", str(len(exchange.body)).encode("ascii")))
    if _is_last(exchange):
        headers.append((b"Connection", b"close"))  # left out over HTTP/2
    return headers


def _is_last(exchange: Exchange) -> bool:
    """Whether no request may follow on the same connection."""
    return bool(exchange.body) and exchange.method not in _READ_BODIES


def _plain(headers: list[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def _timeouts(seconds: float) -> dict[str, float]:
    return {"connect": min(seconds, CONNECT_SECONDS), "read": seconds, "write": seconds, "pool": seconds}


def _failure(wrong: Exception) -> Unconnected:
    """Describe an error in words that are safe to show: no addresses of the host, and no text from the other side."""
    import httpcore2

    match wrong:
        case HeadTooLong():
            return Unconnected("the answer has too long a head, or too many interim answers")
        case httpcore2.ConnectTimeout():
            return Unreached("no connection in time")
        case httpcore2.ConnectError():
            return Unreached(_refusal(wrong))
        case httpcore2.TimeoutException():
            return Unconnected("no answer in time")
        case httpcore2.NetworkError():
            return Unconnected("the connection broke")
        case httpcore2.LocalProtocolError():
            return Unconnected("the request cannot be sent as HTTP")
        case _:  # any error of the parsers was caused by data from the other side
            return Unconnected("the answer is not valid HTTP, or ended too early")


def _refusal(wrong: BaseException) -> str:
    cause: BaseException | None = wrong
    while cause is not None:
        match cause:
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted: {cause.verify_message}"
            case ssl.SSLError():
                return "TLS failed"
            case ConnectionRefusedError():
                return "connection refused"
            case _:
                cause = cause.__cause__ or cause.__context__
    return "no connection"
