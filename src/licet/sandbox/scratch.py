"""Scratch: the one directory that a worker may write by itself; it is removed with the worker.

All scratch directories of a user are in one parent directory. One rule closes the parent to every grant, so that a call
reaches its own scratch only.
"""

import contextlib
import os
import stat
from typing import NamedTuple

from licet.sandbox.limits import MOST_SCRATCH_ENTRIES

_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - as in `tempfile`, which takes long to import


class ScratchUse(NamedTuple):
    """The bytes on disk and the entries of a scratch directory."""

    size: int
    entries: int


def parent() -> str:
    """The parent of all scratch directories of this user: `licet-<uid>` in the directory for temporary files."""
    stated = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    places = (os.path.abspath(place) for place in (*filter(None, stated), *_TEMPORARY))
    place = next((place for place in places if os.path.isdir(place) and os.access(place, os.W_OK)), _TEMPORARY[0])
    return os.path.join(os.path.realpath(place), f"licet-{os.getuid()}")


def new() -> str:
    """Make a scratch directory. Raises `OSError` if that fails, or if another user owns the parent."""
    above = parent()
    with contextlib.suppress(FileExistsError):
        os.mkdir(above, 0o700)
    found = os.lstat(above)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        # The owner of the parent could replace the scratch directory of a running call.
        raise PermissionError(f"`{above}` is not a directory of this user: remove it, or set TMPDIR to another place")
    if found.st_mode & 0o077:
        os.chmod(above, 0o700)
    directory = os.path.join(above, os.urandom(8).hex())
    os.mkdir(directory, 0o700)
    return directory


def used(directory: str) -> ScratchUse:
    """The use of a directory; counting stops at `MOST_SCRATCH_ENTRIES` entries."""
    size = entries = 0
    left = [directory]
    while left and entries < MOST_SCRATCH_ENTRIES:
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
    return ScratchUse(size, entries)


def clear(directory: str) -> None:
    """Remove everything in a directory whose worker is dead; links are removed, never followed.

    Not recursively: a tree can be deeper than the stack and longer than any path. Inner directories are moved to the
    top before their parent is removed.
    """
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while names := os.listdir(top):
            for name in names:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                os.chmod(name, 0o700, dir_fd=top)  # it stays a directory: its worker is dead
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
                try:
                    for below in os.listdir(inner):
                        if stat.S_ISDIR(os.lstat(below, dir_fd=inner).st_mode):
                            os.chmod(below, 0o700, dir_fd=inner)  # moving a directory writes its `..`
                            # A random name: one that exists already would make this fail.
                            os.rename(below, f".{os.urandom(12).hex()}", src_dir_fd=inner, dst_dir_fd=top)
                        else:
                            os.unlink(below, dir_fd=inner)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def remove(directory: str) -> None:
    """Remove a directory with everything in it; a missing one is no error."""
    with contextlib.suppress(OSError):
        clear(directory)
        os.rmdir(directory)
