"""What a process gives up about itself before foreign code runs in it: privileges, resources, open files.

None of it is a wall alone; each closes a way around the walls. For single-threaded processes: most of it holds for the
thread that asks, and for what it starts.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from licet.sandbox.kernel import calls

if sys.platform != "win32":  # here and not where it is used: in a fork nothing is imported any more
    import resource

_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 1, 4, 24, 38, 47
_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_CLOSE_RANGE = 436
_LAST_FD = 0x7FFFFFFF
_ADDRESSES = 4  # address space per byte of memory: what is reserved and never touched costs nothing
_STACK = 8 << 20
_LOCKED = 64 << 10


class Limits(NamedTuple):  # and no dataclass, whose module would take longer to load than all the rest here
    """What a process may use up; None is as much as it already may.

    `processes` counts all tasks of the user, threads included, and the kernel does not hold root to it: see
    `tasks_of_user`. `memory_bytes` counts private memory that can be written; `address_bytes` is four times that unless
    given, 0 for no limit.
    """

    cpu_seconds: int | None = None
    memory_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    address_bytes: int | None = None


def harden(*, limits: Limits, keep_fds: Collection[int], parent: int | None = None) -> None:
    """Give up everything but the given fds and limits, in the order that works.

    With `parent` the process dies with that process, and dies now if it is dead already. Landlock comes after this,
    and seccomp last: the filter refuses most of what is done here.
    """
    if parent is not None:
        die_with(parent)
    close_all_but(keep_fds)
    limit(limits)
    no_new_privs()
    drop_capabilities()
    undumpable()


def die_with(parent: int) -> None:
    """Be killed when the parent ends. Not inherited: after a fork it is asked for again."""
    calls.prctl("prctl(PR_SET_PDEATHSIG)", _SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def close_all_but(keep_fds: Collection[int]) -> None:
    """Close every open file that is not named, standard input and output included."""
    first = 0
    for kept in (*sorted(keep_fds), _LAST_FD + 1):
        if kept > first:
            calls.syscall("close_range", _CLOSE_RANGE, first, kept - 1, 0)
        first = kept + 1


def limit(limits: Limits) -> None:
    """Lower the limits of this process, soft and hard; what is lower already stays."""

    def lower(which: int, soft: int, hard: int | None = None) -> None:
        now = resource.getrlimit(which)
        highest = sys.maxsize if now[1] == resource.RLIM_INFINITY else now[1]
        lowered = (min(soft, highest), min(soft if hard is None else hard, highest))
        if lowered != now:
            resource.setrlimit(which, lowered)

    lower(resource.RLIMIT_CORE, 0)  # a core file would hold what was in memory
    lower(resource.RLIMIT_STACK, _STACK)
    lower(resource.RLIMIT_MEMLOCK, _LOCKED)
    lower(resource.RLIMIT_MSGQUEUE, 0)
    lower(resource.RLIMIT_NICE, 0)
    lower(resource.RLIMIT_RTPRIO, 0)
    if limits.cpu_seconds is not None:
        # The first limit sends SIGXCPU, by which it is known why the process ended; the second kills.
        lower(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    if limits.memory_bytes is not None:
        lower(resource.RLIMIT_DATA, limits.memory_bytes)
        addresses = limits.memory_bytes * _ADDRESSES if limits.address_bytes is None else limits.address_bytes
        if addresses:
            lower(resource.RLIMIT_AS, addresses)
    for which, most in (
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
    ):
        if most is not None:
            lower(which, most)


def tasks_of_user() -> int | None:
    """How many tasks the user of this process has, threads included; None if nobody tells, as in another sandbox.

    It is what `Limits.processes` is counted from.
    """
    mine, count = os.getuid(), 0
    try:
        entries = os.listdir("/proc")
    except OSError:
        return None
    for entry in entries:
        if entry.isdigit():
            with suppress(OSError):  # it ended meanwhile
                if os.stat(f"/proc/{entry}").st_uid == mine:
                    count += len(os.listdir(f"/proc/{entry}/task"))
    return count or None  # this process is one of them


def no_new_privs() -> None:
    """Let no program that is started gain privileges; the kernel wants this before Landlock and seccomp."""
    calls.prctl("prctl(PR_SET_NO_NEW_PRIVS)", _SET_NO_NEW_PRIVS, 1)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_capabilities() -> None:
    """Give up every capability, and that they come back by starting a program as root."""
    if _has_none():  # inside another sandbox it may not even be allowed to ask
        return
    # An error is the end of the list, or says that this process may not: then no_new_privs alone keeps them away.
    with suppress(OSError):
        for capability in range(_MOST_CAPABILITIES):
            calls.prctl("prctl(PR_CAPBSET_DROP)", _CAPBSET_DROP, capability)
    calls.prctl("prctl(PR_CAP_AMBIENT)", _CAP_AMBIENT, _CLEAR_ALL)
    number = calls.NUMBERS[calls.machine()]["capset"]
    calls.syscall("capset", number, _Header(_CAPABILITY_VERSION, 0), bytes(24))


def _has_none() -> bool:
    """Whether there is no capability left to give up; with no_new_privs none comes back."""
    held = ctypes.create_string_buffer(24)
    try:
        calls.syscall("capget", calls.NUMBERS[calls.machine()]["capget"], _Header(_CAPABILITY_VERSION, 0), held)
    except OSError:
        return False
    return not any(held.raw)


def undumpable() -> None:
    """Keep other processes of the user out of this one's memory and /proc entries, until a program is started."""
    calls.prctl("prctl(PR_SET_DUMPABLE)", _SET_DUMPABLE, 0)
