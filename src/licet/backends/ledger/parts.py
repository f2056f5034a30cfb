"""Looking at the entries of a large ledger with several processors: each part in a child of its own.

A child is a fork: one that is started anew takes as long as several thousand entries. Only a process with a single
thread forks, for what other threads hold would never be let go of in the child, and only on Linux, where nothing of
the system minds. Whatever goes wrong in a child, its part is not there, and the ledger is verified without any.
"""

import marshal
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from licet.backends.ledger.reader import LedgerReader
from licet.core.ledger.verify_part import Part, look_at_part

_LEAST = 3_000  # entries in a part: what a fork costs, several times over
_MOST = 8  # parts


class _Child(NamedTuple):
    """Who looks at a part, and where its answer comes from."""

    process: int
    answer: int


class Parts:
    """The entries up to some number, in parts of about the same size: the first for oneself, a child for each other."""

    def __init__(self, path: str, last: int, heads: Sequence[int], many: int) -> None:
        """Begin to look at all but the first part; whoever calls it has closed the file.

        What SQLite notes of a connection is not true of a fork. If another is open elsewhere in this process, its only
        thread is here, and the locks that a child believes to have are held until it has answered.
        """
        ends = [last * part // many for part in range(many + 1)]
        self.first, self.last, self.many = ends[1], last, many
        self._children: list[_Child] = []
        try:
            for before, end in pairwise(ends[1:]):
                self._children.append(_forked(path, before + 1, end, heads))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Part | None]:
        """What came of each part, in order; None for one that something is wrong with."""
        return map(_answer, self._children)

    def close(self) -> None:
        """End whoever is still looking."""
        for process, answer in self._children:
            os.close(answer)
            with suppress(OSError):  # whoever ignores the end of children has already been rid of it
                if os.waitpid(process, os.WNOHANG) == (0, 0):
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)
        self._children.clear()


def worthwhile(entries: int) -> int:
    """How many parts these entries are to be looked at in: one, where that is as quick or where nobody may fork."""
    if sys.platform != "linux" or entries < 2 * _LEAST:
        return 1
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        return 1
    # SQLite looks at the file around the entries meanwhile, which takes about half as long as the entries.
    free = len(os.sched_getaffinity(0))
    return 1 if threads > 1 or free < 2 else min(max(2, free - 1), _MOST, entries // _LEAST)


def _forked(path: str, first: int, last: int, heads: Sequence[int]) -> _Child:
    answer, question = os.pipe()
    try:
        process = os.fork()
    except BaseException:
        os.close(answer)
        os.close(question)
        raise
    if not process:
        _look(path, first, last, heads, question)
    os.close(question)
    return _Child(process, answer)


def _look(path: str, first: int, last: int, heads: Sequence[int], told: int) -> NoReturn:
    """In the child: nothing of it but the answer may be noticed, and it never goes back to whoever has forked."""
    try:
        signal.set_wakeup_fd(-1)  # a loop that is waked up by signals is not this one
        with LedgerReader(path) as reader:
            part: Any = look_at_part(reader.columns(first, last), first, last, heads)
        with os.fdopen(told, "wb") as file:
            file.write(marshal.dumps(part and tuple(part)))  # `marshal` knows plain data alone
    finally:
        os._exit(0)


def _answer(child: _Child) -> Part | None:
    try:
        with os.fdopen(os.dup(child.answer), "rb") as file:
            found = marshal.loads(file.read())  # noqa: S302 - our own child has written it
    except (EOFError, OSError, TypeError, ValueError):  # it was ended
        return None
    return found and Part(*found)
