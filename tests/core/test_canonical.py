"""Canonical JSON: the fast spelling of plain data is that of RFC 8785, and its digest the same as any other."""

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from licet.core.canonical import data_digest, data_text, digest

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
whole = st.integers(-(2**53) + 1, 2**53 - 1)
plain = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(plain)
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


def test_an_integer_of_any_size_is_its_digits() -> None:
    assert data_text([2**80, -(2**80)]) == json.dumps([2**80, -(2**80)], separators=(",", ":"))
    assert data_digest(2**80) != data_digest(2**80 + 1)
