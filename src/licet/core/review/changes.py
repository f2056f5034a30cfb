"""Changes between two manifests as values, and the comparison of their servers and connector definitions.

A change is `grown` if the new manifest allows more, `shrunk` if it allows less, and `changed` if neither is the case.

Compares the terms of bundles between two manifests: budgets, approvals, connectors and private addresses.

A difference that the agent's own policy has too is not repeated for its bundles.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet, Piece
from licet.core.policy.inspection import stand_ins, stand_ins_only
from licet.core.policy.layer import class_fits
from licet.core.policy.manifest import Manifest, command_text
from licet.core.policy.terms import (
    TERMS,
    WRITE_APPROVALS,
    Approvals,
    Step,
    Terms,
    VersionRanges,
    agent_terms,
    terms_of,
    used_bundles,
    versions_text,
)
from licet.core.review.risk import (
    CHECKS,
    DELETE,
    FILE_WRITE,
    NATIVE,
    NETWORK_WRITE,
    NOTHING,
    RISKS,
    SECRET_NETWORK,
    Risk,
    rule_risk,
)
from licet.core.review.surface import Surface, ToolSurface
from licet.core.review.surface_entries import piece_text
from licet.core.values import Compared, Origin, data_json, money_text

Side = Literal["grown", "shrunk", "changed"]
T = TypeVar("T")


class Change(Compared, frozen=True):
    """One difference between two manifests, with the old and the new value as text. `tool` is None for the agent."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"rule", "risk"})

    kind: str
    tool: str | None
    text: str
    before: str = ""
    after: str = ""
    origin: Origin | None = None  # in the old manifest if it shrank, else in the new one
    rule: Capability | None = None  # if it is about one
    risk: Risk = NOTHING

    def document(self) -> dict[str, Any]:
        """The change as plain data."""
        return {
            "kind": self.kind,
            "tool": self.tool,
            "text": self.text,
            "before": self.before,
            "after": self.after,
            "origin": self.origin.full if self.origin else None,
            "risk": self.risk.document(),
        }


class Changes(Struct, frozen=True):
    """All differences between two manifests."""

    grown: tuple[Change, ...] = ()
    shrunk: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.grown or self.shrunk or self.changed)

    def document(self) -> dict[str, Any]:
        """The changes as plain data."""
        return {
            "grown": [change.document() for change in self.grown],
            "shrunk": [change.document() for change in self.shrunk],
            "changed": [change.document() for change in self.changed],
        }


SidedChanges = Iterator[tuple[Side, Change]]


class ChangePlaces(Struct, frozen=True):
    """Makes changes that name the right place: where the old value is written if it shrank, else the new one."""

    old: Origin | None
    new: Origin | None
    tool: str | None = None

    def value_changed(
        self, side: Side, kind: str, what: str, before: str, after: str, *, words: Mapping[str, str] | None = None
    ) -> SidedChanges:
        """Yield a value that was replaced by another one. `words` say how the two are shown, if not as themselves."""
        shown = (words[one] if words else one or "none" for one in (before, after))
        yield side, Change(kind, self.tool, f"{what}: {' → '.join(shown)}", before, after, self._origin(side))

    def stepped(self, step: Step, prefix: str = "") -> SidedChanges:
        """Yield a change of a value that has an order; a higher rank allows more, so it has grown."""
        if step.before == step.after:
            return
        unknown = bool(step.default) and None in (step.before, step.after)  # either may be higher: counts as grown
        side: Side = "grown" if unknown or step.rank(step.after) > step.rank(step.before) else "shrunk"
        texts = (step.default if unknown and one is None else _value_text(one) for one in (step.before, step.after))
        yield from self.value_changed(side, step.kind, f"{prefix}{step.what}", *texts, words=step.words)

    def only_on(
        self, side: Side, kind: str, text: str, item: str, rule: Capability | None = None, risk: Risk = NOTHING
    ) -> SidedChanges:
        """Yield an item that only one side has: the new one if it has grown, the old one if it has shrunk."""
        before, after = (item, "") if side == "shrunk" else ("", item)
        yield side, Change(kind, self.tool, text, before, after, self._origin(side), rule, risk)

    def _origin(self, side: Side) -> Origin | None:
        return self.old if side == "shrunk" else self.new


