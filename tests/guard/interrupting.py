"""Cancels a task at one of its waits, chosen by number."""

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def interrupted(
    answer: Awaitable[T], first: int, *, again: bool, late: bool, act: Callable[[], object] | None = None
) -> Generator[Any, None, T]:
    """Await an answer, and cancel the own task, or `act`, at wait number `first`, and `again` at each later one.

    The cancel arrives before what is waited for, or `late`, together with it.
    """
    task, steps, error, number = asyncio.current_task(), answer.__await__(), None, 0
    assert task is not None
    act = act or task.cancel
    while True:
        try:
            waiting: Any = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            value: T = end.value
            return value
        number += 1
        if number == first or (again and number > first):
            if late and waiting is not None:
                waiting.add_done_callback(lambda _: act())
            else:
                act()
        try:
            error = yield waiting
        except BaseException as thrown:
            error = thrown
