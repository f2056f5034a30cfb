"""Watches a command while it runs: answers every call that waits, records it first, and serves the proxy.

One event loop does all of it, so nothing is recorded twice or out of order. A call is answered whatever was found. If
recording itself fails, the command is ended: a recording with a gap would teach too little.
"""

import asyncio
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from licet.sandbox.kernel import notifications
from licet.sandbox.limits import ACTS_AT_ONCE, FLUSH_SECONDS
from licet.sandbox.observe import guardian
from licet.sandbox.observe.acts import Act, Caller, TooLong, Unreadable, acts_of
from licet.sandbox.observe.recorder import Process, Recorder, RecordingProxy

_LISTENS = "0A"  # a state in /proc/net/tcp
_FORWARDED = {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP}
_FROM_THE_TERMINAL = 0x80  # SI_KERNEL: the whole foreground group has got it
_PROXY = "{}:{}".format(*guardian.PROXY)
_EXEC = ("execve", "execveat")


class NotObserved(Exception):
    """The command was not run, or was ended, because it could not be observed."""


class Started(Struct):
    """A command that has been started, and waits with its first call."""

    guardian: int
    control: socket.socket
    command: int
    listener: int
    proxy: socket.socket | None  # its listener in the network of the command
    without_network: str = ""  # why it has no network of its own


class Ended(Struct, frozen=True):
    """How a command ended, and how many processes it left running, which were ended."""

    status: int
    left: int

    @property
    def exit_code(self) -> int:
        """As shells report it."""
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code


def start(orders: Callable[[bool], guardian.Orders], *, network: bool, needed: bool = False) -> Started:
    """Start a command, in a network of its own if that is wanted and the machine can; call before any thread starts.

    `orders` are those with such a network, or without. Raises `NotObserved`, also if one is `needed` and cannot be had.
    """
    if sys.platform != "linux":
        raise NotObserved("commands can only be observed on Linux")
    why = ""
    for own in (True, False) if network else (False,):
        process, control = guardian.begin(orders(own))
        proxy: socket.socket | None = None
        told, files = guardian.heard(control)
        if told.get("kind") == "network":
            proxy = socket.socket(fileno=files[0])
            told, files = guardian.heard(control)
        if told.get("kind") == "started":
            return Started(process, control, told["pid"], files[0], proxy, why)
        control.close()
        os.waitpid(process, 0)
        if proxy is not None:
            proxy.close()
        if told.get("stage") != "network":
            raise NotObserved(_why_not(told))
        why = str(told.get("text"))
        if needed:
            raise NotObserved(f"--inspect needs a proxy, and this machine has no network namespaces: {why}")
    raise NotObserved("the command could not be started")


def _why_not(told: dict[str, Any]) -> str:
    text = told.get("text") or "it ended without a reason"
    if told.get("stage") == "filter":
        return (
            f"this kernel, or a sandbox around this process, does not report system calls (seccomp user notification): "
            f"{text}. It needs Linux 5.5 or newer, and no other observer around it"
        )
    return f"the command could not be started: {text}"


def watch(started: Started, recorder: Recorder, proxy: RecordingProxy | None, name: str) -> Ended:
    """Answer and record until the command has ended. `name` is its program. Raises `NotObserved`."""
    guardian.adopt_orphans()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    try:
        done = threading.Event()
        threading.Thread(target=_forward, args=(started.command, done), daemon=True).start()
        try:
            return asyncio.run(_Watch(started, recorder, name).run(proxy))
        finally:
            done.set()
    finally:
        while signal.sigtimedwait(_FORWARDED, 0):  # the command has got them, too
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with suppress(ChildProcessError):
            os.waitpid(started.guardian, 0)
        started.control.close()
        os.close(started.listener)


def _forward(command: int, done: threading.Event) -> None:
    """Pass signals on that were sent to this process alone."""
    while not done.is_set():
        came = signal.sigtimedwait(_FORWARDED, 0.2)
        if came is not None and came.si_code != _FROM_THE_TERMINAL and not done.is_set():
            with suppress(ProcessLookupError):
                os.kill(command, came.si_signo)


