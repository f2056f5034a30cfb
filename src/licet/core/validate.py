"""Registration: does a tool fit a manifest? The misfits, as data; the same folding decides calls."""

from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from licet.core.advice import add_to_layer, remove
from licet.core.capability import Capability
from licet.core.decision import REASON_OF_DOMAIN, Ground
from licet.core.folding import MOST_PAIRS, common_of
from licet.core.grid import TooManyPairs
from licet.core.manifest import Layer, Manifest
from licet.core.reach import Reach, reach_of
from licet.core.set import CapabilitySet
from licet.core.tool import ToolSpec
from licet.values import dataclass, field

_FEWER = "write equal needs where tools do the same, or deny whole directories and domains"
_APART = "keep the two apart, as with `--state`: no rule opens what licet protects"


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing a tool asks for that a manifest does not give."""

    tool: str
    capability: str
    message: str
    fix: str = field(default="", compare=False)  # the change that would make it fit

    def __str__(self) -> str:
        return f"{self.tool}: {self.message}" + (f"; to allow it: {self.fix}" if self.fix else "")


class Declared(Protocol):
    """Anything that carries a declaration, such as a decorated function."""

    @property
    def spec(self) -> ToolSpec:
        """What the tool declares."""


def validate_registration(
    tool: ToolSpec | Declared, manifest: Manifest, *, most: int | None = None
) -> tuple[Misfit, ...]:
    """Everything a tool asks for that the manifest does not give, or the first of it; empty if it fits."""
    spec = _spec(tool)
    if manifest.tools.get(spec.name) is not spec:  # else what was folded already is known there
        manifest = manifest.declare([spec])
    reach = reach_of(manifest, spec.name)
    if reach is None:
        text = f"`{spec.name}` is in no bundle or list of tools of `{manifest.agent}` ({manifest.origin})"
        return (Misfit(spec.name, f"tool:call:{spec.name}", text),)
    standing = tuple(
        Misfit(spec.name, ground.capability or "side_effect_class", str(ground), ground.fix) for ground in reach.grounds
    )
    unmet = (
        Misfit(spec.name, ground.capability, ground.text.removeprefix(f"`{spec.name}` "), ground.fix)
        for ground in unmet_needs(reach, most)
    )
    return (*standing, *unmet)


def unmet_needs(reach: Reach, most: int | None = None) -> tuple[Ground, ...]:
    """What a tool needs and the files do not give; what stands in the way of the tool itself is in its `grounds`."""
    spec = reach.spec
    told = {ground.capability for ground in reach.grounds}
    denied = common_of(reach.manifest, reach.seats, spec.connector).denied()
    unfit = (need for need in spec.needs.allow if str(need) not in told and not _fits(reach, need, denied))
    return tuple(_unmet(reach, need) for need in islice(unfit, most))


def validate_tools(
    tools: Iterable[ToolSpec | Declared], manifest: Manifest, *, most: int | None = None
) -> tuple[Misfit, ...]:
    """The misfits of all tools, and of names that are taken twice; about as many as `most` at most."""
    misfits: list[Misfit] = []
    seen: set[str] = set()
    specs = [_spec(tool) for tool in tools]
    if any(manifest.tools.get(spec.name) is not spec for spec in specs):
        manifest = manifest.declare(specs)  # all at once: a manifest folds what its tools share only once
    for spec in specs:
        name = spec.name
        if most is not None and len(misfits) >= most:
            break
        if name in seen:
            misfits.append(Misfit(name, f"tool:call:{name}", f"`{name}` is declared twice"))
        seen.add(name)
        try:
            misfits += validate_registration(spec, manifest, most=most)
        except TooManyPairs:
            text = f"`{name}` and the tools before it hold more than {MOST_PAIRS} rules and denies together"
            misfits.append(Misfit(name, f"tool:call:{name}", text, _FEWER))
            break
    return tuple(misfits)


def _spec(tool: ToolSpec | Declared) -> ToolSpec:
    return tool if isinstance(tool, ToolSpec) else tool.spec


def _fits(reach: Reach, need: Capability, denied: CapabilitySet) -> bool:
    """A need fits if the allows cover it and no deny covers it whole; `*` takes what the ceiling gives."""
    return need.defers or (_unallowed(reach, need) is None and not CapabilitySet((need,)) <= denied)


def _unallowed(reach: Reach, need: Capability) -> Layer | None:
    """The first layer whose allows do not cover a need. Denies are left out: what they only cut into still fits."""
    wanted = CapabilitySet((need,))
    narrowing = (layer for layer in reach.layers if need.domain not in layer.silent)
    return next((layer for layer in narrowing if not wanted <= layer.without_denies), None)


def _unmet(reach: Reach, need: Capability) -> Ground:
    layer = _unallowed(reach, need)
    if layer:
        why = f"which {layer.title} does not allow ({layer.origin})"
        closed = [one for one in reach.layers if not CapabilitySet((need,)) <= one.without_denies]
        steps = [add_to_layer(one, (need,), reach.spec, reach.manifest.roots, None) for one in closed]
    else:
        denies = [(one, rule) for one in reach.layers for rule in one.denies if rule.capability.meet(need)]
        own = [rule for one, rule in denies if one.kind == "policy files"]
        written = [rule for one, rule in denies if one.kind != "policy files"]
        why, steps = f"denied by {'; '.join(map(str, written))}", [remove(rule) for rule in written]
        if CapabilitySet((need,)) <= CapabilitySet(rule.capability for rule in own):
            # They stand in no file: they are told by what they keep.
            why, steps = f"but {'; '.join(dict.fromkeys(rule.key for rule in own))}", [_APART]
    text = f"`{reach.spec.name}` needs {need}, {why}"
    return Ground(REASON_OF_DOMAIN[need.domain], text, None, "; ".join(dict.fromkeys(steps)), str(need))
