"""Files of this machine, opened so that what was checked is what is opened, whatever is renamed meanwhile.

Where a path leads is found out in `files_resolver`; here is what is done there, by descriptor: read, put in place in
one step, made, removed, moved. Only plain files and directories are touched, and no link in the last place.
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
from licet.core.algebra.scope import inside
from licet.guard.ports import ANY_TIME, Escaped, Held, Stat, TooLarge, Turn

_CLOSED = getattr(os, "O_CLOEXEC", 0)
# Neither waits for the other end of a FIFO, nor takes a terminal: what is no file is found out after opening.
_CALM = _CLOSED | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)

MOST_NAMES = 50_000  # of one directory that are listed
_SORTED_AT_ONCE = 4096
_SURELY_SHORT = 3000  # characters of a directory, in which every name makes a path that can be opened

_MODES = {
    "rb": (("read",), os.O_RDONLY),
    "r+b": (("read", "write"), os.O_RDWR),
    "wb": (("write",), os.O_WRONLY | os.O_CREAT),
    "ab": (("write",), os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    "xb": (("write",), os.O_WRONLY | os.O_CREAT | os.O_EXCL),
}


class LocalFiles:
    """Files of this machine.

    It does not stop: a hard link to a file *below* a denied directory, made by somebody who could read it anyway; a
    bind mount of a denied directory; and whoever else changes a file after it was opened.
    """

    __slots__ = ("_resolver",)

    def __init__(self, openat2: bool | None = None, roots: Iterable[str] | None = None) -> None:
        """Take `openat2` if it works here (None), or insist on it or on the walk. `roots` are all that grants name.

        Links in the path of a root are the operator's, and followed as they are now. Later ones are not followed.
        Without `roots`, each root is looked at when it is first needed.
        """
        self._resolver = Resolver(_paths(openat2))
        if roots is not None:
            self.pin(roots)

    def pin(self, roots: Iterable[str], writable: Callable[[str], bool] = lambda directory: False) -> None:
        """Remember where roots of grants really are; from now on, roots that are not known may not hold links.

        A link in a directory that is `writable` to some tool is not the operator's, and not followed either.
        """
        self._resolver.pin(roots, writable)

    # Reading ---------------------------------------------------------------------------------------------------------

    def open(self, path: str, mode: str, held: Held) -> BinaryIO:
        """A regular file, opened as what was checked: `rb`, `wb`, `ab`, `xb` or `r+b`."""
        reads = mode == "rb"
        fd = self._resolver.open(path, "read", _CALM, held)[0] if reads else self._open_to_write(path, mode, held)
        try:
            _check_file(os.fstat(fd), path, mode, held)
            if mode == "wb":
                os.ftruncate(fd, 0)  # only now: the checks come before anything is lost
            return _file(fd, mode)
        except BaseException:
            os.close(fd)
            raise

    def stat(self, path: str, held: Held) -> Stat:
        """What a path is; `FileNotFoundError` if it is nothing."""
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
        """The names in a directory that are held too, sorted."""
        fd, written = self._resolver.open(path, "read", _CALM | getattr(os, "O_DIRECTORY", 0), held)
        try:
            with os.scandir(fd) as entries:
                names = [entry.name for entry in islice(entries, MOST_NAMES + 1)]
        finally:
            os.close(fd)
        if len(names) > MOST_NAMES:
            raise TooLarge(f"the directory holds more than {MOST_NAMES} names")
        above = written.rstrip("/")
        # Where all below is held, only names that no rule can spell are left out.
        whole = held.covers_tree("read", written) and len(above) < _SURELY_SHORT
        kept = [name for name in names if (whole and name.isascii()) or held.covers("read", f"{above}/{name}")]
        if len(kept) <= _SORTED_AT_ONCE:
            return sorted(kept)
        # Step by step: nothing else in this process runs while a list is being sorted.
        parts = (sorted(kept[start : start + _SORTED_AT_ONCE]) for start in range(0, len(kept), _SORTED_AT_ONCE))
        return list(merge(*parts))

    # Writing ---------------------------------------------------------------------------------------------------------

    def write(self, path: str, data: bytes, held: Held, turn: Turn = ANY_TIME) -> None:
        """Put data in the place of a file, in its turn: all of it, or nothing."""
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
        """Make a directory, and its parents as far as they are held; one that is there already is fine."""
        missing, root = [path], ""
        for _ in range(2 * path.count("/") + 2):  # enough for every parent, unless somebody keeps removing them
            place = missing[-1]
            try:
                with self._resolver.parent(place, ("write",), held) as found:
                    os.mkdir(found.name, dir_fd=found.parent)
            except FileNotFoundError:
                above = place.rpartition("/")[0]
                # What lies between the root of the grant and a path that is held is held too: a deny there would deny
                # the path. Asking about each parent would take time that grows with the cube of the depth.
                root = root or held.root("write", path)
                if not above or not inside(above, (root,)):
                    raise
                missing.append(above)
                continue
            except FileExistsError:
                try:  # a link to a directory that is held will do
                    os.close(self._resolver.open(place, "write", DIRECTORY, held)[0])
                except (FileNotFoundError, NotADirectoryError):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place) from None
            missing.pop()
            if not missing:
                return
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def delete(self, path: str, held: Held) -> None:
        """Remove a file or an empty directory; of a link, the link."""
        with self._resolver.parent(path, ("delete",), held) as place:
            if kinds.S_ISDIR(os.stat(place.name, dir_fd=place.parent, follow_symlinks=False).st_mode):
                self._resolver.check_tree(place, "delete", held)
                os.rmdir(place.name, dir_fd=place.parent)
            else:
                os.unlink(place.name, dir_fd=place.parent)

    def rename(self, source: str, target: str, held: Held) -> None:
        """Move a file or a directory; what stood at the target is replaced, as the system does it."""
        parent, check_tree = self._resolver.parent, self._resolver.check_tree
        with parent(source, ("delete",), held) as old, parent(target, ("write",), held) as new:
            found = os.stat(old.name, dir_fd=old.parent, follow_symlinks=False).st_mode
            if not (kinds.S_ISREG(found) or kinds.S_ISDIR(found) or kinds.S_ISLNK(found)):
                raise Escaped("neither a file nor a directory")
            # A whole tree moves: nothing that is denied may be in it, or be replaced by it.
            check_tree(old, "delete", held)
            check_tree(new, "write", held)
            if held.overlaps("read", new.written):
                check_tree(old, "read", held)  # what was not readable does not become so
            os.rename(old.name, new.name, src_dir_fd=old.parent, dst_dir_fd=new.parent)

    def _open_to_write(self, path: str, mode: str, held: Held) -> int:
        actions, flags = _MODES[mode]
        with self._resolver.parent(path, actions, held) as place:
            with suppress(FileNotFoundError):  # looked at before it is opened: opening a device can already act
                found = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
                _check_file(found, path, mode, held)
            try:
                return os.open(place.name, flags | _NOFOLLOW | _CALM, 0o666, dir_fd=place.parent)
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
    except (OSError, ImportError, AttributeError):  # an old kernel, a filter, no /proc, no ctypes
        if openat2:
            raise
        return Walk()


def _check_file(found: os.stat_result, path: str, mode: str, held: Held) -> None:
    """Refuse what is no plain file, and files that are also something else's."""
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
