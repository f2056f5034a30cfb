"""Registration: tools meet a manifest, and everything a call will need is worked out before the first one.

This is the first of the three enforcement points. The others are in `call`: call-time resolution, and the
fail-closed guard, whose question (what does this tool need that nothing stands behind?) is answered here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.grid import TooManyPairs
from licet.core.algebra.scope import inside, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import use_of_path
from licet.core.decision.budget import NOTHING
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import REASON_OF_DOMAIN, Ground
from licet.core.decision.validate import Misfit, declared_twice, misfit_grounds, misfit_of, too_many_pairs, unheld_needs
from licet.core.origin import Origin
from licet.core.policy.connector import Installed
from licet.core.policy.effects import CLASSES, LEVELS, class_fits, deletes_ask, level_fits
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import least_limits
from licet.core.policy.tool import ToolSpec
from licet.declare import Tool
from licet.declare.received import parameter_names
from licet.errors import RegistrationRefused
from licet.guard.early_imports import load_code
from licet.guard.execution import SandboxUnavailable
from licet.guard.grant import PART_OF_DOMAIN
from licet.guard.handles.files import held_paths
from licet.guard.import_path import UNCHECKED, Writable, WritableImports, drop, writable_imports
from licet.guard.ports import Ports
from licet.guard.protection import Protect, kept_private, protection_layer

# What a gate asks this machine: the versions of the distributions that connectors are defined by, and, by the name of a
# tool, the distribution that its module belongs to.
Packages = Callable[[Manifest, Sequence[Tool]], tuple[Mapping[str, str], Mapping[str, Installed]]]
OnMisfit = Literal["refuse", "narrow", "deny"]
MODES: tuple[OnMisfit, ...] = get_args(OnMisfit)
WALL_SECONDS, OUTPUT_KB = 30, 1024  # where no limit is stated

_IMPORT_FIX = (
    "grant a subdirectory that holds no code, such as `${workdir}/work`; or start the program with `python -P`, with "
    "the modules that it imports installed; or accept the risk with `Gate(…, unchecked_imports=True)`, which receipts "
    "then say"
)


class Rules(Struct, frozen=True):
    """The argument rules of one admission, and the check that they were made into."""

    rules: Mapping[str, Any]
    check: Callable[[Mapping[str, Any]], str] | None  # None: nothing here can check them, so nothing passes
    defaults: Mapping[str, Any]  # what the tool gets for arguments that are left out
    parameters: Mapping[str, str]  # of arguments with rules: the parameter that takes each
    origin: Origin | None = None  # of the admission


class Registered(Struct, frozen=True):
    """One tool at one gate."""

    tool: Tool
    reach: Reach | None  # None: the manifest does not admit it
    misfits: tuple[Ground, ...]  # why it does not fit: every call of it is denied with these
    validate: Callable[[object], dict[str, Any]]
    missing: Mapping[str, str]  # categories that it needs and that nothing stands behind, and the part that would
    layers: tuple[str, ...]  # what is in force at its level
    unavailable: str  # why its level cannot be kept here; empty if it can
    binaries: Mapping[str, str]  # the programs it may start, by name, as they were found on the host's PATH
    seconds: float
    output_bytes: int
    limits: Mapping[str, int]  # as the manifest has them; engines have defaults of their own
    cost_usd: Decimal  # the most that a call costs: what is set aside for it
    budgeted: bool  # a budget or a number of calls limits it
    asks: bool  # each delete inside a call asks a person
    bound: bool  # a context is bound for it: it takes one, or runs behind walls, from where one is asked
    weighed: bool  # people are asked: each call is decided by its arguments, what was spent and what was agreed to
    rules: tuple["Rules", ...]  # what the manifest says of its arguments
    walls: str  # its level and the layers around it, as text
    tool_digest: str

    @property
    def ready(self) -> bool:
        """Whether nothing stands in the way of a call but its arguments, its budget and the people to be asked."""
        blocked = self.misfits or self.missing or self.unavailable
        return self.reach is not None and not (self.reach.grounds or blocked)


class RegisteredTools(Struct, frozen=True):
    """A manifest and the tools under it. A call takes one and keeps it, whatever is reloaded meanwhile."""

    manifest: Manifest
    digest: str
    tools: Mapping[str, Registered]
    unusable: str = ""  # why nothing can be judged by this manifest, so that every call is refused

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Everything that admitted tools ask for and do not get, where their calls are denied for it."""
        return tuple(misfit_of(name, ground) for name, one in self.tools.items() for ground in one.misfits)


