"""Which tools an agent has: the rule about bundles, and the edit that admits a tool that is left out.

A tool that is in a bundle of the workspace is reachable only through that bundle. One ceiling must assign the bundle;
every other ceiling assigns it too, or names the tool. A tool in no bundle must be named by every ceiling. A deny of
`tool:call` wins over all of that, in whichever file it stands.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.algebra.scope import TOP
from licet.core.decision.decision import Ground
from licet.core.decision.fixes import remove
from licet.core.origin import Problem
from licet.core.policy.bundle import Bundle, Roster
from licet.core.policy.manifest import Admission, Layer, Manifest, Rule, distinct

_MOST_NAMED = 5  # tools that one line of advice takes out of a bundle
Admissions = Mapping[str, tuple[Admission, ...]]


def bundles_with(manifest: Manifest, tool: str) -> tuple[Bundle, ...]:
    """The bundles of the workspace that hold a tool, assigned or not."""
    return manifest.bundles_by_tool.get(tool, ())


def call_denials(manifest: Manifest, tool: str) -> tuple[Ground, ...]:
    """One ground for each deny that a file states about calls of a tool; empty if none does."""
    return distinct(
        tuple(
            Ground("TOOL_NOT_IN_BUNDLE", f"denied by {rule.capability}", rule.origin, remove(rule), f"tool:call:{tool}")
            for rule in manifest.tool_denies
            if rule.capability.key in (tool, TOP)
        )
    )


# Where two ceilings meet ----------------------------------------------------------------------------------------------


def met_admissions(one: Manifest, two: Manifest) -> tuple[Admissions, Admissions]:
    """The tools that two ceilings admit together, and those that are named while their bundle is not assigned."""
    admissions: dict[str, tuple[Admission, ...]] = {}
    unassigned: dict[str, tuple[Admission, ...]] = {}
    for tool in sorted({*one.admissions, *one.unassigned, *two.admissions, *two.unassigned}):
        if _admitted(one, two, tool):
            admissions[tool] = distinct(_said(one, tool) + _said(two, tool))
        elif tool in one.unassigned or tool in two.unassigned:
            unassigned[tool] = distinct(_said(one, tool) + _said(two, tool))
    return admissions, unassigned


def met_bundles(one: Manifest, two: Manifest) -> Mapping[str, Bundle]:
    """The bundles of both; `ValueError` where two of one name state different terms, since one would be lost."""
    for name in one.bundles.keys() & two.bundles.keys():
        if _terms(one.bundles[name]) != _terms(two.bundles[name]):
            places = f"{one.bundles[name].origin} and {two.bundles[name].origin}"
            raise ValueError(f"the bundle `{name}` says different things in {places}: give one of them another name")
    return {**two.bundles, **one.bundles}


def _terms(bundle: Bundle) -> object:
    """What a bundle says about all its tools together, wherever that is written."""
    listed = bundle.connectors
    connectors = None if listed is None else {(rule.name, rule.versions) for rule in listed}
    private = None if bundle.private is None else set(bundle.private)
    return set(bundle.tools), bundle.budget, dict(bundle.approvals), connectors, private


def met_layers(manifest: Manifest, other: Manifest, admissions: Admissions) -> tuple[Layer, ...]:
    """The layers of one of two ceilings, whose rules `tool:call` are about the tools that both admit together."""
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


def _admitted(one: Manifest, two: Manifest, tool: str) -> bool:
    mine, theirs = _assigned(one, tool), _assigned(two, tool)
    if not mine and not theirs:
        return tool in one.admissions and tool in two.admissions
    return bool(mine & theirs or (mine and _names(two, tool)) or (theirs and _names(one, tool)))


def _said(manifest: Manifest, tool: str) -> tuple[Admission, ...]:
    return manifest.admissions.get(tool) or manifest.unassigned.get(tool, ())


def _assigned(manifest: Manifest, tool: str) -> set[str]:
    return {admission.bundle for admission in manifest.admissions.get(tool, ()) if admission.bundle}


def _names(manifest: Manifest, tool: str) -> bool:
    """Whether a ceiling names a tool itself, besides assigning a bundle that holds it."""
    listed = any(tool in roster.named for roster in manifest.rosters)
    return listed or any(not admission.bundle for admission in _said(manifest, tool))


def _admits(rule: Rule, tools: set[str]) -> bool:
    about = rule.capability
    return about.domain == "tool" and about.key in tools and rule.key.endswith("tools")


# What would admit a tool ----------------------------------------------------------------------------------------------


class _Step(Struct, frozen=True):
    """What one ceiling has to say before a tool is admitted, and why that is missing."""

    roster: Roster
    why: str
    fix: str


def admission_grounds(manifest: Manifest, tool: str) -> tuple[Ground, ...]:
    """Why a tool is not admitted: one ground for each ceiling that must change."""
    return tuple(
        Ground("TOOL_NOT_IN_BUNDLE", step.why, step.roster.named.get(tool, step.roster.origin), step.fix)
        for step in _steps(manifest, tool)
    )


def admissions_if_admitted(manifest: Manifest, tool: str) -> tuple[Admission, ...]:
    """How a tool would be admitted once the advice was followed."""
    bundle = _nearest_bundle(manifest, tool)
    return (
        (bundle.admission, *manifest.unassigned.get(tool, ())) if bundle is not None else (Admission(manifest.origin),)
    )


def bundle_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each tool that is named although none of its bundles is assigned: its calls are refused."""
    for tool in manifest.unassigned:
        bundle, steps = _nearest_bundle(manifest, tool), _steps(manifest, tool)
        if bundle is None or not steps:
            continue
        origin = next(roster.named[tool] for roster in manifest.rosters if tool in roster.named)
        found = f"`{tool}`, which is in the bundle `{bundle.name}`"
        expected = "a tool in no bundle, or one whose bundle is assigned too"
        hint = "; ".join(step.fix for step in steps)
        yield Problem(origin, found, expected, f"calls of it are refused; to allow them, {hint}", "warning")


