"""Seccomp user notification: the kernel reports system calls of other processes to this one before it runs them.

A filter holds some calls until the owner of its listener has answered. Either the kernel goes on with the call, and
then nothing is decided: what was looked at may change before it is used. Or the owner has made the call itself, on
copies of the caller's address and open file, and answers how it ended.
"""

import ctypes
import errno
import os
import select
import struct
import sys
from functools import cache
from typing import Final, NamedTuple

from licet.sandbox.kernel import calls, seccomp

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

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`
_X32 = 0x40000000

_SET_FILTER, _GET_SIZES = 1, 3
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_GO_ON = 1
_NOTICE, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
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
    if machine not in calls.NUMBERS:
        raise OSError(errno.ENOSYS, f"no filter is known for the architecture {machine}")
    numbers = calls.NUMBERS[machine]
    steps: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, calls.AUDIT[machine]),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":  # the same calls under other numbers
        steps += [(_IF_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for name in WATCHED:
        if name in numbers:
            steps += [(_IF_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, _NOTIFY)]
    for name in _MISSING:
        steps += [(_IF_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    peer = _ARGUMENTS + 8 * _PEER
    steps += [
        (_IF_EQUAL, 0, 5, numbers[_TO_A_PEER]),
        (_LOAD, 0, 0, peer),
        (_IF_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, peer + 4),
        (_IF_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _NOTIFY),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def install(text: bytes) -> int:
    """Install a filter for this process and everything that it starts, for good; returns its listener.

    Needs no_new_privs. The listener is closed when a program is executed. Raises `OSError` on a kernel without this,
    and inside of another filter that has a listener.
    """
    number = calls.NUMBERS[calls.machine()]["seccomp"]
    sizes = ctypes.create_string_buffer(6)
    calls.syscall("seccomp(GET_NOTIF_SIZES)", number, _GET_SIZES, 0, sizes)
    if struct.unpack("=3H", sizes.raw) != _SIZES:
        raise OSError(errno.EINVAL, "the kernel has notifications of another size")
    described = seccomp.FilterProgram(len(text) // 8, text)
    try:
        # Otherwise a signal restarts the call, and a program with a fast timer never gets to its end.
        return calls.syscall("seccomp", number, _SET_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, described)
    except OSError as wrong:
        if wrong.errno != errno.EINVAL:  # before Linux 5.19
            raise
    return calls.syscall("seccomp", number, _SET_FILTER, _NEW_LISTENER, described)


@cache
def _names() -> dict[int, str]:
    return {number: name for name, number in calls.NUMBERS[calls.machine()].items()}


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


# The caller ----------------------------------------------------------------------------------------------------------


class _Vector(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("size", ctypes.c_uint64))


def memory(thread: int, address: int, size: int) -> bytes:
    """A copy of the memory of a thread; EFAULT if it has less there."""
    buffer = ctypes.create_string_buffer(size)
    near, far = _Vector(ctypes.addressof(buffer), size), _Vector(address, size)
    number = calls.NUMBERS[calls.machine()]["process_vm_readv"]
    if calls.syscall("process_vm_readv", number, thread, near, 1, far, 1, 0) != size:
        raise OSError(errno.EFAULT, "the memory of the caller ends there")
    return buffer.raw


def open_file(thread: int, number: int) -> int:
    """A copy of an open file of a thread, which is closed when a program is executed."""
    process = _pidfd(thread)
    try:
        return calls.syscall("pidfd_getfd", calls.NUMBERS[calls.machine()]["pidfd_getfd"], process, number, 0)
    finally:
        os.close(process)


def _pidfd(thread: int) -> int:
    number = calls.NUMBERS[calls.machine()]["pidfd_open"]
    try:
        return calls.syscall("pidfd_open", number, thread, os.O_EXCL)  # PIDFD_THREAD
    except OSError as wrong:
        if wrong.errno != errno.EINVAL:  # before Linux 6.9
            raise
    with open(f"/proc/{thread}/status", "rb") as file:
        process = next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))
    return calls.syscall("pidfd_open", number, process, 0)
