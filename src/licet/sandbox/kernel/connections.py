"""Makes the connections of a program's processes, so that they reach no unix socket but their own.

A unix socket with a path can be reached from every network namespace, through read-only mounts, and past Landlock. So
`connect` waits in the kernel until this process has made the connection: on a copy of the caller's socket, to a copy of
the address. If the address is a path, it opens the file at its end, and connects to that very file, provided that one
of the program's processes listens on it. Nothing that the caller changes meanwhile matters.

A process that has restricted itself with Landlock would gain by a connection that is made for it. It gets none, but the
kernel goes on if its socket is one of IPv4 or IPv6 and stays so: if no other thread can exchange the open file.

Which files these are is recorded at each `listen`: the kernel tells the file that a socket is bound to, for sockets of
this network namespace only. Runs in the first process of the namespaces, in threads, since a connection may block. If
the caller of one that blocks is killed, its thread is interrupted, and is free for others.

Seccomp user notification: the kernel reports system calls of other processes to this one before it runs them.

A filter holds some calls until the owner of its listener has answered. Either the kernel goes on with the call, and
then nothing is decided: what was looked at may change before it is used. Or the owner has made the call itself, on
copies of the caller's address and open file, and answers how it ended.
"""

import _thread
import ctypes
import errno
import os
import select
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Final, NamedTuple

from licet.sandbox.kernel import entry_count, seccomp, system_calls
from licet.sandbox.limits import JUDGE_STACK, LONGEST_ADDRESS, MOST_JUDGES, MOST_KNOWN_SOCKETS

if sys.platform != "win32":
    import fcntl

# Every call that names a path to open, run, make, move, remove or change, and those that name a peer.
_NAMED: Final = """
    open openat openat2 creat execve execveat unlink unlinkat rmdir rename renameat renameat2 link linkat symlink
    symlinkat mkdir mkdirat mknod mknodat truncate chmod fchmodat fchmodat2 chown lchown fchownat utime utimes
    futimesat utimensat setxattr lsetxattr setxattrat removexattr lremovexattr removexattrat connect bind
"""
WATCHED: Final = tuple(_NAMED.split())
_TO_A_PEER: Final = "sendto"  # told of only if it names a peer: most sends are on connected sockets
_PEER: Final = 4  # the argument of `sendto` that points to the peer
# What is put into a ring of io_uring is done without a system call. Programs do without a ring after ENOSYS.
_MISSING: Final = ("io_uring_setup", "io_uring_enter", "io_uring_register")

_SET_FILTER, _GET_SIZES = 1, 3
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_ADD_FILE = 0x40182103
_GO_ON, _AND_ANSWER = 1, 2
_NOTICE, _ANSWER, _ADDED = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), struct.Struct("=QIIII")
_SIZES = (_NOTICE.size, _ANSWER.size, 64)


class Notice(NamedTuple):
    """A call that waits for an answer: who makes it, which one it is, and its arguments as the kernel got them."""

    id: int
    thread: int  # the id of the thread
    name: str
    arguments: tuple[int, ...]


