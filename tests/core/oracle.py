"""A naive reference for decisions: the rules of the design one after the other, on plain values.

It uses single rules of the algebra (which are checked against `naive`), but not the code that combines layers.
"""

from collections.abc import Iterable
from functools import cache

from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.connector import ConnectorRef
from licet.core.policy.layer import Layer
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission
from licet.core.policy.tool import ToolSpec

from .naive import EFFECT_OF, universe

CLASSES = ("read_only", "write_limited", "full", "destructive")
LEVELS = ("restricted", "isolated", "native")
APPROVALS = ("call", "session", "manifest")
# The versions that the random connectors have, told apart by hand.
_IN_RANGE = {("", ""), ("", "2.1"), (">=2.0", "2.1")}


@cache
def all_uses(domain: str) -> tuple[Use, ...]:
    """Every use of a domain that small rules can tell apart."""
    return tuple(Use(use.text) for use in universe(domain))


@cache
def covers(rule: Capability, use: Use) -> bool:
    """Whether one rule covers one use."""
    return CapabilitySet([rule]).has(use)


def effect_of(use: Use) -> str:
    """What a use does to the world: `read`, `write`, `delete`, `other` or `tcp`."""
    if use.domain == "network":
        return "tcp" if use.action == "tcp" else EFFECT_OF[use.method]
    if use.domain == "storage":
        return "write" if (use.action, use.target) == ("write", "personality") else "read"
    if use.domain == "socket":
        return "other"
    return use.action if use.domain == "fs" else "read"


def class_permits(effect: str, use: Use, tcp_is_named: bool) -> bool:
    """The table of classes."""
    match effect_of(use):
        case "read":
            return True
        case "write":
            return effect != "read_only"
        case "tcp":
            return effect in ("full", "destructive") or (effect == "write_limited" and tcp_is_named)
        case _:
            return effect in ("full", "destructive")


def layer_allows(layer: Layer, use: Use) -> bool:
    """Whether a layer's rules cover a use, denies left aside."""
    return use.domain in layer.silent or any(covers(rule.capability, use) for rule in layer.allows)


def layer_denies(layer: Layer, use: Use) -> bool:
    """Whether a layer denies a use."""
    return any(covers(rule.capability, use) for rule in layer.denies)


def layers_of(manifest: Manifest, name: str) -> tuple[Layer, ...]:
    """Every list of rules that a use of a tool must pass."""
    return (*manifest.layers, *(admission.layer for admission in manifest.admissions[name] if admission.layer))


def names_tcp(manifest: Manifest, use: Use) -> bool:
    """Whether each ceiling allows a connection by a rule that says `tcp`."""
    ceilings = [layer for layer in manifest.layers if layer.kind in ("manifest", "personality")]
    return bool(ceilings) and all(
        any(str(rule.capability).startswith("network:tcp:") and covers(rule.capability, use) for rule in layer.allows)
        for layer in ceilings
    )


def connector_admitted(manifest: Manifest, ref: ConnectorRef) -> bool:
    """Whether tenant, app and each profile list a connector at its version, and the app does not deny it."""
    lists = manifest.connectors
    wanted = [lists.tenant, *lists.profiles, *([] if lists.app is None else [lists.app])]
    listed = all(
        any(line.name == ref.name and (line.versions, ref.version) in _IN_RANGE for line in one) for one in wanted
    )
    return listed and all(line.name != ref.name for line in lists.app_deny)


def stated_class(spec: ToolSpec, admissions: tuple[Admission, ...]) -> str | None:
    """The class of a tool: its own, or the tightest that its admissions state."""
    stated: list[str] = [effect for admission in admissions for effect, _ in admission.effects]
    return spec.effect or min(stated, key=CLASSES.index, default=None)


def stated_level(spec: ToolSpec, admissions: tuple[Admission, ...]) -> str | None:
    """The level of a tool: its own, or the tightest that its admissions state."""
    stated: list[str] = [level for admission in admissions for level, _ in admission.levels]
    return spec.sandbox or min(stated, key=LEVELS.index, default=None)


def denied(manifest: Manifest, name: str) -> bool:
    """Whether a deny of a layer names calls of the tool, or of every tool."""
    said = (str(rule.capability) for layer in manifest.layers for rule in layer.denies)
    return any(text in (f"tool:call:{name}", "tool:call:*") for text in said)


