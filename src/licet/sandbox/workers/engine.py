"""The levels `restricted` and `isolated`: runs each tool in a worker, a walled process that waits for its call.

`Workers.run` takes a worker from the pool, serves its questions with a `Broker`, and turns the outcome into the value
or error of the call. A worker serves one call, or many if the tool has `reuse=True`. A failing worker ends its own call
and nothing else.

`run_errand` runs a function of licet itself once, in such a worker: for untrusted input. It blocks, so it is for
threads. The worker may read the interpreter, libraries and licet, and the files that are named; it writes to its
scratch directory alone.
"""

import asyncio
import atexit
import errno
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from licet.core.policy.layer import Level
from licet.core.values import Origin
from licet.declare import Tool
from licet.declare.plain_json import plain_data, plain_json
from licet.guard.bind import BoundContext, parts_of
from licet.guard.execution import JsonText, Layers, Raised, Sandbox, SandboxUnavailable, Stopped, ToolCall, Walls
from licet.guard.ports import free_after_fork
from licet.sandbox import probe
from licet.sandbox.bridge.broker import Broker, WorkerOutcome
from licet.sandbox.bridge.wire import FROM_WORKER, BrokenWire, Closed, FrameTooLarge, Overrun, Wire, packed
from licet.sandbox.grant_paths import base_rules
from licet.sandbox.kernel import landlock
from licet.sandbox.limits import ERRAND_EXIT_SECONDS, EXIT_SECONDS, LARGEST_LINE_NUMBER, MOST_PREPARED
from licet.sandbox.programs.walls import ProgramWalls
from licet.sandbox.workers.pool import GuestParts, Prepared, close_workers, pool, prepare, start_of
from licet.sandbox.workers.tool_source import ToolSource, import_path
from licet.sandbox.workers.worker import NO_WALLS, OUT_OF_MEMORY
from licet.sandbox.workers.zygote_client import Watched, WorkerExit, WorkerProcess, Zygote

T = TypeVar("T")


def value_of(outcome: WorkerOutcome, prepared: Prepared, *, full: bool = False) -> Any:
    """The value that the tool returned. Raises what the tool raised.

    `full`: whether it was refused an entry in a directory, because it had made as many as it may.
    """
    limits, guest = prepared.limits, prepared.guest
    if outcome.refusal is not None:
        raise outcome.refusal
    kind, text = outcome.head.get("error"), outcome.head.get("text")
    if kind is None:
        return JsonText(outcome.blob)  # its size is checked where the call ends, before it is parsed
    kind, text = str(kind), str(text)
    for reason in guest.reports if guest is not None and kind == "GuestStopped" else ():
        if reason == outcome.head.get("reason"):
            raise Stopped(reason, text)
    number = outcome.head.get("errno")
    if kind == "MemoryError":
        raise Stopped("LIMIT_MEMORY", f"it needed more than {limits['memory_mb']} MB of memory")
    if kind == "TooLong":
        raise Stopped("LIMIT_OUTPUT", text)
    if number == errno.EFBIG:
        raise Stopped("LIMIT_FILE_SIZE", f"it wrote a file of more than {limits['file_mb']} MB")
    if number == errno.EMFILE:
        raise Stopped("LIMIT_FILES", f"it had more than {limits['open_files']} files open")
    if (kind, text) == ("RuntimeError", "can't start new thread"):
        raise Stopped("LIMIT_PROCESSES", "it started more threads than its memory holds")
    if full:  # the host's own count, whatever the tool made of the error
        raise _too_many_entries(limits)
    line = outcome.head.get("line")
    known = line if type(line) is int and 0 < line <= LARGEST_LINE_NUMBER else 0
    loading = outcome.head.get("loading")
    if loading is None:
        printed = outcome.head.get("printed") if guest is not None else ""
        raise Raised(kind, text, known, number in (errno.EPERM, errno.EACCES), printed=str(printed or ""))
    file, _ = prepared.fixed["modules"].get(str(loading), (None, None))  # a file that the host named, and no other
    raise Raised(kind, text, origin=Origin(file, known, 1) if file and known else None, loading=True)


def _too_many_entries(limits: Mapping[str, int]) -> Stopped:
    return Stopped("LIMIT_PATHS", f"it made more than {limits['written_paths']} files and directories")


