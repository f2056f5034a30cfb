"""Shapes check policy files and write the JSON Schema for editors; both accept the same files."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from licet.core.values import Problem
from licet.policy_files.nodes import read_nodes
from licet.policy_files.shapes import (
    AnyJson,
    Either,
    Field,
    Flag,
    Integer,
    ListOf,
    Located,
    MappingOf,
    Money,
    OneOf,
    Record,
    Shape,
    TextShape,
    Value,
    check,
    json_schema,
)


class Misread(ValueError):
    expected = "an upper-case name"
    found = "a"
    hint = "did you mean `A`?"


def upper(text: str) -> str:
    match text:
        case "a":
            raise Misread
        case "b":
            raise ValueError("found `b`, expected a vowel; did you mean `a`?")
        case "c":
            raise ValueError("found `c`, expected a vowel")
        case "d":
            raise ValueError("d is not\nfor sale")
        case "boom":
            raise KeyError(text)
        case _:
            return text.upper()


NAME = TextShape(expected="a name", pattern=r"[a-z_\d]{1,8}", examples=("analytics",))
HOST = TextShape(expected="a host name", pattern=r"[a-z.*]+")
PARSED = TextShape(expected="a letter", parse=upper)


def checked(shape: Shape, text: str, file: str = "f.yaml") -> tuple[Value | None, list[str]]:
    node, read = read_nodes(text.encode(), file)
    assert node is not None
    assert read == ()
    problems: list[Problem] = []
    value = check(shape, node, problems)
    return value, [str(problem).removeprefix(f"{file}:").replace(": error:", "", 1) for problem in problems]


def bare(value: Any) -> Any:
    """The plain data of a value tree."""
    match value:
        case Located():
            return bare(value.value)
        case Mapping():
            return {key: bare(child) for key, child in value.items()}
        case tuple():
            return [bare(child) for child in value]
        case _:
            return value


SOUND: list[tuple[Shape, str, object]] = [
    (NAME, "a_1", "a_1"),
    (NAME, "'12'", "12"),
    (NAME, "no", "no"),
    (PARSED, "x", "X"),
    (OneOf(("read_only", "full")), "full", "full"),
    (Integer(), "0", 0),
    (Integer(1, 3), "3", 3),
    (Integer(), "3.0", 3),
    (Integer(), "1e2", 100),
    (Money(), "5", Decimal(5)),
    (Money(), "5.00", Decimal(5)),
    (Money(), "0.1", Decimal("0.1")),
    (Money(), "1e3", Decimal(1000)),
    (Money(), "2.5e-7", Decimal("2.5e-7")),
    (Money(), "-0.0", Decimal(0)),
    (Money(), "1e9", Decimal(10**9)),
    (Money(), "0.000000000000001", Decimal("1e-15")),
    (Flag(), "true", True),
    (ListOf(NAME), "[]", []),
    (ListOf(NAME), "[a, b]", ["a", "b"]),
    (ListOf(NAME), "[a, a]", ["a", "a"]),
    (
        ListOf(AnyJson()),
        "[1, true, '1', [1], [true], {a: 1}, {a: 2}, null]",
        [1, True, "1", [1], [True], {"a": 1}, {"a": 2}, None],
    ),
    (MappingOf(NAME, Integer()), "{b: 1, a: 2}", {"b": 1, "a": 2}),
    (MappingOf(PARSED, Integer()), "{x: 1}", {"X": 1}),
    (Record({"a": Field(Flag()), "b": Field(NAME)}), "{b: x}", {"b": "x"}),
    (
        Record({"allowed_hosts": Field(ListOf(HOST), aliases=("allowedHosts",))}),
        "allowedHosts: [x.y]",
        {"allowed_hosts": ["x.y"]},
    ),
    (Either((ListOf(NAME), MappingOf(NAME, Flag()))), "[a]", ["a"]),
    (Either((ListOf(NAME), MappingOf(NAME, Flag()))), "{a: true}", {"a": True}),
    (Either((ListOf(NAME), OneOf(("any",)))), "any", "any"),
    (Either((Flag(), OneOf(("ask",)), Integer())), "false", False),
    (Either((Flag(), OneOf(("ask",)), Integer())), "7", 7),
    (AnyJson(most=3), "[1, 2]", [1, 2]),
    (
        AnyJson(),
        "{enum: [a, 1, 1.5, null, true], deep: {x: []}}",
        {"enum": ["a", 1, 1.5, None, True], "deep": {"x": []}},
    ),
]


@pytest.mark.parametrize(("shape", "text", "value"), SOUND)
def test_a_valid_node_gives_a_value(shape: Shape, text: str, value: object) -> None:
    found, problems = checked(shape, text)
    assert problems == []
    assert bare(found) == value
    assert type(bare(found)) is type(value)


@pytest.mark.parametrize("text", ["5", "5.0", "5.00", "50e-1", "0.5e1"])
def test_money_has_one_text_form(text: str) -> None:
    value, _ = checked(Money(), text)
    assert value is not None
    assert str(value.value) == "5"


ONCE = "expected each entry once"
AT_2 = "it is first at f.yaml:1:2"

AGENT = Record(
    {
        "agent": Field(NAME, required=True),
        "effect": Field(OneOf(("read_only", "write_limited", "full"))),
        "allowed_hosts": Field(ListOf(HOST), aliases=("allowedHosts", "hosts")),
        "max_calls": Field(Integer(1, 100)),
    }
)
AGENT_KEYS = "`agent`, `effect`, `allowed_hosts` or `max_calls`"

WRONG: list[tuple[Shape, str, list[str]]] = [
    (HOST, "true", ["1:1 found a boolean `true`, expected a host name; quote it if you mean the text"]),
    (HOST, "1.0", ["1:1 found a number `1.0`, expected a host name; quote it if you mean the text"]),
    (HOST, "~", ["1:1 found a null `~`, expected a host name; quote it if you mean the text"]),
    (HOST, "''", ["1:1 found an empty text, expected a host name"]),
    (HOST, "[a]", ["1:1 found a list, expected a host name"]),
    (HOST, "{a: b}", ["1:1 found a mapping, expected a host name"]),
    (HOST, "https://x", ["1:1 found `https://x`, expected a host name"]),
    (HOST, '"a\\n"', ["1:1 found `a\\u000a`, expected a host name"]),
    (NAME, "'\u0664'", ["1:1 found `\u0664`, expected a name"]),
    (PARSED, "a", ["1:1 found `a`, expected an upper-case name; did you mean `A`?"]),
    (PARSED, "b", ["1:1 found `b`, expected a vowel; did you mean `a`?"]),
    (PARSED, "c", ["1:1 found `c`, expected a vowel"]),
    (PARSED, "d", ["1:1 found `d`, expected a letter; d is not\\u000afor sale"]),
    (
        OneOf(("read_only", "full")),
        "Read-Only",
        ["1:1 found `Read-Only`, expected `read_only` or `full`; did you mean `read_only`?"],
    ),
    (OneOf(("read_only", "full")), "zzz", ["1:1 found `zzz`, expected `read_only` or `full`"]),
    (OneOf(("deny",)), "false", ["1:1 found a boolean `false`, expected `deny`; quote it if you mean the text"]),
    (Integer(), "-1", ["1:1 found a number `-1`, expected a whole number of at least 0"]),
    (Integer(), "1.5", ["1:1 found a number `1.5`, expected a whole number of at least 0"]),
    (Integer(1, 9), "10", ["1:1 found a number `10`, expected a whole number from 1 to 9"]),
    (Integer(), "1e300", ["1:1 found a number `1e300`, expected a whole number of at least 0"]),
    (Integer(), "true", ["1:1 found a boolean `true`, expected a whole number of at least 0"]),
    (Integer(), "'5'", ["1:1 found the text `5`, expected a whole number of at least 0; remove the quotes"]),
    (Integer(), "1_000", ["1:1 found the text `1_000`, expected a whole number of at least 0"]),
    (Money(), "-0.01", [f"1:1 found a number `-0.01`, expected {Money.expected}"]),
    (Money(), "1e-16", [f"1:1 found a number `1e-16`, expected {Money.expected}"]),
    (Money(), "1000000001", [f"1:1 found a number `1000000001`, expected {Money.expected}"]),
    (Money(), "'.nan'", [f"1:1 found the text `.nan`, expected {Money.expected}"]),
    (Flag(), "yes", ["1:1 found the text `yes`, expected `true` or `false`"]),
    (Flag(), "'true'", ["1:1 found the text `true`, expected `true` or `false`; remove the quotes"]),
    (Flag(), "1", ["1:1 found a number `1`, expected `true` or `false`"]),
    (
        ListOf(NAME),
        "a",
        ["1:1 found the text `a`, expected a list (a name in each entry); put it in `[` and `]` to make a list"],
    ),
    (ListOf(NAME, least=1), "[]", ["1:1 found 0 entries, expected at least 1"]),
    (
        ListOf(NAME),
        "[a, B, 1]",
        [
            "1:5 found `B`, expected a name",
            "1:8 found a number `1`, expected a name; quote it if you mean the text",
        ],
    ),
    (MappingOf(NAME, Flag()), "[a]", ["1:1 found a list, expected a mapping (a name as each key)"]),
    (
        MappingOf(NAME, Flag()),
        "{A: 1}",
        ["1:2 found `A`, expected a name", "1:5 found a number `1`, expected `true` or `false`"],
    ),
    (MappingOf(PARSED, Flag()), "{x: true, X: false}", [f"1:11 found `X` a second time, {ONCE}; {AT_2}"]),
    (Record({}), "{a: 1}", ["1:2 found the key `a`, expected nothing"]),
    (AGENT, "x", [f"1:1 found the text `x`, expected a mapping with {AGENT_KEYS}"]),
    (AGENT, "{agent: }", ["1:9 found nothing, expected a name"]),
    (AGENT, "{effect: full}", ["1:1 found a mapping without it, expected the key `agent` (a name)"]),
    (
        AGENT,
        "{agent: a, maxcalls: 3}",
        [f"1:12 found the key `maxcalls`, expected {AGENT_KEYS}; did you mean `max_calls`?"],
    ),
    (
        AGENT,
        "{agent: a, AllowedHosts: []}",
        [f"1:12 found the key `AllowedHosts`, expected {AGENT_KEYS}; did you mean `allowed_hosts`?"],
    ),
    (
        AGENT,
        "agent: a\nallowedHosts: []\nhosts: []",
        ["3:1 found the key `hosts` in addition to `allowedHosts`, expected one of the two; keep `allowed_hosts`"],
    ),
    (
        AGENT,
        "efect: full\neffect: none\nallowedHosts: [1, a/b]\nmax_calls: 0.5\n",
        [
            f"1:1 found the key `efect`, expected {AGENT_KEYS}; did you mean `effect`?",
            "2:9 found `none`, expected `read_only`, `write_limited` or `full`",
            "3:16 found a number `1`, expected a host name; quote it if you mean the text",
            "3:19 found `a/b`, expected a host name",
            "4:12 found a number `0.5`, expected a whole number from 1 to 100",
            "1:1 found a mapping without it, expected the key `agent` (a name)",
        ],
    ),
    (
        Either((ListOf(NAME), OneOf(("any",)))),
        "{a: 1}",
        ["1:1 found a mapping, expected a list (a name in each entry) or `any`"],
    ),
    (Either((ListOf(NAME), OneOf(("any",)))), "al", ["1:1 found `al`, expected `any`"]),
    (
        Either((Flag(), Integer())),
        "'1'",
        ["1:1 found the text `1`, expected `true` or `false` or a whole number of at least 0; remove the quotes"],
    ),
    (AnyJson(most=3), "[1, 2, 3]", ["1:1 found more than 3 values, expected at most 3 values"]),
]


@pytest.mark.parametrize(("shape", "text", "problems"), WRONG)
def test_an_invalid_node_is_reported_with_its_place(shape: Shape, text: str, problems: list[str]) -> None:
    assert checked(shape, text)[1] == problems


def test_values_and_keys_have_origins() -> None:
    value, _ = checked(Record({"tools": Field(MappingOf(NAME, ListOf(NAME)))}), "tools:\n  a: [x, y]\n  b: []\n")
    assert value is not None
    tools = value.value["tools"]
    assert (tools.key_origin.full, tools.origin.full) == ("f.yaml:1:1", "f.yaml:2:3")
    assert [(name, child.key_origin.full, child.origin.full) for name, child in tools.value.items()] == [
        ("a", "f.yaml:2:3", "f.yaml:2:6"),
        ("b", "f.yaml:3:3", "f.yaml:3:6"),
    ]
    assert [item.origin.full for item in tools.value["a"].value] == ["f.yaml:2:7", "f.yaml:2:10"]


def test_valid_values_are_kept_if_others_are_invalid() -> None:
    value, problems = checked(AGENT, "{agent: a, effect: none, hosts: [x, 1, y], more: 1}")
    assert bare(value) == {"agent": "a", "allowed_hosts": ["x", "y"]}
    assert len(problems) == 3


def test_a_bug_in_a_parser_is_not_reported_as_a_problem_of_the_file() -> None:
    with pytest.raises(KeyError):
        checked(PARSED, "boom")


def test_values_cannot_be_changed() -> None:
    value, _ = checked(AGENT, "{agent: a}")
    assert value is not None
    with pytest.raises(TypeError):
        value.value["agent"] = 1
    with pytest.raises(AttributeError):
        value.value = 1  # type: ignore[misc]


def test_the_search_for_similar_words_is_limited() -> None:
    _, problems = checked(AGENT, "agent: a\n" + "".join(f"efect{number}: 1\n" for number in range(5000)))
    assert len(problems) == 5000
    assert problems[0].endswith("did you mean `effect`?")
    assert problems[-1].endswith("`max_calls`")


# JSON Schema ---------------------------------------------------------------------------------------------------------


def test_the_json_schema_of_a_shape() -> None:
    shape = Record(
        {
            "agent": Field(NAME, required=True, description="whose ceiling this is"),
            "effect": Field(OneOf(("read_only", "full"), description="how far it may go"), aliases=("sideEffect",)),
            "private": Field(Either((ListOf(HOST, least=1), Flag()), description="where to")),
            "budget": Field(MappingOf(NAME, Money())),
            "args": Field(MappingOf(NAME, AnyJson(description="JSON Schema"))),
        },
        description="not this one",
    )
    name = {"type": "string", "minLength": 1, "pattern": r"^(?:[a-z_\d]{1,8})$", "examples": ["analytics"]}
    effect = {"type": "string", "enum": ["read_only", "full"]}
    hosts = {"type": "string", "minLength": 1, "pattern": "^(?:[a-z.*]+)$", "description": "a host name"}
    assert json_schema(shape, "Manifest", "what an agent may touch") == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifest",
        "description": "what an agent may touch",
        "type": "object",
        "properties": {
            "agent": {**name, "description": "whose ceiling this is"},
            "effect": {**effect, "description": "how far it may go"},
            "sideEffect": {**effect, "description": "another name of `effect`", "deprecated": True},
            "private": {
                "description": "where to",
                "anyOf": [
                    {"type": "array", "items": hosts, "minItems": 1},
                    {"type": "boolean"},
                ],
            },
            "budget": {
                "type": "object",
                "propertyNames": {**name, "description": "a name"},
                "additionalProperties": {"type": "number", "minimum": 0, "maximum": 10**9},
            },
            "args": {
                "type": "object",
                "propertyNames": {**name, "description": "a name"},
                "additionalProperties": {"description": "JSON Schema"},
            },
        },
        "additionalProperties": False,
        "required": ["agent"],
        "allOf": [{"not": {"required": ["effect", "sideEffect"]}}],
    }


SAMPLE = Record(
    {
        "a": Field(NAME, required=True, aliases=("b",)),
        "c": Field(OneOf(("x", "y")), required=True),
        "d": Field(
            ListOf(Either((HOST, Record({"e": Field(Integer(1, 3)), "f": Field(Flag(), required=True)}))), least=1)
        ),
        "g": Field(MappingOf(NAME, Either((Money(), Flag()))), aliases=("h", "i")),
        "j": Field(AnyJson()),
    }
)
VALIDATOR = jsonschema_rs.validator_for(json_schema(SAMPLE, "Sample", "one of everything"))

words = st.sampled_from(["x", "y", "ab", "A", "a.b", "", "12", "x\n", "\u0664", "longer_than_8"])
numbers = st.integers(-1, 4) | st.sampled_from([1.0, 1.5, -0.5, 0.25, 10**9, 10**9 + 1, 1e300])
leaves = st.none() | st.booleans() | numbers | words
keys = st.sampled_from(list("abcdefghijk"))
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


def mostly(strategy: st.SearchStrategy[Any], otherwise: st.SearchStrategy[Any] = anything) -> st.SearchStrategy[Any]:
    """The given strategy, but something else one time in twenty, so that samples are both valid and invalid."""
    return st.integers(0, 19).flatmap(lambda dice: otherwise if dice == 19 else strategy)


records = st.fixed_dictionaries({"f": mostly(st.booleans())}, optional={"e": mostly(st.integers(1, 3))})
entries = mostly(st.sampled_from(["x", "a.b"]) | records)
names = mostly(st.sampled_from(["x", "ab"]), st.sampled_from(["A", "a.b", "longer_than_8"]))
amounts = mostly(st.dictionaries(names, mostly(st.booleans() | st.sampled_from([0, 0.25, 10**9]), numbers), max_size=3))
spellings = st.sampled_from([{"a": "x"}, {"b": "ab"}])
samples = mostly(
    st.builds(
        lambda *parts: {key: value for part in parts for key, value in part.items()},
        st.fixed_dictionaries(
            {"c": mostly(st.sampled_from(["x", "y"]))},
            optional={"d": mostly(st.lists(entries, min_size=1, max_size=3)), "g": amounts, "j": anything},
        ),
        mostly(spellings, st.sampled_from([{}, {"a": "x", "b": "x"}, {"a": None}])),
        mostly(st.just({}), st.dictionaries(keys, anything, max_size=2)),
        mostly(st.just({}), st.sampled_from([{"h": {}}, {"h": {}, "i": {}}])),
    )
)


@given(samples.filter(lambda sample: sample is not None))
@settings(deadline=None)
def test_the_loader_and_the_schema_accept_the_same_files(sample: object) -> None:
    text = json.dumps(sample)
    node, read = read_nodes(text.encode(), "f.json")
    assert node is not None
    assert read == ()
    problems: list[Problem] = []
    value = check(SAMPLE, node, problems)
    event("accepted" if not problems else "refused")
    assert VALIDATOR.is_valid(json.loads(text)) == (not problems)
    if not problems:
        assert value is not None
        assert set(value.value) <= set(SAMPLE.fields)
    for problem in problems:
        assert str(problem).isprintable()
