"""Bundles as values: the tools that a workspace groups, and which of them one ceiling assigns or names.

Reading files is not done here. Which tools are admitted is decided in `admission`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from licet.core.carried import Carried
from licet.core.origin import Origin
from licet.values import dataclass

if TYPE_CHECKING:
    from licet.core.manifest import Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle(Carried):
    """One bundle of a workspace, assigned to this agent or not."""

    name: str
    origin: Origin
    tools: Mapping[str, Origin]  # where each of them is listed
    seat: "Seat"  # what assigning the bundle says about each of its tools


@dataclass(frozen=True, slots=True)
class Roster(Carried):
    """The bundles that one ceiling assigns, and the tools that it names."""

    title: str  # `the manifest` or `the personality`
    origin: Origin
    prefix: str  # of its keys: `capabilities.`, or nothing in a personality
    assigned: frozenset[str]
    named: Mapping[str, Origin]
