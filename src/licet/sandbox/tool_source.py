"""Where the code of a tool lies: its own file, the files it imports, and the libraries that every tool may read.

Worked out on the host from what is imported there and from the text of the files; nothing is run. A worker is given
its files one by one, never their directory, where `.env`, policy and state often lie.
"""

import ast
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, NamedTuple

from licet.declare import Tool
from licet.guard.ports import SandboxUnavailable

_LICET = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_MOST_FILES = 2000
_FIX = (
    'define it at the top of a module; or, if it is trusted code of yours, give it `sandbox="native"` '
    "and name it under `native`"
)
SCRIPT = "licet_script"  # what a script is called inside: under its own name `__main__` it would run as a program


class Place(NamedTuple):
    """Where a module is: its file, or None for a package without one; and its directory if it is a package."""

    file: str | None
    directory: str | None


class Source(NamedTuple):
    """The code of one tool."""

    module: str
    qualname: str
    modules: dict[str, Place]

    @property
    def files(self) -> list[str]:
        """Every file that is read to load it, with what Python has compiled of each."""
        return [*self._sources, *self.compiled]

    @property
    def compiled(self) -> list[str]:
        """Where Python keeps what it has compiled of each file."""
        found = []
        for file in self._sources:
            with suppress(NotImplementedError, ValueError):  # this Python keeps nothing of what it compiles
                found.append(importlib.util.cache_from_source(file))
        return found

    @property
    def _sources(self) -> list[str]:
        return [place.file for place in self.modules.values() if place.file is not None]


def source_of(tool: Tool) -> Source:
    """The code of a tool, or `SandboxUnavailable` if no other process could find it again."""
    fn: Any = tool.fn
    file, qualname, name = fn.__code__.co_filename, fn.__qualname__, fn.__module__
    if "<locals>" in qualname:
        raise SandboxUnavailable(f"`{tool.name}` is defined inside a function, where no other process finds it: {_FIX}")
    if file.startswith("<") or not os.path.isfile(file):
        raise SandboxUnavailable(f"`{tool.name}` has no file that another process could load it from: {_FIX}")
    found = fn.__globals__.get(qualname)
    if found is not fn and getattr(found, "fn", None) is not fn:
        raise SandboxUnavailable(f"`{tool.name}` is not what its module calls `{qualname}`: {_FIX}")
    if name == "__main__":
        spec = fn.__globals__.get("__spec__")
        name = spec.name if spec is not None else SCRIPT
    place = Place(os.path.realpath(file), None)
    if os.path.basename(file) == "__init__.py":
        place = Place(place.file, os.path.dirname(place.file or ""))
    return Source(name, qualname, _reached(name, place))


def project_files(tools: Iterable[Tool]) -> Iterator[str]:
    """Every project file that is read to load these tools: its path as it was named, and its real path.

    Functions that decorators wrapped, and checks of availability, count too: their code runs in this process.
    """
    for tool in tools:
        for fn in (*_unwrapped(tool.fn), *_unwrapped(tool.available)):
            code = getattr(fn, "__code__", None)
            if code is None or code.co_filename.startswith("<"):  # typed in, or made by a program: it has no file
                continue
            yield os.path.abspath(code.co_filename)
            yield from _files_from(str(fn.__module__), os.path.realpath(code.co_filename))


def _files_from(module: str, file: str) -> Iterator[str]:
    """A file and the project files that its text imports, directly or through others."""
    yield file
    if _is_library(file) or not os.path.isfile(file):
        return
    directory = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else None
    for name, place in _reached(module, Place(file, directory)).items():
        origin = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
        yield from (os.path.abspath(path) for path in (place.file, origin) if path and os.path.isabs(path))


def _unwrapped(fn: Any) -> list[Any]:
    """A function and all that decorators have wrapped in each other."""
    found: list[Any] = []
    while fn is not None and fn not in found:
        found.append(fn)
        fn = getattr(fn, "__wrapped__", None)
    return found


@cache
def libraries() -> tuple[str, ...]:
    """The directories of the interpreter, its libraries and licet: the same for every tool, and nobody's secret."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found.append(_LICET)
    found += [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages", "lib-dynload")]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if os.path.isdir(path)))


def import_path() -> list[str]:
    """What a worker searches for modules: libraries alone."""
    return [path for path in libraries() if path != _LICET]


def _is_library(path: str) -> bool:
    return any(path.startswith(f"{directory}/") for directory in libraries())


def _reached(name: str, place: Place) -> dict[str, Place]:
    """A module, the packages it is in, and every module of theirs that is no library, by name."""
    found: dict[str, Place] = {}
    left = [(name, place)]
    while left and len(found) < _MOST_FILES:
        name, place = left.pop()
        if name in found:
            continue
        found[name] = place
        wanted = [name.rpartition(".")[0]]
        if place.file is not None:
            wanted += imported(place.file, name, place.directory is not None, os.stat(place.file).st_mtime_ns)
        unseen = [(other, _place(other)) for other in wanted if other and other not in found]
        left += [(other, there) for other, there in unseen if there is not None]
    return found


@lru_cache(4096)
def imported(file: str, name: str, is_package: bool, changed: int) -> tuple[str, ...]:
    """The names that a file imports, anywhere in it, and the packages that they are in."""
    try:
        with open(file, "rb") as text:
            tree = ast.parse(text.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    package = name if is_package else name.rpartition(".")[0]
    names: dict[str, None] = {}
    for dotted in _imports(tree, package):
        parts = dotted.split(".")
        names.update(dict.fromkeys(".".join(parts[:end]) for end in range(1, len(parts) + 1)))
    return tuple(names)


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _place(name: str) -> Place | None:
    """Where a module is, if it is none of a library; it is looked for, and not imported."""
    if name.partition(".")[0] in sys.stdlib_module_names or name.partition(".")[0] == "licet":
        return None
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None:
        parent = name.rpartition(".")[0]
        path = getattr(sys.modules.get(parent), "__path__", None) if parent else None
        if parent and path is None:
            return None
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
        except Exception:
            return None
    if spec is None:
        return None
    where = list(spec.submodule_search_locations or ())
    directory = os.path.realpath(where[0]) if where else None
    file = os.path.realpath(spec.origin) if spec.has_location and spec.origin else None
    if (file is None and directory is None) or _is_library(file or f"{directory}/"):
        return None
    return Place(file, directory)
