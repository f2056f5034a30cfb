"""The paths of a grant: those that it holds, and those that licet closes to every grant.

Both are text that a kernel or a backend can use. Nothing is opened here, and the paths need not exist.
"""

import os
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import InvalidUse, Kind, capability, use_of_path
from licet.core.algebra.scope import inside, path_ancestors
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import EVERY_DOMAIN, SECOND_CODE, Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.core.values import Origin
from licet.declare import Tool
from licet.guard.limits import MOST_HELD_PATHS
from licet.guard.ports import Escaped

_KINDS: dict[str, Kind] = {action: use_of_path(action, "/").kind for action in ("read", "write", "delete")}


class HeldPaths:
    """The granted paths of one set of capabilities. It implements the port `Held`."""

    __slots__ = ("_answers", "_denied", "grant")

    def __init__(self, grant: CapabilitySet) -> None:
        self.grant = grant
        self._answers = {action: grant.answers(kind) for action, kind in _KINDS.items()}
        self._denied = {
            action: tuple(sorted(key or "/" for key, allowed in answers.items() if not allowed))
            for action, answers in self._answers.items()
        }

    def root(self, action: str, path: str) -> str:
        answers = self._answers[action]
        for key in reversed(path_ancestors(_key(path))):
            if answers.get(key):
                return key or "/"
        raise Escaped("nothing that is held contains it")

    def covers(self, action: str, path: str) -> bool:
        try:
            return self.grant.has(use_of_path(action, path))
        except InvalidUse:
            return False

    def covers_tree(self, action: str, path: str) -> bool:
        # Not parsed from text: a real path may have characters that a written rule cannot.
        return self.grant.has(capability("fs", _KINDS[action].atom, _key(path), None))

    def overlaps(self, action: str, path: str) -> bool:
        kept = (key for key, allowed in self._answers[action].items() if allowed)
        return self.covers(action, path) or any(inside(key, (path,)) for key in kept)

    def allowed(self, action: str) -> tuple[str, ...]:
        """The outermost granted paths. Paths below them that `denied` lists are not granted."""
        return tuple(sorted(key or "/" for key, allowed in self._answers[action].items() if allowed))

    def directories_with_closed_names(self) -> tuple[str, ...]:
        """The writable directories that directly contain a denied name.

        Landlock has no deny rules: without a private root, no new file can be made directly in such a directory.
        """
        above = {os.path.dirname(path) for path in self.denied("write")}
        return tuple(sorted(directory for directory in above if self.covers("write", directory)))

    def denied(self, action: str) -> tuple[str, ...]:
        return self._denied[action]


def _key(path: str) -> str:
    return "" if path == "/" else path


_held: dict[int, HeldPaths] = {}  # by the identity of a grant: comparing two large ones would take longer than a call


def held_paths(grant: CapabilitySet) -> HeldPaths:
    """The paths of a grant, cached: all calls of a tool have the same grant."""
    found = _held.get(id(grant))
    if found is None:
        if len(_held) >= MOST_HELD_PATHS:
            _held.clear()
        found = _held[id(grant)] = HeldPaths(grant)  # it keeps its grant, so no other one gets that identity
    return found


KEPT = "licet keeps its state or its secrets there, and no tool reads or writes them"


class ProtectedPath(Struct, frozen=True):
    """One protected path: a file, or a directory with everything below it. It need not exist."""

    path: str
    why: str  # a sentence for the operator: "the interpreter is never writable"
    readable: bool = True


# Lists the protected paths of a gate; called when the gate is built, and when it is reloaded.
Protect = Callable[[Manifest, Sequence[Tool]], Sequence[ProtectedPath]]


def kept_private(paths: Iterable[str]) -> tuple[ProtectedPath, ...]:
    """Protect paths where backends keep their own files: no tool reads or writes them."""
    return tuple(ProtectedPath(path, KEPT, readable=False) for path in paths)


def protection_layer(paths: Iterable[ProtectedPath], origin: Origin) -> Layer:
    """The denies for protected paths: writes and deletes, and reads of a path that is not readable either."""
    atoms = DOMAINS["fs"].actions
    rules = [
        # Not parsed from text: a real path may have characters that a written rule cannot.
        Rule(capability("fs", atoms[action], _key(closed.path), None), origin, closed.why)
        for closed in paths
        for action in (("write", "delete") if closed.readable else ("read", "write", "delete"))
    ]
    return Layer("protected paths", "licet itself", origin, denies=tuple(rules), silent=EVERY_DOMAIN)


def outermost(paths: Iterable[ProtectedPath]) -> tuple[ProtectedPath, ...]:
    """Leave out paths that lie inside another one and are not stricter."""
    kept: dict[str, ProtectedPath] = {}
    strict: set[str] = set()  # paths in `kept` that are not readable either
    for closed in sorted(dict.fromkeys(paths), key=lambda one: (one.path, one.readable, one.why == SECOND_CODE)):
        around = _around(closed.path)
        if strict.isdisjoint(around) and (not closed.readable or kept.keys().isdisjoint(around)):
            kept[closed.path] = closed
            if not closed.readable:
                strict.add(closed.path)
    return tuple(kept.values())


def _around(path: str) -> set[str]:
    """A path and every directory that it lies in."""
    return {key or "/" for key in path_ancestors(_key(path))}
