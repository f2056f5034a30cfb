"""Counts what a program makes in directories: the judge of all calls that may make an entry in one."""

import os
from typing import Final

from licet.sandbox.kernel import entry_count
from licet.sandbox.kernel.entry_count import EntryCount
from licet.sandbox.kernel.notifications import Notice, answer, answer_with_file, go_on, memory
from licet.sandbox.kernel.supervised_calls import SupervisedCalls

_NOWHERE: Final = os.devnull.encode() + b"\0"
# Reading and writing, O_CREAT, O_NOCTTY, O_TRUNC, O_APPEND, O_NONBLOCK, O_CLOEXEC, O_LARGEFILE and O_NOFOLLOW: each of
# these two has the number of the other one on the other architecture.
_PLAIN_OPENING = 3 | 0o100 | 0o400 | 0o1000 | 0o2000 | 0o4000 | 0o100000 | 0o400000 | 0o2000000


def count_entry(listener: int, notice: Notice, count: EntryCount) -> None:
    """Let a call go on that may make an entry in a directory, or refuse it."""
    if count.take():
        go_on(listener, notice)
    else:
        answer(listener, notice, entry_count.FULL)


class CountedEntries:
    """The judge that counts. `refused` says that the limit was met."""

    names: frozenset[str] = frozenset()  # the filter reports exactly these calls besides those of other judges
    is_quick = True

    def __init__(self, count: EntryCount) -> None:
        self._count = count
        self.refused = False

    def judge(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        """Count a call, and let it go on or refuse it."""
        if _open_nowhere(calls.listener, notice):
            return
        if self.take():
            go_on(calls.listener, notice)
        else:
            answer(calls.listener, notice, entry_count.FULL)

    def take(self) -> bool:
        """Count one entry before it is made; False if it is one too many."""
        if self._count.take():
            return True
        self.refused = True  # before the answer: the program may end before this thread goes on
        return False


def _open_nowhere(listener: int, notice: Notice) -> bool:
    """Open `/dev/null` for a caller that wants to, which scripts do for each command; whether this was done.

    Such calls are not counted. The kernel does not go on with one, and so the caller cannot exchange the path.
    """
    path = {"open": 0, "openat": 1}.get(notice.name)
    if path is None or notice.arguments[path + 1] & ~_PLAIN_OPENING:
        return False
    try:
        if memory(notice.thread, notice.arguments[path], len(_NOWHERE)) != _NOWHERE:
            return False
        flags = notice.arguments[path + 1]
        file = os.open(os.devnull, flags & ~os.O_CREAT | os.O_CLOEXEC)
        try:
            answer_with_file(listener, notice, file, inherited=not flags & os.O_CLOEXEC)
        finally:
            os.close(file)
    except OSError:  # it is counted like any other
        return False
    return True
