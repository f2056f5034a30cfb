"""The zygote: a small process that was started clean, has everything imported that workers need, and forks them.

It never holds anything of the host: no environment, no files, no arguments, no names of tools. What a worker is to be
comes to the worker itself, over a socket that is only passed through here. One thread, so that forking is safe.
"""

import asyncio
import gc
import os
import select
import signal
import socket
import threading
from typing import NoReturn

from licet.declare.decorator import declare_later
from licet.sandbox import scratch
from licet.sandbox.kernel import hardening, landlock, seccomp
from licet.sandbox.workers import worker
from licet.sandbox.workers.wire import FROM_THE_HOST, Closed, Wire, packed

_REHEARSALS = 16
_STACK = 2 << 20  # of a thread of a worker: what the system would take counts as memory, and is four times that


def main(control: int, base: str) -> NoReturn:
    """Fork workers until the host hangs up; then everything here ends, and the scratch of all workers goes."""
    hardening.close_all_but({0, 1, 2, control})
    hardening.no_new_privs()
    hardening.drop_capabilities()  # here already, since workers then have nothing left to drop
    hardening.limit(hardening.Limits())
    os.environ.clear()
    os.environ["LANG"] = "C.UTF-8"
    os.umask(0o077)
    os.chdir("/")
    threading.stack_size(_STACK)
    _warm()
    declare_later()
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    wire = Wire(socket.socket(fileno=control), FROM_THE_HOST)
    words = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    workers: dict[int, int] = {}  # by pid
    last: dict[int, int] = {}  # words, by pid
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(woken, select.POLLIN)
    gc.collect()
    os.dup2(1, 2)  # until here the host hears what goes wrong; what tools write there is nobody's
    wire.send({"number": 0, "ready": 1})
    gc.freeze()  # what lives now lives for good: looking at it would only copy its pages
    while True:
        ready = {fd for fd, _ in poll.poll()}
        try:
            if woken in ready:
                os.read(woken, 4096)
                _reap(wire, workers, words[0], last)
            if control in ready:
                wire.take()
                for frame in wire.frames():
                    _obey(wire, workers, frame.head, words[1])
        except Closed:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            for pid in workers:
                os.waitpid(pid, 0)
            scratch.remove(base)  # a host that was killed cannot do it
            os._exit(0)


def _obey(wire: Wire, workers: dict[int, int], order: dict[str, int], words: int) -> None:
    number = order["number"]
    if "end" in order:
        # A pid stays a worker's until it is reaped here, so this reaches no one else.
        for pid in [pid for pid, its in workers.items() if its == number]:
            os.kill(pid, signal.SIGKILL)
        return
    end = wire.file()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as wrong:
        wire.send({"number": number, "died": -1, "cpu": 0, "said": f"no worker can be started: {wrong}"})
        os.close(end)
        return
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            worker.live(socket.socket(fileno=end), parent, words)
        finally:
            os._exit(1)
    os.close(end)
    workers[pid] = number
    wire.send({"number": number, "born": pid})


def _reap(wire: Wire, workers: dict[int, int], words: int, last: dict[int, int]) -> None:
    while workers:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if not pid:
            return
        number = workers.pop(pid, None)
        if number is not None:
            last.update(_heard(words))  # it spoke before it ended
            said = {"number": number, "died": status, "cpu": used.ru_utime + used.ru_stime, "why": last.pop(pid, 0)}
            wire.send(said)


def _heard(words: int) -> dict[int, int]:
    """What workers have said since that was last asked."""
    try:
        return dict(worker.LAST_WORDS.iter_unpack(os.read(words, 512 * worker.LAST_WORDS.size)))
    except BlockingIOError:
        return {}


def _warm() -> None:
    """Load what every worker uses, down to what is loaded when something is first done."""
    import datetime  # noqa: F401
    import decimal  # noqa: F401
    import enum  # noqa: F401
    import uuid  # noqa: F401

    from licet.declare.arguments import validator
    from licet.declare.plain_json import plain_data, plain_json

    def sample(a: int, b: str = "") -> int:
        return a

    if landlock.abi():
        seccomp.program()  # built once, and kept: a worker installs it as it is
    validator(sample, None)({"a": 1})
    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))
    # Python rewrites what it runs for the first few times, and a worker would copy each page that is written to.
    for _ in range(_REHEARSALS):
        plain_data(plain_json({"a": [1]}))
        _rehearse()


def _rehearse() -> None:
    """Do what a worker will do, as far as it leaves no trace."""
    one, other = socket.socketpair()
    with one, other:
        wire = Wire(one, FROM_THE_HOST)
        other.sendall(packed({"rules": [["/", 0, None]]}) * 2)
        wire.receive()
        wire.send({})
    if landlock.abi():
        os.close(landlock.ruleset([landlock.Rule("/", landlock.READ)]))
    hardening.limit(hardening.Limits())
