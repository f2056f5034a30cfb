"""Deadlines for what runs in the current task: they can be paused, and take no swallowed cancel for an end.

One timer watches all deadlines of an event loop. A timer for each call would cost more than the call, and cancelled
timers stay in the loop's queue until it comes round to them.

How long a store may wait for other processes and threads: until the deadline of the call that needs it.

The call says so in a context variable. A store that is replaced by one of the operator's own need not know of it.
"""

import asyncio
import threading
from asyncio import AbstractEventLoop, current_task, get_running_loop
from collections.abc import Awaitable
from contextvars import ContextVar
from time import monotonic
from types import TracebackType
from typing import TypeVar

from licet.guard.ports import Unavailable

TICK = 0.05  # seconds between two looks at the deadlines: how late one may be noticed


class _Watch:
    """The deadlines that are running in one event loop, and the timer that looks at them."""

    __slots__ = ("loop", "paused", "running", "waiting")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.running: set[Deadline] = set()
        self.paused: dict[Deadline, int] = {}  # for how many people each of them waits
        self.waiting = False  # a timer is set; it outlasts the deadlines, so that the next one finds it

    def wait(self) -> None:
        """Look again in a while."""
        self.waiting = True
        self.loop.call_later(TICK, self.look)

    def look(self) -> None:
        now = monotonic()
        for deadline in [one for one in self.running if one.when <= now]:
            deadline.expire()
        self.waiting = False
        if self.running:
            self.wait()


class _Here(threading.local):
    """The watch that was used last in this thread; those of other loops go on by their own timers."""

    watch: _Watch | None = None


_here = _Here()
_last: _Watch | None = None  # the one that was used last in any thread: to look here first costs least


def _watch_of(loop: AbstractEventLoop) -> _Watch:
    global _last
    watch = _here.watch
    if watch is None or watch.loop is not loop:
        watch = _here.watch = _Watch(loop)
    _last = watch
    return watch


class Deadline:
    """`with Deadline(seconds):` raises `TimeoutError` if what is awaited inside takes longer."""

    __slots__ = ("_before", "_cancels", "_left", "_task", "_watch", "when")

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._cancels = 0

    @property
    def expired(self) -> bool:
        """Whether time was up."""
        return self._cancels > 0

    @property
    def runs_now(self) -> bool:
        """Whether its task is what runs now; a coroutine that is closed from outside does not."""
        try:
            return current_task() is self._task
        except RuntimeError:  # no loop runs
            return False

    def __enter__(self) -> "Deadline":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stop():
            raise TimeoutError from error

    def start(self) -> None:
        """Let the clock run, for what the current task does from now on."""
        loop = get_running_loop()
        task = current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a running task")
        watch = _last
        if watch is None or watch.loop is not loop:
            watch = _watch_of(loop)
        self._task = task
        self._before = task.cancelling()
        self._watch = watch
        self.when = monotonic() + self._left
        watch.running.add(self)
        if not watch.waiting:
            watch.wait()

    def stop(self) -> bool:
        """Leave it, and say whether time was up; somebody else's cancel in between stays a cancel."""
        try:
            self._watch.running.remove(self)
        except KeyError:  # somebody is still being asked; their answer starts no clock
            self._watch.paused.pop(self, None)
        if not self._cancels:
            return False
        for _ in range(self._cancels):
            self._task.uncancel()
        return self._task.cancelling() <= self._before

    def pause(self) -> None:
        """Stop the clock, while a person is asked; nothing happens once the deadline is left."""
        watch = self._watch
        if self in watch.running:
            self._left = max(0.0, self.when - monotonic())
            watch.running.discard(self)
            watch.paused[self] = 1
        elif self in watch.paused:
            watch.paused[self] += 1

    def resume(self) -> None:
        """Let the clock go on, when everybody who was asked has answered."""
        watch = self._watch
        asked = watch.paused.pop(self, 0)
        if asked > 1:
            watch.paused[self] = asked - 1
        elif asked:
            self.when = monotonic() + self._left
            watch.running.add(self)
            if not watch.waiting:
                watch.wait()

    def expire(self) -> None:
        """Cancel the task; at the next look once more, for one that swallowed it and went on."""
        self._cancels += 1
        self._task.cancel()


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
