"""`@tool` turns a function into a `Tool`: the function with its declaration; `Tool.wasm` does so for a module.

Nothing is enforced here: calling a `Tool` directly calls its function.

The source of a tool that was defined in a notebook cell, or at a prompt that keeps what was typed.

Such a tool has no file that a worker could load. It is sent as text: its function, and the imports, functions, classes
and literal constants that it names, as they are when the gate is built. Nothing else of the notebook is sent.
"""

import __future__

import ast
import builtins
import functools
import hashlib
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from types import FunctionType, ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet, Rules
from licet.core.policy.layer import EffectClass, Level
from licet.core.policy.tool import NEITHER, ToolCapabilities, ToolSpec, spec_of, summary
from licet.core.values import Origin
from licet.declare.arguments import ArgumentSchema, context_parameter, validator
from licet.declare.context import Available, availability_check
from licet.declare.json_schema import schema_validator
from licet.declare.limits import LONGEST_CONSTANT
from licet.declare.wasm import WasmModule, declared_module, parameters_of

P = ParamSpec("P")
R = TypeVar("R")


class Tool:
    """A function and its declaration. Calling it calls the function directly, without any check."""

    fn: Callable[..., Any]
    in_lock: ClassVar[bool] = True  # whether `licet.lock` lists it under `tools`
    command_argument: ClassVar[str] = (
        ""  # the argument that is a command: its program is checked before anyone is asked
    )
    uses_handles: ClassVar[bool] = True  # whether its function may delete through `ctx.fs`

    spec: ToolSpec
    is_async: bool
    context_parameter: str | None
    available: Available | None
    reuse: bool
    cell: "CellSource | None" = None  # its text, if it was defined in a notebook cell and registered with a gate
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self, fn: Callable[..., Any], spec: ToolSpec, available: Available | None = None, reuse: bool = False
    ) -> None:
        own = {
            "available": available,
            "reuse": reuse,
            "spec": spec,
            "is_async": inspect.iscoroutinefunction(fn),
            "context_parameter": context_parameter(fn),
        }
        vars(self).update(_like(fn), **own)

    @staticmethod
    def wasm(
        file: str | os.PathLike[str],
        *,
        name: str | None = None,
        description: str = "",
        arguments: Mapping[str, Any] | None = None,
        function: str | None = None,
        capabilities: ToolCapabilities | Mapping[str, Any] | None = None,
        needs: Rules | None = None,
        optional: Rules | None = None,
        effect: EffectClass | None = None,
        sandbox: Literal["restricted", "isolated"] | None = None,
        connector: str | None = None,
        cost_usd: Decimal | str | float | None = None,
        available: Available | bool | None = None,
    ) -> "WasmTool":
        """Declare a WebAssembly module as a tool, with what it touches, as `tool` does for a function.

            count = Tool.wasm("count.wasm", arguments={"type": "object"}, needs=["fs:read:${workdir}"])

        `file` is relative to the directory of the Python file. `arguments` is a JSON Schema of an object; without one,
        every JSON object is accepted. `function` is the export to call. Without one, the module is a WASI command: it
        gets the arguments as JSON on stdin, and its stdout is the result. `sandbox` is `restricted` if it is left out.
        See docs/wasm.md.
        """
        caller = sys._getframe(1)
        spec, module, check = declared_module(
            caller,
            file,
            name=name,
            description=description,
            arguments=arguments,
            function=function,
            capabilities=capabilities,
            needs=needs,
            optional=optional,
            effect=effect,
            sandbox=sandbox,
            connector=connector,
            cost_usd=cost_usd,
            available=available,
        )
        return WasmTool(spec, module, check, str(caller.f_globals.get("__name__", "")))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly, without any check."""
        return self.fn(*args, **kwargs)

    @property
    def name(self) -> str:
        """The name that models, manifests and receipts use."""
        return self.spec.name

    @property
    def needs(self) -> CapabilitySet:
        """The rules that the tool needs."""
        return self.spec.needs

    @property
    def optional(self) -> CapabilitySet:
        """The rules that the tool uses if they are allowed."""
        return self.spec.optional

    @property
    def capabilities(self) -> CapabilitySet:
        """All that the tool declares: its needs, and what it uses if that is allowed."""
        return self.spec.needs | self.spec.optional

    @property
    def effect(self) -> EffectClass | None:
        """The class that it declares, or None."""
        return self.spec.effect

    @property
    def sandbox(self) -> Level | None:
        """The level that it declares, or None."""
        return self.spec.sandbox

    @property
    def description(self) -> str:
        """The description for models: the first paragraph of the docstring."""
        return self.spec.description

    @property
    def storage_ttl_seconds(self) -> int | None:
        """The default time to live of values in its store; None means for ever."""
        return self.spec.storage_ttl_seconds

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, from the type hints; a copy."""
        return dict(self.spec.schema or {})

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the definition: the same in every process, and different after any change."""
        return self.spec.digest

    def validator(self) -> Callable[[object], dict[str, Any]]:
        """A function that checks and converts the arguments of a call by the type hints."""
        return validator(self.fn, self.context_parameter)

    def parameter_names(self) -> dict[str, str | None]:
        """By sent name: the parameter that takes the value; None if a rule on the name would not see all of it."""
        from licet.declare.arguments import parameter_names

        return parameter_names(self.fn, self.context_parameter)

    def tied_schema(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The JSON Schema of what the function gets, and by argument in it: the parameter that takes the value."""
        from licet.declare.arguments import tied_schema

        return tied_schema(self.fn, self.context_parameter)

    def __repr__(self) -> str:
        touches = ", ".join((*map(str, self.needs), *(f"{rule} (optional)" for rule in self.optional))) or "nothing"
        stated = ", ".join(word for word in (self.effect, self.sandbox) if word)
        return f"<tool {self.name}: {touches}{'; ' if stated else ''}{stated}>"

    def __reduce__(self) -> str:
        # As for a function: pickled by its qualified name, and copied as the same object.
        return str(vars(self)["__qualname__"])

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Tool cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Tool cannot be changed: {name}")


