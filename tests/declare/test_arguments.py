"""Invalid arguments are refused with a short message, and NaN and infinities are invalid."""

from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counted import work
from licet.declare import plain_json
from licet.declare.arguments import InvalidArguments, validator


async def act(
    text: str = "",
    number: float = 0.0,
    items: list[int] | None = None,
    named: dict[str, int] | None = None,
    other: Any = None,
) -> None:
    """Do nothing."""


check = validator(act, None)


def complaint(given: dict[str, Any]) -> str:
    with pytest.raises(InvalidArguments) as refused:
        check(given)
    return str(refused.value)


@pytest.mark.parametrize("value", [nan, inf, -inf], ids=str)
@pytest.mark.parametrize("name", ["text", "number", "other"])
def test_nan_and_infinities_are_refused_as_arguments(name: str, value: float) -> None:
    said = "expected numbers that JSON can carry: NaN and infinities are none"
    assert complaint({name: value}) == said
    assert complaint({"other": [{"deep": value}]}) == said


@pytest.mark.parametrize("text", ["NaN", "Infinity", 'a "NaN, -Infinity" b'])
def test_the_text_nan_is_a_text(text: str) -> None:
    given = {"text": text, "other": {text: [text]}}
    assert given.items() <= check(given).items()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a few items": ({"items": ["", ""]}, "`items.0` input should be a valid integer"),
    "many items": ({"items": [""] * 5000}, "found 5000 values that do not fit"),
    "many entries": ({"named": {str(number): "" for number in range(101)}}, "found 101 values that do not fit"),
    "unknown names": ({str(number): 1 for number in range(101)}, "found 101 values that do not fit"),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG)
def test_messages_about_invalid_arguments_are_short(given: dict[str, Any], said: str) -> None:
    assert complaint(given).startswith(said)


def test_many_invalid_items_take_no_longer_than_a_few() -> None:
    def cost(count: int) -> int:
        return work(lambda: complaint({"items": [""] * count}))

    assert cost(20_000) <= cost(3) + 20_000  # each is looked at once, and only a few are told


def test_a_long_name_is_not_repeated_in_full() -> None:
    told = complaint({"x" * 500_000: 1})
    assert told == f"`{'x' * 80}…` is not an argument of this tool"
    assert len(complaint({f"{number}{'x' * 1000}": 1 for number in range(50)})) < 1000
    assert len(complaint({"named": {"y" * 100_000: ""}})) < 400


_WORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda held: st.lists(held) | st.dictionaries(st.text(), held),
)


@given(_WORDS)
def test_plain_data_has_the_same_bytes_from_both_writers(value: Any) -> None:
    text = plain_json.json_core().to_json(value, inf_nan_mode="strings")
    assert plain_json.plain_json(value) == text
    assert plain_json.data_again(text) == value == plain_json.plain_data(text)


@pytest.mark.parametrize(
    "value",
    [1.5, [1e16], {"a": -0.0}, {"a": float("nan")}, 1 << 70, (1, 2), {1: 2}, {"a": b"x"}, Decimal("1.5"), ["a"] * 5000],
)
def test_other_values_and_long_ones_are_written_by_pydantic(value: Any) -> None:
    assert plain_json.plain_json(value) == plain_json.json_core().to_json(value, inf_nan_mode="strings")


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        plain_json.plain_json({"command": ["\udcff"]})
