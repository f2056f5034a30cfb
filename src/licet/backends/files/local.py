"""Files of this machine: the file that was checked is the file that is opened, even if paths are renamed meanwhile.

`resolver` finds where a path leads. This module then works by descriptor: read, replace in one step, make, remove,
move. It touches only regular files and directories, and follows no link in the last component.
"""

import errno
import io
import os
import secrets
import stat as kinds
from collections.abc import Callable, Iterable
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import BinaryIO

from licet.backends.files.resolver import DIRECTORY, PATH_ONLY, Paths, Resolver
from licet.backends.limits import MOST_NAMES, SHORT_PATH_BYTES, SORTED_AT_ONCE
from licet.core.algebra.scope import inside
from licet.guard.ports import ANY_TIME, Escaped, Held, Stat, TooLarge, Turn

_CLOSED = getattr(os, "O_CLOEXEC", 0)
# Opening must not wait for the other end of a FIFO, nor make a terminal the controlling one. The type is checked after.
_NO_WAIT = _CLOSED | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


_MODES = {
    "rb": (("read",), os.O_RDONLY),
    "r+b": (("read", "write"), os.O_RDWR),
    "wb": (("write",), os.O_WRONLY | os.O_CREAT),
    "ab": (("write",), os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    "xb": (("write",), os.O_WRONLY | os.O_CREAT | os.O_EXCL),
}


class LocalFiles:
    """Files of this machine.

    Not prevented: a hard link to a file *below* a denied directory, made by somebody who could read it anyway; a bind
    mount of a denied directory; and changes by others to a file after it was opened.
    """

    __slots__ = ("_resolver",)

    def __init__(self, openat2: bool | None = None, roots: Iterable[str] | None = None) -> None:
        """Use `openat2` if it works here (None), only `openat2` (True), or only the walk (False).

        `roots` are all paths that grants name. Links in the path of a root were made by the operator; they are resolved
        now, and links that appear later are not followed. Without `roots`, each root is resolved when it is first
        needed.
        """
        self._resolver = Resolver(_paths(openat2))
        if roots is not None:
            self.pin(roots)

    def pin(self, roots: Iterable[str], writable: Callable[[str], bool] = lambda directory: False) -> None:
        """Resolve the roots of grants now. Later roots may not contain links.

        A link in a directory that is `writable` to some tool was perhaps not made by the operator, and is not followed.
        """
        self._resolver.pin(roots, writable)

    # Reading ---------------------------------------------------------------------------------------------------------

    def open(self, path: str, mode: str, held: Held) -> BinaryIO:
        reads = mode == "rb"
        fd = self._resolver.open(path, "read", _NO_WAIT, held)[0] if reads else self._open_to_write(path, mode, held)
        try:
            _check_file(os.fstat(fd), path, mode, held)
            if mode == "wb":
                os.ftruncate(fd, 0)  # only now, so that nothing is lost if a check fails
            return _file(fd, mode)
        except BaseException:
            os.close(fd)
            raise

    def stat(self, path: str, held: Held) -> Stat:
        fd = self._resolver.open(path, "read", PATH_ONLY, held)[0]
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        if kinds.S_ISDIR(found.st_mode):
            return Stat("directory", found.st_size, found.st_mtime, kinds.S_IMODE(found.st_mode))
        _check_file(found, path, "rb", held)
        return Stat("file", found.st_size, found.st_mtime, kinds.S_IMODE(found.st_mode))

    def list(self, path: str, held: Held) -> list[str]:
        fd, written = self._resolver.open(path, "read", _NO_WAIT | getattr(os, "O_DIRECTORY", 0), held)
        try:
            with os.scandir(fd) as entries:
                names = [entry.name for entry in islice(entries, MOST_NAMES + 1)]
        finally:
            os.close(fd)
        if len(names) > MOST_NAMES:
            raise TooLarge(f"the directory holds more than {MOST_NAMES} names")
        above = written.rstrip("/")
        # If everything below is held, only names that no rule can express are left out.
        all_held = held.covers_tree("read", written) and len(above) < SHORT_PATH_BYTES
        kept = [name for name in names if (all_held and name.isascii()) or held.covers("read", f"{above}/{name}")]
        if len(kept) <= SORTED_AT_ONCE:
            return sorted(kept)
        # In steps, because sorting one long list would block every other thread of this process.
        parts = (sorted(kept[start : start + SORTED_AT_ONCE]) for start in range(0, len(kept), SORTED_AT_ONCE))
        return list(merge(*parts))

    # Writing ---------------------------------------------------------------------------------------------------------

    def write(self, path: str, data: bytes, held: Held, turn: Turn = ANY_TIME) -> None:
        with self._resolver.parent(path, ("write",), held) as place:
            parent, name, mode = place.parent, place.name, None
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
                _check_file(found, path, "wb", held)
                mode = found.st_mode & 0o777
            spare = f".licet-{secrets.token_hex(8)}"
            fd = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOSED, 0o666, dir_fd=parent)
            try:
                try:
                    if mode is not None:
                        os.fchmod(fd, mode)
                    _write_all(fd, data)
                finally:
                    os.close(fd)
                with turn:
                    os.replace(spare, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(spare, dir_fd=parent)
                raise

    def mkdir(self, path: str, held: Held) -> None:
        missing, root = [path], ""
        for _ in range(2 * path.count("/") + 2):  # enough for every parent, unless somebody keeps removing them
            place = missing[-1]
            try:
                with self._resolver.parent(place, ("write",), held) as found:
                    os.mkdir(found.name, dir_fd=found.parent)
            except FileNotFoundError:
                above = place.rpartition("/")[0]
                # Directories between the root of the grant and a held path are held too: a deny on one would deny the
                # path. Checking each parent would take time that grows with the cube of the depth.
                root = root or held.root("write", path)
                if not above or not inside(above, (root,)):
                    raise
                missing.append(above)
                continue
            except FileExistsError:
                try:  # a link to a held directory is accepted
                    os.close(self._resolver.open(place, "write", DIRECTORY, held)[0])
                except (FileNotFoundError, NotADirectoryError):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place) from None
            missing.pop()
            if not missing:
                return
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def delete(self, path: str, held: Held) -> None:
        """Remove a file or an empty directory. A link itself is removed, not its target."""
        with self._resolver.parent(path, ("delete",), held) as place:
            if kinds.S_ISDIR(os.stat(place.name, dir_fd=place.parent, follow_symlinks=False).st_mode):
                self._resolver.check_tree(place, "delete", held)
                os.rmdir(place.name, dir_fd=place.parent)
            else:
                os.unlink(place.name, dir_fd=place.parent)

    def rename(self, source: str, target: str, held: Held) -> None:
        parent, check_tree = self._resolver.parent, self._resolver.check_tree
        with parent(source, ("delete",), held) as old, parent(target, ("write",), held) as new:
            found = os.stat(old.name, dir_fd=old.parent, follow_symlinks=False).st_mode
            if not (kinds.S_ISREG(found) or kinds.S_ISDIR(found) or kinds.S_ISLNK(found)):
                raise Escaped("neither a file nor a directory")
            # A complete tree moves, so nothing denied may be in it or be replaced by it.
            check_tree(old, "delete", held)
            check_tree(new, "write", held)
            if held.overlaps("read", new.written):
                check_tree(old, "read", held)  # a file that was not readable must not become readable
            os.rename(old.name, new.name, src_dir_fd=old.parent, dst_dir_fd=new.parent)

    def _open_to_write(self, path: str, mode: str, held: Held) -> int:
        actions, flags = _MODES[mode]
        with self._resolver.parent(path, actions, held) as place:
            with suppress(FileNotFoundError):  # checked before it is opened, because opening a device can have effects
                found = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
                _check_file(found, path, mode, held)
            try:
                return os.open(place.name, flags | _NOFOLLOW | _NO_WAIT, 0o666, dir_fd=place.parent)
            except OSError as wrong:
                if wrong.errno in (errno.ELOOP, errno.ENXIO):
                    raise Escaped("neither a file nor a directory") from wrong
                raise


