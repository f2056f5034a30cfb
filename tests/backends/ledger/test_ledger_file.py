"""The ledger file: it survives kills, full disks and restarts, is shared by processes, and reveals changes."""

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import warm
from effort import LONG
from guard.gates import call, gate
from licet import Backends, Gate, tool
from licet.backends.ledger.reader import LedgerReader, verify_ledger
from licet.backends.ledger.state import FORMAT, Tagging, read_state
from licet.backends.ledger.writer import CHECKPOINTS_APART, SqliteLedger
from licet.backends.secrets import check_signature, generated_key, ledger_key
from licet.core.ledger.entry import Row, entry_fields
from licet.core.ledger.verify import Finding, Outcome, verify
from licet.guard.ports import LedgerUnavailable

PROGRAM = Path(__file__).with_name("ledger_processes.py")


@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int) -> int:
    """Add one."""
    return a + 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    made = SqliteLedger(path)
    yield made
    made.close()


def at(folder: Path, ledger: SqliteLedger) -> Gate:
    return gate(folder, add, backends=Backends.memory(ledger=ledger))


def calls(folder: Path, ledger: SqliteLedger, number: int, session: str = "s") -> None:
    async def run() -> None:
        async with at(folder, ledger).session(session) as opened:
            results = await opened.call_many([("add", {"a": one}) for one in range(number)])
            assert all(result.ok for result in results)

    asyncio.run(run())


def verified(path: Path, key: str | None = None) -> Outcome:
    with LedgerReader(path) as reader:
        return verify(reader.entries(), reader.checkpoints(), key=key or reader.key, check=check_signature)


