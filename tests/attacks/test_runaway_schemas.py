"""Schemas and data that are made to take forever: each check ends, and only short ones run in the event loop."""

import asyncio
import contextlib
import contextvars
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from gates import gate_of
from licet.adapters import governed
from licet.adapters.foreign import Foreign, ForeignTool, _function, _own_copy
from licet.adapters.framework_calls import GateTools
from licet.core.policy.servers import Server
from licet.core.policy.tool import spec_of
from licet.declare import check_cost, json_schema
from licet.declare.arguments import validator
from licet.declare.check_cost import Unfinished, patiently
from licet.declare.json_schema import NO_FIT, TOO_LONG, SchemaCheck, schema_validator
from licet.declare.plain_json import plain_json
from licet.gateway.governed_servers import checked_result
from licet.guard.execution import Stopped
from licet.policy_files.checks import argument_check

Json = Any
NODE = {"$ref": "#/$defs/node"}
INSIDE = {"type": "object", "properties": {"a": NODE}, "required": ["a"]}


def recursive(**node: Json) -> Json:
    return {"$defs": {"node": node}, **NODE}


def nested(levels: int, leaf: Json = "bad") -> Json:
    for _ in range(levels):
        leaf = {"a": leaf}
    return leaf


def in_lists(levels: int, leaf: Json = 1) -> Json:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def doubled(levels: int) -> Json:
    """A schema without recursion, whose references written out are two to the power of `levels`."""
    steps = {f"d{one + 1}": {"allOf": [{"$ref": f"#/$defs/d{one}"}] * 2} for one in range(levels)}
    return {"$defs": {"d0": {"type": "integer"}, **steps}, "$ref": f"#/$defs/d{levels}"}


def deep(levels: int) -> Json:
    schema: Json = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def again(word: str, beside: str, leaf: Json, levels: int = 24) -> Json:
    """A schema in which each `unevaluated...` finds out once more what the ones inside it have found out."""
    for _ in range(levels):
        leaf = {beside: leaf if beside == "if" else [leaf], word: False}
    return leaf


LONG = int("9" * 4200)

# Recursion, for which the library remembers answers: a yes or no in place.
RECURSIVE: dict[str, tuple[Json, Json, bool]] = {
    **{
        f"{word} of two kinds, {fits}": (
            recursive(**{word: [INSIDE, {**INSIDE, "title": "b"}, {"const": 1}]}), nested(60, leaf), fits
        )
        for word in ("anyOf",) for leaf, fits in ((1, True), ("bad", False))
    },
    "oneOf": (recursive(oneOf=[INSIDE, {**INSIDE, "title": "b"}, {"const": 1}]), nested(60, 1), False),
    "allOf": (recursive(allOf=[INSIDE | {"required": []}] * 2, type="object"), nested(60), False),
    "if": (recursive(**{"if": INSIDE, "then": INSIDE, "else": {"const": 1, **INSIDE}}), nested(60), False),
    "not": (recursive(**{"not": {"not": {"properties": {"a": NODE}}}, "allOf": [{"properties": {"a": NODE}}]}),
            nested(60, 1), True),
    "dependentSchemas": (recursive(dependentSchemas={"a": {"properties": {"a": NODE}}}, properties={"a": NODE}),
                         nested(60, 1), True),
    "three ways to a property": (recursive(properties={"a": NODE}, patternProperties={"a": NODE},
                                           propertyNames={"minLength": 1}), nested(60, 1), True),
    "contains": (recursive(contains=NODE, items=NODE), in_lists(60), True),
    "two in a circle": ({"$defs": {"node": {"anyOf": [{"items": {"$ref": "#/$defs/b"}}] * 2},
                                   "b": {"anyOf": [{"items": NODE, "type": "array"}] * 2}}, **NODE},
                        in_lists(61), False),
}  # fmt: skip


@pytest.mark.parametrize("name", RECURSIVE)
def test_recursion_is_answered_in_place(name: str) -> None:
    schema, data, fits = RECURSIVE[name]
    assert SchemaCheck(schema).fits(data, plain_json(data)) is fits


