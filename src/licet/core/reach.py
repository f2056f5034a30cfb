"""What one tool of one manifest may do: its needs, its class and every layer of the ceiling, folded once.

The same folding answers registration (`grounds`, the standing obstacles), a call (`grant`) and a reviewer
(`grounds_of`, `obstacles_of`: which rules decide a use, and where they are written).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from licet.core import network
from licet.core.advice import add_need, add_to_layer, raise_class, state_class, state_level
from licet.core.capability import Capability
from licet.core.decision import REASON_OF_DOMAIN, Ground
from licet.core.effects import (
    CLASSES,
    LEVELS,
    WRITES,
    EffectClass,
    Level,
    class_fits,
    level_fits,
    permits,
    weakest_class,
)
from licet.core.manifest import WRITE_APPROVALS, Layer, Manifest, Rule, Seat, WriteApproval, least, meet_layers
from licet.core.origin import Origin
from licet.core.set import CapabilitySet
from licet.core.tool import ToolSpec
from licet.core.use import Use


@dataclass(frozen=True, slots=True)
class Reach:
    """One tool under one manifest: what it holds, and what stands in its way."""

    spec: ToolSpec
    seats: tuple[Seat, ...]
    layers: tuple[Layer, ...]
    effect: EffectClass | None
    level: Level | None
    permitted: CapabilitySet
    ceiling: CapabilitySet
    grant: CapabilitySet
    grounds: tuple[Ground, ...]  # why it cannot be called at all; empty if it can
    approval: WriteApproval | None  # how a call asks; None if it does not
    max_calls: int | None

    def grounds_of(self, use: Use) -> tuple[Ground, ...]:
        """The rules that allow a use: the tool's need, then the nearest rule of each layer that speaks of it."""
        grounds = [
            Ground("", f"`{self.spec.name}` needs {need}", self.spec.origin) for need in covering(self.spec, use)
        ]
        for layer in self.layers:
            grounds += [Ground("", str(rule.capability), rule.origin) for rule in nearest_rules(layer.allows, use)]
        return tuple(grounds)

    def obstacles_of(self, use: Use) -> tuple[Ground, ...]:
        """Every reason why a use is refused, with the change that would remove it; empty if it is allowed."""
        return tuple(self._obstacles_of(use))

    def _obstacles_of(self, use: Use) -> Iterator[Ground]:
        reason = REASON_OF_DOMAIN[use.domain]
        if not self.spec.needs.has(use):
            yield Ground(reason, f"`{self.spec.name}` does not declare it", self.spec.origin, add_need(use, self.spec))
        if not self.permitted.has(use):
            wanted = weakest_class(use, tcp_named=any(_names_tcp(layer, use) for layer in self.layers))
            fix = raise_class(self.spec, self.seats, wanted)
            yield Ground("SIDE_EFFECT_EXCEEDED", f"{_act(use)} is not permitted to class {self.effect}", None, fix)
        for layer in self.layers:
            verdict = layer.allowed.verdict(use)
            if verdict is False:
                for rule in nearest_rules(layer.denies, use):
                    fix = f"remove `{rule.capability}` from `{rule.key}`" if layer.kind != "policy files" else ""
                    yield Ground(reason, f"denied by {rule.capability}", rule.origin, fix)
            elif verdict is None:
                yield Ground(reason, f"{layer.title} does not allow it", layer.origin, add_to_layer(layer, use))


def reach_of(manifest: Manifest, tool: str, *, narrow: bool = False) -> Reach | None:
    """What a tool may do under a manifest, or None if the manifest does not know or does not admit it."""
    key = f"{tool}*" if narrow else tool
    found: Reach | None = manifest.folded.get(key)
    if found is None and tool in manifest.seats and tool in manifest.tools:
        # Folding is pure, so remembering it cannot change an answer; unknown names are not remembered.
        found = manifest.folded[key] = _fold(manifest, manifest.tools[tool], narrow)
    return found


def nearest_rules(rules: tuple[Rule, ...], use: Use) -> list[Rule]:
    """The rules nearest to a use among those that cover it."""
    found = [(use.keys.index(rule.capability.key), rule) for rule in rules if rule_covers(rule.capability, use)]
    nearest = min((distance for distance, _ in found), default=0)
    return [rule for distance, rule in found if distance == nearest]


def covering(spec: ToolSpec, use: Use) -> list[Capability]:
    """The needs of a tool that cover a use."""
    return [need for need in spec.needs.allow if rule_covers(need, use)]


def rule_covers(rule: Capability, use: Use) -> bool:
    """Whether one rule covers one use."""
    return (
        rule.domain == use.domain
        and bool(rule.atoms & use.kind.atom)
        and rule.key in use.keys
        and (rule.port is None or rule.port == use.port)
    )


