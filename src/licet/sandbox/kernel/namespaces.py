"""Namespaces: a process gets users, processes, network, mounts and names of its own, and a root with nothing foreign.

An upgrade where the machine has it: many containers and distributions refuse namespaces to ordinary users. What is not
in the private root is not even there to be looked at. For single-threaded processes, before `hardening`, whose limits
and lost capabilities would stand in the way.
"""

import ctypes
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from licet.sandbox.kernel import calls

if sys.platform != "win32":
    import fcntl

_NEW_MOUNTS, _NEW_NAMES, _NEW_IPC, _NEW_USER, _NEW_PIDS, _NEW_NETWORK, _NEW_CGROUP = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x02000000,
)  # fmt: skip

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same numbers on every architecture
_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH, _CLONE = -100, 0x8000, 0x1000, 1
_MOVE_EMPTY_PATH = 4
_READ_ONLY, _NO_SUID, _NO_DEV, _NO_EXEC = 1, 2, 4, 8
_MS_RECURSIVE, _MS_PRIVATE = 1 << 14, 1 << 18
_DETACH = 2
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40

# Any directory will do to mount the new root on: nothing is written to the host's.
_STAGES = ("/tmp", "/mnt", "/var", "/usr")  # noqa: S108
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# What of /proc is about the machine and not about the processes in it. The first three lines are the defaults of
# container runtimes, which also make `bus`, `fs`, `irq`, `sys` and `sysrq-trigger` read-only; here they are empty too.
# The others can be read by root alone on the host: a program that runs as root there is root for them.
PROC_COVERED = (
    "acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list",
    "timer_stats",
    "bus", "fs", "irq", "sys", "sysrq-trigger",
    "allocinfo", "buddyinfo", "iomem", "ioports", "kallsyms", "key-users", "kmsg", "kpagecgroup", "kpagecount",
    "kpageflags", "mtrr", "pagetypeinfo", "schedstat", "slabinfo", "vmallocinfo", "zoneinfo",
)  # fmt: skip


def enter(*, network: bool = True, processes: bool = True) -> None:
    """Leave the namespaces of the host, as the same user.

    With `network` the only interface is a loopback of its own. With `processes` it is the next child that is alone in
    the new namespace, and everything in it ends with that child.
    """
    user, group = os.getuid(), os.getgid()
    wanted = _NEW_USER | _NEW_MOUNTS | _NEW_IPC | _NEW_NAMES | _NEW_CGROUP
    wanted |= (_NEW_NETWORK if network else 0) | (_NEW_PIDS if processes else 0)
    calls.syscall("unshare", _number("unshare"), wanted)
    # Groups first: the kernel lets nobody map a group who could still drop one that denies them something.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    if network:
        _loopback_up()


def _number(name: str) -> int:
    return calls.NUMBERS[calls.machine()][name]


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP | _IFF_RUNNING))


def guard_terminal(stream: int) -> None:
    """Open a terminal again, on a read-only mount: it can be used, and its mode, owner and times stay; needs `enter`.

    One that belongs to another user is left as it is: in a user namespace without that user, only its owner can change
    it. What is no terminal is left too.
    """
    if not os.isatty(stream) or os.fstat(stream).st_uid != os.getuid():
        return
    tree = _copied(os.ttyname(stream), _READ_ONLY | _NO_SUID | _NO_EXEC)
    access = fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE
    fd = os.open(f"/proc/self/fd/{tree.fd}", access | os.O_NOCTTY | os.O_CLOEXEC)
    same = os.fstat(fd).st_rdev == os.fstat(stream).st_rdev
    os.dup2(fd, stream)
    os.close(fd)
    os.close(tree.fd)
    if not same:
        raise OSError(errno.ESTALE, "a terminal has become another", os.ttyname(stream))


class _Tree(NamedTuple):
    """A copy of a part of the host's files, to be put at the same path in the new root."""

    path: str
    fd: int
    directory: bool


