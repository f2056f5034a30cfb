"""The source of a tool that was defined in a notebook cell, or at a prompt that keeps what was typed.

Such a tool has no file that a worker could load. It is sent as text: its function, and the imports, functions, classes
and literal constants that it names, as they are when the gate is built. Nothing else of the notebook is sent.
"""

import __future__

import ast
import builtins
import hashlib
import linecache
import os
import symtable
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.declare.decorator import Tool, with_spec

MODULE = "licet_cell"  # the name of the module in a worker
_MOST = 100_000  # characters of a constant: more is data, and belongs into arguments or files
_LITERALS = (type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set)
# The file of everything that code has made from text, such as the methods of a dataclass. From Python 3.13 the text
# after `python -c` is kept under this name, and is not the source of any of these.
_MADE = "<string>"
_INSTEAD = "pass it as an argument, or make it inside the tool"


class NoSource(Exception):
    """Why a function cannot be sent as text."""


class CellPiece(Struct, frozen=True):
    """One statement: where it was written, and its text."""

    file: str
    line: int
    text: str


class CellSource(Struct, frozen=True):
    """All statements that a function needs, in the order in which they have to run; the function is the last."""

    pieces: tuple[CellPiece, ...]
    flags: int  # of the compiler: `from __future__ import annotations` in an earlier cell counts for all later ones

    @property
    def text(self) -> str:
        """The text of all pieces."""
        return "\n".join(piece.text for piece in self.pieces)

    @property
    def digest(self) -> str:
        """The hash of the text."""
        text = f"{self.flags}\n{self.text}"
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def with_cell(tool: Tool) -> Tool:
    """The tool with the text of its cells as it is now, which its digest covers; the same tool if it has a file."""
    try:
        cell = cell_of(tool.fn) if type(tool) is Tool else None
    except NoSource:  # the sandbox refuses it and says why; at `native` no text is needed
        return tool
    if cell is None:
        return tool
    now = with_spec(tool, replace(tool.spec, source=cell.digest))
    vars(now)["cell"] = cell
    return now


def cell_of(fn: Callable[..., Any]) -> CellSource | None:
    """The source of a function that was defined in a cell; None if it has a file. Raises `NoSource`."""
    code = getattr(fn, "__code__", None)
    if not isinstance(fn, FunctionType) or code is None or os.path.isfile(code.co_filename):
        return None
    if code.co_filename == _MADE or not linecache.getlines(code.co_filename):
        raise NoSource("it was typed at a prompt, or made by code, and its source was not kept")
    gathered = _Gathered(fn.__globals__)
    gathered.add_function(fn)
    return CellSource(tuple(gathered.pieces), code.co_flags & __future__.annotations.compiler_flag)


