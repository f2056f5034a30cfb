"""`@tool`: the tool that it makes, what it refuses, and the schema and digest of the arguments."""

import asyncio
import copy
import dataclasses
import functools
import inspect
import json
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Union

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, Field

import licet
from licet import CapabilitySet, Context, Malformed, Tool, ToolCapabilities, tool

if TYPE_CHECKING:
    from licet import Context as Unimportable


@tool(
    capabilities={"network": {"allowed_hosts": ["api.weather.gov"]}, "secrets": ["WEATHER_API_KEY"]},
    effect="read_only",
    sandbox="restricted",
    cost_usd="0.01",
)
async def fetch_weather(ctx: Context, city: str, days: int = 1) -> dict[str, Any]:
    """Today's forecast
    for a city.

    Details that models do not need.
    """
    return {"city": city, "days": days}


@tool(needs=[])
def double(number: int) -> int:
    return 2 * number


def test_a_tool_carries_its_declaration() -> None:
    assert fetch_weather.name == "fetch_weather"
    assert fetch_weather.needs == CapabilitySet(["network:*:api.weather.gov", "secret:read:WEATHER_API_KEY"])
    assert (fetch_weather.effect, fetch_weather.sandbox) == ("read_only", "restricted")
    assert fetch_weather.description == "Today's forecast for a city."
    assert fetch_weather.spec.cost_usd == Decimal("0.01")
    assert fetch_weather.is_async
    assert fetch_weather.context_parameter == "ctx"
    assert fetch_weather.storage_ttl_seconds is None
    assert repr(fetch_weather) == (
        "<tool fetch_weather: network:*:api.weather.gov, secret:read:WEATHER_API_KEY; read_only, restricted>"
    )
    assert repr(double) == "<tool double: nothing>"


def test_the_capabilities_of_a_tool_are_all_that_it_declares() -> None:
    @tool(needs=["fs:read:/srv"], optional=["network:*:api.weather.gov"])
    def look() -> None: ...

    assert fetch_weather.capabilities == fetch_weather.needs
    assert look.capabilities == CapabilitySet(["fs:read:/srv", "network:*:api.weather.gov"])
    assert double.capabilities == CapabilitySet([])


def test_a_tool_says_where_it_is_declared() -> None:
    origin = fetch_weather.spec.origin
    assert origin is not None
    assert Path(origin.file) == Path(__file__)
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[origin.line - 1] == "@tool("


def test_a_tool_is_called_like_its_function() -> None:
    assert double(2) == double(number=2) == 4
    assert not double.is_async
    assert double.context_parameter is None
    call = fetch_weather(typing.cast(Context, None), "oslo")
    assert asyncio.run(call) == {"city": "oslo", "days": 1}


def test_a_tool_looks_like_its_function() -> None:
    assert (double.__name__, double.__qualname__, double.__module__) == ("double", "double", __name__)
    assert fetch_weather.__doc__ == fetch_weather.fn.__doc__
    assert inspect.signature(double) == inspect.signature(double.fn)
    assert inspect.unwrap(double) is double.fn


@pytest.mark.parametrize("attribute", ["spec", "fn", "needs", "name", "anything"])
def test_a_tool_cannot_be_changed(attribute: str) -> None:
    with pytest.raises(AttributeError, match=f"a Tool cannot be changed: {attribute}"):
        setattr(double, attribute, None)
    with pytest.raises(AttributeError, match=f"a Tool cannot be changed: {attribute}"):
        delattr(double, attribute)


def test_a_tool_is_copied_and_pickled_as_a_function_is() -> None:
    assert copy.copy(double) is copy.deepcopy(double) is double
    assert pickle.loads(pickle.dumps(double)) is double


def test_attributes_of_the_function_stay_and_never_replace_those_of_the_tool() -> None:
    def plain() -> None: ...

    vars(plain).update(label="kept", spec="forged", name="forged")
    made = tool(needs=[], name="made")(plain)
    assert vars(made)["label"] == "kept"
    assert made.spec.name == made.name == "made"


