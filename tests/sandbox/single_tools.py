"""Tools that are called one at a time, under a set of capabilities and without a manifest."""

from pathlib import Path

from licet import Context, SyncContext, tool


@tool(capabilities={}, effect="read_only", sandbox="restricted")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(needs=["fs:read:/srv/data"], effect="read_only", sandbox="restricted")
async def reader(ctx: Context, path: str) -> str:
    """Read a file."""
    return await ctx.fs.read(path)


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="restricted")
async def file_writer(ctx: Context, path: str) -> str:
    """Write a file."""
    await ctx.fs.write(path, "written")
    return "written"


@tool(capabilities={"fs_reach": {"write": "from-personality"}}, effect="write_limited", sandbox="restricted")
def by_keys(ctx: SyncContext, path: str) -> str:
    """Write a file, declared by keys."""
    ctx.fs.write(path, "written")
    return "written"


@tool(needs=["fs:read:*"], effect="read_only", sandbox="isolated")
def direct(path: str) -> str:
    """Read a file without a handle."""
    return Path(path).read_text()


@tool(needs=["fs:read:/srv/data"], optional=["fs:read:/srv/other"], effect="read_only", sandbox="restricted")
async def reads_more(ctx: Context, path: str) -> str:
    """Read a file, perhaps one that is not needed."""
    return await ctx.fs.read(path)


@tool(needs=["connector:use:github"], connector="github@2.1", effect="read_only", sandbox="restricted")
def connected() -> int:
    """Speak through a connector."""
    return 1


@tool(needs=["storage:*:session"], effect="read_only", sandbox="restricted")
async def remember(ctx: Context, word: str) -> list[str]:
    """Remember a word in the session's store, and say all of them."""
    await ctx.kv.set(word, True)
    return await ctx.kv.list("")


@tool(capabilities={}, effect="full", sandbox="restricted")
def full() -> int:
    """Claim a class that needs a manifest."""
    return 1


@tool(capabilities={}, effect="destructive", sandbox="isolated")
def destructive() -> int:
    """Claim a class that needs a manifest."""
    return 1


@tool(capabilities={}, effect="read_only", sandbox="native")
def native() -> int:
    """Claim a level that needs a manifest."""
    return 1


@tool(capabilities={})
def silent() -> int:
    """State neither class nor level."""
    return 1
