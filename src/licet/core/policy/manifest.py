"""A manifest as a value: what an agent may touch, rule by rule, each with the place where it is written.

Reading files is not done here, and neither is judging: see `reach` for what one tool holds, `decide` for one call.
"""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.algebra.domains import DOMAINS, PATH_DOMAINS
from licet.core.algebra.scope import directory_key
from licet.core.algebra.set import CapabilitySet, expand_rule
from licet.core.canonical import key_bytes
from licet.core.compared import Compared
from licet.core.origin import Origin, Problem
from licet.core.policy.bundle import Bundle, Roster
from licet.core.policy.connector import Connectors
from licet.core.policy.effects import CLASSES, EffectClass, Level
from licet.core.policy.tool import ToolSpec

if TYPE_CHECKING:
    from licet.core.policy.connector_definition import Definition


LayerKind = Literal[
    "manifest", "personality", "allow", "workspace", "bundle", "definition", "connectors", "policy files", "delegation"
]
WriteApproval = Literal["call", "session", "manifest"]
WRITE_APPROVALS: tuple[WriteApproval, ...] = ("call", "session", "manifest")  # strictest first
Number = TypeVar("Number", int, Decimal)
Item = TypeVar("Item")


class PathText(Protocol):
    """A path that is no text, such as a `Path`."""

    def __fspath__(self) -> str: ...


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


class Admission(Struct, frozen=True):
    """How a manifest admits one tool: through a bundle, by name, or both; and what it states about it."""

    origin: Origin
    bundle: str = ""
    effects: tuple[tuple[EffectClass, Origin], ...] = ()
    levels: tuple[tuple[Level, Origin], ...] = ()
    layer: Layer | None = None  # the bundle's destinations, if it has any
    args: Mapping[str, Any] = field(default_factory=dict)
    approval: WriteApproval | None = None
    max_calls: int | None = None
    max_cost_usd: Decimal | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    approval_origin: Origin | None = None  # where the approval is stated, or would be
    approval_key: str = "capabilities.approvals.write"  # and under which key


class MaxEffect(Struct, frozen=True):
    """The strongest class that one ceiling allows, and where it says so or would."""

    effect: EffectClass
    origin: Origin
    stated: bool


class Natives(Struct, frozen=True):
    """The tools that one ceiling lets run in this process, and where it says so or would."""

    names: frozenset[str]
    origin: Origin
    key: str = "capabilities.native"


class Approvals(Struct, frozen=True):
    """Who must agree before a write, and for how long an answer holds."""

    write: WriteApproval = "session"
    expires_seconds: int = 300
    quorum: int = 1
    keys: tuple[str, ...] | None = None  # whose signatures count; None asks for none, an empty list accepts nobody


class Budget(Struct, frozen=True):
    """The most an agent may spend; None is not limited by this key."""

    max_calls_per_session: int | None = None
    max_cost_usd: Decimal | None = None
    max_cost_usd_per_day: Decimal | None = None
    max_calls_per_day: int | None = None

    def __bool__(self) -> bool:
        return self != Budget()


BUDGET_KEYS = Budget.__struct_fields__


class Example(Struct, frozen=True):
    """A tool and a use that the manifest says must match, or must not."""

    tool: str
    use: str
    matches: bool
    origin: Origin


