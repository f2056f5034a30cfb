"""Keeps SQLite and forks apart: either any number of threads use SQLite, or one thread forks.

SQLite keeps locks by process and notes about them in memory. A child that inherits those notes believes that it holds
locks which it does not hold, and a mutex that another thread held stays locked in it. So a fork waits until no thread
uses SQLite, every file is closed before it, and both sides open their files again. Any number of threads may fork.
"""

import os
import threading
import weakref
from time import monotonic
from typing import Protocol

_LONGEST = 10.0  # seconds for which a fork waits for a transaction that does not end
_TURN = 0.1  # seconds that a thread which was turned away by a fork has, before the next fork, to try again


class Closable(Protocol):
    """A file that is closed for a fork."""

    def close_for_fork(self) -> None:
        """Close it; no thread uses it meanwhile."""

    def begin_in_child(self) -> None:
        """Forget what the parent holds, in a child that was just forked."""


class Forks:
    """Threads that use SQLite and threads that fork take turns, so that neither keeps the other waiting for long."""

    def __init__(self) -> None:
        self._files: weakref.WeakSet[Closable] = weakref.WeakSet()
        self.unusable = False  # in a child that was forked in the middle of a transaction
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._using: set[int] = set()  # threads
        self._waiting = 0  # threads that wait until no fork is under way
        self._wanted = 0.0  # until then, a thread that was turned away is expected again
        self._forking: dict[int, int] = {}  # threads; more than once, if a signal handler forks during a fork
        self._unclean = False  # somebody was still using SQLite when a fork began

    def add(self, file: Closable) -> None:
        """Close this file before each fork, for as long as somebody has it."""
        with self._changed:
            self._files.add(file)

    def files(self) -> list[Closable]:
        """Every file that is closed before a fork."""
        with self._changed:
            return list(self._files)

    def enter(self, seconds: float) -> bool:
        """Begin to use SQLite in this thread; False if a fork was under way for all of these seconds."""
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
            # A signal handler may fork in the middle of a transaction of its own thread, which cannot end meanwhile.
            if me in self._using or not self._changed.wait_for(lambda: not self._using, give_up - monotonic()):
                self._unclean = True
                return
            for file in list(self._files):
                file.close_for_fork()

    def _let_others_go_first(self, give_up: float) -> None:
        """Leave a turn to threads that forks have kept from using SQLite; forks may well overlap."""
        while (now := monotonic()) < give_up and (self._waiting or self._wanted > now):
            until = self._wanted if self._wanted > now else give_up
            self._changed.wait(min(give_up, until) - now)

    def after_in_parent(self) -> None:
        """Let other threads go on, once no thread forks any more."""
        me = threading.get_ident()
        with self._changed:
            self._forking[me] -= 1
            if not self._forking[me]:
                del self._forking[me]
            if not self._forking:
                self._unclean = False
                self._changed.notify_all()

    def after_in_child(self) -> None:
        """Begin with locks of this process's own: whoever held the others is not here."""
        self.unusable = self.unusable or self._unclean
        self._begin()
        for file in list(self._files):
            file.begin_in_child()


FORKS = Forks()

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=FORKS.before, after_in_parent=FORKS.after_in_parent, after_in_child=FORKS.after_in_child)
