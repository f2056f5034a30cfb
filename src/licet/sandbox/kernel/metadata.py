"""Changes modes, owners and times for a program, and lets it watch files: the judge of what Landlock does not check.

Each call is made on the very file that the caller's path meant, provided that a rule of the program lets it write that
file, or read the one that it watches.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Final, NamedTuple

from licet.sandbox.kernel import landlock, system_calls
from licet.sandbox.kernel.caller_files import AT_FDCWD, opened
from licet.sandbox.kernel.connections import is_marked, signed
from licet.sandbox.kernel.file_rights import FileRights
from licet.sandbox.kernel.notifications import Notice, answer, answer_with_value, memory, open_file, text, waits
from licet.sandbox.kernel.supervised_calls import SupervisedCalls
from licet.sandbox.limits import LONGEST_PATH

if sys.platform != "win32":
    import fcntl

_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000
_DONT_FOLLOW_WATCH = 0x02000000
_NONE = -1


class _Call(NamedTuple):
    """Where a call has its directory, path and flags among its arguments; `_NONE` for one that it does not have.

    Without a path, the directory is the open file that is changed.
    """

    directory: int
    path: int
    flags: int
    follows: bool = True


_CALLS: Final[Mapping[str, _Call]] = MappingProxyType(
    {
        "chmod": _Call(_NONE, 0, _NONE),
        "fchmod": _Call(0, _NONE, _NONE),
        "fchmodat": _Call(0, 1, _NONE),
        "fchmodat2": _Call(0, 1, 3),
        "chown": _Call(_NONE, 0, _NONE),
        "lchown": _Call(_NONE, 0, _NONE, follows=False),
        "fchown": _Call(0, _NONE, _NONE),
        "fchownat": _Call(0, 1, 4),
        "utime": _Call(_NONE, 0, _NONE),
        "utimes": _Call(_NONE, 0, _NONE),
        "futimesat": _Call(0, 1, _NONE),
        "utimensat": _Call(0, 1, 3),
        "inotify_add_watch": _Call(_NONE, 1, 2),
    }
)
_TIMES: Final = MappingProxyType({"utime": 16, "utimes": 32, "futimesat": 32, "utimensat": 32})


class Metadata:
    """The judge of these calls, with the rights of the program."""

    names: Final = frozenset(_CALLS)
    is_quick = False  # a path may lead to a file system that does not answer

    def __init__(self, rights: FileRights) -> None:
        self._rights = rights

    def judge(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        """Make a change for its caller, or refuse it."""
        with ExitStack() as files:
            file = _file(notice)
            files.callback(os.close, file)
            if is_marked(notice.thread):
                raise OSError(errno.EACCES, "the caller has restricted itself")
            act = self._act(notice, file, files)
            if not waits(calls.listener, notice):  # all this may have been that of another thread
                raise OSError(errno.ESRCH, "the caller is gone")
            value = act(f"/proc/self/fd/{file}".encode() + b"\0")
        if value:
            answer_with_value(calls.listener, notice, value)
        else:
            answer(calls.listener, notice, 0)

    def _act(self, notice: Notice, file: int, files: ExitStack) -> Callable[[bytes], int]:
        """What makes the change on a path; looks at all that the caller could exchange."""
        if notice.name == "inotify_add_watch":
            return self._watch(notice, file, files)
        _check_written(file, self._rights)
        arguments = notice.arguments
        if notice.name in _TIMES:
            address = arguments[{"futimesat": 2, "utimensat": 2}.get(notice.name, 1)]
            times = memory(notice.thread, address, _TIMES[notice.name]) if address else None
            return lambda path: _set_times(notice.name, path, times, is_link=_is_link(file), file=file)
        if "mod" in notice.name:
            if _is_link(file):
                raise OSError(errno.EOPNOTSUPP, "a link has no mode")
            mode = arguments[1 if notice.name in ("chmod", "fchmod") else 2] & 0o7777
            return lambda path: _made("chmod", path, mode)
        first = 2 if notice.name == "fchownat" else 1
        user, group = (signed(argument) for argument in arguments[first : first + 2])
        return lambda _: _made("fchownat", file, b"\0", user, group, _EMPTY_PATH)

    def _watch(self, notice: Notice, file: int, files: ExitStack) -> Callable[[bytes], int]:
        if not self._rights.of(file) & landlock.READ_FILE:
            raise OSError(errno.EACCES, "the file may not be read")
        watching = open_file(notice.thread, signed(notice.arguments[0]))
        files.callback(os.close, watching)
        mask = notice.arguments[2] & 0xFFFFFFFF & ~_DONT_FOLLOW_WATCH
        return lambda path: _made("inotify_add_watch", watching, path, mask)


def _file(notice: Notice) -> int:
    """The file that a call means, opened."""
    call, arguments, thread = _CALLS[notice.name], notice.arguments, notice.thread
    directory = AT_FDCWD if call.directory == _NONE else signed(arguments[call.directory])
    flags = 0 if call.flags == _NONE else arguments[call.flags]
    address = 0 if call.path == _NONE else arguments[call.path]
    if not address:  # such as futimens
        return open_file(thread, directory)
    follows = call.follows and not flags & (_DONT_FOLLOW_WATCH if notice.name == "inotify_add_watch" else _NO_FOLLOW)
    path = text(thread, address, LONGEST_PATH)
    if not path and flags & _EMPTY_PATH and notice.name != "inotify_add_watch":
        if directory == AT_FDCWD:
            return opened(thread, AT_FDCWD, b".", follow=True)
        return open_file(thread, directory)
    return opened(thread, directory, path, follow=follows)


def _check_written(file: int, rights: FileRights) -> None:
    """Refuse a change of a file that the program may not write."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    is_open = not flags & os.O_PATH and flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)
    if is_open and stat.S_ISREG(os.fstat(file).st_mode):
        return  # it was opened for writing behind the same walls; devices and terminals are, too
    if not rights.of(file) & landlock.WRITE_FILE:
        raise PermissionError(errno.EPERM, "the file may not be written")


def _is_link(file: int) -> bool:
    return stat.S_ISLNK(os.fstat(file).st_mode)


def _set_times(name: str, path: bytes, times: bytes | None, *, is_link: bool, file: int) -> int:
    if name == "futimesat":
        name = "utimes"  # the same on a path
    if not is_link:
        return _made(name, *(AT_FDCWD,) * (name == "utimensat"), path, times, 0)
    # The link of /proc would lead to the link, and that on: its own directory is where it is named.
    if name != "utimensat":
        raise OSError(errno.EOPNOTSUPP, "only utimensat changes a link")
    return _made(name, file, b"\0", times, _EMPTY_PATH)


def _made(name: str, *arguments: int | bytes | None) -> int:
    numbers = system_calls.NUMBERS[system_calls.machine()]
    if name in numbers:
        return system_calls.syscall(name, numbers[name], *arguments)
    return system_calls.syscall(name, numbers["fchmodat"], AT_FDCWD, *arguments)  # aarch64 has no chmod
