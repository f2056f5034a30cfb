"""Budgets that an administrator of the database has changed: a node that starts compares them with the ledger."""

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from backends.postgres.ledger_nodes import entry
from backends.postgres.test_database import in_loop
from backends.postgres.test_opening import begins, nodes
from backends.test_budgets_contract import claim
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_budgets import PostgresBudgets
from licet.core.ledger.entry import EventFact
from licet.guard.ports import LedgerUnavailable, Opened, Unavailable

D = Decimal
LOWERED = {
    "the money of a day": "UPDATE licet.budget_counters SET cost_usd = 0 WHERE kind = 'day'",
    "the calls of a session": "UPDATE licet.budget_counters SET calls = 0 WHERE kind = 'session'",
    "a tool's row": "DELETE FROM licet.budget_counters WHERE kind = 'tool'",
}


@pytest.mark.parametrize("case", LOWERED)
@in_loop
async def test_a_node_that_starts_spends_nothing_from_a_lowered_counter(
    postgres: str, tmp_path: Path, case: str
) -> None:
    async with nodes(postgres, tmp_path) as team:
        one, budgets = await team.opening()
        (kept,) = (await one.open(begins("r-1", claim()))).reservations
        await budgets.settle(kept, D("0.05"))
        receipt = replace(entry("r-1"), cost_usd="0.05", events=(EventFact(kind="BudgetSettled"),))
        await team.nodes[0].record(receipt)
        (again, _), restarted = await team.opening(), PostgresBudgets(team.databases[0])
        assert not (await again.open(begins("r-2", claim(), session="o"))).refused  # nothing was changed so far
        await team.sql(LOWERED[case])
        with pytest.raises(Unavailable, match=r"the budget of `a` in .* was lowered: .* 1 calls and 0.05 USD"):
            await restarted.reserve(claim())
        later, _ = await team.opening()
        with pytest.raises(LedgerUnavailable, match="was lowered"):
            await later.open(begins("r-3", claim(), session="p"))
        assert not (await later.open(begins("r-4", claim(agent="b"), session="q"))).refused


ODD = {
    "below nothing": "cost_usd = -9",
    "no number": "cost_usd = 'NaN'",
    "fewer calls than none": "calls = -9",
}


@pytest.mark.parametrize("case", ODD)
@in_loop
async def test_nothing_is_spent_from_a_counter_that_says_what_cannot_be(
    postgres: str, tmp_path: Path, case: str
) -> None:
    async with nodes(postgres, tmp_path) as team:
        one, budgets = await team.opening()
        assert not (await one.open(begins("r-1", claim()))).refused
        await team.sql(f"UPDATE licet.budget_counters SET {ODD[case]} WHERE kind = 'session'", "SELECT 1")
        asked = await asyncio.gather(
            one.open(begins("r-2", claim())),
            one.open(begins("r-3", claim(agent="b", session="o"), session="o")),
            return_exceptions=True,
        )
        assert isinstance(asked[0], LedgerUnavailable)
        assert "which licet never writes" in str(asked[0])
        assert isinstance(asked[1], Opened)
        assert not asked[1].refused
        for spending in (budgets.reserve(claim()), budgets.usage("a", "s", "2026-01-01")):
            with pytest.raises(Unavailable, match="which licet never writes"):
                await spending


@pytest.mark.parametrize("cost", ["NaN", "-1"])
@in_loop
async def test_a_claim_without_an_amount_changes_no_counter(postgres: str, tmp_path: Path, cost: str) -> None:
    """Whoever has the runtime role can call the function: `NaN` would be the sum for ever, whatever is settled."""
    async with nodes(postgres, tmp_path) as team:
        _, budgets = await team.opening()
        with pytest.raises(Unavailable, match="no amount"):
            await budgets.reserve(replace(claim(), cost_usd=D(cost)))
        assert await team.sql("SELECT 1 FROM licet.budget_counters") == []


@in_loop
async def test_a_reservation_that_no_node_has_signed_as_it_is_stops_the_account(postgres: str, tmp_path: Path) -> None:
    async with nodes(postgres, tmp_path) as team:
        _, budgets = await team.opening()
        kept = await budgets.reserve(claim())
        assert kept is not None
        assert await PostgresBudgets(team.databases[0], team.nodes[0].node).reserve(claim()) is not None
        await team.sql("UPDATE licet.reservations SET cost_usd = 9")
        with pytest.raises(ValueError, match="9 that was set aside"):  # or the counter would fall below what was spent
            await budgets.settle(kept, D(0))
        with pytest.raises(Unavailable, match="is not as a node of this state has signed it"):
            await PostgresBudgets(team.databases[0], team.nodes[0].node).reserve(claim())


@in_loop
async def test_a_reservation_that_a_stranger_has_signed_stops_the_account(postgres: str, tmp_path: Path) -> None:
    async with nodes(postgres, tmp_path) as team:
        await team.opening()
        stranger, (ledger,) = Node.of(tmp_path / "stranger"), team.nodes
        await ledger.record(entry("r-1"))
        for node in (ledger.node, stranger):
            assert await PostgresBudgets(team.databases[0], node).reserve(claim(agent=node.public)) is not None
        started = PostgresBudgets(team.databases[0], ledger.node, enrolled=ledger.enrolled.check_ever_over)
        assert await started.reserve(claim(agent=ledger.node.public)) is not None
        with pytest.raises(Unavailable, match="is not as a node of this state has signed it"):
            await started.reserve(claim(agent=stranger.public))
