"""Files that a tool was not granted: read, write, remove, list, take a path around the walls."""

import ctypes
import fcntl
import os
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from attacks.behind_walls import BEFORE, CANARY, Outside, attack, changed, exactly, holds, raw, scratch, something
from licet import SyncContext

FOLLOW = 0x400
EMPTY_PATH = 0x1000
GET_FLAGS, SET_FLAGS, NO_DUMP = 0x80086601, 0x40086602, 0x40  # a harmless one: the others need root to undo

# Files that a tool was not granted ------------------------------------------------------------------------------------


@attack()
def below_a_held_directory(secret: str) -> str:
    """A tool takes hold of a directory without opening it, and opens what is below."""
    held = os.open(os.path.dirname(secret), os.O_PATH | os.O_DIRECTORY)
    return os.read(os.open(os.path.basename(secret), os.O_RDONLY, dir_fd=held), 100).decode()


@attack(holds("import"))
def beside_its_source() -> str:
    """A tool reads what lies beside its own source file: `.env`, policy, other tools."""
    with open(os.path.join(os.path.dirname(__file__), "network.py"), encoding="utf-8") as file:
        return file.read()


@attack()
def change_directory_and_read(secret: str) -> str:
    """A tool goes to a directory, which no wall forbids, and opens by a name alone."""
    os.chdir(os.path.dirname(secret))
    with open(os.path.basename(secret), encoding="utf-8") as file:
        return file.read()


@attack(changed)
def delete_a_file(target: str) -> None:
    """A tool removes a file."""
    os.unlink(target)


@attack(lambda _, outside: not os.path.exists(f"{outside.granted}/file"))
def delete_what_may_be_written(granted: str) -> None:
    """A tool that may write to a directory, and not delete, deletes there."""
    os.unlink(f"{granted}/file")


