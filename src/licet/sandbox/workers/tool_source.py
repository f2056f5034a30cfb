"""Finds the code of a tool: its own file, the files that it imports, and the libraries that every tool may read.

The host finds them from its own imports and from the text of the files; nothing is run. A worker gets the files one by
one, and never their directory, which often holds `.env`, policy and state.
"""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import inside
from licet.declare import Tool, WasmTool
from licet.declare.decorator import MODULE, CellSource, NoSource, cell_of
from licet.declare.wasm import PYTHON
from licet.guard.execution import SandboxUnavailable
from licet.guard.import_path import pth_entries
from licet.source.finder import KnownModules, ModulePlace, library_directories

_LICET = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_FIX = (
    'define it at the top of a module; or, if it is trusted code of yours, give it `sandbox="native"` '
    "and name it under `native`"
)
SCRIPT = "licet_script"  # the module name of a script in a worker: as `__main__` it would run as a program


class ToolSource(Struct, frozen=True):
    """The code of one tool."""

    module: str
    qualname: str
    modules: dict[str, ModulePlace]
    cell: CellSource | None = None  # of a tool that has no file
    declared: tuple[str, ...] = ()  # the WebAssembly modules that these modules declare, and hash when they are loaded

    @property
    def files(self) -> list[str]:
        """Every file that is read to load it, and the compiled file of each."""
        return [*self._sources, *self.compiled, *self.declared]

    @property
    def compiled(self) -> list[str]:
        """The compiled file of each source file."""
        found = []
        for file in self._sources:
            with suppress(NotImplementedError, ValueError):  # this Python writes no compiled files
                found.append(importlib.util.cache_from_source(file))
        return found

    @property
    def _sources(self) -> list[str]:
        return [place.file for place in self.modules.values() if place.file is not None]


def source_of(tool: Tool) -> ToolSource:
    """The code of a tool. Raises `SandboxUnavailable` if another process could not load it."""
    if isinstance(tool, WasmTool):
        raise SandboxUnavailable(f"`{tool.name}` is a WASM module, and this sandbox runs Python functions alone")
    fn: Any = tool.fn
    file, qualname, name = fn.__code__.co_filename, fn.__qualname__, fn.__module__
    if tool.cell is not None:
        return ToolSource(MODULE, qualname, _reached_from_cell(tool.cell), tool.cell)
    if "<locals>" in qualname:
        raise SandboxUnavailable(f"`{tool.name}` is defined inside a function, where no other process finds it: {_FIX}")
    try:
        cell_of(fn)
    except NoSource as missing:
        raise SandboxUnavailable(f"`{tool.name}` cannot be sent to another process: {missing}. Or {_FIX}") from None
    if file.startswith("<") or not os.path.isfile(file):
        raise SandboxUnavailable(f"`{tool.name}` has no file that another process could load it from: {_FIX}")
    found = fn.__globals__.get(qualname)
    if found is not fn and getattr(found, "fn", None) is not fn:
        raise SandboxUnavailable(f"`{tool.name}` is not what its module calls `{qualname}`: {_FIX}")
    if name == "__main__":
        spec = fn.__globals__.get("__spec__")
        name = spec.name if spec is not None else SCRIPT
    place = ModulePlace(os.path.realpath(file), None)
    if os.path.basename(file) == "__init__.py":
        place = ModulePlace(place.file, os.path.dirname(place.file or ""))
    reached = _reached(name, place)
    loaded = [fn.__globals__, *(vars(sys.modules[one]) for one in reached if one in sys.modules)]
    return ToolSource(name, qualname, reached, declared=_declared_modules(loaded))


