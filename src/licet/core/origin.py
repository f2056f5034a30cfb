"""Where something is written, and what is wrong there. Knows no file format and reads no file."""

from typing import Literal, NamedTuple

from licet.values import dataclass

__all__ = ["Origin", "Problem"]


class Origin(NamedTuple):
    """A place in a file; lines and columns count from 1, and line 0 is no line at all, such as of a call in Python."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def full(self) -> str:
        """The place with its column, as editors and terminals make it clickable."""
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """What was found in a file, what was expected there, and perhaps the way out; all three are phrases."""

    origin: Origin
    found: str
    expected: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        tail = f"; {self.hint}" if self.hint else ""
        return f"{self.origin.full}: {self.severity}: found {self.found}, expected {self.expected}{tail}"
