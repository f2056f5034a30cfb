"""Budgets: the one rule about what may still be spent, and sums of money that are exact.

Nothing here knows where spending is kept. Whoever keeps it asks `overspent` and writes in one step.
"""

import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, Context, Decimal, Inexact, InvalidOperation

from msgspec import Struct

from licet.core.canonical import money_text
from licet.core.decision.request import UNUSED, Usage
from licet.core.policy.bundle import Bundle
from licet.core.policy.terms import Budget

NOTHING = Decimal(0)
_FINEST = Decimal("1e-15")
# Never the context of the thread: a tool could have made that one coarse. Amounts have 15 decimals and are below a
# billion, so no sum that a process lives to see needs 60 digits; one that does is an error, and never rounded.
_EXACT = Context(prec=60, traps=[Inexact, InvalidOperation])
_UP = Context(prec=60, rounding=ROUND_CEILING, traps=[InvalidOperation])
# As Decimal writes an amount. It reads more than that: `1_0`, digits of other scripts, spaces around it.
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,6})?")


class Spent(Struct, frozen=True):
    """What an account has spent and set aside, as a call of one tool finds it."""

    calls: int = 0
    calls_of_tool: int = 0
    cost_usd: Decimal = NOTHING
    cost_usd_today: Decimal = NOTHING
    cost_usd_of_tool: Decimal = NOTHING
    calls_today: int = 0


class Overspent(Struct, frozen=True):
    """The first limit that one more call would pass, by its key in the manifest."""

    key: str
    limit: int | Decimal
    wanted: int | Decimal
    of_tool: bool = False  # a limit of the tool itself: `max_cost_usd` is a key of both


def spent_of(usage: Usage, tool: str) -> Spent:
    """What is known of a session's spending, for one tool."""
    calls, cost = usage.calls_of_tool.get(tool, 0), usage.cost_usd_of_tool.get(tool, NOTHING)
    return Spent(usage.calls, calls, usage.cost_usd, usage.cost_usd_today, cost, usage.calls_today)


def overspent(
    spent: Spent, cost_usd: Decimal, budget: Budget, max_calls: int | None, max_cost_usd: Decimal | None
) -> Overspent | None:
    """The limit that one more call at this cost would pass, or None: up to a limit, and including it, is fine."""
    calls: list[tuple[str, int | None, int, bool]] = [
        ("max_calls_per_session", budget.max_calls_per_session, spent.calls, False),
        ("max_calls_per_day", budget.max_calls_per_day, spent.calls_today, False),
        ("max_calls", max_calls, spent.calls_of_tool, True),
    ]
    costs: list[tuple[str, Decimal | None, Decimal, bool]] = [
        ("max_cost_usd", budget.max_cost_usd, spent.cost_usd, False),
        ("max_cost_usd_per_day", budget.max_cost_usd_per_day, spent.cost_usd_today, False),
        ("max_cost_usd", max_cost_usd, spent.cost_usd_of_tool, True),
    ]
    for key, most_calls, called, of_tool in calls:
        if most_calls is not None and called + 1 > most_calls:
            return Overspent(key, most_calls, called + 1, of_tool)
    for key, most_cost, paid, of_tool in costs:
        if most_cost is not None and (wanted := plus(paid, cost_usd)) > most_cost:
            return Overspent(key, most_cost, wanted, of_tool)
    return None


def overspent_bundle(usage: Usage, cost_usd: Decimal, bundles: Iterable[Bundle]) -> tuple[Bundle, Overspent] | None:
    """The first bundle whose budget one more call at this cost would pass, and the limit; or None."""
    for bundle in bundles:
        if bundle.budget:
            spent = spent_of(usage.bundles.get(bundle.name, UNUSED), "")
            if (found := overspent(spent, cost_usd, bundle.budget, None, None)) is not None:
                return bundle, found
    return None


def bundle_account(agent: str, bundle: str) -> str:
    """The account that the tools of a bundle spend from, besides their agent's; no agent has a space in its name."""
    return f"{agent} bundle {bundle}"


def plus(one: Decimal, other: Decimal) -> Decimal:
    """The sum of two amounts, to the last digit."""
    return _EXACT.add(one, other)


def settlement(reserved: Decimal, cost_usd: Decimal) -> Decimal:
    """What settling adds to what was set aside, which is never more than nothing; `ValueError` for any other."""
    if not 0 <= cost_usd <= reserved:
        raise ValueError(f"expected at most the {reserved} that was set aside, found {cost_usd}")
    return _EXACT.subtract(cost_usd, reserved)


def reported(amount: object) -> Decimal | None:
    """An amount as a tool reports it, or None for what is no amount: a float is none, and neither is `True`."""
    if isinstance(amount, str):
        return Decimal(amount) if _AMOUNT.fullmatch(amount) else None
    if isinstance(amount, bool) or not isinstance(amount, int | Decimal):
        return None
    number = Decimal(amount)
    return number if number.is_finite() and number >= 0 else None


def plus_up(one: Decimal, other: Decimal) -> Decimal:
    """The sum of what a tool has reported so far and what it reports now, never less than it is."""
    return _UP.add(one, other)


def settled_amount(total: Decimal) -> Decimal:
    """What was reported, as it is counted: rounded up to 15 decimals, so that nothing is spent uncounted."""
    return Decimal(money_text(total.quantize(_FINEST, context=_UP)))
