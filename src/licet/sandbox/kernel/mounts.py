"""Mounts: copies of paths as mounts that are attached nowhere yet, their flags, and where they are put.

These calls need a mount namespace of their own, and the rights in it.
"""

import ctypes
import errno
import os
import stat
from typing import NamedTuple

from licet.sandbox.kernel import system_calls

# The same numbers on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_AT_RECURSIVE, _AT_EMPTY_PATH, _CLONE = 0x8000, 0x1000, 1
_FROM_EMPTY_PATH, _TO_EMPTY_PATH = 4, 0x40
_SET_STRING, _CREATE, _CLOSE_ON_EXEC = 1, 6, 1
AT_FDCWD = -100
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC = 1, 2, 4, 8


class Tree(NamedTuple):
    """A detached mount of a path of the host, for the same path in the new root."""

    path: str
    fd: int
    directory: bool


def copied(path: str, flags: int, seen: tuple[int, int] | None = None) -> Tree:
    """A detached copy of a path and everything mounted below it, with these mount flags."""
    what = f"open_tree {path}"
    fd = system_calls.syscall(what, _OPEN_TREE, AT_FDCWD, os.fsencode(path), _CLONE | os.O_CLOEXEC | _AT_RECURSIVE)
    about = os.fstat(fd)
    if seen is not None and (about.st_dev, about.st_ino) != seen:
        raise OSError(errno.ESTALE, "a path was replaced by another file", path)
    set_flags(fd, "", flags, recursive=True)
    return Tree(path, fd, stat.S_ISDIR(about.st_mode))


def copied_from(file: int, flags: int) -> int:
    """A detached copy of what is open as `file`, with everything mounted below it."""
    how = _CLONE | os.O_CLOEXEC | _AT_RECURSIVE | _AT_EMPTY_PATH
    fd = system_calls.syscall("open_tree", _OPEN_TREE, file, b"", how)
    if flags:
        set_flags(fd, "", flags, recursive=True)
    return fd


def empty_directory() -> int:
    """A detached mount of a directory that is empty and cannot be opened."""
    made = system_calls.syscall("fsopen tmpfs", _FSOPEN, b"tmpfs", _CLOSE_ON_EXEC)
    try:
        for name, value in ((b"size", b"0"), (b"mode", b"000")):
            system_calls.syscall("fsconfig tmpfs", _FSCONFIG, made, _SET_STRING, name, value, 0)
        system_calls.syscall("fsconfig tmpfs", _FSCONFIG, made, _CREATE, None, None, 0)
        return system_calls.syscall("fsmount tmpfs", _FSMOUNT, made, _CLOSE_ON_EXEC, READ_ONLY | NO_SUID | NO_DEV)
    finally:
        os.close(made)


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_fd"))


def set_flags(fd: int, path: str, flags: int, *, recursive: bool) -> None:
    """Add flags to a mount."""
    how = (_AT_RECURSIVE if recursive else 0) | (0 if path else _AT_EMPTY_PATH)
    attributes = _MountAttributes(flags, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    system_calls.syscall("mount_setattr", _MOUNT_SETATTR, fd, os.fsencode(path), how, attributes, size)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Call mount(2)."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    number = system_calls.NUMBERS[system_calls.machine()]["mount"]
    system_calls.syscall(f"mount {target}", number, texts[0], texts[1], texts[2], flags, texts[3])


def attach(fd: int, place: str) -> None:
    """Attach a detached mount at a path, and close it."""
    what = f"move_mount {place}"
    system_calls.syscall(what, _MOVE_MOUNT, fd, b"", AT_FDCWD, os.fsencode(place), _FROM_EMPTY_PATH)
    os.close(fd)


def attach_onto(fd: int, target: int) -> None:
    """Attach a detached mount onto what is open as `target`; `fd` stays open."""
    system_calls.syscall("move_mount", _MOVE_MOUNT, fd, b"", target, b"", _FROM_EMPTY_PATH | _TO_EMPTY_PATH)
