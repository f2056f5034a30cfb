"""Tools that do the same at every level: each uses one part of the context, and says what came of it."""

import asyncio
import datetime
import enum
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from licet import Context, Refused, SyncContext, tool
from sandbox.beside import doubled

NEEDS = [
    "fs:*:/box", "env:read:HOME_TOWN", "secret:read:KEY", "network:*:*.site.test", "network:read:site.test",
    "storage:*:tool-private", "storage:*:session", "process:exec:/bin/echo",
]  # fmt: skip


class Color(enum.Enum):
    RED = "red"


class Order(BaseModel):
    name: str
    amount: Decimal
    when: datetime.date


@tool(needs=NEEDS, effect="write_limited")
def typed(order: Order, color: Color, sizes: set[int], missing: Any = object) -> list[str]:
    """Arguments arrive as the hints say; a default may be anything."""
    return [
        type(order).__name__,
        str(order.when.year + 1),
        str(order.amount + 1),
        color.name,
        str(sizes),
        repr(missing),
    ]


@tool(needs=NEEDS, effect="write_limited")
def files(ctx: SyncContext) -> list[Any]:
    """Every method of `ctx.fs`, from a function."""
    ctx.fs.mkdir("/box/a")
    ctx.fs.write("/box/a/one", "eins")
    ctx.fs.write("/box/a/two", b"\xff\x00")
    with ctx.fs.open("/box/a/three", "w") as file:
        file.write("drei")
    with ctx.fs.open("/box/a/three", "a") as file:
        file.write("!")
    with ctx.fs.open("/box/a/three") as file:
        text = file.read()
    return [
        ctx.fs.list("/box/a"), ctx.fs.read("/box/a/one"), list(ctx.fs.read_bytes("/box/a/two")), text,
        ctx.fs.exists("/box/a/one"), ctx.fs.exists("/box/none"), ctx.fs.stat("/box/a/one").size,
        ctx.fs.stat("/box/a").kind, said(lambda: ctx.fs.read("/box/none")), said(lambda: ctx.fs.read("/etc/passwd")),
        said(lambda: ctx.fs.delete("/box/a/one")), said(lambda: ctx.fs.read("/box/a/two")),
        said(lambda: ctx.fs.read("/box/a/one", limit=1)), said(lambda: ctx.fs.open("/box/a/one", "q")),
        said(lambda: ctx.fs.write("/box/x", 5)),  # type: ignore[arg-type]
    ]  # fmt: skip


@tool(needs=NEEDS, effect="write_limited")
async def files_async(ctx: Context) -> list[Any]:
    """Many questions at once."""
    await ctx.fs.mkdir("/box")
    await asyncio.gather(*(ctx.fs.write(f"/box/{n}", str(n) * n) for n in range(40)))
    texts = await asyncio.gather(*(ctx.fs.read(f"/box/{n}") for n in range(40)))
    with await ctx.fs.open("/box/5", "r+b") as file:
        file.write(b"6")
    return [len("".join(texts)), texts[3], await ctx.fs.read("/box/5"), doubled(2)]


@tool(needs=NEEDS, effect="write_limited")
async def fetches(ctx: Context) -> list[Any]:
    """Requests, whole and in pieces."""
    answer = await ctx.fetch("https://site.test/a", headers={"X-Key": ctx.secrets.ref("KEY")})
    posted = await ctx.fetch("https://www.site.test/p", "POST", json={"a": [1, "ü"]})
    pieces = []
    async with ctx.fetch.stream("https://site.test/pieces") as stream:
        async for piece in stream:
            pieces.append(piece.decode())  # noqa: PERF401
        head = [stream.status, stream.headers["content-type"]]
    async with ctx.fetch.stream("https://site.test/pieces") as half:
        pass
    wrong = [
        await told(ctx.fetch("https://evil.test/")),
        await told(ctx.fetch("https://site.test/none")),
        await told(ctx.fetch("https://site.test/a", headers={"a": 5})),  # type: ignore[arg-type]
        await told(ctx.fetch("https://site.test/a", json=object())),
        await told(ctx.fetch("https://site.test/a", body=5)),  # type: ignore[arg-type]
        await told(ctx.fetch("https://site.test/a", timeout=-1)),
        await told(ctx.fetch("not a url")),
        await told(half.read()),
    ]
    return [
        answer.status,
        answer.ok,
        answer.text,
        answer.headers["X-A"],
        answer.url,
        posted.json(),
        pieces,
        head,
        wrong,
    ]


@tool(needs=NEEDS, effect="write_limited")
def fetch_blocking(ctx: SyncContext) -> list[Any]:
    """A request from a function."""
    return [ctx.fetch("https://site.test/a").json(), said(lambda: ctx.fetch("https://evil.test/"))]