def in_processes(what: str, folder: Path, *numbers: int) -> dict[str, Any]:
    words = [what, str(folder), *map(str, numbers)]
    if what == "call" or LONG:  # a process that ends as processes do, or takes its time
        done = subprocess.run([sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False)
    else:
        done = warm.run(f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')", words)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "errors": done.stderr}


# Kills, crowds, full disks, restarts ----------------------------------------------------------------------------------


def test_a_killed_process_loses_no_acknowledged_entry(tmp_path: Path) -> None:
    seen = in_processes("kill", tmp_path, 3000 if LONG else 8, int.from_bytes(os.urandom(4)) if LONG else 7)
    assert (seen["lost"], seen["findings"]) == ([], [])
    assert seen["acknowledged"] > 20
    assert seen["entries"] >= 2 * seen["acknowledged"]


def test_what_was_settled_survives_a_kill(tmp_path: Path, path: Path) -> None:
    seen = in_processes("open", tmp_path)
    assert (seen["ended_by"], seen["ok"], seen["finding"]) == (signal.SIGKILL, True, "")
    with LedgerReader(path) as reader:
        found = [entry_fields(row.body) for row in reader.entries()]
        unended, _ = reader.unended()
    assert [entry["kind"] for entry in found] == ["decision", "progress", "decision", "receipt"]
    denied = {"capability": "env:read:B", "kind": "CapabilityDenied", "reason": "ENV_NOT_ALLOWED"}
    assert found[1]["events"][-1].items() >= denied.items()
    assert [row.id for row in unended] == [found[1]["id"]]
    outcome = verify_ledger(path, path.with_suffix(".pub").read_text(encoding="utf-8").strip())
    assert (outcome.ok, outcome.unknown) == (True, (found[1]["id"],))


def test_many_processes_write_one_ledger(tmp_path: Path) -> None:
    writers, number = (64, 50) if LONG else (5, 10)
    seen = in_processes("many", tmp_path, writers, number)
    assert seen["codes"] == [0] * writers, seen["errors"]
    assert (seen["lost"], seen["finding"], seen["acknowledged"]) == ([], "", writers * 2 * number)
    assert seen["entries"] == 2 * seen["acknowledged"]


@pytest.mark.parametrize("size", [100_000, 400_000])
@pytest.mark.sampled(1)
def test_a_full_disk_refuses_calls_and_leaves_the_ledger_valid(tmp_path: Path, size: int) -> None:
    seen = in_processes("full", tmp_path, size)
    assert seen["reasons"] == ["LEDGER_UNAVAILABLE"] * 5
    assert "ledger.sqlite cannot be used" in seen["told"]
    assert (seen["lost"], seen["full"], seen["after"]) == ([], "", "")
    assert (seen["again"], seen["signed"]) == (True, True)


def test_a_process_that_ends_signs_what_it_has_written(tmp_path: Path, path: Path) -> None:
    for _ in range(2):
        assert in_processes("call", tmp_path)["ok"]
    outcome = verified(path)
    assert (outcome.ok, outcome.entries, outcome.signed) == (True, 4, 4)
    with LedgerReader(path) as reader:
        assert [row.sequence for row in reader.entries()] == [1, 2, 3, 4]  # one chain across restarts


def test_entries_of_a_killed_process_are_signed_by_the_next_one(
    tmp_path: Path, path: Path, ledger: SqliteLedger
) -> None:
    calls(tmp_path, ledger, 3)
    ledger.close()
    with closing(sqlite3.connect(path)) as db:  # as if the process had been killed before the last checkpoint
        db.execute("DELETE FROM checkpoints WHERE size = 6")
        db.execute("UPDATE ledger SET signed = (SELECT coalesce(max(size), 0) FROM checkpoints), signed_ms = 0")
        left = read_state(db)
        assert left is not None
        db.execute("UPDATE ledger SET tag = ?", (Tagging(ledger_key(ledger.key_path)).tagged(left).tag,))
        db.commit()
    assert verified(path).signed < 6
    calls(tmp_path, ledger, 1)
    with LedgerReader(path) as reader:
        assert max(head.size for head in reader.checkpoints()) >= 6
    assert verified(path).ok


def test_a_call_that_is_cancelled_while_it_waits_is_no_trouble(
    tmp_path: Path, path: Path, ledger: SqliteLedger
) -> None:
    async def run() -> None:
        async with at(tmp_path, ledger).session("s") as session:
            tasks = [asyncio.ensure_future(session.call("add", {"a": 1})) for _ in range(8)]
            await asyncio.sleep(0)
            for task in tasks[:4]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(one, asyncio.CancelledError) for one in done] == [True] * 4 + [False] * 4

    asyncio.run(run())
    ledger.close()
    assert verified(path).ok


def test_a_ledger_that_was_closed_is_opened_again(tmp_path: Path, path: Path, ledger: SqliteLedger) -> None:
    for _ in range(3):
        calls(tmp_path, ledger, 1)
        ledger.close()
        ledger.close()
    assert verified(path).entries == 6


def test_two_ledgers_on_one_file_follow_each_other(tmp_path: Path, path: Path, ledger: SqliteLedger) -> None:
    other = SqliteLedger(path)
    for number in range(6):
        calls(tmp_path, (ledger, other)[number % 2], 2, session=f"s{number % 3}")
    other.close()
    ledger.close()
    outcome = verified(path)
    assert (outcome.ok, outcome.entries, outcome.signed) == (True, 24, 24)


def test_a_child_that_was_forked_and_its_parent_write_one_chain(tmp_path: Path) -> None:
    seen = in_processes("fork", tmp_path)
    assert (seen["code"], seen["ok"], seen["finding"]) == (0, True, "")
    assert (seen["entries"], seen["signed"], seen["sequences"]) == (12, 12, [*range(1, 13)])


# Time and checkpoints -------------------------------------------------------------------------------------------------


class Clock:
    moment = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment


STEPS = [(timedelta(seconds=-30), ""), (timedelta(seconds=30), ""), (timedelta(hours=-2), "clock")]


@pytest.mark.parametrize(("step", "kind"), STEPS, ids=["back a little", "on", "back"])
def test_a_clock_that_goes_back_is_smoothed_or_reported(tmp_path: Path, path: Path, step: timedelta, kind: str) -> None:
    clock = Clock()
    ledger = SqliteLedger(path, clock)
    calls(tmp_path, ledger, 1)
    clock.moment += step
    calls(tmp_path, ledger, 1)
    ledger.close()
    finding = verified(path).finding
    assert (finding.kind if finding else "") == kind
    if finding:
        assert finding.number == 3
    with LedgerReader(path) as reader:
        recorded = [entry_fields(row.body)["recorded"] for row in reader.entries()]
    assert (recorded == sorted(recorded)) == (not kind)


def test_checkpoints_are_few_and_the_last_covers_everything(tmp_path: Path, path: Path, ledger: SqliteLedger) -> None:
    for _ in range(12):
        calls(tmp_path, ledger, 1)
        ledger.close()  # signs each time
    with LedgerReader(path) as reader:
        sizes = [head.size for head in reader.checkpoints()]
    assert sizes[-1] == 24 < CHECKPOINTS_APART
    assert len(sizes) <= 3
    assert verified(path).signed == 24


def test_heads_that_are_apart_stay(tmp_path: Path, path: Path, ledger: SqliteLedger) -> None:
    for _ in range(3):
        calls(tmp_path, ledger, CHECKPOINTS_APART // 2)
        ledger.close()
    with LedgerReader(path) as reader:
        sizes = [head.size for head in reader.checkpoints()]
    assert {CHECKPOINTS_APART * 2, CHECKPOINTS_APART * 3} <= set(sizes) or len(sizes) >= 3
    assert verified(path).ok


# Keys and files -------------------------------------------------------------------------------------------------------


def test_the_key_is_made_for_its_owner_alone_and_its_public_half_for_everybody(
    tmp_path: Path, path: Path, ledger: SqliteLedger
) -> None:
    calls(tmp_path, ledger, 1)
    ledger.close()
    key, public = path.with_suffix(".key"), path.with_suffix(".pub")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = public.read_text(encoding="utf-8").strip()
    assert text.startswith("ed25519:")
    assert ledger_key(str(key)).public == text
    assert b"PRIVATE KEY" in key.read_bytes()
    assert stat.S_IMODE(path.with_suffix(".head").stat().st_mode) == 0o600
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["ledger.head", "ledger.key", "ledger.pub", "ledger.sqlite"]
    assert verified(path, text).ok


def spoil_key_missing(path: Path) -> None:
    path.with_suffix(".key").unlink()


def spoil_key_other(path: Path) -> None:
    path.with_suffix(".key").unlink()
    ledger_key(str(path.with_suffix(".key")))


def spoil_key_open(path: Path) -> None:
    path.with_suffix(".key").chmod(0o644)


def spoil_key_empty(path: Path) -> None:
    path.with_suffix(".key").write_bytes(b"")


def spoil_key_link(path: Path) -> None:
    key = path.with_suffix(".key")
    key.rename(path.with_suffix(".elsewhere"))
    key.symlink_to(path.with_suffix(".elsewhere"))


def spoil_key_pipe(path: Path) -> None:
    path.with_suffix(".key").unlink()
    os.mkfifo(path.with_suffix(".key"), 0o600)  # nothing ever writes into it, so a reader would block for ever


def spoil_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {FORMAT.version + 1}")
        db.commit()


def spoil_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA application_id = 7")
        db.commit()


def spoil_bytes(path: Path) -> None:
    path.write_bytes(b"x" * 10_000)


def spoil_open(path: Path) -> None:
    path.chmod(0o644)


SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "the key is gone": (spoil_key_missing, "that signs the ledger is missing: put its backup there"),
    "another key": (spoil_key_other, "put the right key there"),
    "a key that others can read": (spoil_key_open, "open to others: run `chmod 600"),
    "an empty key": (spoil_key_empty, "holds no Ed25519 key: put its backup there"),
    "a link to a key": (spoil_key_link, "is a link, not a regular file: put its backup there"),
    "a pipe for a key": (spoil_key_pipe, "is a named pipe, not a regular file: put its backup there"),
    "a newer format": (spoil_version, f"written by a newer licet (format {FORMAT.version + 1}): use that one"),
    "another program's": (spoil_program, "a database of another program"),
    "no database": (spoil_bytes, "damaged or no database"),
    "open to others": (spoil_open, "open to others: run `chmod 600"),
}


@pytest.mark.parametrize(("spoil", "why"), SPOILED.values(), ids=SPOILED)
def test_a_ledger_that_cannot_be_trusted_refuses_calls_and_says_how_to_mend_it(
    tmp_path: Path, path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    first = SqliteLedger(path)
    calls(tmp_path, first, 1)
    first.close()
    spoil(path)
    before = path.read_bytes()
    second = SqliteLedger(path)
    result = call(at(tmp_path, second), "add", {"a": 1})
    second.close()
    assert (result.code, result.reason, result.value) == ("not_available", "LEDGER_UNAVAILABLE", None)
    assert why in result.explain()
    assert why not in result.error  # the model is not told about files
    assert path.read_bytes() == before


def test_where_nothing_can_be_written_calls_are_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a directory should be", encoding="utf-8")
    ledger = SqliteLedger(tmp_path / "state" / "ledger.sqlite")
    result = call(at(tmp_path, ledger), "add", {"a": 1})
    assert (result.reason, result.value) == ("LEDGER_UNAVAILABLE", None)
    assert "cannot be made" in result.explain()


def test_a_local_gate_keeps_its_receipts_in_its_state_directory(tmp_path: Path) -> None:
    here = gate(tmp_path, add, backends=Backends.local(tmp_path / "state"))
    result = call(here, "add", {"a": 1})
    assert (result.ok, here.ports.ledger.__class__) == (True, SqliteLedger)
    here.ports.ledger.close()  # type: ignore[union-attr]
    with LedgerReader(tmp_path / "state" / "ledger.sqlite") as reader:
        assert [row.kind for row in reader.show(result.receipt)] == ["decision", "receipt"]


def test_backends_that_are_closed_have_signed_everything_and_go_on(tmp_path: Path) -> None:
    backends = Backends.local(tmp_path / "state")
    here = gate(tmp_path, add, backends=backends)
    for entries in (2, 4):
        with backends:
            assert call(here, "add", {"a": 1}).ok
        outcome = verified(tmp_path / "state" / "ledger.sqlite")
        assert (outcome.ok, outcome.entries, outcome.signed) == (True, entries, entries)


def test_a_local_gate_without_a_directory_for_its_state_refuses_every_call(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a directory should be", encoding="utf-8")
    result = call(gate(tmp_path, add, backends=Backends.local(tmp_path / "state")), "add", {"a": 1})
    assert (result.code, result.reason, result.value) == ("not_available", "LEDGER_UNAVAILABLE", None)
    told = result.explain()
    assert f"{tmp_path}/state/ledger.sqlite cannot be made" in told
    assert "choose another directory for the state" in told


def test_a_repaired_ledger_is_continued(tmp_path: Path, path: Path, ledger: SqliteLedger) -> None:
    calls(tmp_path, ledger, 1)
    ledger.close()
    path.chmod(0o644)
    assert call(at(tmp_path, ledger), "add", {"a": 1}).reason == "LEDGER_UNAVAILABLE"
    path.chmod(0o600)
    calls(tmp_path, ledger, 1)
    ledger.close()
    assert (verified(path).ok, verified(path).entries) == (True, 4)


def test_a_signature_is_checked_against_its_key() -> None:
    key, other = generated_key(), generated_key()
    signature = key.sign(b"x")
    assert check_signature(key.public, b"x", signature)
    wrong = [(other.public, b"x", signature), (key.public, b"y", signature), (key.public, b"x", b""),
             ("ed25519:", b"x", signature), ("", b"x", signature), ("rsa" + key.public[7:], b"x", signature),
             (key.public + "=!", b"x", signature), ("ed25519:é", b"x", signature)]  # fmt: skip
    assert [check_signature(*one) for one in wrong] == [False] * len(wrong)
    assert "PRIVATE" not in repr(key)


# Reading --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(store_root: Path) -> Path:
    """The directory of a ledger of two sessions. Tests read and change copies of it."""
    folder = Path(tempfile.mkdtemp(dir=store_root))
    ledger = SqliteLedger(folder / "state" / "ledger.sqlite")
    here = at(folder, ledger)

    async def run() -> None:
        for session in ("one", "two"):
            async with here.session(session) as opened:
                await opened.call("add", {"a": 1})
                await opened.call("nothing")
                await opened.call("add", {"a": "x"})

    asyncio.run(run())
    ledger.close()
    return folder / "state"


@pytest.fixture
def filled(path: Path, written: Path) -> Path:
    """A copy of that ledger, with its key and its last checkpoint."""
    shutil.copytree(written, path.parent)
    return path


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [8, 7, 6, 4, 3, 2]),
    ({"limit": 2}, [8, 7]),
    ({"before": 7, "limit": 2}, [6, 4]),
    ({"tool": "add"}, [8, 6, 4, 2]),
    ({"tool": "nothing"}, [7, 3]),
    ({"verdict": "deny"}, [8, 7, 4, 3]),
    ({"verdict": "deny", "tool": "add"}, [8, 4]),
    ({"session": "one"}, [4, 3, 2]),
    ({"agent": "tester"}, [8, 7, 6, 4, 3, 2]),
    ({"agent": "nobody"}, []),
    ({"kind": "decision"}, [5, 1]),
    ({"kind": None}, [8, 7, 6, 5, 4, 3, 2, 1]),
    ({"since": datetime(2020, 1, 1, tzinfo=UTC)}, [8, 7, 6, 4, 3, 2]),
    ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, []),
    ({"tool": "add' OR 1=1 --"}, []),
]


