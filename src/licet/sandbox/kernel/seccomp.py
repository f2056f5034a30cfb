"""Seccomp: which system calls a walled process may make, with which arguments, and the filter that enforces it.

The rules are data, an allowlist. A known call that is not listed fails with EPERM; a call that is not in
`system_calls.NUMBERS` fails with ENOSYS, as in a kernel without it. The filter is a balanced tree over call numbers.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import groupby
from typing import Final, Literal, NamedTuple

from licet.sandbox.kernel import landlock, system_calls

# Calls that concern only the process, its open files, or paths, which Landlock checks.
_PLAIN: Final = """
    read write close stat fstat lstat poll lseek mprotect munmap brk rt_sigaction rt_sigprocmask
    rt_sigreturn pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise dup dup2
    pause nanosleep getitimer alarm setitimer getpid sendfile recvfrom recvmsg shutdown getsockname getpeername
    setsockopt getsockopt exit wait4 uname flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir
    rename mkdir rmdir link unlink symlink readlink umask gettimeofday getrlimit setrlimit getrusage sysinfo
    times getuid getgid geteuid getegid getppid getpgrp getgroups getresuid getresgid getpgid getsid capget
    rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack statfs fstatfs getpriority sched_getparam
    sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_getaffinity
    sched_getattr mlock munlock mlockall munlockall mlock2 arch_prctl gettid readahead fgetxattr
    flistxattr time futex futex_waitv futex_wake futex_wait
    futex_requeue epoll_create epoll_create1 epoll_wait epoll_ctl epoll_pwait epoll_pwait2 getdents64
    set_tid_address restart_syscall fadvise64 timer_create timer_settime timer_gettime timer_getoverrun timer_delete
    clock_gettime clock_getres clock_nanosleep exit_group waitid ioprio_get mkdirat newfstatat
    unlinkat renameat renameat2 linkat symlinkat readlinkat faccessat faccessat2 pselect6 ppoll set_robust_list
    splice tee sync_file_range signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime eventfd eventfd2
    fallocate dup3 pipe2 preadv pwritev preadv2 pwritev2 getcpu getrandom membarrier copy_file_range pkey_mprotect
    pkey_alloc pkey_free statx rseq close_range mseal map_shadow_stack landlock_create_ruleset landlock_add_rule
    landlock_restrict_self
"""

# `seccomp` and `capset`: a program may restrict itself further. It has no capability and gets none back:
# browsers and servers drop theirs anyway, and end if they cannot. Never `execveat`, which runs files without a name.
_WITH_EXECUTE: Final = "execve seccomp capset"
_WITH_FORK: Final = "fork vfork setpgid setsid pidfd_open"
_WITH_INET: Final = "connect bind listen accept accept4 sendto sendmsg recvmmsg sendmmsg"
# Changes of metadata and file watching, which Landlock does not check: allowed in a private root only.
_WITH_METADATA: Final = """
    chown fchown lchown fchownat utime utimes futimesat utimensat setxattr lsetxattr fsetxattr setxattrat removexattr
    lremovexattr fremovexattr removexattrat inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
"""
# Extended attributes can be read without opening the file, which is all that Landlock checks.
_ATTRIBUTES: Final = "getxattr lgetxattr listxattr llistxattr getxattrat listxattrat"
_SIGNALS: Final = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo"
# Calls that change ids, with the number of ids that they take. Shells, `make` and `posix_spawn` set the ids that a
# process has already. `setgroups` is not here: without a group, a process can read files that are closed to the group.
_USER_IDS: Final = (("setuid", 1), ("setfsuid", 1), ("setreuid", 2), ("setresuid", 3))
_GROUP_IDS: Final = (("setgid", 1), ("setfsgid", 1), ("setregid", 2), ("setresgid", 3))


class ArgumentTest(NamedTuple):
    """Whether an argument of a call, under a mask, is one of these values; with `none`, whether it is none of them.

    It compares the lower 32 bits, or the upper ones with `high`.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    high: bool = False
    none: bool = False


