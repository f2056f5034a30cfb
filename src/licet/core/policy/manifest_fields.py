"""The fields of a manifest, and what follows directly from them.

`Manifest` adds the operations: the digest, meeting another manifest, filling in tools and directories.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from msgspec import field

from licet.core.algebra.set import CapabilitySet
from licet.core.compared import Compared
from licet.core.origin import Origin, Problem
from licet.core.policy.bundle import Bundle, Roster
from licet.core.policy.connector import Connectors
from licet.core.policy.connector_definition import Definition
from licet.core.policy.effects import CLASSES, EffectClass
from licet.core.policy.layer import Layer, Rule, meet_layers
from licet.core.policy.terms import Admission, Approvals, Budget, Example, MaxEffect, Natives
from licet.core.policy.tool import ToolSpec


class ManifestFields(Compared, frozen=True, kw_only=True, dict=True):
    """Everything that the policy files of one agent state."""

    _not_compared: ClassVar[frozenset[str]] = frozenset(
        {"installed", "pinned", "lock_problem", "places", "roots", "loaded"}
    )

    agent: str
    origin: Origin
    version: str = ""
    app: str = ""
    personality: str | None = None
    layers: tuple[Layer, ...] = ()
    admissions: Mapping[str, tuple[Admission, ...]] = field(default_factory=dict)  # of every tool that is admitted
    # Tools that are named although no bundle that holds them is assigned: what is said of them counts once one is.
    unassigned: Mapping[str, tuple[Admission, ...]] = field(default_factory=dict)
    bundles: Mapping[str, Bundle] = field(default_factory=dict)  # of the workspace, assigned or not
    rosters: tuple[Roster, ...] = ()  # one per ceiling
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, Origin]] = field(default_factory=dict)  # tool -> its `from:` text
    max_effects: tuple[MaxEffect, ...] = ()  # one per ceiling
    narrow: bool = False  # run a tool that asks for more at the tighter class and level, instead of refusing it
    private: tuple[tuple[str, ...], ...] = ()  # one list of CIDRs per ceiling; an address must be in each
    natives: tuple[Natives, ...] = ()  # one per ceiling
    connectors: Connectors = Connectors()
    definitions: Mapping[str, Definition] = field(default_factory=dict)  # by connector
    installed: Mapping[str, str] = field(default_factory=dict)  # versions of their distributions
    approvals: Approvals = Approvals()
    budget: Budget = Budget()
    limits: Mapping[str, int] = field(default_factory=dict)
    allow_degraded: bool = False
    record: Literal["digests", "full"] = "digests"
    servers: Mapping[str, Any] = field(default_factory=dict)
    pinned: str = ""  # what holds this digest: `licet.lock` …; empty if nothing does
    lock_problem: Problem | None = None  # why every gate refuses it: its lock differs
    examples: tuple[Example, ...] = ()
    places: Mapping[str, Origin] = field(default_factory=dict)  # of keys that a decision may name
    # `${workdir}` and `~`, where a file uses them -> the directory it stands for, once that is known
    roots: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    @cached_property
    def ceiling(self) -> CapabilitySet:
        """Everything the manifest allows to any tool, before a bundle or the tool's own declaration narrows it."""
        return meet_layers(self.layers)

    @cached_property
    def bundles_by_tool(self) -> dict[str, tuple[Bundle, ...]]:
        """The bundles of the workspace that hold each tool, assigned or not."""
        found: dict[str, list[Bundle]] = {}
        for bundle in self.bundles.values():
            for name in bundle.tools:
                found.setdefault(name, []).append(bundle)
        return {name: tuple(bundles) for name, bundles in found.items()}

    @cached_property
    def tool_denies(self) -> tuple[Rule, ...]:
        """The denies that files state about calls of tools; a delegation drops such tools when it is made."""
        stated = (rule for layer in self.layers if layer.kind != "delegation" for rule in layer.denies)
        return tuple(rule for rule in stated if rule.capability.domain == "tool")

    @cached_property
    def assigned_bundles(self) -> frozenset[str]:
        """The names of the bundles that any ceiling assigns."""
        return frozenset(name for roster in self.rosters for name in roster.assigned)

    @cached_property
    def _known(self) -> dict[str, dict[Any, Any]]:
        """What `reach`, `folding` and `admission` have worked out for this manifest, by kind."""
        return {}

    @property
    def native(self) -> frozenset[str]:
        """The tools of this agent that every ceiling lets run in this process."""
        named = [ceiling.names for ceiling in self.natives]
        return named[0].intersection(*named, self.admissions) if named else frozenset()

    @property
    def max_effect(self) -> EffectClass:
        """The strongest class that any tool may have."""
        return min((one.effect for one in self.max_effects), key=CLASSES.index, default="read_only")

    @property
    def max_effect_origin(self) -> Origin:
        """Where the tightest class is stated, or would be."""
        tightest = min(self.max_effects, key=lambda one: CLASSES.index(one.effect), default=None)
        return tightest.origin if tightest else self.origin
