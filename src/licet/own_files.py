"""Writes the files that licet owns, and reads files whose names come from outside. Finds programs on PATH.

Each file is written in one way: to a draft beside it, which is on the disk before it gets the name. A crash or a full
disk leaves the old text or the new one. No link is followed. A placeholder, which stands for a closed name while a
program runs, is not written over.

Only regular files are read, and only up to a limit. A name may lead to a named pipe, a device, a socket, a directory
or a file that never ends. Without this check the reader would wait for ever, or run out of memory. Who may read a file
is not decided here.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

__all__ = [
    "PLACEHOLDER_TIME",
    "FileTooLarge",
    "InUse",
    "NotRegular",
    "append",
    "create_file",
    "find_on_path",
    "is_placeholder",
    "is_there",
    "locked_directory",
    "make_way",
    "open_new",
    "open_regular",
    "read_most",
    "read_regular",
    "remove_placeholder",
    "renamed_aside",
    "replace_file",
    "size_text",
]

PLACEHOLDER_TIME = 1_000_000_001  # ns since 1970: no file is that old
PLACEHOLDER_SIZE = 2  # bytes at most: most are empty

_ATTEMPTS = 100
_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
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


class InUse(OSError):
    """A placeholder that a running program needs."""


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


@contextmanager
def locked_directory(directory: str) -> Iterator[None]:
    """Lock a directory for a moment. A program may hold such a lock for ever, so this gives up with an `OSError`."""
    import fcntl  # not available on every system

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.005)
        yield
    finally:
        os.close(fd)


def remove_placeholder(path: str, fd: int) -> None:
    """Remove a placeholder that is open as `fd`; `BlockingIOError` if a program needs it."""
    import fcntl  # not available on every system

    with locked_directory(os.path.dirname(path)):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine, there = os.fstat(fd), os.lstat(path)
        if is_placeholder(mine) and os.path.samestat(mine, there):
            (os.rmdir if stat.S_ISDIR(mine.st_mode) else os.unlink)(path)


def make_way(path: str | os.PathLike[str]) -> None:
    """Remove a placeholder that a killed host has left, for a file that is to be written there.

    Raises `InUse` if a program needs it: a mount ends with the file below it, so what replaces that would be open.
    """
    with suppress(FileNotFoundError):
        if not is_placeholder(os.lstat(path)):
            return
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            remove_placeholder(os.path.abspath(path), fd)
        except BlockingIOError:
            text = "a program is running behind walls here, to which this name is closed: try again when it has ended"
            raise InUse(errno.EBUSY, text, os.fspath(path)) from None
        finally:
            os.close(fd)


def create_file(path: str | os.PathLike[str], data: bytes, mode: int = 0o600) -> None:
    """Write a new file; `FileExistsError` if there is anything by that name. The umask applies to the mode."""
    with _draft(path, data, mode) as draft:
        try:
            os.link(draft, path)  # unlike a rename, a link fails if the path exists
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: an empty file holds the name
            os.close(os.open(path, _NEW, mode))
            os.replace(draft, path)


def replace_file(path: str | os.PathLike[str], data: bytes, mode: int = 0o600, *, keep_mode: bool = False) -> None:
    """Write a file, new or not. A link is replaced, not its target. The umask applies to the mode.

    With `keep_mode`, a regular file that is there gives its mode to the new one.
    """
    with _draft(path, data, mode, keep_mode=keep_mode) as draft:
        os.replace(draft, path)


@contextmanager
def _draft(path: str | os.PathLike[str], data: bytes, mode: int, *, keep_mode: bool = False) -> Iterator[str]:
    """A file with the data, on the disk, which the caller gives its name."""
    make_way(path)
    folder = os.path.dirname(path)
    there = os.lstat(path).st_mode if keep_mode and os.path.lexists(path) else 0
    kept = there & 0o777 if stat.S_ISREG(there) else None
    draft = os.path.join(folder, f".licet-{os.urandom(8).hex()}")
    fd = os.open(draft, _NEW, mode if kept is None else kept)
    try:
        with os.fdopen(fd, "wb") as file:
            if kept is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, kept)  # what the umask took away
            file.write(data)
            file.flush()
            os.fsync(fd)
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    _sync_directory(folder or ".")


def _sync_directory(directory: str) -> None:
    try:
        fd = os.open(directory, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:  # Windows opens no directory, and nobody one without `r`; some file systems sync none
        if error.errno not in (errno.EACCES, errno.EINVAL):
            raise


def open_new(path: str | os.PathLike[str]) -> int:
    """Open a new file that only its owner can read, to `append` to it."""
    return os.open(path, _NEW | os.O_APPEND, 0o600)


def append(fd: int, data: bytes) -> None:
    """Append all of the data, or nothing and raise `OSError`. It is on the disk when the system puts it there."""
    begin = os.fstat(fd).st_size
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, begin)  # no half line
        raise


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
    import shutil  # which loads several compressors

    places = [place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    return shutil.which(name, path=os.pathsep.join(places))


_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def renamed_aside(root: str, path: str, is_nothing: Callable[[int, str], bool]) -> str:
    """Rename a path below a directory; returns its new name, empty if `is_nothing` says so of its directory and name.

    No part of it may be a link: a program that still runs could lead this process out of its walls.
    """
    *above, name = os.path.relpath(path, root).split("/")
    with ExitStack() as stack:
        folder = os.open(root, _FOLDER)
        stack.callback(os.close, folder)
        for part in above:
            folder = os.open(part, _FOLDER, dir_fd=folder)
            stack.callback(os.close, folder)
        if is_nothing(folder, name):
            return ""
        for number in range(1, 1000):
            other = f"{name}.set-aside-{number}"
            try:
                os.lstat(other, dir_fd=folder)
            except FileNotFoundError:
                os.rename(name, other, src_dir_fd=folder, dst_dir_fd=folder)
                return os.path.join(os.path.dirname(path), other)
    return ""
