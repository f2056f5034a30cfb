"""Walks the source of a scope (a module, a class body or a function) once, and collects bindings, calls and names.

A walk is a loop and not a recursion, since files may be hostile. There are two, with one table of what binds a name.
The one for declarations counts each place at module level that might bind a name, whether it runs or not. The one for
what code does leaves out what never runs. Bodies of functions at module level are walked only when something calls
them. Functions inside a function count as a part of it.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct

from licet.core.late_pattern import late_pattern
from licet.source.limits import LONGEST_ANNOTATION


def evaluated_in(annotation: ast.expr) -> list[ast.expr]:
    """What an annotation evaluates besides naming types."""
    if isinstance(annotation, ast.Name):
        return []
    found: list[ast.expr] = []
    waiting: list[ast.expr] = [annotation]
    while waiting:
        match waiting.pop():
            case ast.Name() | ast.Attribute():
                pass
            case ast.BinOp(left=left, right=right):
                waiting += (left, right)
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                waiting += elts
            case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal")):
                pass
            case ast.Subscript(
                value=ast.Name(id="Annotated") | ast.Attribute(attr="Annotated"), slice=ast.Tuple(elts=[first, *values])
            ):
                waiting.append(first)
                found += values
            case ast.Subscript(value=value, slice=inner):
                waiting += (value, inner)
            case ast.Constant(value=str(text)) as quoted if "(" in text or "Annotated" in text:
                waiting += _unquoted(quoted, text)
            case ast.Constant():
                pass
            case other:
                found.append(other)
    return found


def _unquoted(quoted: ast.Constant, text: str) -> list[ast.expr]:
    """The expression in an annotation that is a string, at the place of the string."""
    if len(text) > LONGEST_ANNOTATION:
        return []
    try:
        inner = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for part in ast.walk(inner):
        ast.copy_location(part, quoted)
    return [] if isinstance(inner, ast.Constant) else [inner]


Function = ast.FunctionDef | ast.AsyncFunctionDef

# How a name is bound. With VALUE, ITEM (of a loop) and OPENED (by `with`) there is the expression that it comes from.
IMPORT, VALUE, ITEM, OPENED, PARAMETER, FUNCTION, CLASS, OTHER = range(8)


class Imported(Struct, frozen=True):
    """A name that is imported from a module; if `name` is empty, it is the module itself."""

    module: str
    level: int
    name: str

    @property
    def dotted(self) -> str:
        """The full name, with a leading dot for each level of a relative import."""
        return "." * self.level + ".".join(part for part in (self.module, self.name) if part)


def absolute(module: str, level: int, package: str) -> str:
    """The full name of a module that is imported in a package; empty if it would be outside of the package."""
    if not level:
        return module
    around = package.split(".")
    kept = len(around) - (level - 1)
    if not package or kept < 1:
        return ""
    return ".".join((*around[:kept], module) if module else around[:kept])


def with_parents(dotted: str) -> Iterator[str]:
    """The parents of a dotted name, outermost first, and then the name: `a`, `a.b`, `a.b.c`."""
    return accumulate(dotted.split("."), "{}.{}".format)


class Binding(Struct, frozen=True):
    """One place where a scope binds a name: the whole statement if it binds this name alone, else the name in it."""

    node: ast.AST
    how: int
    what: "ast.AST | Imported | None" = None
    annotation: ast.expr | None = None


def bound_by(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    """The names that a node binds by itself. Those in the target of a statement are nodes of their own."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or module, Binding(node, IMPORT, Imported(module, 0, ""))
        case ast.ImportFrom(module=module, names=names, level=level):
            for alias in names:
                yield alias.asname or alias.name, Binding(node, IMPORT, Imported(module or "", level, alias.name))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name, Binding(node, FUNCTION, node)
        case ast.ClassDef():
            yield node.name, Binding(node, CLASS, node)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, Binding(node, VALUE, value)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, Binding(node, VALUE, value, node.annotation)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.MatchMapping(rest=str(name)):
            yield name, Binding(node, OTHER)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, Binding(node, OTHER)


