"""Parts of a manifest as values: admissions of tools, approvals, budgets, examples.

Bundles (groups of tools in a workspace) and rosters (the bundles and tools that one ceiling lists). `TERMS` has what a
bundle may state about all its tools together, a row for each key.

Files are read in `policy_files`. Which tools are admitted is decided in `core/decision/fixes.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from licet.core.policy.addresses import PrivateList, beyond, common_ranges
from licet.core.policy.argument_ties import FREE, asking, is_about_flow, without_own_words
from licet.core.policy.connector import ConnectorRule, Connectors
from licet.core.policy.inspection import (
    Inspection,
    StandIn,
    inspect_only,
    met_inspect,
    met_stand_ins,
    stand_ins_document,
    stand_ins_only,
)
from licet.core.policy.layer import EffectClass, Layer, Level
from licet.core.values import Compared, Origin, key_bytes, money_text

WriteApproval = Literal["call", "session", "manifest"]
WRITE_APPROVALS: tuple[WriteApproval, ...] = ("call", "session", "manifest")  # strictest first
Number = TypeVar("Number", int, Decimal)
S = TypeVar("S")


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
    asked_by: tuple[str, ...] = ()  # the task must have a word that begins with one of these; without any, it need not

    @property
    def argument_rules(self) -> Mapping[str, Any]:
        """The rules on the values of arguments: without `ask`, flow, and those that only declare an argument free."""
        return {
            name: without_own_words(rule)
            for name, rule in self.args.items()
            if rule != FREE and not is_about_flow(rule)
        }

    @property
    def asking(self) -> Mapping[str, Any]:
        """By argument: the schema of the values that make a call ask."""
        return asking(self.args)


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
    inspect: tuple[str, ...] = ()  # looked into besides what the manifest names
    stand_ins: tuple[StandIn, ...] | None = None  # None does not narrow; an empty mapping places none
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


class HasTerms(Protocol):
    """The part of a manifest that bundles narrow."""

    @property
    def origin(self) -> Origin: ...
    @property
    def approvals(self) -> Approvals: ...
    @property
    def private(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def connectors(self) -> Connectors: ...
    @property
    def natives(self) -> tuple[Natives, ...]: ...
    @property
    def admissions(self) -> Mapping[str, tuple[Admission, ...]]: ...
    @property
    def bundles(self) -> Mapping[str, Bundle]: ...
    @property
    def places(self) -> Mapping[str, Origin]: ...
    @property
    def values(self) -> Mapping[str, object]: ...


def approvals_of(manifest: HasTerms, bundles: Iterable[Bundle]) -> Approvals:
    """The stricter value of each approval key of the manifest and these bundles."""
    approvals = manifest.approvals
    for stated in (bundle.approvals for bundle in bundles if bundle.approvals):
        approvals = approvals.narrowed_by(stated)
    return approvals


def private_of(manifest: HasTerms, bundles: Iterable[Bundle]) -> tuple[tuple[str, ...], ...]:
    """The lists of private addresses for a tool of these bundles; an address must be in each list."""
    return (*manifest.private, *(bundle.private for bundle in bundles if bundle.private is not None))


def private_lists(manifest: HasTerms, bundles: Iterable[Bundle]) -> Iterator[PrivateList]:
    """The `private` lists of the ceilings and the bundles; a private address is open only if it is in all of them."""
    written = manifest.places.get("private")
    known = manifest.natives if len(manifest.natives) == len(manifest.private) else ()
    for number, ranges in enumerate(manifest.private or ((),)):
        ceiling = known[number] if known else None
        key = ceiling.key.replace("native", "private") if ceiling else "capabilities.private"
        origin = ceiling.origin if ceiling else manifest.origin
        yield PrivateList(key, ranges, written if written and written.file == origin.file else origin)
    for bundle in bundles:
        if bundle.private is not None:
            yield PrivateList(f"bundles.{bundle.name}.private", bundle.private, bundle.place("private"))


def inspection_under(stated: Inspection, bundles: Iterable[Bundle]) -> Inspection:
    """What is looked into and placed for a tool of these bundles, of what a manifest states."""
    inspect, placed = stated.inspect, stated.stand_ins
    for bundle in bundles:
        inspect = met_inspect(inspect, bundle.inspect) if bundle.inspect else inspect
        placed = met_stand_ins(placed, bundle.stand_ins) if bundle.stand_ins is not None else placed
    return Inspection(inspect, placed)


def stated_inspection(manifest: HasTerms) -> Inspection:
    """What a manifest states about all its programs, without bundles and servers."""
    values = manifest.values
    inspect = cast(tuple[str, ...], values.get("inspect", ()))
    return Inspection(inspect, cast(tuple[StandIn, ...], values.get("stand_ins", ())))


def connectors_of(manifest: HasTerms, bundles: Iterable[Bundle]) -> Connectors:
    """The allowlists of connectors for a tool of these bundles."""
    connectors, stated = manifest.connectors, [bundle for bundle in bundles if bundle.connectors is not None]
    if not stated:
        return connectors
    return replace(
        connectors,
        profiles=(*connectors.profiles, *(bundle.connectors for bundle in stated if bundle.connectors is not None)),
        profile_places=(
            *connectors.placed(manifest.origin),
            *((f"bundles.{bundle.name}.connectors", bundle.place("connectors")) for bundle in stated),
        ),
    )


def stated_keys(**keys: object) -> dict[str, object]:
    """Only the keys that are stated. These keys were added later: without them, older digests must stay valid."""
    return {key: value for key, value in keys.items() if value is not None}


VersionRanges = tuple[tuple[str, tuple[str, ...]], ...]  # connector -> version ranges; all apply


class Terms(Compared, frozen=True, kw_only=True):
    """The terms that apply to the tools of some bundles, the agent's own terms included."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"origin"})

    name: str = ""  # of the bundle
    budgets: tuple[tuple[str, Budget], ...] = ()  # of bundles, by name
    approvals: Approvals
    connectors: VersionRanges
    private: tuple[str, ...]
    inspection: Inspection = Inspection()
    origin: Origin | None = None

    @property
    def budget(self) -> Budget:
        """The smallest limits of the bundles. The agent's own budget is counted by itself, over all its tools."""
        tightest = Budget()
        for _, budget in self.budgets:
            tightest = tightest.narrowed_by(budget)
        return tightest

    def document(self) -> dict[str, Any]:
        """The terms as plain data."""
        return {
            "budget": budget_document(dict(self.budgets).get(self.name, Budget())),
            "approvals": approvals_document(self.approvals),
            "connectors": {name: list(versions) for name, versions in self.connectors},
            "private": list(self.private),
            **({"inspect": list(self.inspection.inspect)} if self.inspection.inspect else {}),
            **({"stand_ins": placed} if (placed := stand_ins_document(self.inspection.stand_ins)) else {}),
            "origin": self.origin.full if self.origin else None,
        }


