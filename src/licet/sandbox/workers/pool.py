"""The pool of workers, the specification that a worker gets when it starts, and what starts a call in it.

For each tool a few workers are parked ahead of time: their walls are built, and the tool is loaded unless its grant is
reachable from inside. So a call does not wait for a process to start.
"""

import inspect
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol
from weakref import ref

from msgspec import Struct, field, to_builtins

from licet.core.algebra.rules import Use
from licet.core.algebra.scope import TOP
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.request import Approval, Reason
from licet.core.policy.layer import Level, meet_written_layers
from licet.declare import Tool
from licet.declare.arguments import ValidatedArguments, is_plain
from licet.declare.plain_json import plain_json
from licet.guard.bind import CallParts
from licet.guard.execution import SandboxUnavailable, ToolCall
from licet.guard.grant import Access, Grant
from licet.guard.import_path import changeable
from licet.guard.limits import WRITTEN_PATHS
from licet.sandbox import probe
from licet.sandbox.bridge.wire import packed
from licet.sandbox.grant_paths import REACHED, Rules, base_rules, denied_among, grant_rules, worker_access
from licet.sandbox.kernel import landlock
from licet.sandbox.limits import MOST_PARKED, PARKED_OF_ONE_TOOL, RESULT_BYTES
from licet.sandbox.workers.tool_source import ToolSource, import_path, source_of, zygote_path
from licet.sandbox.workers.zygote_client import Watched, WorkerProcess, Zygote

# Where the manifest states no limit.
DEFAULTS: Mapping[str, int] = {
    "cpu_seconds": 20,
    "memory_mb": 512,
    "open_files": 128,
    "processes": 32,
    "file_mb": 64,
    "scratch_mb": 256,
    "written_paths": WRITTEN_PATHS,
}


class OpenFile(Protocol):
    """A file that is open as long as there is a reference to it."""

    fd: int


class GuestParts(Struct, frozen=True):
    """What the workers of a tool get that is no Python function, from the package that knows such tools."""

    fixed: Mapping[str, Any]  # what differs in their specification: `limits`, and `guest` with the name of its loader
    reports: Collection[Reason]  # the limits that they enforce and report themselves
    missing: tuple[str, ...] = ()  # walls
    code: OpenFile | None = None
    readable: tuple[str, ...] = ()  # files besides the libraries
    preopens: Callable[[Grant, str], Sequence[Any]] | None = None  # what is open to them of a grant and its workdir


class Prepared(Struct, eq=False, dict=True):
    """What all calls of a tool at a level have in common."""

    tool: Tool
    limits: Mapping[str, int]
    fixed: Mapping[str, Any]
    rules: Callable[[], Rules]  # of the grant, computed for each worker: the files next to a denied path change
    own: Rules  # that each worker of the tool has
    describe: Callable[[Rules], Access]  # the text of the rules for a receipt
    in_force: Callable[[], bool]  # False once the gate was reloaded, frozen or deleted: no such call can come
    counts: bool  # whether its workers can make entries in directories of the grant, which are counted
    guest: GuestParts | None = None
    preopens: Callable[[], Sequence[Any]] | None = None
    forgotten: bool = False  # no worker is parked for it any more
    access: Access | None = None  # the rules around the last worker
    _granted: Rules = field(default_factory=list)

    def spec(self, scratch: str) -> bytes:
        """The first frame for a new worker: its specification."""
        granted = self.rules()
        if self.access is None or granted != self._granted:
            self._granted, self.access = granted, self.describe(granted)
        fixed = self.fixed
        if self.preopens is not None:  # now, as the rules are: a directory may have been made since the last worker
            fixed = {**fixed, "guest": {**fixed["guest"], "preopens": self.preopens()}}
        return packed({**fixed, "rules": [*self.own, *granted], "scratch": scratch})

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """Default values of the tool. They are not sent: the worker has them, and they need not be JSON."""
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.tool.fn).parameters.items()
            if parameter.default is not parameter.empty
        }

    @property
    def watched(self) -> Watched:
        """The limits that the host enforces."""
        entries = self.limits["written_paths"] if self.counts else None
        return Watched(self.limits["scratch_mb"] << 20, self.limits["processes"], entries)


