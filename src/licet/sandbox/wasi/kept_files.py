"""Large files that licet makes once and keeps in its data directory: compiled code, and the Python of `licet.tools`.

A note next to each file has its digest. A file that differs, or that others could write, is removed and made again. No
grant reaches the directory. Somebody who can write there as this user can also replace the note: the check finds
damage, and changes by other users.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from licet.guard.execution import SandboxUnavailable
from licet.policy_files.user_directories import data_root
from licet.regular_files import open_regular, read_most

_CHUNK = 1 << 20
_MOST_NOTE = 64 << 20  # bytes; a module can have many names
_NEW = ".new-"  # begins the names of what is not finished


class Note(Struct, frozen=True):
    """What is known of a kept file: a note next to it, as JSON."""

    format: int
    sha256: str
    size: int


N = TypeVar("N", bound=Note)
Turn = Callable[[], contextlib.AbstractContextManager[object]]


def private_directory(name: str, what: str, *, make: bool = True) -> Path:
    """A directory below `wasm` in licet's data directory, closed to other users. Raises `SandboxUnavailable`.

    `what` is what it is for: `compiled modules`. Without `make` it may not be there.
    """
    root = data_root()
    if not root:
        raise SandboxUnavailable(f"there is no directory for {what}: set HOME or XDG_DATA_HOME")
    directory = Path(root) / "wasm" / name
    try:
        if make:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if make or os.path.lexists(directory):
            _own(directory)
    except OSError as wrong:
        raise SandboxUnavailable(f"{what} cannot be kept in {directory}: {wrong.strerror or wrong}") from None
    return directory


def _own(directory: Path) -> None:
    """Raise `OSError` if another user owns the directory; close it to others."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(0, "it is not a directory of this user")
    if found.st_mode & 0o022:
        directory.chmod(0o700)


@contextlib.contextmanager
def locked(target: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a file, so that two processes do not make it at once; `waits` is called before waiting.

    What a process that was killed has left unfinished is removed.
    """
    import fcntl  # not on every platform

    path = target.with_suffix(".lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(fd, fcntl.LOCK_EX)
        for left in target.parent.glob(f"{_NEW}{target.stem}-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """A directory next to a file, in which it is made; it is removed again, also after an error."""
    directory = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{_NEW}{target.stem}-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def checked(target: Path, type_: type[N], format_: int, *, remove: bool = True) -> N | None:
    """Return the note of an unchanged file, else None. With `remove`, a changed file and its note are deleted."""
    try:
        with open_regular(note_of(target), links=False) as fd:
            private = _is_private(os.fstat(fd))
            note = msgspec.json.decode(read_most(fd, _MOST_NOTE), type=type_)
        with open_regular(target, links=False) as fd:
            found = os.fstat(fd)
            private = private and _is_private(found)
            if private and note.format == format_ and found.st_size == note.size and _hash(fd) == note.sha256:
                return note
    except (OSError, ValueError, RecursionError):  # a note that cannot be read is as bad as none
        pass
    for path in (note_of(target), target) if remove else ():
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return None


def _is_private(found: os.stat_result) -> bool:
    """Whether a file belongs to this user, who alone may write it, and has one name."""
    return found.st_uid == os.getuid() and not found.st_mode & 0o022 and found.st_nlink == 1


def keep(made: str | Path, target: Path, note_for: Callable[[str, int], N]) -> N:
    """Copy what was made to its place, with the note that `note_for` gives for its digest and size.

    Whoever made it may still change it, so the bytes are hashed as they are copied. Raises `OSError`.
    """
    with unfinished(target) as directory:
        copy, written = directory / "file", directory / "note"
        with open_regular(made, links=False) as source, copy.open("xb") as file:
            running, size = hashlib.sha256(), 0
            while data := os.read(source, _CHUNK):
                running.update(data)
                size += len(data)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        note = note_for(running.hexdigest(), size)
        written.write_bytes(msgspec.json.encode(note))
        copy.chmod(0o400)
        written.chmod(0o600)
        copy.replace(target)  # without its note, a file is not used
        written.replace(note_of(target))
    return note


def note_of(target: Path) -> Path:
    """The note next to a file."""
    return target.with_suffix(".json")


def _hash(fd: int) -> str:
    with open(fd, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
