"""Reads the tools that a module declares as `NAME = governed(function, needs=…, effect=…)`, from its source.

The function, with the decorators of its framework, is looked up in the same file: its parameters show which arguments
are tied. What is not a function of the file has to be given a name, and its arguments are known when it is imported.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed
from licet.core.origin import Problem
from licet.core.policy.argument_ties import FREE
from licet.core.policy.tool import ToolSpec, spec_of, summary
from licet.policy_files.argument_rules import SCOPES
from licet.policy_files.source.arguments import DeclarationForm, malformed, read_arguments
from licet.policy_files.source.names import GOVERNED, Function, Names
from licet.policy_files.source.text import SourceText

_ARGUMENTS = ("needs", "effect", "name", "description", "connector", "cost_usd", "args")
_ARGS = "args"
_NOTHING: Mapping[str, Any] = {"const": None}  # of a type that is not known here
# What the types of parameters mean in a JSON Schema, by the last part of their names.
_MEANINGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("str bytes AnyStr", {"type": "string"}),
    ("Path PurePath PosixPath PathLike FilePath DirectoryPath NewPath", {"type": "string", "format": "path"}),
    ("AnyUrl AnyHttpUrl HttpUrl FileUrl FtpUrl AnyWebsocketUrl Url", {"type": "string", "format": "uri"}),
    ("Any object", {}),
    ("list set tuple frozenset List Sequence Iterable", {"type": "array"}),
    ("dict Dict Mapping", {"type": "object"}),
)
_TYPES = {word: meaning for words, meaning in _MEANINGS for word in words.split()}
_UNIONS = ("Optional", "Union")


class GovernedCall(Struct, frozen=True, eq=False):
    """A name that a file binds to a call of `governed`."""

    name: str
    call: ast.Call

    @property
    def lineno(self) -> int:
        """The first line of the call."""
        return self.call.lineno


def governed_calls(names: Names) -> Iterator[GovernedCall]:
    """The declarations of a file, without those inside functions and classes."""
    for name, bindings in names.by_name().items():
        for binding in bindings:
            call = binding.meaning
            if isinstance(call, ast.Call) and GOVERNED in names.dotted(call.func):
                yield GovernedCall(name, call)


def _check(key: str, value: Any) -> None:
    if key == _ARGS:
        _check_args(value)
        return
    spec_of(**{"name": "any", **({} if key == "needs" else {"needs": ()}), key: value})


def _check_args(value: Any) -> None:
    rules = value.values() if isinstance(value, Mapping) else (value,)
    for rule in rules:
        scope = rule.get("scope") if isinstance(rule, Mapping) and len(rule) == 1 else None
        if rule != FREE and scope not in SCOPES:
            raise Malformed(str(rule), f"`{FREE}`, or a `scope` that is one of {', '.join(SCOPES)}, in `{_ARGS}=`")


_GOVERNED = DeclarationForm("`governed`", _ARGUMENTS, _check)


def read_governed(
    text: SourceText, names: Names, declaration: GovernedCall
) -> tuple[ToolSpec | None, tuple[Problem, ...]]:
    """Read one declaration. If there is no spec, at least one problem is an error."""
    name, call, origin = declaration.name, declaration.call, text.place(declaration.call)
    problems: list[Problem] = []
    if len(names.dotted(call.func)) > 1 or len(names.bindings(name)) > 1:
        found = f"`{name}` or {names.excerpt(call.func)} bound more than once in this file"
        problems.append(
            Problem(origin, found, "one meaning of each name", "rename one, or declare `needs:` in licet.yaml")
        )
    given = read_arguments(text, names, call, name, _GOVERNED, origin, problems, unnamed=1)
    function = _function(names, call)
    values = dict(given.values)
    args = values.pop(_ARGS, {})
    if "name" not in values and function is None:
        found = f"{names.excerpt(call)}, whose tool is not a function of this file"
        given.problems.append(Problem(origin, found, f"its name, such as `name={name!r}`"))
    if not given.sound:
        return None, tuple(given.problems)
    described = {"name": function.name, "description": summary(ast.get_docstring(function) or "")} if function else {}
    try:
        spec = spec_of(**{**described, **values}, sandbox="native", origin=origin)
    except Malformed as error:
        return None, (*given.problems, malformed(origin, error))
    sketch = _sketch(function) if function is not None else None
    return replace(spec, args=dict(args), governed=True, sketch=sketch), tuple(given.problems)


def _function(names: Names, call: ast.Call) -> Function | None:
    """The function of this file that is governed; None if it is something else."""
    first = call.args[0] if call.args else None
    bindings = names.bindings(first.id) if isinstance(first, ast.Name) else ()
    found = bindings[0].meaning if len(bindings) == 1 else None
    return found if isinstance(found, Function) else None


def _sketch(function: Function) -> dict[str, Any]:
    """The JSON Schema of the parameters of a function, as far as their types can be read."""
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return {"type": "object", "properties": {one.arg: _schema(one.annotation) for one in every}}


def _schema(annotation: ast.expr | None) -> Mapping[str, Any]:
    match annotation:
        case None:
            return {}
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str() as quoted):
            return _quoted(quoted)
        case ast.Name(id=word) | ast.Attribute(attr=word):
            return _TYPES.get(word, _NOTHING)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return {"anyOf": [_schema(left), _schema(right)]}
        case ast.Subscript(value=ast.Name(id=word) | ast.Attribute(attr=word), slice=inner):
            return _of(word, inner.elts if isinstance(inner, ast.Tuple) else [inner])
        case _:
            return _NOTHING


def _quoted(annotation: str) -> Mapping[str, Any]:
    try:
        return _schema(ast.parse(annotation, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _NOTHING


def _of(word: str, parts: list[ast.expr]) -> Mapping[str, Any]:
    """The schema of a type with parameters, such as `list[str]`."""
    if word == "Annotated":
        return _schema(parts[0])
    if word in _UNIONS:
        return {"anyOf": [_schema(part) for part in parts]}
    match _TYPES.get(word, _NOTHING).get("type"):
        case "array":
            return {"type": "array", "items": {"anyOf": [_schema(part) for part in parts]}}
        case "object":
            return {"type": "object", "additionalProperties": _schema(parts[-1])}
        case "string":  # `PathLike[str]`
            return _TYPES[word]
        case _:
            return _NOTHING
