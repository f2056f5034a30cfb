"""Asking the system's resolver for names, in threads of its own.

A lookup may hang for as long as the resolver likes, and cannot be ended from outside. In the threads that everybody
shares, a few of them would keep files from being read.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

MOST_LOOKUPS = 32

_Waiting = tuple["Future[Any]", str, int]


class Lookups:
    """Lookups of names: so many at once, and the others wait. A process can end while one hangs."""

    def __init__(self, most: int = MOST_LOOKUPS, ask: Callable[..., Any] | None = None) -> None:
        self._most = most
        self._ask = ask
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._threads = 0

    async def find(self, host: str, port: int) -> Any:
        """What `socket.getaddrinfo` says of a name; it raises what that raises."""
        answer: Future[Any] = Future()
        waiting = (answer, host, port)
        with self._lock:
            self._waiting.append(waiting)
            if self._threads < self._most:
                threading.Thread(target=self._work, name="licet-lookup", daemon=True).start()
                self._threads += 1
        try:
            return await asyncio.wrap_future(answer)
        finally:
            with self._lock, suppress(ValueError):  # nobody waits for it any more
                self._waiting.remove(waiting)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                answer, host, port = self._waiting.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                found = (self._ask or socket.getaddrinfo)(host, port, type=socket.SOCK_STREAM)
            except BaseException as wrong:
                answer.set_exception(wrong)
            else:
                answer.set_result(found)
