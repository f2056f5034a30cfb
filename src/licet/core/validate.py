"""Registration: does a tool fit a manifest? The misfits, as data; the same folding decides calls."""

from collections.abc import Iterable
from dataclasses import dataclass

from licet.core.capability import Capability
from licet.core.manifest import Manifest
from licet.core.reach import Reach, reach_of
from licet.core.set import CapabilitySet
from licet.core.tool import ToolSpec


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing a tool asks for that a manifest does not give."""

    tool: str
    capability: str
    message: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.message}"


def validate_registration(tool: ToolSpec, manifest: Manifest) -> tuple[Misfit, ...]:
    """Everything a tool asks for that the manifest does not give; empty if it fits."""
    spec = getattr(tool, "spec", tool)
    reach = reach_of(manifest.declare([spec]), spec.name)
    if reach is None:
        text = f"`{spec.name}` is in no bundle or list of tools of `{manifest.agent}` ({manifest.origin})"
        return (Misfit(spec.name, f"tool:call:{spec.name}", text),)
    standing = [Misfit(spec.name, ground.capability or "side_effect_class", str(ground)) for ground in reach.grounds]
    return (*standing, *(_misfit(reach, need) for need in spec.needs.allow if not _fits(reach, need)))


def validate_tools(tools: Iterable[ToolSpec], manifest: Manifest) -> tuple[Misfit, ...]:
    """The misfits of all tools, and of names that are taken twice."""
    misfits: list[Misfit] = []
    seen: set[str] = set()
    for tool in tools:
        name = getattr(tool, "spec", tool).name
        if name in seen:
            misfits.append(Misfit(name, f"tool:call:{name}", f"`{name}` is declared twice"))
        seen.add(name)
        misfits += validate_registration(tool, manifest)
    return tuple(misfits)


def _fits(reach: Reach, need: Capability) -> bool:
    """A need fits if the allows cover it and no deny covers it whole; `*` takes what the ceiling gives."""
    if need.defers:
        return True
    covered = all(CapabilitySet((need,)) <= _allows(layer.allowed) for layer in reach.layers)
    denied = CapabilitySet((need,)) <= CapabilitySet(reach.ceiling.deny)
    return covered and not denied


def _allows(rules: CapabilitySet) -> CapabilitySet:
    """A set without its denies: they narrow, but a need they only cut into still fits."""
    return CapabilitySet(rules.allow)


def _misfit(reach: Reach, need: Capability) -> Misfit:
    for layer in reach.layers:
        if not CapabilitySet((need,)) <= _allows(layer.allowed):
            text = f"needs {need}, which {layer.title} does not allow ({layer.origin})"
            return Misfit(reach.spec.name, str(need), text)
    text = f"needs {need}, which a deny covers whole"
    return Misfit(reach.spec.name, str(need), text)
