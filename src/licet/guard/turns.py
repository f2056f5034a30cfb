"""When a file that is written in a thread may take its place: as long as somebody waits for it."""

import threading
from contextlib import AbstractContextManager, nullcontext

Turn = AbstractContextManager[object]
ANY_TIME: Turn = nullcontext()


class GivenUp(Exception):
    """The turn of a write is over before it came."""


class Waiting:
    """A turn until it is given up. Taking it and giving it up exclude each other: either comes first."""

    __slots__ = ("_given_up", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False

    def give_up(self) -> None:
        """From now on, nothing takes its place; what is doing so this moment is waited for."""
        with self._lock:
            self._given_up = True

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._given_up:
            self._lock.release()
            raise GivenUp

    def __exit__(self, *error: object) -> None:
        self._lock.release()
