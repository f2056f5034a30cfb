"""What tools of one manifest have in common, worked out once: the layers above them, the ceiling, and equal grants.

A manifest may hold hundreds of tools and hundreds of rules. Nothing here depends on a tool's name: tools that sit in
the same bundles, speak through the same connector, and have the same class and needs get the very same values.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from licet.core.algebra.capability import Capability
from licet.core.algebra.domains import PATH_DOMAINS
from licet.core.algebra.grid import TooManyPairs
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.bundle_rules import bundles_of, connectors_of
from licet.core.decision.fixes import remove
from licet.core.decision.request import Ground
from licet.core.origin import Origin
from licet.core.policy.bundle import Bundle
from licet.core.policy.connector import ConnectorRef, Connectors, Installed, stated_obstacle
from licet.core.policy.effects import WRITES, EffectClass, permits
from licet.core.policy.layer import EVERY_DOMAIN, Layer, Rule, distinct, meet_layers, named_tcp
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission
from licet.core.policy.tool import ToolSpec

CEILINGS = ("manifest", "personality", "allow")
# A tool's grant holds every deny of its manifest. Without a limit, a file of 200 KB with thousands of tools and denies
# would take gigabytes.
MOST_PAIRS = 1_000_000
_WEIGHT = 300  # what a bundle or a connector that one tool has alone takes, in pairs
_WEIGHT_OF_A_LINE = 6  # and what each line of the lists of connectors adds to that
_NOTHING = CapabilitySet()


class _Held:
    """Counts the rules and denies of the different grants of one manifest."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs = 0

    def counted(self, grant: CapabilitySet) -> CapabilitySet:
        """The grant; `TooManyPairs` if it is too much beside the others."""
        self.count(grant.size)
        return grant

    def count(self, pairs: int) -> None:
        self._pairs += pairs
        if self._pairs > MOST_PAIRS:
            raise TooManyPairs


