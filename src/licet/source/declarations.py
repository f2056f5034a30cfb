"""Reads the tools that Python files declare, with `@tool(…)`, `Tool.wasm(…)` or `governed(…)`, from their source.

All tools of a file, or the tool that `pkg.mod:func` names. Nothing is imported or run. Such a declaration has no
argument `schema`, since type hints are code and code under review is not run. So its digest differs from that of the
running tool. Its needs, class, level, connector and cost are the same.
"""

import ast
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed, visible
from licet.core.policy.tool import ToolSpec, spec_of, summary
from licet.core.values import Compared, Origin, Problem, near_hint
from licet.declare import tool
from licet.declare.wasm import PYTHON, read_module
from licet.own_files import size_text
from licet.source.declaration_arguments import (
    BoundCall,
    DeclarationForm,
    WasmFile,
    bound_calls,
    malformed,
    read_arguments,
    read_governed,
    read_wasm,
    rebinding_problems,
    spec_of_part,
)
from licet.source.imports import (
    INSTALLED,
    InstalledModule,
    locate,
    split_reference,
)
from licet.source.limits import (
    LONGEST_REFERENCE,
    LONGEST_SIGNATURE,
    MOST_BYTES_IN_REVIEW,
    MOST_COMPARED,
    MOST_HOPS,
    MOST_PROBLEMS,
    MOST_TOKENS,
    MOST_TOKENS_IN_REVIEW,
    MOST_VALUES_IN_FILE,
    MOST_WASM_BYTES_IN_REVIEW,
)
from licet.source.literals import GOVERNED, TOOL, WASM, Names, TooManyValues
from licet.source.scopes import Binding, Function, Imported, absolute
from licet.source.source_files import Lines, SourceText, parse, read_bytes, token_count

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
_PLAIN_TYPES = frozenset({"str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "set", "Literal", "Context"})


_ARGUMENTS = tuple(
    parameter.name
    for parameter in inspect.signature(tool).parameters.values()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)
_TOOL = DeclarationForm("`@tool`", _ARGUMENTS, spec_of_part)


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
        elif isinstance(node, BoundCall) or node in top:
            try:
                declared.append(_read(text, names, node, marks))
            except TooManyValues as spent:
                found = f"more than {MOST_VALUES_IN_FILE} values in the declarations up to `{node.name}`"
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
    node, meaning = bindings[-1].node, bindings[-1].what
    imported = meaning if isinstance(meaning, Imported) else None
    line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return Meaning(len(bindings), line, offset, imported, isinstance(meaning, Function | ast.Call))


_Declaration = Function | ast.ClassDef | BoundCall


def _declarations(text: SourceText, names: Names) -> list[tuple[_Declaration, list[ast.expr]]]:
    """What is decorated with `tool`, with these decorators, and calls that declare tools; in file order."""
    marked: list[tuple[_Declaration, list[ast.expr]]] = [
        (node, [mark for mark in node.decorator_list if TOOL in names.dotted(_called(mark))])
        for node in text.nodes
        if isinstance(node, _DECORATED)
    ]
    marked += ((one, [one.call]) for known in (WASM, GOVERNED) for one in bound_calls(names, known))
    return sorted((one for one in marked if one[1]), key=lambda one: one[0].lineno)


def _read(text: SourceText, names: Names, node: Function | BoundCall, marks: list[ast.expr]) -> DeclaredTool:
    if not isinstance(node, BoundCall):
        return _declared(text, names, node, marks)
    if node.of == GOVERNED:
        return DeclaredTool(node.name, *read_governed(text, names, node))
    spec, file, problems = read_wasm(text, names, node)
    return DeclaredTool(node.name, spec, problems, file)


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
            spec = replace(spec, conditional=given.is_conditional)
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
    return ", ".join((*words, *more))[:LONGEST_SIGNATURE]


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
    yield from rebinding_problems(names, _called(marks[0]), f"on `{node.name}`", node.name, origin, "one function")
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


class SourceTools(Struct, frozen=True):
    """The tools that a file declares, in order; all problems; and the name of each tool's function."""

    specs: tuple[ToolSpec, ...]
    problems: tuple[Problem, ...]
    functions: Mapping[str, str]


def read_tools(path: str | os.PathLike[str], display: str | None = None) -> SourceTools:
    """Read the tools of a Python file without importing it; problems are returned, not raised."""
    file = os.fspath(path) if display is None else display
    module = Modules().read(path, file)
    if isinstance(module, Problem):
        return SourceTools((), (module,), {})
    specs = tuple(one.spec for one in module.declared if one.spec)
    problems = [problem for one in module.declared for problem in one.problems] + list(module.problems)
    functions = {one.spec.name: one.function for one in module.declared if one.spec}
    ordered = sorted(problems, key=lambda problem: (problem.origin.line, problem.origin.column))
    return SourceTools(specs, tuple(ordered), functions)


class Modules:
    """The source files of one review. Each is read once, and their total size is bounded."""

    def __init__(self) -> None:
        self._read: dict[str, Module | Problem] = {}
        self._wasm = WasmFiles()
        self._bytes = self._tokens = 0
        self._full = ""  # the exceeded limit, for the message

    def read(self, path: str | os.PathLike[str], file: str) -> Module | Problem:
        """Read what a file declares, or return the problem. A file with several paths is read and counted for each."""
        name = os.fspath(path)
        if name not in self._read:
            self._read[name] = self._module(name, file)
        return self._read[name]

    def _module(self, path: str, file: str) -> Module | Problem:
        if self._full:
            return self._refused(file)
        data = read_bytes(path, file)
        if isinstance(data, Problem):
            return data
        tokens = token_count(data.decode(errors="replace"))
        self._bytes += len(data)
        self._tokens += tokens if tokens <= MOST_TOKENS else 0  # a file with more is refused without parsing
        if self._bytes > MOST_BYTES_IN_REVIEW:
            self._full = f"{self._bytes} bytes"
        elif self._tokens > MOST_TOKENS_IN_REVIEW:
            self._full = f"{self._tokens} tokens"
        module = self._refused(file) if self._full else module_of(data, file)
        return module if isinstance(module, Problem) else self._with_wasm(module, os.path.dirname(path))

    def _with_wasm(self, module: Module, directory: str) -> Module:
        """The module with the hashes of the WebAssembly modules that it declares."""
        if all(one.wasm is None for one in module.declared):
            return module
        return module.with_declared(tuple(self._hashed(one, directory) for one in module.declared))

    def _hashed(self, one: DeclaredTool, directory: str) -> DeclaredTool:
        if one.wasm is None or one.spec is None:
            return one
        source = self._wasm.source(one.wasm, directory)
        if isinstance(source, Problem):
            return replace(one, spec=None, problems=(*one.problems, source))
        return replace(one, spec=replace(one.spec, source=f"{source}{one.spec.source}"))

    def _refused(self, file: str) -> Problem:
        found = f"more source than one review reads ({self._full} up to here)"
        most = f"at most {size_text(MOST_BYTES_IN_REVIEW)} and {MOST_TOKENS_IN_REVIEW} tokens in all files together"
        return Problem(Origin(file, 1, 1), found, most, "name tools of fewer or smaller files with `from:`")


def find_tool(
    reference: str,
    roots: Sequence[Path],
    *,
    name: str | None = None,
    origin: Origin | None = None,
    modules: Modules | None = None,
    installed: list[InstalledModule] | None = None,
) -> ToolSpec | Problem:
    """Find the declaration that `pkg.mod:func` names, below some directories or installed; or a problem.

    `name` is the name that the tool must have, `origin` the place of the reference. Pass the same `modules` for all
    references of one review. The modules of installed packages on the way are added to `installed`.
    """
    origin = origin or Origin(visible(reference[:LONGEST_REFERENCE]), 1, 1)
    parts = split_reference(reference)
    if parts is None:
        return Problem(origin, f"`{visible(reference[:80])}`", "`package.module:function`")
    installed = [] if installed is None else installed
    found = _follow(parts[1], parts[2], roots, origin, modules or Modules(), installed)
    if isinstance(found, ToolSpec) and name is not None and found.name != name:
        hint = f"call it `{found.name}` here, or give it `name={name!r}` there"
        return Problem(origin, f"a tool that calls itself `{found.name}` ({found.origin})", f"`{name}`", hint)
    return found


def _follow(
    dotted: str,
    function: str,
    roots: Sequence[Path],
    origin: Origin,
    modules: Modules,
    installed: list[InstalledModule],
) -> ToolSpec | Problem:
    """Follow imports until the function itself is found."""
    seen: list[str] = []
    while True:
        step = f"{dotted}:{function}"
        if step in seen or len(seen) > MOST_HOPS:
            found = f"`{seen[0]}`, imported {'in a circle' if step in seen else f'over more than {MOST_HOPS} files'}"
            return Problem(origin, found, "an import that leads to a function", " → ".join([*seen, step]))
        seen.append(step)
        path = locate(dotted, roots, origin)
        if isinstance(path, Problem):
            return path
        if isinstance(path, InstalledModule):
            installed.append(path)
            path, roots = Path(path.file), ()  # an installed package does not import files of a project
        file = shown_file(path)
        module = modules.read(path, file)
        if isinstance(module, Problem):
            return module
        further = _resolve(module, function, file, origin)
        if not isinstance(further, tuple):
            return further
        imported, origin = further
        package = dotted if path.name == "__init__.py" else dotted.rpartition(".")[0]
        if not (target := absolute(imported.module, imported.level, package)):
            return Problem(origin, f"`{imported.dotted}`", "an import that stays inside the package")
        dotted, function = target, imported.name


def _resolve(module: Module, function: str, file: str, origin: Origin) -> ToolSpec | Problem | tuple[Imported, Origin]:
    """Look up a name in a file: a tool, a problem, or an import to follow."""
    if (one := module.by_function.get(function)) is not None:
        return one.spec or next(problem for problem in one.problems if problem.severity == "error")
    meaning = module.names.get(function)
    way_out = "decorate it with `@tool(…)` from licet, or declare `needs:` in licet.yaml"
    if meaning is None:
        few = module.declared[:MOST_COMPARED]  # comparing is slow, and a file may have thousands
        if meant := near_hint(function.lower(), (one.function for one in few)):
            return Problem(origin, f"no `{function}` in {file}", "a function of that name", meant)
        stars = "; names behind `import *` are not followed" if "*" in module.names else ""
        where = origin.file if origin.file.endswith((".yaml", ".yml", ".json")) else "licet.yaml"
        hint = way_out.replace("licet.yaml", where) + stars
        return Problem(origin, f"no `{function}` in {file}", "a function of that name", hint)
    place = module.lines.place_at(meaning.line, meaning.offset)
    if meaning.times > 1:
        return Problem(place, f"`{function}` bound {meaning.times} times in this file", "one meaning", way_out)
    if module.unread and meaning.may_be_tool:
        return module.unread
    if meaning.imported and meaning.imported.name:
        return meaning.imported, place
    return Problem(place, f"`{function}`, which is not declared as a tool", "a function with `@tool(…)`", way_out)


def shown_file(path: Path) -> str:
    """The name of a file in messages. For files of licet it is relative, so that it is equal on every machine."""
    return path.relative_to(INSTALLED).as_posix() if path.is_relative_to(INSTALLED / "licet") else str(path)


class WasmFiles:
    """The modules of one review. Each file is read once, and their total size is bounded."""

    def __init__(self) -> None:
        self._hashes: dict[str, str | Malformed] = {}
        self._left = MOST_WASM_BYTES_IN_REVIEW

    def source(self, file: WasmFile, directory: str) -> str | Problem:
        """The hash of a module, or the problem; empty for the Python of licet."""
        if file.file == PYTHON:
            return ""
        path = os.path.join(directory, file.file)
        if path not in self._hashes:
            self._hashes[path] = self._hash(file.file, directory, path)
        found = self._hashes[path]
        return malformed(file.origin, found) if isinstance(found, Malformed) else found

    def _hash(self, file: str, directory: str, path: str) -> str | Malformed:
        with suppress(OSError, ValueError):  # reading it says what is wrong
            self._left -= os.stat(path).st_size
        if self._left < 0:
            most = f"at most {size_text(MOST_WASM_BYTES_IN_REVIEW)} of WebAssembly modules in one review"
            return Malformed(file, most, "name fewer of them with `from:`")
        try:
            return f"sha256:{read_module(file, directory).sha256}"
        except Malformed as wrong:
            return wrong
