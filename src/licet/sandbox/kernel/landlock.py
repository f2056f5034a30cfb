"""Landlock: a process gives up all files, TCP ports and signals to others except those in a ruleset, for good.

It has only allow rules: no deny inside an allowed tree, and no rename without delete. It does not hide that a file
exists, nor stop changes to modes, owners and times: `seccomp` and a private root (`namespaces`) do that.

Hardening: a process drops privileges, limits its resources and closes its files before untrusted code runs in it.

Each part closes a way around the walls, and none is a wall alone. For single-threaded processes: most of it applies to
the calling thread and to what it starts.
"""

import ctypes
import errno
import os
import signal
import stat
import struct
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from licet.sandbox.kernel import system_calls
from licet.sandbox.limits import ADDRESSES, LOCKED_MEMORY, PROCESS_STACK

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH, _NET_PORT = 1, 2
_CONNECT_TCP, _BIND_TCP = 2, 1
_TOO_NEW = 7  # the newest version that this module knows; newer kernels accept it

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in range(13, 16))

READ_FILE = _READ_FILE
READ = READ_FILE | _READ_DIR
EXECUTE = _EXECUTE | READ_FILE  # the loader reads the program
WRITE = _WRITE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _TRUNCATE  # without delete and rename, devices and FIFOs
SPECIAL = _MAKE_FIFO | _MAKE_SOCK  # named pipes and unix sockets; seccomp decides whether a process can make them
TERMINAL = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
DELETE = _REMOVE_DIR | _REMOVE_FILE | _REFER  # together with WRITE also rename, within and across directories

_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # other rights apply to directories only


class PathRule(NamedTuple):
    """The rights on a file, or on a directory and everything below it."""

    path: str
    access: int


class Handled(NamedTuple):
    """The rights that a version of Landlock checks: on files, on TCP ports, and outside of the domain."""

    files: int
    tcp: int
    scope: int

    def packed(self) -> bytes:
        """The structure for the kernel. Trailing zeros are left out: older kernels expect a shorter one."""
        words = [self.files, self.tcp, self.scope]
        while len(words) > 1 and not words[-1]:
            words.pop()
        return struct.pack(f"={len(words)}Q", *words)


SIGNALS_SINCE = 6  # the first version that confines signals


@cache
def abi() -> int:
    """The version of Landlock in this kernel; 0 if it is missing or disabled."""
    try:
        return system_calls.syscall("landlock_create_ruleset", _CREATE, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def handled(version: int) -> Handled:
    """All rights that a version can check: a right without a rule must be refused, not unchecked."""
    files = (1 << 13) - 1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        files |= right if version >= since else 0
    tcp = _BIND_TCP | _CONNECT_TCP if version >= 4 else 0
    scope = 0b11 if version >= SIGNALS_SINCE else 0  # abstract unix sockets of, and signals to, processes outside
    return Handled(files, tcp, scope)


def ruleset(rules: Iterable[PathRule], *, tcp_ports: Sequence[int] | None = (), version: int | None = None) -> int:
    """Build a ruleset and return its fd, for `restrict` in this process or in a fork.

    A missing path is left out. `tcp_ports` are the ports that may be connected to; None leaves TCP unchecked, which is
    right only in a private network. `version` builds the ruleset of an older kernel.
    """
    newest = min(abi(), _TOO_NEW)
    if newest < 1 or (version is not None and version < 1):
        raise OSError(errno.ENOSYS, "this kernel has no Landlock, or it is disabled")
    all_of_it = handled(newest if version is None else min(version, newest))
    if tcp_ports is None:
        all_of_it = all_of_it._replace(tcp=0)
    attributes = all_of_it.packed()
    fd = system_calls.syscall("landlock_create_ruleset", _CREATE, attributes, len(attributes), 0)
    try:
        for rule in rules:
            _add_path(fd, rule, all_of_it.files)
        if all_of_it.tcp:
            for port in tcp_ports or ():
                system_calls.syscall(
                    "landlock_add_rule", _ADD, fd, _NET_PORT, struct.pack("=QQ", _CONNECT_TCP, port), 0
                )
    except BaseException:
        os.close(fd)
        raise
    return fd


def _add_path(fd: int, rule: PathRule, known: int) -> None:
    try:
        path_fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        access = rule.access & known
        # By the open file, because its name may mean another file by now; a private root may lack /proc.
        if not stat.S_ISDIR(os.fstat(path_fd).st_mode):
            access &= _OF_A_FILE
        if access:  # the kernel refuses a rule without rights
            what = f"landlock_add_rule {rule.path}"
            system_calls.syscall(what, _ADD, fd, _PATH_BENEATH, struct.pack("=Qi", access, path_fd), 0)
    finally:
        os.close(path_fd)


def restrict(ruleset_fd: int) -> None:
    """Apply a ruleset to this thread and everything that it starts, for good.

    Needs no_new_privs. Several rulesets all apply; the kernel accepts sixteen.
    """
    system_calls.syscall("landlock_restrict_self", _RESTRICT, ruleset_fd, 0)


if sys.platform != "win32":  # imported here because nothing may be imported in a fork
    import resource

_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 1, 4, 24, 38, 47
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
