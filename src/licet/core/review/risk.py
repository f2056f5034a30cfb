"""What a reviewer looks at first: the riskiest thing that a tool, an agent or a change can do.

`RISKS` is the one order, riskiest first. It says what code could do with what it holds, not what it will do: a tool
with one host and one secret may be the most ordinary client, and still be where a secret can leave.

Warnings about policies that allow nearly everything: ceilings of `*` and `/`, and trusted tools without bounds.

Such a policy is valid, and a gate accepts it. The warnings are for the reviewer.
"""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from licet.core.algebra import domains
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import TOP
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.fixes import add_to_layer, elevate, raise_class
from licet.core.decision.folding import CEILINGS
from licet.core.decision.reach import Reach, reach_of
from licet.core.policy.addresses import common_ranges
from licet.core.policy.layer import CLASSES, Layer, Rule, class_fits, named_tcp, permits
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.core.review.socket_power import COMMANDS, KEYS, ROOT, SCREEN, UNKNOWN, socket_power
from licet.core.values import Problem

# What an unlimited rule allows, and what to write instead. Storage, tools and connectors are listed by name.
_EVERYTHING = {
    "network": ("every host", "the hosts that its tools need, such as `api.example.com`"),
    "fs": ("every path", "the directories that its tools need, such as `${workdir}`"),
    "process": ("every program", "the programs that its tools start, such as `git`"),
    "env": ("every variable", "the variables that its tools read, such as `PATH`"),
    "secret": ("every secret", "the secrets that its tools read, such as `github/*`"),
}

_EVERY_TCP = CapabilitySet(("network:tcp:*",))


def is_wide(rule: Capability) -> bool:
    """Whether a rule allows all hosts and ports, or all paths, programs, variables or secrets."""
    return rule.domain in _EVERYTHING and rule.key == TOP and rule.port is None


def ceiling_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about each line of a ceiling that allows everything of a kind, and about all addresses under `private`.

    Also about a denied program, where others are allowed: these can run it.
    """
    admissions = [one.layer for admissions in manifest.admissions.values() for one in admissions if one.layer]
    defined = [definition.layer for definition in manifest.definitions.values() if definition.layer]
    layers = dict.fromkeys((*manifest.layers, *admissions, *defined))
    wide = (
        rule for layer in layers if layer.kind != "protected paths" for rule in layer.allows if is_wide(rule.capability)
    )
    # One line may be two rules, such as write and delete. It is reported once.
    yield from (_wide(rule) for rule in {(rule.origin, rule.key): rule for rule in wide}.values())
    yield from _sockets(layers)
    yield from _run_by_others(layers)
    everything = {ipaddress.ip_network(text) for text in ("0.0.0.0/0", "::/0")}
    for ranges in filter(None, manifest.private):
        for each in common_ranges([ranges]):
            if ipaddress.ip_network(each) in everything:
                origin = manifest.places.get("private", manifest.origin)
                found, expected = f"`{each}` under `private`, which is every address", "the ranges of your own network"
                hint = "an allowed name may then lead to this machine and all machines near it"
                yield Problem(origin, found, expected, hint, "warning")


def unpermitted_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about each need of a tool that its effect class never permits."""
    for name in sorted(manifest.admissions):
        reach = reach_of(manifest, name)
        if reach is None or reach.effect is None:
            continue
        lost = [need for need in reach.spec.needs.allow if not CapabilitySet((need,)) & reach.permitted]
        if reach.spec.by_keys:  # `fs_reach.write` declares write and delete; a class that permits only write is fine
            lost = [need for need in lost if not (need.domain == "fs" and need.action == "delete")]
        for need in lost:
            found = f"`{name}`, which needs {need} and is {reach.effect}"
            origin = reach.spec.origin or manifest.admissions[name][0].origin
            hint = f"every such use is refused: {_permitting(reach, need)}"
            yield Problem(origin, found, "a need of which its class permits something", hint, "warning")


def _permitting(reach: Reach, need: Capability) -> str:
    """The edits after which the class of a tool permits a need, as one hint."""
    steps, manifest = [], reach.manifest
    if need.atoms == domains.TCP:  # below `full`, every ceiling must list it
        ceilings = [layer for layer in reach.layers if layer.kind in CEILINGS]
        unnamed = [layer for layer in ceilings if not CapabilitySet((need,)) & named_tcp(layer)]
        steps += [add_to_layer(layer, (need,), reach.spec, manifest.roots, None) for layer in unnamed]
    wanted = next(one for one in CLASSES if CapabilitySet((need,)) & permits(one, _EVERY_TCP))
    if reach.effect and not class_fits(wanted, reach.effect):
        steps.append(raise_class(reach.spec, reach.admissions, manifest.max_effects, wanted))
        steps += elevate(manifest, reach.admissions, reach.level, wanted)
    return "; ".join(steps)


