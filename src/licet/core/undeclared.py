"""The most that a tool could get of which no file says what it needs: any declaration of it gets no more than this."""

from dataclasses import replace

from licet.core.connector import ConnectorRule, Connectors
from licet.core.decide import decide
from licet.core.decision import Deny, Request
from licet.core.domain import DOMAINS
from licet.core.effects import CLASSES, LEVELS, EffectClass, Level
from licet.core.manifest import Manifest, WriteApproval
from licet.core.reach import Reach, reach_of
from licet.core.set import CapabilitySet
from licet.core.tool import ToolSpec

_NOTHING = CapabilitySet()
_EVERYTHING = CapabilitySet(f"{domain}:*:*" for domain in DOMAINS)


def most_of(manifest: Manifest, name: str) -> tuple[Reach, Level, WriteApproval | None] | None:
    """The most that a tool could hold that asks for everything, at the loosest level and asking the least."""
    # Which classes and levels get in does not depend on any rule: try them where folding costs nothing.
    bare = replace(manifest, layers=(), seats={name: tuple(replace(seat, layer=None) for seat in manifest.seats[name])})
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
    freed = replace(manifest, connectors=_any_version(manifest.connectors))
    strongest = _declared(freed, name, *fitting[0])
    least_asking = strongest if mildest == fitting[0] else _declared(freed, name, *mildest)
    return strongest, max((level for _, level in fitting), key=LEVELS.index), least_asking.approval


def _declared(manifest: Manifest, name: str, effect: EffectClass, level: Level) -> Reach:
    """What a tool holds that asks for everything, at one class and level."""
    reach = reach_of(manifest.declare([ToolSpec(name, _EVERYTHING, effect, level)]), name)
    assert reach is not None  # noqa: S101 - it is admitted, and now declared
    return reach


def _any_version(connectors: Connectors) -> Connectors:
    """The same lists for a tool that states whichever version they ask for."""

    def freed(rules: tuple[ConnectorRule, ...]) -> tuple[ConnectorRule, ...]:
        return tuple(replace(rule, versions="") for rule in rules)

    app = None if connectors.app is None else freed(connectors.app)
    profiles = tuple(map(freed, connectors.profiles))
    return replace(connectors, tenant=freed(connectors.tenant), app=app, profiles=profiles)