def _declared_modules(loaded: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The files of the WASM tools in loaded modules."""
    tools = (value for names in loaded for value in [*names.values()] if isinstance(value, WasmTool))
    files = dict.fromkeys(tool.module.file for tool in tools if tool.module.file != PYTHON)
    return tuple(dict.fromkeys(path for file in files for path in (file, os.path.realpath(file))))


def project_files(tools: Iterable[Tool]) -> Iterator[str]:
    """Every project file that is read to load these tools, by its path as named and by its real path.

    Wrapped functions and availability checks count too: their code runs in this process.
    """
    for tool in tools:
        if isinstance(tool, WasmTool):
            if tool.module.file != PYTHON:
                yield from (tool.module.file, os.path.realpath(tool.module.file))
            declared_by = getattr(sys.modules.get(tool.__module__), "__file__", None)
            if declared_by is not None:
                yield os.path.abspath(declared_by)
                yield from _files_from(tool.__module__, os.path.realpath(declared_by))
        for fn in (*_unwrapped(tool.fn), *_unwrapped(tool.available)):
            code = getattr(fn, "__code__", None)
            if tool.cell is not None:
                yield from (path for place in _reached_from_cell(tool.cell).values() for path in (place.file,) if path)
            if code is None or code.co_filename.startswith("<"):  # from a prompt, or generated: it has no file
                continue
            yield os.path.abspath(code.co_filename)
            yield from _files_from(str(fn.__module__), os.path.realpath(code.co_filename))


def _files_from(module: str, file: str) -> Iterator[str]:
    """A file and the project files that its text imports, directly or through others."""
    yield file
    if _is_library(file) or not os.path.isfile(file):
        return
    directory = os.path.dirname(file) if os.path.basename(file) == "__init__.py" else None
    for name, place in _reached(module, ModulePlace(file, directory)).items():
        origin = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
        yield from (os.path.abspath(path) for path in (place.file, origin) if path and os.path.isabs(path))


def _unwrapped(fn: Any) -> list[Any]:
    """A function and the functions that it wraps."""
    found: list[Any] = []
    while fn is not None and fn not in found:
        found.append(fn)
        fn = getattr(fn, "__wrapped__", None)
    return found


@cache
def libraries() -> tuple[str, ...]:
    """The directories of the interpreter, its libraries and licet: readable for every tool."""
    return tuple(dict.fromkeys((*library_directories(), _LICET)))


def import_path() -> list[str]:
    """The import path of a worker: libraries, and directories in them that `.pth` files have added."""
    found = [path for path in libraries() if path != _LICET]
    found += [path for path in map(os.path.realpath, filter(None, sys.path)) if _is_library(path)]
    return list(dict.fromkeys(path for path in found if path != _LICET))


def zygote_path() -> list[str]:
    """The import path of the zygote: that of a worker, and all directories that `.pth` files have added.

    Code in `.pth` files is not run. Workers do not search directories outside of libraries, which may hold `.env` and
    state: they get the files of their tool one by one.
    """
    stated = pth_entries()
    added = [path for path in map(os.path.realpath, filter(None, sys.path)) if path in stated]
    return list(dict.fromkeys((*import_path(), *added)))


def _is_library(path: str) -> bool:
    return inside(path, libraries())


def _reached(name: str, place: ModulePlace) -> dict[str, ModulePlace]:
    """A module, its packages, and the project modules that they import, by name."""
    from licet.source.imports import followed  # the tools of most policies are servers and programs, without source

    return followed({name: place}, _place)


def _reached_from_cell(cell: CellSource) -> dict[str, ModulePlace]:
    """The project modules that a cell imports, and those that they import."""
    from licet.source.imports import followed, imports_of

    names = imports_of(cell.text)
    return followed({name: place for name in names if (place := _place(name)) is not None}, _place)


def _place(name: str) -> ModulePlace | None:
    """Where a project module is, without importing it; None for a library."""
    if name.partition(".")[0] in sys.stdlib_module_names or name.partition(".")[0] == "licet":
        return None
    spec = getattr(sys.modules.get(name), "__spec__", None) or _of_a_project(name)
    if spec is None:
        parent = name.rpartition(".")[0]
        path = getattr(sys.modules.get(parent), "__path__", None) if parent else None
        if parent and path is None:
            above = _place(parent)  # a package that is not imported yet
            if above is None or above.directory is None:
                return None
            path = [above.directory]
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
        except Exception:
            return None
    if spec is None:
        return None
    where = list(spec.submodule_search_locations or ())
    directory = os.path.realpath(where[0]) if where else None
    file = os.path.realpath(spec.origin) if spec.has_location and spec.origin else None
    if (file is None and directory is None) or _is_library(file or str(directory)):
        return None
    return ModulePlace(file, directory)


def _of_a_project(name: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of a module that `licet call` can import and has not imported yet."""
    finders = (finder for finder in sys.meta_path if isinstance(finder, KnownModules))
    return next(filter(None, (finder.find_spec(name) for finder in finders)), None)