class CallRule(NamedTuple):
    """The rule for a call: allowed if all tests of one entry of `allowed` hold; otherwise it fails with `otherwise`.

    Before it fails, the entries of `asked` are tried: if all tests of one hold, the call waits for the answer of the
    process that has the listener of the filter (see `connections`). If all tests of an entry of `skipped` hold, it
    succeeds and nothing is done.
    """

    allowed: tuple[tuple[ArgumentTest, ...], ...]
    otherwise: int = errno.EPERM
    asked: tuple[tuple[ArgumentTest, ...], ...] = ()
    skipped: tuple[tuple[ArgumentTest, ...], ...] = ()


YES: Final = CallRule(((),))
NO: Final = CallRule(())
ASK: Final = CallRule((), asked=((),))
UNKNOWN: Final = CallRule((), errno.ENOSYS)

# Placeholders for the ids of the process, which are written into a filter that was built before. No process has these.
OWN_PID: Final = 0xFFFFFFFE
OWN_USER, OWN_GROUP = 0xFFFFFFFD, 0xFFFFFFFC
_PLACEHOLDERS: Final = (OWN_PID, OWN_USER, OWN_GROUP)


def _if(*tests: ArgumentTest, otherwise: int = errno.EPERM) -> CallRule:
    return CallRule((tests,), otherwise)


_THREAD, _PARENT, _FILES = 0x10000, 0x8000, 0x400
_NAMESPACES = 0x7E020000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DGRAM, _RAW, _SEQPACKET = 1, 2, 3, 5
_ROUTE = 0  # the part of netlink that tells of interfaces
_TCP, _UDP = 6, 17
_FASTOPEN = 0x20000000  # connects while it sends, without `connect`
_SOCKETS, _LINGER = 1, 13  # a level of options, and one of them
_SIGKILL = 9
_PROCESS = 1  # for `ioprio_set`: one process, not a group or all of a user
_OTHER, _BATCH, _IDLE, _RESET_ON_FORK = 0, 3, 5, 0x40000000  # how a thread is scheduled, without privileges
_SAME = 0xFFFFFFFF  # -1: this id stays as it is
_SET_IDS = 0o6000
# Huge pages are few, belong to the whole machine, and count for no limit of a process.
_MEMFD_HUGE, _MAP_HUGE, _SHM_HUGE = 4, 0x40000, 0o4000
_SHARED_PIECE = 1 << 16  # bytes; a power of two, and sizes below it are allowed
_IPC_REMOVE, _IPC_STATUS = 0, 2
_KIND_OF_FILE, _FIFO = 0o170000, 0o010000
_CREAT, _TMPFILE, _TRUNC, _WRONLY, _RDWR = 0o100, 0o20000000, 0o1000, 1, 2
_WHITEOUT = 4  # leaves an entry where the renamed file was

# Calls that make an entry in a directory whatever their arguments are; `open` makes one with some flags.
_MAKING: Final = "creat mkdir mkdirat mknod mknodat symlink symlinkat link linkat bind"
_REMOVING: Final = "unlink unlinkat rmdir"

# Duplicating, flags, locks, sizes of pipes, seals, hints. Not F_SETOWN and F_SETSIG, which send signals to other
# processes, nor F_SETLEASE and F_NOTIFY, which block or watch other processes that open a file.
_FCNTL: Final = (*range(8), 9, 11, 16, 36, 37, 38, 1025, 1027, 1028, *range(1030, 1039))
# Terminal settings and sizes, readable bytes, blocking, close-on-exec, cloning of open files. Not TIOCSTI and
# TIOCLINUX, which type into the operator's terminal, TIOCSWINSZ, which resizes it, nor requests that set file flags.
_IOCTL: Final = (
    0x5401, 0x5402, 0x5403, 0x5404, 0x540F, 0x5410, 0x5413, 0x541B, 0x5421, 0x5429, 0x5450, 0x5451, 0x802C542A,
    0x402C542B, 0x402C542C, 0x402C542D, 0x40049409, 0x80086601,
)  # fmt: skip
# To make a terminal (TIOCSPTLCK, TIOCGPTN, TIOCGPTPEER) that then controls the process (TIOCSCTTY), and to read what
# happens to it (TIOCPKT). The terminal of the operator controls the operator's processes, and only a privileged process
# can take it from them.
_OWN_TERMINAL: Final = (0x40045431, 0x80045430, 0x5441, 0x540E, 0x5420)
# Thread names, reading settings, timer slack, no_new_privs, huge pages, names of memory.
_PRCTL: Final = (2, 3, 7, 15, 16, 21, 23, 29, 30, 38, 39, 40, 41, 42, 0x53564D41)
_PDEATHSIG, _DUMPABLE, _SECCOMP_RULES, _SUBREAPER = 1, 4, 22, 36


