"""Calls that are cancelled at each moment at which they wait: whatever has begun has a receipt."""

import asyncio
import itertools
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from guard.gates import policy
from guard.interrupting import interrupted
from licet import Backends, Context, Gate, Tool, tool
from licet.backends.budgets import MemoryBudgets, SqliteBudgets
from licet.backends.ledger.reader import LedgerReader, verify_ledger
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.memory import MemoryLedger
from licet.backends.secrets import SigningKey
from licet.core.ledger.entry import Entry
from licet.guard.ports import Claim, Reservation
from reservations import held_in
from sandbox.levels import needs_walls

T = TypeVar("T")
STEPS = 200  # more than any call here has


@pytest.fixture
def tmp_path(store_path: Path) -> Path:
    """In memory: SQLite asks the disk for each commit, and waits for it."""
    return store_path


class WaitingLedger(MemoryLedger):
    """A ledger that lets other tasks run before and after it keeps an entry, with a timeout of its own."""

    async def record(self, entry: Entry) -> None:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])
            await super().record(entry)
        await asyncio.sleep(0)


class WaitingBudgets(MemoryBudgets):
    """Budgets that wait like a store does."""

    async def reserve(self, claim: Claim) -> Reservation | None:
        await asyncio.sleep(0)
        return await super().reserve(claim)

    async def settle(self, *args: Any) -> None:
        await asyncio.sleep(0)
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])
        await super().settle(*args)


@tool(needs=["fs:write:${workdir}/made"], effect="write_limited", sandbox="native", cost_usd="0.01")
async def make(ctx: Context, name: str) -> str:
    """Make a file."""
    await ctx.fs.write(f"made/{name}", name)
    await asyncio.sleep(0)
    return name


@tool(needs=["fs:write:${workdir}/made"], effect="write_limited", sandbox="native")
async def make_long(ctx: Context, name: str) -> str:
    """Make a file, and return so much that the receipt is built in a thread."""
    await ctx.fs.write(f"made/{name}", name)
    return name + "x" * 70_000


@tool(needs=["fs:write:${workdir}/made"], effect="write_limited", sandbox="restricted", reuse=True, cost_usd="0.01")
async def make_behind_walls(ctx: Context, name: str) -> str:
    """Make a file, from a process of its own."""
    await ctx.fs.write(f"made/{name}", name)
    return name


Moment = tuple[bool, bool]  # whether it is cancelled again, and late
MOMENTS = {
    "one cancel": (False, False),
    "one cancel, too late": (False, True),
    "a cancel at each wait": (True, False),
    "a late cancel at each wait": (True, True),
}


def gate_of(folder: Path, made: Tool, **stores: Any) -> Gate:
    (folder / "work" / "made").mkdir(parents=True)
    manifest = policy(
        folder,
        made,
        native=[made.name] if made.sandbox == "native" else [],
        fs_reach={"write": ["${workdir}/made"]},
        budget={"max_cost_usd": 50},
        limits={"output_kb": 1024},
    )
    return Gate(manifest, [made], Backends.local(folder / "state", **stores), workdir=folder / "work")


async def cancelled_everywhere(at: Gate, made: str, moment: Moment) -> int:
    """Call once for each wait of a call, each in a session of its own, and cancel there; how many waits there were."""
    for first in itertools.count(1):
        assert first < STEPS
        async with at.session(f"s{first}") as session:
            answer = session.call(made, {"name": f"f{first}"})
            calling = asyncio.ensure_future(_awaited(answer, first, moment))
            await asyncio.wait([calling])
        if not calling.cancelled():
            assert calling.result().ok
            return first
    raise AssertionError


async def _awaited(answer: Awaitable[T], first: int, moment: Moment) -> T:
    return await interrupted(answer, first, again=moment[0], late=moment[1])


def judge(folder: Path, found: dict[str, list[str]], waits: int) -> None:
    """Every session with a file, or with a decision, has a receipt; at least one was cancelled after its effect."""
    for name in (file.name for file in (folder / "work" / "made").iterdir()):
        assert found[f"s{name[1:]}"][-1] == "receipt", name
    for session, kinds in found.items():
        assert kinds in (["receipt"], ["decision", "receipt"]), session
    assert waits > 3


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("made", [make, make_long], ids=lambda one: one.name)
def test_a_call_with_stores_of_the_operators_own_leaves_a_receipt(made: Tool, moment: Moment, tmp_path: Path) -> None:
    ledger = WaitingLedger()
    at = gate_of(tmp_path, made, ledger=ledger, budgets=WaitingBudgets())
    waits = asyncio.run(cancelled_everywhere(at, made.name, moment))
    found: dict[str, list[str]] = {}
    for entry in ledger.entries:
        found.setdefault(entry.session, []).append(entry.kind)
    judge(tmp_path, found, waits)


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("made", [make, make_long, make_behind_walls], ids=lambda one: one.name)
def test_a_call_with_stores_in_files_leaves_a_receipt(made: Tool, moment: Moment, tmp_path: Path) -> None:
    if made is make_behind_walls:
        needs_walls()
    ledger, budgets = SqliteLedger(tmp_path / "ledger.sqlite"), SqliteBudgets(tmp_path / "budgets.sqlite")

    async def run() -> int:
        waits = await cancelled_everywhere(at, made.name, moment)
        assert not held_in(tmp_path / "budgets.sqlite")
        return waits

    at = gate_of(tmp_path, made, ledger=ledger, budgets=budgets)
    waits = asyncio.run(run())
    ledger.close()
    budgets.close()
    found: dict[str, list[str]] = {}
    with LedgerReader(tmp_path / "ledger.sqlite") as reader:
        for row in reader.entries():
            found.setdefault(row.session, []).append(row.kind)
    judge(tmp_path, found, waits)
    key: SigningKey | None = ledger._key
    assert key is not None
    assert verify_ledger(tmp_path / "ledger.sqlite", key.public).ok


def test_a_loop_that_ends_in_the_middle_of_a_call_leaves_a_receipt(tmp_path: Path) -> None:
    ledger = WaitingLedger()
    at = gate_of(tmp_path, make_long, ledger=ledger, budgets=WaitingBudgets())

    async def run(turns: int) -> None:
        async with at.session(f"s{turns}") as session:
            calling = asyncio.ensure_future(session.call("make_long", {"name": f"f{turns}"}))
            for _ in range(turns):
                await asyncio.sleep(0)
        assert calling  # `asyncio.run` cancels it, together with every other task

    for turns in range(40):
        asyncio.run(run(turns))
    found: dict[str, list[str]] = {}
    for entry in ledger.entries:
        found.setdefault(entry.session, []).append(entry.kind)
    judge(tmp_path, found, 40)
