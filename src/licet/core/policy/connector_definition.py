"""What a workspace says a connector is: its hosts and secrets, its class, and which version of it counts."""

from msgspec import Struct

from licet.core.origin import Origin
from licet.core.policy.connector import Versions
from licet.core.policy.effects import EffectClass
from licet.core.policy.layer import Layer


class Definition(Struct, frozen=True):
    """What a workspace says a connector is; tools that name it must fit."""

    versions: Versions
    layer: Layer | None = None  # its hosts and secrets, if it states any
    effects: tuple[tuple[EffectClass, Origin], ...] = ()

    @property
    def distribution(self) -> str:
        """The distribution whose version counts, if one is named."""
        return self.versions.distribution
