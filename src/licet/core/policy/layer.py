"""Layers: lists of rules, each with the place where it is written. A use must be allowed by every layer."""

from collections.abc import Iterable
from functools import cached_property
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.algebra.domains import DOMAINS, TCP
from licet.core.algebra.set import CapabilitySet, expand_rule
from licet.core.origin import Origin

LayerKind = Literal[
    "manifest",
    "personality",
    "allow",
    "workspace",
    "bundle",
    "definition",
    "connectors",
    "protected paths",
    "delegation",
]
Item = TypeVar("Item")


class Rule(Struct, frozen=True):
    """A capability that a file allows or denies, with its place in the file."""

    capability: Capability
    origin: Origin
    key: str
    unexpanded: Capability | None = None  # as it is written in the file, before `${workdir}` and `~` were replaced

    def __str__(self) -> str:
        return f"{self.capability} ({self.origin})"


# Why licet itself denies writing to a path. Refusals show these sentences to users.
POLICY = "policy files are never writable"
CODE = "the code of a tool is never writable"
SERVER_CODE = "what a server is started from is never writable"
SECOND_CODE = f"{CODE}, and nothing takes its place"  # for paths that Python would import instead of the code


class Layer(Struct, frozen=True, dict=True):
    """One list of rules that a use must pass. It does not narrow the domains in `silent`."""

    kind: LayerKind
    title: str
    origin: Origin
    allows: tuple[Rule, ...] = ()
    denies: tuple[Rule, ...] = ()
    silent: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return hash((self.kind, self.title, self.origin))  # a layer may have thousands of rules

    @cached_property
    def allowed(self) -> CapabilitySet:
        """The uses that pass this layer."""
        return CapabilitySet(self._allows(), [rule.capability for rule in self.denies])

    @cached_property
    def without_denies(self) -> CapabilitySet:
        """The uses that would pass if the layer had no denies."""
        return CapabilitySet(self._allows())

    def _allows(self) -> list[Capability]:
        passed = [Capability(f"{domain}:*:*") for domain in sorted(self.silent)]
        return [*passed, *(rule.capability for rule in self.allows)]

    def expand(self, workdir: str, home: str) -> "Layer":
        """Return the layer with `${workdir}` and `~` replaced by real directories."""

        def expanded(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
            return tuple(
                replace(
                    rule,
                    capability=expand_rule(rule.capability, workdir, home),
                    unexpanded=rule.unexpanded or rule.capability,
                )
                for rule in rules
            )

        return replace(self, allows=expanded(self.allows), denies=expanded(self.denies))


EVERY_DOMAIN = frozenset(DOMAINS)
ALL_BUT_NETWORK = EVERY_DOMAIN - {"network"}
OWN_STORAGE = (Capability("storage:*:tool-private"), Capability("storage:*:session"))  # every ceiling allows these


def named_tcp(layer: Layer) -> CapabilitySet:
    """The connections that a layer allows by rules that name `tcp`."""
    return CapabilitySet(rule.capability for rule in layer.allows if rule.capability.atoms == TCP)


def meet_layers(layers: Iterable[Layer]) -> CapabilitySet:
    """What all layers allow together; without any layer, nothing."""
    ceiling: CapabilitySet | None = None
    for layer in layers:
        ceiling = layer.allowed if ceiling is None else ceiling & layer.allowed
    return ceiling if ceiling is not None else CapabilitySet()


def meet_written_layers(layers: Iterable[Layer]) -> CapabilitySet:
    """What all layers of policy files allow together, also the policy files themselves, which no call may write."""
    return meet_layers(layer for layer in layers if layer.kind != "protected paths")


def distinct(values: tuple[Item, ...]) -> tuple[Item, ...]:
    """Remove repeated values and keep the order. Takes quadratic time, and does not need hashable values."""
    return tuple(value for place, value in enumerate(values) if value not in values[:place])