def module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node at module level, outside functions and classes, in the order of the source."""
    stack: list[ast.AST] = list(reversed(tree.body))
    while stack:
        node = stack.pop()
        yield node
        match node:
            case (
                ast.Assign(targets=[ast.Name()], value=inner)
                | ast.AnnAssign(target=ast.Name(), value=ast.expr() as inner)
            ):
                stack.append(inner)  # the target is bound by the statement, with its value
            case ast.Name() | ast.Constant():
                pass
            case _ if not isinstance(node, _OTHER_SCOPES):
                stack.extend(reversed(list(ast.iter_child_nodes(node))))
            case _:
                stack.extend(_outside(node))


def _outside(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, class or comprehension that are evaluated in the enclosing scope, and may bind names."""
    match scope:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from scope.decorator_list
            yield scope.args
            if scope.returns is not None:
                yield scope.returns
        case ast.Lambda():
            yield scope.args
        case ast.ClassDef():
            yield from (*scope.decorator_list, *scope.bases, *scope.keywords)
        case _:
            yield from (inner.target for inner in ast.walk(scope) if isinstance(inner, ast.NamedExpr))


_OTHER_SCOPES = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp,
)  # fmt: skip
_NO_CHILDREN = frozenset({"Constant", "Pass", "Break", "Continue", "Nonlocal"})
# Fields that hold no code that runs, or no nodes at all. Annotations are walked on their own: most only name types.
_SKIPPED = frozenset(
    {"ctx", "op", "ops", "annotation", "returns", "type_comment", "type_params", "type_ignores", "name", "names", "id"}
    | {"attr", "arg", "kind", "level", "module", "conversion", "simple", "is_async", "cls", "kwd_attrs", "rest"}
)
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(field for field in kind._fields if field not in _SKIPPED and kind.__name__ not in _NO_CHILDREN)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}

_TYPING = ("typing", "typing_extensions")
# Source that may give a name of a condition another value, wherever in the file it stands.
_REBINDS_TYPING = late_pattern(
    r"\bTYPE_CHECKING\s*[^\s\w=:,)\]]{0,3}=(?!=)|\bTYPE_CHECKING\s*:[^=\n]*=(?!=)|\bglobal\b[^\n]*\bTYPE_CHECKING\b"
    r"|['\"]TYPE_CHECKING['\"]"
)
_REBINDS_NAME = late_pattern(
    r"(?<![.\w])__name__\s*:?=(?!=)|\bglobal\b[^\n]*\b__name__\b|['\"]__name__['\"]\s*\]\s*=(?!=)"
)


class Scope:
    """The names of one scope and what its code does, before anything is looked up."""

    __slots__ = (
        "attributes", "bases", "bindings", "calls", "classes", "conditions", "decorators", "global_names", "imports",
        "inner", "kept", "lines", "loads", "node", "parent", "subscripts",
    )  # fmt: skip

    def __init__(self, node: ast.AST, parent: "Scope | None", lines: Sequence[str] = ()) -> None:
        self.node, self.parent, self.lines = node, parent, lines
        self.bindings: dict[str, list[Binding]] = {}
        self.calls: list[ast.Call] = []
        self.loads: list[ast.expr] = []  # names and attributes that stand as values
        self.bases: list[ast.expr] = []  # what attributes are taken from, if it is neither a name nor an attribute
        self.decorators: list[ast.expr] = []  # names and attributes, which are called with what they decorate
        self.conditions: list[ast.If] = []  # whose parts are walked when all names are bound
        self.subscripts: list[ast.Subscript] = []
        self.attributes: set[str] = set()  # all attributes that are named
        self.kept: list[tuple[ast.Attribute, ast.expr]] = []  # `self.name = value`
        self.inner: list[Scope] = []  # functions inside a function
        self.classes: dict[ast.ClassDef, Scope] = {}
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.global_names: set[str] = set()

    @property
    def functions(self) -> Iterator[Function]:
        """The functions that the scope binds to names."""
        every = (binding.what for bindings in self.bindings.values() for binding in bindings)
        return (what for what in every if isinstance(what, Function))

    def bind(self, name: str, binding: Binding) -> None:
        self.bindings.setdefault(name, []).append(binding)

    def bind_by(self, node: ast.AST) -> None:
        """Bind what a node binds by itself."""
        for name, binding in bound_by(node):
            self.bind(name, binding)


