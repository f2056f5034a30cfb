"""Registration: whether a tool fits a manifest. The misfits are returned as data, or as reasons for refusing calls.

`Undeclared` computes the most that an admitted tool could hold if no file declares it.
"""

import re
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal
from itertools import islice
from typing import ClassVar, Literal, Protocol, get_args

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet, TooManyPairs
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny
from licet.core.decision.fixes import add_to_layer, call_denials, remove
from licet.core.decision.folding import bundles_of, common_of
from licet.core.decision.reach import Reach, compute_reach, not_admitted_grounds, reach_of
from licet.core.decision.request import REASON_OF_DOMAIN, Ground, Request
from licet.core.limits import MOST_PAIRS
from licet.core.policy.connector import ConnectorRule, Connectors
from licet.core.policy.layer import CLASSES, LEVELS, EffectClass, Layer, Level
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission, Bundle, WriteApproval
from licet.core.policy.tool import ToolSpec
from licet.core.values import Compared

Category = Literal[
    "network",
    "secrets",
    "storage",
    "fs_reach",
    "process",
    "env",
    "connector",
    "socket",
    "side_effect_class",
    "sandbox",
    "arguments",
    "tool",  # the tool itself: it is not admitted, or declared twice
]

_FEWER = "write equal needs where tools do the same, or deny whole directories and domains"
_CHANGES = ("write", "delete")
_APART = "keep the two apart, as with `--state`: no rule opens what licet protects"

# The first word of `Ground.capability` -> the category.
_CATEGORY_OF: dict[str, Category] = {
    **{category: category for category in get_args(Category)},
    "secret": "secrets",
    "fs": "fs_reach",
    "args": "arguments",
}


