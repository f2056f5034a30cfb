"""Finds what an expression means: a full name such as `os.remove`, a value of a known type, or code of the project.

Names are followed through bindings, imports and other files of the project, and through functions that look names up,
such as `getattr`. Only what the source shows counts: a value whose type is not evident means nothing here. Of several
bindings of a name, one to something in the table counts.
"""

import ast
import builtins
import sys
from itertools import islice

from licet.source import raw_io as table
from licet.source.limits import MOST_BINDINGS, MOST_STEPS_TO_MEANING, MOST_TABLE_PARTS
from licet.source.literals import ExpressionValues
from licet.source.scopes import (
    CLASS,
    FUNCTION,
    IMPORT,
    ITEM,
    OPENED,
    PARAMETER,
    VALUE,
    Binding,
    Function,
    Imported,
    Scope,
)
from licet.source.source_files import (
    Class,
    Code,
    Held,
    Instance,
    Meaning,
    Named,
    Package,
    SourceFile,
    Value,
    is_package,
)

_BUILTINS = frozenset(dir(builtins))
_HOLDING = (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.IfExp, ast.BoolOp)
_GETATTR = frozenset({"builtins.getattr", "inspect.getattr_static", "builtins.object.__getattribute__"})
_IMPORT = frozenset({"builtins.__import__", "importlib.__import__", "importlib.import_module", "pkgutil.resolve_name"})
REFLECTING = _GETATTR | _IMPORT  # functions that give what a text names
NAMESPACES = frozenset({"builtins.vars", "builtins.globals", "builtins.locals"})
LOOKUPS = ("get", "pop", "setdefault", "__getitem__")  # methods of a mapping that give a value


def meaning(node: ast.AST | None, scope: Scope, file: SourceFile, hops: int = MOST_STEPS_TO_MEANING) -> Meaning:
    """What an expression means in a scope."""
    if hops <= 0:
        return None
    match node:
        case ast.Name(id=name):
            return _name(name, scope, file, hops)
        case ast.Attribute(value=value, attr=attr):
            return _attribute(meaning(value, scope, file, hops - 1), attr, hops)
        case ast.Call(func=func):
            called = meaning(func, scope, file, hops - 1)
            if isinstance(called, Named) and called.name in REFLECTING:
                return _named_by_text(called.name, node, scope, file, hops - 1)
            if isinstance(func, ast.Attribute) and func.attr in LOOKUPS and node.args:
                looked_up = _looked_up(func.value, node.args[0], scope, file, hops - 1)
                if looked_up is not None:
                    return looked_up
            return _result(called, hops)
        case ast.Subscript(value=value, slice=key):
            return _looked_up(value, key, scope, file, hops - 1)
        case ast.Await(value=value) | ast.NamedExpr(value=value):
            return meaning(value, scope, file, hops - 1)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            for side in (left, right):
                found = meaning(side, scope, file, hops - 1)
                if isinstance(found, Value) and found.kind.endswith(".Path"):
                    return found
        case ast.IfExp(body=body, orelse=orelse):
            sides = [side for side in (body, orelse) if not isinstance(side, ast.Constant)]
            known = {meaning(side, scope, file, hops - 2) for side in sides}
            return known.pop() if len(known) == 1 else None
        case ast.BoolOp(op=ast.Or(), values=values):
            known = {meaning(each, scope, file, hops - 2) for each in values[:4]} - {None}
            return known.pop() if len(known) == 1 else None
    return None


def held_by(held: Held) -> tuple[Code | Class, ...]:
    """The functions and classes of the project that a table names."""
    known = held.file.held
    if held.table not in known:
        parts = islice(ast.walk(held.table), MOST_TABLE_PARTS)
        named = (meaning(part, held.scope, held.file) for part in parts if isinstance(part, ast.Name | ast.Attribute))
        known[held.table] = tuple(dict.fromkeys(one for one in named if isinstance(one, Code | Class)))
    return known[held.table]


