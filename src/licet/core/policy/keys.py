"""The keys of policy that set something for a whole agent: all that core knows about each is one row of `KEYS`.

A row says what two policies allow together, what an organisation narrows, what is in the digest, what a surface shows
and how `licet diff` words a difference. How a key is written in a file is the row of the same name in
`policy_files/schema.py`. Keys that become rules (`destinations`, `grants`, `deny` …) have no row here: their rules are
met, digested and compared as rules.

A new key is a row made by `valued` in `VALUED`, and its row in the schema: its value is then in `Manifest.values`, and
`ROW.of(manifest)` is it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from licet.core.algebra.set import CapabilitySet
from licet.core.policy.addresses import common_ranges
from licet.core.policy.connector import Connectors, Definition
from licet.core.policy.flow import NO_FLOW, Flow
from licet.core.policy.flow_terms import flow_document, flow_of, flow_only, flow_steps, met_flow, narrowed_flow
from licet.core.policy.inspection import (
    StandIn,
    met_inspect,
    met_stand_ins,
    stand_ins,
    stand_ins_document,
    stand_ins_only,
)
from licet.core.policy.layer import CLASSES, EffectClass, distinct
from licet.core.policy.manifest_fields import ManifestFields, Organisation
from licet.core.policy.terms import (
    BUDGET_KEYS,
    TERMS,
    Approvals,
    Budget,
    Bundle,
    Step,
    Terms,
    VersionRanges,
    approvals_document,
    approver_steps,
    budget_document,
    budget_steps,
    bundle_terms,
    connectors_only,
    delete_step,
    least_limits,
    ranges_only,
    shown_approvals,
    shown_connectors,
    shown_private,
    stated_keys,
    unlisted,
    unordered,
    used_bundles,
    write_step,
)
from licet.core.values import canonical_json, plain

S = TypeVar("S")
Keys: TypeAlias = dict[str, object]


class Key(Struct, Generic[S], frozen=True, kw_only=True):
    """One key of policy. `field` is the field of a surface with its value; without one, it is in `values`."""

    name: str  # where it is written, and the word in files
    of: Callable[[ManifestFields], S]  # what counts, as a surface shows it
    field: str = ""
    met: Callable[[ManifestFields, ManifestFields], Keys]  # the fields, or the value, of what both allow
    under: Callable[[ManifestFields, Organisation], Keys] | None = None  # the fields that an organisation narrows
    digest: Callable[[ManifestFields], Keys]  # what a digest has about it; keys that were added later only if stated
    document: Callable[[S], Keys]  # as plain data, in a surface
    kind: str = ""  # of the changes below
    ordered: Callable[[S, S], Iterable[Step]] = unordered  # the parts that have an order
    listed: Callable[[S, S], Iterable[tuple[str, str]]] = unlisted  # what only the first has: in words, and the item
    read: Callable[[Any], object] = lambda data: data  # the value in `values`, from the plain data of a file


def valued(
    name: str,
    absent: S,
    met: Callable[[S, S], S],
    *,
    read: Callable[[Any], S] | None = None,
    written: Callable[[S], object] = lambda value: value,
    under: Callable[[ManifestFields, Organisation], S] | None = None,
    ordered: Callable[[S, S], Iterable[Step]] = unordered,
    listed: Callable[[S, S], Iterable[tuple[str, str]]] = unlisted,
) -> Key[S]:
    """A row for a key whose value is in `values`. `absent` is what a policy says that does not have the key.

    A value that is not plain data is `read` from it, and `written` to it again. `under` is the value that an
    organisation leaves.
    """

    def of(manifest: ManifestFields) -> S:
        return cast(S, manifest.values.get(name, absent))

    def stated(value: S) -> Keys:
        return {name: value} if value != absent else {}

    def documented(value: S) -> Keys:
        return {key: written(value) for key in stated(value)}

    def narrowed(manifest: ManifestFields, above: Organisation) -> Keys:
        return {} if under is None else stated(under(manifest, above))

    return Key(
        name=name,
        of=of,
        met=lambda one, two: stated(met(of(one), of(two))),
        under=None if under is None else narrowed,
        digest=lambda manifest: documented(of(manifest)),
        document=lambda value: plain(documented(value)),
        kind=name,
        ordered=ordered,
        listed=listed,
        read=read or (lambda data: data),
    )


def items(text: str) -> Callable[[Iterable[str], Iterable[str]], Iterator[tuple[str, str]]]:
    """Words for a list of names: what `text` says, with each name that only one policy has in place of `{}`."""

    def only(here: Iterable[str], there: Iterable[str]) -> Iterator[tuple[str, str]]:
        return ((text.format(name), name) for name in sorted({*here} - {*there}))

    return only


def _approval_steps(was: Approvals, now: Approvals) -> Iterator[Step]:
    yield write_step(was.write, now.write)
    yield from approver_steps(was, now)
    yield delete_step(was.delete, now.delete)


def _approvers(here: Approvals, there: Approvals) -> Iterator[tuple[str, str]]:
    if here.keys is not None and there.keys is not None:
        for key in sorted(set(here.keys) - set(there.keys)):
            yield f"key {here.signer(key)} may approve", key


def _limit_steps(was: Iterable[tuple[str, int]], now: Iterable[tuple[str, int]]) -> Iterator[Step]:
    before, after = dict(was), dict(now)
    return (limit_step(key, before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys()))


def limit_step(key: str, before: int | None, after: int | None) -> Step:
    """A limit of the sandbox. None means the default of the sandbox, which core does not know."""
    return Step("limit", key, before, after, int, default="the default")


def met_connectors(one: ManifestFields, two: ManifestFields) -> Connectors:
    """The allowlists of both. Lists of another workspace or app that the second states are added to those of the first.

    A personality names no app. Next to a manifest of the same workspace, the app of the manifest counts.
    """
    mine, theirs = one.connectors, two.connectors
    stated = [("connectors.tenant_allowlist", theirs.tenant, theirs.tenant_place)] * (theirs.tenant != mine.tenant)
    same = not theirs.app_name and mine.app_name and theirs.workspace_file == mine.workspace_file
    if theirs.app is not None and theirs.app != mine.app and not same:
        stated.append((f"connectors.app_overrides.{theirs.app_name}.allow", theirs.app, theirs.app_place))
    more = [(rules, (key, place)) for key, rules, place in stated if place is not None]
    return replace(
        mine,
        app_deny=distinct(mine.app_deny + theirs.app_deny),
        profiles=(*mine.profiles, *theirs.profiles, *(rules for rules, _ in more)),
        profile_places=(*mine.placed(one.origin), *theirs.placed(two.origin), *(place for _, place in more)),
    )


def _connectors_under(manifest: ManifestFields, above: Organisation) -> Keys:
    if above.connectors is None:
        return {}
    connectors, listed = manifest.connectors, ("connectors.allow", above.place("connectors.allow"))
    profiles, places = (*connectors.profiles, above.connectors), (*connectors.placed(manifest.origin), listed)
    return {"connectors": replace(connectors, profiles=profiles, profile_places=places)}


def _connectors_digest(manifest: ManifestFields) -> Keys:
    connectors = manifest.connectors
    return {
        "connectors": {
            "tenant": sorted({rule.text for rule in connectors.tenant}),
            "app": None if connectors.app is None else sorted({rule.text for rule in connectors.app}),
            "app_deny": sorted({rule.text for rule in connectors.app_deny}),
            "profiles": [sorted({rule.text for rule in profile}) for profile in connectors.profiles],
            **stated_keys(definitions=_definitions(manifest) or None),
        }
    }


def _definitions(manifest: ManifestFields) -> Keys:
    """The definitions of the connectors that this agent may use, by name; a key that is left out is None."""
    known = {name: manifest.definitions[name] for name in manifest.connectors.names() if name in manifest.definitions}
    return {name: _definition(definition) for name, definition in known.items()}


def _definition(definition: Definition) -> Keys:
    layer, versions = definition.layer, definition.versions
    rules = [rule.capability for rule in layer.allows] if layer is not None else []

    def listed(domain: str) -> list[str] | None:
        if layer is None or domain in layer.silent:
            return None
        return list(map(str, CapabilitySet(rule for rule in rules if rule.domain == domain).allow))

    return {
        "hosts": listed("network"),
        "secrets": listed("secret"),
        "side_effect_class": next((effect for effect, _ in definition.effects), None),
        "versions": versions.versions or None,
        "version": versions.version or None,
        "distribution": versions.distribution or None,
    }


def _approvals_digest(manifest: ManifestFields) -> Keys:
    approvals = manifest.approvals
    return {
        "approvals": {
            "write": approvals.write,
            "expires_seconds": approvals.expires_seconds,
            "quorum": approvals.quorum,
            "keys": None if approvals.keys is None else sorted(set(approvals.keys)),
            **stated_keys(
                delete=None if approvals.delete == "call" else approvals.delete,
                through_client=True if approvals.through_client else None,
                names=dict(approvals.names) or None,
            ),
        }
    }


def _budget_digest(manifest: ManifestFields) -> Keys:
    budget = {key: getattr(manifest.budget, key) for key in BUDGET_KEYS}
    by_day = stated_keys(max_calls_per_day=budget.pop("max_calls_per_day"))
    return {"budget": {**budget, **by_day}}


def _met_bundles(one: ManifestFields, two: ManifestFields) -> Mapping[str, Bundle]:
    """The bundles of both; `ValueError` if two of the same name have different terms, since one would be lost."""
    for name in one.bundles.keys() & two.bundles.keys():
        mine, theirs = one.bundles[name], two.bundles[name]
        same = mine.tools.keys() == theirs.tools.keys()
        if not same or any(term.content(mine) != term.content(theirs) for term in TERMS):
            places = f"{mine.origin} and {theirs.origin}"
            raise ValueError(f"the bundle `{name}` says different things in {places}: give one of them another name")
    return {**two.bundles, **one.bundles}


def _bundles_digest(manifest: ManifestFields) -> Keys:
    """The keys of the used bundles about all their tools together; classes and hosts are in the admissions."""
    stated: dict[str, Keys] = {}
    for name in used_bundles(manifest):
        stated[name] = {key: value for term in TERMS for key, value in term.digest(manifest.bundles[name]).items()}
    return stated_keys(bundles={name: terms for name, terms in stated.items() if terms} or None)


MAX_EFFECT = Key[EffectClass](
    name="max_side_effect_class",
    field="max_effect",
    of=lambda manifest: manifest.max_effect,
    met=lambda one, two: {"max_effects": one.max_effects + two.max_effects},
    under=lambda manifest, above: {
        "max_effects": (*manifest.max_effects, *((above.max_effect,) if above.max_effect is not None else ()))
    },
    digest=lambda manifest: {"max_side_effect_class": manifest.max_effect},
    document=lambda effect: {"max_side_effect_class": effect},
    ordered=lambda was, now: [Step("effect", "max_side_effect_class", was, now, CLASSES.index)],
)
NATIVE = Key[tuple[str, ...]](
    name="native",
    field="native",
    of=lambda manifest: tuple(sorted(manifest.native)),
    met=lambda one, two: {"natives": one.natives + two.natives},
    digest=lambda manifest: {"native": manifest.native},
    document=lambda names: {"native": list(names)},
    kind="native",
    listed=items("`{}` may run in this process"),
)
PRIVATE = Key[tuple[str, ...]](
    name="private",
    field="private",
    of=shown_private,
    met=lambda one, two: {"private": one.private + two.private},
    digest=lambda manifest: {"private": [common_ranges([ranges]) for ranges in manifest.private]},
    document=lambda ranges: {"private": list(ranges)},
    kind="private",
    listed=ranges_only,
)
CONNECTORS = Key[VersionRanges](
    name="connectors",
    field="connectors",
    of=shown_connectors,
    met=lambda one, two: {"connectors": met_connectors(one, two)},
    under=_connectors_under,
    digest=_connectors_digest,
    document=lambda ranges: {"connectors": {name: list(versions) for name, versions in ranges}},
    kind="connector",
    listed=connectors_only,
)
DEFINITIONS = Key[tuple[tuple[str, str], ...]](
    name="connectors",
    field="definitions",
    of=lambda manifest: tuple((name, canonical_json(one).decode()) for name, one in _definitions(manifest).items()),
    met=lambda one, two: {"definitions": {**two.definitions, **one.definitions}},
    digest=lambda manifest: {},  # they are in those of the connectors
    document=lambda known: {"definitions": {name: json.loads(text) for name, text in known}} if known else {},
)
APPROVALS = Key[Approvals](
    name="approvals",
    field="approvals",
    of=shown_approvals,
    met=lambda one, two: {"approvals": one.approvals.narrowed_by(asdict(two.approvals))},
    under=lambda manifest, above: {"approvals": manifest.approvals.narrowed_by(above.approvals)},
    digest=_approvals_digest,
    document=lambda approvals: {"approvals": approvals_document(approvals)},
    kind="approval",
    ordered=_approval_steps,
    listed=_approvers,
)
BUDGET = Key[Budget](
    name="budget",
    field="budget",
    of=lambda manifest: manifest.budget,
    met=lambda one, two: {"budget": one.budget.narrowed_by(two.budget)},
    under=lambda manifest, above: {"budget": manifest.budget.narrowed_by(above.budget)},
    digest=_budget_digest,
    document=lambda budget: {"budget": budget_document(budget)},
    ordered=budget_steps,
)
BUNDLES = Key[tuple[Terms, ...]](
    name="bundles",
    field="bundles",
    of=lambda manifest: tuple(bundle_terms(manifest)),
    met=lambda one, two: {"bundles": _met_bundles(one, two)},
    digest=_bundles_digest,
    document=lambda bundles: {"bundles": {bundle.name: bundle.document() for bundle in bundles}},
)
LIMITS = Key[tuple[tuple[str, int], ...]](
    name="limits",
    field="limits",
    of=lambda manifest: tuple(sorted(manifest.limits.items())),
    met=lambda one, two: {"limits": least_limits(one.limits, two.limits)},
    digest=lambda manifest: {"limits": manifest.limits},
    document=lambda limits: {"limits": dict(limits)},
    ordered=_limit_steps,
)
SANDBOX = Key[bool](
    name="sandbox",
    field="allow_degraded",
    of=lambda manifest: manifest.allow_degraded,
    met=lambda one, two: {"allow_degraded": one.allow_degraded and two.allow_degraded},
    digest=lambda manifest: {"allow_degraded": manifest.allow_degraded},
    document=lambda allowed: {"sandbox": {"allow_degraded": allowed}},
    ordered=lambda was, now: [Step("sandbox", "allow_degraded", was, now, int)],
)
RECORD = Key[str](
    name="record",
    field="record",
    of=lambda manifest: manifest.record,
    met=lambda one, two: {"record": "full" if "full" == one.record == two.record else "digests"},
    digest=lambda manifest: {"record": manifest.record},
    document=lambda record: {"record": record},
    # A full record copies arguments and results, which may be confidential, into the ledger.
    ordered=lambda was, now: [Step("record", "record", was, now, ("digests", "full").index)],
)
INSPECT: Key[tuple[str, ...]] = valued(
    "inspect",
    absent=(),
    met=met_inspect,
    read=lambda hosts: met_inspect(hosts, ()),
    under=lambda manifest, above: met_inspect(INSPECT.of(manifest), above.inspect),
)  # whether more or less is allowed with it depends on the rules: `core/review/diff.py` compares it

STAND_INS: Key[tuple[StandIn, ...]] = valued(
    "stand_ins",
    absent=(),
    met=met_stand_ins,
    read=stand_ins,
    written=stand_ins_document,
    listed=stand_ins_only,
)
FLOW: Key[Flow] = valued(
    "flow",
    absent=NO_FLOW,
    met=met_flow,
    read=flow_of,
    written=flow_document,
    under=lambda manifest, above: narrowed_flow(FLOW.of(manifest), above.flow),
    ordered=flow_steps,
    listed=flow_only,
)
# The keys whose values are in `Manifest.values`, made by `valued`.
VALUED: tuple[Key[Any], ...] = (INSPECT, STAND_INS, FLOW)
# In the order in which a surface and a comparison have them.
KEYS: tuple[Key[Any], ...] = (
    *(MAX_EFFECT, NATIVE, PRIVATE, CONNECTORS, DEFINITIONS, APPROVALS, BUDGET, BUNDLES, LIMITS, SANDBOX, RECORD),
    *VALUED,
)


def met_keys(one: ManifestFields, two: ManifestFields) -> Keys:
    """The fields about these keys of the manifest that allows what both allow."""
    fields: Keys = {}
    values: Keys = {}
    for key in KEYS:
        (fields if key.field else values).update(key.met(one, two))
    return {**fields, "values": values}


def keys_under(manifest: ManifestFields, above: Organisation) -> Keys:
    """The fields about these keys that an organisation narrows."""
    fields: Keys = {}
    values: Keys = {**manifest.values}
    for key in KEYS:
        if key.under is not None:
            (fields if key.field else values).update(key.under(manifest, above))
    return {**fields, "values": values}


def keys_digest(manifest: ManifestFields) -> Keys:
    """What the digest of a manifest has about these keys."""
    return {name: value for key in KEYS for name, value in key.digest(manifest).items()}
