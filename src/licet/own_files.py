"""Reads files whose names come from outside: regular files only, and only up to a limit. Finds programs on PATH.

A name may lead to a named pipe, a device, a socket, a directory or a file that never ends. Without this check the
reader would wait for ever, or run out of memory. Who may read a file is not decided here.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "PLACEHOLDER_TIME",
    "FileTooLarge",
    "NotRegular",
    "find_on_path",
    "is_placeholder",
    "is_there",
    "open_regular",
    "read_most",
    "read_regular",
    "size_text",
]

PLACEHOLDER_TIME = 1_000_000_001  # ns since 1970: no file is that old
PLACEHOLDER_SIZE = 2  # bytes at most: most are empty

_CHUNK = 1 << 20
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # do not wait for a named pipe without a writer, or for a file with a lease
    | getattr(os, "O_NOCTTY", 0)  # a terminal must not become the controlling one
    | getattr(os, "O_CLOEXEC", 0)
)
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a link"),
)


class NotRegular(OSError):
    """A name that leads to something other than a regular file."""


class FileTooLarge(OSError):
    """A file with more bytes than its reader accepts."""


def read_regular(path: str | os.PathLike[str], most: int, *, links: bool = True) -> bytes:
    """Return the bytes of a regular file.

    Raises `NotRegular`, `FileTooLarge` or another `OSError`; `strerror` says what is wrong in words for a person. With
    `links=False` a symbolic link in the last place is refused.
    """
    with open_regular(path, links=links) as fd:
        data = read_most(fd, most + 1)
    if len(data) > most:
        raise FileTooLarge(errno.EFBIG, f"larger than {size_text(most)}", os.fspath(path))
    return data


@contextmanager
def open_regular(path: str | os.PathLike[str], *, links: bool = True) -> Iterator[int]:
    """Open a regular file, for a reader that also needs its owner or mode. Leaving the context closes it."""
    # Opening a device can have effects of its own (a tape rewinds), and opening a pipe wakes its writer: check first.
    _check(os.stat(path, follow_symlinks=links), path)
    try:
        fd = os.open(path, _FLAGS | (0 if links else getattr(os, "O_NOFOLLOW", 0)))
    except OSError as error:
        # The file may have been replaced after the check.
        if error.errno in (errno.ENXIO, errno.ELOOP) and not os.path.isfile(path):
            raise NotRegular(error.errno, "not a regular file", os.fspath(path)) from None
        raise
    try:
        _check(os.fstat(fd), path)
        yield fd
    finally:
        os.close(fd)


def is_placeholder(about: os.stat_result) -> bool:
    """Whether this is a file or directory that stands for a closed name while a program runs."""
    is_empty = stat.S_ISDIR(about.st_mode) or (stat.S_ISREG(about.st_mode) and about.st_size <= PLACEHOLDER_SIZE)
    return is_empty and about.st_mtime_ns == PLACEHOLDER_TIME


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether there is anything by that name, other than a placeholder: who looks for policy must not find one."""
    try:
        return not is_placeholder(os.lstat(path))
    except (OSError, ValueError):
        return False


def read_most(fd: int, most: int) -> bytes:
    """Read from the current position to the end of the file, but at most `most` bytes."""
    parts: list[bytes] = []
    while most > 0 and (part := os.read(fd, min(most, _CHUNK))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def size_text(size: int) -> str:
    """Write a number of bytes the way people do: `1 MiB`, `64 KiB`, `1000 bytes`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def _check(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "something else")
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise NotRegular(number, f"{kind}, not a regular file", os.fspath(path))


def find_on_path(name: str) -> str | None:
    """The absolute path of a program on PATH. Entries that depend on the current directory are not searched."""
    places = [place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    return shutil.which(name, path=os.pathsep.join(places))
