"""Limits of a budget, and sums of money, which are exact in any decimal context of the thread."""

import decimal
from decimal import Decimal
from typing import Any

import pytest

from licet.core.decision.request import (
    Overspent,
    Spent,
    Usage,
    overspent,
    plus,
    plus_up,
    reported,
    settled_amount,
    settlement,
    spent_of,
)
from licet.core.policy.terms import Budget

D = Decimal
CALLS, COST, DAY, CALLS_A_DAY = "max_calls_per_session", "max_cost_usd", "max_cost_usd_per_day", "max_calls_per_day"
Own = int | Decimal | None  # a limit of the tool: a whole number counts its calls, a decimal its money

LIMITS: dict[str, tuple[Spent, str, dict[str, Any], Own, Overspent | None]] = {
    "no limit": (Spent(9, 9, D(9), D(9)), "9", {}, None, None),
    "the last call": (Spent(calls=4), "0", {CALLS: 5}, None, None),
    "one call more": (Spent(calls=5), "0", {CALLS: 5}, None, Overspent(CALLS, 5, 6)),
    "no calls at all": (Spent(), "0", {CALLS: 0}, None, Overspent(CALLS, 0, 1)),
    "the last call of the tool": (Spent(9, 1), "0", {}, 2, None),
    "one call of the tool more": (Spent(9, 2), "0", {}, 2, Overspent("max_calls", 2, 3, True)),
    "no call of the tool": (Spent(), "0", {}, 0, Overspent("max_calls", 0, 1, True)),
    "the last cent": (Spent(cost_usd=D("0.99")), "0.01", {COST: D(1)}, None, None),
    "a cent more": (Spent(cost_usd=D(1)), "0.01", {COST: D(1)}, None, Overspent(COST, D(1), D("1.01"))),
    "more than there ever was": (Spent(), "2", {COST: D(1)}, None, Overspent(COST, D(1), D(2))),
    "nothing, from nothing": (Spent(), "0", {COST: D(0), DAY: D(0)}, None, None),
    "the smallest amount": (Spent(), "1e-15", {COST: D(0)}, None, Overspent(COST, D(0), D("1e-15"))),
    "the last cent of the day": (Spent(cost_usd_today=D("0.99")), "0.01", {DAY: D(1)}, None, None),
    "a cent more a day": (Spent(cost_usd_today=D(1)), "0.01", {DAY: D(1)}, None, Overspent(DAY, D(1), D("1.01"))),
    "the session before the day": (Spent(cost_usd=D(1), cost_usd_today=D(1)), "1", {COST: D(1), DAY: D(1)}, None,
        Overspent(COST, D(1), D(2))),
    "money of the day is not money of the session": (Spent(cost_usd_today=D(5)), "1", {COST: D(1)}, None, None),
    "money of the session is not money of the day": (Spent(cost_usd=D(5)), "1", {DAY: D(1)}, None, None),
    "calls before money": (Spent(1, 1, D(1)), "1", {CALLS: 1, COST: D(1)}, 1, Overspent(CALLS, 1, 2)),
    "calls of the tool before money": (Spent(1, 1, D(1)), "1", {COST: D(1)}, 1, Overspent("max_calls", 1, 2, True)),
    "the last call of the day": (Spent(9, 9, calls_today=4), "0", {CALLS_A_DAY: 5}, None, None),
    "one call more a day": (Spent(calls_today=5), "0", {CALLS_A_DAY: 5}, None, Overspent(CALLS_A_DAY, 5, 6)),
    "no calls on any day": (Spent(), "0", {CALLS_A_DAY: 0}, None, Overspent(CALLS_A_DAY, 0, 1)),
    "calls of the day are not calls of the session": (Spent(calls_today=9), "0", {CALLS: 1}, None, None),
    "calls of the day are not calls of the tool": (Spent(calls_today=9), "0", {}, 1, None),
    "the session before the day, in calls": (Spent(1, 1, calls_today=1), "0", {CALLS: 1, CALLS_A_DAY: 1}, 1,
        Overspent(CALLS, 1, 2)),
    "the day before the tool, in calls": (Spent(1, 1, calls_today=1), "0", {CALLS_A_DAY: 1}, 1,
        Overspent(CALLS_A_DAY, 1, 2)),
    "the last cent of the tool": (Spent(cost_usd_of_tool=D("0.99")), "0.01", {}, D(1), None),
    "a cent more of the tool": (Spent(cost_usd_of_tool=D(1)), "0.01", {}, D(1), Overspent(COST, D(1), D("1.01"), True)),
    "a tool that may cost nothing": (Spent(), "0.01", {}, D(0), Overspent(COST, D(0), D("0.01"), True)),
    "a tool that may cost nothing, and does": (Spent(), "0", {}, D(0), None),
    "a tool that has spent more than it may, for nothing": (Spent(cost_usd_of_tool=D(2)), "0", {}, D(1),
        Overspent(COST, D(1), D(2), True)),
    "money of others is not money of the tool": (Spent(9, 9, D(9), D(9), D(0), 9), "1", {}, D(1), None),
    "money of the tool is not money of the session": (Spent(cost_usd_of_tool=D(9)), "1", {COST: D(1), DAY: D(1)}, None,
        None),
    "the session before the tool, in money": (Spent(1, 1, D(1), D(1), D(1)), "1", {COST: D(1)}, D(1),
        Overspent(COST, D(1), D(2))),
    "the day before the tool, in money": (Spent(1, 1, D(1), D(1), D(1)), "1", {DAY: D(1)}, D(1),
        Overspent(DAY, D(1), D(2))),
}  # fmt: skip


