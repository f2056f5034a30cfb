"""From a call that waits to what it touches: a table of calls, and the rules for those that are no uses.

A call that will fail is no use: a file that is not there, a directory that may not be written, a name that is taken.
What is left may still fail, for reasons that only the kernel knows.

The thread that makes a call: its memory, its open files, and what a path means to it.

Paths are looked up through /proc, as the kernel will look them up a moment later: from the working directory, the
directory or the root of that thread, with its links followed. The file at the end is opened with O_PATH, which neither
reads it nor waits for it, and the kernel is asked for its name.
"""

import os
import re
import socket
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from licet.sandbox.kernel import system_calls
from licet.sandbox.kernel.notifications import Notice
from licet.sandbox.limits import LONGEST_PATH, MOST_INTERPRETERS

FROM_HERE = -100  # AT_FDCWD
_DELETED = " (deleted)"
_OF_ITSELF = re.compile(r"self|fd|std")  # in every path that means another file to each process
_STREAMS = ("/dev/stdin", "/dev/stdout", "/dev/stderr")
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438  # the same numbers on every architecture


class Unreadable(Exception):
    """The memory of a process cannot be read, so nobody knows what its call names."""


class TooLong(Exception):
    """A file has a path that the kernel cannot tell, since it is longer than any call can name."""


_OF_KERNEL = ("/proc/", "/dev/", "/sys/")


class Found(NamedTuple):
    """A file that a path leads to. `fd` is open without access to its content, until the caller is closed."""

    path: str
    mode: int
    user: int
    fd: int

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def permits(self, wanted: int) -> bool:
        """Whether this user may do something with it, as for `os.access`."""
        return os.access(f"/proc/self/fd/{self.fd}", wanted)

    def beginning(self, size: int) -> bytes:
        """The first bytes of a regular file; empty if it cannot be read."""
        if not stat.S_ISREG(self.mode):
            return b""
        try:
            file = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.read(file, size)
        finally:
            os.close(file)


class Entry(NamedTuple):
    """A name in a directory: what a call makes or removes. It may exist or not."""

    path: str
    exists: bool
    directory: Found