class WasmTool(Tool):
    """A WebAssembly module and its declaration. Its arguments are checked against a JSON Schema."""

    module: WasmModule

    def __init__(
        self, spec: ToolSpec, module: WasmModule, available: Available | None = None, declared_in: str = ""
    ) -> None:
        fn = _RunsInAGate(spec.name, declared_in)
        own = {
            "__doc__": spec.description,
            "__module__": declared_in,
            "__name__": spec.name,
            "__qualname__": spec.name,
            "__wrapped__": fn,
            "available": available,
            "context_parameter": None,
            "fn": fn,
            "is_async": False,
            "module": module,
            "reuse": True,  # a worker serves many calls: each has an instance of its own, so nothing is left for others
            "spec": spec,
        }
        vars(self).update(own)

    def validator(self) -> Callable[[object], dict[str, Any]]:
        """A function that checks the arguments of a call by the JSON Schema."""
        return schema_validator(self.schema)

    def parameter_names(self) -> dict[str, str | None]:
        """The names of the arguments; a module gets each under the name that was sent."""
        return {name: name for name in parameters_of(self.schema)}

    def __reduce__(self) -> str:
        # By the name that its module gives it. Without one, pickle says that there is no such name.
        names = vars(sys.modules.get(vars(self)["__module__"], self))
        return next((name for name, value in [*names.items()] if value is self), self.name)


