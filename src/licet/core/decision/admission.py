"""Why a tool is not admitted, and which edit would admit it.

- If a tool is in a bundle of the workspace, one ceiling must assign the bundle, and every other ceiling must assign it
  too or name the tool.
- If a tool is in no bundle, every ceiling must name it.
- A deny of `tool:call` in any file wins over both.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from licet.core.algebra.scope import TOP
from licet.core.decision.fixes import add_budget, remove, wall
from licet.core.decision.request import Ground
from licet.core.origin import Problem
from licet.core.policy.bundle import Bundle, Roster
from licet.core.policy.effects import ELEVATED, EffectClass, Level
from licet.core.policy.layer import distinct
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission
from licet.core.policy.tool import ToolSpec

_MOST_NAMED = 5  # how many tools one fix lists for removal from a bundle
Admissions = Mapping[str, tuple[Admission, ...]]


def bundles_with(manifest: Manifest, tool: str) -> tuple[Bundle, ...]:
    """The bundles of the workspace that contain a tool, assigned or not."""
    return manifest.bundles_by_tool.get(tool, ())


def call_denials(manifest: Manifest, tool: str) -> tuple[Ground, ...]:
    """One reason for each deny in a file of calls of a tool; empty if there is none."""
    return distinct(
        tuple(
            Ground("TOOL_NOT_IN_BUNDLE", f"denied by {rule.capability}", rule.origin, remove(rule), f"tool:call:{tool}")
            for rule in manifest.tool_denies
            if rule.capability.key in (tool, TOP)
        )
    )


class _Step(Struct, frozen=True):
    """The edit that one ceiling needs before a tool is admitted, and why it is needed."""

    roster: Roster
    why: str
    fix: str


def admission_grounds(manifest: Manifest, tool: str) -> tuple[Ground, ...]:
    """Why a tool is not admitted: one reason for each ceiling that must change."""
    return tuple(
        Ground("TOOL_NOT_IN_BUNDLE", step.why, step.roster.named.get(tool, step.roster.origin), step.fix)
        for step in _steps(manifest, tool)
    )


def admissions_if_admitted(manifest: Manifest, tool: str) -> tuple[Admission, ...]:
    """The admissions that a tool would have after the fixes of `admission_grounds`."""
    bundle = _nearest_bundle(manifest, tool)
    return (
        (bundle.admission, *manifest.unassigned.get(tool, ())) if bundle is not None else (Admission(manifest.origin),)
    )


def bundle_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about each tool that is named while none of its bundles is assigned: its calls are refused."""
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
        why = f"`{tool}` is in no bundle assigned to the agent `{manifest.agent}`"
        return tuple(_Step(roster, why, _name_fix(roster, tool)) for roster in rosters if tool not in roster.named)
    missing = [roster for roster in rosters if bundle.name not in roster.assigned]
    unnamed = [roster for roster in missing if tool not in roster.named]
    steps = []
    if missing and len(missing) == len(rosters):  # no ceiling assigns it: prefer one that does not name the tool either
        assigner = (unnamed or missing)[0]
        why = f"`{tool}` is in the bundle `{bundle.name}`, which is not assigned to the agent `{manifest.agent}`"
        steps.append(_Step(assigner, why, _assign_fix(manifest, assigner, bundle)))
        unnamed = [roster for roster in unnamed if roster is not assigner]
    for roster in unnamed:
        why = f"{roster.title} neither assigns the bundle `{bundle.name}` nor names `{tool}`"
        steps.append(_Step(roster, why, _name_fix(roster, tool)))
    return tuple(steps)


def _nearest_bundle(manifest: Manifest, tool: str) -> Bundle | None:
    """The bundle to assign for a tool: one that is assigned already, or else the one with the fewest other tools."""
    candidates, assigned = bundles_with(manifest, tool), manifest.assigned_bundles
    fitting = [bundle for bundle in candidates if bundle.name in assigned] or candidates
    return min(fitting, key=lambda one: (len(_overlaps(manifest, one, manifest.rosters)), len(one.tools)), default=None)


def _name_fix(roster: Roster, tool: str) -> str:
    return f"add `{tool}` under `{roster.tools_key}` in {roster.origin.file}"


def _assign_fix(manifest: Manifest, roster: Roster, bundle: Bundle) -> str:
    steps = [f"add `{bundle.name}` under `{roster.prefix}bundles` in {roster.origin.file}"]
    # A manifest does not load if it assigns two bundles with the same tool.
    twice = _overlaps(manifest, bundle, (roster,))
    where = f"from `bundles.{bundle.name}.tools` in {bundle.origin.file}"
    steps += [f"remove `{tool}` {where}" for tool in twice[:_MOST_NAMED]]
    if len(twice) > _MOST_NAMED:
        steps.append(f"and remove {len(twice) - _MOST_NAMED} more that are in another assigned bundle {where}")
    return "; ".join(steps)


def _overlaps(manifest: Manifest, bundle: Bundle, rosters: tuple[Roster, ...]) -> tuple[str, ...]:
    """The tools of a bundle that are also in another bundle that one of these ceilings assigns."""
    # Cached, because a file may name thousands of tools of a bundle that has thousands.
    cached: dict[object, tuple[str, ...]] = manifest._cache.setdefault("overlaps", {})
    key = bundle.name, *(roster.assigned for roster in rosters)
    if key not in cached:
        others = {name for roster in rosters for name in roster.assigned} - {bundle.name}
        taken = {tool for name in others if name in manifest.bundles for tool in manifest.bundles[name].tools}
        cached[key] = tuple(tool for tool in bundle.tools if tool in taken)
    return cached[key]


def elevated_grounds(
    manifest: Manifest,
    spec: ToolSpec,
    admissions: tuple[Admission, ...],
    effect: EffectClass | None,
    level: Level | None,
) -> Iterator[Ground]:
    """Why a tool of class `full` or `destructive` cannot be called: it needs a walled level and a budget."""
    if effect not in ELEVATED:
        return
    if level == "native":
        text = f"class {effect} needs the level restricted or isolated"
        yield Ground("SIDE_EFFECT_EXCEEDED", text, spec.origin, wall(admissions), "sandbox native")
    if not manifest.own.budget:  # one of an organisation only narrows
        text = f"class {effect} needs a budget"
        yield Ground("SIDE_EFFECT_EXCEEDED", text, manifest.origin, add_budget(manifest), "side_effect_class")
