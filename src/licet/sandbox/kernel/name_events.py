"""Tells what happens to some names in directories of the host: made, moved, removed, written.

The kernel says nothing in a table of mounts when a name with a mount on it is renamed. inotify does.
"""

import errno
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from licet.sandbox.kernel import system_calls

if sys.platform != "win32":
    import fcntl
    import termios

MODIFY, CLOSE_WRITE, OPEN = 0x2, 0x8, 0x20
WRITTEN = 0x1  # by any name: nothing else here uses the bit
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
OF_NAMES = MOVED_FROM | MOVED_TO | CREATE | DELETE  # another file, or none, has the name now
_OVERFLOW, _ONLY_DIRECTORIES = 0x4000, 0x01000000
_HEAD = struct.Struct("=iIII")  # watch, mask, cookie, length of the name
_TOO_MANY = "the kernel gives this user no more {}: raise `{}`, or end programs that watch many files"


class NameEvents:
    """Events of some paths and of the directories on the way to them, up to the file system of the root directory.

    `paths` says of each path whether it matters that it is opened.
    """

    def __init__(self, paths: Mapping[str, bool]) -> None:
        self._names: dict[str, set[bytes]] = {}  # by directory
        self._opened: set[str] = set()
        for path, opened in paths.items():
            if opened:
                self._opened.add(os.path.dirname(path))
            for inner in (path, *_above(path)):
                self._names.setdefault(os.path.dirname(inner), set()).add(os.fsencode(os.path.basename(inner)))
        self._own_device = os.stat("/").st_dev
        self.lost = False  # whether more happened than the kernel keeps, and some of it is not known
        self.count = 0  # of the times that something happened in these directories, whatever name it was
        self._watches: dict[str, int] = {}
        self._directories: dict[int, str] = {}
        self._followed: dict[int, str] = {}  # paths of files
        number = system_calls.NUMBERS[system_calls.machine()]["inotify_init1"]
        try:
            self._file = system_calls.syscall("inotify_init1", number, os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.EMFILE:
                text = _TOO_MANY.format("instances of inotify", "fs.inotify.max_user_instances")
                raise OSError(error.errno, text) from error
            raise

    def fileno(self) -> int:
        """The file that is readable when something happened."""
        return self._file

    def watch(self) -> None:
        """Watch the directories that are there now. Raises `OSError` if a name could be changed unseen."""
        for directory in sorted(self._names):
            try:
                if os.stat(directory).st_dev == self._own_device:
                    continue  # nothing of the host is there
                watch = self._add(directory)
            except (FileNotFoundError, NotADirectoryError):
                continue
            before = self._watches.get(directory)
            if before is not None and before != watch:
                self._remove(before)
            self._watches[directory] = watch
            self._directories[watch] = directory

    def follow(self, path: str, file: str) -> None:
        """Tell as `WRITTEN` what is written to a file that is at a path, by whatever name; `file` leads to it."""
        number = system_calls.NUMBERS[system_calls.machine()]["inotify_add_watch"]
        try:
            mask = MODIFY | CLOSE_WRITE
            watch = system_calls.syscall(f"watch {path}", number, self._file, os.fsencode(file), mask)
        except OSError as error:
            if error.errno != errno.EACCES:  # what this user cannot read is told by its name alone
                raise
        else:
            self._followed[watch] = path

    def forget(self) -> None:
        """Follow no file any more."""
        for watch in tuple(self._followed):
            self._remove(watch)
        self._followed = {}

    def read(self) -> list[tuple[str, int]]:
        """All that happened since the last time, as paths and masks, oldest first; `lost` tells if some is not known.

        All of it: of a stopped program, nothing may be read later than it is judged.
        """
        size = int.from_bytes(fcntl.ioctl(self._file, termios.FIONREAD, bytes(4)), sys.byteorder)
        if not size:
            return []
        self.count += 1
        return list(self._events(os.read(self._file, size)))

    def _events(self, text: bytes) -> Iterator[tuple[str, int]]:
        start = 0
        while start < len(text):
            watch, mask, _, length = _HEAD.unpack_from(text, start)
            start += _HEAD.size + length
            if mask & _OVERFLOW:
                self.lost = True
            if watch in self._followed and mask & (MODIFY | CLOSE_WRITE):
                yield self._followed[watch], WRITTEN
                continue
            directory = self._directories.get(watch)
            if directory is None:
                continue
            name = text[start - length : start].rstrip(b"\0")
            if name in self._names[directory]:
                yield os.path.join(directory, os.fsdecode(name)), mask

    def _add(self, directory: str) -> int:
        number = system_calls.NUMBERS[system_calls.machine()]["inotify_add_watch"]
        mask = MODIFY | CLOSE_WRITE | OF_NAMES | (OPEN if directory in self._opened else 0) | _ONLY_DIRECTORIES
        try:
            return system_calls.syscall(f"watch {directory}", number, self._file, os.fsencode(directory), mask)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                text = _TOO_MANY.format("watches of inotify", "fs.inotify.max_user_watches")
                raise OSError(error.errno, text) from error
            if error.errno == errno.EACCES and not os.access(directory, os.W_OK):
                return -1  # this user can change no name there
            raise

    def _remove(self, watch: int) -> None:
        number = system_calls.NUMBERS[system_calls.machine()]["inotify_rm_watch"]
        self._directories.pop(watch, None)
        with suppress(OSError):  # its directory is gone, and the watch with it
            system_calls.syscall("inotify_rm_watch", number, self._file, watch)


def _above(path: str) -> Iterable[str]:
    """The directories around a path, without the root."""
    while (path := os.path.dirname(path)) != "/":
        yield path
