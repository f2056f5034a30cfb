"""Finds repositories of git for `licet learn`: a draft lets no program write the files by which git runs others."""

import os

_MOST_LOOKED_AT = 200_000  # names; in a larger directory there may be a repository
_DEEPEST = 100
_PARTS = frozenset({"HEAD", "objects", "refs"})  # what every repository has, also one that is not called `.git`


class Repositories:
    """What is known about repositories on this machine; each directory is read once."""

    def __init__(self) -> None:
        self._left = _MOST_LOOKED_AT
        self._has: dict[str, bool] = {}
        self._is: dict[str, bool] = {}

    def reached_by(self, path: str) -> bool:
        """Whether a path is a file of a repository, or a directory with a repository in it."""
        above = path
        while above:
            if self._is_one(above):
                return True
            above = above.rpartition("/")[0]
        return os.path.isdir(path) and not os.path.islink(path) and self._has_one(path)

    def below(self, folder: str) -> tuple[str, ...] | None:
        """The files of each repository below a directory, where they are; None if there is too much to look at."""
        found: list[str] = []
        left = _MOST_LOOKED_AT
        for above, names, files in os.walk(folder):
            left -= len(names) + len(files)
            if left < 0:
                return None
            if self._is_one(above):
                found.append(above)
                names.clear()
            found += (os.path.join(above, name) for name in (*names, *files) if name.lower() == ".git")
            names[:] = [name for name in names if name.lower() != ".git"]
        return tuple(found)

    def _is_one(self, folder: str) -> bool:
        if folder not in self._is:
            self._is[folder] = all(os.path.lexists(os.path.join(folder, name)) for name in _PARTS)
        return self._is[folder]

    def _has_one(self, folder: str, depth: int = 0) -> bool:
        if folder not in self._has:
            self._has[folder] = self._look(folder, depth)
        return self._has[folder]

    def _look(self, folder: str, depth: int) -> bool:
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except OSError:  # nor can a program look there
            return False
        self._left -= len(entries)
        names = {entry.name for entry in entries}
        if any(name.lower() == ".git" for name in names) or names >= _PARTS or self._left < 0 or depth > _DEEPEST:
            return True
        below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        return any(self._has_one(path, depth + 1) for path in below)
