"""The zygote: a small, clean process that has imported everything workers need, and forks them.

It holds nothing of the host: no environment, files, arguments or names of tools. A worker receives its specification
over a socket of its own, which the zygote only passes on. The zygote has one thread, so that forking is safe.
"""

import asyncio
import gc
import os
import select
import signal
import socket
import sys
import threading
from typing import NoReturn

from licet.sandbox import scratch
from licet.sandbox.bridge.wire import FROM_HOST, Closed, Wire, packed
from licet.sandbox.kernel import hardening, landlock, seccomp
from licet.sandbox.kernel.entry_count import EntryCount
from licet.sandbox.limits import THREAD_STACK
from licet.sandbox.workers import worker
from licet.sandbox.workers.entry_limits import EntryLimits

_REHEARSALS = 16


def main(control: int, base: str) -> NoReturn:
    """Fork workers until the host closes the connection; then kill them and remove their scratch."""
    if sys.platform == "linux":  # on other systems only WASM tools run here, and wasmtime is their wall
        hardening.close_all_but({0, 1, 2, control})
        hardening.no_new_privs()
        hardening.drop_capabilities()  # here, so that no worker has to
    hardening.limit(hardening.Limits())
    os.environ.clear()
    os.environ["LANG"] = "C.UTF-8"
    os.umask(0o077)
    os.chdir("/")
    threading.stack_size(THREAD_STACK)
    _warm()
    woken, wake = _pipe()
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    wire = Wire(socket.socket(fileno=control), FROM_HOST)
    reports = _pipe()
    workers: dict[int, int] = {}  # by pid
    reasons: dict[int, int] = {}  # why workers end, by pid
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(woken, select.POLLIN)
    limits = EntryLimits(poll)
    gc.collect()
    os.dup2(1, 2)  # errors up to here reach the host; what tools write there is dropped
    wire.send({"number": 0, "ready": 1})
    gc.freeze()  # garbage collection in a worker would copy the pages of everything imported here
    while True:
        ready = dict(poll.poll())
        limits.look(ready)
        try:
            if woken in ready:
                os.read(woken, 4096)
                _reap(wire, workers, reports[0], reasons)
            if control in ready:
                wire.take()
                for frame in wire.frames():
                    _obey(wire, workers, frame.head, reports[1], limits)
        except Closed:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            for pid in workers:
                os.waitpid(pid, 0)
            scratch.remove(base)  # a host that was killed cannot
            os._exit(0)


def _pipe() -> tuple[int, int]:
    """A pipe that never blocks."""
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


def _obey(wire: Wire, workers: dict[int, int], order: dict[str, int], reports: int, limits: EntryLimits) -> None:
    number = order["number"]
    if "end" in order:
        # A pid belongs to its worker until it is reaped here, so no other process is hit.
        for pid in [pid for pid, its in workers.items() if its == number]:
            os.kill(pid, signal.SIGKILL)
        return
    end, *counts = wire.files(1 + ("entries" in order))
    judge: socket.socket | None = None  # the socket for the worker's listener, if what it makes is counted
    parent = os.getpid()
    try:
        if counts:
            judge = limits.expect(EntryCount(order["entries"], counts[0]))
        pid = os.fork()
    except OSError as wrong:
        wire.send({"number": number, "exited": -1, "cpu": 0, "error": f"no worker can be started: {wrong}"})
        os.close(end)
        if judge is not None:
            judge.close()
        return
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            limits.close()
            worker.live(socket.socket(fileno=end), parent, reports, judge)
        finally:
            os._exit(1)
    os.close(end)
    if judge is not None:
        judge.close()
    workers[pid] = number
    wire.send({"number": number, "started": pid})


def _reap(wire: Wire, workers: dict[int, int], reports: int, reasons: dict[int, int]) -> None:
    while workers:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if not pid:
            return
        number = workers.pop(pid, None)
        if number is not None:
            reasons.update(_read_reports(reports))  # a worker reports before it ends
            said = {
                "number": number,
                "exited": status,
                "cpu": used.ru_utime + used.ru_stime,
                "why": reasons.pop(pid, 0),
            }
            wire.send(said)


def _read_reports(reports: int) -> dict[int, int]:
    """The exit reports since the last read: pid and reason."""
    try:
        return dict(worker.EXIT_REPORT.iter_unpack(os.read(reports, 512 * worker.EXIT_REPORT.size)))
    except BlockingIOError:
        return {}


def _warm() -> None:
    """Import what every worker uses, including modules that are imported on first use."""
    import datetime  # noqa: F401
    import decimal  # noqa: F401
    import enum  # noqa: F401
    import uuid  # noqa: F401

    from licet.declare.arguments import validator
    from licet.declare.plain_json import plain_data, plain_json

    def sample(a: int, b: str = "") -> int:
        return a

    if landlock.abi():
        for counts in (False, True):
            seccomp.program(counts=counts)  # cached: a worker installs it as it is
    validator(sample, None)({"a": 1})
    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))
    # The interpreter specializes bytecode in its first runs; in a worker this would copy memory pages.
    for _ in range(_REHEARSALS):
        plain_data(plain_json({"a": [1]}))
        _rehearse()


def _rehearse() -> None:
    """Do the steps of a worker that leave no trace."""
    one, other = socket.socketpair()
    with one, other:
        wire = Wire(one, FROM_HOST)
        other.sendall(packed({"rules": [["/", 0, None]]}) * 2)
        wire.receive()
        wire.send({})
    if landlock.abi():
        os.close(landlock.ruleset([landlock.PathRule("/", landlock.READ)]))
    hardening.limit(hardening.Limits())