def test_two_spellings_declare_the_same_tool() -> None:
    def plain(x: int) -> None: ...

    same: list[Tool] = [
        tool(capabilities={"network": {"allowedHosts": ["b.test", "a.test"]}, "env": ["E"]}, cost_usd=0.10)(plain),
        tool(cost_usd="0.1", needs=["env:read:E", "network:*:A.test", "network:*:b.test"])(plain),
        tool(
            cost_usd=Decimal("0.100"),
            capabilities=ToolCapabilities(network={"allowed_hosts": ("a.test", "b.test")}, env=["E"]),
        )(plain),
    ]
    assert len({one.digest for one in same}) == 1
    assert len({one.needs for one in same}) == 1


def base(x: int, y: str = "a") -> None:
    """Says something."""


def with_default(x: int, y: str = "b") -> None:
    """Says something."""


def with_other_type(x: float, y: str = "a") -> None:
    """Says something."""


def with_other_words(x: int, y: str = "a") -> None:
    """Says something else."""


def reordered(*, y: str = "a", x: int) -> None:
    """Says something."""


BASE: dict[str, Any] = {"name": "it", "capabilities": {"secrets": ["A"]}, "effect": "read_only"}
CHANGES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "needs": (base, {"capabilities": {"secrets": ["B"]}}),
    "fewer needs": (base, {"capabilities": {}}),
    "effect": (base, {"effect": "full"}),
    "no effect": (base, {"effect": None}),
    "sandbox": (base, {"sandbox": "native"}),
    "connector": (base, {"connector": "github"}),
    "version of the connector": (base, {"connector": "github@2.0"}),
    "cost": (base, {"cost_usd": 1}),
    "no cost is not the same as nothing": (base, {"cost_usd": 0}),
    "description": (base, {"description": "Other."}),
    "docstring": (with_other_words, {}),
    "name": (base, {"name": "other"}),
    "default": (with_default, {}),
    "type": (with_other_type, {}),
    "life of stored entries": (
        base,
        {"capabilities": {"secrets": ["A"], "storage": {"scope": "session", "ttl_seconds_default": 5}}},
    ),
    "store": (base, {"capabilities": {"secrets": ["A"], "storage": {"scope": "session"}}}),
}


def test_every_change_of_a_declaration_changes_the_digest() -> None:
    digests = {
        "as it was": tool(**BASE)(base).digest,
        **{change: tool(**{**BASE, **arguments})(fn).digest for change, (fn, arguments) in CHANGES.items()},
    }
    assert len(set(digests.values())) == len(digests), digests


def test_the_digest_is_the_same_in_every_process(tmp_path: Path) -> None:
    source = (
        "import licet\n"
        "@licet.tool(capabilities={'secrets': {'b', 'a', 'c'}})\n"
        "def f(x: set[str] = frozenset({'k', 'l', 'm', 'n'})) -> None:\n"
        "    'Does it.'\n"
    )
    digests = set()
    for seed, folder in (("1", "here"), ("2", "there/below"), ("77", "here")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / f"mod_{seed}.py").write_text(source, encoding="utf-8")
        program = (
            f"import sys; sys.path.insert(0, {str(tmp_path / folder)!r}); import mod_{seed} as m; print(m.f.digest)"
        )
        run = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}
        )
        digests.add(run.stdout.strip())
    assert len(digests) == 1
    assert digests.pop().startswith("sha256:")
    assert fetch_weather.digest == fetch_weather.spec.digest


# Which parameter is the context ---------------------------------------------------------------------------------------


class Wider(Context, typing.Protocol):
    extra: int


class Other:
    Context: typing.TypeAlias = Context


