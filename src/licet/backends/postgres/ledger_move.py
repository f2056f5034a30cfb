"""Moves a ledger from a file to a database, or back. The bytes of entries, their order and the signed heads stay.

Both sides are verified, before and after. Nobody writes to the source meanwhile, nor afterwards:

- A file is locked, and then says where it went to: a process that has it open refuses to write on. At the end it is
  renamed to `….moved.sqlite`.
- In a database, the tables are locked, and `licet.ledger.gone` says where the ledger is: `append_entries` refuses.

The target takes entries only at the very end. A move that was interrupted is begun again by the same command: what it
left is replaced. Only who owns the tables of a database may move a ledger from or to it.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from licet.backends.ledger.reader import LedgerReader, Progress, verify_ledger
from licet.backends.ledger.state import (
    BEGIN,
    FORMAT,
    KEEP,
    SCHEMA,
    State,
    Tagging,
    checkpoint_path,
    moved_key,
    moved_path,
    moved_to,
    read_state,
    write_last,
)
from licet.backends.limits import MOVE_SECONDS, MOVED_AT_ONCE
from licet.backends.postgres.batches import PURPOSE, batch_text
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_reader import PostgresReader
from licet.backends.postgres.verify_database import verify_database
from licet.backends.secrets import SigningKey, ledger_key
from licet.core.ledger.entry import Checkpoint, Row, Tail, checkpoint_body, read_entry, time_text
from licet.core.ledger.merkle import Frontier
from licet.core.ledger.verify import Outcome
from licet.guard.ports import LedgerUnavailable, Unavailable

T = TypeVar("T")

_INCOMPLETE = "to here, and not completely: run the same `licet state move` again"
_ENTRIES = """INSERT INTO licet.entries
    (agent, session, sequence, id, kind, tool, verdict, time, hash, body, batch)
