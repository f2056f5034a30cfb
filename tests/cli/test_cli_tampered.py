"""`licet receipts verify` on a changed ledger: each attack ends with 1 and names the entry."""

import asyncio
import base64
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kept_calls import MANIFEST, look, make, pay, receipts, run
from licet import Backends, Gate, load_manifest
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.secrets import generated_key
from licet.cli.app import licet
from licet.core.ledger.entry import checkpoint_body
from licet.core.ledger.merkle import leaf_hash
from licet.core.ledger.verify import envelope, to_sign
from tampered import changed

FIELDS = ["verdict", "purpose", "previous", "sequence"]  # core/ledger/test_receipt.py attacks every field
COLUMNS = ["tool", "sequence", "hash"]
Attack = Callable[[sqlite3.Connection], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("tampered") / "made")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second ledger of the same calls."""
    return make(tmp_path_factory.mktemp("tampered") / "other")


@pytest.fixture
def state(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "state")
    return tmp_path / "state"


def tamper(state: Path, attack: Attack) -> None:
    with closing(sqlite3.connect(state / "ledger.sqlite")) as db:
        attack(db)
        db.commit()
    assert not (state / "ledger.sqlite-wal").exists()


def sql(*statements: str) -> Attack:
    return lambda db: [db.execute(statement) for statement in statements]


def names(result: Result, first: int, last: int, how: str = "") -> None:
    """Check that a verification ended with 1 and named this entry, or one of these."""
    assert result.exit_code == 1, result.output
    line = result.stdout.splitlines()[0]
    found = re.match(r"wrong: entr(?:y|ies) (\d+)(?: to (\d+))?", line)
    assert found, line
    assert first <= int(found[1]) <= last, line
    assert int(found[2] or found[1]) <= last, line
    assert how in line


def edited(field: str, number: int, *, hashed: bool) -> Attack:
    def attack(db: sqlite3.Connection) -> None:
        (body,) = db.execute("SELECT body FROM entries WHERE number = ?", (number,)).fetchone()
        entry = json.loads(body)
        entry[field] = changed(entry[field])
        body = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        db.execute("UPDATE entries SET body = ? WHERE number = ?", (body, number))
        if hashed:
            db.execute("UPDATE entries SET hash = ? WHERE number = ?", (leaf_hash(body), number))

    return attack


# One entry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_was_edited_is_named_by_its_entry(state: Path, field: str) -> None:
    tamper(state, edited(field, 4, hashed=False))
    names(run(state, "receipts", "verify"), 4, 4, "its bytes are not those that were hashed")


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_was_edited_and_hashed_again_is_located(state: Path, field: str) -> None:
    tamper(state, edited(field, 4, hashed=True))
    names(run(state, "receipts", "verify"), 3, 5)  # the link does not show which of the two was changed


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_says_otherwise_is_named_by_its_entry(state: Path, column: str) -> None:
    tamper(state, sql(f"UPDATE entries SET {column} = 'x' WHERE number = 4"))
    names(run(state, "receipts", "verify"), 4, 4)


@pytest.mark.parametrize("words", [["receipts", "list"], ["receipts", "show", "ID"], ["explain", "ID"]], ids=" ".join)
def test_a_changed_entry_is_not_shown(state: Path, words: list[str]) -> None:
    receipt = receipts(state)[1]["id"]
    tamper(state, edited("verdict", 4, hashed=False))
    result = run(state, *(receipt if word == "ID" else word for word in words))
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"entry 4 ({receipt}) was changed: its bytes are not those that were hashed" in result.stderr
    assert f"run `licet receipts verify {state}/ledger.sqlite`" in result.stderr


WORDS = [["list"], ["show", "ID"], ["export", "ID"]]
PLACES = ["entries SET body", "entries SET hash", "checkpoints SET body", "checkpoints SET signature"]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize("held", ["1 << 62", "1.5", "'text'"])
@pytest.mark.parametrize("place", PLACES)
def test_values_that_are_no_bytes_are_reported(state: Path, place: str, held: str, words: list[str]) -> None:
    receipt = receipts(state)[1]["id"]
    tamper(state, sql(f"UPDATE {place} = {held}"))
    names(run(state, "receipts", "verify"), 1, 12)
    result = run(state, "receipts", *(receipt if word == "ID" else word for word in words))
    if place.startswith("entries") or "export" in words:
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"run `licet receipts verify {state}/ledger.sqlite`" in result.stderr


# The order of entries ------------------------------------------------------------------------------------------------

AWAY = "UPDATE entries SET number = number + 100 WHERE number > 4"
BACK = "UPDATE entries SET number = number - 101 WHERE number > 100"


@pytest.mark.parametrize(
    ("attack", "first", "last", "how"),
    [
        (sql("DELETE FROM entries WHERE number = 4"), 4, 4, "after entry 3 comes entry 5"),
        (sql("DELETE FROM entries WHERE number = 4", AWAY, BACK), 4, 4, "is number 5 of its session, after number 3"),
        (sql("DELETE FROM entries WHERE number = 1"), 1, 1, "after entry 0 comes entry 2"),
        (
            sql(
                "CREATE TEMP TABLE twice AS SELECT * FROM entries WHERE number = 4",
                "UPDATE twice SET number = 11",
                "INSERT INTO entries SELECT * FROM twice",
            ),
            11,
            11,
            "is number 4 of its session, after number 8",
        ),
        (
            sql(
                *(f"UPDATE entries SET number = {new} WHERE number = {old}" for old, new in ((4, 99), (5, 4), (99, 5)))
            ),
            4,
            4,
            "is number 5 of its session, after number 3",
        ),
        (sql("DELETE FROM entries WHERE number > 8"), 9, 10, "has signed 10 entries, and there are 8"),
        (sql("DELETE FROM entries"), 1, 10, "has signed 1 entries, and there are 0"),
        (sql("DELETE FROM checkpoints"), 1, 10, "no checkpoint covers any entry"),
    ],
    ids=["drop", "drop and close the gap", "drop the first", "duplicate", "reorder", "truncate", "empty", "unsign"],
)
def test_entries_that_were_dropped_doubled_or_moved_are_named(
    state: Path, attack: Attack, first: int, last: int, how: str
) -> None:
    tamper(state, attack)
    names(run(state, "receipts", "verify"), first, last, how)


@pytest.mark.parametrize("numbers", ["number = 4", "number > 4", "number > 0"])
def test_entries_of_another_ledger_are_named(state: Path, other: Path, numbers: str) -> None:
    first = {"number = 4": 4, "number > 4": 5, "number > 0": 1}[numbers]

    def splice(db: sqlite3.Connection) -> None:
        db.execute("ATTACH ? AS other", (str(other / "ledger.sqlite"),))
        db.execute(f"DELETE FROM entries WHERE {numbers}")
        db.execute(f"INSERT INTO entries SELECT * FROM other.entries WHERE {numbers}")
        db.commit()
        db.execute("DETACH other")

    tamper(state, splice)
    names(run(state, "receipts", "verify"), first, first, "it was written to the ledger ")


# Keys and checkpoints --------------------------------------------------------------------------------------------


def sign_again(db: sqlite3.Connection) -> None:
    """Sign every checkpoint with another key."""
    key = generated_key()
    for size, body in db.execute("SELECT size, body FROM checkpoints").fetchall():
        said = json.loads(body)
        root = bytes.fromhex(said["root"].removeprefix("sha256:"))
        body = checkpoint_body(said["ledger"], size, root, said["time"], key.public)
        db.execute("UPDATE checkpoints SET body = ?, signature = ? WHERE size = ?", (body, key.sign(body), size))
    db.execute("UPDATE ledger SET key = ?", (key.public,))


@pytest.mark.parametrize(
    ("attack", "how"),
    [
        (sign_again, "is signed with ed25519:"),
        (sql("UPDATE checkpoints SET signature = zeroblob(64)"), "has no valid signature of ed25519:"),
        (sql("UPDATE checkpoints SET body = CAST(replace(body, '2', '3') AS BLOB)"), "the checkpoint after it "),
        (sql("UPDATE checkpoints SET body = x'7b7d'"), "the checkpoint after it cannot be read"),
        (sql("UPDATE checkpoints SET size = size + 1"), "the index of the checkpoint after it says size "),
    ],
    ids=["signed again", "signature", "edited", "no head", "size"],
)
def test_a_changed_checkpoint_is_reported(state: Path, attack: Attack, how: str) -> None:
    tamper(state, attack)
    names(run(state, "receipts", "verify"), 1, 11, how)


def test_the_key_of_another_ledger_is_found(state: Path, other: Path) -> None:
    shutil.copy(other / "ledger.pub", state / "ledger.pub")
    names(run(state, "receipts", "verify"), 1, 10, "is signed with ed25519:")


def test_a_replaced_ledger_is_revealed_by_a_key_from_elsewhere(made: Path, other: Path) -> None:
    assert run(other, "receipts", "verify").exit_code == 0
    key = (made / "ledger.pub").read_text().strip()
    names(run(other, "receipts", "verify", "--key", key), 1, 10, f"not with {key}")


def set_back(db: sqlite3.Connection) -> None:
    """Keep the first entry, and everything as it was then."""
    db.execute("DELETE FROM entries WHERE number > 1")
    db.execute("DELETE FROM checkpoints WHERE size > 1")
    db.execute("DELETE FROM chains")
    db.execute("INSERT INTO chains SELECT agent, session, sequence, hash, number FROM entries")
    hashed, body = db.execute("SELECT hash, body FROM entries").fetchone()
    state = (hashed, json.loads(body)["recorded"])
    db.execute("UPDATE ledger SET size = 1, frontier = ?, recorded = ?, signed = 1", state)


def test_a_ledger_that_was_set_back_is_revealed_by_a_stored_checkpoint(state: Path, tmp_path: Path) -> None:
    kept = tmp_path / "checkpoints.txt"
    kept.write_text(run(state, "receipts", "head").stdout)
    tamper(state, set_back)
    names(run(state, "receipts", "verify"), 2, 10)  # the checkpoint next to the key reveals it
    (state / "ledger.head").unlink()
    names(run(state, "receipts", "verify"), 1, 1, "the MAC over the end of the ledger is wrong")  # the key reveals it
    (state / "ledger.key").unlink()
    assert run(state, "receipts", "verify").exit_code == 0  # nothing there reveals it
    names(run(state, "receipts", "verify", "--head", str(kept)), 2, 10, "has signed 10 entries, and there are 1")


def test_a_checkpoint_of_another_ledger_does_not_match(made: Path, other: Path, tmp_path: Path) -> None:
    kept = tmp_path / "checkpoints.txt"
    kept.write_text(run(other, "receipts", "head").stdout)
    names(run(made, "receipts", "verify", "--head", str(kept)), 1, 10)


def test_a_clock_that_was_set_back_is_reported_with_its_entry(tmp_path: Path) -> None:
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    moments = [start, start + timedelta(hours=1), start - timedelta(hours=1), start + timedelta(hours=2)]
    (tmp_path / "desk.yaml").write_text(MANIFEST.replace("RECORD", "digests"))
    at = [start]
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite", now=lambda: at[0])
    gate = Gate(load_manifest(tmp_path / "desk.yaml"), [look, pay], Backends.memory(ledger=ledger))

    async def calls() -> None:
        async with gate.session("main") as session:
            for at[0] in moments:
                await session.call("nope")

    asyncio.run(calls())
    ledger.close()
    result = run(tmp_path / "state", "receipts", "verify")
    names(result, 3, 3, "the time went back from 2026-03-01T13:00:00.000000Z to 2026-03-01T11:00:00.000000Z")
    assert "everything else is right" in result.stdout


# The file around the entries -----------------------------------------------------------------------------------------


def test_an_entry_that_a_search_would_pass_over_is_named(state: Path) -> None:
    with closing(sqlite3.connect(state / "ledger.sqlite")) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = sql || ' AND number <> 4' WHERE name = 'by_agent'")
        db.commit()
    with closing(sqlite3.connect(state / "ledger.sqlite")) as db:
        db.execute("REINDEX by_agent")
        db.commit()
    assert "its tables are not those" in run(state, "receipts", "verify").stdout
    with closing(sqlite3.connect(state / "ledger.sqlite")) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, ' AND number <> 4', '') WHERE name = 'by_agent'")
        db.commit()
    found = json.loads(run(state, "receipts", "list", "--agent", "desk", "--json").stdout)["receipts"]
    assert 4 not in [one["number"] for one in found]  # the attack works
    names(run(state, "receipts", "verify"), 4, 4, "the index by_agent leaves it out")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE number = new.number; END",
        "DROP INDEX by_tool",
        "ALTER TABLE entries ADD COLUMN more TEXT",
    ],
)
def test_tables_that_licet_did_not_make_are_reported(state: Path, statement: str) -> None:
    tamper(state, sql(statement))
    names(run(state, "receipts", "verify"), 1, 10, "its tables are not those that licet makes")


def test_a_truncated_file_is_reported(state: Path) -> None:
    file = state / "ledger.sqlite"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    result = run(state, "receipts", "verify")
    assert result.exit_code == 1
    assert "cannot be read" in result.output or "damaged" in result.output


@pytest.mark.parametrize(
    ("statement", "how"),
    [
        ("UPDATE chains SET sequence = 1", "the table `chains` says that its session ends with entry "),
        ("UPDATE chains SET hash = x'00'", "the table `chains` says that its session ends with entry "),
        ("UPDATE chains SET number = 'x'", "the table `chains` says that its session ends with entry 'x', "),
        ("DELETE FROM chains", "the table `chains` says that its session ends nowhere, the entries say with entry "),
        ("INSERT INTO chains VALUES ('desk', 'other', 7, x'0011', 3)", "has a session 'other' of 'desk'"),
        ("INSERT INTO chains VALUES ('desk', CAST(x'ff' AS TEXT), 7, x'0011', 3)", "the entries have none"),
        ("UPDATE ledger SET id = 'zz'", "the table `ledger` says id 'zz', "),
        ("UPDATE ledger SET key = 'zz'", "the table `ledger` says key 'zz', "),
        ("UPDATE ledger SET size = 2", "the table `ledger` says size 2, the entries and checkpoints say 10"),
        ("UPDATE ledger SET frontier = x'00'", "the table `ledger` says frontier 00, "),
        ("UPDATE ledger SET recorded = '2099-01-01T00:00:00.000000Z'", "the table `ledger` says recorded '2099-"),
        (
            "UPDATE ledger SET signed = 1000000",
            "says signed 1000000, the entries and checkpoints say 10",
        ),
        ("UPDATE ledger SET signed_ms = 'x'", "the table `ledger` says signed_ms 'x', which has a wrong type"),
        ("UPDATE ledger SET signed_ms = 9e999", "the table `ledger` says signed_ms inf, which has a wrong type"),
        ("UPDATE ledger SET tag = 'x'", "the table `ledger` says tag 'x', which has a wrong type"),
        ("UPDATE ledger SET tag = CAST(x'ff' AS TEXT)", "which has a wrong type"),
        ("UPDATE ledger SET tag = x''", "the MAC over the end of the ledger was removed"),
        ("UPDATE ledger SET tag = zeroblob(32)", "the MAC over the end of the ledger is wrong"),
        ("UPDATE ledger SET signed_ms = signed_ms + 1", "the MAC over the end of the ledger is wrong"),
        ("DELETE FROM ledger", "the table `ledger` is empty, and there are entries"),
    ],
)
def test_the_tables_that_a_writer_continues_from_are_checked(state: Path, statement: str, how: str) -> None:
    tamper(state, sql(statement))
    names(run(state, "receipts", "verify"), 1, 10, how)


# Packs ---------------------------------------------------------------------------------------------------------------


def forged(text: str, change: Callable[[dict[str, Any]], object]) -> str:
    """A pack with other contents, signed with another key."""
    said = json.loads(text)
    statement = json.loads(base64.b64decode(said["payload"]))
    change(statement)
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    key = generated_key()
    return envelope(payload, key.public, key.sign(to_sign(payload)))


def swapped(text: str) -> str:
    """A pack with the old signature around other contents."""
    said, other = json.loads(text), json.loads(forged(text, lambda statement: statement["subject"].pop()))
    return json.dumps({**other, "signatures": said["signatures"]}, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    ("attack", "how"),
    [
        (lambda text: forged(text, lambda statement: None), "it has no valid signature of ed25519:"),
        (swapped, "it has no valid signature of ed25519:"),
        (lambda text: text[:-40], "it is not canonical JSON"),
        (lambda text: text.replace(":", ": ", 1), "it is not a canonical JSON object"),
        (lambda text: "{}", "it is no DSSE envelope"),
        (lambda text: "", "it is not canonical JSON"),
    ],
    ids=["forged", "swapped", "cut", "spelled otherwise", "nothing", "empty"],
)
def test_a_changed_pack_is_reported(made: Path, tmp_path: Path, attack: Callable[[str], str], how: str) -> None:
    text = run(made, "receipts", "export", "--session", "main").stdout
    (tmp_path / "pack.json").write_text(attack(text))
    result = run(made, "receipts", "verify", str(tmp_path / "pack.json"))
    assert result.exit_code == 1
    assert result.stdout.startswith("wrong: the pack: ")
    assert how in result.stdout
    told = run(made, "receipts", "verify", str(tmp_path / "pack.json"), "--json").stdout
    assert json.loads(told)["ok"] is False


def test_a_pack_of_another_ledger_is_refused(made: Path, other: Path, tmp_path: Path) -> None:
    (tmp_path / "pack.json").write_text(run(other, "receipts", "export", "--session", "main").stdout)
    key = (made / "ledger.pub").read_text().strip()
    words = ["receipts", "verify", str(tmp_path / "pack.json"), "--key", key]
    assert CliRunner().invoke(licet, words).exit_code == 1


@pytest.mark.parametrize("attack", [edited("reason", 4, hashed=True), sql("DELETE FROM entries WHERE number = 10")])
def test_a_changed_ledger_is_not_exported(state: Path, attack: Attack) -> None:
    tamper(state, attack)
    result = run(state, "receipts", "export", "--session", "main")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"does not match its checkpoints: run `licet receipts verify {state}/ledger.sqlite`" in result.stderr
