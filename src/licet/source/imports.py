"""Finds modules by name, below the directory of a policy and on the import path, and follows what they import.

Nothing is imported. To find `pkg.mod`, Python itself imports `pkg`, and so runs its code. Here each part of the name is
looked up in the directories of the part before it, in the order that Python uses. Modules that cannot be reviewed from
a source file in such a directory are refused with the reason: in zip files, behind import hooks, and compiled without
source.
"""

import ast
import importlib.machinery
import importlib.util
import os
import re
import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path

from msgspec import Struct

from licet.core.late_pattern import late_pattern
from licet.core.values import Origin, Problem
from licet.own_files import read_regular
from licet.source.finder import OURS, ModulePlace, code_directories
from licet.source.limits import LARGEST_HOOK, LARGEST_SOURCE, LONGEST_MODULE_NAME, LONGEST_REFERENCE, MOST_MODULES
from licet.source.scopes import absolute, with_parents
from licet.source.source_files import module_files, too_expensive_to_parse


def followed(
    start: Mapping[str, ModulePlace],
    locate: Callable[[str], ModulePlace | None],
    *,
    most_bytes: float = inf,
    most_names: float = inf,
) -> dict[str, ModulePlace]:
    """The modules in `start`, their packages, and all modules that they import and that `locate` finds.

    After `most_bytes` of source, or `most_names` imported names, imports are not followed further.
    """
    found: dict[str, ModulePlace] = {}
    left = list(start.items())
    while left and len(found) < MOST_MODULES:
        name, place = left.pop()
        if name in found:
            continue
        found[name] = place
        wanted = [name.rpartition(".")[0]]
        if place.file is not None and most_bytes >= 0 and most_names >= 0:
            most_bytes -= _size(place.file)
            wanted += imported_names(place.file, name, is_package=place.directory is not None)
        most_names -= len(wanted)
        unseen = [(other, locate(other)) for other in wanted if other and other not in found]
        left += [(other, there) for other, there in unseen if there is not None]
    return found


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return 0


def imported_names(file: str, name: str, *, is_package: bool) -> tuple[str, ...]:
    """The names that a source file imports anywhere, each preceded by its parent packages."""
    try:
        return _names(file, name, is_package, os.stat(file).st_mtime_ns)
    except OSError:
        return ()


@lru_cache(4096)
def _names(file: str, name: str, is_package: bool, changed: int) -> tuple[str, ...]:
    if file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return ()
    try:
        text = _text(file)
    except (OSError, ValueError, LookupError, SyntaxError):
        return ()
    return imports_of(text, name if is_package else name.rpartition(".")[0])