def type_of(annotation: ast.AST | None, scope: Scope, file: SourceFile, hops: int = MOST_STEPS_TO_MEANING) -> Meaning:
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


def bound_once(name: str, scope: Scope) -> ast.expr | None:
    """The expression of a name that is bound once, in a scope or one around it."""
    at: Scope | None = scope
    while at is not None:
        if name in at.bindings:
            match at.bindings[name]:
                case [Binding(how=how, what=ast.expr() as what)] if how == VALUE:
                    return what
            return None
        at = at.parent
    return None


def values_in(scope: Scope, file: SourceFile, hops: int = MOST_STEPS_TO_MEANING) -> ExpressionValues:
    """The values of expressions in a scope."""
    return ExpressionValues(
        lambda name: bound_once(name, scope), lambda part: _dotted(meaning(part, scope, file, hops))
    )


def _dotted(found: Meaning) -> str:
    return found.name.removeprefix("builtins.") if isinstance(found, Named) else ""


def _text(node: ast.expr | None, scope: Scope, file: SourceFile, hops: int) -> str:
    """The complete text of an expression; empty if the source does not show it."""
    if isinstance(node, ast.Constant) or node is None:
        return node.value if node is not None and isinstance(node.value, str) else ""
    found = values_in(scope, file, hops - MOST_STEPS_TO_MEANING // 2).prefix_of(node)
    return found.text if found is not None and found.complete else ""


def _named_by_text(function: str, call: ast.Call, scope: Scope, file: SourceFile, hops: int) -> Meaning:
    """What `getattr(os, "remove")`, `__import__("os")` and their like give."""
    given = [*call.args, *(one.value for one in call.keywords if one.arg == "name")]
    if function in _GETATTR:
        name = _text(given[1], scope, file, hops) if len(given) > 1 else ""
        return _attribute(meaning(given[0], scope, file, hops - 1), name, hops) if name else None
    text = _text(given[0], scope, file, hops) if given else ""
    if not text or text.startswith("."):
        return None
    if function == "pkgutil.resolve_name":
        return _outside(text.replace(":", "."))
    is_whole = (
        function.endswith("import_module") or len(call.args) > 3 or any(k.arg == "fromlist" for k in call.keywords)
    )
    return imported_meaning(text if is_whole else text.partition(".")[0], "", file, hops)


def _looked_up(table_of: ast.expr, key: ast.expr, scope: Scope, file: SourceFile, hops: int) -> Meaning:
    """What `vars(os)["remove"]`, `sys.modules["os"]` and their like give."""
    if isinstance(table_of, ast.Name):
        table_of = bound_once(table_of.id, scope) or table_of
    match table_of:
        case ast.Call(func=func, args=args):
            called = meaning(func, scope, file, hops - 1)
            if not (isinstance(called, Named) and called.name in NAMESPACES):
                return called if isinstance(called, Held) else None
            name = _text(key, scope, file, hops)
            if args:
                return _attribute(meaning(args[0], scope, file, hops - 1), name, hops) if name else None
            return _name(name, file.scope if called.name == "builtins.globals" else scope, file, hops) if name else None
        case ast.Attribute(value=value, attr="__dict__"):
            name = _text(key, scope, file, hops)
            return _attribute(meaning(value, scope, file, hops - 1), name, hops) if name else None
        case ast.Name() | ast.Attribute():
            match meaning(table_of, scope, file, hops - 1):
                case Held() as held:
                    return held
                case Named("builtins"):
                    name = _text(key, scope, file, hops)
                    return Named(f"builtins.{name}") if name else None
                case Named("sys.modules"):
                    if isinstance(key, ast.Name) and key.id == "__name__":
                        return Package(file)
                    return imported_meaning(_text(key, scope, file, hops), "", file, hops)
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
                known[at, name] = _bound(bindings, at, file, hops)
            return known[at, name]
        at = at.parent
    if "*" in file.scope.bindings and (found := _of_star(name, file, hops)) is not None:
        return found
    if name == "__builtins__":
        return Named("builtins")
    return Named(f"builtins.{name}") if name in _BUILTINS else None


def _of_star(name: str, file: SourceFile, hops: int) -> Meaning:
    """What a name means that a star import may have brought: something of the project, or of the table."""
    for binding in reversed(file.scope.bindings["*"]):
        if not isinstance(binding.what, Imported) or not (module := file.imported_from(binding.what)):
            continue
        found = imported_meaning(module, name, file, hops - 1)
        if not isinstance(found, Named) or found.name in table.uses() or found.name in table.values():
            return found
    return None


def _bound(bindings: list[Binding], scope: Scope, file: SourceFile, hops: int) -> Meaning:
    """The one meaning of all bindings, without those to constants. One to something in the table always counts."""
    if len(bindings) == 1:
        return _meaning(bindings[0], scope, file, hops)
    imports = [one for one in bindings if one.how == IMPORT]
    others = [one for one in bindings if one.how != IMPORT and not isinstance(one.what, ast.Constant)]
    found = [_meaning(one, scope, file, hops - 1) for one in (*imports[:50], *others[:MOST_BINDINGS])]
    for one in found:  # such as in `try: import a` and `except ImportError: import b as a`
        if isinstance(one, Named) and one.name.partition(".")[0] in table.roots():
            return one
    if not found or None in found or len(others) > MOST_BINDINGS:
        return None
    same = all(isinstance(one, Named) for one in found) or all(one == found[0] for one in found)
    return found[0] if same else None


def _meaning(binding: Binding, scope: Scope, file: SourceFile, hops: int) -> Meaning:
    how, what, annotation = binding.how, binding.what, binding.annotation
    if annotation is not None and (found := type_of(annotation, scope, file, hops - 1)) is not None:
        return found
    if how == VALUE and isinstance(what, ast.expr):
        found = meaning(what, scope, file, hops - 1)
        return found if found is not None or not _holds(what, scope, file, hops) else Held(file, scope, what)
    if isinstance(what, Imported):
        return imported_meaning(file.imported_from(what), what.name, file, hops)
    if how == FUNCTION and isinstance(what, Function):
        node, around = scope.node, scope.parent
        owner = file.class_of(node, scope, around) if isinstance(node, ast.ClassDef) and around else None
        in_function = isinstance((around or scope).node if owner else node, Function | ast.Lambda)
        return None if in_function else Code(file, what, owner)  # a function inside another is walked with it
    if how == CLASS and isinstance(what, ast.ClassDef):
        return file.class_of(what, scope.classes[what], scope)
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


def _holds(what: ast.expr, scope: Scope, file: SourceFile, hops: int) -> bool:
    """Whether a value at module level may give the functions that it names, as a table does, or `functools.partial`."""
    if isinstance(scope.node, Function | ast.Lambda):
        return False  # functions that are named in a function are followed anyway
    if isinstance(what, ast.Call):
        called = meaning(what.func, scope, file, hops - 1)
        return isinstance(called, Named) and called.name.partition(".")[0] in sys.stdlib_module_names
    return isinstance(what, _HOLDING)


def imported_meaning(module: str, name: str, file: SourceFile, hops: int = MOST_STEPS_TO_MEANING) -> Meaning:
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
    dotted = dotted.removesuffix(".__call__")
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
                return _bound(file.scope.bindings[attr], file.scope, file, hops - 1)
            inner = file.project.find(f"{file.module}.{attr}") if is_package(file.path) else None
            return Package(inner) if inner is not None else None
        case Held():
            return of
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
        found = _bound(body.bindings[attr], body, file, hops)
        if found is not None:
            return found
    first = body.bindings.get("__init__", ())
    if first and isinstance(first[-1].what, Function):
        begin = file.scope_of(Code(file, first[-1].what, owner))
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
        case Held():
            return called
        case Code(file, node):
            return type_of(node.returns, file.scope, file, hops - 1) if node.returns is not None else None
    return None
