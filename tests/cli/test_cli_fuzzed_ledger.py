"""Ledgers with any value in any column: every command ends with a finding or an error, never with an internal error.

SQLite takes a value of any type in any column, and anybody who can write the file can put it there.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kept_calls import make, run

COLUMNS = {
    "entries": ["id", "kind", "agent", "session", "sequence", "tool", "verdict", "time", "hash", "body"],
    "chains": ["agent", "session", "sequence", "hash", "number"],
    "checkpoints": ["size", "body", "signature"],
    "ledger": ["one", "id", "key", "size", "frontier", "recorded", "signed", "signed_ms", "tag"],
}
VALUES = {
    "null": "NULL",
    "a number": "7",
    "the largest number": "9223372036854775807",
    "a negative number": "-1",
    "a fraction": "1.5",
    "infinity": "9e999",
    "a text": "'x'",
    "no text": "CAST(x'ff00fe' AS TEXT)",
    "a control character": "char(27) || '[2J'",
    "bytes": "x'ff00'",
    "no bytes": "x''",
    "a long text": "replace(hex(zeroblob(200000)), '00', 'ab')",
    "nested": "CAST(replace(hex(zeroblob(100000)), '00', '[') AS BLOB)",
    "a long integer": "CAST(replace(hex(zeroblob(10000)), '00', '1') AS BLOB)",
}
COMMANDS = {
    "verify": ["receipts", "verify"],
    "verify as JSON": ["receipts", "verify", "--json"],
    "list": ["receipts", "list"],
    "list as JSON": ["receipts", "list", "--json", "--since", "2026-01-01", "--until", "2027-01-01"],
    "head": ["receipts", "head"],
    "export": ["receipts", "export", "--session", "s-1"],
}
TABLES = [(table, column) for table, columns in COLUMNS.items() for column in columns]


@pytest.fixture(scope="module")
def ledger(store_root: Path) -> Path:
    """A state directory with an intact ledger."""
    return make(Path(tempfile.mkdtemp(dir=store_root)) / "workspace")


def changed(ledger: Path, folder: Path, script: str) -> Path:
    """A copy of a ledger that was changed by statements, with the checks of SQLite switched off."""
    state = folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(ledger, state)
    with closing(sqlite3.connect(state / "ledger.sqlite")) as db:
        db.executescript("PRAGMA ignore_check_constraints = ON; PRAGMA writable_schema = ON;")
        db.executescript(script)
    return state


def loosened(ledger: Path, folder: Path, script: str) -> Path:
    """As `changed`, with NULL allowed in every column; the schema is restored afterwards."""
    state = folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(ledger, state)
    with closing(sqlite3.connect(state / "ledger.sqlite", isolation_level=None)) as db:
        before = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    with closing(sqlite3.connect(state / "ledger.sqlite", isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.executescript(script)
        db.execute("PRAGMA writable_schema = ON")
        db.executemany("UPDATE sqlite_master SET sql = ? WHERE name = ?", [(sql, name) for name, sql in before])
    return state


def told(state: Path) -> Iterator[str]:
    """The commands that ended with an internal error, with their output."""
    for name, words in COMMANDS.items():
        result = run(state, *words)
        if result.exit_code not in (0, 1, 2) or "unexpected" in result.output:
            yield f"{name}: {result.exit_code} {result.output[-300:]} {result.exception!r}"


@pytest.mark.parametrize(("table", "column"), TABLES, ids=[f"{table}.{column}" for table, column in TABLES])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.sampled(27)
def test_any_value_in_any_column_is_reported(
    ledger: Path, store_path: Path, table: str, column: str, value: str
) -> None:
    where = "WHERE rowid = 3" if table == "entries" else ""
    try:
        state = loosened(ledger, store_path, f"UPDATE OR REPLACE {table} SET {column} = {value} {where}")
    except sqlite3.Error:  # SQLite itself takes no such value there
        return
    assert list(told(state)) == []
    if run(state, "receipts", "verify").exit_code == 0:
        with closing(sqlite3.connect(state / "ledger.sqlite")) as db:
            assert db.execute(f"SELECT count(*) FROM {table} WHERE {column} IS {value}").fetchone()[0] == 0


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
SCHEMAS = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
    "a view": "CREATE VIEW v AS SELECT 1",
    "another table": "CREATE TABLE more (a)",
    "another index": "CREATE INDEX more ON entries (body)",
    "a missing table": "DROP TABLE chains",
    "every table missing": "DROP TABLE chains; DROP TABLE checkpoints; DROP TABLE entries; DROP TABLE ledger",
    "a missing index": "DROP INDEX by_id",
    "another column": "ALTER TABLE checkpoints ADD COLUMN more",
    "statistics": "ANALYZE",
    "no text in a schema": "UPDATE sqlite_master SET sql = sql || CAST(x'202f2aff2a2f' AS TEXT) "
    "WHERE name = 'checkpoints'",
    "no text as a name": "CREATE TABLE more (a); "
    "UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT) WHERE name = 'more'",
    "a schema that is none": "UPDATE sqlite_master SET sql = 'nonsense' WHERE name = 'checkpoints'",
    "an endless view for entries": f"DROP TABLE entries; CREATE VIEW entries AS {ENDLESS} i AS number, 'x' AS id, "
    "'receipt' AS kind, 'a' AS agent, 's' AS session, 1 AS sequence, 't' AS tool, 'allow' AS verdict, 'x' AS time, "
    "x'00' AS hash, x'00' AS body FROM n",
    "an endless view for checkpoints": f"DROP TABLE checkpoints; CREATE VIEW checkpoints AS {ENDLESS} i AS size, "
    "x'' AS body, x'' AS signature FROM n",
    "an endless view for the ledger": f"DROP TABLE ledger; CREATE VIEW ledger AS {ENDLESS} i AS one, 'x' AS id, "
    "'x' AS key, 1 AS size, x'' AS frontier, '' AS recorded, 1 AS signed, 1.0 AS signed_ms, x'' AS tag "
    "FROM n WHERE i < 0",
    "an endless view for the ends": f"DROP TABLE chains; CREATE VIEW chains AS {ENDLESS} 'a' AS agent, i AS session, "
    "1 AS sequence, x'' AS hash, 1 AS number FROM n",
}


@pytest.mark.parametrize("script", SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_that_licet_did_not_make_is_reported_before_any_row_is_read(
    ledger: Path, tmp_path: Path, script: str
) -> None:
    state = changed(ledger, tmp_path, script)
    assert list(told(state)) == []
    assert run(state, "receipts", "verify").exit_code == 1


ROWS = {
    "a second ledger": "INSERT INTO ledger "
    "SELECT 2, id, key, size, frontier, recorded, signed, signed_ms, tag FROM ledger",
    "no ledger": "DELETE FROM ledger",
    "many ledgers": "INSERT INTO ledger SELECT number + 1, 'x', 'y', 1, x'', '', 1, 1.0, x'' FROM entries",
    "no checkpoints": "DELETE FROM checkpoints",
    "a checkpoint of everything": "INSERT INTO checkpoints VALUES (9223372036854775807, x'00', 7)",
    "a checkpoint before everything": "INSERT INTO checkpoints VALUES (-5, 'x', NULL)",
    "an entry far away": "INSERT INTO entries SELECT 9223372036854775807, id, kind, agent, session, sequence, tool, "
    "verdict, time, hash, body FROM entries LIMIT 1",
    "an entry before everything": "INSERT INTO entries SELECT -9223372036854775807, id, kind, agent, session, "
    "sequence, tool, verdict, time, hash, body FROM entries LIMIT 1",
    "no entries": "DELETE FROM entries",
}


@pytest.mark.parametrize("script", ROWS.values(), ids=ROWS)
def test_rows_that_licet_did_not_write_are_reported(ledger: Path, tmp_path: Path, script: str) -> None:
    state = changed(ledger, tmp_path, script.replace("(-5, 'x', NULL)", "(-5, 'x', 'y')"))
    assert list(told(state)) == []
    assert run(state, "receipts", "verify").exit_code == 1


OTHERS: dict[str, Callable[[Path], object]] = {
    "a directory": os.mkdir,
    "a named pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a loop of links": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("/nowhere"),
    "no text": lambda path: path.write_bytes(b"\xff" * 100),
    "nothing": lambda path: path.touch(),
}


@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.head", "ledger.pub", "ledger.key", "ledger.sqlite-wal"])
@pytest.mark.parametrize("other", OTHERS)
def test_no_regular_file_in_the_place_of_one_is_reported(ledger: Path, tmp_path: Path, name: str, other: str) -> None:
    state = tmp_path / "state"
    shutil.copytree(ledger, state)
    (state / name).unlink(missing_ok=True)
    OTHERS[other](state / name)
    assert list(told(state)) == []


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("words", [["receipts", "verify", "FILE"], ["receipts", "verify", "--head", "FILE"]])
def test_no_regular_file_on_the_command_line_is_reported(
    ledger: Path, tmp_path: Path, other: str, words: list[str]
) -> None:
    named = tmp_path / "named"
    OTHERS[other](named)
    for given in (words, [*words, "--key", str(named)]):
        result = run(ledger, *(str(named) if word == "FILE" else word for word in given))
        assert result.exit_code in (1, 2), result.output
        assert "unexpected" not in result.output
