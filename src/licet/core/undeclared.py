"""The most that a tool could get of which no file says what it needs: any declaration of it gets no more than this."""

from collections.abc import Hashable
from decimal import Decimal

from licet.core.bundle import Bundle
from licet.core.bundle_rules import bundles_of
from licet.core.connector import ConnectorRule, Connectors
from licet.core.decide import decide
from licet.core.decision import Deny, Request
from licet.core.domain import DOMAINS
from licet.core.effects import CLASSES, LEVELS, EffectClass, Level
from licet.core.manifest import Layer, Manifest, Seat, WriteApproval
from licet.core.reach import fold
from licet.core.set import CapabilitySet
from licet.core.tool import ToolSpec
from licet.values import dataclass, replace

_NOTHING = CapabilitySet()
_EVERYTHING = CapabilitySet(f"{domain}:*:*" for domain in DOMAINS)


@dataclass(frozen=True, slots=True)
class Most:
    """The most that a tool could hold that asks for everything, at the loosest level and asking the least."""

    layers: tuple[Layer, ...]
    effect: EffectClass | None
    level: Level
    asks: WriteApproval | None
    max_calls: int | None
    max_cost_usd: Decimal | None
    grant: CapabilitySet


class Undeclared:
    """The tools that no file declares: those that are admitted alike could get the same, so it is found once."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        bundles = {name: _any_version_in(bundle) for name, bundle in manifest.bundles.items()}
        self._freed = replace(manifest, connectors=_any_version(manifest.connectors), bundles=bundles, definitions={})
        self._known: dict[Hashable, Most | None] = {}

    def most_of(self, name: str) -> Most | None:
        """The most that a tool could hold; None if nothing lets it be called."""
        seats, natives = self._manifest.seats[name], self._manifest.natives
        listing = (bundle.name for bundle in bundles_of(self._manifest, seats) if bundle.connectors is not None)
        alike = (*map(_deciding, seats), *(name in listed.names for listed in natives), *listing)
        if alike not in self._known:
            self._known[alike] = self._most_of(name)
        return self._known[alike]

    def _most_of(self, name: str) -> Most | None:
        manifest = self._manifest
        # Which classes and levels get in does not depend on any rule: try them where folding costs nothing.
        seats = tuple(replace(seat, layer=None) for seat in manifest.seats[name])
        bare = replace(manifest, layers=(), seats={name: seats}, tools={})
        fitting = [
            (effect, level)
            for effect in reversed(CLASSES)
            for level in LEVELS
            if not isinstance(decide(Request(name), bare.declare([ToolSpec(name, _NOTHING, effect, level)])), Deny)
        ]
        if not fitting:
            return None
        # A destructive tool asks every time; one that declares itself one class lower does not.
        mildest = next(((effect, level) for effect, level in fitting if effect != "destructive"), fitting[0])
        strongest, least_asking = (
            fold(self._freed, ToolSpec(name, _EVERYTHING, effect, level)) for effect, level in (fitting[0], mildest)
        )
        return Most(
            layers=strongest.layers,
            effect=strongest.effect,
            level=max((level for _, level in fitting), key=LEVELS.index),
            asks=least_asking.approval,
            max_calls=strongest.max_calls,
            max_cost_usd=strongest.max_cost_usd,
            grant=strongest.grant,
        )


def _deciding(seat: Seat) -> Hashable:
    """All of a seat that what a tool holds depends on; its layer lives as long as the manifest does."""
    effects = tuple(effect for effect, _ in seat.effects)
    levels, own = tuple(level for level, _ in seat.levels), (seat.max_calls, seat.max_cost_usd)
    return effects, levels, id(seat.layer), seat.approval, *own


def _any_version(connectors: Connectors) -> Connectors:
    """The same lists for a tool that states whichever version they ask for."""
    app = None if connectors.app is None else _freed(connectors.app)
    profiles = tuple(map(_freed, connectors.profiles))
    return replace(connectors, tenant=_freed(connectors.tenant), app=app, profiles=profiles)


def _any_version_in(bundle: Bundle) -> Bundle:
    return bundle if bundle.connectors is None else replace(bundle, connectors=_freed(bundle.connectors))


def _freed(rules: tuple[ConnectorRule, ...]) -> tuple[ConnectorRule, ...]:
    return tuple(replace(rule, versions="") for rule in rules)
