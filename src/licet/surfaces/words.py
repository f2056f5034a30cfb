"""Phrases about a surface that its table and its picture share."""

from collections.abc import Iterator

from licet.core.canonical import money_text
from licet.core.manifest import Budget

ANY_COMMAND = "any command"


def spending(budget: Budget) -> Iterator[str]:
    """What a budget limits, a phrase for each limit that is stated."""
    if budget.max_calls_per_session is not None:
        yield f"{budget.max_calls_per_session} calls a session"
    if budget.max_calls_per_day is not None:
        yield f"{budget.max_calls_per_day} calls a day"
    if budget.max_cost_usd is not None:
        yield f"{money_text(budget.max_cost_usd)} USD a session"
    if budget.max_cost_usd_per_day is not None:
        yield f"{money_text(budget.max_cost_usd_per_day)} USD a day"
