"""The overlap of a manifest and a personality: the rules of both, and the tighter one of each two limits.

If a tool is in a bundle, one of the two must assign the bundle, and the other must assign it too or name the tool.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.origin import Origin
from licet.core.policy.bundle import Bundle
from licet.core.policy.connector import Connectors
from licet.core.policy.layer import Layer, Rule, distinct
from licet.core.policy.manifest_fields import ManifestFields
from licet.core.policy.terms import (
    BUDGET_KEYS,
    WRITE_APPROVALS,
    Admission,
    Approvals,
    Budget,
    both_keys,
    least,
    least_limits,
)

Admissions = Mapping[str, tuple[Admission, ...]]


def met_fields(one: ManifestFields, two: ManifestFields) -> dict[str, Any]:
    """The fields of the manifest that allows what both allow. All other fields are those of the first one.

    `ValueError` if both have a bundle of the same name with different terms.
    """
    admissions, unassigned = met_admissions(one, two)
    return {
        "loaded": None,
        "standing": None,
        "pinned": "",  # the result is a third policy, which nothing pins
        "lock_problem": one.lock_problem or two.lock_problem,
        "personality": two.personality or one.personality,
        "layers": distinct(met_layers(one, two, admissions) + met_layers(two, one, admissions)),
        "admissions": admissions,
        "unassigned": unassigned,
        "bundles": met_bundles(one, two),
        "rosters": one.rosters + two.rosters,
        "tools": {**two.tools, **one.tools},
        "sources": {**two.sources, **one.sources},
        "max_effects": one.max_effects + two.max_effects,
        "private": one.private + two.private,
        "natives": one.natives + two.natives,
        "connectors": _met_connectors(one, two),
        "definitions": {**two.definitions, **one.definitions},
        "approvals": Approvals(
            min(one.approvals.write, two.approvals.write, key=WRITE_APPROVALS.index),
            min(one.approvals.expires_seconds, two.approvals.expires_seconds),
            max(one.approvals.quorum, two.approvals.quorum),
            both_keys(one.approvals.keys, two.approvals.keys),
            min(one.approvals.delete, two.approvals.delete, key=WRITE_APPROVALS.index),
            one.approvals.through_client and two.approvals.through_client,
            {**two.approvals.names, **one.approvals.names},
        ),
        "budget": Budget(**{key: least(getattr(one.budget, key), getattr(two.budget, key)) for key in BUDGET_KEYS}),
        "limits": least_limits(one.limits, two.limits),
        "allow_degraded": one.allow_degraded and two.allow_degraded,
        "record": "full" if "full" == one.record == two.record else "digests",
        "examples": one.examples + two.examples,
        "files": one.files + two.files,
        "roots": {**two.roots, **one.roots},
        "places": {**two.places, **one.places, **_tighter_places(one, two)},
    }


def _met_connectors(one: ManifestFields, two: ManifestFields) -> Connectors:
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
        profile_places=(*placed(one), *placed(two), *(place for _, place in more)),
    )


def placed(manifest: ManifestFields) -> tuple[tuple[str, Origin], ...]:
    """The place of each profile list: one for each, since the two tuples are read in parallel."""
    lists = manifest.connectors
    missing = len(lists.profiles) - len(lists.profile_places)
    return (*lists.profile_places, *[("capabilities.connectors", manifest.origin)] * missing)


def met_admissions(one: ManifestFields, two: ManifestFields) -> tuple[Admissions, Admissions]:
    """The admissions of the tools that both admit, and of tools that are named while no bundle of them is assigned."""
    admissions: dict[str, tuple[Admission, ...]] = {}
    unassigned: dict[str, tuple[Admission, ...]] = {}
    for tool in sorted({*one.admissions, *one.unassigned, *two.admissions, *two.unassigned}):
        if _admitted(one, two, tool):
            admissions[tool] = distinct(_admissions_of(one, tool) + _admissions_of(two, tool))
        elif tool in one.unassigned or tool in two.unassigned:
            unassigned[tool] = distinct(_admissions_of(one, tool) + _admissions_of(two, tool))
    return admissions, unassigned


def met_bundles(one: ManifestFields, two: ManifestFields) -> Mapping[str, Bundle]:
    """The bundles of both; `ValueError` if two of the same name have different terms, since one would be lost."""
    for name in one.bundles.keys() & two.bundles.keys():
        if _terms(one.bundles[name]) != _terms(two.bundles[name]):
            places = f"{one.bundles[name].origin} and {two.bundles[name].origin}"
            raise ValueError(f"the bundle `{name}` says different things in {places}: give one of them another name")
    return {**two.bundles, **one.bundles}


def _terms(bundle: Bundle) -> object:
    """The content of a bundle, without the places where it is written."""
    listed = bundle.connectors
    connectors = None if listed is None else {(rule.name, rule.versions) for rule in listed}
    private = None if bundle.private is None else set(bundle.private)
    return set(bundle.tools), bundle.budget, dict(bundle.approvals), connectors, private


def met_layers(manifest: ManifestFields, other: ManifestFields, admissions: Admissions) -> tuple[Layer, ...]:
    """The layers of one of the two, with `tool:call` rules for exactly the tools that both admit."""
    added = tuple(
        Rule(Capability(f"tool:call:{tool}"), manifest.unassigned[tool][0].origin, "capabilities.tools")
        for tool in admissions
        if tool not in manifest.admissions
    )
    dropped = {tool for tool in manifest.admissions.keys() & other.admissions.keys() if tool not in admissions}
    if not added and not dropped:
        return manifest.layers
    return tuple(
        replace(layer, allows=(*(rule for rule in layer.allows if not _admits(rule, dropped)), *added))
        if layer.kind in ("manifest", "personality")
        else layer
        for layer in manifest.layers
    )


def _admitted(one: ManifestFields, two: ManifestFields, tool: str) -> bool:
    mine, theirs = _assigned(one, tool), _assigned(two, tool)
    if not mine and not theirs:
        return tool in one.admissions and tool in two.admissions
    return bool(mine & theirs or (mine and _names(two, tool)) or (theirs and _names(one, tool)))


def _admissions_of(manifest: ManifestFields, tool: str) -> tuple[Admission, ...]:
    return manifest.admissions.get(tool) or manifest.unassigned.get(tool, ())


def _assigned(manifest: ManifestFields, tool: str) -> set[str]:
    return {admission.bundle for admission in manifest.admissions.get(tool, ()) if admission.bundle}


def _names(manifest: ManifestFields, tool: str) -> bool:
    """Whether a ceiling names a tool, and does not only assign a bundle that contains it."""
    listed = any(tool in roster.named for roster in manifest.rosters)
    return listed or any(not admission.bundle for admission in _admissions_of(manifest, tool))


def _admits(rule: Rule, tools: set[str]) -> bool:
    about = rule.capability
    return about.domain == "tool" and about.key in tools and rule.key.endswith("tools")


def _tighter_places(one: ManifestFields, two: ManifestFields) -> Mapping[str, Origin]:
    """Where the tighter value of each budget and limit is written."""
    found: dict[str, tuple[int | Decimal, Origin]] = {}
    for each in (one, two):
        limits = {key: getattr(each.budget, key) for key in BUDGET_KEYS}
        limits |= {f"limits.{key}": limit for key, limit in each.limits.items()}
        for key, limit in limits.items():
            if limit is not None and key in each.places and (key not in found or limit < found[key][0]):
                found[key] = limit, each.places[key]
    return {key: place for key, (_, place) in found.items()}
