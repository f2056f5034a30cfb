"""Fixes: the edit that would allow a refused use, in one line.

A fix is the narrowest edit that the key of the file can express. If this allows more than the refused use, the fix has
a note in parentheses. Steps that belong together are joined by `; `.

Why a tool is not admitted, and which edit would admit it.

- If a tool is in a bundle of the workspace, one ceiling must assign the bundle, and every other ceiling must assign it
  too or name the tool.
- If a tool is in no bundle, every ceiling must name it.
- A deny of `tool:call` in any file wins over both.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from licet.core.algebra.domains import DOMAINS, EVERYTHING, PATH_DOMAINS, place_text
from licet.core.algebra.rules import Capability, Use, capability
from licet.core.algebra.scope import TOP, Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.request import Ground
from licet.core.limits import MOST_TOOLS_IN_A_FIX
from licet.core.policy.layer import ELEVATED, EffectClass, Layer, Level, Rule, class_fits, distinct, level_fits
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission, Bundle, MaxEffect, Roster
from licet.core.policy.tool import EXACT_KEY_OF, KEY_OF, ToolSpec
from licet.core.values import Problem

Roots = Mapping[str, str]  # `${workdir}` and `~`, if the files use them -> the real directory

_EVERY_PATH = "ask for something below `/`: a rule for `/` itself would allow every path"
_ANY_REQUEST = " (this key cannot say less than any connection to that port)"
_ANY_PORT = " (this key cannot say less than any connection to that host)"
_WHOLE_NEED = " (the tool needs all of this, and fits with nothing less)"
_ALSO = {"fs:write": "delete", "fs:delete": "write", "storage:read": "write", "storage:write": "read"}
_ALL_BELOW = " (no rule can name the path itself, so this is everything in the directory above it)"


class Addition(Struct, frozen=True):
    """One entry for one list of a policy file."""

    key: tuple[str, ...]
    text: str
    file: str

    def __str__(self) -> str:
        return f"add `{self.text}` under `{'.'.join(self.key)}` in {self.file}"


def add_to_layer(layer: Layer, wanted: Sequence[Capability], spec: ToolSpec, roots: Roots, use: Use | None) -> str:
    """The edit after which a layer allows the wanted rules; with a `use`, a note marks what is wider than the use."""
    steps = layer_steps(layer, wanted, spec, roots, use)
    return "; ".join(f"{step}{note}" for step, note in steps.items()) or _EVERY_PATH


def layer_steps(
    layer: Layer, wanted: Sequence[Capability], spec: ToolSpec, roots: Roots, use: Use | None
) -> dict["Addition | str", str]:
    """The edits after which a layer allows the wanted rules, each with its note. An edit in code is a text."""
    missing = [rule for rule in wanted if not layer.without_denies.has(rule)]
    exact = narrowest(use) if use else None
    steps: dict[Addition | str, str] = {}  # edit -> its note; two rules may need the same edit, which is listed once
    for rule in missing or wanted:
        note = _wider(rule, use) if use else ""
        if not note and use and rule != exact:
            note = _WHOLE_NEED
        steps.setdefault(*_add_rule(layer, rule, spec, roots, note))
    return steps


def _add_rule(layer: Layer, rule: Capability, spec: ToolSpec, roots: Roots, note: str) -> tuple[Addition | str, str]:
    if layer.kind == "delegation":
        return delegate(rule), note
    if layer.kind == "readers":
        where = f"the `readers` of the secret under `flow.secrets` in {layer.origin.file}"
        return f"add `{rule_text(rule, roots)}` to {where}", note
    if layer.kind == "allow":
        return f"add `{rule_text(rule, roots)}` to `allow`", note
    kind, everything = f"{rule.domain}:{rule.action}", rule.domain == "network" and rule.atoms == EVERYTHING
    if layer.kind in ("bundle", "workspace", "organisation"):  # these only have hosts
        key = (*_named_keys(layer), "destinations") if layer.kind == "bundle" else ("destinations", "allow")
        item, note = place_text(rule.key, rule.port), note if everything else _ANY_REQUEST if rule.port else _ANY_PORT
    elif layer.kind == "definition":  # this has hosts and secrets
        host = rule.domain == "network"
        key, item = (*_named_keys(layer), "hosts" if host else "secrets"), rule.scope
        if host:
            item = place_text(rule.key, rule.port)
            note = note if everything else _ANY_REQUEST if rule.port else _ANY_PORT
    elif everything and layer.kind == "manifest":
        key, item = ("capabilities", "destinations", "allow"), place_text(rule.key, rule.port)
    elif hosts_alone(layer, rule):
        key, item = ("safety", "network", "allow"), place_text(rule.key, rule.port)
        note = note if everything else _ANY_REQUEST if rule.port else _ANY_PORT
    elif spec.by_keys and kind in ("fs:write", "fs:delete"):
        key, item, note = _own(layer, KEY_OF[kind]), _target(rule, roots), note or _also(kind)
    elif kind in EXACT_KEY_OF:
        key, item = _own(layer, EXACT_KEY_OF[kind]), _target(rule, roots)
    else:
        key, item = _own(layer, "grants"), rule_text(rule, roots)
    return Addition(key, item, layer.origin.file), note


def _named_keys(layer: Layer) -> tuple[str, ...]:
    """The keys of a bundle or a definition, whose title is these with dots between. Its name may have dots too."""
    head = ("bundles",) if layer.kind == "bundle" else ("connectors", "definitions")
    return *head, layer.title.removeprefix(f"{'.'.join(head)}.")


def hosts_alone(layer: Layer, rule: Capability) -> bool:
    """Whether advice about a rule names a list of hosts, whose entries allow every request."""
    return layer.safety and rule.domain == "network" and rule.action != "tcp"


def delegate(what: Capability | Use) -> str:
    """The edit after which a delegation allows something; a delegation is in code, not in a file."""
    return f"add `{what}` to `allow` where the parent delegates"


def remove(rule: Rule) -> str:
    """The edit that removes a deny, with the text that the file has."""
    written = str(rule.unexpanded or rule.capability)
    if rule.key == "delegation.deny":  # in code, not in a file
        return f"remove `{written}` from `deny` where the parent delegates"
    if rule.key == "allow.deny":
        return f"remove `{written}` from the denies of `allow`"
    if rule.key.endswith(("destinations.deny", "network.deny")):
        written = written.removeprefix("network:*:").removeprefix("*@")
    if rule.key == "connectors.deny":
        written = rule.capability.scope
    return f"remove `{written}` from `{rule.key}` in {rule.origin.file}"


def add_need(use: Use, spec: ToolSpec, roots: Roots) -> str:
    """The edit after which a tool declares a use, in the notation of the tool: `capabilities=` or `needs=`."""
    where = f" in {spec.origin.file}" if spec.origin else ""
    rule = narrowest(use)
    if rule is None:
        return _EVERY_PATH
    if not spec.by_keys:
        return f"add `{rule_text(rule, roots)}` to the tool's `needs`{where}{_wider(rule, use)}"
    kind = f"{use.domain}:{use.action}"
    also = _also(kind)
    if use.domain == "network":
        return f"add `{use.target}:{use.port}` to the tool's `network.allowed_hosts`{where}{_ANY_REQUEST}"
    if use.domain == "storage" and not any(need.domain == "storage" for need in spec.needs.allow):
        return f"add `storage: {{scope: {use.target}}}` to the tool's `capabilities`{where}{also}"
    if use.domain == "connector" and spec.connector is None:
        return f'add `connector="{use.target}"` to the tool{where}'
    if kind not in KEY_OF:
        return f"declare the tool with `needs=`, since `capabilities=` cannot say `{rule}`, and add that{where}"
    return f"add `{_target(rule, roots)}` to the tool's `{KEY_OF[kind]}`{where}{_wider(rule, use) or also}"


def declared_so(use: Use, spec: ToolSpec) -> tuple[Capability, ...]:
    """The rules that a tool needs after the edit of `add_need`, which may be more than the use."""
    rule = narrowest(use)
    if rule is None:
        return ()
    if spec.by_keys and use.domain == "network":
        return (capability("network", EVERYTHING, use.keys[0], use.port),)
    if spec.by_keys and use.domain == "storage" and not any(need.domain == "storage" for need in spec.needs.allow):
        return (Capability(f"storage:*:{use.target}"),)
    if spec.by_keys and f"{use.domain}:{use.action}" in ("fs:write", "fs:delete"):
        return tuple(capability("fs", DOMAINS["fs"].actions[each], rule.key, None) for each in ("write", "delete"))
    return (rule,)


def narrowest(use: Use) -> Capability | None:
    """The narrowest rule that covers a use; None if only the rule for every path does."""
    for key in use.keys:
        if use.domain == "fs" and key == TOP:
            break
        rule = capability(use.domain, use.kind.atom, key, use.port)
        if use.domain != "fs" or _can_be_written(rule):
            return rule
    return None


def raise_class(
    spec: ToolSpec, admissions: tuple[Admission, ...], max_effects: tuple[MaxEffect, ...], wanted: EffectClass
) -> str:
    """The edit that states a stronger class in every place that needs it."""
    places = [f"`effect: {wanted}` on the tool"] if spec.effect and not class_fits(wanted, spec.effect) else []
    places += [
        f"`side_effect_class: {wanted}` ({origin})"
        for admission in admissions
        for effect, origin in admission.effects
        if not class_fits(wanted, effect)
    ]
    places += [
        f"`max_side_effect_class: {wanted}` ({top.origin})" for top in max_effects if not class_fits(wanted, top.effect)
    ]
    return "set " + " and ".join(places)


def elevate(
    manifest: Manifest, admissions: tuple[Admission, ...], level: Level | None, wanted: EffectClass
) -> list[str]:
    """The further edits that a class needs: `full` and `destructive` need a walled level and a budget."""
    if wanted not in ELEVATED:
        return []
    return [
        *([wall(admissions)] if level == "native" else []),
        *([add_budget(manifest)] if not manifest.own.budget else []),
    ]


def wall(admissions: tuple[Admission, ...]) -> str:
    """The edit that gives a tool the loosest walled level that its admissions allow."""
    fits = all(level_fits("isolated", ceiling) for admission in admissions for ceiling, _ in admission.levels)
    return f'set `sandbox="{"isolated" if fits else "restricted"}"` on the tool'


def add_budget(manifest: Manifest) -> str:
    """The edit that adds a budget."""
    kinds = {layer.kind for layer in manifest.layers}
    where = "" if "personality" in kinds and "manifest" not in kinds else " under `capabilities`"
    return f"add `budget: {{max_calls_per_session: 100}}`{where} in {manifest.origin.file}"


def settle(manifest: Manifest, admissions: tuple[Admission, ...]) -> str:
    """What an operator can do if writes need approval: approve the call, or approve writes in the file and pin it."""
    asking = [admission for admission in admissions if admission.approval not in (None, "manifest")]
    if not asking and not any(admission.approval for admission in admissions):
        asking = [Admission(manifest.origin)]
    places = [
        f"`{admission.approval_key}: manifest` in {(admission.approval_origin or admission.origin).file}"
        for admission in asking
    ]
    places += [
        f"`approvals.write: manifest` in {above.place('approvals.write').file}"
        for above in manifest.organisations
        if above.approvals.get("write") not in (None, "manifest")
    ]
    edit = f"set {' and '.join(dict.fromkeys(places))}, and " if places else ""
    return f"approve it, or {edit}{pin(manifest)}"


def pin(manifest: Manifest) -> str:
    """How a policy is pinned. A manifest with a personality can only be pinned by `Gate(pin=…)`."""
    kinds = {layer.kind for layer in manifest.layers}
    if not manifest.files or {"manifest", "personality"} <= kinds:
        return "pin the policy with `Gate(pin=…)`"
    return f"accept the policy with `licet trust {manifest.files[0]}`"


def lower_class(
    spec: ToolSpec, admissions: tuple[Admission, ...], wanted: EffectClass, permitted: CapabilitySet
) -> str:
    """The edit that states a weaker class for a tool; empty if a need of the tool is nothing at that class."""
    if not all(CapabilitySet((need,)) & permitted for need in spec.needs.allow):
        return ""
    if spec.effect:
        return f"set `effect: {wanted}` on the tool"
    places = [
        f"`side_effect_class: {wanted}` ({origin})"
        for admission in admissions
        for effect, origin in admission.effects
        if not class_fits(effect, wanted)
    ]
    return "set " + " and ".join(places) if places else ""


def stand(manifest: Manifest) -> str:
    """How a person approves the deletes of a policy until a day; empty if that is not possible for this one."""
    kinds = {layer.kind for layer in manifest.layers}
    if not manifest.files or {"manifest", "personality"} <= kinds:
        return ""
    return f"give a standing approval with `licet trust {manifest.files[0]}`, at a terminal"


def state_class(manifest: Manifest, spec: ToolSpec) -> str:
    """The edit that states a class for a tool that has none."""
    return _state(manifest, spec, "effect", "side_effect_class", "read_only")


def state_level(manifest: Manifest, spec: ToolSpec, level: Level) -> str:
    """The edit that states a level for a tool that has none."""
    return _state(manifest, spec, "sandbox", "sandbox", level)


def _state(manifest: Manifest, spec: ToolSpec, argument: str, key: str, word: str) -> str:
    own = f'`{argument}="{word}"` to the tool'
    if spec.origin is not None and spec.origin.file in manifest.files:  # declared in a policy file
        own = f"`{argument}: {word}` to `{spec.name}` under the top-level `tools` in {spec.origin.file}"
    return f"add {own}, or `{spec.name}: {{{key}: {word}}}` under `{tools_key(manifest)}`"


def tools_key(manifest: Manifest) -> str:
    """The key under which the agent's own file names the tools that it may call."""
    return manifest.rosters[0].tools_key if manifest.rosters else "capabilities.tools"


