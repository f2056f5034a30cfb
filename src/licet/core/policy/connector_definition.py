"""The definition of a connector in a workspace: its hosts and secrets, its effect class and its versions."""

from msgspec import Struct

from licet.core.origin import Origin
from licet.core.policy.connector import Versions
from licet.core.policy.effects import EffectClass
from licet.core.policy.layer import Layer


class Definition(Struct, frozen=True):
    """The definition of one connector; a tool that uses the connector must fit it."""

    versions: Versions
    layer: Layer | None = None  # its hosts and secrets, if it states any
    effects: tuple[tuple[EffectClass, Origin], ...] = ()

    @property
    def distribution(self) -> str:
        """The distribution whose installed version counts; empty if none is named."""
        return self.versions.distribution