class _Watch:
    def __init__(self, started: Started, recorder: Recorder, name: str) -> None:
        self._started, self._recorder, self._name = started, recorder, name
        self._numbers: dict[int, int] = {}
        self._proxy: RecordingProxy | None = None
        self._begun = False
        self._flushing = False
        # Addresses of its own loopback where it found no server: one of the machine may have been meant.
        self._unheard: dict[str, None] = {}
        self._poll = select.poll()
        self._poll.register(started.listener, select.POLLIN)

    async def run(self, proxy: RecordingProxy | None) -> Ended:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[Ended] = self._loop.create_future()
        if proxy is not None and self._started.proxy is not None:
            self._proxy = proxy
            await proxy.serve_in(self._started.proxy, self._started.guardian, self._process_of, self._flush_soon)
        self._loop.add_reader(self._started.listener, self._guarded, self._answer)
        self._loop.add_reader(self._started.control, self._guarded, self._hear)
        try:
            return await self._done
        finally:
            self._loop.remove_reader(self._started.listener)
            self._loop.remove_reader(self._started.control)
            if proxy is not None:
                await proxy.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do a piece of the work; if it fails, end the command."""
        try:
            work()
        except Exception as wrong:
            if not isinstance(wrong, NotObserved):
                wrong = NotObserved(f"recording failed, so the command was ended: {wrong}")
            if not self._done.done():
                self._done.set_exception(wrong)
            self._loop.remove_reader(self._started.listener)
            self._loop.remove_reader(self._started.control)
            guardian.end_all_below(self._started.guardian)

    # The guardian ----------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        told, _ = guardian.heard(self._started.control)
        if told.get("kind") == "ended":
            self._end(Ended(told["status"], told["left"]))
        elif told:
            raise NotObserved(_why_not(told))
        else:
            guardian.end_all_below(os.getpid())
            raise NotObserved("the process that guards the command was killed, so the command was ended")

    def _end(self, ended: Ended) -> None:
        for target in self._unheard:
            self._recorder.note("direct", target)
        if not self._done.done():
            self._done.set_result(ended)

    # Calls -----------------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        listener = self._started.listener
        for _ in range(ACTS_AT_ONCE):
            ready = self._poll.poll(0)
            if not ready:
                return
            if not ready[0][1] & select.POLLIN:  # no process has this filter any more
                self._loop.remove_reader(listener)
                return
            notice = notifications.receive(listener)
            if notice is None:
                continue
            try:
                self._look(notice)
            finally:
                notifications.go_on(listener, notice)

    def _look(self, notice: notifications.Notice) -> None:
        process, name = _process_of_thread(notice.thread)
        if not process:
            return
        if not self._begun:  # calls of licet itself
            self._begun = notice.name in _EXEC
            if not self._begun:
                return
            who = Process(self._number(process), self._name)
        else:
            who = Process(self._number(process), name)
        caller = Caller(notice.thread, process)
        try:
            acts = acts_of(notice, caller)
        except Unreadable:
            if notifications.waits(self._started.listener, notice):
                self._recorder.unreadable += 1
            return
        except TooLong:
            self._recorder.note("unnamed", "one with a path of more than 4096 bytes")
            return
        finally:
            caller.close()
        # Otherwise the thread was killed, and what was looked at may be of another one.
        if acts and notifications.waits(self._started.listener, notice):
            for act in acts:
                self._add(who, process, act)

    def _add(self, who: Process, process: int, act: Act) -> None:
        if act.what == "connect" and self._proxy is not None:
            if act.target == _PROXY:
                self._proxy.clients[process] = None
                return
            if act.target.startswith(("127.", "[::1]")):  # a server of its own: nothing else is there
                if _is_listened_to(process, int(act.target.rpartition(":")[2])):
                    self._unheard.pop(act.target, None)
                else:
                    self._unheard[act.target] = None
                return
            act = Act("direct", act.target)
        if self._recorder.add(who, act):
            self._flush_soon()

    def _number(self, process: int) -> int:
        return self._numbers.setdefault(process, len(self._numbers) + 1)

    def _process_of(self, process: int | None) -> Process:
        """The process with an id, as it is recorded; the command itself if it is not known."""
        if process is None:
            return Process(1, self._name)
        return Process(self._number(process), _program_name(process) or self._name)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_later(FLUSH_SECONDS, self._guarded, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._recorder.flush()


def _process_of_thread(thread: int) -> tuple[int, str]:
    """The id of the process that a thread belongs to, and the name of its program; 0 if it has ended."""
    status = _short(f"/proc/{thread}/status")
    name, found, rest = status.partition(b"\nTgid:")
    if not found:
        return 0, ""
    process = int(rest.split(None, 1)[0])
    if process != thread:  # threads may have names of their own
        return process, _program_name(process)
    return process, name.partition(b"\n")[0].removeprefix(b"Name:").decode("utf-8", "replace").strip()


def _is_listened_to(process: int, port: int) -> bool:
    """Whether a server listens on a port in the network of a process; IPv6 sockets often serve IPv4, too."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/{process}/net/{table}", encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[3] == _LISTENS and fields[1].endswith(f":{port:04X}"):
                    return True
    return False


def _program_name(process: int) -> str:
    return _short(f"/proc/{process}/comm").decode("utf-8", "replace").strip()


def _short(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, 4096)
    except OSError:
        return b""
    finally:
        os.close(file)