def declare(manifest: Manifest) -> str:
    """The edit that declares a tool in a policy file: the workspace, which may be the file of the agent itself."""
    own = {layer.origin.file for layer in manifest.layers if layer.kind in ("manifest", "personality")}
    shared = [file for file in manifest.files if file not in own]
    return f"declare it under the top-level `tools` in {(*shared, manifest.origin.file)[0]}"


def _own(layer: Layer, key: str) -> tuple[str, ...]:
    keys = tuple(key.split("."))
    return keys if layer.kind == "personality" else ("capabilities", *keys)


def _also(kind: str) -> str:
    return f" (this key cannot say it without {_ALSO[kind]})" if kind in _ALSO else ""


def _wider(rule: Capability, use: Use) -> str:
    exact = narrowest(use)
    return _ALL_BELOW if use.domain == "fs" and rule == exact and rule.key != use.keys[0] else ""


def _can_be_written(rule: Capability) -> bool:
    try:
        return Capability(str(rule)) == rule
    except Malformed:  # a file may be named `*`, and no rule can name that file
        return False


def rule_text(rule: Capability, roots: Roots) -> str:
    """A rule as a file has it: a path starts with `${workdir}` or `~` if the files use them."""
    return f"{rule.domain}:{rule.action}:{_target(rule, roots)}"


def _target(rule: Capability, roots: Roots) -> str:
    """The scope of a rule; a path starts with `${workdir}` or `~` if the files use them."""
    for root, directory in sorted(roots.items(), key=lambda item: -len(item[1])):
        if rule.domain not in PATH_DOMAINS:
            break
        if rule.key == directory or rule.key.startswith(f"{directory}/"):
            return root + rule.key.removeprefix(directory)
    return rule.scope


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
    steps += [f"remove `{tool}` {where}" for tool in twice[:MOST_TOOLS_IN_A_FIX]]
    if len(twice) > MOST_TOOLS_IN_A_FIX:
        steps.append(f"and remove {len(twice) - MOST_TOOLS_IN_A_FIX} more that are in another assigned bundle {where}")
    return "; ".join(steps)


def _overlaps(manifest: Manifest, bundle: Bundle, rosters: tuple[Roster, ...]) -> tuple[str, ...]:
    """The tools of a bundle that are also in another bundle that one of these ceilings assigns."""
    # Cached, because a file may name thousands of tools of a bundle that has thousands.
    cached: dict[object, tuple[str, ...]] = manifest.cache.setdefault("overlaps", {})
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
