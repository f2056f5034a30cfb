"""Reads the arguments of one declaration from its source: literals, each checked alone.

`@tool(…)`; `NAME = governed(function, needs=…, effect=…)`; and `NAME = Tool.wasm("file.wasm", …)`. The function that is
governed, with the decorators of its framework, is looked up in the same file: its parameters show which arguments are
tied. What is not a function of the file has to be given a name, and its arguments are known when it is imported.

A WebAssembly module, a file next to the source, is read and hashed in a second step: source that stays the same may be
kept, and the module may change meanwhile.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed, visible
from licet.core.policy.argument_ties import FREE, SCOPES
from licet.core.policy.tool import TOUCHES_NOTHING, ToolCapabilities, ToolSpec, spec_of, summary
from licet.core.values import Origin, Problem, near_hint
from licet.declare import Tool
from licet.declare.wasm import path_of, wasm_spec
from licet.source.limits import LONGEST_SHOWN, MOST_ARGUMENTS
from licet.source.literals import Names, NotLiteral
from licet.source.scopes import Function
from licet.source.source_files import SourceText

RENAME_HINT = "rename one, or declare `needs:` in licet.yaml"
LITERAL_HINT = "write it as a literal, or declare `needs:` in licet.yaml"
_NOT_EVALUATED = frozenset({"available"})  # a function, which is not part of what a tool touches


class BoundCall(Struct, frozen=True, eq=False):
    """A name that a file binds to a call that declares a tool."""

    name: str
    call: ast.Call
    of: str  # `WASM` or `GOVERNED`

    @property
    def lineno(self) -> int:
        """The first line of the call."""
        return self.call.lineno


def bound_calls(names: Names, of: str) -> Iterator[BoundCall]:
    """The declarations of a file by one call, without those inside functions and classes."""
    for name, bindings in names.by_name().items():
        for binding in bindings:
            call = binding.what
            if isinstance(call, ast.Call) and of in names.dotted(call.func):
                yield BoundCall(name, call, of)


class DeclarationForm(Struct, frozen=True):
    """A way to declare a tool: how messages call it, its arguments with names, and a check of one of them.

    The check raises `Malformed`.
    """

    label: str
    arguments: tuple[str, ...]
    check: Callable[[Mapping[str, Any]], object]


class Given(Struct):
    """The arguments of a declaration: those that were read, those that were written, and the problems."""

    values: dict[str, Any]
    written: dict[str, ast.expr]
    problems: list[Problem]

    @property
    def is_conditional(self) -> bool:
        """Whether a check decides where the tool can run, which is not evaluated, or the tool never runs."""
        check = self.written.get("available")
        return check is not None and not (isinstance(check, ast.Constant) and check.value in (None, True))

    @property
    def sound(self) -> bool:
        """Whether no problem is an error."""
        return not any(problem.severity == "error" for problem in self.problems)


def read_arguments(
    text: SourceText,
    names: Names,
    call: ast.expr,
    function: str,
    form: DeclarationForm,
    origin: Origin,
    problems: Iterable[Problem],
    *,
    unnamed: int = 0,
) -> Given:
    """Read the arguments of a declaration that has some problems. The first `unnamed` ones are not read here."""
    given = Given({}, {}, list(problems))
    if isinstance(call, ast.Call):
        if len(call.args) + len(call.keywords) > MOST_ARGUMENTS:
            found = f"more than {MOST_ARGUMENTS} arguments in {form.label} of `{function}`"
            given.problems.append(Problem(origin, found, f"those that it has: {', '.join(form.arguments)}"))
        for item in call.args[unnamed:MOST_ARGUMENTS]:
            found = f"{names.excerpt(item)} without a name in {form.label} of `{function}`"
            given.problems.append(Problem(text.place(item), found, "arguments with names, such as `capabilities=`"))
        for keyword in call.keywords[:MOST_ARGUMENTS]:
            problem = _read_argument(text, names, function, keyword, form, given)
            given.problems += [problem] if problem else []
    given.problems += _touched_problems(text, function, given, origin)
    return given


def spec_of_part(given: Mapping[str, Any]) -> ToolSpec:
    """The spec of a tool with these arguments and a name. Raises `Malformed`."""
    return spec_of(**{"name": "any", **given})


def _touched_problems(text: SourceText, function: str, given: Given, origin: Origin) -> Iterator[Problem]:
    if given.sound and not given.values.keys() & {"capabilities", "needs"}:
        found = f"`{function}`, which does not say what it touches"
        yield Problem(origin, found, "`capabilities=` or `needs=`", TOUCHES_NOTHING)
    elif given.values.keys() >= {"capabilities", "needs"}:
        found = f"both `capabilities=` and `needs=` on `{function}`"
        yield Problem(text.place(given.written["needs"]), found, "one of the two")


def _read_argument(
    text: SourceText, names: Names, function: str, keyword: ast.keyword, form: DeclarationForm, given: Given
) -> Problem | None:
    """Read one argument, or return the problem."""
    key, origin = keyword.arg, text.place(keyword.value)
    if key is None:
        found = f"`**` of {names.excerpt(keyword.value)} in {form.label} of `{function}`"
        return Problem(origin, found, "arguments one by one", LITERAL_HINT)
    if key not in form.arguments:
        listed = ", ".join(f"`{name}`" for name in form.arguments)
        found = f"`{key}=` in {form.label} of `{function}`"
        return Problem(text.place(keyword), found, listed, near_hint(key[:64].lower(), form.arguments))
    if key in given.written:
        return Problem(text.place(keyword), f"`{key}=` twice in {form.label} of `{function}`", "it once")
    given.written[key] = keyword.value
    if key in _NOT_EVALUATED:
        if isinstance(keyword.value, ast.Constant) and not isinstance(keyword.value.value, bool | None):
            return Problem(origin, f"`{key}=` of `{function}`", "a function, True or False")
        return None
    try:
        value = names.value(keyword.value)
        if key == "reuse" and not isinstance(value, bool):
            return Problem(origin, f"`reuse=` of `{function}`", "True or False")
        if isinstance(value, ToolCapabilities):
            value = value.as_mapping()
        if value is not None:
            # Check each argument alone, so that all problems of a declaration are reported at once.
            form.check({key: value} if key in ("capabilities", "needs") else {"needs": (), key: value})
            given.values[key] = value
    except NotLiteral as error:
        return not_literal(text, function, key, error)
    except Malformed as error:
        return malformed(origin, error)
    return None


def rebinding_problems(
    names: Names, called: ast.expr, place: str, name: str, origin: Origin, once: str
) -> Iterator[Problem]:
    """Problems because of which the running program might get another tool than the source shows."""
    if len(names.dotted(called)) > 1:
        found = f"{names.excerpt(called)} {place}, a name that this file binds more than once"
        yield Problem(origin, found, "a name bound once, by its import from licet")
    if (count := len(names.bindings(name))) > 1:
        found = f"`{name}` bound {count} times in this file"
        yield Problem(origin, found, f"{once} of that name", RENAME_HINT)


def not_literal(text: SourceText, function: str, key: str, error: NotLiteral) -> Problem:
    """The problem of an argument whose value is not known without running the code."""
    return Problem(
        text.place(error.node), f"`{key}=` of `{function}` given by {error.found}", "a literal", LITERAL_HINT
    )


def malformed(origin: Origin, error: Malformed) -> Problem:
    """The problem of a wrong value."""
    return Problem(origin, f"`{_short(visible(error.found))}`", error.expected, _short(error.hint))


def _short(text: str) -> str:
    """Cut a text. A constant may be as long as the file, and thousands of tools may use it."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


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


