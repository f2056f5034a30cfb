"""What a worker of a tool is to be, and what it is told when a call begins: the same bytes as far as they can be."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any
from weakref import ref

from licet.core.decision import Approval
from licet.core.effects import Level
from licet.core.manifest import Manifest, meet_layers
from licet.core.scope import TOP
from licet.core.set import CapabilitySet
from licet.core.use import Use
from licet.declare import Tool
from licet.declare.arguments import Given, is_plain
from licet.declare.json_data import plain_json
from licet.guard.access import Access
from licet.guard.bind import BoundContext
from licet.guard.holding import Holding
from licet.guard.links import changeable
from licet.guard.ports import SandboxUnavailable, ToolCall
from licet.sandbox import probe
from licet.sandbox.children import Watched
from licet.sandbox.fs_rules import Rules, base_rules, denied_among, grant_rules
from licet.sandbox.rules_in_force import REACHED, worker_access
from licet.sandbox.tool_source import import_path, source_of
from licet.sandbox.wire import RESULT_BYTES, framed, members

# Where the manifest states no limit.
DEFAULTS: Mapping[str, int] = {
    "cpu_seconds": 20,
    "memory_mb": 512,
    "open_files": 128,
    "processes": 32,
    "file_mb": 64,
    "scratch_mb": 256,
}
_KNOWN = 512  # sessions whose words are kept


@dataclass(eq=False)
class Prepared:
    """Everything about a tool at a level that is the same for each of its calls."""

    tool: Tool
    level: Level
    grant: CapabilitySet
    stated: Mapping[str, int]
    limits: Mapping[str, int]
    fixed: Mapping[str, Any]
    rules: Callable[[], Rules]  # those of the grant, asked anew for each worker: what lies around a deny changes
    own: Rules  # those that each worker of the tool has
    told: Callable[[Rules], Access]  # what a receipt says of them
    in_force: Callable[[], bool]  # whether such a call could still come: not once its gate was reloaded or frozen
    forgotten: bool = False  # whether no worker may wait for such calls any more
    quick: bool = False  # whether the last of these calls had its answer at once
    access: Access | None = None  # the rules around the worker that was last told what to be
    _granted: Rules = field(default_factory=list)

    def spec(self, scratch: str) -> bytes:
        """What a worker is told to be."""
        granted = self.rules()
        if self.access is None or granted != self._granted:
            self._granted, self.access = granted, self.told(granted)
        changing = members({"rules": [*self.own, *granted], "scratch": scratch})
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
    return Prepared(tool, level, reach.grant, call.limits, limits, fixed, rules, base, told, in_force)


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
    who = b"" if call.tool.context_parameter is None else _who(context.session_id, context.agent, context.workdir)
    return framed(b'{"call":%d,"plain":%s%s}' % (number, b"true" if plain else b"false", who), sent)


@lru_cache(_KNOWN)
def _who(session_id: str, agent: str, workdir: str) -> bytes:
    return b"," + members({"session_id": session_id, "agent": agent, "workdir": workdir})
