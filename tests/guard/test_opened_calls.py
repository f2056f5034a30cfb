"""Calls whose budget is set aside, and whose approval is used up, in the transaction that keeps their decision."""

import asyncio
from pathlib import Path
from typing import Any

from guard.gates import call, gate
from guard.tools import paid
from licet import Backends, tool
from licet.guard.ports import Answered


def facts(backends: Backends, session: str = "s") -> list[Any]:
    ledger: Any = backends.ledger
    return asyncio.run(ledger.entries_of("tester", session))


def test_a_budget_is_set_aside_with_the_decision_and_the_receipt_knows_what_was_spent(
    postgres: str, tmp_path: Path
) -> None:
    backends = Backends.postgres(postgres, directory=tmp_path / "node")
    at = gate(tmp_path, paid, backends=backends, budget={"max_calls_per_session": 2})
    results = [call(at, "paid") for _ in range(3)]
    assert [result.reason for result in results] == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]
    assert "max_calls_per_session" in str(results[2].explain())
    kept = facts(backends)
    assert [(one.kind, one.reason) for one in kept] == [
        *[("decision", "ALLOWED"), ("receipt", "ALLOWED")] * 2,
        ("receipt", "BUDGET_EXCEEDED"),
    ]
    decision, receipt = kept[2:4]
    assert decision.budget is None
    assert decision.cost_usd == "0.4"
    assert (receipt.budget.before.calls, receipt.budget.after.calls) == (1, 2)
    assert [event.kind for event in receipt.events if "Budget" in event.kind] == ["BudgetReserved", "BudgetSettled"]
    backends.close()


def test_a_frozen_call_has_a_receipt_and_no_decision(postgres: str, tmp_path: Path) -> None:
    backends = Backends.postgres(postgres, directory=tmp_path / "node")
    at, other = (
        gate(tmp_path, paid, backends=each, budget={"max_calls_per_session": 9})
        for each in (backends, Backends.postgres(postgres, directory=tmp_path / "node"))
    )
    assert call(at, "paid").reason == "ALLOWED"
    other.freeze("stop", tool="paid")
    frozen = call(at, "paid")
    assert frozen.reason == "FROZEN"
    assert [one.kind for one in facts(backends)] == ["decision", "receipt", "receipt"]
    backends.close()


def test_an_approval_that_another_call_has_used_refuses_and_spends_nothing(postgres: str, tmp_path: Path) -> None:
    async def approves(_: object) -> Answered:
        return Answered("approved", ("x",), request="gone", asks_again=True, to_use=True)

    backends = Backends.postgres(postgres, directory=tmp_path / "node", approver=approves)

    @tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
    async def act() -> None:
        """Write what a person agreed to."""

    asks = {"fs_reach": {"write": [str(tmp_path)]}, "approvals": {"write": "call"}}
    at = gate(tmp_path, act, backends=backends, budget={"max_calls_per_session": 9}, **asks)
    refused = call(at, "act")
    assert (refused.reason, "used meanwhile" in str(refused.explain())) == ("APPROVAL_REQUIRED", True)
    assert [one.kind for one in facts(backends)] == ["receipt"]
    backends.close()