@attack()
def dotdot_from_a_granted_directory(secret: str, granted: str) -> str:
    """A tool climbs out of a directory that it was granted."""
    try:
        start = os.open(granted, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # at `restricted` there is scratch alone
        start = os.open(scratch(), os.O_RDONLY | os.O_DIRECTORY)
    return os.read(os.open("../" * 40 + secret[1:], os.O_RDONLY, dir_fd=start), 100).decode()


@attack(changed, refused="PermissionError|cross-device link")
def exchange_two_files(target: str) -> None:
    """A tool exchanges a file of its own with another (`RENAME_EXCHANGE`): neither is removed, neither is made."""
    with open(scratch("mine"), "w", encoding="utf-8") as file:
        file.write("after")
    raw("renameat2", -100, scratch("mine"), -100, target, 2)


@attack(root=True)
def file_handle(secret: str, place: str) -> str:
    """A tool opens a file by the kernel's number for it, past every directory on the way."""
    handle = ctypes.create_string_buffer((128).to_bytes(4, "little"), 136)
    raw("name_to_handle_at", -100, secret, handle, ctypes.create_string_buffer(8), 0)
    mount = os.open(place, os.O_RDONLY)
    return os.read(raw("open_by_handle_at", mount, handle, os.O_RDONLY), 100).decode()


@attack(holds("secret"))
def list_a_directory(secret: str) -> list[str]:
    """A tool lists a directory."""
    return os.listdir(os.path.dirname(secret))


@attack(holds("etc\0"))
def list_by_getdents() -> str:
    """A tool lists the root of the machine without a library: by a held directory and `getdents64`."""
    names = ctypes.create_string_buffer(65536)
    raw("getdents64", raw("openat", -100, "/", os.O_RDONLY | os.O_DIRECTORY, 0), names, 65536)
    return names.raw.decode("latin-1")


@attack(lambda _, outside: os.path.exists(f"{outside.target}.d"))
def make_a_directory(target: str) -> None:
    """A tool makes a directory outside of its scratch directory."""
    os.mkdir(f"{target}.d")


@attack(lambda _, outside: os.path.exists(f"{outside.target}.new"))
def make_a_file(target: str) -> None:
    """A tool leaves a new file outside of its scratch directory."""
    with open(f"{target}.new", "w", encoding="utf-8") as file:
        file.write("here")


@attack(refused="not implemented")
def openat2(secret: str) -> str:
    """A tool opens a file by the newest call for it, which older lists of calls leave out."""
    file = raw("openat2", -100, secret, struct.pack("=QQQ", os.O_RDONLY, 0, 0), 24)
    return os.read(file, 100).decode()


@attack(lambda _, outside: os.path.lexists(f"{outside.target}.log"))
def plant_a_link(target: str) -> None:
    """A tool plants a link where somebody else will write."""
    os.symlink("/etc/passwd", f"{target}.log")


@attack(lambda _, outside: os.path.exists(f"{outside.granted}/pipe"))
def plant_a_pipe(granted: str) -> None:
    """A tool makes a pipe with a name where the host may come by, which then waits forever."""
    os.mkfifo(f"{granted}/pipe")


@attack()
def read_a_file(secret: str) -> str:
    """A tool opens a file that nobody granted."""
    with open(secret, encoding="utf-8") as file:
        return file.read()


@attack()
def reopen_a_path(secret: str) -> str:
    """A tool takes hold of a file without opening it (`O_PATH`, which no wall forbids), and opens what it holds."""
    held = os.open(secret, os.O_PATH)
    with open(f"/proc/self/fd/{held}", encoding="utf-8") as file:
        return file.read()


@attack(changed, refused="PermissionError|cross-device link")
def replace_a_file(target: str) -> None:
    """A tool puts a file of its own in the place of another."""
    with open(scratch("mine"), "w", encoding="utf-8") as file:
        file.write("after")
    os.replace(scratch("mine"), target)


@attack(changed)
def truncate_a_file(target: str) -> None:
    """A tool cuts a file to nothing without opening it."""
    os.truncate(target, 0)


def rewritten(_: object, outside: Outside) -> bool:
    return Path(outside.readable).read_text() != BEFORE


@attack(rewritten, needs=["fs:read:{outside.readable}"])
def truncate_while_reading(readable: str) -> None:
    """A tool cuts a file that it may read to nothing by opening it for reading (`O_TRUNC`)."""
    os.close(os.open(readable, os.O_RDONLY | os.O_TRUNC))


@attack(changed)
def write_a_file(target: str) -> None:
    """A tool writes to a file that nobody granted."""
    with open(target, "a", encoding="utf-8") as file:
        file.write("after")


@attack(rewritten, needs=["fs:read:{outside.readable}"])
def write_what_may_be_read(readable: str) -> None:
    """A tool writes to a file that it may only read, by opening again what it has open."""
    reading = os.open(readable, os.O_RDONLY)
    os.write(os.open(f"/proc/self/fd/{reading}", os.O_RDWR), b"after")


@attack(refused="PermissionError|PATH_NOT_REACHABLE")
def link_in_a_granted_directory(ctx: SyncContext, secret: str, granted: str) -> str:
    """A tool leads out of what it was granted with a link that it makes there, which the host follows for it."""
    try:
        os.symlink(secret, f"{granted}/link")
    except PermissionError:  # at `restricted` it can be made in scratch alone
        os.symlink(secret, scratch("link"))
        return str(ctx.fs.read(scratch("link")))
    try:
        return str(ctx.fs.read(f"{granted}/link"))
    except Exception:
        with open(f"{granted}/link", encoding="utf-8") as file:
            return file.read()


@attack(
    lambda _, outside: os.path.exists(f"{outside.target}.new"),
    refused="PermissionError|cross-device link|not supported",
    rare=True,
)
def name_for_a_nameless_file(target: str) -> None:
    """A tool makes a file without a name in its scratch directory, and gives it a name elsewhere."""
    nameless = os.open(scratch(), os.O_TMPFILE | os.O_WRONLY)
    raw("linkat", -100, f"/proc/self/fd/{nameless}", -100, f"{target}.new", FOLLOW)


@attack(holds("root:"))
def users_of_the_machine() -> str:
    """A tool reads who the users of the machine are."""
    with open("/etc/passwd", encoding="utf-8") as file:
        return file.read()


@attack()
def root_of_itself(secret: str) -> str:
    """A tool reads through `/proc/self/root`, where everything has a second path."""
    with open(f"/proc/self/root{secret}", encoding="utf-8") as file:
        return file.read()


def open_for_whoever_is_started(outside: Outside) -> dict[str, int]:
    from licet.sandbox.workers.pool import close_workers

    number = os.open(outside.secret, os.O_RDONLY)
    outside.kept.callback(os.close, number)
    os.set_inheritable(number, True)
    close_workers()  # so that what workers come from is started with the file open
    return {"number": number}


@attack(before=open_for_whoever_is_started, refused="Bad file descriptor", at_start=True)
def inherited_files(number: int) -> str:
    """A tool uses a file that the host has open and did not close for whom it starts."""
    return os.pread(number, 100, 0).decode()


@attack(something, rare=True)
def io_uring() -> int:
    """A tool has the kernel open a file or a socket for it by a ring, which no filter sees into."""
    return raw("io_uring_setup", 4, ctypes.create_string_buffer(120))


@attack(exactly(0), rare=True)
def older_asynchronous_files() -> int:
    """A tool uses the older way to let the kernel read and write on its own (`io_setup`)."""
    return raw("io_setup", 4, ctypes.create_string_buffer(8))


# What is known about a file besides its bytes -------------------------------------------------------------------------


@attack(lambda _, outside: stat.S_IMODE(os.stat(outside.target).st_mode) == 0o777)
def change_a_mode(target: str) -> None:
    """A tool makes a file that others keep to themselves readable for everybody."""
    os.chmod(target, 0o777)


@attack(lambda _, outside: stat.S_IMODE(os.stat(outside.target).st_mode) == 0o777, rare=True)
def change_a_mode_by_a_newer_call(target: str) -> None:
    """A tool changes a mode by `fchmodat2`, through a file that it holds and has not opened."""
    raw("fchmodat2", os.open(target, os.O_PATH), "", 0o777, EMPTY_PATH)


@attack(exactly("owned"))
def change_an_owner(target: str) -> str:
    """A tool gives a file away, or takes it, by a file that it holds and has not opened."""
    raw("fchownat", os.open(target, os.O_PATH), "", os.getuid(), os.getgid(), EMPTY_PATH)
    return "owned"


@attack(lambda _, outside: os.stat(outside.target).st_mtime == 1)
def change_times(target: str) -> None:
    """A tool sets the time at which a file was changed, so that nobody looks at it, or a build runs again."""
    os.utime(target, (1, 1))


@attack(lambda _, outside: "user.note" in os.listxattr(outside.target), rare=True)
def extended_attributes(target: str) -> None:
    """A tool writes something beside a file, where few look: into its extended attributes."""
    os.setxattr(target, "user.note", b"here")


def note_beside_the_secret(outside: Outside) -> None:
    try:
        os.setxattr(outside.secret, "user.note", CANARY.encode())
    except OSError as wrong:
        import pytest

        pytest.skip(f"files here have no extended attributes: {wrong.strerror}")


@attack(something, before=note_beside_the_secret, refused=None)
def read_extended_attributes(secret: str) -> list[str]:
    """A tool reads what stands beside a file that it cannot open: where it was downloaded from, what somebody noted."""
    fd = os.open(secret, os.O_PATH)  # which opens nothing, and needs no rule
    ways: dict[str, Callable[[], object]] = {
        "by its path": lambda: os.getxattr(secret, "user.note"),
        "and no link followed": lambda: os.getxattr(secret, "user.note", follow_symlinks=False),
        "through what is no open file": lambda: os.getxattr(fd, "user.note"),
        "through its name in /proc": lambda: os.getxattr(f"/proc/self/fd/{fd}", "user.note"),
        "which there are": lambda: os.listxattr(secret),
        "which there are, no link followed": lambda: os.listxattr(secret, follow_symlinks=False),
    }
    said = []
    for name, way in ways.items():
        try:
            said.append(f"{name}: {way()!r}")
        except OSError:
            continue
    return said


def flagged(_: object, outside: Outside) -> bool:
    with suppress(OSError), Path(outside.granted, "file").open() as file:
        found = fcntl.ioctl(file, GET_FLAGS, bytes(8))
        return bool(struct.unpack("=q", found)[0] & NO_DUMP)
    return False


@attack(flagged, refused="PermissionError|Inappropriate ioctl", rare=True)
def flags_of_a_file(granted: str) -> None:
    """A tool makes a file in a granted directory unchangeable, for its owner too (`chattr +i`)."""
    file = os.open(f"{granted}/file", os.O_RDONLY)
    fcntl.ioctl(file, SET_FLAGS, struct.pack("=q", NO_DUMP))


@attack(exactly("held"), rare=True)
def lease() -> str:
    """A tool takes a lease on a file, and holds up whoever opens it."""
    file = os.open(scratch("mine"), os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.fcntl(file, 1024, fcntl.F_WRLCK)
    return "held"


@attack(exactly("watching"), rare=True)
def notes_about_a_directory() -> str:
    """A tool has the kernel signal it whenever a granted directory changes (`F_NOTIFY`), which needs no watch."""
    fcntl.fcntl(os.open(scratch(), os.O_RDONLY), 1026, 0x4)
    return "watching"


@attack(exactly("watching"), root=True, rare=True)
def watch_everything(place: str) -> str:
    """A tool of root watches every file of the machine, and is handed each open (`fanotify`)."""
    group = raw("fanotify_init", 0, 0)
    raw("fanotify_mark", group, 1, 0x20, -100, place)
    return "watching"


@attack(exactly("watching"))
def watch_files(target: str) -> str:
    """A tool watches what happens to files that it cannot open (`inotify`)."""
    watch = raw("inotify_init1", os.O_NONBLOCK)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.inotify_add_watch(watch, os.fsencode(target), 0x20) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    return "watching"


def set_user_id(_: object, outside: Outside) -> bool:
    path = f"{outside.granted}/program"
    return os.path.exists(path) and bool(os.stat(path).st_mode & stat.S_ISUID)


@attack(set_user_id)
def set_user_id_bit(granted: str) -> None:
    """A tool leaves a program in a directory that it may write, and lets whoever starts it become its owner."""
    path = f"{granted}/program"
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(file, b"#!/bin/sh\n")
    os.fchmod(file, 0o4755)


@attack(set_user_id)
def set_user_id_from_the_start(granted: str) -> None:
    """A tool makes a file with the bit already set, and changes no mode at all."""
    os.umask(0)
    os.close(os.open(f"{granted}/program", os.O_CREAT | os.O_WRONLY, 0o4755))


@attack(something, refused=None, root=True)
def streams_of_a_worker() -> list[str]:
    """A tool changes the mode, owner and times of its standard streams, which are the null device of everybody."""
    done = []
    for stream in (0, 1, 2):
        found = os.fstat(stream)
        mode = stat.S_IMODE(found.st_mode)
        ways: dict[str, Callable[[], object]] = {
            "fchmod": partial(os.fchmod, stream, mode),
            "fchmodat2": partial(raw, 452, stream, b"", mode, 0x1000),
            "fchown": partial(os.fchown, stream, found.st_uid, found.st_gid),
            "futimens": partial(os.utime, stream),
            "fsetxattr": partial(os.setxattr, stream, "trusted.licet", b"x"),
            "by name": partial(os.chmod, f"/proc/self/fd/{stream}", mode),
        }
        for name, way in ways.items():
            try:
                way()
            except OSError:
                continue
            done.append(f"{name} of {stream}")
    return done


# The scratch directory of a call, as a way to files outside of it -----------------------------------------------------


@attack(refused="PermissionError|cross-device link")
def hard_link_in_scratch(secret: str) -> str:
    """A tool gives a file a second name where it may read."""
    os.link(secret, scratch("name"))
    with open(scratch("name"), encoding="utf-8") as file:
        return file.read()


@attack()
def link_in_scratch(secret: str) -> str:
    """A tool puts a link to a file where it may write, and opens that."""
    os.symlink(secret, scratch("link"))
    with open(scratch("link"), encoding="utf-8") as file:
        return file.read()


@attack()
def move_into_scratch(secret: str) -> str:
    """A tool moves a file to where it may read."""
    os.rename(secret, scratch("name"))
    with open(scratch("name"), encoding="utf-8") as file:
        return file.read()


@attack(something)
def scratch_of_another_tool() -> list[str]:
    """A tool looks into the scratch directories of other tools, which lie beside its own."""
    return os.listdir(os.path.dirname(os.environ["TMPDIR"]))
