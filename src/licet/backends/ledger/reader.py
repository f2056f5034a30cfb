"""Reads a ledger file without changing it: entries, newest first or from the beginning, and the signed checkpoints.

A reader sees the ledger as it was when it was opened, also while others write, so entries and checkpoints match. It
does not verify what it reads; `verify` does.

Verifies a ledger file: its entries and checkpoints, and the tables and indexes around them.

- `core.ledger.verify` checks the entries and the checkpoints.
- SQLite checks its own file, and that no index leaves out an entry: a search reads an index first.
- The tables `ledger` and `chains`, from which a writer continues, must match the entries.
- If the private key can be read, the MAC over the end of the ledger is checked too.
- A ledger with a key has an entry, since the key is made with the first one; next to the key is the last checkpoint.
- No two calls have the same id. Calls that began and have no receipt are listed.
"""

import json
import os
import sqlite3
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Unpack
from urllib.parse import quote

from msgspec.structs import replace

from licet.backends.ledger.state import (
    COLUMNS,
    FORMAT,
    OTHER_ROWS,
    STATE,
    LastCheckpoint,
    State,
    Tagging,
    checkpoint_path,
    foreign_tables,
    moved_path,
    read_last,
    wrong_column,
)
from licet.backends.limits import LONGEST_ENTRY, READ_AT_ONCE, SEARCHED_MEANWHILE, SEARCHED_UNENDED
from licet.backends.secrets import SigningKey, check_signature, key_if_readable
from licet.core.late_pattern import late_pattern
from licet.core.ledger.entry import Checkpoint, LinkedEntry, Row, Unsound, read_entry
from licet.core.ledger.verify import Finding, Outcome, verify
from licet.guard.entry_reader import Filters, VerdictFilters, moment_text, tests_of
from licet.guard.ports import LedgerUnavailable
from licet.own_files import open_regular

_COLUMNS = ", ".join(Row._fields)
# In an older ledger, calls of two forked processes may have the same id.
_ALONE = """NOT EXISTS (SELECT 1 FROM entries AS other WHERE other.id = entries.id AND other.kind = 'receipt'
AND other.agent = entries.agent AND other.session = entries.session AND other.time = entries.time)"""
_LARGEST = (1 << 63) - 1  # that SQLite knows
_MADE_WITHIN = 1.0  # seconds between the making of a ledger's file and that of its tables


class ForeignTables(LedgerUnavailable):
    """A ledger with tables, triggers or views that licet does not make; no row of it is read."""


