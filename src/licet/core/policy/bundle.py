"""Bundles (groups of tools in a workspace) and rosters (the bundles and tools that one ceiling lists).

Files are read in `policy_files`. Which tools are admitted is decided in `decision/admission.py`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from licet.core.compared import Compared
from licet.core.origin import Origin
from licet.core.policy.connector import ConnectorRule
from licet.core.policy.terms import Admission, Budget


class Bundle(Compared, frozen=True, kw_only=True):
    """One bundle of a workspace, assigned to this agent or not. Its keys only narrow what its tools may do."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"places"})

    name: str
    origin: Origin
    tools: Mapping[str, Origin]  # name -> where it is listed
    admission: Admission  # the admission of each of its tools, if the bundle is assigned
    budget: Budget  # for all its tools together
    approvals: Mapping[str, Any]  # only the keys that it states; `write` is in the admission too
    connectors: tuple[ConnectorRule, ...] | None = None  # None does not narrow; an empty list allows none
    private: tuple[str, ...] | None = None  # None does not narrow; an empty list allows none
    places: Mapping[str, Origin]  # where its keys are written, also those of its budget and approvals

    def place(self, key: str) -> Origin:
        """Where a key of the bundle is written; if it is left out, where the bundle begins."""
        return self.places.get(key, self.origin)


class Roster(Struct, frozen=True):
    """The bundles that one ceiling assigns, and the tools that it names."""

    title: str  # `the manifest` or `the personality`
    origin: Origin
    prefix: str  # what its keys start with: `capabilities.`, or nothing in a personality
    assigned: frozenset[str]
    named: Mapping[str, Origin]  # tool -> where it is named
    tools_key: str  # the key that names them: `capabilities.tools`; in a personality `tools` or `toolset`
