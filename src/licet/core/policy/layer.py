"""Layers: lists of rules, each with the place where it is written. A use must be allowed by every layer.

Side-effect classes and sandbox levels: what each class permits, and how classes and levels are ordered.

| class           | permits                                                                                  |
|-----------------|------------------------------------------------------------------------------------------|
| `read_only`     | reads: files, GET HEAD OPTIONS, secrets, environment; the storage of the tool and of the |
|                 | session; tools and connectors; programs, behind walls that let them only read            |
| `write_limited` | also writes: create, change, POST PUT PATCH; `tcp` where a rule names it. No delete      |
| `full`          | everything; deletes need an approval, as `approvals.delete` says                         |
| `destructive`   | the same, and each call needs an approval                                                |

Check numbers of seconds that come from outside: from tools, from models through tools, and from files.

Every timeout and every lifetime is checked here. NaN is the reason: it is neither more nor less than any limit, so a
comparison lets it pass, and the call would never end.
"""

from collections.abc import Iterable
from functools import cached_property
from math import inf
from operator import itemgetter
from typing import Literal, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import DOMAINS, TCP
from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.set import CapabilitySet, expand_rule
from licet.core.limits import LONGEST_SECONDS
from licet.core.values import Origin

LayerKind = Literal[
    "manifest",
    "personality",
    "allow",
    "workspace",
    "organisation",
    "bundle",
    "definition",
    "connectors",
    "protected paths",
    "delegation",
    "readers",
]
Item = TypeVar("Item")


class Rule(Struct, frozen=True):
    """A capability that a file allows or denies, with its place in the file."""

    capability: Capability
    origin: Origin
    key: str
    unexpanded: Capability | None = None  # as it is written in the file, before `${workdir}` and `~` were replaced

    def __str__(self) -> str:
        return f"{self.capability} ({self.origin})"


# The key of directories that a program writes in and finds: a missing one is made before it starts.
OUTPUT = "fs_reach.output"
# Why licet itself denies writing to a path. Refusals show these sentences to users.
POLICY = "policy files are never writable"
CODE = "the code of a tool is never writable"
SERVER_CODE = "what a server is started from is never writable"
KEY_FILE = "a file with a key of `stand_ins` is never writable"
SECOND_CODE = f"{CODE}, and nothing takes its place"  # for paths that Python would import instead of the code


