"""Registers tools under a manifest: checks that each fits, and computes what its calls need, before the first call.

This is the first of three enforcement points. The other two are in `call`: the decision of each call, and the
fail-closed guard, which refuses a tool whose backends are missing. Which ones are missing is computed here.

What is known about the arguments of a tool when it is registered: the rules of the manifest, and what is tied.

A tool without handles opens files and URLs by itself. Its arguments that name such are tied to its grant. If it touches
files or hosts, and takes other text that nobody has declared free, the gate says so.

Protected paths: data about paths that no tool may write, and the layer of denies that is made from them.

`assemble.never_writable` lists the paths. Handles, workers and programs all use the same grant, so one layer of denies
protects a path from each of them.

Imports the modules that calls need while the gate is built, so that licet imports nothing after a tool has run.

To start quickly, licet imports heavy modules, such as the HTTP client, only when they are used. By then a tool might
have put a file on the import path, which would run in this process. A backend that imports something late has a method
`load_code`, which is called here.
"""

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, get_args

from msgspec import UNSET, Struct
from msgspec.structs import replace

from licet.core.algebra.rules import use_of_path
from licet.core.algebra.scope import inside, visible
from licet.core.algebra.set import CapabilitySet, TooManyPairs
from licet.core.decision.argument_rules import denying, ties_under, untied_ground
from licet.core.decision.decide import consent
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import NOTHING, REASON_OF_DOMAIN, Ground
from licet.core.decision.validate import Misfit, declared_twice, misfit_grounds, misfit_of, too_many_pairs, unheld_needs
from licet.core.ledger.entry import Entry, SandboxFact
from licet.core.policy.argument_ties import Ties
from licet.core.policy.connector import Installed
from licet.core.policy.flow import Flow
from licet.core.policy.keys import FLOW
from licet.core.policy.layer import (
    CLASSES,
    LEVELS,
    class_fits,
    deletes_ask,
    level_fits,
)
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import least_limits
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin
from licet.declare import Tool
from licet.declare.decorator import with_cell
from licet.errors import RegistrationRefused, UntiedArgument
from licet.guard.execution import Layers, LayersOfTools, SandboxUnavailable
from licet.guard.grant import PART_OF_DOMAIN
from licet.guard.held_paths import Protect, held_paths, kept_private, protection_layer
from licet.guard.import_path import UNCHECKED, Writable, WritableImports, drop, writable_imports
from licet.guard.limits import OUTPUT_KB, SHOWN_TOOL_NAME, WALL_SECONDS
from licet.guard.ports import ArgumentRules, Ports

_PACKAGE = "licet"


class Rules(Struct, frozen=True):
    """The rules on arguments of one admission, and the function that checks them."""

    rules: Mapping[str, Any]
    check: Callable[[Mapping[str, Any]], str] | None  # None: they cannot be checked, so every call is refused
    defaults: Mapping[str, Any]  # of arguments that a caller leaves out
    parameters: Mapping[str, str]  # by argument: the parameter of the function that takes it
    origin: Origin | None = None  # of the admission
    asking: Mapping[str, Any] = {}  # by argument: the schema of the values that make a call ask
    refuses: Callable[[Mapping[str, Any]], str] | None = None  # the check of `denying(asking)`


def rules_of(tool: Tool, reach: Reach | None, make_check: ArgumentRules | None) -> tuple[Rules, ...]:
    """The rules of the manifest on the arguments of a tool, one for each admission that has some."""
    stated = [(one, rules) for one in (reach.admissions if reach else ()) if (rules := one.argument_rules)]
    if not stated:
        return ()
    taken = tool.schema.get("properties", {})
    defaults = {name: held["default"] for name, held in taken.items() if "default" in held}
    parameters = {name: held for name, held in tool.parameter_names().items() if held is not None}
    return tuple(
        Rules(
            rules,
            make_check(rules) if make_check is not None else None,
            defaults,
            parameters,
            one.origin,
            one.asking,
            make_check(denying(one.asking)) if make_check is not None and one.asking else None,
        )
        for one, rules in stated
    )


