"""Budgets on the path of a call where threads, stores or processes matter. The rest is in cases/budgets.yaml."""

import asyncio
import sqlite3
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate
from guard.tools import metered, paid
from licet import Backends, Context, Gate, Refused, Result, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.budgets import MemoryBudgets
from licet.backends.memory import MemoryClock
from licet.ports import Budgets, Claim, Reservation, Unavailable

D = Decimal
NAMES = "first", "second", "outside"


def spent(budgets: Budgets, session: str = "s") -> tuple[int, Decimal]:
    async def look() -> tuple[int, Decimal]:
        usage = await budgets.usage("tester", session, datetime.now(UTC).date().isoformat())
        return usage.calls, usage.cost_usd

    return asyncio.run(look())


THIRD = D("0.40") / 3
DECIMALS: dict[str, tuple[list[Any], str, str]] = {
    "less, and a text": (["0.10", D("0.05")], "0.15", "ALLOWED"),
    "in three parts": ([THIRD, THIRD, THIRD], "0.40", "ALLOWED"),
    "no number": ([D("NaN")], "0.40", "TOOL_FAILED"),
}


@pytest.mark.parametrize("case", DECIMALS)
def test_a_charge_may_be_a_decimal(tmp_path: Path, budgets: Budgets, case: str) -> None:
    amounts, cost, reason = DECIMALS[case]

    @tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.40")
    def decimals(ctx: Context) -> None:
        """Charge numbers that JSON does not have."""
        for amount in amounts:
            ctx.charge(amount)

    at = gate(tmp_path, decimals, backends=Backends.memory(budgets=budgets), budget={"max_cost_usd": 1})
    result = call(at, "decimals")
    assert (result.cost_usd, result.reason) == (D(cost), reason)
    assert spent(budgets) == (1, D(cost))


def test_charges_from_several_threads_are_all_counted(tmp_path: Path) -> None:
    @tool(needs=[], effect="read_only", sandbox="native", cost_usd="100")
    def threads(ctx: Context) -> None:
        """Charge from threads of its own."""

        def work() -> None:
            for _ in range(300):
                ctx.charge("0.01")

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    assert call(gate(tmp_path, threads), "threads").cost_usd == D("12")


def test_nothing_is_charged_to_a_call_that_is_over(tmp_path: Path) -> None:
    kept: list[Context] = []

    @tool(needs=[], effect="read_only", sandbox="native", cost_usd="100")
    def leave(ctx: Context) -> None:
        """Charge something, and keep the means to charge more."""
        ctx.charge("1")
        kept.append(ctx)

    assert call(gate(tmp_path, leave), "leave").cost_usd == D("1")
    with pytest.raises(Refused, match="the call has ended, and what it costs is settled"):
        kept[0].charge("50")


def test_a_call_counts_on_the_day_on_which_it_began(tmp_path: Path, budgets: Budgets) -> None:
    clock = MemoryClock(datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC))

    @tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.40")
    async def slow() -> None:
        """Take until tomorrow."""
        clock.advance(2)

    at = gate(
        tmp_path, slow, backends=Backends.memory(budgets=budgets, clock=clock), budget={"max_cost_usd_per_day": 0.5}
    )
    assert [call(at, "slow").reason for _ in range(3)] == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]

    async def days() -> list[Decimal]:
        return [(await budgets.usage("tester", "s", day)).cost_usd_today for day in ("2026-01-31", "2026-02-01")]

    assert asyncio.run(days()) == [D("0.40"), D("0.40")]


class Broken:
    """A store of budgets on which only some operations work."""

    def __init__(self, *working: str) -> None:
        self._working = working
        self._real = MemoryBudgets()

    def __getattr__(self, name: str) -> Any:
        if name in self._working:
            return getattr(self._real, name)

        async def broken(*_: object) -> None:
            raise Unavailable("the disk is gone")

        return broken


def test_a_broken_store_of_budgets_refuses_with_a_fix(tmp_path: Path) -> None:
    for broken in (Broken(), Broken("usage"), Broken("reserve", "settle")):
        asks = {"fs_reach": {"write": [str(tmp_path)]}} if "reserve" in broken._working else {}

        @tool(needs=["fs:write:*"] if asks else [], effect="write_limited", sandbox="native")
        async def act() -> None:
            """Ask, or not."""

        backends = Backends.memory(budgets=broken, approver=MemoryApprover(lambda _: "approved"))
        at = gate(tmp_path, act, backends=backends, approvals={"write": "call"}, budget={"max_cost_usd": 1}, **asks)
        refused = call(at, "act")
        assert (refused.code, refused.reason) == ("not_available", "BACKEND_MISSING")
        assert "the disk is gone" in refused.explain()
        assert "the disk is gone" not in refused.error  # for the operator alone


