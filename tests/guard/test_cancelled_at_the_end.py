"""A caller that is cancelled while its call is being closed: there is a receipt, and the budget is settled."""

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from guard.gates import gate
from licet import Backends, Context, Refused, tool
from licet.backends.budgets import MemoryBudgets, SqliteBudgets
from licet.backends.memory import MemoryLedger
from licet.guard.ports import Budgets, Reservation
from reservations import held_in

kept: list[Context] = []


@tool(needs=["env:read:HOME"], effect="read_only", sandbox="native", cost_usd="0.40")
async def pay(ctx: Context) -> None:
    """Cost something, and keep a handle."""
    kept.append(ctx)


class Slow(MemoryBudgets):
    """Budgets whose `settle` waits, and sets an event when it starts."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Wait for the test."""
        self.begun.set()
        await self.go.wait()
        await super().settle(reservation, cost_usd)


def test_a_call_that_is_cancelled_while_it_settles_leaves_a_receipt_and_no_handle(tmp_path: Path) -> None:
    kept.clear()
    ledger = MemoryLedger()

    async def run() -> None:
        budgets = Slow()
        backends = Backends.memory(ledger=ledger, budgets=budgets, environ={"HOME": "/home"})
        at = gate(tmp_path, pay, backends=backends, env=["HOME"], budget={"max_cost_usd": 2})
        async with at.session("s") as session:
            calling = asyncio.create_task(session.call("pay"))
            await budgets.begun.wait()
            with pytest.raises(Refused):  # already while it waits
                kept[0].env.get("HOME")
            calling.cancel()
            await asyncio.sleep(0)
            budgets.go.set()
            with pytest.raises(asyncio.CancelledError):
                await calling

    asyncio.run(run())
    assert [entry.kind for entry in ledger.entries] == ["decision", "receipt"]
    assert "BudgetSettled" in [event.kind for event in ledger.entries[1].events]


def test_a_reservation_in_a_file_is_settled_although_the_caller_was_cancelled(tmp_path: Path) -> None:
    async def run(budgets: Budgets) -> int:
        backends = Backends.memory(budgets=budgets, environ={})
        at = gate(tmp_path, pay, backends=backends, env=["HOME"], budget={"max_cost_usd": 20})
        async with at.session("s") as session:
            (await session.call("pay")).unwrap()
            for turns in range(40):  # cancelled at every moment that a call has
                calling = asyncio.create_task(session.call("pay"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                calling.cancel()
                await asyncio.wait([calling])
        for _ in range(1000):
            if not held_in(tmp_path / "budgets.sqlite"):
                break
            await asyncio.sleep(0.01)
        return len(held_in(tmp_path / "budgets.sqlite"))

    file = SqliteBudgets(tmp_path / "budgets.sqlite")
    assert asyncio.run(run(file)) == 0
    file.close()
