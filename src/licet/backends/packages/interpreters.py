"""Which interpreter a program is, by its name alone: `python3.13t` is Python, `ruby3.2` is Ruby.

All modules that read a command use these functions. With two patterns, one module could pin a script and another
leave it writable.
"""

import re

__all__ = ["interpreter", "is_python"]

# Builds have names too: `python3.13t` without the global lock, `python3-dbg`, `pypy3-c`, `python3.12-intel64`.
_PYTHON = re.compile(
    r"(python|pypy|graalpy)w?(-?[0-9][0-9._]*)?[dmtuw]*(-(dbg|debug|c|32|64|intel64|x86_64|arm64))?(\.exe)?",
    re.IGNORECASE,
)
_OTHERS = re.compile(r"(node|sh|bash|dash|zsh|ruby|perl)((?<=node)js)?(-?[0-9][0-9._]*)?(\.exe)?", re.IGNORECASE)


def interpreter(name: str) -> str:
    """The interpreter that a program is, without its version: `python`, `node`, `bash` …; empty for other programs."""
    if _PYTHON.fullmatch(name):
        return "python"
    found = _OTHERS.fullmatch(name)
    return found[1].lower() if found else ""


def is_python(name: str) -> bool:
    """Whether a program of this name is a Python."""
    return interpreter(name) == "python"