def argument_rule_misfits(tool: Tool, manifest: Manifest) -> Iterator[Ground]:
    """Misfits for rules that stop nothing: on arguments that the tool does not take, or takes under other names too."""
    admissions = [admission for admission in manifest.admissions.get(tool.name, ()) if admission.args]
    if not admissions:
        return
    taken = (tool.spec.schema or {}).get("properties", {})
    parameters = tool.parameter_names()
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


def ties_of_tool(tool: Tool, reach: Reach | None) -> Ties | None:
    """What is tied of the arguments of a tool without handles, by the parameters that take them.

    A field of a model that can be sent under several names is tied if any of them says so.
    """
    if reach is None or not reach.spec.governed:
        return None
    schema, parameters = tool.tied_schema()
    ties = ties_under(replace(reach, spec=replace(reach.spec, schema=schema)))
    assert ties is not None  # noqa: S101 - it is governed, and has a schema
    return Ties({parameters[name]: rule for name, rule in ties.rules.items()}, ties.tied, ties.untied)


def untied_grounds(tool: Tool, manifest: Manifest) -> tuple[Ground, ...]:
    """Why a strict gate refuses a tool: text in its arguments is not tied to what it declares."""
    reach = reach_of(manifest, tool.name)
    ties = ties_of_tool(tool, reach)
    if reach is None or ties is None:
        return ()
    ground = untied_ground(reach, ties)
    return () if ground is None else (ground,)


def warn_untied(grounds: Iterable[Ground]) -> None:
    """Warn about text in arguments that is not tied, at the line of the program that makes the gate."""
    frame = inspect.currentframe()
    assert frame is not None  # noqa: S101 - CPython has frames
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    for ground in grounds:
        text = f"{ground.text}; {ground.fix}"
        warnings.warn_explicit(text, UntiedArgument, frame.f_code.co_filename, frame.f_lineno)


_ALWAYS = ("rfc8785",)  # canonical JSON with floats or non-ASCII keys
_OF_DOMAIN = {"network": ("licet.guard.handles.fetch",)}


def load_code(domains: Iterable[str], parts: Iterable[object]) -> None:
    """Import the modules for capabilities of these domains and for these backends."""
    for name in (*_ALWAYS, *(name for domain in domains for name in _OF_DOMAIN.get(domain, ()))):
        importlib.import_module(name)
    for part in parts:
        load = getattr(type(part), "load_code", None)  # of its class: an object may have any attribute
        if load is not None:
            load(part)


# Looks up what is installed: the versions of the distributions of connectors, and the distribution of each tool by the
# name of the tool.
Packages = Callable[[Manifest, Sequence[Tool]], tuple[Mapping[str, str], Mapping[str, Installed]]]
OnMisfit = Literal["refuse", "narrow", "deny"]
MODES: tuple[OnMisfit, ...] = get_args(OnMisfit)

_IMPORT_FIX = (
    "grant a subdirectory that holds no code, such as `${workdir}/work`; or start the program with `python -P`, with "
    "the modules that it imports installed; or accept the risk with `Gate(…, unchecked_imports=True)`, which receipts "
    "then say"
)


class Registered(Struct, frozen=True):
    """One tool at one gate."""

    tool: Tool
    reach: Reach | None  # None: the manifest does not admit it
    misfits: tuple[Ground, ...]  # why it does not fit; its calls are denied with these
    validate: Callable[[object], dict[str, Any]]
    missing: Mapping[str, str]  # kinds of backends that it needs and that are not configured: title -> field of `Ports`
    layers: tuple[str, ...]  # the walls around it
    unavailable: str  # why this machine does not support its level; empty if it does
    binaries: Mapping[str, str]  # the paths of programs it may start, by name, from the host's PATH
    seconds: float
    output_bytes: int
    limits: Mapping[str, int]  # those that the manifest states; the sandbox has defaults for the others
    cost_usd: Decimal  # the most that a call costs; this is reserved for it
    budgeted: bool  # a budget or a number of calls limits it
    asks: bool  # each delete inside a call needs an approval
    needs_context: bool  # a call needs a context: the tool has the parameter, or runs behind walls
    needs_approval: bool  # calls may need one: arguments and earlier approvals are looked up before the decision
    rules: tuple[Rules, ...]  # on its arguments
    ties: Ties | None  # of its arguments, if it has no handles
    walls: str  # its level and the layers around it, as text
    entry: Entry  # what the receipts of all of its calls have in common
    sent_names: Mapping[str, str] = {}  # by parameter: the name of its argument in policies; only under `flow:`

    @property
    def ready(self) -> bool:
        """Whether a call can run, if its arguments, its budget and the approver permit."""
        blocked = self.misfits or self.missing or self.unavailable
        return self.reach is not None and not (self.reach.grounds or blocked)


