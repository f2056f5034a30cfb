"""Namespaces: a process gets its own users, processes, network, mounts and host names, and a private root directory.

Many containers and distributions refuse namespaces to ordinary users, so they are used where the machine has them. A
path that is not in the private root does not exist for the process. For single-threaded processes, before `harden` of
`landlock`, which drops the capabilities that are needed here.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Literal, NamedTuple

from licet.sandbox.kernel import system_calls
from licet.sandbox.kernel.mounts import (
    AT_FDCWD,
    NO_DEV,
    NO_EXEC,
    NO_SUID,
    READ_ONLY,
    Tree,
    attach,
    copied,
    mount,
    set_flags,
)

if sys.platform != "win32":
    import fcntl

_NEW_MOUNTS, _NEW_NAMES, _NEW_IPC, _NEW_USER, _NEW_PIDS, _NEW_NETWORK, _NEW_CGROUP = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x02000000,
)  # fmt: skip

_MS_RECURSIVE, _MS_PRIVATE = 1 << 14, 1 << 18
_DETACH = 2
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40

# The new root is mounted on one of these; nothing is written to the directory of the host.
_STAGES = ("/tmp", "/mnt", "/var", "/usr")  # noqa: S108
# /dev/tty is the terminal that controls the process: one that was made for the program, or by it, or none.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
PROXY = ("127.0.0.1", 3128)  # where a program finds the way out, on the loopback of its own namespace
SHARED_MEMORY, TERMINALS = "/dev/shm", "/dev/pts"  # noqa: S108
BENEATH = "/.licet-beneath"  # where the entries of a directory are that was made anew, with one more file in it
HIDDEN_FILE = "/.licet-hidden"  # empty, and can only be seen: it is mounted over a file that is to be hidden later
_COPY = ".copy-"  # the contents of a copy in the stage, until it is mounted
_DEVICE_LINKS = (
    ("/dev/fd", "/proc/self/fd"), ("/dev/stdin", "/proc/self/fd/0"), ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"), ("/dev/ptmx", "pts/ptmx"),
)  # fmt: skip

# Parts of /proc that describe the machine and not its processes. The first three lines are hidden or read-only in
# container runtimes; here all of them are empty. The others are readable by root on the host, and so by a program that
# runs as root.
PROC_COVERED = (
    "acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list",
    "timer_stats",
    "bus", "fs", "irq", "sys", "sysrq-trigger",
    "allocinfo", "buddyinfo", "iomem", "ioports", "kallsyms", "key-users", "kmsg", "kpagecgroup", "kpagecount",
    "kpageflags", "mtrr", "pagetypeinfo", "schedstat", "slabinfo", "vmallocinfo", "zoneinfo",
)  # fmt: skip


def enter(*, network: bool = True, processes: bool = True) -> None:
    """Enter new namespaces, as the same user.

    With `network` the only interface is a new loopback. With `processes` the next child is the init process of a new
    pid namespace, and everything in it ends with that child.
    """
    user, group = os.getuid(), os.getgid()
    wanted = _NEW_USER | _NEW_MOUNTS | _NEW_IPC | _NEW_NAMES | _NEW_CGROUP
    wanted |= (_NEW_NETWORK if network else 0) | (_NEW_PIDS if processes else 0)
    system_calls.syscall("unshare", _number("unshare"), wanted)
    _map_same(user, group)
    if network:
        _loopback_up()


def enter_network() -> None:
    """Enter a new network whose only interface is a new loopback, and change nothing else.

    Root needs no user namespace for this. In one, root would lose its rights over the files of other users.
    """
    try:
        system_calls.syscall("unshare", _number("unshare"), _NEW_NETWORK)
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        system_calls.syscall("unshare", _number("unshare"), _NEW_USER | _NEW_NETWORK)
        _map_same(user, group)
    _loopback_up()


def _map_same(user: int, group: int) -> None:
    # First: the kernel allows a group map only after `setgroups` is denied: dropping a group could grant access.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def _number(name: str) -> int:
    return system_calls.NUMBERS[system_calls.machine()][name]


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
    """Open a terminal again, on a read-only mount, so that its mode, owner and times cannot change; needs `enter`.

    A terminal of another user is left as it is, because only its owner can change it. Other files are left too.
    """
    if not os.isatty(stream) or os.fstat(stream).st_uid != os.getuid():
        return
    tree = copied(os.ttyname(stream), READ_ONLY | NO_SUID | NO_EXEC)
    access = fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE
    fd = os.open(f"/proc/self/fd/{tree.fd}", access | os.O_NOCTTY | os.O_CLOEXEC)
    same = os.fstat(fd).st_rdev == os.fstat(stream).st_rdev
    os.dup2(fd, stream)
    os.close(fd)
    os.close(tree.fd)
    if not same:
        raise OSError(errno.ESTALE, "a terminal was replaced by another", os.ttyname(stream))


class Copy(NamedTuple):
    """A file that is shown with these contents in place of the one of the host, or where that has none."""

    path: str  # without links
    content: bytes
    mode: int = 0o444


# What a mount over a name of the host is for: the name is hidden, is only read in a writable directory, stays where it
# is, or shows other contents. A mount "around" more than that cannot be made again.
CoverKind = Literal["hidden", "read-only", "held", "copy", "around"]


def private_root(
    read: Sequence[str],
    write: Sequence[str],
    *,
    found: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    hide: Sequence[str] = (),
    over: Sequence[str] = (),
    hold: Sequence[str] = (),
    scratch: tuple[Sequence[str], int] | None = None,
    lasting: Mapping[str, str] = MappingProxyType({}),
    made: Mapping[str, str] = MappingProxyType({}),
    copies: Sequence[Copy] = (),
    names: Sequence[str] = (),
    absent: Sequence[str] = (),
    devices: Iterable[str] = DEVICES,
    proc: bool = False,
) -> dict[str, CoverKind]:
    """Make a root directory with only these absolute paths, and enter it; needs `enter`.

    A missing path is left out. Links on the way to a path, and a path that is a link, are kept. A writable path may lie
    below a readable one, and the other way around. The arguments:

    - `found`: more readable paths, without links, with the device and inode that were checked; another file is an error
    - `hide`: paths in these that look empty and cannot be opened
    - `over`: paths of `found` that can be opened although they lie in a hidden directory, which cannot be listed
    - `hold`: directories in these that are mounted onto themselves, so that they cannot be renamed or removed
    - `scratch`: directories in memory, and their size in bytes together, of which `SHARED_MEMORY` is a part
    - `lasting`: directories of the host for places in the new root, which may be written and outlive the process. They
      come before `scratch`, which may lie in them. No earlier process may have named what is mounted inside one
    - `made`: files with their contents, for paths that are not in these
    - `copies`: files that are mounted over what is there, read-only, also in a hidden directory. For a new name in a
      directory that is only read, the directory is made anew, with links to what it had; in one that may be written it
      is an error, because the name would have to be made on the host
    - `names`: other paths of these copies, whose links are kept
    - `absent`: paths that are missing, and that are to be hidden when somebody makes them; see `cover_watch`
    - `proc`: whether /proc shows the processes of this namespace, read-only and without `PROC_COVERED`. If the kernel
      refuses that, as in a container that hides parts of its own /proc, it stays empty. Terminals that programs make
      for themselves, and the names of open files in /dev, come with it.

    Returns what is mounted over names of the host.
    """
    links: dict[str, str] = {}
    # Copies are made before anything is mounted, so that a path below the stage is the one of the host.
    kinds = dict.fromkeys(_resolved(read, links), READ_ONLY | NO_SUID | NO_DEV)
    kinds |= dict.fromkeys(found, READ_ONLY | NO_SUID | NO_DEV)
    kinds |= dict.fromkeys(_resolved(write, links), NO_SUID | NO_DEV)
    # A device on a read-only mount can be read and written; only its mode, owner and times are protected.
    kinds |= dict.fromkeys(_resolved(devices, links), READ_ONLY | NO_SUID | NO_EXEC)
    for _ in _resolved(names, links):
        pass
    hidden = sorted({*_resolved(hide, {})})  # a link and what it leads to are one
    mount(None, "/", None, _MS_RECURSIVE | _MS_PRIVATE)
    shown = [copied(path, kinds[path], found.get(path)) for path in over]
    rest = {path: flags for path, flags in kinds.items() if path not in over}
    trees = [copied(path, flags, found.get(path)) for path, flags in rest.items() if _outer(path, rest) != flags]
    kept = [copied(path, NO_SUID | NO_DEV)._replace(path=place) for place, path in lasting.items()]
    held = [path for path in _resolved(hold, {}) if path not in {tree.path for tree in trees}]
    trees += [copied(path, _outer(path, kinds) or 0) for path in held]
    # These mounts are private: if this fails, they end with the process.
    stage = next(filter(os.path.isdir, _STAGES))
    size = (1 << 20) + 2 * sum(len(content) for content in {copy.content for copy in copies})
    mount("tmpfs", stage, "tmpfs", 0, f"size={size},mode=755")
    os.chdir(stage)
    copy_trees = _copies(copies)
    for tree in kept:
        _put(tree)
    if scratch is not None:
        _put_memory([path for path in scratch[0] if path not in kinds], scratch[1])
    filled: list[str] = []  # hidden directories with something in them
    # Outer paths first, so that inner ones are mounted on top.
    for tree in sorted(trees, key=lambda tree: tree.path):
        _put(tree)
    for path, text in made.items():
        _put_file(path, text)
    for number, path in enumerate(hidden):
        inner = [tree for tree in (*shown, *copy_trees) if tree.path.startswith(f"{path}/")]
        if (_is_in(path, filled) and not _is_in(path, over)) or any(tree.path == path for tree in copy_trees):
            continue  # it is not there, or a copy covers it
        filled += [path] if inner else []
        copy_trees = [tree for tree in copy_trees if tree not in inner]
        _cover(path, number, inner)
    filled += _put_copies(copy_trees, {path: flags for path, flags in kinds.items() if os.path.isdir(_inside(path))})
    for path in filter(lambda name: name.startswith(_COPY), os.listdir(".")):
        os.unlink(path)  # the mounts keep it
    covers = _covered(kinds, trees, hidden, filled, copies, lasting)
    covers |= dict.fromkeys(absent, "hidden")
    if covers:
        os.close(os.open(_inside(HIDDEN_FILE), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0))
    if proc:
        _put_proc()
        _put_terminals()
        links |= dict(_DEVICE_LINKS)
    for path, target in links.items():
        _put_link(path, target)
    system_calls.syscall("pivot_root", _number("pivot_root"), b".", b".")
    # The old root is now mounted on top of the new one.
    system_calls.syscall("umount2", _number("umount2"), b".", _DETACH)
    os.chdir("/")
    set_flags(AT_FDCWD, "/", READ_ONLY | NO_SUID | NO_DEV, recursive=False)
    return covers


def _covered(
    kinds: Mapping[str, int],
    trees: Sequence[Tree],
    hidden: Sequence[str],
    filled: Sequence[str],
    copies: Sequence[Copy],
    lasting: Mapping[str, str],
) -> dict[str, CoverKind]:
    """What is mounted over names of the host, by path. These names can be replaced there, and then the mounts go."""
    covers: dict[str, CoverKind] = {}
    for tree in trees:
        outer = _outer(tree.path, kinds)
        if outer is not None and not outer & READ_ONLY:  # without a mount in what is only read, nothing more is shown
            covers[tree.path] = "read-only" if kinds.get(tree.path, 0) & READ_ONLY else "held"
    # In lasting scratch, too, names of the host are mounted over.
    covers |= {tree.path: "around" for tree in trees if _is_in(tree.path, lasting) and tree.path not in covers}
    covers |= dict.fromkeys(hidden, "hidden")
    covers |= {copy.path: "copy" for copy in copies}
    covers |= dict.fromkeys(filled, "around")
    closed = [path for path, kind in covers.items() if kind in ("hidden", "around") and path not in lasting]
    return {
        path: kind
        for path, kind in covers.items()
        if (_outer(path, kinds) is not None or _is_in(path, lasting))
        and not _is_in(path, closed)
        and os.path.lexists(_inside(path))
    }


def _resolved(paths: Iterable[str], links: dict[str, str]) -> Iterator[str]:
    """The real paths; links on the way are added to `links`."""
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
    """The flags of the nearest path that contains one; with the same flags it needs no mount of its own."""
    while path != "/":
        path = os.path.dirname(path)
        if path in kinds:
            return kinds[path]
    return None


def _is_in(path: str, directories: Iterable[str]) -> bool:
    return any(path.startswith(f"{directory}/") for directory in directories)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _inside(path: str) -> str:
    """A path of the new root, relative to the stage."""
    return "." + path


def _put(tree: Tree) -> None:
    place = _inside(tree.path)
    if tree.directory:
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not os.path.lexists(place):
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    attach(tree.fd, place)


def _put_memory(scratch: Sequence[str], size: int) -> None:
    """Mount scratch and `SHARED_MEMORY`: directories of one file system, so that its size limits them together."""
    memory = os.path.join(os.getcwd(), ".memory")
    os.mkdir(memory)
    mount("tmpfs", memory, "tmpfs", NO_SUID | NO_DEV, f"size={size},mode=700")
    for number, (path, mode) in enumerate((*((one, 0o700) for one in scratch), (SHARED_MEMORY, 0o1777))):
        part = os.path.join(memory, str(number))
        os.mkdir(part)
        os.chmod(part, mode)
        os.makedirs(_inside(path), exist_ok=True)
        attach(copied(part, NO_SUID | NO_DEV).fd, _inside(path))
    system_calls.syscall("umount2", _number("umount2"), os.fsencode(memory), _DETACH)
    os.rmdir(memory)


def _put_terminals() -> None:
    """Mount terminals of this namespace alone: those of the host are not among them."""
    os.makedirs(_inside(TERMINALS), exist_ok=True)
    with suppress(OSError):  # a kernel without them, or another sandbox
        mount("devpts", _inside(TERMINALS), "devpts", NO_SUID | NO_EXEC, "newinstance,ptmxmode=0666,mode=620")


def _put_file(path: str, text: str) -> None:
    """Make a file that everybody may read, unless the path exists already."""
    place = _inside(path)
    if not os.path.lexists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        fd = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _copies(copies: Sequence[Copy]) -> list[Tree]:
    """Detached mounts of files with these contents, which lie in the stage; equal ones share their memory."""
    made: dict[tuple[bytes, int], str] = {}
    trees = []
    for copy in copies:
        kind = copy.content, copy.mode
        if kind not in made:
            made[kind] = os.path.join(os.getcwd(), f"{_COPY}{len(made)}")
            with open(
                os.open(made[kind], os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, copy.mode), "wb"
            ) as file:
                file.write(copy.content)
        tree = copied(made[kind], READ_ONLY | NO_SUID | NO_DEV | NO_EXEC)
        trees.append(tree._replace(path=copy.path))
    return trees


def _put_copies(copies: Sequence[Tree], kinds: Mapping[str, int]) -> list[str]:
    """Mount copies over what is there; `kinds` are the directories of the host, with the flags of their mounts.

    Returns the directories that were made anew for them.
    """
    added: dict[str, list[Tree]] = {}
    for tree in copies:
        outer = _outer(tree.path, kinds)
        if os.path.lexists(_inside(tree.path)) or outer is None:
            _put(tree)
        elif outer & READ_ONLY:
            added.setdefault(os.path.dirname(tree.path), []).append(tree)
        else:
            raise OSError(errno.ENOENT, "a file is missing in place of which a copy is shown", tree.path)
    for number, (directory, trees) in enumerate(added.items()):
        _make_anew(directory, f"{BENEATH}/{number}")
        for tree in trees:
            _put(tree)
        set_flags(AT_FDCWD, _inside(directory), READ_ONLY | NO_SUID | NO_DEV, recursive=False)
    return [*added]


def _make_anew(directory: str, beneath: str) -> None:
    """Replace a directory by one that can take new names: its entries are links to where it is mounted now."""
    place = _inside(directory)
    tree = copied(os.path.join(os.getcwd(), directory[1:]), READ_ONLY | NO_SUID | NO_DEV)
    _put(tree._replace(path=beneath))
    mount("tmpfs", place, "tmpfs", NO_SUID | NO_DEV, "size=4m,mode=755")
    with os.scandir(_inside(beneath)) as entries:
        for entry in entries:
            # A link of the host leads from the same place to the same place.
            target = os.readlink(entry.path) if entry.is_symlink() else f"{beneath}/{entry.name}"
            os.symlink(target, f"{place}/{entry.name}")


def _cover(path: str, number: int, shown: Sequence[Tree]) -> None:
    """Mount something empty over a path, if it is in the new root, or a directory with nothing but some trees."""
    place = _inside(path)
    if shown:
        _cover_around(place, shown)
        return
    if not os.path.lexists(place):
        return
    if os.path.isdir(place):
        mount("tmpfs", place, "tmpfs", READ_ONLY | NO_SUID | NO_DEV, "size=0,mode=000")
        return
    blank = f".hidden-{number}"
    os.close(os.open(blank, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0))
    attach(copied(os.path.join(os.getcwd(), blank), READ_ONLY | NO_SUID | NO_DEV).fd, place)
    os.unlink(blank)


def _cover_around(place: str, shown: Sequence[Tree]) -> None:
    os.makedirs(place, exist_ok=True)
    mount("tmpfs", place, "tmpfs", NO_SUID | NO_DEV, "size=1m,mode=700")
    for tree in shown:
        os.makedirs(_inside(tree.path) if tree.directory else os.path.dirname(_inside(tree.path)), exist_ok=True)
    for folder, _, _ in os.walk(place, topdown=False):
        os.chmod(folder, 0o111)  # noqa: S103 - it can be walked through, and not listed
    for tree in sorted(shown, key=lambda tree: tree.path):
        _put(tree)
    set_flags(AT_FDCWD, place, READ_ONLY | NO_SUID | NO_DEV, recursive=False)


def _put_proc() -> None:
    os.makedirs("./proc", exist_ok=True)
    with suppress(PermissionError):
        mount("proc", "./proc", "proc", READ_ONLY | NO_SUID | NO_DEV | NO_EXEC)
        _cover_proc()


def _cover_proc() -> None:
    """Mount empty read-only directories and files over parts of /proc, as container runtimes do.

    They are readable: programs expect empty files there on some machines, and no errors.
    """
    blank = os.path.join(os.getcwd(), ".blank")
    os.close(os.open(blank, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    flags = READ_ONLY | NO_SUID | NO_DEV | NO_EXEC
    for name in PROC_COVERED:
        place = f"./proc/{name}"
        if os.path.isdir(place):
            mount("tmpfs", place, "tmpfs", flags, "size=0,mode=555")
        elif os.path.lexists(place):
            attach(copied(blank, flags).fd, place)
    os.unlink(blank)


def _put_link(path: str, target: str) -> None:
    """Make a link of the host, unless its path already exists below a mounted directory."""
    place = _inside(path)
    if not os.path.lexists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.symlink(target, place)
