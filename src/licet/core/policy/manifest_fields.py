"""The fields of a manifest, and properties that are computed from them.

`Manifest` adds the operations: the digest, the overlap with a personality, filling in tools and directories.

What an organisation says about every agent of a machine, as a value. It only narrows the manifest of an agent.

The file is read in `policy_files/organisation.py`; `Manifest.under` narrows a manifest by it.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from licet.core.algebra.set import CapabilitySet
from licet.core.policy.connector import ConnectorRule, Connectors, Definition
from licet.core.policy.flow_terms import stated_flow_document
from licet.core.policy.layer import CLASSES, EffectClass, Layer, Rule, meet_layers
from licet.core.policy.lock import Lock
from licet.core.policy.terms import (
    BUDGET_KEYS,
    Admission,
    Approvals,
    Budget,
    Bundle,
    Example,
    MaxEffect,
    Natives,
    Roster,
    StandingApproval,
)
from licet.core.policy.tool import ToolSpec
from licet.core.values import Compared, Origin, Problem, digest, plain

TITLE = "the organisation"
# The keys whose limits hold only where licet decides about a call, and not where it only watches a program.
DECIDED_BY_CALL = ("max_side_effect_class", "connectors", "approvals")


class Organisation(Struct, frozen=True, kw_only=True):
    """One organisation file. A key that it leaves out does not narrow."""

    origin: Origin  # where the file begins
    layers: tuple[Layer, ...] = ()  # its destinations, and the connectors that it denies
    max_effect: MaxEffect | None = None
    connectors: tuple[ConnectorRule, ...] | None = None  # None does not narrow; an empty list allows none
    approvals: Mapping[str, Any] = {}  # only the keys that it states
    budget: Budget = Budget()  # of each agent
    inspect: tuple[str, ...] = ()  # connections of programs that are looked into, besides those of the project
    flow: Mapping[str, Any] = {}  # only the keys that it states, as plain data
    places: Mapping[str, Origin] = {}  # where its keys are written, also those of its budget and approvals

    @property
    def digest(self) -> str:
        """The digest of what the file means. Receipts have it beside the digest of the manifest."""
        approvals = {key: value for key, value in self.approvals.items() if key != "names"}
        if approvals.get("keys") is not None:
            approvals["keys"] = sorted(set(approvals["keys"]))
        document: dict[str, Any] = plain(
            {
                "format": 1,
                "destinations": [
                    {
                        "allow": layer.allowed_texts(),
                        "deny": sorted(str(rule) for rule in layer.allowed.deny),
                    }
                    for layer in self.layers
                ],
                "connectors": None
                if self.connectors is None
                else sorted({(rule.name, rule.versions) for rule in self.connectors}),
                "max_side_effect_class": None if self.max_effect is None else self.max_effect.effect,
                "approvals": approvals,
                "budget": {key: getattr(self.budget, key) for key in BUDGET_KEYS},
                **({"inspect": self.inspect} if self.inspect else {}),
                **({"flow": stated_flow_document(self.flow)} if self.flow else {}),
            }
        )
        return digest(document)

    def place(self, key: str) -> Origin:
        """Where a key is written; if it is left out, where the file begins."""
        return self.places.get(key, self.origin)

    @property
    def effect(self) -> EffectClass | None:
        """The strongest class that any tool may have; None if the file states none."""
        return self.max_effect.effect if self.max_effect is not None else None

    def admission(self) -> tuple[Admission, ...]:
        """What the file says about the writes of each tool, as an admission next to the tool's own."""
        if (write := self.approvals.get("write")) is None or write == "manifest":  # the loosest one changes nothing
            return ()
        place = self.place("approvals.write")
        return (Admission(place, approval=write, approval_origin=place, approval_key="approvals.write"),)

    def tightened(self, approvals: Approvals, budget: Budget) -> dict[str, Origin]:
        """The places of the values that are tighter here than in these approvals and this budget."""
        both = approvals.narrowed_by(self.approvals)
        stated = [f"approvals.{key}" for key in self.approvals if getattr(both, key, None) != getattr(approvals, key)]
        for key in BUDGET_KEYS:
            mine, theirs = getattr(self.budget, key), getattr(budget, key)
            stated += [key] if mine is not None and (theirs is None or mine < theirs) else []
        return {key: self.places[key] for key in stated if key in self.places}


