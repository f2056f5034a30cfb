"""Tools that touch files and start programs by themselves, so that receipts have rules to tell."""

import subprocess

from licet import Context, tool


@tool(needs=["fs:*:*", "network:*:*", "process:exec:*"], effect="write_limited")
def opened(paths: list[str]) -> list[bool]:
    """Open files without a handle; whether each could be opened."""
    found = []
    for path in paths:
        try:
            with open(path, "rb"):
                found.append(True)
        except OSError:
            found.append(False)
    return found


@tool(needs=["fs:*:*", "network:*:*", "process:exec:*"], effect="write_limited")
async def spawned(ctx: Context, programs: list[str]) -> list[int]:
    """Start programs through the handle."""
    return [(await ctx.process.spawn(program, ["-c", "exit 3"])).exit_code for program in programs]


@tool(needs=["fs:*:*", "network:*:*", "process:exec:*"], effect="write_limited")
def by_library(program: str) -> int:
    """Start a program as any library does."""
    return subprocess.run([program, "-c", "exit 3"], check=False).returncode
