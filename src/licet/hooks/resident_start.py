"""Starts a resident, and does the work of a client alone where there is none. Clients load this only if they need it.

A resident inherits nothing of the client that started it: no descriptor, for which the agent would wait; no variable
but the few that say where licet's own files are, or the next project would get the keys of this one; no directory,
session, mask or umask.
"""

import contextlib
import errno
import fcntl
import os
import signal
import sys
import time

from licet.hooks.limits import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, START_SECONDS
from licet.hooks.resident_place import (
    NoPlace,
    NoResident,
    Unreachable,
    connect_in,
    directory,
    name,
    opened,
    own_variables,
)

MODULE = "licet.hooks.resident"
# The programs that licet itself starts are looked for here. Those of a line are looked for where the line says.
_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CODES = (0, 2)  # the exit codes that answers have


class Broken(Exception):
    """The command that works without a resident did not answer."""


def start() -> bool:
    """Start a resident for this environment, unless another client does already; whether one listens then."""
    try:
        place = made(directory(dict(os.environb)))
    except (NoPlace, OSError):
        return False
    own = name(dict(os.environb))
    try:
        # Of many clients that find no resident, one starts it. The lock goes with this process, however it ends.
        turn = os.open(f"{own}.start", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=place)
        with contextlib.ExitStack() as held:
            held.callback(os.close, turn)
            started = 0
            pause, end = FIRST_PAUSE_SECONDS, time.monotonic() + START_SECONDS
            while True:
                if not started and _is_mine(turn):
                    if _listens(place, own):
                        return True
                    started = _spawn(own)
                elif _listens(place, own):
                    return True
                if time.monotonic() > end or (started and not _is_alive(started)):
                    return _listens(place, own)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    except (OSError, Unreachable):
        return False
    finally:
        os.close(place)


def made(path: bytes) -> int:
    """Open the directory of the sockets, and make it first if it is missing. Raises `NoPlace` or `OSError`."""
    missing = []
    while not os.path.isdir(path) and path != b"/":
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o700)
    return opened(missing[0] if missing else path)


def _is_mine(turn: int) -> bool:
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _listens(place: int, own: str) -> bool:
    try:
        connect_in(place, own).close()
    except NoResident:
        return False
    return True


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _spawn(own: str) -> int:
    """Start a resident as a child of nobody; returns its pid."""
    environment = {**own_variables(dict(os.environb)), b"PATH": _PATH, b"LANG": b"C.UTF-8"}
    read, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        os.waitpid(child, 0)
        process = int(os.read(read, 32) or b"0")
        os.close(read)
        if not process:
            raise OSError(errno.EAGAIN, "no process could be started")
        return process
    try:
        os.setsid()
        if again := os.fork():
            os.write(told, b"%d" % again)
            os._exit(0)
        _become(own, environment)
    finally:
        os._exit(1)


def _become(own: str, environment: dict[bytes, bytes]) -> None:
    os.chdir("/")
    os.umask(0o077)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    for file in sorted(map(int, os.listdir("/proc/self/fd"))):
        if file > 2:
            with contextlib.suppress(OSError):  # the list was one of them
                os.close(file)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # ignored signals are inherited
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execve(sys.executable, [sys.executable, "-I", "-m", MODULE, own], environment)  # noqa: S606 - this interpreter


def alone(agent: str, event: str, payload: bytes) -> int:
    """Answer one event without a resident: `licet hook` prints the answer; returns its exit code.

    It is a child whose end is seen, since an interpreter that fails to start it ends with a code that refuses nothing.
    """
    read, feed = os.pipe()
    words = [sys.executable, "-I", "-m", "licet", "hook", agent, event]
    child = os.posix_spawn(sys.executable, words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, read, 0)])
    os.close(read)
    try:
        with contextlib.suppress(BrokenPipeError):  # it ends without reading everything
            while payload:
                payload = payload[os.write(feed, payload) :]
        os.close(feed)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        child = 0
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
    if code not in _CODES:
        raise Broken(f"`licet hook` ended with {code}")
    return code


def line_alone(ticket: str, text: str) -> None:
    """Become the program that runs the line without a resident."""
    os.execve(sys.executable, [sys.executable, "-I", "-m", "licet.hooks.line_alone", ticket, text], os.environ)  # noqa: S606