async def stopped(zygote: Zygote, worker: WorkerProcess, wrong: Exception, limits: Mapping[str, int]) -> Exception:
    """Why a worker gave no answer, as the kernel and the zygote report it: a tool's own report is not believed.

    Returns `Stopped`, or `SandboxUnavailable` if no code of the tool ran.
    """
    if isinstance(wrong, Overrun):
        return Stopped(wrong.reason, str(wrong))
    if isinstance(wrong, FrameTooLarge):
        return Stopped("LIMIT_OUTPUT", "the tool's process sent more than one message may hold")
    if isinstance(wrong, BrokenWire):
        return Stopped("TOOL_CRASHED", "the tool's process broke the protocol")
    await asyncio.sleep(0)
    # The worker may have closed its socket and still run. The zygote kills it, and reports its exit in either case.
    zygote.end(worker, worker.ended or ("TOOL_CRASHED", "the tool's process hung up"))
    exit_ = await worker.wait_for_exit(EXIT_SECONDS)
    if exit_ is None:
        return Stopped("TOOL_CRASHED", "the tool's process ended, and its exit status is not known")
    if exit_.start_error:
        return SandboxUnavailable(exit_.start_error)
    if exit_.why == NO_WALLS:
        return SandboxUnavailable("a wall could not be built in the tool's process")
    if exit_.ended is not None and exit_.ended[0] != "TOOL_CRASHED":
        return Stopped(*exit_.ended)
    code = os.waitstatus_to_exitcode(exit_.status) if exit_.status >= 0 else 0
    killer = max(-code, 0)
    if killer == signal.SIGXCPU or (killer == signal.SIGKILL and exit_.cpu >= limits["cpu_seconds"]):
        return Stopped("LIMIT_CPU", f"it used more than {limits['cpu_seconds']} seconds of CPU time")
    if killer == signal.SIGXFSZ:
        return Stopped("LIMIT_FILE_SIZE", f"it wrote a file of more than {limits['file_mb']} MB")
    if exit_.why == OUT_OF_MEMORY:
        return Stopped("LIMIT_MEMORY", f"it needed more than {limits['memory_mb']} MB of memory")
    if _is_full(worker):
        return _too_many_entries(limits)
    said = f"was killed by {signal.Signals(killer).name}" if killer else f"ended with code {code}"
    return Stopped("TOOL_CRASHED", f"the tool's process {said} and gave no answer")


def _is_full(worker: WorkerProcess) -> bool:
    return worker.entries is not None and worker.entries.is_exceeded


_Key = tuple[int, frozenset[tuple[str, int]], Level]  # the id of a registered tool, which what is prepared refers to


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.start_afresh)
atexit.register(close_workers)


class Workers:
    """Runs Python functions behind walls, and hands those at `native` to an inner engine.

    A subclass says what workers of other tools get: their `guest`.
    """

    def __init__(
        self,
        native: Sandbox,
        programs: ProgramWalls | None = None,
        support: Callable[[], probe.Support] | None = None,
    ) -> None:
        self._native = native
        self.support = support or (lambda: probe.support())
        self._programs = programs
        self._prepared: dict[_Key, Prepared] = {}
        self._preparing = free_after_fork(threading.Lock())  # `forget` and a new entry exclude each other

    def load_code(self) -> None:
        """Import what programs need; what workers need is imported with this module."""
        if self._programs is not None:
            self._programs.load_code()

    def layers(self, level: Level) -> tuple[str, ...]:
        """The layers in force at a level. Raises `SandboxUnavailable` if the walls do not hold on this machine."""
        if level == "native":
            return self._native.layers(level)
        support = self.support()
        support.require(level)
        return ("handles", "process", *support.layers(level))

    def tool_layers(self, tool: Tool, level: Level, *, allow_degraded: bool) -> Layers:
        """The layers around one tool: those of its level."""
        return Layers(self.layers(level), self.support().uncounted(level))

    async def guest(self, level: Level, call: ToolCall, context: BoundContext) -> GuestParts | None:
        """What the workers of a tool get that is no Python function; None for a function."""
        return None

    def walls(self, held: Any) -> Walls:
        """The walls of a program."""
        return self._native.walls(held) if self._programs is None else self._programs.walls(held)

    def run(self, level: Level, call: ToolCall, context: BoundContext) -> Awaitable[Any]:
        """Run a tool at a level; `native` is run by the inner engine."""
        if level == "native":
            return self._native.run(level, call, context)
        return self._walled(level, call, context)

    async def _walled(self, level: Level, call: ToolCall, context: BoundContext) -> Any:
        parts = parts_of(context)
        prepared = await self._ready(level, call, context)
        zygote, worker = pool.take(prepared)
        grant = parts.grant
        grant.access = worker.access
        entries = worker.entries
        zygote.watch(worker)
        kept, loop, counts = False, asyncio.get_running_loop(), False
        try:
            if entries is not None:
                grant.meter.share_count(entries.copy)
                counts = True
            start = start_of(prepared, call, parts, worker.calls)
            if not call.tool.reuse and not pool.ready(prepared):
                loop.call_soon(pool.park, prepared, zygote)  # the next workers start while this one works
            direct = level == "isolated"
            broker = Broker(worker.end, context, worker.calls, call.tool.name, direct=direct, meter=grant.meter)
            outcome = await broker.serve(start)
            full = _is_full(worker)  # now: another call may use the worker next
            # A guest that failed may have left its memory behind, which the next call would lack.
            failed = prepared.guest is not None and "error" in outcome.head
            kept = call.tool.reuse and not failed and broker.clean and _reusable(worker, prepared)
        except (BrokenWire, Closed) as wrong:
            raise await stopped(zygote, worker, wrong, prepared.limits) from None
        finally:
            if counts:
                grant.meter.unshare_count()
            grant.printed = worker.printed()
            if kept:
                zygote.unwatch(worker)
                pool.give_back(prepared, zygote, worker)
            else:
                zygote.end(worker)
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon(pool.park, prepared, zygote)
        return value_of(outcome, prepared, full=full)

    async def warm(self, level: Level, call: ToolCall, context: BoundContext) -> None:
        """Start workers for calls of a tool."""
        if level == "native":
            return
        prepared = await self._ready(level, call, context)
        await asyncio.to_thread(pool.warm, prepared)

    def forget(self) -> None:
        """End all parked workers: the grants that they were made for may have changed."""
        with self._preparing:
            gone, self._prepared = self._prepared.values(), {}
        pool.forget(gone)

    async def _ready(self, level: Level, call: ToolCall, context: BoundContext) -> Prepared:
        """What calls like this one have in common, from an earlier one if there was one."""
        parts = parts_of(context)
        key: _Key = (id(parts.registered), frozenset(call.limits.items()), level)
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= MOST_PREPARED:
                self.forget()
            guest = await self.guest(level, call, context)
            with self._preparing:
                found = self._prepared.get(key)  # of a call that was prepared while this one waited
            if found is None:
                made = prepare(level, call, parts, self.support(), guest)
                with self._preparing:  # another thread may have prepared the same: its workers are used
                    found = self._prepared.setdefault(key, made)
        return found


