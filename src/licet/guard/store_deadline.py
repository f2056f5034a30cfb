"""How long a store may wait for other processes and threads: until the deadline of the call that needs it.

The call says so in a context variable. A store that is replaced by one of the operator's own need not know of it.
"""

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

from licet.guard.deadline import Deadline
from licet.guard.ports import Unavailable

_T = TypeVar("_T")

STORE_SECONDS = 10.0  # the longest wait where no call is under way, as in `licet approvals`
GIVE_UP_EARLY = 0.1  # seconds: the reason then names the wait, and not only that time was up
_LATER = 0.5  # seconds that a store has to give up by itself, and to say what it waited for


class StoreDeadline:
    """The moment, by `time.monotonic`, at which the stores of one call give up. It moves when the call goes on."""

    __slots__ = ("until",)

    def __init__(self, seconds: float) -> None:
        self.until = monotonic() + seconds

    def set_by(self, deadline: float) -> None:
        """Give up a moment before a deadline."""
        self.until = deadline - GIVE_UP_EARLY

    def at_least(self, seconds: float) -> None:
        """Leave at least so many seconds from now."""
        self.until = max(self.until, monotonic() + seconds)

    @property
    def left(self) -> float:
        """The seconds that are left, never less than none."""
        return max(0.0, self.until - monotonic())


CURRENT: ContextVar[StoreDeadline | None] = ContextVar("licet_store_deadline", default=None)


def store_deadline() -> float:
    """The moment, by `time.monotonic`, at which a store that is asked now gives up waiting."""
    current = CURRENT.get()
    return monotonic() + STORE_SECONDS if current is None else current.until


async def in_time(stores: StoreDeadline, answer: Awaitable[_T], what: str) -> _T:
    """Wait for a store until its deadline; `Unavailable` if it has not given up by itself a moment later."""
    began, deadline = monotonic(), Deadline(stores.left + _LATER)
    try:
        with deadline:
            return await answer
    except TimeoutError:
        if not deadline.expired:  # the store's own
            raise
        raise Unavailable(f"{what} gave no answer: waited {monotonic() - began:.1f} seconds for it") from None


def was_cancelled() -> bool:
    """Whether somebody has cancelled the current task; otherwise, what it awaits has raised `CancelledError` itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