def native_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about each tool that runs without walls (`native`) and needs everything of a kind."""
    for name in sorted(manifest.native):
        reach = reach_of(manifest, name)
        if reach is None or reach.level != "native" or is_ready_made(manifest, name):
            continue
        wide = [str(need) for need in reach.spec.touches.allow if is_wide(need)]
        if wide:
            found = f"`{name}` at level native with {', '.join(f'`{need}`' for need in wide)}"
            hint = "nothing but its own code bounds it; name what it needs, or run it at `isolated`"
            origin = reach.spec.origin or reach.admissions[0].origin
            yield Problem(origin, found, "needs with bounds, for a tool without walls", hint, "warning")


def is_ready_made(manifest: Manifest, name: str) -> bool:
    """Whether a tool comes with licet. Its code is trusted, and it declares wide needs to fit any ceiling."""
    module = manifest.sources[name][0].partition(":")[0] if name in manifest.sources else ""
    return module == "licet.tools" or module.startswith("licet.tools.")


def _run_by_others(layers: Iterable[Layer]) -> Iterator[Problem]:
    denied = [rule for layer in layers for rule in layer.denies if rule.capability.domain == "process"]
    every = any(rule.capability.key == TOP for rule in denied)
    if every or not any(rule.capability.domain == "process" for layer in layers for rule in layer.allows):
        return  # no program is started at all
    for rule in denied:
        found = f"a deny of `{rule.capability}`, which says only what licet itself starts"
        expected = "a deny of reading it, if it must not run: programs can run whatever they may read"
        yield Problem(rule.origin, found, expected, "write `fs:read:` with the path of its file", "warning")


def _sockets(layers: Iterable[Layer]) -> Iterator[Problem]:
    """Say of each allowed socket what the program behind it can do, which no rule of licet bounds."""
    rules = [rule for layer in layers if layer.kind != "protected paths" for rule in layer.allows]
    for rule in dict.fromkeys(rule for rule in rules if rule.capability.domain == "socket"):
        if rule.capability.key == TOP:
            continue  # a problem of its own, in the reader of policy files
        found = f"`{rule.capability}` under `{rule.key}`, which is {socket_power(rule.capability.key)}"
        hint = "the program behind it runs outside of the walls, and so does what it passes back"
        yield Problem(rule.origin, found, "sockets of programs whose every command you would allow", hint, "warning")


def _wide(rule: Rule) -> Problem:
    opened, better = _EVERYTHING[rule.capability.domain]
    shown = str(rule.capability)
    found = f"`{shown}` under `{rule.key}`, which is {opened}"
    return Problem(rule.origin, found, better, "a tool that asks for everything gets everything here", "warning")


RISK_LEVELS = ("critical", "high", "medium", "low", "none")  # riskiest first


class Risk(Struct, frozen=True):
    """One kind of risk; `label` completes the sentence that begins with the name of the tool."""

    kind: str
    level: str
    label: str

    @property
    def rank(self) -> int:
        """Its place in the order; 0 is the riskiest."""
        return RISKS.index(self)

    def document(self) -> dict[str, Any]:
        """The risk as plain data."""
        return {"level": self.level, "kind": self.kind, "text": self.label}

    def __str__(self) -> str:
        return f"{self.level}: {self.label}"


NATIVE = Risk("native", "critical", "runs code without walls")
EVERYTHING = Risk("everything", "critical", "reaches everything of a kind, such as every host")
DELETE = Risk("delete", "high", "deletes")
SECRET_NETWORK = Risk("secret_network", "high", "holds a secret and can send it")
ROOT_SOCKET = Risk("root_socket", "critical", "is root on this machine, through a socket")
COMMAND_SOCKET = Risk("command_socket", "critical", "runs commands as you outside of the walls, through a socket")
KEY_SOCKET = Risk("key_socket", "high", "uses your keys, through a socket")
SCREEN_SOCKET = Risk("screen_socket", "high", "reaches your screen and keyboard, through a socket")
SOCKET = Risk("socket", "high", "talks to a program outside of the walls, through a socket")
NETWORK_WRITE = Risk("network_write", "medium", "writes to the network")
PROGRAM = Risk("program", "medium", "starts programs")
FILE_WRITE = Risk("file_write", "medium", "writes files")
SECRET = Risk("secret", "medium", "reads secrets")
KEY_FILE = Risk("key_file", "medium", "reads files that hold keys or secrets")
CHECKS = Risk("checks", "medium", "is checked less")
NETWORK_READ = Risk("network_read", "low", "reads from the network")
FILE_READ = Risk("file_read", "low", "reads files")
OTHER = Risk("other", "low", "uses variables, storage, tools or connectors")
NOTHING = Risk("nothing", "none", "reaches nothing")
RISKS = (
    *(
        NATIVE,
        EVERYTHING,
        ROOT_SOCKET,
        COMMAND_SOCKET,
        DELETE,
        SECRET_NETWORK,
        KEY_SOCKET,
        SCREEN_SOCKET,
        SOCKET,
        NETWORK_WRITE,
        PROGRAM,
        FILE_WRITE,
        SECRET,
        KEY_FILE,
        CHECKS,
    ),
    *(NETWORK_READ, FILE_READ, OTHER, NOTHING),
)

_FILE_READ, _FILE_DELETE, _FILE_WRITE = (
    Capability("fs:read:*").atoms,
    Capability("fs:delete:*").atoms,
    Capability("fs:write:*").atoms,
)
# licet does not see what a plain connection or an unknown method does, so both count as writes.
_NETWORK_WRITE = sum(Capability(f"network:{text}").atoms for text in ("write:*", "*:other@*", "tcp:*"))
_NETWORK_DELETE = Capability("network:delete:*").atoms
_SOCKETS = {ROOT: ROOT_SOCKET, COMMANDS: COMMAND_SOCKET, KEYS: KEY_SOCKET, SCREEN: SCREEN_SOCKET, UNKNOWN: SOCKET}
_OF_DOMAIN = {"secret": SECRET, "process": PROGRAM, "network": NETWORK_READ, "fs": FILE_READ}


def riskiest(risks: Iterable[Risk]) -> Risk:
    """The first of some risks in the order; `NOTHING` of none."""
    return min(risks, key=RISKS.index, default=NOTHING)


def rule_risk(rule: Capability) -> Risk:
    """The riskiest thing that one rule allows."""
    if is_wide(rule):
        return EVERYTHING
    deletes, writes = (_FILE_DELETE, _FILE_WRITE) if rule.domain == "fs" else (_NETWORK_DELETE, _NETWORK_WRITE)
    if rule.domain in ("fs", "network") and rule.atoms & deletes:
        return DELETE
    if rule.domain in ("fs", "network") and rule.atoms & writes:
        return FILE_WRITE if rule.domain == "fs" else NETWORK_WRITE
    if rule.domain == "socket":
        return _SOCKETS[socket_power(rule.key)]
    if _reads_keys(rule):
        return KEY_FILE
    return _OF_DOMAIN.get(rule.domain, OTHER)


def _reads_keys(rule: Capability) -> bool:
    from licet.core.review.sensitive import holds_keys  # its patterns take a while to compile, and `check` needs none

    return rule.domain == "fs" and bool(rule.atoms & _FILE_READ) and holds_keys(rule.scope)


def grant_risks(grant: CapabilitySet, *, native: bool = False) -> tuple[Risk, ...]:
    """Every risk of a grant, riskiest first; `native` says that its holder runs without walls."""
    found = {rule_risk(rule) for rule in grant.allow}
    domains = {rule.domain for rule in grant.allow}
    if "network" in domains and ("secret" in domains or any(_reads_keys(rule) for rule in grant.allow)):
        found.add(SECRET_NETWORK)
    if native:
        found.add(NATIVE)
    return tuple(sorted(found, key=RISKS.index)) or (NOTHING,)


def at_least(risk: Risk, level: str) -> bool:
    """Whether a risk is of this level or a higher one."""
    return RISK_LEVELS.index(risk.level) <= RISK_LEVELS.index(level)


# What the tools of an agent can do together ---------------------------------------------------------------------------

_ALL_THREE = (
    CapabilitySet(("network:read:*", "network:tcp:*", "connector:use:*")),  # the web, mail, what others send
    CapabilitySet(("network:write:*", "network:delete:*", "network:tcp:*")),
    CapabilitySet(("secret:read:*", "connector:use:*")),  # a connector has a key of its own
)


def most_held(spec: ToolSpec) -> CapabilitySet:
    """The most that a tool could hold at its class."""
    tcp = CapabilitySet(rule for rule in spec.touches.allow if rule.atoms == domains.TCP)
    return spec.touches & permits(spec.effect or CLASSES[0], tcp)


def has_all_three(specs: Iterable[ToolSpec]) -> bool:
    """Whether an agent with these tools reads what others may write, writes outside, and holds secrets."""
    held = CapabilitySet(rule for spec in specs for rule in most_held(spec).allow)
    return all(held & one for one in _ALL_THREE)
