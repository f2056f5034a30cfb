"""Imports modules from the source files that a review reads: from a fixed list, or of installed packages.

The paths at which Python would find the code of tools that a manifest names with `from:`, and the directories of its
libraries. Nothing is imported.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader
from types import ModuleType
from typing import Any

from msgspec import Struct

from licet.core.policy.layer import CODE, SECOND_CODE

_LIBRARY_NAMES = ("site-packages", "dist-packages", "lib-dynload")


class ModulePlace(Struct, frozen=True):
    """The file of a module (None for a namespace package), and its directory if it is a package."""

    file: str | None
    directory: str | None


class FromText(SourceFileLoader):
    """Loads a module from its source, and never from a `.pyc` file, which a tool may have written."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Fail: without the time and size of the source, Python does not use a `.pyc` file."""
        raise OSError


def module_spec(
    name: str, file: str | None, search: Sequence[Any] | None, source: type[SourceFileLoader] = FromText
) -> importlib.machinery.ModuleSpec | None:
    """The spec to import one module. `search` is the `__path__` of a package, `source` the loader of source files."""
    inside: list[Any] | None = list(search) if search is not None else None
    if file is None:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = inside
        return spec
    # A script may have any file name, so Python cannot guess the loader.
    extension = file.endswith(tuple(EXTENSION_SUFFIXES))
    loader: type[ExtensionFileLoader | SourceFileLoader] = ExtensionFileLoader if extension else source
    return importlib.util.spec_from_file_location(
        name, file, loader=loader(name, file), submodule_search_locations=inside
    )


class KnownModules:
    """A finder for `sys.meta_path` that finds these modules and no others.

    Python does not search their packages either: it skips entries of a `__path__` that are not text, and here they are
    path objects. So a submodule that is planted later is not found, and code can still read where the package is.
    """

    def __init__(self, modules: Mapping[str, ModulePlace]) -> None:
        self.modules = dict(modules)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module on the list; otherwise None."""
        place = self.modules.get(name)
        if place is None:
            return None
        return module_spec(name, place.file, None if place.directory is None else [pathlib.Path(place.directory)])


class InstalledSource:
    """A finder for `sys.meta_path` that loads some installed packages from their source.

    A review reads the source, and a lock has its hash. A compiled file could do something else.
    """

    def __init__(self) -> None:
        self.packages: set[str] = set()  # top-level names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of these packages, as Python finds it on the import path; otherwise None."""
        if name.partition(".")[0] not in self.packages:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return spec
        if isinstance(spec.loader, importlib.machinery.SourcelessFileLoader):
            raise ModuleNotFoundError(f"{spec.origin} is compiled and has no source, so it is not loaded", name=name)
        if type(spec.loader) is importlib.machinery.SourceFileLoader:
            return module_spec(name, spec.origin, spec.submodule_search_locations)
        return spec


ENDINGS = ("", ".py", *EXTENSION_SUFFIXES)  # of a top-level package or module, as Python looks for it
OURS = "licet"  # it is imported already, so a new file cannot replace it


def code_directories(directory: str) -> tuple[str, str]:
    """The directories to search for the tools of a policy file in `directory`: itself and its `src`."""
    return directory, os.path.join(directory, "src")


def tool_files(references: Iterable[str], directory: str) -> Iterator[tuple[str, str]]:
    """Each path at which the code of `pkg.mod:f` is or would be found, with the reason why it is closed for writing.

    These are the top module as a package or as a file, and the cache of compiled files. If one of them exists, the
    reason for the others is `SECOND_CODE`: loading refuses a module that is in two places.
    """
    places = code_directories(directory)
    for top in dict.fromkeys(reference.partition(":")[0].partition(".")[0] for reference in references):
        if top in ("", OURS):
            continue
        names = [f"{top}{ending}" for ending in ENDINGS]
        paths = [os.path.join(place, name) for place in places for name in names]
        known = any(map(os.path.lexists, paths))
        for path in paths:
            yield from _both(path, SECOND_CODE if known and not os.path.lexists(path) else CODE)
        for place in places:
            yield from _both(os.path.join(place, "__pycache__"), SECOND_CODE)


def _both(path: str, why: str) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys((path, os.path.realpath(path))):
        yield name, why


def library_directories() -> tuple[str, ...]:
    """The real directories of the standard library and of installed packages that this process imports from."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [path for path in sys.path if os.path.basename(path) in _LIBRARY_NAMES]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if os.path.isdir(path)))
