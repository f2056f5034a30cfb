"""What one tool may do under one manifest: its needs, its class and all layers, combined once into a `Reach`.

- `grounds` are the reasons why the tool cannot be called at all, for registration.
- `grant` is what each call holds.
- `grounds_of` and `obstacles_of` are the rules that allow or refuse one use, and where they are written, for reviews.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import ClassVar

from msgspec.structs import replace

from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.scope import visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.fixes import (
    add_need,
    add_to_layer,
    admission_grounds,
    admissions_if_admitted,
    bundles_with,
    call_denials,
    declare,
    declared_so,
    delegate,
    elevate,
    elevated_grounds,
    lower_class,
    narrowest,
    raise_class,
    remove,
    state_class,
    state_level,
    tools_key,
    wall,
)
from licet.core.decision.folding import (
    CEILINGS,
    bundles_of,
    common_of,
    connector_ground,
    connector_grounds,
    delete_approval,
)
from licet.core.decision.request import REASON_OF_DOMAIN, Ground, Reason
from licet.core.policy.layer import (
    CLASSES,
    ELEVATED,
    FILE_DELETES,
    LEVELS,
    EffectClass,
    Layer,
    Level,
    class_fits,
    distinct,
    level_fits,
    named_tcp,
    permits,
    weakest_class,
)
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import (
    WRITE_APPROVALS,
    Admission,
    Approvals,
    Bundle,
    MaxEffect,
    Natives,
    StandingApproval,
    WriteApproval,
    approvals_of,
    least,
)
from licet.core.policy.tool import ToolSpec
from licet.core.values import Compared, Origin

_CLASS: Reason = "SIDE_EFFECT_EXCEEDED"


class Reach(Compared, frozen=True):
    """One tool under one manifest: its grant, and the reasons why it cannot be called."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"manifest"})

    spec: ToolSpec
    admissions: tuple[Admission, ...]
    layers: tuple[Layer, ...]
    manifest: Manifest
    effect: EffectClass | None
    level: Level | None
    permitted: CapabilitySet
    grant: CapabilitySet
    grounds: tuple[Ground, ...]  # why it cannot be called at all; empty if it can
    approval: WriteApproval | None  # when a call needs an approval; None if it needs none
    approved_by: str  # what pins the file that approves its writes; empty if it has no writes, or a person approves
    max_calls: int | None
    max_cost_usd: Decimal | None
    approvals: Approvals  # of the manifest and the bundles together
    bundles: tuple[Bundle, ...]  # the bundles that admit it
    delete_approval: WriteApproval | None  # when deletes of files ask; None if its class has no deletes
    free_deletes: CapabilitySet  # the deletes of files that do not ask one by one
    unlimited: bool  # neither a budget nor a limit of the tool applies

    def grounds_of(self, use: Use) -> tuple[Ground, ...]:
        """The rules that allow a use: the need of the tool, then the nearest rules of each layer."""
        grounds = [
            Ground("ALLOWED", f"`{self.spec.name}` needs {need}", self.spec.origin)
            for need in self.spec.needs.covering(use)
        ]
        grounds = grounds or [
            Ground("ALLOWED", f"`{self.spec.name}` may use {rule}", self.spec.origin)
            for rule in self.spec.optional.covering(use)
        ]
        for layer in self.layers:
            grounds += [Ground("ALLOWED", str(rule.capability), rule.origin) for rule in layer.nearest_allows(use)]
        if self.free_deletes.has(use):
            by = f", standing approval {self.standing.id}" if self.standing is not None else ""
            grounds.append(Ground("ALLOWED", f"`approvals.delete: {self.delete_approval}`{by}", self.delete_origin))
        return tuple(grounds)

    def obstacles_of(self, use: Use) -> tuple[Ground, ...]:
        """Every reason why a use is refused, each with its fix; empty if the use is allowed."""
        grounds = tuple(self._obstacles_of(use))
        if self._is_unnamed(use):
            # The rule that names a host and port is what the class asks for, too: that it is missing is the reason.
            others = tuple(ground for ground in grounds if ground.reason != _CLASS)
            grounds = others if {*self._naming(use)} <= {ground.fix for ground in others} else grounds
        closed = any(layer.allowed.verdict(use) is False for layer in self.layers if layer.kind == "protected paths")
        # No edit of a file would make a policy file writable, so there is no fix.
        return tuple(replace(ground, fix="") for ground in grounds) if closed else grounds

    def _obstacles_of(self, use: Use) -> Iterator[Ground]:
        reason, roots = REASON_OF_DOMAIN[use.domain], self.manifest.roots
        wanted = self.wanted(use)
        if not self.spec.touches.has(use):
            # The key of the tool may mean more than the use. Then a layer that allows the use must allow the rest too.
            narrow = [one for one in self.layers if one.allowed.verdict(use) and not _takes(one, wanted)]
            steps = (add_to_layer(layer, wanted, self.spec, roots, use) for layer in narrow)
            fix = "; ".join((add_need(use, self.spec, roots), *steps))
            yield Ground(reason, f"`{self.spec.name}` does not declare it", self.spec.origin, fix)
        if self.effect and not self.permitted.has(use):
            text = f"{_act(use)} is not permitted to class {self.effect}"
            if self._is_unnamed(use):
                text = f"class {self.effect} permits {_act(use)} only where a rule names its host and port"
            yield Ground(_CLASS, text, self.class_origin, self._stronger(use))
        for layer in self.layers:
            denies = layer.denies_of(use)
            if layer.kind == "protected paths":
                yield from (Ground(reason, rule.key) for rule in denies)  # a sentence, such as `layer.POLICY`
                continue
            if layer.allowed.verdict(use) is False:
                for rule in denies:
                    yield Ground(reason, f"denied by {rule.capability}", rule.origin, remove(rule))
            if not layer.without_denies.has(use):
                listed = self._connector_ground(use) if layer.kind == "connectors" else None
                text, fix = f"{layer.title} does not allow it", add_to_layer(layer, wanted, self.spec, roots, use)
                yield listed or Ground(reason, text, layer.origin, fix)
        if not any(layer.kind in CEILINGS for layer in self.layers):
            yield Ground(reason, "no manifest allows anything")

    def _connector_ground(self, use: Use) -> Ground | None:
        return connector_ground(self.manifest, self.bundles, self.spec, use.target)

    @property
    def asks_deletes(self) -> bool:
        """Whether the approval of a call covers deletes of files, which then do not ask one by one."""
        return self.delete_approval == "session" and bool(self.free_deletes)

    @property
    def asks_deletes_alone(self) -> bool:
        """Whether a call asks a person about deletes of files, and about nothing else."""
        return self.asks_deletes and bool(self.approved_by)

    @property
    def without_approved_deletes(self) -> "Reach":
        """The same reach for a call that runs though nobody has approved its deletes: each asks, or is judged."""
        if not self.asks_deletes_alone:
            return self
        return replace(self, approval=None, delete_approval="call", free_deletes=CapabilitySet())

    @property
    def judged_deletes(self) -> CapabilitySet:
        """The deletes of files that nobody has approved: a program removes there only what it has made itself."""
        is_judged = self.effect == "full" and not self.free_deletes
        return self.grant & FILE_DELETES if is_judged else CapabilitySet()

    @property
    def standing(self) -> StandingApproval | None:
        """The standing approval that covers its deletes; None if there is none, or they ask in another way."""
        return self.manifest.standing if self.delete_approval == "manifest" and self.free_deletes else None

    @property
    def delete_origin(self) -> Origin:
        """Where the value of `approvals.delete` that counts is written, or should be."""
        own, places = self.manifest.approvals.delete, self.manifest.places
        for bundle in self.bundles if own != self.approvals.delete else ():
            if bundle.approvals.get("delete") == self.approvals.delete:
                return bundle.place("approvals.delete")
        return places.get("approvals.delete", places.get("approvals", self.manifest.origin))

    def wanted(self, use: Use) -> tuple[Capability, ...]:
        """The rules that each layer must allow before a use is possible: the needs for it, declared already or not."""
        if not self.spec.touches.has(use):
            return declared_so(use, self.spec)
        needs = () if self.manifest.narrow else self.spec.needs.covering(use)
        required = tuple(need for need in needs if not need.defers)
        return required or tuple(rule for rule in (narrowest(use),) if rule)

    @property
    def _stating(self) -> tuple[Admission, ...]:
        """All that states a class for the tool: its admissions, and the definitions of its connectors as admissions."""
        known = self.manifest.definitions
        defined = (known[name].effects for name in sorted(self.spec.named_connectors) if name in known)
        return *self.admissions, *(Admission(self.manifest.origin, effects=effects) for effects in defined)

    @property
    def class_origin(self) -> Origin | None:
        """Where the class that the tool runs at is stated."""
        if self.spec.effect == self.effect:
            return self.spec.origin
        stated = [pair for admission in self._stating for pair in admission.effects] + [
            (top.effect, top.origin) for top in self.manifest.max_effects
        ]
        return next((origin for effect, origin in stated if effect == self.effect), self.spec.origin)

    def _stronger(self, use: Use) -> str:
        """The edits after which the class of the tool permits a use."""
        wanted, steps = weakest_class(use, tcp_named=True), self._naming(use)
        if self.effect and not class_fits(wanted, self.effect):
            # The class of any command is that of the manifest: nothing declares it as a tool.
            spec = replace(self.spec, effect=None) if self.spec.origin == self.manifest.origin else self.spec
            steps.append(raise_class(spec, self._stating, self.manifest.max_effects, wanted))
            steps += elevate(self.manifest, self.admissions, self.level, wanted)
        return "; ".join(steps)

    def _naming(self, use: Use) -> list[str]:
        """The edits after which every ceiling names an unmediated connection; none for another use."""
        if use.action != "tcp":
            return []
        unnamed = [layer for layer in self.layers if layer.kind in CEILINGS and not named_tcp(layer).has(use)]
        exact = [rule for rule in (narrowest(use),) if rule]
        return [add_to_layer(layer, exact, self.spec, self.manifest.roots, use) for layer in unnamed]

    def _is_unnamed(self, use: Use) -> bool:
        """Whether this is a connection that the class permits, and that no rule names."""
        return (
            use.action == "tcp"
            and self.effect is not None
            and class_fits(weakest_class(use, tcp_named=True), self.effect)
            and not self.permitted.has(use)
        )