def register(
    manifest: Manifest,
    tools: Sequence[Tool],
    ports: Ports,
    protect: Protect,
    *,
    workdir: str,
    home: str,
    narrow: bool,
    packages: Packages,
    imports: WritableImports = "refuse",
    refuse: bool = False,
    parent: RegisteredTools | None = None,
) -> RegisteredTools:
    """The tools under a manifest. One that is not admitted is no misfit; calls of one that does not fit are denied.

    What `protect` lists is taken out of every grant before anything is compared. A grant over a directory that this
    process imports modules from is a misfit too, unless `imports` says otherwise. With `narrow`, a tool that asks for
    more holds what overlaps; what cannot be narrowed stays a misfit. Under the `parent` of a delegate, what is denied
    there is denied, and a tool that needs something of which the delegate holds nothing. With `refuse`, any misfit
    raises `RegistrationRefused` with all of them.
    """
    installed, owners = packages(manifest, tools)
    manifest = replace(manifest, installed=installed, loaded=manifest.loaded or manifest)
    specs = [_as_declared(tool, manifest) if narrow else tool.spec for tool in tools]
    specs = [replace(spec, package=owners[spec.name]) if spec.name in owners else spec for spec in specs]
    ceiling = manifest.declare(specs, narrow=narrow).expand(workdir, home)
    closed = (*kept_private(ports.state), *protect(manifest, tools))
    ceiling = replace(ceiling, layers=(*ceiling.layers, protection_layer(closed, ceiling.origin)))
    misfits: dict[str, list[Ground]] = {}
    for tool in tools:
        if tool.name in misfits:
            misfits[tool.name].append(declared_twice(tool.name))
            continue
        try:
            misfits[tool.name] = list(_misfits(tool, manifest, ceiling, narrow, parent))
        except TooManyPairs:
            raise RegistrationRefused([misfit_of(tool.name, too_many_pairs(tool.name))]) from None
        misfits[tool.name] += _import_misfits(reach_of(ceiling, tool.name), ports, imports)
    if refuse and any(misfits.values()):
        raise RegistrationRefused(misfit_of(name, ground) for name, found in misfits.items() for ground in found)
    if ports.files is not None:
        ports.files.pin(_roots(ceiling), lambda directory: ceiling.ceiling.has(use_of_path("write", directory)))
    registered = {tool.name: _registered(tool, ceiling, ports, imports, misfits[tool.name]) for tool in tools}
    if imports != "drop":  # a command has nothing on its import path that could be written, and should start quickly
        _load_code(registered.values(), ports)
    return RegisteredTools(ceiling, manifest.digest, registered)


def _misfits(
    tool: Tool, manifest: Manifest, ceiling: Manifest, narrow: bool, parent: RegisteredTools | None
) -> Iterator[Ground]:
    """Why a tool does not fit; nothing for one that is not admitted, since no call of it is."""
    reach = reach_of(ceiling, tool.name)
    if reach is None:
        return
    if parent is not None:
        above = parent.tools.get(tool.name)
        yield from above.misfits if above is not None else ()
        yield from unheld_needs(reach)
        return
    if not narrow:  # otherwise a call holds the overlap
        yield from misfit_grounds(reach)
        yield from _unlike(tool, manifest)
    yield from _misnamed(tool, ceiling)


def _import_misfits(reach: Reach | None, ports: Ports, imports: WritableImports) -> list[Ground]:
    """The directories that a tool may write and this process imports modules from; or import from there no more."""
    if imports == "accept" or reach is None or not _writes_files(reach, ports):
        return []
    found = list(writable_imports(held_paths(reach.grant)))
    if imports == "drop":
        drop(found)
        return []
    return [_import_misfit(reach.spec.name, where) for where in found]


def _writes_files(reach: Reach, ports: Ports) -> bool:
    """Whether any part that a tool may use writes files of this machine: memory twins do not."""
    parts: list[object] = [ports.files]
    if any(rule.domain == "process" for rule in reach.grant.allow):
        parts.append(ports.processes)  # what it starts may write what the tool may
    # At `isolated` the worker itself writes what is granted, whatever stands behind the handles.
    isolated = reach.level == "isolated"
    return isolated or any(part is not None and not getattr(part, "in_memory", False) for part in parts)


def _import_misfit(tool: str, where: Writable) -> Ground:
    entry = where.entry
    said = f"`{tool}` may write {visible(where.path)}, and this process imports modules from {visible(entry.path)}"
    text = f"{said} ({visible(entry.origin)}): what it writes there could run in this process, without walls"
    fix = _IMPORT_FIX
    if where.path != entry.path and inside(where.path, (entry.path,)):
        name = where.path[len(entry.path.rstrip("/")) + 1 :].partition("/")[0]
        text = f"{text}; `{visible(name)}` is also the name of a module, whose place it could take"
        fix = f"give the directory a name that no module has, such as `work`; or {_IMPORT_FIX}"
    return Ground("PATH_NOT_REACHABLE", text, None, fix, f"fs:write:{where.path}")