def private_root(
    read: Sequence[str],
    write: Sequence[str],
    *,
    found: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    hide: Sequence[str] = (),
    hold: Sequence[str] = (),
    scratch: tuple[str, int] | None = None,
    devices: Iterable[str] = DEVICES,
    proc: bool = False,
) -> None:
    """Make a root that holds only these paths, and go there; needs `enter`, and an absolute path for each.

    A path that is not there is left out. Links on the way to a path, and the path itself if it is one, lead where they
    led. Below a path that can be read another can be written, and the other way around. `found` are paths to be read,
    without links, with the device and number that somebody has seen there: another file is an error. `hide` are paths
    within these that look empty and cannot be opened. `hold` are directories within these that stay where they are:
    each is mounted onto itself, so that the kernel neither renames nor removes it. `scratch` is a directory and the
    bytes it can hold in memory. `proc` shows the processes of this namespace, read-only and without `PROC_COVERED`;
    where the kernel refuses that, as in a container that hides parts of its own, /proc stays empty.
    """
    links: dict[str, str] = {}
    # Copies are taken before anything is mounted, so that paths below the stage itself are the host's.
    kinds = dict.fromkeys(_resolved(read, links), _READ_ONLY | _NO_SUID | _NO_DEV)
    kinds |= dict.fromkeys(found, _READ_ONLY | _NO_SUID | _NO_DEV)
    kinds |= dict.fromkeys(_resolved(write, links), _NO_SUID | _NO_DEV)
    # A device on a read-only mount still takes and gives data; its mode, owner and times cannot be changed.
    kinds |= dict.fromkeys(_resolved(devices, links), _READ_ONLY | _NO_SUID | _NO_EXEC)
    hidden = sorted(_resolved(hide, {}))
    _mount(None, "/", None, _MS_RECURSIVE | _MS_PRIVATE)
    trees = [_copied(path, flags, found.get(path)) for path, flags in kinds.items() if _outer(path, kinds) != flags]
    held = [path for path in _resolved(hold, {}) if path not in {tree.path for tree in trees}]
    trees += [_copied(path, _outer(path, kinds) or 0) for path in held]
    # Nobody else's: if this ends half way, the mounts end with the process.
    stage = next(filter(os.path.isdir, _STAGES))
    _mount("tmpfs", stage, "tmpfs", 0, "size=1m,mode=755")
    os.chdir(stage)
    if scratch is not None and scratch[0] not in kinds:
        _put_memory(scratch[0], f"size={scratch[1]},mode=700")
    # Outer paths first, so that inner ones come to lie on top.
    for tree in sorted(trees, key=lambda tree: tree.path):
        _put(tree)
    for number, path in enumerate(hidden):
        _cover(path, number)
    if proc:
        _put_proc()
    for path, target in links.items():
        _put_link(path, target)
    calls.syscall("pivot_root", _number("pivot_root"), b".", b".")
    # The old root now lies on top of the new one, in the same place.
    calls.syscall("umount2", _number("umount2"), b".", _DETACH)
    os.chdir("/")
    _set_flags(_AT_FDCWD, "/", _READ_ONLY | _NO_SUID | _NO_DEV, recursive=False)


def _resolved(paths: Iterable[str], links: dict[str, str]) -> Iterator[str]:
    """The same paths without links; the links that were met on the way are added to `links`."""
    for path in paths:
        if not path.startswith("/"):
            raise OSError(errno.EINVAL, "a private root is made of absolute paths", path)
        real, rest, follows = "/", _parts(path), 0
        while rest:
            step = rest.pop(0)
            if step == "..":
                real = os.path.dirname(real)
                continue
            candidate = os.path.join(real, step)
            if not os.path.islink(candidate):
                real = candidate
                continue
            follows += 1
            if follows > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(candidate)
            links[candidate] = target
            if target.startswith("/"):
                real = "/"
            rest = _parts(target) + rest
        if os.path.lexists(real):
            yield real


