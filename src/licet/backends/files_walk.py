"""Opening a path component by component, never through a link: for systems without `openat2`.

Each step opens one name in a directory that is already open, so nothing that is renamed meanwhile can redirect it.
Links are read and resolved here, as Go's `os.Root` does it. Which paths may be opened is not known here.
"""

import errno
import os

from licet.guard.ports import Escaped

_PATH_ONLY = getattr(os, "O_PATH", 0)
_DIRECTORY = _PATH_ONLY | os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_MOST_LINKS = 40  # as many as Linux follows


class _Link(Exception):
    """A component turned out to be a link: which one, and what it says."""

    def __init__(self, index: int, target: str) -> None:
        self.index, self.target = index, target


class Walk:
    """Paths as this process resolves them."""

    __slots__ = ()

    def __init__(self) -> None:
        """Make sure that the system can open names in open directories without following links."""
        if not {os.open, os.readlink, os.stat} <= os.supports_dir_fd or not _NOFOLLOW:
            raise OSError(errno.ENOSYS, "this system cannot open files without following links")

    def direct(self, path: str, flags: int) -> int:
        """Open an absolute path that holds no link; `ELOOP` if it does."""
        top = os.open("/", _DIRECTORY)
        try:
            return _descend(top, [part for part in path.split("/") if part], flags)
        except _Link:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
        finally:
            os.close(top)

    def beneath(self, root_fd: int, root: str, relative: str, flags: int) -> tuple[int, str]:
        """Open a path whose links stay below a directory, and say which path it really is."""
        parts = [part for part in relative.split("/") if part not in ("", ".")]
        links = 0
        while links <= _MOST_LINKS:
            try:
                fd = _descend(root_fd, parts, flags)
            except _Link as link:
                links += link.target != ".."  # going up makes the path shorter, so that ends by itself
                parts = _resolved(parts, link)
            else:
                return fd, "/".join([root.rstrip("/"), *(part for part in parts if part != ".")]) or "/"
        raise Escaped("too many links")


def _resolved(parts: list[str], link: _Link) -> list[str]:
    """The parts of a path with a link replaced by what it says."""
    if link.target[:1] == "/":
        raise Escaped("a link leads to an absolute path")
    above, below = parts[: link.index], parts[link.index + 1 :]
    steps = [part for part in link.target.split("/") if part not in ("", ".")]
    # Going up by dropping a name is right only from names that were walked, which are no links: the ones before the
    # link. A `..` further on stays, and the walk stops there when it has seen what stands before it. (Opening `..`
    # would be wrong: the directory may have been moved since.)
    while steps[:1] == [".."]:
        if not above:
            raise Escaped("a link leads out of its root")
        del above[-1], steps[0]
    if steps and not below and link.target.endswith(("/", "/.")):
        below = ["."]  # what ends so must be a directory: this opens only in one
    return [*above, *steps, *below]


def _descend(top: int, parts: list[str], flags: int) -> int:
    """Open the last of some names, each in the directory before it; `_Link` at the first that is a link."""
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
        # Systems differ in what they say of a link that they do not follow; the link itself is the proof.
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
