"""The network of this machine: sends each request to the address that it carries, with TLS for its host name.

Built on httpcore2, below any client that would read proxies, `.netrc` or certificates from the environment, follow
redirects or keep cookies. The addresses were checked before; this module checks no rule.

Lets other tasks run while an answer is parsed, however many small parts it has.

The parsers of HTTP return to the event loop only to read. One read can hold thousands of interim answers (status 1xx),
chunks or frames, and each of them costs as much as a long one. So the head of an answer, and everything of HTTP/2, is
read in small pieces, and a parser that has worked for a millisecond yields to the event loop.

Looks up the addresses of names, in threads.

A lookup can hang as long as the resolver does, and cannot be ended: its thread stays busy even after the call has
ended. So one session may use only some of the threads, and others keep the rest.
"""

import asyncio
import importlib
import os
import socket
import ssl
import threading
import weakref
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from licet.backends.limits import (
    CONNECT_SECONDS,
    KEEP_ALIVE_SECONDS,
    LARGE_READ_BYTES,
    MOST_HEAD_BYTES,
    MOST_HEAD_LINES,
    MOST_IDLE,
    MOST_INTERIM_ANSWERS,
    MOST_LOOKUPS,
    MOST_LOOKUPS_OF_ONE,
    RESOLVE_SECONDS,
    REST_SECONDS,
    SLICE_SECONDS,
    SMALL_READ_BYTES,
)
from licet.core.algebra.domains import DEFAULT_PORTS
from licet.core.algebra.scope import is_address
from licet.guard.ports import LOOKED_UP_FOR, Exchange, Reply, Unconnected, Unreached, Unresolved

if TYPE_CHECKING:
    import httpcore2


class HeadTooLong(Exception):
    """An answer has too many interim answers, or a head with too many bytes or lines."""


# By event loop: who has worked for long rests one after the other, so that many of them delay others no more than one.
_RESTING: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = weakref.WeakKeyDictionary()


class Pace:
    """Lets other tasks run each time that this one has worked for a moment without waiting for anything."""

    __slots__ = ("_since", "_turned")

    def __init__(self) -> None:
        self._since = 0.0
        self._turned = True  # whether the event loop has run something else since the last look

    async def keep(self) -> None:
        """Rest if other tasks have waited for this one for too long."""
        if not self._turned:
            if monotonic() - self._since < SLICE_SECONDS:
                return
            async with _RESTING.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                await asyncio.sleep(REST_SECONDS)
        self._turned, self._since = False, monotonic()
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turned = True


class PacedStream:
    """A connection below a parser of HTTP, with the methods of `httpcore2.AsyncNetworkStream`."""

    def __init__(self, stream: "httpcore2.AsyncNetworkStream") -> None:
        self.pace = Pace()
        self._stream = stream
        self._head: int | None = 0  # bytes of the head so far; None while a body is read
        self._answers = self._lines = 0
        # Asked for with each request, and looked up through all layers each time.
        self._secured: Any = stream.get_extra_info("ssl_object")
        self._has_frames = self._secured is not None and self._secured.selected_alpn_protocol() == "h2"

    def expect_head(self) -> None:
        """The next bytes are the head of an answer."""
        self._head = self._answers = self._lines = 0

    def expect_body(self) -> None:
        """The head has been read."""
        self._head = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes; `HeadTooLong` if there are too many before the body."""
        await self.pace.keep()
        is_small = self._head is not None or self._has_frames
        data = await self._stream.read(min(max_bytes, SMALL_READ_BYTES) if is_small else max_bytes, timeout)
        if not is_small and self._secured is not None:
            with suppress(ssl.SSLError):  # no other record of TLS has arrived, or the next read fails in the same way
                while 0 < len(data) < max_bytes and (more := self._secured.read(max_bytes - len(data))):
                    data += more
        if self._head is not None:
            self._head += len(data)
            self._answers += data.count(b"HTTP/1.")
            if self._head > MOST_HEAD_BYTES or self._answers > MOST_INTERIM_ANSWERS or self._lines > MOST_HEAD_LINES:
                raise HeadTooLong
            self._lines += data.count(b"\n")  # counted from the next read on: these may be lines of a body
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write bytes."""
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **kwargs: Any) -> "httpcore2.AsyncNetworkStream":
        """Begin TLS."""
        return await self._stream.start_tls(*args, **kwargs)

    def get_extra_info(self, info: str) -> Any:
        """What the connection knows about itself."""
        return self._secured if info == "ssl_object" else self._stream.get_extra_info(info)


class _Wanted(Struct, frozen=True):
    """A name to look up, and its owner."""

    answer: "Future[Any]"
    owner: str
    host: str
    port: int