# What would take long, or could: in the process.
HEAVY: dict[str, tuple[Json, Json, str]] = {
    "references that double": (doubled(14), 1, ""),
    "references that double without end": (doubled(60), 1, TOO_LONG),
    "nested unevaluatedProperties": (again("unevaluatedProperties", "anyOf", {"properties": {"a": True}}), {"a": 1},
                                     TOO_LONG),
    "nested unevaluatedProperties that refuse": (again("unevaluatedProperties", "anyOf", {}, 6), {"a": 1},
                                                 "is not valid under any"),
    "nested unevaluatedItems": (again("unevaluatedItems", "allOf", {"prefixItems": [True]}), [1], TOO_LONG),
    "nested unevaluatedItems in conditions": (again("unevaluatedItems", "if", {"items": True}, 2), [1], ""),
    "unevaluatedProperties": (recursive(anyOf=[{"properties": {"a": NODE}}] * 2, unevaluatedProperties=False),
                              nested(60, 1), ""),
    "unevaluatedProperties, recursive": (recursive(allOf=[{"properties": {"a": NODE}}], unevaluatedProperties=NODE),
                                         nested(60, 1), ""),
    "unevaluatedItems": (recursive(anyOf=[{"prefixItems": [NODE]}, {"items": NODE}], unevaluatedItems=NODE),
                         in_lists(60), ""),
    "a long integer": ({"allOf": [{"multipleOf": 0.1}] * 10}, LONG, ""),
    "long integers": ({"items": {"multipleOf": 5}}, [LONG, -LONG], "0: 9999"),
    "a long integer of the schema": ({"anyOf": [{"const": 1}, {"minimum": LONG}]}, 1, ""),
    "many multiples of a fraction": ({"allOf": [{"multipleOf": 0.1}] * 700}, 1e308, ""),
    "a dynamic reference": ({"$dynamicAnchor": "n", "anyOf": [{"properties": {"a": {"$dynamicRef": "#n"}}}] * 2},
                            nested(30), ""),
    "another dialect": ({"$schema": "urn:x", "$id": "urn:x", **doubled(8)}, 1, ""),
    "an identifier inside": ({"properties": {"a": {"$id": "urn:y", **doubled(8)}}}, {"a": 1}, ""),
    "many choices, many items": ({"items": {"anyOf": [{"const": one} for one in range(3000)]}}, [2999] * 30000,
                                 TOO_LONG),
    "a large enumeration": ({"enum": [*range(200_000)]}, -1, "199998 other candidates"),
    "many unique items": ({"uniqueItems": True}, [[one] for one in range(50_000)], ""),
    "a megabyte": ({"items": {"type": "integer"}}, [1] * 400_000, ""),
    "a pattern that takes microseconds for a byte": ({"pattern": "[ab]*a[ab]{400}c"}, "abba" * 200, "abbaabba"),
    "many patterns": ({"patternProperties": {f"a{{50}}b{{50}}c{one}": {} for one in range(500)}}, {}, ""),
    "names by a pattern": ({"propertyNames": {"pattern": "^(a|b|aa)*c$"}}, {f"{'a' * i}c": 1 for i in range(99)}, ""),
    "a wide schema": ({"properties": {f"k{one}": {"type": "object"} for one in range(5000)}}, {"k1": 1},
                      "is not of type"),
    "a deep schema": (deep(400), 1, "cannot be used"),
}  # fmt: skip


def test_ordinary_numbers_are_checked_in_place() -> None:
    check = SchemaCheck({"properties": {"price": {"multipleOf": 0.01}, "id": {"type": "string"}}})
    data = {"price": 12.5, "id": "7" * 300}  # digits of a text are no number
    assert check.fits(data) is True
    assert check.fits({"price": 10**90}) is True


@pytest.mark.parametrize("name", HEAVY)
def test_what_may_take_long_is_answered_by_a_process_that_ends(name: str, quick: None) -> None:
    schema, data, expected = HEAVY[name]
    check, text = SchemaCheck(schema), plain_json(data)
    assert check.fits(data, text) is None
    with pytest.raises(Unfinished):
        asyncio.run(in_loop(check.wrong_with, data, text))
    found = asyncio.run(patiently(check.wrong_with, data, text))
    assert expected in found
    assert bool(found) == bool(expected)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(json_schema, "LIST_SECONDS", 0.2)