def _load_code(registered: Iterable[Registered], ports: Ports) -> None:
    """Import what the calls of these tools will need, before any of them runs."""
    reaches = [one.reach for one in registered if one.reach is not None]
    domains = sorted({rule.domain for reach in reaches for rule in reach.grant.allow})
    used = [getattr(ports, PART_OF_DOMAIN[domain][0]) for domain in domains if domain in PART_OF_DOMAIN]
    load_code(domains, (*used, ports.ledger, ports.budgets, ports.approver, ports.sandbox))


def _unlike(tool: Tool, manifest: Manifest) -> Iterator[Ground]:
    """Where a tool is or asks for more than the files declare of it: a reviewer has seen the files."""
    said, spec = manifest.tools.get(tool.name), tool.spec
    if said is None:
        return
    for piece in spec.touches - said.touches:
        text = f"`{tool.name}` needs {piece}, which its declaration does not say"
        fix = f"add `{piece.rule}` to the declaration" if not piece.excepts else "declare the same in both places"
        yield Ground(REASON_OF_DOMAIN[piece.rule.domain], text, said.origin, fix, str(piece.rule))
    differs = f"of `{tool.name}` differs from its declaration"
    same = "state the same in the code and in the declaration"
    if spec.effect and said.effect and not class_fits(spec.effect, said.effect):
        text = f"the class {differs}: {spec.effect}, and {said.effect} there"
        yield Ground("SIDE_EFFECT_EXCEEDED", text, said.origin, same, f"side_effect_class {spec.effect}")
    if spec.sandbox and said.sandbox and not level_fits(spec.sandbox, said.sandbox):
        text = f"the level {differs}: {spec.sandbox}, and {said.sandbox} there"
        yield Ground("SANDBOX_NOT_DECLARED", text, said.origin, same, f"sandbox {spec.sandbox}")
    if spec.connector != said.connector:
        text = f"the connector {differs}: {spec.connector or 'none'}, and {said.connector or 'none'} there"
        named = spec.connector or said.connector
        yield Ground("CONNECTOR_NOT_ALLOWED", text, said.origin, same, f"connector:use:{named.name if named else '*'}")
    if spec.cost_usd != said.cost_usd:
        text = f"the cost {differs}: {spec.cost_usd or 0} USD, and {said.cost_usd or 0} USD there"
        yield Ground("BUDGET_EXCEEDED", text, said.origin, same, f"tool:call:{tool.name}")


def _as_declared(tool: Tool, manifest: Manifest) -> ToolSpec:
    """A tool held to what the files declare of it; connectors cannot be narrowed, so it answers for those of both."""
    said, spec = manifest.tools.get(tool.name), tool.spec
    if said is None:
        return spec
    effects = [effect for effect in (spec.effect, said.effect) if effect]
    levels = [level for level in (spec.sandbox, said.sandbox) if level]
    connector, listed = spec.connector or said.connector, said.connector
    if connector and listed and connector.name == listed.name and not connector.version:
        connector = listed
    others = {*spec.needed_connectors, *said.needed_connectors} - ({connector.name} if connector else set())
    return replace(
        spec,
        needs=(spec.needs & said.touches) | CapabilitySet(f"connector:use:{name}" for name in others),
        optional=spec.optional & said.touches,
        effect=min(effects, key=CLASSES.index, default=None),
        sandbox=min(levels, key=LEVELS.index, default=None),
        connector=connector,
        cost_usd=max(filter(None, (spec.cost_usd, said.cost_usd)), default=None),
    )


def _registered(
    tool: Tool, manifest: Manifest, ports: Ports, imports: WritableImports, misfits: Iterable[Ground]
) -> Registered:
    reach = reach_of(manifest, tool.name)
    limits = manifest.limits
    for admission in reach.admissions if reach is not None else ():
        limits = least_limits(limits, admission.limits)
    layers, unavailable = _layers(reach, ports)
    if imports == "accept":
        layers = (*layers, UNCHECKED)
    asks = reach is not None and reach.effect is not None and deletes_ask(reach.effect)
    cost = (reach.spec if reach is not None else tool.spec).cost_usd or NOTHING
    budgeted = reach is None or not reach.unlimited
    return Registered(
        tool=tool,
        reach=reach,
        misfits=tuple(dict.fromkeys(misfits)),  # a delegate may have one twice: its parent's, and its own
        validate=tool.validator(),
        missing=missing_ports(_wanted(tool, reach), ports),
        layers=layers,
        unavailable=unavailable,
        binaries=_binaries(reach, ports),
        seconds=limits.get("wall_seconds", WALL_SECONDS),
        output_bytes=limits.get("output_kb", OUTPUT_KB) * 1024,
        limits=limits,
        rules=_rules(tool, reach, ports),
        cost_usd=cost,
        budgeted=budgeted,
        asks=asks,
        bound=tool.context_parameter is not None or reach is None or reach.level != "native",
        # A budget is looked at when something is set aside, and before that only where somebody would be asked in vain.
        weighed=asks or reach is None or reach.approval is not None,
        walls=_walls(reach, layers),
        tool_digest=tool.spec.digest,
    )


