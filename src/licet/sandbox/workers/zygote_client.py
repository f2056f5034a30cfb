"""The host's side of the zygote: it starts it, has workers forked, hears how they end, and watches what they use.

One zygote for a process, started when a tool is first run behind walls and again if it dies. A forked copy of the host
starts its own: it closes what it inherited and touches nothing of its parent's.
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
from collections.abc import Callable
from typing import Any, NamedTuple

from licet.core.decision.decision import Reason
from licet.guard.access import Access
from licet.guard.execution import SandboxUnavailable
from licet.sandbox import scratch
from licet.sandbox.programs.supervisor_client import libraries, own_interpreter
from licet.sandbox.workers.wire import FROM_THE_HOST, Closed, Wire, packed, send_all

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
_PATIENCE = 5.0  # seconds that the zygote may take for a message before it is taken for dead
_TICK, _GLANCE = 0.1, 1.0  # seconds between two looks at what workers use: those that run, and those that wait
_BUFFER = 1 << 20


class Watched(NamedTuple):
    """What a worker may use that the kernel does not count for us."""

    scratch_bytes: int
    threads: int


class Death(NamedTuple):
    """How a worker ended: as `wait` says it, the CPU time it had used, and why if the host ended it."""

    status: int
    cpu: float
    ended: tuple[Reason, str] | None
    why: int = 0  # what it said itself, before anything of a tool ran in it
    unborn: str = ""  # why there was none at all


class Child:
    """One worker: a socket, a number, and whatever is known of how it ended."""

    def __init__(self, number: int, end: socket.socket, directory: str, watched: Watched) -> None:
        self.number, self.end, self.scratch, self.watched = number, end, directory, watched
        self.pid = 0
        self.access: Access | None = None  # the rules of the kernel around it
        self.calls = 0
        self.scratch_changed = 0  # when the directory was last seen empty, as its own clock has it
        self.ended: tuple[Reason, str] | None = None
        self.death: Death | None = None
        self._lock = threading.Lock()
        self._waiting: list[Callable[[Death], None]] = []
        self._heard = select.poll()
        self._heard.register(end, select.POLLIN)

    def died(self, death: Death) -> None:
        """Tell whoever waits."""
        with self._lock:
            self.death = death
            waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell(death)

    async def buried(self, seconds: float) -> Death | None:
        """How it ended; None if nobody knows within some seconds."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Death] = loop.create_future()

        def hear(death: Death) -> None:
            if not told.done():
                told.set_result(death)

        def tell(death: Death) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and whoever asked with it
                loop.call_soon_threadsafe(hear, death)

        with self._lock:
            if self.death is not None:
                return self.death
            self._waiting.append(tell)
        try:
            return await asyncio.wait_for(told, seconds)
        except TimeoutError:
            return None

    def silent(self) -> bool:
        """Whether it has said nothing that nobody asked for, and has not hung up."""
        return not self._heard.poll(0)

    def cpu_seconds(self) -> float:
        """The CPU time that it has used so far; nothing it does can change that."""
        try:
            return time.clock_gettime((~self.pid << 3) | 2)  # the clock of another process, as <time.h> makes it
        except OSError:
            return 0.0