class Lookups:
    """Looks up names in a limited number of daemon threads, so that a process can end while one hangs."""

    def __init__(
        self, most: int = MOST_LOOKUPS, ask: Callable[..., Any] | None = None, most_of_one: int = MOST_LOOKUPS_OF_ONE
    ) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._ask = ask
        self.start_empty()
        _ALL.add(self)

    def start_empty(self) -> None:
        """Start without threads, in a new object and in a forked child."""
        self._lock = threading.Lock()
        self._waiting: deque[_Wanted] = deque()
        self._occupied: Counter[str] = Counter()  # busy threads by owner
        self._threads = 0

    async def find(self, host: str, port: int, owner: str = "") -> Any:
        """Return what `socket.getaddrinfo` returns for a name, or raise what it raises."""
        wanted = _Wanted(Future(), owner, host, port)
        with self._lock:
            self._waiting.append(wanted)
            if self._threads < self._most and self._may_start(wanted):
                threading.Thread(target=self._work, name="licet-lookup", daemon=True).start()
                self._threads += 1
        try:
            return await asyncio.wrap_future(wanted.answer)
        finally:
            with self._lock, suppress(ValueError):  # the call gave up before a thread took the name
                self._waiting.remove(wanted)

    def _may_start(self, wanted: _Wanted) -> bool:
        return not wanted.owner or self._occupied[wanted.owner] < self._most_of_one

    def _next(self) -> _Wanted | None:
        """Take the first waiting lookup whose owner may use another thread; None if there is none."""
        with self._lock:
            found = next((wanted for wanted in self._waiting if self._may_start(wanted)), None)
            if found is None:
                self._threads -= 1
            else:
                self._waiting.remove(found)
                self._occupied[found.owner] += 1
            return found

    def _work(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                self._look_up(wanted)
            finally:
                with self._lock:
                    self._occupied[wanted.owner] -= 1
                    if not self._occupied[wanted.owner]:
                        del self._occupied[wanted.owner]

    def _look_up(self, wanted: _Wanted) -> None:
        answer = wanted.answer
        if not answer.set_running_or_notify_cancel():
            return
        try:
            found = (self._ask or socket.getaddrinfo)(wanted.host, wanted.port, type=socket.SOCK_STREAM)
        except BaseException as wrong:
            answer.set_exception(wrong)
        else:
            answer.set_result(found)


_ALL: "weakref.WeakSet[Lookups]" = weakref.WeakSet()


def _in_child() -> None:
    for lookups in list(_ALL):  # the threads stayed in the parent
        lookups.start_empty()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)


# The modules that a request imports, with those that anyio selects at run time and the encoding of host names.
_HTTP_STACK = ("httpcore2", "httpx2", "anyio._backends._asyncio", "anyio.streams.tls", "encodings.idna")

# Other methods may have a body, but not every server reads it: what is left of it would be taken for the next request.
_READ_BODIES = ("POST", "PUT", "PATCH")

Key = tuple[str, str, int, str]  # protocol, host, port, address

# Private names of httpcore2 and of anyio, for `has_unread` alone.
_NETWORK = attrgetter("_connection._network_stream")
_UNPARSED = attrgetter("_connection._h11_state.trailing_data")
_UNDELIVERED = attrgetter("_stream._protocol.read_queue")


