"""The contract of readers of a ledger, on a file and on a database that its ledger was moved to."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.postgres.signed_ledger import START_TIME, SignedLedger, call, entry
from licet.assemble.ledger import evidence_pack
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.postgres.database import Database
from licet.backends.postgres.ledger_move import ledger_to_database
from licet.backends.postgres.postgres_reader import PostgresReader
from licet.core.ledger.entry import Row, time_text
from licet.guard.entry_reader import EntryReader
from licet.guard.ports import LedgerUnavailable


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of some calls: two agents, a delegate, a refusal, and a call that has no receipt."""
    ledger = SqliteLedger(tmp_path_factory.mktemp("contract") / "ledger.sqlite")

    async def kept() -> None:
        for one in (
            *call(1),
            *call(2, "s-2", verdict="deny", reason="NOT_ALLOWED"),
            *call(3, agent="agent>helper"),
            entry("decision", 4),
            *call(5, "s-3", agent="other", purpose="pay Zoë 'now' \\ %"),
            *call(1500, "s-3", agent="other"),
        ):
            await ledger.record(one)

    asyncio.run(kept())
    ledger.close()
    return Path(ledger.path)


@pytest.fixture(scope="module")
def moved(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, Path]]:
    from postgres_server import fresh

    folder = tmp_path_factory.mktemp("moved")
    for name in ("sqlite", "key", "pub", "head"):
        (folder / f"ledger.{name}").write_bytes(files.with_suffix(f".{name}").read_bytes())
        (folder / f"ledger.{name}").chmod(0o600)
    database = Database(fresh())
    ledger_to_database(folder / "ledger.sqlite", database, folder, "there")
    yield database, folder
    database.close()


@pytest.fixture(params=["sqlite", "postgres"])
def reader(request: pytest.FixtureRequest, files: Path) -> Iterator[EntryReader]:
    if request.param == "sqlite":
        with LedgerReader(files) as one:
            yield one
        return
    database, folder = request.getfixturevalue("moved")
    with PostgresReader(database, str(folder / "ledger")) as other:
        yield other


def ids(rows: Any) -> list[tuple[int, str, str]]:
    return [(row.number, row.id, row.kind) for row in rows]


def day(minutes: int) -> str:
    return time_text(START_TIME.replace(hour=14)).replace("14:00", f"{14 + minutes // 60}:{minutes % 60:02}")


