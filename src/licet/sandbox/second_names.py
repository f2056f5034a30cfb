"""Finds hard links through which a grant would reach a closed file.

A kernel rule applies to a file, not to its name. So a closed file with a second name inside a grant could be opened by
that name. Grants are searched first, because most have no file with two names. Closed trees outside of the grants are
searched only for files whose other names are not in the grants either, such as the objects of a clone.

That search reads ten thousands of directories, so its outcome is kept on disk: the files that had no name in the closed
trees. A new name of a file changes its ctime, which nobody can set; then it is searched for again. A name that comes
into a closed tree with its directory does not: only who may write there can do that, so what is kept counts for a day.
In one process results are cached for its life: only the operator can make such a link, no tool can.
"""

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec
from msgspec import Struct

from licet.core.algebra.scope import inside
from licet.guard.execution import SandboxUnavailable
from licet.own_files import read_regular, replace_file
from licet.policy_files.policy_paths import cache_root
from licet.sandbox.limits import (
    CHANGE_SECONDS,
    FEW_CLOSED_FILES,
    LARGEST_MEMORY,
    MOST_CLOSED_FILES,
    MOST_GRANT_FILES,
    MOST_REMEMBERED,
    REMEMBERED_SECONDS,
)

Inode = tuple[int, int]
Version = tuple[int, int, int, int]  # device, inode, ctime and number of names: as long as they stay, so do the names


class _Linked(Struct, frozen=True):
    """A file with more than one name."""

    path: str
    inode: Inode
    links: int
    ctime_ns: int

    @property
    def version(self) -> Version:
        return (*self.inode, self.ctime_ns, self.links)


class _TooManyFiles(Exception):
    """A tree of more files than are searched."""


def second_names(roots: Sequence[str], closed: Sequence[str], most: int = MOST_GRANT_FILES) -> tuple[str, ...]:
    """Names below `roots` of files that are also at or below `closed`; without names that are closed themselves.

    Raises `SandboxUnavailable` if a closed file has a second name and the roots have too many files to search for it.
    """
    single = [path for path in closed if os.path.isfile(path)]  # single files are checked each time
    names = _second_names(tuple(roots), tuple(closed), tuple(_identity(path) for path in single), most)
    if isinstance(names, str):
        raise SandboxUnavailable(names)
    return names


@lru_cache(256)
def _second_names(
    roots: tuple[str, ...], closed: tuple[str, ...], seen: tuple[object, ...], most: int
) -> tuple[str, ...] | str:
    """The names, or the text of a refusal, so that it is cached too."""
    with suppress(_TooManyFiles):
        if not _named_elsewhere(closed, FEW_CLOSED_FILES):
            return ()
    try:
        linked = list(_linked(roots, most))
    except _TooManyFiles:
        return _refusal(closed, most)
    within: dict[Inode, set[str]] = {}
    for file in linked:
        within.setdefault(file.inode, set()).add(file.path)
    open_names = [file for file in linked if not inside(file.path, closed)]
    if not open_names:
        return ()
    places = tuple(dict.fromkeys(os.path.realpath(path) for path in closed))
    shared = {file.inode for file in open_names if any(inside(name, places) for name in within[file.inode])}
    abroad = [file for file in open_names if file.inode not in shared and len(within[file.inode]) < file.links]
    if abroad:
        shared |= _closed_abroad(abroad, roots, places)
    return tuple(file.path for file in open_names if file.inode in shared)


def _refusal(closed: Iterable[str], most: int) -> tuple[str, ...] | str:
    """The text of a refusal where the roots cannot be searched; nothing if no closed file has a second name."""
    try:
        elsewhere = _named_elsewhere(closed, MOST_CLOSED_FILES)
    except _TooManyFiles:
        raise SandboxUnavailable(_TOO_MUCH_CLOSED) from None
    if not elsewhere:
        return ()
    return (
        f"`{next(iter(elsewhere.values()))}` is closed to this call and has a second name, and the grant holds more "
        f"than {most} files, too many to search for it: grant smaller directories, or replace the file by a copy"
    )


_TOO_MUCH_CLOSED = "what is closed to this call holds too many files to search for second names"


