"""When is what a running call has recorded on disk, if the call runs on for hours?

A receipt is written when its call ends. `Progress` writes what must not wait for that, such as a refused request of a
program: the events since the last such entry, in one entry of the kind `progress`. The first one is written at once,
and each later one at least 200 ms after the one before, so a program that is refused a million times causes few.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic

from licet.core.ledger.entry import Entry
from licet.guard.deadlines import CURRENT, StoreDeadline, in_time
from licet.guard.limits import MANY_EVENTS, PROGRESS_SECONDS, STORE_SECONDS


class CallOver(Exception):
    """The call has ended, so nothing more of it is written but its receipt."""


class NotWritten(Exception):
    """The ledger could not keep the entry; the cause is what the ledger raised."""


class Progress:
    """The events of one call that are on disk before it ends, and who waits for that. It belongs to one event loop.

    `written` events are in the decision already. `count` is how many there are by now, and `entry` makes the entry of
    those from one number to another.
    """

    __slots__ = ("_begun", "_count", "_entry", "_loop", "_over", "_record", "_timer", "_waiting", "_writer", "_written")

    def __init__(
        self,
        written: int,
        count: Callable[[], int],
        entry: Callable[[int, int], Entry],
        record: Callable[[Entry], Awaitable[None]],
    ) -> None:
        self._written, self._count, self._entry, self._record = written, count, entry, record
        # Each with the number of events that it waits for; the result is why they could not be written, or None.
        self._waiting: list[tuple[int, asyncio.Future[BaseException | None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._begun = monotonic() - PROGRESS_SECONDS  # when the last entry was begun
        self._over = False
        self._loop = asyncio.get_running_loop()

    async def settle(self) -> None:
        """Return once the ledger has every event so far; raise `NotWritten` or `CallOver`."""
        wanted = self._count()
        if wanted <= self._written:
            return
        waiting = self._loop.create_future()
        self._waiting.append((wanted, waiting))
        self._continue()
        failure = await waiting
        if isinstance(failure, CallOver):
            raise CallOver
        if failure is not None:
            raise NotWritten from failure

    def end(self) -> None:
        """Begin no further entry, so that the receipt is the last one. From any thread."""
        self._over = True
        with suppress(RuntimeError):  # the loop is closed, and nobody waits in it
            self._loop.call_soon_threadsafe(self._continue)

    def _continue(self) -> None:
        """Set the time of the next entry, or wake who waits for one that will not come."""
        if self._writer is not None:
            return  # it continues when it is done
        if self._over:
            if self._timer is not None:
                self._timer.cancel()
            self._answer(self._count(), CallOver())
        elif self._timer is None:
            left = self._begun + PROGRESS_SECONDS - monotonic()
            self._timer = self._loop.call_later(max(0.0, left), self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._writer = self._loop.create_task(self._write())  # its own, so that no cancel of a waiting task ends it

    async def _write(self) -> None:
        after, until = self._written, self._count()
        self._begun = monotonic()
        stores = StoreDeadline(STORE_SECONDS)  # of this entry: the call may have hours left
        CURRENT.set(stores)
        failure: BaseException | None = None
        try:
            is_long = until - after > MANY_EVENTS
            entry = await asyncio.to_thread(self._entry, after, until) if is_long else self._entry(after, until)
            if self._over:
                failure = CallOver()
            else:
                await in_time(stores, self._record(entry), "the ledger")
                self._written = until
        except (asyncio.CancelledError, Exception) as error:  # a ledger, which may be a user's, can cancel itself
            failure = error
        self._writer = None
        self._answer(until, failure)
        if self._waiting:
            self._continue()

    def _answer(self, until: int, failure: BaseException | None) -> None:
        """Wake those who wait for so many events."""
        for wanted, waiting in self._waiting:
            if wanted <= until and not waiting.done():
                waiting.set_result(failure)
        self._waiting = [one for one in self._waiting if not one[1].done()]
