"""Finds the places on the import path of this process that a grant may write.

If a tool can write a file there, the next import may run it in this process, without walls. So a gate refuses such a
grant, unless its author accepts the risk. The commands of licet take such places off their own import path instead.

Resolves a path and lists the links on the way: a tool that can replace one of them decides where the path leads.

Each link is read once, so the listed links belong to the returned path, even if a link changes meanwhile.
"""

import errno
import importlib.machinery
import os
import site
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from licet.core.algebra.rules import InvalidUse, use_of_path
from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.guard.held_paths import HeldPaths
from licet.guard.limits import MOST_LINKS
from licet.own_files import open_regular, read_most

WritableImports = Literal["refuse", "drop", "accept"]
UNCHECKED = "unchecked imports"  # a layer in receipts: the risk was accepted
_ENDINGS = (".py", ".pyc", *importlib.machinery.EXTENSION_SUFFIXES)
_COMPILED = "__pycache__"


class SearchPlace(Struct, frozen=True):
    """One place that modules are searched in: an entry of `sys.path`, or of the `__path__` of a loaded package."""

    stated: str  # the entry itself, perhaps relative
    package: str = ""  # the package whose `__path__` has it; empty for `sys.path`

    @property
    def path(self) -> str:
        """Its absolute path; the empty entry is the current directory."""
        return os.path.abspath(self.stated)

    @property
    def origin(self) -> str:
        """Why the place is on the import path, for the operator."""
        if self.package:
            return f"the package `{self.package}` is loaded from there"
        return _origin(self.stated)


class Writable(Struct, frozen=True):
    """An entry that a grant may write, and the writable path: the entry, or a path in it that shadows a module."""

    entry: SearchPlace
    path: str


def writable_imports(held: HeldPaths) -> Iterator[Writable]:
    """Every place on the import path that a grant may write, or could create."""
    links: dict[str, bool] = {}
    allowed = [way for path in held.allowed("write") for way in ways(path, links)]
    closed = {way for path in held.denied("write") for way in ways(path, links)} if allowed else set()
    roots = [way for way in allowed if not inside(way, closed)]
    modules = _Modules()
    for entry in entries() if roots else ():
        if (path := _harm(ways(entry.path, links), entry, roots, closed, modules)) is not None:
            yield Writable(entry, path)


def entries() -> Iterator[SearchPlace]:
    """Every place that this process searches for modules now, and where it keeps compiled modules."""
    for stated in dict.fromkeys(sys.path):
        if isinstance(stated, str):  # Python ignores other entries
            yield SearchPlace(stated)
    if sys.pycache_prefix:
        yield SearchPlace(sys.pycache_prefix)
    for name, module in list(sys.modules.items()):
        search = getattr(module, "__dict__", {}).get("__path__") if module is not None else None
        for stated in _listed(search):
            yield SearchPlace(stated, name)


def drop(found: Iterable[Writable]) -> None:
    """Take these places off the import path."""
    for one in found:
        entry = one.entry
        if not entry.package:
            sys.path[:] = [stated for stated in sys.path if stated != entry.stated]
            continue
        package: Any = sys.modules.get(entry.package)
        if package is not None:
            package.__path__ = [stated for stated in package.__path__ if stated != entry.stated]


def ways(path: str, links: dict[str, bool] | None = None) -> tuple[str, ...]:
    """Every spelling of a path: as written, after each link on the way, and the real path. A tool could replace any.

    `links` caches which directories are links, for a caller with many paths.
    """
    links = {} if links is None else links
    here = os.path.abspath(path)
    found = {here: None}
    for _ in range(MOST_LINKS):
        link = next((above for above in _prefixes(here) if _is_link(above, links)), None)
        if link is None:
            break
        rest = here[len(link) :].lstrip("/")
        try:
            target = os.path.join(os.path.dirname(link), os.readlink(link))
        except OSError:
            break
        here = os.path.normpath(os.path.join(target, rest))
        found[here] = None
    if len(found) > 1:  # only the system resolves `..` after a link correctly
        found[os.path.realpath(path)] = None
    return tuple(found)


def _is_link(path: str, links: dict[str, bool]) -> bool:
    if path not in links:
        links[path] = os.path.islink(path)
    return links[path]


def _harm(
    spelled: Iterable[str], entry: SearchPlace, roots: Collection[str], closed: Collection[str], modules: "_Modules"
) -> str | None:
    """A writable path at which a module of an entry could be planted; None if there is none."""
    for way in spelled:
        if inside(way, roots) and not inside(way, closed):
            return way
        above = f"{way.rstrip('/')}/"
        for root in roots:
            if not root.startswith(above):
                continue
            if entry.stated == sys.pycache_prefix or modules.shadowed(
                entry.package, way, root[len(above) :].split("/")
            ):
                return root
    return None


class _Modules:
    """Which names on the import path are modules that a planted file could replace."""

    def shadowed(self, package: str, directory: str, below: list[str]) -> bool:
        """Whether a path inside a directory of modules is a module, or would shadow one."""
        name, *rest = below
        if name == _COMPILED:
            return True
        if not rest:
            return self._known(package, directory, _module_name(name))
        if not self._known(package, directory, name):
            return False
        inside = os.path.join(directory, name)
        if _has_init(inside):
            return self.shadowed(f"{package}.{name}" if package else name, inside, rest)
        # A directory without `__init__.py` becomes part of a namespace package. The standard library has none of these.
        return name not in sys.stdlib_module_names

    def _known(self, package: str, directory: str, name: str) -> bool:
        if name in _modules_in(directory, packages=False):
            return True
        if package:
            return f"{package}.{name}" in sys.modules
        return name in sys.stdlib_module_names or name in sys.modules or name in self._installed

    @cached_property
    def _installed(self) -> frozenset[str]:
        """The top-level modules in every entry of the import path."""
        found: set[str] = set()
        for stated in sys.path:
            if isinstance(stated, str):
                packages = os.path.basename(stated) in ("site-packages", "dist-packages")
                found |= _modules_in(os.path.abspath(stated), packages=packages)
        return frozenset(found)