def module_scope(tree: ast.Module, lines: Sequence[str] = ()) -> Scope:
    """The scope of a module with its source. Its functions and methods are bound, but not walked."""
    scope = Scope(tree, None, lines)
    _walk(scope, tree.body, lazily=True)
    return scope


def function_scope(function: Function | ast.Lambda, parent: Scope) -> Scope:
    """The scope of a function, with the functions inside it as `inner`."""
    scope = Scope(function, parent)
    given = function.args
    for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        scope.bind(one.arg, Binding(one, PARAMETER, one, one.annotation))
    for rest in filter(None, (given.vararg, given.kwarg)):
        scope.bind(rest.arg, Binding(rest, OTHER))
    _walk(scope, [function.body] if isinstance(function, ast.Lambda) else function.body, lazily=False)
    return scope


def _walk(scope: Scope, body: Iterable[ast.AST], *, lazily: bool) -> None:
    stack: list[ast.AST] = list(body)
    stack.reverse()
    _walk_nodes(scope, stack, lazily)
    while scope.conditions:
        stack = [part for node in reversed(scope.conditions) for part in _parts_that_run(node, scope)]
        scope.conditions.clear()
        _walk_nodes(scope, stack, lazily)


def _walk_nodes(scope: Scope, stack: list[ast.AST], lazily: bool) -> None:
    loads, calls, attributes, fields = scope.loads, scope.calls, scope.attributes, _FIELDS
    pop, push = stack.pop, stack.append
    while stack:
        node: Any = pop()
        kind = node.__class__
        if kind is ast.Constant:
            continue
        if kind is ast.Name:
            if node.ctx.__class__ is ast.Load:
                loads.append(node)
            else:
                scope.bind(node.id, Binding(node, OTHER))
            continue
        if kind is ast.Attribute:
            loads.append(node)
            base = _base(node, attributes)
            if base.__class__ is not ast.Name:
                scope.bases.append(base)
                push(base)
            continue
        if kind is ast.Call:
            calls.append(node)
            func = node.func
            if func.__class__ is ast.Attribute:
                func = _base(func, attributes)
            if func.__class__ is not ast.Name:
                scope.bases.append(func)
                push(func)
            stack += node.args
            stack += [keyword.value for keyword in node.keywords]
            continue
        special = _SPECIAL.get(kind)
        if special is not None:
            special(scope, node, stack, lazily)
            continue
        for field in fields.get(kind, ()):  # some fields hold plain values, such as None for the key of `**other`
            value = getattr(node, field, None)
            if value.__class__ is list:
                stack += value
            elif value is not None:
                push(value)


def _base(node: Any, attributes: set[str]) -> Any:
    """The expression before the attributes, such as `a` in `a.b.c`."""
    while node.__class__ is ast.Attribute:
        attributes.add(node.attr)
        node = node.value
    return node


def _assign(scope: Scope, node: ast.Assign, stack: list[ast.AST], _: bool) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            scope.bind(target.id, Binding(target, VALUE, node.value))
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            scope.kept.append((target, node.value))
        elif isinstance(target, ast.Subscript) and isinstance(_base(target.value, set()), ast.Name):
            scope.subscripts.append(target)
            stack.append(target.slice)
        elif isinstance(target, ast.Tuple | ast.List) and all(isinstance(one, ast.Name) for one in target.elts):
            for one, value in _unpacked(target.elts, node.value):
                scope.bind(one.id, Binding(one, OTHER if value is None else VALUE, value))
        else:
            stack.append(target)
    stack.append(node.value)


