"""Busy stores: a call waits until its deadline, names the store in its refusal, and always has a result."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import warm
from effort import LONG
from guard.gates import gate
from licet import Backends, Context, Gate, Result, tool
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.budgets import MemoryBudgets, SqliteBudgets
from licet.backends.kv import SqliteKv
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.memory import MemoryLedger
from licet.core.ledger.entry import Entry
from licet.guard.ports import Claim, Reservation

STORES = {"ledger": SqliteLedger, "budgets": SqliteBudgets, "kv": SqliteKv, "approver": SqliteApprovals}
HELD: dict[str, sqlite3.Connection] = {}


@pytest.fixture
def tmp_path(store_path: Path) -> Path:
    """In memory: SQLite asks the disk for each commit, and waits for it."""
    return store_path


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the write lock of a database file, as another process would."""
    other = HELD[path.name] = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        other.close()


@tool(needs=["storage:write:session"], effect="read_only", sandbox="native", cost_usd="0.5")
async def keep(ctx: Context) -> None:
    """Keep something."""
    await ctx.kv.set("a", 1)


@tool(needs=["fs:write:/srv"], effect="write_limited", sandbox="native", cost_usd="0.5")
async def write(ctx: Context, hold: str = "") -> str:
    """Write a file, and then keep a store busy."""
    await ctx.fs.write("/srv/a", "done")
    if hold:
        HELD[hold] = sqlite3.connect(hold, isolation_level=None)
        HELD[hold].execute("BEGIN IMMEDIATE")
    return "written"


def opened(folder: Path, approvals: str = "manifest", seconds: int = 2) -> Gate:
    backends = Backends.memory(
        files={"/srv/b": b""},
        **{name: make(folder / "state" / f"{name}.sqlite") for name, make in STORES.items()},
    )
    return gate(
        folder,
        keep,
        write,
        backends=backends,
        fs_reach={"write": ["/srv"]},
        budget={"max_cost_usd": 50},
        limits={"wall_seconds": seconds},
        approvals={"write": approvals},
    )


async def asked(at: Gate, name: str, **arguments: Any) -> Result:
    async with at.session("s") as session:
        return await session.call(name, arguments)


def ask(at: Gate, name: str, **arguments: Any) -> Result:
    return asyncio.run(asked(at, name, **arguments))


async def at_once(calls: Iterable[Awaitable[Result]]) -> list[Result]:
    """Wait for several deadlines in the time of one."""
    return await asyncio.gather(*calls)


BUSY = {
    "ledger": ("keep", "not_available", "LEDGER_UNAVAILABLE"),
    "budgets": ("keep", "not_available", "BACKEND_MISSING"),
    "kv": ("keep", "execution_failed", "BACKEND_MISSING"),
    "approver": ("write", "not_available", "BACKEND_MISSING"),
}


def test_a_busy_store_is_waited_for_until_the_deadline_and_named(tmp_path: Path) -> None:
    calls = []
    with ExitStack() as kept:
        for store, (name, _, _) in BUSY.items():
            (tmp_path / store).mkdir()
            at = opened(tmp_path / store, "session")
            ask(at, "keep")
            ask(at, "write")
            kept.enter_context(held(tmp_path / store / "state" / f"{store}.sqlite"))
            calls.append(asked(at, name))
        results = asyncio.run(at_once(calls))
    for (store, (_, code, reason)), result in zip(BUSY.items(), results, strict=True):
        assert (result.ok, result.code, result.reason) == (False, code, reason), store
        said = " ".join(result.explain().split())
        assert f"{tmp_path}/{store}/state/{store}.sqlite was busy: waited " in said
        assert " seconds for the other processes and threads that use it" in said


def test_a_call_that_a_lock_has_refused_is_recorded_when_the_lock_ends(tmp_path: Path) -> None:
    at = opened(tmp_path, seconds=1)
    ask(at, "keep")
    path = tmp_path / "state" / "ledger.sqlite"
    with held(path):
        threading.Timer(1.2, HELD[path.name].rollback).start()
        result = ask(at, "keep")
    assert (result.ok, result.reason) == (False, "LEDGER_UNAVAILABLE")
    with LedgerReader(path) as reader:
        assert [row.kind for row in reader.show(result.receipt)] == ["receipt"]


def test_a_result_whose_receipt_could_not_be_written_says_that_the_tool_ran(tmp_path: Path) -> None:
    at = opened(tmp_path)
    path = tmp_path / "state" / "ledger.sqlite"
    try:
        result = ask(at, "write", hold=str(path))
    finally:
        HELD.pop(str(path)).close()
    assert (result.ok, result.code, result.reason) == (False, "execution_failed", "LEDGER_UNAVAILABLE")
    assert "write ran, and the ledger could not keep the receipt: what it did is done" in result.error
    assert "was busy: waited" in result.explain()
    assert result.cost_usd == Decimal("0.5")
    with LedgerReader(path) as reader:
        assert [row.kind for row in reader.show(result.receipt)] == ["decision"]
    assert ask(at, "write").ok  # and the next call finds everything in order


