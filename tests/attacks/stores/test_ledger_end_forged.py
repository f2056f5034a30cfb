"""Attack: who can write a ledger, and has not its key, writes its end anew and lets the next call sign it.

Everything that a public key can tell fits: the new entries follow the last head, each is linked, and the tables around
them say the same. `ledger.head` is set back as well where that is needed. Or the file is set back to what it truly was,
while a process that knows better has it open.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from guard.gates import call, gate
from kept_calls import run
from licet import Backends, Gate, Result, tool
from licet.assemble.ledger import public_key
from licet.backends.ledger.reader import verify_ledger
from licet.backends.ledger.state import Tagging, write_last
from licet.backends.ledger.writer import SqliteLedger
from licet.core.ledger.entry import Checkpoint
from licet.core.ledger.merkle import Frontier, leaf_hash
from licet.core.values import canonical_json

FORGED = "transfer_money"
NOT_BY_THE_KEY = "was changed without its key"


@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int) -> int:
    """Add one."""
    return a + 1


def at(folder: Path, ledger: SqliteLedger) -> Gate:
    return gate(folder, add, backends=Backends.memory(ledger=ledger))


def one_call(folder: Path, path: Path) -> Result:
    ledger = SqliteLedger(path)
    result = call(at(folder, ledger), "add", {"a": 1}, session="s")
    ledger.close()
    return result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of three calls of one session, each signed."""
    made = tmp_path / "state" / "ledger.sqlite"
    for _ in range(3):
        assert one_call(tmp_path, made).ok
    return made


def bodies(db: sqlite3.Connection) -> list[dict[str, Any]]:
    return [json.loads(body) for (body,) in db.execute("SELECT body FROM entries ORDER BY number")]


def write_anew(db: sqlite3.Connection, entries: list[dict[str, Any]]) -> None:
    """Put these in place of all entries, with everything that follows from them."""
    db.execute("DELETE FROM entries")
    db.execute("DELETE FROM chains")
    frontier, digest = Frontier(), b""
    for number, entry in enumerate(entries, 1):
        previous = f"sha256:{digest.hex()}" if digest else None
        entry |= {"sequence": number, "previous": previous}
        body = canonical_json(entry)
        digest = leaf_hash(body)
        frontier.add(digest)
        names = ("id", "kind", "agent", "session", "sequence", "tool", "verdict", "time")
        row = (number, *(entry[name] for name in names), digest, body)
        db.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(row))})", row)
    last = entries[-1]
    ends = (last["agent"], last["session"], len(entries), digest, len(entries))
    db.execute("INSERT INTO chains VALUES (?, ?, ?, ?, ?)", ends)
    state = (len(entries), bytes(frontier), last["recorded"])
    db.execute("UPDATE ledger SET size = ?, frontier = ?, recorded = ?", state)


def append(db: sqlite3.Connection, path: Path) -> None:
    """One more call, behind the last head."""
    kept = bodies(db)
    like = {"tool": FORGED, "id": "r-forged-1", "recorded": kept[-1]["recorded"]}
    write_anew(db, [*kept, *(entry | like for entry in kept[-2:])])


def to_the_first_head(db: sqlite3.Connection, path: Path) -> None:
    """Other calls since the first head, which `ledger.head` has again."""
    first, ended, *others = bodies(db)  # a call whose receipt is about another tool than its decision is noticed
    like = {"recorded": first["recorded"]}
    entries = [first, ended | like, *(entry | like | {"tool": FORGED} for entry in others)]
    write_anew(db, entries)
    db.execute("DELETE FROM checkpoints WHERE size > 1")
    db.execute("UPDATE ledger SET signed = 1")
    frontier = Frontier()
    frontier.add(leaf_hash(canonical_json(first)))
    head = Checkpoint(*db.execute("SELECT size, body, signature FROM checkpoints").fetchone())
    write_last(str(path.with_suffix(".head")), head, frontier)


def append_without_a_tag(db: sqlite3.Connection, path: Path) -> None:
    append(db, path)
    db.execute("UPDATE ledger SET tag = x''")


Attack = Callable[[sqlite3.Connection, Path], object]
ATTACKS: dict[str, Attack] = {
    "more entries": append,
    "more entries, and no tag": append_without_a_tag,
    "all since the first head": to_the_first_head,
}
FITTING = {name: ATTACKS[name] for name in ("more entries", "all since the first head")}  # by all that is public


def attack(path: Path, how: Attack) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as db:
        db.execute("BEGIN IMMEDIATE")
        how(db, path)
        db.commit()


