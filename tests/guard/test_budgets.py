"""Budgets on the path of a call: reserve, charge, settle and refund, in memory and in a file."""

import asyncio
import json
import sqlite3
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, checks, gate, policy
from licet import Backends, Context, Gate, Refused, Result, load_manifest, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.budgets import MemoryBudgets
from licet.backends.files.memory import MemoryFiles
from licet.backends.memory import MemoryClock, MemoryLedger
from licet.core.decision.decision import CapabilityDenied
from licet.guard.ports import Budgets, Unavailable

D = Decimal


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.40")
async def paid(fail: bool = False) -> str:
    """Cost something."""
    if fail:
        raise ValueError("no")
    return "done"


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.40")
async def metered(ctx: Context, case: str) -> None:
    """Report what it costs, as a case says."""
    for amount in CHARGES[case][0]:
        ctx.charge(amount)


@tool(needs=[], effect="read_only", sandbox="native")
async def free(ctx: Context, amount: str) -> None:
    """Declares no cost."""
    ctx.charge(amount)


def spent(budgets: Budgets, session: str = "s") -> tuple[int, Decimal]:
    async def look() -> tuple[int, Decimal]:
        usage = await budgets.usage("tester", session, datetime.now(UTC).date().isoformat())
        return usage.calls, usage.cost_usd

    return asyncio.run(look())


THIRD = D("0.40") / 3
CHARGES: dict[str, tuple[list[Any], str, str]] = {
    "nothing": ([], "0.40", "ALLOWED"),
    "zero": (["0"], "0", "ALLOWED"),
    "less": (["0.10", D("0.05")], "0.15", "ALLOWED"),
    "all": (["0.40"], "0.40", "ALLOWED"),
    "in three parts": ([THIRD, THIRD, THIRD], "0.40", "ALLOWED"),
    "finer than is counted": (["1E-40"], "0.000000000000001", "ALLOWED"),
    "more": (["0.30", "0.11"], "0.30", "BUDGET_EXCEEDED"),
    "more at once": (["0.41"], "0.40", "BUDGET_EXCEEDED"),
    "a little more": (["0.40", "1e-40"], "0.40", "BUDGET_EXCEEDED"),
    "very much more": (["1e999999"], "0.40", "BUDGET_EXCEEDED"),
    "a float": ([0.1], "0.40", "TOOL_FAILED"),
    "a float after an amount": (["0.10", 0.1], "0.10", "TOOL_FAILED"),
    "true": ([True], "0.40", "TOOL_FAILED"),
    "negative": (["-1"], "0.40", "TOOL_FAILED"),
    "no number": ([D("NaN")], "0.40", "TOOL_FAILED"),
}


@pytest.mark.parametrize("case", CHARGES)
@pytest.mark.sampled(10)
def test_a_call_is_settled_at_what_its_tool_reports_and_never_at_more_than_it_declares(
    tmp_path: Path, budgets: Budgets, case: str
) -> None:
    _, cost, reason = CHARGES[case]
    at = gate(tmp_path, metered, backends=Backends.memory(budgets=budgets), budget={"max_cost_usd": 1})
    result = call(at, "metered", {"case": case})
    assert (result.cost_usd, result.reason) == (D(cost), reason)
    assert spent(budgets) == (1, D(cost))


def test_a_tool_without_a_declared_cost_can_charge_nothing(tmp_path: Path) -> None:
    at = gate(tmp_path, free)
    assert call(at, "free", {"amount": "0"}).ok
    refused = call(at, "free", {"amount": "0.01"})
    assert refused.reason == "BUDGET_EXCEEDED"
    assert "more than the 0 USD that the tool declares" in refused.explain()
    assert f"{Path(__file__).name}:" in refused.explain()


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