class ManifestFields(Compared, frozen=True, kw_only=True, dict=True):
    """Everything that the policy files of one agent state."""

    _not_compared: ClassVar[frozenset[str]] = frozenset(
        {
            *("installed", "pinned", "standing", "standing_problem"),
            *("lock", "lock_problem", "withheld", "places", "roots", "loaded", "project"),
        }
    )

    agent: str
    origin: Origin
    version: str = ""
    app: str = ""
    personality: str | None = None
    layers: tuple[Layer, ...] = ()
    admissions: Mapping[str, tuple[Admission, ...]] = field(default_factory=dict)  # by tool
    # Tools that are named while no bundle with them is assigned. Their admissions count once a bundle is assigned.
    unassigned: Mapping[str, tuple[Admission, ...]] = field(default_factory=dict)
    bundles: Mapping[str, Bundle] = field(default_factory=dict)  # all bundles of the workspace, assigned or not
    rosters: tuple[Roster, ...] = ()  # one per ceiling
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, Origin]] = field(default_factory=dict)  # tool -> its `from:` text
    max_effects: tuple[MaxEffect, ...] = ()  # one per ceiling
    narrow: bool = False  # run a tool that declares more at the tighter class and level, instead of refusing it
    private: tuple[tuple[str, ...], ...] = ()  # one list of CIDRs per ceiling; an address must be in each
    natives: tuple[Natives, ...] = ()  # one per ceiling
    connectors: Connectors = Connectors()
    definitions: Mapping[str, Definition] = field(default_factory=dict)  # by connector
    installed: Mapping[str, str] = field(default_factory=dict)  # distribution of a connector -> installed version
    approvals: Approvals = Approvals()
    budget: Budget = Budget()
    limits: Mapping[str, int] = field(default_factory=dict)
    allow_degraded: bool = False
    record: Literal["digests", "full"] = "digests"
    servers: Mapping[str, Any] = field(default_factory=dict)  # as plain data; `servers_of` makes values of them
    values: Mapping[str, object] = field(default_factory=dict)  # of the rows of `KEYS` that have no field here
    # Files with keys that a part of it names, such as the manifest whose entry a personality does not have.
    key_files: tuple[str, ...] = ()
    gateway_names: str = ""  # how clients see names, `plain` or `prefixed`; empty if no file says
    pinned: str = ""  # what pins this digest, such as `licet.lock`; empty if nothing does
    standing: StandingApproval | None = None  # of deletes; set by a gate, or by a review of this machine
    standing_problem: str = ""  # why a standing approval that was given or named does not count
    lock: Lock | None = None  # the `licet.lock` next to it
    lock_problem: Problem | None = None  # set if the lock has another digest; every gate then refuses the manifest
    withheld: Mapping[str, str] = field(default_factory=dict)  # admitted tool of a server -> why it is not declared
    examples: tuple[Example, ...] = ()
    places: Mapping[str, Origin] = field(default_factory=dict)  # key -> where it is written, for messages
    # `${workdir}` and `~`, if the files use them -> the real directory, once it is known
    roots: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    organisations: tuple[Organisation, ...] = ()  # those that narrow it; no part of its digest

    @cached_property
    def ceiling(self) -> CapabilitySet:
        """Everything the manifest allows to any tool, before bundles and declarations narrow it."""
        return meet_layers(self.layers)

    @cached_property
    def bundles_by_tool(self) -> dict[str, tuple[Bundle, ...]]:
        """The bundles of the workspace that contain each tool, assigned or not."""
        found: dict[str, list[Bundle]] = {}
        for bundle in self.bundles.values():
            for name in bundle.tools:
                found.setdefault(name, []).append(bundle)
        return {name: tuple(bundles) for name, bundles in found.items()}

    @cached_property
    def tool_denies(self) -> tuple[Rule, ...]:
        """The denies of `tool:call` in files. Not those of a delegation: it drops denied tools when it is created."""
        stated = (rule for layer in self.layers if layer.kind != "delegation" for rule in layer.denies)
        return tuple(rule for rule in stated if rule.capability.domain == "tool")

    @cached_property
    def assigned_bundles(self) -> frozenset[str]:
        """The names of the bundles that at least one ceiling assigns."""
        return frozenset(name for roster in self.rosters for name in roster.assigned)

    @cached_property
    def cache(self) -> dict[str, dict[Any, Any]]:
        """Results of `reach`, `folding` and `admission` for this manifest, by kind."""
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
        """Where the tightest class is stated; if no file states one, where the manifest begins."""
        tightest = min(self.max_effects, key=lambda one: CLASSES.index(one.effect), default=None)
        return tightest.origin if tightest else self.origin
