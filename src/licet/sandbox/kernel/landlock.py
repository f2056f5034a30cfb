"""Landlock: a process gives up all files, TCP ports and signals to others except those in a ruleset, for good.

It has only allow rules: no deny inside an allowed tree, and no rename without delete. It does not hide that a file
exists, nor stop changes to modes, owners and times: `seccomp` and a private root (`namespaces`) do that.
"""

import errno
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from licet.sandbox.kernel import system_calls

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH, _NET_PORT = 1, 2
_CONNECT_TCP, _BIND_TCP = 2, 1
_TOO_NEW = 7  # the newest version that this module knows; newer kernels accept it

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in range(13, 16))

READ_FILE, WRITE_FILE = _READ_FILE, _WRITE_FILE
READ = READ_FILE | _READ_DIR
EXECUTE = _EXECUTE | READ_FILE  # the loader reads the program
WRITE = _WRITE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _TRUNCATE  # without delete and rename, devices and FIFOs
SPECIAL = _MAKE_FIFO | _MAKE_SOCK  # named pipes and unix sockets; seccomp decides whether a process can make them
TERMINAL = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
MOVE = _REFER  # into another directory; the right is needed on both
DELETE = _REMOVE_DIR | _REMOVE_FILE | _REFER  # together with WRITE also rename, within and across directories

OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # other rights apply to directories only


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
            access &= OF_A_FILE
        if access:  # the kernel refuses a rule without rights
            what = f"landlock_add_rule {rule.path}"
            system_calls.syscall(what, _ADD, fd, _PATH_BENEATH, struct.pack("=Qi", access, path_fd), 0)
    finally:
        os.close(path_fd)


def confinement(*, version: int | None = None) -> int:
    """Build a ruleset for files as they are, without TCP, and with what a version can confine; see `ruleset`.

    A process that adds it is in a domain of its own: nobody in it can look into a process that is not.
    """
    newest = min(abi(), _TOO_NEW)
    checked = handled(newest if version is None else min(version, newest))
    # A ruleset must check some right on files, and one without `_REFER` would deny it; a rule allows it everywhere.
    checked = checked._replace(files=checked.files & _REFER or _MAKE_CHAR)
    attributes = checked.packed()
    fd = system_calls.syscall("landlock_create_ruleset", _CREATE, attributes, len(attributes), 0)
    try:
        _add_path(fd, PathRule("/", checked.files), checked.files)
    except BaseException:
        os.close(fd)
        raise
    return fd


def restrict(ruleset_fd: int) -> None:
    """Apply a ruleset to this thread and everything that it starts, for good.

    Needs no_new_privs. Several rulesets all apply; the kernel accepts sixteen.
    """
    system_calls.syscall("landlock_restrict_self", _RESTRICT, ruleset_fd, 0)