class _RunsInAGate:
    """The function of a WASM tool, which cannot be called."""

    def __init__(self, name: str, module: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = module

    def __call__(self, *_: object, **__: object) -> NoReturn:
        text = f"`{self.__name__}` cannot be called directly: a WASM module runs only through a gate"
        raise RuntimeError(f"{text}; call it with `session.call({self.__name__!r}, …)`")


def with_spec(tool: Tool, spec: ToolSpec) -> Tool:
    """The same tool with another declaration."""
    made = object.__new__(type(tool))
    vars(made).update({key: value for key, value in vars(tool).items() if key != "digest"}, spec=spec)
    return made


def _like(fn: Callable[..., Any]) -> dict[str, Any]:
    """Attributes that a tool copies from its function."""
    copied: dict[str, Any] = {key: getattr(fn, key) for key in functools.WRAPPER_ASSIGNMENTS if hasattr(fn, key)}
    return {**vars(fn), **copied, "__wrapped__": fn, "fn": fn}


if TYPE_CHECKING:
    # For type checkers a decorated function keeps its signature, and `Tool` alone stays a complete type.
    class Typed(Tool, Generic[P, R]):
        """A tool made of a function with these parameters and this result."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Call the function directly, without any check."""


class Declares(Protocol):
    """The type of what `tool(…)` returns: a decorator."""

    def __call__(self, fn: Callable[P, R], /) -> "Typed[P, R]":
        """Make a tool of a function."""


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    capabilities: ToolCapabilities | Mapping[str, Any] | None = None,
    needs: Rules | None = None,
    optional: Rules | None = None,
    effect: EffectClass | None = None,
    sandbox: Level | None = None,
    connector: str | None = None,
    cost_usd: Decimal | str | float | None = None,
    available: Available | bool | None = None,
    reuse: bool = False,
) -> Declares: ...


@overload
def tool(*misplaced: object) -> NoReturn: ...


def tool(
    *misplaced: object,
    name: str | None = None,
    description: str | None = None,
    capabilities: ToolCapabilities | Mapping[str, Any] | None = None,
    needs: Rules | None = None,
    optional: Rules | None = None,
    effect: EffectClass | None = None,
    sandbox: Level | None = None,
    connector: str | None = None,
    cost_usd: Decimal | str | float | None = None,
    available: Available | bool | None = None,
    reuse: bool = False,
) -> Declares:
    """Declare a function as a tool, with what it touches: `capabilities=`, or rules as `needs=`.

        @tool(capabilities={"fs_reach": {"read": ["${workdir}/notes"]}}, effect="read_only", sandbox="restricted")
        async def read_note(ctx: Context, name: str) -> str:
            return await ctx.fs.read(f"notes/{name}.md")

    `optional=` lists rules that it uses if the manifest allows them. With `reuse=True` one worker may serve many
    calls, and a call can see what earlier ones left in memory, also those of other sessions. With `available=False` it
    is never shown and never runs. See docs/declare.md.
    """
    if misplaced:
        raise TypeError(_misplaced(misplaced[0]))
    if isinstance(capabilities, ToolCapabilities):
        capabilities = capabilities.as_mapping()
    check = availability_check(available)
    if not isinstance(reuse, bool):
        raise TypeError("`reuse` must be True or False")

    def declare(fn: Callable[P, R], /) -> "Typed[P, R]":
        _check_function(fn)
        origin = Origin(fn.__code__.co_filename, fn.__code__.co_firstlineno, 1)
        try:
            spec = spec_of(
                name=fn.__name__ if name is None else name,
                capabilities=capabilities,
                needs=needs,
                optional=optional,
                effect=effect,
                sandbox=sandbox,
                connector=connector,
                cost_usd=cost_usd,
                description=summary(inspect.cleandoc(fn.__doc__ or "")) if description is None else description,
                schema=ArgumentSchema(fn, context_parameter(fn)),
                origin=origin,
                reuse=reuse,
            )
        except (Malformed, TypeError) as error:
            error.add_note(f"in the declaration of `{fn.__qualname__}` ({origin})")
            raise
        return cast("Typed[P, R]", Tool(fn, spec, check, reuse))

    return declare


def _misplaced(given: object) -> str:
    if isinstance(given, str):
        return f"the arguments of `tool` have names: write `name={given!r}`"
    if callable(given):
        label = getattr(given, "__name__", "the function")
        return f"`{label}` does not say what it touches: {NEITHER}"
    return "the arguments of `tool` have names: write `capabilities=` or `needs=`"


def _check_function(fn: object) -> None:
    """Refuse a function that cannot be found by name in a module, or called with arguments by name."""
    label = getattr(fn, "__name__", type(fn).__name__)
    if isinstance(fn, Tool):
        raise TypeError(f"`{label}` is a tool already: keep one `@tool`")
    if isinstance(fn, type):
        raise TypeError(f"`{label}` is a class: decorate a function that uses it")
    if isinstance(fn, staticmethod | classmethod) or inspect.ismethod(fn):
        raise TypeError(f"`{label}` belongs to a class: a tool is a function of a module")
    if not inspect.isfunction(fn):
        raise TypeError(f"`{label}` is not a function defined with `def`: wrap it in one")
    if fn.__name__ == "<lambda>":
        raise TypeError("a lambda has no name and no type hints: write a function with `def`")
    scope = fn.__qualname__.rpartition(".")[0]
    if scope and not scope.endswith("<locals>"):
        raise TypeError(f"`{fn.__qualname__}` belongs to a class: a tool is a function of a module")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"`{label}` yields: a tool returns one value, such as a list")


