"""A ledger moves from a file to a database and back: the same bytes, in the same order, under the same heads."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backends.postgres.signed_ledger import call, entry
from licet.backends.ledger.reader import LedgerReader, verify_ledger
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.postgres import ledger_move
from licet.backends.postgres.database import Database
from licet.backends.postgres.ledger_move import NotMoved, ledger_to_database, ledger_to_file
from licet.backends.postgres.postgres_reader import PostgresReader
from licet.backends.postgres.verify_database import verify_database
from licet.core.ledger.entry import Entry, Row
from licet.guard.entry_reader import EntryReader
from licet.guard.ports import LedgerUnavailable

TO = "postgresql://team/licet"


class Places:
    """A file with a ledger, and a database."""

    def __init__(self, address: str, folder: Path) -> None:
        self.database, self.state, self.node = Database(address), folder / "state", folder / "node"
        self.path = self.state / "ledger.sqlite"
        self.ledger = SqliteLedger(self.path)
        self.record(*call(1), *call(2, "s-2"))
        self.record(*call(3))

    def record(self, *entries: Entry) -> None:
        async def kept() -> None:
            for one in entries:
                await self.ledger.record(one)

        asyncio.run(kept())

    @property
    def key(self) -> str:
        return (self.state / "ledger.pub").read_text().strip()

    def there(self) -> PostgresReader:
        return PostgresReader(self.database, str(self.node / "ledger"))

    def move(self) -> None:
        ledger_to_database(self.path, self.database, self.node, TO)

    def move_back(self, path: Path) -> None:
        ledger_to_file(self.database, self.node, path, TO)

    def sql(self, query: str) -> None:
        self.database.wait(lambda connection: connection.execute(query), 10)


@pytest.fixture
def places(postgres: str, tmp_path: Path) -> Iterator[Places]:
    places = Places(postgres, tmp_path)
    yield places
    places.ledger.close()
    places.database.close()


def contents(reader: EntryReader) -> tuple[list[Row], list[object]]:
    with reader:
        return list(reader.entries()), list(reader.checkpoints())


def test_a_ledger_moves_to_a_database_and_back(places: Places, tmp_path: Path) -> None:
    places.ledger.close()
    before = contents(LedgerReader(places.path))
    places.move()
    assert contents(places.there()) == before
    assert verify_database(places.database, str(places.node / "ledger"), places.key).ok
    assert not places.path.exists()
    assert (places.state / "ledger.moved.sqlite").exists()
    again = tmp_path / "again" / "ledger.sqlite"
    places.move_back(again)
    assert contents(LedgerReader(again)) == before
    assert verify_ledger(again, places.key).tagged
    ledger = SqliteLedger(again)
    asyncio.run(ledger.record(entry("decision", 4)))
    ledger.close()
    assert verify_ledger(again, places.key).ok


def test_entries_that_no_head_covers_are_signed_when_they_move(places: Places) -> None:
    """The process that wrote them was killed before it signed."""
    places.record(entry("decision", 4))
    with closing(sqlite3.connect(places.path)) as db:
        signed, size = db.execute("SELECT signed, size FROM ledger").fetchone()
    assert signed < size
    places.move()
    assert verify_database(places.database, str(places.node / "ledger"), places.key).signed == size


def test_a_process_that_has_the_file_open_writes_nothing_more(places: Places) -> None:
    places.move()
    with pytest.raises(LedgerUnavailable, match="was moved to another state"):
        places.record(entry("decision", 4))
    again = SqliteLedger(places.path)
    with pytest.raises(LedgerUnavailable, match="was moved to another state"):
        asyncio.run(again.record(entry("decision", 4)))
    with pytest.raises(LedgerUnavailable, match="it was moved to another state"):
        LedgerReader(places.path)
    again.close()


def test_a_database_whose_ledger_is_gone_takes_no_entries(places: Places, tmp_path: Path) -> None:
    places.move()
    places.move_back(tmp_path / "again" / "ledger.sqlite")
    values = "''::bytea, 'n', ''::bytea, " + ", ".join(["'{}'"] * 9 + ["'{x}'", "'{}'"])
    with pytest.raises(Exception, match="the ledger was moved, to /"):
        places.sql(f"SELECT licet.append_entries({values})")
    with pytest.raises(NotMoved, match="was moved, to /"):
        places.move_back(tmp_path / "third" / "ledger.sqlite")


def test_a_changed_ledger_does_not_move(places: Places, tmp_path: Path) -> None:
    places.ledger.close()
    with closing(sqlite3.connect(places.path, isolation_level=None)) as db:
        db.execute("UPDATE entries SET verdict = 'deny' WHERE number = 2")
    with pytest.raises(NotMoved, match=r"entry 2 .* its index says verdict"):
        places.move()
    with closing(sqlite3.connect(places.path, isolation_level=None)) as db:
        db.execute("UPDATE entries SET verdict = 'allow' WHERE number = 2")
    places.move()
    places.sql("UPDATE licet.entries SET verdict = 'deny' WHERE sequence = 2 AND session = 's-1'")
    with pytest.raises(NotMoved, match=r"entry 2 .* its index says verdict"):
        places.move_back(tmp_path / "again" / "ledger.sqlite")


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_move_that_was_interrupted_is_done_again(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.ledger.close()
    before = contents(LedgerReader(places.path))

    for step in ("verify_database", "_release", "_set_aside"):
        with monkeypatch.context() as patched:
            patched.setattr(ledger_move, step, interrupted)
            with pytest.raises(KeyboardInterrupt):
                places.move()
    places.move()
    assert contents(places.there()) == before
    assert (places.state / "ledger.moved.sqlite").exists()
    assert verify_database(places.database, str(places.node / "ledger"), places.key).ok


def test_a_database_with_another_ledger_is_refused(places: Places) -> None:
    places.sql("INSERT INTO licet.ledger (id, key) VALUES ('other', 'k')")
    with pytest.raises(NotMoved, match="has a ledger of its own"):
        places.move()
    assert places.path.exists()
