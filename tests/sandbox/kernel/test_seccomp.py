"""What the filter says to each system call, by really making it."""

import errno
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from licet.sandbox.kernel import seccomp, system_calls
from licet.sandbox.kernel.seccomp import NO, OWN_PID, UNKNOWN, YES, call_rules
from sandbox.walled import needs_filter, run

pytestmark = needs_filter

NUMBERS = system_calls.NUMBERS.get(system_calls.machine(), system_calls.NUMBERS["x86_64"])
TOOL: Mapping[str, Any] = {}
PROGRAM = {"execute": True, "fork": True}
NETWORKED = {**PROGRAM, "inet": True, "metadata": True}

# What one call says nothing about: they end or suspend the process, or make another one of it.
UNSAFE_TO_SWEEP = {
    "exit", "exit_group", "fork", "pause", "restart_syscall", "rt_sigreturn", "rt_sigsuspend", "vfork", "vhangup",
}  # fmt: skip
LEAVES_SOMETHING = {"msgget"}  # with all bits set it makes a queue

# The one who sweeps must be able to fork, so the walls go up in each child.
SWEEP = """
def behind(name):
    walls()
    return raw(name, *[-1] * 6)
answer = {name: apart(lambda name=name: behind(name)) for name in spec["given"]}
"""


@cache
def swept(profile: str | None) -> dict[str, Any]:
    """Each call of this architecture with all bits of all arguments set, which the kernel itself takes for nonsense."""
    names = sorted(set(NUMBERS) - UNSAFE_TO_SWEEP - LEAVES_SOMETHING)
    filtered = None if profile is None else json.loads(profile)
    return dict(run(SWEEP, filtered=filtered, own_pid=True, given=names))


def decided(profile: Mapping[str, Any]) -> dict[str, Any]:
    found = {"execute": False, "fork": False, "inet": False, "metadata": False, **profile}
    return dict(call_rules(**found, fenced=False, abi=7))


@pytest.mark.parametrize("profile", [TOOL, PROGRAM, NETWORKED], ids=["tool", "program", "networked"])
@pytest.mark.sampled(1)
def test_each_call_gets_what_the_rules_say(profile: Mapping[str, Any]) -> None:
    rules, found = decided(profile), swept(json.dumps({**profile, "abi": 7}))
    assert found
    refused = {name for name, outcome in found.items() if rules.get(name, NO) == NO}
    assert {name: found[name] for name in refused if found[name] != "EPERM"} == {}
    assert {name: found[name] for name in found if rules.get(name) == UNKNOWN and found[name] != "ENOSYS"} == {}
    # The kernel has no call of its own that says EPERM to this, except where it wants privileges.
    allowed = {name for name in found if rules.get(name) == YES}
    free = swept(None)
    assert {name: (found[name], free[name]) for name in allowed if found[name] == "EPERM" != free[name]} == {}
    assert len(allowed) > (150 if system_calls.machine() == "x86_64" else 140)  # aarch64 has fewer calls in all
    # It is the filter that refuses. Without capabilities the kernel says EPERM to some; far from all.
    by_kernel = {name for name in refused if free[name] == "EPERM"}
    assert len(refused - by_kernel) > 80, sorted(by_kernel)


STREAM, DGRAM, SEQPACKET, NONBLOCK = 1, 2, 5, 0o4000
NULL = 0
NO_PRIORITY = "\0" * 4
OTHER = 4321  # the id of a user and of a group that nobody here has
NONE = errno.errorcode[errno.ENOTSUP]  # as a file system without them says
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_DUMPABLE, PR_SET_MM, PR_SET_SECCOMP = 1, 15, 4, 35, 22

