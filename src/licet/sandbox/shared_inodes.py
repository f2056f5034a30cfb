"""Finds hard links through which a grant would reach a closed file.

A kernel rule applies to a file, not to its name. So a closed file with a second name inside a grant could be opened by
that name. Grants are searched first, because most have no file with two names; closed trees are searched only if one
does. Results are cached for the life of the process: only the operator can make such a link, no tool can.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

from msgspec import Struct

from licet.core.algebra.scope import inside
from licet.guard.execution import SandboxUnavailable

MOST_SEARCHED = 100_000  # files of a grant that are searched for second names
_MOST_CLOSED = 2_000_000  # files of closed trees that are searched
Inode = tuple[int, int]


class _Linked(Struct, frozen=True):
    """A file with more than one name."""

    path: str
    inode: Inode
    links: int


class _TooManyFiles(Exception):
    """A tree of more files than are searched."""


def second_names(roots: Sequence[str], closed: Sequence[str], most: int = MOST_SEARCHED) -> tuple[str, ...]:
    """Names below `roots` of files that are also at or below `closed`; without names that are closed themselves.

    Raises `SandboxUnavailable` if a closed file has a second name and the roots have too many files to search for it.
    """
    single = [path for path in closed if os.path.isfile(path)]  # single files are checked each time
    found = _second_names(tuple(roots), tuple(closed), tuple(_identity(path) for path in single), most)
    if isinstance(found, str):
        raise SandboxUnavailable(found)
    return found


@lru_cache(256)
def _second_names(
    roots: tuple[str, ...], closed: tuple[str, ...], seen: tuple[object, ...], most: int
) -> tuple[str, ...] | str:
    """The names, or the text of a refusal, so that it is cached too."""
    found: list[_Linked] | None
    try:
        found = list(_linked(roots, most))
    except _TooManyFiles:
        found = None
    if found == []:
        return ()
    elsewhere = _named_elsewhere(closed)
    if not elsewhere:
        return ()
    if found is None:
        example = next(iter(elsewhere.values()))
        return (
            f"`{example}` is closed to this call and has a second name, and the grant holds more than {most} "
            "files, too many to search for it: grant smaller directories, or replace the file by a copy"
        )
    return tuple(one.path for one in found if one.inode in elsewhere and not inside(one.path, closed))


def _named_elsewhere(closed: Iterable[str]) -> dict[Inode, str]:
    """The closed files that also have a name which is not closed, each with one of its names."""
    seen: dict[Inode, set[str]] = {}
    links: dict[Inode, int] = {}
    try:
        for one in _linked(closed, _MOST_CLOSED):
            seen.setdefault(one.inode, set()).add(one.path)
            links[one.inode] = one.links
    except _TooManyFiles:
        raise SandboxUnavailable(
            "what is closed to this call holds too many files to search for second names"
        ) from None
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
                yield _Linked(path, (about.st_dev, about.st_ino), about.st_nlink)
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
                                yield _Linked(entry.path, (about.st_dev, about.st_ino), about.st_nlink)


def installed_by_links(directories: Iterable[str]) -> bool:
    """Whether an installer has hard-linked packages into these directories: it then links the metadata too."""
    for directory in directories:
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".dist-info"):
                    with suppress(OSError):
                        if os.lstat(os.path.join(entry.path, "METADATA")).st_nlink > 1:
                            return True
    return False


def _identity(path: str) -> tuple[int, int, int] | None:
    """Which file is there; None if it is missing or has no other name. Then it makes no difference which it is."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return (about.st_dev, about.st_ino, about.st_nlink) if about.st_nlink > 1 else None