class _Known:
    """Sets that are made when they are first asked for, and then known."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: dict[object, CapabilitySet] = {}

    def __call__(self, key: object, make: Callable[[], CapabilitySet]) -> CapabilitySet:
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = make()
        return found


class _Above(Struct, frozen=True, eq=False):
    """What the ceilings of a manifest let through, whoever asks; without a ceiling, nothing."""

    ceiling: CapabilitySet
    named_tcp: CapabilitySet
    _known: _Known = field(default_factory=_Known)

    def denied(self) -> CapabilitySet:
        return self._known("denied", lambda: CapabilitySet(self.ceiling.deny))

    def permitted(self, effect: EffectClass | None) -> CapabilitySet:
        return self._known(effect, lambda: permits(effect, self.named_tcp) if effect else _NOTHING)

    def most(self, effect: EffectClass | None) -> CapabilitySet:
        return self._known(("most", effect), lambda: self.ceiling & self.permitted(effect))


class Common(Struct, frozen=True, eq=False):
    """The layers above some tools: what they let through, and why nothing passes if their denies name no real path."""

    layers: tuple[Layer, ...]
    unexpanded: tuple[Ground, ...]
    _narrower: CapabilitySet  # what is particular to these tools: their bundles' layers and their connector
    _above: _Above
    _held: _Held
    _known: _Known = field(default_factory=_Known)
    _writes: dict[object, bool] = {}

    def denied(self) -> CapabilitySet:
        """Everything that a deny covers."""
        if not self._narrower.deny:
            return self._above.denied()
        return self._known("denied", lambda: self._above.denied() | CapabilitySet(self._narrower.deny))

    def permitted(self, effect: EffectClass | None) -> CapabilitySet:
        """What a class permits here; no class, nothing."""
        return self._above.permitted(effect)

    def grant(self, needs: CapabilitySet, effect: EffectClass | None) -> CapabilitySet:
        """What a tool holds that needs so much and runs at a class."""
        # The small sets first: a manifest may have thousands of rules, and a tool seldom needs more than a few.
        return self._known(
            (effect, needs), lambda: self._held.counted(needs & self._narrower & self._above.most(effect))
        )

    def holds_part_of(self, need: Capability) -> bool:
        """Whether any part of a need passes every layer, whatever the class permits."""
        return bool(CapabilitySet((need,)) & self._narrower & self._above.ceiling)

    def writes(self, needs: CapabilitySet, effect: EffectClass | None) -> bool:
        """Whether such a tool can change anything."""
        key = effect, needs
        if key not in self._writes:
            changing = needs & WRITES
            self._writes[key] = bool(changing) and bool(changing & self._narrower & self._above.most(effect))
        return self._writes[key]


def common_of(manifest: Manifest, admissions: Iterable[Admission], spec: ToolSpec) -> Common:
    """What stands above every tool with such admissions and such connectors."""
    admissions = tuple(admissions)
    defined = [
        manifest.definitions[name].layer for name in sorted(spec.named_connectors) if name in manifest.definitions
    ]
    narrowing = tuple(layer for layer in (*(admission.layer for admission in admissions), *defined) if layer)
    listing = tuple(bundle for bundle in bundles_of(manifest, admissions) if bundle.connectors is not None)
    refs = tuple(connector_ref(manifest, spec, name) for name in sorted(spec.named_connectors))
    key = narrowing, tuple(bundle.name for bundle in listing), refs
    known: dict[object, Common] = manifest._cache.setdefault("common", {})
    if key not in known:
        known[key] = _common(manifest, narrowing, listing, refs)
    return known[key]


def _common(
    manifest: Manifest, narrowing: tuple[Layer, ...], listing: tuple[Bundle, ...], refs: tuple[ConnectorRef, ...]
) -> Common:
    held: _Held = manifest._cache.setdefault("held", {}).setdefault("all", _Held())
    held.count(_WEIGHT + sum(len(layer.allows) for layer in narrowing))
    connectors = _connector_layer(manifest, listing, refs, held)
    layers = distinct((*manifest.layers, *narrowing, connectors))
    narrower = meet_layers(layer for layer in layers if not any(layer is own for own in manifest.layers))
    return Common(layers, _unexpanded_grounds(layers), narrower, _above(manifest, layers), held)


def _above(manifest: Manifest, layers: tuple[Layer, ...]) -> _Above:
    ceilings = tuple(layer for layer in layers if layer.kind in CEILINGS)
    known: dict[tuple[Layer, ...], _Above] = manifest._cache.setdefault("above", {})
    if ceilings not in known:
        known[ceilings] = _Above(manifest.ceiling if ceilings else _NOTHING, _named_by_all(ceilings))
    return known[ceilings]


def _named_by_all(ceilings: tuple[Layer, ...]) -> CapabilitySet:
    """The connections that every ceiling allows by a rule that says `tcp`."""
    named: CapabilitySet | None = None
    for rules in map(named_tcp, ceilings):
        named = rules if named is None else named & rules
    return named if named is not None else _NOTHING


def _unexpanded_grounds(layers: tuple[Layer, ...]) -> tuple[Ground, ...]:
    """A deny below `${workdir}` or `~` stops nothing until those are real directories: before that, all is denied."""
    for layer in layers:
        for rule in layer.denies:
            if rule.capability.domain in PATH_DOMAINS and rule.capability.key[:1] in ("$", "~"):
                text = f"{rule.capability} names no real directory yet"
                fix = "call `manifest.expand(workdir, home)` first"
                return (Ground("DECISION_FAILED", text, rule.origin, fix, str(rule.capability)),)
    return ()


def connector_ref(manifest: Manifest, spec: ToolSpec | None, name: str) -> ConnectorRef:
    """A connector at the version that counts: of the distribution that runs, or as it is declared."""
    definition = manifest.definitions.get(name)
    own = spec.connector if spec is not None and spec.connector and spec.connector.name == name else None
    stated = own.version if own else ""
    if definition is not None and definition.distribution:
        running = Installed(definition.distribution, manifest.installed.get(definition.distribution, ""))
        return ConnectorRef(name, stated, running)
    if spec is not None and spec.package is not None:
        return ConnectorRef(name, stated, spec.package)
    return ConnectorRef(name, stated or (definition.versions.version if definition is not None else ""))


def connector_grounds(
    manifest: Manifest, bundles: tuple[Bundle, ...], spec: ToolSpec, layers: Iterable[Layer]
) -> Iterator[Ground]:
    """What keeps out the connectors that a tool cannot do without: the lists, and the denies of its layers."""
    for name in sorted(spec.needed_connectors):
        if ground := connector_ground(manifest, bundles, spec, name):
            yield ground
        use = Capability(f"connector:use:{name}")
        for rule in (rule for layer in layers for rule in layer.denies if rule.capability.meet(use)):
            text = f"denied by {rule.capability}"
            yield Ground("CONNECTOR_NOT_ALLOWED", text, rule.origin, remove(rule), str(use))


def connector_ground(manifest: Manifest, bundles: tuple[Bundle, ...], spec: ToolSpec, name: str) -> Ground | None:
    """What keeps a connector out, at the version that counts, or None."""
    ref = connector_ref(manifest, spec if name in spec.named_connectors else None, name)
    listing = tuple(bundle for bundle in bundles if bundle.connectors is not None)
    line = _lines(manifest, listing).get(ref.name)
    found = _obstacle(manifest, line.about if line is not None else connectors_of(manifest, listing), ref)
    if found is None:
        return None
    origin, text, fix = found
    capability = f"connector:use:{name}"
    return Ground("CONNECTOR_NOT_ALLOWED", f"connector {ref} {text}", origin or manifest.origin, fix, capability)


def _obstacle(manifest: Manifest, about: Connectors, ref: ConnectorRef) -> tuple[Origin | None, str, str] | None:
    definition = manifest.definitions.get(ref.name)
    defined = definition.versions.obstacle(ref) if definition is not None else None
    return stated_obstacle(ref) or defined or about.obstacle(ref)


def _connector_layer(
    manifest: Manifest, listing: tuple[Bundle, ...], refs: tuple[ConnectorRef, ...], held: _Held
) -> Layer:
    """The connectors that the lists admit for a tool that names some of them, each at the version that counts."""
    key = tuple(bundle.name for bundle in listing), refs
    known: dict[object, Layer] = manifest._cache.setdefault("connector layers", {})
    if key in known:
        return known[key]
    lines = _lines(manifest, listing)
    held.count(_WEIGHT_OF_A_LINE * len(lines))
    named = {ref.name: ref for ref in refs}
    rules = tuple(
        line.rule
        for name, line in lines.items()
        if (_obstacle(manifest, line.about, named[name]) is None if name in named else line.unnamed)
    )
    silent = EVERY_DOMAIN - {"connector"}
    layer = Layer("connectors", "the lists of connectors", manifest.origin, rules, silent=silent)
    known[key] = layer
    return layer


class _SharedConnector(Struct, frozen=True):
    """A connector that every list names, what the lists say about it, and whether a tool gets in that names none."""

    rule: Rule
    about: Connectors
    unnamed: bool


def _lines(manifest: Manifest, listing: tuple[Bundle, ...]) -> dict[str, _SharedConnector]:
    known: dict[object, dict[str, _SharedConnector]] = manifest._cache.setdefault("connectors", {})
    key = tuple(bundle.name for bundle in listing)
    if key not in known:
        connectors = connectors_of(manifest, listing)
        places = {rule.name: rule.origin for profile in connectors.profiles for rule in profile}
        known[key] = {
            name: _SharedConnector(
                Rule(Capability(f"connector:use:{name}"), places[name], "capabilities.connectors"),
                about,
                _obstacle(manifest, about, connector_ref(manifest, None, name)) is None,
            )
            for name, about in connectors.by_name().items()
        }
    return known[key]
