"""Answers the system calls of a program that wait for a supervisor, each by the judge that its name belongs to.

Runs in a process that the program cannot touch, in threads, since a judge may block. If the caller of one that blocks
is killed, its thread is interrupted, and is free for others.
"""

import _thread
import errno
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from licet.sandbox.kernel.notifications import Notice, answer, is_over, receive, waits
from licet.sandbox.limits import JUDGE_STACK, MOST_JUDGES

THREADS = 2  # that are there in any case: one that waits, and one that works
# Ends a call that blocks. Whoever else sends it interrupts one too, which is then tried again.
_INTERRUPT = max(signal.valid_signals())


class Judge(Protocol):
    """Answers the calls with some names."""

    @property
    def names(self) -> frozenset[str]:
        """The names of its system calls; empty for the judge of all that no other one has."""

    @property
    def is_quick(self) -> bool:
        """Whether it takes no time, and so needs no other thread meanwhile."""

    def judge(self, calls: "SupervisedCalls", notice: Notice, *, may_block: bool) -> None:
        """Answer a call, or let the kernel go on with it. What it raises is answered as the error of the call."""


class SupervisedCalls:
    """Answers the calls that wait at one listener. `start` returns at once."""

    def __init__(self, listener: int, judges: Sequence[Judge]) -> None:
        self.listener = listener
        self._judges = {name: judge for judge in judges for name in judge.names}
        self._other = next((judge for judge in judges if not judge.names), None)
        self._lock = _thread.allocate_lock()
        self._threads = self._busy = 0
        self._blocking: dict[int, Notice] = {}  # by thread
        signal.signal(_INTERRUPT, lambda *_: None)  # an ignored signal interrupts nothing

    def interrupt_abandoned(self) -> bool:
        """Interrupt calls whose callers are gone; whether there were any.

        One that has not begun to block yet is missed, so this must be called again and again.
        """
        with self._lock:  # a thread is in `_blocking` only as long as it can be interrupted
            gone = [thread for thread, notice in self._blocking.items() if not waits(self.listener, notice)]
            for thread in gone:
                signal.pthread_kill(thread, _INTERRUPT)
        return bool(gone)

    def start(self) -> None:
        """Start a thread that answers calls."""
        _thread.stack_size(JUDGE_STACK)
        with self._lock:
            self._threads += 1
        try:
            _thread.start_new_thread(self._serve, ())
        except BaseException:
            with self._lock:
                self._threads -= 1
            raise

    @contextmanager
    def interruptible(self, notice: Notice) -> Iterator[None]:
        """Let `interrupt_abandoned` interrupt this thread, which may block for this call."""
        thread = _thread.get_ident()
        with self._lock:
            self._blocking[thread] = notice
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (_INTERRUPT,))
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, (_INTERRUPT,))
            with self._lock:
                del self._blocking[thread]

    def _serve(self) -> None:
        while True:
            notice = receive(self.listener)
            if notice is None:
                if is_over(self.listener):
                    return
                continue
            judge = self._judges.get(notice.name, self._other)
            is_quick = judge is None or judge.is_quick
            try:
                if judge is None:
                    answer(self.listener, notice, errno.EPERM)
                else:
                    judge.judge(self, notice, may_block=not is_quick and self._begin())
            except OSError as error:
                answer(self.listener, notice, error.errno or errno.EPERM)
            except Exception:  # an unanswered caller would wait forever
                answer(self.listener, notice, errno.EPERM)
            finally:
                if not is_quick:
                    with self._lock:
                        self._busy -= 1

    def _begin(self) -> bool:
        """See to it that another thread waits for the next call, now or soon; False if this one is the last."""
        with self._lock:
            self._busy += 1
            free, more = self._threads > self._busy, self._threads < MOST_JUDGES
        if free:
            return True
        if more:
            with suppress(RuntimeError):  # the limit of processes is reached
                self.start()
                return True
        return self.interrupt_abandoned()
