"""Many calls and many sessions at once: nothing is lost, doubled or mixed up."""

import asyncio
from pathlib import Path

from effort import LONG
from guard.gates import checks, gate
from licet import Backends, Context, Gate, tool
from licet.backends.memory import MemoryLedger

CALLS = 10_000 if LONG else 500
SESSIONS = 1_000 if LONG else 100


@tool(needs=["env:read:*", "storage:*:session"], effect="read_only", sandbox="native")
async def work(ctx: Context, number: int) -> list[object]:
    """Take turns with the others, and say who asked."""
    await asyncio.sleep(0)
    ctx.env.get("A")
    await ctx.kv.set(f"n{number}", number)
    await asyncio.sleep(0)
    return [number, ctx.session_id, await ctx.kv.get(f"n{number}")]


def busy(folder: Path, ledger: MemoryLedger) -> Gate:
    """A gate in front of the tool."""
    return gate(folder, work, backends=Backends.memory(environ={"A": "1"}, ledger=ledger), env=["A"])


def test_each_of_thousands_of_concurrent_calls_gets_its_own_result(tmp_path: Path) -> None:
    ledger = MemoryLedger()

    async def run() -> None:
        async with busy(tmp_path, ledger).session("s") as session:
            results = await asyncio.gather(*(session.call("work", {"number": n}) for n in range(CALLS)))
        assert [result.value for result in results] == [[n, "s", n] for n in range(CALLS)]
        assert len({result.receipt for result in results}) == CALLS
        kinds = [(event.capability, event.tool_name) for event in checks(results[77].events)]
        assert kinds == [
            ("tool:call:work", "work"),
            ("env:read:A", "work"),
            ("storage:write:session", "work"),
            ("storage:read:session", "work"),
        ]

    asyncio.run(run())
    receipts = [entry.id for entry in ledger.entries if entry.kind == "receipt"]
    assert len(receipts) == len(set(receipts)) == CALLS


def test_many_sessions_at_once_share_nothing(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    at = busy(tmp_path, ledger)

    async def one(number: int) -> None:
        async with at.session(f"s-{number}") as session:
            first, second = await session.call_many([("work", {"number": 1}), ("work", {"number": number})])
            assert first.value == [1, f"s-{number}", 1]
            assert second.value == [number, f"s-{number}", number]

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(SESSIONS):
                group.create_task(one(number))

    asyncio.run(run())
    sessions = [entry.session for entry in ledger.entries if entry.kind == "receipt"]
    assert all(sessions.count(f"s-{number}") == 2 for number in range(SESSIONS))
