"""Imports modules from a fixed list of files: what is not on the list is not found, whatever is on disk."""

import importlib.machinery
import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from msgspec import Struct


class ModulePlace(Struct, frozen=True):
    """Where a module is: its file, or None for a package without one; and its directory if it is a package."""

    file: str | None
    directory: str | None


class FromText(importlib.machinery.SourceFileLoader):
    """Compiles a file from its text, and never reads what was compiled of it: a grant may write there."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Nothing: without the time and size of a file, its compiled form is not looked for."""
        raise OSError


def module_spec(
    name: str, file: str | None, search: Sequence[Any] | None, source: Any = FromText
) -> importlib.machinery.ModuleSpec | None:
    """What Python needs to load one module; `search` becomes the `__path__` of a package, `source` loads its text."""
    inside: list[Any] | None = list(search) if search is not None else None
    if file is None:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = inside
        return spec
    # A script may have any name, so the loader is named and not guessed.
    extension = file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    loader: Any = importlib.machinery.ExtensionFileLoader if extension else source
    return importlib.util.spec_from_file_location(
        name, file, loader=loader(name, file), submodule_search_locations=inside
    )


class KnownModules:
    """A finder for `sys.meta_path` that has these modules and no others.

    Their packages are not searched either: Python skips entries of a `__path__` that are no text, and here they are
    path objects. So a submodule that is planted later is never found, while the package still tells where it lies.
    """

    def __init__(self, modules: Mapping[str, ModulePlace]) -> None:
        self.modules = dict(modules)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Where a module is, if it is on the list."""
        place = self.modules.get(name)
        if place is None:
            return None
        return module_spec(name, place.file, None if place.directory is None else [pathlib.Path(place.directory)])
