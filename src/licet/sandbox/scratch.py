"""Scratch: the one directory that a worker may write by itself; it is removed with the worker.

All scratch directories of a user are in one parent directory. One rule closes the parent to every grant, so that a call
reaches its own scratch only.

`SessionScratch` is what the shell lines of one session of a coding agent share, and outlives each of them.
"""

import contextlib
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from licet.sandbox.kernel import births
from licet.sandbox.limits import MOST_SCRATCH_ENTRIES, MOST_SESSION_ENTRIES, SESSION_SCRATCH_SECONDS

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
    directory = os.path.join(_own(parent()), os.urandom(8).hex())
    os.mkdir(directory, 0o700)
    return directory


def _own(above: str) -> str:
    """Make a parent of scratch directories, or check the one that is there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(above, 0o700)
    found = os.lstat(above)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        # The owner of the parent could replace the scratch directory of a running call.
        raise PermissionError(f"`{above}` is not a directory of this user: remove it, or set TMPDIR to another place")
    if found.st_mode & 0o077:
        os.chmod(above, 0o700)
    return above


def used(directory: str, most: int = MOST_SCRATCH_ENTRIES) -> ScratchUse:
    """The use of a directory; counting stops at `most` entries."""
    size = entries = 0
    left = [directory]
    while left and entries < most:
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


# Scratch of a session ----------------------------------------------------------------------------------------------

_LOCK = "lock"
_STATE = "state"


def sessions_parent() -> str:
    """The parent of the scratch of all sessions of this user.

    No variable moves it: the lines of one session are run by processes with different variables.
    """
    place = next((one for one in _TEMPORARY if os.path.isdir(one) and os.access(one, os.W_OK)), _TEMPORARY[0])
    return os.path.join(os.path.realpath(place), f"licet-sessions-{os.getuid()}")


class SessionScratch(NamedTuple):
    """The directory of one session on the host; programs see directories in it, and never the directory itself."""

    directory: str
    began: int | None = None  # when the session began: what was made since then, its lines may remove

    @property
    def state(self) -> str:
        """What shells keep here for the next line of the session."""
        return os.path.join(self.directory, _STATE)

    def place(self, path: str, names: Mapping[str, bool]) -> str:
        """The directory for a place of a private root, such as `/tmp`.

        Something else is mounted over the `names` in it, which are directories if they are true, and files otherwise.
        So a program can neither replace nor remove one: whatever is mounted below a name later goes where licet means.
        A directory with other names is another directory, for the same reason.
        """
        text = "\0".join((path, *(f"{name}/{is_directory:d}" for name, is_directory in sorted(names.items()))))
        found = os.path.join(self.directory, f"p-{hashlib.sha256(os.fsencode(text)).hexdigest()[:16]}")
        if not os.path.lexists(found):
            draft = os.path.join(self.directory, f"d-{os.urandom(8).hex()}")
            os.mkdir(draft, 0o700)
            for name, is_directory in names.items():
                made = os.path.join(draft, name)
                if is_directory:
                    os.mkdir(made, 0o700)
                else:
                    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            try:
                os.rename(draft, found)  # complete, so that no program sees it without the names
            except OSError:  # another line of the session was first
                remove(draft)
        return found

    def used(self) -> ScratchUse:
        """What is in all its directories."""
        return used(self.directory, MOST_SESSION_ENTRIES)

    def exceeds(self, size: int) -> bool:
        """Whether it holds more bytes, or as many entries as are counted."""
        found = self.used()
        return found.size > size or found.entries >= MOST_SESSION_ENTRIES


@contextlib.contextmanager
def session_scratch(name: str, size: int) -> Iterator[SessionScratch]:
    """The scratch of a session, for one of its lines; it is not removed while a line has it.

    One that holds more than `size` bytes is emptied first, as scratch may be at any time, unless another line uses it:
    then this raises `OSError`, as it does if nothing can be made.
    """
    with _held(_directory_of(name)) as lock:
        directory = _directory_of(name)
        scratch = SessionScratch(directory, births.birth(directory))
        if scratch.exceeds(size):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(scratch)
            fcntl.flock(lock, fcntl.LOCK_SH)
        with contextlib.suppress(FileExistsError):
            os.mkdir(scratch.state, 0o700)
        os.utime(os.path.join(scratch.directory, _LOCK))
        yield scratch


def end_session(name: str) -> bool:
    """Remove the scratch of a session; false if one of its lines runs. A missing one is no error."""
    return _removed(_directory_of(name))


def remove_stale() -> None:
    """Remove the scratch of sessions that have run no line for days."""
    above = sessions_parent()
    oldest = time.time() - SESSION_SCRATCH_SECONDS
    with contextlib.suppress(OSError):
        for name in os.listdir(_own(above)):
            directory = os.path.join(above, name)
            with contextlib.suppress(OSError):
                lock = os.path.join(directory, _LOCK)
                if os.lstat(lock if os.path.lexists(lock) else directory).st_mtime < oldest:
                    _removed(directory)


def _directory_of(name: str) -> str:
    return os.path.join(sessions_parent(), hashlib.sha256(os.fsencode(name)).hexdigest()[:32])


def _empty(scratch: SessionScratch) -> None:
    for name in os.listdir(scratch.directory):
        if name != _LOCK:
            remove(os.path.join(scratch.directory, name))


def _removed(directory: str) -> bool:
    if not os.path.lexists(directory):
        return True
    try:
        with _held(directory) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(SessionScratch(directory))
            os.unlink(os.path.join(directory, _LOCK))
            os.rmdir(directory)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _held(directory: str) -> Iterator[int]:
    """The lock of a directory, shared; both are made. Who removes a directory holds its lock alone, and that last."""
    path = os.path.join(directory, _LOCK)
    while True:
        _own(sessions_parent())
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # removed between the two calls
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_at(lock, path):
                yield lock
                return
        finally:
            os.close(lock)


def _is_at(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False
