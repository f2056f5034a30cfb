"""The JSON that commands print: the text of the standard library, and no more work for a value that repeats."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.surfaces.cli.json_text import json_text

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(values)
def test_it_is_the_text_of_the_standard_library(value: Any) -> None:
    assert json_text(value) == json.dumps(value, indent=2)


@given(values)
def test_so_it_is_where_a_value_stands_in_many_places_and_depths(value: Any) -> None:
    nested = {"a": value, "b": [value, {"c": value, "d": [value, value]}], "e": [], "f": {}}
    assert json_text([nested, nested]) == json.dumps([nested, nested], indent=2)


@pytest.mark.parametrize("value", ["\x1b[2J", "\u202e", {"\u202e": "ü"}])
def test_it_is_ascii(value: Any) -> None:
    assert json_text(value).isascii()


class Read(dict[str, Any]):
    """A mapping that counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Any:
        Read.times += 1
        return super().__iter__()


def test_a_value_that_repeats_is_put_into_words_once() -> None:
    Read.times = 0
    shared = Read(host="api.example.com")
    assert json_text([shared] * 1000).count("api.example.com") == 1000
    assert Read.times == 1
