"""Says in words what the availability check of a tool came to, and where its code is.

The words are for models and receipts: they name the kind of an error and no path. The place is for who wrote the check.
"""

import inspect
from types import TracebackType

from licet.core.values import Origin
from licet.declare.context import Available, never_available

NEVER = "it is declared with `available=False`"


def answer_text(check: Available, answer: object) -> str:
    """Why a tool cannot run, by what its check returned; empty if it can."""
    if answer is True:
        return ""
    if check is never_available:
        return NEVER
    if answer is False or answer is None:
        return "its availability check says that it cannot run here"
    return f"its availability check says that it cannot run here: it returned `{type(answer).__name__}`, and not True"


def error_text(error: BaseException) -> str:
    """Why a tool cannot run, by what its check raised."""
    return f"its availability check raised {type(error).__name__}"


def advice_about(check: Available, error: BaseException | None) -> str:
    """Where to look: the line of the check that raised, or its first; empty if it has no code in Python."""
    if check is never_available:
        return "declare it without `available=False`"
    code = getattr(inspect.unwrap(check), "__code__", None)
    if code is None:
        return ""
    line: int = code.co_firstlineno
    for frame in _frames(error.__traceback__ if error is not None else None):
        if frame.tb_frame.f_code is code:
            line = frame.tb_lineno
    return f"see its check in {Origin(code.co_filename, line, 1)}"


def _frames(frame: TracebackType | None) -> list[TracebackType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    return frames