class Manifest(Compared, frozen=True, kw_only=True, dict=True):
    """What one agent may touch. Absent means no: an empty manifest reaches nothing."""

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
    definitions: "Mapping[str, Definition]" = field(default_factory=dict)  # by connector
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
    loaded: "Manifest | None" = None  # before tools and directories came in
    files: tuple[str, ...] = ()

    @classmethod
    def from_data(
        cls,
        data: Mapping[str, Any],
        workspace: Mapping[str, Any] | None = None,
        personality: Mapping[str, Any] | None = None,
        *,
        root: str | PathText | None = None,
    ) -> "Manifest":
        """A manifest from the keys of a policy file as plain data, or `ManifestError` with every problem.

        Checks and digest are those of a file; places are JSON pointers. `root` is the directory of the code that
        `from:` names; without one, `from:` is refused.
        """
        if data_reader is None:
            raise RuntimeError("the reader of policy data is not loaded: take `Manifest` from `licet`")
        return data_reader(data, workspace, personality, root=root)

    @cached_property
    def digest(self) -> str:
        """The content address of what the files mean, whatever tools and directories were filled in since."""
        from licet.core.policy.digest import manifest_digest

        return self.loaded.digest if self.loaded is not None else manifest_digest(self)

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

    def declare(self, specs: Iterable[ToolSpec], *, narrow: bool = False) -> "Manifest":
        """The same manifest, knowing these tools too; `narrow` runs misfits at the tighter class and level."""
        tools = {**self.tools, **{spec.name: spec for spec in specs}}
        return replace(self, tools=tools, narrow=narrow or self.narrow, loaded=self.loaded or self)

    def expand(self, workdir: str, home: str) -> "Manifest":
        """The same manifest with `${workdir}` and `~` replaced by real directories; the digest stays.

        An empty `home` is none: `Malformed` if the manifest speaks of it.
        """
        tools = {
            name: replace(spec, needs=spec.needs.expand(workdir, home), optional=spec.optional.expand(workdir, home))
            for name, spec in self.tools.items()
        }
        layers = tuple(layer.expand(workdir, home) for layer in self.layers)
        places = {"${workdir}": directory_key(workdir), "~": directory_key(home) if home else ""}
        roots = {**self.roots, **{root: place for root, place in places.items() if root in self._roots_used()}}
        return replace(
            self,
            layers=layers,
            tools=tools,
            roots=roots,
            loaded=self.loaded or self,
        )

    def _roots_used(self) -> set[str]:
        rules = [rule.capability for layer in self.layers for rule in (*layer.allows, *layer.denies)]
        rules += [need for spec in self.tools.values() for need in spec.touches.allow]
        return {rule.key.partition("/")[0] for rule in rules if rule.domain in PATH_DOMAINS}

    def meet(self, other: "Manifest") -> "Manifest":
        """What both allow; the other is a personality, this one gives the agent its name.

        `ValueError` if they have bundles of one name that say different things.
        """
        from licet.core.decision.admission import met_admissions, met_bundles, met_layers

        admissions, unassigned = met_admissions(self, other)
        return replace(
            self,
            loaded=None,
            pinned="",  # it is another policy than the two that were pinned
            lock_problem=self.lock_problem or other.lock_problem,
            personality=other.personality or self.personality,
            layers=distinct(met_layers(self, other, admissions) + met_layers(other, self, admissions)),
            admissions=admissions,
            unassigned=unassigned,
            bundles=met_bundles(self, other),
            rosters=self.rosters + other.rosters,
            tools={**other.tools, **self.tools},
            sources={**other.sources, **self.sources},
            max_effects=self.max_effects + other.max_effects,
            private=self.private + other.private,
            natives=self.natives + other.natives,
            connectors=replace(
                self.connectors,
                profiles=self.connectors.profiles + other.connectors.profiles,
                profile_places=self.connectors.profile_places + other.connectors.profile_places,
            ),
            definitions={**other.definitions, **self.definitions},
            approvals=Approvals(
                min(self.approvals.write, other.approvals.write, key=WRITE_APPROVALS.index),
                min(self.approvals.expires_seconds, other.approvals.expires_seconds),
                max(self.approvals.quorum, other.approvals.quorum),
                both_keys(self.approvals.keys, other.approvals.keys),
            ),
            budget=Budget(**{key: least(getattr(self.budget, key), getattr(other.budget, key)) for key in BUDGET_KEYS}),
            limits=least_limits(self.limits, other.limits),
            allow_degraded=self.allow_degraded and other.allow_degraded,
            record="full" if "full" == self.record == other.record else "digests",
            examples=self.examples + other.examples,
            files=self.files + other.files,
            roots={**other.roots, **self.roots},
            places={**other.places, **self.places, **_tighter_places(self, other)},
        )


# What `Manifest.from_data` calls. The layer that knows the keys of policy files sets it; core knows what they mean.
data_reader: Callable[..., Manifest] | None = None


def distinct(values: tuple[Item, ...]) -> tuple[Item, ...]:
    """A few values in order, each once: two ceilings may share a workspace. Each is compared with all before it."""
    return tuple(value for place, value in enumerate(values) if value not in values[:place])


def both_keys(one: tuple[str, ...] | None, two: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The keys that are in both lists, however they are spelled; None is no list."""
    if one is None or two is None:
        return one if two is None else two
    known = {key_bytes(key) for key in two} - {None}
    return tuple(key for key in one if key in two or key_bytes(key) in known)


def _tighter_places(one: Manifest, two: Manifest) -> Mapping[str, Origin]:
    """Where the tighter of two budgets and of two limits stands, key by key."""
    found: dict[str, tuple[int | Decimal, Origin]] = {}
    for each in (one, two):
        limits = {key: getattr(each.budget, key) for key in BUDGET_KEYS}
        limits |= {f"limits.{key}": limit for key, limit in each.limits.items()}
        for key, limit in limits.items():
            if limit is not None and key in each.places and (key not in found or limit < found[key][0]):
                found[key] = limit, each.places[key]
    return {key: place for key, (_, place) in found.items()}


def meet_layers(layers: Iterable[Layer]) -> CapabilitySet:
    """What every layer allows; with no layer at all, nothing."""
    ceiling: CapabilitySet | None = None
    for layer in layers:
        ceiling = layer.allowed if ceiling is None else ceiling & layer.allowed
    return ceiling if ceiling is not None else CapabilitySet()


def least(one: Number | None, two: Number | None) -> Number | None:
    """The smaller of two limits, where None is no limit."""
    return one if two is None else two if one is None else min(one, two)


def least_limits(one: Mapping[str, int], two: Mapping[str, int]) -> Mapping[str, int]:
    """The tighter of two sets of limits, key by key."""
    return {**one, **two, **{key: min(one[key], two[key]) for key in one.keys() & two.keys()}}
