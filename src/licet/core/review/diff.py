"""What grew and what shrank between two manifests: by what they mean, never by how they are written.

Nothing is found exactly when the two surfaces are equal. Each manifest protects its own files; where those files lie
is not compared. Where nobody can tell here which side is wider (JSON Schemas, version ranges), it counts as grown.
"""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal

from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.algebra.domains import PATH_DOMAINS
from licet.core.algebra.set import CapabilitySet, Piece
from licet.core.origin import Origin
from licet.core.policy.addresses import beyond
from licet.core.policy.commands import COMMANDS
from licet.core.policy.effects import CLASSES, LEVELS, WRITES
from licet.core.policy.layer import Layer, meet_layers
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import BUDGET_KEYS, WRITE_APPROVALS, Admission, WriteApproval
from licet.core.review.changes import (
    Change,
    Changes,
    Found,
    Side,
    Spot,
    T,
    definition_changes,
    no_limit_is_most,
    server_changes,
)
from licet.core.review.diff_bundles import bundle_changes, moved_tools
from licet.core.review.entries import Written, piece_text, target_of
from licet.core.review.surface import Surface, ToolSurface, surface

_NOTHING = CapabilitySet()
_ASKED: dict[WriteApproval, str] = {
    "call": "before each call",
    "session": "once a session",
    "manifest": "never (the file approves them)",
}
_PERSONAL = CapabilitySet(("storage:*:personality",))


class _Version:
    """One of the two manifests, with its surface."""

    def __init__(self, manifest: Manifest) -> None:
        # Both protect the files they came from, and those have two names here: without this, every copy would differ.
        layers = tuple(replace(one, denies=()) if one.kind == "policy files" else one for one in manifest.layers)
        # Both as if they were pinned: what is compared is what each file approves once somebody accepts it.
        self.manifest = replace(manifest, layers=layers, loaded=manifest.loaded or manifest, pinned="licet diff")
        self.surface: Surface = surface(self.manifest)
        every = (*self.surface.tools, *filter(None, (self.surface.commands,)))
        self.tools: dict[str, ToolSurface] = {tool.name: tool for tool in every}
        # Tools that hold the same hold one set: what is asked of it is asked once.
        self.grants = tuple(dict.fromkeys(tool.grant for tool in every))
        self._writing = {grant for grant in self.grants if grant & WRITES}
        for ground in (ground for tool in every for ground in tool.grounds):
            # A tool about which nothing could be decided counts as blocked; compared as such it would hide what grew.
            if ground.reason == "DECISION_FAILED":
                raise ValueError(f"{ground}" + (f"; {ground.fix}" if ground.fix else ""))

    def layers(self, tool: str) -> tuple[Layer, ...]:
        admissions = self.manifest.admissions.get(tool, ())
        return self.manifest.layers + tuple(admission.layer for admission in admissions if admission.layer)

    def place(self, key: str) -> Origin:
        return self.manifest.places.get(key, self.manifest.origin)

    def stating(self, tool: str, states: Callable[[Admission], object]) -> Origin:
        """Where the manifest states something about a tool, or would."""
        admissions = self.manifest.admissions.get(tool, ())
        return next(
            (admission.origin for admission in (*filter(states, admissions), *admissions)), self.manifest.origin
        )

    def grant(self, tool: str) -> CapabilitySet:
        return self.tools[tool].grant if tool in self.tools else _NOTHING

    def asking(self, tool: ToolSurface) -> WriteApproval | None:
        """How a tool's writes ask; None if it holds none, and there is nothing to compare."""
        return tool.asks or ("manifest" if tool.grant in self._writing else None)