def _closed_abroad(files: Sequence[_Linked], roots: Sequence[str], closed: Sequence[str]) -> set[Inode]:
    """Those of some files, all of which have a name outside of the roots, that have a closed one there."""
    searched = [os.path.realpath(root) for root in roots]
    outside = [path for path in closed if not inside(path, searched)]
    trees = [path for path in outside if os.path.isdir(path)]
    shared = {file.inode for file in _linked([path for path in outside if path not in trees], MOST_CLOSED_FILES)}
    memory = _Memory(trees)
    unknown = {file.version for file in files} - memory.apart()
    if unknown:
        begin = time.time()
        try:
            in_trees = {file.inode for file in _linked(trees, MOST_CLOSED_FILES)}
        except _TooManyFiles:
            raise SandboxUnavailable(_TOO_MUCH_CLOSED) from None
        memory.remember({file.version for file in files if file.inode not in in_trees}, begin)
        shared |= in_trees
    return {file.inode for file in files if file.inode in shared}


class _Kept(Struct, frozen=True):
    """What is on disk of a search: when it began, and the files that had no name in the trees."""

    begin: float
    apart: list[Version]


class _Memory:
    """The files that have no name in some trees. A person without a home directory keeps none."""

    def __init__(self, trees: Iterable[str]) -> None:
        # A tree that was replaced has another inode.
        identities = [(tree, *_inode(tree)) for tree in sorted(trees)]
        self._name = hashlib.sha256(msgspec.json.encode(identities)).hexdigest()[:32]
        root = cache_root()
        self._directory = os.path.join(root, "second-names") if root else ""
        self._kept = self._read()

    def apart(self) -> set[Version]:
        """The files as they were when nothing of them was in the trees."""
        return set(self._kept.apart)

    def remember(self, apart: Collection[Version], begin: float) -> None:
        """Keep the outcome of a search that began at this time; what was kept before is of other grants, and stays."""
        if not self._directory:
            return
        settled = {version for version in apart if version[2] < (begin - CHANGE_SECONDS) * 1e9}
        older = self._kept if len(self._kept.apart) + len(settled) <= MOST_GRANT_FILES else _Kept(begin, [])
        kept = _Kept(min(begin, older.begin), sorted(settled.union(older.apart)))
        with suppress(OSError):  # a full disk: the next run searches again
            os.makedirs(self._directory, 0o700, exist_ok=True)
            replace_file(os.path.join(self._directory, self._name), msgspec.json.encode(kept))
            self._drop_oldest()

    def _read(self) -> _Kept:
        now = time.time()
        with suppress(OSError, msgspec.DecodeError):
            data = read_regular(os.path.join(self._directory, self._name), LARGEST_MEMORY, links=False)
            kept = msgspec.json.decode(data, type=_Kept)
            if self._directory and now - REMEMBERED_SECONDS < kept.begin <= now:
                return kept
        return _Kept(now, [])

    def _drop_oldest(self) -> None:
        with os.scandir(self._directory) as entries:
            by_age = sorted(entries, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime, reverse=True)
        for entry in by_age[MOST_REMEMBERED:]:
            os.unlink(entry.path)


def _inode(path: str) -> Inode:
    try:
        about = os.stat(path)
    except OSError:  # not searched either
        return 0, 0
    return about.st_dev, about.st_ino


def _named_elsewhere(closed: Iterable[str], most: int) -> dict[Inode, str]:
    """The closed files that also have a name which is not closed, each with one of its names."""
    seen: dict[Inode, set[str]] = {}
    links: dict[Inode, int] = {}
    for file in _linked(closed, most):
        seen.setdefault(file.inode, set()).add(file.path)
        links[file.inode] = file.links
    return {inode: min(names) for inode, names in seen.items() if len(names) < links[inode]}


def _linked(trees: Iterable[str], most: int) -> Iterator[_Linked]:
    """Every file with more than one name at or below some paths; links are not followed."""
    left = list(dict.fromkeys(os.path.realpath(tree) for tree in trees))
    visited: set[str] = set()
    count = 0
    while left:
        path = left.pop()
        if path in visited:
            continue
        visited.add(path)
        with suppress(OSError):  # removed, or not readable for this user
            about = os.lstat(path)
            if stat.S_ISREG(about.st_mode) and about.st_nlink > 1:
                yield _linked_file(path, about)
            if not stat.S_ISDIR(about.st_mode):
                continue
            with os.scandir(path) as entries:
                for entry in entries:
                    count += 1
                    if count > most:
                        raise _TooManyFiles
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        with suppress(OSError):
                            about = entry.stat(follow_symlinks=False)
                            if about.st_nlink > 1:
                                yield _linked_file(entry.path, about)


def _linked_file(path: str, about: os.stat_result) -> _Linked:
    return _Linked(path, (about.st_dev, about.st_ino), about.st_nlink, about.st_ctime_ns)


def _identity(path: str) -> tuple[int, int, int] | None:
    """Which file is there; None if it is missing or has no other name. Then it makes no difference which it is."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return (about.st_dev, about.st_ino, about.st_nlink) if about.st_nlink > 1 else None
