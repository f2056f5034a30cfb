"""Where something is written, and what is wrong there. Knows no file format and reads no file."""

from typing import Literal

from msgspec import Struct

__all__ = ["CHECK_AND_RUN", "DATA", "Origin", "Problem"]

CHECK_AND_RUN = "check_and_run"  # the agent of calls under a set, which no manifest states
DATA = "the data"  # stands for the file name of a manifest that was given as Python data


class Origin(Struct, frozen=True, order=True):
    """A place in a file; lines and columns count from 1, and line 0 is no line at all, such as of a call in Python.

    In policy that was given as data, `pointer` is the JSON pointer (RFC 6901) of the place; its root has an empty one.
    """

    file: str
    line: int
    column: int
    pointer: str = ""

    def __str__(self) -> str:
        if self.pointer:
            return self.pointer if self.file == DATA else f"{self.file} {self.pointer}"
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def full(self) -> str:
        """The place with its column, as editors and terminals make it clickable; without lines, the same as `str`."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else str(self)


class Problem(Struct, frozen=True):
    """What was found in a file, what was expected there, and perhaps the way out; all three are phrases."""

    origin: Origin
    found: str
    expected: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        tail = f"; {self.hint}" if self.hint else ""
        return f"{self.origin.full}: {self.severity}: found {self.found}, expected {self.expected}{tail}"