def plain_context(c: Context, x: int) -> None: ...
def last_context(x: int, c: Context) -> None: ...
def keyword_context(*, c: Context) -> None: ...
def text_context(c: "Context", x: int) -> None: ...
def dotted_context(c: "licet.Context") -> None: ...
def optional_context(c: Context | None = None) -> None: ...
def old_optional_context(c: Optional[Context] = None) -> None: ...  # noqa: UP045
def text_in_optional_context(c: Optional["Context"] = None) -> None: ...
def text_optional_context(c: "Context | None" = None) -> None: ...
def union_context(c: Union[None, Context] = None) -> None: ...  # noqa: RUF036, UP007
def annotated_context(c: Annotated[Context, "note"]) -> None: ...
def text_annotated_context(c: "Annotated[Context, 'note']") -> None: ...
def annotated_optional_context(c: Annotated[Context | None, "note"] = None) -> None: ...
def wider_context(c: Wider) -> None: ...
def attribute_context(c: Other.Context) -> None: ...
def beside_an_unknown_type(c: "Context", x: "Unheard") -> None: ...  # type: ignore[name-defined] # noqa: F821


def behind_type_checking(fn: Callable[..., Any]) -> Callable[..., Any]:
    fn.__annotations__["c"] = fn.__annotations__["c"].replace("Context", "missing.Context")
    return fn


@behind_type_checking
def unknown_context(c: "Context", x: int) -> None: ...
@behind_type_checking
def unknown_optional_context(c: "Optional[Context]" = None) -> None: ...  # noqa: UP045
@behind_type_checking
def unknown_union_context(c: "Context | None" = None) -> None: ...
@behind_type_checking
def unknown_union_context_last(c: "None | Context" = None) -> None: ...  # noqa: RUF036
@behind_type_checking
def unknown_annotated_context(c: "Annotated[Context, 1]") -> None: ...
@behind_type_checking
def unknown_nested_context(c: "Annotated['Optional[Context]', 1]") -> None: ...  # noqa: UP045


