"""The small process between the host and a program: it ends the program and everything the program has started.

Run by `processes` in an interpreter of its own, with nothing but the standard library. It takes over orphans (a
subreaper), so a process that forks twice, leaves its session and ignores signals is still its child, and is killed
like any other. The host itself is not disturbed: it neither becomes a subreaper nor waits for children that it did not
start.
"""

import ctypes
import os
import select
import signal
import time
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


def main(control: int, status: int, *files: int) -> None:
    """Read a command, run it with the files it is handed, say how it ended, and leave nothing behind."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        _say(status, f"error {ctypes.get_errno()}")
        return
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the program may not look into us
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # nor become a user whom we may not kill
    os.set_inheritable(control, False)
    os.set_inheritable(status, False)
    command = _read_command(control)
    if command is None:  # the host has gone, or thought better of it
        return
    try:
        _children()
    except OSError:  # another sandbox around this hides /proc: what cannot be seen could not be ended either
        _say(status, "blind")
        return
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(awake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    program, wrong = _start(libc, command)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # only the program holds its pipes now, so that their end is its end
        os.dup2(nowhere, stream)
    for file in files:
        os.close(file)
    if not wrong:
        _say(status, "started ")
    how = f"error {wrong}" if wrong else _watch(program, control, awake, float(command[0]))
    _kill_all()
    _say(status, how)


def _read_command(control: int) -> list[bytes] | None:
    """The seconds, the directory, the binary, the count of arguments, the arguments, the environment."""
    size = _read(control, 8)
    raw = _read(control, int.from_bytes(size, "big")) if size else None
    return None if raw is None else raw.split(b"\0")


def _read(fd: int, size: int) -> bytes | None:
    raw = b""
    while len(raw) < size:
        more = os.read(fd, min(size - len(raw), 1 << 20))
        if not more:
            return None
        raw += more
    return raw


def _start(libc: ctypes.CDLL, command: list[bytes]) -> tuple[int, int]:
    """The program's id, or the number of the system's error."""
    _, directory, binary, count = command[:4]
    last = 4 + int(count)
    argv, environment = command[4:last], dict(pair.split(b"=", 1) for pair in command[last:] if pair)
    trouble, tell = os.pipe()
    supervisor = os.getpid()
    program = os.fork()
    if program == 0:
        try:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # should anybody kill us, it goes first
            if os.getppid() != supervisor:
                os._exit(127)
            os.setsid()
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)  # what Python, or a shell before us, told us to ignore
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.chdir(directory)
            os.execve(binary, argv, environment)  # noqa: S606 - whatever stands here has been checked
        except OSError as error:
            os.write(tell, str(error.errno or 1).encode())
        os._exit(127)
    os.close(tell)
    wrong = os.read(trouble, 16)  # nothing, once the program runs
    os.close(trouble)
    return program, int(wrong or 0)


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
        ready = dict(poll.poll(left * 1000))
        if control in ready:
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


def _say(status: int, text: str) -> None:
    with suppress(BrokenPipeError):
        os.write(status, text.encode())