def imports_of(text: str, package: str = "") -> tuple[str, ...]:
    """The names that a source text imports anywhere, each preceded by its parent packages."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names = (dotted for dotted in _imports(tree, package) if len(dotted) <= LONGEST_MODULE_NAME)
    return tuple(dict.fromkeys(above for dotted in names for above in with_parents(dotted)))


def _text(file: str) -> str:
    data = read_regular(file, LARGEST_SOURCE)
    text = importlib.util.decode_source(data)  # before counting: in UTF-7 much code can look like one word
    if too_expensive_to_parse(text):
        raise ValueError("a source file that takes too much memory to parse")
    return text


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                if base := absolute(module or "", level, package):
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in names if alias.name != "*")
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(str() as text), *_]
            ):
                name = text.lstrip(".")
                if called in ("import_module", "__import__") and (
                    base := absolute(name, len(text) - len(name), package)
                ):
                    yield base


SOURCE_LOADERS = (
    (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
)
_LOADERS = (*SOURCE_LOADERS, (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES))


class InstalledModule(Struct, frozen=True):
    """A module with source on the import path."""

    dotted: str
    file: str
    entry: str  # the directory of the import path that it was found in
    packages: tuple[tuple[str, str], ...] = ()  # the packages that it lies in, outermost first: name and file

    @property
    def loaded(self) -> tuple[tuple[str, str], ...]:
        """Every module that an import of this one runs first, and this one: name and file."""
        return (*self.packages, (self.dotted, self.file))


class Unusable(Struct, frozen=True):
    """Why a module that Python might import cannot be reviewed."""

    found: str
    expected: str
    hint: str


class _Place(Struct, frozen=True):
    """What one name is: a module with a file, or a namespace package, which has only directories."""

    file: str
    directories: tuple[tuple[str, str], ...]  # of a package, each with its entry of the import path
    entry: str = ""


def find_installed(dotted: str) -> InstalledModule | Unusable | None:
    """Find a module on the import path; None if there is none."""
    top = dotted.partition(".")[0]
    if top == OURS or top in sys.stdlib_module_names:
        return None
    directories: Sequence[tuple[str, str]] = [(entry, entry) for entry in _entries()]
    packages: list[tuple[str, str]] = []
    for name in with_parents(dotted):
        place = _place(name, directories)
        if isinstance(place, Unusable):
            return place
        if place is None:
            break
        if name == dotted:
            return InstalledModule(dotted, place.file, place.entry, tuple(packages)) if place.file else None
        if place.file:  # a namespace package has none
            packages.append((name, place.file))
        directories = place.directories
    return _hook(top)


def installed_paths(references: Iterable[str]) -> Iterator[str]:
    """The installed packages and modules that `pkg.mod:function` references name: their directories and files."""
    for dotted in dict.fromkeys(reference.partition(":")[0] for reference in references):
        module = find_installed(dotted)
        for _, file in module.loaded if isinstance(module, InstalledModule) else ():
            yield os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file


def shadow(top: str) -> str:
    """The file of a top-level module on the import path; empty if there is none, or only a namespace package."""
    if top == OURS or top in sys.stdlib_module_names:
        return ""
    for entry in _entries():
        place = _place(top, [(entry, entry)])
        if isinstance(place, Unusable):
            return entry
        if place is not None and place.file:
            return place.file
    return ""


def _entries() -> Iterator[str]:
    """The entries of the import path, made absolute. Some may be zip files, or not exist."""
    stated = (entry for entry in sys.path if isinstance(entry, str))  # Python ignores others
    return iter(dict.fromkeys(map(os.path.abspath, stated)))


def _place(name: str, directories: Iterable[tuple[str, str]]) -> _Place | Unusable | None:
    portions: list[tuple[str, str]] = []
    for directory, entry in directories:
        if not os.path.isdir(directory):
            if _in_zip(directory, name):
                found, hint = f"`{name}` in the zip file {directory}", "unpack it, or install it with pip"
                return Unusable(found, "a module in a directory", hint)
            continue
        # A new finder each time: Python's own keeps a list of the files, which may be old.
        spec = importlib.machinery.FileFinder(directory, *_LOADERS).find_spec(name)
        if spec is None:
            continue
        inside = tuple((path, entry) for path in spec.submodule_search_locations or ())
        if spec.loader is None:
            portions += inside
        elif isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return _Place(spec.origin or "", inside, entry)
        else:
            found, expected = f"`{name}` without source ({spec.origin})", "a module with source"
            hint = "compiled code cannot be reviewed: wrap it in a tool of your own, or declare `needs:` inline"
            return Unusable(found, expected, hint)
    return _Place("", tuple(portions)) if portions else None


def _in_zip(entry: str, name: str) -> bool:
    try:
        return zipimport.zipimporter(entry).find_spec(name) is not None
    except (zipimport.ZipImportError, OSError, ValueError):  # it does not exist, or is no zip file
        return False


# Editable installs ----------------------------------------------------------------------------------------------------


def _hook(top: str) -> Unusable | None:
    """Why a module is in no directory of the import path: an editable install provides it.

    It does that with an import hook, or with a `.pth` file. Commands of licet use neither: they lead into projects.
    """
    for entry in _entries():
        for file in _hook_files(entry):
            if _is_about(file, top):
                found = f"`{top}`, which an editable install provides ({file})"
                hint = "install it without `-e`, or put the policy next to its source"
                return Unusable(found, "a module in a directory of the import path", hint)
    return None


def _hook_files(entry: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(entry))
    except OSError:
        return
    for name in names:
        if name.endswith((".pth", ".egg-link")) or (name.startswith(("__editable_", "_editable_")) and ".py" in name):
            yield os.path.join(entry, name)


def _is_about(file: str, top: str) -> bool:
    """Whether a file makes a module importable: by its own name, or by a name in its text."""
    try:
        text = read_regular(file, LARGEST_HOOK).decode(errors="replace")
    except OSError:
        return False
    if file.endswith(".pth") and not any(line.startswith(("import ", "import\t")) for line in text.splitlines()):
        return any(_leads_to(os.path.join(os.path.dirname(file), line.strip()), top) for line in text.splitlines())
    words = re.split(r"[^a-z0-9]+", os.path.basename(file).lower())
    own = "_".join(word for word in words if word)
    wanted = re.sub(r"_+", "_", top.lower()).strip("_")
    return f"_{wanted}_" in f"_{own}_" or f"'{top}'" in text or f'"{top}"' in text


def _leads_to(directory: str, top: str) -> bool:
    """Whether a directory, which a `.pth` file names and the import path does not have, has a module."""
    try:
        return os.path.isfile(os.path.join(directory, f"{top}.py")) or os.path.isdir(os.path.join(directory, top))
    except ValueError:  # no path at all
        return False


# Modules below the directory of a policy ---------------------------------------------------------------------------


_READY_MADE = ("licet", "tools")
INSTALLED = Path(__file__).parents[2]  # the directory that contains the package licet
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = late_pattern(rf"({_IDENTIFIER}(?:\.{_IDENTIFIER})*):({_IDENTIFIER})")


def split_reference(reference: str) -> re.Match[str] | None:
    """The module and the function of `pkg.mod:func`, as the groups of a match; None for any other text."""
    return _REFERENCE.fullmatch(reference) if len(reference) <= LONGEST_REFERENCE else None


def locate(dotted: str, roots: Sequence[Path], origin: Origin) -> Path | InstalledModule | Problem:
    """The file of a module below the first root that has it, else on the import path.

    A link to a file outside that root is a problem, and so is a module that is in both places.
    """
    if (*dotted.split("."), "", "")[:2] == _READY_MADE:
        # Only there: an import would not use a directory of that name next to a manifest.
        found, looked = _below((INSTALLED,), dotted, origin)
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


def source_candidates(reference: str, root: Path) -> Iterator[Path]:
    """The files in which the module of `pkg.mod:func` may be, below the root of a policy."""
    parts = split_reference(reference)
    return _candidates(root, parts[1]) if parts else iter(())


def _candidates(root: Path, dotted: str) -> Iterator[Path]:
    return (Path(file) for base in code_directories(str(root)) for file in module_files(base, dotted))
