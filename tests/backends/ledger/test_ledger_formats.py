"""Ledgers of other formats: an older one is read as it is and brought up when written to; all else is refused."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import older_ledgers
from guard.gates import call, gate
from licet import Backends, Gate, tool
from licet.assemble.ledger import public_key
from licet.backends.ledger import writer
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.state import FORMAT
from licet.backends.ledger.verify import verify_ledger
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.sqlite import file
from licet.backends.sqlite.file import SqliteFile
from licet.guard.ports import LedgerUnavailable
from older_ledgers import set_back, state

PROGRAM = Path(older_ledgers.__file__)


@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int) -> int:
    """Add one."""
    return a + 1


def at(folder: Path, ledger: SqliteLedger) -> Gate:
    return gate(folder, add, backends=Backends.memory(ledger=ledger))


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger of some calls, in format 1, with a name as ledgers had then."""
    monkeypatch.setattr(writer, "new_name", lambda: "0123456789abcdef" * 2)
    path = tmp_path / "state" / "ledger.sqlite"
    ledger = SqliteLedger(path)
    for session in ("s", "z", "s"):
        assert call(at(tmp_path, ledger), "add", {"a": 1}, session=session).ok
    ledger.close()
    set_back(path)
    assert state(path)["version"] == 1
    return path


def version(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {number}")
        db.commit()


def test_an_older_ledger_is_read_and_verified_as_it_is(older: Path) -> None:
    before = state(older), older.read_bytes()
    with LedgerReader(older) as reader:
        assert reader.version == 1
        assert [row.number for row in reader.list(tool="add")] == [6, 4, 2]
        assert [row.number for row in reader.list(session="z")] == [4]
        assert [row.kind for row in reader.show(reader.list(limit=1)[0].id)] == ["decision", "receipt"]
    outcome = verify_ledger(older, public_key(None, older))
    assert (outcome.finding, outcome.entries, outcome.signed) == (None, 6, 6)
    assert (state(older), older.read_bytes()) == before


def test_the_tables_of_an_older_ledger_are_held_to_its_format(older: Path) -> None:
    with closing(sqlite3.connect(older)) as db:
        db.execute("DROP INDEX by_agent")
        db.execute("CREATE INDEX by_agent ON entries (agent) WHERE kind = 'receipt' AND number < 3")
        db.commit()
    finding = verify_ledger(older, public_key(None, older)).finding
    assert finding is not None
    assert "its tables are not those that licet makes" in str(finding)


def test_the_next_call_brings_an_older_ledger_up_and_changes_nothing_that_was_kept(tmp_path: Path, older: Path) -> None:
    with LedgerReader(older) as reader:
        kept, signed = list(reader.entries()), list(reader.heads())
    ledger = SqliteLedger(older)
    assert call(at(tmp_path, ledger), "add", {"a": 1}).ok
    ledger.close()
    with LedgerReader(older) as reader:
        assert reader.version == FORMAT.version
        assert list(reader.entries())[: len(kept)] == kept
        assert set(signed[:1]) <= set(reader.heads())
        assert [row.sequence for row in reader.entries() if row.session == "s"] == [1, 2, 3, 4, 5, 6]
    assert state(older)["foreign"] == ""
    assert verify_ledger(older, public_key(None, older)).ok


def test_once_it_is_brought_up_nothing_without_a_right_tag_is_gone_on_with(tmp_path: Path, older: Path) -> None:
    ledger = SqliteLedger(older)
    assert call(at(tmp_path, ledger), "add", {"a": 1}).ok
    ledger.close()
    with closing(sqlite3.connect(older)) as db:
        db.execute("UPDATE ledger SET tag = zeroblob(32)")
        db.commit()
    result = call(at(tmp_path, SqliteLedger(older)), "add", {"a": 1})
    assert result.reason == "LEDGER_UNAVAILABLE"
    assert "was changed by somebody who has not its key" in result.explain()


def test_a_ledger_of_today_cannot_be_passed_off_as_an_older_one(tmp_path: Path) -> None:
    """Whoever has no key could otherwise do without a tag."""
    path = tmp_path / "state" / "ledger.sqlite"
    ledger = SqliteLedger(path)
    assert call(at(tmp_path, ledger), "add", {"a": 1}).ok
    ledger.close()
    set_back(path)
    finding = verify_ledger(path, public_key(None, path)).finding
    assert finding is not None
    assert "the tag of its end, which the ledger had from its beginning, was taken out" in finding.text
    kept = state(path)["kept"]
    result = call(at(tmp_path, SqliteLedger(path)), "add", {"a": 1})
    assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
    assert "was changed by somebody who has not its key" in result.explain()
    assert state(path)["kept"] == kept


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (0, "has format 0, which this licet no longer reads"),
        (FORMAT.version + 1, f"was written by a newer licet (format {FORMAT.version + 1}): use that one"),
    ],
)
def test_what_no_step_leads_from_is_refused_by_who_reads_and_who_writes(
    tmp_path: Path, older: Path, number: int, why: str
) -> None:
    version(older, number)
    before = state(older)
    with pytest.raises(LedgerUnavailable) as refusal:
        LedgerReader(older)
    assert why in str(refusal.value)
    ledger = SqliteLedger(older)
    result = call(at(tmp_path, ledger), "add", {"a": 1})
    ledger.close()
    assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
    assert why in result.explain()
    assert state(older) == before


def test_an_older_ledger_without_its_last_head_is_not_gone_on_with(tmp_path: Path, older: Path) -> None:
    """Whoever sets a ledger back could take that file away too, and say that the ledger is from before it was kept."""
    older.with_suffix(".head").unlink()
    kept = state(older)["kept"]
    ledger = SqliteLedger(older)
    result = call(at(tmp_path, ledger), "add", {"a": 1})
    ledger.close()
    assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
    assert "if there never was one, or it is lost, keep what is there, and move" in result.explain()
    assert state(older)["kept"] == kept
    assert verify_ledger(older, public_key(None, older)).ok  # it can be read and verified all the same


def test_whoever_is_killed_while_it_is_brought_up_leaves_the_older_ledger_or_the_newer(older: Path) -> None:
    before = state(older)
    words = [sys.executable, str(PROGRAM), str(older.parent), "20"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["code"] == 0
    assert len(seen["left"]) > 20  # moments at which it was killed
    for left in seen["left"]:
        assert (left["whole"], left["kept"]) == ("ok", before["kept"])
        assert left["foreign"] == ""
    versions = [left["version"] for left in seen["left"]]
    assert (versions[0], versions[-1]) == (1, FORMAT.version)


def test_a_file_that_another_process_makes_at_the_same_moment_is_not_taken_for_another_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its format is two numbers, and the first may be read before the file is made, the second after."""
    path, number, asked = tmp_path / "state" / "ledger.sqlite", file._number, list[str]()

    def meanwhile(db: sqlite3.Connection, pragma: str) -> int:
        asked.append(pragma)
        found = number(db, pragma)
        if len(asked) == 1:
            SqliteFile(path, FORMAT, "FULL").write_waiting(lambda db: None)
        return found

    monkeypatch.setattr(file, "_number", meanwhile)
    assert call(at(tmp_path, SqliteLedger(path)), "add", {"a": 1}).ok
