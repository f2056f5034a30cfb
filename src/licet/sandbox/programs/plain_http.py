"""One plain HTTP request over one connection to an address that was checked: small, because a proxy makes very many.

What is sent is built from checked parts. The answer is data for a program behind walls: it is read as far as needed to
know where it ends, and nothing in it is believed. TLS, redirects and kept connections are for others.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from licet.core.algebra.domains import DEFAULT_PORTS
from licet.guard.ports import Exchange, Reply, Unconnected, Unreached
from licet.sandbox.programs.dial import connected
from licet.sandbox.programs.streams import CHUNK, Stream

_BODIES = ("POST", "PUT", "PATCH")
_BARE = (204, 304)


@asynccontextmanager
async def send_plain(
    exchange: Exchange, before_waiting: Callable[[], Awaitable[None]] | None = None
) -> AsyncGenerator[Reply]:
    """Send a request to its address and hand over the answer as it comes."""
    try:
        stream = Stream(await connected(exchange.address, exchange.port), before_waiting)
    except TimeoutError:
        raise Unreached("no connection in time") from None
    except ConnectionRefusedError:
        raise Unreached("connection refused") from None
    except OSError:
        raise Unreached("no connection") from None
    try:
        until = stream.clock(exchange.timeout)
        try:
            if len(exchange.body) < CHUNK:
                await stream.send(_request(exchange) + exchange.body, until)
            else:  # apart: nothing is copied
                await stream.send(_request(exchange), until)
                await stream.send(exchange.body, until)
            status, headers = await _head(stream, until)
        except TimeoutError:
            raise Unconnected("no answer in time") from None
        except (OSError, EOFError, ValueError, IndexError):
            raise Unconnected("the answer is not valid HTTP, or ended too early") from None
        bare = exchange.method == "HEAD" or status in _BARE
        yield Reply(status, headers, _body(bare, headers, stream, exchange.timeout))
    finally:
        stream.abort()


def _request(exchange: Exchange) -> bytes:
    path = exchange.url.partition("://")[2].partition("/")[2]
    port = "" if exchange.port == DEFAULT_PORTS["http"] else f":{exchange.port}"
    lines = [f"{exchange.method} /{path} HTTP/1.1", f"Host: {exchange.host}{port}"]
    lines += [f"{name}: {value}" for name, value in exchange.headers]
    if exchange.body or exchange.method in _BODIES:
        lines.append(f"Content-Length: {len(exchange.body)}")
    return "\r\n".join((*lines, "Connection: close", "", "")).encode("ascii")


async def _head(stream: Stream, until: float) -> tuple[int, tuple[tuple[str, str], ...]]:
    while True:
        start, *lines = (await stream.through(b"\r\n\r\n", until))[:-4].decode("latin-1").split("\r\n")
        version, code = start.split(" ")[:2]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdecimal() and len(code) == 3):
            raise ValueError("no answer")
        if not code.startswith("1"):  # what comes before the answer itself
            return int(code), tuple(map(_header, lines))


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or any(char in line for char in "\r\n\0"):
        raise ValueError("no header")
    return name, value.strip(" \t")


async def _body(
    bare: bool, headers: tuple[tuple[str, str], ...], stream: Stream, seconds: float
) -> AsyncIterator[bytes]:
    named = {name.lower(): value for name, value in headers}
    clock = stream.clock
    try:
        if bare:
            return
        if "transfer-encoding" in named:
            while size := int((await stream.through(b"\r\n", clock(seconds))).split(b";")[0], 16):
                async for piece in _exactly(stream, size, seconds):
                    yield piece
                await stream.exactly(2, clock(seconds))
        elif "content-length" in named:
            async for piece in _exactly(stream, int(named["content-length"]), seconds):
                yield piece
        else:
            while piece := await stream.read(CHUNK, clock(seconds)):
                yield piece
    except (OSError, EOFError, ValueError):  # a timeout is an OSError too
        raise Unconnected("the answer is not valid HTTP, or ended too early") from None


async def _exactly(stream: Stream, size: int, seconds: float) -> AsyncIterator[bytes]:
    while size > 0:
        piece = await stream.read(min(size, CHUNK), stream.clock(seconds))
        if not piece:
            raise EOFError
        size -= len(piece)
        yield piece