class RegisteredTools(Struct, frozen=True):
    """A manifest and the tools under it. A call keeps the one it started with when the gate is reloaded."""

    manifest: Manifest
    digest: str
    tools: Mapping[str, Registered]
    unusable: str = ""  # why the manifest cannot be used; then every call is refused
    grounds: tuple[Ground, ...] = ()  # the same with places and fixes, if they are known
    flow: Flow | None = None  # None: origins of arguments do not matter

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """What admitted tools need and the manifest does not allow. Their calls are denied."""
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
    strict: bool = False,
    parent: RegisteredTools | None = None,
) -> RegisteredTools:
    """Register tools under a manifest. Calls of a tool that does not fit are denied.

    - A tool that the manifest does not admit is not a misfit.
    - The paths that `protect` lists are removed from every grant first.
    - A grant to write where this process imports modules from is a misfit, unless `imports` is `drop` or `accept`.
    - With `narrow`, a tool that needs too much holds the overlap. What cannot be narrowed is still a misfit.
    - With `parent`, for a delegate, a tool has the misfits that it has there, and one if the delegate holds nothing of
      something that it needs.
    - Text in the arguments of a tool without handles that is not tied to its grant is a warning, or with `strict` a
      misfit.
    - With `refuse`, misfits raise `RegistrationRefused`, which lists all of them.
    """
    tools = [with_cell(tool) for tool in tools]
    installed, owners = packages(manifest, tools)
    manifest = replace(manifest, installed=installed, loaded=manifest.loaded or manifest)
    specs = [_as_declared(tool, manifest) if narrow else tool.spec for tool in tools]
    # A server's tool has the version of its server; the module of its function is one of licet.
    specs = [replace(one, package=owners[one.name]) if one.name in owners and not one.package else one for one in specs]
    ceiling = manifest.declare(specs, narrow=narrow).expand(workdir, home)
    closed = (*kept_private(ports.state), *protect(manifest, tools))
    ceiling = replace(ceiling, layers=(*ceiling.layers, protection_layer(closed, ceiling.origin)))
    misfits: dict[str, list[Ground]] = {}
    untied: list[Ground] = []
    searched: _Searched = {}
    for tool in tools:
        if tool.name in misfits:
            misfits[tool.name].append(declared_twice(tool.name))
            continue
        try:
            misfits[tool.name] = list(_misfits(tool, manifest, ceiling, narrow, parent))
            if parent is None:  # otherwise the parent has said so
                (misfits[tool.name] if strict else untied).extend(untied_grounds(tool, ceiling))
        except TooManyPairs:
            raise RegistrationRefused([misfit_of(tool.name, too_many_pairs(tool.name))]) from None
        misfits[tool.name] += _import_misfits(reach_of(ceiling, tool.name), ports, imports, searched)
    if refuse and any(misfits.values()):
        raise RegistrationRefused(misfit_of(name, ground) for name, found in misfits.items() for ground in found)
    warn_untied(untied)
    if ports.files is not None:
        ports.files.pin(_roots(ceiling), lambda directory: ceiling.ceiling.has(use_of_path("write", directory)))
    registered = {tool.name: _registered(tool, ceiling, ports, imports, misfits[tool.name]) for tool in tools}
    if imports != "drop":  # a command has dropped every writable directory, and should start quickly
        _load_code(registered.values(), ports)
    return RegisteredTools(ceiling, manifest.digest, registered, flow=FLOW.of(ceiling) or None)