def agent_terms(manifest: HasTerms) -> Terms:
    """The terms that apply to every tool of the agent."""
    return terms_of(manifest, ())


def bundle_terms(manifest: HasTerms) -> Iterator[Terms]:
    """The terms of each bundle that differ from those of the agent."""
    agent = agent_terms(manifest)
    for name in used_bundles(manifest):
        terms = terms_of(manifest, (name,))
        if replace(terms, name="") != agent:
            yield terms


def used_bundles(manifest: HasTerms) -> tuple[str, ...]:
    """The bundles through which tools are admitted."""
    used = {admission.bundle for admissions in manifest.admissions.values() for admission in admissions}
    return tuple(sorted(used & manifest.bundles.keys()))


def terms_of(manifest: HasTerms, names: tuple[str, ...]) -> Terms:
    """The terms that apply to a tool in these bundles."""
    bundles = [manifest.bundles[name] for name in names if name in manifest.bundles]
    return Terms(
        name=names[0] if len(names) == 1 else "",
        budgets=tuple((bundle.name, bundle.budget) for bundle in bundles if bundle.budget),
        approvals=shown_approvals(manifest, bundles),
        connectors=shown_connectors(manifest, bundles),
        private=shown_private(manifest, bundles),
        inspection=inspection_under(stated_inspection(manifest), bundles),
        origin=bundles[0].origin if bundles else None,
    )


