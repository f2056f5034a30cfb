"""Deadlines for the current task, which can be paused, and which cancel again if the task swallows a cancel.

One timer checks all deadlines of an event loop: a timer for each call would cost more than the call.

`StoreDeadline` is how long a store may wait for other processes and threads: until the deadline of its call. It is in a
context variable, so that a store of the operator's own need not know of it.
"""

import asyncio
import threading
from asyncio import AbstractEventLoop, current_task, get_running_loop
from collections.abc import Awaitable, Generator
from contextvars import ContextVar
from functools import partial
from time import monotonic
from types import TracebackType, coroutine
from typing import Any, TypeVar

from licet.guard.limits import GIVE_UP_EARLY, STORE_GRACE, STORE_SECONDS, TICK
from licet.guard.ports import Unavailable


class _Watch:
    """The deadlines of one event loop, and the timer that checks them."""

    __slots__ = ("loop", "paused", "running", "waiting")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.running: set[Deadline] = set()
        self.paused: dict[Deadline, int] = {}  # for how many approvers each of them waits
        self.waiting = False  # whether the timer is set; it stays for the next deadline

    def wait(self) -> None:
        """Set the timer."""
        self.waiting = True
        self.loop.call_later(TICK, self.look)

    def look(self) -> None:
        now = monotonic()
        for deadline in [one for one in self.running if one.when <= now]:
            deadline.expire()
        self.waiting = False
        if self.running:
            self.wait()


class _ThreadWatch(threading.local):
    """The watch of the loop that was used last in this thread."""

    watch: _Watch | None = None


_here = _ThreadWatch()
_last: _Watch | None = None  # the watch that was used last in any thread


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
        """Whether its task is the running one; not if its coroutine is closed by another task."""
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
        """Start the clock for the current task."""
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
        """Stop the clock; returns whether time was up. A cancel by another task stays a cancel."""
        try:
            self._watch.running.remove(self)
        except KeyError:  # paused: an approver is still being asked
            self._watch.paused.pop(self, None)
        if not self._cancels:
            return False
        for _ in range(self._cancels):
            self._task.uncancel()
        return self._task.cancelling() <= self._before

    def pause(self) -> None:
        """Stop the clock while an approver is asked; without effect after `stop`."""
        watch = self._watch
        if self in watch.running:
            self._left = max(0.0, self.when - monotonic())
            watch.running.discard(self)
            watch.paused[self] = 1
        elif self in watch.paused:
            watch.paused[self] += 1

    def resume(self) -> None:
        """Continue the clock when all approvers have answered."""
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
        """Cancel the task; the next check cancels it again if it swallowed this one."""
        self._cancels += 1
        self._task.cancel()


_T = TypeVar("_T")


class StoreDeadline:
    """The time, by `time.monotonic`, when the stores of one call give up. A call moves it when it is paused."""

    __slots__ = ("began", "cancelled", "is_opening", "is_unreached", "until")

    def __init__(self, seconds: float) -> None:
        self.began = monotonic()
        self.until = self.began + seconds
        self.is_opening = False  # whether what is opened meanwhile shares this time
        self.is_unreached = False  # whether a server was waited for in vain: the end of the call does not wait again
        self.cancelled: asyncio.CancelledError | None = None  # a cancel that `finish` has kept for the end of the call

    def set_by(self, deadline: float) -> None:
        """Give up shortly before a deadline."""
        self.until = deadline - GIVE_UP_EARLY

    def at_least(self, seconds: float) -> None:
        """Leave at least so many seconds from now."""
        self.until = max(self.until, monotonic() + seconds)

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.until - monotonic())


CURRENT: ContextVar[StoreDeadline | None] = ContextVar("licet_store_deadline", default=None)


def store_deadline() -> float:
    """The time, by `time.monotonic`, when a store that is called now gives up."""
    current = CURRENT.get()
    return monotonic() + STORE_SECONDS if current is None else current.until


def note_unreached() -> None:
    """Say that the server of a store was waited for in vain: for a call that is refused, nobody waits for it again."""
    if (current := CURRENT.get()) is not None:
        current.is_unreached = True


