"""Tools that try to make the host large, slow or unable to open files; each is one attack of `test_floods`."""

import asyncio
import socket
import time
from typing import Any

from licet import Context, SyncContext, tool

MB = 1 << 20


def _wire(ctx: Any) -> tuple[socket.socket, int]:
    """The socket to the host and the number of this call, as any code in a worker can find them."""
    host = ctx._target._host if hasattr(ctx, "_target") else ctx._host
    return host.wire.socket, host.call


def _frame(blob: bytes, **head: Any) -> bytes:
    from licet.sandbox.bridge.wire import packed

    return packed(head, blob)


def objects(size: int) -> bytes:
    """So many bytes of JSON that hold as many values as can be."""
    return b"[" + b"{}," * (size // 3 - 1) + b"{}]"


@tool(needs=["env:read:NAME"], effect="read_only")
def result(ctx: SyncContext, size: int) -> None:
    """Send a result that is all small objects."""
    end, call = _wire(ctx)
    end.sendall(_frame(objects(size), op="result", call=call))
    time.sleep(60)


@tool(needs=["storage:*:tool-private"], effect="write_limited")
def value(ctx: SyncContext, size: int) -> str:
    """Store a value that is all small objects, past what the handle would say."""
    end, call = _wire(ctx)
    end.sendall(_frame(objects(size), op="kv.set", id=900, call=call, key="k", ttl_seconds=None))
    host: Any = ctx._target._host  # type: ignore[attr-defined]
    host._next = 1000
    ctx.kv.get("k")
    while 900 not in host._answers:
        host._take()
    return str(host._answers[900].head.get("text", "stored"))


@tool(needs=["env:read:NAME"], effect="read_only")
def head(ctx: SyncContext, size: int) -> None:
    """Ask a question with far too many fields."""
    end, call = _wire(ctx)
    fields = ",".join(f'"{number}":0' for number in range(size // 10)).encode()
    text = b'{"op":"env.get","id":900,"call":%d,"name":"NAME",%s}' % (call, fields)
    end.sendall(len(text).to_bytes(4, "little") + bytes(4) + text)
    time.sleep(60)


@tool(needs=["fs:read:${workdir}"], effect="read_only")
def unread_files(ctx: SyncContext, many: int) -> None:
    """Open files one after the other, and take none of them."""
    end, call = _wire(ctx)
    for number in range(many):
        end.sendall(_frame(b"", op="fs.open", id=900 + number, call=call, path="a.txt", mode="r"))
        time.sleep(0.001)
    time.sleep(60)


@tool(needs=["fs:read:${workdir}"], effect="read_only")
def unread_answers(ctx: SyncContext, many: int) -> None:
    """Read a file again and again, and take no answer."""
    end, call = _wire(ctx)
    for number in range(many):
        end.sendall(_frame(b"", op="fs.stat", id=900 + number, call=call, path="a.txt"))
        time.sleep(0.0002)
    time.sleep(60)


@tool(needs=["network:https:get@a.test"], effect="read_only")
def unread_pieces(ctx: SyncContext, many: int) -> None:
    """Ask for very many pieces of an answer at once, and take none."""
    end, call = _wire(ctx)
    end.sendall(_frame(b"", op="stream.open", id=900, call=call, url="https://a.test/", method="GET"))
    time.sleep(0.2)
    for number in range(many):
        end.sendall(_frame(b"", op="stream.next", id=901 + number, call=call, stream=900))
    time.sleep(60)


@tool(needs=["network:https:get@a.test"], effect="read_only")
async def fetches(ctx: Context, many: int, size: int) -> list[str]:
    """Fetch large answers, all at once; what became of each."""

    async def one() -> str:
        try:
            return str(len((await ctx.fetch("https://a.test/", max_bytes=size)).content))
        except Exception as error:
            return str(error).partition(":")[0]

    return list(await asyncio.gather(*(one() for _ in range(many))))


@tool(needs=["network:https:get@a.test"], effect="read_only")
async def headers(ctx: Context, many: int) -> int:
    """Send very many headers."""
    return (await ctx.fetch("https://a.test/", headers=[(f"x-{number}", "y") for number in range(many)])).status


@tool(needs=["fs:read:${workdir}"], effect="read_only")
async def names(ctx: Context) -> int:
    """List a directory."""
    return len(await ctx.fs.list("."))


@tool(needs=["fs:read:${workdir}"], effect="read_only")
async def lists(ctx: Context, many: int) -> list[str]:
    """List a directory many times at once; how many names each list had, or why there is none."""

    async def one() -> str:
        try:
            return str(len(await ctx.fs.list(".")))
        except Exception as error:
            return str(error).partition(":")[0]

    return list(await asyncio.gather(*(one() for _ in range(many))))


@tool(needs=["fs:read:${workdir}"], effect="read_only")
async def open_files(ctx: Context, many: int, *, keep: bool) -> int:
    """Open a file many times, and close each before the next unless it is kept."""
    kept = []
    try:
        for _ in range(many):
            file = await ctx.fs.open("a.txt")
            kept.append(file)
            if not keep:
                file.close()
    finally:
        for file in kept:
            file.close()
    return many


@tool(needs=[], effect="read_only")
def listed(items: list[Any]) -> int:
    """Take a list."""
    return len(items)


@tool(needs=["fs:write:${workdir}"], effect="write_limited")
async def makes(ctx: Context, how: str, many: int) -> None:
    """Make files or directories, as many as a disk has room for."""
    for number in range(many):
        match how:
            case "write":
                await ctx.fs.write(f"{number}.txt", "")
            case "mkdir":
                await ctx.fs.mkdir(f"{number}/below")
            case "open":
                (await ctx.fs.open(f"{number}.txt", "wb")).close()
            case _:
                await ctx.fs.write("same.txt", str(number))
