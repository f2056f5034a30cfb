"""A set of capabilities as a reader wants it: what is reached, in which ways, and what denies cut out of it.

The entries of a set cover exactly the uses that the set has. What they mean for a tool is not known here.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

from licet.core.algebra import domains
from licet.core.algebra.capability import Capability
from licet.core.algebra.domains import DOMAINS, KIND_OF_DOMAIN, RESOURCE_KINDS, ResourceKind
from licet.core.algebra.set import CapabilitySet, Piece
from licet.core.algebra.use import Use
from licet.core.compared import Compared
from licet.core.decision.folding import CEILINGS
from licet.core.decision.reach import rule_covers
from licet.core.origin import Origin
from licet.core.policy.effects import WRITES
from licet.core.policy.layer import Layer, Rule

_NOTHING = CapabilitySet()
_CHANGES = WRITES | CapabilitySet(("storage:write:*",))  # a tool's own store is no effect on the world, but is changed


class ReachEntry(Compared, frozen=True, dict=True):
    """One target that is reached, the ways in which it is, and the parts of it that are not."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"origin"})

    kind: ResourceKind
    target: str
    pieces: tuple[Piece, ...]  # one for each way; all with the same exceptions
    origin: Origin | None = None  # the rule of a ceiling that lets it in

    @property
    def ways(self) -> tuple[str, ...]:
        """What may be done there, such as `read`, `write` or `https get`."""
        return tuple(way for piece in self.pieces for way in ways_of(piece.rule))

    @property
    def excepts(self) -> tuple[str, ...]:
        """The targets inside this one that a deny takes away."""
        return tuple(map(target_of, self.pieces[0].excepts))

    def covers(self, use: Use) -> bool:
        """Whether a use is reached through this entry."""
        return any(
            rule_covers(piece.rule, use) and not any(rule_covers(hole, use) for hole in piece.excepts)
            for piece in self.pieces
        )

    def __str__(self) -> str:
        return "; ".join(map(piece_text, self.pieces))

    @cached_property
    def writes(self) -> bool:
        """Whether anything can be changed through it."""
        return bool(CapabilitySet(piece.rule for piece in self.pieces) & _CHANGES)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The entry as plain data. It is shared by all tools that have the entry, and never changed."""
        return {
            "target": self.target,
            "ways": list(self.ways),
            "except": list(self.excepts),
            "rules": [str(piece.rule) for piece in self.pieces],
            "origin": self.origin.full if self.origin else None,
        }


def entries_of(rules: CapabilitySet, written: "Written | None" = None) -> tuple[ReachEntry, ...]:
    """Everything that a set reaches, in order, and where it is written if that is known."""
    pieces: dict[tuple[ResourceKind, str, tuple[str, ...]], list[Piece]] = {}
    for piece in rules - _NOTHING:
        place = KIND_OF_DOMAIN[piece.rule.domain], target_of(piece.rule), tuple(map(target_of, piece.excepts))
        pieces.setdefault(place, []).append(piece)
    written = written or Written(())
    return tuple(
        ReachEntry(kind, target, tuple(sorted(held, key=_way_order)), written.nearest(held[0].rule))
        for (kind, target, _), held in sorted(
            pieces.items(), key=lambda item: (RESOURCE_KINDS.index(item[0][0]), item[0])
        )
    )


class Written:
    """Where the rules that allow something are written, by scope; those that other layers do not have come first."""

    __slots__ = ("_known", "_new")

    def __init__(self, layers: Iterable[Layer], others: Iterable[Layer] = ()) -> None:
        self._new: dict[tuple[str, str], list[Rule]] = {}
        self._known: dict[tuple[str, str], list[Rule]] = {}
        known = {(layer.kind, rule.capability) for layer in others for rule in layer.allows}
        # The agent's own files first: where a workspace says the same, it says so to everybody.
        for layer in sorted(layers, key=lambda layer: layer.kind not in CEILINGS):
            for rule in layer.allows:
                rules = self._known if (layer.kind, rule.capability) in known else self._new
                rules.setdefault((rule.capability.domain, rule.capability.key), []).append(rule)

    def nearest(self, rule: Capability) -> Origin | None:
        """The place of the allow nearest to a rule among those that cover some of it."""
        for rules in (self._new, self._known):
            for key in DOMAINS[rule.domain].ancestors(rule.key):
                for held in rules.get((rule.domain, key), ()):
                    if held.capability.atoms & rule.atoms and held.capability.port in (None, rule.port):
                        return held.origin
        return None


def target_of(rule: Capability) -> str:
    """What a rule is about, without the action: a host and its port, a path, a name."""
    if rule.domain == "network":
        return domains.place_text(rule.key, rule.port)
    return rule.scope


def ways_of(rule: Capability) -> tuple[str, ...]:
    """What a rule lets one do at its target, in words."""
    if rule.domain == "network":
        action, method, protocol = domains.PHRASES[rule.atoms]
        words = (protocol, action if action != "*" else "", method)
        return (" ".join(word for word in words if word) or "any protocol",)
    return tuple(
        action for action, atoms in DOMAINS[rule.domain].actions.items() if action != "*" and atoms & rule.atoms
    )


def piece_text(piece: Piece) -> str:
    """A piece as a rule and the targets that are taken out: `fs:write:/srv except /srv/key`."""
    holes = ", ".join(map(target_of, piece.excepts))
    return f"{piece.rule} except {holes}" if holes else str(piece.rule)


def _way_order(piece: Piece) -> int:
    return piece.rule.atoms & -piece.rule.atoms
