"""Parts of the kernel that a tool has no use for, and ways around the filter of system calls."""

import ctypes
import errno
import fcntl
import os
import select
import socket
import stat
import struct

from attacks.behind_walls import Outside, attack, exactly, holds, machine_code, not_negative, raw, scratch, something

# Its number (41) into eax, its arguments (2, 1, 0) into edi, esi and edx, the call itself, and back.
SOCKET = bytes.fromhex("b829000000 bf02000000 be01000000 31d2 0f05 c3")
# Its number there (359) into eax, its arguments (2, 1, 0) into ebx, ecx and edx, the call itself, and back.
ENTRY_FOR_32_BIT_SOCKET = bytes.fromhex("53 b867010000 bb02000000 b901000000 31d2 cd80 5b c3")
X32 = 0x40000000
FILTER, WITH_LISTENER, SET_NO_NEW_PRIVS = 1, 8, 38
USER_RING, UNLINK = -4, 9
READ_ALL = 3
NOT_RANDOM = 0x40000
SOFTWARE, CPU_CLOCK, NOT_THE_KERNEL = 1, 0, 0b1100000
MAP_CREATE, ARRAY = 0, 2
CLONE, RECURSIVE = 1, 0x8000
NEW_MOUNTS, PRIVATE, BIND, MOUNT_RECURSIVE = 0x20000, 1 << 18, 4096, 16384
NETWORK = 0x40000000
CREATE = 6
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
TIOCSTI = 0x5412

# Parts of the kernel that a tool has no use for, and ways around the filter of system calls ---------------------------


@attack(something, rare=True, only_on="x86_64")
def code_of_its_own() -> int:
    """A tool enters the kernel by machine code that it wrote itself: no library stands in between."""
    made = machine_code(SOCKET)()
    if made < 0:
        raise OSError(-made, "socket")
    return made


@attack(something, refused="SIGSYS", rare=True, only_on="x86_64")
def entry_for_32_bit() -> int:
    """A tool enters the kernel where programs of 32 bits do (`int 0x80`), where every call has another number."""
    made = ctypes.c_int(machine_code(ENTRY_FOR_32_BIT_SOCKET)()).value
    if made < 0:
        raise OSError(-made, "socket")
    return made


@attack(something, refused="SIGSYS", rare=True, only_on="x86_64")
def second_numbering() -> bool:
    """A tool makes calls by the numbers of another architecture (x32), which a filter for this one does not know."""
    return raw(X32 + 39) == os.getpid()


@attack(something, rare=True, only_on="x86_64")
def high_bits_of_a_number() -> int:
    """A tool sets bits of a number that the kernel does not look at, and a filter might."""
    return raw((1 << 32) + 41, 2, 1, 0)


@attack(something, refused="not implemented", rare=True)
def numbers_of_tomorrow() -> list[int]:
    """A tool tries calls that the kernel may have by now and that nobody has looked at yet."""
    found = []
    for number in range(471, 640):
        try:
            raw(number, -1, 0, 0, 0, 0, 0)
        except OSError as error:
            if error.errno == errno.ENOSYS:
                continue
        found.append(number)
    if not found:
        raise OSError(errno.ENOSYS, "not implemented")
    return found


@attack(not_negative, rare=True, only_on="x86_64")
def descriptor_tables() -> int:
    """A tool changes how the processor finds memory (`modify_ldt`), for code that few have read."""
    return raw("modify_ldt", 0, ctypes.create_string_buffer(64), 64)


