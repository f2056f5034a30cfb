"""The manifest that fits some tools exactly: every scope they need under the key it belongs to, and nothing else.

Which words and comments the file has is in `manifest_text`; nothing is read or written here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from licet.core import network
from licet.core.capability import Capability
from licet.core.domain import DOMAINS
from licet.core.effects import CLASSES, WRITES, EffectClass, permits
from licet.core.entries import target_of
from licet.core.foreseen import LOOPBACK, on_this_machine
from licet.core.keys import KEY_OF
from licet.core.manifest import OWN_STORAGE
from licet.core.scope import TOP, path_ancestors
from licet.core.set import CapabilitySet
from licet.core.tool import ToolSpec

_FS = DOMAINS["fs"].actions
_PERSONALITY = Capability("storage:*:personality")
_IN_EVERY_CEILING = CapabilitySet(OWN_STORAGE)
_HOSTS = "destinations.allow"


@dataclass(slots=True)
class Fit:
    """The lists of a manifest: under each key the items, each with the tools that need it, and the tools that defer."""

    items: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    deferring: dict[str, list[str]] = field(default_factory=dict)  # by key: tools that take whatever is listed there
    versions: dict[str, list[str]] = field(default_factory=dict)  # by connector; an empty one is any version

    def put(self, key: str, item: str, tool: str) -> None:
        """Note that a tool needs an item under a key."""
        tools = self.items.setdefault(key, {}).setdefault(item, [])
        if tool not in tools:
            tools.append(tool)

    def defer(self, key: str, tool: str) -> None:
        """Note that a tool takes whatever a key allows."""
        tools = self.deferring.setdefault(key, [])
        if tool not in tools:
            tools.append(tool)


def exact_fit(specs: Iterable[ToolSpec]) -> Fit:
    """Everything that some tools declare, sorted into the lists of a manifest; what is optional is marked so."""
    specs = list(specs)
    admitted = {spec.name for spec in specs}
    fit = Fit()
    for spec in specs:
        more = [rule for rule in spec.optional.allow if not CapabilitySet((rule,)) <= spec.needs]
        _put_rules(fit, spec, spec.needs.allow, spec.name, admitted)
        _put_rules(fit, spec, more, f"{spec.name} (optional)", admitted)
    return fit


def _put_rules(fit: Fit, spec: ToolSpec, rules: Sequence[Capability], label: str, admitted: set[str]) -> None:
    """Note each rule under its key, with a label that says which tool declares it and how."""
    for rule in rules:
        match rule.domain:
            case "fs":
                continue  # write and delete of one path are one entry, so paths are looked at together
            case "network":
                _put_network(fit, rule, label)
            case "storage":
                _put_storage(fit, rule, label)
            case "tool":
                if not rule.defers and rule.key not in admitted:
                    fit.put("grants", str(rule), label)
            case "connector":
                _put_connector(fit, rule, spec, label)
            case domain:
                _put_named(fit, KEY_OF[f"{domain}:{rule.action}"], rule, label)
    _put_paths(fit, rules, label)


def strongest_class(specs: Iterable[ToolSpec]) -> EffectClass:
    """The class that a manifest must allow for some tools; one that states none gets the weakest."""
    return max((spec.effect or CLASSES[0] for spec in specs), key=CLASSES.index, default=CLASSES[0])


def may_write(spec: ToolSpec) -> bool:
    """Whether a tool could hold a write, so that its calls would ask."""
    named_tcp = CapabilitySet(rule for rule in spec.touches.allow if rule.atoms == network.TCP)
    return bool(spec.touches & permits(spec.effect or CLASSES[0], named_tcp) & WRITES)


def _put_network(fit: Fit, rule: Capability, tool: str) -> None:
    if on_this_machine(rule.key):  # no call goes there before its addresses are opened
        for addresses in LOOPBACK:
            fit.put("private", addresses, tool)
    if rule.defers:
        fit.defer(_HOSTS, tool)
    elif rule.atoms == network.EVERYTHING:
        fit.put(_HOSTS, target_of(rule), tool)
    else:
        fit.put("grants", str(rule), tool)


def _put_paths(fit: Fit, rules: Sequence[Capability], tool: str) -> None:
    held: dict[str, int] = {}
    for rule in rules:
        if rule.domain == "fs":
            held[rule.key] = held.get(rule.key, 0) | rule.atoms
    change = _FS["write"] | _FS["delete"]
    for path, atoms in held.items():
        if path == TOP:
            if atoms & _FS["read"]:
                fit.defer("fs_reach.read", tool)
            if atoms & change:
                fit.defer("fs_reach.write", tool)
            continue
        for above in path_ancestors(path)[1:-1]:  # a directory above it says that already
            atoms &= ~held.get(above, 0)
        if atoms & _FS["read"]:
            fit.put("fs_reach.read", path, tool)
        if atoms & change == change:
            fit.put("fs_reach.write", path, tool)
        elif atoms & change:
            action = "write" if atoms & _FS["write"] else "delete"
            fit.put("grants", f"fs:{action}:{path}", tool)


def _put_storage(fit: Fit, rule: Capability, tool: str) -> None:
    if rule == _PERSONALITY:
        fit.put("storage", "personality", tool)
    elif rule.defers:
        fit.defer("storage", tool)
    elif not _IN_EVERY_CEILING.has(rule):
        fit.put("grants", str(rule), tool)


def _put_connector(fit: Fit, rule: Capability, spec: ToolSpec, label: str) -> None:
    if rule.defers:
        fit.defer("connectors", label)
        return
    fit.put("connectors", rule.key, label)
    version = spec.connector.version if spec.connector and spec.connector.name == rule.key else ""
    versions = fit.versions.setdefault(rule.key, [])
    if version not in versions:
        versions.append(version)


def _put_named(fit: Fit, key: str, rule: Capability, tool: str) -> None:
    if rule.defers:
        fit.defer(key, tool)
    else:
        fit.put(key, rule.scope, tool)
