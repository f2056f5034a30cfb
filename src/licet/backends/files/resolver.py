"""Resolves a path to the file that it really leads to, without races, and checks that file against the grant.

- A path is first opened in one step that refuses links: then the path is the file's real path.
- Only if there is a link, it is resolved below the root of the grant. The real path is checked again, denies included.

`Openat2` lets the kernel do each step. `Walk` is for systems without that call: it opens one component after the other,
each in the directory that is already open, and reads links itself, as Go's `os.Root` does. So a rename meanwhile cannot
redirect either. Neither of them knows which paths may be opened; `Resolver` checks that.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from licet.backends.limits import MOST_DENIES_KNOWN, MOST_LINKS, OPEN_ATTEMPTS
from licet.core.algebra.scope import inside, path_ancestors
from licet.guard.import_path import followed
from licet.guard.ports import Escaped, Held

_CLOSED = getattr(os, "O_CLOEXEC", 0)
PATH_ONLY = getattr(os, "O_PATH", 0) | os.O_RDONLY | _CLOSED
DIRECTORY = PATH_ONLY | getattr(os, "O_DIRECTORY", 0)

# Kernel interfaces and devices. A rule for `/` does not mean them, for example the memory of this process.
_SPECIAL = ("/proc/", "/sys/", "/dev/")


class Paths(Protocol):
    """Opens paths: by the kernel, or step by step."""

    def direct(self, path: str, flags: int) -> int:
        """Open an absolute path; fails with `ELOOP` if it contains a link."""

    def beneath(self, root_fd: int, root: str, relative: str, flags: int) -> tuple[int, str]:
        """Open a path whose links stay below a directory, and return its real path too."""


class ResolvedPath(Struct, frozen=True):
    """A name in an open directory, with its path as the grant writes it, and its real path."""

    parent: int
    name: str
    written: str
    real: str


def _has_untrusted_link(path: str, writable: Callable[[str], bool]) -> bool:
    """Whether a path contains a link that a tool could have made, in this process or an earlier one."""
    above = ""
    for part in path.split("/")[1:]:
        step = f"{above}/{part}"
        if os.path.islink(step) and writable(above or "/"):
            return True
        above = step
    return False


class Resolver:
    """Opens paths for grants that hold them."""

    __slots__ = ("_aliases", "_fixed", "_links", "_paths", "_real")

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._real: dict[str, str] = {}
        self._aliases: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._links: dict[tuple[str, ...], frozenset[str]] = {}
        self._fixed = False

    def pin(self, roots: Iterable[str], writable: Callable[[str], bool]) -> None:
        """Resolve the roots of grants now. Later roots may not contain links."""
        for root in roots:
            # A root inside a known root is skipped: a tool may have made it a link since.
            if self._fixed and any(above in self._real for above in path_ancestors(root)[1:-1]):
                continue
            for path in (root, root.rpartition("/")[0] or "/"):
                self._real.setdefault(path, path if _has_untrusted_link(path, writable) else os.path.realpath(path))
        self._fixed = True

    def open(self, path: str, action: str, flags: int, held: Held) -> tuple[int, str]:
        """Open a path, and return its path without links too, as the grant writes it."""
        self._check_real(path, path, action, held)
        try:
            return self._paths.direct(path, flags), path
        except OSError as wrong:
            if wrong.errno == errno.ENXIO:
                raise Escaped("neither a file nor a directory") from wrong
            if wrong.errno != errno.ELOOP:
                raise
        fd, real, written = self._beneath(path, path, action, flags, held)
        try:
            self._check_followed(real, written, action, held)
        except BaseException:
            os.close(fd)
            raise
        return fd, written

    @contextmanager
    def parent(self, path: str, actions: tuple[str, ...], held: Held) -> Iterator[ResolvedPath]:
        """Open the directory of a path, so that its last component can be changed without following a link there."""
        above, _, name = path.rpartition("/")
        above = above or "/"
        if not name:
            raise Escaped("the root of all paths cannot be changed")
        try:
            place = ResolvedPath(self._paths.direct(above, DIRECTORY), name, path, path)
            check = self._check_real
        except OSError as wrong:
            if wrong.errno != errno.ELOOP:
                raise
            if held.root(actions[0], path) == path:
                fd, real, written = self._root(above, DIRECTORY)
            else:
                fd, real, written = self._beneath(above, path, actions[0], DIRECTORY, held)
            place = ResolvedPath(fd, name, f"{written.rstrip('/')}/{name}", f"{real.rstrip('/')}/{name}")
            check = self._check_followed
        try:
            for action in actions:
                check(place.real, place.written, action, held)
            yield place
        finally:
            os.close(place.parent)

    def _beneath(self, path: str, asked: str, action: str, flags: int, held: Held) -> tuple[int, str, str]:
        """Open a path through links that stay below the root of the grant for `asked`.

        Returns the descriptor, the real path, and the real path as the grant writes it.
        """
        root = held.root(action, asked)
        if root == path:
            return self._root(root, flags)
        root_fd, real_root, _ = self._root(root, DIRECTORY)
        try:
            fd, real = self._paths.beneath(root_fd, real_root, path[len(root) :].lstrip("/"), flags)
        finally:
            os.close(root_fd)
        if not inside(real, (real_root,)):
            os.close(fd)
            raise Escaped("a link leads out")
        return fd, real, (root.rstrip("/") + real[len(real_root.rstrip("/")) :]) or "/"

    def _root(self, root: str, flags: int) -> tuple[int, str, str]:
        """Open a root at the real path that it had when it was first resolved, without links on the way."""
        real = self._real_of(root)
        try:
            return self._paths.direct(real, flags), real, root
        except OSError as wrong:
            if wrong.errno in (errno.ELOOP, errno.ENXIO):
                raise Escaped("a root of the grant is not what it was") from wrong
            raise

    def _real_of(self, root: str) -> str:
        real = self._real.get(root)
        if real is None:
            real = root if self._fixed else self._real.setdefault(root, os.path.realpath(root))
        return real

    # Checking --------------------------------------------------------------------------------------------------------

    def _check_followed(self, real: str, written: str, action: str, held: Held) -> None:
        """Refuse the target of links unless the grant holds it: only the path with the links was checked before."""
        if not held.covers(action, written):
            raise Escaped("it leads to what is not held")
        if inside(real, held.denied(action)):
            raise Escaped("it leads to what is denied")
        self._check_real(real, written, action, held)

    def _check_real(self, real: str, written: str, action: str, held: Held) -> None:
        """Refuse a real path that a deny names through a link, and kernel interfaces and devices that no rule names."""
        denied = held.denied(action)
        if denied and inside(real, self._aliases_of(denied)):
            raise Escaped("it leads to what is denied under another name")
        if action != "read" and denied and real in self._links_to(denied):
            raise Escaped("it is a link that leads to what is denied")
        if real.startswith(_SPECIAL) and not f"{self._real_of(held.root(action, written))}/".startswith(_SPECIAL):
            raise Escaped("windows into the kernel and devices are held only by rules that name them")

    def check_tree(self, place: ResolvedPath, action: str, held: Held) -> None:
        """Refuse a path if anything below it is not held, whether it exists or not."""
        if not held.covers_tree(action, place.written):
            raise Escaped("something in it is not held")
        denied = held.denied(action)
        refused = (*denied, *self._aliases_of(denied), *self._links_to(denied))
        if any(path != place.real and inside(path, (place.real,)) for path in refused):
            raise Escaped("something in it is denied")
        self._check_followed(place.real, place.written, action, held)

    def _links_to(self, denied: tuple[str, ...]) -> frozenset[str]:
        """The links on the way to denied paths, cached. A tool that replaced one would change what is denied."""
        if denied not in self._links:
            if len(self._links) > MOST_DENIES_KNOWN:
                self._links.clear()
            self._links[denied] = frozenset(link for path in denied for link in _links_on_the_way(path))
        return self._links[denied]

    def _aliases_of(self, denied: tuple[str, ...]) -> tuple[str, ...]:
        """The real paths of denied paths that are written with a link, cached."""
        if denied not in self._aliases:
            if len(self._aliases) > MOST_DENIES_KNOWN:
                self._aliases.clear()
            real = (os.path.realpath(path) for path in denied)
            self._aliases[denied] = tuple(path for path, named in zip(real, denied, strict=True) if path != named)
        return self._aliases[denied]


def _links_on_the_way(path: str) -> tuple[str, ...]:
    try:
        return followed(path)[1]
    except OSError:  # a loop of links leads nowhere
        return ()


_NUMBER = 437
_AT_FDCWD = -100
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_SIZE = ctypes.sizeof(_How)


class Openat2:
    """Lets the kernel resolve paths. Needs `/proc` to find the target of a link.

    The system call is made by its number, which is the same on every architecture that Linux supports today.
    """

    __slots__ = ("_hows", "_syscall")

    def __init__(self) -> None:
        """Find the system call; raises `OSError` if it or `/proc` is missing."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "openat2 is a system call of Linux")
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
        call.restype = ctypes.c_long
        self._syscall = call
        self._hows: dict[tuple[int, int], _How] = {}  # built once, because the kernel only reads them
        probe = self.direct("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.readlink(f"/proc/self/fd/{probe}")
        finally:
            os.close(probe)

    def direct(self, path: str, flags: int) -> int:
        return self._open(_AT_FDCWD, path, flags, _NO_SYMLINKS)

    def beneath(self, root_fd: int, root: str, relative: str, flags: int) -> tuple[int, str]:
        try:
            fd = self._open(root_fd, relative, flags, _BENEATH | _NO_MAGICLINKS)
        except OSError as wrong:
            if wrong.errno in (errno.EXDEV, errno.ELOOP):
                raise Escaped("a link leads out, or nowhere") from wrong
            raise
        try:
            real = os.readlink(f"/proc/self/fd/{fd}")
        except BaseException:
            os.close(fd)
            raise
        # A removed file has no path any more; the kernel's text for it could be the name of another file.
        if real.endswith(" (deleted)"):
            os.close(fd)
            raise Escaped("it was removed while it was opened")
        return fd, real

    def _open(self, directory: int, path: str, flags: int, resolve: int) -> int:
        how = self._hows.get((flags, resolve))
        if how is None:
            how = self._hows[flags, resolve] = _How(flags, 0, resolve)
        name = path.encode("utf-8", "surrogateescape")
        if b"\0" in name:  # C would stop reading at the null byte
            raise ValueError("embedded null byte")
        for _ in range(OPEN_ATTEMPTS):
            fd: int = self._syscall(_NUMBER, directory, name, ctypes.addressof(how), _SIZE)
            if fd >= 0:
                return fd
            code = ctypes.get_errno()
            if code not in (errno.EAGAIN, errno.EINTR):
                break
        raise OSError(code, os.strerror(code), path)


_PATH_ONLY = getattr(os, "O_PATH", 0)
_DIRECTORY = _PATH_ONLY | os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


class _Link(Exception):
    """A component is a link: its place, and its target."""

    def __init__(self, index: int, target: str) -> None:
        self.index, self.target = index, target


class Walk:
    """Resolves paths in this process."""

    __slots__ = ()

    def __init__(self) -> None:
        """Check that the system can open a name in an open directory without following links."""
        if not {os.open, os.readlink, os.stat} <= os.supports_dir_fd or not _NOFOLLOW:
            raise OSError(errno.ENOSYS, "this system cannot open files without following links")

    def direct(self, path: str, flags: int) -> int:
        top = os.open("/", _DIRECTORY)
        try:
            return _descend(top, [part for part in path.split("/") if part], flags)
        except _Link:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
        finally:
            os.close(top)

    def beneath(self, root_fd: int, root: str, relative: str, flags: int) -> tuple[int, str]:
        parts = [part for part in relative.split("/") if part not in ("", ".")]
        links = 0
        while links <= MOST_LINKS:
            try:
                fd = _descend(root_fd, parts, flags)
            except _Link as link:
                links += link.target != ".."  # going up makes the path shorter, so that part ends by itself
                parts = _resolved(parts, link)
            else:
                return fd, "/".join([root.rstrip("/"), *(part for part in parts if part != ".")]) or "/"
        raise Escaped("too many links")


def _resolved(parts: list[str], link: _Link) -> list[str]:
    """Return the parts of a path with one link replaced by its target."""
    if link.target[:1] == "/":
        raise Escaped("a link leads to an absolute path")
    above, below = parts[: link.index], parts[link.index + 1 :]
    steps = [part for part in link.target.split("/") if part not in ("", ".")]
    # Going up by dropping a name is right only for names that were opened and are no links: those before the link. A
    # `..` after them stays, and the walk stops there again when the names before it were opened. (Opening `..` would be
    # wrong: the directory may have been moved since.)
    while steps[:1] == [".."]:
        if not above:
            raise Escaped("a link leads out of its root")
        del above[-1], steps[0]
    if steps and not below and link.target.endswith(("/", "/.")):
        below = ["."]  # such a target must be a directory, and `.` can only be opened in one
    return [*above, *steps, *below]


def _descend(top: int, parts: list[str], flags: int) -> int:
    """Open the last of some names, each in the directory before it; raises `_Link` at the first link."""
    if not parts:
        return os.open(".", flags, dir_fd=top)
    directory, last = top, len(parts) - 1
    try:
        for index, name in enumerate(parts[:last]):
            before, directory = directory, _enter(directory, name, _DIRECTORY, index)
            if before != top:
                os.close(before)
        return _enter(directory, parts[last], flags, last)
    finally:
        if directory != top:
            os.close(directory)


def _enter(directory: int, name: str, flags: int, index: int) -> int:
    if name == "..":
        raise _Link(index, "..")
    try:
        fd = os.open(name, flags | _NOFOLLOW, dir_fd=directory)
    except OSError as wrong:
        # Systems report a link that they do not follow by different errors, so it is read to be sure.
        if wrong.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            _raise_if_link(directory, name, index)
        raise
    if flags & _PATH_ONLY and not flags & os.O_DIRECTORY:
        try:
            _raise_if_link(fd, "", index)  # such a descriptor may be of the link itself
        except _Link:
            os.close(fd)
            raise
    return fd


def _raise_if_link(directory: int, name: str, index: int) -> None:
    try:
        target = os.readlink(name, dir_fd=directory)
    except OSError:
        return  # no link, or no longer one
    raise _Link(index, target)
