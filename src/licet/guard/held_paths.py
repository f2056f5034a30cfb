"""What a grant says of paths, in the words of a files backend: every answer comes from the grant itself."""

import os

from licet.core.capability import capability
from licet.core.scope import path_ancestors
from licet.core.set import CapabilitySet
from licet.core.use import InvalidUse, Kind, use_of_path
from licet.guard.ports import Escaped

_KINDS: dict[str, Kind] = {action: use_of_path(action, "/").kind for action in ("read", "write", "delete")}
_MOST_KNOWN = 1000


class HeldPaths:
    """The paths of one grant."""

    __slots__ = ("_answers", "_denied", "grant")

    def __init__(self, grant: CapabilitySet) -> None:
        self.grant = grant
        self._answers = {action: grant.answers(kind) for action, kind in _KINDS.items()}
        self._denied = {
            action: tuple(sorted(key or "/" for key, allowed in answers.items() if not allowed))
            for action, answers in self._answers.items()
        }

    def root(self, action: str, path: str) -> str:
        """The outermost directory or file that is held and contains a path; links may not lead out of it."""
        answers = self._answers[action]
        for key in reversed(path_ancestors(_key(path))):
            if answers.get(key):
                return key or "/"
        raise Escaped("nothing that is held contains it")

    def covers(self, action: str, path: str) -> bool:
        """Whether a path, as it turned out to be, is held."""
        try:
            return self.grant.has(use_of_path(action, path))
        except InvalidUse:
            return False

    def covers_tree(self, action: str, path: str) -> bool:
        """Whether a path and everything below it is held."""
        # Made from its parts: a path that exists may hold characters that no rule can.
        return self.grant.has(capability("fs", _KINDS[action].atom, _key(path), None))

    def overlaps(self, action: str, path: str) -> bool:
        """Whether anything at a path or below it is held."""
        below = f"{_key(path)}/"
        kept = (key for key, allowed in self._answers[action].items() if allowed)
        return self.covers(action, path) or any(key.startswith(below) for key in kept)

    def allowed(self, action: str) -> tuple[str, ...]:
        """The outermost paths that are held; below them, what `denied` names is not."""
        return tuple(sorted(key or "/" for key, allowed in self._answers[action].items() if allowed))

    def directories_with_closed_names(self) -> tuple[str, ...]:
        """The directories that may be written, but for a name directly in them that a deny closes.

        Landlock has no deny: without a private root nothing new can be made directly in such a directory.
        """
        above = {os.path.dirname(path) for path in self.denied("write")}
        return tuple(sorted(directory for directory in above if self.covers("write", directory)))

    def denied(self, action: str) -> tuple[str, ...]:
        """The paths that denies name."""
        return self._denied[action]


def _key(path: str) -> str:
    return "" if path == "/" else path


_known: dict[int, HeldPaths] = {}  # by identity: a manifest folds the grant of each tool once and keeps it


def held_paths(grant: CapabilitySet) -> HeldPaths:
    """The paths of a grant, made when it is first asked about."""
    found = _known.get(id(grant))
    if found is None or found.grant is not grant:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[id(grant)] = HeldPaths(grant)
    return found
