"""Tools that are called very often."""

import os

from licet import Context, tool


@tool(needs=[], effect="read_only")
def once(text: str) -> str:
    """Use some memory and a file, in a process of its own."""
    with open(f"{os.environ['TMPDIR']}/file", "w", encoding="utf-8") as file:
        file.write(text)
    return text.upper()


@tool(needs=["env:read:NAME"], effect="read_only", reuse=True)
async def again(ctx: Context, text: str) -> str:
    """Ask the host something, in a process that stays."""
    return text + str(ctx.env.get("NAME"))


@tool(needs=["process:exec:true"], effect="read_only")
async def start(ctx: Context, times: int = 1) -> int:
    """Start a program some times."""
    return sum([(await ctx.process.spawn("true")).exit_code for _ in range(times)])


@tool(needs=["process:exec:sh"], effect="read_only")
async def spin(ctx: Context) -> str:
    """Start a program that never ends, and say what ended it."""
    return (await ctx.process.spawn("sh", ["-c", "while :; do :; done"])).reason
