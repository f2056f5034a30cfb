"""Walks the source of a scope (a module, a class body or a function) once, and collects bindings, calls and names.

The walk is a loop and not a recursion, since files may be hostile. Bodies of functions at module level are walked only
when something calls them. Functions inside a function count as a part of it.
"""

import ast
from collections.abc import Callable, Iterable
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef

# How a name is bound. With VALUE, ITEM (of a loop) and OPENED (by `with`) there is the expression that it comes from.
IMPORT, VALUE, ITEM, OPENED, PARAMETER, FUNCTION, CLASS, OTHER = range(8)

Binding = tuple[int, ast.AST | str | None, "ast.expr | None"]  # how, what, and the annotation if there is one

_NO_CHILDREN: dict[str, tuple[str, ...]] = {"Constant": (), "Pass": (), "Break": (), "Continue": (), "Nonlocal": ()}
# Fields that hold no code that runs, or no nodes at all.
_SKIPPED = frozenset(
    {"ctx", "op", "ops", "annotation", "returns", "type_comment", "type_params", "type_ignores", "name", "names", "id"}
    | {"attr", "arg", "kind", "level", "module", "conversion", "simple", "is_async", "cls", "kwd_attrs", "rest"}
)
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: _NO_CHILDREN.get(kind.__name__, tuple(field for field in kind._fields if field not in _SKIPPED))
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


class Scope:
    """The names of one scope and what its code does, before anything is looked up."""

    __slots__ = (
        "attributes", "bindings", "calls", "classes", "global_names", "imports", "inner", "kept", "loads", "node",
        "parent", "subscripts",
    )  # fmt: skip

    def __init__(self, node: ast.AST, parent: "Scope | None") -> None:
        self.node, self.parent = node, parent
        self.bindings: dict[str, list[Binding]] = {}
        self.calls: list[ast.Call] = []
        self.loads: list[ast.expr] = []  # names and attributes that are neither called nor only given another name
        self.subscripts: list[ast.Subscript] = []  # of names and attributes
        self.attributes: set[str] = set()  # all attributes that are named
        self.kept: list[tuple[ast.Attribute, ast.expr]] = []  # `self.name = value`
        self.inner: list[Scope] = []  # functions inside a function
        self.classes: dict[ast.ClassDef, Scope] = {}
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.global_names: set[str] = set()

    def bind(self, name: str, how: int, what: "ast.AST | str | None" = None, noted: "ast.expr | None" = None) -> None:
        self.bindings.setdefault(name, []).append((how, what, noted))


def module_scope(tree: ast.Module) -> Scope:
    """The scope of a module. Its functions and methods are bound, but not walked."""
    scope = Scope(tree, None)
    _walk(scope, tree.body, lazily=True)
    return scope


def function_scope(function: Function | ast.Lambda, parent: Scope) -> Scope:
    """The scope of a function, with the functions inside it as `inner`."""
    scope = Scope(function, parent)
    given = function.args
    for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        scope.bind(one.arg, PARAMETER, one, one.annotation)
    for rest in (given.vararg, given.kwarg):
        if rest is not None:
            scope.bind(rest.arg, OTHER)
    _walk(scope, [function.body] if isinstance(function, ast.Lambda) else function.body, lazily=False)
    return scope


def _walk(scope: Scope, body: Iterable[ast.AST], *, lazily: bool) -> None:
    loads, calls, attributes, fields = scope.loads, scope.calls, scope.attributes, _FIELDS
    stack: list[ast.AST] = list(body)
    stack.reverse()
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
                scope.bind(node.id, OTHER)
            continue
        if kind is ast.Attribute:
            loads.append(node)
            base = _base(node, attributes)
            if base.__class__ is not ast.Name:
                push(base)
            continue
        if kind is ast.Call:
            calls.append(node)
            func = node.func
            if func.__class__ is ast.Attribute:
                func = _base(func, attributes)
            if func.__class__ is not ast.Name:
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


