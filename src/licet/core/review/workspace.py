"""Several agents side by side: who reaches what, and what changed for which of them."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import RESOURCE_KINDS, ResourceKind
from licet.core.policy.connector import Connectors
from licet.core.policy.manifest import Manifest
from licet.core.review.changes import Change, Changes, Side
from licet.core.review.diff import diff
from licet.core.review.entries import ReachEntry
from licet.core.review.risk import Risk, riskiest, rule_risk
from licet.core.review.surface import Surface, surface


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
    }
    return replace(manifest, **nothing, connectors=Connectors(), bundles={}, max_effects=())
