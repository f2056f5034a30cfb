"""Budgets: whether one more call exceeds a limit, and exact sums of money.

Storage is elsewhere. A store must call `overspent` and write in the same transaction.
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
# Never the decimal context of the thread: a tool could have reduced its precision. Amounts have at most 15 decimals and
# are below a billion, so no realistic sum needs 60 digits. One that does raises an error and is not rounded.
_EXACT = Context(prec=60, traps=[Inexact, InvalidOperation])
_UP = Context(prec=60, rounding=ROUND_CEILING, traps=[InvalidOperation])
# The form in which Decimal writes an amount. Its parser accepts more: `1_0`, digits of other scripts, spaces.
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,6})?")


class Spent(Struct, frozen=True):
    """What an account has spent and reserved, seen by a call of one tool."""

    calls: int = 0
    calls_of_tool: int = 0
    cost_usd: Decimal = NOTHING
    cost_usd_today: Decimal = NOTHING
    cost_usd_of_tool: Decimal = NOTHING
    calls_today: int = 0


class Overspent(Struct, frozen=True):
    """A limit that one more call would exceed, by its key in the manifest."""

    key: str
    limit: int | Decimal
    wanted: int | Decimal
    of_tool: bool = False  # whether it is a limit of the tool and not of the budget: both have a `max_cost_usd`


def spent_of(usage: Usage, tool: str) -> Spent:
    """The spending of a session, seen by a call of one tool."""
    calls, cost = usage.calls_of_tool.get(tool, 0), usage.cost_usd_of_tool.get(tool, NOTHING)
    return Spent(usage.calls, calls, usage.cost_usd, usage.cost_usd_today, cost, usage.calls_today)


def overspent(
    spent: Spent, cost_usd: Decimal, budget: Budget, max_calls: int | None, max_cost_usd: Decimal | None
) -> Overspent | None:
    """The first limit that one more call at this cost would exceed, or None; reaching a limit exactly is allowed."""
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
    """The first bundle whose budget one more call at this cost would exceed, with the limit; or None."""
    for bundle in bundles:
        if bundle.budget:
            spent = spent_of(usage.bundles.get(bundle.name, UNUSED), "")
            if (found := overspent(spent, cost_usd, bundle.budget, None, None)) is not None:
                return bundle, found
    return None


def bundle_account(agent: str, bundle: str) -> str:
    """The name of the account of a bundle. It cannot be the name of an agent, since those have no spaces."""
    return f"{agent} bundle {bundle}"


def plus(one: Decimal, other: Decimal) -> Decimal:
    """The exact sum of two amounts."""
    return _EXACT.add(one, other)


def settlement(reserved: Decimal, cost_usd: Decimal) -> Decimal:
    """The correction to a reserved amount when the cost is known, at most 0; `ValueError` if the cost is larger."""
    if not 0 <= cost_usd <= reserved:
        raise ValueError(f"expected at most the {reserved} that was set aside, found {cost_usd}")
    return _EXACT.subtract(cost_usd, reserved)


def reported(amount: object) -> Decimal | None:
    """Parse an amount that a tool reports; None if it is not one. Floats and booleans are not amounts."""
    if isinstance(amount, str):
        return Decimal(amount) if _AMOUNT.fullmatch(amount) else None
    if isinstance(amount, bool) or not isinstance(amount, int | Decimal):
        return None
    number = Decimal(amount)
    return number if number.is_finite() and number >= 0 else None


def plus_up(one: Decimal, other: Decimal) -> Decimal:
    """The sum of two reported amounts, rounded up if it has too many digits."""
    return _UP.add(one, other)


def settled_amount(total: Decimal) -> Decimal:
    """Round a reported sum up to 15 decimals, so that no spending is left uncounted."""
    return Decimal(money_text(total.quantize(_FINEST, context=_UP)))