def _misfits(
    tool: Tool, manifest: Manifest, ceiling: Manifest, narrow: bool, parent: RegisteredTools | None
) -> Iterator[Ground]:
    """Why a tool does not fit; empty for one that is not admitted."""
    reach = reach_of(ceiling, tool.name)
    if reach is None:
        return
    if why := manifest.withheld.get(tool.name):
        # A review shows a server's tool as not callable: a function with its name must not take its place.
        text = f"`{tool.name}` is the name of a server's tool, and {why}"
        yield Ground("UNKNOWN_TOOL", text, manifest.origin, "give the function another name", f"tool:call:{tool.name}")
    if parent is not None:
        above = parent.tools.get(tool.name)
        yield from above.misfits if above is not None else ()
        yield from unheld_needs(reach)
        return
    if not narrow:  # otherwise a call holds the overlap
        yield from misfit_grounds(reach)
        yield from _declaration_misfits(tool, manifest)
    yield from argument_rule_misfits(tool, ceiling)


# By the paths that may be written and those that may not: the writable places on the import path.
_Searched = dict[tuple[tuple[str, ...], tuple[str, ...]], list[Writable]]


def _import_misfits(reach: Reach | None, ports: Ports, imports: WritableImports, searched: _Searched) -> list[Ground]:
    """Misfits for writable directories on the import path of this process. With `drop`, take these off the path.

    Most tools of a policy may write the same paths, and the import path is searched once for all of these.
    """
    if imports == "accept" or reach is None or not _writes_files(reach, ports):
        return []
    held = held_paths(reach.grant)
    written = held.allowed("write"), held.denied("write")
    if written not in searched:
        searched[written] = list(writable_imports(held))
    found = searched[written]
    if imports == "drop":
        drop(found)
        return []
    return [_import_misfit(reach.spec.name, where) for where in found]


def _writes_files(reach: Reach, ports: Ports) -> bool:
    """Whether a tool can write real files. Memory backends do not."""
    parts: list[object] = [ports.files]
    if any(rule.domain == "process" for rule in reach.grant.allow):
        parts.append(ports.processes)  # programs may write what the tool may
    # At `isolated` the worker itself can write what is granted, also if the files backend is in memory.
    isolated = reach.level == "isolated"
    return isolated or any(part is not None and not getattr(part, "in_memory", False) for part in parts)


def _import_misfit(tool: str, where: Writable) -> Ground:
    entry = where.entry
    text = f"`{tool}` may write {visible(where.path)}, and this process imports modules from {visible(entry.path)}"
    text = f"{text} ({visible(entry.origin)}): what it writes there could run in this process, without walls"
    fix = _IMPORT_FIX
    if where.path != entry.path and inside(where.path, (entry.path,)):
        name = where.path[len(entry.path.rstrip("/")) + 1 :].partition("/")[0]
        text = f"{text}; `{visible(name)}` is also the name of a module, whose place it could take"
        fix = f"give the directory a name that no module has, such as `work`; or {_IMPORT_FIX}"
    return Ground("PATH_NOT_REACHABLE", text, None, fix, f"fs:write:{where.path}")


def _load_code(registered: Iterable[Registered], ports: Ports) -> None:
    reaches = [one.reach for one in registered if one.reach is not None]
    domains = sorted({rule.domain for reach in reaches for rule in reach.grant.allow})
    used = [getattr(ports, PART_OF_DOMAIN[domain][0]) for domain in domains if domain in PART_OF_DOMAIN]
    load_code(domains, (*used, ports.ledger, ports.budgets, ports.approver, ports.sandbox))