def _paths(openat2: bool | None) -> Paths:
    from licet.backends.files.resolver import Walk

    if openat2 is False:
        return Walk()
    try:
        from licet.backends.files.resolver import Openat2

        return Openat2()
    except (OSError, ImportError, AttributeError):  # an old kernel, a seccomp filter, no /proc, no ctypes
        if openat2:
            raise
        return Walk()


def _check_file(found: os.stat_result, path: str, mode: str, held: Held) -> None:
    """Refuse anything but a regular file, and a file with a second name that is denied or could be."""
    if not kinds.S_ISREG(found.st_mode):
        if kinds.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise Escaped("neither a file nor a directory")
    if found.st_nlink > 1:
        if mode != "rb":
            raise Escaped("the file has more than one name")
        for denied in held.denied("read"):
            with suppress(OSError):
                if os.path.samestat(found, os.stat(denied)):
                    raise Escaped("the file has another name, which is denied")


def _file(fd: int, mode: str) -> BinaryIO:
    if mode == "rb":
        return io.BufferedReader(io.FileIO(fd, "rb"))
    if mode == "r+b":
        return io.BufferedRandom(io.FileIO(fd, "r+b"))
    return io.BufferedWriter(io.FileIO(fd, "ab" if mode == "ab" else "wb"))


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