class Layer(Struct, frozen=True, dict=True):
    """One list of rules that a use must pass. It does not narrow the domains in `silent`."""

    kind: LayerKind
    title: str
    origin: Origin
    allows: tuple[Rule, ...] = ()
    denies: tuple[Rule, ...] = ()
    silent: frozenset[str] = frozenset()
    safety: bool = False  # whether its file lists hosts as personalities do, under `safety.network.allow`

    def __hash__(self) -> int:
        return hash((self.kind, self.title, self.origin))  # a layer may have thousands of rules

    @cached_property
    def allowed(self) -> CapabilitySet:
        """The uses that pass this layer."""
        return CapabilitySet(self._allows(), [rule.capability for rule in self.denies])

    @cached_property
    def without_denies(self) -> CapabilitySet:
        """The uses that would pass if the layer had no denies."""
        return CapabilitySet(self._allows())

    def allowed_texts(self) -> list[str]:
        """What the layer allows, as digests have it: without what it passes in domains that are newer than digests.

        So a policy that says nothing about sockets has the digest that it had before there were rules about them.
        """
        passed = {str(Capability(f"{domain}:*:*")) for domain in self.silent & _NEWER_THAN_DIGESTS}
        return sorted(text for rule in self.allowed.allow if (text := str(rule)) not in passed)

    def nearest_allows(self, use: Use) -> list[Rule]:
        """The allows with the narrowest scope among those that cover a use, in the order of the file."""
        for key in use.keys:
            if known := self._allows_by_key.get(key):
                found = [rule for _, rule in known if rule.capability.covers_use(use)]
                if found:
                    return found
        return []

    def denies_of(self, use: Use) -> list[Rule]:
        """The denies that cover a use, in the order of the file."""
        by_key = self._denies_by_key
        found = [one for key in use.keys for one in by_key.get(key, ()) if one[1].capability.covers_use(use)]
        return [rule for _, rule in sorted(found, key=itemgetter(0))]

    # A use has few keys, and a layer may have thousands of rules: they are looked up, as in a check.
    @cached_property
    def _allows_by_key(self) -> "_ByKey":
        return _by_key(self.allows)

    @cached_property
    def _denies_by_key(self) -> "_ByKey":
        return _by_key(self.denies)

    def _allows(self) -> list[Capability]:
        passed = [Capability(f"{domain}:*:*") for domain in sorted(self.silent)]
        return [*passed, *(rule.capability for rule in self.allows)]

    def expand(self, workdir: str, home: str) -> "Layer":
        """Return the layer with `${workdir}` and `~` replaced by real directories."""

        def expanded(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
            return tuple(
                replace(
                    rule,
                    capability=expand_rule(rule.capability, workdir, home),
                    unexpanded=rule.unexpanded or rule.capability,
                )
                for rule in rules
            )

        return replace(self, allows=expanded(self.allows), denies=expanded(self.denies))


_NEWER_THAN_DIGESTS = frozenset({"socket"})
_ByKey = dict[str, list[tuple[int, Rule]]]  # the rules with a scope key, each with its number in the layer


def _by_key(rules: tuple[Rule, ...]) -> _ByKey:
    found: _ByKey = {}
    for numbered in enumerate(rules):
        found.setdefault(numbered[1].capability.key, []).append(numbered)
    return found


EVERY_DOMAIN = frozenset(DOMAINS)
ALL_BUT_NETWORK = EVERY_DOMAIN - {"network"}
OWN_STORAGE = (Capability("storage:*:tool-private"), Capability("storage:*:session"))  # every ceiling allows these


def named_tcp(layer: Layer) -> CapabilitySet:
    """The connections that a layer allows by rules that name `tcp`."""
    return CapabilitySet(rule.capability for rule in layer.allows if rule.capability.atoms == TCP)


def meet_layers(layers: Iterable[Layer]) -> CapabilitySet:
    """What all layers allow together; without any layer, nothing."""
    ceiling: CapabilitySet | None = None
    for layer in layers:
        ceiling = layer.allowed if ceiling is None else ceiling & layer.allowed
    return ceiling if ceiling is not None else CapabilitySet()


def meet_written_layers(layers: Iterable[Layer]) -> CapabilitySet:
    """What all layers of policy files allow together, also the policy files themselves, which no call may write."""
    return meet_layers(layer for layer in layers if layer.kind != "protected paths")


def distinct(values: tuple[Item, ...]) -> tuple[Item, ...]:
    """Remove repeated values and keep the order. Takes quadratic time, and does not need hashable values."""
    return tuple(value for place, value in enumerate(values) if value not in values[:place])


EffectClass = Literal["read_only", "write_limited", "full", "destructive"]
Level = Literal["restricted", "isolated", "native"]

CLASSES: tuple[EffectClass, ...] = get_args(EffectClass)
LEVELS: tuple[Level, ...] = get_args(Level)
ELEVATED: tuple[EffectClass, ...] = ("full", "destructive")  # these need a walled level and a budget

_READS = (
    "fs:read:*",
    "network:read:*",
    "process:exec:*",  # the child is walled read-only
    "env:read:*",
    "secret:read:*",
    "storage:*:tool-private",
    "storage:*:session",
    "storage:read:personality",
    "tool:call:*",
    "connector:use:*",
)
_WRITES = ("fs:write:*", "network:write:*", "storage:write:personality")
_BEYOND_WRITES = ("fs:delete:*", "network:delete:*", "network:*:other@*", "network:tcp:*", "socket:connect:*")

FILE_DELETES = CapabilitySet(("fs:delete:*",))
WRITES = CapabilitySet((*_WRITES, *_BEYOND_WRITES))
_EVERY_TCP = CapabilitySet(("network:tcp:*",))
_READ_ONLY = CapabilitySet(_READS)
_WRITE_LIMITED = CapabilitySet((*_READS, *_WRITES))
_EVERYTHING = CapabilitySet((*_READS, *_WRITES, *_BEYOND_WRITES))


def permits(effect: EffectClass, named_tcp: CapabilitySet = CapabilitySet()) -> CapabilitySet:  # noqa: B008
    """Everything that a class permits; `named_tcp` are the rules of the ceiling that name `tcp`."""
    if effect == "read_only":
        return _READ_ONLY
    if effect == "write_limited":
        # licet cannot see what a tcp connection deletes. Below `full`, a rule must name `tcp` to accept that risk.
        return _WRITE_LIMITED | named_tcp
    if effect in ELEVATED:
        return _EVERYTHING
    raise ValueError(f"unknown class: {effect}")


def class_fits(effect: EffectClass, ceiling: EffectClass) -> bool:
    """Whether a class is no stronger than another."""
    return CLASSES.index(effect) <= CLASSES.index(ceiling)


def level_fits(level: Level, ceiling: Level) -> bool:
    """Whether a level is no looser than another."""
    return LEVELS.index(level) <= LEVELS.index(ceiling)


def weakest_class(use: Use, *, tcp_named: bool = False) -> EffectClass:
    """The weakest class that permits a use; `tcp_named` states that a rule that names `tcp` covers it."""
    named = _EVERY_TCP if tcp_named else CapabilitySet()
    for effect in CLASSES:
        if permits(effect, named).has(use):
            return effect
    raise AssertionError(f"no class permits {use}")


def delete_asks(use: Use, effect: EffectClass, free: CapabilitySet = CapabilitySet()) -> bool:  # noqa: B008
    """Whether a use is a delete that needs its own approval at a class; `free` are deletes that need none."""
    return use.effect == "delete" and deletes_ask(effect) and not free.has(use)


def deletes_ask(effect: EffectClass) -> bool:
    """Whether deletes may need their own approval at a class."""
    return not class_fits(effect, "write_limited")


def seconds(value: object, name: str) -> float:
    """Check a number above 0 and cut it to `LONGEST_SECONDS`; `ValueError` for text, booleans, NaN and infinity."""
    kind = type(value)
    number: float = 0
    if issubclass(kind, float):
        number = float.__float__(value)  # type: ignore[arg-type] # the methods of a subclass may lie
    elif issubclass(kind, int) and kind is not bool:
        number = int.__int__(value)  # type: ignore[arg-type]
    if not 0 < number < inf:
        raise ValueError(f"expected `{name}` to be a number of seconds above 0")
    return float(min(number, LONGEST_SECONDS))


def whole_seconds(value: object, name: str) -> int:
    """Check a whole number of at least 1 and cut it to `LONGEST_SECONDS`; `ValueError` for anything else."""
    if type(value) is not int or value < 1:
        raise ValueError(f"expected a whole number of seconds, at least 1, as `{name}`")
    return min(value, LONGEST_SECONDS)
