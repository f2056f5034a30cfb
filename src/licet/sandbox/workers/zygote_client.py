"""Starts the zygote, asks it for workers, and watches what they use and how they end.

A host process has one zygote. It starts with the first tool behind walls, and again if it dies. A fork of the host
closes the inherited files and starts a zygote of its own.
"""

import asyncio
import contextlib
import itertools
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from licet.core.decision.request import Reason
from licet.guard.execution import SandboxUnavailable
from licet.guard.grant import Access
from licet.sandbox import scratch
from licet.sandbox.bridge.wire import FROM_HOST, Closed, Wire, packed, send_all
from licet.sandbox.kernel.entry_count import EntryCount
from licet.sandbox.limits import (
    MOST_PRINTED,
    MOST_SCRATCH_ENTRIES,
    RUNNING_LOOK_SECONDS,
    WAITING_LOOK_SECONDS,
    WORKER_BUFFER,
    ZYGOTE_SECONDS,
)
from licet.sandbox.programs.supervisor_client import libraries, own_interpreter

# Third-party packages are imported from the directories that are passed as arguments. `site` does not run, because it
# would execute `.pth` files; it only adds the builtins that tools expect: `exit`, `help` and others.
_START = """
import site
control, base, sys.prefix, sys.exec_prefix, *path = sys.argv[1:]
sys.path += [place for place in path if place not in sys.path]
site.setquit(), site.setcopyright(), site.sethelper()
from licet.sandbox.workers.zygote import main
main(int(control), base)
"""


class Watched(Struct, frozen=True):
    """Limits of a worker that the kernel does not enforce."""

    scratch_bytes: int
    threads: int
    entries: int | None = None  # that it may make in directories during a call; None if they are not counted


class WorkerExit(Struct, frozen=True):
    """How a worker ended: its wait status, its CPU time, and the reason if the host ended it."""

    status: int
    cpu: float
    ended: tuple[Reason, str] | None
    why: int = 0  # its own exit report, from before any code of a tool ran
    start_error: str = ""  # why it could not be started