def _check_governed(given: Mapping[str, Any]) -> None:
    if _ARGS in given:
        _check_args(given[_ARGS])
    else:
        spec_of_part(given)


def _check_args(value: object) -> None:
    rules = value.values() if isinstance(value, Mapping) else (value,)
    for rule in rules:
        scope = rule.get("scope") if isinstance(rule, Mapping) and len(rule) == 1 else None
        if rule != FREE and scope not in SCOPES:
            raise Malformed(str(rule), f"`{FREE}`, or a `scope` that is one of {', '.join(SCOPES)}, in `{_ARGS}=`")


_GOVERNED = DeclarationForm("`governed`", _ARGUMENTS, _check_governed)


def read_governed(
    text: SourceText, names: Names, declaration: BoundCall
) -> tuple[ToolSpec | None, tuple[Problem, ...]]:
    """Read one declaration. If there is no spec, at least one problem is an error."""
    name, call, origin = declaration.name, declaration.call, text.place(declaration.call)
    problems: list[Problem] = []
    if len(names.dotted(call.func)) > 1 or len(names.bindings(name)) > 1:
        found = f"`{name}` or {names.excerpt(call.func)} bound more than once in this file"
        problems.append(Problem(origin, found, "one meaning of each name", RENAME_HINT))
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
    found = bindings[0].what if len(bindings) == 1 else None
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


_LABEL = "`Tool.wasm`"
_FILE = "file"


class WasmFile(Struct, frozen=True):
    """The file of a module as a declaration names it, and where."""

    file: str
    origin: Origin


def _check_wasm(given: Mapping[str, Any]) -> None:
    wasm_spec(**{"file": "any.wasm", **given})


_WASM = DeclarationForm(_LABEL, tuple(inspect.signature(Tool.wasm).parameters), _check_wasm)


def read_wasm(
    text: SourceText, names: Names, declaration: BoundCall
) -> tuple[ToolSpec | None, WasmFile | None, tuple[Problem, ...]]:
    """Read one declaration. If there is no spec, at least one problem is an error; the spec has no `source` yet."""
    name, call, origin = declaration.name, declaration.call, text.place(declaration.call)
    bound = rebinding_problems(names, call.func, f"for `{name}`", name, origin, "one meaning")
    given = read_arguments(text, names, call, name, _WASM, origin, bound, unnamed=1)
    file = _file(text, names, name, call, given)
    spec = None
    if given.sound and file is not None:
        try:
            spec = wasm_spec(**{**given.values, _FILE: file.file}, origin=origin)
            spec = replace(spec, conditional=given.is_conditional)
        except Malformed as error:
            given.problems.append(malformed(origin, error))
    return spec, file, tuple(given.problems)


def _file(text: SourceText, names: Names, name: str, call: ast.Call, given: Given) -> WasmFile | None:
    """The file that a declaration names, as its first argument or as `file=`."""
    if _FILE in given.written:
        if call.args:
            found = f"`{_FILE}=` twice in {_LABEL} of `{name}`"
            given.problems.append(Problem(text.place(given.written[_FILE]), found, "it once"))
        value = given.values.get(_FILE)
        return WasmFile(value, text.place(given.written[_FILE])) if isinstance(value, str) else None
    if not call.args:
        expected = 'the path of a module, such as `Tool.wasm("count.wasm", …)`'
        given.problems.append(Problem(text.place(call), f"{_LABEL} of `{name}` without a file", expected))
        return None
    try:
        return WasmFile(path_of(names.value(call.args[0])), text.place(call.args[0]))
    except NotLiteral as error:
        given.problems.append(not_literal(text, name, _FILE, error))
    except Malformed as error:
        given.problems.append(malformed(text.place(call.args[0]), error))
    return None