@pytest.mark.parametrize(("asked", "numbers"), FILTERS, ids=[str(asked) for asked, _ in FILTERS])
def test_entries_are_found_by_what_they_say(filled: Path, asked: dict[str, Any], numbers: list[int]) -> None:
    with LedgerReader(filled) as reader:
        assert [row.number for row in reader.list(**asked)] == numbers


def test_time_is_from_and_before(filled: Path) -> None:
    with LedgerReader(filled) as reader:
        third = reader.list(before=5, limit=1)[0].time
        assert [row.number for row in reader.list(since=third)] == [8, 7, 6, 4]
        assert [row.number for row in reader.list(until=third)] == [3, 2]


def test_show_returns_both_entries_of_a_call(filled: Path) -> None:
    with LedgerReader(filled) as reader:
        first = reader.list(before=3)[0].id
        assert [row.kind for row in reader.show(first)] == ["decision", "receipt"]
        assert reader.show("nobody") == []
        assert (reader.size, [row.number for row in reader.entries()]) == (8, [*range(1, 9)])
        assert list(reader.hashes()) == [row.hash for row in reader.entries()]


def test_a_reader_sees_what_was_there_when_it_began(tmp_path: Path, filled: Path, ledger: SqliteLedger) -> None:
    with LedgerReader(filled) as reader:
        calls(tmp_path, ledger, 3)
        assert reader.size == 8
        assert verify(reader.entries(), reader.checkpoints(), key=reader.key, check=check_signature).entries == 8
    ledger.close()
    assert verified(filled).entries == 14


