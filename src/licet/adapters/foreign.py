"""`governed`: a function, or a tool that was written for an agent framework, as a licet tool at `native`.

It is registered with a gate like any tool, and given back to the framework by that framework's adapter. It runs in this
process, as trusted code of the operator: licet decides, asks and records, but puts no walls around it. Arguments that
name paths and URLs are tied to what it declares: see `core/policy/argument_ties.py`.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from importlib import import_module
from keyword import iskeyword
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.algebra.set import Rules
from licet.core.policy.argument_ties import FREE, SCOPES
from licet.core.policy.layer import EffectClass
from licet.core.policy.tool import ToolSpec, spec_of, summary
from licet.core.values import Origin, data_json
from licet.declare import Tool, tool
from licet.declare.arguments import InvalidArguments
from licet.declare.decorator import with_spec
from licet.declare.json_schema import NO_FIT, SchemaCheck, check_usable
from licet.declare.plain_json import plain_json

# The packages of frameworks, and the adapter that takes their tools.
_ADAPTERS = {
    "pydantic_ai": "licet.adapters.pydantic_ai",
    "agents": "licet.adapters.openai_agents",
    "langchain_core": "licet.adapters.langchain",
    "claude_agent_sdk": "licet.adapters.claude_agent_sdk",
}


class Foreign(Struct, frozen=True):
    """A tool of a framework: how models see it, and how it is called with validated arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Callable[[dict[str, Any]], Awaitable[Any]]


class ForeignTool(Tool):
    """A tool whose arguments are checked against a JSON Schema, because its function has no type hints of its own."""

    def validator(self) -> Callable[[object], dict[str, Any]]:
        """A function that checks the arguments of a call by the JSON Schema."""
        bounded = super().validator()
        check_usable(self.schema)
        schema = SchemaCheck(dict(self.schema))
        defaults = {name for name, held in self.schema.get("properties", {}).items() if "default" in held}

        def validate(given: object) -> dict[str, Any]:
            filled = bounded(given)
            assert isinstance(given, Mapping)  # noqa: S101 - otherwise `bounded` has raised
            arguments = {name: value for name, value in filled.items() if name in given or name in defaults}
            text = plain_json(arguments)
            if not schema.fits(arguments, text) and not (answer := schema.answer(text)).fits:
                wrong = [_complaint(place, rule) for place, _, rule in answer.errors]
                raise InvalidArguments("; ".join(wrong) or answer.unusable or f"what was sent {NO_FIT}")
            return arguments

        return validate

    def tied_schema(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The JSON Schema, and the names of its arguments: the tool gets them as they are sent."""
        return self.schema, {name: name for name in self.schema.get("properties", {})}


def governed(
    given: Any,
    *,
    needs: Rules,
    effect: EffectClass,
    name: str | None = None,
    description: str | None = None,
    connector: str | None = None,
    cost_usd: Decimal | str | float | None = None,
    args: Mapping[str, Any] | None = None,
) -> Tool:
    """Declare what a function, or a tool of an agent framework, touches; it becomes a tool at `native`.

        search = governed(search_docs, needs=["network:https:get@docs.example.com"], effect="read_only")
        gate = Gate(load_manifest("agent.yaml"), tools=[search], backends=Backends.local())
        agent = Agent(model, tools=licet.adapters.pydantic_ai.tools(gate, session="s-42"))

    Arguments that name paths or URLs must be inside `needs`: those whose type says so, and those with a name such as
    `path` or `url`. `args={"query": "free"}` says that an argument names neither, `{"where": {"scope": "fs:read"}}`
    that it does. Give the framework only what the adapter returns: the original is not governed. See docs/adapters.md.
    """
    adapter = _adapter_of(given)
    if adapter is None:
        declared = tool(
            name=name,
            description=description,
            needs=needs,
            effect=effect,
            sandbox="native",
            connector=connector,
            cost_usd=cost_usd,
        )
        made: Tool = declared(given)
        return with_spec(made, _tied(made.spec, args))
    foreign: Foreign = import_module(adapter).taken(given)
    schema = _own_copy(foreign)
    run = _function(foreign, schema)
    spec = spec_of(
        name=foreign.name if name is None else name,
        needs=needs,
        effect=effect,
        sandbox="native",
        connector=connector,
        cost_usd=cost_usd,
        description=summary(foreign.description) if description is None else description,
        schema=schema,
        origin=_place_of_caller(),
    )
    return ForeignTool(run, _tied(spec, args))


def _place_of_caller() -> Origin:
    """Where `governed` was called: what a tool needs is written there, and not in the package that it comes from."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return Origin(frame.f_code.co_filename, frame.f_lineno, 1) if frame is not None else Origin("", 0, 0)


def _tied(spec: ToolSpec, args: Mapping[str, Any] | None) -> ToolSpec:
    """The declaration of a tool without handles, with what it says about its arguments."""
    stated: dict[str, Any] = {}
    for name, rule in (args or {}).items():
        if name not in (spec.schema or {}).get("properties", {}):
            raise TypeError(f"`{visible(name)}` in `args=` is not an argument of `{spec.name}`")
        if rule != FREE and not (isinstance(rule, Mapping) and rule.keys() == {"scope"} and rule["scope"] in SCOPES):
            one = ", ".join(f"`{scope}`" for scope in SCOPES)
            raise TypeError(f'`{name}` in `args=` of `{spec.name}` must be "free", or {{"scope": …}} with one of {one}')
        stated[name] = rule if rule == FREE else dict(rule)
    return replace(spec, args=stated, governed=True)


def _adapter_of(given: object) -> str | None:
    packages = (kind.__module__.partition(".")[0] for kind in type(given).__mro__)
    return next((_ADAPTERS[package] for package in packages if package in _ADAPTERS), None)


def _own_copy(foreign: Foreign) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(data_json(dict(foreign.schema)))
    if schema.get("type", "object") != "object":
        raise TypeError(f"`{foreign.name}` takes one value without a name: licet tools take arguments by name")
    return {"additionalProperties": False, "type": "object", "properties": {}, **schema}


def _function(foreign: Foreign, schema: Mapping[str, Any]) -> Callable[..., Any]:
    """A function with one parameter for each property of the schema, so that rules on arguments find it by name."""
    required, properties = schema.get("required", ()), schema["properties"]

    async def run(**arguments: object) -> object:
        return await foreign.run(arguments)

    for name in properties:
        if not name.isidentifier() or iskeyword(name):
            raise TypeError(f"`{foreign.name}` has an argument `{visible(name)}`, which is no name in Python")
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Any,
            default=inspect.Parameter.empty if name in required else held.get("default"),
        )
        for name, held in properties.items()
    ]
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__name__ = run.__qualname__ = foreign.name
    return run


def _complaint(place: str, rule: str) -> str:
    """What is wrong with an argument, without its value: the names of the argument and of the rule."""
    return f"`{place[:200]}` does not fit `{rule}` of its schema" if place else f"the arguments do not fit `{rule}`"
