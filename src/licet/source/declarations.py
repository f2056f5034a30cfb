"""Reads the tools that one Python file declares, with `@tool(…)`, `Tool.wasm(…)` or `governed(…)`, from its source.

Nothing in the file is run.
"""

import ast
import inspect
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed
from licet.core.policy.tool import ToolSpec, spec_of, summary
from licet.core.values import Compared, Problem
from licet.declare import tool
from licet.declare.wasm import PYTHON
from licet.source.declaration_forms import (
    DeclarationForm,
    GovernedCall,
    WasmCall,
    WasmFile,
    governed_calls,
    malformed,
    read_arguments,
    read_governed,
    read_wasm,
    wasm_calls,
)
from licet.source.names import GOVERNED, MOST_IN_FILE, TOOL, WASM, Binding, Function, Imported, Names, TooManyValues
from licet.source.text import Lines, SourceText, parse, read_bytes

MOST_PROBLEMS = 1000  # then reading stops, so that a hostile file cannot use much time
UNREAD = "what follows was not read"
# Every node of a file is compared with these; a tuple is faster than a union.
_DECORATED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAMES = (ast.Name, ast.Attribute)
_EXPECTED = {
    TOOL: "`@tool(…)` above a function",
    WASM: "`NAME = Tool.wasm(…)` at the top level of a module",
    GOVERNED: "`NAME = governed(…)` at the top level of a module",
}
_WASM_WORD = b".wasm"
_CONTEXTS = ("Context", "SyncContext")
_LONGEST_SIGNATURE = 2000  # characters
_PLAIN_TYPES = frozenset({"str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "set", "Literal", "Context"})


def _check(key: str, value: Any) -> None:
    spec_of(**{"name": "any", **({} if key in ("capabilities", "needs") else {"needs": ()}), key: value})


_ARGUMENTS = tuple(
    parameter.name
    for parameter in inspect.signature(tool).parameters.values()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)
_TOOL = DeclarationForm("`@tool`", _ARGUMENTS, _check)


class DeclaredTool(Struct, frozen=True):
    """A decorated function, or a WebAssembly module. If `spec` is None, at least one problem is an error."""

    function: str  # the name that the file gives it
    spec: ToolSpec | None
    problems: tuple[Problem, ...]
    wasm: WasmFile | None = None


class Meaning(Struct, frozen=True):
    """The last binding of a name in a module, without a reference to the syntax tree."""

    times: int  # how often the name is bound
    line: int
    offset: int
    imported: Imported | None
    may_be_tool: bool  # a function, or a call that declares a module


class Module(Compared, frozen=True):
    """The tools that one file declares, and the meaning of each of its names."""

    _not_compared: ClassVar[frozenset[str]] = frozenset({"by_function"})

    lines: Lines
    names: Mapping[str, Meaning]
    declared: tuple[DeclaredTool, ...]
    problems: tuple[Problem, ...]  # of the file, not of a single tool
    unread: Problem | None = None  # why the rest of the file was not read, if it was not
    by_function: Mapping[str, DeclaredTool] = {}  # if a name is declared twice, the first one

    def with_declared(self, declared: tuple[DeclaredTool, ...]) -> "Module":
        """The same module with other declarations."""
        return replace(self, declared=declared, by_function={one.function: one for one in reversed(declared)})


@lru_cache(maxsize=8)  # a command may first review a policy and then load its tools
def module_of(data: bytes, file: str) -> Module | Problem:
    """Read what a file declares, or return the problem if it cannot be parsed."""
    text = parse(data, file)
    return text if isinstance(text, Problem) else module_in(text)


def wasm_files(file: str) -> tuple[str, ...]:
    """The WebAssembly modules that a source file declares as tools; none if it cannot be read."""
    data = read_bytes(file, file)
    module = module_of(data, file) if isinstance(data, bytes) and _WASM_WORD in data else None
    if not isinstance(module, Module):
        return ()
    named = [one.wasm.file for one in module.declared if one.wasm and one.wasm.file != PYTHON]
    return tuple(os.path.join(os.path.dirname(file), name) for name in named)


def module_in(text: SourceText) -> Module:
    """Read what a parsed file declares."""
    names = Names(text)
    top = {node for node in names.top if isinstance(node, Function)}
    in_class = {one for node in text.nodes if isinstance(node, ast.ClassDef) for one in node.body}
    declared: list[DeclaredTool] = []
    problems: list[Problem] = []
    read: set[ast.AST] = set()  # names of licet in declarations
    unread: Problem | None = None
    count = 0
    for node, marks in _declarations(text, names):
        read |= {_called(mark) for mark in marks}
        if isinstance(node, ast.ClassDef):
            problems.append(_misplaced(text, marks[0], f"a class `{node.name}` as a tool", "error"))
        elif isinstance(node, WasmCall | GovernedCall) or node in top:
            try:
                declared.append(_read(text, names, node, marks))
            except TooManyValues as spent:
                found = f"more than {MOST_IN_FILE} values in the declarations up to `{node.name}`"
                unread = Problem(text.place(spent.node), found, "fewer", UNREAD)
                break
            count += len(declared[-1].problems)
        elif node in in_class:
            problems.append(_misplaced(text, marks[0], f"the method `{node.name}` as a tool", "error"))
        else:
            problems.append(_misplaced(text, marks[0], f"the tool `{node.name}` inside a function", "warning"))
        if count + len(problems) > MOST_PROBLEMS:
            unread = Problem(text.place(marks[0]), f"more than {MOST_PROBLEMS} problems", "fewer", UNREAD)
            break
    else:
        problems += islice(_other_uses(text, names, read), MOST_PROBLEMS)
    problems += [unread] if unread else []
    lines = Lines(text.file, text.lines)
    once = tuple(_unique_names(declared))
    meanings = {name: _meaning(bindings) for name, bindings in names.by_name().items()}
    return Module(lines, meanings, (), tuple(problems), unread).with_declared(once)


def _meaning(bindings: list[Binding]) -> Meaning:
    node, meaning = bindings[-1].node, bindings[-1].meaning
    imported = meaning if isinstance(meaning, Imported) else None
    line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return Meaning(len(bindings), line, offset, imported, isinstance(meaning, Function | ast.Call))


_Declaration = Function | ast.ClassDef | WasmCall | GovernedCall


def _declarations(text: SourceText, names: Names) -> list[tuple[_Declaration, list[ast.expr]]]:
    """What is decorated with `tool`, with these decorators, and calls that declare tools; in file order."""
    marked: list[tuple[_Declaration, list[ast.expr]]] = [
        (node, [mark for mark in node.decorator_list if TOOL in names.dotted(_called(mark))])
        for node in text.nodes
        if isinstance(node, _DECORATED)
    ]
    marked += ((one, [one.call]) for one in wasm_calls(names))
    marked += ((one, [one.call]) for one in governed_calls(names))
    return sorted((one for one in marked if one[1]), key=lambda one: one[0].lineno)


def _read(
    text: SourceText, names: Names, node: Function | WasmCall | GovernedCall, marks: list[ast.expr]
) -> DeclaredTool:
    if isinstance(node, GovernedCall):
        return DeclaredTool(node.name, *read_governed(text, names, node))
    if isinstance(node, WasmCall):
        spec, file, problems = read_wasm(text, names, node)
        return DeclaredTool(node.name, spec, problems, file)
    return _declared(text, names, node, marks)


def _declared(text: SourceText, names: Names, node: Function, marks: list[ast.expr]) -> DeclaredTool:
    mark = marks[0]
    origin, problems = text.place_of_decorator(mark), _decorator_problems(text, names, node, marks)
    given = read_arguments(text, names, mark, node.name, _TOOL, origin, problems)
    spec = None
    if given.sound:
        described = {"name": node.name, "description": summary(ast.get_docstring(node) or "")}
        try:
            spec = spec_of(**{**described, **given.values}, origin=origin)
            spec = replace(spec, parameters=_parameters(node), signature=_signature(node))
        except Malformed as error:
            given.problems.append(malformed(origin, error))
    return DeclaredTool(node.name, spec, tuple(given.problems))


def _parameters(node: Function) -> tuple[str, ...] | None:
    """The names of the arguments; None if one may have another name, such as by `Field(alias=…)`."""
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    if given.kwarg or any(isinstance(default, ast.Call) for default in (*given.defaults, *given.kw_defaults)):
        return None
    if not all(one.annotation and _plain(one.annotation) for one in every):
        return None
    return tuple(
        one.arg for one in every if not (isinstance(one.annotation, ast.Name) and one.annotation.id == "Context")
    )


def _signature(node: Function) -> str:
    """The arguments with their types and defaults, as text; the context is left out."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + [*given.defaults]
    pairs = [*zip(positional, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    words = [
        ast.unparse(one) + (f" = {ast.unparse(default)}" if default is not None else "")
        for one, default in pairs
        if not (isinstance(one.annotation, ast.Name) and one.annotation.id in _CONTEXTS)
    ]
    more = [f"{sign}{ast.unparse(one)}" for sign, one in (("*", given.vararg), ("**", given.kwarg)) if one is not None]
    return ", ".join((*words, *more))[:_LONGEST_SIGNATURE]


def _plain(annotation: ast.expr) -> bool:
    kinds = (ast.Name, ast.Subscript, ast.Tuple, ast.Constant, ast.BinOp, ast.BitOr, ast.Load)
    return all(
        isinstance(part, kinds) and not (isinstance(part, ast.Name) and part.id not in _PLAIN_TYPES)
        for part in ast.walk(annotation)
    )


def _decorator_problems(text: SourceText, names: Names, node: Function, marks: list[ast.expr]) -> Iterator[Problem]:
    """Problems because of which the running program might get another tool than the source shows."""
    origin = text.place_of_decorator(marks[0])
    if len(marks) > 1:
        yield Problem(text.place_of_decorator(marks[1]), f"`@tool` twice on `{node.name}`", "one `@tool`")
    called = _called(marks[0])
    if len(names.dotted(called)) > 1:
        found = f"{names.excerpt(called)} on `{node.name}`, a name that this file binds more than once"
        yield Problem(origin, found, "a name bound once, by its import from licet")
    if (count := len(names.bindings(node.name))) > 1:
        found = f"`{node.name}` bound {count} times in this file"
        yield Problem(origin, found, "one function of that name", "rename one, or declare `needs:` in licet.yaml")
    if marks[0] is not node.decorator_list[0]:
        found = f"{names.excerpt(node.decorator_list[0])} above `@tool` of `{node.name}`"
        expected = "`@tool` as the first decorator"
        yield Problem(origin, found, expected, "what the other makes of the tool is not read", "warning")


def _unique_names(declared: list[DeclaredTool]) -> Iterator[DeclaredTool]:
    first: dict[str, ToolSpec] = {}
    for one in declared:
        spec = one.spec
        if spec is not None and spec.name in first and spec.origin:
            again = Problem(
                spec.origin,
                f"a second tool called `{spec.name}`",
                "each name once",
                f"the first is at {first[spec.name].origin}",
            )
            yield DeclaredTool(one.function, None, (*one.problems, again))
            continue
        if spec is not None:
            first[spec.name] = spec
        yield one


def _misplaced(text: SourceText, mark: ast.expr, found: str, severity: Literal["error", "warning"]) -> Problem:
    hint = "it is not read; declare it in licet.yaml" if severity == "warning" else ""
    return Problem(text.place_of_decorator(mark), found, "a function of the module", hint, severity)


def _other_uses(text: SourceText, names: Names, read: set[ast.AST]) -> Iterator[Problem]:
    """Warn about other uses of `tool` and `Tool.wasm`, which may declare tools that the source does not show."""
    of_licet = names.of_licet()
    for node in text.nodes:
        if not isinstance(node, _NAMES) or not isinstance(node.ctx, ast.Load):
            continue
        start = node.value if isinstance(node, ast.Attribute) else node
        while isinstance(start, ast.Attribute):
            start = start.value
        if not isinstance(start, ast.Name) or start.id not in of_licet:
            continue
        if node not in read and (known := next(iter(names.dotted(node) & _EXPECTED.keys()), "")):
            hint = "what it declares is not read; declare `needs:` in licet.yaml"
            found = f"{names.excerpt(node)} used by hand"
            yield Problem(text.place(node), found, _EXPECTED[known], hint, "warning")


def _called(mark: ast.expr) -> ast.expr:
    return mark.func if isinstance(mark, ast.Call) else mark