# Name, arguments, and what the tool, the program and the networked program get. `pid`, `parent`, `uid` and `gid` are
# filled in.
Case = tuple[str, tuple[Any, ...], Any, Any, Any]
CASES: dict[str, Case] = {
    **{
        f"socket of family {family}": ("socket", (family, STREAM, 0), "EPERM", "EPERM", inet)
        for family in range(46)
        for inet in ["fd" if family in (2, 10) else "EPERM"]
    },
    "datagram socket": ("socket", (2, DGRAM, 0), "EPERM", "EPERM", "fd"),
    "close-on-exec UDP by name": ("socket", (10, DGRAM | 0o2000000, 17), "EPERM", "EPERM", "fd"),
    "multipath TCP": ("socket", (2, STREAM, 262), "EPERM", "EPERM", "EPERM"),
    "raw socket": ("socket", (2, 3, 1), "EPERM", "EPERM", "EPERM"),
    "interfaces, by netlink": ("socket", (16, 3 | 0o2000000, 0), "EPERM", "EPERM", "fd"),
    "firewall, by netlink": ("socket", (16, 3, 12), "EPERM", "EPERM", "EPERM"),
    "audit, by netlink": ("socket", (16, 3, 9), "EPERM", "EPERM", "EPERM"),
    "devices, by netlink": ("socket", (16, 3, 15), "EPERM", "EPERM", "EPERM"),
    "generic netlink": ("socket", (16, 3, 16), "EPERM", "EPERM", "EPERM"),
    "ping socket": ("socket", (2, DGRAM, 1), "EPERM", "EPERM", "EPERM"),
    "stream pair": ("socketpair", (1, STREAM, 0, "        "), 0, 0, 0),
    "non-blocking stream pair": ("socketpair", (1, STREAM | NONBLOCK, 0, "        "), 0, 0, 0),
    "seqpacket pair": ("socketpair", (1, SEQPACKET, 0, "        "), 0, 0, 0),
    "datagram pair": ("socketpair", (1, DGRAM, 0, "        "), "EPERM", "EPERM", "EPERM"),
    "non-blocking datagram pair": ("socketpair", (1, DGRAM | NONBLOCK, 0, "        "), "EPERM", "EPERM", "EPERM"),
    "pair of another family": ("socketpair", (30, STREAM, 0, "        "), "EPERM", "EPERM", "EPERM"),
    "connect": ("connect", (-1, NULL, 0), "EPERM", "EPERM", "EBADF"),
    "listen": ("listen", (-1, 1), "EPERM", "EPERM", "EBADF"),
    "send": ("sendto", (-1, "x", 1, 0, NULL, 0), "EBADF", "EBADF", "EBADF"),
    "send to an address": ("sendto", (-1, "x", 1, 0, "address ", 8), "EPERM", "EPERM", "EBADF"),
    "send to a high address": ("sendto", (-1, "x", 1, 0, 1 << 40, 8), "EPERM", "EPERM", "EBADF"),
    "fast open": ("sendto", (-1, "x", 1, 0x20000000, NULL, 0), "EPERM", "EPERM", "EBADF"),
    "fast open by message": ("sendmsg", (-1, NULL, 0x20000000), "EPERM", "EPERM", "EBADF"),
    "send a message": ("sendmsg", (-1, NULL, 0), "EBADF", "EBADF", "EBADF"),
    "wait when closing": ("setsockopt", (-1, 1, 13, "        ", 8), "EPERM", "EPERM", "EBADF"),
    "wait, in more bits": ("setsockopt", (-1, 1 << 40 | 1, 1 << 40 | 13, " " * 8, 8), "EPERM", "EPERM", "EBADF"),
    "keep alive": ("setsockopt", (-1, 1, 9, "    ", 4), "EBADF", "EBADF", "EBADF"),
    "an option of TCP by the same number": ("setsockopt", (-1, 6, 13, "    ", 4), "EBADF", "EBADF", "EBADF"),
    "new user namespace": ("unshare", (0x10000000,), "EPERM", "EPERM", "EPERM"),
    "join a namespace": ("setns", (-1, 0), "EPERM", "EPERM", "EPERM"),
    "fork by clone": ("clone", (17, NULL, NULL, NULL, NULL), "EPERM", "child", "child"),
    "clone, user namespace": ("clone", (0x10000011, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, network namespace": ("clone", (0x40000011, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, mount namespace": ("clone", (0x00020011, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, pid namespace": ("clone", (0x20000011, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, cgroup namespace": ("clone", (0x02000011, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, uts namespace": ("clone", (0x04000011, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, ipc namespace": ("clone", (0x08000011, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, as a sibling": ("clone", (0x00008011, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, thread and namespace": ("clone", (0x10010000, NULL, NULL, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "clone, half a thread": ("clone", (0x00010000, NULL, NULL, NULL, NULL), "EINVAL", "EINVAL", "EINVAL"),
    "clone3": ("clone3", (NULL, 0), "ENOSYS", "ENOSYS", "ENOSYS"),
    "execve": ("execve", ("/nowhere", NULL, NULL), "EPERM", "ENOENT", "ENOENT"),
    "execveat": ("execveat", (-100, "/nowhere", NULL, NULL, 0), "EPERM", "EPERM", "EPERM"),
    "memfd": ("memfd_create", ("m", 0), "EPERM", "fd", "fd"),
    "memfd of huge pages": ("memfd_create", ("m", 4), "EPERM", "EPERM", "EPERM"),
    "memfd of pages of a size": ("memfd_create", ("m", 4 | 21 << 26), "EPERM", "EPERM", "EPERM"),
    "huge pages": ("mmap", (NULL, 1 << 21, 3, 0x40022, -1, 0), "ENOMEM", "ENOMEM", "ENOMEM"),
    "memory by a wrong descriptor": ("mmap", (NULL, 4096, 3, 2, -1, 0), "EBADF", "EBADF", "EBADF"),
    "secret memfd": ("memfd_secret", (0,), "EPERM", "EPERM", "EPERM"),
    "io_uring": ("io_uring_setup", (1, " " * 120), "EPERM", "EPERM", "EPERM"),
    "ptrace": ("ptrace", (0, 0, 0, 0), "EPERM", "EPERM", "EPERM"),
    "read another's memory": ("process_vm_readv", ("parent", NULL, 0, NULL, 0, 0), "EPERM", "EPERM", "EPERM"),
    "another's fd": ("pidfd_getfd", (-1, 0, 0), "EPERM", "EPERM", "EPERM"),
    "pidfd": ("pidfd_open", ("pid", 0), "EPERM", "fd", "fd"),
    "signal by pidfd": ("pidfd_send_signal", (-1, 0, NULL, 0), "EPERM", "EPERM", "EPERM"),
    "kill oneself": ("kill", ("pid", 0), 0, 0, 0),
    "kill another": ("kill", ("parent", 0), "EPERM", "EPERM", "EPERM"),
    "kill one's group": ("kill", (0, 0), "EPERM", "EPERM", "EPERM"),
    "kill everyone": ("kill", (-1, 0), "EPERM", "EPERM", "EPERM"),
    "kill a thread of another": ("tgkill", ("parent", "parent", 0), "EPERM", "EPERM", "EPERM"),
    "kill a thread": ("tgkill", ("pid", "pid", 0), 0, 0, 0),
    "tkill another": ("tkill", ("parent", 0), "EPERM", "EPERM", "EPERM"),
    "queue a signal to another": ("rt_sigqueueinfo", ("parent", 10, NULL), "EPERM", "EPERM", "EPERM"),
    "own limits": ("prlimit64", (0, 7, NULL, NULL), 0, 0, 0),
    "another's limits": ("prlimit64", ("parent", 7, NULL, NULL), "EPERM", "EPERM", "EPERM"),
    "own priority": ("setpriority", (0, 0, 19), 0, 0, 0),
    "another's priority": ("setpriority", (0, "parent", 19), "EPERM", "EPERM", "EPERM"),
    "a user's priority": ("setpriority", (2, 0, 19), "EPERM", "EPERM", "EPERM"),
    "scheduled as all are": ("sched_setscheduler", (0, 0, NO_PRIORITY), 0, 0, 0),
    "scheduled behind all": ("sched_setscheduler", (0, 5, NO_PRIORITY), 0, 0, 0),
    "its children as all are": ("sched_setscheduler", (0, 0x40000000, NO_PRIORITY), 0, 0, 0),
    "scheduled before all": ("sched_setscheduler", (0, 1, "\1\0\0\0"), "EPERM", "EPERM", "EPERM"),
    "before all, its children not": ("sched_setscheduler", (0, 0x40000001, "\1\0\0\0"), "EPERM", "EPERM", "EPERM"),
    "another, as all are": ("sched_setscheduler", ("parent", 0, NULL), 0, 0, 0),  # nothing is done, or it were EINVAL
    "another, behind all": ("sched_setscheduler", ("parent", 5, NO_PRIORITY), "EPERM", "EPERM", "EPERM"),
    "scheduled by attributes": ("sched_setattr", (0, NULL, 0), "ENOSYS", "ENOSYS", "ENOSYS"),
    "own capabilities": ("capset", (NULL, NULL), "EPERM", "EFAULT", "EFAULT"),
    "own order of disk use": ("ioprio_set", (1, 0, 3 << 13), 0, 0, 0),
    "another's order of disk use": ("ioprio_set", (1, "parent", 3 << 13), "EPERM", "EPERM", "EPERM"),
    "a user's order of disk use": ("ioprio_set", (3, 0, 3 << 13), "EPERM", "EPERM", "EPERM"),
    "another's processors": ("sched_setaffinity", ("parent", 8, "\x01" + "\0" * 7), "EPERM", "EPERM", "EPERM"),
    "own processors": ("sched_setaffinity", (0, 8, NULL), "EFAULT", "EFAULT", "EFAULT"),
    "make a file": ("openat", (-1, "x", 0o101, 0o666), "EBADF", "EBADF", "EBADF"),
    "make it set-uid": ("openat", (-1, "x", 0o101, 0o4755), "EPERM", "EPERM", "EPERM"),
    "make it set-gid": ("openat", (-1, "x", 0o101, 0o2755), "EPERM", "EPERM", "EPERM"),
    "set-uid, for now without a name": ("openat", (-1, ".", 0o20200002, 0o4755), "EPERM", "EPERM", "EPERM"),
    "open, and no mode at all": ("openat", (-1, "x", 0, -1), "EBADF", "EBADF", "EBADF"),
    "open, with a mode that nobody sees": ("openat2", (-1, "x", NULL, 24), "ENOSYS", "ENOSYS", "ENOSYS"),
    "mode by path": ("fchmodat", (-100, "/nowhere", 0o777), "EPERM", "EPERM", "ENOENT"),
    "mode by fd": ("fchmod", (-1, 0o777), "EPERM", "EPERM", "EBADF"),
    "set-uid": ("fchmod", (-1, 0o4755), "EPERM", "EPERM", "EPERM"),
    "set-gid by path": ("fchmodat", (-100, "/nowhere", 0o2755), "EPERM", "EPERM", "EPERM"),
    "mode, the new way": ("fchmodat2", (-100, "/nowhere", 0o777, 0), "EPERM", "EPERM", "ENOENT"),
    "owner": ("fchownat", (-100, "/nowhere", 0, 0, 0), "EPERM", "EPERM", "ENOENT"),
    "times by path": ("utimensat", (-100, "/nowhere", NULL, 0), "EPERM", "EPERM", "ENOENT"),
    "times by fd": ("utimensat", (-1, NULL, NULL, 0), "EPERM", "EPERM", "EBADF"),
    "extended attribute": ("setxattr", ("/nowhere", "user.x", "x", 1, 0), "EPERM", "EPERM", "ENOENT"),
    "extended attribute by fd": ("fsetxattr", (-1, "user.x", "x", 1, 0), "EPERM", "EPERM", "EBADF"),
    "read an extended attribute": ("getxattr", ("/nowhere", "user.x", NULL, 0), NONE, NONE, "ENOENT"),
    "of a link": ("lgetxattr", ("/nowhere", "user.x", NULL, 0), NONE, NONE, "ENOENT"),
    "of an open file": ("fgetxattr", (-1, "user.x", NULL, 0), "EBADF", "EBADF", "EBADF"),
    "list extended attributes": ("listxattr", ("/nowhere", NULL, 0), NONE, NONE, "ENOENT"),
    "watch": ("inotify_init1", (0,), "EPERM", "EPERM", "fd"),
    "FIFO": ("mknodat", (-100, "/nowhere/x", 0o10600, 0), "EPERM", "ENOENT", "ENOENT"),
    "FIFO, in more bits": ("mknodat", (-100, "/nowhere/x", 1 << 40 | 0o10600, 0), "EPERM", "ENOENT", "ENOENT"),
    "FIFO with a set-uid bit": ("mknodat", (-100, "/nowhere/x", 0o14600, 0), "EPERM", "EPERM", "EPERM"),
    **{
        f"node of kind {kind:o}": ("mknodat", (-100, "/nowhere/x", kind | 0o600, 0x103), "EPERM", "EPERM", "EPERM")
        for kind in (0, 0o020000, 0o060000, 0o100000, 0o140000, 0o030000, 0o070000)
    },
    "mount": ("mount", ("none", "/nowhere", "tmpfs", 0, NULL), "EPERM", "EPERM", "EPERM"),
    "new root": ("chroot", ("/nowhere",), "EPERM", "EPERM", "EPERM"),
    "keys": ("keyctl", (0, -3, 0, 0, 0), "EPERM", "EPERM", "EPERM"),
    "shared memory": ("shmget", (0, 0, 0), "EPERM", "EPERM", "EINVAL"),
    "a page of shared memory": ("shmget", (0, (1 << 16) - 1, 0), "EPERM", "EPERM", "fd"),
    "much shared memory": ("shmget", (0, 1 << 16, 0), "EPERM", "EPERM", "EPERM"),
    "very much shared memory": ("shmget", (0, 1 << 40, 0), "EPERM", "EPERM", "EPERM"),
    "huge pages of shared memory": ("shmget", (0, 4096, 0o4000), "EPERM", "EPERM", "EPERM"),
    "locked shared memory": ("shmctl", (-1, 11, NULL), "EPERM", "EPERM", "EPERM"),
    "semaphores": ("semget", (0, 1, 0), "EPERM", "EPERM", "EPERM"),
    "message queue": ("msgget", (1, 0), "EPERM", "EPERM", "EPERM"),
    "bpf": ("bpf", (0, NULL, 0), "EPERM", "EPERM", "EPERM"),
    "performance events": ("perf_event_open", (NULL, 0, -1, -1, 0), "EPERM", "EPERM", "EPERM"),
    "another filter": ("seccomp", (0, 1, NULL), "EPERM", "EINVAL", "EINVAL"),
    "name of a thread": ("prctl", (PR_SET_NAME, "n", 0, 0, 0), 0, 0, 0),
    "die with the parent": ("prctl", (PR_SET_PDEATHSIG, 9, 0, 0, 0), 0, 0, 0),
    "outlive the parent": ("prctl", (PR_SET_PDEATHSIG, 0, 0, 0, 0), "EPERM", 0, 0),
    "another signal when the parent ends": ("prctl", (PR_SET_PDEATHSIG, 15, 0, 0, 0), "EPERM", 0, 0),
    "be dumpable": ("prctl", (PR_SET_DUMPABLE, 1, 0, 0, 0), "EPERM", "EPERM", "EPERM"),
    "move its memory": ("prctl", (PR_SET_MM, 1, 0, 0, 0), "EPERM", "EPERM", "EPERM"),
    "filter by prctl": ("prctl", (PR_SET_SECCOMP, 9, 0, 0, 0), "EPERM", "EINVAL", "EINVAL"),
    "type into the terminal": ("ioctl", (-1, 0x5412, "x"), "ENOTTY", "ENOTTY", "ENOTTY"),
    "type into the console": ("ioctl", (-1, 0x541C, "x"), "ENOTTY", "ENOTTY", "ENOTTY"),
    "the same with high bits": ("ioctl", (-1, 0x100005412, "x"), "ENOTTY", "ENOTTY", "ENOTTY"),
    "flags of a file": ("ioctl", (-1, 0x40086602, " " * 8), "ENOTTY", "ENOTTY", "ENOTTY"),
    "owner of signals by ioctl": ("ioctl", (-1, 0x8901, " " * 8), "ENOTTY", "ENOTTY", "ENOTTY"),
    "size of the terminal": ("ioctl", (-1, 0x5413, " " * 8), "EBADF", "EBADF", "EBADF"),
    "signals of an fd to another": ("fcntl", (0, 8, "parent"), "EPERM", "EPERM", "EPERM"),
    "the same, extended": ("fcntl", (0, 15, NULL), "EPERM", "EPERM", "EPERM"),
    "which signal": ("fcntl", (0, 10, 9), "EPERM", "EPERM", "EPERM"),
    "lease": ("fcntl", (0, 1024, 1), "EPERM", "EPERM", "EPERM"),
    "flags of an fd": ("fcntl", (0, 3, 0), "flags", "flags", "flags"),
    "domain": ("personality", (0xFFFFFFFF,), 0, 0, 0),
    "change of domain": ("personality", (0x0400000,), "EPERM", "EPERM", "EPERM"),
    "session": ("setsid", (), "EPERM", "pid", "pid"),
    **{
        f"{name} of {who}, of {count}": (name, (who,) * count, "EPERM", expected, expected)
        for names, own in ((seccomp._USER_IDS, "uid"), (seccomp._GROUP_IDS, "gid"))
        for name, count in names
        for who, expected in ((own, "previous" if "fs" in name else 0), (OTHER, "EPERM"), (OTHER + (1 << 32), "EPERM"))
    },
    "identity, unchanged": ("setresuid", (-1, -1, -1), "EPERM", 0, 0),
    "as posix_spawn resets it": ("setresuid", (-1, "uid", -1), "EPERM", 0, 0),
    "another saved identity": ("setresuid", ("uid", "uid", OTHER), "EPERM", "EPERM", "EPERM"),
    "another real group": ("setregid", (OTHER, "gid"), "EPERM", "EPERM", "EPERM"),
    "fewer groups": ("setgroups", (0, NULL), "EPERM", "EPERM", "EPERM"),
    "narrower rules": ("landlock_create_ruleset", (NULL, 0, 1), "flags", "flags", "flags"),
}  # fmt: skip
X86_CASES: dict[str, Case] = {
    "fork": ("fork", (), "EPERM", "child", "child"),
    "make it set-uid, the old way": ("open", ("/nowhere/x", 0o101, 0o4755), "EPERM", "EPERM", "EPERM"),
    "make it, the old way": ("open", ("/nowhere/x", 0o101, 0o666), "ENOENT", "ENOENT", "ENOENT"),
    "make it set-gid, the oldest way": ("creat", ("/nowhere/x", 0o2755), "EPERM", "EPERM", "EPERM"),
    "mode, the old way": ("chmod", ("/nowhere", 0o777), "EPERM", "EPERM", "ENOENT"),
    "times, the old way": ("utime", ("/nowhere", NULL), "EPERM", "EPERM", "ENOENT"),
    "descriptor tables": ("modify_ldt", (0, NULL, 0), "EPERM", "EPERM", "EPERM"),
    "ports": ("iopl", (3,), "EPERM", "EPERM", "EPERM"),
}
NUMBERED = {"a number of tomorrow": 471, "a number of next year": 600, "the last number": 0x3FFFFFFF}

# Without a filter these would slow down everything that the user runs, and the tests, or stay.
HARMFUL = {
    "a page of shared memory",
    "much shared memory",
    "very much shared memory",
    "semaphores",
    "huge pages of shared memory",
    "a user's priority",
    "another, behind all",
    "another's order of disk use",
    "a user's order of disk use",
}
assert set(CASES) >= HARMFUL

TABLE = """
def one(name, arguments):
    def behind():
        walls()
        known = {"pid": os.getpid(), "parent": os.getppid(), "uid": os.getuid(), "gid": os.getgid()}
        child = os.getpid()
        value = raw(name, *[known.get(a, a) if isinstance(a, str) else a for a in arguments])
        if os.getpid() != child:
            os._exit(0)  # what clone or fork made
        return value
    return apart(behind)
answer = {case: one(name, arguments) for case, (name, arguments) in spec["given"].items()}
"""


@cache
def results(profile: str | None) -> dict[str, Any]:
    cases = {**CASES, **(X86_CASES if system_calls.machine() == "x86_64" else {})}
    given: dict[str, Any] = {case: (name, arguments) for case, (name, arguments, *_) in cases.items()}
    if profile is None:
        given = {case: call for case, call in given.items() if case not in HARMFUL}
    given |= {case: (number, ()) for case, number in NUMBERED.items()}
    if system_calls.machine() == "x86_64":
        given["x32"] = (0x40000000 + NUMBERS["getpid"], ())
        given["x32 of tomorrow"] = (0x40000000 + 600, ())
    filtered = None if profile is None else json.loads(profile)
    return dict(run(TABLE, filtered=filtered, own_pid=True, given=given))


def fits(found: Any, expected: Any, free: Any) -> bool:
    """Whether a call ended as the table says. `free` is how the same call ends without a filter."""
    if expected in ("fd", "child", "flags", "pid", "previous"):
        return isinstance(found, int) and found >= 0
    if found == "ENOSYS" == free:
        return bool(expected != "EPERM")  # the filter comes first, whatever the kernel lacks
    return bool(found == expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("column", "profile"), [(2, TOOL), (3, PROGRAM), (4, NETWORKED)], ids=["tool", "program", "net"]
)
def test_calls_with_these_arguments(column: int, profile: Mapping[str, Any]) -> None:
    cases = {**CASES, **(X86_CASES if system_calls.machine() == "x86_64" else {})}
    expected = {case: row[column] for case, row in cases.items()}
    found, free = results(json.dumps(profile)), results(None)
    wrong = [case for case in cases if not fits(found[case], expected[case], free.get(case))]
    assert {case: (found[case], expected[case]) for case in wrong} == {}


def test_without_a_filter_the_same_calls_are_made() -> None:
    free, walled = results(None), results(json.dumps(TOOL))
    changed = {case for case in free if walled[case] != free[case]}
    assert changed >= {
        "connect", "listen", "send to an address", "fast open", "datagram pair", "execve", "execveat", "memfd",
        "socket of family 1", "socket of family 2", "socket of family 10", "socket of family 16", "kill another",
        "another's limits", "another's priority", "mode by path", "mode by fd", "set-uid", "times by path",
        "extended attribute", "watch", "outlive the parent", "be dumpable", "signals of an fd to another",
        "which signal", "session", "identity, unchanged", "fork by clone", "clone3", "change of domain", "pidfd",
        "flags of a file", "make it set-uid", "open, with a mode that nobody sees",
    }  # fmt: skip


def test_what_nobody_has_looked_at_does_not_exist() -> None:
    assert {case: results(json.dumps(NETWORKED))[case] for case in NUMBERED} == dict.fromkeys(NUMBERED, "ENOSYS")


@pytest.mark.skipif(system_calls.machine() != "x86_64", reason="a second numbering of x86_64")
@pytest.mark.parametrize("case", ["x32", "x32 of tomorrow"])
def test_the_second_numbering_is_fatal(case: str) -> None:
    assert results(json.dumps(NETWORKED))[case] == "SIGSYS"


@pytest.mark.skipif(system_calls.machine() != "x86_64", reason="32-bit calls of x86_64")
def test_calls_of_another_architecture_are_fatal() -> None:
    # mov eax, 20 (getpid of i386); int 0x80; ret
    code = """
import mmap
def old():
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return call() == os.getpid()
def behind():
    walls()
    return old()
answer = [apart(old), apart(behind)]
"""
    free, walled = run(code, filtered={})
    if free != "SIGSEGV":  # a kernel without 32-bit calls
        assert free is True
    assert walled in ("SIGSYS", "SIGSEGV") if free == "SIGSEGV" else walled == "SIGSYS"


@pytest.mark.parametrize("profile", [TOOL, NETWORKED])
def test_threads_work(profile: Mapping[str, Any]) -> None:
    code = """
walls()
found = []
thread = threading.Thread(target=lambda: found.append(threading.get_native_id() != os.getpid()))
thread.start(); thread.join()
answer = found
"""
    assert run(code, filtered=profile, own_pid=True) == [True]


def test_a_thread_cannot_fork_either() -> None:
    code = """
walls()
found = []
thread = threading.Thread(target=lambda: found.append(attempt(os.fork)))
thread.start(); thread.join()
answer = found
"""
    assert run(code, filtered=TOOL) == ["EPERM"]


def test_programs_start_and_are_behind_the_same_filter() -> None:
    code = """
walls()
inner = "import socket\\ntry: socket.socket()\\nexcept OSError as e: print(e.errno)\\nelse: print('open')"
done = subprocess.run([sys.executable, "-I", "-c", inner], capture_output=True, text=True)
answer = [done.returncode, done.stdout.strip(), done.stderr]
"""
    assert run(code, filtered=PROGRAM) == [0, str(errno.EPERM), ""]


def test_asyncio_runs_behind_the_filter() -> None:
    code = """
import asyncio
walls()
async def main():
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: 7)
answer = asyncio.run(main())
"""
    assert run(code, filtered=TOOL, own_pid=True) == 7


OLD = """
walls()
path = spec["given"]
answer = [attempt(lambda: os.truncate(path, 0)), attempt(lambda: os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))),
          attempt(lambda: open(path).read()),
          attempt(lambda: os.close(os.open(path + "-new", os.O_CREAT | os.O_WRONLY, 0o4755))),
          attempt(lambda: open(path, "w").close())]
"""


@pytest.mark.parametrize(
    ("abi", "expected"),
    [(2, ["EPERM", "EPERM", "text", "EPERM", None]), (3, [None, None, "", "EPERM", None])],
)
def test_what_old_versions_of_landlock_lack_is_closed(tmp_path: Any, abi: int, expected: list[Any]) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    assert run(OLD, filtered={"abi": abi}, given=str(path)) == expected


@pytest.mark.parametrize("machine", system_calls.NUMBERS)
def test_the_tables_agree_with_themselves(machine: str) -> None:
    numbers = system_calls.NUMBERS[machine]
    assert len(set(numbers.values())) == len(numbers)
    # A rule for a call that is in no table would be a rule for nothing.
    everything = set().union(*system_calls.NUMBERS.values())
    named = call_rules(execute=True, fork=True, inet=True, metadata=True, fenced=True, abi=1)
    assert set(named) <= everything


@pytest.mark.parametrize(
    ("machine", "name", "number"),
    [("x86_64", "rseq", 334), ("x86_64", "openat", 257), ("x86_64", "seccomp", 317), ("x86_64", "listns", 470),
     ("aarch64", "openat", 56), ("aarch64", "clone", 220), ("aarch64", "accept4", 242), ("aarch64", "wait4", 260),
     ("aarch64", "seccomp", 277), ("aarch64", "kexec_file_load", 294), ("aarch64", "clone3", 435),
     ("aarch64", "fchmodat2", 452), ("aarch64", "sync_file_range", 84), ("aarch64", "newfstatat", 79)],
)  # fmt: skip
def test_some_numbers_are_those_of_the_kernel(machine: str, name: str, number: int) -> None:
    assert system_calls.NUMBERS[machine][name] == number


def test_a_pid_is_written_wherever_one_is_compared() -> None:
    first, second = seccomp.program(own_pid=1111), seccomp.program(own_pid=2222)
    mark = OWN_PID.to_bytes(4, "little")
    assert first != second
    assert mark not in first + second
    assert first.replace((1111).to_bytes(4, "little"), (2222).to_bytes(4, "little")) == second


def test_an_unknown_architecture_has_no_filter() -> None:
    with pytest.raises(OSError, match="no filter is known for the architecture riscv64"):
        seccomp._built("riscv64", False, False, False, False, True, 7)
