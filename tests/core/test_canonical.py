"""Canonical JSON: the fast spelling of plain data is that of RFC 8785, and its digest the same as any other."""

import json
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from licet.core.canonical import canonical_json, data_digest, data_text, digest, money_text, plain

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
whole = st.integers(-(2**53) + 1, 2**53 - 1)
# Between 2**53 and 1e21 RFC 8785 spells a float as an integer that it may not be worth.
floats = st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not 2**53 < abs(number) < 1e21)
data = st.recursive(
    st.none() | st.booleans() | whole | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(data)
def test_plain_data_is_written_as_rfc_8785_writes_it(value: Any) -> None:
    assert data_text(value).encode() == rfc8785.dumps(value)
    assert data_digest(value) == digest(value)


EDGES: list[tuple[Any, str]] = [
    ({"\ue000": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ue000":1}'),  # by UTF-16, not by code point
    ({"a\ue000": 1, "a\U0001f600": 2}, '{"a\U0001f600":2,"a\ue000":1}'),
    ({"b": [], "a": {}}, '{"a":{},"b":[]}'),
    (1.0, "1"),
    (1e21, "1e+21"),
    (1e-7, "1e-7"),
    ('\x00\x1f\x7f\u2028\\"/', '"\\u0000\\u001f\x7f\u2028\\\\\\"/"'),
    ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
    (True, "true"),
    (-0, "0"),
]


@pytest.mark.parametrize(("value", "text"), EDGES, ids=[text for _, text in EDGES])
def test_edges_of_the_spelling(value: Any, text: str) -> None:
    assert data_text(value) == text == rfc8785.dumps(value).decode()


@given(st.floats(2.0**53, 1e21, exclude_min=True, exclude_max=True))
def test_a_float_that_is_spelled_as_an_integer_is_worth_that_integer(number: float) -> None:
    for value in (number, -number):
        assert data_text(value) == data_text(int(value))
        assert json.loads(data_text(value)) == value


def test_a_float_is_not_the_integer_that_has_its_shortest_digits() -> None:
    number = 1.2345678901234567e20
    shortest = int(rfc8785.dumps(number))
    assert shortest != number  # and yet one spelling for both
    assert data_digest({"amount": number}) != data_digest({"amount": shortest})
    assert [data_text(edge) for edge in (2.0**53, 1e20, 1e21)] == [str(2**53), "1" + "0" * 20, "1e+21"]


def test_an_integer_of_any_size_is_its_digits() -> None:
    assert data_text([2**80, -(2**80)]) == json.dumps([2**80, -(2**80)], separators=(",", ":"))
    assert data_digest(2**80) != data_digest(2**80 + 1)


# What a lenient source may hold, and what is no plain data.
OTHERS: list[tuple[Any, str]] = [
    ("\ud800", '"\ud800"'),  # half a character
    ({"\ud800": 1, "a": 2}, '{"a":2,"\ud800":1}'),
    (Decimal("1.0"), '"1"'),
    ([(1, 2)], "[[1,2]]"),
]


@pytest.mark.parametrize(("value", "text"), OTHERS, ids=ascii)
def test_other_values_have_one_spelling_too(value: Any, text: str) -> None:
    assert data_text(value) == text


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
