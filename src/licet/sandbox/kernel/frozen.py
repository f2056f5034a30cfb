"""Stops all processes of a pid namespace, without any of them noticing more than a pause, and lets them go on.

For the init process of the namespace, whose main thread traces them all meanwhile. A stop signal would be seen: a shell
that waits for its job reports it as stopped. A task that was stopped before stays so.

A stopped task is at the border of the kernel: it has no call in progress, and so no file but its open ones.
"""

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

from licet.sandbox.kernel import system_calls

EVERY_TASK = 0x40000000  # __WALL, for `waitpid`
_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_FOLLOW = 2 | 4 | 8  # what a traced task forks or clones is traced too
_LOOK_SECONDS = 0.001
# A task sleeps without a way to be stopped until its child executes a program, or while `connections` decides about a
# call of it that has not begun. It does nothing before it is stopped.
_ASLEEP = ("vfork", "clone", "connect", "listen", "landlock_restrict_self")


class NotFrozen(Exception):
    """Not every process could be stopped."""


class Frozen:
    """The stopped tasks of a namespace."""

    def __init__(self) -> None:
        self._signals: dict[int, int] = {}  # by task: the signal that it was about to get, or 0
        self._moving: set[int] = set()
        self._asleep: set[int] = set()
        self.ended: list[tuple[int, int]] = []  # children that ended meanwhile, with their wait status

    def thaw(self) -> None:
        """Let every task go on."""
        for task, number in self._signals.items():
            release(task, number)
        self._signals = {}

    def seize(self) -> bool:
        """Trace the tasks that are not traced yet, and stop them; false if there were none."""
        new = False
        for task in _tasks():
            if task in self._signals or task in self._moving or task in self._asleep:
                continue
            try:
                traced = _is_seized(task) or _is_seized(task)
            except ProcessLookupError:  # ended, or it has executed a program and is the first task of its process now
                new = True
                continue
            if traced:
                new = True
                self._moving.add(task)
            elif _state(task) not in "ZX":
                raise NotFrozen("a process cannot be stopped: it is closed to this one")
        return new

    def wait(self, until: float) -> None:
        """Wait until every traced task has stopped."""
        while self._moving:
            if self._reap():
                continue
            for task in tuple(self._moving):
                state = _state(task)
                if state in "ZX":
                    self._moving.discard(task)
                elif state == "D" and _call(task) in _ASLEEP:
                    self._moving.discard(task)
                    self._asleep.add(task)
            if time.monotonic() > until:
                raise NotFrozen("a process does not stop: the kernel is busy for it")
            if self._moving:
                signal.sigtimedwait((signal.SIGCHLD,), _LOOK_SECONDS)

    def _reap(self) -> bool:
        try:
            task, status = os.waitpid(-1, os.WNOHANG | EVERY_TASK)
        except ChildProcessError:
            return False
        if not task:
            return False
        self._moving.discard(task)
        self._asleep.discard(task)
        if os.WIFSTOPPED(status):
            self._signals[task] = pending_signal(status)
        else:
            self._signals.pop(task, None)
            self.ended.append((task, status))
        return True


def freeze(until: float) -> Frozen:
    """Stop every process of this namespace but this one. Raises `NotFrozen`; then some may be stopped for good."""
    frozen = Frozen()
    while True:
        newest = _newest()
        try:
            new = frozen.seize()
        except OSError as error:
            raise NotFrozen(f"the processes cannot be listed: {error.strerror}") from error
        frozen.wait(until)
        # Whatever runs was there when the tasks were listed, or was started since, and has a newer id.
        if not new and newest == _newest():
            return frozen


def release(task: int, number: int) -> None:
    """Let a stopped task go on, with the signal that it was about to get."""
    with suppress(ProcessLookupError):  # it was killed
        _ptrace(_DETACH, task, number)


def pending_signal(status: int) -> int:
    """The signal that a stopped task was about to get, by its wait status; 0 if it was stopped for another reason."""
    return 0 if status >> 16 else os.WSTOPSIG(status)


def _ptrace(request: int, task: int, data: int = 0) -> None:
    number = system_calls.NUMBERS[system_calls.machine()]["ptrace"]
    system_calls.syscall("ptrace", number, request, task, 0, data)


def _tasks() -> Iterator[int]:
    own = str(os.getpid())
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    if own not in processes:
        raise NotFrozen("the processes cannot be listed: /proc is not there")
    for process in processes:
        if process != own:
            with suppress(FileNotFoundError, ProcessLookupError):
                yield from map(int, os.listdir(f"/proc/{process}/task"))


def _newest() -> bytes:
    """The id that was given last in this namespace."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return file.read(128).split()[-1]
    except (OSError, IndexError) as error:
        raise NotFrozen("the processes cannot be counted: /proc is not there") from error


def _state(task: int) -> str:
    """The letter that /proc has for the state of a task; X if it is gone."""
    try:
        with open(f"/proc/{task}/stat", "rb", buffering=0) as file:
            return file.read(512).rpartition(b")")[2].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except (OSError, IndexError) as error:  # whatever it is, it may run
        raise NotFrozen("a process cannot be looked at") from error


def _is_seized(task: int) -> bool:
    """Whether a task is traced now, and asked to stop. A first task that has ended is not.

    If another task of that process executes a program then, it takes the id of the first: the next attempt succeeds.
    """
    try:
        _ptrace(_SEIZE, task, _FOLLOW)
        _ptrace(_INTERRUPT, task)
    except ProcessLookupError:
        raise
    except OSError as error:
        if error.errno != errno.EPERM:
            raise NotFrozen(f"a process cannot be stopped: {error.strerror}") from error
        return _is_traced(task)
    return True


def _is_traced(task: int) -> bool:
    try:
        with open(f"/proc/{task}/status", "rb", buffering=0) as file:
            return b"TracerPid:\t1\n" in file.read(4096)
    except OSError:
        return False


def _call(task: int) -> str:
    """The system call that a task sleeps in."""
    try:
        with open(f"/proc/{task}/syscall", "rb", buffering=0) as file:
            number = file.read(64).split()[0]
    except (OSError, IndexError):
        return ""
    numbers = system_calls.NUMBERS[system_calls.machine()]
    return next((name for name in _ASLEEP if str(numbers.get(name)).encode() == number), "")
