"""Tools that write wherever they are told: through a handle, by themselves, and with a program."""

import os
import subprocess
from typing import Any

from attacks import trusting_helper
from licet import Context, tool

NEEDS = ["fs:read:*", "fs:write:*", "fs:delete:*", "process:exec:*"]


@tool(needs=NEEDS, effect="write_limited")
async def by_handle(ctx: Context, what: str, path: str) -> str:
    """Read or write with `ctx.fs`."""
    if what == "read":
        return await ctx.fs.read(path)
    await ctx.fs.write(path, trusting_helper.PLANTED)
    return "done"


@tool(needs=NEEDS, effect="write_limited", sandbox="isolated")
def by_itself(what: str, path: str) -> str:
    """Read or write as any Python code does."""
    try:
        with open(path, "r" if what == "read" else "w", encoding="utf-8") as file:
            return file.read() if what == "read" else str(file.write(trusting_helper.PLANTED))
    except OSError as error:
        return f"no: {type(error).__name__}"


@tool(needs=NEEDS, effect="write_limited")
async def by_program(ctx: Context, what: str, path: str) -> str:
    """Read or write with a shell."""
    line = 'cat "$0"' if what == "read" else 'echo "planted = 1" > "$0"'
    ended = await ctx.process.spawn("/bin/sh", ["-c", line, path])
    return ended.stdout_bytes.decode() if ended.exit_code == 0 else f"no: {ended.exit_code}"


@tool(needs=NEEDS, effect="full")
async def by_moving(ctx: Context, what: str, path: str) -> str:
    """Read, move or delete with `ctx.fs`."""
    if what == "read":
        return await ctx.fs.read(path)
    if what == "move over":
        await ctx.fs.write(f"{path}.new", trusting_helper.PLANTED)
        await ctx.fs.rename(f"{path}.new", path)
    elif what == "move away":
        await ctx.fs.rename(path, f"{path}.away")
    elif what == "delete":
        await ctx.fs.delete(path)
    else:
        await ctx.fs.write(path, trusting_helper.PLANTED)
    return "done"


def unguarded(what: str, path: str) -> Any:
    """The same without any guard."""
    if what == "read":
        with open(path, encoding="utf-8") as file:
            return file.read()
    subprocess.run(["/bin/sh", "-c", 'echo "planted = 1" > "$0"', path], check=True)
    return os.path.exists(path)
