"""Follows the `.git` file of a linked worktree or a submodule to where git keeps its repository.

The file lies in a tree that programs may have written, or that came in an archive, and could name any directory. So it
is followed only to a directory that names this tree in turn, as git writes it, and that no program of the policy could
have made: for a worktree `gitdir` and `commondir` in it, for a submodule `core.worktree` in its configuration.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.core.review.sensitive import GIT_LEADS
from licet.errors import LicetError
from licet.own_files import read_regular
from licet.policy_files.git_configuration import values_of
from licet.policy_files.limits import LONGEST_GIT_FILE

_GIT = ".git"
_MARK = "gitdir:"
_WORKTREES = "worktrees"
_NAMES_ANOTHER = "which names no tree, or another one, as its own: `git worktree repair` mends one that was moved"


class LinkedRepository(Struct, frozen=True):
    """Where a tree with a `.git` file has its repository."""

    own: str  # what belongs to this tree alone, such as its index
    common: str  # what other worktrees use too; the same directory for a submodule

    @property
    def data(self) -> tuple[str, ...]:
        """The directories that git writes when somebody works in the tree."""
        shared = (os.path.join(self.common, name) for name in ("objects", "refs", "logs"))
        return (self.own, *(path for path in shared if self.own != self.common and os.path.isdir(path)))

    @property
    def leads(self) -> tuple[str, ...]:
        """The names among them that lead git to programs, or to other directories."""
        names = GIT_LEADS if self.own == self.common else ("config.worktree", "commondir", "gitdir", "modules")
        return tuple(os.path.join(self.own, name) for name in names)


class NotFollowed(LicetError):
    """A `.git` file that leads to a directory which may not be that of its tree."""


def linked_repository(tree: str, changeable: Callable[[str], bool]) -> LinkedRepository | None:
    """The repository that the `.git` file of a tree leads to; None if there is no such file.

    `changeable` says whether a program of the policy may write a path. Raises `NotFollowed`.
    """
    tree = os.path.realpath(tree)
    text = _text(os.path.join(tree, _GIT))
    if text is None or not text.startswith(_MARK):
        return None
    own = os.path.realpath(os.path.join(tree, text.removeprefix(_MARK).strip()))
    repository = _worktree(own, tree) or _submodule(own, tree)
    problem = _problem(repository) if repository is not None else _NAMES_ANOTHER
    if repository is None or problem:
        raise NotFollowed(f"`.git` leads to `{visible(own)}`, {problem}")
    names = (own, repository.common, *repository.leads, os.path.join(repository.common, "config"))
    if any(map(changeable, names)):
        raise NotFollowed(f"`.git` leads to `{visible(own)}`, which programs of this policy may have made")
    return repository


def _worktree(own: str, tree: str) -> LinkedRepository | None:
    """The repository of a worktree: each of both directories names the other."""
    above, name = os.path.split(os.path.dirname(own))
    common = _named_in(os.path.join(own, "commondir"))
    if name != _WORKTREES or common != above or _named_in(os.path.join(own, "gitdir")) != os.path.join(tree, _GIT):
        return None
    return LinkedRepository(own, common)


def _submodule(own: str, tree: str) -> LinkedRepository | None:
    """The repository of a submodule: its configuration names the tree, and nothing leads on from it."""
    named = [value for _, value in values_of(os.path.join(own, "config"), ("core.worktree",))]
    if len(named) != 1 or os.path.lexists(os.path.join(own, "commondir")):
        return None
    return LinkedRepository(own, own) if os.path.realpath(os.path.join(own, named[0])) == tree else None


def _problem(repository: LinkedRepository) -> str:
    """Why a directory is not followed: it is of somebody else, or links in it would lead out of it; empty if it is."""
    for path in (repository.own, repository.common, *_parts(repository.common), *repository.data):
        try:
            about = os.lstat(path)
        except OSError as error:
            return f"in which `{visible(os.path.basename(path))}` cannot be read: {error.strerror}"
        if not stat.S_ISDIR(about.st_mode):
            return f"in which `{visible(os.path.basename(path))}` is no directory"
        if about.st_uid != os.getuid():
            return "which belongs to another user"
    return ""


def _parts(common: str) -> tuple[str, ...]:
    return os.path.join(common, "objects"), os.path.join(common, "refs")


def _named_in(file: str) -> str | None:
    """The real path that a file of git names, relative to the directory of that file."""
    text = _text(file)
    return None if text is None else os.path.realpath(os.path.join(os.path.dirname(file), text.strip()))


def _text(file: str) -> str | None:
    with suppress(OSError, ValueError):
        return os.fsdecode(read_regular(file, LONGEST_GIT_FILE, links=False)).partition("\n")[0]
    return None