# Changes that say nothing about what can be done.
_HARMLESS = ("name", "description", "optional", "bundle", "declaration", "tool")


def ranked(changes: Iterable[Change], tools: Mapping[str, ToolSurface]) -> tuple[Change, ...]:
    """The changes of one side, each with its risk, riskiest first; equal ones keep their order.

    `tools` are those of that side: a change also counts as what it means together with all else that its tool holds.
    """
    rated = [
        replace(one, risk=min((one.risk, _own_risk(one), _risk_with(one, tools)), key=RISKS.index)) for one in changes
    ]
    return tuple(sorted(rated, key=lambda one: one.risk.rank))


def _risk_with(change: Change, tools: Mapping[str, ToolSurface]) -> Risk:
    tool = tools.get(change.tool or "")
    if tool is not None and change.kind == "tool":
        return tool.risk
    sends = change.kind == "reach" and change.rule is not None and change.rule.domain in ("secret", "network")
    return SECRET_NETWORK if tool is not None and sends and SECRET_NETWORK in tool.risks else NOTHING


def _own_risk(change: Change) -> Risk:
    """The risk of a change by itself. A class, a level or a list counts as what it opens."""
    if change.rule is not None:
        risk = rule_risk(change.rule)
        # A line of a ceiling cannot say less than every method, or than delete with write: the class of a tool decides.
        unsaid = change.kind == "ceiling" and risk == DELETE
        return risk if not unsaid else FILE_WRITE if change.rule.domain == "fs" else NETWORK_WRITE
    value = change.after or change.before
    if change.kind == "native" or (change.kind in ("level", "server") and value == "native"):
        return NATIVE
    if change.kind == "effect" and value in ("full", "destructive"):
        return DELETE
    if change.kind == "effect" and value == "write_limited":
        return FILE_WRITE
    return NOTHING if change.kind in _HARMLESS else CHECKS


def _value_text(value: object) -> str:
    if isinstance(value, Decimal):
        return money_text(value)
    return "no limit" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_COMPARED_BY_PART = {"grants", "env", "secrets", "tools", "inspect"}


def server_changes(
    old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]], places_of: Callable[[str, str], ChangePlaces]
) -> SidedChanges:
    """Compare two lists of servers, each given as its name and its canonical JSON.

    `places_of` has the places of a server, and of a part of it such as `tools.read`.
    """
    was = {name: json.loads(text) for name, text in old}
    now = {name: json.loads(text) for name, text in new}
    for name in sorted(was.keys() | now.keys()):
        before, after, places = was.get(name, {}), now.get(name, {}), places_of(name, "")
        if not before or not after:
            side: Side = "grown" if after else "shrunk"
            risk = NATIVE if (after or before).get("sandbox") == "native" else NOTHING
            started = _text(_started_by(after or before))
            yield from places.only_on(side, "server", f"server `{name}`", started, risk=risk)
        else:
            for host in sorted({*before.get("inspect", ())} ^ {*after.get("inspect", ())}):
                # Its tunnels are in its grants: while one remains there, it carries what nobody sees.
                less = host in before.get("inspect", ())
                text = f"server `{name}` sends to {host} what is {'not ' if less else ''}looked into"
                yield from places.only_on("grown" if less else "shrunk", "server", text, host)
            for key in sorted((before.keys() | after.keys()) - _COMPARED_BY_PART):
                if before.get(key) != after.get(key):
                    # A different command may do more or less; that cannot be known here, so it counts as grown.
                    words = _text(before.get(key)), _text(after.get(key))
                    yield from places.value_changed("grown", "server", f"{key} of server `{name}`", *words)
        yield from _part_changes(f"server `{name}`", before, after, partial(places_of, name))


def _started_by(server: dict[str, Any]) -> Any:
    return server.get("command") or server.get("url", "")


