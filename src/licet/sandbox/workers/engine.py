"""How a call behind walls ended: its value, what the tool raised, or why its worker gave no answer.

The levels `restricted` and `isolated`: tools run in walled processes of their own, which wait for their calls.

For each tool a few workers are parked ahead of time: walled in, the tool loaded unless its grant is within their reach,
good for one call. Where a tool says `reuse=True` a worker serves many. Whatever happens in a worker ends its own call
and nothing else.
"""

import asyncio
import atexit
import errno
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import ref

from licet.core.algebra.set import CapabilitySet
from licet.core.policy.effects import Level
from licet.declare import Tool
from licet.guard.bind import BoundContext
from licet.guard.execution import JsonText, Raised, Sandbox, SandboxUnavailable, Stopped, ToolCall, Walls
from licet.guard.gate import Gate
from licet.sandbox import probe
from licet.sandbox.bridge.broker import Broker, Outcome
from licet.sandbox.programs.walls import ProgramWalls
from licet.sandbox.workers.pool import Prepared, _in_a_fork, close_workers, pool, prepare, start_of
from licet.sandbox.workers.wire import BrokenWire, Closed, Overrun, TooMuch
from licet.sandbox.workers.worker import NO_WALLS, OUT_OF_MEMORY
from licet.sandbox.workers.zygote_client import Child, Zygote

_MOST_LINES = 10_000_000  # of a file of Python: a number beyond is no line
_LAST_WORDS = 10.0  # seconds to hear how a worker ended: at once, unless the machine is very busy


def value_of(outcome: Outcome, limits: Mapping[str, int]) -> Any:
    """What the tool returned; or what it raised, as far as it can be told."""
    if outcome.refusal is not None:
        raise outcome.refusal
    kind, text = outcome.head.get("error"), outcome.head.get("text")
    if kind is None:
        return JsonText(outcome.blob)  # how long it may be is known where the call ends, and parsed only after that
    kind, text = str(kind), str(text)
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
    line = outcome.head.get("line")
    known = line if type(line) is int and 0 < line <= _MOST_LINES else 0
    raise Raised(kind, text, known, number in (errno.EPERM, errno.EACCES))


async def stopped(zygote: Zygote, child: Child, wrong: Exception, limits: Mapping[str, int]) -> Exception:
    """Why a worker gave no answer, from what the kernel and the zygote say; the word of a tool is not asked.

    `Stopped`; or `SandboxUnavailable` where nothing of the tool ran.
    """
    if isinstance(wrong, Overrun):
        return Stopped(wrong.reason, str(wrong))
    if isinstance(wrong, TooMuch):
        return Stopped("LIMIT_OUTPUT", "the tool's process sent more than one message may hold")
    if isinstance(wrong, BrokenWire):
        return Stopped("TOOL_CRASHED", "the tool's process broke the protocol")
    await asyncio.sleep(0)
    # It may have closed its socket and live on; told to end it, the zygote says how it ended in either case.
    zygote.end(child, child.ended or ("TOOL_CRASHED", "the tool's process hung up"))
    death = await child.buried(_LAST_WORDS)
    if death is None:
        return Stopped("TOOL_CRASHED", "the tool's process ended, and nobody knows how")
    if death.unborn:
        return SandboxUnavailable(death.unborn)
    if death.why == NO_WALLS:
        return SandboxUnavailable("a wall could not be built in the tool's process")
    if death.ended is not None and death.ended[0] != "TOOL_CRASHED":
        return Stopped(*death.ended)
    code = os.waitstatus_to_exitcode(death.status) if death.status >= 0 else 0
    killer = max(-code, 0)
    if killer == signal.SIGXCPU or (killer == signal.SIGKILL and death.cpu >= limits["cpu_seconds"]):
        return Stopped("LIMIT_CPU", f"it used more than {limits['cpu_seconds']} seconds of CPU time")
    if killer == signal.SIGXFSZ:
        return Stopped("LIMIT_FILE_SIZE", f"it wrote a file of more than {limits['file_mb']} MB")
    if death.why == OUT_OF_MEMORY:
        return Stopped("LIMIT_MEMORY", f"it needed more than {limits['memory_mb']} MB of memory")
    said = f"was killed by {signal.Signals(killer).name}" if killer else f"ended with code {code}"
    return Stopped("TOOL_CRASHED", f"the tool's process {said} and gave no answer")