@cache
def program(machine: str) -> bytes:
    """The filter for one architecture. Calls of programs for another one, such as 32 bits, pass unseen."""
    if machine not in system_calls.NUMBERS:
        raise OSError(errno.ENOSYS, f"no filter is known for the architecture {machine}")
    numbers = system_calls.NUMBERS[machine]
    steps: list[tuple[int, int, int, int]] = [
        (seccomp.LOAD, 0, 0, seccomp.ARCHITECTURE),
        (seccomp.IF_EQUAL, 1, 0, system_calls.AUDIT[machine]),
        (seccomp.RETURN, 0, 0, seccomp.ALLOW),
        (seccomp.LOAD, 0, 0, seccomp.NUMBER),
    ]
    if machine == "x86_64":  # the same calls under other numbers
        steps += [(seccomp.IF_AT_LEAST, 0, 1, seccomp.X32), (seccomp.RETURN, 0, 0, seccomp.ERRNO | errno.ENOSYS)]
    for name in WATCHED:
        if name in numbers:
            steps += [(seccomp.IF_EQUAL, 0, 1, numbers[name]), (seccomp.RETURN, 0, 0, seccomp.NOTIFY)]
    for name in _MISSING:
        steps += [(seccomp.IF_EQUAL, 0, 1, numbers[name]), (seccomp.RETURN, 0, 0, seccomp.ERRNO | errno.ENOSYS)]
    peer = seccomp.ARGUMENTS + 8 * _PEER
    steps += [
        (seccomp.IF_EQUAL, 0, 5, numbers[_TO_A_PEER]),
        (seccomp.LOAD, 0, 0, peer),
        (seccomp.IF_EQUAL, 0, 2, 0),
        (seccomp.LOAD, 0, 0, peer + 4),
        (seccomp.IF_EQUAL, 1, 0, 0),
        (seccomp.RETURN, 0, 0, seccomp.NOTIFY),
        (seccomp.RETURN, 0, 0, seccomp.ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def install(text: bytes) -> int:
    """Install a filter for this process and everything that it starts, for good; returns its listener.

    Needs no_new_privs. The listener is closed when a program is executed. Raises `OSError` on a kernel without this,
    and inside of another filter that has a listener.
    """
    number = system_calls.NUMBERS[system_calls.machine()]["seccomp"]
    sizes = ctypes.create_string_buffer(6)
    system_calls.syscall("seccomp(GET_NOTIF_SIZES)", number, _GET_SIZES, 0, sizes)
    if struct.unpack("=3H", sizes.raw) != _SIZES:
        raise OSError(errno.EINVAL, "the kernel has notifications of another size")
    described = seccomp.FilterProgram(len(text) // 8, text)
    try:
        # Otherwise a signal restarts the call, and a program with a fast timer never gets to its end.
        return system_calls.syscall("seccomp", number, _SET_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, described)
    except OSError as wrong:
        if wrong.errno != errno.EINVAL:  # before Linux 5.19
            raise
    return system_calls.syscall("seccomp", number, _SET_FILTER, _NEW_LISTENER, described)


@cache
def _names() -> dict[int, str]:
    return {number: name for name, number in system_calls.NUMBERS[system_calls.machine()].items()}


def receive(listener: int) -> Notice | None:
    """The next call that waits; None if its process was killed meanwhile. Blocks if there is none: poll first."""
    buffer = bytearray(_NOTICE.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as wrong:
        if wrong.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    told, thread, _, number, _, _, *arguments = _NOTICE.unpack(buffer)
    return Notice(told, thread, _names().get(number, str(number)), tuple(arguments))


def is_over(listener: int) -> bool:
    """Whether no process is left whose calls could wait."""
    poll = select.poll()
    poll.register(listener, 0)
    return bool(poll.poll(0))


def waits(listener: int, notice: Notice) -> bool:
    """Whether the call still waits. Otherwise its thread id may be that of another thread by now."""
    try:
        fcntl.ioctl(listener, _IS_VALID, struct.pack("=Q", notice.id))
    except OSError as wrong:
        if wrong.errno == errno.ENOENT:
            return False
        raise
    return True


def go_on(listener: int, notice: Notice) -> None:
    """Let the kernel make the call. Raises `OSError` on a kernel that cannot (before Linux 5.5)."""
    try:
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(notice.id, 0, 0, _GO_ON))
    except OSError as wrong:
        if wrong.errno != errno.ENOENT:  # it was killed
            raise


def answer(listener: int, notice: Notice, error: int) -> None:
    """End the call as one that was made: with an error, or 0 for success."""
    try:
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(notice.id, 0, -error, 0))
    except OSError as wrong:
        if wrong.errno != errno.ENOENT:  # it was killed
            raise


def answer_with_file(listener: int, notice: Notice, file: int, *, inherited: bool) -> None:
    """End the call as an `open` that gave this file. Raises `OSError` on a kernel that cannot (before Linux 5.14)."""
    flags = 0 if inherited else os.O_CLOEXEC
    try:
        fcntl.ioctl(listener, _ADD_FILE, _ADDED.pack(notice.id, _AND_ANSWER, file, 0, flags))
    except OSError as error:
        if error.errno != errno.ENOENT:  # it was killed
            raise


def count_entry(listener: int, notice: Notice, count: entry_count.EntryCount) -> None:
    """Let a call go on that may make an entry in a directory, or refuse it."""
    if count.take():
        go_on(listener, notice)
    else:
        answer(listener, notice, entry_count.FULL)


# The caller ----------------------------------------------------------------------------------------------------------


class _Vector(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("size", ctypes.c_uint64))


def memory(thread: int, address: int, size: int) -> bytes:
    """A copy of the memory of a thread; EFAULT if it has less there."""
    buffer = ctypes.create_string_buffer(size)
    near, far = _Vector(ctypes.addressof(buffer), size), _Vector(address, size)
    number = system_calls.NUMBERS[system_calls.machine()]["process_vm_readv"]
    if system_calls.syscall("process_vm_readv", number, thread, near, 1, far, 1, 0) != size:
        raise OSError(errno.EFAULT, "the memory of the caller ends there")
    return buffer.raw


def open_file(thread: int, number: int) -> int:
    """A copy of an open file of a thread, which is closed when a program is executed."""
    process = _pidfd(thread)
    try:
        return system_calls.syscall(
            "pidfd_getfd", system_calls.NUMBERS[system_calls.machine()]["pidfd_getfd"], process, number, 0
        )
    finally:
        os.close(process)


def _pidfd(thread: int) -> int:
    number = system_calls.NUMBERS[system_calls.machine()]["pidfd_open"]
    try:
        return system_calls.syscall("pidfd_open", number, thread, os.O_EXCL)  # PIDFD_THREAD
    except OSError as wrong:
        if wrong.errno != errno.EINVAL:  # before Linux 6.9
            raise
    with open(f"/proc/{thread}/status", "rb") as file:
        process = next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))
    return system_calls.syscall("pidfd_open", number, process, 0)


