"""From checked files to a `Manifest`: what each key means, and what keys must agree on. Nothing is read from disk.

A file that already has problems is read as far as it goes, so that one run reports everything; its manifest is dropped.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from licet.backends.argument_rules import argument_problems
from licet.backends.shape_parts import nearest
from licet.backends.shapes import Located
from licet.core.capability import Capability, capability
from licet.core.connector import ConnectorRule, Connectors
from licet.core.domain import DOMAINS
from licet.core.manifest import (
    ALL_BUT_NETWORK,
    EVERY_DOMAIN,
    Approvals,
    Budget,
    Example,
    Layer,
    Manifest,
    MaxEffect,
    Rule,
    Seat,
    WriteApproval,
)
from licet.core.origin import Origin, Problem
from licet.core.set import CapabilitySet
from licet.core.tool import ToolSpec

Value = Located[Any]
Fields = Mapping[str, Value]
Problems = list[Problem]
_NONE: Fields = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Ceiling:
    """The keys of `capabilities`, wherever they stand: in a manifest or in a personality."""

    keys: Fields
    prefix: str
    origin: Origin

    def listed(self, *path: str) -> tuple[Value, ...]:
        found = _at(self.keys, *path)
        return found.value if found is not None else ()

    def rules(self, domain: str, action: str, *path: str) -> Iterator[Rule]:
        """The rules that a list of bare scopes (paths, names) stands for."""
        atoms = DOMAINS[domain].actions[action]
        for item in self.listed(*path):
            key = "" if item.value == "*" else item.value
            yield Rule(capability(domain, atoms, key, None), item.origin, self.prefix + ".".join(path))

    def whole_rules(self, *path: str) -> Iterator[Rule]:
        """The rules of a list that holds whole capabilities (hosts are read as such too)."""
        for item in self.listed(*path):
            yield Rule(item.value, item.origin, self.prefix + ".".join(path))


def read_manifest(content: Value, workspace: Value | None, problems: Problems) -> Manifest:
    """The manifest that a file and its workspace say."""
    given: Fields = content.value
    held = given.get("capabilities")
    ceiling = _Ceiling(held.value if held else _NONE, "capabilities.", _key(held) if held else content.origin)
    app = _plain(given, "app", "")
    manifest = _read_ceiling(ceiling, "manifest", _plain(given, "agent", ""), app, workspace, problems)
    return replace(
        manifest,
        origin=content.origin,
        version=_plain(given, "version", ""),
        app=app,
        examples=tuple(_examples(given)),
    )


def read_personality(content: Value, workspace: Value | None, problems: Problems) -> Manifest:
    """The ceiling that a personality says; alone it is a manifest for an agent of its name."""
    given: Fields = content.value
    if "safety" in given and "destinations" in given:
        found, expected = "`safety.network` beside `destinations`", "one spelling of the same list"
        problems.append(Problem(_key(given["safety"]), found, expected))
    name = _plain(given, "id", "")
    manifest = _read_ceiling(_Ceiling(given, "", content.origin), "personality", name, "", workspace, problems)
    return replace(manifest, origin=content.origin, personality=name)


def _read_ceiling(
    ceiling: _Ceiling, kind: Any, agent: str, app: str, workspace: Value | None, problems: Problems
) -> Manifest:
    shared: Fields = workspace.value if workspace is not None else _NONE
    seats = _seats(ceiling, shared, problems)
    connectors = _connectors(ceiling, shared, app)
    tools, sources = _declarations(shared, problems)
    native = ceiling.listed("native")
    for item in native:
        if item.value not in seats:
            hint = nearest(item.value, seats, problems)
            problems.append(Problem(item.origin, f"`{item.value}`", "a tool that this agent has", hint, "warning"))
    approvals, budget = _record(ceiling.keys, "approvals"), _record(ceiling.keys, "budget")
    keys = tuple(item.value for item in approvals["keys"].value) if "keys" in approvals else None
    quorum = _plain(approvals, "quorum", 1)
    if keys is not None and quorum > len(set(keys)):
        found, expected = f"a quorum of {quorum}", f"at most {len(set(keys))}, the number of keys"
        problems.append(Problem(_key(approvals["keys"]), found, expected))
    effect = ceiling.keys.get("max_side_effect_class")
    manifest = Manifest(
        agent=agent,
        origin=ceiling.origin,
        layers=(*_workspace_layer(shared, problems), _own_layer(ceiling, kind, seats)),
        seats=MappingProxyType(seats),
        tools=MappingProxyType(tools),
        sources=MappingProxyType(sources),
        max_effects=(
            MaxEffect(effect.value, effect.origin, True) if effect else MaxEffect("read_only", ceiling.origin, False),
        ),
        private=(tuple(item.value for item in ceiling.listed("private")),),
        native=frozenset(item.value for item in native),
        connectors=connectors,
        approvals=Approvals(
            _plain(approvals, "write", "session"), _plain(approvals, "expires_seconds", 300), quorum, keys
        ),
        budget=Budget(**{key: value.value for key, value in budget.items()}),
        limits=_numbers(ceiling.keys.get("limits")),
        allow_degraded=_plain(_record(ceiling.keys, "sandbox"), "allow_degraded", False),
        record=_plain(ceiling.keys, "record", "digests"),
        servers=MappingProxyType({name: _data(server) for name, server in _record(shared, "servers").items()}),
    )
    if manifest.budget.max_cost_usd is not None or manifest.budget.max_cost_usd_per_day is not None:
        problems += _uncounted(manifest)
    return manifest


def _own_layer(ceiling: _Ceiling, kind: Any, seats: Mapping[str, tuple[Seat, ...]]) -> Layer:
    always = [
        Rule(Capability(f"storage:*:{name}"), ceiling.origin, "in every ceiling")
        for name in ("tool-private", "session")
    ]
    admitted = [
        Rule(Capability(f"tool:call:{tool}"), held[0].origin, f"{ceiling.prefix}tools") for tool, held in seats.items()
    ]
    hosts = ("safety", "network") if "safety" in ceiling.keys else ("destinations",)
    allows = (
        *ceiling.whole_rules(*hosts, "allow"),
        *ceiling.rules("fs", "read", "fs_reach", "read"),
        *ceiling.rules("fs", "write", "fs_reach", "write"),
        *ceiling.rules("fs", "delete", "fs_reach", "write"),
        *ceiling.rules("env", "read", "env"),
        *ceiling.rules("secret", "read", "secrets"),
        *ceiling.rules("process", "exec", "process", "allowed_binaries"),
        *(
            Rule(Capability(f"storage:*:{item.value}"), item.origin, f"{ceiling.prefix}storage")
            for item in ceiling.listed("storage")
        ),
        *ceiling.whole_rules("grants"),
        *always,
        *admitted,
    )
    denies = (*ceiling.whole_rules(*hosts, "deny"), *ceiling.whole_rules("deny"))
    # Connectors have versions; their lists are a layer of their own, made for each tool.
    return Layer(kind, f"the {kind}", ceiling.origin, allows, denies, frozenset({"connector"}))


def _workspace_layer(shared: Fields, problems: Problems) -> Iterator[Layer]:
    held = shared.get("destinations")
    if held is None:
        return
    narrowing = _Ceiling(held.value, "destinations.", _key(held))
    if "default" in held.value and "allow" not in held.value:
        found, expected = "`default: deny` without an `allow` list", "an `allow` list, since absent it does not narrow"
        hint = "write `allow: []` to reach nothing, or leave `default` out"
        problems.append(Problem(_key(held.value["default"]), found, expected, hint))
    allows, denies = tuple(narrowing.whole_rules("allow")), tuple(narrowing.whole_rules("deny"))
    if "allow" in held.value:
        yield Layer("workspace", "the workspace", narrowing.origin, allows, denies, ALL_BUT_NETWORK)
    elif denies:
        yield Layer("workspace", "the workspace", narrowing.origin, (), denies, EVERY_DOMAIN)


def _seats(ceiling: _Ceiling, shared: Fields, problems: Problems) -> dict[str, tuple[Seat, ...]]:
    """Every tool that is admitted, through a bundle or by name."""
    seats: dict[str, tuple[Seat, ...]] = {}
    bundles = _record(shared, "bundles")
    for item in {item.value: item for item in ceiling.listed("bundles")}.values():
        bundle = bundles.get(item.value)
        if bundle is None:
            hint = nearest(item.value, bundles, problems) or "define it under `bundles` in the workspace, `licet.yaml`"
            problems.append(Problem(item.origin, f"the bundle `{item.value}`", "a bundle of the workspace", hint))
            continue
        for tool in {tool.value: tool for tool in _plain(bundle.value, "tools", ())}.values():
            if tool.value in seats:
                found = f"`{tool.value}` in `{item.value}` and in `{seats[tool.value][0].bundle}`"
                problems.append(Problem(tool.origin, found, "a tool in one of the assigned bundles"))
                continue
            seats[tool.value] = (_bundle_seat(item.value, bundle.value, tool.origin),)
    named = ceiling.keys.get("tools")
    if named is not None and isinstance(named.value, tuple):
        for item in named.value:
            seats.setdefault(item.value, (Seat(item.origin),))
    elif named is not None:
        for tool, entry in named.value.items():
            problems += argument_problems(entry.value.get("args"))
            seats[tool] = (*seats.get(tool, ()), _named_seat(entry))
    default = _plain(_record(ceiling.keys, "approvals"), "write", "session")
    return {tool: _asked(held, default) for tool, held in seats.items()}


def _asked(seats: tuple[Seat, ...], default: WriteApproval) -> tuple[Seat, ...]:
    """The seats of a tool, one of them saying how this ceiling wants to be asked."""
    if any(seat.approval for seat in seats):
        return seats
    return (replace(seats[0], approval=default), *seats[1:])


def _bundle_seat(name: str, bundle: Fields, origin: Origin) -> Seat:
    layer = None
    if "destinations" in bundle:
        narrowing = _Ceiling(bundle, f"bundles.{name}.", _key(bundle["destinations"]))
        rules = tuple(narrowing.whole_rules("destinations"))
        layer = Layer("bundle", f"bundles.{name}", narrowing.origin, rules, (), ALL_BUT_NETWORK)
    return Seat(
        origin,
        name,
        effects=_stated(bundle, "side_effect_class"),
        levels=_stated(bundle, "sandbox"),
        layer=layer,
        limits=_numbers(bundle.get("limits")),
    )


def _named_seat(entry: Value) -> Seat:
    given: Fields = entry.value
    return Seat(
        _key(entry),
        effects=_stated(given, "side_effect_class"),
        levels=_stated(given, "sandbox"),
        args=_data(given["args"]) if "args" in given else MappingProxyType({}),
        approval=_plain(given, "approval", None),
        max_calls=_plain(given, "max_calls", None),
        limits=_numbers(given.get("limits")),
    )


def _declarations(shared: Fields, problems: Problems) -> tuple[dict[str, ToolSpec], dict[str, tuple[str, Origin]]]:
    """Tools that are declared inline, and where the others are declared."""
    tools: dict[str, ToolSpec] = {}
    sources: dict[str, tuple[str, Origin]] = {}
    for name, held in _record(shared, "tools").items():
        given: Fields = held.value
        if ("from" in given) == ("needs" in given) or ("from" in given and len(given) > 1):
            found = "neither `from` nor `needs`" if not given.keys() & {"from", "needs"} else "`from` beside other keys"
            expected = "`from` alone, or `needs` with effect, sandbox, connector and cost_usd"
            problems.append(Problem(_key(held), found, expected, "`needs: []` is a tool that touches nothing"))
        elif "from" in given:
            sources[name] = given["from"].value, given["from"].origin
        else:
            connector = _plain(given, "connector", None)
            needs = [rule.value for rule in given["needs"].value]
            linked = [Capability(f"connector:use:{connector.name}")] if connector else []
            tools[name] = ToolSpec(
                name,
                CapabilitySet([*needs, *linked]),
                effect=_plain(given, "effect", None),
                sandbox=_plain(given, "sandbox", None),
                connector=connector,
                cost_usd=_plain(given, "cost_usd", None),
                origin=_key(held),
            )
    return tools, sources


def _connectors(ceiling: _Ceiling, shared: Fields, app: str) -> Connectors:
    held = _record(shared, "connectors")
    override: Fields = _record(_record(held, "app_overrides"), app)
    return Connectors(
        tenant=_lines(held.get("tenant_allowlist")),
        app=_lines(override["allow"]) if "allow" in override else None,
        app_deny=_lines(override.get("deny")),
        profiles=(_lines(ceiling.keys.get("connectors")),),
    )


def _lines(held: Value | None) -> tuple[ConnectorRule, ...]:
    lines = []
    for item in held.value if held is not None else ():
        given = item.value
        name, versions = (
            (given, "") if isinstance(given, str) else (_plain(given, "connector", ""), _plain(given, "version", ""))
        )
        lines.append(ConnectorRule(name, versions, item.origin))
    return tuple(lines)


def _examples(given: Fields) -> Iterator[Example]:
    held = _record(given, "examples")
    for key, matches in (("match", True), ("no_match", False)):
        for item in held[key].value if key in held else ():
            yield Example(_plain(item.value, "tool", ""), str(_plain(item.value, "use", "")), matches, item.origin)


def _uncounted(manifest: Manifest) -> Iterator[Problem]:
    for name in manifest.seats:
        spec = manifest.tools.get(name)
        if spec is not None and spec.cost_usd is None:
            found, expected = f"`{name}` without `cost_usd`", "a cost, since the budget counts money"
            yield Problem(spec.origin or manifest.origin, found, expected, "it counts as 0", "warning")


def _at(keys: Fields, *path: str) -> Value | None:
    held: Value | None = None
    for part in path:
        held = keys.get(part)
        if held is None:
            return None
        keys = held.value if isinstance(held.value, Mapping) else _NONE
    return held


def _record(keys: Fields, key: str) -> Fields:
    held = keys.get(key)
    return held.value if held is not None else _NONE


def _plain(keys: Fields, key: str, default: Any) -> Any:
    held = keys.get(key)
    return held.value if held is not None else default


def _stated(keys: Fields, key: str) -> tuple[tuple[Any, Origin], ...]:
    held = keys.get(key)
    return ((held.value, held.origin),) if held is not None else ()


def _numbers(held: Value | None) -> Mapping[str, int]:
    return MappingProxyType({key: item.value for key, item in held.value.items()} if held is not None else {})


def _data(held: Value) -> Any:
    """A checked value as plain data without places, which nobody can change."""
    value = held.value
    return _frozen([_data(item) for item in value] if isinstance(value, tuple) else value)


def _frozen(value: Any) -> Any:
    match value:
        case Located():
            return _data(value)
        case Capability():
            return str(value)
        case Mapping():
            return MappingProxyType({str(key): _frozen(item) for key, item in value.items()})
        case list():
            return tuple(map(_frozen, value))
    return value


def _key(held: Value) -> Origin:
    return held.key_origin or held.origin
