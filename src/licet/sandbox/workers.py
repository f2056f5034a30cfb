"""The levels `restricted` and `isolated`: tools run in walled processes of their own, which wait for their calls.

For each tool a few workers are parked ahead of time: walled in, the tool loaded unless its grant is within their reach,
good for one call. Where a tool says `reuse=True` a worker serves many. Whatever happens in a worker ends its own call
and nothing else.
"""

import asyncio
import atexit
import inspect
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isfinite
from time import perf_counter
from types import NoneType
from typing import Any
from weakref import WeakSet

from licet.core.decision import Approval
from licet.core.effects import Level
from licet.core.scope import TOP
from licet.core.set import CapabilitySet
from licet.core.use import Use
from licet.declare import Tool
from licet.declare.arguments import Given, plain_json
from licet.guard.bind import BoundContext
from licet.guard.holding import Holding
from licet.guard.ports import Sandbox, SandboxUnavailable, ToolCall, Walls
from licet.sandbox import probe
from licet.sandbox.broker import MOMENT, Broker, a_moment
from licet.sandbox.children import Child, Watched, Zygote
from licet.sandbox.endings import stopped, value_of
from licet.sandbox.fs_rules import Rules, base_rules, denied_among, grant_rules
from licet.sandbox.tool_source import import_path, source_of
from licet.sandbox.walls import ProgramWalls
from licet.sandbox.wire import BrokenWire, Closed, framed, members

# Where the manifest states no limit.
DEFAULTS: Mapping[str, int] = {
    "cpu_seconds": 20,
    "memory_mb": 512,
    "open_files": 128,
    "processes": 32,
    "file_mb": 64,
    "scratch_mb": 256,
}
RESULT_BYTES = 16 << 20
_PARKED_OF_ONE = 2  # workers of one tool that wait ahead of time
_PARKED = 32  # of all tools together
_KNOWN = 512
_REACHED = frozenset(("fs", "network", "process"))  # what code at `isolated` uses of a grant without a handle
_LOOP_TURNS = 32  # calls after which the loop has its turn, however quick each of them was


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything about a tool at a level that is the same for each of its calls."""

    tool: Tool
    level: Level
    grant: CapabilitySet
    stated: Mapping[str, int]
    limits: Mapping[str, int]
    fixed: Mapping[str, Any]
    rules: Callable[[], Rules]  # asked anew for each worker: what lies around a deny changes

    def spec(self, scratch: str) -> bytes:
        """What a worker is told to be."""
        changing = members({"rules": self.rules(), "scratch": scratch})
        return framed(b"{%s,%s}" % (self._fixed, changing))

    @cached_property
    def _fixed(self) -> bytes:
        return members(self.fixed)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """Default values of the tool: inside, they are taken from the tool itself, and need not fit into JSON."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.tool.fn).parameters.items()
            if parameter.default is not parameter.empty
        }

    @property
    def watched(self) -> Watched:
        """What the host itself looks after."""
        return Watched(self.limits["scratch_mb"] << 20, self.limits["processes"])