def _declaration_misfits(tool: Tool, manifest: Manifest) -> Iterator[Ground]:
    """Misfits where the code of a tool needs more than its declaration in the policy files, which were reviewed."""
    declared, spec = manifest.tools.get(tool.name), tool.spec
    if declared is None:
        return
    for piece in spec.touches - declared.touches:
        text = f"`{tool.name}` needs {piece}, which its declaration does not say"
        fix = f"add `{piece.rule}` to the declaration" if not piece.excepts else "declare the same in both places"
        yield Ground(REASON_OF_DOMAIN[piece.rule.domain], text, declared.origin, fix, str(piece.rule))
    differs = f"of `{tool.name}` differs from its declaration"
    same = "state the same in the code and in the declaration"
    if spec.effect and declared.effect and not class_fits(spec.effect, declared.effect):
        text = f"the class {differs}: {spec.effect}, and {declared.effect} there"
        yield Ground("SIDE_EFFECT_EXCEEDED", text, declared.origin, same, f"side_effect_class {spec.effect}")
    if spec.sandbox and declared.sandbox and not level_fits(spec.sandbox, declared.sandbox):
        text = f"the level {differs}: {spec.sandbox}, and {declared.sandbox} there"
        yield Ground("SANDBOX_NOT_DECLARED", text, declared.origin, same, f"sandbox {spec.sandbox}")
    if spec.connector != declared.connector:
        text = f"the connector {differs}: {spec.connector or 'none'}, and {declared.connector or 'none'} there"
        named = spec.connector or declared.connector
        yield Ground(
            "CONNECTOR_NOT_ALLOWED", text, declared.origin, same, f"connector:use:{named.name if named else '*'}"
        )
    if spec.cost_usd != declared.cost_usd:
        text = f"the cost {differs}: {spec.cost_usd or 0} USD, and {declared.cost_usd or 0} USD there"
        yield Ground("BUDGET_EXCEEDED", text, declared.origin, same, f"tool:call:{tool.name}")


def _as_declared(tool: Tool, manifest: Manifest) -> ToolSpec:
    """The spec of a tool, narrowed to its declaration in the policy files; it keeps the connectors of both."""
    declared, spec = manifest.tools.get(tool.name), tool.spec
    if declared is None:
        return spec
    effects = [effect for effect in (spec.effect, declared.effect) if effect]
    levels = [level for level in (spec.sandbox, declared.sandbox) if level]
    connector, listed = spec.connector or declared.connector, declared.connector
    if connector and listed and connector.name == listed.name and not connector.version:
        connector = listed
    others = {*spec.needed_connectors, *declared.needed_connectors} - ({connector.name} if connector else set())
    return replace(
        spec,
        needs=(spec.needs & declared.touches) | CapabilitySet(f"connector:use:{name}" for name in others),
        optional=spec.optional & declared.touches,
        effect=min(effects, key=CLASSES.index, default=None),
        sandbox=min(levels, key=LEVELS.index, default=None),
        connector=connector,
        cost_usd=max(filter(None, (spec.cost_usd, declared.cost_usd)), default=None),
    )


def _registered(
    tool: Tool, manifest: Manifest, ports: Ports, imports: WritableImports, misfits: Iterable[Ground]
) -> Registered:
    reach = reach_of(manifest, tool.name)
    limits = manifest.limits
    for admission in reach.admissions if reach is not None else ():
        limits = least_limits(limits, admission.limits)
    layers, unavailable = _layers(tool, reach, ports)
    in_force = (*layers.in_force, UNCHECKED) if imports == "accept" else layers.in_force
    asks = reach is not None and reach.effect is not None and deletes_ask(reach.effect)
    cost = (reach.spec if reach is not None else tool.spec).cost_usd or NOTHING
    budgeted = reach is None or not reach.unlimited
    walls = SandboxFact(
        level=reach.level if reach is not None else None, layers=in_force, missing=layers.missing or UNSET
    )
    entry = entry_of(tool.name, manifest)
    return Registered(
        tool=tool,
        reach=reach,
        misfits=tuple(dict.fromkeys(misfits)),  # a delegate may repeat a misfit of its parent
        validate=tool.validator(),
        missing=missing_ports(_needs_backend(tool, reach), ports),
        layers=in_force,
        unavailable=unavailable,
        binaries=_binaries(reach, ports),
        seconds=limits.get("wall_seconds", WALL_SECONDS),
        output_bytes=limits.get("output_kb", OUTPUT_KB) * 1024,
        limits=limits,
        rules=rules_of(tool, reach, ports.argument_rules),
        ties=ties_of_tool(tool, reach),
        cost_usd=cost,
        budgeted=budgeted,
        asks=asks,
        needs_context=tool.context_parameter is not None or reach is None or reach.level != "native",
        # Then the budget is read before the decision, so that no approver is asked about a call that exceeds it.
        needs_approval=asks or reach is None or reach.approval is not None or _asks_about_arguments(reach),
        walls=_walls(reach, in_force),
        sent_names=_sent_names(tool) if reach is not None and FLOW.of(manifest) else {},
        entry=replace(entry, tool_digest=tool.spec.digest, rules=admission_rules(tool.name, reach), sandbox=walls),
    )


