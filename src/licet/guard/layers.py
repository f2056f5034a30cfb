"""Which walls stood around something: what a receipt says of them."""

from typing import NamedTuple


class Layers(NamedTuple):
    """Walls by name: those in force, and those that this machine lacks and the manifest does without."""

    in_force: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