if sys.platform != "win32":
    import fcntl

# To be told the file of a socket, and to look into processes that are not dumpable; of this user namespace only.
CAPABILITIES = (_NET_ADMIN, SYS_PTRACE) = (12, 19)
THREADS = 2  # that are there in any case: one that waits, and one that works
_FILE_OF_SOCKET = 0x89E0  # SIOCUNIXFILE
_PAIR = struct.Struct("=QQ")
_OF_ITSELF = (b"/proc/self/", b"/proc/thread-self/")
_NOWHERE = os.devnull.encode() + b"\0"
# Reading and writing, O_CREAT, O_NOCTTY, O_TRUNC, O_APPEND, O_NONBLOCK, O_CLOEXEC, O_LARGEFILE and O_NOFOLLOW: each of
# these two has the number of the other one on the other architecture.
_PLAIN_OPENING = 3 | 0o100 | 0o400 | 0o1000 | 0o2000 | 0o4000 | 0o100000 | 0o400000 | 0o2000000
_OF_CONNECTIONS = ("connect", "listen", "landlock_restrict_self")
# Ends a connection that blocks. Whoever else sends it interrupts one too, which is then tried again.
_INTERRUPT = max(signal.valid_signals())


class Connections:
    """Answers the calls that wait at one listener. `start` returns at once.

    With a `count` it also counts the calls that may make an entry in a directory.
    """

    def __init__(self, listener: int, count: entry_count.EntryCount | None = None) -> None:
        self._listener, self._count = listener, count
        self.refused_entries = False
        self._lock = _thread.allocate_lock()
        self._threads = self._busy = 0
        self._blocking: dict[int, Notice] = {}  # by thread
        # The files of sockets that the program has listened on, oldest first. They are kept open: the inode number of a
        # file that is gone could be that of a socket outside by now.
        self._files: dict[tuple[int, int], int] = {}
        signal.signal(_INTERRUPT, lambda *_: None)  # an ignored signal interrupts nothing

    def interrupt_abandoned(self) -> bool:
        """Interrupt connections whose callers are gone; whether there were any.

        One that has not begun to block yet is missed, so this must be called again and again.
        """
        with self._lock:  # a thread is in `_blocking` only as long as it can be interrupted
            gone = [thread for thread, notice in self._blocking.items() if not waits(self._listener, notice)]
            for thread in gone:
                signal.pthread_kill(thread, _INTERRUPT)
        return bool(gone)

    def start(self) -> None:
        """Start a thread that answers calls."""
        _thread.stack_size(JUDGE_STACK)
        with self._lock:
            self._threads += 1
        try:
            _thread.start_new_thread(self._serve, ())
        except BaseException:
            with self._lock:
                self._threads -= 1
            raise

    def _serve(self) -> None:
        while True:
            notice = receive(self._listener)
            if notice is None:
                if is_over(self._listener):
                    return
                continue
            is_entry = self._count is not None and notice.name not in _OF_CONNECTIONS
            try:
                if is_entry:  # this takes no time, and needs no other thread meanwhile
                    self._count_entry(notice)
                else:
                    self._answer(notice, may_block=self._begin())
            except OSError as wrong:
                answer(self._listener, notice, wrong.errno or errno.EPERM)
            except Exception:  # an unanswered caller would wait forever
                answer(self._listener, notice, errno.EPERM)
            finally:
                if not is_entry:
                    with self._lock:
                        self._busy -= 1

    def _begin(self) -> bool:
        """See to it that another thread waits for the next call, now or soon; False if this one is the last."""
        with self._lock:
            self._busy += 1
            free, more = self._threads > self._busy, self._threads < MOST_JUDGES
        if free:
            return True
        if more:
            with suppress(RuntimeError):  # the limit of processes is reached
                self.start()
                return True
        return self.interrupt_abandoned()

    def _answer(self, notice: Notice, *, may_block: bool) -> None:
        if notice.name == "landlock_restrict_self":
            _mark(notice.thread)
            go_on(self._listener, notice)
            return
        if notice.name == "listen":
            try:
                self._record(notice)
            finally:  # listening itself is harmless, whatever socket it is by now
                go_on(self._listener, notice)
            return
        if self._connect(notice, may_block=may_block):
            answer(self._listener, notice, 0)
        else:
            go_on(self._listener, notice)

    def _count_entry(self, notice: Notice) -> None:
        assert self._count is not None  # noqa: S101
        if self._open_nowhere(notice):
            return
        if self._count.take():
            go_on(self._listener, notice)
        else:
            self.refused_entries = True  # first: the program may end before this thread goes on
            answer(self._listener, notice, entry_count.FULL)

    def _open_nowhere(self, notice: Notice) -> bool:
        """Open `/dev/null` for a caller that wants to, which scripts do for each command; whether this was done.

        Such calls are not counted. The kernel does not go on with one, and so the caller cannot exchange the path.
        """
        path = {"open": 0, "openat": 1}.get(notice.name)
        if path is None or notice.arguments[path + 1] & ~_PLAIN_OPENING:
            return False
        try:
            if memory(notice.thread, notice.arguments[path], len(_NOWHERE)) != _NOWHERE:
                return False
            flags = notice.arguments[path + 1]
            file = os.open(os.devnull, flags & ~os.O_CREAT | os.O_CLOEXEC)
            try:
                answer_with_file(self._listener, notice, file, inherited=not flags & os.O_CLOEXEC)
            finally:
                os.close(file)
        except OSError:  # it is counted like any other
            return False
        return True

    def _record(self, notice: Notice) -> None:
        copy = open_file(notice.thread, _signed(notice.arguments[0]))
        try:
            number = system_calls.NUMBERS[system_calls.machine()]["ioctl"]
            file = system_calls.syscall("ioctl(SIOCUNIXFILE)", number, copy, _FILE_OF_SOCKET, 0)
        except OSError:  # a socket without a file, or none of this network
            return
        finally:
            os.close(copy)
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

    def _connect(self, notice: Notice, *, may_block: bool) -> bool:
        """Make a connection; False if the kernel shall go on, for a caller that has restricted itself."""
        size = _signed(notice.arguments[2])
        if not 0 <= size <= LONGEST_ADDRESS:
            raise OSError(errno.EINVAL, "no address is that long")
        address = memory(notice.thread, notice.arguments[1], size) if size else b""
        made = open_file(notice.thread, _signed(notice.arguments[0]))
        target = -1
        try:
            restricted = _is_marked(notice.thread)
            alone = restricted and _is_alone(notice.thread)
            if not waits(self._listener, notice):  # all this may have been that of another thread
                raise OSError(errno.ESRCH, "the caller is gone")
            if restricted:
                if alone and _family(made) in (socket.AF_INET, socket.AF_INET6):
                    return False
                raise OSError(errno.EACCES, "the caller has restricted itself")
            blocks = not fcntl.fcntl(made, fcntl.F_GETFL) & os.O_NONBLOCK
            if blocks and not may_block:
                raise OSError(errno.EAGAIN, "too many connections wait")
            if path := _path(address):
                target = self._own(path, notice.thread)
                address = struct.pack("=H", socket.AF_UNIX) + b"/proc/self/fd/%d\0" % target
            with self._interruptible(notice) if blocks else nullcontext():
                self._make(made, address, notice)
            return True
        finally:
            os.close(made)
            if target >= 0:
                os.close(target)

    @contextmanager
    def _interruptible(self, notice: Notice) -> Iterator[None]:
        """Let `interrupt_abandoned` interrupt this thread."""
        thread = _thread.get_ident()
        with self._lock:
            self._blocking[thread] = notice
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (_INTERRUPT,))
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, (_INTERRUPT,))
            with self._lock:
                del self._blocking[thread]

    def _make(self, made: int, address: bytes, notice: Notice) -> None:
        """Make a connection, again after each interruption, as the kernel does itself; ESRCH without its caller."""
        number = system_calls.NUMBERS[system_calls.machine()]["connect"]
        while True:
            try:
                system_calls.syscall("connect", number, made, address, len(address))
            except InterruptedError:
                if waits(self._listener, notice):
                    continue
                raise OSError(errno.ESRCH, "the caller is gone") from None
            return

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
        if listened:
            return found
        os.close(found)
        if stat.S_ISSOCK(about.st_mode):
            raise OSError(errno.EACCES, "a unix socket of another process")
        raise OSError(errno.ECONNREFUSED, "not a socket")


# A process that restricts itself is marked, and with it everything that it starts: a hard limit is inherited, and only
# falls. This one limits processes with realtime priority, which no program behind walls can have.
_RTTIME = 15
_MARK = 1 << 50


def _mark(thread: int) -> None:
    system_calls.syscall(
        "prlimit64",
        system_calls.NUMBERS[system_calls.machine()]["prlimit64"],
        thread,
        _RTTIME,
        _PAIR.pack(_MARK, _MARK),
        0,
    )


def _is_marked(thread: int) -> bool:
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


def _path(address: bytes) -> bytes:
    """The path in an address of a unix socket; empty for other addresses, and for names without a file."""
    if len(address) <= 2 or struct.unpack_from("=H", address)[0] != socket.AF_UNIX:
        return b""
    return address[2:].partition(b"\0")[0]


def _signed(word: int) -> int:
    """An argument of the type `int`."""
    return (word & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
