# ruff: noqa: B018
"""Mistakes that a type checker has to find: under `--strict`, an `ignore` without an error is an error itself."""

from licet import Backends, Context, SyncContext, Tool, tool
from licet.ports import Kv, Secrets


@tool(needs=[])
async def wrong(ctx: Context) -> int:
    """Misuse every handle."""
    text: bytes = await ctx.fs.read("a")  # type: ignore[assignment]
    await ctx.fs.write("a", 5)  # type: ignore[arg-type]
    (await ctx.fs.open("a")).write(b"bytes")  # type: ignore[arg-type]
    (await ctx.fs.open("a", "wb")).write("text")  # type: ignore[call-overload]
    ctx.fs.remove("a")  # type: ignore[attr-defined]
    answer = await ctx.fetch("https://a.test", header={})  # type: ignore[call-arg]
    answer.json()["key"]  # type: ignore[index, call-overload]
    ctx.fetch("https://a.test").status  # type: ignore[attr-defined]
    number: int = await ctx.kv.get("n")  # type: ignore[assignment]
    secret: int = await ctx.secrets.get("s")  # type: ignore[assignment]
    ended = await ctx.process.spawn("ls", "-l", 5)  # type: ignore[arg-type]
    ended.output  # type: ignore[attr-defined]
    ctx.charge(0.5)  # type: ignore[arg-type]
    ctx.network  # type: ignore[attr-defined]
    return number + secret + len(text)


@tool(needs=[])
def wrong_too(ctx: SyncContext) -> int:
    """Misuse the handles of a function that is not async."""
    text: bytes = ctx.fs.read("a")  # type: ignore[assignment]
    ctx.fetch.stream("https://a.test")  # type: ignore[attr-defined]
    number: int = ctx.kv.get("n")  # type: ignore[assignment]
    ctx.process.spawn("ls").output  # type: ignore[attr-defined]
    ctx.secrets.ref(5)  # type: ignore[arg-type]
    return number + len(text)


class NotAsync:
    """A store of secrets whose method does not return what it should."""

    def get(self, reference: str) -> str:
        return reference


class HalfAStore:
    """A store that lacks methods."""

    async def get(self, scope: str, key: str) -> str:
        return scope + key


secrets: Secrets = NotAsync()  # type: ignore[assignment]
kv: Kv = HalfAStore()  # type: ignore[assignment]

Tool.wasm("a.wasm", needs=[], sandbox="native")  # type: ignore[arg-type]
Tool.wasm("a.wasm", needs=[], reuse=True)  # type: ignore[call-arg]
Tool.wasm(5, needs=[])  # type: ignore[arg-type]

Backends.memory(files=5)  # type: ignore[arg-type]
Backends.memory(file={})  # type: ignore[call-arg]
Backends.memory(kv=HalfAStore())  # type: ignore[arg-type]
Backends.memory(approver=lambda question: True)  # type: ignore[arg-type, return-value]
Backends.local(secretz={})  # type: ignore[call-arg]
Backends.local(ledger="ledger.sqlite")  # type: ignore[arg-type]
Backends.local(environ=["PATH"])  # type: ignore[arg-type]
