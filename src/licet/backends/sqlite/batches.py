"""Group commit: writes that arrive during a transaction are written together in the next one.

A write that must survive a power cut waits for the disk. It does so in a thread, so that no event loop is blocked.
"""

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from licet.backends.limits import MOST_WRITES, WRITE_SECONDS
from licet.backends.sqlite.file import FORKS, Patience, SqliteFile, busy
from licet.guard.deadlines import store_deadline
from licet.guard.ports import Unavailable

_T = TypeVar("_T")


class _Waiting(Struct, frozen=True):
    """A write, and the future that waits for it."""

    act: Callable[[sqlite3.Connection], Any]
    durable: bool
    future: "asyncio.Future[Any]"
    since: float
    until: float  # when the caller gives up


class SqliteBatches:
    """Transactions of one file. Those that are `durable` survive a power cut, the others only the process."""

    def __init__(self, durable: SqliteFile, quick: SqliteFile) -> None:
        self._durable, self._quick = durable, quick
        self.reset_in_child()
        FORKS.add(self)

    def close_for_fork(self) -> None:
        """Writes go on: the files themselves are closed."""

    def reset_in_child(self) -> None:
        """Start empty: in a new object, and in a forked child."""
        self._lock = threading.Lock()
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Waiting]]
        self._waiting = weakref.WeakKeyDictionary()
        self._writing: set[asyncio.Task[None]] = set()
        self._thread: tuple[int, ThreadPoolExecutor] | None = None

    async def write(self, act: Callable[[sqlite3.Connection], _T], *, durable: bool) -> _T:
        """Run a function in a transaction, perhaps together with others; it may be tried several times.

        If it raises an error that is not SQLite's, it must do so before it writes: the transaction is committed for the
        others.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            waiting = self._waiting.get(loop)
            if waiting is None:
                waiting = self._waiting[loop] = []
                task = loop.create_task(self._write(loop, waiting))
                self._writing.add(task)
                task.add_done_callback(self._writing.discard)
        future: asyncio.Future[_T] = loop.create_future()
        waiting.append(_Waiting(act, durable, future, time.monotonic(), store_deadline()))
        return await future

    async def _write(self, loop: asyncio.AbstractEventLoop, waiting: list[_Waiting]) -> None:
        """Write until nothing waits. Only the transaction runs in a thread, the rest in the caller's loop."""
        batch: list[_Waiting] = []
        pauses = Patience(self._durable.path, float("inf"))
        try:
            while waiting:
                batch, waiting[:MOST_WRITES] = waiting[:MOST_WRITES], []
                batch = [one for one in batch if not one.future.done()]  # some callers have given up
                if not batch:
                    continue
                outcomes = await self._written(loop, batch)
                if outcomes is not None:
                    _resolve(batch, outcomes)
                    continue
                waiting[:0] = batch  # the file is busy: try again, together with writes that have arrived meanwhile
                self._give_up(waiting)
                await asyncio.sleep(pauses.next_pause())
        finally:
            with self._lock:
                self._waiting.pop(loop, None)
            # otherwise the remaining callers would wait for ever
            _resolve([*batch, *waiting], Unavailable("writing was cancelled"))

    def _give_up(self, waiting: list[_Waiting]) -> None:
        """End the waits whose deadline has passed."""
        now = time.monotonic()
        late = [one for one in waiting if one.until <= now]
        waiting[:] = [one for one in waiting if one.until > now]
        for one in late:
            _resolve([one], busy(self._durable.path, now - one.since))

    async def _written(
        self, loop: asyncio.AbstractEventLoop, batch: list[_Waiting]
    ) -> "list[Any] | Unavailable | None":
        """Return the result of each write, or why none was possible; None if the file is busy."""
        file = self._durable if any(one.durable for one in batch) else self._quick
        step = partial(file.try_write, partial(_outcomes, batch), WRITE_SECONDS)
        try:
            done = await loop.run_in_executor(self._executor(), step)
        except Unavailable as wrong:
            return wrong
        except Exception as wrong:  # any error must wake the callers
            return Unavailable(f"{file.path} cannot be written: {type(wrong).__name__}: {wrong}")
        return None if done is None else done[0]

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._thread is None or self._thread[0] != os.getpid():  # a forked child has no thread
                self._thread = os.getpid(), ThreadPoolExecutor(1, "licet sqlite")
            return self._thread[1]


def _outcomes(batch: list[_Waiting], db: sqlite3.Connection) -> list[Any]:
    return [_outcome(one, db) for one in batch]


def _outcome(one: _Waiting, db: sqlite3.Connection) -> Any:
    try:
        return one.act(db)
    except sqlite3.Error:
        raise  # the complete transaction is tried again or rolled back
    except Exception as wrong:
        return wrong


def _resolve(batch: list[_Waiting], outcomes: "list[Any] | Unavailable") -> None:
    for place, one in enumerate(batch):
        if one.future.done():
            continue
        # One error for each caller, because a raised error keeps a traceback.
        outcome = Unavailable(*outcomes.args) if isinstance(outcomes, Unavailable) else outcomes[place]
        if isinstance(outcome, Exception):
            one.future.set_exception(outcome)
        else:
            one.future.set_result(outcome)