SELECT agent, session, sequence, id, kind, tool, verdict, time, hash, body, $11 FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[],
    $10::bytea[]
) AS given (agent, session, sequence, id, kind, tool, verdict, time, hash, body)"""
_BATCH = "INSERT INTO licet.batches (id, node, hashes, signature) VALUES ($1, $2, $3, $4)"
_PLACES = """INSERT INTO licet.places (number, hash, agent, session, sequence)
SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::text[], $5::bigint[])"""
# All entries so far have their places.
_HEADS = """INSERT INTO licet.heads (size, body, signature, frontier, below)
SELECT size, body, signature, frontier, (pg_current_xact_id()::text::numeric + 1)::text::xid8
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[]) AS given (size, body, signature, frontier)"""
_LOCK = "LOCK TABLE licet.batches, licet.entries, licet.places, licet.heads IN SHARE ROW EXCLUSIVE MODE"
_FIELDS = ("agent", "session", "sequence", "id", "kind", "tool", "verdict", "time", "hash", "body")
_INSERT = f"INSERT INTO entries ({', '.join(Row._fields)}) VALUES ({', '.join('?' * len(Row._fields))})"  # noqa: S608
_CHAIN = "INSERT INTO chains (agent, session, sequence, hash, number) VALUES (?, ?, ?, ?, ?)"
_CHECKPOINT = "INSERT INTO checkpoints (size, body, signature) VALUES (?, ?, ?)"


class NotMoved(Exception):
    """A ledger that was not moved. The text says why, and what to do."""


class MovedLedger(Struct, frozen=True):
    """A ledger that was moved."""

    entries: int
    aside: str = ""  # where the file is that was moved from


def _nothing() -> None: ...


# From a file to a database -------------------------------------------------------------------------------------------


def ledger_to_database(
    path: Path,
    database: Database,
    keys: Path,
    to: str,
    progress: Progress | None = None,
    rest: Callable[[], None] = _nothing,
    operators: Sequence[str] = (),
) -> MovedLedger:
    """Move a ledger file to a database. `keys` is the directory that this node has for it, `to` its address.

    `rest` moves what else belongs to the state, while no call can begin.
    """
    key = _key_of(path)
    found = _begun(database)
    if found is not None and found.id != _id_of(path):
        raise NotMoved(f"{to} has a ledger of its own ({found.id}): move to an empty database")
    with closing(_opened(path)) as source:
        state = read_state(source)
        if state is None:
            raise NotMoved(f"{path} has no entries, so there is nothing to move: use {to} as it is")
        if found is not None and not found.gone:
            if moved_to(state.key) != to:
                raise NotMoved(f"{to} has this ledger already, and {path} is still in use: one of them is a copy")
            return _set_aside(path, source, state.size)  # all but the last step was done
        state = _unmarked(source, state, key)
        source.execute("BEGIN IMMEDIATE")  # nobody else writes from here on
        before = _sound(verify_ledger(path, key.public, progress=progress), str(path))
        _copy_keys(Path(os.path.splitext(path)[0]), keys / "ledger")
        with LedgerReader(path) as reader:
            signed = _last_head(reader, before, key)
            _in_database(database, _fill(database, reader, before, key, signed, progress))
        frontier = Frontier.of_bytes(before.entries, before.frontier)
        write_last(checkpoint_path(keys / "ledger.sqlite"), signed, frontier)
        after = verify_database(database, str(keys / "ledger"), key.public, progress=progress, operators=operators)
        _compare(before, _sound(after, to))
        rest()
        source.execute("UPDATE ledger SET key = ?", (moved_key(key.public, to),))
        source.execute("COMMIT")
        _release(database)
        return _set_aside(path, source, before.entries)


def _release(database: Database) -> None:
    _do(database, "UPDATE licet.ledger SET gone = '' RETURNING id")


class _LedgerRow(Struct, frozen=True):
    id: str
    gone: str


def _begun(database: Database) -> _LedgerRow | None:
    rows = _do(database, "SELECT id::text, gone::text FROM licet.ledger LIMIT 1")
    return _LedgerRow(*rows[0]) if rows else None


def _opened(path: Path) -> sqlite3.Connection:
    with LedgerReader(path):  # it is a ledger, with the tables that licet makes
        pass
    return sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)


def _key_of(path: Path) -> SigningKey:
    file = os.path.splitext(path)[0] + ".key"
    if not os.path.lexists(file):
        raise NotMoved(f"{file} is missing, the key of the ledger: a ledger is moved by who has it")
    return ledger_key(file)


def _id_of(path: Path) -> str:
    with LedgerReader(path) as reader:
        return reader.ledger


def _unmarked(source: sqlite3.Connection, state: State, key: SigningKey) -> State:
    """The state of a file whose move was interrupted, as it was before."""
    if state.key == key.public or not moved_to(state.key):
        return state
    source.execute("UPDATE ledger SET key = ?", (key.public,))
    return state._replace(key=key.public)


def _last_head(reader: LedgerReader, outcome: Outcome, key: SigningKey) -> Checkpoint:
    """The head that covers all entries; it is signed now if the last ones have none."""
    if outcome.signed == outcome.entries:
        *_, last = reader.checkpoints()
        return last
    if not outcome.tagged:
        raise NotMoved(f"the last entries of {reader.path} are not signed, and their MAC was not checked")
    root, now = Frontier.of_bytes(outcome.entries, outcome.frontier).root, time_text(datetime.now(UTC))
    body = checkpoint_body(outcome.ledger, outcome.entries, root, now, key.public)
    return Checkpoint(outcome.entries, body, key.sign(body))


async def _fill(
    database: Database,
    reader: LedgerReader,
    outcome: Outcome,
    key: SigningKey,
    last: Checkpoint,
    progress: Progress | None,
) -> None:
    """Write everything in one transaction. Until it is verified, the ledger there takes no entries."""
    connection = await database.own_connection()
    try:
        async with connection.transaction():
            # What an interrupted move has left; any other ledger was refused.
            await connection.execute("TRUNCATE licet.ledger, licet.batches, licet.entries, licet.places, licet.heads")
            await connection.execute(
                "INSERT INTO licet.ledger (id, key, gone) VALUES ($1, $2, $3)", outcome.ledger, key.public, _INCOMPLETE
            )
            heads = _heads(reader.checkpoints(), last)
            frontier, due = Frontier(), next(heads, None)
            for rows in _portions(reader.entries()):
                columns = {name: [getattr(row, name) for row in rows] for name in ("number", *_FIELDS)}
                batch, hashes = os.urandom(16), b"".join(columns["hash"])
                # The key of the ledger signs for what no node has written.
                signature = Node(key).sign(PURPOSE, batch_text(outcome.ledger, batch, hashes))
                await connection.execute(_BATCH, batch, key.public, hashes, signature)
                await connection.execute(_ENTRIES, *(columns[name] for name in _FIELDS), batch)
                await connection.execute(
                    _PLACES, *(columns[name] for name in ("number", "hash", "agent", "session", "sequence"))
                )
                signed: list[tuple[int, bytes, bytes, bytes]] = []
                for row in rows:
                    frontier.add(row.hash)
                    if due is not None and due.size == frontier.size:
                        signed.append((*due, bytes(frontier)))
                        due = next(heads, None)
                if signed:
                    await connection.execute(_HEADS, *map(list, zip(*signed, strict=True)))
                if progress is not None:
                    progress(frontier.size)
    finally:
        await connection.close()


def _heads(checkpoints: Iterable[Checkpoint], last: Checkpoint) -> Iterator[Checkpoint]:
    yield from (one for one in checkpoints if 0 < one.size < last.size)
    yield last


def _set_aside(path: Path, source: sqlite3.Connection, entries: int) -> MovedLedger:
    """Rename the file that was moved from, so that no command finds it by its name."""
    with suppress(sqlite3.Error):  # another process may be reading: then its log stays, and is complete with the file
        source.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    source.close()
    aside = next(name for number in count(1) if not os.path.lexists(name := moved_path(path, number)))
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{ending}", f"{aside}{ending}")
    os.rename(path, aside)
    return MovedLedger(entries, aside)


# From a database to a file -------------------------------------------------------------------------------------------


def ledger_to_file(
    database: Database,
    keys: Path,
    path: Path,
    from_: str,
    progress: Progress | None = None,
    rest: Callable[[], None] = _nothing,
    operators: Sequence[str] = (),
) -> MovedLedger:
    """Move the ledger of a database to a file that is not there yet; `rest` as above."""
    if os.path.lexists(path):
        raise NotMoved(f"{path} is there already: move to a directory without a ledger")
    key = _key_of(keys / "ledger.sqlite")
    found = _begun(database)
    if found is None:
        raise NotMoved(f"{from_} has no ledger, so there is nothing to move")
    if found.gone and found.gone != f"to {path}":
        raise NotMoved(f"the ledger of {from_} was moved, {found.gone}")
    target = Path(os.path.splitext(path)[0])
    temporary = target.with_name(f"{target.name}-moving.sqlite")
    for file in (temporary, *(temporary.with_name(temporary.name + ending) for ending in ("-wal", "-shm", "-journal"))):
        file.unlink(missing_ok=True)  # what an interrupted move has left
    outcome = verify_database(database, str(keys / "ledger"), key.public, progress=progress, operators=operators)
    before = _sound(outcome, from_)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    had_keys = os.path.lexists(f"{target}.key")
    _copy_keys(keys / "ledger", target)
    try:
        after = _in_database(
            database, _emptied(database, str(keys / "ledger"), temporary, key, path, before, progress, rest)
        )
    except (NotMoved, LedgerUnavailable, Unavailable):
        if not had_keys:  # a key without a ledger would say that the ledger was removed
            for ending in (".key", ".pub"):
                Path(f"{target}{ending}").unlink(missing_ok=True)
        raise
    os.replace(checkpoint_path(temporary), checkpoint_path(path))
    os.rename(temporary, path)
    _sound(verify_ledger(path, key.public), str(path))
    return MovedLedger(after.entries)


async def _emptied(
    database: Database,
    keys: str,
    temporary: Path,
    key: SigningKey,
    path: Path,
    before: Outcome,
    progress: Progress | None,
    rest: Callable[[], None],
) -> Outcome:
    """Copy the ledger while its tables are locked; at the end it says that it is gone."""
    connection = await database.own_connection()
    try:
        async with connection.transaction():
            await connection.execute(_LOCK)
            # In a thread, since a reader waits for this one.
            after = await asyncio.to_thread(_written, database, keys, temporary, key, progress)
            _compare_grown(before, after)
            await asyncio.to_thread(rest)
            await connection.execute("UPDATE licet.ledger SET gone = $1", f"to {path}")
        return after
    finally:
        await connection.close()


def _written(database: Database, keys: str, temporary: Path, key: SigningKey, progress: Progress | None) -> Outcome:
    with PostgresReader(database, keys) as reader:
        if waiting := reader.waiting:
            raise NotMoved(f"{waiting} entries wait for their place in the tree: try again in a moment")
        *_, last = (Checkpoint(0, b"", b""), *reader.checkpoints())
        if last.size != reader.size:
            raise NotMoved("the last entries are in no signed head: try again in a moment")
        frontier = _write_file(temporary, reader, key, progress)
    write_last(checkpoint_path(temporary), last, frontier)
    return _sound(verify_ledger(temporary, key.public, [last]), str(temporary))


def _write_file(temporary: Path, reader: PostgresReader, key: SigningKey, progress: Progress | None) -> Frontier:
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(temporary, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute(f"PRAGMA application_id = {FORMAT.application}")
        db.execute(f"PRAGMA user_version = {FORMAT.version}")
        db.executescript(SCHEMA)
        db.execute("BEGIN IMMEDIATE")
        db.execute(BEGIN, (reader.ledger, key.public))
        frontier, recorded, ends = Frontier(), "", dict[tuple[str, str], Tail]()
        for rows in _portions(reader.entries()):
            db.executemany(_INSERT, rows)
            frontier.extend(row.hash for row in rows)
            ends.update({(row.agent, row.session): Tail(row.sequence, row.hash, row.number) for row in rows})
            recorded = read_entry(rows[-1].body).recorded
            if progress is not None:
                progress(frontier.size)
        db.executemany(_CHAIN, [(*session, *end) for session, end in ends.items()])
        db.executemany(_CHECKPOINT, (one for one in reader.checkpoints() if one.size))
        now = time.time_ns() // 1_000_000
        state = State(reader.ledger, key.public, frontier.size, bytes(frontier), recorded, frontier.size, now)
        db.execute(KEEP, Tagging(key).tagged(state)[2:])
        db.execute("COMMIT")
        return frontier


# Both ----------------------------------------------------------------------------------------------------------------


def _sound(outcome: Outcome, where: str) -> Outcome:
    """An outcome without a finding; the time, and an id that is used twice, are what an older licet may have left."""
    if outcome.finding is not None and outcome.finding.kind not in ("clock", "twice"):
        raise NotMoved(f"the ledger in {where} was changed, {outcome.finding}: it is not moved")
    return outcome


def _compare(before: Outcome, after: Outcome) -> None:
    if (before.entries, before.root, before.ledger) != (after.entries, after.root, after.ledger):
        raise NotMoved("the ledger in its new place is another one than before: it is not used")


def _compare_grown(before: Outcome, after: Outcome) -> None:
    """Entries may have been added between the first look and the lock."""
    if after.entries < before.entries or after.ledger != before.ledger:
        raise NotMoved("the ledger in its new place is another one than before: it is not used")
    if after.entries == before.entries:
        _compare(before, after)


def _copy_keys(source: Path, target: Path) -> None:
    """The key of the ledger in the directory of the other side too; the same directory may serve for both."""
    key = ledger_key(f"{source}.key")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.lexists(f"{target}.key") and ledger_key(f"{target}.key").public != key.public:
        raise NotMoved(f"{target}.key is the key of another ledger: move it away, or name another directory")
    ledger_key(f"{target}.key", key)


def _portions(rows: Iterable[Row]) -> Iterator[Sequence[Row]]:
    each = iter(rows)
    while portion := list(islice(each, MOVED_AT_ONCE)):
        yield portion


def _do(database: Database, query: str) -> Sequence[Any]:
    async def asked(connection: Any) -> Sequence[Any]:
        found: Sequence[Any] = await connection.fetch(query)
        return found

    try:
        return database.wait(asked, MOVE_SECONDS)
    except Unavailable as wrong:
        raise NotMoved(str(wrong)) from None


def _in_database(database: Database, work: Any) -> Any:
    """Do something long in the thread of the database."""
    try:
        return database.do(work, MOVE_SECONDS)
    except (NotMoved, LedgerUnavailable):
        raise
    except Unavailable as wrong:
        raise NotMoved(str(wrong)) from None
    except Exception as wrong:  # such as a table that belongs to another role
        text = (str(wrong).splitlines() or [""])[0]
        raise NotMoved(f"the database refuses: {text}; who owns its tables may move a ledger") from None
