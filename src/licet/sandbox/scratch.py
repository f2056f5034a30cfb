"""Scratch: the one directory that a worker may write, and that disappears with it, whatever was put there.

All scratch directories of a user lie below one parent, so that one rule closes them to every grant: a call reaches its
own scratch, and no other.
"""

import contextlib
import os
import stat
from typing import NamedTuple

_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - where `tempfile` looks too; loading it takes long
MOST_SEEN = 20_000  # entries that are counted; more than these are too many anyway


class Used(NamedTuple):
    """How much of a scratch directory is used."""

    size: int
    entries: int


def parent() -> str:
    """The parent of all scratch directories of this user: `licet-<uid>` in the directory for temporary files."""
    stated = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    places = (os.path.abspath(place) for place in (*filter(None, stated), *_TEMPORARY))
    place = next((place for place in places if os.path.isdir(place) and os.access(place, os.W_OK)), _TEMPORARY[0])
    return os.path.join(os.path.realpath(place), f"licet-{os.getuid()}")


def new() -> str:
    """A new, empty scratch directory; `OSError` if there is no place, or another user holds the place of the parent."""
    above = parent()
    with contextlib.suppress(FileExistsError):
        os.mkdir(above, 0o700)
    found = os.lstat(above)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        # Whoever owns the parent could exchange the scratch of a running call.
        raise PermissionError(f"`{above}` is not a directory of this user: remove it, or set TMPDIR to another place")
    if found.st_mode & 0o077:
        os.chmod(above, 0o700)
    directory = os.path.join(above, os.urandom(8).hex())
    os.mkdir(directory, 0o700)
    return directory


def used(directory: str) -> Used:
    """What a directory holds, in bytes on disk; it stops to count at what is too much in any case."""
    size = entries = 0
    left = [directory]
    while left and entries < MOST_SEEN:
        try:
            with os.scandir(left.pop()) as found:
                for entry in found:
                    entries += 1
                    with contextlib.suppress(OSError):
                        kept = entry.stat(follow_symlinks=False)
                        size += kept.st_blocks * 512
                        if stat.S_ISDIR(kept.st_mode):
                            left.append(entry.path)
        except OSError:
            continue
    return Used(size, entries)


def clear(directory: str) -> None:
    """Remove everything in a directory whose worker is dead; links are removed, never followed.

    Not recursively: a tree can be deeper than any stack and longer than any path. What is inside a directory is moved
    up to the top before the directory itself goes.
    """
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while names := os.listdir(top):
            for name in names:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                os.chmod(name, 0o700, dir_fd=top)  # it is a directory, and nobody is left to change that
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
                try:
                    for below in os.listdir(inner):
                        if stat.S_ISDIR(os.lstat(below, dir_fd=inner).st_mode):
                            os.chmod(below, 0o700, dir_fd=inner)  # to move a directory its `..` is rewritten
                            # A name that nobody can have guessed: one that is taken would end this half way.
                            os.rename(below, f".{os.urandom(12).hex()}", src_dir_fd=inner, dst_dir_fd=top)
                        else:
                            os.unlink(below, dir_fd=inner)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def remove(directory: str) -> None:
    """Remove a directory with everything in it; one that is gone is fine."""
    with contextlib.suppress(OSError):
        clear(directory)
        os.rmdir(directory)
