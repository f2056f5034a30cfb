"""The real paths of many names at one moment: each directory on the way is looked at once.

The paths that a gate closes, and those that the walls of a program are built from, share most of their directories.
"""

import os

from licet.guard.import_path import followed

__all__ = ["RealPaths"]


class RealPaths:
    """Answers as `os.path.realpath` does, for one computation.

    What it has seen stays as it was then. So nothing keeps one for later: the walls of each program have one of their
    own, made when that program starts, because the program before it may have put a link anywhere it may write.
    """

    def __init__(self) -> None:
        self._known = {"/": "/"}
        self._links: dict[str, tuple[str, ...]] = {"/": ()}

    def of(self, path: str) -> str:
        """The real path of a name, which may be missing."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._found(path)
        return known

    def links_to(self, path: str) -> tuple[str, ...]:
        """The links on the way to an absolute path, itself too; `OSError` if they form a loop. See `followed`."""
        links = self._links.get(path)
        if links is None:
            links = self._links[path] = self._met(path)
        return links

    def _met(self, path: str) -> tuple[str, ...]:
        if not _is_plain(path):
            return followed(path)[1]
        above, name = os.path.split(path)
        links = self.links_to(above)
        here = os.path.join(self.of(above), name)
        return (*links, *followed(here)[1]) if os.path.islink(here) else links

    def _found(self, path: str) -> str:
        if not _is_plain(path):
            return os.path.realpath(path)
        above, name = os.path.split(path)
        here = os.path.join(self.of(above), name)
        return os.path.realpath(here) if os.path.islink(here) else here


def _is_plain(path: str) -> bool:
    """Whether each name stands for itself: what `..` means depends on the links before it."""
    return path.startswith("/") and {"", ".", ".."}.isdisjoint(path.split("/")[1:])
