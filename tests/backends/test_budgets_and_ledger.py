"""A reservation is on the disk before the decision that follows it, though only the decision waits for the disk."""

import asyncio
import os
from pathlib import Path

import pytest

from backends.test_budgets_contract import claim, reserved, used
from licet.backends import sqlite as file
from licet.backends.budgets import SqliteBudgets
from licet.backends.ledger.writer import SqliteLedger
from licet.core.ledger.entry import Entry
from licet.guard.ports import LedgerUnavailable, Unavailable

ENTRY = Entry(
    kind="decision", id="r-1", agent="a", session="s", tool="t", time="2026-01-01T00:00:00.000000Z", manifest=""
)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that licet itself syncs, in order; they are synced as always."""
    names: list[str] = []

    def sync(descriptor: int) -> None:
        names.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        os.fsync(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    return names


def test_a_decision_makes_the_reservation_before_it_durable(tmp_path: Path, synced: list[str]) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    budgets = SqliteBudgets(tmp_path / "budgets.sqlite", ledger)

    async def go() -> None:
        await reserved(budgets, claim())
        assert synced == []  # nobody has waited for the disk yet
        await ledger.record(ENTRY)
        assert synced == ["budgets.sqlite-wal"]
        await ledger.record(ENTRY)
        assert synced == ["budgets.sqlite-wal"]  # nothing was reserved in between

    asyncio.run(go())
    ledger.close()
    budgets.close()


def test_without_the_reservation_on_the_disk_no_decision_is_kept(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")

    def broken() -> None:
        raise Unavailable("budgets.sqlite cannot be written to the disk: no space")

    ledger.flush_first(broken)
    with pytest.raises(LedgerUnavailable, match="no space"):
        asyncio.run(ledger.record(ENTRY))
    ledger.close()


def test_a_sync_that_failed_is_done_again_before_the_next_decision(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    budgets = SqliteBudgets(tmp_path / "budgets.sqlite", ledger)

    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    async def go() -> None:
        await reserved(budgets, claim())
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", fails)
            with pytest.raises(LedgerUnavailable, match="cannot be written to the disk"):
                await ledger.record(ENTRY)
        await ledger.record(ENTRY)
        assert synced == ["budgets.sqlite-wal"]

    asyncio.run(go())
    ledger.close()
    budgets.close()


def test_a_log_that_was_copied_and_removed_counts_as_flushed(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    budgets = SqliteBudgets(tmp_path / "budgets.sqlite", ledger)

    async def go() -> None:
        await reserved(budgets, claim())
        budgets.close()  # the last connection copies the log into the database, and removes it
        assert not (tmp_path / "budgets.sqlite-wal").exists()
        await ledger.record(ENTRY)
        assert await budgets.usage("a", "s", "2026-01-01") == used(1, "0.10")

    asyncio.run(go())
    ledger.close()
    budgets.close()


def test_the_log_of_budgets_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "FLUSHES_A_CHECKPOINT", 5)
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    budgets = SqliteBudgets(tmp_path / "budgets.sqlite", ledger)
    sizes = []

    async def go() -> None:
        for _ in range(40):
            await budgets.settle(await reserved(budgets, claim()), claim().cost_usd)
            await ledger.record(ENTRY)
            sizes.append((tmp_path / "budgets.sqlite-wal").stat().st_size)

    asyncio.run(go())
    assert max(sizes) == max(sizes[:10])
    ledger.close()
    budgets.close()
