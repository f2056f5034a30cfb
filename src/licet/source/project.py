"""Finds the files of a project that its tools import, from the source of those files. Nothing is imported.

`licet call` imports exactly these files. The standard library and installed packages take precedence: a project file of
the same name is never used, unless a manifest names it with `from:`. So a tool that may write in a project cannot plant
a `csv.py` that the next run would import.
"""

import importlib.machinery
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from licet.source.declarations import wasm_files
from licet.source.finder import ENDINGS, OURS, ModulePlace, code_directories, library_directories
from licet.source.imports import SOURCE_LOADERS, find_installed, followed
from licet.source.limits import MOST_IMPORTED_NAMES, MOST_PROJECT_BYTES, MOST_TOP_NAMES
from licet.source.scopes import with_parents

# A review follows imports too, and files may be hostile. Modules beyond these limits are not found, so not loaded.


class ProjectModules(Struct, frozen=True):
    """The modules of a project that its tools import, and the paths that decide which files these are.

    `missing` and `second` have the paths at which Python would look for each top-level name that is not of a library,
    in each searched directory. These paths may exist or not.
    """

    modules: Mapping[str, ModulePlace]
    missing: tuple[str, ...]  # for names that were not found; a file planted there would be loaded next time
    second: tuple[str, ...]  # for names that were found: the loaded file, and the paths of a possible second one
    wasm: tuple[str, ...] = ()  # the WebAssembly modules that these modules declare as tools

    @property
    def doubled(self) -> str:
        """A message if a module has two files, of which one may be planted; empty if there is no such module."""
        for name in (name for name in self.modules if "." not in name):
            tails = {f"{name}{ending}" for ending in ENDINGS}
            found = [path for path in self.second if os.path.basename(path) in tails and _is_module(path)]
            real = {os.path.realpath(path): path for path in found}
            if len(real) > 1:
                return f"`{name}` in two places: {' and '.join(real.values())}"
        return ""

    def closed(self) -> Iterator[tuple[str, bool]]:
        """Every path that no tool may write, so that the same files are loaded next time; links and their targets.

        The second value is whether loading would refuse a new file at that path anyway.
        """
        files = (path for place in self.modules.values() for path in (place.file, place.directory) if path)
        paths = {**dict.fromkeys(self.second, True), **dict.fromkeys((*self.missing, *files, *self.wasm), False)}
        for path, refused in paths.items():
            for name in dict.fromkeys((path, os.path.realpath(path))):
                yield name, refused and not os.path.lexists(name)


def _is_module(path: str) -> bool:
    if os.path.isdir(path):
        return any(os.path.isfile(os.path.join(path, f"__init__{ending}")) for ending in ENDINGS[1:])
    return os.path.isfile(path) and path.endswith(ENDINGS[1:])


def project_modules(references: Iterable[str], roots: Iterable[str | os.PathLike[str]]) -> ProjectModules:
    """The modules of `pkg.mod:function` references below some directories, and the project modules that these import.

    Conditional imports, imports inside functions, and `import_module` with a literal name are followed. Names that are
    computed at run time are not.
    """
    named = [reference.partition(":")[0] for reference in references]
    named = [name for name in named if name.partition(".")[0] not in ("", OURS)]
    absolute = dict.fromkeys(os.path.abspath(root) for root in roots)
    directories = [place for root in absolute for place in code_directories(root)]
    project = _Project(directories, {name.partition(".")[0] for name in named})
    installed = {name for name in named if project.place(name) is None and find_installed(name) is not None}
    if installed:  # a directory of the project with the name of an installed package is not a part of that package
        named = [name for name in named if name not in installed]
        own = {name.partition(".")[0] for name in named}
        project = _Project(directories, own, {name.partition(".")[0] for name in installed} - own)
    start = {name: project.place(name) for dotted in named for name in with_parents(dotted)}
    known = {name: place for name, place in start.items() if place is not None}
    found = followed(known, project.place, most_bytes=MOST_PROJECT_BYTES, most_names=MOST_IMPORTED_NAMES)
    return ProjectModules(found, *project.paths(), _wasm(found.values())) if named else ProjectModules({}, (), ())


def _wasm(places: Iterable[ModulePlace]) -> tuple[str, ...]:
    """The WebAssembly modules that some source files declare as tools, up to a limit of source."""
    files = [place.file for place in places if place.file is not None and place.file.endswith(".py")]
    sizes = accumulate(os.stat(file).st_size if os.path.isfile(file) else 0 for file in files)
    read = (file for file, size in zip(files, sizes, strict=True) if size <= MOST_PROJECT_BYTES)
    return tuple(dict.fromkeys(module for file in read for module in wasm_files(file)))


class _Project:
    """Finds modules below some directories with the finders of Python."""

    def __init__(self, directories: Sequence[str], named: set[str], installed: Collection[str] = ()) -> None:
        self._directories, self._named, self._installed = directories, named, installed
        self._finders: dict[str, importlib.machinery.FileFinder] = {}
        self._libraries = library_directories()
        self._places: dict[str, ModulePlace | None] = {}
        self._package_directories: dict[str, list[str]] = {}  # package -> the directories of its modules
        self._top_names: dict[str, None] = {}  # top-level names that are not of a library

    def place(self, name: str) -> ModulePlace | None:
        """The place of a module; None if it is not part of the project."""
        if name not in self._places:
            self._places[name] = self._found(name)
        return self._places[name]

    def paths(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The paths `missing` and `second` of `ProjectModules`."""
        missing: list[str] = []
        second: list[str] = []
        for directory in self._directories:
            for name in self._top_names:
                paths = (os.path.join(directory, f"{name}{ending}") for ending in ENDINGS)
                (missing if self._places[name] is None else second).extend(paths)
        return tuple(missing), tuple(second)

    def _found(self, name: str) -> ModulePlace | None:
        parent, _, last = name.rpartition(".")
        if not last.isidentifier():
            return None
        if not parent:
            if name not in self._named and self._is_library(name):
                return None
            if len(self._top_names) >= MOST_TOP_NAMES and name not in self._named:
                return None
            self._top_names[name] = None
            directories: Sequence[str] = self._directories
        elif self.place(parent) is None:
            return None
        else:
            directories = self._package_directories.get(parent, ())
        return self._search(name, directories)

    def _is_library(self, top: str) -> bool:
        if top == OURS or top in sys.stdlib_module_names or top in self._installed:
            return True
        return any(self._spec(directory, top) is not None for directory in self._libraries)

    def _search(self, name: str, directories: Sequence[str]) -> ModulePlace | None:
        portions: list[str] = []  # directories of a namespace package
        for directory in directories:
            spec = self._spec(directory, name)
            if spec is None:
                continue
            inside = list(spec.submodule_search_locations or ())
            if spec.loader is None:
                portions += inside
                continue
            if inside:
                self._package_directories[name] = inside
            return ModulePlace(spec.origin, inside[0] if inside else None)
        if not portions:
            return None
        self._package_directories[name] = portions
        return ModulePlace(None, portions[0])

    def _spec(self, directory: str, name: str) -> importlib.machinery.ModuleSpec | None:
        finder = self._finders.get(directory)
        if finder is None:
            # Compiled files without source are not loaded, since they cannot be reviewed.
            finder = self._finders[directory] = importlib.machinery.FileFinder(directory, *SOURCE_LOADERS)
        return finder.find_spec(name)
