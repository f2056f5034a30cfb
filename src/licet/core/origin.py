"""A place in a policy file (`Origin`) and an error or warning about it (`Problem`). Reads no file."""

from typing import Literal

from msgspec import Struct

__all__ = ["CHECK_AND_RUN", "COMMAND_LINE", "DATA", "Origin", "Problem"]

CHECK_AND_RUN = "check_and_run"  # the name of the agent in `check_and_run`, which has no manifest
COMMAND_LINE = "the command line"  # replaces the file name of a manifest that `licet run` made from its flags
DATA = "the data"  # replaces the file name of a manifest that was given as Python data


class Origin(Struct, frozen=True, order=True):
    """A place in a file. Lines and columns count from 1; line 0 means that no line is known.

    If the policy was given as data, `pointer` is the JSON pointer (RFC 6901) of the place, empty for the root.
    """

    file: str
    line: int
    column: int
    pointer: str = ""

    def __str__(self) -> str:
        if self.pointer:
            return self.pointer if self.file == DATA else f"{self.file} {self.pointer}"
        return f"{self.file}:{self.line}" if self._has_line else self.file

    @property
    def full(self) -> str:
        """The place as `file:line:column`, which editors and terminals make clickable; without a line, as `str`."""
        return f"{self.file}:{self.line}:{self.column}" if self._has_line else str(self)

    @property
    def _has_line(self) -> bool:
        return bool(self.line) and self.file != COMMAND_LINE  # nobody sees the lines that flags become


class Problem(Struct, frozen=True):
    """An error, warning or note about a file: what was found, what was expected and, as `hint`, how to fix it."""

    origin: Origin
    found: str
    expected: str
    hint: str = ""
    severity: Literal["error", "warning", "note"] = "error"

    def __str__(self) -> str:
        tail = f"; {self.hint}" if self.hint else ""
        return f"{self.origin.full}: {self.severity}: found {self.found}, expected {self.expected}{tail}"
