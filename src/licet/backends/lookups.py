"""Looks up the addresses of names, in threads.

A lookup can hang as long as the resolver does, and cannot be ended: its thread stays busy even after the call has
ended. So one session may use only some of the threads, and others keep the rest.
"""

import asyncio
import os
import socket
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from msgspec import Struct

MOST_LOOKUPS = 64
MOST_OF_ONE = 8  # threads for the lookups of one owner, including those that no call waits for any more


class _Wanted(Struct, frozen=True):
    """A name to look up, and its owner."""

    answer: "Future[Any]"
    owner: str
    host: str
    port: int


class Lookups:
    """Looks up names in a limited number of daemon threads, so that a process can end while one hangs."""

    def __init__(
        self, most: int = MOST_LOOKUPS, ask: Callable[..., Any] | None = None, most_of_one: int = MOST_OF_ONE
    ) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._ask = ask
        self._reset()
        _ALL.add(self)

    def _reset(self) -> None:
        """Start without threads, in a new object and in a forked child."""
        self._lock = threading.Lock()
        self._waiting: deque[_Wanted] = deque()
        self._occupied: Counter[str] = Counter()  # busy threads by owner
        self._threads = 0

    async def find(self, host: str, port: int, owner: str = "") -> Any:
        """Return what `socket.getaddrinfo` returns for a name, or raise what it raises."""
        wanted = _Wanted(Future(), owner, host, port)
        with self._lock:
            self._waiting.append(wanted)
            if self._threads < self._most and self._may_start(wanted):
                threading.Thread(target=self._work, name="licet-lookup", daemon=True).start()
                self._threads += 1
        try:
            return await asyncio.wrap_future(wanted.answer)
        finally:
            with self._lock, suppress(ValueError):  # the call gave up before a thread took the name
                self._waiting.remove(wanted)

    def _may_start(self, wanted: _Wanted) -> bool:
        return not wanted.owner or self._occupied[wanted.owner] < self._most_of_one

    def _next(self) -> _Wanted | None:
        """Take the first waiting lookup whose owner may use another thread; None if there is none."""
        with self._lock:
            found = next((wanted for wanted in self._waiting if self._may_start(wanted)), None)
            if found is None:
                self._threads -= 1
            else:
                self._waiting.remove(found)
                self._occupied[found.owner] += 1
            return found

    def _work(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                self._look_up(wanted)
            finally:
                with self._lock:
                    self._occupied[wanted.owner] -= 1
                    if not self._occupied[wanted.owner]:
                        del self._occupied[wanted.owner]

    def _look_up(self, wanted: _Wanted) -> None:
        answer = wanted.answer
        if not answer.set_running_or_notify_cancel():
            return
        try:
            found = (self._ask or socket.getaddrinfo)(wanted.host, wanted.port, type=socket.SOCK_STREAM)
        except BaseException as wrong:
            answer.set_exception(wrong)
        else:
            answer.set_result(found)


_ALL: "weakref.WeakSet[Lookups]" = weakref.WeakSet()


def _in_child() -> None:
    for lookups in list(_ALL):  # the threads stayed in the parent
        lookups._reset()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
