"""Turns a capability set into entries for a reviewer: each target, the actions allowed there, and the denied parts.

The entries of a set cover exactly the uses that the set covers.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

from licet.core.algebra import domains
from licet.core.algebra.domains import DOMAINS, KIND_OF_DOMAIN, RESOURCE_KINDS, ResourceKind
from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.set import CapabilitySet, Piece
from licet.core.decision.folding import CEILINGS
from licet.core.policy.layer import WRITES, Layer, Rule
from licet.core.review.socket_power import socket_power
from licet.core.values import Compared, Origin

_NOTHING = CapabilitySet()
# A tool's own store is not part of the outside world, but can be changed.
_CHANGES = WRITES | CapabilitySet(("storage:write:*",))


class ReachEntry(Compared, frozen=True, dict=True):
    """One target that can be reached, such as a host, with the actions allowed there and the denied parts of it."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"origin"})

    kind: ResourceKind
    target: str
    pieces: tuple[Piece, ...]  # one for each rule; all with the same exceptions
    origin: Origin | None = None  # of the rule in a ceiling that allows it

    @property
    def ways(self) -> tuple[str, ...]:
        """The allowed actions, such as `read`, `write` or `https get`."""
        return tuple(way for piece in self.pieces for way in ways_of(piece.rule))

    @property
    def excepts(self) -> tuple[str, ...]:
        """The targets below this one that are denied."""
        return tuple(map(target_of, self.pieces[0].excepts))

    def covers(self, use: Use) -> bool:
        return any(
            piece.rule.covers_use(use) and not any(hole.covers_use(use) for hole in piece.excepts)
            for piece in self.pieces
        )

    def __str__(self) -> str:
        return "; ".join(map(piece_text, self.pieces))

    @cached_property
    def writes(self) -> bool:
        """Whether an action changes something at the target."""
        return bool(CapabilitySet(piece.rule for piece in self.pieces) & _CHANGES)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The entry as plain data; do not change it, all tools with this entry share it."""
        return {
            "target": self.target,
            "ways": list(self.ways),
            "except": list(self.excepts),
            "rules": [str(piece.rule) for piece in self.pieces],
            "origin": self.origin.full if self.origin else None,
        }


def entries_of(rules: CapabilitySet, origins: "RuleOrigins | None" = None) -> tuple[ReachEntry, ...]:
    """The entries of a set, sorted by kind and target, with the origin of a rule that allows each."""
    pieces: dict[tuple[ResourceKind, str, tuple[str, ...]], list[Piece]] = {}
    for piece in rules - _NOTHING:
        place = KIND_OF_DOMAIN[piece.rule.domain], target_of(piece.rule), tuple(map(target_of, piece.excepts))
        pieces.setdefault(place, []).append(piece)
    origins = origins or RuleOrigins(())
    return tuple(
        ReachEntry(kind, target, tuple(sorted(parts, key=_way_order)), origins.nearest(parts[0].rule))
        for (kind, target, _), parts in sorted(
            pieces.items(), key=lambda item: (RESOURCE_KINDS.index(item[0][0]), item[0])
        )
    )


class RuleOrigins:
    """Finds where an allow rule is written. Rules that `others` do not have are preferred: they explain a change."""

    __slots__ = ("_new", "_shared")

    def __init__(self, layers: Iterable[Layer], others: Iterable[Layer] = ()) -> None:
        self._new: dict[tuple[str, str], list[Rule]] = {}
        self._shared: dict[tuple[str, str], list[Rule]] = {}
        shared = {(layer.kind, rule.capability) for layer in others for rule in layer.allows}
        # The agent's own files come first, since a workspace has the same rule for all agents.
        for layer in sorted(layers, key=lambda layer: layer.kind not in CEILINGS):
            for rule in layer.allows:
                rules = self._shared if (layer.kind, rule.capability) in shared else self._new
                rules.setdefault((rule.capability.domain, rule.capability.key), []).append(rule)

    def nearest(self, rule: Capability) -> Origin | None:
        """The origin of the allow rule with the nearest scope that covers a part of this rule."""
        for rules in (self._new, self._shared):
            for key in DOMAINS[rule.domain].ancestors(rule.key):
                for allow in rules.get((rule.domain, key), ()):
                    if allow.capability.atoms & rule.atoms and allow.capability.port in (None, rule.port):
                        return allow.origin
        return None


def target_of(rule: Capability) -> str:
    """The target of a rule without its action: a host and its port, a path, or a name."""
    if rule.domain == "network":
        return domains.place_text(rule.key, rule.port)
    return rule.scope


def ways_of(rule: Capability) -> tuple[str, ...]:
    """The actions of a rule as text, such as `read` or `https get`."""
    if rule.domain == "network":
        action, method, protocol = domains.PHRASES[rule.atoms]
        words = (protocol, action if action != "*" else "", method)
        return (" ".join(word for word in words if word) or "any protocol",)
    if rule.domain == "socket":
        return (socket_power(rule.key),)
    return tuple(
        action for action, atoms in DOMAINS[rule.domain].actions.items() if action != "*" and atoms & rule.atoms
    )


def piece_text(piece: Piece) -> str:
    """A piece as text, such as `fs:write:/srv except /srv/key`."""
    holes = ", ".join(map(target_of, piece.excepts))
    return f"{piece.rule} except {holes}" if holes else str(piece.rule)


def _way_order(piece: Piece) -> int:
    return piece.rule.atoms & -piece.rule.atoms