class _Connection:
    """One connection, for one request at a time, so that one call cannot break the requests of another.

    HTTP/2 could carry several at once, but a request that is cancelled while it is written breaks the connection.
    It is made again if the server has closed it. A pool of httpcore2 would do so too, and takes longer than the rest.
    """

    __slots__ = ("_made", "_make", "paced", "streams")

    def __init__(
        self, make: Callable[[], "httpcore2.AsyncHTTPConnection"], streams: list[Any], paced: list[PacedStream]
    ) -> None:
        self._make, self._made = make, make()
        self.streams = streams
        self.paced = paced  # the stream that is read; none before the first request

    async def request(self, request: "httpcore2.Request") -> Any:
        """Send a request; returns the response of httpcore2."""
        import httpcore2

        if self._made.is_closed() or self._made.has_expired():
            await self._make_again()
        try:
            return await self._made.handle_async_request(request)
        except httpcore2.ConnectionNotAvailable:  # over HTTP/2 the server has just said that it takes no more
            await self._make_again()
            return await self._made.handle_async_request(request)

    async def _make_again(self) -> None:
        with suppress(Exception):
            await self._made.aclose()
        self._made = self._make()

    def has_unread(self) -> bool:
        """Whether more than the answer has arrived over HTTP/1.1; the next request would take it for its answer.

        httpcore2 notices what is still in the kernel. What the layers above have read has no public name; if a
        private one is missing, the connection is not used again.
        """
        try:
            if _UNPARSED(self._made)[0] or _UNDELIVERED(self.streams[-1]):
                return True
            secured = _NETWORK(self._made).get_extra_info("ssl_object")
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
            await self._made.aclose()
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

    def send(self, exchange: Exchange) -> AbstractAsyncContextManager[Reply]:
        """Send a request to its address, and stream the answer. The connection is released at the end."""
        return self._sent(exchange, exchange.body, len(exchange.body))

    def send_streamed(
        self, exchange: Exchange, body: AsyncIterable[bytes], length: int | None
    ) -> AbstractAsyncContextManager[Reply]:
        """The same with a body in pieces. A server that answers before the end of it is heard when it reads no more."""
        return self._sent(exchange, _StreamedBody(body, length), length)

    def upgrade(self, exchange: Exchange, protocol: str) -> AbstractAsyncContextManager[Reply]:
        """The same for a request that asks for another protocol, over HTTP/1.1."""
        return self._sent(exchange, b"", 0, protocol)

    @asynccontextmanager
    async def _sent(
        self, exchange: Exchange, content: "bytes | _StreamedBody", length: int | None, upgrade: str = ""
    ) -> AsyncGenerator[Reply]:
        import httpcore2

        protocol, _, rest = exchange.url.partition("://")
        host = exchange.host.strip("[]")
        # Only HTTP/1.1 can be upgraded.
        key = (f"{protocol} to upgrade" if upgrade else protocol, host, exchange.port, exchange.address)
        connections = await self._connections()
        connection = connections.take(key, lambda: self._new_connection(protocol, host, exchange, http2=not upgrade))
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
                response: Any = await connection.request(
                    httpcore2.Request(
                        exchange.method.encode("ascii"),
                        httpcore2.URL(
                            scheme=protocol.encode("ascii"),
                            host=host.encode("ascii"),
                            port=exchange.port,
                            target=f"/{rest.partition('/')[2]}".encode("ascii"),
                        ),
                        headers=_headers(exchange, protocol, length, upgrade),
                        content=content,
                        extensions={"timeout": _timeouts(exchange.timeout)},
                    )
                )
            except Exception as wrong:
                if isinstance(content, _StreamedBody) and wrong is content.failure:
                    raise
                raise _failure(wrong) from wrong
            for stream in connection.paced:
                stream.expect_body()
            version = response.extensions["http_version"].decode("ascii")
            upgraded = _Upgraded(response.extensions["network_stream"]) if response.status == 101 else None
            try:
                async with aclosing(body()) as pieces:
                    yield Reply(response.status, _plain(response.headers), pieces, version, upgraded)
            finally:
                # the answer is complete, so an error now only means that the connection is not used again
                with suppress(Exception):
                    await response.stream.aclose()
        finally:
            # After an unfinished answer the rest of it would still arrive.
            sound = complete and not _is_last(exchange, length) and (version == "HTTP/2" or not connection.has_unread())
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

    def _new_connection(self, protocol: str, name: str, exchange: Exchange, *, http2: bool) -> _Connection:
        import httpcore2

        address = exchange.address
        origin = httpcore2.Origin(protocol.encode("ascii"), name.encode("ascii"), exchange.port)
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

        def make() -> httpcore2.AsyncHTTPConnection:
            return httpcore2.AsyncHTTPConnection(
                origin=origin,
                ssl_context=self._trust(),
                keepalive_expiry=KEEP_ALIVE_SECONDS,
                http1=True,
                http2=http2,
                network_backend=Dial(),
            )

        return _Connection(make, streams, paced)

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


class _StreamedBody:
    """A body that is sent while it arrives; `failure` is the error that it ended with.

    httpcore2 may try a request again on another connection, when part of the body is gone already: it fails then.
    """

    def __init__(self, pieces: AsyncIterable[bytes], length: int | None) -> None:
        self._pieces, self._length, self._begun = pieces, length, False
        self.failure: Exception | None = None

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        try:
            async for piece in self._checked():
                yield piece
        except Exception as wrong:
            self.failure = wrong
            raise

    async def _checked(self) -> AsyncGenerator[bytes]:
        if self._begun:
            raise Unconnected("the connection broke")
        self._begun, sent = True, 0
        async for piece in self._pieces:
            if piece:
                sent += len(piece)
                if self._length is not None and sent > self._length:
                    break
                yield piece
        if self._length is not None and sent != self._length:  # over HTTP/2 nobody else would notice
            raise Unconnected("the request cannot be sent as HTTP")


class _Upgraded:
    """The connection of a request that was upgraded. It has no limit of time: both sides may be silent."""

    def __init__(self, stream: "httpcore2.AsyncNetworkStream") -> None:
        self._stream = stream

    async def read(self) -> bytes:
        """Some bytes, or none at the end."""
        try:
            return await self._stream.read(LARGE_READ_BYTES)
        except Exception as wrong:
            raise _failure(wrong) from wrong

    async def write(self, data: bytes) -> None:
        """Write bytes."""
        try:
            await self._stream.write(data)
        except Exception as wrong:
            raise _failure(wrong) from wrong


def _headers(exchange: Exchange, protocol: str, length: int | None, upgrade: str) -> list[tuple[bytes, bytes]]:
    port = "" if exchange.port == DEFAULT_PORTS[protocol] else f":{exchange.port}"
    headers = [(b"Host", f"{exchange.host}{port}".encode("ascii"))]
    headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in exchange.headers]
    if length is None:
        headers.append((b"Transfer-Encoding", b"chunked"))  # left out over HTTP/2
    elif length or exchange.method in _READ_BODIES:
        headers.append((b"Content-Length", str(length).encode("ascii")))
    if upgrade:
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", upgrade.encode("ascii"))]
    elif _is_last(exchange, length):
        headers.append((b"Connection", b"close"))  # left out over HTTP/2
    return headers


def _is_last(exchange: Exchange, length: int | None) -> bool:
    """Whether no request may follow on the same connection."""
    return length != 0 and exchange.method not in _READ_BODIES


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
