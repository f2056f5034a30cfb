"""The small process between the host and a program: it ends the program and everything the program has started.

Run by `supervisors` in an interpreter of its own, with nothing but the standard library and, for programs behind walls,
what builds those. It takes over orphans (a subreaper), so a process that forks twice, leaves its session and ignores
signals is still its child, and is killed like any other. The host itself is not disturbed: it neither becomes a
subreaper nor waits for children that it did not start.
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

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


_MOST_FILES = 8
_LONGEST_POLL = 3600.0  # seconds; the kernel takes no more milliseconds than fit into 31 bits

Launch = Callable[[int, int], None]  # puts this process behind walls and becomes the program; see `sandbox.launcher`


class _Command(NamedTuple):
    """What is to be run, and with which files: those of the program's streams, and what walls are built with."""

    words: list[bytes]
    streams: Sequence[int]
    status: int
    walls: Sequence[int]


def main(
    launch: Launch | None = None, tried: Callable[[], bytes] | None = None, prepare: Callable[[], None] | None = None
) -> None:
    """Wait for a command, run it with the files that come with it, say how it ended, and leave nothing behind.

    With time to spare it first tries out walls (see `sandbox.attempts`) and tells the host, while nothing was asked of
    this process yet; and prepares what helps a launch, whatever is launched.
    """
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    if tried is not None:
        _say(control, tried())
    if prepare is not None:
        prepare()
    libc = ctypes.CDLL(None, use_errno=True)
    wrong = ctypes.get_errno() if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) else 0
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the program may not look into us
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # nor become a user whom we may not kill
    with socket.socket(fileno=control) as host:
        command = _received(host)
        if command is None:  # the host has gone, or thought better of it
            return
        if wrong:
            _say(command.status, f"error {wrong}".encode())
            return
        _supervise(libc, control, command, launch)


def _supervise(libc: ctypes.CDLL, control: int, command: _Command, launch: Launch | None) -> None:
    status = command.status
    try:
        _children()
    except OSError:  # another sandbox around this hides /proc: what cannot be seen could not be ended either
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
    for stream in (0, 1, 2):  # only the program holds its pipes now, so that their end is its end
        os.dup2(nowhere, stream)
    for file in command.walls:
        os.close(file)
    if not wrong:
        _say(status, b"started ")
    how = f"error {wrong}" if wrong else _watch(program, control, awake, float(command.words[0]))
    _kill_all()
    _say(status, how.encode())
    os._exit(0)  # there is nothing left to clear up, for which the host would wait


def _received(host: socket.socket) -> _Command | None:
    """The seconds, the directory, the binary, the count of arguments, the arguments, the environment; and files.

    Behind walls the seconds alone: all else is for the launcher to hear.
    """
    size, files, flags, _ = socket.recv_fds(host, 8, _MOST_FILES)  # the files come with the first bytes
    for file in files:
        os.set_inheritable(file, False)  # `recv_fds` takes flags, and does not pass them on
    if not size or flags & socket.MSG_CTRUNC or len(files) < 4:
        return None
    size += _read(host, 8 - len(size)) or b""
    raw = _read(host, int.from_bytes(size, "big")) if len(size) == 8 else None
    return None if raw is None else _Command(raw.split(b"\0"), files[:3], files[3], files[4:])


def _read(host: socket.socket, size: int) -> bytes | None:
    raw = b""
    while len(raw) < size:
        more = host.recv(min(size - len(raw), 1 << 20))
        if not more:
            return None
        raw += more
    return raw


def _start(libc: ctypes.CDLL, command: _Command, launch: Launch | None) -> tuple[int, int]:
    """The program's id, or the number of the system's error."""
    trouble, tell = os.pipe()
    supervisor = os.getpid()
    program = os.fork()
    if program == 0:
        try:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # should anybody kill us, it goes first
            if os.getppid() != supervisor:
                os._exit(127)
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)  # what Python, or a shell before us, told us to ignore
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if launch is None:
                _become(command.words)
            # Of what can be looked into, the kernel lets its owner write the maps of a namespace. There is nothing to
            # see yet, and walls take it back.
            libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
            orders, ending = command.walls
            launch(orders, ending)  # closes everything else, `tell` included
        except OSError as error:
            os.write(tell, str(error.errno or 1).encode())
        finally:  # whatever happened: only one of us goes on as the supervisor
            os._exit(127)
    os.close(tell)
    wrong = os.read(trouble, 16)  # nothing, once the program or its launcher runs
    os.close(trouble)
    return program, int(wrong or 0)


def _become(words: list[bytes]) -> NoReturn:
    _, directory, binary, count = words[:4]
    last = 4 + int(count)
    argv, environment = words[4:last], dict(pair.split(b"=", 1) for pair in words[last:] if pair)
    os.chdir(directory)
    os.execve(binary, argv, environment)  # noqa: S606 - whatever stands here has been checked


def _watch(program: int, control: int, awake: int, seconds: float) -> str:
    """Wait until the program ends, its time is up, or the host wants it gone; pass on the signals that it sends."""
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
        ready = dict(poll.poll(min(left, _LONGEST_POLL) * 1000))
        if control in ready:
            numbers = b""
            with suppress(ConnectionResetError):  # the host has gone before it had read what came of the walls
                numbers = os.read(control, 64)
            if not numbers:  # the end means stop
                return "stopped"
            for number in numbers:
                with suppress(OSError):  # the program is ours until it is reaped, so this reaches no one else
                    os.kill(program, number)
        if awake in ready:
            os.read(awake, 4096)


def _reap(options: int) -> tuple[int, str] | None:
    """A child that has ended, and how: its code, and what it and those it waited for used, in seconds and KiB."""
    try:
        child, status, used = os.wait4(-1, options)
    except ChildProcessError:
        return None
    how = f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime:.3f} {used.ru_maxrss}" if child else ""
    return (child, how) if child else None


def _kill_all() -> None:
    """Kill children until there are none left.

    Only our own children are killed: their ids cannot be given to others before we reap them. What they leave behind
    becomes our child, and the next round has it.
    """
    while True:
        for child in _children():
            os.kill(child, signal.SIGKILL)  # a child that has ended stays ours until it is reaped
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
