"""Phrases about a surface that its table and its picture share."""

from collections.abc import Iterator

from licet.core.canonical import money_text
from licet.core.manifest import Budget
from licet.core.surface import Surface
from licet.core.surface_bundles import Terms

ANY_COMMAND = "any command"


def bundle_facts(surface: Surface, bundle: Terms) -> Iterator[str]:
    """What a bundle holds its tools to beyond the agent's own policy, a phrase for each part."""
    for _, budget in bundle.budgets:
        yield from spending(budget)
    asks, own = bundle.approvals, surface.approvals
    if asks.write != own.write:
        yield f"writes ask per {asks.write}"
    if asks.expires_seconds != own.expires_seconds:
        yield f"answers hold {asks.expires_seconds} s"
    if asks.quorum != own.quorum:
        yield f"{asks.quorum} people approve"
    if asks.keys != own.keys:
        yield f"approved by {', '.join(asks.keys or ()) or 'nobody'}"
    if bundle.connectors != surface.connectors:
        yield f"connectors {', '.join(name for name, _ in bundle.connectors) or 'none'}"
    if bundle.private != surface.private:
        yield f"private {', '.join(bundle.private) or 'none'}"


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