def shown_approvals(manifest: HasTerms, bundles: Iterable[Bundle] = ()) -> Approvals:
    """The approvals for a tool of these bundles, each key once."""
    approvals = approvals_of(manifest, bundles)
    return replace(approvals, keys=None if approvals.keys is None else tuple(sorted(set(approvals.keys))))


def shown_private(manifest: HasTerms, bundles: Iterable[Bundle] = ()) -> tuple[str, ...]:
    """The private addresses that are open to a tool of these bundles."""
    return common_ranges(private_of(manifest, bundles)) if manifest.private else ()


def shown_connectors(manifest: HasTerms, bundles: Iterable[Bundle] = ()) -> VersionRanges:
    """Each connector that all lists allow, with one range for each list that limits its versions."""
    return tuple((name, _versions(about)) for name, about in connectors_of(manifest, bundles).by_name().items())


def _versions(about: Connectors) -> tuple[str, ...]:
    clauses = set()
    for rules in (about.tenant, about.app, *about.profiles):
        versions = {rule.versions for rule in rules or ()}
        if versions and "" not in versions:
            clauses.add(" or ".join(sorted(versions)))
    return tuple(sorted(clauses))


def approvals_document(approvals: Approvals) -> dict[str, Any]:
    """How calls are approved, as plain data."""
    return {
        "write": approvals.write,
        "expires_seconds": approvals.expires_seconds,
        "quorum": approvals.quorum,
        "keys": None if approvals.keys is None else list(approvals.keys),
        "names": dict(approvals.names),
        "delete": approvals.delete,
        "through_client": approvals.through_client,
    }


def budget_document(budget: Budget) -> dict[str, Any]:
    """What a budget limits, as plain data."""
    money = (budget.max_cost_usd, budget.max_cost_usd_per_day)
    in_session, on_day = (None if amount is None else money_text(amount) for amount in money)
    return {
        "max_calls_per_session": budget.max_calls_per_session,
        "max_calls_per_day": budget.max_calls_per_day,
        "max_cost_usd": in_session,
        "max_cost_usd_per_day": on_day,
    }


_NO_LIMIT = Decimal("Infinity")


def limit_rank(limit: int | Decimal | None) -> int | Decimal:
    """The rank of a limit, where None means unlimited."""
    return _NO_LIMIT if limit is None else limit


class Step(Struct, frozen=True):
    """A part of a value that has an order, as two policies state it. The higher rank allows more."""

    kind: str
    what: str
    before: object
    after: object
    rank: Callable[..., int | Decimal] = limit_rank
    words: Mapping[str, str] = {}  # how a value is shown, if not as itself
    default: str = ""  # what None stands for, if its rank is not known: then each change from and to it has grown
    key: str = ""  # the key that states it, if it is not that of the row


def unordered(_before: object, _after: object) -> Iterable[Step]:
    return ()


def unlisted(_here: object, _there: object) -> Iterable[tuple[str, str]]:
    return ()


WRITES_ASK: dict[str, str] = {
    "call": "before each call",
    "session": "once a session",
    "manifest": "never (the file approves them)",
}
DELETES_ASK: dict[str, str] = {
    **WRITES_ASK,
    "call": "about each",
    "manifest": "never, while a standing approval covers them",
}


def write_step(before: WriteApproval, after: WriteApproval) -> Step:
    return Step("approval", "asks about writes", before, after, WRITE_APPROVALS.index, WRITES_ASK)


def delete_step(before: WriteApproval, after: WriteApproval) -> Step:
    return Step("approval", "asks about deletes of files", before, after, WRITE_APPROVALS.index, DELETES_ASK)


def approver_steps(was: Approvals, now: Approvals) -> Iterator[Step]:
    """How long an approval holds, how many people give it, and whether a client may."""
    yield Step("approval", "expires_seconds", was.expires_seconds, now.expires_seconds, int)
    yield Step("approval", "quorum", was.quorum, now.quorum, lambda quorum: -quorum)
    yield Step("approval", "through_client", was.through_client, now.through_client, int)


