"""Where the code of tools lies: who writes that does what no manifest says, so no grant covers it."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from licet.declare import Tool


def code_files(tools: Iterable[Tool]) -> Iterator[str]:
    """The files of tools, of what is wrapped in them, and what Python compiles beside each; links and their ends too.

    Only these: a file beside them, or what they import, is as the manifest says.
    """
    for name in dict.fromkeys(name for tool in tools for name in _file_names(tool)):
        for path in dict.fromkeys((os.path.abspath(name), os.path.realpath(name))):
            yield path
            yield os.path.join(os.path.dirname(path), "__pycache__")


def _file_names(tool: Tool) -> Iterator[str]:
    for fn in (*_unwrapped(tool.fn), *_unwrapped(tool.available)):
        code = getattr(fn, "__code__", None)
        if code is not None and not code.co_filename.startswith("<"):  # else it was typed in, or made by a program
            yield code.co_filename


def _unwrapped(fn: Any) -> list[Any]:
    """A function and all that decorators have wrapped in each other."""
    found: list[Any] = []
    while fn is not None and fn not in found:
        found.append(fn)
        fn = getattr(fn, "__wrapped__", None)
    return found
