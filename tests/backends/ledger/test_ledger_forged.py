"""Histories that were rewritten with the database but without the key: detected, and never signed."""

import hashlib
import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from guard.gates import call, gate
from licet import Backends, Gate, tool
from licet.assemble.ledger import public_key
from licet.backends.ledger.reader import LedgerReader, verify_ledger, wrong_end
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.secrets import check_signature
from licet.core.ledger.merkle import Frontier
from licet.core.ledger.verify import UNSIGNED_SECONDS, Outcome, verify

_HASH = "sha256:"


@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int) -> int:
    """Add one."""
    return a + 1


def at(folder: Path, ledger: SqliteLedger) -> Gate:
    return gate(folder, add, backends=Backends.memory(ledger=ledger))


def calls(folder: Path, ledger: SqliteLedger, number: int) -> None:
    here = at(folder, ledger)
    for _ in range(number):
        assert call(here, "add", {"a": 1}).ok


def verified(path: Path) -> Outcome:
    """Verify with only the database and the public key, as for a copy elsewhere."""
    with LedgerReader(path) as reader:
        return verify(reader.entries(), reader.checkpoints(), key=reader.key, check=check_signature)


class Ticking:
    """A clock that advances by some seconds at each reading."""

    def __init__(self, seconds: float) -> None:
        self.moment, self.step = datetime(2026, 3, 1, 14, tzinfo=UTC), timedelta(seconds=seconds)

    def __call__(self) -> datetime:
        self.moment += self.step
        return self.moment


@pytest.fixture(scope="module")
def written(store_root: Path) -> Path:
    """A ledger with some calls, each covered by a checkpoint. Tests change copies of it."""
    folder = Path(tempfile.mkdtemp(dir=store_root))
    made = folder / "state" / "ledger.sqlite"
    ledger = SqliteLedger(made, Ticking(1))
    here = at(folder, ledger)
    for _ in range(20):
        assert call(here, "add", {"a": 1}).ok
        ledger.close()
    return made


@pytest.fixture
def path(tmp_path: Path, written: Path) -> Path:
    """A copy of that ledger, with its key and its last checkpoint."""
    shutil.copytree(written.parent, tmp_path / "state")
    return tmp_path / "state" / written.name


def rewrite(db: sqlite3.Connection) -> None:
    """Change entry 2, and everything that depends on it."""
    new: dict[str, str] = {}
    frontier = Frontier()
    for number, body, old in db.execute("SELECT number, body, hash FROM entries ORDER BY number").fetchall():
        text = body.decode()
        if number == 2:
            text = text.replace('"verdict":"allow"', '"verdict":"deny"')
            db.execute("UPDATE entries SET verdict = 'deny' WHERE number = 2")
        previous = json.loads(body)["previous"]
        text = text.replace(previous, new[previous]) if previous in new else text
        digest = hashlib.sha256(b"\0" + text.encode()).digest()
        new[_HASH + old.hex()] = _HASH + digest.hex()
        frontier.add(digest)
        db.execute("UPDATE entries SET body = ?, hash = ? WHERE number = ?", (text.encode(), digest, number))
    for session, old in db.execute("SELECT session, hash FROM chains").fetchall():
        digest = bytes.fromhex(new[_HASH + old.hex()].removeprefix(_HASH))
        db.execute("UPDATE chains SET hash = ? WHERE session = ?", (digest, session))
    db.execute("UPDATE ledger SET frontier = ?", (bytes(frontier),))


