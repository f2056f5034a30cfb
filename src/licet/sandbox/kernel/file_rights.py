"""What a program may do at a path, from what its grant opens and closes: the same that Landlock keeps, and names apart.

Landlock has no deny. So beside a closed name it grants what is there one by one, and no new name. These rights say
which new names are the program's all the same; who decides by them opens and makes the files itself.
"""

import _thread
import errno
import os
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from licet.sandbox.kernel import landlock

_WRITE = landlock.WRITE_FILE


class Tree(NamedTuple):
    """Rights below some paths, but for other paths in them. All of them are real."""

    rights: int
    roots: Collection[str]
    closed: Collection[str]


class FileRights:
    """The rights of a program. `rules` are its Landlock rules, and `trees` what the grant opens as a whole."""

    def __init__(self, rules: Sequence[landlock.PathRule], trees: Sequence[Tree] = ()) -> None:
        self._rules: dict[str, int] = {}
        for path, rights in rules:
            if not path.startswith("/dev/"):  # modes and owners of devices hold for the whole machine
                real = os.path.realpath(path)
                self._rules[real] = self._rules.get(real, 0) | rights
        self._trees = [(tree.rights, frozenset(tree.roots), frozenset(map(_folded, tree.closed))) for tree in trees]
        # A file that was closed at the start stays so under another name, which somebody outside may give it.
        self._files: dict[tuple[int, int], int] = {}
        for tree in trees:
            for path in tree.closed:
                with suppress(OSError):
                    about = os.stat(path)
                    key = (about.st_dev, about.st_ino)
                    self._files[key] = self._files.get(key, 0) | tree.rights
        self.lock = (
            _thread.allocate_lock()
        )  # held while a name is looked at and made, so that nothing is moved meanwhile
        self._leads = {above for _, _, closed in self._trees for path in closed for above in _above(path)}

    def at(self, path: str) -> int:
        """The rights at a real path."""
        ways = (path, *_above(path))
        rights = 0
        for way in ways:
            rights |= self._rules.get(way, 0)
        folded = _folded(path)
        folds = (folded, *_above(folded))
        for granted, roots, closed in self._trees:
            if any(way in roots for way in ways):
                rights |= 0 if any(way in closed for way in folds) else granted
        for granted, _, closed in self._trees:
            # A rule for what is around does not open what is closed by a tree of the same kind.
            if any(way in closed for way in folds):
                rights &= ~granted
        return rights

    def of(self, file: int) -> int:
        """The rights on an open file."""
        about = os.fstat(file)
        return self.at(path_of(file)) & ~self._files.get((about.st_dev, about.st_ino), 0)

    def leads_to_closed(self, path: str) -> bool:
        """Whether something closed lies, or would lie, below a path."""
        return _folded(path) in self._leads

    def may_write(self, path: str) -> bool:
        """Whether a file there may be written, and made."""
        return bool(self.at(path) & _WRITE)

    def may_delete(self, path: str) -> bool:
        """Whether what is there may be removed and renamed."""
        return self.at(path) & landlock.DELETE == landlock.DELETE and not self.leads_to_closed(path)


def trees_of(orders: Sequence[Mapping[str, object]]) -> list[Tree]:
    """The trees in the orders of a launcher."""
    return [Tree(**order) for order in orders]  # type: ignore[arg-type]


def path_of(file: int) -> str:
    """The path of an open file, as the kernel has it now. ENOENT for one that is gone: it may have had another name."""
    path = os.readlink(f"/proc/self/fd/{file}")
    if path.endswith(" (deleted)"):
        raise FileNotFoundError(errno.ENOENT, "the file is gone")
    return path


def _above(path: str) -> tuple[str, ...]:
    """The directories that a path lies in."""
    found = []
    while path.startswith("/") and path != "/":
        path = os.path.dirname(path)
        found.append(path)
    return tuple(found)


def _folded(path: str) -> str:
    """A path as file systems compare it that take no notice of case: a closed name is closed in each spelling."""
    return path if path.isascii() and path.islower() else unicodedata.normalize("NFKC", path).casefold()
