"""Finds declarations in source: all tools of a file, or the tool that `pkg.mod:func` names. Nothing is imported.

Such a declaration has no argument `schema`, since type hints are code and code under review is not run. So its digest
differs from that of the running tool. Its needs, class, level, connector and cost are the same.

Finds the files of a project that its tools import, from the source of those files. Nothing is imported.

`licet call` imports exactly these files. The standard library and installed packages take precedence: a project file of
the same name is never used, unless a manifest names it with `from:`. So a tool that may write in a project cannot plant
a `csv.py` that the next run would import.
"""

import importlib.machinery
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem, near_hint
from licet.own_files import size_text
from licet.source.declaration_forms import WasmFiles
from licet.source.declarations import DeclaredTool, Module, module_of, wasm_files
from licet.source.finder import ModulePlace, code_directories
from licet.source.imports import (
    MOST_TOKENS,
    InstalledModule,
    Unusable,
    find_installed,
    followed,
    library_directories,
    shadow,
    token_count,
    with_parents,
)
from licet.source.names import Imported
from licet.source.text import read_bytes

__all__ = ["Modules", "SourceTools", "find_tool", "read_tools", "shown_file"]

MOST_HOPS = 8
_MOST_COMPARED = 100  # functions of a file that a misspelt name is compared with
LONGEST_REFERENCE = 512
MOST_BYTES_IN_REVIEW = 4 << 20  # of all source files in one review
MOST_TOKENS_IN_REVIEW = 300_000  # each takes about 15 microseconds

_READY_MADE = ("licet", "tools")
_INSTALLED = Path(__file__).parents[3]  # the directory that contains the package licet

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"({_IDENTIFIER}(?:\.{_IDENTIFIER})*):({_IDENTIFIER})")


class SourceTools(Struct, frozen=True):
    """The tools that a file declares, in order; all problems; and the name of each tool's function."""

    specs: tuple[ToolSpec, ...]
    problems: tuple[Problem, ...]
    functions: Mapping[str, str]


def read_tools(path: str | os.PathLike[str], display: str | None = None) -> SourceTools:
    """Read the tools of a Python file without importing it; problems are returned, not raised."""
    file = os.fspath(path) if display is None else display
    module = Modules().read(path, file)
    if isinstance(module, Problem):
        return SourceTools((), (module,), {})
    specs = tuple(one.spec for one in module.declared if one.spec)
    problems = [problem for one in module.declared for problem in one.problems] + list(module.problems)
    functions = {one.spec.name: one.function for one in module.declared if one.spec}
    ordered = sorted(problems, key=lambda problem: (problem.origin.line, problem.origin.column))
    return SourceTools(specs, tuple(ordered), functions)


class Modules:
    """The source files of one review. Each is read once, and their total size is bounded."""

    def __init__(self) -> None:
        self._read: dict[str, Module | Problem] = {}
        self._wasm = WasmFiles()
        self._bytes = self._tokens = 0
        self._full = ""  # the exceeded limit, for the message

    def read(self, path: str | os.PathLike[str], file: str) -> Module | Problem:
        """Read what a file declares, or return the problem. A file with several paths is read and counted for each."""
        name = os.fspath(path)
        if name not in self._read:
            self._read[name] = self._module(name, file)
        return self._read[name]

    def _module(self, path: str, file: str) -> Module | Problem:
        if self._full:
            return self._refused(file)
        data = read_bytes(path, file)
        if isinstance(data, Problem):
            return data
        tokens = token_count(data.decode(errors="replace"))
        self._bytes += len(data)
        self._tokens += tokens if tokens <= MOST_TOKENS else 0  # a file with more is refused without parsing
        if self._bytes > MOST_BYTES_IN_REVIEW:
            self._full = f"{self._bytes} bytes"
        elif self._tokens > MOST_TOKENS_IN_REVIEW:
            self._full = f"{self._tokens} tokens"
        module = self._refused(file) if self._full else module_of(data, file)
        return module if isinstance(module, Problem) else self._with_wasm(module, os.path.dirname(path))

    def _with_wasm(self, module: Module, directory: str) -> Module:
        """The module with the hashes of the WebAssembly modules that it declares."""
        if all(one.wasm is None for one in module.declared):
            return module
        return module.with_declared(tuple(self._hashed(one, directory) for one in module.declared))

    def _hashed(self, one: DeclaredTool, directory: str) -> DeclaredTool:
        if one.wasm is None or one.spec is None:
            return one
        source = self._wasm.source(one.wasm, directory)
        if isinstance(source, Problem):
            return replace(one, spec=None, problems=(*one.problems, source))
        return replace(one, spec=replace(one.spec, source=f"{source}{one.spec.source}"))

    def _refused(self, file: str) -> Problem:
        found = f"more source than one review reads ({self._full} up to here)"
        most = f"at most {size_text(MOST_BYTES_IN_REVIEW)} and {MOST_TOKENS_IN_REVIEW} tokens in all files together"
        return Problem(Origin(file, 1, 1), found, most, "name tools of fewer or smaller files with `from:`")


