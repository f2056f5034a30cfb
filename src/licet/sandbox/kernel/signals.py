"""Sends the signals of a program's processes, so that they reach no process outside of the run.

It is for kernels whose Landlock does not do this (before version 6). A process belongs to the run if this one may look
into it: Landlock lets a process look only into its own domain and those nested in it, and all processes of the run are
in those. That is asked of an open handle of the process, and so no other process can have its id meanwhile.
"""

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from licet.sandbox.kernel import system_calls
from licet.sandbox.kernel.connections import signed
from licet.sandbox.kernel.notifications import Notice, answer, go_on, memory, waits
from licet.sandbox.kernel.supervised_calls import SupervisedCalls

_INFORMATION = 128  # bytes of `siginfo_t`
_NO_FILE = 0x7FFFFFFF  # a number that no open file has
_OF_USERS = -1  # the largest code of a signal that a process sent with a value


class Signals:
    """The judge of calls that send signals."""

    names: Final = frozenset({"kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"})
    is_quick = False  # there may be many processes

    def judge(self, calls: SupervisedCalls, notice: Notice, *, may_block: bool) -> None:
        """Send a signal for its caller, or refuse it."""
        own = process_of(notice.thread)
        first = signed(notice.arguments[0])
        # A process that waits here keeps its id, and so do its threads, as far as this call reaches them.
        if first == own or (notice.name == "tkill" and os.path.isdir(f"/proc/{own}/task/{first}")):
            go_on(calls.listener, notice)
            return
        number = signed(notice.arguments[2 if notice.name in ("tgkill", "rt_tgsigqueueinfo") else 1])
        information = None
        if notice.name == "kill" and first <= 0:
            group = os.getpgid(own) if first == 0 else -first
            if not waits(calls.listener, notice):
                raise OSError(errno.ESRCH, "the caller is gone")
            _send_to_all(group if first != -1 else None, own, number)
        else:
            if notice.name in ("tgkill", "rt_tgsigqueueinfo") and signed(notice.arguments[1]) != first:
                raise PermissionError(errno.EPERM, "a signal to a thread of another process")
            if notice.name.endswith("queueinfo"):
                information = _information(notice, number)
            if not waits(calls.listener, notice):
                raise OSError(errno.ESRCH, "the caller is gone")
            _send(first, number, information)
        answer(calls.listener, notice, 0)


def process_of(thread: int) -> int:
    """The process of a thread."""
    with open(f"/proc/{thread}/status", "rb") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))


def handle(process: int) -> int:
    """A handle of a process of this run, which is not this process. Raises `PermissionError` for all others."""
    numbers = system_calls.NUMBERS[system_calls.machine()]
    opened = system_calls.syscall("pidfd_open", numbers["pidfd_open"], process, 0)
    try:
        if process == os.getpid():
            raise PermissionError(errno.EPERM, "the process that sees to the walls")
        os.close(system_calls.syscall("pidfd_getfd", numbers["pidfd_getfd"], opened, _NO_FILE, 0))
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.ESRCH):  # the kernel looks at the file last
            os.close(opened)
            raise PermissionError(errno.EPERM, "not a process of this run") from error
    return opened


def _information(notice: Notice, number: int) -> bytes:
    address = notice.arguments[3 if notice.name == "rt_tgsigqueueinfo" else 2]
    found = memory(notice.thread, address, _INFORMATION)
    if struct.unpack_from("=i", found, 8)[0] > _OF_USERS:
        raise PermissionError(errno.EPERM, "a signal as if the kernel had sent it")
    return struct.pack("=i", number) + found[4:]


def _send(process: int, number: int, information: bytes | None) -> None:
    opened = handle(process)
    try:
        call = system_calls.NUMBERS[system_calls.machine()]["pidfd_send_signal"]
        system_calls.syscall("pidfd_send_signal", call, opened, number, information, 0)
    finally:
        os.close(opened)


def _send_to_all(group: int | None, caller: int, number: int) -> None:
    """Send a signal to the processes of a group that belong to this run, or to all of this run but the caller."""
    reached, refused = 0, False
    for process in _processes(group):
        if group is None and process == caller:
            continue
        try:
            _send(process, number, None)
            reached += 1
        except PermissionError:
            refused = True
        except ProcessLookupError:
            continue
    if not reached:
        raise OSError(errno.EPERM if refused else errno.ESRCH, "no process of this run")


def _processes(group: int | None) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if group is None or os.getpgid(int(name)) == group:
                    yield int(name)
