"""The edits of an agent's own policy file after which a refused use is allowed, as values that a program can write.

They are the lines that `fixes` puts into words, where a rule is missing in that file, or its class is too weak. All
else is left to a person's own edit, with the reason: denies, and the code, bundles and organisations of others.
"""

from collections.abc import Iterator

from msgspec import Struct

from licet.core.algebra.rules import Capability, Use, use_of_path
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny, reach_behind
from licet.core.decision.fixes import Addition, layer_steps, narrowest, rule_text
from licet.core.decision.folding import CEILINGS
from licet.core.decision.foreseen import foreseen
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Ground, Request
from licet.core.policy.layer import ELEVATED, Layer, class_fits, named_tcp, weakest_class
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import tool_parts
from licet.core.review.sensitive import Whereabouts, why_sensitive


class Setting(Struct, frozen=True):
    """A value for one key of a policy file."""

    key: tuple[str, ...]
    value: str
    file: str

    def __str__(self) -> str:
        return f"set `{'.'.join(self.key)}: {self.value}` in {self.file}"


Edit = Addition | Setting


class ByHand(ValueError):
    """Only a person's own edit allows a use. `fixes` are what `licet explain` says of it, if anything does."""

    def __init__(self, why: str, fixes: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.fixes = fixes


def policy_edits(manifest: Manifest, tool: str, use: Use) -> tuple[Edit, ...]:
    """The edits after which a tool may do a use; none if it may already. Raises `ByHand`."""
    decision = foreseen(decide(Request(tool, (use,)), manifest), manifest)
    if not isinstance(decision, Deny):
        return ()
    fixes = tuple(dict.fromkeys(ground.fix for ground in decision.rules if ground.fix))
    try:
        return _edits(reach_of(manifest, tool), use, decision.rules)
    except ByHand as why:
        raise ByHand(str(why), fixes) from None


def is_allowable(denied: Deny) -> bool:
    """Whether `licet allow` would write lines for a refusal, as far as a policy tells, which must be a file."""
    reach, use = reach_behind(denied), denied.use
    if reach is None or use is None or not reach.manifest.files:
        return False
    roots = reach.manifest.roots
    where = Whereabouts(roots.get("${workdir}", ""), roots.get("~", ""))
    try:
        edits = _edits(reach, use, denied.rules)
    except ByHand:
        return False
    # A delete is judged as a write of the same name is.
    judged = use_of_path("write", use.target) if use.domain == "fs" and use.action == "delete" else use
    return bool(edits) and not why_sensitive(judged, where)


def _edits(reach: Reach | None, use: Use, rules: tuple[Ground, ...]) -> tuple[Edit, ...]:
    if reach is None or reach.grounds:
        raise ByHand("; ".join(map(str, rules)))
    obstacles = reach.obstacles_of(use)
    if others := [ground for ground in rules if ground not in obstacles]:
        raise ByHand("; ".join(map(str, others)))  # such as an address
    for layer in reach.layers:
        _check_no_deny(layer, use)
    _narrow(use)
    edits: dict[Edit, None] = {}
    if not reach.spec.touches.has(use):
        edits[_need(reach, use)] = None
    for layer in reach.layers:
        lacks = not layer.without_denies.has(use)
        if lacks or (use.action == "tcp" and layer.kind in CEILINGS and not named_tcp(layer).has(use)):
            edits |= dict.fromkeys(_of_layer(layer, reach, use))
    edits |= dict.fromkeys(_of_class(reach, use))
    return tuple(edits)


def _check_no_deny(layer: Layer, use: Use) -> None:
    if layer.allowed.verdict(use) is not False:
        return
    if layer.kind == "protected paths":
        raise ByHand(next(rule.key for rule in layer.denies_of(use)))
    for rule in layer.denies_of(use):
        raise ByHand(f"{rule} denies it, and who wrote that takes it back")


def _need(reach: Reach, use: Use) -> Addition:
    """The need of a tool that the agent's own file declares by rules."""
    spec, manifest = reach.spec, reach.manifest
    is_here = spec.origin is not None and spec.origin.file == manifest.origin.file and spec.name not in manifest.sources
    if not is_here or spec.by_keys or tool_parts(spec.name, manifest.servers) is not None:
        where = f" ({spec.origin})" if spec.origin else ""
        raise ByHand(f"`{spec.name}` does not declare it{where}, and that is said where the tool is written")
    text = rule_text(_narrow(use), manifest.roots)
    return Addition(("tools", spec.name, "needs"), text, manifest.origin.file)


def _narrow(use: Use) -> Capability:
    """The rule for exactly a use."""
    rule = narrowest(use)
    if rule is None or rule.key != use.keys[0]:
        raise ByHand("no rule can name it, and one for all that is around it allows more than was asked for")
    return rule


def _of_layer(layer: Layer, reach: Reach, use: Use) -> Iterator[Edit]:
    if layer.kind not in ("manifest", "personality", "bundle") or layer.origin.file != reach.manifest.origin.file:
        raise ByHand(f"{layer.title} does not allow it ({layer.origin}), which is not the agent's own policy")
    wanted = reach.wanted(use) if not layer.without_denies.has(use) else (_narrow(use),)
    for step in layer_steps(layer, wanted, reach.spec, reach.manifest.roots, use):
        assert isinstance(step, Addition)  # noqa: S101 - other steps are those of layers in code
        yield step


def _of_class(reach: Reach, use: Use) -> Iterator[Edit]:
    """The class of the policy, and the budget that it then needs. A class that anything else states is not changed."""
    wanted, manifest = weakest_class(use, tcp_named=True), reach.manifest
    if reach.effect is None or class_fits(wanted, reach.effect):
        return
    if use.effect == "delete":  # such a class opens far more than deletes, and they would still have to be approved
        lacks = [f"`max_side_effect_class: {wanted}`"]
        lacks += [] if manifest.own.budget else ["a `budget`"]
        lacks += ["an approval, as `approvals.delete` says"]
        raise ByHand(f"a delete needs {', '.join(lacks[:-1])} and {lacks[-1]}: that is more than one delete")
    file, is_command = manifest.origin.file, reach.spec.origin == manifest.origin
    stated = [*(() if is_command or not reach.spec.effect else (reach.spec.effect,))]
    stated += [effect for admission in reach.admissions for effect, _ in admission.effects]
    weak = [top for top in manifest.max_effects if not class_fits(wanted, top.effect)]
    if any(not class_fits(wanted, effect) for effect in stated) or any(top.origin.file != file for top in weak):
        raise ByHand(
            f"{use.domain} {use.action} needs class {wanted}, which is not said in the agent's own policy alone"
        )
    if wanted in ELEVATED and reach.level == "native":
        raise ByHand(f"class {wanted} needs walls, and `{reach.spec.name}` runs without")
    prefix = ("capabilities",) if any(layer.kind == "manifest" for layer in reach.layers) else ()
    yield Setting((*prefix, "max_side_effect_class"), wanted, file)
    if wanted in ELEVATED and not manifest.own.budget:
        yield Setting((*prefix, "budget", "max_calls_per_session"), "100", file)
