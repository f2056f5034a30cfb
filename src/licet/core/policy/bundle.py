"""Bundles as values: the tools that a workspace groups, and which of them one ceiling assigns or names.

Reading files is not done here. Which tools are admitted is decided in `admission`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from licet.core.compared import Compared
from licet.core.origin import Origin
from licet.core.policy.connector import ConnectorRule
from licet.core.policy.terms import Admission, Budget


class Bundle(Compared, frozen=True, kw_only=True):
    """One bundle of a workspace, assigned to this agent or not. Each of its keys only narrows."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"places"})

    name: str
    origin: Origin
    tools: Mapping[str, Origin]  # where each of them is listed
    admission: Admission  # what assigning the bundle says about each of its tools
    budget: Budget  # counted over all its tools together
    approvals: Mapping[str, Any]  # the keys that it states; `write` is on the admission too
    connectors: tuple[ConnectorRule, ...] | None = None  # None does not narrow, an empty list leaves nothing
    private: tuple[str, ...] | None = None  # the same
    places: Mapping[str, Origin]  # of its keys, and of the keys of its budget and approvals

    def place(self, key: str) -> Origin:
        """Where a key of the bundle is written, or would be."""
        return self.places.get(key, self.origin)


class Roster(Struct, frozen=True):
    """The bundles that one ceiling assigns, and the tools that it names."""

    title: str  # `the manifest` or `the personality`
    origin: Origin
    prefix: str  # of its keys: `capabilities.`, or nothing in a personality
    assigned: frozenset[str]
    named: Mapping[str, Origin]