# In a network that is shared with the machine: SO_REUSEPORT, and SO_BINDTODEVICE and SO_BINDTOIFINDEX, would let a
# process outside listen at the same port; TCP_FASTOPEN_CONNECT connects after the supervisor has looked.
_SHARES_PORTS, _CONNECTS_LATER = (15, 25, 62), 30
# Reading and answering what other processes ask, and the file of a unix socket (SIOCUNIXFILE).
_JUDGING_IOCTL: Final = (0xC0502100, 0xC0182101, 0x40082102, 0x40182103, 0x89E0)
# `prlimit64` reads and lowers limits of others; raising them needs a capability.
_JUDGING: Final = "connect pidfd_open pidfd_getfd process_vm_readv prlimit64"
# Beside the processes of the machine, the supervisor also makes listeners, changes of metadata, and signals.
_JUDGING_BESIDE: Final = """
    bind listen accept4 openat2 kill pidfd_send_signal inotify_add_watch chmod fchmod fchmodat fchmodat2 fchownat
    utimensat utime utimes mknod mknodat
"""
# The calls whose judges are `shared_sockets`, `metadata` and `signals`.
_SOCKETS_ASKED: Final = "connect bind listen shutdown landlock_restrict_self"
_TIMES_ASKED: Final = "utime utimes futimesat utimensat inotify_add_watch"
_WATCHES: Final = "inotify_init inotify_init1 inotify_rm_watch"
_SETS_ATTRIBUTES: Final = """
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""

Unix = Literal["none", "asks", "judges"]
# Which calls on names ask, because there are closed names beside those of the program: all that write, or all.
Names = Literal["none", "written", "read"]
_NAMES_ASKED: Final = """
    creat truncate mkdir mkdirat mknod mknodat symlink symlinkat link linkat rename renameat renameat2 unlink unlinkat
    rmdir
