"""Tools as a user writes them, async and not: every handle, with types alone from `licet` and `licet.handles`."""

from decimal import Decimal

from licet import Context, SyncContext, tool
from licet.handles import Answer, Ended, Fetch, FileSystem, Json, Store, SyncFileSystem, SyncStore

NEEDS = ["fs:*:/srv/data", "network:https:api.example.com", "secret:read:*", "process:exec:git", "storage:*:session"]


async def _first_line(files: FileSystem, path: str) -> str:
    with await files.open(path) as file:
        line = file.readline()
    with await files.open(path, "rb") as binary:
        head: bytes = binary.read(4)
    return line + head.hex()


async def _fetched(fetch: Fetch, url: str) -> Json:
    answer: Answer = await fetch(url, headers={"accept": "application/json"}, timeout=5)
    return answer.raise_for_status().json() if answer.ok else answer.status


async def _counted(store: Store) -> int:
    seen = await store.get("calls", 0)
    number = seen + 1 if isinstance(seen, int) else 1
    await store.of("session").set("calls", number, ttl_seconds=60)
    return number


@tool(needs=NEEDS, effect="write_limited", sandbox="isolated")
async def report(ctx: Context, name: str, extra: Json = None) -> dict[str, Json]:
    """Write a report."""
    token = ctx.secrets.ref("api/token")
    posted = await ctx.fetch("https://api.example.com/v1", "POST", headers=[("x-token", token)], json={"a": [1, extra]})
    size = 0
    async with ctx.fetch.stream("https://api.example.com/long") as stream:
        async for piece in stream:
            size += len(piece) if stream.ok else 0
    ended: Ended = await ctx.process.spawn("git", ["log"], env={"LANG": "C"}, timeout=2.5)
    await ctx.fs.mkdir("/srv/data/out")
    await ctx.fs.write(f"/srv/data/out/{name}", ended.stdout)
    status = await ctx.fs.stat("/srv/data/out")
    ctx.charge(Decimal("0.01"))
    secret = await ctx.secrets.get("api/token")
    return {
        "name": name.upper(),
        "line": await _first_line(ctx.fs, name),
        "found": await _fetched(ctx.fetch, posted.url),
        "calls": await _counted(ctx.kv),
        "kind": status.kind,
        "code": ended.exit_code,
        "shown": len(secret) + size,
        "lang": ctx.env.get("LANG", "C"),
        "who": f"{ctx.agent} {ctx.session_id} {ctx.workdir}",
        "names": [*await ctx.fs.list()],
    }


def _sync_first_line(files: SyncFileSystem, path: str) -> str:
    with files.open(path) as file:
        line = file.readline()
    with files.open(path, "rb") as binary:
        head: bytes = binary.read(4)
    return line + head.hex()


def _sync_counted(store: SyncStore) -> int:
    seen = store.get("calls")
    number = seen + 1 if isinstance(seen, int) else 1
    store.of("session").set("calls", number)
    return number


@tool(needs=NEEDS, effect="write_limited", sandbox="isolated")
def sync_report(ctx: SyncContext, name: str) -> dict[str, Json]:
    """Write a report, one step after the other."""
    answer = ctx.fetch("https://api.example.com/v1", headers={"x-token": ctx.secrets.get("api/token")})
    ended = ctx.process.spawn("git", ["status"], stdin=b"")
    ctx.fs.write(name, ended.stdout_bytes)
    return {
        "line": _sync_first_line(ctx.fs, name),
        "found": answer.json(),
        "calls": _sync_counted(ctx.kv),
        "size": ctx.fs.stat(name).size,
        "names": [*ctx.fs.list()],
        "lang": ctx.env.get("LANG"),
    }
