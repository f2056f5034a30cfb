"""Makes the connections of a program's processes, so that they reach no unix socket but their own and granted ones.

A unix socket with a path can be reached from every network namespace, through read-only mounts, and past Landlock. So
`connect` waits in the kernel until this process has made the connection: on a copy of the caller's socket, to a copy of
the address. If the address is a path, it opens the file at its end, and connects to that very file, provided that one
of the program's processes listens on it, or that it is granted. Nothing that the caller changes meanwhile matters.

A process that has restricted itself with Landlock would gain by a connection that is made for it. It gets none, but the
kernel goes on if its socket is one of IPv4 or IPv6 and stays so: if no other thread can exchange the open file.

Which files these are is recorded at each `listen`: the kernel tells the file that a socket is bound to, for sockets of
this network namespace only. Runs in the first process of the namespaces.
"""

import _thread
import ctypes
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress

from licet.sandbox.kernel import system_calls
from licet.sandbox.kernel.notifications import Notice, answer, go_on, memory, open_file, waits
from licet.sandbox.kernel.supervised_calls import SupervisedCalls
from licet.sandbox.limits import LONGEST_ADDRESS, MOST_KNOWN_SOCKETS

if sys.platform != "win32":
    import fcntl

# To be told the file of a socket, and to look into processes that are not dumpable; of this user namespace only.
CAPABILITIES = (_NET_ADMIN, SYS_PTRACE) = (12, 19)
_FILE_OF_SOCKET = 0x89E0  # SIOCUNIXFILE
_PAIR = struct.Struct("=QQ")
_OF_ITSELF = (b"/proc/self/", b"/proc/thread-self/")