class LedgerReader:
    """A ledger file as it is now; close it, or use it in a `with`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self.keys = os.path.splitext(self.path)[0]
        self._db = self._open()
        try:
            self._wait_until_made()
            self._db.execute("BEGIN")  # everything is read from one snapshot
            self._check()
            found = self.tables("SELECT id, key FROM ledger LIMIT 1")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # an error of SQLite may repeat bytes that are no text
            self._db.close()
            raise LedgerUnavailable(f"{self.path} cannot be read: {error}") from None
        except BaseException:
            self._db.close()
            raise
        if not found and os.path.lexists(moved_path(self.path)):  # a process that had it open has made another file
            self._db.close()
            raise no_ledger(self.path)
        # Its id and its public key; `verify` reports values that are no text.
        self.ledger, self.key = (value if isinstance(value, str) else "" for value in (found[0] if found else ("", "")))

    def __enter__(self) -> "LedgerReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def list(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        kind: str | None = "receipt",
        **filters: Unpack[VerdictFilters],
    ) -> Sequence[Row]:
        """Return entries that match all given filters, the newest first; with `before`, only those before that number.

        The time is that of the call: from `since` on, and before `until`.
        """
        where, values = _conditions(kind, filters)
        if before is not None:
            where += f" AND number < {before:d}"
        order = "time DESC, number DESC" if kind == "receipt" else "number DESC"  # as the index has it, if there is one
        query = f"SELECT {_COLUMNS} FROM entries WHERE {where} ORDER BY {order} LIMIT ?"  # noqa: S608 - our words
        return list(self._rows(query, *values, limit))

    def containing(self, *texts: Sequence[str], **filters: Unpack[VerdictFilters]) -> Iterator[Row]:
        """Search receipts whose body contains at least one text of each list; the newest first, a few at a time.

        SQLite scans every receipt that matches the other filters, about 100,000 a second, until the caller stops.
        """
        where, values = _conditions("receipt", filters)
        for some in texts:
            where += f" AND ({' OR '.join(['instr(body, ?)'] * len(some))})"
        query = f"SELECT {_COLUMNS} FROM entries WHERE {where} ORDER BY time DESC, number DESC"  # noqa: S608
        return self._rows(query, *values, *(text.encode() for some in texts for text in some))

    def counts(self, **filters: Unpack[Filters]) -> Iterator[tuple[str, str, str, int]]:
        """The number of receipts per day, agent and verdict, the newest day first; counted by the index columns."""
        where, values = _conditions("receipt", filters)
        query = f"SELECT substr(time, 1, 10), agent, verdict, count(*) FROM entries WHERE {where}"  # noqa: S608
        return chain.from_iterable(self._fetched(f"{query} GROUP BY 1, 2, 3 ORDER BY 1 DESC, 2, 3", values))

    def unended(self, *, limit: int = 50, **filters: Unpack[Filters]) -> tuple[Sequence[Row], int]:
        """Return decisions without a receipt, the newest first, and how many entries were not searched.

        There is no index for them. Of the entries in the wanted time, the last hundred thousand are searched.
        """
        since, until = filters.get("since"), filters.get("until")
        start = 1 if since is None else self._first_since(moment_text(since))
        # A call decided before `until` may have been recorded a little later.
        end = self.size if until is None else min(self.size, self._first_since(moment_text(until)) + SEARCHED_MEANWHILE)
        first = max(start, end - SEARCHED_UNENDED + 1)
        where, values = _conditions("decision", filters)
        query = f"""SELECT {_COLUMNS} FROM entries WHERE number BETWEEN ? AND ? AND {where} AND {_ALONE}
            ORDER BY time DESC, number DESC LIMIT ?"""  # noqa: S608
        return list(self._rows(query, first, end, *values, limit)), first - start

    def sessions(self) -> Iterator[Row]:
        """The last entry of each session, the newest first."""
        query = f"SELECT {_COLUMNS} FROM entries WHERE number IN (SELECT number FROM chains) ORDER BY number DESC"  # noqa: S608
        return self._rows(query)

    def of_session(self, agent: str, session: str, after: Mapping[str, int] | None = None) -> Iterator[Row]:
        """All entries of a session and of its delegates, whose names begin with the agent's and `>`.

        Of the agents in `after`, the first so many entries are left out.
        """
        ends = (
            "SELECT agent, sequence, number FROM chains WHERE session = ? AND (agent = ? OR (agent > ? AND agent < ?))"
        )
        # The entries of one chain, from its end back to its beginning: there is no index of sessions.
        query = f"""SELECT {_COLUMNS} FROM entries
            WHERE number <= ? AND agent = ? AND session = ? ORDER BY number DESC LIMIT ?"""  # noqa: S608
        for known in self._fetched(ends, (session, agent, f"{agent}>", f"{agent}?")):
            for name, sequence, number in known:
                wanted = sequence - (after or {}).get(name, 0)
                if wanted > 0:
                    yield from self._rows(query, number, name, session, wanted)

    def unknown(self) -> tuple[str, ...]:
        """The ids of all calls that began and have no receipt, the newest first."""
        query = f"SELECT id FROM entries WHERE kind = 'decision' AND {_ALONE} ORDER BY number DESC"  # noqa: S608
        return tuple(str(name) for (name,) in self.tables(query))

    def _first_since(self, moment: str) -> int:
        """The number of the first entry recorded at a time or later; one more than the last if there is none."""
        return bisect_left(range(1, self.size + 1), moment, key=self._recorded) + 1

    def _recorded(self, number: int) -> str:
        try:
            found = self._db.execute("SELECT body FROM entries WHERE number = ?", (number,)).fetchone()
            return str(json.loads(found[0])["recorded"])
        except (
            TypeError,
            ValueError,
            KeyError,
            RecursionError,
            sqlite3.Error,
        ):  # changed or missing: `verify` reports it
            return ""

    def show(self, id: str) -> Sequence[Row]:  # noqa: A002
        """Return the entries with an id, in order: of a call its decision, what it did, its receipt; maybe none."""
        return list(self._rows(f"SELECT {_COLUMNS} FROM entries WHERE id = ? ORDER BY number", id))  # noqa: S608

    def entries(self) -> Iterator[Row]:
        """Return every entry in order, a few at a time."""
        return self._rows(f"SELECT {_COLUMNS} FROM entries ORDER BY number")  # noqa: S608

    def checkpoints(self) -> Iterator[Checkpoint]:
        """Return every signed checkpoint, the oldest first."""
        query = "SELECT size, body, signature FROM checkpoints ORDER BY size"
        return starmap(Checkpoint, chain.from_iterable(self._fetched(query, ())))

    def hashes(self) -> Iterator[bytes]:
        """Return the leaves of the tree in order, for inclusion proofs."""
        return (row[0] for row in chain.from_iterable(self._fetched("SELECT hash FROM entries ORDER BY number", ())))

    @property
    def size(self) -> int:
        """Return the number of entries."""
        number: int = self._db.execute("SELECT coalesce(max(number), 0) FROM entries").fetchone()[0]
        return number

    def is_complete(self, first: int) -> bool:
        """Whether no entry is missing from this number to the last one that was counted when it was written."""
        query = "SELECT count(*), (SELECT size FROM ledger) FROM entries WHERE number >= ?"
        count, size = self._db.execute(query, (first,)).fetchone()
        return isinstance(size, int) and count == size - first + 1

    def tables(self, query: str) -> Sequence[tuple[object, ...]]:
        """Query the file itself or a small table; bytes that are no text become lone surrogates."""
        self._db.text_factory = _text
        try:
            return self._db.execute(query).fetchall()
        finally:
            self._db.text_factory = str

    def _rows(self, query: str, *values: object) -> Iterator[Row]:
        return starmap(Row, chain.from_iterable(self._fetched(query, values)))

    def _fetched(self, query: str, values: tuple[object, ...]) -> Iterator[Sequence[Any]]:
        fetched = 0
        try:
            for some in self._some(query, values):
                yield some
                fetched += len(some)
        except sqlite3.OperationalError as error:
            if not str(error).startswith("Could not decode"):
                raise LedgerUnavailable(f"{self.path} cannot be read: {error}") from None
            self._db.text_factory = _text  # a column holds bytes that are no text
            rest = f"SELECT * FROM ({query}) LIMIT -1 OFFSET ?"  # noqa: S608
            yield from self._some(rest, (*values, fetched))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LedgerUnavailable(f"{self.path} cannot be read: {error}") from None

    def _some(self, query: str, values: tuple[object, ...]) -> Iterator[Sequence[Any]]:
        known = tuple(min(value, _LARGEST) if isinstance(value, int) else value for value in values)
        cursor = self._db.execute(query, known)
        while some := cursor.fetchmany(READ_AT_ONCE):
            yield some

    def _open(self) -> sqlite3.Connection:
        try:
            with open_regular(self.path):
                pass
        except (FileNotFoundError, NotADirectoryError):
            raise no_ledger(self.path) from None
        except OSError as error:
            raise LedgerUnavailable(f"{self.path} cannot be read: {error.strerror}") from None
        address = f"file:{quote(self.path)}?mode=ro"
        with suppress(OSError):
            # for example a copy on a read-only disk: there is no write-ahead log, and none can be made
            log = self.path + "-wal"
            if not (os.path.exists(log) and os.path.getsize(log)) and not os.access(os.path.dirname(log), os.W_OK):
                address += "&immutable=1"
        try:
            db = sqlite3.connect(address, uri=True, timeout=10, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"{self.path} cannot be read: {error}") from None
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ENTRY)
        return db

    def _wait_until_made(self) -> None:
        """Let a process that has just made the file commit the tables; until then it has nothing."""
        until = time.monotonic() + _MADE_WITHIN
        while self._db.execute("PRAGMA schema_version").fetchone()[0] == 0 and time.monotonic() < until:
            time.sleep(0.01)

    def _check(self) -> None:
        db = self._db
        db.execute("PRAGMA trusted_schema = OFF")
        application: int = db.execute("PRAGMA application_id").fetchone()[0]
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        if application != FORMAT.application:
            raise LedgerUnavailable(f"{self.path} is no ledger")
        if version > FORMAT.version:
            raise LedgerUnavailable(f"{self.path} was written by a newer licet (format {version}): use that one")
        if version < FORMAT.version:
            raise LedgerUnavailable(f"{self.path} {FORMAT.outdated}")
        # Before any row is read: a view in place of a table may never end.
        if wrong := foreign_tables(db):
            raise ForeignTables(f"{self.path} cannot be read: its tables are not those that licet makes: {wrong}")


def no_ledger(path: str) -> LedgerUnavailable:
    """The error for a missing ledger; if its key is there, the ledger was removed, since the two are made together."""
    key = os.path.splitext(path)[0] + ".key"
    gone = f", and its key {key} is there: the ledger was removed" if os.path.lexists(key) else ""
    if os.path.lexists(aside := moved_path(path)):
        gone = f": it was moved to another state, and {aside} is what it was"
    return LedgerUnavailable(f"there is no ledger at {path}{gone}")


def _text(data: bytes) -> str:
    """Decode text; bytes that are no text become lone surrogates, which no entry has."""
    return data.decode(errors="surrogateescape")


def _conditions(kind: str | None, filters: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """Build the condition of a query, and its values."""
    wanted = tests_of(filters)
    if kind is not None and kind != "receipt":
        wanted.append(("kind =", kind))
    texts = [f"{text} ?" for text, _ in wanted]
    if kind == "receipt":
        texts.append("kind = 'receipt'")  # written out, so that SQLite uses the index of receipts
    return " AND ".join(texts) or "1", tuple(value for _, value in wanted)


_ENDS = "SELECT agent, session, sequence, hash, number FROM chains ORDER BY number"
_TWICE = """
SELECT max(number), id, min(number) FROM entries
WHERE id IN (SELECT id FROM entries GROUP BY id HAVING count(*) > 1) GROUP BY id
HAVING count(*) - sum(kind = 'progress') > count(DISTINCT nullif(kind, 'progress'))
    OR min(agent) != max(agent) OR min(session) != max(session) OR min(tool) != max(tool) OR min(time) != max(time)
