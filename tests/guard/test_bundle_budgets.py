"""Budgets and approvals of bundles on the path of a call, in memory and in a file."""

import asyncio
import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call
from licet import Backends, Context, Gate, load_manifest, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.budgets import MemoryBudgets
from licet.backends.memory import MemoryClock, MemoryLedger
from licet.core.decision.request import bundle_account
from licet.core.values import key_text
from licet.guard.ports import Budgets, Claim, Question, Reservation, Unavailable

KEY = key_text(bytes([9] * 32))


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="1")
async def first(fail: bool = False) -> str:
    """Cost something."""
    if fail:
        raise ValueError("no")
    return "done"


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="1")
async def second(ctx: Context, amount: str = "1") -> str:
    """Report what it costs."""
    ctx.charge(amount)
    return "done"


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="1")
async def outside() -> str:
    """Is in no bundle."""
    return "done"


@tool(needs=["fs:write:/srv"], effect="write_limited", sandbox="native", cost_usd="0")
async def change() -> str:
    """Would write."""
    return "done"


TOOLS = first, second, outside, change


def gate(place: Path, budgets: Budgets, bundle: dict[str, Any], clock: Any = None, **given: Any) -> Gate:
    names = [tool.name for tool in TOOLS]
    content = {
        "agent": "tester",
        "bundles": {"pair": {"tools": ["first", "second", "change"], **bundle}},
        "capabilities": {
            "bundles": ["pair"],
            "tools": ["outside"],
            "native": names,
            "max_side_effect_class": "write_limited",
            "fs_reach": {"write": ["/srv"]},
            **given.pop("capabilities", {}),
        },
    }
    (place / "agent.yaml").write_text(json.dumps(content))
    parts = {"budgets": budgets, "approver": given.pop("approver", None), "ledger": given.pop("ledger", None)}
    backends = Backends.memory(**{key: part for key, part in (parts | {"clock": clock}).items() if part is not None})
    return Gate(load_manifest(place / "agent.yaml"), TOOLS, backends, workdir=place)


def codes(at: Gate, *calls: str, session: str = "s") -> list[str]:
    return [str(call(at, name, session=session).reason) for name in calls]


CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("calls of a session", {"max_calls_per_session": 2}, ["first", "second", "first"], ["ALLOWED"] * 2),
    ("calls of a day", {"max_calls_per_day": 3}, ["second", "first", "second", "first"], ["ALLOWED"] * 3),
    ("money of a session", {"max_cost_usd": 2}, ["first", "second", "second"], ["ALLOWED"] * 2),
    ("money of a day", {"max_cost_usd_per_day": "1.5"}, ["first", "second"], ["ALLOWED"]),
    ("nothing at all", {"max_calls_per_session": 0}, ["first"], []),
]