def definition_changes(
    old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]], places: ChangePlaces
) -> SidedChanges:
    """Compare two lists of connector definitions, each given as its name and its canonical JSON.

    A definition only narrows what its tools may reach, so a removed one counts as grown.
    """
    was = {name: json.loads(text) for name, text in old}
    now = {name: json.loads(text) for name, text in new}
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name), now.get(name)
        if before == after:
            continue
        side: Side = "shrunk" if before is None or (after is not None and _narrower(after, before)) else "grown"
        words = ("" if one is None else data_json(one).decode() for one in (before, after))
        yield from places.value_changed(side, "connector", f"definition of {name}", *words)


def _narrower(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a definition allows no more than another one; False if their versions differ, which are not compared."""
    lists = all(
        other[key] is None or (one[key] is not None and CapabilitySet(one[key]) <= CapabilitySet(other[key]))
        for key in ("hosts", "secrets")
    )
    classes = other["side_effect_class"] is None or (
        one["side_effect_class"] is not None and class_fits(one["side_effect_class"], other["side_effect_class"])
    )
    versions = all(one[key] == other[key] for key in ("versions", "version", "distribution"))
    return lists and classes and versions


def _part_changes(
    server: str, was: dict[str, Any], now: dict[str, Any], places_of: Callable[[str], ChangePlaces]
) -> SidedChanges:
    places = places_of("")
    old, new = CapabilitySet(was.get("grants", ())), CapabilitySet(now.get("grants", ()))
    sides: tuple[tuple[Side, tuple[Piece, ...]], ...] = (("grown", new - old), ("shrunk", old - new))
    for side, pieces in sides:
        for piece in pieces:
            text = piece_text(piece)
            yield from places.only_on(side, "server", f"{server} holds {text}", text, piece.rule)
    yield from _placed_changes(server, was.get("secrets", {}), now.get("secrets", {}), places)
    for key, what in (("env", "the variable"), ("secrets", "the secret in"), ("tools", "the tool")):
        before, after = _by_name(was.get(key, {})), _by_name(now.get(key, {}))
        if key == "secrets":
            before, after = _handed(was.get(key, {})), _handed(now.get(key, {}))
        if key == "tools" and not (before and after) and len(before | after) > 1:
            # A server that is new, or that was just drafted: its name on thirty lines would hide all others.
            listed = ", ".join(f"`{name}`" for name in sorted(before | after))
            side = "grown" if after else "shrunk"
            yield from places.only_on(side, "server", f"{server} has the tools {listed}", _text(before | after))
            continue
        for name in sorted(before.keys() | after.keys()):
            places = places_of(f"{key}.{name}")
            if name not in after:
                yield from places.only_on("shrunk", "server", f"{server} has {what} `{name}`", before[name])
            elif name not in before:
                yield from places.only_on("grown", "server", f"{server} has {what} `{name}`", after[name])
            elif before[name] != after[name]:
                yield from places.value_changed(
                    "grown", "server", f"{server}, {what} `{name}`", before[name], after[name]
                )


def _placed_changes(server: str, was: dict[str, Any], now: dict[str, Any], places: ChangePlaces) -> SidedChanges:
    """Compare the secrets of a server that it sees as stand-ins. A stand-in allows less than the secret itself."""
    old, new = (stand_ins({name: one for name, one in each.items() if isinstance(one, dict)}) for each in (was, now))
    for side, here, there in both_ways(old, new):
        handed = now if side == "shrunk" else was
        for text, item in stand_ins_only([one for one in here if handed.get(one.name) != one.secret], there):
            yield from places.only_on(side, "server", f"{server}: {text}", item)


def _handed(secrets: dict[str, Any]) -> dict[str, str]:
    """The secrets that are handed over, by variable."""
    return {name: one for name, one in secrets.items() if isinstance(one, str)}


def _by_name(items: dict[str, Any] | list[str]) -> dict[str, str]:
    if isinstance(items, dict):
        return {name: _text(value) for name, value in items.items()}
    return {name: name for name in items}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return command_text(value)
    return value if isinstance(value, str) else data_json(value).decode()


def bundle_changes(old: Manifest, new: Manifest) -> SidedChanges:
    """Compare every bundle that both manifests use."""
    own = agent_terms(old), agent_terms(new)
    for name in sorted({*used_bundles(old)} & {*used_bundles(new)}):
        was, now = terms_of(old, (name,)), terms_of(new, (name,))
        places, prefix = ChangePlaces(was.origin, now.origin), f"bundle `{name}`: "
        yield from _asking_changes("write", was, now, own, places, prefix)
        yield from _term_changes(was, now, own, places, prefix)


def moved_tools(old: Manifest, new: Manifest, before: Surface, after: Surface) -> SidedChanges:
    """Compare the bundle terms of each tool that was moved to another bundle, since its old terms no longer apply."""
    own, old_tools = (agent_terms(old), agent_terms(new)), {tool.name: tool for tool in before.tools}
    for now in after.tools:
        was = old_tools.get(now.name)
        if was is None or was.bundles == now.bundles or not (was.reachable and now.reachable):
            continue
        terms = terms_of(old, was.bundles), terms_of(new, now.bundles)
        yield from _term_changes(*terms, own, ChangePlaces(was.origin, now.origin, now.name), "bundle: ")


def _term_changes(was: Terms, now: Terms, own: tuple[Terms, Terms], places: ChangePlaces, prefix: str) -> SidedChanges:
    for term in TERMS:
        before, after = term.of(was), term.of(now)
        if (before, after) == (term.of(own[0]), term.of(own[1])):
            continue
        for step in term.ordered(before, after):
            yield from places.stepped(step, prefix)
        if term.key == "approvals":
            yield from _key_changes(before, after, places, prefix)
            yield from _asking_changes("delete", was, now, own, places, prefix)
        for side, here, there in both_ways(before, after):
            for text, item in term.listed(here, there):
                yield from places.only_on(side, term.kind, f"{prefix}{text}", item)
        if term.key == "connectors":
            yield from version_changes(before, after, places, prefix)


def _asking_changes(
    key: str, was: Terms, now: Terms, own: tuple[Terms, Terms], places: ChangePlaces, prefix: str
) -> SidedChanges:
    """Compare when writes or deletes ask, unless the agent's own policy changed in the same way."""
    before, after, *others = (getattr(terms.approvals, key) for terms in (was, now, *own))
    if [before, after] != others:
        step = Step("approval", f"approvals.{key}", before, after, WRITE_APPROVALS.index)
        yield from places.stepped(step, prefix)


def _key_changes(was: Approvals, now: Approvals, places: ChangePlaces, prefix: str) -> SidedChanges:
    if was.keys != now.keys:
        # More keys let more people approve. Without a list, no signature is needed at all.
        wider = now.keys is None or (was.keys is not None and not {*now.keys} <= {*was.keys})
        yield from places.value_changed(
            "grown" if wider else "shrunk", "approval", f"{prefix}keys", signers_text(was), signers_text(now)
        )


def signers_text(approvals: Approvals) -> str:
    """Whose signatures count, for people to read."""
    return "any approver" if approvals.keys is None else ", ".join(map(approvals.signer, approvals.keys)) or "no key"


def version_changes(was: VersionRanges, now: VersionRanges, places: ChangePlaces, prefix: str = "") -> SidedChanges:
    """Compare the versions of the connectors that are in both lists."""
    for name, before, after in keyed(was, now):
        if before is not None and after is not None and before != after:
            side: Side = "shrunk" if {*before} < {*after} else "grown"  # a version must be in every range
            words = versions_text(before), versions_text(after)
            yield from places.value_changed(side, "connector", f"{prefix}versions of {name}", *words)


def both_ways(was: T, now: T) -> tuple[tuple[Side, T, T], ...]:
    """The two sides of a comparison: what only the new one has, has grown."""
    return ("grown", now, was), ("shrunk", was, now)


def keyed(old: Iterable[tuple[str, T]], new: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T | None, T | None]]:
    """Each key of the two with its values."""
    was, now = dict(old), dict(new)
    for key in sorted(was.keys() | now.keys()):
        yield key, was.get(key), now.get(key)