ORDER BY 1
"""
_LEFT_OUT = late_pattern(r"row (\d+) missing from index (\w+)")
_MOST = 80  # characters of a value in a message
_PROGRESS_EVERY = 1000  # entries

Progress = Callable[[int], None]


def entries_of_session(
    path: str, agent: str, session: str, after: Mapping[str, int] | None = None
) -> list[LinkedEntry]:
    """The entries of a session and of its delegates; none if there is no ledger yet. `LedgerUnavailable` otherwise.

    Of the agents in `after`, the first so many entries are left out.
    """
    if not os.path.lexists(path):
        return []
    try:
        with LedgerReader(path) as reader:
            return [read_entry(row.body) for row in reader.of_session(agent, session, after)]
    except Unsound as wrong:
        raise LedgerUnavailable(f"{path} has an entry that cannot be read: {wrong}") from None


def verify_ledger(path: Path, key: str, kept: Iterable[Checkpoint] = (), progress: Progress | None = None) -> Outcome:
    """Verify a ledger file against a public key, and against checkpoints that were kept elsewhere.

    The checkpoint in the file next to the key counts as one that was kept. It is read first, because it never covers
    more than the database has at that time.
    """
    last = read_last(checkpoint_path(path))
    kept = [*kept, last.checkpoint] if last is not None and last.facts.size else list(kept)
    try:
        with LedgerReader(path) as reader:
            outcome = _entries(reader, key, kept, progress)
            if outcome.finding is None and last is not None:
                outcome = replace(outcome, finding=_removed_checkpoint(reader, last))
            if outcome.finding is not None and outcome.finding.kind != "clock":
                return outcome
            around = damage(reader) or wrong_end(reader, outcome, key) or _empty(outcome)
            if around is not None:
                return replace(outcome, finding=around)
            private = key_if_readable(os.path.splitext(path)[0] + ".key")
            if private is not None and private.public == key:
                outcome = check_tag(reader, outcome, private)
            if outcome.finding is None or outcome.finding.kind == "clock":
                found = _missing_last(path, outcome, last) or used_twice(reader) or outcome.finding
                outcome = replace(outcome, unknown=reader.unknown(), finding=found)
            return outcome
    except ForeignTables as wrong:  # none of its entries is read then
        return Outcome(0, 0, 0, "", "", Finding("column", 1, f"no entry was read: {wrong}"))


def _entries(reader: LedgerReader, key: str, kept: list[Checkpoint], progress: Progress | None) -> Outcome:
    rows = reader.entries() if progress is None else _reporting(reader.entries(), progress)
    try:
        return verify(rows, reader.checkpoints(), key=key, check=check_signature, kept=kept)
    except LedgerUnavailable as wrong:
        seen = _count_readable(reader)
        return Outcome(seen, 0, 0, reader.ledger, "", Finding("edited", seen + 1, str(wrong)))


def _reporting(rows: Iterator[Row], progress: Progress) -> Iterator[Row]:
    for seen, row in enumerate(rows, 1):
        if not seen % _PROGRESS_EVERY:
            progress(seen)
        yield row


def _count_readable(reader: LedgerReader) -> int:
    """How many entries come before the one that cannot be read."""
    seen = 0
    with suppress(LedgerUnavailable):
        for _ in reader.entries():
            seen += 1
    return seen


def _removed_checkpoint(reader: LedgerReader, last: LastCheckpoint) -> Finding | None:
    """A checkpoint that was signed, while the file has neither it nor a newer one."""
    newest = max((checkpoint.size for checkpoint in reader.checkpoints()), default=0)
    if newest >= last.facts.size:
        return None
    text = "the checkpoint that covers them was removed from the file" if newest else "no checkpoint covers any entry"
    return Finding("unsigned", newest + 1, text, until=last.facts.size)


def _empty(outcome: Outcome) -> Finding | None:
    """A ledger without entries, although somebody has its key."""
    if outcome.entries:
        return None
    text = "there is none, and the key of a ledger is made with its first entry: all entries were removed"
    return Finding("missing", 1, text)


def _missing_last(path: Path, outcome: Outcome, last: LastCheckpoint | None) -> Finding | None:
    """The file with the last checkpoint, if it is not next to the key. Of a copy, neither has to be there."""
    base = os.path.splitext(path)[0]
    if last is None and os.path.lexists(f"{base}.key"):
        text = f"{base}.head is missing, which has the last checkpoint, so entries after it may have been removed"
        return Finding("checkpoint", outcome.entries, f"{text}: calls are refused until it is put back")
    return None


def used_twice(reader: LedgerReader) -> Finding | None:
    """Report an id that two calls have. All entries of a call agree about it; it has one decision and one receipt."""
    found = reader.tables(_TWICE)
    if not found:
        return None
    number, name, first = found[0]
    text = f"its id is also that of another call, see entry {first}; `licet receipts show` shows both"
    if len(found) > 1:
        text += f"; so it is with {len(found) - 1:,} more {'id' if len(found) == 2 else 'ids'}"
    return Finding("twice", int(str(number)), text, str(name))


# Around the entries -----------------------------------------------------------------------------------------------


def damage(reader: LedgerReader) -> Finding | None:
    """Return the damage that SQLite finds in its file; None if there is none."""
    size = reader.size
    try:
        report = reader.tables("PRAGMA integrity_check(1)")
    except sqlite3.Error as error:
        return Finding("edited", 1, f"the file is damaged: {error}", until=size)
    text = str(report[0][0])
    if text == "ok":
        return None
    if found := _LEFT_OUT.search(text):
        return Finding("column", int(found[1]), f"a search does not find it: the index {found[2]} leaves it out")
    return Finding("edited", 1, f"the file is damaged: {' '.join(text.split())}", until=size)


def wrong_end(reader: LedgerReader, outcome: Outcome, key: str) -> Finding | None:
    """Report where the tables `ledger` and `chains` do not match the entries, so that the next entry would not link."""
    try:
        return _wrong_state(reader, outcome, key) or _wrong_chains(reader, outcome)
    except sqlite3.Error as error:
        return Finding("edited", 1, f"the tables around the entries cannot be read: {error}", until=outcome.entries)


def check_tag(reader: LedgerReader, outcome: Outcome, key: SigningKey) -> Outcome:
    """Check the MAC over the end of a ledger that is otherwise right."""
    for *row, _ in _states(reader):
        if wrong_column(row) is not None:
            break  # `wrong_end` has reported it
        if not Tagging(key).wrong(State(*row)):
            return replace(outcome, tagged=True)
        text = "the MAC over the end of the ledger is wrong: it was changed without the key"
        if outcome.entries > outcome.signed:  # only the MAC covers those
            return replace(outcome, finding=Finding("unsigned", outcome.signed + 1, text, until=outcome.entries))
        return replace(outcome, finding=Finding("column", 1, text, until=outcome.entries))
    return outcome


def _states(reader: LedgerReader) -> Sequence[tuple[Any, ...]]:
    return reader.tables(STATE)


def _wrong_state(reader: LedgerReader, outcome: Outcome, key: str) -> Finding | None:
    rows = _states(reader)
    if not outcome.entries and not rows:  # nothing was ever written
        return None
    if not rows:
        return Finding("column", 1, "the table `ledger` is empty, and there are entries", until=outcome.entries)
    if len(rows) > 1 or rows[0][-1] != 1:
        return Finding("column", 1, OTHER_ROWS, until=outcome.entries)
    row = rows[0][:-1]
    ((signed,),) = reader.tables("SELECT coalesce(max(size), 0) FROM checkpoints")
    true = {"size": outcome.entries, "frontier": outcome.frontier, "recorded": outcome.recorded, "signed": signed}
    if outcome.entries:  # without any entry, nothing else has the id and the key
        true |= {"id": outcome.ledger, "key": key}
    for name, value in zip(COLUMNS, row, strict=True):
        if name in true and value != true[name]:
            text = (
                f"the table `ledger` says {name} {_short(value)}, the entries and checkpoints say {_short(true[name])}"
            )
            return Finding("column", 1, text, until=outcome.entries)
    wrong = wrong_column(row)
    if wrong is None and not row[-1]:
        wrong = "the MAC over the end of the ledger was removed"
    return None if wrong is None else Finding("column", 1, wrong, until=outcome.entries)


def _wrong_chains(reader: LedgerReader, outcome: Outcome) -> Finding | None:
    stored = {(agent, session): end for agent, session, *end in reader.tables(_ENDS)}
    for session, tail in outcome.ends.items():
        if (end := stored.pop(session, None)) != [*tail]:
            text = f"the table `chains` says that its session ends {_end(end)}, the entries say {_end(tail)}"
            return Finding("column", tail.number, text)
    for agent, name in stored:
        text = f"the table `chains` has a session {_short(name)} of {_short(agent)}, the entries have none"
        return Finding("column", 1, text, until=outcome.entries)
    return None


def _end(end: Sequence[object] | None) -> str:
    if end is None:
        return "nowhere"
    sequence, digest, number = end
    return f"with entry {_short(number)}, number {_short(sequence)} of it, hash {_short(digest)}"


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else ascii(value)
    return text if len(text) <= _MOST else text[:_MOST] + "…"
