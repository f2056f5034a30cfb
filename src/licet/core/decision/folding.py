"""The part of `reach` that tools of one manifest share: layers, ceilings, connectors and grants, computed once.

A manifest may have hundreds of tools and hundreds of rules. Nothing here depends on the name of a tool: tools with the
same bundles, connectors, class and needs get the same objects. The total size of all grants is limited.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from licet.core.algebra.domains import PATH_DOMAINS
from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet, TooManyPairs
from licet.core.decision.approval import enough
from licet.core.decision.fixes import remove
from licet.core.decision.request import Ground
from licet.core.limits import MOST_PAIRS
from licet.core.policy.connector import ConnectorRef, Connectors, Installed, stated_obstacle
from licet.core.policy.layer import (
    ELEVATED,
    EVERY_DOMAIN,
    FILE_DELETES,
    WRITES,
    EffectClass,
    Layer,
    Rule,
    distinct,
    meet_layers,
    named_tcp,
    permits,
)
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import (
    APPROVED_IN_REVIEW,
    Admission,
    Approvals,
    Bundle,
    StandingApproval,
    WriteApproval,
    connectors_of,
)
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, key_bytes


def bundles_of(manifest: Manifest, admissions: Iterable[Admission]) -> tuple[Bundle, ...]:
    """The bundles through which a tool is admitted."""
    names = dict.fromkeys(admission.bundle for admission in admissions)
    return tuple(manifest.bundles[name] for name in names if name in manifest.bundles)


def delete_approval(
    manifest: Manifest, approvals: Approvals, effect: EffectClass | None, deletes: CapabilitySet
) -> WriteApproval | None:
    """When deletes of files ask; None if the class has none.

    `manifest` counts only with a standing approval of all of them, and below `destructive`; else it means `session`.
    """
    if effect not in ELEVATED:
        return None
    if approvals.delete != "manifest":
        return approvals.delete
    standing = manifest.standing
    if effect == "destructive" or standing is None or not _agreed(standing, approvals):
        return "session"
    return "manifest" if deletes <= CapabilitySet(standing.deletes) else "session"


def _agreed(standing: StandingApproval, approvals: Approvals) -> bool:
    """Whether those who gave a standing approval are enough for a tool: its bundle may ask for more signatures."""
    if standing == APPROVED_IN_REVIEW:
        return True
    listed = None if approvals.keys is None else {key_bytes(key) for key in approvals.keys} - {None}
    by = tuple(one for one in standing.by if listed is None or key_bytes(one) in listed)
    return enough(by, approvals.quorum, approvals.keys)


CEILINGS = ("manifest", "personality", "allow")
# A pair is one grant and one rule or deny in it.
_WEIGHT = 300  # the memory of one `Common`, in pairs
_WEIGHT_OF_A_LINE = 6  # the memory of one entry of the allowlists of connectors, in pairs
_NOTHING = CapabilitySet()


class _PairCounter:
    """Counts the rules and denies in all grants of one manifest."""

    __slots__ = ("_pairs",)

    def __init__(self) -> None:
        self._pairs = 0

    def counted(self, grant: CapabilitySet) -> CapabilitySet:
        """Count a grant and return it; `TooManyPairs` if the total exceeds the limit."""
        self.count(grant.size)
        return grant

    def count(self, pairs: int) -> None:
        self._pairs += pairs
        if self._pairs > MOST_PAIRS:
            raise TooManyPairs


class _SetCache:
    """A cache of sets by key."""

    __slots__ = ("_sets",)

    def __init__(self) -> None:
        self._sets: dict[object, CapabilitySet] = {}

    def __call__(self, key: object, make: Callable[[], CapabilitySet]) -> CapabilitySet:
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = make()
        return found


class _Ceilings(Struct, frozen=True, eq=False):
    """What the ceilings of a manifest allow to any tool; without a ceiling, nothing."""

    ceiling: CapabilitySet
    named_tcp: CapabilitySet
    _cached: _SetCache = field(default_factory=_SetCache)

    def denied(self) -> CapabilitySet:
        return self._cached("denied", lambda: CapabilitySet(self.ceiling.deny))

    def permitted(self, effect: EffectClass | None) -> CapabilitySet:
        return self._cached(effect, lambda: permits(effect, self.named_tcp) if effect else _NOTHING)

    def most(self, effect: EffectClass | None) -> CapabilitySet:
        return self._cached(("most", effect), lambda: self.ceiling & self.permitted(effect))


class Common(Struct, frozen=True, eq=False):
    """The layers that apply to a group of tools, and what they allow together."""

    layers: tuple[Layer, ...]
    unexpanded: tuple[Ground, ...]  # why every call is refused, if a deny still has `${workdir}` or `~`
    _narrower: CapabilitySet  # what the layers of this group allow: those of its bundles and connectors
    _ceilings: _Ceilings
    _counter: _PairCounter
    _cached: _SetCache = field(default_factory=_SetCache)
    _writes: dict[object, bool] = {}

    def denied(self) -> CapabilitySet:
        """Everything that a deny covers."""
        if not self._narrower.deny:
            return self._ceilings.denied()
        return self._cached("denied", lambda: self._ceilings.denied() | CapabilitySet(self._narrower.deny))

    def permitted(self, effect: EffectClass | None) -> CapabilitySet:
        """What a class permits under these ceilings; without a class, nothing."""
        return self._ceilings.permitted(effect)

    def grant(self, needs: CapabilitySet, effect: EffectClass | None) -> CapabilitySet:
        """The grant of a tool with these needs at a class."""
        # The small sets first, which is faster: a manifest may have thousands of rules, and most tools need a few.
        return self._cached(
            (effect, needs), lambda: self._counter.counted(needs & self._narrower & self._ceilings.most(effect))
        )

    def file_deletes(self, needs: CapabilitySet, effect: EffectClass | None) -> CapabilitySet:
        """The deletes of files in the grant of such a tool, whether `fs_reach.write` or `grants` allow them."""
        return self._cached(
            ("deletes", effect, needs), lambda: self._counter.counted(self.grant(needs, effect) & FILE_DELETES)
        )

    def holds_part_of(self, need: Capability) -> bool:
        """Whether every layer allows at least a part of a need; the class is not considered."""
        return bool(CapabilitySet((need,)) & self._narrower & self._ceilings.ceiling)

    def writes(self, needs: CapabilitySet, effect: EffectClass | None) -> bool:
        """Whether a tool with these needs can write or delete anything at a class."""
        key = effect, needs
        if key not in self._writes:
            changing = needs & WRITES
            self._writes[key] = bool(changing) and bool(changing & self._narrower & self._ceilings.most(effect))
        return self._writes[key]


def common_of(manifest: Manifest, admissions: Iterable[Admission], spec: ToolSpec) -> Common:
    """The `Common` of a tool; tools with the same layers, allowlists and connectors share one."""
    admissions = tuple(admissions)
    defined = [
        manifest.definitions[name].layer for name in sorted(spec.named_connectors) if name in manifest.definitions
    ]
    narrowing = tuple(layer for layer in (*(admission.layer for admission in admissions), *defined) if layer)
    listing = tuple(bundle for bundle in bundles_of(manifest, admissions) if bundle.connectors is not None)
    refs = tuple(connector_ref(manifest, spec, name) for name in sorted(spec.named_connectors))
    key = narrowing, tuple(bundle.name for bundle in listing), refs
    cached: dict[object, Common] = manifest.cache.setdefault("common", {})
    if key not in cached:
        cached[key] = _common(manifest, narrowing, listing, refs)
    return cached[key]


def _common(
    manifest: Manifest, narrowing: tuple[Layer, ...], listing: tuple[Bundle, ...], refs: tuple[ConnectorRef, ...]
) -> Common:
    counter: _PairCounter = manifest.cache.setdefault("pairs", {}).setdefault("all", _PairCounter())
    counter.count(_WEIGHT + sum(len(layer.allows) for layer in narrowing))
    connectors = _connector_layer(manifest, listing, refs, counter)
    layers = distinct((*manifest.layers, *narrowing, connectors))
    narrower = meet_layers(layer for layer in layers if not any(layer is own for own in manifest.layers))
    return Common(layers, _unexpanded_grounds(layers), narrower, _ceilings_of(manifest, layers), counter)


def _ceilings_of(manifest: Manifest, layers: tuple[Layer, ...]) -> _Ceilings:
    ceilings = tuple(layer for layer in layers if layer.kind in CEILINGS)
    cached: dict[tuple[Layer, ...], _Ceilings] = manifest.cache.setdefault("ceilings", {})
    if ceilings not in cached:
        cached[ceilings] = _Ceilings(manifest.ceiling if ceilings else _NOTHING, _tcp_named_by_all(ceilings))
    return cached[ceilings]


def _tcp_named_by_all(ceilings: tuple[Layer, ...]) -> CapabilitySet:
    """The connections that every ceiling allows by rules that name `tcp`."""
    named: CapabilitySet | None = None
    for rules in map(named_tcp, ceilings):
        named = rules if named is None else named & rules
    return named if named is not None else _NOTHING


def _unexpanded_grounds(layers: tuple[Layer, ...]) -> tuple[Ground, ...]:
    """Refuse every call while a deny has `${workdir}` or `~`, since the deny cannot be enforced yet."""
    for layer in layers:
        for rule in layer.denies:
            if rule.capability.domain in PATH_DOMAINS and rule.capability.key[:1] in ("$", "~"):
                text = f"{rule.capability} names no real directory yet"
                fix = "call `manifest.expand(workdir, home)` first"
                return (Ground("DECISION_FAILED", text, rule.origin, fix, str(rule.capability)),)
    return ()


def connector_ref(manifest: Manifest, spec: ToolSpec | None, name: str) -> ConnectorRef:
    """A connector with the version that counts: that of the server or distribution, or else the declared one."""
    definition = manifest.definitions.get(name)
    own = spec.connector if spec is not None and spec.connector and spec.connector.name == name else None
    stated = own.version if own else ""
    if spec is not None and spec.package is not None and spec.package.source != "installed":
        return ConnectorRef(name, stated, spec.package)  # a server brings its own, whatever is installed here
    if definition is not None and definition.distribution:
        running = Installed(definition.distribution, manifest.installed.get(definition.distribution, ""))
        return ConnectorRef(name, stated, running)
    if spec is not None and spec.package is not None:
        return ConnectorRef(name, stated, spec.package)
    return ConnectorRef(name, stated or (definition.versions.version if definition is not None else ""))


def connector_grounds(
    manifest: Manifest, bundles: tuple[Bundle, ...], spec: ToolSpec, layers: Iterable[Layer]
) -> Iterator[Ground]:
    """Why the needed connectors of a tool are not allowed: by the allowlists, and by denies of its layers."""
    for name in sorted(spec.needed_connectors):
        if ground := connector_ground(manifest, bundles, spec, name):
            yield ground
        use = Capability(f"connector:use:{name}")
        for rule in (rule for layer in layers for rule in layer.denies if rule.capability.meet(use)):
            text = f"denied by {rule.capability}"
            yield Ground("CONNECTOR_NOT_ALLOWED", text, rule.origin, remove(rule), str(use))


def connector_ground(manifest: Manifest, bundles: tuple[Bundle, ...], spec: ToolSpec, name: str) -> Ground | None:
    """Why the allowlists or the definition do not allow a connector at the version that counts, or None."""
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
    manifest: Manifest, listing: tuple[Bundle, ...], refs: tuple[ConnectorRef, ...], counter: _PairCounter
) -> Layer:
    """The layer of allowed connectors for a tool that uses `refs`."""
    key = tuple(bundle.name for bundle in listing), refs
    cached: dict[object, Layer] = manifest.cache.setdefault("connector layers", {})
    if key in cached:
        return cached[key]
    lines = _lines(manifest, listing)
    counter.count(_WEIGHT_OF_A_LINE * len(lines))
    named = {ref.name: ref for ref in refs}
    rules = tuple(
        line.rule
        for name, line in lines.items()
        if (_obstacle(manifest, line.about, named[name]) is None if name in named else line.unnamed)
    )
    silent = EVERY_DOMAIN - {"connector"}
    layer = Layer("connectors", "the lists of connectors", manifest.origin, rules, silent=silent)
    cached[key] = layer
    return layer


class _SharedConnector(Struct, frozen=True):
    """A connector that is in every allowlist."""

    rule: Rule
    about: Connectors  # the allowlists with only the entries about it
    unnamed: bool  # whether a tool that does not declare the connector may use it


def _lines(manifest: Manifest, listing: tuple[Bundle, ...]) -> dict[str, _SharedConnector]:
    cached: dict[object, dict[str, _SharedConnector]] = manifest.cache.setdefault("connectors", {})
    key = tuple(bundle.name for bundle in listing)
    if key not in cached:
        connectors = connectors_of(manifest, listing)
        places = {rule.name: rule.origin for profile in connectors.profiles for rule in profile}
        cached[key] = {
            name: _SharedConnector(
                Rule(Capability(f"connector:use:{name}"), places[name], "capabilities.connectors"),
                about,
                _obstacle(manifest, about, connector_ref(manifest, None, name)) is None,
            )
            for name, about in connectors.by_name().items()
        }
    return cached[key]