def reach_of(manifest: Manifest, tool: str) -> Reach | None:
    """What a tool may do under a manifest; None if the tool is unknown, not admitted or denied."""
    cached: dict[str, Reach] = manifest.cache.setdefault("reach", {})
    if tool not in cached:
        if tool not in manifest.admissions or tool not in manifest.tools or call_denials(manifest, tool):
            return None
        cached[tool] = compute_reach(manifest, manifest.tools[tool])
    return cached[tool]


def not_admitted_grounds(manifest: Manifest, tool: str, uses: tuple[Use, ...] = ()) -> tuple[Ground, ...]:
    """Why `reach_of` is None for a tool, and the further reasons why it or its uses would be refused if admitted."""
    denied, admitted = call_denials(manifest, tool), tool in manifest.admissions
    if admitted and tool not in manifest.tools:
        text, fix = f"`{tool}` is admitted, but nothing declares it", declare(manifest)
        if why := manifest.withheld.get(tool):
            text, fix = f"`{tool}` is admitted, but {why}", ""
        return (*denied, Ground("UNKNOWN_TOOL", text, manifest.admissions[tool][0].origin, fix))
    if not (bundles_with(manifest, tool) or tool in manifest.tools or tool in manifest.sources):
        text = f"`{visible(tool)}` is not known here"
        fix = f"{declare(manifest)}, and add it to a bundle or under `{tools_key(manifest)}`"
        return (Ground("UNKNOWN_TOOL", text, manifest.origin, fix),)
    call = Use(f"tool:call:{tool}")
    grounds = denied if admitted else (*denied, *admission_grounds(manifest, tool))
    grounds += tuple(_left_out(layer, tool, call) for layer in manifest.layers if _names_tools(layer, call))
    text = f"`{tool}` is in no bundle assigned to the agent `{manifest.agent}`"
    grounds = grounds or (Ground("TOOL_NOT_IN_BUNDLE", text, manifest.origin),)
    if tool not in manifest.tools:
        return grounds
    admissions = manifest.admissions[tool] if admitted else admissions_if_admitted(manifest, tool)
    reach = compute_reach(replace(manifest, admissions={tool: admissions}), manifest.tools[tool])
    later = (ground for use in uses for ground in reach.obstacles_of(use))
    return distinct((*grounds, *reach.grounds, *later))


