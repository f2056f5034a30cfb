"""Deadlines for what runs in the current task: they can be paused, and take no swallowed cancel for an end.

One timer watches all deadlines of an event loop. A timer for each call would cost more than the call, and cancelled
timers stay in the loop's queue until it comes round to them.
"""

import asyncio
import threading
from types import TracebackType

TICK = 0.05  # seconds between two looks at the deadlines: how late one may be noticed


class _Watch(threading.local):
    """The deadlines that are running in this thread's event loop, and the timer that looks at them."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.running: set[Deadline] = set()
        self.waiting = False  # a timer is set; it outlasts the deadlines, so that the next one finds it

    def add(self, deadline: "Deadline", loop: asyncio.AbstractEventLoop) -> None:
        if self.loop is not loop:  # the loop before this one has ended, and its deadlines with it
            self.loop, self.running, self.waiting = loop, set(), False
        if not self.waiting:
            self.waiting = True
            loop.call_later(TICK, self.look, loop)
        self.running.add(deadline)

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.loop is not loop:
            return
        now = loop.time()
        for deadline in [one for one in self.running if one.when <= now]:
            deadline.expire()
        self.waiting = bool(self.running)
        if self.waiting:
            loop.call_later(TICK, self.look, loop)


_watch = _Watch()


class Deadline:
    """`with Deadline(seconds):` raises `TimeoutError` if what is awaited inside takes longer."""

    __slots__ = ("_before", "_cancels", "_left", "_loop", "_task", "when")

    def __init__(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a running task")
        self._task, self._loop = task, loop
        self._left = seconds
        self._before = task.cancelling()
        self._cancels = 0
        self.when = 0.0

    @property
    def expired(self) -> bool:
        """Whether time was up."""
        return self._cancels > 0

    def __enter__(self) -> "Deadline":
        self.resume()
        return self

    def pause(self) -> None:
        """Stop the clock, while a person is asked."""
        self._left = max(0.0, self.when - self._loop.time())
        _watch.running.discard(self)

    def resume(self) -> None:
        """Let the clock go on."""
        self.when = self._loop.time() + self._left
        _watch.add(self, self._loop)

    def expire(self) -> None:
        """Cancel the task; at the next look once more, for one that swallowed it and went on."""
        self._cancels += 1
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _watch.running.discard(self)
        if not self._cancels:
            return
        for _ in range(self._cancels):
            self._task.uncancel()
        # Somebody else's cancel in between stays a cancel.
        if self._task.cancelling() <= self._before:
            raise TimeoutError from error