MODULE = "licet_cell"  # the name of the module in a worker
_LITERALS = (type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set)
# The file of everything that code has made from text, such as the methods of a dataclass. From Python 3.13 the text
# after `python -c` is kept under this name, and is not the source of any of these.
_MADE = "<string>"
_INSTEAD = "pass it as an argument, or make it inside the tool"


class NoSource(Exception):
    """Why a function cannot be sent as text."""


class CellPiece(Struct, frozen=True):
    """One statement: where it was written, and its text."""

    file: str
    line: int
    text: str


class CellSource(Struct, frozen=True):
    """All statements that a function needs, in the order in which they have to run; the function is the last."""

    pieces: tuple[CellPiece, ...]
    flags: int  # of the compiler: `from __future__ import annotations` in an earlier cell counts for all later ones

    @property
    def text(self) -> str:
        """The text of all pieces."""
        return "\n".join(piece.text for piece in self.pieces)

    @property
    def digest(self) -> str:
        """The hash of the text."""
        text = f"{self.flags}\n{self.text}"
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def with_cell(tool: Tool) -> Tool:
    """The tool with the text of its cells as it is now, which its digest covers; the same tool if it has a file."""
    try:
        cell = cell_of(tool.fn) if type(tool) is Tool else None
    except NoSource:  # the sandbox refuses it and says why; at `native` no text is needed
        return tool
    if cell is None:
        return tool
    now = with_spec(tool, replace(tool.spec, source=cell.digest))
    vars(now)["cell"] = cell
    return now


def cell_of(fn: Callable[..., Any]) -> CellSource | None:
    """The source of a function that was defined in a cell; None if it has a file. Raises `NoSource`."""
    code = getattr(fn, "__code__", None)
    if not isinstance(fn, FunctionType) or code is None or os.path.isfile(code.co_filename):
        return None
    if code.co_filename == _MADE or not linecache.getlines(code.co_filename):
        raise NoSource("it was typed at a prompt, or made by code, and its source was not kept")
    gathered = _Gathered(fn.__globals__)
    gathered.add_function(fn)
    return CellSource(tuple(gathered.pieces), code.co_flags & __future__.annotations.compiler_flag)