class Caller:
    """One thread while it waits in a call. Close it after use."""

    def __init__(self, thread: int, process: int) -> None:
        self.thread, self.process = thread, process
        self._proc = f"/proc/{thread}"
        self._opened: list[int] = []

    def close(self) -> None:
        """Close every file that was found."""
        while self._opened:
            os.close(self._opened.pop())

    # Memory ----------------------------------------------------------------------------------------------------------

    def data(self, address: int, size: int) -> bytes:
        """Bytes of its memory, perhaps fewer. Raises `Unreadable`."""
        try:
            memory = os.open(f"{self._proc}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as wrong:
            raise Unreadable from wrong
        try:
            return os.pread(memory, size, address)
        except (OSError, OverflowError):  # no memory there: the call will fail
            return b""
        finally:
            os.close(memory)

    def text(self, address: int) -> str | None:
        """The path at an address; None if there is none, and the call will fail."""
        if not address:
            return None
        data, nul, _ = self.data(address, LONGEST_PATH).partition(b"\0")
        return os.fsdecode(data) if nul else None

    # Paths -----------------------------------------------------------------------------------------------------------

    def find(self, at: int, path: str | None, *, follow: bool = True) -> Found | None:
        """The file that a path leads to; None if there is none, or nothing with a name of its own."""
        if not path or (place := self._place(at, path)) is None:
            return None
        return self._open(place, follow=follow)

    def name_through_links(self, at: int, path: str | None, found: Found) -> str:
        """The absolute path by which a file was named, if links are on the way; otherwise empty."""
        start = "" if not path or path.startswith("/") else f"{self._proc}/{'cwd' if at == FROM_HERE else f'fd/{at}'}"
        named = self._plain(start, path) if path else ""
        is_file = bool(named) and named != found.path and not named.startswith(_OF_KERNEL)
        return named if is_file and os.path.realpath(named) == found.path else ""

    def file(self, number: int) -> Found | None:
        """The file that is open under a number."""
        return self._open(f"{self._proc}/fd/{number}", follow=True)

    def entry(self, at: int, path: str | None) -> Entry | None:
        """The name that a path ends with, its last link not followed; None if its directory does not exist."""
        if not path or not (bare := path.rstrip("/")):
            return None
        above, _, name = bare.rpartition("/")
        if name in (".", ".."):
            return None
        directory = self.find(at, above or ("/" if bare.startswith("/") else "."))
        if directory is None or not directory.is_directory:
            return None
        try:
            os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
            exists = True
        except OSError:
            exists = False
        return Entry(os.path.join(directory.path, name), exists, directory)

    def through_links(self, at: int, path: str | None, links: int = 40) -> Entry | None:
        """As `entry`, with links at the end followed: where a file is made if the path is a link to nothing."""
        entry = self.entry(at, path)
        if entry is None or not entry.exists or not links:
            return entry
        try:
            target = os.readlink(os.path.basename(entry.path), dir_fd=entry.directory.fd)
        except OSError:  # no link
            return entry
        return self.through_links(FROM_HERE, os.path.join(entry.directory.path, target), links - 1)

    def _place(self, at: int, path: str) -> str | None:
        """A path that leads this process to what the path of the thread names; None for its standard streams."""
        start = "" if path.startswith("/") else f"{self._proc}/cwd" if at == FROM_HERE else f"{self._proc}/fd/{at}"
        plain = self._plain(start, path) if _OF_ITSELF.search(path) else ""
        if plain.startswith("/dev/"):
            if plain in _STREAMS:
                return None  # it has that already
            if plain.startswith("/dev/fd/"):
                plain = f"/proc/self/fd/{plain[8:]}"
        for own, its in (("/proc/self", f"/proc/{self.process}"), ("/proc/thread-self", self._proc)):
            if plain == own or plain.startswith(f"{own}/"):
                return its + plain[len(own) :]
        return f"{start}/{path}" if start else f"{self._proc}/root{path}"

    @staticmethod
    def _plain(start: str, path: str) -> str:
        """The absolute path without doubled slashes and dots, in which names of the thread itself can be found."""
        try:
            above = os.readlink(start) if start else "/"
        except OSError:
            return ""
        return "/" + os.path.normpath(os.path.join(above, path)).lstrip("/")

    def _open(self, place: str, *, follow: bool) -> Found | None:
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        try:
            fd = os.open(place, flags)
        except (OSError, ValueError):
            return None
        self._opened.append(fd)
        about = os.fstat(fd)
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError as wrong:
            raise TooLong from wrong
        if not path.startswith("/") or (path.endswith(_DELETED) and not about.st_nlink):
            return None  # a pipe, a socket, memory, or a file without a name
        return Found(path, about.st_mode, about.st_uid, fd)

    # Sockets ---------------------------------------------------------------------------------------------------------

    def is_stream(self, number: int) -> bool:
        """Whether a socket carries a stream; also where that cannot be looked up, since most do."""
        with suppress(OSError):
            process = system_calls.syscall("pidfd_open", _PIDFD_OPEN, self.process, 0)
            try:
                copy = system_calls.syscall("pidfd_getfd", _PIDFD_GETFD, process, number, 0)
            finally:
                os.close(process)
            with socket.socket(fileno=copy) as found:
                return found.type == socket.SOCK_STREAM
        return True


class Peer(NamedTuple):
    """The address of a socket: of the internet with its port, or the path of a unix socket (empty for no path)."""

    host: str = ""
    port: int = 0
    unix: str | None = None


def peer_of(data: bytes) -> Peer | None:
    """Read a `struct sockaddr`; None for other kinds of addresses."""
    if len(data) < 3:
        return None
    (family,) = struct.unpack_from("=H", data)
    with suppress(ValueError, struct.error):
        if family == socket.AF_UNIX:
            return Peer(unix=os.fsdecode(data[2:].partition(b"\0")[0]))
        if family == socket.AF_INET:
            return Peer(socket.inet_ntop(socket.AF_INET, data[4:8]), *struct.unpack_from("!H", data, 2))
        if family == socket.AF_INET6:
            packed, (port,) = data[8:24], struct.unpack_from("!H", data, 2)
            if packed.startswith(b"\0" * 10 + b"\xff\xff"):  # an IPv4 address in an IPv6 socket
                return Peer(socket.inet_ntop(socket.AF_INET, packed[12:]), port)
            return Peer(socket.inet_ntop(socket.AF_INET6, packed), port)
    return None


_EMPTY_PATH, _NO_FOLLOW, _FOLLOW = 0x1000, 0x100, 0x400  # AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW
_REMOVE_DIRECTORY = 0x200
_TMPFILE = 0o20000000
_EXCHANGE = 2
_ADDRESS = 128  # bytes of a `struct sockaddr_storage`
_SHEBANG = re.compile(rb"#![ \t]*(\S+)")
_ELF32 = b"\x7fELF\x01"


class Act(NamedTuple):
    """One thing that a call does.

    `what` is `read`, `write`, `delete` or `exec`, with a path; `connect` with `host:port`; or a note about the target:
    `unix` (the path of a socket), `32 bits`, `setuid`. A write may have `made` a name that was not there, perhaps of a
    `directory`.
    """

    what: str
    target: str
    made: bool = False
    directory: bool = False


Acts = Iterator[Act]
Arguments = tuple[int, ...]


def acts_of(notice: Notice, caller: Caller) -> list[Act]:
    """What a call does. Raises `Unreadable` if its arguments cannot be read."""
    known = _ACTS.get(notice.name)
    return list(known(caller, notice.arguments)) if known else []


def _at(number: int) -> int:
    """The number of a directory, which the kernel takes as a C int."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number & 0x80000000 else number


# Opening -------------------------------------------------------------------------------------------------------------


def _opened(caller: Caller, at: int, path: str | None, flags: int) -> Acts:
    if flags & os.O_PATH:  # it can neither be read nor written
        return
    access = flags & os.O_ACCMODE
    writes, reads = access != os.O_RDONLY or bool(flags & os.O_TRUNC), access in (os.O_RDONLY, os.O_RDWR)
    found = caller.find(at, path, follow=not flags & os.O_NOFOLLOW)
    if found is None:
        entry = caller.through_links(at, path) if flags & os.O_CREAT else None
        if entry is not None and not entry.exists and _writable(entry):
            yield from _touched(entry.path, reads=access == os.O_RDWR, writes=True, made=True)
        return
    if flags & os.O_CREAT and flags & os.O_EXCL:
        return
    if flags & _TMPFILE:
        if found.is_directory and found.permits(os.W_OK):
            yield Act("write", found.path)
        return
    if stat.S_ISLNK(found.mode) or (flags & os.O_DIRECTORY and not found.is_directory):
        return
    if (writes and found.is_directory) or stat.S_ISSOCK(found.mode):
        return
    if found.permits((os.R_OK if reads else 0) | (os.W_OK if writes else 0)):
        yield from _touched(found.path, reads=reads, writes=writes)
        if reads and (named := caller.name_through_links(at, path, found)):
            yield Act("read", named)  # behind walls, a link is there only if a rule is about it


def _touched(path: str, *, reads: bool, writes: bool, made: bool = False) -> Acts:
    if reads:
        yield Act("read", path)
    if writes:
        yield Act("write", path, made)


def _open(caller: Caller, given: Arguments) -> Acts:
    return _opened(caller, FROM_HERE, caller.text(given[0]), given[1])


def _openat(caller: Caller, given: Arguments) -> Acts:
    return _opened(caller, _at(given[0]), caller.text(given[1]), given[2])


def _openat2(caller: Caller, given: Arguments) -> Acts:
    flags = int.from_bytes(caller.data(given[2], 8), "little")  # the first field of `struct open_how`
    return _opened(caller, _at(given[0]), caller.text(given[1]), flags)


def _creat(caller: Caller, given: Arguments) -> Acts:
    return _opened(caller, FROM_HERE, caller.text(given[0]), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)


# Running -------------------------------------------------------------------------------------------------------------


def _run(caller: Caller, found: Found | None, interpreters: int = MOST_INTERPRETERS) -> Acts:
    if found is None or not stat.S_ISREG(found.mode) or not found.permits(os.X_OK):
        return
    yield Act("exec", found.path)
    beginning = found.beginning(256)
    if beginning.startswith(_ELF32):
        yield Act("32 bits", found.path)
    if (found.mode & stat.S_ISUID and found.user != os.getuid()) or found.mode & stat.S_ISGID:
        yield Act("setuid", found.path)
    script = _SHEBANG.match(beginning)
    if script and interpreters:  # which the kernel starts, without a call of its own
        yield from _run(caller, caller.find(FROM_HERE, os.fsdecode(script[1])), interpreters - 1)


def _run_by_name(caller: Caller, at: int, path: str | None, *, follow: bool = True) -> Acts:
    found = caller.find(at, path, follow=follow)
    acts = list(_run(caller, found))
    yield from acts
    if acts and found and (named := caller.name_through_links(at, path, found)):
        yield Act("read", named)


def _execve(caller: Caller, given: Arguments) -> Acts:
    return _run_by_name(caller, FROM_HERE, caller.text(given[0]))


def _execveat(caller: Caller, given: Arguments) -> Acts:
    path = caller.text(given[1])
    if not path and given[4] & _EMPTY_PATH:
        return _run(caller, caller.file(_at(given[0])))
    return _run_by_name(caller, _at(given[0]), path, follow=not given[4] & _NO_FOLLOW)


# Names: making, moving, removing -------------------------------------------------------------------------------------


def _writable(entry: Entry) -> bool:
    return entry.directory.permits(os.W_OK | os.X_OK)


def _removed(caller: Caller, at: int, path: str | None, *, directory: bool) -> Acts:
    entry = caller.entry(at, path)
    if entry is None or not entry.exists or not _writable(entry):
        return
    found = caller.find(at, path, follow=False)
    if found is not None and found.is_directory is directory and not (directory and _has_entries(found)):
        yield Act("delete", entry.path)


def _has_entries(found: Found) -> bool:
    try:
        with os.scandir(f"/proc/self/fd/{found.fd}") as listed:
            return any(True for _ in listed)
    except OSError:
        return False


def _made(caller: Caller, at: int, path: str | None, *, directory: bool = False) -> Acts:
    entry = caller.entry(at, path)
    if entry is not None and not entry.exists and _writable(entry):
        yield Act("write", entry.path, made=True, directory=directory)


def _moved(caller: Caller, at: int, path: str | None, to: int, target: str | None, flags: int = 0) -> Acts:
    """A delete of the source and a write of the target, as `ctx.fs.rename` checks them."""
    source, goal = caller.entry(at, path), caller.entry(to, target)
    if source is None or goal is None or not source.exists or not (_writable(source) and _writable(goal)):
        return
    moved = caller.find(at, path, follow=False)
    yield Act("delete", source.path)
    # What was there is replaced by another file. A directory that takes the place of another one needs its parent.
    is_directory = moved is not None and moved.is_directory and not goal.exists
    yield Act("write", goal.path, made=True, directory=is_directory)
    if flags & _EXCHANGE:
        yield Act("delete", goal.path)
        yield Act("write", source.path)


def _linked(caller: Caller, at: int, path: str | None, to: int, target: str | None, flags: int = 0) -> Acts:
    if not path and flags & _EMPTY_PATH:
        source = caller.file(at)
    else:
        source = caller.find(at, path, follow=bool(flags & _FOLLOW))
    made = list(_made(caller, to, target)) if source else []
    if source and made:
        yield Act("read", source.path)
        yield from made


# A change of a file that keeps its name: its size, mode, owner, times or attributes.
def _changed(caller: Caller, at: int, path: str | None, flags: int = 0) -> Acts:
    found = caller.find(at, path, follow=not flags & _NO_FOLLOW)
    if found is not None and (found.user == os.getuid() or found.permits(os.W_OK)):
        yield Act("write", found.path)


# Sockets -------------------------------------------------------------------------------------------------------------


def _connected(caller: Caller, number: int, address: int, size: int) -> Acts:
    peer = peer_of(caller.data(address, min(size & 0xFFFFFFFF, _ADDRESS)))
    if peer is None:
        return
    if peer.unix is not None:
        found = caller.find(FROM_HERE, peer.unix)
        if found is not None or not peer.unix:
            yield Act("unix", found.path if found else "one without a path")
    elif peer.port and caller.is_stream(_at(number)):
        host = f"[{peer.host}]" if ":" in peer.host else peer.host
        yield Act("connect", f"{host}:{peer.port}")


def _bound(caller: Caller, given: Arguments) -> Acts:
    peer = peer_of(caller.data(given[1], min(given[2] & 0xFFFFFFFF, _ADDRESS)))
    if peer is not None and peer.unix:
        yield from _made(caller, FROM_HERE, peer.unix)


# The table: which arguments name what. -------------------------------------------------------------------------------

_ACTS: Final[Mapping[str, Callable[[Caller, Arguments], Acts]]] = {
    "open": _open,
    "openat": _openat,
    "openat2": _openat2,
    "creat": _creat,
    "execve": _execve,
    "execveat": _execveat,
    "unlink": lambda c, a: _removed(c, FROM_HERE, c.text(a[0]), directory=False),
    "rmdir": lambda c, a: _removed(c, FROM_HERE, c.text(a[0]), directory=True),
    "unlinkat": lambda c, a: _removed(c, _at(a[0]), c.text(a[1]), directory=bool(a[2] & _REMOVE_DIRECTORY)),
    "rename": lambda c, a: _moved(c, FROM_HERE, c.text(a[0]), FROM_HERE, c.text(a[1])),
    "renameat": lambda c, a: _moved(c, _at(a[0]), c.text(a[1]), _at(a[2]), c.text(a[3])),
    "renameat2": lambda c, a: _moved(c, _at(a[0]), c.text(a[1]), _at(a[2]), c.text(a[3]), a[4]),
    "link": lambda c, a: _linked(c, FROM_HERE, c.text(a[0]), FROM_HERE, c.text(a[1])),
    "linkat": lambda c, a: _linked(c, _at(a[0]), c.text(a[1]), _at(a[2]), c.text(a[3]), a[4]),
    "symlink": lambda c, a: _made(c, FROM_HERE, c.text(a[1])),
    "symlinkat": lambda c, a: _made(c, _at(a[1]), c.text(a[2])),
    "mkdir": lambda c, a: _made(c, FROM_HERE, c.text(a[0]), directory=True),
    "mkdirat": lambda c, a: _made(c, _at(a[0]), c.text(a[1]), directory=True),
    "mknod": lambda c, a: _made(c, FROM_HERE, c.text(a[0])),
    "mknodat": lambda c, a: _made(c, _at(a[0]), c.text(a[1])),
    "truncate": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "chmod": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "fchmodat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1])),
    "fchmodat2": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[3]),
    "chown": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "lchown": lambda c, a: _changed(c, FROM_HERE, c.text(a[0]), _NO_FOLLOW),
    "fchownat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[4]),
    "utime": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "utimes": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "futimesat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1])),
    "utimensat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[3]),
    "setxattr": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "lsetxattr": lambda c, a: _changed(c, FROM_HERE, c.text(a[0]), _NO_FOLLOW),
    "setxattrat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[2]),
    "removexattr": lambda c, a: _changed(c, FROM_HERE, c.text(a[0])),
    "lremovexattr": lambda c, a: _changed(c, FROM_HERE, c.text(a[0]), _NO_FOLLOW),
    "removexattrat": lambda c, a: _changed(c, _at(a[0]), c.text(a[1]), a[2]),
    "connect": lambda c, a: _connected(c, a[0], a[1], a[2]),
    "sendto": lambda c, a: _connected(c, a[0], a[4], a[5]),
    "bind": _bound,
}
