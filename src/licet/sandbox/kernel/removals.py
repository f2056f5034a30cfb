"""Removes names for a program whose deletes nobody has approved: those in scratch, and of files made since it began.

Landlock gives a program the right to remove wherever it writes, since each rename needs it. So `unlink`, `unlinkat` and
`rmdir` wait in the kernel until this process has looked at the file and removed its name: in the directory that the
caller means, which it holds open, behind the same rules of Landlock. What the caller changes meanwhile changes nothing.

Between the look and the removal the program may move another file to the name. It wins nothing by that: who can move a
file can also write over it, and a rename over a file and a truncation are writes, which nobody judges.

A caller that has restricted itself with Landlock would gain by what is done for it, and removes nothing.
"""

import _thread
import errno
import os
import stat
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from licet.sandbox.kernel import connections, notifications
from licet.sandbox.kernel.births import Births, Made, made
from licet.sandbox.kernel.notifications import Notice, answer, waits
from licet.sandbox.kernel.supervised_calls import SupervisedCalls
from licet.sandbox.limits import LONGEST_REFUSED_DELETES, MOST_REFUSED_DELETES

NAMES: Final = ("unlink", "unlinkat", "rmdir")
_REMOVEDIR = 0x200
_AT_FDCWD = -100
_OF_ITSELF = ((b"/proc/self/", b"/proc/%d/"), (b"/proc/thread-self/", b"/proc/%d/"), (b"/dev/fd/", b"/proc/%d/fd/"))
# The error of Landlock itself. Some programs take EPERM for "this is a directory", as POSIX has it for `unlink`.
_REFUSED = errno.EACCES


class _Removal(NamedTuple):
    """What a caller wants to be removed."""

    directory: int  # the number of an open file, or `_AT_FDCWD`
    path: bytes
    is_directory: bool


class Removals:
    """The judge of what removes names. It needs a listener, the places for scratch, and what tells new files."""

    names: Final = frozenset(NAMES)
    is_quick = False  # a large file takes its time

    def __init__(self, births: Births, scratch: Iterable[str], may_delete: Callable[[str], bool] | None = None) -> None:
        """`may_delete`: whether the rules open a path, where this process has wider ones than the program."""
        self._births, self._may_delete = births, may_delete
        self._scratch_mounts, self._scratch_paths = _mounts_and_paths(scratch)
        self._lock = _thread.allocate_lock()
        self._refused: dict[str, None] = {}  # the first paths
        self._size = self._count = 0

    def judge(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        """Remove a name for its caller, or refuse to."""
        removal = _removal(notice)
        if connections.is_marked(notice.thread):
            raise OSError(_REFUSED, "the caller has restricted itself")
        above, name = _split(removal)
        directory = _opened(notice.thread, removal.directory, above)
        try:
            if not waits(calls.listener, notice):  # all this may have been that of another thread
                raise OSError(errno.ESRCH, "the caller is gone")
            self._check(directory, name, removal)
            (os.rmdir if removal.is_directory else os.unlink)(name, dir_fd=directory)
        finally:
            os.close(directory)
        answer(calls.listener, notice, 0)

    @property
    def report(self) -> dict[str, Any]:
        """What was refused: the first paths, and how many removals there were."""
        with self._lock:
            return {"paths": [*self._refused], "count": self._count}

    def _check(self, directory: int, name: bytes, removal: _Removal) -> None:
        """Raise unless a file may go. The kernel's own reasons come first: programs act on them."""
        file, is_directory = made(directory, name), removal.is_directory
        if stat.S_ISDIR(file.mode) and not is_directory:
            raise _error(errno.EISDIR)
        if not stat.S_ISDIR(file.mode) and (is_directory or removal.path.endswith(b"/")):
            raise _error(errno.ENOTDIR)
        if file.is_mounted:
            raise _error(errno.EBUSY)
        if self._may_delete is not None and not self._may_delete(_path(directory, name)):
            raise _error(_REFUSED)
        if self._births.is_new(file) or self._is_scratch(directory, file):
            return
        if os.fstatvfs(directory).f_flag & os.ST_RDONLY:
            raise _error(errno.EROFS)
        if is_directory and not _is_empty(directory, name):
            raise _error(errno.ENOTEMPTY)
        if os.access(".", os.W_OK, dir_fd=directory):
            self._remember(directory, name)
        raise _error(_REFUSED)

    def _is_scratch(self, directory: int, file: Made) -> bool:
        """Whether a file lies in scratch. On a disk that has other files too, the birth decides if there is one."""
        if file.mount in self._scratch_mounts:
            return True
        if file.born is not None or not self._scratch_paths:
            return False
        path = os.readlink(f"/proc/self/fd/{directory}")
        return any(path == place or path.startswith(f"{place}/") for place in self._scratch_paths)

    def _remember(self, directory: int, name: bytes) -> None:
        path = _path(directory, name).encode(errors="backslashreplace").decode()
        with self._lock:
            self._count += 1
            fits = len(self._refused) < MOST_REFUSED_DELETES and self._size + len(path) <= LONGEST_REFUSED_DELETES
            if path not in self._refused and fits:
                self._refused[path] = None
                self._size += len(path)


def _path(directory: int, name: bytes) -> str:
    return os.path.join(os.readlink(f"/proc/self/fd/{directory}"), os.fsdecode(name))


def _mounts_and_paths(scratch: Iterable[str]) -> tuple[frozenset[int], tuple[str, ...]]:
    """The places for scratch that are mounts of their own, by the id of the mount, and the others."""
    mounts, paths = [], []
    for path in scratch:
        try:
            place = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # it is not there, so nothing lies in it
            continue
        try:
            about = made(place)
        finally:
            os.close(place)
        if about.is_mounted and about.mount is not None:
            mounts.append(about.mount)
        else:
            paths.append(os.path.realpath(path))
    return frozenset(mounts), tuple(paths)


def _removal(notice: Notice) -> _Removal:
    first, second, third = notice.arguments[:3]
    if notice.name != "unlinkat":
        return _Removal(_AT_FDCWD, notifications.path(notice.thread, first), notice.name == "rmdir")
    flags = third & 0xFFFFFFFF
    if flags & ~_REMOVEDIR:
        raise _error(errno.EINVAL)
    number = (first & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
    return _Removal(number, notifications.path(notice.thread, second), bool(flags))


def _split(removal: _Removal) -> tuple[bytes, bytes]:
    """The directory in a path and the name in it; raises the error of the kernel for a path that is no name."""
    if not removal.path:
        raise _error(errno.ENOENT)
    above, slash, name = removal.path.rstrip(b"/").rpartition(b"/")
    if name in (b"", b".", b".."):
        no_name = {b"": errno.EBUSY, b".": errno.EINVAL, b"..": errno.ENOTEMPTY}[name]
        raise _error(no_name if removal.is_directory else errno.EISDIR)
    return above + slash, name


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _opened(thread: int, number: int, path: bytes) -> int:
    """The directory that a path means to a thread, opened without access to it."""
    for own, of_thread in _OF_ITSELF:
        if path.startswith(own):
            path = of_thread % thread + path[len(own) :]
    if path.startswith(b"/"):
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if number == _AT_FDCWD:
        start = os.open(f"/proc/{thread}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    else:
        start = notifications.open_file(thread, number)
    if not path:
        return start
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=start)
    finally:
        os.close(start)


def _is_empty(directory: int, name: bytes) -> bool:
    """Whether a directory is known to be empty."""
    try:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return True
    try:
        with os.scandir(inner) as entries:
            return next(entries, None) is None
    finally:
        os.close(inner)