def _sent_names(tool: Tool) -> Mapping[str, str]:
    return {held: name for name, held in tool.parameter_names().items() if held is not None}


def entry_of(tool: str, manifest: Manifest) -> Entry:
    """What the receipts of all calls of this name have in common under a manifest."""
    return Entry(
        kind="decision",
        id="",
        agent="",
        session="",
        tool=visible(tool[:SHOWN_TOOL_NAME]) + "…" * (len(tool) > SHOWN_TOOL_NAME),
        time="",
        manifest=manifest.digest,
        organisation=tuple([above.digest for above in manifest.organisations]) or UNSET,
    )


def _asks_about_arguments(reach: Reach) -> bool:
    return any(one.asking for one in reach.admissions)


def admission_rules(tool: str, reach: Reach | None) -> tuple[str, ...]:
    """What a receipt says of a tool: where it is admitted, and how its writes and deletes are approved."""
    if reach is None:
        return ()
    admitted = [visible(f"`{tool}` is admitted ({admission.origin})") for admission in reach.admissions]
    approved = consent(reach)
    return (*admitted, visible(approved)) if approved else tuple(admitted)


def _walls(reach: Reach | None, layers: tuple[str, ...]) -> str:
    """The level of a tool and the layers around it, as text."""
    level = reach.level or "" if reach is not None else ""
    return f"{level}: {', '.join(layers)}" if layers else level


def _roots(manifest: Manifest) -> list[str]:
    """Every path in the rules of the manifest, without those that licet added."""
    written = (layer for layer in manifest.layers if layer.kind != "protected paths")
    rules = (rule.capability for layer in written for rule in (*layer.allows, *layer.denies))
    return sorted({rule.key for rule in rules if rule.domain == "fs" and rule.key})


def _needs_backend(tool: Tool, reach: Reach | None) -> CapabilitySet:
    """The capabilities that need a backend: all that the tool needs, and the granted part of the optional ones."""
    optional = tool.spec.optional
    return tool.spec.needs if reach is None or not optional else tool.spec.needs | (reach.spec.optional & reach.grant)


def missing_ports(needs: CapabilitySet, ports: Ports) -> Mapping[str, str]:
    """The titles of backends that a tool needs and that are not configured, each with its field of `Ports`."""
    wanted = sorted({rule.domain for rule in needs.allow} & PART_OF_DOMAIN.keys())
    return {title: port for port, title in map(PART_OF_DOMAIN.__getitem__, wanted) if getattr(ports, port) is None}


def _layers(tool: Tool, reach: Reach | None, ports: Ports) -> tuple[Layers, str]:
    if reach is None or reach.level is None:
        return Layers(), ""
    sandbox = ports.sandbox
    if sandbox is None:
        return Layers(), "no sandbox is configured"
    try:
        if isinstance(sandbox, LayersOfTools):
            return sandbox.tool_layers(tool, reach.level, allow_degraded=reach.manifest.allow_degraded), ""
        return Layers(sandbox.layers(reach.level)), ""
    except SandboxUnavailable as missing:
        return Layers(), str(missing)


def _binaries(reach: Reach | None, ports: Ports) -> Mapping[str, str]:
    if reach is None or ports.processes is None:
        return {}
    names = {rule.key for rule in reach.grant.allow if rule.domain == "process" and rule.key and "/" not in rule.key}
    found = {name: ports.processes.find(name) for name in sorted(names)}
    return {name: path for name, path in found.items() if path}
