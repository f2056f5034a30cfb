"""The thread that makes a call: its memory, its open files, and what a path means to it.

Paths are looked up through /proc, as the kernel will look them up a moment later: from the working directory, the
directory or the root of that thread, with its links followed. The file at the end is opened with O_PATH, which neither
reads it nor waits for it, and the kernel is asked for its name.
"""

import os
import re
import socket
import stat
import struct
from contextlib import suppress
from typing import NamedTuple

from licet.sandbox.kernel import calls

FROM_HERE = -100  # AT_FDCWD
_LONGEST = 4096  # bytes of a path, with the NUL at its end
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
        data, nul, _ = self.data(address, _LONGEST).partition(b"\0")
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
            process = calls.syscall("pidfd_open", _PIDFD_OPEN, self.process, 0)
            try:
                copy = calls.syscall("pidfd_getfd", _PIDFD_GETFD, process, number, 0)
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