class _Beyond:
    """What tools reach in one version and not in the other; tools that hold the same are compared once."""

    def __init__(self, mine: _Version, other: _Version) -> None:
        self._mine, self._other = mine, other
        self._pieces: dict[tuple[CapabilitySet, CapabilitySet], tuple[Piece, ...]] = {}
        self._places: dict[
            tuple[tuple[Layer, ...], tuple[Layer, ...]], tuple[Written, CapabilitySet, dict[Capability, bool]]
        ] = {}

    def pieces(self, tool: str) -> Iterator[tuple[str, Origin | None]]:
        """Each piece in words, and where the rule is written that lets it in."""
        grants = self._mine.grant(tool), self._other.grant(tool)
        if grants not in self._pieces:
            self._pieces[grants] = grants[0] - grants[1]
        for piece in self._pieces[grants]:
            yield piece_text(piece), self._origin(tool, piece.rule)

    def _origin(self, tool: str, rule: Capability) -> Origin | None:
        layers, others = both = self._mine.layers(tool), self._other.layers(tool)
        if both not in self._places:
            self._places[both] = Written(layers, others), meet_layers(others), {}
        written, ceiling, known = self._places[both]
        if rule not in known:
            known[rule] = CapabilitySet((rule,)) <= ceiling
        # What the other ceiling lets in too is new because of the tool itself: its declaration, class or place.
        return self._mine.tools[tool].origin if known[rule] else written.nearest(rule)


def diff(old: Manifest, new: Manifest) -> Changes:
    """What grew, what shrank and what else changed; both with real directories (`manifest.expand`), or `ValueError`."""
    before, after = _Version(old), _Version(new)
    found: dict[Side, list[Change]] = {"grown": [], "shrunk": [], "changed": []}
    sides = [(side, _Beyond(mine, other)) for side, mine, other in _both_ways(before, after)]
    for name in sorted(before.tools.keys() | after.tools.keys(), key=lambda name: (name == COMMANDS, name)):
        for side, change in (*_tool(name, before, after), *_reach(name, sides)):
            found[side].append(change)
    for side, change in (*_names(before, after), *_scales(before, after), *_lists(before, after)):
        found[side].append(change)
    manifests = before.manifest, after.manifest
    for side, change in (*bundle_changes(*manifests), *moved_tools(*manifests, before.surface, after.surface)):
        found[side].append(change)
    return Changes(tuple(found["grown"]), tuple(found["shrunk"]), tuple(found["changed"]))


def _tool(name: str, old: _Version, new: _Version) -> Found:
    """Whether a tool can be called on both sides, and what is different about it then."""
    was, now = old.tools.get(name), new.tools.get(name)
    standings = (was.standing if was else "absent"), (now.standing if now else "absent")
    if was and now and was.reachable and now.reachable:
        yield from _same_tool(was, now, old, new)
    elif now and now.reachable:
        text = _can(name, "can") if now.standing == "callable" else f"`{name}` is admitted, declared nowhere"
        yield "grown", Change("tool", name, text, *standings, now.origin)
    elif was and was.reachable:
        yield "shrunk", Change("tool", name, _can(name, "can no longer"), *standings, was.origin)
    elif was != now:
        origin = now.origin if now else was.origin if was else None
        yield "changed", Change("tool", name, f"{_can(name, 'cannot')}, as before", *standings, origin)


def _can(name: str, can: str) -> str:
    return f"any command {can} be run" if name == COMMANDS else f"`{name}` {can} be called"


def _reach(name: str, sides: Iterable[tuple[Side, _Beyond]]) -> Found:
    """Exactly what a tool reaches on one side and not on the other."""
    for side, beyond_other in sides:
        for text, origin in beyond_other.pieces(name):
            yield from Spot(origin, origin, name).entry(side, "reach", text, text)