class _Pool:
    """The workers of this process that wait for a call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._parked: OrderedDict[Prepared, deque[Child]] = OrderedDict()
        self._forgotten: WeakSet[Prepared] = WeakSet()

    def take(self, prepared: Prepared) -> tuple[Zygote, Child]:
        """A worker for a call: one that waits, or a new one."""
        with self._lock:
            zygote = self._living()
            waiting = self._parked.get(prepared)
            while waiting:
                self._parked.move_to_end(prepared)
                child = waiting.popleft()
                if child.death is None:
                    return zygote, child
                child.end.close()
            try:
                return zygote, zygote.spawn(prepared.spec, prepared.watched)
            except SandboxUnavailable:
                if zygote.lives():
                    raise
            zygote = self._living()  # it has died since
            return zygote, zygote.spawn(prepared.spec, prepared.watched)

    def park(self, prepared: Prepared, zygote: Zygote) -> None:
        """Have as many workers wait for the next calls of a tool as are due."""
        with self._lock:
            if not self._serves(prepared, zygote):
                return
            waiting = self._parked.setdefault(prepared, deque())
            self._parked.move_to_end(prepared)
            try:
                while len(waiting) < _PARKED_OF_ONE:
                    waiting.append(zygote.spawn(prepared.spec, prepared.watched))
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
        """Whether what comes from a zygote may wait for such calls: not if either went out of use while one ran."""
        return zygote is self._zygote and not zygote.dead and prepared not in self._forgotten

    def _make_room(self, zygote: Zygote) -> None:
        while sum(map(len, self._parked.values())) > _PARKED:
            _, others = self._parked.popitem(last=False)
            for child in others:
                zygote.end(child)

    def forget(self, gone: Collection[Prepared]) -> None:
        """End the workers that wait for such calls, and have none wait any more."""
        with self._lock:
            self._forgotten.update(gone)
            for prepared in gone:
                for child in self._parked.pop(prepared, ()):
                    if self._zygote is not None:
                        self._zygote.end(child)

    def _living(self) -> Zygote:
        if self._zygote is None or not self._zygote.lives():
            self._drop()
            self._zygote = Zygote(import_path())
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

    def __init__(self, native: Sandbox, programs: ProgramWalls | None = None) -> None:
        self._native = native
        self._programs = programs
        self._prepared: dict[tuple[int, int, int, Level], Prepared] = {}
        self._calls = 0

    def layers(self, level: Level) -> tuple[str, ...]:
        """What will be in force at a level; the walls are tried out before they are relied on."""
        if level == "native":
            return self._native.layers(level)
        support = probe.support()
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
        zygote.begin(child)
        kept = False
        try:
            start, come, outcome = _start(prepared, call, context, child.calls), b"", None
            self._calls += 1
            if not call.tool.reuse and not _pool.ready(prepared):  # while this one works, the next are made ready
                asyncio.get_running_loop().call_soon(_pool.park, prepared, zygote)
            began = perf_counter()
            if child.quick and self._calls % _LOOP_TURNS and zygote.alone():
                outcome, start, come = a_moment(child.end, start, child.calls)
            if outcome is None:
                broker = Broker(child.end, context, child.calls, call.tool.name, direct=level == "isolated")
                outcome = await broker.serve(start, come)
            if call.tool.reuse:
                child.quick = perf_counter() - began < 2 * MOMENT
                kept = _reusable(child, prepared)
        except (BrokenWire, Closed) as wrong:
            raise await stopped(zygote, child, wrong, prepared.limits) from None
        finally:
            if kept:
                zygote.rest(child)
                _pool.give_back(prepared, zygote, child)
            else:
                zygote.end(child)
                asyncio.get_running_loop().call_soon(_pool.park, prepared, zygote)
        return value_of(outcome, prepared.limits)

    def forget(self) -> None:
        """End what waits for calls: the grants that it was made with may be in force no more."""
        gone, self._prepared = list(self._prepared.values()), {}
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
            found = self._prepared[key] = _prepared(level, call, context)
        return found


def _prepared(level: Level, call: ToolCall, context: BoundContext) -> Prepared:
    tool, reach = call.tool, context._holding.reach
    probe.support().require(level)
    source = source_of(tool)
    limits = {**DEFAULTS, **call.limits}
    base = base_rules(source)
    if inside := denied_among(base, reach.grant):
        raise SandboxUnavailable(f"{inside} may not be read, but lies among the libraries that every worker reads")

    # Of this call only the grant is kept: a worker for later ones has nothing to do with what it saw.
    holding = Holding(context._holding.request, reach, "", (), _nobody)

    def rules() -> Rules:
        return [*base, *grant_rules(holding)] if level == "isolated" else base

    fixed = {
        "module": source.module,
        "qualname": source.qualname,
        "modules": source.modules,
        "path": import_path(),
        "async": tool.is_async,
        "context": tool.context_parameter,
        "reuse": tool.reuse,
        "late": level == "isolated" and any(rule.domain in _REACHED for rule in reach.grant.allow),
        "connects": level == "isolated" and any(rule.domain == "network" for rule in reach.grant.allow),
        "programs": _variables(reach.grant) if level == "isolated" else None,
        "directory": context.workdir if level == "isolated" else "",
        "result_bytes": RESULT_BYTES,
        "limits": {
            # A worker that stays is ended after twice its time, and retired once it has used that of one call.
            "cpu_seconds": limits["cpu_seconds"] * (2 if tool.reuse else 1),
            "memory_bytes": limits["memory_mb"] << 20,
            "open_files": limits["open_files"],
            "file_bytes": limits["file_mb"] << 20,
        },
    }
    return Prepared(tool, level, reach.grant, call.limits, limits, fixed, rules)


def _variables(grant: CapabilitySet) -> list[str] | None:
    """The variables that programs of a tool may be given; None if it may start no programs."""
    if not any(rule.domain == "process" for rule in grant.allow):
        return None
    named = {rule.key for rule in grant.allow if rule.domain == "env" and rule.key != TOP}
    return sorted(name for name in named if grant.has(Use(f"env:read:{name}")))


async def _nobody(approval: Approval, use: Use) -> None:
    raise RuntimeError("no call is running: there is nothing to ask about")


def _start(prepared: Prepared, call: ToolCall, context: BoundContext, number: int) -> bytes:
    given, defaults = call.arguments, prepared.defaults
    if defaults or type(given) is not dict:
        given = {name: value for name, value in given.items() if name not in defaults or value is not defaults[name]}
    # What hints have made of it cannot be made again of itself: aliases, secrets, whatever a validator turns into else.
    plain = _is_plain(given)
    sent = call.arguments.sent if not plain and isinstance(call.arguments, Given) else plain_json(given)
    who = b"" if call.tool.context_parameter is None else _who(context.session_id, context.agent, context.workdir)
    return framed(b'{"call":%d,"plain":%s%s}' % (number, b"true" if plain else b"false", who), sent)


@lru_cache(_KNOWN)
def _who(session_id: str, agent: str, workdir: str) -> bytes:
    return b"," + members({"session_id": session_id, "agent": agent, "workdir": workdir})


_PLAIN = frozenset((str, int, bool, NoneType))


def _is_plain(value: Any) -> bool:
    """Whether a value is what its JSON says, so that nothing has to be made of it again."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not (type(item) in _PLAIN or _is_plain(item)):
                return False
        return True
    if kind is list:
        return all(map(_is_plain, value))
    return kind is float and isfinite(value)


def _reusable(child: Child, prepared: Prepared) -> bool:
    if child.cpu_seconds() > prepared.limits["cpu_seconds"]:
        return False
    changed = os.stat(child.scratch).st_mtime_ns
    if changed == child.scratch_changed:
        return True
    child.scratch_changed = changed
    return not os.listdir(child.scratch)  # what one call left there is not for the next
