"""The change that would allow what was refused, in one line a person can type."""

from licet.core.capability import Capability
from licet.core.effects import EffectClass, Level, class_fits
from licet.core.manifest import Layer, MaxEffect, Rule, Seat
from licet.core.tool import ToolSpec
from licet.core.use import Use

_MANIFEST_KEYS = {
    "network": "capabilities.destinations.allow",
    "secret": "capabilities.secrets",
    "process": "capabilities.process.allowed_binaries",
    "env": "capabilities.env",
    "storage": "capabilities.storage",
    "connector": "capabilities.connectors",
    "tool": "capabilities.tools",
}
_NEED_KEYS = {
    "network": "network.allowed_hosts",
    "secret": "secrets",
    "process": "process.allowed_binaries",
    "env": "env",
}


def add_to_layer(layer: Layer, use: Use) -> str:
    """Where and what to add so that a layer allows a use."""
    key, item = _place(layer, use)
    return f"add `{item}` under `{key}` in {layer.origin.file}"


def remove(rule: Rule) -> str:
    """What to take out so that a deny is gone, as it is written there."""
    written = str(rule.unexpanded or rule.capability)
    if rule.key.endswith(("destinations.deny", "network.deny")):
        written = written.removeprefix("network:*:").removeprefix("*@")
    return f"remove `{written}` from `{rule.key}` in {rule.origin.file}"


def add_need(use: Use, spec: ToolSpec) -> str:
    """What to add to a tool's declaration so that it may ask for a use."""
    where = f" in {spec.origin.file}" if spec.origin else ""
    key = "fs_reach.read" if use.action == "read" else "fs_reach.write"
    key = key if use.domain == "fs" else _NEED_KEYS.get(use.domain, "")
    if not key or use.action == "tcp":
        return f"add `{need_text(use)}` to the tool's `needs`{where}"
    return f"add `{use.target}` to the tool's `{key}`, or `{need_text(use)}` to its `needs`{where}"


def need_text(use: Use) -> str:
    """The narrowest rule that covers a use on any port."""
    if use.domain == "network":
        host = f"{use.target}:{use.port}" if use.action == "tcp" else use.target
        return str(Capability(f"network:{use.action}:*@{host}"))
    return str(use)


def raise_class(
    spec: ToolSpec, seats: tuple[Seat, ...], max_effects: tuple[MaxEffect, ...], wanted: EffectClass
) -> str:
    """Every place that must state a stronger class."""
    places = [f"`effect: {wanted}` on the tool"] if spec.effect and not class_fits(wanted, spec.effect) else []
    places += [
        f"`side_effect_class: {wanted}` ({origin})"
        for seat in seats
        for effect, origin in seat.effects
        if not class_fits(wanted, effect)
    ]
    places += [
        f"`max_side_effect_class: {wanted}` ({top.origin})" for top in max_effects if not class_fits(wanted, top.effect)
    ]
    return "set " + " and ".join(places)


def state_class(spec: ToolSpec) -> str:
    """How to state a class for a tool that has none."""
    return _state(spec, "effect", "side_effect_class", "read_only")


def state_level(spec: ToolSpec, level: Level) -> str:
    """How to state a level for a tool that has none."""
    return _state(spec, "sandbox", "sandbox", level)


def _state(spec: ToolSpec, argument: str, key: str, word: str) -> str:
    return f'add `{argument}="{word}"` to the tool, or `{spec.name}: {{{key}: {word}}}` under `capabilities.tools`'


def _place(layer: Layer, use: Use) -> tuple[str, str]:
    if layer.kind == "bundle":
        return f"{layer.title}.destinations", use.target
    if layer.kind == "connectors":
        return "capabilities.connectors", use.target
    if layer.kind == "workspace":
        return "destinations.allow", use.target
    if use.domain == "network" and use.action == "tcp":
        return _own(layer, "capabilities.grants"), need_text(use)
    if use.domain == "network" and layer.kind == "personality":
        return "safety.network.allow", use.target
    if use.domain == "fs":
        return _own(layer, f"capabilities.fs_reach.{'read' if use.action == 'read' else 'write'}"), use.target
    return _own(layer, _MANIFEST_KEYS[use.domain]), use.target


def _own(layer: Layer, key: str) -> str:
    return key.removeprefix("capabilities.") if layer.kind == "personality" else key
