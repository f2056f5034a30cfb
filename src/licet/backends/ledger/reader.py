"""Reading a ledger file without changing it: what happened, newest first or from the beginning, and the signed heads.

A reader sees the ledger as it was when it was opened, also while others write: entries and heads fit together.
Nothing is decided about the truth of what is read; that is `core.verify`.
"""

import json
import os
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain, starmap
from typing import Any
from urllib.parse import quote

from licet.backends.ledger.state import FORMAT, foreign_tables
from licet.core.ledger.entry import Head, Row, time_text
from licet.core.ledger.linked import Columns
from licet.guard.ports import LedgerUnavailable
from licet.regular_files import open_regular

_COLUMNS = ", ".join(Row._fields)
_ALONE = "NOT EXISTS (SELECT 1 FROM entries AS other WHERE other.id = entries.id AND other.number != entries.number)"
_MOST_LOOKED_AT = 100_000  # entries: some tenths of a second
_MEANWHILE = 1_000  # entries
_AT_ONCE = 100  # rows: few enough that they are still near when they are hashed
_LONGEST = 256 << 20  # bytes of one value: no entry is longer
_LARGEST = (1 << 63) - 1  # that SQLite knows
_row: Callable[[tuple[Any, ...]], Row] = partial(tuple.__new__, Row)  # `Row._make`, which takes three times as long


class ForeignTables(LedgerUnavailable):
    """A ledger with tables, triggers or views that licet does not make: none of its rows is read."""