def _unpacked(targets: Sequence[Any], value: ast.expr) -> Iterator[tuple[ast.Name, ast.expr | None]]:
    """The names that an assignment unpacks to, each with its expression if the source shows it."""
    parts: Sequence[ast.expr | None] = [None] * len(targets)
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(targets):
        parts = [None if isinstance(part, ast.Starred) else part for part in value.elts]
    return zip(targets, parts, strict=True)


def _annotated(scope: Scope, node: ast.AnnAssign, stack: list[ast.AST], _: bool) -> None:
    if isinstance(node.target, ast.Name):
        scope.bind(node.target.id, Binding(node, VALUE, node.value, node.annotation))
    elif isinstance(node.target, ast.Attribute) and isinstance(node.target.value, ast.Name) and node.value is not None:
        scope.kept.append((node.target, node.value))
    if node.value is not None:
        stack.append(node.value)
    stack += evaluated_in(node.annotation)


def _named(scope: Scope, node: ast.NamedExpr, stack: list[ast.AST], _: bool) -> None:
    scope.bind(node.target.id, Binding(node.target, VALUE, node.value))
    stack.append(node.value)


def _augmented(scope: Scope, node: ast.AugAssign, stack: list[ast.AST], _: bool) -> None:
    if not isinstance(node.target, ast.Name):  # `path /= name` keeps what `path` is
        stack.append(node.target)
    stack.append(node.value)


def _loop(scope: Scope, node: ast.For | ast.AsyncFor, stack: list[ast.AST], _: bool) -> None:
    _item(scope, node.target, node.iter, stack)
    stack += [*reversed(node.orelse), *reversed(node.body)]


def _comprehension(scope: Scope, node: ast.comprehension, stack: list[ast.AST], _: bool) -> None:
    _item(scope, node.target, node.iter, stack)
    stack += node.ifs


def _item(scope: Scope, target: ast.expr, source: ast.expr, stack: list[ast.AST]) -> None:
    if isinstance(target, ast.Name):
        scope.bind(target.id, Binding(target, ITEM, source))
    else:
        stack.append(target)
    stack.append(source)


def _with(scope: Scope, node: ast.withitem, stack: list[ast.AST], _: bool) -> None:
    if isinstance(node.optional_vars, ast.Name):
        scope.bind(node.optional_vars.id, Binding(node.optional_vars, OPENED, node.context_expr))
    elif node.optional_vars is not None:
        stack.append(node.optional_vars)
    stack.append(node.context_expr)


def _import(scope: Scope, node: ast.Import | ast.ImportFrom, stack: list[ast.AST], _: bool) -> None:
    scope.imports.append(node)
    scope.bind_by(node)


def _function(scope: Scope, node: Function, stack: list[ast.AST], lazily: bool) -> None:
    scope.bind_by(node)
    _decorators(scope, node, stack)
    _defaults(node.args, stack)
    given = node.args
    for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if one is not None and one.annotation is not None:
            stack += evaluated_in(one.annotation)
    if node.returns is not None:
        stack += evaluated_in(node.returns)
    if not lazily:
        scope.inner.append(function_scope(node, _enclosing(scope)))


def _decorators(scope: Scope, node: "Function | ast.ClassDef", stack: list[ast.AST]) -> None:
    for mark in node.decorator_list:
        if isinstance(mark, ast.Name | ast.Attribute):
            scope.decorators.append(mark)
        stack.append(mark)


def _defaults(given: ast.arguments, stack: list[ast.AST]) -> None:
    stack += given.defaults
    stack += (default for default in given.kw_defaults if default is not None)


def _lambda(scope: Scope, node: ast.Lambda, stack: list[ast.AST], _: bool) -> None:
    _defaults(node.args, stack)
    scope.inner.append(function_scope(node, _enclosing(scope)))


def _class(scope: Scope, node: ast.ClassDef, stack: list[ast.AST], lazily: bool) -> None:
    scope.bind_by(node)
    _decorators(scope, node, stack)
    stack += node.bases
    stack += (keyword.value for keyword in node.keywords)
    body = Scope(node, _enclosing(scope))
    _walk(body, node.body, lazily=lazily)
    scope.classes[node] = body
    scope.attributes |= body.attributes


