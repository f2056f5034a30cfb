"""Awaits code that is not ours, so that it harms nothing but itself, whatever it does to the task that it runs in.

Such code may raise what is no `Exception`, cancel its own task, or swallow each cancel and go on for ever. Whether a
cancel is its own is known because its steps are made here, one by one: nothing else runs during a step.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from types import coroutine
from typing import Any

from licet.guard.execution import is_from_operator


class Raised(Exception):
    """The code raised `error`, of whatever class."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(type(error).__name__)


@coroutine
def contained(work: Coroutine[Any, Any, object]) -> Generator[Any, None, object]:
    """What some work returns. Raises `Raised` for all that it raises, and for a cancel of its task by itself.

    A cancel from outside stays a cancel. Work that still goes on after a second one is not run any more.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - whoever awaits this is a task
    outside, swallowed = task.cancelling(), 0
    thrown: BaseException | None = None
    while True:
        before, value, error = task.cancelling(), None, None
        is_over = True
        try:
            waiting = work.send(None) if thrown is None else work.throw(thrown)
            is_over = False
        except StopIteration as end:
            value = end.value
        except BaseException as raised:
            if isinstance(raised, GeneratorExit) and raised is thrown:  # the loop is closed
                raise
            if isinstance(raised, KeyboardInterrupt) and is_from_operator(raised):
                raise
            error = raised
        if task.cancelling() > before:
            error = asyncio.CancelledError()
            yield from _taken_back(task, before)
        elif not is_over:
            swallowed += thrown is not None and task.cancelling() > outside
            if swallowed <= 1:
                try:
                    yield waiting
                    thrown = None
                except BaseException as cancel:
                    thrown = cancel
                continue
        if not is_over:
            with suppress(BaseException):
                work.close()
        if task.cancelling() > outside:
            raise asyncio.CancelledError
        if error is not None:
            raise Raised(error)
        return value


@coroutine
def _taken_back(task: "asyncio.Task[Any]", before: int) -> Generator[Any, None, None]:
    """Undo the cancels that a running task made of itself: Python before 3.13 still delivers one, at its next pause."""
    while task.cancelling() > before:
        task.uncancel()
    with suppress(asyncio.CancelledError):
        yield
