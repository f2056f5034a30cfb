"""Ledgers of other formats: older and newer ones are refused, by readers and by writers, and stay as they are."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from guard.gates import call, gate
from kept_calls import run
from licet import Backends, Gate, tool
from licet.backends import sqlite as file
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.state import FORMAT
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.sqlite import SqliteFile
from licet.guard.ports import LedgerUnavailable


@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int) -> int:
    """Add one."""
    return a + 1


def at(folder: Path, ledger: SqliteLedger) -> Gate:
    return gate(folder, add, backends=Backends.memory(ledger=ledger))


OLDER = "was written by an older licet: it holds entries of format 1, and this version reads format 2"
OTHER_FORMATS = [
    (1, OLDER),
    (2, OLDER),
    (FORMAT.version + 1, f"was written by a newer licet (format {FORMAT.version + 1}): use that one"),
]


@pytest.mark.parametrize(("number", "why"), OTHER_FORMATS)
def test_a_ledger_of_another_format_is_refused_and_stays_as_it_is(tmp_path: Path, number: int, why: str) -> None:
    path = tmp_path / "state" / "ledger.sqlite"
    ledger = SqliteLedger(path)
    assert call(at(tmp_path, ledger), "add", {"a": 1}).ok
    ledger.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {number}")
        db.commit()
    before = path.read_bytes()
    with pytest.raises(LedgerUnavailable) as refusal:
        LedgerReader(path)
    assert why in str(refusal.value)
    result = call(at(tmp_path, ledger), "add", {"a": 1})
    ledger.close()
    assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
    assert why in result.explain()
    for words in (("list",), ("verify",)):
        done = run(path.parent, "receipts", *words)
        assert (done.exit_code, why in done.stderr) == (1, True)
    assert path.read_bytes() == before


def test_a_file_that_another_process_makes_at_the_same_moment_is_not_taken_for_another_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A format is two numbers. The first may be read before the file is made, the second after it."""
    path, number, asked = tmp_path / "state" / "ledger.sqlite", file._number, list[str]()

    def meanwhile(db: sqlite3.Connection, pragma: str) -> int:
        asked.append(pragma)
        found = number(db, pragma)
        if len(asked) == 1:
            SqliteFile(path, FORMAT, "FULL").try_write(lambda db: None, 5)
        return found

    monkeypatch.setattr(file, "_number", meanwhile)
    assert call(at(tmp_path, SqliteLedger(path)), "add", {"a": 1}).ok
