"""Deadlines for the current task, which can be paused, and which cancel again if the task swallows a cancel.

One timer checks all deadlines of an event loop: a timer for each call would cost more than the call.

`StoreDeadline` is how long a store may wait for other processes and threads: until the deadline of its call. It is in a
context variable, so that a store of the operator's own need not know of it.

The meter of one call: counts the memory and open files that the host holds for it, against the call's limits.

The broker of its worker, its handles and the proxy of its programs share one meter. Each takes from it *before* it
allocates, and gives back afterwards. Time, and what the tool uses in its own process, are limited elsewhere.
"""

import asyncio
import threading
import weakref
from asyncio import AbstractEventLoop, current_task, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Generator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from time import monotonic
from types import TracebackType, coroutine
from typing import IO, Any, TypeVar

from licet.core.decision.request import Reason
from licet.guard.ports import Unavailable

TICK = 0.05  # seconds between two checks of the deadlines: how late one may be noticed


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

STORE_SECONDS = 10.0  # the longest wait outside of a call, as in `licet approvals`
GIVE_UP_EARLY = 0.1  # seconds before the deadline, so that the reason names the wait
_LATER = 0.5  # seconds for a store to give up by itself, and to report what it waited for


class StoreDeadline:
    """The time, by `time.monotonic`, when the stores of one call give up. A call moves it when it is paused."""

    __slots__ = ("cancelled", "until")

    def __init__(self, seconds: float) -> None:
        self.until = monotonic() + seconds
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


@coroutine
def in_time(stores: StoreDeadline, answer: Awaitable[_T], what: str) -> Generator[Any, None, _T]:
    """Wait for a store until its deadline. Raises `Unavailable` if it has not given up by itself shortly after.

    Of a store that answers without waiting, nothing is timed.
    """
    steps = answer.__await__()
    try:
        waiting = next(steps)
    except StopIteration as end:
        value: _T = end.value
        return value
    began, deadline = monotonic(), Deadline(stores.left + _LATER)
    try:
        with deadline:
            return (yield from _continued(steps, waiting))
    except TimeoutError:
        if not deadline.expired:  # raised by the store itself
            raise
        raise _no_answer(what, began) from None


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
    began, deadline = monotonic(), _FinishDeadline(stores.left + _LATER)
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
                waiting._asyncio_future_blocking = False  # as a task does with a future that it has been given
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


# If the manifest states no limit.
DEFAULTS: Mapping[str, int] = {"host_memory_mb": 64, "host_files": 64, "waiting_kb": 4096, "request_headers": 256}


class Exceeded(Exception):
    """A call would cost the host more than its limits allow; `fix` tells the operator how to allow it."""

    def __init__(self, reason: Reason, key: str, text: str) -> None:
        self.reason: Reason = reason
        self.fix = f"set a higher `limits.{key}` under `capabilities`, or hold less at once"
        super().__init__(f"{text} (`limits.{key}`)")


class Meter:
    """Counts memory and open files of one call. Safe to use from several threads."""

    __slots__ = (
        *("_files", "_lock", "_memory", "_memory_mb", "_opened", "_waiters", "host_files", "host_memory"),
        *("request_headers", "waiting", "waiting_kb"),
    )

    def __init__(self, limits: Mapping[str, int] = DEFAULTS) -> None:
        self._memory_mb = limits.get("host_memory_mb", DEFAULTS["host_memory_mb"])
        self.host_memory = self._memory_mb << 20
        self.host_files = limits.get("host_files", DEFAULTS["host_files"])
        self.waiting_kb = limits.get("waiting_kb", DEFAULTS["waiting_kb"])
        self.waiting = self.waiting_kb << 10
        self.request_headers = limits.get("request_headers", DEFAULTS["request_headers"])
        self._lock = threading.Lock()
        self._memory = self._files = 0
        self._opened: list[weakref.ref[Any]] = []  # files that were opened for the tool
        self._waiters: list[asyncio.Future[None]] = []  # of tasks that wait for files

    # Memory ----------------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> int:
        """Bytes that the host holds for the call now."""
        return self._memory

    def take_memory(self, size: int) -> None:
        """Count bytes before they are allocated; `Exceeded` if they do not fit."""
        with self._lock:
            if self._memory + size > self.host_memory:
                raise Exceeded(
                    "LIMIT_HOST_MEMORY",
                    "host_memory_mb",
                    f"this call would make the host hold more than {self._memory_mb} MB for it at once",
                )
            self._memory += size

    def give_memory(self, size: int) -> None:
        """Give back bytes that were freed."""
        with self._lock:
            self._memory -= size

    def share(self) -> "Share":
        """A part of the memory that can grow, and is given back as one: `with meter.share() as share:`."""
        return Share(self)

    # Files -----------------------------------------------------------------------------------------------------------

    def check_headers(self, count: int) -> None:
        """Raise `Exceeded` if a request has too many header lines."""
        if count > self.request_headers:
            most = self.request_headers
            raise Exceeded("LIMIT_HEADERS", "request_headers", f"a request has more than {most} header lines")

    def check_files(self, count: int) -> None:
        """Raise `Exceeded` if this process may not open so many more files for the call."""
        with self._lock:
            if self._files + count + self._held() > self.host_files:
                raise self._too_many_files()

    def take_files(self, count: int) -> None:
        """Count files before they are opened; `Exceeded` if there are too many."""
        if count:
            with self._lock:
                if self._files + count + self._held() > self.host_files:
                    raise self._too_many_files()
                self._files += count

    def give_files(self, count: int) -> None:
        """Give back files that were closed, or handed to another process."""
        if count:
            with self._lock:
                self._files -= count
            self._wake()

    def opened(self, file: IO[Any]) -> None:
        """Count a file that is given to a tool in this process, until it is closed or garbage-collected."""
        with self._lock, suppress(TypeError):  # an object of a backend may not support weak references
            self._opened.append(weakref.ref(file))

    @asynccontextmanager
    async def files(self, count: int) -> AsyncIterator[None]:
        """Count files for work that ends by itself; wait until there are enough.

        Work that needs more files than the limit waits until it is alone.
        """
        count = min(count, self.host_files)
        while True:
            with self._lock:
                held = self._held()
                if held + count > self.host_files:  # the tool holds them: waiting would not help
                    raise self._too_many_files()
                if self._files + held + count <= self.host_files:
                    self._files += count
                    break
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                self._wake()  # it may have been woken already: wake the others instead
                raise
        try:
            yield
        finally:
            self.give_files(count)

    def _held(self) -> int:
        """How many files the tool still has open. Closed ones are only sorted out when the limit is near."""
        if len(self._opened) + self._files < self.host_files // 2:
            return len(self._opened)
        kept = [each for each in self._opened if (file := each()) is not None and not file.closed]
        self._opened[:] = kept
        return len(kept)

    def _wake(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            with suppress(RuntimeError):  # its loop is closed
                waiter.get_loop().call_soon_threadsafe(_wake_one, waiter)

    def _too_many_files(self) -> Exceeded:
        text = f"this call would make the host hold more than {self.host_files} open files for it at once"
        return Exceeded("LIMIT_HOST_FILES", "host_files", text)


class Share:
    """A growing part of a call's memory; leaving the context gives all of it back."""

    __slots__ = ("_meter", "_size")

    def __init__(self, meter: Meter) -> None:
        self._meter, self._size = meter, 0

    def take(self, size: int) -> None:
        """Count more bytes; `Exceeded` if they do not fit."""
        self._meter.take_memory(size)
        self._size += size

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *_: object) -> None:
        size, self._size = self._size, 0
        self._meter.give_memory(size)


def _wake_one(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
