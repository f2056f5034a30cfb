"""Finds what other programs run or trust below directories that may be written, and who does: hooks, settings, tasks.

The names are those of `core/review/sensitive.py`. Of a repository of git these are the files that name programs, so
that commits work all the same. At the top of a project a name counts whether it is there or not; below it, and in a
directory for output, only if it is there: commands empty such directories, and a name that stays would be in the way.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from licet.core.algebra.scope import Malformed, inside, path_key
from licet.core.review.sensitive import (
    BARE_PARTS,
    EDITOR_PROJECT,
    GIT,
    GIT_LEADS,
    HOME_SWITCHES,
    HOME_TRUSTED,
    INSTRUCTIONS,
    TRUSTED,
    TRUSTED_ENDINGS,
)
from licet.own_files import read_regular
from licet.policy_files.git_configuration import own_configurations, settings
from licet.policy_files.git_index import UnreadIndex, gitlinks
from licet.policy_files.limits import MOST_BYTES, MOST_INCLUDED, MOST_LOOKED_THROUGH, MOST_TRUSTED_PATHS

_GIT = ".git"
REBASE = "rebase-merge/git-rebase-todo"
_HOOKS_OF_GIT = "git runs the hooks in it, since the configuration of the repository names it"
_BARE = "with it git could take the directory itself for a repository, and run what that names"
_OF_HOME = "your shell, git, ssh, agents or session run it or obey it"
_NOT_SEARCHED = frozenset({_GIT, ".hg", ".jj", "node_modules"})
_OF_THE_KERNEL = ("/dev", "/proc", "/sys")
_UNSEARCHED = "there are too many files to look for what other programs run or trust in it; name what is to be written"
_INCLUDED = "git reads it, since the configuration of the repository names it"
_ADDED = "git enters it at each `git status`, since the index of the repository names it"
_ROWS = tuple((tuple(trusted.path.casefold().split("/")), trusted) for trusted in TRUSTED if trusted.path != _GIT)
_BY_FIRST = {row[0]: [pair for pair in _ROWS if pair[0][0] == row[0]] for row, _ in _ROWS}


class Repository(Struct, frozen=True):
    """A repository with files: where they are, which other repositories among these its index names, and its rebase."""

    tree: str
    gitlinks: tuple[str, ...]
    rebase: bytes = b""  # what one that has not ended does next


class TrustedPaths:
    """The paths below some directories that other programs run or trust, each with who does.

    What cannot be searched to the end is closed as a whole.
    """

    def __init__(self, written: Sequence[str], workdir: str, home: str, named: Sequence[str] = ()) -> None:
        """`named` are those of the `written` whose names were typed; a link to one is not, it may lead anywhere."""
        self.unclosed: list[str] = []  # what nothing around can be closed for: then nothing may be written
        self.repositories: dict[str, Repository] = {}  # by the directory that git keeps its data in
        self._home, self._own = home, own_configurations(home)
        self._found: dict[str, str] = {}
        self.written = tuple(dict.fromkeys(path for tree in written for path in (tree, os.path.realpath(tree))))
        real = (path for tree in named if os.path.basename(path := os.path.realpath(tree)) == os.path.basename(tree))
        self._named = tuple(tree for tree in (*named, *real) if names_trusted(tree))
        self._left = MOST_LOOKED_THROUGH
        trees = [tree for tree in self.written if os.path.isdir(tree) and tree not in self._named]
        tops = {tree: _tops(tree, workdir) for tree in trees}
        self._starts = tuple(dict.fromkeys((*self.written, *(top for tree in trees for top in tops[tree]))))
        # First what is closed wherever it is: no number of other files may keep that open.
        for place in dict.fromkeys((home, os.path.realpath(home))) if home else ():
            if inside(place, self.written):
                for name in (*HOME_TRUSTED, *(name for names in HOME_SWITCHES.values() for name in names)):
                    self._add(os.path.join(place, name), _OF_HOME)
                for _, trusted in _ROWS:
                    if trusted.closing != "never":
                        self._add_if_there(os.path.join(place, trusted.path), trusted.why)
        for tree in trees:
            self._add_tops(tree, tops[tree])
        for start in dict.fromkeys((*(top for tree in trees for top in tops[tree]), *trees)):
            self._search(start)

    @property
    def paths(self) -> dict[str, str]:
        """The paths, each with who acts on it."""
        return self._found

    @property
    def unsearched(self) -> list[str]:
        """Those that are closed as a whole, since the search did not get to what is in them."""
        return [path for path, why in self._found.items() if why == _UNSEARCHED]

    def _add_tops(self, tree: str, tops: Iterable[str]) -> None:
        """Add the names at the top of a project, and those whose beginning a directory is called."""
        for top in tops:
            for name in (_missing_part(top), "commondir"):
                self._add(os.path.join(top, name), _BARE)
            for trusted in TRUSTED:
                is_repository = trusted.path == _GIT and os.path.lexists(os.path.join(top, _GIT))
                if trusted.closing == "always" and not is_repository:
                    self._add(os.path.join(top, trusted.path), trusted.why)
        for place in (*tops, _repository_around(tree)):
            if place and os.path.lexists(os.path.join(place, _GIT)):
                self._add_git(os.path.join(place, _GIT))
        for number in range(1, 3):  # a tree that is called `.github` has what is in `.github/workflows`
            tail = tuple(tree.casefold().split("/")[-number:])
            for names, trusted in _ROWS:
                if names[:number] == tail and len(names) > number and trusted.closing != "never":
                    self._add_if_there(os.path.join(tree, *trusted.path.split("/")[number:]), trusted.why)

    def _search(self, start: str) -> None:
        """Search a directory, but not what is searched on its own below it."""
        folders = deque([start])
        while folders:
            folder = folders.popleft()
            if self._left <= 0 and not any(inside(place, (folder,)) for place in self._starts):
                self._close_around(folder, _UNSEARCHED)
                continue
            with suppress(OSError), os.scandir(folder) as entries:  # not readable
                folders.extend(self._look_at(folder, list(islice(entries, MOST_LOOKED_THROUGH))))
                if next(entries, None):
                    self._close_around(folder, _UNSEARCHED)

    def _look_at(self, folder: str, entries: list[os.DirEntry[str]]) -> Iterator[str]:
        """Add what a directory holds of these names; the directories that are to be searched."""
        self._left -= len(entries)
        names = {entry.name for entry in entries}
        if names.issuperset(BARE_PARTS):  # a repository without files of its own, or what a program has made to look so
            self._add_repository(folder, os.path.dirname(folder))
        for entry in entries:
            for _, trusted in _BY_FIRST.get(entry.name.casefold(), ()):
                if trusted.closing != "never":
                    self._add_if_there(os.path.join(entry.path, *trusted.path.split("/")[1:]), trusted.why)
            if entry.name.casefold().endswith(TRUSTED_ENDINGS):
                self._add(entry.path, EDITOR_PROJECT)
            if entry.name == _GIT:
                self._add_git(entry.path)
            if entry.name not in _NOT_SEARCHED and not (entry.path in self._found or entry.path in _OF_THE_KERNEL):
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False) and entry.path not in self._starts:
                        yield entry.path

    def _add_git(self, path: str) -> None:
        """A repository: what leads git to programs. A file or link, as of a worktree, leads git elsewhere itself."""
        if os.path.islink(path) or not os.path.isdir(path):
            self._add(path, GIT)
        self._add_repository(git_directory(path), os.path.dirname(path))

    def _add_gitlinks(self, directory: str, tree: str) -> None:
        """The repositories that the index names: git enters each from the top, and may find another there later."""
        if directory in self.repositories:
            return
        rebase = rebase_under_way(directory)
        self.repositories[directory] = Repository(tree, (), rebase)
        with suppress(UnreadIndex):  # git cannot read it either; it is told when the run has ended
            self.repositories[directory] = Repository(tree, gitlinks(directory), rebase)
        for name in self.repositories[directory].gitlinks:
            path = os.path.join(tree, name)
            if os.path.lexists(os.path.join(path, _GIT)):
                self._add_git(os.path.join(path, _GIT))
            else:
                self._add(path, _ADDED)

    def _add_repository(self, directory: str, tree: str) -> None:
        for name in GIT_LEADS:
            self._add(os.path.join(directory, name), GIT)
        self._add_gitlinks(directory, tree)
        common = os.path.join(directory, "commondir")
        names = (os.path.join(_common_directory(common), "config"), os.path.join(directory, "config.worktree"))
        for hooks in (os.path.join(directory, "hooks"), *self._read_configurations((*names, *self._own), tree)):
            self._add(hooks, _HOOKS_OF_GIT)
            self._add_led(hooks)

    def _read_configurations(self, files: Iterable[str], tree: str) -> list[str]:
        """Add the files that some configurations of git include; the directories of hooks that they name."""
        configurations, hooks = deque(files), list[str]()
        seen = {*configurations}
        while configurations and len(seen) <= MOST_INCLUDED:
            file = configurations.popleft()
            self._add(file, _INCLUDED)
            for key, value in settings(file):
                value = os.path.join(self._home, value[2:]) if value.startswith("~/") else value
                if key == "core.hookspath":
                    hooks.append(os.path.normpath(os.path.join(tree, value)))
                elif (included := os.path.normpath(os.path.join(os.path.dirname(file), value))) not in seen:
                    seen.add(included)
                    configurations.append(included)
        return hooks

    def _add_led(self, hooks: str) -> None:
        """Where links in a directory of hooks lead: git runs the hook that is there."""
        with suppress(OSError), os.scandir(hooks) as entries:
            for path in [hooks, *(entry.path for entry in entries if entry.is_symlink())]:
                for _ in range(MOST_INCLUDED):
                    if not os.path.islink(path):
                        break
                    path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
                    self._add(path, _HOOKS_OF_GIT)
                self._add(os.path.realpath(path), _HOOKS_OF_GIT)

    def _add_if_there(self, path: str, why: str) -> None:
        if os.path.lexists(path):
            self._add(path, why)

    def _add(self, path: str, why: str) -> None:
        """Add a path that may be written, unless a flag has named it: itself, what it lies in, or something in it."""
        if why == INSTRUCTIONS and os.path.islink(path):
            # Often `CLAUDE.md` leads to `AGENTS.md`. A link that is closed keeps every name beside it from being
            # removed, and this one starts no program.
            path = os.path.realpath(path)
        is_named = inside(path, self._named) or any(inside(tree, (path,)) for tree in self.written)
        if is_named or path in self._found or not inside(path, self.written) or self._is_closed(path):
            return
        if len(self._found) >= MOST_TRUSTED_PATHS:
            self._close_around(path, _UNSEARCHED)
        elif _can_be_named(path):
            self._found[path] = why
        else:
            self._close_around(path, why, innermost=True)

    def _close_around(self, path: str, why: str, *, innermost: bool = False) -> None:
        """Close a directory around a path that cannot be closed itself, or searched: the widest below a written one."""
        tree = max((tree for tree in self._starts if inside(path, (tree,))), key=len)
        names = path.removeprefix(tree).strip("/").split("/")
        around = [os.path.join(tree, *names[:number]) for number in range(1, len(names) + 1)]
        is_full = len(self._found) >= 2 * MOST_TRUSTED_PATHS
        for place in reversed(around) if innermost else around:
            if place in self._found:
                return
            if not is_full and _can_be_named(place) and not any(inside(tree, (place,)) for tree in self._starts):
                self._found[place] = why
                return
        self.unclosed.append(path)

    def _is_closed(self, path: str) -> bool:
        """Whether a directory around a path is closed: what is below a link to one is elsewhere."""
        while (path := os.path.dirname(path)) != "/":
            if path in self._found and not os.path.islink(path):
                return True
        return False


def git_directory(path: str) -> str:
    """The directory that a `.git` is, or leads to if it is a link or a file."""
    with suppress(OSError, ValueError):  # a directory
        led = read_regular(path, MOST_BYTES).decode().partition("\n")[0]
        path = os.path.join(os.path.dirname(path), led.removeprefix("gitdir:").strip())
    return os.path.realpath(path)


def rebase_under_way(directory: str) -> bytes:
    """What a rebase does next that has not ended in a repository; empty if none is under way."""
    try:
        return read_regular(os.path.join(directory, REBASE), MOST_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        return str(error).encode()


def named_by_git(project: str, home: str) -> dict[str, str]:
    """What leads git from a project's top to programs, besides `.git`: hooks and files that its configuration names."""
    found = TrustedPaths([project], project, home)
    names = {path: why for path, why in found.paths.items() if why in (_HOOKS_OF_GIT, _INCLUDED, _BARE, _ADDED)}
    for repository in found.repositories.values():
        for name in repository.gitlinks:
            path = os.path.join(repository.tree, name, _GIT)
            if inside(path, (os.path.realpath(project),)) and os.path.lexists(path):
                names[path] = _ADDED
    with suppress(OSError):
        at_top = (os.path.join(os.path.realpath(project), name) for name in os.listdir(project))
        names |= {path: EDITOR_PROJECT for path in at_top if path.casefold().endswith(TRUSTED_ENDINGS)}
    return {path: why for path, why in names.items() if _can_be_named(path)}


