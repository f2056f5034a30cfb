"""Hardening: a process drops privileges, limits its resources and closes its files before untrusted code runs in it.

Each part closes a way around the walls, and none is a wall alone. For single-threaded processes: most of it applies to
the calling thread and to what it starts.
"""

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from licet.sandbox.kernel import system_calls
from licet.sandbox.limits import ADDRESSES, LOCKED_MEMORY, PROCESS_STACK

if sys.platform != "win32":  # imported here because nothing may be imported in a fork
    import resource

_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 1, 4, 24, 38, 47
_SET_CHILD_SUBREAPER = 36
_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_CLOSE_RANGE = 436
_LAST_FD = 0x7FFFFFFF


class Limits(NamedTuple):
    """Resource limits of a process; None changes nothing.

    `processes` counts all tasks of the user, threads included, and does not apply to root: see `tasks_of_user`.
    `memory_bytes` counts private writable memory; `address_bytes` is four times that if not given, 0 for no limit.
    """

    cpu_seconds: int | None = None
    memory_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    address_bytes: int | None = None


def harden(
    *, limits: Limits, keep_fds: Collection[int], parent: int | None = None, keep_capabilities: Collection[int] = ()
) -> None:
    """Do all of this module, in the order that works.

    With `parent` the process dies with that process, and at once if it is dead. Landlock comes after this, and seccomp
    last: the filter refuses most calls that are made here. `keep_capabilities` is for our own code in a user namespace.
    """
    if parent is not None:
        die_with(parent)
    close_all_but(keep_fds)
    limit(limits)
    no_new_privs()
    drop_capabilities(keep_capabilities)
    undumpable()


def die_with(parent: int) -> None:
    """Be killed when the parent ends. A fork does not inherit this."""
    system_calls.prctl("prctl(PR_SET_PDEATHSIG)", _SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the prctl
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of what this process has started, once its own parent has ended."""
    system_calls.prctl("prctl(PR_SET_CHILD_SUBREAPER)", _SET_CHILD_SUBREAPER, 1)


def close_all_but(keep_fds: Collection[int]) -> None:
    """Close all open files but these; standard input and output too."""
    first = 0
    for kept in (*sorted(keep_fds), _LAST_FD + 1):
        if kept > first:
            system_calls.syscall("close_range", _CLOSE_RANGE, first, kept - 1, 0)
        first = kept + 1


def limit(limits: Limits) -> None:
    """Lower the soft and hard limits of this process; no limit is raised."""

    def lower(which: int, soft: int, hard: int | None = None) -> None:
        now = resource.getrlimit(which)
        highest = sys.maxsize if now[1] == resource.RLIM_INFINITY else now[1]
        lowered = (min(soft, highest), min(soft if hard is None else hard, highest))
        if lowered != now:
            resource.setrlimit(which, lowered)

    lower(resource.RLIMIT_CORE, 0)  # a core file would contain the memory of the process
    lower(resource.RLIMIT_STACK, PROCESS_STACK)
    lower(resource.RLIMIT_MEMLOCK, LOCKED_MEMORY)
    if sys.platform == "linux":
        lower(resource.RLIMIT_MSGQUEUE, 0)
        lower(resource.RLIMIT_NICE, 0)
        lower(resource.RLIMIT_RTPRIO, 0)
    if limits.cpu_seconds is not None:
        # The soft limit sends SIGXCPU, which tells why the process ended; the hard limit kills.
        lower(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    if limits.memory_bytes is not None:
        lower(resource.RLIMIT_DATA, limits.memory_bytes)
        addresses = limits.memory_bytes * ADDRESSES if limits.address_bytes is None else limits.address_bytes
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
    """The number of tasks of this user, threads included; None if /proc is hidden, as in another sandbox.

    `Limits.processes` counts them too.
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
    return count or None  # never 0: this process is a task


def no_new_privs() -> None:
    """Let no program gain privileges when it starts; Landlock and seccomp need this."""
    system_calls.prctl("prctl(PR_SET_NO_NEW_PRIVS)", _SET_NO_NEW_PRIVS, 1)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop_capabilities(keep: Collection[int] = ()) -> None:
    """Drop all capabilities but these; programs that are started lose all of them, also as root."""
    if _has_none():  # another sandbox may refuse the calls below
        return
    # An error means the end of the list, or that dropping is not permitted; then no_new_privs suffices.
    with suppress(OSError):
        for capability in range(_MOST_CAPABILITIES):
            system_calls.prctl("prctl(PR_CAPBSET_DROP)", _CAPBSET_DROP, capability)
    system_calls.prctl("prctl(PR_CAP_AMBIENT)", _CAP_AMBIENT, _CLEAR_ALL)
    number = system_calls.NUMBERS[system_calls.machine()]["capset"]
    kept = sum(1 << capability for capability in keep)  # effective and permitted, never inheritable
    system_calls.syscall("capset", number, _Header(_CAPABILITY_VERSION, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def _has_none() -> bool:
    """Whether the process has no capability; with no_new_privs it gets none back."""
    held = ctypes.create_string_buffer(24)
    try:
        system_calls.syscall(
            "capget", system_calls.NUMBERS[system_calls.machine()]["capget"], _Header(_CAPABILITY_VERSION, 0), held
        )
    except OSError:
        return False
    return not any(held.raw)


def undumpable() -> None:
    """Protect the memory and /proc entries of this process from others of the user, until it executes a program."""
    system_calls.prctl("prctl(PR_SET_DUMPABLE)", _SET_DUMPABLE, 0)
