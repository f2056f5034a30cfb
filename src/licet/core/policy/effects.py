"""Side-effect classes and sandbox levels: what each class permits, and how classes and levels are ordered.

| class           | permits                                                                                  |
|-----------------|------------------------------------------------------------------------------------------|
| `read_only`     | reads: files, GET HEAD OPTIONS, secrets, environment; the storage of the tool and of the |
|                 | session; tools and connectors; programs, behind walls that let them only read            |
| `write_limited` | also writes: create, change, POST PUT PATCH; `tcp` where a rule names it. No delete      |
| `full`          | everything; deletes need an approval, as `approvals.delete` says                         |
| `destructive`   | the same, and each call needs an approval                                                |
"""

from typing import Literal, get_args

from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import Use

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
_BEYOND_WRITES = ("fs:delete:*", "network:delete:*", "network:*:other@*", "network:tcp:*")

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
    raise ValueError(f"unknown side-effect class: {effect}")


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
