"""Regular expressions that are compiled when they are first used.

Compiling is slow, and most commands use few of the patterns in the modules that they load: at the start of each of
them, and of each hook of a coding agent, compiling all of them took longer than reading the policy.
"""

import re
from functools import cached_property
from typing import AnyStr, cast


def late_pattern(text: AnyStr, flags: int = 0) -> "re.Pattern[AnyStr]":
    """What `re.compile` returns, as far as its attributes go; a mistake in the text is reported by the first use."""
    return cast("re.Pattern[AnyStr]", _Late(text, flags))


class _Late:
    """Gets each attribute from the compiled pattern once, and then has it itself."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    @cached_property
    def _compiled(self) -> object:
        return re.compile(self._text, self._flags)

    def __getattr__(self, name: str) -> object:
        found: object = getattr(self._compiled, name)
        setattr(self, name, found)
        return found