def _names_tools(layer: Layer, call: Use) -> bool:
    """Whether a layer is a delegation that lists tools, and this tool is not among them."""
    named = any(rule.capability.domain == "tool" for rule in (*layer.allows, *layer.denies))
    return layer.kind == "delegation" and named and not layer.allowed.has(call)


def _left_out(layer: Layer, tool: str, call: Use) -> Ground:
    fixes = [remove(rule) for rule in layer.denies_of(call)]
    if not layer.without_denies.has(call):
        fixes.append(delegate(call))
    return Ground("TOOL_NOT_IN_BUNDLE", f"{layer.title} leaves `{tool}` out", layer.origin, "; ".join(fixes))


def compute_reach(manifest: Manifest, spec: ToolSpec) -> Reach:
    """Compute the reach of an admitted tool with this declaration, which may differ from the one in the manifest."""
    admissions = manifest.admissions[spec.name]
    common = common_of(manifest, admissions, spec)
    grounds: list[Ground] = []
    effect = _class_of(manifest, spec, admissions, grounds)
    bundles = bundles_of(manifest, admissions)
    grounds += connector_grounds(manifest, bundles, spec, common.layers)
    level = _level_of(manifest, spec, admissions, effect, grounds)
    grounds += elevated_grounds(manifest, spec, admissions, effect, level)
    grounds += common.unexpanded
    grant = common.grant(spec.touches, effect)
    write: WriteApproval = min(
        (admission.approval for admission in admissions if admission.approval),
        key=WRITE_APPROVALS.index,
        default=manifest.approvals.write,
    )
    if write == "manifest" and not manifest.pinned:  # a file that anyone may have changed approves nothing
        write = "session"
    writes = common.writes(spec.touches, effect)
    approvals = approvals_of(manifest, bundles)
    settled = effect in ELEVATED and approvals.delete != "call"
    free = common.file_deletes(spec.touches, effect) if settled else CapabilitySet()
    delete = delete_approval(manifest, approvals, effect, free)
    asked: list[WriteApproval] = (
        ["call"] if effect == "destructive" else [write] if writes and write != "manifest" else []
    )
    approved_by = manifest.pinned if writes and not asked else ""
    asked += ["session"] if free and delete == "session" else []
    max_calls: int | None = None
    max_cost: Decimal | None = None
    for admission in admissions:
        max_calls, max_cost = least(max_calls, admission.max_calls), least(max_cost, admission.max_cost_usd)
    unlimited = max_calls is None and max_cost is None and not manifest.budget
    return Reach(
        spec=spec,
        admissions=admissions,
        layers=common.layers,
        manifest=manifest,
        effect=effect,
        level=level,
        permitted=common.permitted(effect),
        grant=grant,
        grounds=tuple(grounds),
        approval=min(asked, key=WRITE_APPROVALS.index, default=None),
        approved_by=approved_by,
        max_calls=max_calls,
        max_cost_usd=max_cost,
        approvals=approvals,
        bundles=bundles,
        delete_approval=delete,
        free_deletes=free,
        unlimited=unlimited and not any(bundle.budget for bundle in bundles),
    )