def _walls(reach: Reach | None, layers: tuple[str, ...]) -> str:
    """The level of a tool and the layers around it, as text."""
    level = reach.level or "" if reach is not None else ""
    return f"{level}: {', '.join(layers)}" if layers else level


def _roots(manifest: Manifest) -> list[str]:
    """Every path that a rule of the manifest's authors names."""
    written = (layer for layer in manifest.layers if layer.kind != "policy files")
    rules = (rule.capability for layer in written for rule in (*layer.allows, *layer.denies))
    return sorted({rule.key for rule in rules if rule.domain == "fs" and rule.key})


def _rules(tool: Tool, reach: Reach | None, ports: Ports) -> tuple[Rules, ...]:
    made = ports.argument_rules
    admissions = [admission for admission in reach.admissions if admission.args] if reach is not None else []
    if not admissions:
        return ()
    taken = tool.schema.get("properties", {})
    defaults = {name: held["default"] for name, held in taken.items() if "default" in held}
    names = parameter_names(tool.fn, tool.context_parameter)
    parameters = {name: held for name, held in names.items() if held is not None}
    return tuple(
        Rules(
            admission.args, made(admission.args) if made is not None else None, defaults, parameters, admission.origin
        )
        for admission in admissions
    )


def _misnamed(tool: Tool, manifest: Manifest) -> Iterator[Ground]:
    """Rules on arguments that the tool does not take, or takes under other names too: they would not stop anything."""
    admissions = [admission for admission in manifest.admissions.get(tool.name, ()) if admission.args]
    if not admissions:
        return
    taken = (tool.spec.schema or {}).get("properties", {})
    parameters = parameter_names(tool.fn, tool.context_parameter)
    for admission in admissions:
        for name in admission.args:
            if name not in taken:
                text = f"`{name}` is not an argument of `{tool.name}`: its rule would stop nothing"
                listed = ", ".join(f"`{one}`" for one in taken)
                fix = f"write the rule for one of {listed}, or take it out" if taken else "take the rule out"
            elif parameters.get(name) is None:
                text = f"`{name}` of `{tool.name}`, or a part of it, can be sent under another name, past its rule"
                fix = "give it one name: no `AliasChoices`, no `AliasPath`, no alias beside a name"
            else:
                continue
            yield Ground("ARGUMENT_NOT_ALLOWED", text, admission.origin, fix, f"args.{name}")


def _wanted(tool: Tool, reach: Reach | None) -> CapabilitySet:
    """What a part must stand behind: all that the tool needs, and of what is optional what it was given."""
    optional = tool.spec.optional
    return tool.spec.needs if reach is None or not optional else tool.spec.needs | (reach.spec.optional & reach.grant)


def missing_ports(needs: CapabilitySet, ports: Ports) -> Mapping[str, str]:
    """The categories that a tool needs and that nothing stands behind, each with the part that would."""
    wanted = sorted({rule.domain for rule in needs.allow} & PART_OF_DOMAIN.keys())
    return {title: port for port, title in map(PART_OF_DOMAIN.__getitem__, wanted) if getattr(ports, port) is None}


def _layers(reach: Reach | None, ports: Ports) -> tuple[tuple[str, ...], str]:
    if reach is None or reach.level is None:
        return (), ""
    if ports.sandbox is None:
        return (), "no sandbox is configured"
    try:
        return ports.sandbox.layers(reach.level), ""
    except SandboxUnavailable as missing:
        return (), str(missing)


def _binaries(reach: Reach | None, ports: Ports) -> Mapping[str, str]:
    if reach is None or ports.processes is None:
        return {}
    names = {rule.key for rule in reach.grant.allow if rule.domain == "process" and rule.key and "/" not in rule.key}
    found = {name: ports.processes.find(name) for name in sorted(names)}
    return {name: path for name, path in found.items() if path}
