"""The memory twins of ledger and budgets: limited in size, exact under threads, and fast after many calls."""

import sys
import threading
from collections.abc import Coroutine, Iterator
from decimal import Decimal
from typing import Any

import pytest

from counted import work
from licet.backends.budgets import MemoryBudgets
from licet.backends.memory import MemoryLedger
from licet.backends.secrets import check_signature
from licet.core.ledger.entry import Entry
from licet.core.ledger.verify import verify
from licet.core.policy.terms import Budget
from licet.guard.ports import Claim


def now(step: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, in any thread, and return its result."""
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


def recorded(ledger: MemoryLedger, number: int, session: str = "s") -> None:
    entry = Entry(kind="receipt", id=f"r-{number}", agent="a", session=session, tool="t", time="then", manifest="m")
    now(ledger.record(entry))


def test_the_oldest_entries_are_dropped_and_the_chain_continues() -> None:
    ledger = MemoryLedger(most=3)
    for number in range(5):
        recorded(ledger, number)
    assert [entry.id for entry in ledger.entries] == ["r-2", "r-3", "r-4"]
    assert [entry.sequence for entry in ledger.receipts] == [3, 4, 5]
    (checkpoint,) = ledger.checkpoints()
    assert checkpoint.size == 5


@pytest.mark.usefixtures("restless")
def test_entries_from_several_threads_are_one_chain() -> None:
    ledger = MemoryLedger()

    def many() -> None:
        for number in range(100):
            recorded(ledger, number)

    threads = [threading.Thread(target=many) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify(ledger.rows, ledger.checkpoints(), key=ledger.key, check=check_signature).signed == 600