class Connections:
    """The judge of `connect` and `listen`."""

    names = frozenset({"connect", "listen", "landlock_restrict_self"})
    is_quick = False

    def __init__(self, granted: Sequence[tuple[str, int, int]] = ()) -> None:
        """Allow connections to `granted` sockets of the host too: paths with the device and inode that were checked."""
        self._lock = _thread.allocate_lock()
        self._granted = dict(_checked_sockets(granted))
        # The files of sockets that the program has listened on, oldest first. They are kept open: the inode number of a
        # file that is gone could be that of a socket outside by now.
        self._files: dict[tuple[int, int], int] = {}

    def judge(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        """Make a connection for its caller, or record that it listens."""
        if notice.name == "landlock_restrict_self":
            mark(notice.thread)
            go_on(calls.listener, notice)
        elif notice.name == "listen":
            try:
                self._record(notice)
            finally:  # listening itself is harmless, whatever socket it is by now
                go_on(calls.listener, notice)
        elif self._connect(calls, notice, may_block=may_block):
            answer(calls.listener, notice, 0)
        else:
            go_on(calls.listener, notice)

    def _record(self, notice: Notice) -> None:
        copy = open_file(notice.thread, signed(notice.arguments[0]))
        try:
            number = system_calls.NUMBERS[system_calls.machine()]["ioctl"]
            file = system_calls.syscall("ioctl(SIOCUNIXFILE)", number, copy, _FILE_OF_SOCKET, 0)
        except OSError:  # a socket without a file, or none of this network
            return
        finally:
            os.close(copy)
        self._remember(file)

    def _remember(self, file: int) -> None:
        """Let the program connect to a file, which stays open."""
        about = os.fstat(file)
        with self._lock:
            before = self._files.pop((about.st_dev, about.st_ino), None)
            self._files[about.st_dev, about.st_ino] = file
            surplus = [] if before is None else [before]
            if len(self._files) > MOST_KNOWN_SOCKETS:
                surplus += self._forget()
        for unused in surplus:
            os.close(unused)

    def _forget(self) -> list[int]:
        """Forget files that have no name any more, and the oldest one if there are none."""
        gone = [key for key, file in self._files.items() if not os.fstat(file).st_nlink] or [next(iter(self._files))]
        return [self._files.pop(key) for key in gone]

    def _connect(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> bool:
        """Make a connection; False if the kernel shall go on, for a caller that has restricted itself."""
        size = signed(notice.arguments[2])
        if not 0 <= size <= LONGEST_ADDRESS:
            raise OSError(errno.EINVAL, "no address is that long")
        address = memory(notice.thread, notice.arguments[1], size) if size else b""
        made = open_file(notice.thread, signed(notice.arguments[0]))
        target = -1
        try:
            restricted = is_marked(notice.thread)
            alone = restricted and _is_alone(notice.thread)
            if not waits(calls.listener, notice):  # all this may have been that of another thread
                raise OSError(errno.ESRCH, "the caller is gone")
            if restricted:
                if alone and _family(made) in (socket.AF_INET, socket.AF_INET6):
                    return False
                raise OSError(errno.EACCES, "the caller has restricted itself")
            blocks = not fcntl.fcntl(made, fcntl.F_GETFL) & os.O_NONBLOCK
            if blocks and not may_block:
                raise OSError(errno.EAGAIN, "too many connections wait")
            if path := path_in(address):
                target = self._own(path, notice.thread)
                address = address_of_file(target)
            with calls.interruptible(notice) if blocks else nullcontext():
                make(calls.listener, made, address, notice)
            return True
        finally:
            os.close(made)
            if target >= 0:
                os.close(target)

    def _own(self, path: bytes, thread: int) -> int:
        """The file that a path means to a thread, opened without access to it, if the program listens there."""
        for own in _OF_ITSELF:
            if path.startswith(own):
                path = b"/proc/%d/%s" % (thread, path[len(own) :])
        if path.startswith(b"/"):
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
        else:
            directory = os.open(f"/proc/{thread}/cwd", os.O_PATH | os.O_CLOEXEC)
            try:
                found = os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
            finally:
                os.close(directory)
        about = os.fstat(found)
        with self._lock:
            listened = (about.st_dev, about.st_ino) in self._files
        if listened or (about.st_dev, about.st_ino) in self._granted:
            return found
        os.close(found)
        if stat.S_ISSOCK(about.st_mode):
            raise OSError(errno.EACCES, "a unix socket of another process")
        raise OSError(errno.ECONNREFUSED, "not a socket")


def address_of_file(file: int) -> bytes:
    """The address of a unix socket whose file is open here."""
    return struct.pack("=H", socket.AF_UNIX) + b"/proc/self/fd/%d\0" % file


def make(listener: int, made: int, address: bytes, notice: Notice) -> None:
    """Make a connection, again after each interruption, as the kernel does itself; ESRCH without its caller."""
    number = system_calls.NUMBERS[system_calls.machine()]["connect"]
    while True:
        try:
            system_calls.syscall("connect", number, made, address, len(address))
        except InterruptedError:
            if waits(listener, notice):
                continue
            raise OSError(errno.ESRCH, "the caller is gone") from None
        return


def _checked_sockets(granted: Sequence[tuple[str, int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
    """The sockets that are still the files that were checked, kept open: no other file then gets the inode."""
    for path, device, inode in granted:
        with suppress(OSError):  # it has gone meanwhile
            file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            about = os.fstat(file)
            if stat.S_ISSOCK(about.st_mode) and (about.st_dev, about.st_ino) == (device, inode):
                yield (device, inode), file
            else:
                os.close(file)


# A process that restricts itself is marked, and with it everything that it starts: a hard limit is inherited, and only
# falls. This one limits processes with realtime priority, which no program behind walls can have.
_RTTIME = 15
_MARK = 1 << 50


def mark(thread: int) -> None:
    """Mark a process that restricts itself."""
    system_calls.syscall(
        "prlimit64",
        system_calls.NUMBERS[system_calls.machine()]["prlimit64"],
        thread,
        _RTTIME,
        _PAIR.pack(_MARK, _MARK),
        0,
    )


def is_marked(thread: int) -> bool:
    """Whether a process has restricted itself, or one that it comes from has."""
    found = ctypes.create_string_buffer(_PAIR.size)
    system_calls.syscall(
        "prlimit64", system_calls.NUMBERS[system_calls.machine()]["prlimit64"], thread, _RTTIME, None, found
    )
    return int(_PAIR.unpack(found.raw)[1]) <= _MARK


def _is_alone(thread: int) -> bool:
    """Whether a process has one thread; False where /proc is empty."""
    with suppress(OSError), open(f"/proc/{thread}/status", "rb") as file:
        return any(line.split() == [b"Threads:", b"1"] for line in file)
    return False


def _family(file: int) -> int:
    same = socket.socket(fileno=file)  # if it is none, this raises, and closes nothing
    try:
        return same.family
    finally:
        same.detach()


def path_in(address: bytes) -> bytes:
    """The path in an address of a unix socket; empty for other addresses, and for names without a file."""
    if len(address) <= 2 or struct.unpack_from("=H", address)[0] != socket.AF_UNIX:
        return b""
    return address[2:].partition(b"\0")[0]


def signed(word: int) -> int:
    """An argument of the type `int`."""
    return (word & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
