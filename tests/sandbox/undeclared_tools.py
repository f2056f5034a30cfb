"""Tools that declare nothing, each of which uses one category of the context, or a library that stands for it."""

import socket
import subprocess
from typing import Any

from licet import Context, SyncContext, tool


@tool(needs=[], effect="write_limited")
async def fetch(ctx: Context) -> int:
    """A request."""
    return (await ctx.fetch("https://site.test/")).status


@tool(needs=[], effect="write_limited")
async def fetch_malformed(ctx: Context) -> int:
    """A request whose headers no server would take."""
    return (await ctx.fetch("https://site.test/", headers={"a\n": "b"})).status


@tool(needs=[], effect="write_limited")
async def stream(ctx: Context) -> int:
    """A request whose answer is read in pieces."""
    async with ctx.fetch.stream("https://site.test/") as answer:
        return answer.status


@tool(needs=[], effect="write_limited")
async def fs_read(ctx: Context) -> str:
    """A file."""
    return await ctx.fs.read("/box/a")


@tool(needs=[], effect="write_limited")
async def fs_write(ctx: Context) -> None:
    """A file that is written."""
    await ctx.fs.write("/box/a", "text")


@tool(needs=[], effect="write_limited")
async def fs_open(ctx: Context) -> None:
    """A file that is opened."""
    await ctx.fs.open("/box/a")


@tool(needs=[], effect="write_limited")
async def fs_list(ctx: Context) -> list[str]:
    """The names in a directory."""
    return await ctx.fs.list("/box")


@tool(needs=[], effect="write_limited")
async def fs_delete(ctx: Context) -> None:
    """A file that is removed."""
    await ctx.fs.delete("/box/a")


@tool(needs=[], effect="write_limited")
async def fs_rename(ctx: Context) -> None:
    """A file that is moved: the target is asked about before the source."""
    await ctx.fs.rename("/box/a", "/box/b")


@tool(needs=[], effect="write_limited")
async def secret(ctx: Context) -> str:
    """The value of a secret."""
    return await ctx.secrets.get("KEY")


@tool(needs=[], effect="write_limited")
async def secret_ref(ctx: Context) -> str:
    """A text that stands for a secret."""
    return ctx.secrets.ref("KEY")


@tool(needs=[], effect="write_limited")
async def process(ctx: Context) -> Any:
    """A program by name."""
    return await ctx.process.spawn("ls")


@tool(needs=[], effect="write_limited")
async def process_path(ctx: Context) -> Any:
    """A program by path."""
    return await ctx.process.spawn("/bin/ls", ["/"], env={"A": "b"}, cwd="/")


@tool(needs=[], effect="write_limited")
def process_waiting(ctx: SyncContext) -> Any:
    """A program, from a function that is not async."""
    return ctx.process.spawn("ls")


@tool(needs=[], effect="write_limited")
async def kv_get(ctx: Context) -> Any:
    """A value."""
    return await ctx.kv.get("k")


@tool(needs=[], effect="write_limited")
async def kv_set(ctx: Context) -> None:
    """A value that is larger than any store takes."""
    await ctx.kv.set("k", "x" * (2 << 20))


@tool(needs=[], effect="write_limited")
async def kv_list(ctx: Context) -> list[str]:
    """Keys of another kind of store."""
    return await ctx.kv.of("personality").list()


@tool(needs=[], effect="write_limited")
async def env(ctx: Context) -> str | None:
    """A variable."""
    return ctx.env.get("PATH")


@tool(needs=[], effect="write_limited")
async def charge(ctx: Context) -> None:
    """Money."""
    ctx.charge("0.1")


@tool(needs=[], effect="write_limited")
def library_program() -> int:
    """A program that a library starts."""
    return subprocess.run(["ls"], check=False).returncode


@tool(needs=[], effect="write_limited")
def library_connection() -> None:
    """A connection that a library makes."""
    socket.create_connection(("site.test", 80), timeout=5).close()
