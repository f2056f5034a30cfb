"""A tool that runs programs. The manifest decides which ones, and the walls decide what they can do."""

from typing import Any

from licet import Context, tool


@tool(
    # A program gets the grant of the call, so files and environment are declared too; the manifest limits them.
    capabilities={
        "process": {"allowed_binaries": ["*"]},
        "fs_reach": {"read": "from-personality", "write": "from-personality"},
        "env": ["*"],
    },
    effect="write_limited",
    sandbox="restricted",
)
async def run_command(
    ctx: Context,
    command: list[str],
    stdin: str = "",
    timeout_seconds: float = 30.0,
    directory: str | None = None,
) -> dict[str, Any]:
    """Run a program and wait for it to end: its exit code, and what it wrote.
    `command` is the program and its arguments, one by one; no shell reads them, so `|`, `>`, `*` and `$X` mean nothing.

    It starts in `directory`, or in the working directory if that may be read. It has no network.
    """
    if not command:
        raise ValueError("expected `command` to be a program and its arguments")
    if not 0 < timeout_seconds <= 86400:
        raise ValueError("expected `timeout_seconds` to be more than 0, and at most a day")
    program, *arguments = command
    ended = await ctx.process.spawn(program, arguments, stdin=stdin, cwd=directory, timeout=timeout_seconds)
    return {
        "exit_code": ended.exit_code,
        "stdout": ended.stdout,
        "stderr": ended.stderr,
        "truncated": ended.truncated,
        "limit": ended.reason or None,
    }