@coroutine
def in_time(stores: StoreDeadline, answer: Awaitable[_T], what: str) -> Generator[Any, None, _T]:
    """Wait for a store until its deadline. Raises `Unavailable` if it has not given up by itself shortly after.

    Of a store that answers without waiting, nothing is timed.
    """
    # What `types.coroutine` makes can be awaited, and has no such method.
    steps = (answer if hasattr(answer, "__await__") else _awaited(answer)).__await__()
    try:
        waiting = next(steps)
    except StopIteration as end:
        value: _T = end.value
        return value
    began, deadline = monotonic(), Deadline(stores.left + STORE_GRACE)
    try:
        with deadline:
            return (yield from _continued(steps, waiting))
    except TimeoutError:
        if not deadline.expired:  # raised by the store itself
            raise
        raise _no_answer(what, began) from None


async def _awaited(answer: Awaitable[_T]) -> _T:
    return await answer


def _no_answer(what: str, began: float) -> Unavailable:
    return Unavailable(f"{what} gave no answer: waited {monotonic() - began:.1f} seconds for it")


def _continued(steps: Generator[Any, Any, _T], waiting: object) -> Generator[Any, None, _T]:
    """Await the rest of something whose first step has been made: it waits for `waiting`."""
    try:
        while True:
            try:
                yield waiting
            except BaseException as error:
                waiting = steps.throw(error)
            else:
                waiting = next(steps)
    except StopIteration as end:
        value: _T = end.value
    return value


class _FinishDeadline(Deadline):
    """Cancels what is waited for when time is up, and not the task that waits."""

    __slots__ = ("waiting",)
    waiting: "asyncio.Future[Any] | None"

    def expire(self) -> None:
        """Cancel what the store waits for; the next check cancels again if the store waits for something else."""
        self._cancels += 1
        if self.waiting is not None:
            self.waiting.cancel()

    def stop(self) -> bool:
        """Stop the clock; returns whether time was up."""
        self._watch.running.discard(self)
        return self.expired


@coroutine
def finish(stores: StoreDeadline, answer: Awaitable[_T], what: str) -> Generator[Any, None, _T]:
    """As `in_time`, but wait to the end although the task is cancelled: `stores.cancelled` then has the cancel.

    Whatever must be written when a call ends is written like this. A task of its own would cost more, and would be
    cancelled too when its event loop ends. Cancels of the task end a future of ours, and not what the store waits for.
    """
    task, steps = current_task(), answer.__await__()
    assert task is not None  # noqa: S101 - each call has one
    before, cancelled = task.cancelling(), None
    try:
        waiting = next(steps)
    except StopIteration as end:
        value: _T = end.value
        return value
    began, deadline = monotonic(), _FinishDeadline(stores.left + STORE_GRACE)
    deadline.waiting = None
    deadline.start()
    try:
        while True:
            if waiting is None:  # it lets other tasks run
                try:
                    yield
                except asyncio.CancelledError as error:
                    cancelled = error
            else:
                # As a task does with a future that it has been given.
                waiting._asyncio_future_blocking = False  # noqa: SLF001, it is the protocol of tasks and futures
                deadline.waiting = waiting
                while not waiting.done():
                    woken = task.get_loop().create_future()
                    wake = partial(_wake, woken)
                    waiting.add_done_callback(wake)
                    try:
                        yield from woken
                    except asyncio.CancelledError as error:
                        cancelled = error
                        waiting.remove_done_callback(wake)
            waiting = next(steps)
    except StopIteration as end:
        value = end.value
        return value
    except (asyncio.CancelledError, Exception):
        if not deadline.expired:
            raise
        raise _no_answer(what, began) from None
    finally:
        deadline.stop()
        # An `asyncio.timeout` inside the store cancels the task too, and takes its cancel back.
        if cancelled is not None and task.cancelling() > before:
            stores.cancelled = cancelled


def _wake(woken: "asyncio.Future[None]", _: object) -> None:
    if not woken.done():
        woken.set_result(None)


def was_cancelled() -> bool:
    """Whether the current task was cancelled; otherwise a `CancelledError` comes from what it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
