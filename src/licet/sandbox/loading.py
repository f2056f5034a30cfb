"""Loading a tool inside its walls: by file, under a name that runs nothing but definitions."""

import importlib
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from licet.declare import Tool
from licet.guard.module_finder import FromText, module_spec


class Given:
    """Finds the modules that a worker was given, by name. Directories cannot be listed here, so nothing is searched."""

    def __init__(self, modules: Mapping[str, Sequence[str | None]], *, bytecode: bool) -> None:
        self._modules = modules
        self._source: Any = importlib.machinery.SourceFileLoader if bytecode else FromText

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Where a module is, if it is one of these."""
        if name not in self._modules:
            return None
        file, directory = self._modules[name]
        return module_spec(name, file, None if directory is None else [directory], self._source)


def load(
    module: str, qualname: str, modules: Mapping[str, Sequence[str | None]], path: Sequence[str], *, bytecode: bool
) -> Any:
    """The function of a tool; its module and the modules that it imports run now, behind the walls.

    Without `bytecode` files are compiled from their text: what was compiled earlier lies where a grant may write.
    """
    sys.path[:] = path
    # What the zygote had under one of these names is another module.
    for name in [name for name in modules if name in sys.modules]:
        del sys.modules[name]
    sys.meta_path.insert(0, Given(modules, bytecode=bytecode))
    found = getattr(importlib.import_module(module), qualname)
    return found.fn if isinstance(found, Tool) else found
