"""Where a path really leads: resolved so that nothing can be swapped on the way, and held to the grant at the end.

A path without links is opened in one step that refuses links: then its text is where it leads. Only where that finds
a link, the path is resolved below the root of the grant, and where it led is checked again, denies included.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from licet.core.scope import path_ancestors
from licet.guard.links import followed
from licet.guard.ports import Escaped, Held

_CLOSED = getattr(os, "O_CLOEXEC", 0)
PATH_ONLY = getattr(os, "O_PATH", 0) | os.O_RDONLY | _CLOSED
DIRECTORY = PATH_ONLY | getattr(os, "O_DIRECTORY", 0)

# Windows into the kernel and onto devices: whoever allows `/` did not mean the memory of this process.
_SPECIAL = ("/proc/", "/sys/", "/dev/")


class Paths(Protocol):
    """How paths are resolved: by the kernel, or step by step."""

    def direct(self, path: str, flags: int) -> int:
        """Open an absolute path that holds no link; `ELOOP` if it does."""

    def beneath(self, root_fd: int, root: str, relative: str, flags: int) -> tuple[int, str]:
        """Open a path whose links stay below a directory, and say which path it really is."""


class Place(NamedTuple):
    """A name in an open directory; its path as the grant is written, and as it really is."""

    parent: int
    name: str
    written: str
    real: str


def _planted(path: str, writable: Callable[[str], bool]) -> bool:
    """Whether a path goes through a link that a tool could have put there, in this process or an earlier one."""
    above = ""
    for part in path.split("/")[1:]:
        step = f"{above}/{part}"
        if os.path.islink(step) and writable(above or "/"):
            return True
        above = step
    return False


class Resolver:
    """Opens what paths lead to, for grants that hold it."""

    __slots__ = ("_aliases", "_fixed", "_links", "_paths", "_real")

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._real: dict[str, str] = {}
        self._aliases: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._links: dict[int, tuple[tuple[str, ...], frozenset[str]]] = {}
        self._fixed = False

    def pin(self, roots: Iterable[str], writable: Callable[[str], bool]) -> None:
        """Remember where roots of grants really are; from now on, roots that are not known may not hold links."""
        for root in roots:
            # A root inside one that is known already may be a link that a tool has put there since: it is not believed.
            if self._fixed and any(above in self._real for above in path_ancestors(root)[1:-1]):
                continue
            for path in (root, root.rpartition("/")[0] or "/"):
                self._real.setdefault(path, path if _planted(path, writable) else os.path.realpath(path))
        self._fixed = True

    def open(self, path: str, action: str, flags: int, held: Held) -> tuple[int, str]:
        """Open what a path leads to; also its path without links, written the way the grant is."""
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
    def parent(self, path: str, actions: tuple[str, ...], held: Held) -> Iterator[Place]:
        """The open directory that a path is in, so that its last part can be changed without following it."""
        above, _, name = path.rpartition("/")
        above = above or "/"
        if not name:
            raise Escaped("the root of all paths cannot be changed")
        try:
            place = Place(self._paths.direct(above, DIRECTORY), name, path, path)
            check = self._check_real
        except OSError as wrong:
            if wrong.errno != errno.ELOOP:
                raise
            if held.root(actions[0], path) == path:
                fd, real, written = self._root(above, DIRECTORY)
            else:
                fd, real, written = self._beneath(above, path, actions[0], DIRECTORY, held)
            place = Place(fd, name, f"{written.rstrip('/')}/{name}", f"{real.rstrip('/')}/{name}")
            check = self._check_followed
        try:
            for action in actions:
                check(place.real, place.written, action, held)
            yield place
        finally:
            os.close(place.parent)

    def _beneath(self, path: str, asked: str, action: str, flags: int, held: Held) -> tuple[int, str, str]:
        """Open what a path leads to through links that stay below the root of what was asked for.

        Also its real path, and that path written the way the grant is.
        """
        root = held.root(action, asked)
        if root == path:
            return self._root(root, flags)
        root_fd, real_root, _ = self._root(root, DIRECTORY)
        try:
            fd, real = self._paths.beneath(root_fd, real_root, path[len(root) :].lstrip("/"), flags)
        finally:
            os.close(root_fd)
        if real != real_root and not _inside(real, real_root):
            os.close(fd)
            raise Escaped("a link leads out")
        return fd, real, (root.rstrip("/") + real[len(real_root.rstrip("/")) :]) or "/"

    def _root(self, root: str, flags: int) -> tuple[int, str, str]:
        """Open a root where it was when it was first looked at, with no link on the way."""
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
        """Refuse what links led to if the grant does not hold it: nobody has decided on this path yet."""
        if not held.covers(action, written):
            raise Escaped("it leads to what is not held")
        if any(real == path or _inside(real, path) for path in held.denied(action)):
            raise Escaped("it leads to what is denied")
        self._check_real(real, written, action, held)

    def _check_real(self, real: str, written: str, action: str, held: Held) -> None:
        """Refuse a real path that a deny names through a link, or that a wide grant did not mean."""
        denied = held.denied(action)
        if denied and any(real == path or _inside(real, path) for path in self._aliases_of(denied)):
            raise Escaped("it leads to what is denied under another name")
        if action != "read" and denied and real in self._links_to(denied):
            raise Escaped("it is a link that leads to what is denied")
        if real.startswith(_SPECIAL) and not f"{self._real_of(held.root(action, written))}/".startswith(_SPECIAL):
            raise Escaped("windows into the kernel and devices are held only by rules that name them")

    def check_tree(self, place: Place, action: str, held: Held) -> None:
        """Refuse a path with anything below it that is not held, whether it exists or not."""
        if not held.covers_tree(action, place.written):
            raise Escaped("something in it is not held")
        denied = held.denied(action)
        if any(_inside(path, place.real) for path in (*denied, *self._aliases_of(denied), *self._links_to(denied))):
            raise Escaped("something in it is denied")
        self._check_followed(place.real, place.written, action, held)

    def _links_to(self, denied: tuple[str, ...]) -> frozenset[str]:
        """The links on the way to denies: who exchanges one of them decides what is denied. Found once for each set."""
        known = self._links.get(id(denied))
        if known is None or known[0] is not denied:
            if len(self._links) > 1000:
                self._links.clear()
            known = denied, frozenset(link for path in denied for link in _links_on_the_way(path))
            self._links[id(denied)] = known
        return known[1]

    def _aliases_of(self, denied: tuple[str, ...]) -> tuple[str, ...]:
        """The real paths of denies, where they are not what is written: found once for each set of denies."""
        known = self._aliases.get(id(denied))
        if known is None or known[0] is not denied:
            if len(self._aliases) > 1000:
                self._aliases.clear()
            real = (os.path.realpath(path) for path in denied)
            known = denied, tuple(path for path, said in zip(real, denied, strict=True) if path != said)
            self._aliases[id(denied)] = known
        return known[1]


def _links_on_the_way(path: str) -> tuple[str, ...]:
    try:
        return followed(path)[1]
    except OSError:  # links in circles lead nowhere
        return ()


def _inside(path: str, directory: str) -> bool:
    return directory == "/" or (path.startswith(directory) and path[len(directory) : len(directory) + 1] == "/")