class _Gathered:
    """Statements, each after those that it needs."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.pieces: list[CellPiece] = []
        self._names = names
        self._seen: set[str] = set()

    @cached_property
    def _cells(self) -> list[tuple[str, ast.Module]]:
        """Every cell that Python knows the text of, newest first."""
        names = [name for name in linecache.cache if name != _MADE and not os.path.isfile(name)]
        return [(name, tree) for name in reversed(names) if (tree := _parsed(name)) is not None]

    def add_function(self, fn: FunctionType) -> None:
        """Add the definition of a function, after everything that it names."""
        code = fn.__code__
        if code.co_freevars or "<locals>" in fn.__qualname__:
            raise NoSource(f"`{fn.__name__}` is defined inside a function, and may use its variables")
        self._seen.add(fn.__name__)
        tree = _parsed(code.co_filename) if code.co_filename != _MADE else None
        for node in tree.body if tree is not None else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _first_line(node) == code.co_firstlineno:
                self._add_definition(code.co_filename, node)
                return
        raise NoSource(f"the source of `{fn.__name__}` was not found at the top of its cell")

    def _add_definition(self, file: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        first = _first_line(node)
        text = "".join(linecache.getlines(file)[first - 1 : node.end_lineno])
        for name in sorted(_free_names(text)):
            self._add_name(name)
        self.pieces.append(CellPiece(file, first, text))

    def _add_name(self, name: str) -> None:
        if name in self._seen or (name not in self._names and hasattr(builtins, name)) or name == "__name__":
            return
        self._seen.add(name)
        if name not in self._names:
            raise NoSource(f"it names `{name}`, which is not defined")
        value = self._names[name]
        if found := list(self._imports(name, value)):
            self.pieces += found
        elif isinstance(function := _function_in(value), FunctionType) and self._is_own(function):
            if function.__name__ != name:
                raise NoSource(f"it names `{name}`, which is another name of `{function.__name__}`: use that one")
            self.add_function(function)
        elif isinstance(value, type) and self._is_own(value):
            self._add_class(name, value)
        elif isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            self.pieces.append(CellPiece("<imports>", 1, f"import {value.__name__} as {name}\n"))
        elif _importable(value):
            text = f"from {value.__module__} import {value.__name__} as {name}\n"
            self.pieces.append(CellPiece("<imports>", 1, text))
        elif text := _literal(value):
            self.pieces.append(CellPiece("<constants>", 1, f"{name} = {text}\n"))
        else:
            kind = type(value).__name__
            raise NoSource(f"it names `{name}` ({kind}), whose source is not known: {_INSTEAD}")

    def _is_own(self, value: Any) -> bool:
        return getattr(value, "__module__", None) == self._names.get("__name__")

    def _add_class(self, name: str, value: type) -> None:
        methods = [method for method in vars(value).values() if isinstance(method, FunctionType)]
        written = {method.__code__.co_filename for method in methods} - {_MADE}
        cells = [(file, tree) for file, tree in self._cells if file in written] or self._cells
        for file, tree in cells:
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and node.name == name == value.__name__:
                    self._add_definition(file, node)
                    return
        raise NoSource(f"it names `{name}`, a class whose source is not known: {_INSTEAD}")

    def _imports(self, name: str, value: Any) -> Iterator[CellPiece]:
        """The import statements of the cells that give this value this name."""
        for file, tree in self._cells:
            for node in tree.body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    for alias in node.names:
                        if (text := _import_of(node, alias, name, value)) is not None:
                            yield CellPiece(file, node.lineno, text)


def _import_of(node: ast.Import | ast.ImportFrom, alias: ast.alias, name: str, value: Any) -> str | None:
    renamed = f" as {alias.asname}" if alias.asname else ""
    if isinstance(node, ast.Import):
        bound = alias.asname or alias.name.partition(".")[0]
        module = sys.modules.get(alias.name if alias.asname else bound)
        return f"import {alias.name}{renamed}\n" if bound == name and module is value else None
    if (alias.asname or alias.name) != name or node.level or not node.module:
        return None
    there = vars(sys.modules.get(node.module, builtins)).get(alias.name, sys.modules.get(f"{node.module}.{alias.name}"))
    lazily = getattr(sys.modules.get(node.module), alias.name, None)
    return f"from {node.module} import {alias.name}{renamed}\n" if value is there or value is lazily else None


def _function_in(value: Any) -> Any:
    """The function that a cell defines under a name: a tool, and a decorated function, wrap it."""
    if isinstance(value, Tool):
        return value.fn
    wrapped = getattr(value, "__wrapped__", None) if not isinstance(value, type | ModuleType) else None
    return value if wrapped is None else wrapped


def _importable(value: Any) -> bool:
    """Whether a function or class is found under its name in a module that is not the notebook."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or not name.isidentifier():
        return False
    return getattr(sys.modules.get(module), name, None) is value


def _literal(value: Any) -> str:
    """A constant as Python text; empty if it is none."""
    if type(value) not in _LITERALS:
        return ""
    text = repr(value)
    if len(text) > _MOST:
        return ""
    try:
        same = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    return text if type(same) is type(value) and same == value else ""


def _parsed(name: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(name)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min((one.lineno for one in node.decorator_list), default=node.lineno)


def _free_names(text: str) -> set[str]:
    """The global names that a statement uses, now or when it is called, and does not define itself."""
    top = symtable.symtable(text, "<cell>", "exec")
    defined = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_namespace()}
    used = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    left = list(top.get_children())
    while left:
        table = left.pop()
        left += table.get_children()
        used |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
        used |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_declared_global()}
    return used - defined