def _same_tool(was: ToolSurface, now: ToolSurface, old: _Version, new: _Version) -> Found:
    """A tool that can be called on both sides: everything but its reach."""
    spot = Spot(was.origin, now.origin, now.name)
    if was.standing != now.standing:
        yield from spot.turned("changed", "declaration", "declaration", was.standing, now.standing)
    if was.bundles != now.bundles:
        yield from spot.turned("changed", "bundle", "bundle", ", ".join(was.bundles), ", ".join(now.bundles))
    if now.name != COMMANDS:  # for commands the agent's own line says it
        yield from spot.moved("effect", "side-effect class", was.effect, now.effect, CLASSES.index)
    yield from spot.moved("level", "sandbox level", was.level, now.level, LEVELS.index)
    yield from spot.moved("cost", "cost_usd", was.cost_usd or Decimal(0), now.cost_usd or Decimal(0), Decimal)
    for key in ("max_calls", "max_cost_usd"):
        stated = _stated(now.name, old, new, lambda admission, key=key: getattr(admission, key) is not None)  # type: ignore[misc]
        yield from stated.moved("limit", key, getattr(was, key), getattr(now, key), no_limit_is_most)
    if was.connector != now.connector:
        # A tool that stops naming a connector reaches no more for it; one that names another speaks to someone new.
        yield from spot.turned(
            "grown" if now.connector else "changed", "connector", "connector", was.connector, now.connector
        )
    if was.optional != now.optional:
        # What it reaches is compared elsewhere: this says only what it can do without.
        words = ", ".join(was.optional), ", ".join(now.optional)
        yield from spot.turned("changed", "optional", "optional needs", *words)
    asked, asks = old.asking(was), new.asking(now)
    if asked and asks and (asked, asks) != (old.surface.approvals.write, new.surface.approvals.write):
        yield from _asks(spot, asked, asks)
    theirs = dict(old.surface.limits), dict(new.surface.limits)
    for key, before, after in _keyed(was.limits, now.limits):
        if (before, after) != (theirs[0].get(key), theirs[1].get(key)):  # else the agent's own line says it
            stated = _stated(now.name, old, new, lambda one, key=key: key in one.limits)  # type: ignore[misc]
            yield from stated.limit(key, before, after)
    for key, rules, kept in _keyed(was.args, now.args):
        if rules != kept:
            # All rules on an argument must hold. More of them narrow; any other change may widen.
            side: Side = "shrunk" if set(rules or ()) < set(kept or ()) else "grown"
            words = " and ".join(rules or ()), " and ".join(kept or ())
            stated = _stated(now.name, old, new, lambda admission, key=key: key in admission.args)  # type: ignore[misc]
            yield from stated.turned(side, "arguments", f"rules on `{key}`", *words)


def _stated(tool: str, old: _Version, new: _Version, states: Callable[[Admission], object]) -> Spot:
    """Where the two manifests state something about a tool."""
    return Spot(old.stating(tool, states), new.stating(tool, states), tool)


def _asks(spot: Spot, before: WriteApproval, after: WriteApproval) -> Found:
    """How often writes ask, in words: a key that says `manifest` means that nobody is asked."""
    for side, change in spot.moved("approval", "", before, after, WRITE_APPROVALS.index):
        yield side, replace(change, text=f"asks about writes: {_ASKED[before]} → {_ASKED[after]}")


def _names(old: _Version, new: _Version) -> Found:
    """What the agent is called."""
    spot = Spot(old.manifest.origin, new.manifest.origin)
    for what in ("agent", "version", "app", "personality"):
        before, after = getattr(old.surface, what) or "", getattr(new.surface, what) or ""
        if before != after:
            # The store of a personality goes with its name: under another one, another's store comes into reach.
            wider = what == "personality" and any(grant & _PERSONAL for grant in new.grants)
            yield from spot.turned("grown" if wider else "changed", "name", what, before, after)


def _scales(old: _Version, new: _Version) -> Found:
    """What is agent-wide and can be put in an order."""
    was, now = old.surface, new.surface
    classes = Spot(old.manifest.max_effect_origin, new.manifest.max_effect_origin)
    yield from classes.moved("effect", "max_side_effect_class", was.max_effect, now.max_effect, CLASSES.index)
    asked, asks, spot = was.approvals, now.approvals, _spot(old, new, "approvals")
    yield from _asks(spot, asked.write, asks.write)
    yield from spot.moved("approval", "expires_seconds", asked.expires_seconds, asks.expires_seconds, int)
    yield from spot.moved("approval", "quorum", asked.quorum, asks.quorum, lambda quorum: -quorum)
    for key in BUDGET_KEYS:
        before, after = getattr(was.budget, key), getattr(now.budget, key)
        yield from _spot(old, new, key).moved("budget", key, before, after, no_limit_is_most)
    for key, limit, other in _keyed(was.limits, now.limits):
        yield from _spot(old, new, "limits").limit(key, limit, other)
    spot = _spot(old, new, "sandbox")
    yield from spot.moved("sandbox", "allow_degraded", was.allow_degraded, now.allow_degraded, int)
    # A full record keeps arguments and results themselves: what tools saw is then in one more place.
    yield from _spot(old, new, "record").moved("record", "record", was.record, now.record, ("digests", "full").index)