def _fold(manifest: Manifest, spec: ToolSpec, narrow: bool) -> Reach:
    seats = manifest.seats[spec.name]
    layers = manifest.layers + tuple(seat.layer for seat in seats if seat.layer)
    ceiling = meet_layers(layers)
    effect, level, grounds = _standing(manifest, spec, seats, narrow)
    named_tcp = CapabilitySet(
        rule.capability for layer in layers for rule in layer.allows if rule.capability.atoms == network.TCP
    )
    permitted = permits(effect, named_tcp) if effect else CapabilitySet()
    grant = spec.needs & ceiling & permitted
    approvals = [seat.approval for seat in seats if seat.approval] or [manifest.approvals.write]
    write: WriteApproval = min(approvals, key=WRITE_APPROVALS.index)
    asks = effect == "destructive" or (write != "manifest" and bool(grant & WRITES))
    max_calls = None
    for seat in seats:
        max_calls = least(max_calls, seat.max_calls)
    return Reach(
        spec=spec,
        seats=seats,
        layers=layers,
        effect=effect,
        level=level,
        permitted=permitted,
        ceiling=ceiling,
        grant=grant,
        grounds=tuple(grounds),
        approval=("call" if effect == "destructive" else write) if asks else None,
        max_calls=max_calls,
    )


def _standing(
    manifest: Manifest, spec: ToolSpec, seats: tuple[Seat, ...], narrow: bool
) -> tuple[EffectClass | None, Level | None, list[Ground]]:
    """The class and level a tool runs at, and what keeps it from being called at all."""
    grounds: list[Ground] = []
    effect, level = _class_of(manifest, spec, seats, narrow, grounds), _level_of(manifest, spec, seats, narrow, grounds)
    if effect in ("full", "destructive"):
        if level == "native":
            text = f"class {effect} needs the level restricted or isolated"
            grounds.append(Ground("SIDE_EFFECT_EXCEEDED", text, spec.origin, state_level(spec, "isolated")))
        if not manifest.budget:
            text, fix = (
                f"class {effect} needs a budget",
                "add `budget: {max_calls_per_session: 100}` under `capabilities`",
            )
            grounds.append(Ground("SIDE_EFFECT_EXCEEDED", text, manifest.origin, fix))
    if spec.connector and (why := manifest.connectors.obstacle(spec.connector)):
        text = f"connector {spec.connector} is {why}" if why.startswith("not") else f"connector {spec.connector}: {why}"
        fix = f"list `{spec.connector.name}` under `connectors` and `tenant_allowlist`"
        capability = f"connector:use:{spec.connector.name}"
        grounds.append(Ground("CONNECTOR_NOT_ALLOWED", text, manifest.origin, fix, capability))
    return effect, level, grounds


def _class_of(
    manifest: Manifest, spec: ToolSpec, seats: tuple[Seat, ...], narrow: bool, grounds: list[Ground]
) -> EffectClass | None:
    stated = [pair for seat in seats for pair in seat.effects]
    own = spec.effect or min((effect for effect, _ in stated), key=CLASSES.index, default=None)
    if own is None:
        text = f"nobody states a side-effect class for `{spec.name}`"
        grounds.append(Ground("SIDE_EFFECT_EXCEEDED", text, spec.origin, state_class(spec), "side_effect_class"))
        return None
    ceilings: list[tuple[EffectClass, Origin | None]] = [*stated, (manifest.max_effect, manifest.max_effect_origin)]
    for ceiling, origin in ceilings:
        if not class_fits(own, ceiling):
            if narrow:
                own = ceiling
                continue
            where = "" if origin else ", the default"
            text = f"`{spec.name}` is {own}; at most {ceiling} is allowed{where}"
            fix = raise_class(spec, seats, own)
            grounds.append(
                Ground("SIDE_EFFECT_EXCEEDED", text, origin or manifest.origin, fix, f"side_effect_class {own}")
            )
    return own


def _level_of(
    manifest: Manifest, spec: ToolSpec, seats: tuple[Seat, ...], narrow: bool, grounds: list[Ground]
) -> Level | None:
    stated = [pair for seat in seats for pair in seat.levels]
    own = spec.sandbox or min((level for level, _ in stated), key=LEVELS.index, default=None)
    if own is None:
        text = f"nobody states a sandbox level for `{spec.name}`"
        grounds.append(Ground("SANDBOX_NOT_DECLARED", text, spec.origin, state_level(spec, "restricted"), "sandbox"))
        return None
    for ceiling, origin in stated:
        if not level_fits(own, ceiling):
            if narrow:
                own = ceiling
                continue
            text = f"`{spec.name}` runs at {own}; at most {ceiling} is allowed"
            fix = f"set `sandbox: {own}` there, or `{ceiling}` on the tool"
            grounds.append(Ground("SANDBOX_NOT_DECLARED", text, origin, fix, f"sandbox {own}"))
    if own == "native" and spec.name not in manifest.native:
        text, fix = f"`{spec.name}` is not named in `native`", f"add `{spec.name}` under `capabilities.native`"
        grounds.append(Ground("NATIVE_NOT_ALLOWED", text, manifest.origin, fix, "sandbox native"))
    return own


def _names_tcp(layer: Layer, use: Use) -> bool:
    return any(rule.capability.atoms == network.TCP and rule_covers(rule.capability, use) for rule in layer.allows)


def _act(use: Use) -> str:
    if use.domain == "network":
        return (
            use.method.upper()
            if use.method not in ("", "other")
            else "an unmediated connection"
            if not use.method
            else "this method"
        )
    return f"{use.domain} {use.action}"