"""


def call_rules(
    *,
    execute: bool,
    fork: bool,
    inet: bool,
    metadata: bool,
    fenced: bool,
    abi: int,
    unix: Unix = "none",
    traces: bool = False,
    counts: bool = False,
    removals: bool = False,
    beside: bool = False,
    asked_names: Names = "none",
) -> Mapping[str, CallRule]:
    """The rule for each call, by name; other calls are refused.

    `unix`: whether unix sockets can be made, whose connections are judged by another process, or this is that process.
    `fenced`: Landlock or a pid namespace confines signals; otherwise a process may signal only itself.
    `abi`: the version of Landlock, whose gaps are closed here. `traces`: whether this process may stop others.
    `counts`: calls that may make an entry in a directory ask, because they are counted. `removals`: calls that remove
    a name ask, because another process removes it.
    """
    found = dict.fromkeys(_names(_PLAIN, _WITH_EXECUTE * execute, _WITH_FORK * fork, _WITH_INET * inet), YES)
    found |= _always(execute=execute)
    # A filter cannot read the flags of clone3, which are in memory. After ENOSYS, glibc uses clone.
    found["clone3"] = UNKNOWN
    # With CLONE_PARENT the supervisor of this process would get a child that it does not know.
    flags = _NAMESPACES | _PARENT
    found["clone"] = _if(ArgumentTest(0, (0,), flags)) if fork else _if(ArgumentTest(0, (_THREAD,), flags | _THREAD))
    if inet:
        # TCP and UDP only: other protocols are much kernel code that few programs need.
        ways: tuple[tuple[ArgumentTest, ...], ...] = (
            (
                ArgumentTest(0, (_INET, _INET6)),
                ArgumentTest(1, (_STREAM, _DGRAM), 0xF),
                ArgumentTest(2, (0, _TCP, _UDP)),
            ),
        )
        if execute and metadata:
            # What interfaces there are: only the loopback, and nothing changes them without a capability. libzmq ends
            # if it cannot ask, and `os.networkInterfaces()` of Node, which development servers call, throws.
            ways += ((ArgumentTest(0, (_NETLINK,)), ArgumentTest(1, (_RAW, _DGRAM), 0xF), ArgumentTest(2, (_ROUTE,))),)
        if unix == "asks":
            # Not datagrams: each could go to another socket, whose path is in memory.
            ways += (
                (ArgumentTest(0, (_UNIX,)), ArgumentTest(1, (_STREAM, _SEQPACKET), 0xF), ArgumentTest(2, (0, _UNIX))),
            )
            found |= {"connect": ASK, "listen": ASK, "landlock_restrict_self": ASK}
            # Only threads of one process share its open files: see `connections`.
            found["clone"] = CallRule(
                ((ArgumentTest(0, (0,), flags | _FILES),), (ArgumentTest(0, (_THREAD,), flags | _THREAD),))
            )
        found["socket"] = CallRule(ways)
    else:
        found["sendto"] = _if(ArgumentTest(4, (0,)), ArgumentTest(4, (0,), high=True), ArgumentTest(3, (0,), _FASTOPEN))
        found["sendmsg"] = _if(ArgumentTest(2, (0,), _FASTOPEN))
        # SO_LINGER makes the process that closes the socket last wait, which may be the host.
        found["setsockopt"] = CallRule(
            ((ArgumentTest(1, (_SOCKETS,), none=True),), (ArgumentTest(2, (_LINGER,), none=True),))
        )
    if unix == "judges":
        found |= dict.fromkeys(_names(_JUDGING), YES)
        found["ioctl"] = _if(ArgumentTest(1, (*_IOCTL, *_JUDGING_IOCTL)), otherwise=errno.ENOTTY)
    if traces:
        found["ptrace"] = YES
    if beside and unix == "asks":
        found |= _asking_beside(fenced=fenced)
    if metadata:
        if execute:
            found["ioctl"] = _if(ArgumentTest(1, (*_IOCTL, *_OWN_TERMINAL)), otherwise=errno.ENOTTY)
        found |= dict.fromkeys(_names(_WITH_METADATA), YES)
        # No set-id bits: the file may lie where other users can run it, outside of these walls.
        modes = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2))
        found |= {name: _if(ArgumentTest(argument, (0,), _SET_IDS)) for name, argument in modes}
        if execute:
            found |= _small_shared_memory()
    # Programs that copy or list files accept ENOTSUP, as from a file system without attributes.
    found |= dict.fromkeys(_names(_ATTRIBUTES), YES if metadata else CallRule((), errno.ENOTSUP))
    if not (beside and (unix == "judges" or not fenced)):
        found |= dict.fromkeys(_names(_SIGNALS), YES if fenced else _if(ArgumentTest(0, (OWN_PID,))))
    found |= _opening(abi)
    if beside and unix == "judges":
        found |= dict.fromkeys(_names(_JUDGING_BESIDE), YES)
    if execute:
        found |= _own_ids()
        # Memory with a descriptor is what a file in scratch is, and can be executed as that can.
        found["memfd_create"] = _if(ArgumentTest(1, (0,), _MEMFD_HUGE))
        # FIFOs only: no devices, and regular files are made by `open`. Landlock checks where they are made.
        for name, mode in (("mknod", 1), ("mknodat", 2)):
            found[name] = _if(ArgumentTest(mode, (_FIFO,), _KIND_OF_FILE | _SET_IDS))
    if asked_names != "none":  # these are counted where they are made
        found = {**found, **_on_names(found, reads=asked_names == "read")}
    elif counts:
        found = {**found, **_counted(found)}
    return {**found, **dict.fromkeys(_names(_REMOVING), ASK)} if removals else found


def _on_names(rules: Mapping[str, CallRule], *, reads: bool) -> dict[str, CallRule]:
    """The rules of calls on names that ask, as far as they are allowed."""
    found = {
        name: CallRule((), rules[name].otherwise, (*rules[name].allowed, *rules[name].asked))
        for name in _names(_NAMES_ASKED)
        if name in rules
    }
    found["truncate"] = ASK
    for name, flags in (("open", 1), ("openat", 2)):
        plain = (ArgumentTest(flags, (0,), _CREAT | _TMPFILE | _TRUNC | 3),)
        found[name] = CallRule((), rules[name].otherwise, rules[name].allowed)
        if not reads:
            found[name] = found[name]._replace(allowed=(plain,))
    return found


def _asking_beside(*, fenced: bool) -> dict[str, CallRule]:
    """The rules of a program beside the processes of the machine; all that asks is made by its supervisor."""
    found = dict.fromkeys(_names(_SOCKETS_ASKED, _TIMES_ASKED), ASK)
    found |= dict.fromkeys(_names(_WATCHES, "accept accept4 recvmmsg"), YES)
    # Streams alone: each datagram could go elsewhere. To the supervisor unix sockets are what `unix` says.
    found["socket"] = CallRule(
        (
            (ArgumentTest(0, (_INET, _INET6)), ArgumentTest(1, (_STREAM,), 0xF), ArgumentTest(2, (0, _TCP))),
            (ArgumentTest(0, (_UNIX,)), ArgumentTest(1, (_STREAM, _SEQPACKET), 0xF), ArgumentTest(2, (0, _UNIX))),
        ),
        errno.EACCES,
    )
    found["sendmmsg"] = _if(ArgumentTest(3, (0,), _FASTOPEN))
    found["setsockopt"] = CallRule(
        (
            (ArgumentTest(1, (_SOCKETS, _TCP), none=True),),
            (ArgumentTest(1, (_SOCKETS,)), ArgumentTest(2, _SHARES_PORTS, none=True)),
            (ArgumentTest(1, (_TCP,)), ArgumentTest(2, (_CONNECTS_LATER,), none=True)),
        ),
        errno.ENOPROTOOPT,
    )
    # Nobody could look into an undumpable process, and so make no connection for it: see `dumpable`.
    found["prctl"] = CallRule(
        ((ArgumentTest(0, (*_PRCTL, _SUBREAPER, _SECCOMP_RULES, _PDEATHSIG)),),),
        asked=((ArgumentTest(0, (_DUMPABLE,)), ArgumentTest(1, (0,))),),
    )
    modes = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2))
    found |= {name: CallRule((), asked=((ArgumentTest(mode, (0,), _SET_IDS),),)) for name, mode in modes}
    owners = (("chown", 1), ("fchown", 1), ("lchown", 1), ("fchownat", 2))
    found |= {
        name: CallRule((), asked=((ArgumentTest(user, (OWN_USER, _SAME)), ArgumentTest(user + 1, (OWN_GROUP, _SAME))),))
        for name, user in owners
    }
    found |= dict.fromkeys(_names(_SETS_ATTRIBUTES), CallRule((), errno.ENOTSUP))
    if not fenced:
        found |= dict.fromkeys(_names(_SIGNALS), CallRule(((ArgumentTest(0, (OWN_PID,)),),), asked=((),)))
    return found


def _counted(rules: Mapping[str, CallRule]) -> dict[str, CallRule]:
    """The rules of calls that make entries, where these ask.

    Only registers are looked at, which nobody can change while the call waits. So an `open` that may create a file asks
    whether the file is there or not. A rename makes no entry that another one does not lose.
    """
    found = {
        name: CallRule((), rule.otherwise, (*rule.allowed, *rule.asked))
        for name in _names(_MAKING)
        if (rule := rules.get(name)) is not None
    }
    for name in ("open", "openat"):
        opens, creates = rules[name].allowed
        found[name] = CallRule((opens,), rules[name].otherwise, (creates,))
    found["renameat2"] = CallRule(((ArgumentTest(4, (0,), _WHITEOUT),),), asked=((),))
    return found


def _own_ids() -> dict[str, CallRule]:
    """A process may change to the ids that it has. The kernel reads 32 bits of each id, which are those compared."""
    found = {}
    for own, names in ((OWN_USER, _USER_IDS), (OWN_GROUP, _GROUP_IDS)):
        for name, count in names:
            found[name] = _if(*(ArgumentTest(argument, (own, _SAME)) for argument in range(count)))
    return found


def _small_shared_memory() -> dict[str, CallRule]:
    """System V shared memory in pieces of 64 KiB, in a namespace of its own: PostgreSQL does not start without one.

    It counts for no limit of a process. The kernel gives a namespace 4096 pieces, so they are 256 MiB at most.
    """
    size = (ArgumentTest(1, (0,), 0xFFFFFFFF ^ (_SHARED_PIECE - 1)), ArgumentTest(1, (0,), high=True))
    return {
        "shmget": _if(*size, ArgumentTest(2, (0,), _SHM_HUGE)),
        "shmat": YES,
        "shmdt": YES,
        "shmctl": _if(ArgumentTest(1, (_IPC_REMOVE, _IPC_STATUS))),
    }


def _names(*listed: str) -> Iterable[str]:
    return " ".join(listed).split()


def _always(*, execute: bool) -> dict[str, CallRule]:
    # A program may also choose the signal that it gets when its parent ends, or none: what it starts gets none anyway.
    options = (*_PRCTL, _SUBREAPER, _SECCOMP_RULES, _PDEATHSIG) if execute else _PRCTL
    return {
        # Not datagrams: they can be sent to any named unix socket.
        "socketpair": _if(ArgumentTest(0, (_UNIX,)), ArgumentTest(1, (_STREAM, _SEQPACKET), 0xF)),
        "fcntl": _if(ArgumentTest(1, _FCNTL)),
        "mmap": _if(ArgumentTest(3, (0,), _MAP_HUGE), otherwise=errno.ENOMEM),  # as where there are none
        "ioctl": _if(ArgumentTest(1, _IOCTL), otherwise=errno.ENOTTY),  # as for a file without the operation
        # A process may make itself die with its parent, or undumpable, but not the opposite.
        "prctl": CallRule(
            (
                (ArgumentTest(0, options),),
                (ArgumentTest(0, (_PDEATHSIG,)), ArgumentTest(1, (_SIGKILL,))),
                (ArgumentTest(0, (_DUMPABLE,)), ArgumentTest(1, (0,))),
            )
        ),
        "personality": _if(ArgumentTest(0, (0, 0xFFFFFFFF))),
        "prlimit64": _if(ArgumentTest(0, (0,))),
        "sched_setaffinity": _if(ArgumentTest(0, (0,))),
        # Each process here is scheduled as others are: only a privileged one can be ahead of them. libzmq sets that for
        # each of its threads and ends if it cannot. It is not done, because the thread may be one of another process.
        "sched_setscheduler": CallRule(
            ((ArgumentTest(0, (0,)), ArgumentTest(1, (_OTHER, _BATCH, _IDLE), ~_RESET_ON_FORK & 0xFFFFFFFF)),),
            skipped=((ArgumentTest(1, (_OTHER,), ~_RESET_ON_FORK & 0xFFFFFFFF),),),
        ),
        "sched_setattr": UNKNOWN,  # its policy is in memory; programs fall back to sched_setscheduler
        "ioprio_set": _if(ArgumentTest(0, (_PROCESS,)), ArgumentTest(1, (0,))),
        "setpriority": _if(ArgumentTest(0, (0,)), ArgumentTest(1, (0,))),
    }


def _opening(abi: int) -> dict[str, CallRule]:
    """Rules for opening files: no file is created with set-id bits, because other users may run it.

    Before version 3 Landlock does not check truncation by path, or of a file that is opened for reading.
    """

    def opened(flags: int) -> CallRule:
        written = ArgumentTest(flags, (0, _WRONLY, _RDWR, _WRONLY | _TRUNC, _RDWR | _TRUNC), _TRUNC | 3)
        cut = (written,) if abi < 3 else ()
        # Without O_CREAT the mode argument is undefined, so it is not tested.
        return CallRule(
            ((ArgumentTest(flags, (0,), _CREAT | _TMPFILE), *cut), (ArgumentTest(flags + 1, (0,), _SET_IDS), *cut))
        )

    found = {
        "open": opened(1),
        "openat": opened(2),
        "openat2": UNKNOWN,  # its flags are in memory, which a filter cannot read; programs fall back to openat
        "creat": _if(ArgumentTest(1, (0,), _SET_IDS)),
    }
    return found if abi >= 3 else {**found, "truncate": NO}


# The instructions of a filter, what it returns, and where it finds a call; `connections` has a filter of its own.
LOAD, _AND, IF_EQUAL, IF_AT_LEAST, _JUMP, RETURN = 0x20, 0x54, 0x15, 0x35, 0x05, 0x06
ALLOW, NOTIFY, ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x7FC00000, 0x00050000, 0x80000000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`
X32 = 0x40000000  # the bit of the x32 call numbers on x86_64
_FARTHEST = 255  # instructions that a conditional jump can skip

_SET_SECCOMP, _FILTER = 22, 2

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
Code = tuple[Instruction, ...]


def program(
    *,
    execute: bool = False,
    fork: bool = False,
    inet: bool = False,
    metadata: bool = False,
    own_pid: int | None = None,
    abi: int | None = None,
    unix: Unix = "none",
    traces: bool = False,
    counts: bool = False,
    removals: bool = False,
    beside: bool = False,
    asked_names: Names = "none",
) -> bytes:
    """Build a filter.

    execute: programs may be started by name, set the ids that they have, and make FIFOs.
    fork: processes may be made; without it only threads.
    inet: IPv4 and IPv6 sockets; right only in a private network. metadata: modes, owners, times and extended
    attributes may change, and files be watched; right only in a private root.
    own_pid: the one process that signals may go to; None where Landlock (from version 6) or a pid namespace keeps
    them inside. abi: the version of Landlock whose gaps are to be closed; this kernel's if not given.
    unix: `asks` for unix sockets, with `inet`, in a filter that has a listener; `judges` for the process that has it.
    traces: other processes may be traced, which is how the first process of a namespace stops them.
    counts: calls that may make an entry in a directory ask too. removals: calls that remove a name do.
    beside: of a program, or with `judges` of its supervisor, that shares network and processes with the machine.
    asked_names: which calls on names of such a program ask; its supervisor makes them.
    """
    version = landlock.abi() if abi is None else abi
    built, places = _built(
        system_calls.machine(),
        execute,
        fork,
        inet,
        metadata,
        own_pid is None,
        version,
        unix,
        traces,
        counts,
        removals,
        beside,
        asked_names,
    )
    own = {OWN_PID: own_pid or 0, OWN_USER: os.getuid(), OWN_GROUP: os.getgid()}
    patched = bytearray(built)
    for place, placeholder in places:
        struct.pack_into("=I", patched, place, own[placeholder])
    return bytes(patched)


class FilterProgram(ctypes.Structure):
    """A filter as the kernel takes it: `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(filter_program: bytes) -> None:
    """Install a filter for this thread and everything that it starts, for good; needs no_new_privs."""
    described = FilterProgram(len(filter_program) // 8, filter_program)
    system_calls.prctl("prctl(PR_SET_SECCOMP)", _SET_SECCOMP, _FILTER, described)


@cache  # a forked worker writes its pid into the filter that the zygote has built
def _built(
    machine: str,
    execute: bool,
    fork: bool,
    inet: bool,
    metadata: bool,
    fenced: bool,
    abi: int,
    unix: Unix = "none",
    traces: bool = False,
    counts: bool = False,
    removals: bool = False,
    beside: bool = False,
    asked_names: Names = "none",
) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    """The filter as bytes, and the placeholders in them with their offsets."""
    if machine not in system_calls.NUMBERS:
        raise OSError(f"no filter is known for the architecture {machine}")
    allowed = call_rules(
        execute=execute,
        fork=fork,
        inet=inet,
        metadata=metadata,
        fenced=fenced,
        abi=abi,
        unix=unix,
        traces=traces,
        counts=counts,
        removals=removals,
        beside=beside,
        asked_names=asked_names,
    )
    of_number = {number: allowed.get(name, NO) for name, number in system_calls.NUMBERS[machine].items()}
    end = max(of_number) + 1
    numbered = [(number, of_number.get(number, UNKNOWN)) for number in range(end)]
    starts: list[tuple[int, Code]] = []
    for answer, group in groupby(numbered, key=lambda pair: pair[1]):
        starts.append((next(group)[0], _answered(answer)))
    starts.append((end, _answered(UNKNOWN)))
    if machine == "x86_64":
        starts.append((X32, ((RETURN, 0, 0, _KILL_PROCESS),)))
    code: Code = (
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 1, 0, system_calls.AUDIT[machine]),
        (RETURN, 0, 0, _KILL_PROCESS),
        (LOAD, 0, 0, NUMBER),
        *_tree(starts),
    )
    # The operand is the second half of an instruction of eight bytes.
    compared = ((8 * index + 4, step[3]) for index, step in enumerate(code) if step[0] == IF_EQUAL)
    places = tuple((place, value) for place, value in compared if value in _PLACEHOLDERS)
    return b"".join(struct.pack("=HBBI", *step) for step in code), places


def _tree(starts: list[tuple[int, Code]]) -> Code:
    """A binary search for the last start that is not above the call number."""
    if len(starts) == 1:
        return starts[0][1]
    middle = len(starts) // 2
    below, above = _tree(starts[:middle]), _tree(starts[middle:])
    first = starts[middle][0]
    if len(below) <= _FARTHEST:
        return ((IF_AT_LEAST, len(below), 0, first), *below, *above)
    return ((IF_AT_LEAST, 0, 1, first), (_JUMP, 0, 0, len(below)), *below, *above)


def _answered(answer: CallRule) -> Code:
    """The instructions for one call: each set of tests in turn, and then the refusal."""
    ways = [_way(tests, ALLOW) for tests in answer.allowed] + [_way(tests, NOTIFY) for tests in answer.asked]
    ways += [_way(tests, ERRNO) for tests in answer.skipped]
    return (*(step for way in ways for step in way), (RETURN, 0, 0, ERRNO | answer.otherwise))


def _way(tests: tuple[ArgumentTest, ...], allowed: int) -> Code:
    """Allow the call if all tests hold; otherwise continue after these instructions."""
    code: Code = ((RETURN, 0, 0, allowed),)
    for test in reversed(tests):
        count = len(test.values)
        if test.none:  # an equal value jumps over the other values and over the rest
            compared = ((IF_EQUAL, count - 1 - index + len(code), 0, value) for index, value in enumerate(test.values))
            code = (*_loaded(test), *compared, *code)
            continue
        # An equal value jumps over the other values and over the jump for a mismatch.
        compared = ((IF_EQUAL, count - index, 0, value) for index, value in enumerate(test.values))
        code = (*_loaded(test), *compared, (_JUMP, 0, 0, len(code)), *code)
    return code


def _loaded(test: ArgumentTest) -> Code:
    place = ARGUMENTS + 8 * test.argument + 4 * test.high  # both architectures are little endian
    load: Code = ((LOAD, 0, 0, place),)
    return load if test.mask == 0xFFFFFFFF else (*load, (_AND, 0, 0, test.mask))
