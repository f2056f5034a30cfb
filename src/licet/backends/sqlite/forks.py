"""Keeps SQLite and forks apart: either any number of threads use SQLite, or one thread forks.

SQLite has locks by process and records them in memory. A child that inherits those records believes that it has locks
which it does not have, and a mutex that another thread held stays locked in it. So a fork waits until no thread uses
SQLite, every file is closed before it, and both sides open their files again. Any number of threads may fork.
"""

import os
import threading
import weakref
from time import monotonic
from typing import Protocol

_LONGEST = 10.0  # seconds for which a fork waits for a transaction
_TURN = 0.1  # seconds that a thread which was refused because of a fork has to try again, before the next fork


class Closable(Protocol):
    """A file that is closed before each fork."""

    def close_for_fork(self) -> None:
        """Close it; no thread uses it meanwhile."""

    def reset_in_child(self) -> None:
        """Drop what belongs to the parent, in a child that was just forked."""


class Forks:
    """Lets threads that use SQLite and threads that fork take turns, so that neither waits for long."""

    def __init__(self) -> None:
        self._files: weakref.WeakSet[Closable] = weakref.WeakSet()
        self.unusable = False  # in a child that was forked in the middle of a transaction
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._using: set[int] = set()  # threads
        self._waiting = 0  # threads that wait for the end of a fork
        self._wanted = 0.0  # until this time, forks wait for a thread that was refused
        self._forking: dict[int, int] = {}  # threads that fork; counted twice if a signal handler forks during a fork
        self._unclean = False  # a thread was still using SQLite when a fork began

    def add(self, file: Closable) -> None:
        """Close this file before each fork, as long as it exists."""
        with self._changed:
            self._files.add(file)

    def files(self) -> list[Closable]:
        """The files that are closed before a fork."""
        with self._changed:
            return list(self._files)

    def enter(self, seconds: float) -> bool:
        """Begin to use SQLite in this thread; False if forks prevented it for all of these seconds."""
        with self._changed:
            if self._forking:
                if seconds <= 0:
                    self._wanted = monotonic() + _TURN
                    return False
                self._waiting += 1
                try:
                    if not self._changed.wait_for(lambda: not self._forking, seconds):
                        return False
                finally:
                    self._waiting -= 1
                    self._changed.notify_all()
            self._wanted = 0.0
            self._using.add(threading.get_ident())
            return True

    def leave(self) -> None:
        """End the use of SQLite in this thread."""
        with self._changed:
            self._using.discard(threading.get_ident())
            self._changed.notify_all()

    def before(self) -> None:
        """Wait until no other thread uses SQLite, and close every file."""
        me, give_up = threading.get_ident(), monotonic() + _LONGEST
        with self._changed:
            if me not in self._forking:
                self._let_others_go_first(give_up)
            self._forking[me] = self._forking.get(me, 0) + 1
            # A signal handler may fork in the middle of a transaction of its own thread, which cannot end before the
            # fork.
            if me in self._using or not self._changed.wait_for(lambda: not self._using, give_up - monotonic()):
                self._unclean = True
                return
            for file in list(self._files):
                file.close_for_fork()

    def _let_others_go_first(self, give_up: float) -> None:
        """Wait for threads that could not use SQLite because of overlapping forks."""
        while (now := monotonic()) < give_up and (self._waiting or self._wanted > now):
            until = self._wanted if self._wanted > now else give_up
            self._changed.wait(min(give_up, until) - now)

    def after_in_parent(self) -> None:
        """Allow SQLite again, once no thread forks."""
        me = threading.get_ident()
        with self._changed:
            self._forking[me] -= 1
            if not self._forking[me]:
                del self._forking[me]
            if not self._forking:
                self._unclean = False
                self._changed.notify_all()

    def after_in_child(self) -> None:
        """Start with new locks: the threads that held the old ones do not exist in the child."""
        self.unusable = self.unusable or self._unclean
        self._begin()
        for file in list(self._files):
            file.reset_in_child()


FORKS = Forks()

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=FORKS.before, after_in_parent=FORKS.after_in_parent, after_in_child=FORKS.after_in_child)