CASES: dict[str, tuple[Callable[[EntryReader], Any], Any]] = {
    "all receipts": (lambda reader: [row.number for row in reader.list()], [11, 9, 6, 4, 2]),
    "a limit": (lambda reader: [row.number for row in reader.list(limit=2)], [11, 9]),
    "no limit": (lambda reader: len(reader.list(kind=None, limit=-1)), 11),
    "before": (lambda reader: [row.number for row in reader.list(kind=None, before=3)], [2, 1]),
    "an agent": (lambda reader: [row.number for row in reader.list(agent="agent")], [4, 2]),
    "a session": (lambda reader: ids(reader.list(session="s-2")), [(4, "r-s-2-2", "receipt")]),
    "a tool": (lambda reader: len(reader.list(tool="add")), 5),
    "another tool": (lambda reader: reader.list(tool="' OR true --"), []),
    "a verdict": (lambda reader: [row.number for row in reader.list(verdict="deny")], [4]),
    "a time": (lambda reader: [row.number for row in reader.list(since=day(2), until=day(5))], [6, 4]),
    "decisions": (lambda reader: [row.number for row in reader.list(kind="decision")], [10, 8, 7, 5, 3, 1]),
    "a text": (lambda reader: ids(reader.containing(["Zoë 'now' \\\\ %"])), [(9, "r-s-3-5", "receipt")]),
    "one of some texts, and one of others": (
        lambda reader: [row.number for row in reader.containing(["NOT_ALLOWED", "Zoë"], ['"deny"'])],
        [4],
    ),
    "no text at all": (lambda reader: [row.number for row in reader.containing(["%"], agent="agent")], []),
    "counts": (
        lambda reader: [tuple(one) for one in reader.counts()],
        [
            ("2026-03-02", "other", "allow", 1),
            ("2026-03-01", "agent", "allow", 1),
            ("2026-03-01", "agent", "deny", 1),
            ("2026-03-01", "agent>helper", "allow", 1),
            ("2026-03-01", "other", "allow", 1),
        ],
    ),
    "unended": (lambda reader: (ids(reader.unended()[0]), reader.unended()[1]), ([(7, "r-s-1-4", "decision")], 0)),
    "unended of another": (lambda reader: reader.unended(agent="other", limit=-1)[0], []),
    "unknown": (lambda reader: reader.unknown(), ("r-s-1-4",)),
    "sessions": (
        lambda reader: [(row.number, row.agent, row.session) for row in reader.sessions()],
        [(11, "other", "s-3"), (7, "agent", "s-1"), (6, "agent>helper", "s-1"), (4, "agent", "s-2")],
    ),
    "of a session": (lambda reader: sorted(row.number for row in reader.of_session("agent", "s-1")), [1, 2, 5, 6, 7]),
    "show": (
        lambda reader: ids(reader.show("r-s-1-1")),
        [(1, "r-s-1-1", "decision"), (2, "r-s-1-1", "receipt")],
    ),
    "show nothing": (lambda reader: list(reader.show("r-'; DROP TABLE licet.entries")), []),
    "size": (lambda reader: reader.size, 11),
    "complete": (lambda reader: reader.is_complete(3), True),
    "hashes": (lambda reader: list(reader.hashes()) == [row.hash for row in reader.entries()], True),
    "numbers": (lambda reader: [row.number for row in reader.entries()], list(range(1, 12))),
    "the newest checkpoint": (lambda reader: [one.size for one in reader.checkpoints()][-1], 11),
}


@pytest.mark.parametrize("name", CASES)
def test_both_readers_say_the_same(reader: EntryReader, name: str) -> None:
    ask, expected = CASES[name]
    assert ask(reader) == expected


def test_both_readers_have_the_same_bytes(files: Path, moved: tuple[Database, Path]) -> None:
    with LedgerReader(files) as one, PostgresReader(moved[0], str(moved[1] / "ledger")) as other:
        assert list(one.entries()) == list(other.entries())
        assert (one.ledger, one.key) == (other.ledger, other.key)


def test_a_reader_reads_one_snapshot_and_knows_what_waits(postgres: str, tmp_path: Path) -> None:
    team = SignedLedger(postgres, tmp_path)
    team.write(*call(1))
    team.place()
    with PostgresReader(team.database, team.keys) as reader:
        team.write(*call(2), entry("decision", 3))
        assert (reader.size, reader.waiting, len(reader.list())) == (4, 0, 1)
    with PostgresReader(team.database, team.keys) as reader:
        first: list[Row] = list(reader.list(kind=None))
        assert [row.number for row in first] == [0, 0, 0, 4, 3, 2, 1]
        assert (reader.size, reader.waiting, reader.unknown()) == (4, 3, ("r-s-1-3",))
        assert [row.number for row in reader.show("r-s-1-2")] == [0, 0]
        assert len(list(reader.entries())) == 4
        with pytest.raises(LedgerUnavailable, match="r-s-1-2 has no place in the tree of the ledger yet"):
            evidence_pack(reader, reader.show("r-s-1-2"))
        # A transaction that only reads must not hold back the places of what is written meanwhile.
        assert reader.row("SELECT pg_current_xact_id_if_assigned()::text")[0] is None
    team.close()


def test_a_reader_says_what_is_wrong(postgres: str, tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match=r"cannot be reached|does not exist"):
        PostgresReader(postgres.replace("/test_", "/absent_"), str(tmp_path / "ledger"))
    team = SignedLedger(postgres, tmp_path)
    with PostgresReader(team.database, team.keys) as reader:
        team.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()")
        with pytest.raises(LedgerUnavailable, match="cannot be"):
            reader.list()
    team.close()
