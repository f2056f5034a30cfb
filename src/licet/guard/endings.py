"""How a tool that ran somewhere else can end without a value, as an engine tells it."""

from collections.abc import Mapping

from licet.core.decision import Reason

# The keys of a manifest that say how much is too much.
LIMIT_KEYS: Mapping[Reason, str] = {
    "LIMIT_TIME": "wall_seconds",
    "LIMIT_CPU": "cpu_seconds",
    "LIMIT_MEMORY": "memory_mb",
    "LIMIT_FILES": "open_files",
    "LIMIT_PROCESSES": "processes",
    "LIMIT_FILE_SIZE": "file_mb",
    "LIMIT_DISK": "scratch_mb",
    "LIMIT_OUTPUT": "output_kb",
}


def limit_name(reason: Reason) -> str:
    """The key of a limit, as a manifest spells it."""
    return f"`limits.{LIMIT_KEYS[reason]}`"


class Stopped(Exception):
    """A tool that was ended from outside, or ended itself without an answer: by what, and in words for the model."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason: Reason = reason
        super().__init__(text)


class Raised(Exception):
    """What a tool raised behind a wall: the name of the exception's type, its text, and the line of the tool's file.

    All of it is the tool's word. `forbidden` is an error of permission, which a wall may have caused.
    """

    def __init__(self, kind: str, text: str, line: int = 0, forbidden: bool = False) -> None:
        self.kind = kind
        self.line = line
        self.forbidden = forbidden
        super().__init__(text)