class WorkerProcess:
    """One worker, as the host sees it: a socket, a number, and how it ended."""

    def __init__(self, number: int, end: socket.socket, logs: int, directory: str, watched: Watched) -> None:
        self.number, self.end, self.scratch, self.watched = number, end, directory, watched
        self._logs = logs  # a pipe that does not block: what the worker prints, and does not fit, is dropped
        self.pid = 0  # until the zygote has reported it, which may be after the first result of the worker
        self.access: Access | None = None  # the kernel rules around it
        self.calls = 0
        self.entries: EntryCount | None = None  # of what it makes in directories, if that is counted
        self.scratch_changed = 0  # mtime of the directory when it was last seen empty
        self.ended: tuple[Reason, str] | None = None
        self.exit: WorkerExit | None = None
        self._lock = threading.Lock()
        self._waiting: list[Callable[[WorkerExit], None]] = []
        self._heard, self._written = select.poll(), select.poll()
        self._heard.register(end, select.POLLIN)
        self._written.register(logs, select.POLLIN)

    def exited(self, exit_: WorkerExit) -> None:
        """Note how it ended, and wake everyone who waits for that."""
        with self._lock:
            self.exit = exit_
            waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell(exit_)

    async def wait_for_exit(self, seconds: float) -> WorkerExit | None:
        """How it ended; None if that is not known within some seconds."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[WorkerExit] = loop.create_future()

        def hear(exit_: WorkerExit) -> None:
            if not ended.done():
                ended.set_result(exit_)

        def tell(exit_: WorkerExit) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(hear, exit_)

        with self._lock:
            if self.exit is not None:
                return self.exit
            self._waiting.append(tell)
        try:
            return await asyncio.wait_for(ended, seconds)
        except TimeoutError:
            return None

    def printed(self) -> bytes:
        """What it has written to its standard output and error since the last time, as far as it was kept."""
        pieces: list[bytes] = []
        while self._written.poll(0) and sum(map(len, pieces)) < MOST_PRINTED:
            try:
                piece = os.read(self._logs, MOST_PRINTED)
            except OSError:  # closed
                break
            if not piece:
                break
            pieces.append(piece)
        return b"".join(pieces)[:MOST_PRINTED]

    def close(self) -> None:
        """Close the connection to it."""
        self.end.close()
        if self.entries is not None:
            self.entries.close()
        if self._logs >= 0:
            os.close(self._logs)
            self._logs = -1

    def silent(self) -> bool:
        """Whether it has sent nothing unasked, and has not closed its socket."""
        return not self._heard.poll(0)

    def cpu_seconds(self) -> float:
        """The CPU time that it has used, as the kernel counts it; 0 until its pid is known, and after its end."""
        if not self.pid:  # the kernel takes 0 for this process, so the worker would be charged with the host's time
            return 0.0
        try:
            return time.clock_gettime((~self.pid << 3) | 2)  # the CPU clock of another process, as in <time.h>
        except OSError:
            return 0.0


class Zygote:
    """A running zygote and its workers."""

    def __init__(self, path: list[str]) -> None:
        if not sys.executable:
            raise SandboxUnavailable("the path of this Python interpreter is unknown, and workers are started from it")
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.workers: dict[int, WorkerProcess] = {}
        self._running: set[WorkerProcess] = set()
        self._idle = False
        self._glanced = 0.0
        self.dead = False
        self._ready = False
        try:
            self.base = scratch.new()
        except OSError as wrong:
            raise SandboxUnavailable(f"no scratch directory can be made: {wrong}") from wrong
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - its standard error, until it is ready
        self._last_words = b""  # of a zygote that ended before it was ready
        ours, theirs = socket.socketpair()
        self._woken, self._wake = socket.socketpair()
        ours.settimeout(ZYGOTE_SECONDS)
        arguments = [str(theirs.fileno()), self.base, sys.prefix, sys.exec_prefix, *path]
        # One malloc arena: each thread of a tool would otherwise reserve memory that counts and is never used.
        environment = {"MALLOC_ARENA_MAX": "1", **libraries()}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [*own_interpreter(_START, "-B"), *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said,
                pass_fds=[theirs.fileno()], env=environment, cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError as wrong:
            self._said.close()
            for end in (ours, self._woken, self._wake):
                end.close()
            scratch.remove(self.base)
            raise SandboxUnavailable(f"the process that workers come from cannot be started: {wrong}") from wrong
        finally:
            theirs.close()
        self._control = ours
        threading.Thread(target=self._listen, name="licet-workers", daemon=True).start()

    def lives(self) -> bool:
        """Whether it can start workers. Asks the kernel too, which knows of an exit before the listening thread."""
        return not self.dead and self._process.poll() is None

    def spawn(self, spec: Callable[[str], bytes], watched: Watched, files: Sequence[int] = ()) -> WorkerProcess:
        """Start a worker and send it its specification, with open files that the specification counts.

        It may still be building its walls when this returns.
        """
        number = next(self._numbers)
        directory = os.path.join(self.base, str(number))
        ours, theirs = socket.socketpair()
        logs, prints = os.pipe()
        for fd in (logs, prints):
            os.set_blocking(fd, False)
        worker = WorkerProcess(number, ours, logs, directory, watched)
        try:
            os.mkdir(directory, 0o700)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WORKER_BUFFER)
            ours.settimeout(ZYGOTE_SECONDS)
            self.workers[number] = worker
            if watched.entries is None:
                self._tell({"number": number}, theirs.fileno())
            else:
                worker.entries = EntryCount(watched.entries)
                self._tell({"number": number, "entries": watched.entries}, theirs.fileno(), worker.entries.file)
            send_all(ours, spec(directory), (prints, *files))
            ours.setblocking(False)
        except OSError as wrong:
            worker.close()
            raise SandboxUnavailable(self._start_error() or f"no worker can be started: {wrong}") from wrong
        finally:
            theirs.close()
            os.close(prints)
        return worker

    def watch(self, worker: WorkerProcess) -> None:
        """Watch a worker more closely while a call runs in it."""
        worker.calls += 1
        self._running.add(worker)
        if self._idle:
            self._idle = False
            with contextlib.suppress(OSError):
                self._wake.send(b"x", socket.MSG_DONTWAIT)

    def unwatch(self, worker: WorkerProcess) -> None:
        """Watch a worker less often: its call is over."""
        self._running.discard(worker)

    def end(self, worker: WorkerProcess, why: tuple[Reason, str] | None = None) -> None:
        """Kill a worker."""
        if why is not None and worker.ended is None:
            worker.ended = why
        self._running.discard(worker)
        with contextlib.suppress(OSError):
            self._tell({"number": worker.number, "end": 1})
        if why is None:
            worker.close()

    def _tell(self, order: dict[str, int], *files: int) -> None:
        with self._lock:
            try:
                send_all(self._control, packed(order), files)
            except OSError:
                self.dead = True
                raise

    # In a thread of its own -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        listening = socket.socket(fileno=os.dup(self._control.fileno()))
        wire = Wire(listening, FROM_HOST)
        poll = select.poll()
        poll.register(listening, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while True:
                self._idle = not self._running
                pause = (WAITING_LOOK_SECONDS if self.workers else None) if self._idle else RUNNING_LOOK_SECONDS
                ready = {fd for fd, _ in poll.poll(None if pause is None else pause * 1000)}
                if self._woken.fileno() in ready:
                    self._woken.recv(64)
                if listening.fileno() in ready:
                    wire.take()
                    for frame in wire.frames():
                        self._heard(frame.head)
                else:
                    self._look()
        except (Closed, OSError, ValueError):
            self._zygote_exited()
        finally:
            wire.close()
            self._woken.close()
            self._wake.close()

    def _start_error(self) -> str:
        """Why the zygote ended before it was ready; empty if it was ready, or may still become so."""
        if self._ready or (not self.dead and self._process.poll() is None):
            return ""
        with contextlib.suppress(OSError, ValueError):  # the other thread has read it, and closed the file
            self._last_words = os.pread(self._said.fileno(), WORKER_BUFFER, 0)
        lines = self._last_words.decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it reported no reason")
        return f"the process that workers come from ended at once: {said[:500]}"

    def _heard(self, said: dict[str, Any]) -> None:
        if "ready" in said:
            self._ready = True
            self._said.close()
        worker = self.workers.get(said["number"])
        if worker is None:
            return
        if "started" in said:
            worker.pid = said["started"]
            return
        self.workers.pop(worker.number, None)
        self._running.discard(worker)
        worker.exited(WorkerExit(said["exited"], said["cpu"], worker.ended, said.get("why", 0), said.get("error", "")))
        scratch.remove(worker.scratch)

    def _look(self) -> None:
        """End workers that exceed a limit. Waiting ones are checked less often: code of a tool may run in them too."""
        now = time.monotonic()
        all_of_them = now >= self._glanced + WAITING_LOOK_SECONDS
        if all_of_them:
            self._glanced = now
        for worker in tuple(self.workers.values() if all_of_them else self._running):
            kept = scratch.used(worker.scratch)
            if kept.size > worker.watched.scratch_bytes or kept.entries >= MOST_SCRATCH_ENTRIES:
                most = worker.watched.scratch_bytes >> 20
                self.end(worker, ("LIMIT_DISK", f"it put more than {most} MB into its scratch directory"))
            elif self._threads(worker) > worker.watched.threads:
                self.end(worker, ("LIMIT_PROCESSES", f"it started more than {worker.watched.threads} threads"))

    def _threads(self, worker: WorkerProcess) -> int:
        try:
            return os.stat(f"/proc/{worker.pid}/task").st_nlink - 2 if worker.pid else 0
        except OSError:
            return 0

    def _zygote_exited(self) -> None:
        """Note the end of the zygote, with which all its workers end."""
        self.dead = True
        start_error = self._start_error()
        self._said.close()
        for worker in list(self.workers.values()):
            self.workers.pop(worker.number, None)
            ended = worker.ended or ("TOOL_CRASHED", "the process that workers come from has died")
            worker.exited(WorkerExit(-1, 0.0, ended, start_error=start_error))
            scratch.remove(worker.scratch)
        scratch.remove(self.base)

    def close(self) -> None:
        """End the zygote and all its workers."""
        self.dead = True
        self._hang_up()
        try:
            self._process.wait(ZYGOTE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        scratch.remove(self.base)

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()

    def abandon(self) -> None:
        """In a fork of the host: close the inherited files and leave the zygote to the parent."""
        self.dead = True
        self._process.returncode = 0
        self._said.close()
        ends: list[socket.socket | WorkerProcess] = [self._control, self._woken, self._wake, *self.workers.values()]
        for end in ends:
            with contextlib.suppress(OSError):
                end.close()