def _enclosing(scope: Scope) -> Scope:
    """The scope in which functions look up names: names of a class body are not visible in its methods."""
    while isinstance(scope.node, ast.ClassDef) and scope.parent is not None:
        scope = scope.parent
    return scope


def _if(scope: Scope, node: ast.If, stack: list[ast.AST], _: bool) -> None:
    match node.test:
        case ast.Constant(value=False | 0 | None):
            stack += reversed(node.orelse)
        case (
            ast.Name(id="TYPE_CHECKING")
            | ast.Attribute(attr="TYPE_CHECKING")
            | ast.Compare(left=ast.Name(id="__name__"))
        ):
            scope.conditions.append(node)
        case test:
            stack += [*reversed(node.orelse), *reversed(node.body), test]


def _parts_that_run(node: ast.If, scope: Scope) -> Iterator[ast.AST]:
    """The parts of a condition that an import and a call through a gate may run, the last first."""
    runs_body, runs_else = True, True
    match node.test:
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() as op], comparators=[ast.Constant(value="__main__")]):
            if not _rebound("__name__", _REBINDS_NAME, scope):
                runs_body, runs_else = isinstance(op, ast.NotEq), isinstance(op, ast.Eq)
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name)) as test:
            runs_body = not (
                _is_of_typing(name, isinstance(test, ast.Name), scope)
                and not _rebound("TYPE_CHECKING", _REBINDS_TYPING, scope)
            )
    if runs_else:
        yield from reversed(node.orelse)
    if runs_body:
        yield from reversed(node.body)
    yield node.test


def _is_of_typing(name: str, is_constant: bool, scope: Scope) -> bool:
    """Whether a name is only ever `typing.TYPE_CHECKING`, or the module `typing`."""
    at: Scope | None = scope
    while at is not None and name not in at.bindings:
        at = at.parent
    match at.bindings[name] if at else ():
        case [Binding(what=Imported(module, 0, imported))] if is_constant:
            return module in _TYPING and imported == name
        case [Binding(what=Imported(module, 0, ""))]:
            return module in _TYPING
    return False


def _rebound(name: str, pattern: re.Pattern[str], scope: Scope) -> bool:
    """Whether some line of the file may change a name that Python sets."""
    while scope.parent is not None:
        scope = scope.parent
    return any(name in line and pattern.search(line) for line in scope.lines)


def _subscript(scope: Scope, node: ast.Subscript, stack: list[ast.AST], _: bool) -> None:
    stack.append(node.slice)
    scope.subscripts.append(node)
    if not isinstance(_base(node.value, scope.attributes), ast.Name):
        stack.append(node.value)


def _compare(scope: Scope, node: ast.Compare, stack: list[ast.AST], _: bool) -> None:
    stack.append(node.left)
    for op, right in zip(node.ops, node.comparators, strict=True):  # `name in sys.modules` takes nothing out of it
        if not (isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Attribute) and right.attr == "modules"):
            stack.append(right)


def _handler(scope: Scope, node: ast.ExceptHandler, stack: list[ast.AST], _: bool) -> None:
    scope.bind_by(node)
    stack += reversed(node.body)
    if node.type is not None:
        stack.append(node.type)


def _pattern(scope: Scope, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping, stack: list[ast.AST], _: bool) -> None:
    scope.bind_by(node)
    stack += (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.pattern))


def _global(scope: Scope, node: ast.Global, stack: list[ast.AST], _: bool) -> None:
    scope.global_names |= set(node.names)


_SPECIAL: dict[type[ast.AST], Callable[[Scope, Any, list[ast.AST], bool], None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.NamedExpr: _named,
    ast.AugAssign: _augmented,
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.comprehension: _comprehension,
    ast.withitem: _with,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Lambda: _lambda,
    ast.ClassDef: _class,
    ast.If: _if,
    ast.Subscript: _subscript,
    ast.Compare: _compare,
    ast.ExceptHandler: _handler,
    ast.MatchAs: _pattern,
    ast.MatchStar: _pattern,
    ast.MatchMapping: _pattern,
    ast.Global: _global,
}