async def in_loop(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


EXPLODING = recursive(anyOf=[INSIDE, {**INSIDE, "title": "b"}, {"const": 1}])


def test_errors_that_cannot_be_listed_in_time_are_left_out(quick: None) -> None:
    data = nested(40)
    assert jsonschema_rs.validator_for(EXPLODING).is_valid(data) is False  # its `iter_errors` would never end
    assert asyncio.run(patiently(SchemaCheck(EXPLODING).wrong_with, data)) == NO_FIT


def test_errors_that_take_too_much_memory_are_left_out(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "LIST_SECONDS", 60.0)  # memory ends it, not time
    assert SchemaCheck(EXPLODING).wrong_with(nested(40)) == NO_FIT


def test_at_most_five_errors_are_listed() -> None:
    check = SchemaCheck({"items": {"type": "integer"}})
    assert check.wrong_with(["x"] * 9).count("is not of type") == 5


def test_a_server_s_structured_content_cannot_run_away(quick: None) -> None:
    data = {"content": [], "structuredContent": nested(40)}
    definition = {"outputSchema": EXPLODING}
    with pytest.raises(Stopped, match="the server's structured content does not fit its schema"):
        asyncio.run(checked_result("tools/call", b"", data, Server(name="s"), definition, "keep", print))


def test_the_arguments_of_a_model_cannot_run_away(quick: None) -> None:
    schema = {"properties": {"tree": NODE}, "$defs": EXPLODING["$defs"]}
    validate = schema_validator(schema)
    with pytest.raises(Exception, match=NO_FIT):
        validate({"tree": nested(40)})
    assert validate({"tree": nested(40, 1)}) == {"tree": nested(40, 1)}

    async def run(arguments: dict[str, Any]) -> Any:
        raise AssertionError("it must not run")

    made = Foreign("find", "Find.", schema, run)
    own = _own_copy(made)
    spec = spec_of(name="find", needs=[], effect="read_only", sandbox="native", schema=own)
    tools = GateTools(gate_of([ForeignTool(_function(made, own), spec)]), "s")
    told = tools.call_blocking("find", {"tree": nested(40)}).text
    assert told == f"INPUT_INVALID: what was sent {NO_FIT}"


class Red(BaseModel):
    """One of two models that hold each other."""

    a: "Red | Blue | int"


class Blue(BaseModel):
    """The other one, with the same field."""

    a: "Red | Blue | int"


class Both(BaseModel):
    """A filter, as tools have them: its choices have different fields."""

    both: "list[Both | Either | Leaf]"


class Either(BaseModel):
    either: "list[Both | Either | Leaf]"


class Leaf(BaseModel):
    field: str


Lists = TypeAliasType("Lists", "list[Lists] | tuple[Lists, ...] | int")
Data = TypeAliasType("Data", "dict[str, Data] | list[Data] | str | int | None")


async def coloured(of: Red | Blue) -> str:
    return "read"


async def listed(of: Lists) -> str:
    return "read"


async def filtered(of: Both | Either | Leaf) -> str:
    return "read"


async def plain(of: Data) -> str:
    return "read"


def filters(levels: int) -> Json:
    return {"both": [{"either": [filters(levels - 1)]}]} if levels else {"field": "a"}


HINTS: dict[str, tuple[Any, Json, bool]] = {
    "two models, a little": (coloured, nested(6, 1), True),
    "two models": (coloured, nested(100, 1), False),
    "two models, wrong": (coloured, nested(100), False),
    "two kinds of lists": (listed, in_lists(100), False),
    "choices with fields of their own": (filtered, filters(20), True),
    "many of them": (filtered, {"both": [filters(2)] * 100}, True),
    "any data": (plain, in_lists(100), True),
    "very much data for types": (plain, [{"a": 1}] * 20_000, False),
}


@pytest.mark.parametrize("name", HINTS)
def test_type_hints_that_contain_themselves_cannot_run_away(name: str) -> None:
    fn, data, fits = HINTS[name]
    tools = GateTools(gate_of([governed(fn, needs=[], effect="read_only")]), "s")
    told = tools.call_blocking(fn.__name__, {"of": data}).text
    assert told == "read" if fits else "INPUT_INVALID: expected" in told


def test_large_arguments_are_checked_off_the_loop() -> None:
    validate = validator(plain, None)
    data = {"of": [[1]] * 3000}
    with pytest.raises(Unfinished):
        asyncio.run(under_patience(validate, data))
    assert asyncio.run(patiently(validate, data)) == data
    assert validate(data) == data


async def under_patience(work: Callable[..., Any], *arguments: Any) -> Any:
    context = contextvars.copy_context()
    context.run(check_cost._IN_LOOP.set, True)
    return context.run(work, *arguments)


RULES: dict[str, tuple[Json, Json, str]] = {
    "a large pattern": ({"pattern": "^[ab]*a[ab]{2000}c$"}, "abba" * 2000, "outside"),
    "many choices, many items": ({"items": {"enum": [*range(2000)]}}, [1999] * 2000, ""),
    "unique items": ({"uniqueItems": True}, [*range(2000)], ""),
    "a long integer": ({"multipleOf": 5}, LONG, "outside"),
    "multiples of a fraction": ({"items": {"multipleOf": 0.01}}, [0.5] * 500, ""),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_a_manifest_does_not_hold_the_loop(name: str) -> None:
    rule, value, expected = RULES[name]
    check = argument_check({"a": rule})
    with pytest.raises(Unfinished):
        asyncio.run(in_loop(check, {"a": value}))
    assert expected in asyncio.run(patiently(check, {"a": value}))
    assert bool(asyncio.run(patiently(check, {"a": value}))) == bool(expected)


@pytest.mark.parametrize("key", ["$ref", "$schema", "$dynamicRef"])
def test_no_schema_is_fetched(key: str, listener: tuple[int, list[Any]]) -> None:
    port, seen = listener
    check = SchemaCheck({"properties": {"a": {"type": "integer"}}, key: f"http://127.0.0.1:{port}/schema"})
    assert "cannot be used" in check.wrong_with({"a": 1})
    assert seen == []


@pytest.fixture
def listener() -> Iterator[tuple[int, list[Any]]]:
    seen: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                seen.append(server.accept())

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], seen


def test_after_a_fork_the_processes_of_the_parent_stay_its_own() -> None:
    check = SchemaCheck({"type": "integer"})
    assert check.wrong_with("x")
    (kept,) = json_schema._kept[-1:]
    child = os.fork()
    if not child:
        fine = b"is not of type" in check.wrong_with("y").encode() and kept not in json_schema._kept
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert check.wrong_with("z")
    assert kept in json_schema._kept


def test_a_process_that_died_is_replaced() -> None:
    check = SchemaCheck({"type": "integer"})
    assert check.wrong_with("x")
    for one in json_schema._kept:
        one._process.kill()
        one._process.wait()
    found = [check.wrong_with("x") for _ in range(4)]
    assert "is not of type" in found[-1]
    assert all(found)
