"""Tiny tools for the cases: each does one thing, and a case may declare it in another way."""

import asyncio
from collections.abc import Callable
from typing import Any

from licet import Context, Refused, Tool, tool

RAN: list[str] = []  # one for each run of `quiet` since a gate was built


def pure(fn: Callable[..., Any]) -> Tool:
    """A tool that needs nothing."""
    return tool(needs=[], effect="read_only", sandbox="native")(fn)


def costly(fn: Callable[..., Any]) -> Tool:
    """A tool that needs nothing and declares a cost."""
    return tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.40")(fn)


@pure
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@pure
def blocking_add(a: int, b: int = 1) -> int:
    """Add two numbers, in a function that is not async."""
    return a + b


@tool(needs=["env:read:*"], effect="read_only", sandbox="native")
async def read_env(ctx: Context, name: str) -> str | None:
    """Read a variable."""
    return ctx.env.get(name)


@tool(needs=["env:read:*"], effect="read_only", sandbox="native")
def blocking_read_env(ctx: Context, name: str) -> str | None:
    """Read a variable, in a function that is not async."""
    return ctx.env.get(name)


@tool(needs=["env:read:*"], effect="read_only", sandbox="native")
async def curious(ctx: Context) -> str:
    """Read a variable, after another one that it may not read."""
    allowed(lambda: ctx.env.get("B"))
    return str(ctx.env.get("A"))


@pure
async def fail(kind: str) -> Any:
    """Fail in some way."""
    match kind:
        case "error":
            raise ValueError("no such city\nand a second line")
        case "exit":
            raise SystemExit(3)
        case "cancel":
            raise asyncio.CancelledError
        case "generator":
            return (n for n in range(3))
        case "object":
            return object()
        case "slow":
            await asyncio.sleep(60)


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def note(ctx: Context, text: str) -> None:
    """Write a note."""
    await ctx.fs.write("note.txt", text)


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def counted(number: int) -> str:
    """Take a number of any size."""
    return str(number)


@costly
async def paid(fail: bool = False) -> str:
    """Cost something."""
    if fail:
        raise ValueError("no")
    return "done"


@costly
async def metered(ctx: Context, amounts: list[str | float | bool]) -> None:
    """Report what it costs."""
    for amount in amounts:
        ctx.charge(amount)  # type: ignore[arg-type]


@tool(needs=["storage:*:session"], effect="read_only", sandbox="native")
async def remember(ctx: Context, value: str | None = None) -> list[Any]:
    """Keep a value in the session; who keeps it, and what is kept."""
    if value is not None:
        await ctx.kv.set("value", value)
    return [ctx.agent, await ctx.kv.get("value")]


@pure
async def quiet(ctx: Context, path: str = "") -> str:
    """Note that it ran."""
    RAN.append(path)
    return "ran"


@tool(
    needs=["env:read:A"],
    optional=["env:read:B", "secret:read:K", "storage:*:session"],
    effect="read_only",
    sandbox="native",
)
async def either(ctx: Context) -> list[str]:
    """Use what there is."""
    await ctx.kv.set("a", 1)
    found = [name for name in ("A", "B") if allowed(lambda name=name: ctx.env.get(name))]  # type: ignore[misc]
    try:
        await ctx.secrets.get("K")
    except Refused:
        return found
    return [*found, "K"]


@tool(needs=["fs:read:*"], effect="read_only", sandbox="native")
async def read(ctx: Context, path: str) -> str:
    """Read a file."""
    return await ctx.fs.read(path)


@tool(needs=["fs:read:*", "fs:write:*"], effect="write_limited", sandbox="native")
async def rewrite(ctx: Context, path: str) -> str:
    """Write a file and read it."""
    await ctx.fs.write(path, "x")
    return await ctx.fs.read(path)


@tool(needs=["network:*:*"], effect="read_only", sandbox="native")
async def get(ctx: Context, url: str) -> int:
    """Fetch a page."""
    return (await ctx.fetch(url)).status


@tool(needs=["fs:write:/srv"], effect="write_limited", sandbox="native", cost_usd="0")
async def change() -> str:
    """Would write."""
    return "done"


def allowed(use: Callable[[], object]) -> bool:
    """Whether a use is not refused."""
    try:
        use()
    except Refused:
        return False
    return True


TOOLS: dict[str, Tool] = {name: one for name, one in globals().items() if isinstance(one, Tool)}
