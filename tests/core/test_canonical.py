"""Canonical JSON: msgspec and rfc8785 write the same bytes, and what has no canonical form is refused."""

import enum
import json
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from licet.core.values import (
    canonical_json,
    data_digest,
    data_json,
    digest,
    is_same_number,
    money_text,
    near_hint,
    nearest,
    plain,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
whole = st.integers(-(2**53) + 1, 2**53 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
data = st.recursive(
    st.none() | st.booleans() | whole | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
ascii_keys = st.text(st.characters(max_codepoint=127), max_size=8)
simple = st.recursive(
    st.none() | st.booleans() | whole | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ascii_keys, inner, max_size=4),
    max_leaves=12,
)


@given(data | simple)
def test_canonical_json_has_the_bytes_of_rfc_8785(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@given(simple)
def test_msgspec_and_rfc8785_write_simple_data_alike(value: Any) -> None:
    assert msgspec.json.encode(value, order="sorted") == rfc8785.dumps(value) == canonical_json(value)


EDGES: list[tuple[Any, str]] = [
    ({"\ue000": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ue000":1}'),  # sorted by UTF-16 units, not by code point
    ({"a\ue000": 1, "a\U0001f600": 2}, '{"a\U0001f600":2,"a\ue000":1}'),
    ({"z": [{"\ue000": 1, "\U0001f600": 2}]}, '{"z":[{"\U0001f600":2,"\ue000":1}]}'),
    ({"b": [], "a": {}}, '{"a":{},"b":[]}'),
    (1.0, "1"),
    ([{"a": 1.0}], '[{"a":1}]'),
    (1e21, "1e+21"),
    (1e-7, "1e-7"),
    ('\x00\x1f\x7f\u2028\\"/', '"\\u0000\\u001f\x7f\u2028\\\\\\"/"'),
    ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
    (True, "true"),
    (-0, "0"),
    ((1, [2**53 - 1]), "[1,[9007199254740991]]"),
]


@pytest.mark.parametrize(("value", "text"), EDGES, ids=[text for _, text in EDGES])
def test_edge_cases_have_the_bytes_of_rfc_8785(value: Any, text: str) -> None:
    assert canonical_json(value).decode() == text == rfc8785.dumps(value).decode()


class Colour(enum.Enum):
    """A value that msgspec would encode by its value."""

    RED = "red"


# msgspec alone would write most of these in some way of its own.
REFUSED: list[Any] = [
    *(2**53, -(2**53), 2**64, [{"a": 10**30}]),
    *(float("nan"), float("inf"), [float("-inf")]),
    *("\ud800", {"\ud800": 1}, [{"a": "\udfff"}]),
    *(b"x", Colour.RED, datetime(2026, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize("value", REFUSED, ids=ascii)
def test_values_without_a_canonical_form_are_refused(value: Any) -> None:
    for nested in (value, [value], {"a": value}):
        with pytest.raises(ValueError):  # noqa: PT011 - rfc8785 and the codec each have a class of their own
            canonical_json(nested)


class Fields(msgspec.Struct, frozen=True):
    """A Struct whose fields are not in the order of their names."""

    b: int
    a: tuple[str, ...]


def test_a_struct_is_encoded_like_the_dict_of_its_fields() -> None:
    assert canonical_json(Fields(1, ("é",))) == canonical_json({"b": 1, "a": ["é"]})


# Data from outside has numbers of any size ----------------------------------------------------------------------------

numbers = st.integers(-(2**80), 2**80) | floats


@given(simple)
def test_the_digest_of_outside_data_is_the_ordinary_one(value: Any) -> None:
    for one in (value, [value, 1.5]):
        assert data_digest(one) == digest(one)


@given(numbers, numbers)
def test_different_numbers_have_different_digests(one: float, other: float) -> None:
    for first, second in ((one, other), (one, int(one)), (other, int(other))):
        if first != second:
            assert data_digest({"n": first}) != data_digest({"n": second})


def test_a_large_float_is_not_the_integer_that_rfc_8785_writes_for_it() -> None:
    number = 1.2345678901234567e20
    shortest = int(rfc8785.dumps(number))
    assert shortest != number
    assert data_digest({"amount": number}) != data_digest({"amount": shortest})


def test_a_large_integer_is_written_with_all_its_digits() -> None:
    assert (
        data_json({"b": [2**80], "a": -(2**80)}) == b'{"a":-1208925819614629174706176,"b":[1208925819614629174706176]}'
    )
    assert data_digest(2**80) != data_digest(2**80 + 1)


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 2**60}, [2**60, "\ud800"]], ids=ascii)
def test_outside_data_with_lone_surrogates_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        data_json(value)


@pytest.mark.parametrize("value", [[2**60, float("nan")], {"a": 2**60, "b": float("inf")}], ids=ascii)
def test_a_large_integer_beside_it_makes_no_json_of_infinity(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        data_json(value)


@given(numbers)
def test_a_number_is_the_same_number_after_it_was_written_and_read(number: float) -> None:
    assert is_same_number(number, json.loads(data_json(number)))


@given(numbers, numbers)
def test_numbers_that_differ_are_not_the_same(one: float, other: float) -> None:
    assert is_same_number(one, other) <= (one == other)


PLAIN: list[tuple[Any, Any]] = [
    (Decimal("0.250"), "0.25"),
    (frozenset("cab"), ["a", "b", "c"]),
    ({"b", "a"}, ["a", "b"]),
    ((1, Decimal(2), (3,)), [1, "2", [3]]),
    ([Decimal(2)], ["2"]),
    ({1: Decimal(2)}, {"1": "2"}),
    (MappingProxyType({"a": (Decimal(2),)}), {"a": ["2"]}),
    (None, None),
    (1.5, 1.5),
]


def _named(value: Any) -> str:
    # A set prints in another order in each process; all workers must find the same cases.
    return repr(sorted(value) if isinstance(value, set | frozenset) else value)


@pytest.mark.parametrize(("value", "bare"), PLAIN, ids=_named)
def test_a_value_is_made_of_bare_data(value: Any, bare: Any) -> None:
    assert plain(value) == bare
    assert type(plain(value)) is type(bare)
    assert json.loads(canonical_json({"value": value})) == {"value": bare}


MONEY = {"5": "5", "5.0": "5", "0.250": "0.25", "100": "100", "1E+2": "100", "0": "0", "0.00": "0", "1E-7": "0.0000001"}


@pytest.mark.parametrize("amount", MONEY)
def test_money_is_written_without_exponent_and_trailing_zeros(amount: str) -> None:
    assert money_text(Decimal(amount)) == MONEY[amount]


@pytest.mark.parametrize(("word", "near"), [("reed", "seed"), ("Read", "read"), ("xyz", ""), ("", "")])
def test_only_the_most_similar_word_is_named(word: str, near: str) -> None:
    known = ("read", "seed", "reads", "delete")
    assert nearest(word, known) == near
    assert near_hint(word, iter(known)) == (f"did you mean `{near}`?" if near else "")
