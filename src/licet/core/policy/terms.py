"""Parts of a manifest as values: admissions of tools, approvals, budgets, examples.

Bundles (groups of tools in a workspace) and rosters (the bundles and tools that one ceiling lists).

Files are read in `policy_files`. Which tools are admitted is decided in `core/decision/fixes.py`.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Literal, TypeVar

from msgspec import Struct, field

from licet.core.policy.argument_ties import FREE
from licet.core.policy.connector import ConnectorRule
from licet.core.policy.layer import EffectClass, Layer, Level
from licet.core.values import Compared, Origin, key_bytes

WriteApproval = Literal["call", "session", "manifest"]
WRITE_APPROVALS: tuple[WriteApproval, ...] = ("call", "session", "manifest")  # strictest first
Number = TypeVar("Number", int, Decimal)


class Admission(Struct, frozen=True):
    """How a manifest admits one tool, through a bundle or by name, and what it states about the tool there."""

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
    approval_origin: Origin | None = None  # where `approval` is stated or should be
    approval_key: str = "capabilities.approvals.write"  # the key there

    @property
    def argument_rules(self) -> Mapping[str, Any]:
        """The rules on arguments, without those that only declare an argument free."""
        return {name: rule for name, rule in self.args.items() if rule != FREE}


class MaxEffect(Struct, frozen=True):
    """The strongest class that one ceiling allows, and where this is written or should be."""

    effect: EffectClass
    origin: Origin
    stated: bool  # false: it is the default


class Natives(Struct, frozen=True):
    """The tools that one ceiling lets run in the host process, and where this is written or should be."""

    names: frozenset[str]
    origin: Origin
    key: str = "capabilities.native"


class Approvals(Struct, frozen=True):
    """Who must agree before a write, and for how long an approval is valid."""

    write: WriteApproval = "session"
    expires_seconds: int = 300
    quorum: int = 1
    keys: tuple[str, ...] | None = None  # whose signatures count; None requires none, an empty list accepts none
    delete: WriteApproval = "call"  # when deletes and renames of files are asked about
    through_client: bool = False  # whether a yes of the gateway's client approves
    names: Mapping[str, str] = {}  # the owners of keys, where the policy names them

    def signer(self, key: str) -> str:
        """A key for people to read, with its owner where the policy names one."""
        return signer_text(key, self.names)

    def narrowed_by(self, stated: Mapping[str, Any]) -> "Approvals":
        """The stricter value of each key; one that is not `stated` does not narrow."""
        return Approvals(
            min(self.write, stated.get("write", self.write), key=WRITE_APPROVALS.index),
            min(self.expires_seconds, stated.get("expires_seconds", self.expires_seconds)),
            max(self.quorum, stated.get("quorum", self.quorum)),
            both_keys(self.keys, stated.get("keys")),
            min(self.delete, stated.get("delete", self.delete), key=WRITE_APPROVALS.index),
            self.through_client and stated.get("through_client", True),
            {**stated.get("names", {}), **self.names},
        )


MOST_STANDING_DAYS = 30


class StandingApproval(Struct, frozen=True):
    """A person's approval of the deletes of files under one policy, until a day. `approvals.delete: manifest` needs it.

    The store of approvals has checked it: the policy, the machine, the signatures, and that nobody has withdrawn it.
    """

    id: str
    manifest: str  # the digest of the policy
    by: tuple[str, ...]  # who gave it: public keys, or `terminal`
    deletes: tuple[str, ...]  # rules: what the person was shown
    expires: int  # milliseconds since 1970, UTC


# For reviews that compare what policies say: as if a person had approved whatever they ask for.
APPROVED_IN_REVIEW = StandingApproval("", "", (), ("fs:delete:*",), 0)


class Budget(Struct, frozen=True):
    """The most that an agent or a bundle may spend; None is no limit."""

    max_calls_per_session: int | None = None
    max_cost_usd: Decimal | None = None
    max_cost_usd_per_day: Decimal | None = None
    max_calls_per_day: int | None = None

    def __bool__(self) -> bool:
        return self != Budget()

    def narrowed_by(self, other: "Budget") -> "Budget":
        """The smaller limit of each key."""
        return Budget(**{key: least(getattr(self, key), getattr(other, key)) for key in BUDGET_KEYS})


BUDGET_KEYS = Budget.__struct_fields__


class Example(Struct, frozen=True):
    """A test in a manifest: whether a tool may do a use."""

    tool: str
    use: str
    matches: bool
    origin: Origin


def signer_text(key: str, names: Mapping[str, str]) -> str:
    """A key for people to read: `alice (ed25519:…)`, or the key alone if it has no name."""
    return f"{names[key]} ({key})" if key in names else key


def both_keys(one: tuple[str, ...] | None, two: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The keys that are in both lists, in either alphabet of base64; None does not narrow."""
    if one is None or two is None:
        return one if two is None else two
    known = {key_bytes(key) for key in two} - {None}
    return tuple(key for key in one if key in two or key_bytes(key) in known)


def least(one: Number | None, two: Number | None) -> Number | None:
    """The smaller one of two limits; None is no limit."""
    return one if two is None else two if one is None else min(one, two)


def least_limits(one: Mapping[str, int], two: Mapping[str, int]) -> Mapping[str, int]:
    """The smaller limit of each key."""
    return {**one, **two, **{key: min(one[key], two[key]) for key in one.keys() & two.keys()}}


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
