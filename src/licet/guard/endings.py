"""How a tool can end without a value, as the engine that ran it tells it.

A tool's error is an object with code of its own, and that code may lie, raise or never end. `raised` reads what can be
read without running more of it than `__str__`.
"""

import os
from collections.abc import Mapping
from typing import Any

from licet.core.decision import Reason
from licet.core.origin import Origin

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LONGEST = 100_000  # characters of what an error says
_MOST_FRAMES = 10_000
# Of the classes themselves, so that no property of a tool's class stands in their place.
_class_name: Any = type.__dict__["__name__"]
_traceback: Any = BaseException.__dict__["__traceback__"]

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
    "LIMIT_HOST_MEMORY": "host_memory_mb",
    "LIMIT_HOST_FILES": "host_files",
    "LIMIT_WAITING": "waiting_kb",
    "LIMIT_HEADERS": "request_headers",
}


def limit_name(reason: Reason) -> str:
    """The key of a limit, as a manifest spells it."""
    return f"`limits.{LIMIT_KEYS[reason]}`"


class JsonText(bytes):
    """What a tool returned, as JSON that another process wrote and nobody has parsed yet."""

    __slots__ = ()


class Stopped(Exception):
    """A tool that was ended from outside, or ended itself without an answer: by what, and in words for the model."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason: Reason = reason
        super().__init__(text)


class Raised(Exception):
    """What a tool raised: the name of the exception's type, its text, and where it was raised.

    All of it is the tool's word. Behind a wall only the line of the tool's file is told, in this process the `origin`.
    `forbidden` is an error of permission, which a wall may have caused.
    """

    def __init__(
        self, kind: str, text: str, line: int = 0, forbidden: bool = False, origin: Origin | None = None
    ) -> None:
        self.kind = kind
        self.line = line
        self.forbidden = forbidden
        self.origin = origin
        super().__init__(text)


def raised(error: BaseException) -> Raised:
    """What an error says, as plain text. This runs its `__str__`: do it where the tool runs, if that may hang."""
    try:
        text = str.__str__(str(error))[:_LONGEST]
    except BaseException:  # it is the tool's own class: what it does here is as good as silence
        text = ""
    return Raised(class_name(type(error)), text, origin=_origin(error))


def class_name(kind: type) -> str:
    """The name of a class, whatever its metaclass says."""
    name: str = _class_name.__get__(kind)
    return name


def _origin(error: BaseException) -> Origin | None:
    """The line of the tool, or of what it called, that an error came from; our own lines help nobody.

    No source is read: the name of a file is whatever the tool compiled its code with.
    """
    trace, last, frames = _traceback.__get__(error), None, 0
    while trace is not None and frames < _MOST_FRAMES:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_OURS):
            last = name, trace.tb_lineno or 1
        trace, frames = trace.tb_next, frames + 1
    return Origin(*last, 1) if last is not None else None