def _reusable(worker: WorkerProcess, prepared: Prepared) -> bool:
    if worker.cpu_seconds() > prepared.limits["cpu_seconds"]:
        return False
    try:
        changed = os.stat(worker.scratch).st_mtime_ns
        if changed == worker.scratch_changed:
            return True
        worker.scratch_changed = changed
        return not os.listdir(worker.scratch)  # the next call must not find files of this one
    except OSError:  # the worker died, and its scratch was removed
        return False


# Errands -------------------------------------------------------------------------------------------------------------


class ErrandFailed(Exception):
    """The function raised, or its worker ended without an answer; `kind` is the name of the exception's type."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)


def run_errand(
    module: str,
    function: str,
    arguments: Mapping[str, Any],
    finish: Callable[[str, Any], T],
    *,
    walls: Mapping[str, Any],
    read: Sequence[str],
    seconds: float,
    limits: Mapping[str, int],
    scratch_bytes: int,
) -> T:
    """Run a function of licet with JSON arguments, and call `finish` with the scratch directory and the result.

    `walls` is the part of a worker's specification that says which walls it builds. Raises `ErrandFailed`, or
    `SandboxUnavailable` if no worker can be started.
    """
    rules = [*base_rules(ToolSource(module, function, {})), *((path, landlock.READ_FILE, None) for path in read)]
    fixed = {
        **walls,
        "module": module,
        "qualname": function,
        "modules": {},
        "path": import_path(),
        "cell": None,
        "guest": None,
        "files": 0,
        "bytecode": True,
        "async": False,
        "context": None,
        "reuse": True,  # it waits after its answer, so that its scratch directory is there for `finish`
        "late": False,
        "connects": False,
        "programs": None,
        "directory": "",
        "result_bytes": FROM_WORKER.blob,
        "limits": dict(limits),
        "rules": rules,
    }
    watched = Watched(scratch_bytes, threads=256)
    zygote, worker = pool.spawn(lambda scratch: packed({**fixed, "scratch": scratch}), watched)
    began = time.monotonic()
    try:
        zygote.watch(worker)
        end = worker.end
        end.settimeout(seconds)
        wire = Wire(end, FROM_WORKER)
        wire.send({"call": 1, "plain": True}, plain_json(dict(arguments)))
        frame = wire.receive()
        if "error" in frame.head:
            raise ErrandFailed(str(frame.head["error"]), str(frame.head.get("text", "")))
        return finish(worker.scratch, plain_data(frame.blob))
    except (Closed, BrokenWire) as gone:
        if time.monotonic() - began >= seconds:
            raise ErrandFailed("TimedOut", f"it took longer than {seconds:.0f} seconds") from None
        exit_ = _exit_of(worker)
        if exit_ is not None and exit_.start_error:
            raise SandboxUnavailable(exit_.start_error) from None
        if exit_ is not None and exit_.why == NO_WALLS:
            raise SandboxUnavailable("a wall could not be built in the process that does it") from None
        raise ErrandFailed("Ended", f"its process ended without an answer ({gone})") from None
    finally:
        zygote.end(worker)


def _exit_of(worker: WorkerProcess) -> WorkerExit | None:
    """How a worker ended; the thread that listens to the zygote may learn it a moment later. None if it does not."""
    until = time.monotonic() + ERRAND_EXIT_SECONDS
    while worker.exit is None and time.monotonic() < until:
        time.sleep(0.01)
    return worker.exit
