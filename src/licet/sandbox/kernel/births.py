"""When files were made: the birth time in their inodes, which no system call can set.

It is compared with a moment of this kernel's clock. A file system may take the times of its files from elsewhere, such
as the clock of a server, or have none. So one counts only if a file that is made in it now is born now. Such a file has
no name (`O_TMPFILE`).

A file system that copies a file when it is changed, as overlayfs does, makes a new inode then: the file is born when it
is changed for the first time.
"""

import ctypes
import os
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from licet.sandbox.kernel import system_calls

# CLOCK_REALTIME_COARSE. File systems take the times of their files from it, or a little later ones.
_CLOCK = 5
_AT_EMPTY_PATH = 0x1000
_TYPE, _BTIME, _MNT_ID = 0x1, 0x800, 0x1000
_MOUNT_ROOT = 0x2000
_SIZE = 256
# The beginning of `struct statx` up to the mode, then the birth time, then the id of the mount.
_FIRST, _BIRTH, _MOUNT = struct.Struct("=IIQIIIH"), struct.Struct("=qI"), struct.Struct("=Q")
_BIRTH_AT, _MOUNT_AT = 80, 144


class Made(NamedTuple):
    """A file, as far as it matters here."""

    mode: int
    born: int | None  # nanoseconds since 1970; None if the file system does not say
    mount: int | None  # the id of the mount that it was reached through
    is_mounted: bool  # something is mounted at its name


def made(directory: int, name: bytes = b"") -> Made:
    """A name in an open directory, without following a link; without a name, the open file itself."""
    buffer = ctypes.create_string_buffer(_SIZE)
    flags = 0x100 if name else _AT_EMPTY_PATH  # AT_SYMLINK_NOFOLLOW
    number = system_calls.NUMBERS[system_calls.machine()]["statx"]
    system_calls.syscall("statx", number, directory, name, flags, _TYPE | _BTIME | _MNT_ID, buffer)
    mask, _, attributes, _, _, _, mode = _FIRST.unpack_from(buffer)
    seconds, nanoseconds = _BIRTH.unpack_from(buffer, _BIRTH_AT)
    born = seconds * 1_000_000_000 + nanoseconds if mask & _BTIME else None
    mount = _MOUNT.unpack_from(buffer, _MOUNT_AT)[0] if mask & _MNT_ID else None
    return Made(mode, born, mount, bool(attributes & _MOUNT_ROOT))


def now() -> int:
    """This moment: no file was born later."""
    return time.time_ns()


class Births:
    """Tells which files were made after a moment, in the file systems of some directories."""

    def __init__(self, since: int, directories: Iterable[str]) -> None:
        self.since = since
        self._mounts = _of_same_disks(frozenset(filter(None, map(_counting_mount, directories))))

    def wait(self) -> None:
        """Wait until the clock has gone on: a file that is made from then on is younger."""
        while time.clock_gettime_ns(_CLOCK) <= self.since:
            time.sleep(0.001)

    def is_new(self, file: Made) -> bool:
        """Whether a file was made after the moment. One from the future is older than a clock that was set back."""
        known = file.born is not None and file.mount in self._mounts
        return known and self.since < (file.born or 0) <= now()


def _of_same_disks(mounts: frozenset[int]) -> frozenset[int]:
    """The mounts of the file systems that some mounts are of: a directory may be mounted onto itself."""
    with suppress(OSError), open("/proc/self/mountinfo", "rb") as file:
        disks = {int(words[0]): words[2] for words in map(bytes.split, file)}
        counting = {disks[mount] for mount in mounts if mount in disks}
        return mounts | {mount for mount, disk in disks.items() if disk in counting}
    return mounts


def birth(directory: str) -> int | None:
    """When a directory was made; None if its file system does not tell that by this kernel's clock."""
    if _counting_mount(directory) is None:
        return None
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return made(opened).born
    finally:
        os.close(opened)


def _counting_mount(directory: str) -> int | None:
    """The mount of a directory, if births in it are told by this kernel's clock."""
    with suppress(OSError):  # no directory, or a file system without such files
        before = time.clock_gettime_ns(_CLOCK)
        file = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            about = made(file)
        finally:
            os.close(file)
        if about.born is not None and before <= about.born <= now():
            return about.mount
    return None
