"""`@tool` turns a function into a `Tool`: the function with its declaration.

Nothing is enforced here: calling a `Tool` directly calls its function.
"""

import functools
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
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

from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet, Rules
from licet.core.origin import Origin
from licet.core.policy.effects import EffectClass, Level
from licet.core.policy.tool import NEITHER, ToolCapabilities, ToolSpec, spec_of, summary
from licet.declare.argument_schema import ArgumentSchema
from licet.declare.arguments import context_parameter, validator

# Called before a tool is offered or called. It sees only what the tool declares of variables, programs and secrets.
Available = Callable[["Surroundings"], bool | Awaitable[bool]]
P = ParamSpec("P")
R = TypeVar("R")


class Surroundings(Protocol):
    """The argument of an availability check: the declared variables, programs and secrets."""

    def env(self, name: str) -> str | None:
        """The value of a declared environment variable, or None if it is not set."""

    def program(self, name: str) -> str | None:
        """The path of a declared program, or None if it is not installed."""

    async def secret(self, reference: str) -> bool:
        """Whether a declared secret exists here. Its value is not given.

        A check that is no coroutine returns what this returns: `available=lambda here: here.secret("API_KEY")`.
        """


class Tool:
    """A function and its declaration. Calling it calls the function directly, without any check."""

    fn: Callable[..., Any]
    in_lock: ClassVar[bool] = True  # whether `licet.lock` lists it under `tools`
    command_argument: ClassVar[str] = (
        ""  # the argument that is a command: its program is checked before anyone is asked
    )
    uses_handles: ClassVar[bool] = True  # whether its function may delete through `ctx.fs`
    _declare_wasm: ClassVar["Callable[..., WasmTool]"]  # set by `declare/wasm.py`, which imports this module

    spec: ToolSpec
    is_async: bool
    context_parameter: str | None
    available: "Available | None"
    reuse: bool
    cell: "CellSource | None" = None  # its text, if it was defined in a notebook cell and registered with a gate
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self, fn: Callable[..., Any], spec: ToolSpec, available: "Available | None" = None, reuse: bool = False
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
        available: "Available | None" = None,
    ) -> "WasmTool":
        """Declare a WebAssembly module as a tool, with what it touches, as `tool` does for a function.

            count = Tool.wasm("count.wasm", arguments={"type": "object"}, needs=["fs:read:${workdir}"])

        `file` is relative to the directory of the Python file. `arguments` is a JSON Schema of an object; without one,
        every JSON object is accepted. `function` is the export to call. Without one, the module is a WASI command: it
        gets the arguments as JSON on stdin, and its stdout is the result. `sandbox` is `restricted` if it is left out.
        See docs/wasm.md.
        """
        return Tool._declare_wasm(
            sys._getframe(1),
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
        from licet.declare.received import parameter_names

        return parameter_names(self.fn, self.context_parameter)

    def tied_schema(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The JSON Schema of what the function gets, and by argument in it: the parameter that takes the value."""
        from licet.declare.received import tied_schema

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


def with_spec(tool: Tool, spec: ToolSpec) -> Tool:
    """The same tool with another declaration."""
    made = object.__new__(type(tool))
    vars(made).update({key: value for key, value in vars(tool).items() if key != "digest"}, spec=spec)
    return made


def check_available(available: object) -> None:
    """Refuse an availability check that cannot be called."""
    if available is not None and not callable(available):
        raise TypeError("`available` must be a function that takes the surroundings and returns True or False")


def _like(fn: Callable[..., Any]) -> dict[str, Any]:
    """Attributes that a tool copies from its function."""
    copied: dict[str, Any] = {key: getattr(fn, key) for key in functools.WRAPPER_ASSIGNMENTS if hasattr(fn, key)}
    return {**vars(fn), **copied, "__wrapped__": fn, "fn": fn}


if TYPE_CHECKING:
    from licet.declare.cell_source import CellSource
    from licet.declare.wasm import WasmTool

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
    available: Available | None = None,
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
    available: Available | None = None,
    reuse: bool = False,
) -> Declares:
    """Declare a function as a tool, with what it touches: `capabilities=`, or rules as `needs=`.

        @tool(capabilities={"fs_reach": {"read": ["${workdir}/notes"]}}, effect="read_only", sandbox="restricted")
        async def read_note(ctx: Context, name: str) -> str:
            return await ctx.fs.read(f"notes/{name}.md")

    `optional=` lists rules that it uses if the manifest allows them. With `reuse=True` one worker may serve many
    calls, and a call can see what earlier ones left in memory, also those of other sessions. See docs/declare.md.
    """
    if misplaced:
        raise TypeError(_misplaced(misplaced[0]))
    if isinstance(capabilities, ToolCapabilities):
        capabilities = capabilities.as_mapping()
    check_available(available)
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
        return cast("Typed[P, R]", Tool(fn, spec, available, reuse))

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
