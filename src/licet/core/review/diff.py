"""Compares what two manifests allow: what has grown, what has shrunk, and what else is different.

- The meaning is compared, not the text. There are no changes exactly if the two surfaces are equal.
- If it cannot be decided which side allows more (JSON Schemas, version ranges), the change counts as grown.
- The paths of the policy files themselves, which every manifest closes for writing, are not compared.

Several agents side by side: who reaches what, and what changed for which of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import PATH_DOMAINS, RESOURCE_KINDS, ResourceKind
from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet, Piece
from licet.core.policy import keys
from licet.core.policy.argument_ties import FREE
from licet.core.policy.connector import Connectors
from licet.core.policy.flow_terms import argument_flow, asked_no_less, asks_no_less, flow_shifts
from licet.core.policy.inspection import connections, hosts_of, places_of
from licet.core.policy.keys import limit_step
from licet.core.policy.layer import CLASSES, LEVELS, WRITES, Layer, meet_layers
from licet.core.policy.manifest import COMMANDS, Manifest
from licet.core.policy.terms import APPROVED_IN_REVIEW, Admission, Step, WriteApproval, delete_step, write_step
from licet.core.review.changes import (
    Change,
    ChangePlaces,
    Changes,
    Side,
    SidedChanges,
    both_ways,
    bundle_changes,
    definition_changes,
    keyed,
    moved_tools,
    ranked,
    server_changes,
    signers_text,
    version_changes,
)
from licet.core.review.risk import Risk, riskiest, rule_risk
from licet.core.review.surface import Surface, ToolSurface, surface, withheld_lines
from licet.core.review.surface_entries import ReachEntry, RuleOrigins, piece_text, target_of
from licet.core.values import Origin

_NOTHING = CapabilitySet()
_FREE = f'"{FREE}"'  # as canonical JSON
_WRITE = Capability("fs:write:*").atoms
_DELETE = Capability("fs:delete:*").atoms
_PERSONAL = CapabilitySet(("storage:*:personality",))


class _Version:
    """One of the two manifests, with its surface."""

    def __init__(self, manifest: Manifest) -> None:
        # Each manifest denies writes to its own files. Their paths differ, so a mere copy would show changes.
        layers = tuple(replace(one, denies=()) if one.kind == "protected paths" else one for one in manifest.layers)
        # Compare both as if they were pinned and approved: `manifest` under `approvals` has no effect otherwise.
        approved = {"pinned": "licet diff", "standing": APPROVED_IN_REVIEW}
        self.manifest = replace(manifest, layers=layers, loaded=manifest.loaded or manifest, **approved)
        self.surface: Surface = surface(self.manifest)
        every = (*self.surface.tools, *filter(None, (self.surface.commands,)))
        self.tools: dict[str, ToolSurface] = {tool.name: tool for tool in every}
        self.grants = tuple(dict.fromkeys(tool.grant for tool in every))
        self._writing = {grant for grant in self.grants if grant & WRITES}
        for ground in (ground for tool in every for ground in tool.grounds):
            # The surface shows such a tool as blocked. A comparison would then hide what has grown.
            if ground.reason == "DECISION_FAILED":
                raise ValueError(f"{ground}" + (f"; {ground.fix}" if ground.fix else ""))

    def layers(self, tool: str) -> tuple[Layer, ...]:
        admissions = self.manifest.admissions.get(tool, ())
        return self.manifest.layers + tuple(admission.layer for admission in admissions if admission.layer)

    def place(self, key: str) -> Origin:
        if key == keys.MAX_EFFECT.name:
            return self.manifest.max_effect_origin
        return self.manifest.places.get(key, self.manifest.origin)

    def origin_stating(self, tool: str, states: Callable[[Admission], object]) -> Origin:
        """Where the manifest states something about a tool; if nowhere, where the tool is admitted."""
        admissions = self.manifest.admissions.get(tool, ())
        return next(
            (admission.origin for admission in (*filter(states, admissions), *admissions)), self.manifest.origin
        )

    def grant(self, tool: str) -> CapabilitySet:
        return self.tools[tool].grant if tool in self.tools else _NOTHING

    def write_approval(self, tool: ToolSurface) -> WriteApproval | None:
        """How often the tool needs approval for writes; None if it cannot write."""
        asks = tool.asks if tool.asks_writes else None
        return asks or ("manifest" if tool.grant in self._writing else None)


class _ExtraReach:
    """What tools reach in one version and not in the other. Results are cached, since many tools have equal grants."""

    def __init__(self, mine: _Version, other: _Version) -> None:
        self._mine, self._other = mine, other
        self._pieces: dict[tuple[CapabilitySet, CapabilitySet], tuple[Piece, ...]] = {}
        self._origins: dict[
            tuple[tuple[Layer, ...], tuple[Layer, ...]], tuple[RuleOrigins, CapabilitySet, dict[Capability, bool]]
        ] = {}

    def pieces(self, tool: str) -> Iterator[tuple[Piece, Origin | None]]:
        """Yield each piece, with the origin of the rule that allows it."""
        grants = self._mine.grant(tool), self._other.grant(tool)
        if grants not in self._pieces:
            self._pieces[grants] = grants[0] - grants[1]
        for piece in self._pieces[grants]:
            yield piece, self._origin(tool, piece.rule)

    def targets(self) -> set[tuple[str, str, int | None]]:
        """The hosts that were found, and the paths that can be written, of all tools that were compared."""
        rules = [piece.rule for pieces in self._pieces.values() for piece in pieces]
        hosts = {("network", rule.key, rule.port) for rule in rules if rule.domain == "network"}
        written = (rule for rule in rules if rule.domain == "fs" and rule.atoms & _WRITE)
        return hosts | {("fs:write", rule.key, rule.port) for rule in written}

    def _origin(self, tool: str, rule: Capability) -> Origin | None:
        layers, others = both = self._mine.layers(tool), self._other.layers(tool)
        if both not in self._origins:
            self._origins[both] = RuleOrigins(layers, others), meet_layers(others), {}
        origins, other_ceiling, covered = self._origins[both]
        if rule not in covered:
            covered[rule] = CapabilitySet((rule,)) <= other_ceiling
        # If the other ceiling allows the rule too, the tool itself has changed: its declaration, class or level.
        return self._mine.tools[tool].origin if covered[rule] else origins.nearest(rule)


def diff(old: Manifest, new: Manifest) -> Changes:
    """Compare two manifests; `ValueError` if no decision is possible for a tool of one of them.

    Call `manifest.expand` on both first. A deny below `~` or `${workdir}` cannot be decided without real directories.
    """
    before, after = _Version(old), _Version(new)
    found: dict[Side, list[Change]] = {"grown": [], "shrunk": [], "changed": []}
    sides = [(side, _ExtraReach(mine, other)) for side, mine, other in both_ways(before, after)]
    for name in sorted(before.tools.keys() | after.tools.keys(), key=lambda name: (name == COMMANDS, name)):
        for side, change in (*_tool_changes(name, before, after), *_reach_changes(name, sides)):
            found[side].append(change)
    for side, change in (
        *_withheld_changes(before, after),
        *_ceiling_changes(before, after, dict(sides)),
        *_name_changes(before, after),
        *_ordered_changes(before, after),
        *_list_changes(before, after),
    ):
        found[side].append(change)
    manifests = before.manifest, after.manifest
    for side, change in (*bundle_changes(*manifests), *moved_tools(*manifests, before.surface, after.surface)):
        found[side].append(change)
    return Changes(
        ranked(found["grown"], after.tools), ranked(found["shrunk"], before.tools), ranked(found["changed"], {})
    )


def _tool_changes(name: str, old: _Version, new: _Version) -> SidedChanges:
    """Compare whether a tool can be called, and if it can on both sides, everything but its reach."""
    was, now = old.tools.get(name), new.tools.get(name)
    standings = (was.standing if was else "absent"), (now.standing if now else "absent")
    if was and now and was.reachable and now.reachable:
        yield from _callable_tool_changes(was, now, old, new)
    elif now and now.reachable:
        text = _can(name, "can") if now.standing == "callable" else f"`{name}` is admitted, declared nowhere"
        yield "grown", Change("tool", name, text, *standings, now.origin)
    elif was and was.reachable:
        yield "shrunk", Change("tool", name, _can(name, "can no longer"), *standings, was.origin)
    elif was != now and (shown := now or was) and not shown.withheld:  # those are in `_withheld_changes`
        yield "changed", Change("tool", name, f"{_can(name, 'cannot')}, as before", *standings, shown.origin)


def _withheld_changes(old: _Version, new: _Version) -> SidedChanges:
    """Compare the tools of servers that cannot be called before or after, in one line for each server and reason."""
    pairs = [(old.tools.get(name), new.tools.get(name)) for name in sorted(old.tools.keys() | new.tools.keys())]
    pairs = [pair for pair in pairs if any(one and one.withheld for one in pair)]  # first: comparing takes longer
    pairs = [(was, now) for was, now in pairs if was != now and not any(one and one.reachable for one in (was, now))]
    here = withheld_lines(now for _, now in pairs if now)
    gone = withheld_lines(was for was, now in pairs if was and not now)
    for text in (*here, *(f"no longer admitted: {text}" for text in gone)):
        yield "changed", Change("tool", None, text, origin=new.place("servers"))


def _can(name: str, can: str) -> str:
    return f"any command {can} be run" if name == COMMANDS else f"`{name}` {can} be called"


def _reach_changes(name: str, sides: Iterable[tuple[Side, _ExtraReach]]) -> SidedChanges:
    """Compare what a tool reaches."""
    for side, extra in sides:
        for piece, origin in extra.pieces(name):
            text = piece_text(piece)
            yield from ChangePlaces(origin, origin, name).only_on(side, "reach", text, text, piece.rule)


def _callable_tool_changes(was: ToolSurface, now: ToolSurface, old: _Version, new: _Version) -> SidedChanges:
    """Compare a tool that can be called on both sides: everything but its reach."""
    places = ChangePlaces(was.origin, now.origin, now.name)
    if was.standing != now.standing:
        yield from places.value_changed("changed", "declaration", "declaration", was.standing, now.standing)
    if was.bundles != now.bundles:
        yield from places.value_changed("changed", "bundle", "bundle", ", ".join(was.bundles), ", ".join(now.bundles))
    if now.name != COMMANDS:  # their class is the agent's `max_side_effect_class`, which is compared already
        yield from places.stepped(Step("effect", "class", was.effect, now.effect, CLASSES.index))
    yield from places.stepped(Step("level", "level", was.level, now.level, LEVELS.index))
    yield from places.stepped(Step("cost", "cost_usd", was.cost_usd or Decimal(0), now.cost_usd or Decimal(0)))
    for key in ("max_calls", "max_cost_usd"):
        stated = _stated(now.name, old, new, lambda admission, key=key: getattr(admission, key) is not None)  # type: ignore[misc]
        yield from stated.stepped(Step("limit", key, getattr(was, key), getattr(now, key)))
    if was.connector != now.connector:
        # Without a connector a tool reaches no more than before. With another one it talks to a new system.
        yield from places.value_changed(
            "grown" if now.connector else "changed", "connector", "connector", was.connector, now.connector
        )
    if was.optional != now.optional:
        # Its reach is compared elsewhere. Optional needs are those that the tool can do without.
        words = ", ".join(was.optional), ", ".join(now.optional)
        yield from places.value_changed("changed", "optional", "optional needs", *words)
    yield from _definition_changes(places, was, now)
    asked, asks = old.write_approval(was), new.write_approval(now)
    if asked and asks and (asked, asks) != (old.surface.approvals.write, new.surface.approvals.write):
        yield from places.stepped(write_step(asked, asks))
    yield from _delete_changes(was, now, old, new, places)
    theirs = dict(old.surface.limits), dict(new.surface.limits)
    for key, before, after in keyed(was.limits, now.limits):
        if (before, after) != (theirs[0].get(key), theirs[1].get(key)):  # otherwise the agent's own line reports it
            stated = _stated(now.name, old, new, lambda one, key=key: key in one.limits)  # type: ignore[misc]
            yield from stated.stepped(limit_step(key, before, after))
    for key, rules, kept in keyed(was.args, now.args):
        if rules != kept:
            # An argument must satisfy all its rules. Additional rules narrow, and `free` widens; so may other changes.
            was_rules, now_rules = set(rules or ()), set(kept or ())
            freed = _FREE in now_rules - was_rules
            narrowed = was_rules - {_FREE} <= now_rules - {_FREE}
            side: Side = "shrunk" if narrowed and not freed else "grown"
            words = " and ".join(rules or ()), " and ".join(kept or ())
            stated = _stated(now.name, old, new, lambda admission, key=key: key in admission.args)  # type: ignore[misc]
            yield from stated.value_changed(side, "arguments", f"rules on `{key}`", *words)
    yield from _flow_rule_changes(was, now, old, new)


def _flow_rule_changes(was: ToolSurface, now: ToolSurface, old: _Version, new: _Version) -> SidedChanges:
    """Compare where the arguments of a tool must come from, and the words that a task must have."""
    for name, rules, kept in keyed(was.flow, now.flow):
        if rules != kept:
            side: Side = "shrunk" if asks_no_less(kept or (), rules or ()) else "grown"
            words = was.flow_texts.get(name, ""), now.flow_texts.get(name, "")
            stated = _stated(now.name, old, new, lambda one, name=name: argument_flow(one.args.get(name)))  # type: ignore[misc]
            yield from stated.value_changed(side, "flow", f"where `{name}` comes from", *words)
    if was.asked_by != now.asked_by:
        side = "shrunk" if asked_no_less(now.asked_by, was.asked_by) else "grown"
        texts = (" and ".join(" or ".join(words) for words in each.asked_by) for each in (was, now))
        stated = _stated(now.name, old, new, lambda one: one.asked_by)
        yield from stated.value_changed(side, "flow", "asked for by", *texts)


def _definition_changes(places: ChangePlaces, was: ToolSurface, now: ToolSurface) -> SidedChanges:
    """Compare descriptions, parameters and `reuse` of a tool."""
    if was.description != now.description:
        yield from places.value_changed("changed", "description", "description", was.description, now.description)
    if was.takes != now.takes:  # which of the two takes more is not decided
        yield from places.value_changed("grown", "arguments", "takes", was.takes, now.takes)
    yield from places.stepped(Step("reuse", "reuse", was.reuse, now.reuse))


def _stated(tool: str, old: _Version, new: _Version, states: Callable[[Admission], object]) -> ChangePlaces:
    return ChangePlaces(old.origin_stating(tool, states), new.origin_stating(tool, states), tool)


def _delete_changes(
    was: ToolSurface, now: ToolSurface, old: _Version, new: _Version, places: ChangePlaces
) -> SidedChanges:
    """Compare when the deletes of a tool ask, where that differs from what the policy says for all tools."""
    asked, asks = was.deletes or "call", now.deletes or "call"
    if (asked, asks) != (old.surface.approvals.delete, new.surface.approvals.delete):
        yield from places.stepped(delete_step(asked, asks))


def _ceiling_changes(old: _Version, new: _Version, extra: Mapping[Side, _ExtraReach]) -> SidedChanges:
    """Compare what the policy allows, also where no tool needs it today.

    A rule that a tool reaches is reported as reach. So is a host that a tool reaches in some way, and a delete where it
    writes: one entry of `destinations` or `fs_reach.write` allows all of these, and the class of the tool decides.
    """
    for side, mine, other in both_ways(old, new):
        reached = CapabilitySet(rule for grant in mine.grants for rule in grant.allow)
        reported = extra[side].targets()
        origins = RuleOrigins(mine.manifest.layers, other.manifest.layers)
        for piece in mine.surface.ceiling - other.surface.ceiling:
            rule, ways = piece.rule, {"network": "network", "fs": "fs:write"}
            seen = (ways.get(rule.domain, ""), rule.key, rule.port) in reported
            if CapabilitySet((rule,)) <= reached or (seen and (rule.domain == "network" or rule.atoms == _DELETE)):
                continue
            text, origin = piece_text(piece), origins.nearest(rule)
            yield from ChangePlaces(origin, origin).only_on(side, "ceiling", f"the ceiling allows {text}", text, rule)


def _name_changes(old: _Version, new: _Version) -> SidedChanges:
    places = ChangePlaces(old.manifest.origin, new.manifest.origin)
    for what in ("agent", "version", "app", "personality"):
        before, after = getattr(old.surface, what) or "", getattr(new.surface, what) or ""
        if before != after:
            # The name of a personality selects its store. With another name, tools reach another store.
            wider = what == "personality" and any(grant & _PERSONAL for grant in new.grants)
            yield from places.value_changed("grown" if wider else "changed", "name", what, before, after)


def _ordered_changes(old: _Version, new: _Version) -> SidedChanges:
    """Compare the agent-wide values that have an order, such as classes, limits and budgets."""
    for key in keys.KEYS:
        for step in key.ordered(old.surface.of(key), new.surface.of(key)):
            yield from _places_of(old, new, step.key or key.name).stepped(step)


def _list_changes(old: _Version, new: _Version) -> SidedChanges:
    """Compare the agent-wide lists, such as native tools, private ranges, connectors and denies."""
    for side, mine, other in both_ways(old, new):
        for key in keys.KEYS:
            for text, item in key.listed(mine.surface.of(key), other.surface.of(key)):
                yield from _places_of(old, new, key.name).only_on(side, key.kind, text, item)
        yield from _deny_changes(side, mine, other)
        yield from _inspect_changes(side, mine, other)
    for what, *labels in flow_shifts(old.surface.of(keys.FLOW), new.surface.of(keys.FLOW)):
        yield from _places_of(old, new, "flow").value_changed("changed", "flow", f"label of {what}", *labels)
    yield from _signing_changes(old, new)
    connectors = _places_of(old, new, "connectors")
    yield from version_changes(old.surface.connectors, new.surface.connectors, connectors)
    yield from definition_changes(old.surface.definitions, new.surface.definitions, connectors)
    yield from server_changes(old.surface.servers, new.surface.servers, partial(_places_in_server, old, new))


def _inspect_changes(side: Side, mine: _Version, other: _Version) -> SidedChanges:
    """Compare which connections are looked into: those that the other side looks into and this one does not.

    Where this side has a tunnel, it sends there what nobody sees. Where it has none, only the programs of the other
    side can make requests there.
    """
    looked_into, place = (keys.INSPECT.of(one.manifest) for one in (mine, other)), mine.place(keys.INSPECT.name)
    here, there = map(places_of, looked_into)
    for piece in there - here:
        places = CapabilitySet((piece.rule,))
        (host,) = hosts_of(places)
        made: Side = "grown" if side == "shrunk" else "shrunk"
        if places & _tunnels(mine, surely=side == "shrunk"):
            text = f"connections to {host} are not looked into"
            yield from ChangePlaces(place, place).only_on(side, "inspect", text, host)
        elif connections(places, "https") & other.surface.ceiling:
            text, origin = f"programs make requests to {host}, which are looked into", other.place(keys.INSPECT.name)
            yield from ChangePlaces(origin, origin).only_on(made, "inspect", text, host)
        else:
            text, origin = f"connections to {host} are looked into", other.place(keys.INSPECT.name)
            words = ("", host) if side == "shrunk" else (host, "")
            yield from ChangePlaces(origin, origin).value_changed("changed", "inspect", text, *words)


def _tunnels(version: _Version, *, surely: bool) -> CapabilitySet:
    """The connections that programs may open, or that nothing in the policy rules out."""
    commands = version.surface.commands
    return commands.grant if surely and commands is not None else version.surface.ceiling


def _signing_changes(old: _Version, new: _Version) -> SidedChanges:
    was, now = old.surface.approvals, new.surface.approvals
    if (was.keys is None) != (now.keys is None):
        # Without a list, approvals need no signature. So a new list narrows, and a removed one widens.
        words = (f"keys {signers_text(one)}" if one.keys else signers_text(one) for one in (was, now))
        side: Side = "grown" if now.keys is None else "shrunk"
        yield from _places_of(old, new, "approvals").value_changed(side, "approval", "who approves", *words)
    for key in sorted({*(was.keys or ())} & {*(now.keys or ())}):
        owners = was.names.get(key, ""), now.names.get(key, "")
        if owners[0] != owners[1]:
            yield from _places_of(old, new, "approvals").value_changed(
                "changed", "approval", f"owner of {key}", *owners
            )


def _deny_changes(side: Side, mine: _Version, other: _Version) -> SidedChanges:
    """Compare denies: those that the other side has and this one has not.

    If a missing deny widens the reach of a tool, `_reach_changes` reports that, so the deny is only `changed`. This
    does not work for a deny and an allow below different roots (`~`, `${workdir}`, `/`): whether they overlap depends
    on the machine. Such a deny counts as grown or shrunk itself.
    """
    denied = CapabilitySet(deny.rule for deny in mine.surface.denies)
    pieces = CapabilitySet(deny.rule for deny in other.surface.denies) - denied
    allows = [rule for grant in mine.grants for rule in grant.allow] if pieces else []
    for piece in pieces:
        may_widen = any(_may_overlap(piece.rule, rule) for rule in allows)
        origin = next((deny.origin for deny in other.surface.denies if deny.rule.meet(piece.rule)), None)
        text = piece_text(piece)
        before, after = (text, "") if side == "grown" else ("", text)
        places = ChangePlaces(origin, origin)
        yield from places.value_changed(side if may_widen else "changed", "deny", "denied", before, after)


def _may_overlap(deny: Capability, allow: Capability) -> bool:
    """Whether two rules below different roots, such as `~` and `/`, could cover the same file on some machine."""
    if deny.domain != allow.domain or deny.domain not in PATH_DOMAINS or not deny.atoms & allow.atoms:
        return False
    roots = {target_of(rule).partition("/")[0] for rule in (deny, allow)}
    return len(roots) == 2 and "*" not in roots and bool(roots & {"~", "${workdir}"})


def _places_of(old: _Version, new: _Version, key: str) -> ChangePlaces:
    return ChangePlaces(old.place(key), new.place(key))


def _places_in_server(old: _Version, new: _Version, server: str, part: str) -> ChangePlaces:
    """Where a part of a server is written, such as `tools.read`; the server itself if the part has no place."""
    keys_of_it = (f"servers.{server}.{part}", f"servers.{server}")
    key = next((key for key in keys_of_it if any(key in one.manifest.places for one in (old, new))), keys_of_it[1])
    return ChangePlaces(old.place(key), new.place(key))


class Reached(Struct, frozen=True):
    """One host, path or other target, what can be done there, and who can do it."""

    kind: ResourceKind
    target: str
    ways: tuple[str, ...]
    excepts: tuple[str, ...]  # what nobody of them reaches below it
    risk: Risk
    holders: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """The target as plain data."""
        return {
            "kind": self.kind,
            "target": self.target,
            "ways": list(self.ways),
            "except": list(self.excepts),
            "risk": self.risk.document(),
            "reached_by": list(self.holders),
        }


def reached_by(holders: Iterable[tuple[str, Iterable[ReachEntry]]]) -> tuple[Reached, ...]:
    """Everything that some holders reach, riskiest first."""
    found: dict[tuple[ResourceKind, str], list[tuple[str, ReachEntry]]] = {}
    for holder, entries in holders:
        for entry in entries:
            found.setdefault((entry.kind, entry.target), []).append((holder, entry))
    every = [
        Reached(
            kind,
            target,
            tuple(dict.fromkeys(way for _, entry in held for way in entry.ways)),
            tuple(one for one in held[0][1].excepts if all(one in entry.excepts for _, entry in held)),
            riskiest(rule_risk(piece.rule) for _, entry in held for piece in entry.pieces),
            tuple(dict.fromkeys(holder for holder, _ in held)),
        )
        for (kind, target), held in found.items()
    ]
    return tuple(sorted(every, key=lambda one: (one.risk.rank, RESOURCE_KINDS.index(one.kind), one.target)))


def reached_in(surfaces: Mapping[str, Surface]) -> tuple[Reached, ...]:
    """Everything that the agents of a workspace reach, each with `agent: tool` of its holders."""
    return reached_by(
        (f"{title}: {tool.name}", tool.entries)
        for title, shown in surfaces.items()
        for tool in (*shown.tools, *filter(None, (shown.commands,)))
    )


def diff_agents(old: Mapping[str, Manifest], new: Mapping[str, Manifest]) -> dict[str, Changes]:
    """Compare the agents of two versions, by key. A new agent counts as grown, one that is gone as shrunk."""
    found = {}
    for key in sorted(old.keys() | new.keys()):
        if key in old and key in new:
            found[key] = diff(old[key], new[key])
        elif key in new:
            found[key] = Changes(grown=_whole("is new", new[key], diff(_without_reach(new[key]), new[key]).grown))
        else:
            found[key] = Changes(shrunk=_whole("is gone", old[key], diff(old[key], _without_reach(old[key])).shrunk))
    return found


def joined(changes: Mapping[str, Changes], side: Side) -> tuple[tuple[Change, tuple[str, ...]], ...]:
    """The changes of one side, each once, with the agents that have it; riskiest first."""
    found: dict[tuple[str | None, str], tuple[Change, list[str]]] = {}
    for key, each in changes.items():
        for change in getattr(each, side):
            found.setdefault((change.tool, change.text), (change, []))[1].append(key)
    listed = sorted(found.values(), key=lambda one: one[0].risk.rank)
    return tuple((change, tuple(keys)) for change, keys in listed)


def _whole(what: str, manifest: Manifest, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    risk = surface(manifest).risk
    return Change("agent", None, f"agent `{manifest.agent}` {what}", origin=manifest.origin, risk=risk), *changes


def _without_reach(manifest: Manifest) -> Manifest:
    nothing: dict[str, Any] = {
        "admissions": {},
        "layers": (),
        "servers": {},
        "private": (),
        "natives": (),
        "definitions": {},
        "values": {},
    }
    return replace(manifest, **nothing, connectors=Connectors(), bundles={}, max_effects=())