def test_a_settlement_that_fails_leaves_the_call_at_its_maximum(tmp_path: Path) -> None:
    broken = Broken("reserve", "usage")
    at = gate(tmp_path, metered, backends=Backends.memory(budgets=broken), budget={"max_cost_usd": 1})
    result = call(at, "metered", {"amounts": ["0.10", "0.05"]})
    assert (result.ok, result.cost_usd) == (True, D("0.15"))
    assert spent(broken) == (1, D("0.40"))


def test_a_local_gate_counts_what_another_process_has_spent(tmp_path: Path) -> None:
    def one() -> Result:
        at = gate(tmp_path, paid, backends=Backends.local(tmp_path / "state"), budget={"max_calls_per_session": 2})
        return call(at, "paid")

    assert [one().reason for _ in range(3)] == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]
    with sqlite3.connect(tmp_path / "state" / "budgets.sqlite") as db:
        assert db.execute("SELECT calls, cost_usd FROM sessions").fetchall() == [(2, "0.8")]
        assert db.execute("SELECT count(*) FROM held").fetchone() == (0,)
    db.close()


def test_a_call_cancelled_while_it_ran_is_settled_and_one_cancelled_before_is_refunded(
    tmp_path: Path, budgets: Budgets
) -> None:
    begun = threading.Event()

    @tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.40")
    async def endless() -> None:
        """Run until it is cancelled."""
        begun.set()
        await asyncio.Event().wait()

    at = gate(tmp_path, endless, backends=Backends.memory(budgets=budgets), budget={"max_cost_usd": 1})

    async def run() -> None:
        async with at.session("s") as session:
            running = asyncio.ensure_future(session.call("endless"))
            while not begun.is_set():
                await asyncio.sleep(0.001)
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(run())
    assert spent(budgets) == (1, D("0.40"))


# What many calls share ------------------------------------------------------------------------------------------------


def test_a_budget_holds_under_concurrency(tmp_path: Path) -> None:
    at = gate(tmp_path, paid, budget={"max_calls_per_session": 10})

    async def run() -> list[Result]:
        async with at.session("s") as session:
            return await session.call_many([("paid", {"fail": n % 2 == 0}) for n in range(40)])

    reasons = [result.reason for result in asyncio.run(run())]
    assert reasons.count("BUDGET_EXCEEDED") == 30


def bundled(folder: Path, budgets: Any) -> Gate:
    """A gate with two tools of one bundle, and one outside."""
    tools = [tool(needs=[], effect="read_only", sandbox="native", name=name)(paid.fn) for name in NAMES]
    pair = {"tools": ["first", "second"], "budget": {"max_calls_per_session": 5}}
    top = {"bundles": {"pair": pair}}
    own: dict[str, Any] = {"bundles": ["pair"], "tools": ["outside"], "budget": {"max_calls_per_day": 9}}
    return gate(folder, *tools, backends=Backends.memory(budgets=budgets), top=top, **own)


def test_two_concurrent_calls_cannot_both_take_the_last_one_of_a_bundle(tmp_path: Path, budgets: Budgets) -> None:
    at = bundled(tmp_path, budgets)

    async def many() -> list[str]:
        async with at.session("s") as session:
            found = await asyncio.gather(*(session.call(name) for name in ["first", "second"] * 6 + ["outside"] * 4))
            return [f"{result.tool} {result.reason}" for result in found]

    found = asyncio.run(many())
    assert sum(one in ("first ALLOWED", "second ALLOWED") for one in found) == 5
    assert found.count("outside ALLOWED") == 4  # calls that their bundle refuses take nothing from other tools


class NoBundles(MemoryBudgets):
    """A store of budgets that fails for accounts of bundles."""

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Reserve, except for a bundle."""
        if " bundle " in claim.agent:
            raise Unavailable("gone")
        return await super().reserve(claim)


def test_an_account_of_a_bundle_that_cannot_be_kept_refuses_the_call(tmp_path: Path) -> None:
    at = bundled(tmp_path, NoBundles())
    assert [call(at, name).reason for name in ("first", "outside")] == ["BACKEND_MISSING", "ALLOWED"]
