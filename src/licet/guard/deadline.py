"""A deadline for what runs in the current task: it can be paused, and it does not take one swallowed cancel for an end.

As `asyncio.timeout`, at a third of its price; a call that does nothing should not mostly pay for its clock.
"""

import asyncio
from types import TracebackType

_AGAIN = 0.1  # seconds until a task that went on after its deadline is cancelled again


class Deadline:
    """`with Deadline(seconds):` raises `TimeoutError` if what is awaited inside takes longer."""

    __slots__ = ("_before", "_cancels", "_handle", "_left", "_loop", "_task")

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a running task")
        self._task, self._loop = task, task.get_loop()
        self._left = seconds
        self._cancels = 0
        self._before = 0
        self._handle: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Deadline":
        self._before = self._task.cancelling()
        self.resume()
        return self

    @property
    def expired(self) -> bool:
        """Whether time was up."""
        return self._cancels > 0

    def pause(self) -> None:
        """Stop the clock, while a person is asked."""
        if self._handle is not None:
            self._left = max(0.0, self._handle.when() - self._loop.time())
            self._handle.cancel()
            self._handle = None

    def resume(self) -> None:
        """Let the clock go on."""
        self._handle = self._loop.call_later(self._left, self._expire)

    def _expire(self) -> None:
        self._cancels += 1
        self._task.cancel()
        self._handle = self._loop.call_later(_AGAIN, self._expire)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if not self._cancels:
            return
        for _ in range(self._cancels):
            self._task.uncancel()
        # Somebody else's cancel in between stays a cancel.
        if self._task.cancelling() <= self._before:
            raise TimeoutError from error