def _modules_in(directory: str, *, packages: bool) -> set[str]:
    """The modules in a directory; with `packages` also the directories that have no `__init__.py`."""
    found = set()
    try:
        with os.scandir(directory) as listed:
            for one in listed:
                name = _module_name(one.name)
                if not name.isidentifier():
                    continue
                if name != one.name or (one.is_dir() and (packages or _has_init(one.path))):
                    found.add(name)
    except OSError:
        return set()
    return found


def _has_init(directory: str) -> bool:
    return any(os.path.isfile(os.path.join(directory, f"__init__{ending}")) for ending in _ENDINGS)


def _module_name(name: str) -> str:
    ending = next((ending for ending in sorted(_ENDINGS, key=len, reverse=True) if name.endswith(ending)), "")
    return name.removesuffix(ending)


def _listed(search: Any) -> list[str]:
    """The text in a `__path__`, which may be any object."""
    if search is None:
        return []
    try:
        return [stated for stated in search if isinstance(stated, str)]
    except Exception:
        return []


def _prefixes(path: str) -> Iterator[str]:
    """The directories on the way to a path, outermost first, and the path."""
    parts = path.strip("/").split("/")
    return (f"/{'/'.join(parts[:end])}" for end in range(1, len(parts) + 1))


# What put an entry on the import path ---------------------------------------------------------------------------------


def _origin(stated: str) -> str:
    if not stated:
        return "the current directory, which `python -c` and an interactive session search first"
    path = os.path.abspath(stated)
    if sys.pycache_prefix and stated == sys.pycache_prefix:
        return "Python keeps compiled modules there (`PYTHONPYCACHEPREFIX`)"
    if script := _script_in(path):
        return f"the directory of the script `{script}`"
    if path == os.getcwd() and "-m" in sys.orig_argv[1:]:
        return "the current directory, which `python -m` searches first"
    if path in map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))):
        return "`PYTHONPATH` names it"
    if file := pth_entries().get(os.path.realpath(path)):
        return f"`{file}` in the installed packages names it"
    if os.path.realpath(path) in {os.path.realpath(place) for place in site.getsitepackages()}:
        return "packages are installed there"
    if os.path.realpath(path).startswith(os.path.dirname(os.path.realpath(os.__file__))):
        return "the standard library"
    return "this program has added it to `sys.path`"


def _script_in(path: str) -> str:
    """The script that this process runs, if it lies in a directory."""
    file = getattr(sys.modules.get("__main__"), "__file__", None) or (sys.argv[0] if sys.argv else "")
    if not file or getattr(sys.modules.get("__main__"), "__spec__", None) is not None:
        return ""  # a prompt, or `python -m`
    there = os.path.realpath(os.path.dirname(os.path.abspath(file))) == os.path.realpath(path)
    return os.path.basename(file) if there else ""


def pth_entries() -> Mapping[str, str]:
    """The directories that `.pth` files put on the import path: by real path, the name of the file."""
    found: dict[str, str] = {}
    places = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    for place in places:
        try:
            names = sorted(name for name in os.listdir(place) if name.endswith(".pth"))
        except OSError:
            continue
        for name in names:
            for line in _lines(os.path.join(place, name)):
                if line and not line.startswith(("#", "import ", "import\t")):
                    found.setdefault(os.path.realpath(os.path.join(place, line)), name)
    return found


def _lines(file: str) -> list[str]:
    try:
        with open_regular(file) as fd:
            text = read_most(fd, 1 << 20).decode(errors="replace")
        return [line.strip() for line in text.splitlines()]
    except OSError:
        return []


class FoundProgram(str):
    """The real path of a program, the links on the way from its name to it, and the path with these links."""

    links: tuple[str, ...]
    path: str

    def __new__(cls, real: str, links: tuple[str, ...], path: str = "") -> "FoundProgram":
        found = super().__new__(cls, real)
        found.links, found.path = links, path or real
        return found


def followed(path: str) -> tuple[str, tuple[str, ...]]:
    """The real path of an absolute path, and the links on the way; `OSError` if they form a loop."""
    real, rest, links = "/", path.split("/"), list[str]()
    while rest:
        step = rest.pop(0)
        if step in ("", "."):
            continue
        if step == "..":
            real = os.path.dirname(real)
            continue
        candidate = os.path.join(real, step)
        try:
            target = os.readlink(candidate)
        except OSError:  # not a link, or it does not exist
            real = candidate
            continue
        links.append(candidate)
        if len(links) > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        real = "/" if target.startswith("/") else real
        rest = target.split("/") + rest
    return real, tuple(links)


def changeable(path: str, ceiling: CapabilitySet) -> bool:
    """Whether any tool of a manifest may write a path, and so may have replaced what is there."""
    try:
        return ceiling.has(use_of_path("write", path))
    except InvalidUse:
        return True