class _Gathered:
    """Statements, each after those that it needs."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.pieces: list[CellPiece] = []
        self._names = names
        self._seen: set[str] = set()

    @cached_property
    def _cells(self) -> list[tuple[str, ast.Module]]:
        """Every cell that Python knows the text of, newest first."""
        names = [name for name in linecache.cache if name != _MADE and not os.path.isfile(name)]
        return [(name, tree) for name in reversed(names) if (tree := _parsed(name)) is not None]

    def add_function(self, fn: FunctionType) -> None:
        """Add the definition of a function, after everything that it names."""
        code = fn.__code__
        if code.co_freevars or "<locals>" in fn.__qualname__:
            raise NoSource(f"`{fn.__name__}` is defined inside a function, and may use its variables")
        self._seen.add(fn.__name__)
        tree = _parsed(code.co_filename) if code.co_filename != _MADE else None
        for node in tree.body if tree is not None else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _first_line(node) == code.co_firstlineno:
                self._add_definition(code.co_filename, node)
                return
        raise NoSource(f"the source of `{fn.__name__}` was not found at the top of its cell")

    def _add_definition(self, file: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        first = _first_line(node)
        text = "".join(linecache.getlines(file)[first - 1 : node.end_lineno])
        for name in sorted(_free_names(text)):
            self._add_name(name)
        self.pieces.append(CellPiece(file, first, text))

    def _add_name(self, name: str) -> None:
        if name in self._seen or (name not in self._names and hasattr(builtins, name)) or name == "__name__":
            return
        self._seen.add(name)
        if name not in self._names:
            raise NoSource(f"it names `{name}`, which is not defined")
        value = self._names[name]
        if found := list(self._imports(name, value)):
            self.pieces += found
        elif isinstance(function := _function_in(value), FunctionType) and self._is_own(function):
            if function.__name__ != name:
                raise NoSource(f"it names `{name}`, which is another name of `{function.__name__}`: use that one")
            self.add_function(function)
        elif isinstance(value, type) and self._is_own(value):
            self._add_class(name, value)
        elif isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            self.pieces.append(CellPiece("<imports>", 1, f"import {value.__name__} as {name}\n"))
        elif _importable(value):
            text = f"from {value.__module__} import {value.__name__} as {name}\n"
            self.pieces.append(CellPiece("<imports>", 1, text))
        elif text := _literal(value):
            self.pieces.append(CellPiece("<constants>", 1, f"{name} = {text}\n"))
        else:
            kind = type(value).__name__
            raise NoSource(f"it names `{name}` ({kind}), whose source is not known: {_INSTEAD}")

    def _is_own(self, value: object) -> bool:
        return getattr(value, "__module__", None) == self._names.get("__name__")

    def _add_class(self, name: str, value: type) -> None:
        methods = [method for method in vars(value).values() if isinstance(method, FunctionType)]
        written = {method.__code__.co_filename for method in methods} - {_MADE}
        cells = [(file, tree) for file, tree in self._cells if file in written] or self._cells
        for file, tree in cells:
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and node.name == name == value.__name__:
                    self._add_definition(file, node)
                    return
        raise NoSource(f"it names `{name}`, a class whose source is not known: {_INSTEAD}")

    def _imports(self, name: str, value: object) -> Iterator[CellPiece]:
        """The import statements of the cells that give this value this name."""
        for file, tree in self._cells:
            for node in tree.body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    for alias in node.names:
                        if (text := _import_of(node, alias, name, value)) is not None:
                            yield CellPiece(file, node.lineno, text)


def _import_of(node: ast.Import | ast.ImportFrom, alias: ast.alias, name: str, value: object) -> str | None:
    renamed = f" as {alias.asname}" if alias.asname else ""
    if isinstance(node, ast.Import):
        bound = alias.asname or alias.name.partition(".")[0]
        module = sys.modules.get(alias.name if alias.asname else bound)
        return f"import {alias.name}{renamed}\n" if bound == name and module is value else None
    if (alias.asname or alias.name) != name or node.level or not node.module:
        return None
    there = vars(sys.modules.get(node.module, builtins)).get(alias.name, sys.modules.get(f"{node.module}.{alias.name}"))
    lazily = getattr(sys.modules.get(node.module), alias.name, None)
    return f"from {node.module} import {alias.name}{renamed}\n" if value is there or value is lazily else None


def _function_in(value: object) -> Any:
    """The function that a cell defines under a name: a tool, and a decorated function, wrap it."""
    if isinstance(value, Tool):
        return value.fn
    wrapped = getattr(value, "__wrapped__", None) if not isinstance(value, type | ModuleType) else None
    return value if wrapped is None else wrapped


def _importable(value: object) -> bool:
    """Whether a function or class is found under its name in a module that is not the notebook."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or not name.isidentifier():
        return False
    return getattr(sys.modules.get(module), name, None) is value


def _literal(value: object) -> str:
    """A constant as Python text; empty if it is none."""
    if type(value) not in _LITERALS:
        return ""
    text = repr(value)
    if len(text) > LONGEST_CONSTANT:
        return ""
    try:
        same = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    return text if type(same) is type(value) and same == value else ""


def _parsed(name: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(name)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min((one.lineno for one in node.decorator_list), default=node.lineno)


def _free_names(text: str) -> set[str]:
    """The global names that a statement uses, now or when it is called, and does not define itself."""
    import symtable  # only functions that were typed at a prompt have their text read

    top = symtable.symtable(text, "<cell>", "exec")
    defined = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_namespace()}
    used = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    left = list(top.get_children())
    while left:
        table = left.pop()
        left += table.get_children()
        used |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
        used |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_declared_global()}
    return used - defined
