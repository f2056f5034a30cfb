"""Landlock: a process gives up all files, TCP ports and foreign signals but what a ruleset names, for good.

It knows allows only: no deny inside an allowed tree, and no rename without delete. It does not hide that a file exists,
nor stop changes to modes, owners and times: that is left to `seccomp` and to a private root (`namespaces`).
"""

import errno
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from licet.sandbox.kernel import calls

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH, _NET_PORT = 1, 2
_CONNECT_TCP, _BIND_TCP = 2, 1
_TOO_NEW = 7  # the newest version that was read for what it would change here; newer kernels keep to what they said

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in range(13, 16))

READ_FILE = _READ_FILE
READ = READ_FILE | _READ_DIR
EXECUTE = _EXECUTE | READ_FILE  # a program is also read by its loader
WRITE = _WRITE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _TRUNCATE  # no delete, and so no rename; no devices, no FIFOs
DELETE = _REMOVE_DIR | _REMOVE_FILE | _REFER  # with WRITE this is also rename, within and across directories

_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # the rest makes sense for directories alone


class Rule(NamedTuple):
    """What may be done with one file, or with a directory and everything below it."""

    path: str
    access: int


class Handled(NamedTuple):
    """What a version of Landlock refuses unless a rule allows it: on files, on TCP ports, and beyond the domain."""

    files: int
    tcp: int
    scope: int

    def packed(self) -> bytes:
        """The structure that the kernel reads; older kernels take a shorter one, so zeros at the end are left out."""
        words = [self.files, self.tcp, self.scope]
        while len(words) > 1 and not words[-1]:
            words.pop()
        return struct.pack(f"={len(words)}Q", *words)


SIGNALS_SINCE = 6  # the version that keeps signals inside


@cache
def abi() -> int:
    """The version of Landlock here; 0 where there is none, or it is switched off."""
    try:
        return calls.syscall("landlock_create_ruleset", _CREATE, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def handled(version: int) -> Handled:
    """Everything that a version can refuse: a right that no rule mentions must never be one that is not checked."""
    files = (1 << 13) - 1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        files |= right if version >= since else 0
    tcp = _BIND_TCP | _CONNECT_TCP if version >= 4 else 0
    scope = 0b11 if version >= SIGNALS_SINCE else 0  # abstract unix sockets and signals of processes outside
    return Handled(files, tcp, scope)


def ruleset(rules: Iterable[Rule], *, tcp_ports: Sequence[int] | None = (), version: int | None = None) -> int:
    """Build a ruleset and return its fd; `restrict` then takes one system call, in this process or in a fork.

    A path that is not there is left out: absence allows nothing. `tcp_ports` are those that may be connected to;
    None leaves TCP alone, which is right only where the network is a private one. `version` makes the ruleset that an
    older kernel would make.
    """
    newest = min(abi(), _TOO_NEW)
    if newest < 1 or (version is not None and version < 1):
        raise OSError(errno.ENOSYS, "Landlock is not in this kernel, or is switched off")
    all_of_it = handled(newest if version is None else min(version, newest))
    if tcp_ports is None:
        all_of_it = all_of_it._replace(tcp=0)
    attributes = all_of_it.packed()
    fd = calls.syscall("landlock_create_ruleset", _CREATE, attributes, len(attributes), 0)
    try:
        for rule in rules:
            _add_path(fd, rule, all_of_it.files)
        if all_of_it.tcp:
            for port in tcp_ports or ():
                calls.syscall("landlock_add_rule", _ADD, fd, _NET_PORT, struct.pack("=QQ", _CONNECT_TCP, port), 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _add_path(fd: int, rule: Rule, known: int) -> None:
    try:
        path_fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        access = rule.access & known
        # From the open file, not by name a second time, and not through /proc, which a private root may lack.
        if not stat.S_ISDIR(os.fstat(path_fd).st_mode):
            access &= _OF_A_FILE
        if access:  # the kernel refuses an empty rule, which would allow nothing anyway
            what = f"landlock_add_rule {rule.path}"
            calls.syscall(what, _ADD, fd, _PATH_BENEATH, struct.pack("=Qi", access, path_fd), 0)
    finally:
        os.close(path_fd)


def restrict(ruleset_fd: int) -> None:
    """Give up everything that the ruleset does not allow, in this thread and all it will start; never undone.

    Needs no_new_privs. Rulesets add up: the sixteenth is the last that the kernel takes.
    """
    calls.syscall("landlock_restrict_self", _RESTRICT, ruleset_fd, 0)
