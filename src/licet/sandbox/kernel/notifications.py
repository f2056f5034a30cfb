"""Seccomp user notification: the kernel reports system calls of other processes to this one before it runs them.

A filter holds some calls until the owner of its listener has answered. Either the kernel goes on with the call, and
then nothing is decided: what was looked at may change before it is used. Or the owner has made the call itself, on
copies of the caller's memory and open files, and answers how it ended.
"""

import ctypes
import errno
import os
import select
import struct
import sys
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from licet.sandbox.kernel import seccomp, system_calls
from licet.sandbox.limits import LONGEST_PATH

if sys.platform != "win32":
    import fcntl

_SET_FILTER, _GET_SIZES = 1, 3
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_ADD_FILE = 0x40182103
_GO_ON, _AND_ANSWER = 1, 2
_NOTICE, _ANSWER, _ADDED = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), struct.Struct("=QIIII")
_SIZES = (_NOTICE.size, _ANSWER.size, 64)
_PAGE = 4096  # bytes; the smallest page of any machine: memory is there or missing in such pieces


class Notice(NamedTuple):
    """A call that waits for an answer: who makes it, which one it is, and its arguments as the kernel got them."""

    id: int
    thread: int  # the id of the thread
    name: str
    arguments: tuple[int, ...]


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


def answer_with_value(listener: int, notice: Notice, value: int) -> None:
    """End the call as one that was made, with what it returns."""
    try:
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(notice.id, value, 0, 0))
    except OSError as error:
        if error.errno != errno.ENOENT:  # it was killed
            raise


def answer_with_file(listener: int, notice: Notice, file: int, *, inherited: bool) -> None:
    """End the call as an `open` that gave this file. Raises `OSError` on a kernel that cannot (before Linux 5.14)."""
    flags = 0 if inherited else os.O_CLOEXEC
    try:
        fcntl.ioctl(listener, _ADD_FILE, _ADDED.pack(notice.id, _AND_ANSWER, file, 0, flags))
    except OSError as error:
        if error.errno != errno.ENOENT:  # it was killed
            raise


def add_file(listener: int, notice: Notice, file: int, *, inherited: bool) -> int | None:
    """Give the caller an open file; returns the number that it has there, None if the caller is gone.

    The call still waits. Raises `OSError` on a kernel that cannot (before Linux 5.9).
    """
    flags = 0 if inherited else os.O_CLOEXEC
    try:
        return int(fcntl.ioctl(listener, _ADD_FILE, bytearray(_ADDED.pack(notice.id, 0, file, 0, flags))))
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
    return None


class _Vector(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("size", ctypes.c_uint64))


def memory(thread: int, address: int, size: int) -> bytes:
    """A copy of the memory of a thread; EFAULT if it has less there."""
    found = memory_up_to(thread, address, size)
    if len(found) != size:
        raise OSError(errno.EFAULT, "the memory of the caller ends there")
    return found


def memory_up_to(thread: int, address: int, size: int) -> bytes:
    """The same, as far as there is memory, of at most two pages."""
    buffer = ctypes.create_string_buffer(size)
    first = min(size, _PAGE - address % _PAGE)  # what is on one page is there as a whole, or is not
    near = _Vector(ctypes.addressof(buffer), size)
    far = (_Vector * 2)(_Vector(address, first), _Vector(address + first, size - first))
    number = system_calls.NUMBERS[system_calls.machine()]["process_vm_readv"]
    try:
        read = system_calls.syscall("process_vm_readv", number, thread, near, 1, far, 2, 0)
        return buffer.raw[:read]
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            raise
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as file:  # the filter of some containers refuses that call
        found = b""
        with suppress(OSError):
            found = os.pread(file.fileno(), first, address)
            found += os.pread(file.fileno(), size - first, address + first)
        if size and not found:
            raise OSError(errno.EFAULT, "the caller has no memory there")
        return found


def text(thread: int, address: int, longest: int) -> bytes:
    """A text that ends with NUL in the memory of a thread, without it. ENAMETOOLONG if it is longer."""
    found = b""
    while b"\0" not in found and len(found) < longest:
        found += memory_up_to(thread, address + len(found), min(_PAGE, longest - len(found)))
    if b"\0" not in found:
        raise OSError(errno.ENAMETOOLONG, "a text of the caller is too long")
    return found.partition(b"\0")[0]


_PAGE = 4096


def path(thread: int, address: int) -> bytes:
    """A copy of the path at an address in the memory of a thread; EFAULT without its end, ENAMETOOLONG if it is long.

    It is read page by page: what follows its end may not be there.
    """
    text = memory(thread, address, -address % _PAGE or _PAGE)
    while b"\0" not in text and len(text) < LONGEST_PATH:
        text += memory(thread, address + len(text), _PAGE)
    found = text.partition(b"\0")[0]
    if len(found) >= LONGEST_PATH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return found


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