def find_tool(
    reference: str,
    roots: Sequence[Path],
    *,
    name: str | None = None,
    origin: Origin | None = None,
    modules: Modules | None = None,
    installed: list[InstalledModule] | None = None,
) -> ToolSpec | Problem:
    """Find the declaration that `pkg.mod:func` names, below some directories or installed; or a problem.

    `name` is the name that the tool must have, `origin` the place of the reference. Pass the same `modules` for all
    references of one review. The modules of installed packages on the way are added to `installed`.
    """
    origin = origin or Origin(visible(reference[:LONGEST_REFERENCE]), 1, 1)
    parts = _REFERENCE.fullmatch(reference) if len(reference) <= LONGEST_REFERENCE else None
    if parts is None:
        return Problem(origin, f"`{visible(reference[:80])}`", "`package.module:function`")
    installed = [] if installed is None else installed
    found = _follow(parts[1], parts[2], roots, origin, modules or Modules(), installed)
    if isinstance(found, ToolSpec) and name is not None and found.name != name:
        hint = f"call it `{found.name}` here, or give it `name={name!r}` there"
        return Problem(origin, f"a tool that calls itself `{found.name}` ({found.origin})", f"`{name}`", hint)
    return found


def _follow(
    dotted: str,
    function: str,
    roots: Sequence[Path],
    origin: Origin,
    modules: Modules,
    installed: list[InstalledModule],
) -> ToolSpec | Problem:
    """Follow imports until the function itself is found."""
    seen: list[str] = []
    while True:
        step = f"{dotted}:{function}"
        if step in seen or len(seen) > MOST_HOPS:
            found = f"`{seen[0]}`, imported {'in a circle' if step in seen else f'over more than {MOST_HOPS} files'}"
            return Problem(origin, found, "an import that leads to a function", " → ".join([*seen, step]))
        seen.append(step)
        path = _locate(dotted, roots, origin)
        if isinstance(path, Problem):
            return path
        if isinstance(path, InstalledModule):
            installed.append(path)
            path, roots = Path(path.file), ()  # an installed package does not import files of a project
        file = shown_file(path)
        module = modules.read(path, file)
        if isinstance(module, Problem):
            return module
        further = _resolve(module, function, file, origin)
        if not isinstance(further, tuple):
            return further
        imported, origin = further
        target = _absolute(imported, dotted, path.name == "__init__.py")
        if target is None:
            return Problem(origin, f"`{imported.dotted}`", "an import that stays inside the package")
        dotted, function = target, imported.name


