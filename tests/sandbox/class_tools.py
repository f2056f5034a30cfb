"""Tools that state no side-effect class: they take the one of their bundle, and try everything."""

import os
import socket
from pathlib import Path

from licet import Context, Refused, tool

NEEDS = ["network:*:*", "fs:*:*"]


@tool(needs=NEEDS)
def directly(what: str, path: str, port: int) -> str:
    """Act by the system alone, without any handle."""
    try:
        match what:
            case "read":
                Path(path).read_text(encoding="utf-8")
            case "write":
                Path(path).write_text("new", encoding="utf-8")
            case "create":
                Path(f"{path}.new").write_text("new", encoding="utf-8")
            case "delete":
                os.unlink(path)
            case "connect":
                socket.create_connection(("127.0.0.1", port), 10).close()
    except OSError as error:
        return f"no: {type(error).__name__}"
    return "done"


@tool(needs=NEEDS)
async def by_handles(ctx: Context, what: str, path: str, port: int) -> str:
    """Act by the handles alone."""
    url = f"http://127.0.0.1:{port}/a"
    try:
        match what:
            case "read":
                await ctx.fs.read(path)
            case "write":
                await ctx.fs.write(path, "new")
            case "delete":
                await ctx.fs.delete(path)
            case _:
                await ctx.fetch(url, method=what)
    except Refused as refusal:
        return f"no: {refusal.code}"
    return "done"
