"""The small process between the host and a program: it ends the program and everything that the program has started.

It runs in an interpreter of its own with the standard library and, for programs behind walls, the launcher. It is a
subreaper: a process that forks twice, leaves its session and ignores signals becomes its child, and is killed. So the
host neither becomes a subreaper nor waits for children that it did not start.
"""

import ctypes
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from licet.sandbox.limits import LONGEST_POLL, MOST_SUPERVISOR_FILES

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


Launch = Callable[[int, int], None]  # `launcher.main`: builds the walls and becomes the program


class _Command(NamedTuple):
    """A command, and its files: the streams of the program, the status pipe, and the files of the launcher.

    `lent` is the terminal of a person that the host copies, and the settings that it gets back if the host is killed.
    """

    words: list[bytes]
    streams: Sequence[int]
    status: int
    walls: Sequence[int]
    lent: tuple[int, bytes] | None = None


def main(
    launch: Launch | None = None, tried: Callable[[], bytes] | None = None, prepare: Callable[[], None] | None = None
) -> None:
    """Wait for a command, run it with its files, report how it ended, and leave no process behind.

    `tried` tests the walls (see `sandbox.attempts`), and `prepare` builds what every launch needs; both run while the
    host is still reading its policy.
    """
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    if tried is not None:
        _say(control, tried())
    if prepare is not None:
        prepare()
    libc = ctypes.CDLL(None, use_errno=True)
    wrong = ctypes.get_errno() if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) else 0
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the program cannot read the memory of this process
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # nor become a user whose processes cannot be killed from here
    with socket.socket(fileno=control) as host:
        command = _received(host, is_walled=launch is not None)
        if command is None:  # the host has ended, or needs no program
            return
        if wrong:
            _say(command.status, f"error {wrong}".encode())
            return
        _supervise(libc, control, command, launch)


def _supervise(libc: ctypes.CDLL, control: int, command: _Command, launch: Launch | None) -> None:
    status = command.status
    try:
        _children()
    except OSError:  # another sandbox hides /proc: processes could not be found to end them
        _say(status, b"blind")
        return
    for stream, file in enumerate(command.streams):
        os.dup2(file, stream)
        os.close(file)
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(awake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    program, wrong = _start(libc, command, launch)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # only the program has its pipes open, so that they end with it
        os.dup2(nowhere, stream)
    for file in command.walls:
        os.close(file)
    if not wrong:
        _say(status, b"started ")
    how = f"error {wrong}" if wrong else _watch(program, control, awake, float(command.words[0]), launch is None)
    _kill_all()
    if command.lent is not None and how == "stopped":
        from licet.sandbox.kernel import terminal_settings  # only a program at a terminal needs it

        terminal_settings.give_back(*command.lent)
    _say(status, how.encode())
    os._exit(0)  # the host waits for this exit: skip the teardown of the interpreter


def _received(host: socket.socket, *, is_walled: bool) -> _Command | None:
    """Read a command: seconds, directory, binary, count of arguments, arguments, environment; and its files.

    Behind walls only the seconds, and the settings of a terminal that comes as the last file: the launcher gets the
    rest.
    """
    size, files, flags, _ = socket.recv_fds(host, 8, MOST_SUPERVISOR_FILES)  # the files come with the first bytes
    for file in files:
        os.set_inheritable(file, False)  # `recv_fds` ignores MSG_CMSG_CLOEXEC
    if not size or flags & socket.MSG_CTRUNC or len(files) < 4:
        return None
    size += _read(host, 8 - len(size)) or b""
    raw = _read(host, int.from_bytes(size, "big")) if len(size) == 8 else None
    if raw is None:
        return None
    words = raw.split(b"\0")
    lent = (files.pop(), words.pop()) if is_walled and len(words) > 1 else None
    return _Command(words, files[:3], files[3], files[4:], lent)


def _read(host: socket.socket, size: int) -> bytes | None:
    raw = b""
    while len(raw) < size:
        more = host.recv(min(size - len(raw), 1 << 20))
        if not more:
            return None
        raw += more
    return raw


def _start(libc: ctypes.CDLL, command: _Command, launch: Launch | None) -> tuple[int, int]:
    """Start the program; returns its pid and an errno, 0 if it runs."""
    trouble, tell = os.pipe()
    supervisor = os.getpid()
    program = os.fork()
    if program == 0:
        try:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # the program must not outlive its supervisor
            if os.getppid() != supervisor:
                os._exit(127)
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)  # ignored signals are inherited
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if launch is None:
                _exec(command.words)
            # Only a dumpable process may write the user map of its namespace. The walls take this back.
            libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
            orders, ending = command.walls
            launch(orders, ending)  # closes everything else, `tell` included
        except OSError as error:
            os.write(tell, str(error.errno or 1).encode())
        finally:  # the child must never go on as a second supervisor
            os._exit(127)
    os.close(tell)
    wrong = os.read(trouble, 16)  # empty once the program or its launcher runs
    os.close(trouble)
    return program, int(wrong or 0)


def _exec(words: list[bytes]) -> NoReturn:
    _, directory, binary, count = words[:4]
    last = 4 + int(count)
    argv, environment = words[4:last], dict(pair.split(b"=", 1) for pair in words[last:] if pair)
    os.chdir(directory)
    os.execve(binary, argv, environment)  # noqa: S606 - the host has checked it


def _watch(program: int, control: int, awake: int, seconds: float, has_group: bool) -> str:
    """Wait until the program ends, its time is up, or the host stops it; pass on signals from the host.

    With `has_group` a Ctrl-C goes to the program and what it has started; behind walls its launcher does that.
    """
    end = time.monotonic() + seconds
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(awake, select.POLLIN)
    while True:
        while reaped := _reap(os.WNOHANG):
            if reaped[0] == program:
                return f"ended {reaped[1]}"
        left = end - time.monotonic()
        if left <= 0:
            return "late"
        ready = dict(poll.poll(min(left, LONGEST_POLL) * 1000))
        if control in ready:
            numbers = b""
            with suppress(ConnectionResetError):  # the host ended before it had read the results of `tried`
                numbers = os.read(control, 64)
            if not numbers:  # the host closed the socket
                return "stopped"
            for number in numbers:
                with suppress(OSError):  # the pid belongs to the program until it is reaped here
                    os.kill(-program if has_group and number == signal.SIGINT else program, number)
        if awake in ready:
            os.read(awake, 4096)


def _reap(options: int) -> tuple[int, str] | None:
    """Reap a child; returns its pid, and its code, CPU seconds and KiB of memory as text."""
    try:
        child, status, used = os.wait4(-1, options)
    except ChildProcessError:
        return None
    how = f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime:.3f} {used.ru_maxrss}" if child else ""
    return (child, how) if child else None


def _kill_all() -> None:
    """Kill children until none is left.

    A pid of a child is not reused before it is reaped here. Orphans become children, and the next round kills them.
    """
    while True:
        for child in _children():
            os.kill(child, signal.SIGKILL)  # no error for a child that has ended and was not reaped
        if _reap(0) is None:
            return
        while _reap(os.WNOHANG):
            pass


def _children() -> list[int]:
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:  # a kernel without this list
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == own]


def _parent(process: str) -> int:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _say(file: int, text: bytes) -> None:
    with suppress(BrokenPipeError):
        os.write(file, text)