def _resolve(module: Module, function: str, file: str, origin: Origin) -> ToolSpec | Problem | tuple[Imported, Origin]:
    """Look up a name in a file: a tool, a problem, or an import to follow."""
    if (one := module.by_function.get(function)) is not None:
        return one.spec or next(problem for problem in one.problems if problem.severity == "error")
    meaning = module.names.get(function)
    way_out = "decorate it with `@tool(…)` from licet, or declare `needs:` in licet.yaml"
    if meaning is None:
        few = module.declared[:_MOST_COMPARED]  # comparing is slow, and a file may have thousands
        if meant := near_hint(function.lower(), (one.function for one in few)):
            return Problem(origin, f"no `{function}` in {file}", "a function of that name", meant)
        stars = "; names behind `import *` are not followed" if "*" in module.names else ""
        where = origin.file if origin.file.endswith((".yaml", ".yml", ".json")) else "licet.yaml"
        hint = way_out.replace("licet.yaml", where) + stars
        return Problem(origin, f"no `{function}` in {file}", "a function of that name", hint)
    place = module.lines.place_at(meaning.line, meaning.offset)
    if meaning.times > 1:
        return Problem(place, f"`{function}` bound {meaning.times} times in this file", "one meaning", way_out)
    if module.unread and meaning.may_be_tool:
        return module.unread
    if meaning.imported and meaning.imported.name:
        return meaning.imported, place
    return Problem(place, f"`{function}`, which is not declared as a tool", "a function with `@tool(…)`", way_out)


def _locate(dotted: str, roots: Sequence[Path], origin: Origin) -> Path | InstalledModule | Problem:
    """The file of a module below the first root that has it, else on the import path.

    A link to a file outside that root is a problem, and so is a module that is in both places.
    """
    if (*dotted.split("."), "", "")[:2] == _READY_MADE:
        # Only there: an import would not use a directory of that name next to a manifest.
        found, looked = _below((_INSTALLED,), dotted, origin)
        return found or _missing(dotted, origin, looked)
    found, looked = _below(roots, dotted, origin)
    if isinstance(found, Problem):
        return found
    if found is not None:
        return _shadowed(dotted, roots, origin) or found
    installed = find_installed(dotted)
    if installed is None:
        return _missing(dotted, origin, looked)
    if isinstance(installed, Unusable):
        return Problem(origin, installed.found, installed.expected, installed.hint)
    return _shadowed(dotted, roots, origin) or installed


def _below(roots: Sequence[Path], dotted: str, origin: Origin) -> tuple[Path | Problem | None, list[str]]:
    """The file of a module below the first root that has it, and the paths that were looked at."""
    looked: list[str] = []
    for root in roots:
        found: dict[str, Path] = {}
        for candidate in _candidates(root, dotted):
            looked.append(str(candidate))
            try:
                real = os.path.realpath(candidate, strict=True)
                inside = Path(real).is_relative_to(os.path.realpath(root, strict=True))
            except (OSError, ValueError):
                continue
            if not inside:
                text = f"{candidate}, which leads outside {root}"
                return Problem(origin, text, "a file below that directory"), looked
            if os.path.isfile(real):
                found.setdefault(real, candidate)
        if len(found) > 1:
            places = " and ".join(str(candidate) for candidate in found.values())
            return Problem(origin, f"`{dotted}` in two places: {places}", "one of them"), looked
        if found:
            return next(iter(found.values())), looked
    return None, looked


def _shadowed(dotted: str, roots: Sequence[Path], origin: Origin) -> Problem | None:
    """A problem if the top-level package is in the project and also installed: a review and an import could differ.

    A directory without `__init__.py` is not a second package: Python uses a package or module of that name before it.
    """
    top = dotted.partition(".")[0]
    if not (other := shadow(top)):
        return None
    own = [str(path) for root in roots for path in _candidates(root, top) if os.path.isfile(path)]
    spaces = [str(path) for root in roots for path in _candidates(root, dotted) if os.path.isfile(path)]
    for file in own or spaces:  # in a namespace package there is no file of the top-level name
        if os.path.realpath(file) != os.path.realpath(other):
            found = f"`{top}` in two places: {file}, and {other} on the import path"
            hint = "rename the first, or uninstall the other: an import could load another file than a review reads"
            return Problem(origin, found, "one of them", hint)
    return None


def _missing(dotted: str, origin: Origin, looked: Sequence[str]) -> Problem:
    expected = "a Python file below the directory of the manifest, or an installed module"
    hint = f"looked for {', '.join(looked)}, and on the import path" if looked else "looked on the import path"
    return Problem(origin, f"no module `{dotted}`", expected, hint)


