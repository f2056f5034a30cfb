"""A tool that catches refusals and goes on, and one that passes its context on."""

from licet import Context, Refused, tool
from licet.handles import FileSystem


async def _text_or_reason(files: FileSystem, path: str) -> str:
    try:
        return await files.read(path)
    except Refused as refusal:
        return refusal.code


@tool(needs=["fs:read:*"], effect="read_only", sandbox="restricted")
async def gather(ctx: Context, paths: list[str]) -> dict[str, str]:
    """Read what can be read."""
    return {path: await _text_or_reason(ctx.fs, path) for path in paths}
