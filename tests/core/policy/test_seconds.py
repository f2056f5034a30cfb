"""Which numbers of seconds from outside are accepted."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from licet.core.limits import LONGEST_SECONDS
from licet.core.policy.layer import seconds, whole_seconds


class Lies(float):
    """A float that claims to be within every limit."""

    def __lt__(self, other: object) -> bool:
        return True

    __gt__ = __le__ = __ge__ = __lt__

    def __float__(self) -> float:
        return 1.0


TAKEN = [
    (1, 1.0),
    (0.5, 0.5),
    (5e-324, 5e-324),
    (LONGEST_SECONDS + 1, LONGEST_SECONDS),
    (1e300, LONGEST_SECONDS),
    (10**400, LONGEST_SECONDS),
]
REFUSED: list[Any] = [
    *(float("nan"), -float("nan"), float("inf"), -float("inf"), Lies("nan"), Lies("inf")),
    *("nan", "inf", "5", b"5", "", None, [], Decimal),
    *(True, False, 0, 0.0, -0.0, -1, -(10**400), -1e-9),
    *(Decimal("NaN"), Decimal("sNaN"), Decimal(5), Fraction(1, 2), 1j),
]


@pytest.mark.parametrize(("given", "taken"), TAKEN)
def test_a_finite_number_above_zero_is_accepted(given: Any, taken: float) -> None:
    found = seconds(given, "timeout")
    assert (type(found), found) == (float, taken)


@pytest.mark.parametrize("given", REFUSED, ids=repr)
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected `timeout` to be a number of seconds above 0$"):
        seconds(given, "timeout")


@pytest.mark.parametrize("given", [*REFUSED, 1.0, 0.5], ids=repr)
def test_a_lifetime_is_a_whole_number(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected a whole number of seconds, at least 1, as `ttl_seconds`$"):
        whole_seconds(given, "ttl_seconds")


@pytest.mark.parametrize(
    ("given", "taken"),
    [(1, 1), (LONGEST_SECONDS, LONGEST_SECONDS), (LONGEST_SECONDS + 1, LONGEST_SECONDS), (10**400, LONGEST_SECONDS)],
)
def test_a_lifetime_is_cut_at_the_longest(given: int, taken: int) -> None:
    assert whole_seconds(given, "ttl_seconds") == taken
