"""A parsed file with its scopes, and what an expression in it can mean. `meaning.py` finds out which."""

import ast
from functools import cached_property
from typing import Protocol

from msgspec import Struct

from licet.policy_files.source.text import SourceText
from licet.surfaces.lint.scopes import Function, Scope, function_scope, module_scope


class Named(Struct, frozen=True):
    """Something outside of the project, by its full name."""

    name: str


class Value(Struct, frozen=True):
    """A value of a type in the table."""

    kind: str


class Code(Struct, frozen=True, eq=False):
    """A function of the project. `owner` is its class, if it is a method."""

    file: "SourceFile"
    node: Function
    owner: "Class | None" = None

    @property
    def name(self) -> str:
        return f"{self.owner.node.name}.{self.node.name}" if self.owner else self.node.name


class Class(Struct, frozen=True, eq=False):
    """A class of the project."""

    file: "SourceFile"
    node: ast.ClassDef
    body: Scope
    around: Scope


class Instance(Struct, frozen=True, eq=False):
    """A value of a class of the project."""

    of: Class


class Package(Struct, frozen=True, eq=False):
    """A module of the project."""

    file: "SourceFile"


class Held(Struct, frozen=True, eq=False):
    """A table at module level, or something that was taken out of it: any of the functions that it holds."""

    file: "SourceFile"
    scope: Scope
    table: ast.expr


Meaning = Named | Value | Code | Class | Instance | Package | Held | None


class SourceFile:
    """One parsed file: its text, its full module name, and its scopes. Functions are walked when they are needed."""

    def __init__(self, path: str, module: str, is_package: bool, text: SourceText, project: "Finder") -> None:
        self.path, self.module, self.is_package, self.text, self.project = path, module, is_package, text, project
        self.names: dict[tuple[Scope, str], Meaning] = {}  # each name is looked up once
        self._functions: dict[ast.AST, Scope] = {}
        self._classes: dict[ast.ClassDef, Class] = {}
        self._owners: dict[ast.AST, Class] = {}
        self.held: dict[ast.expr, tuple[Code | Class, ...]] = {}

    @cached_property
    def scope(self) -> Scope:
        """The module itself."""
        return module_scope(self.text.tree, self.text.lines)

    def scope_of(self, code: Code) -> Scope:
        """The scope of a function at module level, or of a method."""
        if code.node not in self._functions:
            around = code.owner.around if code.owner else self.scope
            scope = self._functions[code.node] = function_scope(code.node, around)
            arguments = [*code.node.args.posonlyargs, *code.node.args.args]
            if code.owner is not None and arguments and not _is_static(code.node):
                self._owners[scope.node] = code.owner
        return self._functions[code.node]

    def owner_of(self, scope: Scope) -> "Class | None":
        """The class whose method a scope is, if its first parameter is the object."""
        return self._owners.get(scope.node)

    def class_of(self, node: ast.ClassDef, around: Scope) -> Class:
        if node not in self._classes:
            self._classes[node] = Class(self, node, around.classes[node], around)
        return self._classes[node]

    def imported(self, node: ast.Import | ast.ImportFrom, name: str) -> tuple[str, str]:
        """The module and the name in it that a name was imported from; the second is empty for a module."""
        for alias in node.names:
            if isinstance(node, ast.Import):
                if (alias.asname or alias.name.partition(".")[0]) == name:
                    return (alias.name if alias.asname else name), ""
            elif (alias.asname or alias.name) == name:
                return self.absolute(node), alias.name
        return "", ""

    def absolute(self, node: ast.ImportFrom) -> str:
        """The full name of the module that is imported from; empty if it is outside of the package."""
        if not node.level:
            return node.module or ""
        package = self.module.split(".") if self.is_package else self.module.split(".")[:-1]
        kept = len(package) - (node.level - 1)
        if kept < 1 or not package[0]:
            return ""
        return ".".join([*package[:kept], *([node.module] if node.module else [])])


class Finder(Protocol):
    """Finds files of the project by their module names. `Project` in `files.py` reads them."""

    def find(self, module: str) -> SourceFile | None:
        """The file of a module; None if it is not a part of the project, or cannot be read."""

    def has(self, top: str) -> bool:
        """Whether a top-level name is of the project."""


def _is_static(node: Function) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
