"""Files and directories with nothing in them that stand for closed names while programs run.

Only a name that exists can be mounted over, and Landlock has no deny. So a closed name that is missing, in a directory
that a program may write, is made before the program starts, and removed after the last program that needs it has ended.
Otherwise the program could make it, or no new name at all could be made beside it.

Every program that needs one holds a shared lock on it, and who finds no other lock removes it. The lock of its
directory keeps two hosts from doing so at once. It is known by its time, so that one that a killed host has left is
used and removed by the next. What somebody has written to stays.
"""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

from licet.regular_files import PLACEHOLDER_TIME, is_placeholder

_ATTEMPTS = 100
# Names that programs expect to be files. They read an empty file without an error; git does not list empty directories.
# Only licet reads its own names, and for it a directory there is no policy.
_OF_FILES = re.compile(
    r"(?!licet\.(?:yaml|lock)$).+\.(?:json[c5]?|ya?ml|toml|ini|cfg|conf|md|txt|lock|py|pth|[cm]?js|ts|lua|el|sh|xml|env|pem|key|db|log)"
    r"|\.?(?:env|netrc|gitmodules|gitconfig|gdbinit|lldbinit|exrc|profile|bash_profile|[a-z]*rc|pgpass|tool-versions)"
    r"|(?:\.env|id)[._][^/]+|Jenkinsfile|Makefile|Dockerfile|\.(?:cursor|windsurf|cline)rules"
    r"|config\.worktree|commondir",
    re.IGNORECASE,
)
_TEXTS = {"commondir": b".\n"}  # of git, which stops at an empty one: its common directory is its own


class InUse(OSError):
    """A placeholder that a running program needs."""


class _Held(Struct, frozen=True):
    """One placeholder: its path, and the open file that is locked."""

    path: str
    fd: int


class Placeholders:
    """The placeholders of one program. `release` must follow."""

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._directories: list[str] = []  # those that were made on the way to one, outer ones first

    def hold(self, paths: Iterable[str]) -> list[str]:
        """Make the names that are missing, and hold those that were made before. Returns those that are not held.

        They are missing, or what stands for them may go before this program ends: the caller must refuse every new
        name beside them.
        """
        not_held = []
        for path in paths:
            try:
                self._make_directories(os.path.dirname(path))
                held = self._hold(path)
            except OSError:
                held = False
            if not held and _may_go(path):
                not_held.append(path)
        return not_held

    def release(self) -> None:
        """Remove the placeholders that nobody else holds and nobody has written to."""
        for held in reversed(self._held):
            with suppress(OSError):  # another program needs it, or it is gone
                _remove(held)
            os.close(held.fd)
        for path in reversed(self._directories):
            with suppress(OSError):  # something is in it
                os.rmdir(path)
        self._held, self._directories = [], []

    def _make_directories(self, directory: str) -> None:
        if os.path.realpath(directory) != directory:
            raise OSError(errno.ELOOP, "a link is on the way", directory)
        missing = []
        while not os.path.lexists(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for path in reversed(missing):
            os.mkdir(path)
            self._directories.append(path)

    def _hold(self, path: str) -> bool:
        # A program can lock what it can open, for ever. So only making a name needs the lock of its directory.
        with suppress(BlockingIOError), _locked(os.path.dirname(path)):
            if not os.path.lexists(path):
                _make(path)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            mine = os.fstat(fd)
            # Who removes it has locked it alone. If that came first, it is gone from its name.
            held = is_placeholder(mine) and os.path.samestat(mine, os.lstat(path))
        except OSError:
            os.close(fd)
            raise
        if held:
            self._held.append(_Held(path, fd))
        else:
            os.close(fd)  # somebody else made it: it is closed as it is
        return held


def _may_go(path: str) -> bool:
    """Whether a name is missing, or has a placeholder that another host may remove."""
    try:
        return is_placeholder(os.lstat(path))
    except OSError:
        return True


def make_way(path: str | os.PathLike[str]) -> None:
    """Remove a placeholder that a killed host has left, for a file that is to be written there.

    Raises `InUse` if a program needs it: a mount ends with the file below it, so what replaces that would be open.
    """
    with suppress(FileNotFoundError):
        if not is_placeholder(os.lstat(path)):
            return
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _remove(_Held(os.path.abspath(path), fd))
        except BlockingIOError:
            text = "a program is running behind walls here, to which this name is closed: try again when it has ended"
            raise InUse(errno.EBUSY, text, os.fspath(path)) from None
        finally:
            os.close(fd)


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Lock a directory for a moment. A program may hold such a lock for ever, so this gives up with an `OSError`."""
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


def _make(path: str) -> None:
    if _OF_FILES.fullmatch(os.path.basename(path)):
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(_TEXTS.get(os.path.basename(path), b""))
    else:
        os.mkdir(path, 0o700)
    os.utime(path, ns=(PLACEHOLDER_TIME, PLACEHOLDER_TIME), follow_symlinks=False)


def _remove(held: _Held) -> None:
    with _locked(os.path.dirname(held.path)):
        fcntl.flock(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine, there = os.fstat(held.fd), os.lstat(held.path)
        if is_placeholder(mine) and os.path.samestat(mine, there):
            (os.rmdir if stat.S_ISDIR(mine.st_mode) else os.unlink)(held.path)
