"""What a policy file states about its tools, their writes and their spending, as values."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, TypeVar

from msgspec import Struct, field

from licet.core.canonical import key_bytes
from licet.core.origin import Origin
from licet.core.policy.effects import EffectClass, Level
from licet.core.policy.layer import Layer

WriteApproval = Literal["call", "session", "manifest"]
WRITE_APPROVALS: tuple[WriteApproval, ...] = ("call", "session", "manifest")  # strictest first
Number = TypeVar("Number", int, Decimal)


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


def both_keys(one: tuple[str, ...] | None, two: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The keys that are in both lists, however they are spelled; None is no list."""
    if one is None or two is None:
        return one if two is None else two
    known = {key_bytes(key) for key in two} - {None}
    return tuple(key for key in one if key in two or key_bytes(key) in known)


def least(one: Number | None, two: Number | None) -> Number | None:
    """The smaller of two limits, where None is no limit."""
    return one if two is None else two if one is None else min(one, two)


def least_limits(one: Mapping[str, int], two: Mapping[str, int]) -> Mapping[str, int]:
    """The tighter of two sets of limits, key by key."""
    return {**one, **two, **{key: min(one[key], two[key]) for key in one.keys() & two.keys()}}