@pytest.mark.parametrize(
    "fn",
    [
        plain_context, last_context, keyword_context, text_context, dotted_context, optional_context,
        old_optional_context, text_in_optional_context, text_optional_context, union_context, annotated_context,
        text_annotated_context, annotated_optional_context, wider_context, attribute_context, beside_an_unknown_type,
        unknown_context, unknown_optional_context, unknown_union_context, unknown_union_context_last,
        unknown_annotated_context,
        unknown_nested_context,
    ],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_the_context_is_found_by_its_annotation(fn: Callable[..., Any]) -> None:
    assert tool(needs=[])(fn).context_parameter == "c"


def no_parameters() -> None: ...
def other_type(c: int) -> None: ...
def list_of_contexts(c: list[Context]) -> None: ...
def text_other(c: "Literal['Context']") -> None: ...
def note_only(c: Annotated[int, Context]) -> None: ...
def unknown_note(c: "Annotated[missing.Other, Context]") -> None: ...  # type: ignore[name-defined] # noqa: F821
def nonsense(c: "not a type") -> None: ...  # type: ignore[valid-type] # noqa: F722


@pytest.mark.parametrize(
    "fn",
    [no_parameters, other_type, list_of_contexts, text_other, note_only, unknown_note, nonsense],
    ids=lambda fn: fn.__name__,
)
def test_a_type_that_only_contains_the_context_is_an_argument(fn: Callable[..., Any]) -> None:
    assert tool(needs=[])(fn).context_parameter is None


# What cannot be a tool ------------------------------------------------------------------------------------------------


def takes_any_position(*names: str) -> None: ...
def takes_any_name(**names: str) -> None: ...
def takes_position_only(x: int, /) -> None: ...
def two_contexts(a: Context, b: Context) -> None: ...
def untyped_context(ctx, x: int) -> None: ...  # type: ignore[no-untyped-def]
def yields() -> Any:
    yield 1


async def yields_later() -> Any:
    yield 1


class Holder:
    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...


BY_NAME = "by position or under any name: each argument of a tool is passed by a name of its own"
NO_TOOLS: dict[str, tuple[Any, str]] = {
    "arguments at any position": (takes_any_position, f"`takes_any_position` takes `*names: str` {BY_NAME}"),
    "arguments under any name": (takes_any_name, f"`takes_any_name` takes `**names: str` {BY_NAME}"),
    "arguments by position only": (takes_position_only, f"`takes_position_only` takes `x: int` {BY_NAME}"),
    "two contexts": (two_contexts, "`two_contexts` takes the context twice: keep one of `a`, `b`"),
    "a context without a type": (untyped_context, "`untyped_context` has `ctx` without a type: write `ctx: Context`"),
    "a generator": (yields, "`yields` yields: a tool returns one value, such as a list"),
    "an asynchronous generator": (yields_later, "`yields_later` yields: a tool returns one value, such as a list"),
    "a lambda": (lambda: 1, "a lambda has no name and no type hints: write a function with `def`"),
    "a class": (Holder, "`Holder` is a class: decorate a function that uses it"),
    "a method": (Holder.method, "`Holder.method` belongs to a class: a tool is a function of a module"),
    "a bound method": (Holder().method, "`method` belongs to a class: a tool is a function of a module"),
    "a static method": (staticmethod(base), "`base` belongs to a class: a tool is a function of a module"),
    "a function of a class": (Holder.static, "`Holder.static` belongs to a class: a tool is a function of a module"),
    "a builtin": (len, "`len` is not a function defined with `def`: wrap it in one"),
    "a partial": (functools.partial(base), "`partial` is not a function defined with `def`: wrap it in one"),
    "a tool": (double, "`double` is a tool already: keep one `@tool`"),
    "nothing": (None, "`NoneType` is not a function defined with `def`: wrap it in one"),
}


@pytest.mark.parametrize(("fn", "message"), NO_TOOLS.values(), ids=NO_TOOLS)
def test_a_function_that_cannot_be_called_by_name_is_refused(fn: Any, message: str) -> None:
    with pytest.raises(TypeError) as refusal:
        tool(needs=[])(fn)
    assert str(refusal.value) == message


NOTHING_SAID = "give `capabilities=` or `needs=`; `capabilities={}` is a tool that touches nothing"
MISUSES: dict[str, tuple[Callable[[], object], str]] = {
    "bare": (lambda: tool(base), f"`base` does not say what it touches: {NOTHING_SAID}"),
    "called with nothing": (lambda: tool()(base), f"`base` does not say what it touches: {NOTHING_SAID}"),
    "without either": (
        lambda: tool(name="n", effect="full")(base),
        f"`n` does not say what it touches: {NOTHING_SAID}",
    ),
    "with both": (
        lambda: tool(capabilities={}, needs=[])(base),
        "`base` says twice what it touches: keep one of `capabilities=` and `needs=`",
    ),
    "a name without its keyword": (
        lambda: tool("fetch"),
        "the arguments of `tool` have names: write `name='fetch'`",
    ),
    "capabilities without their keyword": (
        lambda: tool({"network": {}}),
        "the arguments of `tool` have names: write `capabilities=` or `needs=`",
    ),
}


@pytest.mark.parametrize(("misuse", "message"), MISUSES.values(), ids=MISUSES)
def test_misuse_of_the_decorator_is_refused(misuse: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError) as refusal:
        misuse()
    assert str(refusal.value) == message


def test_a_malformed_declaration_names_the_function_and_the_place() -> None:
    with pytest.raises(Malformed, match="did you mean `network`") as refusal:
        tool(capabilities={"newtork": {}})(base)
    assert refusal.value.__notes__[0].startswith("in the declaration of `base` (")


def test_a_function_of_a_function_is_a_tool_but_cannot_be_pickled() -> None:
    @tool(needs=[])
    def inner(x: int) -> int:
        return x

    assert inner(1) == 1
    assert inner.schema["required"] == ["x"]


# The schema of arguments ----------------------------------------------------------------------------------------------


class Place(BaseModel):
    """Somewhere."""

    title: str
    near: list["Place"] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@dataclasses.dataclass
class Pair:
    left: int
    right: int = 0


def simple(city: str, days: int = 1) -> None: ...
def nothing() -> None: ...
def untyped(x, y=2) -> None: ...  # type: ignore[no-untyped-def]
def described(city: Annotated[str, Field(description="A city.", max_length=9)], n: int = Field(3, ge=1)) -> None: ...
def named_like_parts(title: str, json: int, schema: bool, _private: float, self: str = "x") -> None: ...
def sets(tags: frozenset[str] = frozenset({"c", "a", "b"})) -> None: ...
def sets_in_others(tags: dict[str, tuple[set[str], ...]] = {"k": ({"b", "a"}, set())}) -> None: ...  # noqa: B006
def models(place: Place) -> None: ...
def chosen(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...
def data(pair: Pair, word: Literal["a", "b"] = "a") -> None: ...
def late(place: "Place | None" = None) -> None: ...
def without_context(ctx: Context, x: int) -> None: ...
def aliased(from_: Annotated[str, Field(alias="from")]) -> None: ...
def pointing(x: str = "#/$defs/Nothing") -> None: ...


def schema(properties: dict[str, Any], required: list[str], **more: Any) -> dict[str, Any]:
    demanded = {"required": required} if required else {}
    return {"type": "object", "additionalProperties": False, "properties": properties, **demanded, **more}


CAT = {"type": "object", "properties": {"kind": {"type": "string", "const": "cat"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"type": "string", "const": "dog"}}, "required": ["kind"]}
PLACE = {
    "type": "object",
    "description": "Somewhere.",
    "properties": {
        "title": {"type": "string"},
        "near": {"type": "array", "items": {"$ref": "#/$defs/Place"}, "default": []},
    },
    "required": ["title"],
}
PAIR = {
    "type": "object",
    "properties": {"left": {"type": "integer"}, "right": {"type": "integer", "default": 0}},
    "required": ["left"],
}
SCHEMAS: dict[Callable[..., Any], dict[str, Any]] = {
    simple: schema({"city": {"type": "string"}, "days": {"type": "integer", "default": 1}}, ["city"]),
    nothing: schema({}, []),
    untyped: schema({"x": {}, "y": {"default": 2}}, ["x"]),
    described: schema(
        {
            "city": {"type": "string", "description": "A city.", "maxLength": 9},
            "n": {"type": "integer", "default": 3, "minimum": 1},
        },
        ["city"],
    ),
    named_like_parts: schema(
        {
            "title": {"type": "string"},
            "json": {"type": "integer"},
            "schema": {"type": "boolean"},
            "_private": {"type": "number"},
            "self": {"type": "string", "default": "x"},
        },
        ["_private", "json", "schema", "title"],
    ),
    sets: schema(
        {"tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "default": ["a", "b", "c"]}}, []
    ),
    sets_in_others: schema(
        {
            "tags": {
                "type": "object",
                "additionalProperties": {
                    "type": "array",
                    "items": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                },
                "default": {"k": [["a", "b"], []]},
            }
        },
        [],
    ),
    models: schema({"place": {"$ref": "#/$defs/Place"}}, ["place"], **{"$defs": {"Place": PLACE}}),
    chosen: schema(
        {
            "pet": {
                "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
                "discriminator": {
                    "propertyName": "kind",
                    "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
                },
            }
        },
        ["pet"],
        **{"$defs": {"Cat": CAT, "Dog": DOG}},
    ),
    data: schema(
        {"pair": {"$ref": "#/$defs/Pair"}, "word": {"type": "string", "enum": ["a", "b"], "default": "a"}},
        ["pair"],
        **{"$defs": {"Pair": PAIR}},
    ),
    late: schema(
        {"place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None}},
        [],
        **{"$defs": {"Place": PLACE}},
    ),
    without_context: schema({"x": {"type": "integer"}}, ["x"]),
    aliased: schema({"from": {"type": "string"}}, ["from"]),
    pointing: schema({"x": {"type": "string", "default": "#/$defs/Nothing"}}, []),
    unknown_context: schema({"x": {"type": "integer"}}, ["x"]),
}


@pytest.mark.parametrize(("fn", "expected"), SCHEMAS.items(), ids=lambda case: getattr(case, "__name__", ""))
def test_the_schema_follows_the_type_hints(fn: Callable[..., Any], expected: dict[str, Any]) -> None:
    assert tool(needs=[])(fn).schema == expected


def test_the_schema_keeps_the_order_of_parameters_and_the_digest_ignores_it() -> None:
    first, second = (tool(needs=[], name="it")(fn) for fn in (base, reordered))
    assert list(first.schema["properties"]) == ["x", "y"]
    assert list(second.schema["properties"]) == ["y", "x"]
    assert first.digest == second.digest


def test_changing_a_copy_of_the_schema_does_not_change_the_tool() -> None:
    before = double.spec.digest
    double.schema["properties"]["number"]["type"] = "string"
    assert double.spec.schema is not None
    double.spec.schema["properties"]["number"]["type"] = "string"
    assert double.schema["properties"]["number"] == {"type": "integer"}
    assert double.spec.digest == before
    assert json.loads(json.dumps(double.schema)) == double.schema


def test_a_spec_with_a_schema_is_a_value() -> None:
    spec = fetch_weather.spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert replace(spec, name="x").digest != spec.digest


def model(module: str, kind: type, name: str = "Item") -> Any:
    """A model called `Item`, as if it were defined in some module."""
    made: Any = type(name, (BaseModel,), {"__annotations__": {"value": kind}, "__module__": module})
    return made


def test_a_model_whose_name_ends_like_a_module_keeps_its_name() -> None:
    def fn(a) -> None: ...  # type: ignore[no-untyped-def]

    fn.__annotations__.update(a=model("one", int, "Item__"))
    assert list(tool(needs=[])(fn).schema["$defs"]) == ["Item__"]


def test_models_with_the_same_name_get_numbers_instead_of_module_names() -> None:
    def both(modules: tuple[str, str]) -> Tool:
        def fn(a, b) -> None: ...  # type: ignore[no-untyped-def]

        fn.__annotations__.update(a=model(modules[0], int), b=model(modules[1], str))
        return tool(needs=[])(fn)

    here, there = both(("one", "two")), both(("deep.er", "else.where"))
    assert sorted(here.schema["$defs"]) == ["Item", "Item2"]
    assert here.schema["properties"] == {"a": {"$ref": "#/$defs/Item"}, "b": {"$ref": "#/$defs/Item2"}}
    assert here.schema == there.schema
    assert here.digest == there.digest


def unresolved(x: "Unheard") -> None: ...  # type: ignore[name-defined] # noqa: F821
def behind_a_check(x: "Unimportable") -> None: ...
def no_json(x: Callable[[], int]) -> None: ...
def no_schema(x: subprocess.Popen[bytes]) -> None: ...
def contexts(x: list[Context]) -> None: ...
def infinite(x: float = float("inf")) -> None: ...
def broken(x: "1 / 0") -> None: ...  # type: ignore[valid-type]


UNUSABLE = {
    unresolved: r"the type hints of `unresolved` cannot be resolved: name 'Unheard' is not defined; import it in the",
    behind_a_check: r"the type hints of `behind_a_check` cannot be resolved: name 'Unimportable' is not defined; imp",
    no_json: r"the arguments of `no_json` have no JSON Schema: .*; use types that JSON can carry",
    no_schema: r"the arguments of `no_schema` have no JSON Schema: .*; use types that JSON can carry",
    contexts: r"the arguments of `contexts` have no JSON Schema: .*; use types that JSON can carry",
    infinite: r"the arguments of `infinite` have no JSON Schema: .*; use types that JSON can carry",
    broken: r"the arguments of `broken` have no JSON Schema: division by zero",
}


@pytest.mark.parametrize(("fn", "message"), UNUSABLE.items(), ids=lambda case: getattr(case, "__name__", ""))
def test_unusable_type_hints_raise_when_the_schema_is_read(fn: Callable[..., Any], message: str) -> None:
    made = tool(needs=[])(fn)
    for ask in (lambda: made.schema, lambda: made.digest):
        with pytest.raises(TypeError, match=message):
            ask()


def test_an_integer_of_any_size_may_stand_in_a_schema() -> None:
    """It has no canonical JSON of RFC 8785, so the digest takes such a schema as a text."""

    def bounded(x: Annotated[int, Field(le=2**63 - 1)] = 2**60) -> None: ...
    def other(x: Annotated[int, Field(le=2**63 - 1)] = 2**60 + 1) -> None: ...

    one, two = (tool(needs=[], name="t")(fn) for fn in (bounded, other))
    assert one.schema["properties"]["x"] == {"default": 2**60, "maximum": 2**63 - 1, "type": "integer"}
    assert one.digest != two.digest


def test_declaring_does_not_import_pydantic_and_reading_the_schema_does() -> None:
    program = """
import sys
from licet import Context, ToolCapabilities, tool

@tool(capabilities=ToolCapabilities(network={"allowed_hosts": ["a.test"]}), cost_usd=0.1, connector="github@2.1")
def f(ctx: Context, x: int | None = None) -> int:
    return 1

assert f(None) == 1 and f.needs and repr(f) and repr(f.spec) and f.spec.name and f.context_parameter == "ctx"
print("pydantic" in sys.modules)
assert f.schema["properties"]
print("pydantic" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["False", "True"]


# ToolCapabilities as a value ------------------------------------------------------------------------------------------


def test_tool_capabilities_are_values() -> None:
    mapped = ToolCapabilities(
        network={"allowedHosts": ["a.test"]},
        storage={"scope": "session", "ttlSecondsDefault": 5},
        fs_reach={"read": "from-personality", "write": ["/out"]},
        process={"allowed_binaries": ["git"]},
        secrets=["K"],
    )
    typed = ToolCapabilities(
        network=ToolCapabilities.Network(["a.test"]),
        storage=ToolCapabilities.Storage("session", ttl_seconds_default=5),
        fs_reach=ToolCapabilities.FsReach(read="from-personality", write=("/out",)),
        process=ToolCapabilities.Process(["git"]),
        secrets=("K",),
        env=[],
    )
    assert mapped == typed
    assert hash(mapped) == hash(typed)
    assert mapped.needs == typed.needs
    assert mapped.network == ToolCapabilities.Network(("a.test",))
    assert tool(capabilities=typed)(base).storage_ttl_seconds == 5
    with pytest.raises(AttributeError):
        mapped.env = ["A"]  # type: ignore[misc]


def test_empty_capabilities_declare_nothing() -> None:
    assert not ToolCapabilities().needs
    assert tool(capabilities=ToolCapabilities())(base).digest == tool(capabilities={})(base).digest


def test_a_list_that_changes_later_does_not_change_what_was_declared() -> None:
    assert ToolCapabilities(secrets={"c", "a", "b"}) == ToolCapabilities(secrets=["a", "b", "c"])
    hosts = ["a.test"]
    declared = ToolCapabilities(network=ToolCapabilities.Network(hosts))
    hosts.append("evil.test")
    assert declared.needs == CapabilitySet(["network:*:a.test"])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"network": {"hosts": []}}, "one of `allowed_hosts` in `network`"),
        ({"network": {"allowed_hosts": ["https://a.test"]}}, r"did you mean `a.test`\?"),
        ({"fs_reach": {"read": ["relative"]}}, "an absolute path"),
        ({"secrets": "K"}, "a list as `secrets`"),
    ],
)
def test_malformed_capabilities_are_refused_when_they_are_made(part: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed, match=message.replace("(", r"\(")):
        ToolCapabilities(**part)
