"""The filter around a command that `licet observe` runs: it reports each call that names a file or a peer."""

import errno
import struct
from functools import cache
from typing import Final

from licet.sandbox.kernel import seccomp, system_calls

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