def test_money_that_a_call_does_not_spend_is_left_for_the_next(tmp_path: Path, budgets: Budgets) -> None:
    at = gate(tmp_path, metered, backends=Backends.memory(budgets=budgets), budget={"max_cost_usd": 1})
    reasons = [call(at, "metered", {"case": "less"}).reason for _ in range(6)]
    # At 0.60 the next call could cost up to 0.40 and still fits; at 0.75 it could not.
    assert reasons == ["ALLOWED"] * 5 + ["BUDGET_EXCEEDED"]
    assert spent(budgets) == (5, D("0.75"))


def test_a_call_refused_after_its_reservation_is_refunded(tmp_path: Path, budgets: Budgets) -> None:
    backends = Backends.memory(budgets=budgets, ledger=MemoryLedger(quota=0))
    at = gate(tmp_path, paid, backends=backends, budget={"max_calls_per_session": 1})
    assert call(at, "paid").reason == "LEDGER_UNAVAILABLE"
    assert spent(budgets) == (0, D(0))


def test_a_call_whose_tool_fails_is_settled(tmp_path: Path, budgets: Budgets) -> None:
    at = gate(tmp_path, paid, backends=Backends.memory(budgets=budgets), budget={"max_calls_per_session": 1})
    assert call(at, "paid", {"fail": True}).reason == "TOOL_FAILED"
    assert spent(budgets) == (1, D("0.40"))
    assert call(at, "paid").reason == "BUDGET_EXCEEDED"


def test_a_refusal_names_the_limit_and_is_the_only_event(tmp_path: Path, budgets: Budgets) -> None:
    at = gate(tmp_path, paid, backends=Backends.memory(budgets=budgets), budget={"max_cost_usd": 0.5})
    assert call(at, "paid").ok
    refused = call(at, "paid")
    assert "would exceed max_cost_usd 0.5 (" in refused.explain()
    assert "agent.yaml:1" in refused.explain()
    assert [type(event) for event in checks(refused.events)] == [CapabilityDenied]


def test_no_approver_is_asked_about_a_call_over_its_budget(tmp_path: Path, budgets: Budgets) -> None:
    @tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
    async def note(ctx: Context, text: str) -> None:
        """Write."""

    approver = MemoryApprover(lambda _: "approved")
    backends = Backends.memory(budgets=budgets, approver=approver, files=MemoryFiles({f"{tmp_path}/keep": ""}))
    at = gate(
        tmp_path,
        note,
        backends=backends,
        fs_reach={"write": [str(tmp_path)]},
        approvals={"write": "call"},
        budget={"max_calls_per_session": 1},
    )
    assert [call(at, "note", {"text": text}).reason for text in "ab"] == ["ALLOWED", "BUDGET_EXCEEDED"]
    assert len(approver.asked) == 1


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


def test_calls_of_a_day_are_counted_across_sessions_and_begin_anew_with_the_next(
    tmp_path: Path, budgets: Budgets
) -> None:
    clock = MemoryClock(datetime(2026, 1, 31, 12, tzinfo=UTC))
    backends = Backends.memory(budgets=budgets, clock=clock)
    at = gate(tmp_path, paid, metered, backends=backends, budget={"max_calls_per_day": 2})

    async def reasons() -> list[str]:
        found: list[str] = []
        for session in ("one", "two", "three"):
            async with at.session(session) as opened:
                found.append((await opened.call("paid")).reason)
        return found

    assert asyncio.run(reasons()) == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]
    refused = call(at, "metered", {"case": "less"})
    assert "3 would exceed max_calls_per_day 2 (" in refused.explain()
    clock.advance(24 * 3600)
    assert asyncio.run(reasons()) == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]


def test_a_tool_spends_no_more_than_its_own_money_in_a_session(tmp_path: Path, budgets: Budgets) -> None:
    tools: dict[str, Any] = {"metered": {"max_cost_usd": 0.7}, "paid": {}}
    at = gate(tmp_path, metered, paid, backends=Backends.memory(budgets=budgets), tools=tools)
    # At 0.30 the next call could cost up to 0.40 and still fits; at 0.45 it could not.
    reasons = [call(at, "metered", {"case": "less"}).reason for _ in range(4)]
    assert reasons == ["ALLOWED"] * 3 + ["BUDGET_EXCEEDED"]
    refused = call(at, "metered", {"case": "less"})
    assert "0.85 would exceed max_cost_usd 0.7 of `metered` (" in refused.explain()
    assert "raise `max_cost_usd` of `metered` in " in refused.explain()
    assert call(at, "paid").ok


