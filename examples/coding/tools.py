"""The one tool of the coding agent that is not ready-made: it runs a program in the work tree."""

from typing import Any

from licet import Context, tool


@tool(
    capabilities={"process": {"allowed_binaries": ["sh"]}, "fs_reach": {"read": ["${workdir}"]}},
    effect="read_only",  # so what it runs can read the work tree, and change nothing
    sandbox="restricted",
)
async def run_program(ctx: Context, command: list[str]) -> dict[str, Any]:
    """Run a program in the work tree: its exit code, and what it printed."""
    program, *arguments = command
    ended = await ctx.process.spawn(program, arguments, cwd=".")
    return {"exit_code": ended.exit_code, "printed": (ended.stdout + ended.stderr).splitlines()}
