"""`HeldPaths`: the paths that a grant holds, as files backends and kernel rules need them."""

import os
from functools import lru_cache

from licet.core.algebra.capability import capability
from licet.core.algebra.scope import inside, path_ancestors
from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, Kind, use_of_path
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


@lru_cache(maxsize=1000)
def held_paths(grant: CapabilitySet) -> HeldPaths:
    """The paths of a grant, cached: all calls of a tool have the same grant."""
    return HeldPaths(grant)
