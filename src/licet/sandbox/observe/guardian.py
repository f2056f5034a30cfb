"""Starts the observed command, waits for it, and ends what it leaves behind. Runs in a fork of `licet observe`.

The guardian is the parent of the command, and orphans of the command become its children. It keeps a copy of the
listener: if the process that records dies, calls of the command wait, and fail neither silently nor by chance, until
the guardian has ended all of it and said why.
"""

import array  # noqa: F401 - `send_fds` imports it, and nothing may be imported after the filter is installed
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from licet.sandbox.kernel import hardening, namespaces, notifications, reported_calls, system_calls
from licet.sandbox.limits import GUARDIAN_BACKLOG, LARGEST_COMMAND, LEFT_RUNNING_SECONDS

PROXY = ("127.0.0.1", 3128)
NOT_STARTED = 125
_SUBREAPER = 36
# The command gets these from the terminal itself, or from the process that records.
_LEFT_TO_THE_COMMAND = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
_OF_PYTHON = ("SIGPIPE", "SIGXFSZ")  # which Python ignores
_ORPHANED = b"licet: the process that records has ended, so the command was ended too\n"


class Orders(NamedTuple):
    """What to start. With `network` in a network of its own, whose one way out is a proxy."""

    binary: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    network: bool


def begin(orders: Orders) -> tuple[int, socket.socket]:
    """Fork a guardian; returns its process id, and the socket on which it tells what happens.

    It tells JSON objects with a `kind`: `network` (with a listener for the proxy), `started` (with the listener of the
    filter), `failed`, and last `ended`. Fork before any thread is started.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guardian = os.fork()
    if guardian:
        far.close()
        return guardian, near
    try:
        near.close()
        _guard(orders, far)
    except BaseException as wrong:
        with suppress(OSError):
            _tell_error(far, "guardian", wrong)
    finally:
        os._exit(NOT_STARTED)


def heard(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next thing that a guardian tells, with the files that came along; an empty object if it has ended."""
    data, files, _, _ = socket.recv_fds(control, LARGEST_COMMAND, 1, socket.MSG_CMSG_CLOEXEC)
    told: dict[str, Any] = json.loads(data) if data else {}
    return told, list(files)


def _tell(control: socket.socket, told: Mapping[str, Any], files: Sequence[int] = ()) -> None:
    socket.send_fds(control, [json.dumps(told).encode()], files)


def _tell_error(control: socket.socket, stage: str, wrong: BaseException) -> None:
    number = (wrong.errno or 0) if isinstance(wrong, OSError) else 0
    text = (wrong.strerror if isinstance(wrong, OSError) else None) or repr(wrong)
    _tell(control, {"kind": "failed", "stage": stage, "errno": number, "text": text})


# In the guardian -----------------------------------------------------------------------------------------------------


def _guard(orders: Orders, control: socket.socket) -> NoReturn:
    ignored = tuple(number for number in _LEFT_TO_THE_COMMAND if signal.getsignal(number) == signal.SIG_IGN)
    for number in _LEFT_TO_THE_COMMAND:
        signal.signal(number, signal.SIG_IGN)
    system_calls.prctl("prctl(PR_SET_CHILD_SUBREAPER)", _SUBREAPER, 1)
    if orders.network:
        try:
            namespaces.enter_network()
            with socket.create_server(PROXY, backlog=GUARDIAN_BACKLOG) as listener:
                _tell(control, {"kind": "network"}, [listener.fileno()])
        except OSError as wrong:
            _tell_error(control, "network", wrong)
            os._exit(NOT_STARTED)
    children = _told_of_children()
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guardian = os.getpid()
    command = os.fork()
    if not command:
        signal.set_wakeup_fd(-1)
        _become(orders, far, guardian, ignored)
    far.close()
    told, files = heard(near)
    if not files:
        _tell(control, told or {"kind": "failed", "stage": "filter", "errno": 0, "text": "it ended at once"})
        os._exit(NOT_STARTED)
    _tell(control, {"kind": "started", "pid": command}, files)  # the guardian keeps its copy
    failed, status = _wait(command, children, control, near)
    left = _end_all(LEFT_RUNNING_SECONDS)
    _tell(control, failed or {"kind": "ended", "status": status, "left": left})
    os._exit(0)


def _become(orders: Orders, far: socket.socket, guardian: int, ignored: Sequence[int]) -> NoReturn:
    """Install the filter, hand out its listener, and execute the command."""
    stage = "filter"
    try:
        of_python = [getattr(signal, name) for name in _OF_PYTHON]
        for number in (*of_python, *_LEFT_TO_THE_COMMAND, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        hardening.die_with(guardian)
        hardening.no_new_privs()
        listener = notifications.install(reported_calls.program(system_calls.machine()))
        socket.send_fds(far, [b"{}"], [listener])
        os.close(listener)
        stage = "start"
        os.execve(orders.binary, orders.argv, orders.environment)  # noqa: S606 - it is what the user typed
    except OSError as wrong:
        _tell_error(far, stage, wrong)
    finally:
        os._exit(NOT_STARTED)


def _told_of_children() -> int:
    """A pipe that can be read when a child has ended."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _wait(command: int, children: int, control: socket.socket, near: socket.socket) -> tuple[dict[str, Any], int]:
    """Wait for the command; returns why it could not be started, if so, and its wait status. Orphans are reaped."""
    failed: dict[str, Any] = {}
    waiting = select.poll()
    for file in (children, control.fileno(), near.fileno()):
        waiting.register(file, select.POLLIN)
    while True:
        for file, _ in waiting.poll():
            if file == control.fileno():  # nothing is ever sent here, so the other end is closed
                _end_all(0)
                os.write(2, _ORPHANED)
                os._exit(NOT_STARTED)
            if file == near.fileno():
                failed = heard(near)[0]
                waiting.unregister(file)
                continue
            with suppress(BlockingIOError):
                os.read(children, 4096)
            while (ended := _reaped()) is not None:
                if ended[0] == command:
                    if not failed:  # what it said last is there before it ends
                        failed = heard(near)[0]
                    return failed, ended[1]


def _reaped() -> tuple[int, int] | None:
    """The id and the wait status of a child that has ended; None if there is none."""
    try:
        child, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (child, status) if child else None


def _end_all(grace: float) -> int:
    """End all processes below this one; returns how many there were."""
    first = below(os.getpid())
    number, since = (signal.SIGTERM if grace else signal.SIGKILL), time.monotonic()
    left = first
    while left:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        while _reaped() is not None:
            pass
        time.sleep(0.01)
        left = below(os.getpid())
        if time.monotonic() - since >= grace:
            number = signal.SIGKILL
    return len(first)


def below(ancestor: int) -> list[int]:
    """The processes below one, as /proc lists them, without those that have ended."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found, left = [], [ancestor]
    while left:
        more = children.get(left.pop(), [])
        found += more
        left += more
    return found


def end_all_below(ancestor: int) -> None:
    """Kill all processes below one, as long as there are any; children of this process are reaped."""
    while left := below(ancestor):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def adopt_orphans() -> None:
    """Make orphans below this process its children: if the guardian is killed, they can still be found and ended."""
    with suppress(OSError):
        system_calls.prctl("prctl(PR_SET_CHILD_SUBREAPER)", _SUBREAPER, 1)