class Misfit(Compared, frozen=True):
    """Something that a tool declares and its manifest does not allow."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"fix"})

    tool: str
    category: Category
    capability: str
    message: str
    fix: str = ""  # the edit that would make it fit

    def __str__(self) -> str:
        return f"{self.tool}: {self.message}" + (f"; to allow it: {self.fix}" if self.fix else "")


def misfit_of(tool: str, ground: Ground) -> Misfit:
    """Convert a reason for refusing every call of a tool to a misfit."""
    word = re.split("[:. ]", ground.capability)[0]
    category = _CATEGORY_OF[word]
    message = str(ground)
    if message.startswith(f"`{tool}` needs "):
        message = message.removeprefix(f"`{tool}` ")
    return Misfit(tool, category, ground.capability, message, ground.fix)


class Declared(Protocol):
    """An object with a declaration, such as a decorated function."""

    @property
    def spec(self) -> ToolSpec:
        """What the tool declares."""


def validate_registration(
    tool: ToolSpec | Declared, manifest: Manifest, *, most: int | None = None
) -> tuple[Misfit, ...]:
    """Everything that a tool declares and the manifest does not allow; `most` limits the needs that are listed."""
    spec = _spec(tool)
    if manifest.tools.get(spec.name) is not spec:  # otherwise keep the manifest and its cache
        manifest = manifest.declare([spec])
    reach = reach_of(manifest, spec.name)
    if reach is None:
        if denied := call_denials(manifest, spec.name):
            return tuple(misfit_of(spec.name, ground) for ground in denied)
        text = f"`{spec.name}` is in no bundle or list of tools of the agent `{manifest.agent}`"
        grounds = not_admitted_grounds(manifest, spec.name)
        fixes = (ground.fix for ground in grounds if ground.reason == "TOOL_NOT_IN_BUNDLE" and ground.fix)
        fix = "; ".join(dict.fromkeys(fixes))
        ground = Ground("TOOL_NOT_IN_BUNDLE", text, manifest.origin, fix, f"tool:call:{spec.name}")
        return (misfit_of(spec.name, ground),)
    return tuple(misfit_of(spec.name, ground) for ground in misfit_grounds(reach, most))


def misfit_grounds(reach: Reach, most: int | None = None) -> tuple[Ground, ...]:
    """All reasons why a tool does not fit its manifest; `most` limits the needs that are listed."""
    return (*reach.grounds, *unmet_needs(reach, most))


def unmet_needs(reach: Reach, most: int | None = None) -> tuple[Ground, ...]:
    """The needs of a tool that the manifest does not allow, without those that `reach.grounds` has already."""
    spec = reach.spec
    reported = {ground.capability for ground in reach.grounds}
    denied = common_of(reach.manifest, reach.admissions, spec).denied()
    unfit = (need for need in spec.needs.allow if str(need) not in reported and not _fits(reach, need, denied))
    return tuple(_unmet(reach, need) for need in islice(unfit, most))


def argument_grounds(reach: Reach) -> tuple[Ground, ...]:
    """Why a gate refuses rules about arguments that the tool does not have, as far as its source shows them."""
    taken = reach.spec.parameters
    if taken is None:
        return ()
    text = f"is not an argument of `{reach.spec.name}`: its rule would stop nothing"
    others = ", ".join(f"`{one}`" for one in taken)
    fix = f"write the rule for one of {others}, or take it out" if taken else "take the rule out"
    unknown = (
        (admission.origin, name) for admission in reach.admissions for name in admission.args if name not in taken
    )
    return tuple(
        Ground("ARGUMENT_NOT_ALLOWED", f"`{name}` {text}", origin, fix, f"args.{name}") for origin, name in unknown
    )


def validate_tools(
    tools: Iterable[ToolSpec | Declared], manifest: Manifest, *, most: int | None = None
) -> tuple[Misfit, ...]:
    """The misfits of all tools, and tools that are declared twice; stops after about `most` misfits."""
    misfits: list[Misfit] = []
    seen: set[str] = set()
    specs = [_spec(tool) for tool in tools]
    if any(manifest.tools.get(spec.name) is not spec for spec in specs):
        manifest = manifest.declare(specs)  # all at once, so that they share one cache
    for spec in specs:
        name = spec.name
        if most is not None and len(misfits) >= most:
            break
        if name in seen:
            misfits.append(misfit_of(name, declared_twice(name)))
        seen.add(name)
        try:
            misfits += validate_registration(spec, manifest, most=most)
        except TooManyPairs:
            misfits.append(misfit_of(name, too_many_pairs(name)))
            break
    return tuple(misfits)


def declared_twice(tool: str) -> Ground:
    """Why two tools of the same name are refused: a manifest cannot admit only one of them."""
    return Ground("TOOL_NOT_IN_BUNDLE", f"`{tool}` is declared twice", capability=f"tool:call:{tool}")


def too_many_pairs(tool: str) -> Ground:
    """Why tools are refused whose grants would take too much memory."""
    text = f"`{tool}` and the tools before it hold more than {MOST_PAIRS} rules and denies together"
    return Ground("DECISION_FAILED", text, None, _FEWER, f"tool:call:{tool}")


def _spec(tool: ToolSpec | Declared) -> ToolSpec:
    return tool if isinstance(tool, ToolSpec) else tool.spec


def _fits(reach: Reach, need: Capability, denied: CapabilitySet) -> bool:
    """Whether a need is allowed, and is not denied completely. A need of `*` takes what the ceiling allows."""
    return need.defers or (_unallowed(reach, need) is None and not CapabilitySet((need,)) <= denied)


def _unallowed(reach: Reach, need: Capability) -> Layer | None:
    """The first layer whose allows do not cover a need. Denies are ignored: a need that is partly denied still fits."""
    wanted = CapabilitySet((need,))
    narrowing = (layer for layer in reach.layers if need.domain not in layer.silent)
    return next((layer for layer in narrowing if not wanted <= layer.without_denies), None)


def _unmet(reach: Reach, need: Capability) -> Ground:
    closed = [one for one in reach.layers if not CapabilitySet((need,)) <= one.without_denies]
    return _lacking(reach, need, _unallowed(reach, need), closed)


def unheld_needs(reach: Reach) -> tuple[Ground, ...]:
    """The needs of which the grant would have no part at all. Needs of `*` are left out: they accept an empty grant."""
    common = common_of(reach.manifest, reach.admissions, reach.spec)
    needs = [need for need in reach.spec.needs.allow if not need.defers]
    lost = [need for need in needs if not common.holds_part_of(need)]
    if reach.spec.by_keys:  # `fs_reach.write` is one need, although it means two rules
        kept = {need.key for need in needs if need.domain == "fs" and need.action in _CHANGES and need not in lost}
        lost = [need for need in lost if not (need.domain == "fs" and need.action in _CHANGES and need.key in kept)]
    return tuple(_unheld(reach, need) for need in lost)


def _unheld(reach: Reach, need: Capability) -> Ground:
    wanted = CapabilitySet((need,))
    narrowing = [one for one in reach.layers if need.domain not in one.silent]
    disjoint = [one for one in narrowing if not wanted & one.without_denies]
    # If each layer allows a part, but there is no common part, each of them must allow the complete need.
    closed = disjoint or [one for one in narrowing if not wanted <= one.without_denies]
    return _lacking(reach, need, closed[0] if closed else None, closed)


def _lacking(reach: Reach, need: Capability, layer: Layer | None, closed: Sequence[Layer]) -> Ground:
    """Why a need is not met, because of a layer that does not allow it or of denies, with an edit for each of them."""
    origin = None
    if layer:
        why, origin = f"which {layer.title} does not allow", layer.origin
        steps = [add_to_layer(one, (need,), reach.spec, reach.manifest.roots, None) for one in closed]
    else:
        denies = [(one, rule) for one in reach.layers for rule in one.denies if rule.capability.meet(need)]
        own = [rule for one, rule in denies if one.kind == "protected paths"]
        written = [rule for one, rule in denies if one.kind != "protected paths"]
        why, steps = f"denied by {'; '.join(map(str, written))}", [remove(rule) for rule in written]
        if CapabilitySet((need,)) <= CapabilitySet(rule.capability for rule in own):
            # licet's own denies are in no file. Their `key` is a sentence, such as `layer.POLICY`.
            why, steps = f"but {'; '.join(dict.fromkeys(rule.key for rule in own))}", [_APART]
    text = f"`{reach.spec.name}` needs {need}, {why}"
    return Ground(REASON_OF_DOMAIN[need.domain], text, origin, "; ".join(dict.fromkeys(steps)), str(need))


_NOTHING = CapabilitySet()
_EVERYTHING = CapabilitySet(f"{domain}:*:*" for domain in DOMAINS)


class Most(Struct, frozen=True):
    """The most that an undeclared tool could hold, if it needed everything."""

    layers: tuple[Layer, ...]
    effect: EffectClass | None
    level: Level  # the loosest one that it could declare
    asks: WriteApproval | None  # the fewest approvals that it could need
    approved_by: str  # what pins the file that approves its writes; empty if a person does
    max_calls: int | None
    max_cost_usd: Decimal | None
    grant: CapabilitySet
    delete_approval: WriteApproval | None
    free_deletes: CapabilitySet


class Undeclared:
    """The tools that are admitted but that no file declares. Tools with equal admissions get the same result."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        bundles = {name: _any_version_in(bundle) for name, bundle in manifest.bundles.items()}
        connectors = _any_version(manifest.connectors)
        self._without_versions = replace(manifest, connectors=connectors, bundles=bundles, definitions={})
        self._cached: dict[Hashable, Most | None] = {}

    def most_of(self, name: str) -> Most | None:
        """The most that a tool could hold; None if every declaration of it would be refused."""
        admissions, natives = self._manifest.admissions[name], self._manifest.natives
        listing = (bundle.name for bundle in bundles_of(self._manifest, admissions) if bundle.connectors is not None)
        alike = (*map(_deciding, admissions), *(name in listed.names for listed in natives), *listing)
        if alike not in self._cached:
            self._cached[alike] = self._most_of(name)
        return self._cached[alike]

    def _most_of(self, name: str) -> Most | None:
        manifest = self._manifest
        # The possible classes and levels do not depend on rules, so try them on a manifest without layers.
        admissions = tuple(replace(admission, layer=None) for admission in manifest.admissions[name])
        bare = replace(manifest, layers=(), admissions={name: admissions}, tools={})
        fitting = [
            (effect, level)
            for effect in reversed(CLASSES)
            for level in LEVELS
            if not isinstance(decide(Request(name), bare.declare([ToolSpec(name, _NOTHING, effect, level)])), Deny)
        ]
        if not fitting:
            return None
        # A destructive tool needs an approval for every call; the next lower class may not.
        mildest = next(((effect, level) for effect, level in fitting if effect != "destructive"), fitting[0])
        strongest, least_asking = (
            compute_reach(self._without_versions, ToolSpec(name, _EVERYTHING, effect, level))
            for effect, level in (fitting[0], mildest)
        )
        return Most(
            layers=strongest.layers,
            effect=strongest.effect,
            level=max((level for _, level in fitting), key=LEVELS.index),
            asks=least_asking.approval,
            approved_by=least_asking.approved_by,
            max_calls=strongest.max_calls,
            max_cost_usd=strongest.max_cost_usd,
            grant=strongest.grant,
            delete_approval=strongest.delete_approval,
            free_deletes=strongest.free_deletes,
        )


def _deciding(admission: Admission) -> Hashable:
    """The parts of an admission that what a tool holds depends on."""
    effects = tuple(effect for effect, _ in admission.effects)
    levels, own = tuple(level for level, _ in admission.levels), (admission.max_calls, admission.max_cost_usd)
    return effects, levels, admission.layer, admission.approval, *own


def _any_version(connectors: Connectors) -> Connectors:
    """The same lists without versions, since an undeclared tool could state any version."""
    app = None if connectors.app is None else _without_versions(connectors.app)
    profiles = tuple(map(_without_versions, connectors.profiles))
    return replace(connectors, tenant=_without_versions(connectors.tenant), app=app, profiles=profiles)


def _any_version_in(bundle: Bundle) -> Bundle:
    return bundle if bundle.connectors is None else replace(bundle, connectors=_without_versions(bundle.connectors))


def _without_versions(rules: tuple[ConnectorRule, ...]) -> tuple[ConnectorRule, ...]:
    return tuple(replace(rule, versions="") for rule in rules)
