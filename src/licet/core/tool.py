"""What a tool declares, as plain data: its needs, effect class, level, connector and cost. No function, no source."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from licet.core.canonical import digest
from licet.core.connector import ConnectorRef, Installed
from licet.core.effects import EffectClass, Level
from licet.core.origin import Origin
from licet.core.set import CapabilitySet
from licet.values import dataclass, field


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as policy sees it: everything that decides what a call of it may touch."""

    name: str
    needs: CapabilitySet
    effect: EffectClass | None = None
    sandbox: Level | None = None
    connector: ConnectorRef | None = None
    cost_usd: Decimal | None = None
    description: str = ""
    schema: Mapping[str, Any] | None = field(
        default=None, hash=False, repr=False
    )  # None: not known, only source was read
    origin: Origin | None = None
    storage_ttl_seconds: int | None = None
    optional: CapabilitySet = field(default_factory=CapabilitySet)  # held where the ceiling allows it, never a misfit
    parameters: tuple[str, ...] | None = field(default=None, compare=False)  # None: source does not say for sure
    by_keys: bool = field(default=False, compare=False)  # written with `capabilities=`, not as rules with `needs=`
    package: Installed | None = field(default=None, compare=False)  # the distribution that its module belongs to
    touches: CapabilitySet = field(init=False, compare=False, repr=False)  # the most that a call could hold
    needed_connectors: frozenset[str] = field(init=False, compare=False, repr=False)
    named_connectors: frozenset[str] = field(init=False, compare=False, repr=False)  # also among its optional needs

    def __post_init__(self) -> None:
        needed = _connectors_in(self.needs) | (
            {self.connector.name} if isinstance(self.connector, ConnectorRef) else set()
        )
        object.__setattr__(self, "touches", self.needs | self.optional if self.optional else self.needs)
        object.__setattr__(self, "needed_connectors", frozenset(needed))
        object.__setattr__(self, "named_connectors", frozenset(needed | _connectors_in(self.optional)))

    @property
    def digest(self) -> str:
        """The content address of the definition: it changes when anything a caller or reviewer relies on does."""
        return digest(
            {
                "name": self.name,
                "description": self.description,
                "needs": [str(rule) for rule in self.needs.allow],
                # Only where there are any: the digest of a tool without optional needs stays what it was.
                **({"optional": [str(rule) for rule in self.optional.allow]} if self.optional else {}),
                "effect": self.effect,
                "sandbox": self.sandbox,
                "connector": str(self.connector) if self.connector else None,
                "cost_usd": self.cost_usd,
                "schema": self.schema,
                "storage_ttl_seconds": self.storage_ttl_seconds,
            }
        )


def _connectors_in(needs: CapabilitySet) -> set[str]:
    return {need.key for need in needs.allow if need.domain == "connector" and not need.defers}


def storage_scope_id(kind: str, tool: str, session: str, personality: str | None) -> str:
    """The namespace of a key-value store; the framework computes it, the tool never does."""
    match kind:
        case "tool-private":
            return f"tool:{tool}"
        case "personality" if personality:
            return f"personality:{personality}"
        case "session" | "personality":
            return f"session:{session}"
    raise ValueError(f"unknown kind of storage: {kind}")