def checkpoints(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT * FROM checkpoints ORDER BY size").fetchall()


@pytest.mark.parametrize("how", FITTING.values(), ids=FITTING)
def test_without_tags_the_next_call_signs_what_was_forged(
    tmp_path: Path, path: Path, how: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(path, how)
    monkeypatch.setattr(Tagging, "wrong", lambda self, state: False)
    assert one_call(tmp_path, path).ok
    outcome = verify_ledger(path, public_key(None, path))
    assert (outcome.ok, outcome.signed) == (True, outcome.entries)


@pytest.mark.parametrize("how", ATTACKS.values(), ids=ATTACKS)
def test_the_next_call_is_refused_and_signs_nothing(tmp_path: Path, path: Path, how: Attack) -> None:
    attack(path, how)
    before = checkpoints(path)
    result = one_call(tmp_path, path)
    assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
    assert NOT_BY_THE_KEY in result.explain()
    assert "begin another ledger" in result.explain()
    assert checkpoints(path) == before


def test_who_has_it_open_signs_none_of_it_either(tmp_path: Path, path: Path) -> None:
    ledger = SqliteLedger(path)
    assert call(at(tmp_path, ledger), "add", {"a": 1}, session="s").ok
    attack(path, append)
    before = checkpoints(path)
    for _ in range(2):  # it does not forget
        result = call(at(tmp_path, ledger), "add", {"a": 1}, session="s")
        assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
        assert NOT_BY_THE_KEY in result.explain()
    ledger.close()
    assert checkpoints(path) == before


@pytest.mark.parametrize("how", FITTING.values(), ids=FITTING)
def test_verify_tells_it_with_the_key_and_says_without_that_it_is_not_proven(path: Path, how: Attack) -> None:
    attack(path, how)
    result = run(path.parent, "receipts", "verify")
    assert result.exit_code == 1
    assert "the MAC over the end of the ledger is wrong" in result.stdout
    path.with_suffix(".key").unlink()
    result = run(path.parent, "receipts", "verify")
    assert result.exit_code == 0
    assert "so not proven: anybody who can write the file could have written them without the key" in result.stdout


# Set back to what it truly was ---------------------------------------------------------------------------------------


def copied(path: Path, folder: Path) -> Path:
    """The ledger and its last head as they are now."""
    folder.mkdir()
    copy = folder / path.name
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(copy)) as to:
        db.backup(to)
    shutil.copy(path.with_suffix(".head"), copy.with_suffix(".head"))
    return copy


def put_back(path: Path, copy: Path) -> None:
    """Make the open file what it was, row by row."""
    shutil.copy(copy.with_suffix(".head"), path.with_suffix(".head"))
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
        db.execute("ATTACH ? AS older", (str(copy),))
        db.execute("BEGIN IMMEDIATE")
        for table in ("entries", "chains", "checkpoints", "ledger"):
            db.execute(f"DELETE FROM {table}")
            db.execute(f"INSERT INTO {table} SELECT * FROM older.{table}")
        db.execute("COMMIT")


def other_calls(folder: Path, path: Path) -> None:
    """It goes on from there in a process that knows no better, and is longer than before in the end."""
    for _ in range(4):
        assert one_call(folder, path).ok


def taken_away(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as db:
        for table in ("entries", "chains", "checkpoints", "ledger"):
            db.execute(f"DELETE FROM {table}")
        db.commit()
    path.with_suffix(".head").unlink()


@pytest.mark.parametrize("then", ["nothing", "other calls", "taken away"])
def test_who_has_it_open_notices_that_it_was_set_back(tmp_path: Path, path: Path, then: str) -> None:
    copy = copied(path, tmp_path / "copy")
    ledger = SqliteLedger(path)
    assert call(at(tmp_path, ledger), "add", {"a": 2}, session="s").ok
    put_back(path, copy)
    if then == "other calls":
        other_calls(tmp_path, path)  # only a checkpoint from elsewhere would reveal it
    if then == "taken away":
        taken_away(path)
    before = checkpoints(path)
    for _ in range(2):  # it does not forget
        result = call(at(tmp_path, ledger), "add", {"a": 1}, session="s")
        assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
        assert "rolled back or changed while it was in use" in result.explain()
    ledger.close()
    assert checkpoints(path) == before


def test_a_column_that_holds_what_it_cannot_is_told_in_a_refusal(tmp_path: Path, path: Path) -> None:
    attack(path, lambda db, _: db.execute("UPDATE ledger SET signed_ms = 'x'"))
    result = one_call(tmp_path, path)
    assert result.reason == "LEDGER_UNAVAILABLE"
    assert "the table `ledger` says signed_ms 'x', which has a wrong type: `licet receipts verify " in result.explain()