def prepare(
    level: Level, call: ToolCall, parts: CallParts, support: probe.Support, guest: GuestParts | None = None
) -> Prepared:
    """Prepare workers for such calls. Raises `SandboxUnavailable` if there can be none."""
    tool, reach, gate, registered = call.tool, parts.grant.reach, parts.session.gate, parts.registered
    if guest is None:
        support.require(level)
    source = source_of(tool) if guest is None else ToolSource("", "", {})
    limits = {**DEFAULTS, **call.limits}
    base = base_rules(source)
    if guest is not None:
        base += [(file, landlock.READ_FILE, None) for file in guest.readable]
    if inside := denied_among(base, reach.grant):
        raise SandboxUnavailable(f"{inside} may not be read, but lies among the libraries that every worker reads")

    # Only the grant of this call is kept: workers for later calls must not hold its data.
    grant = Grant(parts.grant.request, reach, "", (), _nobody)

    living = ref(gate)  # weak: parked workers do not keep their gate alive

    def in_force() -> bool:
        at = living()
        return at is not None and at.is_current(registered)

    def rules() -> Rules:
        return grant_rules(grant) if level == "isolated" else []

    direct = level == "isolated" and guest is None
    # Scratch has a limit of its own: without a grant there is nothing to count, and no call waits to be counted.
    changes = level == "isolated" and any(rule.domain == "fs" and rule.action != "read" for rule in reach.grant.allow)
    counts = changes and support.wall_holds(probe.ENTRIES)
    fixed = {
        **support.walls_in_spec(guest.missing if guest is not None else ()),
        "module": source.module,
        "qualname": source.qualname,
        "modules": {name: (place.file, place.directory) for name, place in source.modules.items()},
        "path": import_path(),
        "cell": None if source.cell is None else to_builtins(source.cell),
        "bytecode": not any(changeable(path, meet_written_layers(reach.manifest.layers)) for path in source.compiled),
        "async": tool.is_async,
        "context": tool.context_parameter,
        "reuse": tool.reuse,
        "late": direct and any(rule.domain in REACHED for rule in reach.grant.allow),
        # Even without a grant: the host records its refusals, and the kernel does not.
        "connects": direct,
        "programs": variables(reach.grant) if direct else None,
        "directory": gate.workdir if level == "isolated" else "",
        "result_bytes": RESULT_BYTES,
        "guest": None,
        "files": 0 if guest is None or guest.code is None else 1,
        "limits": {
            # A reused worker retires after the CPU time of one call, and is killed after twice that.
            "cpu_seconds": limits["cpu_seconds"] * (2 if tool.reuse else 1),
            "memory_bytes": limits["memory_mb"] << 20,
            "open_files": limits["open_files"],
            "file_bytes": limits["file_mb"] << 20,
        },
    }
    describe = partial(worker_access, level, reach, base, variables(reach.grant) if guest is not None else ())
    if guest is None:
        return Prepared(tool, limits, fixed, rules, base, describe, in_force, counts)
    opened = partial(guest.preopens, grant, gate.workdir) if guest.preopens is not None else None
    return Prepared(tool, limits, {**fixed, **guest.fixed}, rules, base, describe, in_force, counts, guest, opened)


def variables(grant: CapabilitySet) -> list[str]:
    """The environment variables that programs of a tool, or a guest, may get."""
    named = {rule.key for rule in grant.allow if rule.domain == "env" and rule.key != TOP}
    return sorted(name for name in named if grant.has(Use(f"env:read:{name}")))


async def _nobody(approval: Approval, use: Use) -> None:
    raise RuntimeError("no call is running, so no approval can be asked for")


def start_of(prepared: Prepared, call: ToolCall, parts: CallParts, number: int) -> bytes:
    """The frame that starts a call in a worker."""
    given, defaults = call.arguments, prepared.defaults
    if defaults or type(given) is not dict:
        given = {name: value for name, value in given.items() if name not in defaults or value is not defaults[name]}
    # The validated arguments may not validate again (aliases, secrets), so the arguments are sent as they came.
    plain = is_plain(given)
    sent = call.arguments.sent if not plain and isinstance(call.arguments, ValidatedArguments) else plain_json(given)
    head: dict[str, Any] = {"call": number, "plain": plain}
    if prepared.guest is not None:
        environ = parts.ports.environ or {}
        names = variables(parts.grant.capabilities)
        head["environment"] = {name: value for name in names if (value := environ.get(name)) is not None}
    if call.tool.context_parameter is not None:
        session = parts.session
        head |= {"session_id": session.id, "agent": session.agent, "workdir": session.gate.workdir}
    return packed(head, sent)


