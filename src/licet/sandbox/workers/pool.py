"""What a worker of a tool is to be, and what it is told when a call begins: the same bytes as far as they can be.

The levels `restricted` and `isolated`: tools run in walled processes of their own, which wait for their calls.

For each tool a few workers are parked ahead of time: walled in, the tool loaded unless its grant is within their reach,
good for one call. Where a tool says `reuse=True` a worker serves many. Whatever happens in a worker ends its own call
and nothing else.
"""

import inspect
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from typing import Any
from weakref import ref

from msgspec import Struct, field

from licet.core.algebra.scope import TOP
from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import Use
from licet.core.decision.decision import Approval
from licet.core.policy.effects import Level
from licet.core.policy.manifest import Manifest, meet_layers
from licet.declare import Tool
from licet.declare.arguments import Given, is_plain
from licet.declare.plain_json import plain_json
from licet.guard.access import Access
from licet.guard.bind import BoundContext
from licet.guard.execution import SandboxUnavailable, ToolCall
from licet.guard.grant import Holding
from licet.guard.links import changeable
from licet.sandbox import probe
from licet.sandbox.grant_paths import Rules, base_rules, denied_among, grant_rules
from licet.sandbox.rules_in_force import REACHED, worker_access
from licet.sandbox.workers.tool_source import import_path, source_of, zygote_path
from licet.sandbox.workers.wire import RESULT_BYTES, packed
from licet.sandbox.workers.zygote_client import Child, Watched, Zygote

# Where the manifest states no limit.
DEFAULTS: Mapping[str, int] = {
    "cpu_seconds": 20,
    "memory_mb": 512,
    "open_files": 128,
    "processes": 32,
    "file_mb": 64,
    "scratch_mb": 256,
}


class Prepared(Struct, eq=False, dict=True):
    """Everything about a tool at a level that is the same for each of its calls."""

    tool: Tool
    limits: Mapping[str, int]
    fixed: Mapping[str, Any]
    rules: Callable[[], Rules]  # those of the grant, asked anew for each worker: what lies around a deny changes
    own: Rules  # those that each worker of the tool has
    told: Callable[[Rules], Access]  # what a receipt says of them
    in_force: Callable[[], bool]  # whether such a call could still come: not once its gate was reloaded or frozen
    forgotten: bool = False  # whether no worker may wait for such calls any more
    access: Access | None = None  # the rules around the worker that was last told what to be
    _granted: Rules = field(default_factory=list)

    def spec(self, scratch: str) -> bytes:
        """What a worker is told to be."""
        granted = self.rules()
        if self.access is None or granted != self._granted:
            self._granted, self.access = granted, self.told(granted)
        return packed({**self.fixed, "rules": [*self.own, *granted], "scratch": scratch})

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


def prepare(level: Level, call: ToolCall, context: BoundContext, support: probe.Support) -> Prepared:
    """What workers for such calls are to be; `SandboxUnavailable` if there can be none."""
    tool, reach = call.tool, context._holding.reach
    support.require(level)
    source = source_of(tool)
    limits = {**DEFAULTS, **call.limits}
    base = base_rules(source)
    if inside := denied_among(base, reach.grant):
        raise SandboxUnavailable(f"{inside} may not be read, but lies among the libraries that every worker reads")

    # Of this call only the grant is kept: a worker for later ones has nothing to do with what it saw.
    holding = Holding(context._holding.request, reach, "", (), _nobody)

    # The gate is not kept by processes that wait for its calls: where it has gone, none will come.
    gate, registered = ref(context._session.gate), context._registered

    def in_force() -> bool:
        at = gate()
        return at is not None and at.still(registered)

    def rules() -> Rules:
        return grant_rules(holding) if level == "isolated" else []

    fixed = {
        "landlock": support.landlock,
        "module": source.module,
        "qualname": source.qualname,
        "modules": source.modules,
        "path": import_path(),
        "bytecode": not any(changeable(path, _written_ceiling(reach.manifest)) for path in source.compiled),
        "async": tool.is_async,
        "context": tool.context_parameter,
        "reuse": tool.reuse,
        "late": level == "isolated" and any(rule.domain in REACHED for rule in reach.grant.allow),
        # Whatever is granted: the host records its refusals, and the kernel does not.
        "connects": level == "isolated",
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
    told = partial(worker_access, level, reach, base)
    return Prepared(tool, limits, fixed, rules, base, told, in_force)


def _written_ceiling(manifest: Manifest) -> CapabilitySet:
    """What the authors of the manifest allow: a program may still create a closed directory that does not exist yet."""
    return meet_layers(layer for layer in manifest.layers if layer.kind != "policy files")


def _variables(grant: CapabilitySet) -> list[str]:
    """The variables that programs of a tool may be given."""
    named = {rule.key for rule in grant.allow if rule.domain == "env" and rule.key != TOP}
    return sorted(name for name in named if grant.has(Use(f"env:read:{name}")))


async def _nobody(approval: Approval, use: Use) -> None:
    raise RuntimeError("no call is running: there is nothing to ask about")


def start_of(prepared: Prepared, call: ToolCall, context: BoundContext, number: int) -> bytes:
    """What begins a call in a worker."""
    given, defaults = call.arguments, prepared.defaults
    if defaults or type(given) is not dict:
        given = {name: value for name, value in given.items() if name not in defaults or value is not defaults[name]}
    # What hints have made of it cannot be made again of itself: aliases, secrets, whatever a validator turns into else.
    plain = is_plain(given)
    sent = call.arguments.sent if not plain and isinstance(call.arguments, Given) else plain_json(given)
    head: dict[str, Any] = {"call": number, "plain": plain}
    if call.tool.context_parameter is not None:
        head |= {"session_id": context.session_id, "agent": context.agent, "workdir": context.workdir}
    return packed(head, sent)


_PARKED_OF_ONE = 2  # workers of one tool that wait ahead of time
_PARKED = 32  # of all tools together


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


pool = _Pool()


def _in_a_fork() -> None:
    global pool
    pool.abandon()
    pool = _Pool()


def close_workers() -> None:
    """End every worker of this process; the next call starts new ones."""
    pool.close()