def _class_of(
    manifest: Manifest, spec: ToolSpec, admissions: tuple[Admission, ...], grounds: list[Ground]
) -> EffectClass | None:
    """The class that a tool runs at; the reasons against this class are added to `grounds`."""
    stated = [pair for admission in admissions for pair in admission.effects]
    own = spec.effect or min((effect for effect, _ in stated), key=CLASSES.index, default=None)
    named = [
        manifest.definitions[name].effects for name in sorted(spec.named_connectors) if name in manifest.definitions
    ]
    defined = tuple(
        Admission(manifest.origin, effects=effects) for effects in named
    )  # as admissions, since both state classes
    stated += [pair for one in defined for pair in one.effects]
    if own is None:
        text = f"no class is stated for `{spec.name}`"
        grounds.append(
            Ground("SIDE_EFFECT_EXCEEDED", text, spec.origin, state_class(manifest, spec), "side_effect_class")
        )
        return None
    ceilings = [(effect, origin, "") for effect, origin in stated]
    tops = manifest.max_effects or (MaxEffect("read_only", manifest.origin, False),)
    ceilings += [(top.effect, top.origin, "" if top.stated else ", the default") for top in tops]
    if manifest.narrow:
        return min((own, *(ceiling for ceiling, _, _ in ceilings)), key=CLASSES.index)
    for ceiling, origin, why in ceilings:
        if not class_fits(own, ceiling):
            text = f"`{spec.name}` is {own}; at most {ceiling} is allowed{why}"
            least = min((one for one, _, _ in ceilings), key=CLASSES.index)
            lower = lower_class(spec, admissions, least, permits(least))
            fix = raise_class(spec, (*admissions, *defined), tops, own)
            fix = f"{lower}, or {fix}" if lower else fix
            grounds.append(Ground("SIDE_EFFECT_EXCEEDED", text, origin, fix, f"side_effect_class {own}"))
    return own


