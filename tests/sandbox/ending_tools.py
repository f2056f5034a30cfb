"""Tools that end their process, or fill it, in ways that something else could be blamed for."""

import os

from licet import tool

kept: list[bytes] = []


@tool(needs=[], effect="read_only")
def leave(code: int) -> int:
    """End with a code."""
    os._exit(code)


@tool(needs=[], effect="read_only")
def fill() -> int:
    """Take all memory, and keep it."""
    size = 1 << 24
    while size:
        try:
            kept.append(bytes(size))
        except MemoryError:
            size >>= 1
    raise MemoryError
