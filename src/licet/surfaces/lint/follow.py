"""Follows a tool from its function into the helpers that it calls and the modules that it imports.

Calls and other mentions of project functions are followed. The methods of a class count if the class is used and
something names them. Code at module level counts for every tool of the modules that import it.
"""

import ast
from collections.abc import Iterator

from msgspec import Struct

from licet.core.origin import Origin
from licet.surfaces.lint.meaning import meaning
from licet.surfaces.lint.scopes import Function
from licet.surfaces.lint.source_file import Class, Code, SourceFile
from licet.surfaces.lint.touched import Imported, Touched, touched_by
from licet.surfaces.lint.use import Use

_MOST_FUNCTIONS = 5000  # that one tool reaches


class Hop(Struct, frozen=True):
    """One step on the way from a tool to a line: the code that is entered, and where it is called from."""

    name: str
    called: Origin | None  # None for the tool itself
    is_import: bool = False


class FoundImport(Struct, frozen=True):
    """An import of a package, and the file that it is in."""

    imported: Imported
    file: SourceFile


class Piece(Struct, frozen=True, eq=False):
    """A function or a module that a tool reaches, and what it does by itself."""

    code: Code | SourceFile
    does: Touched

    @property
    def is_module(self) -> bool:
        return isinstance(self.code, SourceFile)

    @property
    def file(self) -> SourceFile:
        return self.code.file if isinstance(self.code, Code) else self.code


class Reached(Struct, frozen=True, eq=False):
    """All code behind a tool."""

    pieces: tuple[Piece, ...]
    walk: "_Walk"

    def way_to(self, piece: Piece) -> tuple[Hop, ...]:
        """The way from the tool to a piece of its code."""
        return self.walk.way_to(piece.code)

    def uses(self) -> Iterator[Use]:
        """Everything that the code uses."""
        return (use for piece in self.pieces for use in piece.does.uses)

    def imports(self) -> Iterator[FoundImport]:
        """All imports of packages."""
        return (FoundImport(one, piece.file) for piece in self.pieces for one in piece.does.imports)

    def escaped(self) -> frozenset[str]:
        """The handles that code which was not read may use."""
        return frozenset().union(*(piece.does.escaped for piece in self.pieces))

    def lines(self) -> Iterator[tuple[str, int, int]]:
        """The functions that were read: their file, first and last line."""
        for piece in self.pieces:
            if isinstance(piece.code, Code):
                node = piece.code.node
                yield piece.file.text.file, node.lineno, node.end_lineno or node.lineno


class Follower:
    """Follows several tools. What each function does by itself is read once."""

    def __init__(self) -> None:
        self._touched: dict[ast.AST, Touched] = {}

    def of_tool(self, file: SourceFile, function: Function) -> Reached:
        """What a tool does, with the import of its module."""
        return self._reached([file, Code(file, function)])

    def of_module(self, file: SourceFile) -> Reached:
        """What all code of a file does, also functions that no tool calls."""
        return self._reached([file, *_functions(file)])

    def _does(self, one: Code | SourceFile) -> Touched:
        node = one.node if isinstance(one, Code) else one.text.tree
        if node not in self._touched:
            file = one.file if isinstance(one, Code) else one
            self._touched[node] = touched_by(file.scope_of(one) if isinstance(one, Code) else file.scope, file)
        return self._touched[node]

    def _reached(self, start: list[Code | SourceFile]) -> Reached:
        walk = _Walk()
        for one in start:
            walk.enter(one, None, None)
        pieces: list[Piece] = []
        while walk.waiting and len(walk.came) < _MOST_FUNCTIONS:
            one = walk.waiting.pop()
            does = self._does(one)
            pieces.append(Piece(one, does))
            for step in does.steps:
                if isinstance(step.to, Class):
                    walk.use_class(step.to, one, step.line)
                else:
                    walk.enter(step.to, one, step.line)
            if isinstance(one, Code) and one.node.decorator_list:
                for mark in one.node.decorator_list:
                    found = meaning(mark.func if isinstance(mark, ast.Call) else mark, one.file.scope, one.file)
                    if isinstance(found, Code):
                        walk.enter(found, one, one.node.lineno)
            walk.name_attributes(does.attributes)
        return Reached(tuple(pieces), walk)


class _Walk:
    """The code that is still to be read, and how each piece was reached."""

    def __init__(self) -> None:
        self.waiting: list[Code | SourceFile] = []
        self.came: dict[ast.AST, tuple[Code | SourceFile, Code | SourceFile | None, int | None]] = {}
        self._attributes: set[str] = set()
        self._methods: dict[str, list[tuple[Code, Code | SourceFile, int]]] = {}  # not named by anything so far
        self._classes: set[ast.ClassDef] = set()

    def enter(self, one: Code | SourceFile, by: Code | SourceFile | None, line: int | None) -> None:
        node = _node(one)
        if node not in self.came:
            self.came[node] = (one, by, line)
            self.waiting.append(one)

    def use_class(self, one: Class, by: Code | SourceFile, line: int) -> None:
        if one.node in self._classes:
            return
        self._classes.add(one.node)
        for name, bindings in one.body.bindings.items():
            for _, what, _ in bindings:
                if not isinstance(what, Function):
                    continue
                method = Code(one.file, what, one)
                if name.startswith("__") or name in self._attributes:
                    self.enter(method, by, line)
                else:
                    self._methods.setdefault(name, []).append((method, by, line))
        for base in one.node.bases[:8]:
            above = meaning(base, one.around, one.file)
            if isinstance(above, Class):
                self.use_class(above, by, line)

    def name_attributes(self, names: frozenset[str]) -> None:
        for name in names - self._attributes if self._methods else ():
            for method, by, line in self._methods.pop(name, ()):
                self.enter(method, by, line)
        self._attributes |= names

    def way_to(self, one: Code | SourceFile) -> tuple[Hop, ...]:
        way: list[Hop] = []
        at: Code | SourceFile | None = one
        while at is not None and len(way) < 50:
            _, by, line = self.came[_node(at)]
            called = None
            if by is not None and line is not None:
                file = by.file if isinstance(by, Code) else by
                called = Origin(file.text.file, line, 1)
            if isinstance(at, Code):
                way.append(Hop(at.name, called))
            else:
                way.append(Hop(f"import {at.module}", called, is_import=True))
            at = by
        return tuple(reversed(way))


def _node(one: Code | SourceFile) -> ast.AST:
    return one.node if isinstance(one, Code) else one.text.tree


def _functions(file: SourceFile) -> Iterator[Code]:
    """All functions and methods of a file at module level and in its classes."""
    for bindings in file.scope.bindings.values():
        for _, what, _ in bindings:
            if isinstance(what, Function):
                yield Code(file, what)
    for node in file.scope.classes:
        owner = file.class_of(node, file.scope)
        for bindings in owner.body.bindings.values():
            yield from (Code(file, what, owner) for _, what, _ in bindings if isinstance(what, Function))