class LedgerReader:
    """A ledger file as it is now; close it when you are done, or use it in a `with`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self._db = self._open()
        try:
            self._db.execute("BEGIN")  # what is read from here on fits together
            self.version = self._check()  # of its format: an older one is read as it is
            found = self.tables("SELECT id, key FROM ledger LIMIT 1")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite may repeat what is no text
            self._db.close()
            raise LedgerUnavailable(f"{self.path} cannot be read: {error}") from None
        except BaseException:
            self._db.close()
            raise
        # Its name, and the public key that it was made with; what is no text there is told by `verify`.
        self.ledger, self.key = (value if isinstance(value, str) else "" for value in (found[0] if found else ("", "")))

    def __enter__(self) -> "LedgerReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def list(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        tool: str | None = None,
        verdict: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 50,
        before: int | None = None,
        kind: str | None = "receipt",
    ) -> Sequence[Row]:
        """Entries, the newest first: those that fit everything that is given, and stand before a number.

        The time is that of the call: from `since` on, and before `until`.
        """
        where, values = _conditions(kind, agent, session, tool, verdict, since, until)
        if before is not None:
            where += f" AND number < {before:d}"
        order = "time DESC, number DESC" if kind == "receipt" else "number DESC"  # as the index has it, if there is one
        query = f"SELECT {_COLUMNS} FROM entries WHERE {where} ORDER BY {order} LIMIT ?"  # noqa: S608 - our words
        return list(self._rows(query, *values, limit))

    def containing(
        self,
        *texts: Sequence[str],
        agent: str | None = None,
        session: str | None = None,
        tool: str | None = None,
        verdict: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Iterator[Row]:
        """Receipts whose body has, of each list of texts, one somewhere; the newest first, a few at a time.

        SQLite looks at every receipt that fits the rest, some 100,000 a second, until the caller stops.
        """
        where, values = _conditions("receipt", agent, session, tool, verdict, since, until)
        for some in texts:
            where += f" AND ({' OR '.join(['instr(body, ?)'] * len(some))})"
        query = f"SELECT {_COLUMNS} FROM entries WHERE {where} ORDER BY time DESC, number DESC"  # noqa: S608
        return self._rows(query, *values, *(text.encode() for some in texts for text in some))

    def counts(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        tool: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Iterator[tuple[str, str, str, int]]:
        """How many receipts there are per day, agent and verdict, the newest day first; by what is searched by."""
        where, values = _conditions("receipt", agent, session, tool, None, since, until)
        query = f"SELECT substr(time, 1, 10), agent, verdict, count(*) FROM entries WHERE {where}"  # noqa: S608
        return chain.from_iterable(self._fetched(f"{query} GROUP BY 1, 2, 3 ORDER BY 1 DESC, 2, 3", values))

    def unended(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        tool: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Row], int]:
        """Decisions of calls that have left no receipt, the newest first; and how many entries were not looked at.

        No index has them: of the entries from the time that is asked for, the last hundred thousand are looked at.
        """
        start = 1 if since is None else self._first_since(_moment(since))
        # What was decided before `until` may have been recorded a little later.
        end = self.size if until is None else min(self.size, self._first_since(_moment(until)) + _MEANWHILE)
        first = max(start, end - _MOST_LOOKED_AT + 1)
        exact = {"agent = ?": agent, "session = ?": session, "tool = ?": tool}
        bounds = {"time >= ?": since and _moment(since), "time < ?": until and _moment(until)}
        wanted = {text: value for text, value in (exact | bounds).items() if value is not None}
        where = " AND ".join(("number BETWEEN ? AND ? AND kind = 'decision'", *wanted))
        query = f"SELECT {_COLUMNS} FROM entries WHERE {where} AND {_ALONE} ORDER BY time DESC, number DESC LIMIT ?"  # noqa: S608
        return list(self._rows(query, first, end, *wanted.values(), limit)), first - start

    def _first_since(self, moment: str) -> int:
        """The first entry that was recorded at a moment or later; one more than there are if none was."""
        return bisect_left(range(1, self.size + 1), moment, key=self._recorded) + 1

    def _recorded(self, number: int) -> str:
        try:
            found = self._db.execute("SELECT body FROM entries WHERE number = ?", (number,)).fetchone()
            return str(json.loads(found[0])["recorded"])
        except (TypeError, ValueError, KeyError, RecursionError, sqlite3.Error):  # changed, or gone: `verify` tells
            return ""

    def show(self, id: str) -> Sequence[Row]:  # noqa: A002
        """What is kept about one call: its decision, then its receipt. Nothing if the id is not known."""
        return list(self._rows(f"SELECT {_COLUMNS} FROM entries WHERE id = ? ORDER BY number", id))  # noqa: S608

    def entries(self, after: int = 0) -> Iterator[Row]:
        """Every entry in order, a few at a time, from behind a number on."""
        return self._rows(f"SELECT {_COLUMNS} FROM entries WHERE number > ? ORDER BY number", after)  # noqa: S608

    def columns(self, first: int | None = None, last: int | None = None) -> Iterator[Columns]:
        """Every entry in order as a plain tuple, for whoever looks at all of them; from one number, or to another."""
        bounds = {"number >= ?": first, "number <= ?": last}
        wanted = {text: number for text, number in bounds.items() if number is not None}
        where = " AND ".join(wanted) or "1"
        query = f"SELECT {_COLUMNS} FROM entries WHERE {where} ORDER BY number"  # noqa: S608
        return chain.from_iterable(self._fetched(query, tuple(wanted.values())))

    def heads(self) -> Iterator[Head]:
        """Every signed head, the oldest first."""
        return starmap(
            Head, chain.from_iterable(self._fetched("SELECT size, body, signature FROM heads ORDER BY size", ()))
        )

    def hashes(self) -> Iterator[bytes]:
        """The leaves of the tree, in order: for proofs that an entry is in it."""
        return (row[0] for row in chain.from_iterable(self._fetched("SELECT hash FROM entries ORDER BY number", ())))

    @property
    def size(self) -> int:
        """How many entries there are."""
        number: int = self._db.execute("SELECT coalesce(max(number), 0) FROM entries").fetchone()[0]
        return number

    def tables(self, query: str) -> Sequence[tuple[object, ...]]:
        """What SQLite says of the file itself, and small tables; what is no text is shown as it is."""
        self._db.text_factory = _text
        try:
            return self._db.execute(query).fetchall()
        finally:
            self._db.text_factory = str

    def _rows(self, query: str, *values: object) -> Iterator[Row]:
        return map(_row, chain.from_iterable(self._fetched(query, values)))

    def _fetched(self, query: str, values: tuple[object, ...]) -> Iterator[Sequence[Any]]:
        told = 0
        try:
            for some in self._some(query, values):
                yield some
                told += len(some)
        except sqlite3.OperationalError as error:
            if not str(error).startswith("Could not decode"):
                raise LedgerUnavailable(f"{self.path} cannot be read: {error}") from None
            self._db.text_factory = _text  # somebody has written what is no text: slower, and to be seen as it is
            rest = f"SELECT * FROM ({query}) LIMIT -1 OFFSET ?"  # noqa: S608
            yield from self._some(rest, (*values, told))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LedgerUnavailable(f"{self.path} cannot be read: {error}") from None

    def _some(self, query: str, values: tuple[object, ...]) -> Iterator[Sequence[Any]]:
        known = tuple(min(value, _LARGEST) if isinstance(value, int) else value for value in values)
        cursor = self._db.execute(query, known)
        while some := cursor.fetchmany(_AT_ONCE):
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
            # What nobody writes to and nobody may write to, such as a copy on a disk that is only read.
            log = self.path + "-wal"
            if not (os.path.exists(log) and os.path.getsize(log)) and not os.access(os.path.dirname(log), os.W_OK):
                address += "&immutable=1"
        try:
            db = sqlite3.connect(address, uri=True, timeout=10, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"{self.path} cannot be read: {error}") from None
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        return db

    def _check(self) -> int:
        db = self._db
        db.execute("PRAGMA trusted_schema = OFF")
        application: int = db.execute("PRAGMA application_id").fetchone()[0]
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        if application != FORMAT.application:
            raise LedgerUnavailable(f"{self.path} is no ledger")
        if version > FORMAT.version:
            raise LedgerUnavailable(f"{self.path} was written by a newer licet (format {version}): use that one")
        if version != FORMAT.version and version not in FORMAT.steps:
            raise LedgerUnavailable(f"{self.path} has format {version}, which this licet no longer reads")
        # Before any row is read: a view in place of a table may never end.
        if wrong := foreign_tables(db, version):
            raise ForeignTables(f"{self.path} cannot be read: its tables are not those that licet makes: {wrong}")
        return version


def no_ledger(path: str) -> LedgerUnavailable:
    """That there is no ledger; where its key is still there, that there was one, for the two are made together."""
    key = os.path.splitext(path)[0] + ".key"
    gone = f", and its key {key} is there: the ledger was taken away" if os.path.lexists(key) else ""
    return LedgerUnavailable(f"there is no ledger at {path}{gone}")


def _text(data: bytes) -> str:
    """Text as it should be, and what is none in a way that no entry is written in."""
    return data.decode(errors="surrogateescape")


def _conditions(
    kind: str | None,
    agent: str | None,
    session: str | None,
    tool: str | None,
    verdict: str | None,
    since: datetime | str | None,
    until: datetime | str | None,
) -> tuple[str, tuple[str, ...]]:
    """The condition of a query, and the values in it."""
    exact = {"agent": agent, "session": session, "tool": tool, "verdict": verdict}
    wanted = [(f"{name} = ?", value) for name, value in exact.items() if value is not None]
    if kind is not None and kind != "receipt":
        wanted.append(("kind = ?", kind))
    bounds = (("time >= ?", since), ("time < ?", until))
    wanted += [(text, _moment(value)) for text, value in bounds if value is not None]
    texts = [text for text, _ in wanted]
    if kind == "receipt":
        texts.append("kind = 'receipt'")  # written out, so that the index of receipts is found
    return " AND ".join(texts) or "1", tuple(value for _, value in wanted)


def _moment(value: datetime | str) -> str:
    return value if isinstance(value, str) else time_text(value)
