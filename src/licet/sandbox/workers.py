"""The levels `restricted` and `isolated`: tools run in walled processes of their own, which wait for their calls.

For each tool a few workers are parked ahead of time: walled in, the tool loaded unless its grant is within their reach,
good for one call. Where a tool says `reuse=True` a worker serves many. Whatever happens in a worker ends its own call
and nothing else.
"""

import asyncio
import atexit
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from time import perf_counter
from typing import Any

from licet.core.effects import Level
from licet.guard.bind import BoundContext
from licet.guard.ports import Sandbox, SandboxUnavailable, ToolCall, Walls
from licet.sandbox import probe
from licet.sandbox.broker import FIRST_MOMENT, MOMENT, Broker, a_moment, begun
from licet.sandbox.children import Child, Zygote
from licet.sandbox.endings import stopped, value_of
from licet.sandbox.prepared import Prepared, prepare, start_of
from licet.sandbox.tool_source import zygote_path
from licet.sandbox.walls import ProgramWalls
from licet.sandbox.wire import BrokenWire, Closed

_PARKED_OF_ONE = 2  # workers of one tool that wait ahead of time
_PARKED = 32  # of all tools together
_KNOWN = 512  # kinds of call that are prepared
_LOOP_TURNS = 32  # calls after which the loop has its turn, however quick each of them was


class _Pool:
    """The workers of this process that wait for a call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._parked: OrderedDict[Prepared, deque[Child]] = OrderedDict()

    def take(self, prepared: Prepared) -> tuple[Zygote, Child]:
        """A worker for a call: one that waits, or a new one."""
        with self._lock:
            waiting, zygote = self._parked.get(prepared), self._zygote
            while waiting and zygote is not None and not zygote.dead:
                self._parked.move_to_end(prepared)
                # The one that was used last, whose memory is near; of those that are used once, the first to be ready.
                child = waiting.pop() if prepared.tool.reuse else waiting.popleft()
                if child.death is None and child.silent():
                    return zygote, child
                zygote.end(child)
            zygote = self._living()
            try:
                return zygote, _spawned(zygote, prepared)
            except SandboxUnavailable:
                if zygote.lives():
                    raise
            zygote = self._living()  # it has died since
            return zygote, _spawned(zygote, prepared)

    def park(self, prepared: Prepared, zygote: Zygote) -> None:
        """Have as many workers wait for the next calls of a tool as are due."""
        with self._lock:
            if not self._serves(prepared, zygote):
                return
            waiting = self._parked.setdefault(prepared, deque())
            self._parked.move_to_end(prepared)
            try:
                while len(waiting) < _PARKED_OF_ONE:
                    waiting.append(_spawned(zygote, prepared))
            except SandboxUnavailable:
                return  # the next call will tell
            self._make_room(zygote)

    def ready(self, prepared: Prepared) -> bool:
        """Whether workers wait for the next calls of a tool, if not as many as are due."""
        return len(self._parked.get(prepared, ())) >= _PARKED_OF_ONE - 1

    def give_back(self, prepared: Prepared, zygote: Zygote, used: Child) -> None:
        """Have a worker that was used wait for the next call of its tool."""
        with self._lock:
            if not self._serves(prepared, zygote):
                zygote.end(used)
                return
            waiting = self._parked.get(prepared)
            if waiting is None:
                waiting = self._parked[prepared] = deque()
            waiting.append(used)
            self._make_room(zygote)

    def _serves(self, prepared: Prepared, zygote: Zygote) -> bool:
        """Whether what comes from a zygote may wait for such calls: not if either went out of use while one ran.

        A gate is reloaded or frozen before it has `forget` called, which waits for the lock that is held here: what is
        found to be in force now will be among what is forgotten.
        """
        return zygote is self._zygote and not zygote.dead and not prepared.forgotten and prepared.in_force()

    def _make_room(self, zygote: Zygote) -> None:
        while sum(map(len, self._parked.values())) > _PARKED:
            _, others = self._parked.popitem(last=False)
            for child in others:
                zygote.end(child)

    def forget(self, gone: Collection[Prepared]) -> None:
        """End the workers that wait for such calls, and have none wait any more."""
        with self._lock:
            for prepared in gone:
                prepared.forgotten = True
                for child in self._parked.pop(prepared, ()):
                    if self._zygote is not None:
                        self._zygote.end(child)

    def _living(self) -> Zygote:
        if self._zygote is None or not self._zygote.lives():
            self._drop()
            self._zygote = Zygote(zygote_path())
        return self._zygote

    def _drop(self) -> None:
        for waiting in self._parked.values():
            for child in waiting:
                child.end.close()
        self._parked.clear()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def close(self) -> None:
        """End everything; the next call begins anew."""
        with self._lock:
            self._drop()

    def abandon(self) -> None:
        """In a fork of the host: leave it to the parent."""
        if self._zygote is not None:
            self._zygote.abandon()


def _spawned(zygote: Zygote, prepared: Prepared) -> Child:
    """A new worker, with the rules that it was just told; the lock of the pool is held."""
    child = zygote.spawn(prepared.spec, prepared.watched)
    child.access = prepared.access
    return child


_pool = _Pool()


def _in_a_fork() -> None:
    global _pool
    _pool.abandon()
    _pool = _Pool()


def close_workers() -> None:
    """End every worker of this process; the next call starts new ones."""
    _pool.close()


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
        self._prepared: dict[tuple[int, int, int, Level], Prepared] = {}
        self._preparing = threading.Lock()  # nothing is added to what has just been forgotten
        self._calls = 0

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
        zygote, child = _pool.take(prepared)
        context._holding.access = child.access
        zygote.begin(child)
        kept, loop = False, asyncio.get_running_loop()
        try:
            start, come, outcome = start_of(prepared, call, context, child.calls), b"", None
            self._calls += 1
            quick, moment = prepared.quick and self._calls % _LOOP_TURNS, MOMENT
            if not call.tool.reuse:
                moment = FIRST_MOMENT
                if not _pool.ready(prepared):  # while this one works, the next are made ready
                    quick = False
                    loop.call_soon(_pool.park, prepared, zygote)
            began = perf_counter()
            if quick and not (start := begun(child.end, start)):
                if not zygote.alone():  # other calls go on while this one works
                    await asyncio.sleep(0)
                outcome, come = a_moment(child.end, child.calls, moment)
            clean = outcome is not None
            if outcome is None:
                meter, isolated = context._holding.meter, level == "isolated"
                broker = Broker(child.end, context, child.calls, call.tool.name, direct=isolated, meter=meter)
                outcome = await broker.serve(start, come)
                clean = broker.clean
            prepared.quick = perf_counter() - began < 2 * moment
            kept = call.tool.reuse and clean and _reusable(child, prepared)
        except (BrokenWire, Closed) as wrong:
            raise await stopped(zygote, child, wrong, prepared.limits) from None
        finally:
            if kept:
                zygote.rest(child)
                _pool.give_back(prepared, zygote, child)
            else:
                zygote.end(child)
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon(_pool.park, prepared, zygote)
        return value_of(outcome, prepared.limits)

    def forget(self) -> None:
        """End what waits for calls: the grants that it was made with may be in force no more."""
        with self._preparing:
            gone, self._prepared = self._prepared.values(), {}
        _pool.forget(gone)

    def _prepare(self, level: Level, call: ToolCall, context: BoundContext) -> Prepared:
        reach = context._holding.reach
        key = (id(call.tool), id(reach.grant), id(call.limits), level)
        found = self._prepared.get(key)
        if (
            found is None
            or found.tool is not call.tool
            or found.grant is not reach.grant
            or found.stated is not call.limits
        ):
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