def _plain(node: ast.expr | None) -> bool:
    """Whether an expression is only a name or an attribute of one, so that an assignment gives it another name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _assign(scope: Scope, node: ast.Assign, stack: list[ast.AST], _: bool) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            scope.bind(target.id, VALUE, node.value)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            scope.kept.append((target, node.value))
        elif isinstance(target, ast.Subscript) and _plain(target.value):
            scope.subscripts.append(target)
            stack.append(target.slice)
        else:
            stack.append(target)
    if _plain(node.value) and all(isinstance(target, ast.Name) for target in node.targets):
        _base(node.value, scope.attributes)
    else:
        stack.append(node.value)


def _annotated(scope: Scope, node: ast.AnnAssign, stack: list[ast.AST], _: bool) -> None:
    if isinstance(node.target, ast.Name):
        scope.bind(node.target.id, VALUE, node.value, node.annotation)
    elif isinstance(node.target, ast.Attribute) and isinstance(node.target.value, ast.Name) and node.value is not None:
        scope.kept.append((node.target, node.value))
    if node.value is not None:
        stack.append(node.value)


def _named(scope: Scope, node: ast.NamedExpr, stack: list[ast.AST], _: bool) -> None:
    scope.bind(node.target.id, VALUE, node.value)
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
        scope.bind(target.id, ITEM, source)
    else:
        stack.append(target)
    stack.append(source)


def _with(scope: Scope, node: ast.withitem, stack: list[ast.AST], _: bool) -> None:
    if isinstance(node.optional_vars, ast.Name):
        scope.bind(node.optional_vars.id, OPENED, node.context_expr)
    elif node.optional_vars is not None:
        stack.append(node.optional_vars)
    stack.append(node.context_expr)


def _import(scope: Scope, node: ast.Import, stack: list[ast.AST], _: bool) -> None:
    scope.imports.append(node)
    for alias in node.names:
        scope.bind(alias.asname or alias.name.partition(".")[0], IMPORT, node, None)


def _import_from(scope: Scope, node: ast.ImportFrom, stack: list[ast.AST], _: bool) -> None:
    scope.imports.append(node)
    for alias in node.names:
        scope.bind(alias.asname or alias.name, IMPORT, node, None)


def _function(scope: Scope, node: Function, stack: list[ast.AST], lazily: bool) -> None:
    scope.bind(node.name, FUNCTION, node)
    stack += (mark for mark in node.decorator_list if isinstance(mark, ast.Call))
    stack += (default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None)
    if not lazily:
        scope.loads += (mark for mark in node.decorator_list if not isinstance(mark, ast.Call))
        scope.inner.append(function_scope(node, _enclosing(scope)))


def _lambda(scope: Scope, node: ast.Lambda, stack: list[ast.AST], _: bool) -> None:
    stack += (default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None)
    scope.inner.append(function_scope(node, _enclosing(scope)))


def _class(scope: Scope, node: ast.ClassDef, stack: list[ast.AST], lazily: bool) -> None:
    scope.bind(node.name, CLASS, node)
    stack += (mark for mark in node.decorator_list if isinstance(mark, ast.Call))
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
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING") | ast.Constant(value=False | 0 | None):
            stack += reversed(node.orelse)
        # An import does not run this part, and a call through a gate does not either.
        case ast.Compare(left=ast.Name(id="__name__"), comparators=[ast.Constant(value="__main__")]):
            stack += reversed(node.orelse)
        case test:
            stack += [*reversed(node.orelse), *reversed(node.body), test]


def _subscript(scope: Scope, node: ast.Subscript, stack: list[ast.AST], _: bool) -> None:
    stack.append(node.slice)
    if _plain(node.value):
        _base(node.value, scope.attributes)
        scope.subscripts.append(node)
    else:
        stack.append(node.value)


def _handler(scope: Scope, node: ast.ExceptHandler, stack: list[ast.AST], _: bool) -> None:
    if node.name:
        scope.bind(node.name, OTHER)
    stack += reversed(node.body)  # the exceptions are only named


def _captured(scope: Scope, node: ast.MatchAs | ast.MatchStar, stack: list[ast.AST], _: bool) -> None:
    if node.name:
        scope.bind(node.name, OTHER)
    if isinstance(node, ast.MatchAs) and node.pattern is not None:
        stack.append(node.pattern)


def _mapping(scope: Scope, node: ast.MatchMapping, stack: list[ast.AST], _: bool) -> None:
    if node.rest:
        scope.bind(node.rest, OTHER)
    stack += node.patterns


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
    ast.ImportFrom: _import_from,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Lambda: _lambda,
    ast.ClassDef: _class,
    ast.If: _if,
    ast.Subscript: _subscript,
    ast.ExceptHandler: _handler,
    ast.MatchAs: _captured,
    ast.MatchStar: _captured,
    ast.MatchMapping: _mapping,
    ast.Global: _global,
}