_KNOWN = 512  # kinds of call that are prepared
_Key = tuple[ref[Gate], Tool, CapabilitySet, frozenset[tuple[str, int]], Level]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
atexit.register(close_workers)


class Workers:
    """Runs tools behind walls, and hands those at `native` to an inner engine."""

    def __init__(
        self,
        native: Sandbox,
        programs: ProgramWalls | None = None,
        support: Callable[[], probe.Support] | None = None,
    ) -> None:
        self._native = native
        self._support = support or (lambda: probe.support())
        self._programs = programs
        self._prepared: dict[_Key, Prepared] = {}
        self._preparing = threading.Lock()  # nothing is added to what has just been forgotten

    def load_code(self) -> None:
        """Import what programs need; all that workers need is imported with this module."""
        if self._programs is not None:
            self._programs.load_code()

    def layers(self, level: Level) -> tuple[str, ...]:
        """What will be in force at a level; the walls are tried out before they are relied on."""
        if level == "native":
            return self._native.layers(level)
        support = self._support()
        support.require(level)
        return ("handles", "process", *support.layers(level))

    def walls(self, held: Any) -> Walls:
        """The walls of a child process."""
        return self._native.walls(held) if self._programs is None else self._programs.walls(held)

    def run(self, level: Level, call: ToolCall, context: BoundContext) -> Awaitable[Any]:
        """Run a tool at a level."""
        if level == "native":
            return self._native.run(level, call, context)
        return self._walled(level, call, context)

    async def _walled(self, level: Level, call: ToolCall, context: BoundContext) -> Any:
        prepared = self._prepare(level, call, context)
        zygote, child = pool.take(prepared)
        context._holding.access = child.access
        zygote.begin(child)
        kept, loop = False, asyncio.get_running_loop()
        try:
            start = start_of(prepared, call, context, child.calls)
            if not call.tool.reuse and not pool.ready(prepared):
                loop.call_soon(pool.park, prepared, zygote)  # the next workers start while this one works
            meter, isolated = context._holding.meter, level == "isolated"
            broker = Broker(child.end, context, child.calls, call.tool.name, direct=isolated, meter=meter)
            outcome = await broker.serve(start)
            kept = call.tool.reuse and broker.clean and _reusable(child, prepared)
        except (BrokenWire, Closed) as wrong:
            raise await stopped(zygote, child, wrong, prepared.limits) from None
        finally:
            if kept:
                zygote.rest(child)
                pool.give_back(prepared, zygote, child)
            else:
                zygote.end(child)
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon(pool.park, prepared, zygote)
        return value_of(outcome, prepared.limits)

    def forget(self) -> None:
        """End what waits for calls: the grants that it was made with may be in force no more."""
        with self._preparing:
            gone, self._prepared = self._prepared.values(), {}
        pool.forget(gone)

    def _prepare(self, level: Level, call: ToolCall, context: BoundContext) -> Prepared:
        # A weak reference to the gate: parked workers do not keep a gate alive.
        limits = frozenset(call.limits.items())
        key: _Key = (ref(context._session.gate), call.tool, context._holding.reach.grant, limits, level)
        found = self._prepared.get(key)
        if found is None or not found.in_force():
            if len(self._prepared) >= _KNOWN:
                self.forget()
            found = prepare(level, call, context, self._support())
            with self._preparing:
                self._prepared[key] = found
        return found


def _reusable(child: Child, prepared: Prepared) -> bool:
    if child.cpu_seconds() > prepared.limits["cpu_seconds"]:
        return False
    try:
        changed = os.stat(child.scratch).st_mtime_ns
        if changed == child.scratch_changed:
            return True
        child.scratch_changed = changed
        return not os.listdir(child.scratch)  # what one call left there is not for the next
    except OSError:  # it has died, and its scratch went with it
        return False