def budget_steps(was: Budget, now: Budget) -> Iterator[Step]:
    for key in BUDGET_KEYS:
        yield Step("budget", key, getattr(was, key), getattr(now, key), key=key)


def ranges_only(here: tuple[str, ...], there: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The private addresses that only the first lists open."""
    return ((f"private addresses {text}", text) for text in beyond(here, there))


def connectors_only(here: VersionRanges, there: VersionRanges) -> Iterator[tuple[str, str]]:
    """The connectors that only the first lists allow, with their versions."""
    versions = dict(here)
    return ((f"connector {name}", versions_text(versions[name])) for name in sorted(versions.keys() - dict(there)))


def versions_text(ranges: tuple[str, ...]) -> str:
    return " and ".join(ranges) or "any version"


class Term(Struct, Generic[S], frozen=True, kw_only=True):
    """One key of a bundle about all its tools together. The tighter value counts; a key that is left out narrows none.

    `content` is what two bundles of the same name must agree on.
    """

    key: str
    kind: str  # of the changes below
    digest: Callable[[Bundle], dict[str, object]]  # the keys of the digest that are stated
    content: Callable[[Bundle], object]
    of: Callable[[Terms], S]  # what applies to a tool of some bundles
    ordered: Callable[[S, S], Iterable[Step]] = unordered  # the parts that have an order
    listed: Callable[[S, S], Iterable[tuple[str, str]]] = unlisted  # what only the first has: in words, and the item


def _approvals_digest(bundle: Bundle) -> dict[str, object]:
    """Without `write`, which is in the admissions of its tools."""
    stated, keys = bundle.approvals, bundle.approvals.get("keys")
    return stated_keys(
        expires_seconds=stated.get("expires_seconds"),
        quorum=stated["quorum"] if stated.get("quorum", 1) > 1 else None,
        delete=stated.get("delete"),
        through_client=stated.get("through_client"),
        keys=None if keys is None else sorted(set(keys)),
    )


# In the order in which a comparison has them.
TERMS: tuple[Term[Any], ...] = (
    Term[Budget](
        key="budget",
        kind="budget",
        digest=lambda bundle: stated_keys(
            budget=stated_keys(**{key: getattr(bundle.budget, key) for key in BUDGET_KEYS}) or None
        ),
        content=lambda bundle: bundle.budget,
        of=lambda terms: terms.budget,
        ordered=budget_steps,
    ),
    Term[Approvals](
        key="approvals",
        kind="approval",
        digest=_approvals_digest,
        content=lambda bundle: dict(bundle.approvals),
        of=lambda terms: terms.approvals,
        ordered=approver_steps,
    ),
    Term[tuple[str, ...]](
        key="private",
        kind="private",
        digest=lambda bundle: stated_keys(private=None if bundle.private is None else common_ranges([bundle.private])),
        content=lambda bundle: None if bundle.private is None else set(bundle.private),
        of=lambda terms: terms.private,
        listed=ranges_only,
    ),
    Term[VersionRanges](
        key="connectors",
        kind="connector",
        digest=lambda bundle: stated_keys(
            connectors=None if bundle.connectors is None else sorted({rule.text for rule in bundle.connectors})
        ),
        content=lambda bundle: None if bundle.connectors is None else {rule.text for rule in bundle.connectors},
        of=lambda terms: terms.connectors,
        listed=connectors_only,
    ),
    Term[tuple[str, ...]](
        key="inspect",
        kind="inspect",
        digest=lambda bundle: stated_keys(inspect=bundle.inspect or None),
        content=lambda bundle: bundle.inspect,
        of=lambda terms: terms.inspection.inspect,
        listed=inspect_only,
    ),
    Term[tuple[StandIn, ...]](
        key="stand_ins",
        kind="stand_ins",
        digest=lambda bundle: stated_keys(
            stand_ins=None if bundle.stand_ins is None else stand_ins_document(bundle.stand_ins)
        ),
        content=lambda bundle: bundle.stand_ins,
        of=lambda terms: terms.inspection.stand_ins,
        listed=stand_ins_only,
    ),
)