def _common_directory(file: str) -> str:
    """The directory that a `commondir` names, as of a worktree; its own if there is none."""
    led = "."
    with suppress(OSError, ValueError):
        led = read_regular(file, MOST_BYTES).decode().strip()
    return os.path.normpath(os.path.join(os.path.dirname(file), led))


def _repository_around(tree: str) -> str:
    """The nearest directory above a tree that has a `.git`; empty if none has."""
    while tree != "/":
        tree = os.path.dirname(tree)
        if os.path.lexists(os.path.join(tree, _GIT)):
            return tree
    return ""


def _missing_part(top: str) -> str:
    """The first part of a bare repository that a directory lacks; it is one, whose leads are closed, if it has all."""
    return next((name for name in BARE_PARTS if not _is_part(top, name)), "commondir")


def _is_part(top: str, name: str) -> bool:
    path = os.path.join(top, name)
    if name != "HEAD":
        return os.path.isdir(path)
    return os.path.islink(path) or (os.path.isfile(path) and os.path.getsize(path) > 0)


def _tops(tree: str, workdir: str) -> list[str]:
    """The projects whose names are closed there or not: a tree that is one, and the working directory in it."""
    tops = {tree} if _is_project(tree, workdir) else set()
    return sorted(tops | {place for place in (workdir, os.path.realpath(workdir)) if inside(place, (tree,))})


def _is_project(tree: str, workdir: str) -> bool:
    return tree in (workdir, os.path.realpath(workdir)) or os.path.lexists(os.path.join(tree, _GIT))


def names_trusted(path: str) -> bool:
    """Whether the last names of a path are such a name themselves: who types it means it."""
    names = tuple(path.casefold().rstrip("/").split("/"))
    return any(names[-len(row) :] == row for row in ((_GIT,), *(row for row, _ in _ROWS)))


def _can_be_named(path: str) -> bool:
    try:
        return path_key(path) == path
    except Malformed:
        return False
