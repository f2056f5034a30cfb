"""The file of approvals: it survives, stays small, and detects changes."""

import asyncio
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from guard.questions import question
from licet.backends.approvals.requests import CannotAnswer
from licet.backends.approvals.store import SqliteApprovals
from licet.guard.ports import Answered, Unavailable

DAY = 24 * 3600


class Store(SqliteApprovals):
    """A store with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.time = 1_000_000.0
        super().__init__(folder / "state" / "approvals.sqlite", lambda: self.time)

    def get(self, *words: Any, **changes: Any) -> Answered:
        return asyncio.run(self.ask(question(*words, **changes)))

    def agree(self, request: str) -> None:
        asyncio.run(self.approve(asyncio.run(self.find(request))))

    def refuse(self, request: str) -> None:
        asyncio.run(self.deny(asyncio.run(self.find(request))))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_the_file_is_for_its_owner_alone(store: Store, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store.get()
    finally:
        os.umask(old)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()} == {0o600}
    store.close()


def test_acknowledged_writes_survive_a_power_cut(store: Store) -> None:
    store.get()
    level = asyncio.run(store._file.read(lambda db: db.execute("PRAGMA synchronous").fetchone()[0]))
    assert level == 2  # FULL


def test_without_its_arguments_a_request_that_has_not_expired_cannot_be_answered(store: Store) -> None:
    request = store.get().request
    asyncio.run(store._file.write(lambda db: db.execute("UPDATE requests SET arguments = ''").rowcount))
    with pytest.raises(CannotAnswer, match="was changed after it was asked"):
        store.agree(request)
    assert asyncio.run(store.list()) == []


def test_old_finished_requests_take_their_answers_with_them(store: Store) -> None:
    store.agree(store.get().request)
    store.time += 300 + 7 * DAY
    store.get(arguments={"later": 2})
    counted = asyncio.run(store._file.read(lambda db: db.execute("SELECT count(*) FROM answers").fetchone()[0]))
    assert counted == 0


def newer(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    path.chmod(0o600)


@pytest.mark.parametrize(("trouble", "said"), [(newer, "newer licet \\(format 9\\)"), (foreign, "another program")])
def test_a_file_that_cannot_be_trusted_is_a_clear_error(store: Store, tmp_path: Path, trouble: Any, said: str) -> None:
    store.get()
    store.close()
    trouble(tmp_path / "state" / "approvals.sqlite")
    with pytest.raises(Unavailable, match=said):
        store.get()