def without_heads(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM checkpoints WHERE size > 1")
    db.execute("UPDATE ledger SET signed = 1")


def cut(db: sqlite3.Connection) -> None:
    """Remove the end, as if it had never been written."""
    frontier = Frontier()
    for (digest,) in db.execute("SELECT hash FROM entries WHERE number <= 6 ORDER BY number").fetchall():
        frontier.add(digest)
    db.execute("DELETE FROM entries WHERE number > 6")
    db.execute("DELETE FROM checkpoints WHERE size > 6")
    number, session, sequence = db.execute("SELECT number, session, sequence FROM entries WHERE number = 6").fetchone()
    last = db.execute("SELECT hash FROM entries WHERE number = 6").fetchone()[0]
    db.execute(
        "UPDATE chains SET number = ?, sequence = ?, hash = ? WHERE session = ?", (number, sequence, last, session)
    )
    signed = db.execute("SELECT max(size) FROM checkpoints").fetchone()[0]
    db.execute("UPDATE ledger SET size = 6, frontier = ?, signed = ?", (bytes(frontier), signed))


def forge(db: sqlite3.Connection) -> None:
    rewrite(db)
    without_heads(db)


def forge_as_signed(db: sqlite3.Connection) -> None:
    forge(db)
    db.execute("UPDATE ledger SET signed = size")


def never_sign(db: sqlite3.Connection) -> None:
    db.execute("UPDATE ledger SET signed = size + 1000000")


CHANGES: dict[str, Callable[[sqlite3.Connection], None]] = {
    "rewritten": rewrite,
    "rewritten, checkpoints removed": forge,
    "rewritten, checkpoints removed, said to be signed": forge_as_signed,
    "the end cut off, checkpoints removed": cut,
    "said to be signed for long": never_sign,
}


def change(path: Path, how: Callable[[sqlite3.Connection], object]) -> None:
    with closing(sqlite3.connect(path)) as db:
        how(db)
        db.commit()


def refused(folder: Path, path: Path, why: str) -> None:
    """Check that an ordinary call detects it, and neither writes nor signs."""
    with closing(sqlite3.connect(path)) as db:
        before = list(db.iterdump())
    ledger = SqliteLedger(path)
    result = call(at(folder, ledger), "add", {"a": 1})
    ledger.close()
    assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
    assert why in result.explain()
    assert "begin another ledger" in result.explain()
    with closing(sqlite3.connect(path)) as db:
        assert list(db.iterdump()) == before


@pytest.mark.parametrize("how", CHANGES.values(), ids=CHANGES)
@pytest.mark.sampled(2)
def test_nothing_is_signed_on_top_of_a_forged_history(
    tmp_path: Path, path: Path, how: Callable[[sqlite3.Connection], None]
) -> None:
    change(path, how)
    refused(tmp_path, path, "rolled back or changed since its last checkpoint (40 entries at ")


@pytest.mark.parametrize("how", CHANGES.values(), ids=CHANGES)
@pytest.mark.sampled(2)
def test_a_process_that_has_it_open_signs_no_forged_entry(
    tmp_path: Path, path: Path, how: Callable[[sqlite3.Connection], None]
) -> None:
    ledger = SqliteLedger(path)
    calls(tmp_path, ledger, 1)
    last = "SELECT max(size) FROM checkpoints"
    with closing(sqlite3.connect(path, timeout=60)) as db:
        db.execute("BEGIN IMMEDIATE")
        how(db)
        before = db.execute(last).fetchone()
        db.commit()
    call(at(tmp_path, ledger), "add", {"a": 1})
    ledger.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(last).fetchone() == before
    refused(tmp_path, path, "rolled back or changed since its last checkpoint")


VERIFIED = [("rewritten, checkpoints removed", "root"), ("the end cut off, checkpoints removed", "truncated")]


@pytest.mark.parametrize(("how", "kind"), VERIFIED)
def test_verify_checks_a_ledger_against_the_checkpoint_next_to_its_key(path: Path, how: str, kind: str) -> None:
    change(path, CHANGES[how])
    finding = verify_ledger(path, public_key(None, path)).finding
    assert finding is not None
    assert finding.kind == kind, finding


@pytest.mark.parametrize(
    "statement", ["UPDATE chains SET sequence = 1, hash = x'00', number = 1", "DELETE FROM chains"]
)
def test_chains_that_were_changed_are_found_before_anything_follows_them(path: Path, statement: str) -> None:
    assert verify_ledger(path, public_key(None, path)).ok
    change(path, lambda db: db.execute(statement))
    finding = verify_ledger(path, public_key(None, path)).finding
    assert finding is not None
    assert finding.kind == "column"
    assert "the table `chains` says" in finding.text


@pytest.fixture(scope="module")
def two_sessions(store_root: Path) -> Path:
    """A ledger of one session with several calls, and of another with one."""
    folder = Path(tempfile.mkdtemp(dir=store_root))
    ledger = SqliteLedger(folder / "state" / "ledger.sqlite")
    here = at(folder, ledger)
    for session in ("s", "s", "s", "s", "other"):
        assert call(here, "add", {"a": 1}, session=session).ok
    ledger.close()
    return folder / "state"


@pytest.fixture
def long_session(tmp_path: Path, two_sessions: Path) -> Path:
    """A copy of that ledger."""
    shutil.copytree(two_sessions, tmp_path / "state")
    return tmp_path / "state" / "ledger.sqlite"


@pytest.mark.parametrize(
    "changes",
    [
        "sequence = sequence + 1",
        "sequence = 1",
        "hash = zeroblob(32)",
        "hash = (SELECT hash FROM entries WHERE number = 1)",
        "number = 1",
        "number = 1000000",
        "number = 'x'",
        "sequence = 1, number = 10, hash = (SELECT hash FROM entries WHERE number = 10)",  # the end of the other
    ],
)
def test_an_entry_is_only_linked_to_the_real_end_of_its_session(
    tmp_path: Path, long_session: Path, changes: str
) -> None:
    change(long_session, lambda db: db.execute(f"UPDATE chains SET {changes} WHERE session = 's'"))
    refused(tmp_path, long_session, "the table `chains` says that a session ends with entry ")
    ledger = SqliteLedger(long_session)
    assert call(at(tmp_path, ledger), "add", {"a": 1}, session="other").ok  # an intact session continues
    ledger.close()


def test_entries_written_during_verification_are_no_finding(tmp_path: Path, path: Path) -> None:
    with LedgerReader(path) as reader:
        outcome = verify(reader.entries(), reader.checkpoints(), key=reader.key, check=check_signature)
        ledger = SqliteLedger(path)
        calls(tmp_path, ledger, 2)
        ledger.close()
        assert wrong_end(reader, outcome, reader.key) is None
    with LedgerReader(path) as later:
        assert wrong_end(later, outcome, later.key) is not None


def test_a_long_tail_without_a_head_is_not_proven(path: Path) -> None:
    change(path, forge)
    finding = verified(path).finding
    assert finding is not None
    assert (finding.kind, finding.number, finding.until) == ("unsigned", 2, 40)
    assert "not proven" in finding.text


@pytest.mark.parametrize("seconds", [0.0, UNSIGNED_SECONDS / 100])
def test_a_tail_of_moments_is_only_noted(tmp_path: Path, seconds: float) -> None:
    path = tmp_path / "state" / "ledger.sqlite"
    ledger = SqliteLedger(path, Ticking(seconds))
    calls(tmp_path, ledger, 3)
    ledger.close()
    change(path, without_heads)
    outcome = verified(path)
    assert (outcome.ok, outcome.entries, outcome.signed) == (True, 6, 1)


def test_a_ledger_that_is_taken_away_is_missed(tmp_path: Path, path: Path) -> None:
    path.unlink()
    result = call(at(tmp_path, SqliteLedger(path)), "add", {"a": 1})
    assert result.reason == "LEDGER_UNAVAILABLE"
    assert "rolled back or changed since its last checkpoint (40 entries" in result.explain()
    assert f"`licet receipts verify {path}` shows where" in result.explain()


CHECKPOINTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "is missing, which has the last checkpoint"),
    "empty": (lambda head: head.write_bytes(b""), "holds no checkpoint of a ledger"),
    "changed": (
        lambda head: head.write_bytes(head.read_bytes().replace(b'"size":40', b'"size":32')),
        "holds no checkpoint",
    ),
    "dated back": (
        lambda head: head.write_bytes(re.sub(rb"(\btime\b\W+)\d{4}", rb"\g<1>2025", head.read_bytes())),
        "is not signed with",
    ),
}


@pytest.mark.parametrize(("spoil", "why"), CHECKPOINTS.values(), ids=CHECKPOINTS)
@pytest.mark.sampled(2)
def test_a_ledger_is_not_continued_from_an_invalid_checkpoint_file(
    tmp_path: Path, path: Path, spoil: Callable[[Path], object], why: str
) -> None:
    spoil(path.with_suffix(".head"))
    refused(tmp_path, path, why)


def test_an_older_copy_is_not_gone_on_with(tmp_path: Path, path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    shutil.copy(path, copy)
    ledger = SqliteLedger(path)
    calls(tmp_path, ledger, 1)
    ledger.close()
    shutil.copy(copy, path)
    refused(tmp_path, path, "(42 entries at ")


def test_another_ledger_begins_after_the_old_one_was_moved_away(tmp_path: Path, path: Path) -> None:
    change(path, forge)
    kept = tmp_path / "kept"
    kept.mkdir()
    for file in path.parent.glob("ledger.*"):
        file.rename(kept / file.name)
    ledger = SqliteLedger(path)
    calls(tmp_path, ledger, 1)
    ledger.close()
    assert verify_ledger(path, public_key(None, path)).ok
