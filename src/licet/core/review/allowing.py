"""The manifest after the advice about a refused use was followed, to show what else that change would allow.

Each edit here is the meaning of one line of `fixes`: a rule added to a layer, a need added to a tool, a deny removed, a
class raised, a budget added, a private address opened. `tests/spec/test_advice_spec.py` follows the lines in files and
holds both to the same result. Other lines, such as those that admit a tool, are not modelled: then there is no answer.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.domains import EVERYTHING as EVERY_METHOD
from licet.core.algebra.rules import Capability, Use, capability
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny
from licet.core.decision.fixes import declared_so, hosts_alone, narrowest
from licet.core.decision.folding import CEILINGS
from licet.core.decision.foreseen import foreseen
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Request
from licet.core.limits import MOST_ROUNDS
from licet.core.policy.layer import ELEVATED, EffectClass, Layer, Rule, class_fits, named_tcp, weakest_class
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission, Budget
from licet.core.policy.tool import KEY_OF, ToolSpec
from licet.core.review.changes import Change
from licet.core.review.diff import diff


def growth_if_allowed(manifest: Manifest, tool: str, use: Use) -> tuple[Change, ...] | None:
    """What would grow besides the use itself, and the classes that the advice names; None if that is not known."""
    changed = allowing(manifest, tool, use)
    if changed is None:
        return None
    exact = narrowest(use)
    return tuple(
        change
        for change in diff(manifest, changed).grown
        if change.kind != "effect" and not (change.tool == tool and change.kind == "reach" and change.rule == exact)
    )


def allowing(manifest: Manifest, tool: str, use: Use) -> Manifest | None:
    """The manifest in which the advice about a refused use was followed; None if not all of it is modelled."""
    for _ in range(MOST_ROUNDS):
        decision = foreseen(decide(Request(tool, (use,)), manifest), manifest)
        if not isinstance(decision, Deny):
            return manifest
        reach = reach_of(manifest, tool)
        if reach is None or reach.grounds or set(decision.rules) != set(reach.obstacles_of(use)):
            return None  # something else than this use is refused too: the whole tool, or an address
        manifest = _edited(manifest, reach, use)
    return None


def _edited(manifest: Manifest, reach: Reach, use: Use) -> Manifest:
    """One round of edits."""
    spec, wanted = reach.spec, reach.wanted(use)
    if not spec.touches.has(use):
        spec = replace(spec, needs=spec.needs | CapabilitySet(declared_so(use, spec)))
    edits = {layer: _opened(layer, wanted, spec, use) for layer in reach.layers}
    manifest = _with_layers(manifest, edits)
    if reach.effect and not reach.permitted.has(use):
        manifest, spec = _stronger(manifest, reach, spec, use)
    return manifest.declare([spec])


def _opened(layer: Layer, wanted: Iterable[Capability], spec: ToolSpec, use: Use) -> Layer:
    """A layer that allows the use, and whatever else its tool needs with it."""
    if layer.kind in ("protected paths", "connectors") or use.domain in layer.silent:
        return layer
    denies = tuple(rule for rule in layer.denies if not rule.capability.covers_use(use))
    missing = [rule for rule in wanted if not CapabilitySet((rule,)) <= layer.without_denies]
    added = tuple(Rule(each, layer.origin, key) for rule in missing for each, key in _as_written(layer, rule, spec))
    return replace(layer, allows=(*layer.allows, *added), denies=denies)


def _as_written(layer: Layer, rule: Capability, spec: ToolSpec) -> list[tuple[Capability, str]]:
    """What a line for a rule means in a layer. Some keys cannot say less than every method, or write and delete."""
    own = "" if layer.kind == "personality" else "capabilities."
    kind = f"{rule.domain}:{rule.action}"
    if rule.domain == "network" and layer.kind in ("bundle", "workspace", "organisation", "definition"):
        return [(capability("network", EVERY_METHOD, rule.key, rule.port), "destinations")]
    if hosts_alone(layer, rule):
        return [(capability("network", EVERY_METHOD, rule.key, rule.port), "safety.network.allow")]
    if spec.by_keys and kind in ("fs:write", "fs:delete") and layer.kind in CEILINGS:
        key = f"{own}{KEY_OF[kind]}"
        return [(capability("fs", DOMAINS["fs"].actions[one], rule.key, None), key) for one in ("write", "delete")]
    return [(rule, f"{own}grants")]


def _with_layers(manifest: Manifest, edits: dict[Layer, Layer]) -> Manifest:
    def edited(admission: Admission) -> Admission:
        return admission if admission.layer is None else replace(admission, layer=_of(edits, admission.layer))

    return replace(
        manifest,
        layers=tuple(_of(edits, layer) for layer in manifest.layers),
        admissions={name: tuple(map(edited, held)) for name, held in manifest.admissions.items()},
        bundles={name: replace(one, admission=edited(one.admission)) for name, one in manifest.bundles.items()},
        definitions={
            name: replace(one, layer=_of(edits, one.layer) if one.layer else None)
            for name, one in manifest.definitions.items()
        },
        loaded=manifest.loaded or manifest,
    )


def _of(edits: dict[Layer, Layer], layer: Layer) -> Layer:
    return edits.get(layer, layer)


def _stronger(manifest: Manifest, reach: Reach, spec: ToolSpec, use: Use) -> tuple[Manifest, ToolSpec]:
    """The class that permits a use, stated wherever a weaker one is, with the walls and the budget that it needs."""
    wanted = weakest_class(use, tcp_named=True)
    if use.action == "tcp" and (exact := narrowest(use)) is not None:
        unnamed = [one for one in reach.layers if one.kind in CEILINGS and not named_tcp(one).has(use)]
        added = {one: replace(one, allows=(*one.allows, Rule(exact, one.origin, "grants"))) for one in unnamed}
        manifest = _with_layers(manifest, added)
    if reach.effect is None or class_fits(wanted, reach.effect):
        return manifest, spec

    def raised(effect: EffectClass) -> EffectClass:
        return effect if class_fits(wanted, effect) else wanted

    lines = {at for one in reach.admissions for _, at in one.effects}  # a line of a bundle is about all its tools

    def edited(admission: Admission) -> Admission:
        effects = ((raised(effect) if at in lines else effect, at) for effect, at in admission.effects)
        return replace(admission, effects=tuple(effects))

    admissions = {name: tuple(map(edited, held)) for name, held in manifest.admissions.items()}
    tops = tuple(replace(top, effect=raised(top.effect)) for top in manifest.max_effects)
    if wanted in ELEVATED and not manifest.own.budget:
        budget = Budget(max_calls_per_session=100)
        project = manifest.project and replace(manifest.project, budget=budget)
        manifest = replace(manifest, budget=manifest.budget.narrowed_by(budget), project=project)
    spec = replace(spec, effect=raised(spec.effect) if spec.effect else None)
    if wanted in ELEVATED and reach.level == "native":
        spec = replace(spec, sandbox="isolated")
    return replace(manifest, admissions=admissions, max_effects=tops), spec
