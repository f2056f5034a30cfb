"""The real paths of many names at one moment: each directory on the way is looked at once.

The paths that a gate closes, and those that the walls of a program are built from, share most of their directories.
"""

import os

__all__ = ["RealPaths"]


class RealPaths:
    """Answers as `os.path.realpath` does, for one computation.

    What it has seen stays as it was then. So nothing keeps one for later: the walls of each program have one of their
    own, made when that program starts, because the program before it may have put a link anywhere it may write.
    """

    def __init__(self) -> None:
        self._known = {"/": "/"}

    def of(self, path: str) -> str:
        """The real path of a name, which may be missing."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._found(path)
        return known

    def _found(self, path: str) -> str:
        names = path.split("/")[1:]
        # What `..` means depends on the links before it.
        if not path.startswith("/") or not {"", ".", ".."}.isdisjoint(names):
            return os.path.realpath(path)
        here = os.path.join(self.of(os.path.dirname(path)), names[-1])
        return os.path.realpath(here) if os.path.islink(here) else here
