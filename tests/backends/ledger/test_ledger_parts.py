"""A large ledger is verified with several processors, and what comes of it is what one would have told."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from guard.gates import gate
from licet import Backends, tool
from licet.backends.ledger.parts import Parts, worthwhile
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger

PROGRAM = Path(__file__).with_name("parts_process.py")
SESSIONS, CALLS = 20, 150  # two entries for each call; just enough for two parts
SIZE = 2 * SESSIONS * CALLS

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux is forked on"),
    pytest.mark.skipif(
        sys.platform == "linux" and len(os.sched_getaffinity(0)) == 1, reason="one processor has nobody to share with"
    ),
]


@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int) -> int:
    """Add one."""
    return a + 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a ledger in which some sessions go on from one part to another, and others do not."""
    folder = tmp_path_factory.mktemp("made")
    ledger = SqliteLedger(folder / "state" / "ledger.sqlite")
    at = gate(folder, add, backends=Backends.memory(ledger=ledger))

    async def calls() -> None:
        async with at.session("long") as long:
            for number in range(SESSIONS):
                async with at.session(f"s{number}") as short:
                    words = [("add", {"a": one}) for one in range(CALLS // 2)]
                    done = [*await long.call_many(words), *await short.call_many(words)]
                    assert all(result.ok for result in done)

    asyncio.run(calls())
    ledger.close()
    return folder / "state"


def verified(*paths: Path, ways: str = "alone,threaded") -> list[dict[str, Any]]:
    words = [sys.executable, str(PROGRAM), ways, *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    for each in found:
        assert [way["left"] for way in each.values()] == [[0, 0]] * len(each)  # no file is left open, no child behind
        assert len({way["outcome"] for way in each.values()}) == 1
        assert each["threaded"]["forks"] == 0  # beside other threads nobody forks
    return found


def test_a_whole_ledger_is_verified_in_parts_and_as_whole(made: Path) -> None:
    (ways,) = verified(made / "ledger.sqlite", ways="alone,ended,refused,threaded")
    alone = ways["alone"]
    assert f"entries={SIZE}" in alone["outcome"]
    assert "finding=None" in alone["outcome"]
    assert alone["forks"] == ways["ended"]["forks"] > 0
    assert ways["refused"]["forks"] == 0
    every = range(1000, SIZE + 1, 1000)
    assert ways["refused"]["seen"] == ways["threaded"]["seen"] == [*every]
    many = alone["forks"] + 1
    assert alone["seen"] == [number * many for number in every if number <= SIZE // many]
    assert ways["ended"]["seen"] == alone["seen"] + ways["threaded"]["seen"]  # its part was not there


# One in the part that the process itself looks at, one in that of a child, one at the seam.
TAMPERED = {
    "a column": "UPDATE entries SET tool = 'other' WHERE number = {}",
    "a column that is no text": "UPDATE entries SET tool = x'80' WHERE number = {}",
    "a text that is none": "UPDATE entries SET tool = CAST(x'80' AS TEXT) WHERE number = {}",
    "a body": "UPDATE entries SET body = CAST(replace(body, 'add', 'sub') AS BLOB) WHERE number = {}",
    "a body that is a number": "UPDATE entries SET body = 1 << 62 WHERE number = {}",
    "a hash": "UPDATE entries SET hash = x'00' WHERE number = {}",
    "one that is gone": "DELETE FROM entries WHERE number = {}",
    "all behind it": "DELETE FROM entries WHERE number > {}",
    "its number": "UPDATE entries SET number = -number WHERE number = {}",
    "a head": "UPDATE heads SET signature = x'00' WHERE size >= {}",
    "a head that is a number": "UPDATE heads SET body = 1 << 62 WHERE size >= {}",
    "heads": "DELETE FROM heads WHERE size >= {}",
    "what a head is searched by": "UPDATE heads SET size = size - 1 WHERE size >= {}",
}


@pytest.mark.parametrize("number", [7, SIZE // 2, SIZE // 2 + 1, SIZE - 7])
def test_what_is_wrong_is_told_in_the_same_words(made: Path, tmp_path: Path, number: int) -> None:
    paths = []
    for name, statement in TAMPERED.items():
        shutil.copytree(made, tmp_path / name)
        paths.append(tmp_path / name / "ledger.sqlite")
        with closing(sqlite3.connect(paths[-1], isolation_level=None)) as db:
            db.execute(statement.format(number))
    for name, ways in zip(TAMPERED, verified(*paths), strict=True):
        assert "finding=Finding(" in ways["alone"]["outcome"], name


@pytest.mark.parametrize("table", ["entries", "heads", "chains", "by_verdict"])
def test_a_file_that_is_damaged_is_told_in_the_same_words(made: Path, tmp_path: Path, table: str) -> None:
    shutil.copytree(made, tmp_path / "state")
    path = tmp_path / "state" / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as db:
        ((size,),) = db.execute("PRAGMA page_size")
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    (ways,) = verified(path)
    assert "finding=Finding(" in ways["alone"]["outcome"]


@pytest.mark.parametrize("quarter", [1, 2, 3])
def test_entries_that_cannot_be_read_are_told_in_the_same_words(made: Path, tmp_path: Path, quarter: int) -> None:
    shutil.copytree(made, tmp_path / "state")
    path = tmp_path / "state" / "ledger.sqlite"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size * quarter // 4)
        file.write(b"\xff" * 8192)
    (ways,) = verified(path)
    assert "finding=Finding(" in ways["alone"]["outcome"]


def test_each_part_has_its_share(made: Path) -> None:
    path = made / "ledger.sqlite"
    with LedgerReader(path) as reader:
        sizes = [head.size for head in reader.heads()]
    parts = Parts(str(path), SIZE, sizes, 3)
    assert (parts.first, parts.last, parts.many) == (SIZE // 3, SIZE, 3)
    parts.close()
    assert list(parts) == []
    with closing(Parts(str(path), SIZE, sizes, 3)) as again:
        found = [part and (part.first, part.last) for part in again]
    assert found == [(SIZE // 3 + 1, SIZE * 2 // 3), (SIZE * 2 // 3 + 1, SIZE)]


def test_a_small_ledger_is_not_worth_a_fork() -> None:
    assert worthwhile(SIZE - 1) == 1
