"""Redaction of JSON text: it stays valid JSON, and only secrets change."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counted import lines, work
from licet.declare.plain_json import plain_json
from licet.guard.redaction import redact
from licet.guard.redaction.redact import Redactor

SECRET = "hunter2-\"q\\n\tü'-12"
PIN = "12345678"
KEY0, KEY1 = "[redacted KEY0]", "[redacted KEY1]"


def redactor(*values: str) -> Redactor:
    made = Redactor()
    for number, value in enumerate(values):
        made.add(f"KEY{number}", value)
    return made


def clean(data: Any, *values: str) -> Any:
    return json.loads(redactor(*(values or (SECRET, PIN))).json(plain_json(data)))


CASES: list[tuple[str, Any, Any]] = [
    ("a text", SECRET, KEY0),
    ("inside a text", f"a {SECRET} b", f"a {KEY0} b"),
    ("two in a text", f"{SECRET}{SECRET}", KEY0 * 2),
    ("a key", {SECRET: 1}, {KEY0: 1}),
    ("deep down", [{"a": [[SECRET]]}], [{"a": [[KEY0]]}]),
    ("a number", {"pin": 12345678}, {"pin": KEY1}),
    ("a negative number", [-12345678], [KEY1]),
    ("part of a number", [9912345678.5], [KEY1]),
    ("numbers beside it", [1, 12345678, 2.5, -3], [1, KEY1, 2.5, -3]),
    ("a number as a key", {PIN: 1}, {KEY1: 1}),
    ("the bytes of it", list(SECRET.encode()), [KEY0] * len(SECRET.encode())),
    ("the hex of its bytes", [f"{byte:02x}" for byte in SECRET.encode()], [KEY0] * len(SECRET.encode())),
    ("JSON in a text", json.dumps({"a": SECRET}), json.dumps({"a": KEY0})),
    ("JSON in JSON in a text", json.dumps(json.dumps(SECRET)), json.dumps(json.dumps(KEY0))),
    ("words of JSON", [True, False, None, "true"], [True, False, None, "true"]),
    ("nothing", {"a": ["b", {}, [], ""]}, {"a": ["b", {}, [], ""]}),
]


@pytest.mark.parametrize(("name", "data", "expected"), CASES, ids=[case[0] for case in CASES])
def test_data(name: str, data: Any, expected: Any) -> None:
    assert clean(data) == expected


def test_text_without_a_secret_is_the_same_object() -> None:
    text = b'{"a": [1, "b"]}'
    assert redactor(SECRET).json(text) is text
    assert redactor().json(text) is text


def test_true_false_and_null_are_never_redacted() -> None:
    assert clean([True, None, "null", "true"], "true", "null") == [True, None, KEY1, KEY0]


def test_a_secret_equal_to_the_letters_of_an_escape_leaves_valid_json() -> None:
    # In the text it is `\nabcdefg`; the escape is not cut in two.
    assert clean("x\nabcdefg", "nabcdefg") == "x[redacted KEY0]"
    assert clean("x\nabc\\", "abc\\x") == "x\nabc\\"
    assert clean(["abcdefg\\", "\\"], "abcdefg\\") == [KEY0, "\\"]
    assert clean("\x01bcdefgh", "0001bcdefgh") == KEY0


def test_a_secret_that_spans_two_json_strings_is_redacted_in_both() -> None:
    assert clean(["abcd", "efgh", "ijkl"], 'abcd","efgh') == [KEY0, KEY0, "ijkl"]


def test_keys_that_become_the_same_are_all_kept() -> None:
    assert clean({"sEcReT-1": 1, "secret-1": 2, "[redacted KEY0]": 3, "x": 4}, "secret-1") == {
        "[redacted KEY0] (2)": 1,
        "[redacted KEY0] (3)": 2,
        "[redacted KEY0]": 3,
        "x": 4,
    }


@pytest.mark.parametrize(
    "text", [b"[info] KEY=hunter2! x", b'{"a": "hunter2!', b"hunter2!", b'"}hunter2!{"', b"\xff[hunter2!"]
)
def test_text_that_is_no_json_keeps_no_secret(text: bytes) -> None:
    out = redactor("hunter2!").json(text)
    assert b"hunter2!" not in out
    assert KEY0.encode() in out


_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
_secrets = st.text(st.characters(codec="utf-8"), min_size=4, max_size=12).filter(lambda text: len(text.strip()) >= 4)


@given(_secrets, _data, st.text(max_size=6), st.text(max_size=6))
def test_redacted_json_is_valid_and_has_no_secret(secret: str, data: Any, before: str, after: str) -> None:
    told = clean([data, before + secret + after, {before + secret + after: data}], secret)
    assert len(told) == 3
    assert KEY0 in told[1] or "[redacted]" in told[1] or "[…]" in told[1]
    assert secret.strip() not in told[1].replace(KEY0, "\0").replace("[redacted]", "\0")
    assert len(told[2]) == 1


@given(_data)
def test_data_without_the_secret_is_left_as_it_is(data: Any) -> None:
    assert clean(data, "correct horse battery") == json.loads(plain_json(data))


def test_the_work_does_not_grow_with_the_number_of_texts() -> None:
    made = redactor(SECRET)
    many, one = plain_json(["ab"] * 20_000), plain_json("ab,ab" * 20_000)
    made.json(one)
    assert work(lambda: made.json(many)) < 2 * work(lambda: made.json(one))


@pytest.mark.parametrize(
    "text",
    [
        b'{"hunter-42" :1,"HUNTER-42"\n\t:2}',
        b'{"hunter-42":1,"\\u005bredacted KEY0]":2}',
        b'{"[red\\u0061cted KEY0]" :1,"hunter-42":2}',
        b'{"a\\u0062 hunter-42":1,"ab HUNTER-42":2}',
        b'{"a\\" hunter-42":1,"a\\u0022 HUNTER-42":2}',
        b'{"x":{"y":{}},"hunter-42":1,"Hunter-42":2}',
    ],
)
def test_no_key_is_lost_however_it_is_written(text: bytes) -> None:
    said = redactor("hunter-42").json(text)
    assert b"hunter-42" not in said.lower()
    assert len(json.loads(said)) == len(json.loads(text)), said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"hunter2!', '"[redacted KEY0]'),
        ('"a hunter2!\\', '"a [redacted KEY0]\\'),
        ('"a hunter2!"', '"a [redacted KEY0]"'),
        ('["b" "a\\"hunter2!', '["b" "a\\"[redacted KEY0]'),
        ("trunk-fan -trunk-fan", "[redacted KEY1] -[redacted KEY1]"),
    ],
)
def test_a_string_that_is_not_closed_is_redacted_up_to_its_end(text: str, expected: str) -> None:
    assert redactor("hunter2!", "trunk-fan").json(text.encode()).decode() == expected


RUNAWAYS: dict[str, Callable[[int], bytes]] = {
    "escaped quotes in a string": lambda many: plain_json({"hunter2!": 1, "x": "[redacted", "y": '"' * many}),
    "escaped quotes in a string that is not closed": lambda many: b'{"' + b'\\"' * many + b" hunter2! ",
    "backslashes": lambda many: b'{"hunter2!":"[redacted' + b"\\" * many,
    "quotes": lambda many: b'{"hunter2!":"[redacted"' + b'"' * many,
    "white space behind a key": lambda many: b'{"hunter2!"' + b" " * many + b':"[redacted"}',
    "signs": lambda many: b'{"hunter2!":"[redacted"}' + b"-" * many,
    "words": lambda many: b'{"hunter2!":"[redacted"}' + b"tru" * many,
    "objects": lambda many: b'[{"hunter2!":"[redacted"},' + b"{}," * many + b"0]",
    "braces": lambda many: b'[{"hunter2!":"[redacted"},' + b"{" * many,
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_no_token_of_json_is_looked_for_twice(name: str) -> None:
    # Where a match fails, the search goes back and begins again one character later: the square of the length. So
    # tokens are to begin at each character that may begin one, and whatever was passed over has no such character.
    text = RUNAWAYS[name](3000)
    done = 0
    for token in redact._TOKEN.finditer(text):
        assert not set(text[done : token.start()]) & set(b'"{}-0123456789tfn')
        done = token.end()
    made = redactor("hunter2!")
    few, many = RUNAWAYS[name](3000), RUNAWAYS[name](24_000)
    made.json(few)
    assert work(lambda: made.json(many)) < 16 * work(lambda: made.json(few))


def test_spans_in_a_run_of_backslashes_take_linear_time() -> None:
    made = redactor("\\\\")
    few, many = (b'["' + b"\\" * size + b'"]' for size in (1200, 9600))
    made.json(few)
    assert lines(lambda: made.json(many)) < 16 * lines(lambda: made.json(few))
    json.loads(made.json(many))


@pytest.mark.parametrize(
    "text",
    [
        b'{"hunter2!":1,' + b'"[redacted KEY0] (%d)":1,' * 30_000 % tuple(range(30_000)) + b'"x":1}',
        b'["' + b"\\n" * 30_000 + b'hunter2!"]',
        b'["hunter2!",' + b"{}," * 30_000 + b'"hunter2!"]',
        b'["' + b"hunter2!" * 30_000 + b'"]',
        b'["hunter2!"' + b"-" * 30_000 + b'"hunter2!"]',
    ],
    ids=["numbers that are taken", "escapes", "objects", "secrets", "signs"],
)
def test_the_work_between_two_pauses_is_bounded(text: bytes) -> None:
    at = [found.start() for found in re.finditer(b"hunter2!", text)]
    found = [redact.Span(start, start + 8, b"[redacted KEY0]") for start in at]
    assert len(list(redact.replaced_in_json(text, found))) >= 30_000 // 2000  # each a pause


def test_keys_are_numbered_in_each_object() -> None:
    told = clean({"a": {"hunter-42": 1, "HUNTER-42": 2}, "b": [{"hunter-42": 3}] * 2}, "hunter-42")
    assert told == {"a": {KEY0: 1, f"{KEY0} (2)": 2}, "b": [{KEY0: 3}] * 2}


@pytest.mark.parametrize("inside", ["one object", "many objects", "next to keys that look redacted"])
def test_many_keys_with_a_secret_take_linear_time(inside: str) -> None:
    signs = "hunterxkqzab"

    def data(many: int) -> Any:
        keys = [
            "".join(sign.upper() if one >> at & 1 else sign for at, sign in enumerate(signs)) for one in range(many)
        ]
        if inside == "many objects":
            return [{keys[0]: 1}] * many
        alike = {f"{KEY0} ({one})": 0 for one in range(many)} if inside.startswith("next") else {}
        return {**alike, **dict.fromkeys(keys, 1)}

    made = redactor(signs)
    few, many = plain_json(data(400)), plain_json(data(3200))
    made.json(few)
    assert work(lambda: made.json(many)) < 16 * work(lambda: made.json(few))
    assert len(json.loads(made.json(many))) == len(data(3200))
