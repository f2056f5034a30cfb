"""Finds what an expression means: a full name such as `os.remove`, a value of a known type, or code of the project.

Names are followed through bindings, imports and other files of the project. Only what the source shows counts: a name
with two different bindings, or a value whose type is not evident, means nothing here.
"""

import ast
import builtins
import sys
from functools import cached_property
from typing import Protocol

from msgspec import Struct

from licet.policy_files.source.text import SourceText
from licet.surfaces.lint import table
from licet.surfaces.lint.scopes import (
    CLASS,
    FUNCTION,
    IMPORT,
    ITEM,
    OPENED,
    PARAMETER,
    VALUE,
    Binding,
    Function,
    Scope,
    function_scope,
    module_scope,
)

_HOPS = 16  # steps from an expression to its meaning; hostile files could have any number
_BUILTINS = frozenset(dir(builtins))


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


Meaning = Named | Value | Code | Class | Instance | Package | None


class SourceFile:
    """One parsed file: its text, its full module name, and its scopes. Functions are walked when they are needed."""

    def __init__(self, path: str, module: str, is_package: bool, text: SourceText, project: "Finder") -> None:
        self.path, self.module, self.is_package, self.text, self.project = path, module, is_package, text, project
        self.names: dict[tuple[Scope, str], Meaning] = {}  # each name is looked up once
        self._functions: dict[ast.AST, Scope] = {}
        self._classes: dict[ast.ClassDef, Class] = {}
        self._owners: dict[ast.AST, Class] = {}

    @cached_property
    def scope(self) -> Scope:
        """The module itself."""
        return module_scope(self.text.tree)

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


def meaning(node: ast.AST | None, scope: Scope, file: SourceFile, hops: int = _HOPS) -> Meaning:
    """What an expression means in a scope."""
    if hops <= 0:
        return None
    match node:
        case ast.Name(id=name):
            return _name(name, scope, file, hops)
        case ast.Attribute(value=value, attr=attr):
            return _attribute(meaning(value, scope, file, hops - 1), attr, hops)
        case ast.Call(func=func):
            return _result(meaning(func, scope, file, hops - 1), hops)
        case ast.Await(value=value) | ast.NamedExpr(value=value):
            return meaning(value, scope, file, hops - 1)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            for side in (left, right):
                found = meaning(side, scope, file, hops - 1)
                if isinstance(found, Value) and found.kind.endswith(".Path"):
                    return found
        case ast.IfExp(body=body, orelse=orelse):
            one, two = (meaning(side, scope, file, hops - 2) for side in (body, orelse))
            return one if one == two else None
        case ast.BoolOp(op=ast.Or(), values=values):
            known = {meaning(each, scope, file, hops - 2) for each in values[:4]} - {None}
            return known.pop() if len(known) == 1 else None
    return None


def type_of(annotation: ast.AST | None, scope: Scope, file: SourceFile, hops: int = _HOPS) -> Meaning:
    """The value that an annotation promises: a type in the table, or a class of the project."""
    match annotation:
        case ast.Constant(value=str(text)) if len(text) < 200:
            try:
                return type_of(ast.parse(text, mode="eval").body, scope, file, hops - 1) if hops > 0 else None
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return type_of(left, scope, file, hops - 1)
        case ast.BinOp(left=ast.Constant(value=None), op=ast.BitOr(), right=right):
            return type_of(right, scope, file, hops - 1)
        case ast.Subscript(value=ast.Name(id="Optional" | "Annotated") | ast.Attribute(attr="Optional" | "Annotated")):
            inner = annotation.slice
            return type_of(inner.elts[0] if isinstance(inner, ast.Tuple) else inner, scope, file, hops - 1)
        case ast.Name() | ast.Attribute():
            found = meaning(annotation, scope, file, hops)
            if isinstance(found, Class):
                return Instance(found)
            if isinstance(found, Named):
                kind = table.values().get(found.name)
                return Value(kind) if kind else None
    return None


def _name(name: str, scope: Scope, file: SourceFile, hops: int) -> Meaning:
    at: Scope | None = scope
    while at is not None:
        if name in at.global_names:
            at = file.scope
        bindings = at.bindings.get(name)
        if bindings:
            known = file.names
            if (at, name) not in known:
                known[at, name] = None  # while it is looked up, since a name may be bound to itself
                known[at, name] = _bound(bindings, name, at, file, hops)
            return known[at, name]
        at = at.parent
    if name == "__builtins__" or name not in _BUILTINS:
        return None
    # A star import may have brought another meaning.
    return None if "*" in file.scope.bindings else Named(f"builtins.{name}")