def test_a_settlement_that_could_not_be_written_is_an_event(tmp_path: Path) -> None:
    at = opened(tmp_path)
    path = tmp_path / "state" / "budgets.sqlite"
    try:
        result = ask(at, "write", hold=str(path))
    finally:
        HELD.pop(str(path)).close()
    assert (result.ok, result.value) == (True, "written")
    assert "BudgetUnsettled" in [type(event).__name__ for event in result.events]


class StuckLedger(MemoryLedger):
    """A ledger that hangs on entries of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    async def record(self, entry: Entry) -> None:
        if entry.kind == self._kind:
            await asyncio.Event().wait()
        await super().record(entry)


class CancellingLedger(MemoryLedger):
    """A ledger that raises `CancelledError`."""

    async def record(self, entry: Entry) -> None:
        if entry.kind == "receipt":
            raise asyncio.CancelledError


class StuckBudgets(MemoryBudgets):
    async def reserve(self, claim: Claim) -> Reservation | None:
        await asyncio.Event().wait()
        return None


STUCK: dict[str, tuple[dict[str, Any], str, str]] = {
    "a ledger, before the call": ({"ledger": StuckLedger("decision")}, "not_available", "LEDGER_UNAVAILABLE"),
    "a ledger, after the call": ({"ledger": StuckLedger("receipt")}, "execution_failed", "LEDGER_UNAVAILABLE"),
    "a ledger that cancels": ({"ledger": CancellingLedger()}, "execution_failed", "LEDGER_UNAVAILABLE"),
    "budgets": ({"budgets": StuckBudgets()}, "not_available", "BACKEND_MISSING"),
}


def test_a_store_that_never_answers_does_not_hold_up_a_call(tmp_path: Path) -> None:
    allowed = {"fs_reach": {"write": ["/srv"]}, "budget": {"max_cost_usd": 50}, "limits": {"wall_seconds": 2}}
    gates = [
        gate(tmp_path, write, backends=Backends.memory(files={"/srv/b": b""}, **stores), **allowed)
        for stores, _, _ in STUCK.values()
    ]
    results = asyncio.run(at_once([asked(at, "write") for at in gates]))
    for (how, (_, code, reason)), result in zip(STUCK.items(), results, strict=True):
        assert (result.ok, result.code, result.reason) == (False, code, reason), how


MANY = """
import asyncio, json, os, sys
from pathlib import Path
from licet import Backends, Gate, load_manifest, tool
from licet.backends.budgets import SqliteBudgets
from licet.backends.kv import SqliteKv
from licet.backends.ledger.writer import SqliteLedger
from licet import Context

@tool(needs=["storage:write:session"], effect="read_only", sandbox="native", cost_usd="0.001")
async def keep(ctx: Context, number: int) -> int:
    await ctx.kv.set(f"n{number}", number)
    return number

folder, many, calls = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
(folder / "a.json").write_text(json.dumps({"agent": "a", "capabilities": {"tools": ["keep"], "native": ["keep"],
    "budget": {"max_cost_usd": 500}, "limits": {"wall_seconds": 120}}}))

manifest = load_manifest(folder / "a.json")
Gate(manifest, [keep], Backends.memory())  # what takes long is loaded once

def work():
    state = folder / "state"
    backends = Backends.memory(kv=SqliteKv(state / "kv"), budgets=SqliteBudgets(state / "budgets"),
        ledger=SqliteLedger(state / "ledger.sqlite"))
    gate = Gate(manifest, [keep], backends)
    async def run():
        async with gate.session(f"s{os.getpid()}") as session:
            return [(await session.call("keep", {"number": number})).explain().splitlines()[0][:5]
                for number in range(calls)]
    return asyncio.run(run())

ends = []
for _ in range(many):
    reading, writing = os.pipe()
    if not os.fork():
        try:
            os.write(writing, json.dumps(work()).encode())
        except BaseException as wrong:
            os.write(writing, json.dumps([f"{wrong!r}"]).encode())
        os._exit(0)
    os.close(writing)
    ends.append(reading)
print(json.dumps([json.loads(open(end).read() or "[]") for end in ends]))
"""


def test_many_processes_on_one_store_lose_no_call(tmp_path: Path) -> None:
    many = 64 if LONG else 8
    said = json.loads(warm.run(MANY, [str(tmp_path), str(many), "3"]).stdout)
    assert said == [["done:"] * 3] * many