def callable_at_all(manifest: Manifest, name: str) -> bool:
    """Whether the tool itself can be called, whatever it uses."""
    spec, admissions = manifest.tools.get(name), manifest.admissions.get(name)
    if spec is None or admissions is None or denied(manifest, name):
        return False
    effect, level = stated_class(spec, admissions), stated_level(spec, admissions)
    if effect is None or level is None:
        return False
    tops: list[str] = [top.effect for top in manifest.max_effects] or ["read_only"]
    tops += [stated for admission in admissions for stated, _ in admission.effects]
    if any(CLASSES.index(effect) > CLASSES.index(top) for top in tops):
        return False
    if any(LEVELS.index(level) > LEVELS.index(top) for admission in admissions for top, _ in admission.levels):
        return False
    if level == "native" and (name not in manifest.native or effect in ("full", "destructive")):
        return False
    budget = manifest.budget
    calls, money = (
        (budget.max_calls_per_session, budget.max_calls_per_day),
        (budget.max_cost_usd, budget.max_cost_usd_per_day),
    )
    if effect in ("full", "destructive") and all(key is None for key in (*calls, *money)):
        return False
    named = [need.scope for need in spec.needs.allow if need.domain == "connector" and need.scope != "*"]
    refs = {name: ConnectorRef(name) for name in named}
    if spec.connector:
        refs[spec.connector.name] = spec.connector
    return all(connector_admitted(manifest, ref) for ref in refs.values())


def may_use(manifest: Manifest, name: str, use: Use) -> bool:
    """Whether a callable tool may do a use, with or without an approval."""
    spec, admissions = manifest.tools[name], manifest.admissions[name]
    if not any(covers(need, use) for need in spec.needs.allow):
        return False
    if use.domain == "connector":
        ref = spec.connector if spec.connector and spec.connector.name == use.target else ConnectorRef(use.target)
        if not connector_admitted(manifest, ref):
            return False
    effect = stated_class(spec, admissions)
    return (
        effect is not None
        and class_permits(effect, use, names_tcp(manifest, use))
        and all(layer_allows(layer, use) and not layer_denies(layer, use) for layer in layers_of(manifest, name))
    )


def holds_a_write(manifest: Manifest, name: str) -> bool:
    """Whether a call of a tool could change anything outside its own stores."""
    return any(
        effect_of(use) != "read" and may_use(manifest, name, use)
        for domain in ("fs", "network", "storage")
        for use in all_uses(domain)
    )


def delete_mode(manifest: Manifest) -> str:
    """When deletes of files ask; without a standing approval, `manifest` means `session`."""
    mode = manifest.approvals.delete
    return "session" if mode == "manifest" and manifest.standing is None else mode


def is_free_delete(manifest: Manifest, name: str, use: Use) -> bool:
    """Whether a use is a delete that does not ask on its own."""
    return (use.domain, use.action) == ("fs", "delete") and delete_mode(manifest) != "call"


def asks(manifest: Manifest, name: str) -> bool:
    """Whether every call of a callable tool needs an approval."""
    admissions = manifest.admissions[name]
    asked = min((admission.approval or manifest.approvals.write for admission in admissions), key=APPROVALS.index)
    if asked == "manifest" and not manifest.pinned:
        asked = "session"
    destructive = stated_class(manifest.tools[name], admissions) == "destructive"
    deletes = delete_mode(manifest) == "session" and any(
        is_free_delete(manifest, name, use) and may_use(manifest, name, use) for use in all_uses("fs")
    )
    return destructive or deletes or (asked != "manifest" and holds_a_write(manifest, name))


def within_budget(manifest: Manifest, name: str) -> bool:
    """Whether the budgets allow the first call of a session and day."""
    spec, admissions, budget = manifest.tools[name], manifest.admissions[name], manifest.budget
    cost = spec.cost_usd or 0
    calls = [budget.max_calls_per_session, budget.max_calls_per_day, *(admission.max_calls for admission in admissions)]
    money = [budget.max_cost_usd, budget.max_cost_usd_per_day, *(admission.max_cost_usd for admission in admissions)]
    enough = all(limit is None or limit >= 1 for limit in calls)
    return enough and all(limit is None or limit >= cost for limit in money)


def verdicts(manifest: Manifest, name: str, uses: Iterable[Use]) -> dict[Use, str]:
    """The verdict on a call in a new session, for each of these uses."""
    if not callable_at_all(manifest, name) or not within_budget(manifest, name):
        return dict.fromkeys(uses, "deny")
    effect = stated_class(manifest.tools[name], manifest.admissions[name])
    always = asks(manifest, name)
    found = {}
    for use in uses:
        one_by_one = effect == "full" and effect_of(use) == "delete" and not is_free_delete(manifest, name, use)
        allowed = "ask" if always or one_by_one else "allow"
        found[use] = allowed if may_use(manifest, name, use) else "deny"
    return found