@pytest.mark.parametrize(("budget", "calls", "allowed"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_tools_of_a_bundle_share_its_budget(
    tmp_path: Path, budgets: Budgets, budget: dict[str, Any], calls: list[str], allowed: list[str]
) -> None:
    budget = {key: float(value) if isinstance(value, str) else value for key, value in budget.items()}
    at = gate(tmp_path, budgets, {"budget": budget})
    assert codes(at, *calls) == [*allowed, "BUDGET_EXCEEDED"]
    refused = call(at, calls[-1])
    key = next(iter(budget))
    assert f"{key}" in refused.explain()
    assert "of the bundle `pair`" in refused.explain()
    assert f"raise `bundles.pair.budget.{key}` in" in refused.explain()
    assert codes(at, "outside") == ["ALLOWED"]  # its budget is not theirs


def test_a_session_budget_starts_anew_in_each_session_and_a_day_budget_does_not(
    tmp_path: Path, budgets: Budgets
) -> None:
    clock = MemoryClock(datetime.fromisoformat("2026-03-01T12:00:00+00:00"))
    limits = {"max_calls_per_session": 1, "max_calls_per_day": 2}
    at = gate(tmp_path, budgets, {"budget": limits}, clock)
    assert codes(at, "first", "first") == ["ALLOWED", "BUDGET_EXCEEDED"]
    assert codes(at, "second", session="t") == ["ALLOWED"]
    assert codes(at, "second", session="u") == ["BUDGET_EXCEEDED"]
    clock.advance(24 * 3600)
    assert codes(at, "second", session="u") == ["ALLOWED"]


def test_the_budget_of_the_manifest_counts_too(tmp_path: Path, budgets: Budgets) -> None:
    at = gate(
        tmp_path,
        budgets,
        {"budget": {"max_calls_per_session": 3}},
        capabilities={"budget": {"max_calls_per_session": 2}},
    )
    assert codes(at, "first", "outside", "second") == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]


def test_a_call_over_the_budget_of_the_manifest_is_refunded_to_the_bundle(tmp_path: Path, budgets: Budgets) -> None:
    limits = {"tools": {"outside": {}, "first": {"max_calls": 1}}}
    at = gate(tmp_path, budgets, {"budget": {"max_calls_per_session": 2}}, capabilities=limits)
    assert codes(at, "first", "first", "first", "second") == [
        "ALLOWED",
        "BUDGET_EXCEEDED",
        "BUDGET_EXCEEDED",
        "ALLOWED",
    ]


def test_what_a_tool_reports_is_what_its_bundle_has_spent(tmp_path: Path, budgets: Budgets) -> None:
    at = gate(tmp_path, budgets, {"budget": {"max_cost_usd": 2}})
    assert call(at, "second", {"amount": "0.25"}).ok
    assert call(at, "first", {"fail": True}).reason == "TOOL_FAILED"  # it ran, and so it has cost what it declares

    async def spent() -> Decimal:
        return (await budgets.usage(bundle_account("tester", "pair"), "s", "")).cost_usd

    assert asyncio.run(spent()) == Decimal("1.25")


def test_two_concurrent_calls_cannot_both_take_the_last_one_of_a_bundle(tmp_path: Path, budgets: Budgets) -> None:
    at = gate(
        tmp_path, budgets, {"budget": {"max_calls_per_session": 5}}, capabilities={"budget": {"max_calls_per_day": 9}}
    )

    async def many() -> list[str]:
        async with at.session("s") as session:
            found = await asyncio.gather(*(session.call(name) for name in ["first", "second"] * 6 + ["outside"] * 4))
            return [f"{result.tool} {result.reason}" for result in found]

    found = asyncio.run(many())
    assert sum(one in ("first ALLOWED", "second ALLOWED") for one in found) == 5
    assert found.count("outside ALLOWED") == 4  # calls that their bundle refuses take nothing from other tools


def test_a_delegate_spends_from_the_same_bundle(tmp_path: Path, budgets: Budgets) -> None:
    at = gate(tmp_path, budgets, {"budget": {"max_calls_per_session": 2}})

    async def together() -> list[str]:
        async with at.session("s") as session:
            child = session.delegate(agent="helper", allow=[])
            return [str((await one.call("first")).reason) for one in (session, child, child)]

    assert asyncio.run(together()) == ["ALLOWED", "ALLOWED", "BUDGET_EXCEEDED"]


def test_a_receipt_tells_what_the_bundle_had_spent(tmp_path: Path, budgets: Budgets) -> None:
    ledger = MemoryLedger()
    at = gate(tmp_path, budgets, {"budget": {"max_cost_usd": 5}}, ledger=ledger)
    codes(at, "first", "second")
    told = [entry["budget"]["bundles"]["pair"] for entry in map(json.loads, _texts(ledger))]
    assert told[-1] == {
        "after": {"calls": 2, "calls_today": 2, "cost_usd": "2", "cost_usd_today": "2"},
        "before": {"calls": 1, "calls_today": 1, "cost_usd": "1", "cost_usd_today": "1"},
    }


def _texts(ledger: MemoryLedger) -> list[str | bytes]:
    return [row.body for row in ledger.rows]


class Broken(MemoryBudgets):
    """A store of budgets that fails for accounts of bundles."""

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Reserve, except for a bundle."""
        if " bundle " in claim.agent:
            raise Unavailable("gone")
        return await super().reserve(claim)


def test_an_account_that_cannot_be_kept_refuses_the_call(tmp_path: Path) -> None:
    at = gate(tmp_path, Broken(), {"budget": {"max_calls_per_session": 5}})
    assert codes(at, "first", "outside") == ["BACKEND_MISSING", "ALLOWED"]


# Approvals ------------------------------------------------------------------------------------------------------------


def test_the_approval_rules_of_a_bundle_apply(tmp_path: Path) -> None:
    asked: list[Question] = []

    def agree(question: Question) -> Any:
        asked.append(question)
        return "approved"

    clock = MemoryClock()
    rules = {"approvals": {"write": "session", "expires_seconds": 60}}
    given = {"approvals": {"write": "manifest", "expires_seconds": 600}}
    at = gate(tmp_path, MemoryBudgets(), rules, clock, approver=MemoryApprover(agree), capabilities=given)
    assert codes(at, "change", "change") == ["ALLOWED", "ALLOWED"]
    assert [question.expires_seconds for question in asked] == [60]
    clock.advance(61)  # what was agreed to is forgotten when the bundle says
    assert codes(at, "change") == ["ALLOWED"]
    assert len(asked) == 2


def test_keys_of_a_bundle_ask_for_signatures(tmp_path: Path) -> None:
    rules = {"approvals": {"write": "call", "keys": [KEY]}}
    approver = MemoryApprover(lambda _: "approved")
    at = gate(tmp_path, MemoryBudgets(), rules, approver=approver)
    result = call(at, "change")
    assert result.reason == "APPROVAL_REQUIRED"
    assert "verify a signature" in result.explain()