@pytest.mark.who
def test_a_read_only_copy_is_read(tmp_path: Path, filled: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy(filled, folder / "l.sqlite")
    (folder / "l.sqlite").chmod(0o400)
    folder.chmod(0o500)
    try:
        assert verified(folder / "l.sqlite").ok
        assert [file.name for file in folder.iterdir()] == ["l.sqlite"] or os.geteuid() == 0
    finally:
        folder.chmod(0o700)


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing there": (lambda path: None, "there is no ledger at"),
    "a directory": (lambda path: path.mkdir(), "cannot be read: a directory, not a regular file"),
    "no database": (lambda path: path.write_bytes(b"x" * 5000), "cannot be read"),
    "an empty file": (lambda path: path.write_bytes(b""), "is no ledger"),
}


@pytest.mark.parametrize(("make", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_is_no_ledger_is_not_read(path: Path, make: Callable[[Path], object], why: str) -> None:
    path.parent.mkdir()
    make(path)
    with pytest.raises(LedgerUnavailable, match=why):
        LedgerReader(path)


def test_a_reader_waits_for_the_tables_of_a_ledger_that_was_just_made(
    path: Path, tmp_path: Path, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir(mode=0o700)
    path.touch(0o600)  # as a writer leaves it for a moment
    sleep = time.sleep

    def meanwhile(seconds: float) -> None:
        monkeypatch.setattr(time, "sleep", sleep)
        calls(tmp_path, ledger, 1)

    monkeypatch.setattr(time, "sleep", meanwhile)
    with LedgerReader(path) as reader:
        assert [entry.kind for entry in reader.list(kind=None)] == ["receipt", "decision"]


def test_a_newer_ledger_is_not_read(filled: Path) -> None:
    spoil_version(filled)
    why = f"written by a newer licet \\(format {FORMAT.version + 1}\\): use that one"
    with pytest.raises(LedgerUnavailable, match=why):
        LedgerReader(filled)


# Tampering with the file ----------------------------------------------------------------------------------------------


def tampered(path: Path, *statements: str) -> Finding | None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return verified(path).finding


@pytest.mark.parametrize("value", ["'x'", "x'00'", "7", "CAST(x'ff' AS TEXT)"])
@pytest.mark.parametrize("column", Row._fields[1:])
@pytest.mark.sampled(14)
def test_every_column_of_the_file_is_compared_with_its_entry(filled: Path, column: str, value: str) -> None:
    finding = tampered(filled, f"UPDATE entries SET {column} = {value} WHERE number = 4")
    assert finding is not None
    assert finding.number == 4
    assert finding.kind == ("edited" if column in ("body", "hash") else "column")


REST = ", ".join(Row._fields[1:])
NUMBER = "UPDATE entries SET number = {} WHERE number = {}"
LIE = (
    "UPDATE checkpoints SET body = CAST(replace(CAST(body AS TEXT), '\"size\":8', '\"size\":7') AS BLOB) WHERE size = 8"
)
ATTACKS: dict[str, tuple[list[str], str, int]] = {
    "drop": (["DELETE FROM entries WHERE number = 3"], "missing", 3),
    "drop and renumber": (
        ["DELETE FROM entries WHERE number = 3", *(NUMBER.format(n - 1, n) for n in range(4, 9))],
        "chain",
        3,
    ),
    "swap": ([NUMBER.format(99, 2), NUMBER.format(2, 3), NUMBER.format(3, 99)], "chain", 2),
    "repeat": ([f"INSERT INTO entries SELECT 9, {REST} FROM entries WHERE number = 2"], "chain", 9),
    "truncate": (["DELETE FROM entries WHERE number > 6"], "truncated", 7),
    "empty": (["DELETE FROM entries"], "truncated", 1),
    "remove the checkpoints": (["DELETE FROM checkpoints"], "unsigned", 1),
    "edit a checkpoint": ([LIE], "checkpoint", 8),
    "edit a signature": (["UPDATE checkpoints SET signature = zeroblob(64) WHERE size = 8"], "signature", 8),
}


@pytest.mark.parametrize(("statements", "kind", "number"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_on_the_file_is_found_and_located(
    filled: Path, statements: list[str], kind: str, number: int
) -> None:
    finding = tampered(filled, *statements)
    assert finding is not None
    assert (finding.kind, finding.number) == (kind, number), finding


def test_a_ledger_that_is_signed_anew_with_another_key_is_found(tmp_path: Path, filled: Path) -> None:
    public = filled.with_suffix(".pub").read_text(encoding="utf-8").strip()
    other = generated_key()
    with closing(sqlite3.connect(filled)) as db:
        for size, body in db.execute("SELECT size, body FROM checkpoints").fetchall():
            forged = body.replace(public.encode(), other.public.encode())
            db.execute(
                "UPDATE checkpoints SET body = ?, signature = ? WHERE size = ?", (forged, other.sign(forged), size)
            )
        db.execute("UPDATE ledger SET key = ?", (other.public,))
        db.commit()
    assert verified(filled).ok  # by its own word
    finding = verified(filled, public).finding
    assert finding is not None
    assert finding.kind == "key"


def test_a_ledger_put_together_from_two_is_found(tmp_path: Path, filled: Path) -> None:
    other = SqliteLedger(tmp_path / "second" / "ledger.sqlite")
    calls(tmp_path, other, 2, session="elsewhere")
    other.close()
    finding = tampered(
        filled,
        f"ATTACH DATABASE '{other.path}' AS other",
        f"INSERT INTO entries SELECT number + 8, {REST} FROM other.entries",
    )
    assert finding is not None
    assert (finding.kind, finding.number) == ("foreign", 9)