def _lists(old: _Version, new: _Version) -> Found:
    """What is agent-wide and is there or not."""
    for side, mine, other in _both_ways(old, new):
        here, there = mine.surface, other.surface
        for name in sorted(set(here.native) - set(there.native)):
            yield from _spot(old, new, "native").entry(side, "native", f"`{name}` may run in this process", name)
        for text in beyond(here.private, there.private):
            yield from _spot(old, new, "private").entry(side, "private", f"private addresses {text}", text)
        connectors = dict(here.connectors)
        for name in sorted(connectors.keys() - dict(there.connectors)):
            versions, spot = _versions(connectors[name]), _spot(old, new, "connectors")
            yield from spot.entry(side, "connector", f"connector {name}", versions)
        if here.approvals.keys is not None and there.approvals.keys is not None:
            for key in sorted(set(here.approvals.keys) - set(there.approvals.keys)):
                yield from _spot(old, new, "approvals").entry(side, "approval", f"key {key} may approve", key)
        yield from _denies(side, mine, other)
    yield from _signing(old, new)
    for name, was, now in _keyed(old.surface.connectors, new.surface.connectors):
        if was is not None and now is not None and was != now:
            side = "shrunk" if set(was) < set(now) else "grown"
            spot, words = _spot(old, new, "connectors"), (_versions(was), _versions(now))
            yield from spot.turned(side, "connector", f"versions of {name}", *words)
    yield from definition_changes(old.surface.definitions, new.surface.definitions, _spot(old, new, "connectors"))
    yield from server_changes(old.surface.servers, new.surface.servers, _spot(old, new, "servers"))


def _signing(old: _Version, new: _Version) -> Found:
    """Whether approvals must be signed at all."""
    keys = old.surface.approvals.keys, new.surface.approvals.keys
    if (keys[0] is None) != (keys[1] is None):
        # Without a list no signature is asked for: the first list makes approving harder, and losing it easier.
        words = ("any approver" if one is None else f"keys {', '.join(one)}" if one else "no key" for one in keys)
        side: Side = "grown" if keys[1] is None else "shrunk"
        yield from _spot(old, new, "approvals").turned(side, "approval", "who approves", *words)


def _denies(side: Side, mine: _Version, other: _Version) -> Found:
    """What the other side denies and this one does not.

    Where this frees something, the reach of tools says so already; unless deny and allow are written from different
    roots (`~`, `${workdir}`, `/`), and only on a machine could one see that they meet.
    """
    denied = CapabilitySet(deny.rule for deny in mine.surface.denies)
    pieces = CapabilitySet(deny.rule for deny in other.surface.denies) - denied
    held = [rule for grant in mine.grants for rule in grant.allow] if pieces else []
    for piece in pieces:
        hidden = any(_may_meet(piece.rule, rule) for rule in held)
        written = next((deny.origin for deny in other.surface.denies if deny.rule.meet(piece.rule)), None)
        text = piece_text(piece)
        before, after = (text, "") if side == "grown" else ("", text)
        spot = Spot(written, written)
        yield from spot.turned(side if hidden else "changed", "deny", "denied", before, after)


def _may_meet(deny: Capability, allow: Capability) -> bool:
    """Whether two rules that are written from different roots could be about the same file on some machine."""
    if deny.domain != allow.domain or deny.domain not in PATH_DOMAINS or not deny.atoms & allow.atoms:
        return False
    roots = {target_of(rule).partition("/")[0] for rule in (deny, allow)}
    return len(roots) == 2 and "*" not in roots and bool(roots & {"~", "${workdir}"})


def _spot(old: _Version, new: _Version, key: str) -> Spot:
    return Spot(old.place(key), new.place(key))


def _both_ways(old: _Version, new: _Version) -> tuple[tuple[Side, _Version, _Version], ...]:
    return ("grown", new, old), ("shrunk", old, new)


def _keyed(old: Iterable[tuple[str, T]], new: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T | None, T | None]]:
    was, now = dict(old), dict(new)
    for key in sorted(was.keys() | now.keys()):
        yield key, was.get(key), now.get(key)


def _versions(clauses: tuple[str, ...]) -> str:
    return " and ".join(clauses) or "any version"
