"""Finds modules of installed packages on the import path. Nothing is imported.

To find `pkg.mod`, Python itself imports `pkg`, and so runs its code. Here each part of the name is looked up in the
directories of the part before it, in the order that Python uses. Modules that cannot be reviewed from a source file in
such a directory are refused with the reason: in zip files, behind import hooks, and compiled without source.
"""

import importlib.machinery
import os
import re
import sys
import zipimport
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from licet.modules.imports import with_parents
from licet.regular_files import read_regular

__all__ = ["InstalledModule", "Unusable", "find_installed", "installed_paths", "shadow"]

_OURS = "licet"
_MOST_BYTES = 1 << 20  # of a file that sets up an import hook
_LOADERS = (
    (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
    (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
)


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
    if top == _OURS or top in sys.stdlib_module_names:
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
    if top == _OURS or top in sys.stdlib_module_names:
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
        text = read_regular(file, _MOST_BYTES).decode(errors="replace")
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
