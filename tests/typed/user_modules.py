"""WebAssembly modules as a user declares them, next to functions."""

from pathlib import Path

from licet import Tool, tool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


@tool(needs=[])
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def tools() -> list[Tool]:
    """Modules are tools as functions are."""
    count = Tool.wasm("count.wasm", arguments=SCHEMA, function="count", needs=["env:read:LANG"], sandbox="isolated")
    plain: Tool = Tool.wasm(Path("plain.wasm"), name="plain", capabilities={}, effect="read_only")
    digest: str = count.module.sha256
    return [count, plain, double] if digest else []