class Zygote:
    """A running zygote and its workers."""

    def __init__(self, path: list[str]) -> None:
        if not sys.executable:
            raise SandboxUnavailable("this Python does not know its own program, which workers are started from")
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.children: dict[int, Child] = {}
        self._running: set[Child] = set()
        self._idle = False
        self._glanced = 0.0
        self.dead = False
        self._ready = False
        try:
            self.base = scratch.new()
        except OSError as wrong:
            raise SandboxUnavailable(f"there is no place for scratch directories: {wrong}") from wrong
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - what it says of itself, until it is ready
        ours, theirs = socket.socketpair()
        self._woken, self._wake = socket.socketpair()
        ours.settimeout(_PATIENCE)
        arguments = [str(theirs.fileno()), self.base, sys.prefix, sys.exec_prefix, *path]
        # One arena: threads of a tool would otherwise each reserve memory that counts and that they never use.
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
        """Whether it can be asked for workers; the kernel is asked too, which knows before the listening thread."""
        return not self.dead and self._process.poll() is None

    def spawn(self, spec: Callable[[str], bytes], watched: Watched) -> Child:
        """A new worker; it is told what to be, and may still be busy with that."""
        number = next(self._numbers)
        directory = os.path.join(self.base, str(number))
        ours, theirs = socket.socketpair()
        child = Child(number, ours, directory, watched)
        try:
            os.mkdir(directory, 0o700)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            ours.settimeout(_PATIENCE)
            self.children[number] = child
            self._tell({"number": number}, theirs.fileno())
            send_all(ours, spec(directory))
            ours.setblocking(False)
        except OSError as wrong:
            ours.close()
            raise SandboxUnavailable(self._stillborn() or f"no worker can be started: {wrong}") from wrong
        finally:
            theirs.close()
        return child

    def begin(self, child: Child) -> None:
        """Watch a worker: a call runs in it."""
        child.calls += 1
        self._running.add(child)
        if self._idle:
            self._idle = False
            with contextlib.suppress(OSError):
                self._wake.send(b"x", socket.MSG_DONTWAIT)

    def rest(self, child: Child) -> None:
        """Stop watching: the call is over, and the worker stays."""
        self._running.discard(child)

    def end(self, child: Child, why: tuple[Reason, str] | None = None) -> None:
        """Kill a worker; whatever it does about it."""
        if why is not None and child.ended is None:
            child.ended = why
        self._running.discard(child)
        with contextlib.suppress(OSError):
            self._tell({"number": child.number, "end": 1})
        if why is None:
            child.end.close()

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
        wire = Wire(listening, FROM_THE_HOST)
        poll = select.poll()
        poll.register(listening, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while True:
                self._idle = not self._running
                pause = (_GLANCE if self.children else None) if self._idle else _TICK
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
            self._buried()
        finally:
            wire.close()
            self._woken.close()
            self._wake.close()

    def _stillborn(self) -> str:
        """What went wrong with a zygote that ended before it was ready; empty if it was, or may still be."""
        if self._ready or (not self.dead and self._process.poll() is None):
            return ""
        try:
            self._said.seek(0)
            lines = self._said.read(_BUFFER).decode(errors="replace").split("\n")
        except (OSError, ValueError):  # it is closed
            lines = []
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it did not say why")
        return f"the process that workers come from ended at once: {said[:500]}"

    def _heard(self, said: dict[str, Any]) -> None:
        if "ready" in said:
            self._ready = True
            self._said.close()
        child = self.children.get(said["number"])
        if child is None:
            return
        if "born" in said:
            child.pid = said["born"]
            return
        self.children.pop(child.number, None)
        self._running.discard(child)
        child.died(Death(said["died"], said["cpu"], child.ended, said.get("why", 0), said.get("said", "")))
        scratch.remove(child.scratch)

    def _look(self) -> None:
        """End whoever uses more than it may; those that wait too, less often: code of a tool may run there."""
        now = time.monotonic()
        all_of_them = now >= self._glanced + _GLANCE
        if all_of_them:
            self._glanced = now
        for child in tuple(self.children.values() if all_of_them else self._running):
            kept = scratch.used(child.scratch)
            if kept.size > child.watched.scratch_bytes or kept.entries >= scratch.MOST_SEEN:
                most = child.watched.scratch_bytes >> 20
                self.end(child, ("LIMIT_DISK", f"it put more than {most} MB into its scratch directory"))
            elif self._threads(child) > child.watched.threads:
                self.end(child, ("LIMIT_PROCESSES", f"it started more than {child.watched.threads} threads"))

    def _threads(self, child: Child) -> int:
        try:
            return os.stat(f"/proc/{child.pid}/task").st_nlink - 2 if child.pid else 0
        except OSError:
            return 0

    def _buried(self) -> None:
        """The zygote is dead, and by their own wish so are its workers."""
        self.dead = True
        unborn = self._stillborn()
        self._said.close()
        for child in list(self.children.values()):
            self.children.pop(child.number, None)
            ended = child.ended or ("TOOL_CRASHED", "the process that workers come from has died")
            child.died(Death(-1, 0.0, ended, unborn=unborn))
            scratch.remove(child.scratch)
        scratch.remove(self.base)

    def close(self) -> None:
        """End the zygote and everything that came from it."""
        self.dead = True
        self._hang_up()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        scratch.remove(self.base)

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()

    def abandon(self) -> None:
        """In a fork of the host: forget it all, and let the parent have it."""
        self.dead = True
        self._process.returncode = 0
        self._said.close()
        for end in (self._control, self._woken, self._wake, *(child.end for child in self.children.values())):
            with contextlib.suppress(OSError):
                end.close()
