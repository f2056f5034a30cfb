"""Tools that flood the host, one attack each, and the honest tools that run at the same time."""

import asyncio
import time
from typing import Any

from licet import Context, SyncContext, tool

MB = 1 << 20


def _wire(ctx: Any) -> tuple[Any, int]:
    """The socket to the host and the number of this call, as any code in a worker can find them."""
    host = ctx._target._host
    return host.wire.socket, host.call


def _frame(blob: bytes, **head: Any) -> bytes:
    from licet.sandbox.bridge.wire import packed

    return packed(head, blob)


def _objects(size: int) -> bytes:
    return b"[" + b"{}," * (size // 3 - 1) + b"{}]"


@tool(needs=[], effect="read_only", sandbox="restricted", reuse=True)
def honest(a: int, b: int) -> int:
    """Add two numbers in a process that serves many calls."""
    return a + b


@tool(needs=["network:http:get@honest.test"], effect="read_only", sandbox="native")
async def honest_fetch(ctx: Context, port: int) -> int:
    """Fetch a small page by its name."""
    return (await ctx.fetch(f"http://honest.test:{port}/")).status


@tool(needs=["storage:*:tool-private"], effect="write_limited", sandbox="restricted")
def result(ctx: SyncContext, size: int) -> None:
    """Send a result that is all small objects."""
    end, call = _wire(ctx)
    end.sendall(_frame(_objects(size), op="result", call=call))
    time.sleep(60)


@tool(needs=["storage:*:tool-private"], effect="write_limited", sandbox="restricted")
def value(ctx: SyncContext, size: int) -> str:
    """Store a value that is all small objects, without the checks of the handle."""
    end, call = _wire(ctx)
    end.sendall(_frame(_objects(size), op="kv.set", id=900, call=call, key="k", ttl_seconds=None))
    host: Any = ctx._target._host  # type: ignore[attr-defined]
    while 900 not in host._answers:
        host._take()
    return str(host._answers[900].head.get("text", "stored"))


@tool(needs=["secret:read:token"], effect="read_only", sandbox="restricted")
def strings(ctx: SyncContext, many: int) -> list[str]:
    """Return very many short strings after a secret was seen."""
    ctx.secrets.get("token")
    return ["abc"] * many


@tool(needs=["fs:read:${workdir}"], effect="read_only", sandbox="restricted")
def files(ctx: SyncContext, many: int) -> None:
    """Open files one after the other, and receive none of them."""
    end, call = _wire(ctx)
    for number in range(many):
        end.sendall(_frame(b"", op="fs.open", id=900 + number, call=call, path="a.txt", mode="r"))
        time.sleep(0.001)
    time.sleep(60)


@tool(needs=["fs:read:${workdir}"], effect="read_only", sandbox="restricted")
def answers(ctx: SyncContext, many: int) -> None:
    """Ask about a file again and again, and read no answer."""
    end, call = _wire(ctx)
    for number in range(many):
        end.sendall(_frame(b"", op="fs.stat", id=900 + number, call=call, path="a.txt"))
        time.sleep(0.0002)
    time.sleep(60)


@tool(needs=["network:http:get@127.0.0.1"], effect="read_only", sandbox="restricted")
def pieces(ctx: SyncContext, url: str, many: int) -> None:
    """Ask for very many pieces of a large answer at once, and read none."""
    end, call = _wire(ctx)
    head = {"call": call, "url": url, "method": "GET", "max_bytes": 256 * MB}
    end.sendall(_frame(b"", op="stream.open", id=900, **head))
    time.sleep(0.5)
    for number in range(many):
        end.sendall(_frame(b"", op="stream.next", id=901 + number, call=call, stream=900))
        time.sleep(0.0002)
    time.sleep(60)


# A program that sends a large body over each of many connections, ignoring the proxy's answers; then the statuses.
_BODIES = """
import os, socket, sys, threading
method, url, many, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
host, _, port = os.environ["http_proxy"].rpartition("/")[2].partition(":")
piece, found = bytes(1 << 16), []
def one():
    try:
        end = socket.create_connection((host, int(port)), 60)
        end.sendall(f"{method} {url} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {size}\\r\\n\\r\\n".encode())
        try:
            for _ in range(size // len(piece)):
                end.sendall(piece)
        except OSError:
            pass
        found.append(end.recv(64).split(b" ")[1].decode())
    except (OSError, IndexError) as wrong:
        found.append(type(wrong).__name__)
threads = [threading.Thread(target=one) for _ in range(many)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(",".join(found))
"""


@tool(needs=["network:http:*@127.0.0.1", "process:exec:*"], effect="write_limited", sandbox="restricted")
def bodies(ctx: SyncContext, python: str, method: str, url: str, many: int, size: int) -> str:
    """Have a program send large bodies through the proxy."""
    ended = ctx.process.spawn(python, ["-I", "-S", "-c", _BODIES, method, url, str(many), str(size)])
    return ended.stdout or ended.stderr[-500:]


@tool(needs=["network:http:get@127.0.0.1"], effect="read_only", sandbox="restricted")
async def fetches(ctx: Context, url: str, many: int, size: int) -> list[str]:
    """Fetch large answers, all at once, and return the result of each."""

    async def one() -> str:
        try:
            return str(len((await ctx.fetch(url, max_bytes=size)).content))
        except Exception as error:
            return str(error).partition(":")[0]

    return list(await asyncio.gather(*(one() for _ in range(many))))


@tool(needs=["network:http:get@127.0.0.1"], effect="read_only", sandbox="restricted")
async def headers(ctx: Context, url: str, many: int) -> int:
    """Send very many headers."""
    return (await ctx.fetch(url, headers=[(f"x-{number}", "y") for number in range(many)])).status


@tool(needs=["network:http:get@*.hangs.test"], effect="read_only", sandbox="native")
async def names(ctx: Context, many: int) -> str:
    """Look up names that no resolver answers, and return."""
    work = [asyncio.ensure_future(ctx.fetch(f"http://a{number}.hangs.test/")) for number in range(many)]
    await asyncio.sleep(0.2)
    for one in work:
        one.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    return "left"


@tool(needs=["fs:read:${workdir}"], effect="read_only", sandbox="restricted")
async def listing(ctx: Context, path: str) -> int:
    """List a directory."""
    return len(await ctx.fs.list(path))


@tool(needs=[], effect="read_only", sandbox="native")
def arguments(items: list[Any]) -> int:
    """Take a list."""
    return len(items)


TOOLS = (
    *(honest, honest_fetch, result, value, strings, files, answers, pieces, bodies, fetches, headers, names, listing),
    arguments,
)
