"""Files with a format: an empty one is set up, an older one migrated in one step, a newer one not changed."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from licet.backends.sqlite import Format, SqliteFile
from licet.guard.ports import Unavailable

OURS = 0x6C696354
NOW = Format(
    OURS,
    2,
    "CREATE TABLE notes (text TEXT, length INTEGER)",
    {
        0: "CREATE TABLE notes (text TEXT); INSERT INTO notes SELECT words FROM papers; DROP TABLE papers",
        1: "ALTER TABLE notes ADD COLUMN length INTEGER; UPDATE notes SET length = length(text)",
    },
)


def fixture(path: Path, version: int, application: int = OURS) -> None:
    """A file as an earlier version wrote it."""
    with closing(sqlite3.connect(path)) as db:
        table = "papers (words TEXT)" if version == 0 else "notes (text TEXT)"
        db.execute(f"CREATE TABLE {table}")
        db.execute(f"INSERT INTO {table.split(maxsplit=1)[0]} VALUES ('kept')")
        db.execute(f"PRAGMA application_id = {application}")
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()
    path.chmod(0o600)


def notes(path: Path, kind: Format = NOW) -> list[Any]:
    file = SqliteFile(path, kind)
    try:
        return asyncio.run(file.read(lambda db: db.execute("SELECT * FROM notes").fetchall()))
    finally:
        file.close()


@pytest.mark.parametrize("version", [0, 1])
def test_an_older_file_is_brought_up_step_by_step(tmp_path: Path, version: int) -> None:
    path = tmp_path / "f"
    fixture(path, version)
    assert notes(path) == [("kept", 4)]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert notes(path) == [("kept", 4)]  # and once is enough


class Overtaken(sqlite3.Connection):
    """A connection to a file whose tables another process makes right before this one looks for them."""

    path: Path | None = None

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
        if "sqlite_master" in sql and Overtaken.path is not None:
            path, Overtaken.path = Overtaken.path, None
            notes(path)
        return super().execute(sql, *rest)


def test_tables_that_appear_while_a_file_is_looked_at_are_ours(tmp_path: Path) -> None:
    (tmp_path / "f").touch(0o600)
    Overtaken.path = tmp_path / "f"
    with closing(sqlite3.connect(tmp_path / "f", isolation_level=None, factory=Overtaken)) as db:
        assert SqliteFile(tmp_path / "f", NOW)._version(db) == 2


def test_an_empty_file_is_made_at_once(tmp_path: Path) -> None:
    assert notes(tmp_path / "f") == []


def test_a_step_that_fails_leaves_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    fixture(path, 0)
    broken = replace(NOW, steps={**NOW.steps, 1: "ALTER TABLE notes ADD COLUMN length; SELECT * FROM nowhere"})
    with pytest.raises(Unavailable, match="no such table: nowhere"):
        notes(path, broken)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT words FROM papers").fetchall() == [("kept",)]
        assert db.execute("PRAGMA user_version").fetchone() == (0,)
    assert notes(path) == [("kept", 4)]


REFUSED = [
    (3, OURS, "written by a newer licet \\(format 3\\): use that one"),
    (2, 77, "a database of another program"),
    (0, 0, "a database of another program"),
]


@pytest.mark.parametrize(("version", "application", "why"), REFUSED)
def test_newer_and_foreign_files_are_refused_and_not_changed(
    tmp_path: Path, version: int, application: int, why: str
) -> None:
    path = tmp_path / "f"
    fixture(path, version, application)
    before = path.read_bytes()
    with pytest.raises(Unavailable, match=why):
        notes(path)
    assert path.read_bytes() == before


def test_a_format_that_no_step_leads_from_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    fixture(path, 0)
    with pytest.raises(Unavailable, match="has format 0, which this licet no longer reads"):
        notes(path, replace(NOW, steps={1: NOW.steps[1]}))


def test_a_thread_that_may_wait_writes_the_same_way(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "f", NOW)
    assert file.try_write(lambda db: db.execute("INSERT INTO notes VALUES ('a', 1)").rowcount, 5) == (1,)
    with pytest.raises(ZeroDivisionError):
        file.try_write(lambda db: db.execute("INSERT INTO notes VALUES ('b', 1)").rowcount // 0, 5)
    file.close()
    assert notes(tmp_path / "f") == [("a", 1)]


def test_a_full_file_is_reported_with_advice(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "notes.sqlite", NOW)

    def fill(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA max_page_count = 1")  # it is not made smaller than it is
        db.execute("INSERT INTO notes VALUES (?, 0)", ("x" * 1_000_000,))

    try:
        with pytest.raises(Unavailable, match=r"notes\.sqlite cannot be used: .* full: make room where it is$"):
            asyncio.run(file.write(fill))
    finally:
        file.close()