def _outer(path: str, kinds: Mapping[str, int]) -> int | None:
    """The flags of the nearest path around one, which then need not be mounted a second time."""
    while path != "/":
        path = os.path.dirname(path)
        if path in kinds:
            return kinds[path]
    return None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _copied(path: str, flags: int, seen: tuple[int, int] | None = None) -> _Tree:
    """A detached copy of what is mounted at a path, with everything below, and with these flags from the beginning."""
    what = f"open_tree {path}"
    fd = calls.syscall(what, _OPEN_TREE, _AT_FDCWD, os.fsencode(path), _CLONE | os.O_CLOEXEC | _AT_RECURSIVE)
    about = os.fstat(fd)
    if seen is not None and (about.st_dev, about.st_ino) != seen:
        raise OSError(errno.ESTALE, "a path has become another file", path)
    _set_flags(fd, "", flags, recursive=True)
    return _Tree(path, fd, stat.S_ISDIR(about.st_mode))


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_fd"))


def _set_flags(fd: int, path: str, flags: int, *, recursive: bool) -> None:
    how = (_AT_RECURSIVE if recursive else 0) | (0 if path else _AT_EMPTY_PATH)
    attributes = _MountAttributes(flags, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    calls.syscall("mount_setattr", _MOUNT_SETATTR, fd, os.fsencode(path), how, attributes, size)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    calls.syscall(f"mount {target}", _number("mount"), texts[0], texts[1], texts[2], flags, texts[3])


def _inside(path: str) -> str:
    """A path of the new root, seen from the stage."""
    return "." + path


def _put(tree: _Tree) -> None:
    place = _inside(tree.path)
    if tree.directory:
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not os.path.lexists(place):
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    _attach(tree.fd, place)


def _attach(fd: int, place: str) -> None:
    what = f"move_mount {place}"
    calls.syscall(what, _MOVE_MOUNT, fd, b"", _AT_FDCWD, os.fsencode(place), _MOVE_EMPTY_PATH)
    os.close(fd)


def _put_memory(path: str, data: str) -> None:
    os.makedirs(_inside(path), exist_ok=True)
    _mount("tmpfs", _inside(path), "tmpfs", _NO_SUID | _NO_DEV, data)


def _cover(path: str, number: int) -> None:
    """Lay something empty over a path that was put there; what was not put there is hidden already."""
    place = _inside(path)
    if not os.path.lexists(place):
        return
    if os.path.isdir(place):
        _mount("tmpfs", place, "tmpfs", _READ_ONLY | _NO_SUID | _NO_DEV, "size=0,mode=000")
        return
    blank = f".hidden-{number}"
    os.close(os.open(blank, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0))
    _attach(_copied(os.path.join(os.getcwd(), blank), _READ_ONLY | _NO_SUID | _NO_DEV).fd, place)
    os.unlink(blank)


def _put_proc() -> None:
    os.makedirs("./proc", exist_ok=True)
    with suppress(PermissionError):
        _mount("proc", "./proc", "proc", _READ_ONLY | _NO_SUID | _NO_DEV | _NO_EXEC)
        _cover_proc()


def _cover_proc() -> None:
    """Put empty read-only directories and files over parts of /proc, as container runtimes do.

    They can be read: a program that looks there finds nothing, which it has to expect on some machine anyway.
    """
    blank = os.path.join(os.getcwd(), ".blank")
    os.close(os.open(blank, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    flags = _READ_ONLY | _NO_SUID | _NO_DEV | _NO_EXEC
    for name in PROC_COVERED:
        place = f"./proc/{name}"
        if os.path.isdir(place):
            _mount("tmpfs", place, "tmpfs", flags, "size=0,mode=555")
        elif os.path.lexists(place):
            _attach(_copied(blank, flags).fd, place)
    os.unlink(blank)


def _put_link(path: str, target: str) -> None:
    """A link of the host, where nothing else came to be: what was put below a mounted directory has its own."""
    place = _inside(path)
    if not os.path.lexists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.symlink(target, place)
