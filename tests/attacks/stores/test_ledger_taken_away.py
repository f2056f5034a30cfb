"""Somebody takes the ledger and its last head away, and leaves the key: no new history is begun under that key.

And somebody puts a trigger or a view into a store: nothing is written to it.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from guard.gates import call, gate
from kept_calls import run
from licet import Backends, Context, Gate, Result, tool
from licet.backends.budgets import SqliteBudgets
from licet.backends.kv import SqliteKv
from licet.backends.ledger.writer import SqliteLedger


@tool(needs=["storage:write:session"], effect="read_only", sandbox="native", cost_usd="1")
async def keep(ctx: Context) -> str:
    """Keep something."""
    await ctx.kv.set("a", 1)
    return "kept"


def opened(folder: Path) -> tuple[Gate, SqliteLedger]:
    state = folder / "state"
    ledger = SqliteLedger(state / "ledger.sqlite")
    budgets, kv = SqliteBudgets(state / "budgets.sqlite"), SqliteKv(state / "kv.sqlite")
    backends = Backends.memory(ledger=ledger, budgets=budgets, kv=kv)
    return gate(folder, keep, backends=backends, budget={"max_cost_usd": 100}), ledger


def called(folder: Path) -> Result:
    at, ledger = opened(folder)
    try:
        return call(at, "keep")
    finally:
        ledger.close()


def remove(state: Path, *names: str) -> None:
    for name in names:
        for file in state.glob(f"ledger.{name}*"):
            file.unlink()


def test_a_ledger_that_was_taken_away_with_its_head_is_not_begun_anew(tmp_path: Path) -> None:
    assert called(tmp_path).ok
    state = tmp_path / "state"
    remove(state, "sqlite", "head")
    verified = run(state, "receipts", "verify")
    assert verified.exit_code == 1
    assert "the ledger was removed" in verified.output
    for _ in range(2):  # and it stays so
        result = called(tmp_path)
        assert (result.ok, result.reason) == (False, "LEDGER_UNAVAILABLE")
        assert "put them back from a backup" in result.explain()
    remove(state, "")  # the way out that is told
    assert called(tmp_path).ok
    assert run(state, "receipts", "verify").exit_code == 0


def test_a_ledger_that_was_taken_away_while_it_was_open_is_noticed(tmp_path: Path) -> None:
    at, ledger = opened(tmp_path)
    try:
        assert call(at, "keep").ok
        remove(tmp_path / "state", "sqlite", "head")
        result = call(at, "keep")
    finally:
        ledger.close()
    assert (result.ok, result.reason) == (False, "LEDGER_UNAVAILABLE")


def test_a_process_that_ended_before_its_first_entry_does_not_keep_others_from_beginning(tmp_path: Path) -> None:
    assert called(tmp_path).ok
    remove(tmp_path / "state", "sqlite", "key", "pub")
    head = tmp_path / "state" / "ledger.head"
    written = head.read_text()
    assert not called(tmp_path).ok  # a head over entries: the key went with the ledger
    assert head.read_text() == written
    remove(tmp_path / "state", "")
    assert called(tmp_path).ok


ACTING = {
    "a trigger": "CREATE TRIGGER t AFTER {what} ON {table} BEGIN DELETE FROM {table}; END",
    "a view": "CREATE VIEW v AS SELECT 1",
    "another table": "CREATE TABLE more (a)",
    "another index": "CREATE INDEX more ON {table} ({column})",
}
STORES: dict[str, tuple[str, str, str, Callable[[Result], bool]]] = {
    "ledger": ("INSERT", "entries", "body", lambda result: result.reason == "LEDGER_UNAVAILABLE"),
    "budgets": ("INSERT", "sessions", "calls", lambda result: result.reason == "BACKEND_MISSING"),
    "kv": ("INSERT", "entries", "value", lambda result: result.reason == "BACKEND_MISSING"),
}


@pytest.mark.parametrize("open_already", [True, False], ids=["open", "closed"])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("acting", ACTING)
@pytest.mark.sampled(8)
def test_nothing_is_written_to_a_store_that_acts_on_it(
    tmp_path: Path, acting: str, store: str, open_already: bool
) -> None:
    what, table, column, is_refused = STORES[store]
    at, ledger = opened(tmp_path)
    try:
        assert call(at, "keep").ok
        if not open_already:
            ledger.close()
            at, ledger = opened(tmp_path)
        with closing(sqlite3.connect(tmp_path / "state" / f"{store}.sqlite")) as db:
            db.execute(ACTING[acting].format(what=what, table=table, column=column))
            db.commit()
            before = db.execute(f"SELECT * FROM {table}").fetchall()
            result = call(at, "keep")
            assert db.execute(f"SELECT * FROM {table}").fetchall() == before
    finally:
        ledger.close()
    assert not result.ok
    assert is_refused(result), result.explain()
    assert "which licet does not make" in result.explain()


def test_entries_after_the_log_was_taken_away_are_kept_where_others_read_them(tmp_path: Path) -> None:
    """Writes to a removed write-ahead log would be acknowledged, and gone when the process is killed."""
    at, ledger = opened(tmp_path)
    try:
        assert call(at, "keep").ok
        for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
            (tmp_path / "state" / name).unlink()
        acknowledged = 2 + sum(2 for _ in range(2) if call(at, "keep").ok)
        with closing(sqlite3.connect(tmp_path / "state" / "ledger.sqlite")) as db:  # as after `kill -9`
            [(kept,)] = db.execute("SELECT count(*) FROM entries")
        assert kept >= acknowledged
    finally:
        ledger.close()