@pytest.mark.parametrize("case", LIMITS)
def test_a_limit_is_reached_and_never_passed(case: str) -> None:
    spent, cost, limits, own, expected = LIMITS[case]
    calls, money = (None, own) if isinstance(own, Decimal) else (own, None)
    found = overspent(spent, D(cost), Budget(**limits), calls, money)
    assert found == expected
    assert found is None or type(found.of_tool) is bool


def test_spent_of_has_the_spending_of_one_tool() -> None:
    usage = Usage(7, {"t": 3, "u": 4}, D("1.5"), D(2), {"t": D("0.5"), "u": D(1)}, 12)
    assert spent_of(usage, "t") == Spent(7, 3, D("1.5"), D(2), D("0.5"), 12)
    assert spent_of(usage, "v") == Spent(7, 0, D("1.5"), D(2), D(0), 12)
    assert Spent() == Spent(0, 0, D(0), D(0), D(0), 0)


def test_sums_are_exact_in_any_decimal_context() -> None:
    with decimal.localcontext() as coarse:
        coarse.prec = 2
        assert plus(D("123456789.000000000000001"), D("0.1")) == D("123456789.100000000000001")
        assert plus_up(D("123.456"), D("0.1")) == D("123.556")
        assert settled_amount(D("123.4567")) == D("123.4567")
        limit = Budget(max_cost_usd=D("100.01"))
        assert overspent(Spent(cost_usd=D("100.01")), D("0.01"), limit, None, None) is not None
        of_tool = Spent(cost_usd_of_tool=D("100.01"))
        over = Overspent(COST, D("100.01"), D("100.02"), True)
        assert overspent(of_tool, D("0.01"), Budget(), None, D("100.01")) == over


def test_a_sum_with_too_many_digits_raises_if_stored_and_is_rounded_up_if_reported() -> None:
    fits, too_fine = D("1e-59"), D("1e-60")
    assert plus(D(1), fits) == D("1." + "0" * 58 + "1")
    with pytest.raises(decimal.Inexact):
        plus(D(1), too_fine)
    assert plus_up(D(1), fits) == D("1." + "0" * 58 + "1")
    assert plus_up(D(1), too_fine) == D("1." + "0" * 58 + "1")
    assert plus_up(D(1), D("2e-60")) == D("1." + "0" * 58 + "1")


@pytest.mark.parametrize(
    ("reserved", "cost", "added"), [("0.4", "0.4", "0"), ("0.4", "0.1", "-0.3"), ("0.4", "0", "-0.4"), ("0", "0", "0")]
)
def test_settling_returns_the_unspent_part(reserved: str, cost: str, added: str) -> None:
    with decimal.localcontext() as coarse:
        coarse.prec = 1
        assert settlement(D(reserved), D(cost)) == D(added)
        assert settlement(D("1234.5"), D("1.25")) == D("-1233.25")


@pytest.mark.parametrize("cost", ["0.41", "-0.01"])
def test_settling_for_more_than_was_reserved_or_a_negative_cost_is_an_error(cost: str) -> None:
    with pytest.raises(ValueError, match=r"at most the 0\.40"):
        settlement(D("0.40"), D(cost))


AMOUNTS: dict[str, tuple[object, str | None]] = {
    "a decimal": (D("0.25"), "0.25"),
    "a whole number": (3, "3"),
    "zero": (0, "0"),
    "a text": ("0.25", "0.25"),
    "a whole text": ("12", "12"),
    "as Decimal writes small ones": (str(D("0.0000001")), "1E-7"),
    "with six digits behind the e": ("1e-123456", "1E-123456"),
    "with a plus": ("1E+2", "100"),
    "with all its digits": ("9" * 80, "9" * 80),
    "digits of nine and zero": ("90.09e09", "90090000000"),
    "a float": (0.25, None),
    "true": (True, None),
    "nothing": (None, None),
    "negative": (D("-0.01"), None),
    "a negative whole number": (-1, None),
    "a negative text": ("-1", None),
    "no number": (D("NaN"), None),
    "infinite": (D("Infinity"), None),
    "no number as text": ("NaN", None),
    "infinite as text": ("inf", None),
    "with an underscore": ("1_0", None),
    "with a space": (" 1", None),
    "with a line after it": ("1\n", None),
    "in other digits": ("١", None),
    "empty": ("", None),
    "a bare point": (".", None),
    "nothing behind the point": ("1.", None),
    "seven digits behind the e": ("1e-1234567", None),
    "nothing behind the e": ("1e", None),
    "in a list": (["1"], None),
}


@pytest.mark.parametrize("case", AMOUNTS)
def test_an_amount_is_a_decimal_a_text_or_a_whole_number(case: str) -> None:
    given, expected = AMOUNTS[case]
    found = reported(given)
    assert found == (None if expected is None else D(expected))
    assert type(found) is (Decimal if expected is not None else type(None))


SETTLED = {
    "0.25": "0.25",
    "0.250": "0.25",
    "0": "0",
    "1E+2": "100",
    "0.000000000000001": "0.000000000000001",
    "0.0000000000000001": "0.000000000000001",
    "1E-400": "0.000000000000001",
    "0.3333333333333333333333333333": "0.333333333333334",
    "999999999.9999999999999999": "1000000000",
}


@pytest.mark.parametrize("total", SETTLED)
def test_amounts_with_more_than_15_decimals_are_rounded_up(total: str) -> None:
    assert f"{settled_amount(D(total)):f}" == SETTLED[total]
