"""The memory twins of ledger and budgets: bounded in what they keep, exact under threads, and fast after many calls."""

import asyncio
import sys
import threading
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from counted import work
from guard.gates import call, gate
from licet import Backends, tool
from licet.backends.budgets import MemoryBudgets
from licet.backends.memory import WHOLE_ENTRIES, MemoryLedger
from licet.core.policy.manifest import Budget
from licet.guard.ports import Claim, Entry


def now(step: Coroutine[Any, Any, Any]) -> Any:
    """The answer of something that waits for nothing, in whatever thread."""
    with pytest.raises(StopIteration) as done:
        step.send(None)
    return done.value.value


def claim(
    tool: str = "t", session: str = "s", agent: str = "a", day: str = "1", cost: str = "0.10", **given: Any
) -> Claim:
    return Claim(agent, session, tool, day, Decimal(cost), Budget(**given), None, None)


# Budgets --------------------------------------------------------------------------------------------------------------


def test_a_reservation_costs_the_same_after_many() -> None:
    budgets = MemoryBudgets()
    first = work(lambda: now(budgets.reserve(claim())))
    for number in range(300):
        now(budgets.settle(now(budgets.reserve(claim(f"t{number % 7}"))), Decimal(0)))
    assert work(lambda: now(budgets.reserve(claim()))) <= first + 2


@pytest.fixture
def restless() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_no_limit_is_passed_from_several_threads() -> None:
    budgets, taken, wrong = MemoryBudgets(), [], []

    def many() -> None:
        try:
            for _ in range(150):
                taken.append(now(budgets.reserve(claim(max_calls_per_session=400))) is not None)  # noqa: PERF401
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=many) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(taken), len(taken), wrong) == (400, 900, [])


# The ledger -----------------------------------------------------------------------------------------------------------


@tool(needs=[], effect="read_only", sandbox="native")
async def much() -> str:
    """A large value."""
    return "x" * 100_000


def test_how_a_call_ended_is_kept_and_of_old_ones_not_what_they_gave_back(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    at = gate(tmp_path, much, backends=Backends.memory(ledger=ledger))
    results = [call(at, "much") for _ in range(WHOLE_ENTRIES)]
    receipts = [entry.content for entry in ledger.entries if entry.kind == "receipt"]
    assert [bool(kept.value) for kept in receipts] == [False] * (WHOLE_ENTRIES // 2) + [True] * (WHOLE_ENTRIES // 2)
    for kept, result in zip(receipts, results, strict=True):
        assert (kept.ok, kept.code, kept.tool, kept.receipt) == (True, "ok", "much", result.receipt)
        assert (kept.duration_ms, kept.cost_usd, kept.events) == (result.duration_ms, result.cost_usd, result.events)
    assert all(len(result.value) == 100_000 for result in results)
    with pytest.raises(AttributeError):
        receipts[0].value = "x"


def test_the_oldest_entries_make_room() -> None:
    ledger = MemoryLedger(most=3)
    for number in range(5):
        asyncio.run(ledger.record(Entry("receipt", f"r-{number}", "a", "s", "t", "", datetime.now(UTC), None)))
    assert [entry.id for entry in ledger.entries] == ["r-2", "r-3", "r-4"]
