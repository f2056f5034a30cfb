"""Which values in the arguments of a call have a rule with `scope`."""

from typing import Any

import pytest

from licet.core.decision.argument_rules import Tied, tied, unknown_texts
from licet.core.policy.argument_ties import ties_of

READ, WRITE = {"scope": "fs:read"}, {"scope": "fs:write"}


@pytest.mark.parametrize(
    ("rule", "value", "found"),
    [
        (READ, "/a", [("fs:read", "/a")]),
        (READ, ["/a", "/b"], [("fs:read", "/a"), ("fs:read", "/b")]),
        (READ, 7, [("fs:read", 7)]),
        (READ, None, []),
        ({"maxLength": 9}, "/a", []),
        (True, "/a", []),
        ({"items": READ}, ["/a", None, "/b"], [("fs:read", "/a"), ("fs:read", "/b")]),
        ({"items": READ}, "/a", []),
        ({"prefixItems": [READ, WRITE]}, ["/a", "/b", "/c"], [("fs:read", "/a"), ("fs:write", "/b")]),
        ({"prefixItems": [READ], "items": WRITE}, ["/a", "/b"], [("fs:read", "/a"), ("fs:write", "/b")]),
        ({"prefixItems": [READ, WRITE]}, ["/a"], [("fs:read", "/a")]),
        ({"properties": {"to": WRITE, "by": READ}}, {"to": "/a", "more": "/b"}, [("fs:write", "/a")]),
        ({"properties": {"to": {"items": READ}}}, {"to": ["/a"]}, [("fs:read", "/a")]),
        ({"properties": {"to": WRITE}}, ["/a"], []),
        ({**READ, "items": WRITE}, ["/a"], [("fs:read", "/a"), ("fs:write", "/a")]),
    ],
    ids=str,
)
def test_a_value_with_a_scope_is_found_at_any_depth(rule: Any, value: object, found: list[tuple[str, object]]) -> None:
    assert list(tied({"path": rule}, {"path": value})) == [Tied("path", *one) for one in found]


def test_only_arguments_that_are_given_are_looked_at() -> None:
    assert list(tied({"from": READ, "to": WRITE}, {"to": "/a", "other": "/b"})) == [Tied("to", "fs:write", "/a")]


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
MODEL = {"type": "object", "properties": {"n": NUMBER}}


def several(*schemas: Any) -> dict[str, Any]:
    return {"anyOf": list(schemas)}


def array(*first: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", **({"prefixItems": list(first), "maxItems": len(first)} if first else {}), **more}


@pytest.mark.parametrize(("schema", "value", "found", "is_known"), [
    # each alternative counts, whichever is written last
    (several(array(items=TEXT), array(NUMBER, NUMBER)), ["/a"], ["/a"], True),
    (several(array(NUMBER, NUMBER), array(items=TEXT)), ["/a"], ["/a"], True),
    (several(array(items=TEXT), array(NUMBER, NUMBER)), [1, 2], [], True),
    (several(array(TEXT, TEXT), array(NUMBER, NUMBER)), ["/a", "/b"], ["/a", "/b"], True),
    (several({"$ref": "#/$defs/Model"}, {}), ["/a", {"b": "/c"}], ["/a", "b", "/c"], True),
    (several({"$ref": "#/$defs/Model"}, {}), {"n": 1}, [], True),
    (several({"$ref": "#/$defs/Model"}, {}), {"n": "/a"}, ["/a"], True),
    (several(MODEL, {"type": "object", "additionalProperties": {**TEXT, "format": "path"}}), {"n": "a"}, ["a"], True),
    (several({**TEXT, "format": "uri"}, TEXT), "a", ["a"], True),  # once, as a path
    (several(TEXT, NUMBER), 7, [], True),
    ({}, 7, [7], True),  # the number of an open file
    ({}, {"/a": None}, ["/a"], True),
    (TEXT, {"a": ["/b"]}, ["a", "/b"], True),  # what a type hint made of the text
    ({"properties": {"n": NUMBER}}, ["/a"], ["/a"], True),  # without a type, all types are accepted
    # text that the schema does not describe
    (MODEL, {"n": 1}, [], True),
    (MODEL, {"x": "/a"}, [], False),
    (MODEL, {"/a": 1}, [], False),
    (MODEL, {"n": "/a"}, [], False),
    (array(items=MODEL), [{"n": 1}, {"x": "/a"}], [], False),
    (NUMBER, "/a", [], False),
    (False, "/a", [], False),
    ({"enum": ["a", ["b"], {"c": "d"}]}, "a", [], True),
    ({"enum": ["a", ["b"], {"c": "d"}]}, ["b"], [], True),
    ({"enum": ["a", ["b"], {"c": "d"}]}, {"c": "d"}, [], True),
    ({"enum": ["a", ["b"], {"c": "d"}]}, "d", [], False),
    (several({"enum": ["a"]}, NUMBER), "/a", [], False),
], ids=str)  # fmt: skip
def test_every_text_in_a_value_is_tied_or_described_or_found_to_be_neither(
    schema: Any, value: Any, found: list[Any], is_known: bool
) -> None:
    rules = ties_of({"properties": {"path": schema}, "$defs": {"Model": MODEL}}).rules
    assert [one.value for one in tied(rules, {"path": value})] == found
    assert set(unknown_texts(rules, {"path": value})) == (set() if is_known else {"path"})


def test_a_schema_with_many_ways_to_one_value_takes_one_walk() -> None:
    loop = {"type": "array", "items": {"$ref": "#/$defs/Loop"}}
    schema = {"properties": {"path": {"$ref": "#/$defs/Loop"}}, "$defs": {"Loop": several(loop, loop, TEXT)}}
    value: Any = "/a"
    for _ in range(60):
        value = [value]
    assert [one.value for one in tied(ties_of(schema).rules, {"path": value})] == ["/a"]