def test_delegates_spend_from_the_account_of_the_first_session(tmp_path: Path, budgets: Budgets) -> None:
    at = gate(
        tmp_path,
        paid,
        backends=Backends.memory(budgets=budgets),
        tools={"paid": {"max_calls": 3}},
        budget={"max_cost_usd_per_day": 2},
    )

    async def run() -> list[str]:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=[])
            who = (session, child, child.delegate(agent="third", allow=[]), session.delegate(agent="other", allow=[]))
            return [(await one.call("paid")).reason for one in who]

    assert asyncio.run(run()) == ["ALLOWED"] * 3 + ["BUDGET_EXCEEDED"]
    assert spent(budgets) == (3, D("1.20"))


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
    result = call(at, "metered", {"case": "less"})
    assert (result.ok, result.cost_usd) == (True, D("0.15"))
    assert spent(broken) == (1, D("0.40"))


def test_the_larger_cost_counts_where_files_and_tool_differ(tmp_path: Path) -> None:
    declared = {"needs": [], "effect": "read_only", "sandbox": "native", "cost_usd": 0.9}
    content = json.loads(Path(policy(tmp_path, paid, metered, budget={"max_cost_usd": 2}).origin.file).read_text())
    content["tools"] = dict.fromkeys(("paid", "metered"), declared)
    path = tmp_path / "agent.yaml"
    path.write_text(json.dumps(content))
    budgets = MemoryBudgets()
    at = Gate(
        load_manifest(path),
        [paid, metered],
        Backends.memory(budgets=budgets),
        workdir=tmp_path,
        on_misfit="narrow",
    )
    assert call(at, "paid").cost_usd == D("0.9")
    assert call(at, "metered", {"case": "more at once"}).cost_usd == D("0.41")
    assert spent(budgets) == (2, D("1.31"))


# Receipts and processes -----------------------------------------------------------------------------------------------


def told(ledger: MemoryLedger, kind: str = "receipt") -> list[Any]:
    return [json.loads(row.body)["budget"] for row in ledger.rows if row.kind == kind]


def account(calls: int, cost: str, of_tool: int | None = None, cost_of_tool: str | None = None) -> dict[str, Any]:
    return {
        "calls": calls,
        "calls_of_tool": calls if of_tool is None else of_tool,
        "calls_today": calls,
        "cost_usd": cost,
        "cost_usd_of_tool": cost if cost_of_tool is None else cost_of_tool,
        "cost_usd_today": cost,
    }


def test_a_receipt_tells_what_was_spent_before_and_after(tmp_path: Path, budgets: Budgets) -> None:
    ledger = MemoryLedger()
    backends = Backends.memory(budgets=budgets, ledger=ledger, clock=MemoryClock())
    at = gate(tmp_path, paid, metered, backends=backends, budget={"max_cost_usd": 0.7})
    assert call(at, "metered", {"case": "less"}).ok
    assert call(at, "paid").ok
    assert call(at, "paid").reason == "BUDGET_EXCEEDED"
    assert told(ledger) == [
        {"before": account(0, "0"), "after": account(1, "0.15")},
        {"before": account(1, "0.15", 0, "0"), "after": account(2, "0.55", 1, "0.4")},
        {"before": account(2, "0.55", 1, "0.4"), "after": account(2, "0.55", 1, "0.4")},
    ]
    assert told(ledger, "decision")[0] == {"before": account(0, "0"), "after": account(1, "0.4")}


def test_a_receipt_without_a_budget_says_nothing_of_one(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    assert call(gate(tmp_path, paid, backends=Backends.memory(ledger=ledger)), "paid").ok
    assert told(ledger) == [None]


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