def _bound(bindings: list[Binding], name: str, scope: Scope, file: SourceFile, hops: int) -> Meaning:
    """The one meaning of all bindings; None if they differ. Bindings to constants, such as None, do not count."""
    if len(bindings) == 1:
        return _meaning(bindings[0], name, scope, file, hops)
    if len(bindings) > 8:
        return None
    found: list[Meaning] = []
    for binding in bindings:
        if isinstance(binding[1], ast.Constant):
            continue
        one = _meaning(binding, name, scope, file, hops - 1)
        if one is None:
            return None
        if one not in found:
            found.append(one)
    if all(isinstance(one, Named) for one in found):  # `try: import a` and `except ImportError: import b as a`
        known = [one for one in found if isinstance(one, Named) and one.name.partition(".")[0] in table.roots()]
        return known[0] if known else found[0] if found else None
    return found[0] if len(found) == 1 else None


def _meaning(binding: Binding, name: str, scope: Scope, file: SourceFile, hops: int) -> Meaning:
    how, what, annotation = binding
    if annotation is not None and (found := type_of(annotation, scope, file, hops - 1)) is not None:
        return found
    if how == VALUE and isinstance(what, ast.expr):
        return meaning(what, scope, file, hops - 1)
    if how == IMPORT and isinstance(what, ast.Import | ast.ImportFrom):
        return imported_meaning(*file.imported(what, name), file, hops)
    if how == FUNCTION and isinstance(what, Function):
        owner = (
            file.class_of(scope.node, scope.parent) if isinstance(scope.node, ast.ClassDef) and scope.parent else None
        )
        in_function = isinstance((scope.parent or scope).node if owner else scope.node, Function | ast.Lambda)
        return None if in_function else Code(file, what, owner)  # a function inside another is walked with it
    if how == CLASS and isinstance(what, ast.ClassDef):
        return file.class_of(what, scope)
    if how == ITEM and isinstance(what, ast.Call):
        found = meaning(what.func, scope, file, hops - 1)
        kind = table.items().get(found.name) if isinstance(found, Named) else None
        return Value(kind) if kind else None
    if how == OPENED and isinstance(what, ast.expr):
        return meaning(what, scope, file, hops - 1)
    if how == PARAMETER and isinstance(what, ast.arg):
        owner = file.owner_of(scope)
        arguments = getattr(scope.node, "args", None)
        if owner is not None and arguments is not None and what is [*arguments.posonlyargs, *arguments.args][0]:
            return Instance(owner)
    return None


def imported_meaning(module: str, name: str, file: SourceFile, hops: int = _HOPS) -> Meaning:
    """What an import brings: something of the project, or a full name."""
    if not module or hops <= 0:
        return None
    if module.partition(".")[0] not in sys.stdlib_module_names:
        if name and (inner := file.project.find(f"{module}.{name}")) is not None:
            return Package(inner)
        there = file.project.find(module)
        if there is not None:
            return _attribute(Package(there), name, hops - 1) if name else Package(there)
    return _outside(f"{module}.{name}" if name else module)


def _outside(dotted: str) -> Named:
    return Named(table.same(dotted) if len(dotted) < 200 else dotted[:200])


def _attribute(of: Meaning, attr: str, hops: int) -> Meaning:
    match of:
        case Named(name):
            return _outside(f"{name}.{attr}")
        case Value(kind):
            full = f"{kind}.{attr}"
            # An attribute such as `path.parent` is a value; a method is one only when it is called.
            return Value(found) if (found := _PROPERTIES.get(full)) else Named(full)
        case Package(file):
            if attr in file.scope.bindings:
                return _bound(file.scope.bindings[attr], attr, file.scope, file, hops - 1)
            inner = file.project.find(f"{file.module}.{attr}") if file.is_package else None
            return Package(inner) if inner is not None else None
        case Class() | Instance():
            return _member(of if isinstance(of, Class) else of.of, attr, hops - 1)
    return None


_PROPERTIES = {
    name: kind
    for name, kind in table.values().items()
    if name == "pathlib.Path.parent" or (name.startswith("licet.Context.") and name.count(".") == 2)
}


def _member(owner: Class, attr: str, hops: int) -> Meaning:
    if hops <= 0:
        return None
    file, body = owner.file, owner.body
    if attr in body.bindings:
        found = _bound(body.bindings[attr], attr, body, file, hops)
        if found is not None:
            return found
    first = body.bindings.get("__init__", ())
    if first and isinstance(first[-1][1], Function):
        begin = file.scope_of(Code(file, first[-1][1], owner))
        stored = [value for target, value in begin.kept if target.attr == attr and isinstance(target.value, ast.Name)]
        if len(stored) == 1:
            return meaning(stored[0], begin, file, hops - 1)
    for base in owner.node.bases[:4]:
        above = meaning(base, owner.around, file, hops - 1)
        if isinstance(above, Class) and above is not owner and (found := _member(above, attr, hops - 4)) is not None:
            return found
        if isinstance(above, Named) and (kind := table.values().get(above.name)):
            full = f"{kind}.{attr}"
            return Named(full) if full in table.uses() else None
    return None


def _result(called: Meaning, hops: int) -> Meaning:
    match called:
        case Named(name):
            kind = table.values().get(name)
            return Value(kind) if kind else None
        case Class():
            return Instance(called)
        case Code(file, node):
            return type_of(node.returns, file.scope, file, hops - 1) if node.returns is not None else None
    return None


def _is_static(node: Function) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
