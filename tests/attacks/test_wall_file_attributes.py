"""What is known about a file besides its bytes: mode, owner, times, attributes, leases, watches."""

import ctypes
import fcntl
import os
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from attacks.behind_walls import CANARY, Outside, raw, scratch


def change_a_mode(target: str) -> None:
    """A tool makes a file that others keep to themselves readable for everybody."""
    os.chmod(target, 0o777)


def test_change_a_mode(outside: Outside) -> None:
    outside.shows(change_a_mode, lambda _: stat.S_IMODE(os.stat(outside.target).st_mode) == 0o777)


EMPTY_PATH = 0x1000


def change_a_mode_by_a_newer_call(target: str) -> None:
    """A tool changes a mode by `fchmodat2`, through a file that it holds and has not opened."""
    raw("fchmodat2", os.open(target, os.O_PATH), "", 0o777, EMPTY_PATH)


def test_change_a_mode_by_a_newer_call(outside: Outside) -> None:
    outside.shows(
        change_a_mode_by_a_newer_call, lambda _: stat.S_IMODE(os.stat(outside.target).st_mode) == 0o777, rare=True
    )


def change_an_owner(target: str) -> str:
    """A tool gives a file away, or takes it, by a file that it holds and has not opened."""
    raw("fchownat", os.open(target, os.O_PATH), "", os.getuid(), os.getgid(), EMPTY_PATH)
    return "owned"


def test_change_an_owner(outside: Outside) -> None:
    outside.shows(change_an_owner, lambda said: said == "owned")


def change_times(target: str) -> None:
    """A tool sets the time at which a file was changed, so that nobody looks at it, or a build runs again."""
    os.utime(target, (1, 1))


def test_change_times(outside: Outside) -> None:
    outside.shows(change_times, lambda _: os.stat(outside.target).st_mtime == 1)


def extended_attributes(target: str) -> None:
    """A tool writes something beside a file, where few look: into its extended attributes."""
    os.setxattr(target, "user.note", b"here")


def test_extended_attributes(outside: Outside) -> None:
    outside.shows(extended_attributes, lambda _: "user.note" in os.listxattr(outside.target), rare=True)


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


def test_read_extended_attributes(outside: Outside) -> None:
    try:
        os.setxattr(outside.secret, "user.note", CANARY.encode())
    except OSError as wrong:
        import pytest

        pytest.skip(f"files here have no extended attributes: {wrong.strerror}")
    outside.shows(read_extended_attributes, lambda said: said != [], refused=None)


GET_FLAGS, SET_FLAGS, NO_DUMP = 0x80086601, 0x40086602, 0x40  # a harmless one: the others need root to undo


def flags_of_a_file(granted: str) -> None:
    """A tool makes a file in a granted directory unchangeable, for its owner too (`chattr +i`)."""
    file = os.open(f"{granted}/file", os.O_RDONLY)
    fcntl.ioctl(file, SET_FLAGS, struct.pack("=q", NO_DUMP))


def test_flags_of_a_file(outside: Outside) -> None:
    def flagged(_: object) -> bool:
        with suppress(OSError), Path(outside.granted, "file").open() as file:
            found = fcntl.ioctl(file, GET_FLAGS, bytes(8))
            return bool(struct.unpack("=q", found)[0] & NO_DUMP)
        return False

    outside.shows(flags_of_a_file, flagged, refused="PermissionError|Inappropriate ioctl", rare=True)


def lease() -> str:
    """A tool takes a lease on a file, and holds up whoever opens it."""
    file = os.open(scratch("mine"), os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.fcntl(file, 1024, fcntl.F_WRLCK)
    return "held"


def test_lease(outside: Outside) -> None:
    outside.shows(lease, lambda said: said == "held", rare=True)


def notes_about_a_directory() -> str:
    """A tool has the kernel signal it whenever a granted directory changes (`F_NOTIFY`), which needs no watch."""
    fcntl.fcntl(os.open(scratch(), os.O_RDONLY), 1026, 0x4)
    return "watching"


def test_notes_about_a_directory(outside: Outside) -> None:
    outside.shows(notes_about_a_directory, lambda said: said == "watching", rare=True)


def watch_everything(place: str) -> str:
    """A tool of root watches every file of the machine, and is handed each open (`fanotify`)."""
    group = raw("fanotify_init", 0, 0)
    raw("fanotify_mark", group, 1, 0x20, -100, place)
    return "watching"


def test_watch_everything(outside: Outside) -> None:
    outside.shows(watch_everything, lambda said: said == "watching", root=True, rare=True)


def watch_files(target: str) -> str:
    """A tool watches what happens to files that it cannot open (`inotify`)."""
    watch = raw("inotify_init1", os.O_NONBLOCK)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.inotify_add_watch(watch, os.fsencode(target), 0x20) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    return "watching"


def test_watch_files(outside: Outside) -> None:
    outside.shows(watch_files, lambda said: said == "watching")


def set_user_id_bit(granted: str) -> None:
    """A tool leaves a program in a directory that it may write, and lets whoever starts it become its owner."""
    path = f"{granted}/program"
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(file, b"#!/bin/sh\n")
    os.fchmod(file, 0o4755)


def test_set_user_id_bit(outside: Outside) -> None:
    def bit(_: object) -> bool:
        path = f"{outside.granted}/program"
        return os.path.exists(path) and bool(os.stat(path).st_mode & stat.S_ISUID)

    outside.shows(set_user_id_bit, bit)


def set_user_id_from_the_start(granted: str) -> None:
    """A tool makes a file with the bit already set, and changes no mode at all."""
    os.umask(0)
    os.close(os.open(f"{granted}/program", os.O_CREAT | os.O_WRONLY, 0o4755))


def test_set_user_id_from_the_start(outside: Outside) -> None:
    def bit(_: object) -> bool:
        path = f"{outside.granted}/program"
        return os.path.exists(path) and bool(os.stat(path).st_mode & stat.S_ISUID)

    outside.shows(set_user_id_from_the_start, bit)


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


def test_streams_of_a_worker(outside: Outside) -> None:
    outside.shows(streams_of_a_worker, lambda done: done, refused=None, root=True)