def _level_of(
    manifest: Manifest,
    spec: ToolSpec,
    admissions: tuple[Admission, ...],
    effect: EffectClass | None,
    grounds: list[Ground],
) -> Level | None:
    """The level that a tool runs at; the reasons against this level are added to `grounds`."""
    stated = [pair for admission in admissions for pair in admission.levels]
    own: Level | None = spec.sandbox or min((level for level, _ in stated), key=LEVELS.index, default=None)
    if own is None:
        text = f"no level is stated for `{spec.name}`"
        fix = state_level(manifest, spec, "restricted")
        grounds.append(Ground("SANDBOX_NOT_DECLARED", text, spec.origin, fix, "sandbox"))
        return None
    if own not in LEVELS:
        text = f"`{spec.name}` asks for the unknown level {own}"
        fix = state_level(manifest, spec, "restricted")
        grounds.append(Ground("SANDBOX_NOT_DECLARED", text, spec.origin, fix, "sandbox"))
        return None
    levels: list[Level] = [own, *(ceiling for ceiling, _ in stated)]
    level: Level = min(levels, key=LEVELS.index) if manifest.narrow else own
    # If the class needs walls, the fix must not be to allow `native`.
    walled = wall(admissions) if effect in ELEVATED and level == "native" else ""
    for ceiling, origin in stated:
        if not level_fits(level, ceiling):
            text = f"`{spec.name}` runs at {level}; at most {ceiling} is allowed"
            fix = walled or f"set `sandbox: {level}` there, or `{ceiling}` on the tool"
            grounds.append(Ground("SANDBOX_NOT_DECLARED", text, origin, fix, f"sandbox {level}"))
    if level == "native":
        for listed in manifest.natives or (Natives(frozenset(), manifest.origin),):
            if spec.name not in listed.names:
                text = f"`{spec.name}` is not named in `native`"
                fix = walled or f"add `{spec.name}` under `{listed.key}` in {listed.origin.file}"
                grounds.append(Ground("NATIVE_NOT_ALLOWED", text, listed.origin, fix, "sandbox native"))
    return level


def _takes(layer: Layer, wanted: tuple[Capability, ...]) -> bool:
    return all(map(layer.without_denies.has, wanted))


def _act(use: Use) -> str:
    if use.domain != "network":
        return f"{use.domain} {use.action}"
    if not use.method:
        return "an unmediated connection"
    return "this method" if use.method == "other" else use.method.upper()