class _Pool:
    """The parked workers of this process."""

    def __init__(self) -> None:
        self._zygote: Zygote | None = None
        self.start_afresh()

    def start_afresh(self) -> None:
        """In a fork of the host: leave the zygote to the parent. The lock may be held by a thread of the parent."""
        if self._zygote is not None:
            self._zygote.abandon()
        self._lock = threading.Lock()
        self._zygote = None
        self._parked: OrderedDict[Prepared, deque[WorkerProcess]] = OrderedDict()

    def take(self, prepared: Prepared) -> tuple[Zygote, WorkerProcess]:
        """A worker for a call: a parked one, or a new one."""
        with self._lock:
            waiting, zygote = self._parked.get(prepared), self._zygote
            while waiting and zygote is not None and not zygote.dead:
                self._parked.move_to_end(prepared)
                # Reused: the last one used, whose memory is cached. Otherwise: the oldest, which is ready first.
                worker = waiting.pop() if prepared.tool.reuse else waiting.popleft()
                if worker.exit is None and worker.silent():
                    return zygote, worker
                zygote.end(worker)
            zygote = self._living()
            try:
                return zygote, _spawned(zygote, prepared)
            except SandboxUnavailable:
                if zygote.lives():
                    raise
            zygote = self._living()  # it died meanwhile
            return zygote, _spawned(zygote, prepared)

    def spawn(self, spec: Callable[[str], bytes], watched: Watched) -> tuple[Zygote, WorkerProcess]:
        """A worker that is not parked before or after its work."""
        with self._lock:
            zygote = self._living()
            return zygote, zygote.spawn(spec, watched)

    def warm(self, prepared: Prepared) -> None:
        """Start the zygote, if none runs, and the planned number of workers for a tool."""
        with self._lock:
            zygote = self._living()
        self.park(prepared, zygote)

    def park(self, prepared: Prepared, zygote: Zygote) -> None:
        """Start workers until the planned number is parked for a tool."""
        with self._lock:
            if not self._serves(prepared, zygote):
                return
            waiting = self._parked.setdefault(prepared, deque())
            self._parked.move_to_end(prepared)
            try:
                while len(waiting) < PARKED_OF_ONE_TOOL:
                    new = _spawned(zygote, prepared)
                    # The last one is taken for a tool with `reuse`: that stays the one which served a call.
                    waiting.appendleft(new) if prepared.tool.reuse else waiting.append(new)
            except SandboxUnavailable:
                return  # the next call reports why
            self._make_room(zygote)

    def ready(self, prepared: Prepared) -> bool:
        """Whether nearly all planned workers are parked for a tool."""
        return len(self._parked.get(prepared, ())) >= PARKED_OF_ONE_TOOL - 1

    def give_back(self, prepared: Prepared, zygote: Zygote, used: WorkerProcess) -> None:
        """Park a worker that served a call."""
        with self._lock:
            if not self._serves(prepared, zygote):
                zygote.end(used)
                return
            self._parked.setdefault(prepared, deque()).append(used)
            self._parked.move_to_end(prepared)
            self._make_room(zygote)

    def _serves(self, prepared: Prepared, zygote: Zygote) -> bool:
        """Whether workers of a zygote may be parked for such calls: not after a reload, or after the zygote died.

        A gate is reloaded or frozen before it calls `forget`, which waits for the lock that is held here. So workers
        that are parked now are ended by `forget`.
        """
        return zygote is self._zygote and not zygote.dead and not prepared.forgotten and prepared.in_force()

    def _make_room(self, zygote: Zygote) -> None:
        """End parked workers above the limit: of the tool that was used longest ago, the one that would come last."""
        while sum(map(len, self._parked.values())) > MOST_PARKED:
            prepared, waiting = next(iter(self._parked.items()))
            if waiting:
                zygote.end(waiting.popleft() if prepared.tool.reuse else waiting.pop())
            if not waiting:
                del self._parked[prepared]

    def forget(self, gone: Collection[Prepared]) -> None:
        """End the workers that are parked for such calls, and park no more."""
        with self._lock:
            for prepared in gone:
                prepared.forgotten = True
                for worker in self._parked.pop(prepared, ()):
                    if self._zygote is not None:
                        self._zygote.end(worker)

    def _living(self) -> Zygote:
        if self._zygote is None or not self._zygote.lives():
            self._drop()
            self._zygote = Zygote(zygote_path())
        return self._zygote

    def _drop(self) -> None:
        for waiting in self._parked.values():
            for worker in waiting:
                worker.close()
        self._parked.clear()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def close(self) -> None:
        """End the zygote and all workers; the next call starts new ones."""
        with self._lock:
            self._drop()


def _spawned(zygote: Zygote, prepared: Prepared) -> WorkerProcess:
    """Start a worker; the caller holds the lock of the pool."""
    code = prepared.guest.code if prepared.guest is not None else None
    worker = zygote.spawn(prepared.spec, prepared.watched, () if code is None else (code.fd,))
    worker.access = prepared.access
    return worker


pool = _Pool()


def close_workers() -> None:
    """End every worker of this process; the next call starts new ones."""
    pool.close()