@tool(needs=NEEDS, effect="write_limited", cost_usd="0.5")
async def the_rest(ctx: Context) -> list[Any]:
    """Secrets, storage, environment, programs and money."""
    await ctx.kv.set("k", {"a": [1, None]})
    await ctx.kv.of("session").set("k", 2, ttl_seconds=60)
    ctx.charge("0.2")
    number: Any = 5
    half: Any = 1.5
    ended = await told(ctx.process.spawn("/bin/echo", ["x"]))
    return [
        await ctx.kv.get("k"), await ctx.kv.get("none", 7), await ctx.kv.list(), await ctx.kv.delete("k"),
        await ctx.kv.of("session").get("k"), said(lambda: ctx.kv.of("nonsense")),
        await told(ctx.kv.set("k", object())) != "", await told(ctx.kv.get(number)) != "",
        ctx.env.get("HOME_TOWN"), said(lambda: ctx.env.get("PATH")), said(lambda: ctx.charge("0.4")),
        said(lambda: ctx.charge(half)), await told(ctx.secrets.get("OTHER")), len(await ctx.secrets.get("KEY")),
        ctx.session_id, ctx.agent, ctx.workdir != "", ended,
    ]  # fmt: skip


def _ended(found: Any) -> list[Any]:
    texts, data = [found.stdout, found.stderr], [list(found.stdout_bytes), list(found.stderr_bytes)]
    return [found.exit_code, *texts, *data, found.truncated, found.timed_out, found.reason]


@tool(needs=NEEDS, effect="write_limited")
async def programs(ctx: Context) -> list[Any]:
    """How programs end: by themselves, with output that is no text, and because their time is up."""
    fine = await ctx.process.spawn("/bin/echo", ["fine"])
    late = await ctx.process.spawn("/bin/echo", ["late"], timeout=0.1)
    return [_ended(fine), _ended(late), hasattr(fine, "returncode"), hasattr(fine, "limit")]


@tool(needs=NEEDS, effect="write_limited")
def programs_blocking(ctx: SyncContext) -> list[Any]:
    """The same, from a function."""
    return [_ended(ctx.process.spawn("/bin/echo", ["fine"]))]


@tool(needs=NEEDS, effect="write_limited")
async def lists(ctx: Context) -> list[Any]:
    """Lists of files and keys, all at once: of many names, of odd ones, and of none."""
    odd = ['"', "\\", "a,b", "[]", "\n", "ü", "\u2028", "😀", " ", "null", "0"]
    names = [*odd, *(f"{n}-{odd[n % len(odd)]}" for n in range(250))]
    await ctx.fs.mkdir("/box/none")
    await ctx.fs.mkdir("/box/many")
    await asyncio.gather(*(ctx.fs.write(f"/box/many/{name}", "") for name in names))
    await asyncio.gather(*(ctx.kv.set(name, 1) for name in names))
    asked = (ctx.fs.list("/box/none"), ctx.kv.list("none of them"), ctx.fs.list("/box/missing"), ctx.fs.list("/etc"))
    many = (each for _ in range(20) for each in (ctx.fs.list("/box/many"), ctx.kv.list(), ctx.kv.list("1")))
    found = await asyncio.gather(*asked, *many, return_exceptions=True)
    return [[type(one).__name__, one if isinstance(one, list) else str(one)] for one in found]


@tool(needs=NEEDS, effect="write_limited")
async def times(ctx: Context) -> list[str]:
    """Numbers of seconds that are none, or more than there are, for each handle that takes one."""
    given: list[Any] = ["nan", float("nan"), float("inf"), True, "5", 0, -1, Decimal("NaN"), 10**400]
    return [
        code.partition("|")[0]
        for value in given
        for code in (
            await told(ctx.process.spawn("/bin/echo", timeout=value)),
            await told(ctx.fetch("https://site.test/none", timeout=value)),
        )
    ]


@tool(needs=NEEDS, effect="write_limited")
async def lets_through(ctx: Context) -> str:
    """A refusal that nobody catches."""
    return await ctx.fs.read("/etc/passwd")


@tool(needs=NEEDS, effect="write_limited")
def fails(kind: str) -> Any:
    """Fail in some way."""
    match kind:
        case "error":
            raise ValueError("no such city\nand more")
        case "exit":
            raise SystemExit(3)
        case "object":
            return object()
        case "generator":
            return (n for n in range(3))
        case "own":
            raise type("Peculiar", (Exception,), {})("strange")


def said(act: Any) -> str:
    """What an act comes to, if it is refused or fails."""
    try:
        value = act()
    except Refused as refusal:
        return f"{refusal.code}|{refusal}|{refusal.use}"
    except Exception as error:
        return f"{type(error).__name__}|{error}"
    return f"fine: {value!r}"


async def told(act: Any) -> str:
    """The same, for what is awaited."""
    try:
        value = await act
    except Refused as refusal:
        return f"{refusal.code}|{refusal}|{refusal.use}"
    except Exception as error:
        return f"{type(error).__name__}|{error}"
    return f"fine: {value!r}"