def shown_file(path: Path) -> str:
    """The name of a file in messages. For files of licet it is relative, so that it is equal on every machine."""
    return path.relative_to(_INSTALLED).as_posix() if path.is_relative_to(_INSTALLED / "licet") else str(path)


def source_candidates(reference: str, root: Path) -> Iterator[Path]:
    """The files in which the module of `pkg.mod:func` may be, below the root of a policy."""
    parts = _REFERENCE.fullmatch(reference) if len(reference) <= LONGEST_REFERENCE else None
    return _candidates(root, parts[1]) if parts else iter(())


def _candidates(root: Path, dotted: str) -> Iterator[Path]:
    # The dotted name is made of identifiers, so no part of it can be `..` or hold a slash.
    for base in code_directories(str(root)):
        below = Path(base, *dotted.split("."))
        yield below / "__init__.py"
        yield below.with_name(f"{below.name}.py")


def _absolute(imported: Imported, dotted: str, is_package: bool) -> str | None:
    if not imported.level:
        return imported.module
    package = dotted.split(".") if is_package else dotted.split(".")[:-1]
    kept = len(package) - (imported.level - 1)
    if kept < 1:
        return None
    return ".".join([*package[:kept], *([imported.module] if imported.module else [])])


_OURS = "licet"
# A review follows imports too, and files may be hostile. Modules beyond these limits are not found, so not loaded.
_MOST_BYTES = 8 << 20
_MOST_NAMES = 100_000  # names that these files import
_MOST_TOP_NAMES = 2000  # top-level names that no library has; each is closed in every searched directory
_ENDINGS = ("", ".py", *importlib.machinery.EXTENSION_SUFFIXES)
# Compiled files without source are not loaded, since they cannot be reviewed.
_LOADERS = (
    (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
)


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
            tails = {f"{name}{ending}" for ending in _ENDINGS}
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
        return any(os.path.isfile(os.path.join(path, f"__init__{ending}")) for ending in _ENDINGS[1:])
    return os.path.isfile(path) and path.endswith(_ENDINGS[1:])


def project_modules(references: Iterable[str], roots: Iterable[str | os.PathLike[str]]) -> ProjectModules:
    """The modules of `pkg.mod:function` references below some directories, and the project modules that these import.

    Conditional imports, imports inside functions, and `import_module` with a literal name are followed. Names that are
    computed at run time are not.
    """
    named = [reference.partition(":")[0] for reference in references]
    named = [name for name in named if name.partition(".")[0] not in ("", _OURS)]
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
    found = followed(known, project.place, most_bytes=_MOST_BYTES, most_names=_MOST_NAMES)
    return ProjectModules(found, *project.paths(), _wasm(found.values())) if named else ProjectModules({}, (), ())


def _wasm(places: Iterable[ModulePlace]) -> tuple[str, ...]:
    """The WebAssembly modules that some source files declare as tools, up to a limit of source."""
    files = [place.file for place in places if place.file is not None and place.file.endswith(".py")]
    sizes = accumulate(os.stat(file).st_size if os.path.isfile(file) else 0 for file in files)
    read = (file for file, size in zip(files, sizes, strict=True) if size <= _MOST_BYTES)
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
                paths = (os.path.join(directory, f"{name}{ending}") for ending in _ENDINGS)
                (missing if self._places[name] is None else second).extend(paths)
        return tuple(missing), tuple(second)

    def _found(self, name: str) -> ModulePlace | None:
        parent, _, last = name.rpartition(".")
        if not last.isidentifier():
            return None
        if not parent:
            if name not in self._named and self._is_library(name):
                return None
            if len(self._top_names) >= _MOST_TOP_NAMES and name not in self._named:
                return None
            self._top_names[name] = None
            directories: Sequence[str] = self._directories
        elif self.place(parent) is None:
            return None
        else:
            directories = self._package_directories.get(parent, ())
        return self._search(name, directories)

    def _is_library(self, top: str) -> bool:
        if top == _OURS or top in sys.stdlib_module_names or top in self._installed:
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
            finder = self._finders[directory] = importlib.machinery.FileFinder(directory, *_LOADERS)
        return finder.find_spec(name)
