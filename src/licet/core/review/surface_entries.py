"""Turns a capability set into entries for a reviewer: each target, the actions allowed there, and the denied parts.

The entries of a set cover exactly the uses that the set covers.

The terms of bundles in the surface of an agent: budgets, approvals, connectors and private addresses.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar

from msgspec.structs import replace

from licet.core.algebra import domains
from licet.core.algebra.domains import DOMAINS, KIND_OF_DOMAIN, RESOURCE_KINDS, ResourceKind
from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.set import CapabilitySet, Piece
from licet.core.decision.folding import CEILINGS, approvals_of, connectors_of, private_of
from licet.core.policy.addresses import common_ranges
from licet.core.policy.connector import Connectors
from licet.core.policy.layer import WRITES, Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Approvals, Budget
from licet.core.values import Compared, Origin, money_text

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
    return tuple(
        action for action, atoms in DOMAINS[rule.domain].actions.items() if action != "*" and atoms & rule.atoms
    )


def piece_text(piece: Piece) -> str:
    """A piece as text, such as `fs:write:/srv except /srv/key`."""
    holes = ", ".join(map(target_of, piece.excepts))
    return f"{piece.rule} except {holes}" if holes else str(piece.rule)


def _way_order(piece: Piece) -> int:
    return piece.rule.atoms & -piece.rule.atoms


Versions = tuple[tuple[str, tuple[str, ...]], ...]  # connector -> version ranges; all apply


class Terms(Compared, frozen=True, kw_only=True):
    """The terms that apply to the tools of some bundles, the agent's own terms included."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"origin"})

    name: str = ""  # of the bundle
    budgets: tuple[tuple[str, Budget], ...] = ()  # of bundles, by name
    approvals: Approvals
    connectors: Versions
    private: tuple[str, ...]
    origin: Origin | None = None

    def document(self) -> dict[str, Any]:
        """The terms as plain data."""
        return {
            "budget": budget_document(dict(self.budgets).get(self.name, Budget())),
            "approvals": approvals_document(self.approvals),
            "connectors": {name: list(versions) for name, versions in self.connectors},
            "private": list(self.private),
            "origin": self.origin.full if self.origin else None,
        }


def agent_terms(manifest: Manifest) -> Terms:
    """The terms that apply to every tool of the agent."""
    return terms_of(manifest, ())


def bundle_terms(manifest: Manifest) -> Iterator[Terms]:
    """The terms of each bundle that differ from those of the agent."""
    agent = agent_terms(manifest)
    for name in used_bundles(manifest):
        terms = terms_of(manifest, (name,))
        if replace(terms, name="") != agent:
            yield terms


def used_bundles(manifest: Manifest) -> tuple[str, ...]:
    """The bundles through which tools are admitted."""
    used = {admission.bundle for admissions in manifest.admissions.values() for admission in admissions}
    return tuple(sorted(used & manifest.bundles.keys()))


def terms_of(manifest: Manifest, names: tuple[str, ...]) -> Terms:
    """The terms that apply to a tool in these bundles."""
    bundles = [manifest.bundles[name] for name in names if name in manifest.bundles]
    return Terms(
        name=names[0] if len(names) == 1 else "",
        budgets=tuple((bundle.name, bundle.budget) for bundle in bundles if bundle.budget),
        approvals=_sorted_keys(approvals_of(manifest, bundles)),
        connectors=versions_of(connectors_of(manifest, bundles)),
        private=common_ranges(private_of(manifest, bundles)) if manifest.private else (),
        origin=bundles[0].origin if bundles else None,
    )


def versions_of(connectors: Connectors) -> Versions:
    """Each connector that all lists allow, with one range for each list that limits its versions."""
    return tuple((name, _versions(about)) for name, about in connectors.by_name().items())


def _versions(about: Connectors) -> tuple[str, ...]:
    clauses = set()
    for rules in (about.tenant, about.app, *about.profiles):
        versions = {rule.versions for rule in rules or ()}
        if versions and "" not in versions:
            clauses.add(" or ".join(sorted(versions)))
    return tuple(sorted(clauses))


def _sorted_keys(approvals: Approvals) -> Approvals:
    keys = None if approvals.keys is None else tuple(sorted(set(approvals.keys)))
    return replace(approvals, keys=keys)


def approvals_document(approvals: Approvals) -> dict[str, Any]:
    """How calls are approved, as plain data."""
    return {
        "write": approvals.write,
        "expires_seconds": approvals.expires_seconds,
        "quorum": approvals.quorum,
        "keys": None if approvals.keys is None else list(approvals.keys),
        "names": dict(approvals.names),
        "delete": approvals.delete,
        "through_client": approvals.through_client,
    }


def budget_document(budget: Budget) -> dict[str, Any]:
    """What a budget limits, as plain data."""
    money = (budget.max_cost_usd, budget.max_cost_usd_per_day)
    in_session, on_day = (None if amount is None else money_text(amount) for amount in money)
    return {
        "max_calls_per_session": budget.max_calls_per_session,
        "max_calls_per_day": budget.max_calls_per_day,
        "max_cost_usd": in_session,
        "max_cost_usd_per_day": on_day,
    }
