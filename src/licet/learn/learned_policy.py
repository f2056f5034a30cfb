"""Compares what recordings say with a policy that is there: which lines it lacks, and what it allows without use."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.fixes import call_denials
from licet.core.policy.layer import CLASSES, Rule, class_fits
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.core.review.recording_lines import Recorded, use_of_text
from licet.core.review.sensitive import Whereabouts, why_sensitive
from licet.learn.inside_https import mere_tunnels
from licet.learn.learn import Learned, LeftOut, Line

_CEILINGS = ("manifest", "personality")
# What a recording shows, by its source. None shows which variables a program reads, or what licet stores for a tool;
# that of a gateway does not show what the processes of servers do.
SEEN = {
    "program": frozenset({"fs", "network", "process", "socket"}),
    "gate": frozenset({"fs", "network", "process", "secret", "tool"}),
    "gateway": frozenset({"tool"}),
}


def denied_by(manifest: Manifest) -> CapabilitySet:
    """What a policy denies by name, or licet for it, as a set that has it."""
    return CapabilitySet(rule.capability for layer in manifest.layers for rule in layer.denies)


def lacking(learned: Learned, manifest: Manifest) -> tuple[Line, ...]:
    """The lines that a policy does not have yet. What it allows by other lines it has."""
    ceilings = [layer for layer in manifest.layers if layer.kind in _CEILINGS]
    allowed = CapabilitySet(rule.capability for layer in ceilings for rule in layer.allows)
    admitted = CapabilitySet(f"tool:call:{name}" for name in manifest.admissions)
    denied = denied_by(manifest)
    known = {"allow": allowed | admitted, "sensitive": allowed, "deny": denied}
    return tuple(line for line in learned.lines if not known[line.kind].has(line.rule))


class Unused(Struct, frozen=True):
    """One line of a policy that no recorded use needed."""

    text: str
    place: str


def unused_rules(
    manifest: Manifest, recorded: Recorded, seen: Iterable[str], also: Iterable[str] = ()
) -> tuple[Unused, ...]:
    """What a policy allows that nothing used, of the domains that the recordings show. One line counts as one.

    `also` are uses that the recordings have without a line, such as the command itself.
    """
    domains = frozenset(seen)
    lines: dict[tuple[str, str], list[Rule]] = {}
    index: dict[tuple[str, str], list[tuple[Rule, tuple[str, str]]]] = {}
    for layer in manifest.layers:
        for rule in layer.allows if layer.kind in _CEILINGS else ():
            if rule.capability.domain in domains and rule.capability.domain != "tool":
                line = rule.origin.full, rule.key
                lines.setdefault(line, []).append(rule)
                index.setdefault((rule.capability.domain, rule.capability.key), []).append((rule, line))
    used: set[tuple[str, str]] = set()
    moot = mere_tunnels(recorded)
    for use in chain((use for use, _ in recorded.used.values() if use not in moot), map(use_of_text, also)):
        for key in use.keys:
            for rule, line in index.get((use.domain, key), ()):
                if rule.capability.atoms & use.kind.atom and rule.capability.port in (None, use.port):
                    used.add(line)
    found = [
        Unused(str(rules[0].unexpanded or rules[0].capability), place) for (place, _), rules in _without(lines, used)
    ]
    if "tool" in domains:
        called = {text for text in recorded.used if text.startswith("tool:")}
        found += [
            Unused(f"tool:call:{name}", admissions[0].origin.full)
            for name, admissions in manifest.admissions.items()
            if f"tool:call:{name}" not in called and not call_denials(manifest, name)
        ]
    return tuple(found)


def _without(
    lines: Mapping[tuple[str, str], list[Rule]], used: set[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], list[Rule]]]:
    return ((line, rules) for line, rules in lines.items() if line not in used)


_DECLARED = "declared by"

# Tools ----------------------------------------------------------------------------------------------------------------


def with_tools(learned: Learned, recorded: Recorded, manifest: Manifest, where: Whereabouts) -> Learned:
    """Add what the tools that were called need: a gate takes a tool only if all that it declares is allowed.

    A tool that needs something sensitive, or a class above `write_limited`, becomes a comment too.
    """
    lines: dict[tuple[str, Capability], Line] = {(line.kind, line.rule): line for line in learned.lines}
    left_out, effect = list(learned.left_out), learned.effect
    for text, (use, calls) in sorted(recorded.used.items()):
        name, rule = use.target, Capability(text) if use.domain == "tool" else None
        if rule is None or name in manifest.admissions:
            continue
        bundles = manifest.bundles_by_tool.get(name)
        if bundles:
            lines.pop(("allow", rule), None)
            left_out.append(LeftOut(text, f"it is in the bundle `{bundles[0].name}`: assign that under `bundles`"))
            continue
        spec = manifest.tools.get(name)
        if spec is None:
            continue
        why = _why_not(spec, where)
        if why:
            line = lines.pop(("allow", rule), None) or Line(rule, calls.text("call"))
            lines["sensitive", rule] = replace(line, kind="sensitive", why=why)
            continue
        effect = max(effect, spec.effect or "read_only", key=CLASSES.index)
        for need in spec.needs.allow:
            if not need.defers:
                lines.setdefault(("allow", need), Line(need, f"{_DECLARED} {name}, which was called"))
    declared = CapabilitySet(line.rule for line in lines.values() if line.calls.startswith(_DECLARED))
    lines = {
        key: line
        for key, line in lines.items()
        if line.kind != "allow" or line.calls.startswith(_DECLARED) or not declared.has(line.rule)
    }
    ordered = tuple(sorted(lines.values(), key=lambda line: (line.kind, line.rule)))
    return replace(learned, lines=ordered, left_out=tuple(left_out), effect=effect)


def _why_not(spec: ToolSpec, where: Whereabouts) -> str:
    if spec.effect is not None and not class_fits(spec.effect, "write_limited"):
        return f"its class is {spec.effect}"
    for need in spec.needs.allow:
        why = "" if need.defers else _why_need(need, where)
        if why:
            return f"it needs {need}: {why}"
    return ""


def _why_need(need: Capability, where: Whereabouts) -> str:
    """Why a declared need is sensitive. A pattern of names is not, if the names below it are public."""
    if need.domain == "secret":
        return "a secret"
    if need.domain == "fs" and need.action != "delete":
        action = "read" if need.action == "read" else "write"
        return why_sensitive(use_of_text(f"fs:{action}:{need.key or '/'}"), where)
    if need.domain == "env":
        return why_sensitive(Use(f"env:read:{need.key}"), where) if need.key else "every variable"
    if need.domain == "network" and need.key:
        return why_sensitive(Use(f"network:https:get@{'x' * need.key.startswith('.')}{need.key}"), where)
    return ""
