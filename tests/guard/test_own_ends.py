"""Tools that cancel their own task or raise `GeneratorExit`: the call still ends with a result."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from guard.gates import gate
from licet import Backends, Context, Gate, Result, SyncContext, tool
from licet.backends.budgets import MemoryBudgets
from licet.backends.memory import MemoryLedger

AGES = 600.0


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


@tool(needs=[], effect="read_only", sandbox="native")
async def ending(how: str) -> str:
    """End in some way."""
    match how:
        case "generator exit":
            raise GeneratorExit("stop")
        case "cancel":
            own_task().cancel()
            await asyncio.sleep(AGES)
        case "two cancels":
            own_task().cancel()
            own_task().cancel()
            await asyncio.sleep(AGES)
        case "cancel and return":
            own_task().cancel()
        case "cancel and fail":
            own_task().cancel()
            raise ValueError("no")
        case "cancel, swallowed":
            own_task().cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(AGES)
        case "timeout":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(AGES)
        case "group":
            with contextlib.suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(fails())
                    await asyncio.sleep(AGES)
        case _:
            await asyncio.sleep(0)
    return "done"


async def fails() -> None:
    raise ValueError("no")


@tool(needs=[], effect="read_only", sandbox="native")
async def at_once() -> str:
    """Cancel its own task, and await nothing."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "done"


@tool(needs=[], effect="read_only", sandbox="native")
def blocking(ctx: SyncContext) -> None:
    """Raise in a thread what closes a coroutine."""
    raise GeneratorExit("stop")


@tool(needs=[], effect="read_only", sandbox="native")
async def behind_its_back() -> None:
    """Let somebody else cancel its task."""
    asyncio.get_running_loop().call_soon(own_task().cancel)
    await asyncio.sleep(AGES)


@tool(needs=[], effect="read_only", sandbox="native")
async def waiting(ctx: Context) -> None:
    """Wait for the end of the call."""
    await asyncio.sleep(AGES)


ENDS = {
    "generator exit": "TOOL_FAILED: GeneratorExit: stop",
    "cancel": "TOOL_FAILED: CancelledError",
    "two cancels": "TOOL_FAILED: CancelledError",
    "cancel and return": "",
    "cancel and fail": "TOOL_FAILED: ValueError: no",
    "cancel, swallowed": "",
    "timeout": "",
    "group": "",
    "nothing": "",
}


async def outcome(at: Gate, name: str, given: dict[str, Any]) -> tuple[str, int]:
    """The reason of a call, and how many cancels are left on the task of its caller."""
    async with at.session("s") as session:
        result = await session.call(name, given)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert result.ok is not bool(result.error)
        return result.error, own_task().cancelling()


@pytest.mark.parametrize("how", ENDS)
def test_a_tool_ends_its_own_call_and_never_its_caller(tmp_path: Path, how: str) -> None:
    assert asyncio.run(outcome(gate(tmp_path, ending), "ending", {"how": how})) == (ENDS[how], 0)


def test_a_tool_that_cancels_its_task_and_awaits_nothing_does_not_cancel_its_caller(tmp_path: Path) -> None:
    assert asyncio.run(outcome(gate(tmp_path, at_once), "at_once", {})) == ("", 0)


def test_a_generator_exit_raised_in_a_thread_is_a_failed_call(tmp_path: Path) -> None:
    told = asyncio.run(outcome(gate(tmp_path, blocking), "blocking", {}))
    assert told == ("TOOL_FAILED: GeneratorExit: stop", 0)


@pytest.mark.parametrize("how", ["generator exit", "cancel"])
def test_a_tool_that_cancels_itself_leaves_a_receipt_and_is_settled(tmp_path: Path, how: str) -> None:
    ledger, budgets = MemoryLedger(), MemoryBudgets()
    at = gate(
        tmp_path,
        ending,
        backends=Backends.memory(ledger=ledger, budgets=budgets),
        budget={"max_calls_per_session": 1},
    )

    async def run() -> list[str]:
        async with at.session("s") as session:
            return [(await session.call("ending", {"how": how})).reason for _ in range(2)]

    assert asyncio.run(run()) == ["TOOL_FAILED", "BUDGET_EXCEEDED"]
    assert [entry.kind for entry in ledger.entries] == ["decision", "receipt", "receipt"]


@pytest.mark.parametrize("name", ["ending", "behind_its_back"])
@pytest.mark.parametrize("at_once", [1, 2, 64])
def test_one_lost_call_of_many_loses_no_other(tmp_path: Path, name: str, at_once: int) -> None:
    given = {"how": "cancel"} if name == "ending" else {}
    fine, lost = ("ending", {"how": "nothing"}), (name, given)

    async def run() -> list[Result]:
        async with gate(tmp_path, ending, behind_its_back).session("s") as session:
            return await session.call_many([fine, lost, fine, lost, fine], at_once=at_once)

    results = asyncio.run(run())
    assert [result.ok for result in results] == [True, False, True, False, True]
    assert [result.reason for result in results if not result.ok] == ["TOOL_FAILED"] * 2
    assert "cancel" in results[1].error.lower()
    assert name in results[1].explain()


@pytest.mark.parametrize("at_once", [0, -1, True, 1.5, None])
def test_at_once_must_be_one_or_more(tmp_path: Path, at_once: Any) -> None:
    async def run() -> None:
        async with gate(tmp_path, ending).session("s") as session:
            await session.call_many([("ending", {"how": "nothing"})], at_once=at_once)

    with pytest.raises(ValueError, match="at_once"):
        asyncio.run(run())


@pytest.mark.parametrize("many", [False, True])
def test_a_caller_that_is_cancelled_stays_cancelled(tmp_path: Path, many: bool) -> None:
    async def run() -> list[bool]:
        async with gate(tmp_path, waiting).session("s") as session:
            calling: Any = session.call_many([("waiting", None)] * 3) if many else session.call("waiting")
            task = asyncio.ensure_future(calling)
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return [task.cancelled()]

    assert asyncio.run(run()) == [True]


def test_closing_the_coroutine_of_a_call_leaves_only_its_decision(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    at = gate(tmp_path, waiting, backends=Backends.memory(ledger=ledger))

    async def begun() -> Any:
        """A call in the middle of its tool, whose task is gone."""
        loop = asyncio.get_running_loop()
        calling = at.session("s").call("waiting")
        held: list[Any] = []

        async def hold() -> None:
            held.append(calling.send(None))

        await loop.create_task(hold())
        return calling

    calling = asyncio.run(begun())
    calling.close()
    assert [entry.kind for entry in ledger.entries] == ["decision"]