def _steps(manifest: Manifest, tool: str) -> tuple[_Step, ...]:
    bundle, rosters = _nearest_bundle(manifest, tool), manifest.rosters
    if bundle is None:
        why = f"`{tool}` is in no bundle assigned to `{manifest.agent}`"
        return tuple(_Step(roster, why, _name(roster, tool)) for roster in rosters if tool not in roster.named)
    missing = [roster for roster in rosters if bundle.name not in roster.assigned]
    unnamed = [roster for roster in missing if tool not in roster.named]
    steps = []
    if missing and len(missing) == len(rosters):  # nobody assigns it: best where the tool is not even named
        assigner = (unnamed or missing)[0]
        why = f"`{tool}` is in the bundle `{bundle.name}`, which is not assigned to `{manifest.agent}`"
        steps.append(_Step(assigner, why, _assign(manifest, assigner, bundle)))
        unnamed = [roster for roster in unnamed if roster is not assigner]
    for roster in unnamed:
        why = f"{roster.title} neither assigns the bundle `{bundle.name}` nor names `{tool}`"
        steps.append(_Step(roster, why, _name(roster, tool)))
    return tuple(steps)


def _nearest_bundle(manifest: Manifest, tool: str) -> Bundle | None:
    """A bundle that holds a tool: one that is assigned already, else the one with the fewest other tools."""
    grant, assigned = bundles_with(manifest, tool), manifest.assigned_bundles
    fitting = [bundle for bundle in grant if bundle.name in assigned] or grant
    return min(fitting, key=lambda one: (len(_overlaps(manifest, one, manifest.rosters)), len(one.tools)), default=None)


def _name(roster: Roster, tool: str) -> str:
    return f"add `{tool}` under `{roster.prefix}tools` in {roster.origin.file}"


def _assign(manifest: Manifest, roster: Roster, bundle: Bundle) -> str:
    steps = [f"add `{bundle.name}` under `{roster.prefix}bundles` in {roster.origin.file}"]
    # A tool in two assigned bundles does not load.
    twice = _overlaps(manifest, bundle, (roster,))
    where = f"from `bundles.{bundle.name}.tools` in {bundle.origin.file}"
    steps += [f"remove `{tool}` {where}" for tool in twice[:_MOST_NAMED]]
    if len(twice) > _MOST_NAMED:
        steps.append(f"and remove {len(twice) - _MOST_NAMED} more that are in another assigned bundle {where}")
    return "; ".join(steps)


def _overlaps(manifest: Manifest, bundle: Bundle, rosters: tuple[Roster, ...]) -> tuple[str, ...]:
    """The tools of a bundle that are in another one too, which one of these ceilings assigns."""
    # Worked out once: a file may name thousands of tools of a bundle that has thousands.
    known: dict[object, tuple[str, ...]] = manifest._known.setdefault("overlaps", {})
    key = bundle.name, *(roster.assigned for roster in rosters)
    if key not in known:
        others = {name for roster in rosters for name in roster.assigned} - {bundle.name}
        held = {tool for name in others if name in manifest.bundles for tool in manifest.bundles[name].tools}
        known[key] = tuple(tool for tool in bundle.tools if tool in held)
    return known[key]
