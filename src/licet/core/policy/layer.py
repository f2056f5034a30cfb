"""One list of rules that every use must pass, with the place where each rule is written."""

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
    "manifest", "personality", "allow", "workspace", "bundle", "definition", "connectors", "policy files", "delegation"
]
Item = TypeVar("Item")


class Rule(Struct, frozen=True):
    """A capability that a file allows or denies, and where it says so."""

    capability: Capability
    origin: Origin
    key: str
    unexpanded: Capability | None = None  # as it stands in the file, where that names `${workdir}` or `~`

    def __str__(self) -> str:
        return f"{self.capability} ({self.origin})"


# Why denies of licet itself close a path; people read these sentences in refusals.
POLICY = "policy files are never writable"
CODE = "the code of a tool is never writable"
SECOND_CODE = f"{CODE}, and nothing takes its place"  # where a file would be found before the code, or instead of it


class Layer(Struct, frozen=True, dict=True):
    """One list of rules that a use must pass; a domain in `silent` is not narrowed by it."""

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
        """The same layer with `${workdir}` and `~` replaced by real directories."""

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
OWN_STORAGE = (Capability("storage:*:tool-private"), Capability("storage:*:session"))  # in every ceiling


def named_tcp(layer: Layer) -> CapabilitySet:
    """The connections that a layer allows by a rule that says `tcp`."""
    return CapabilitySet(rule.capability for rule in layer.allows if rule.capability.atoms == TCP)


def meet_layers(layers: Iterable[Layer]) -> CapabilitySet:
    """What every layer allows; with no layer at all, nothing."""
    ceiling: CapabilitySet | None = None
    for layer in layers:
        ceiling = layer.allowed if ceiling is None else ceiling & layer.allowed
    return ceiling if ceiling is not None else CapabilitySet()


def distinct(values: tuple[Item, ...]) -> tuple[Item, ...]:
    """A few values in order, each once: two ceilings may share a workspace. Each is compared with all before it."""
    return tuple(value for place, value in enumerate(values) if value not in values[:place])