@attack(something, rare=True)
def filter_of_its_own() -> int:
    """A tool puts a filter on itself that hands its calls to another process, which may answer as it likes."""
    allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000), 8)
    raw("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return raw("seccomp", FILTER, WITH_LISTENER, struct.pack("=H6xQ", 1, ctypes.addressof(allow)))


@attack(exactly("kept"), rare=True)
def keys_of_the_kernel() -> str:
    """A tool leaves a key in a ring that all processes of the user share, or takes one out."""
    key = raw("add_key", b"user", b"licet-test", b"here", 4, USER_RING)
    raw("keyctl", UNLINK, key, USER_RING)
    return "kept"


@attack(not_negative, root=True, rare=True)
def log_of_the_kernel() -> int:
    """A tool reads the log of the kernel, with addresses, devices and programs of everybody."""
    return raw("syslog", READ_ALL, ctypes.create_string_buffer(4096), 4096)


@attack(lambda now, _: now and now & NOT_RANDOM, rare=True)
def other_behaviour() -> int:
    """A tool asks the kernel to behave as an older one did, without random addresses for what it starts."""
    raw("personality", NOT_RANDOM)
    return raw("personality", 0xFFFFFFFF)


@attack(something, rare=True)
def performance_counters() -> int:
    """A tool counts what the processor does, finely enough to learn what others do (`perf_event_open`)."""
    wanted = struct.pack("=IIQQQQQ", SOFTWARE, 64, CPU_CLOCK, 0, 0, 0, NOT_THE_KERNEL) + bytes(16)
    return raw("perf_event_open", wanted, 0, -1, -1, 0)


@attack(something, root=True, rare=True)
def programs_for_the_kernel() -> int:
    """A tool gives the kernel something to keep that outlives it, or a program to run (`bpf`)."""
    return raw("bpf", MAP_CREATE, struct.pack("=IIII", ARRAY, 4, 4, 1) + bytes(104), 120)


@attack(exactly(0), root=True, rare=True, only_on="x86_64")
def ports_of_the_machine() -> int:
    """A tool of root talks to devices without the kernel (`ioperm`)."""
    return raw("ioperm", 0x80, 1, 1)


@attack(not_negative, rare=True)
def clock_of_the_machine() -> int:
    """A tool asks for, and as root sets, how fast the clock of the machine goes."""
    return raw("adjtimex", ctypes.create_string_buffer(208))  # all zeros: it is only told


# Mounts, roots and namespaces -----------------------------------------------------------------------------------------


@attack(holds("file"), root=True, rare=True)
def another_root(granted: str) -> str:
    """A tool of root makes another directory its root, from which `..` leads anywhere."""
    os.chroot(granted)
    return str(os.listdir("/"))


@attack(root=True, rare=True)
def copy_of_a_tree(secret: str) -> str:
    """A tool of root takes a detached copy of the whole tree of files, which no path leads to (`open_tree`)."""
    tree = raw("open_tree", -100, b"/", CLONE | RECURSIVE)
    return os.read(os.open(secret[1:], os.O_RDONLY, dir_fd=tree), 100).decode()


@attack(exactly(0), root=True, rare=True)
def exchange_the_root(granted: str) -> int:
    """A tool of root exchanges the root of its mounts (`pivot_root`), in mounts of its own."""
    raw("unshare", NEW_MOUNTS)
    raw("mount", None, b"/", None, PRIVATE | MOUNT_RECURSIVE, None)
    raw("mount", granted, granted, None, BIND, None)
    return raw("pivot_root", granted, granted)


@attack(exactly(0), root=True, rare=True)
def join_a_namespace(pid: int) -> int:
    """A tool of root joins the namespaces of another process, by a file that stands for it."""
    return raw("setns", raw("pidfd_open", pid, 0), NETWORK)


@attack(exactly(0), root=True, rare=True)
def mount(granted: str) -> int:
    """A tool of root mounts something over a directory."""
    done = raw("mount", b"none", granted, b"tmpfs", 0, None)
    raw("umount2", granted, 0)
    return done


@attack(something, root=True, rare=True)
def mount_the_new_way() -> int:
    """A tool of root makes a file system that is mounted nowhere, and works in it (`fsopen`)."""
    made = raw("fsopen", b"tmpfs", 0)
    raw("fsconfig", made, CREATE, None, None, 0)
    return raw("fsmount", made, 0, 0)


@attack(exactly(0), rare=True)
def new_network_namespace() -> int:
    """A tool makes a thread in a network of its own, where sockets would be harmless, or so a filter might think."""
    return raw("unshare", NEW_USER | NEW_NETWORK)


@attack(exactly(0), rare=True)
def new_user_namespace() -> int:
    """A tool makes a namespace in which it is root, and from there uses parts of the kernel that others may not."""
    return raw("unshare", NEW_USER)


@attack(exactly(0), root=True, rare=True)
def name_of_the_machine() -> int:
    """A tool of root gives the machine another name."""
    name = socket.gethostname()  # the one it has, so that nothing happens where nothing stops it
    return raw("sethostname", name, len(name))


# Devices and terminals ------------------------------------------------------------------------------------------------


@attack(something, root=True, rare=True)
def make_a_device() -> bool:
    """A tool of root makes the machine's memory a file in its scratch directory."""
    os.mknod(scratch("memory"), stat.S_IFCHR | 0o600, os.makedev(1, 1))
    return stat.S_ISCHR(os.stat(scratch("memory")).st_mode)


@attack(something, rare=True)
def open_a_device() -> int:
    """A tool opens a device: here the one that makes terminals."""
    return os.major(os.fstat(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)).st_rdev)


def terminal_of_another(outside: Outside) -> dict[str, object]:
    master, slave = os.openpty()
    outside.kept.callback(os.close, master)
    outside.kept.callback(os.close, slave)
    return {"terminal": os.ttyname(slave), "typed": slave}


@attack(lambda _, outside: select.select([outside.given["typed"]], [], [], 0)[0], before=terminal_of_another, rare=True)
def type_into_a_terminal(terminal: str) -> None:
    """A tool types into the terminal of whoever started the host (`TIOCSTI`)."""
    os.setsid() if os.getpgrp() != os.getpid() else None
    typed = os.open(terminal, os.O_RDWR)
    for letter in b"rm -rf\n":
        fcntl.ioctl(typed, TIOCSTI, bytes([letter]))
