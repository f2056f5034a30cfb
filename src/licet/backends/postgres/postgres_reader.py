"""Reads the ledger of a PostgreSQL state, from one snapshot: entries, their places in the tree, and the signed heads.

It is synchronous, as commands are, and reads a portion at a time over a connection of its own, in one transaction that
can only read. It takes no transaction id, so it does not hold back the entries that wait for their place.

It does not verify what it reads; `verify_database` does. Every value has the type that it should have, whatever the
tables were made into, or cannot be read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count, starmap
from typing import Any, Self, TypeVar, Unpack

import msgspec

from licet.backends.limits import (
    LONGEST_ENTRY,
    READ_AT_ONCE,
    READ_SECONDS,
    SEARCHED_MEANWHILE,
    SEARCHED_UNENDED,
)
from licet.backends.postgres.address import Address, AddressError, Connection
from licet.backends.postgres.database import Database, Secret
from licet.core.ledger.entry import Checkpoint, Row
from licet.guard.entry_reader import Filters, VerdictFilters, moment_text, tests_of
from licet.guard.ports import LedgerUnavailable, Unavailable

T = TypeVar("T")

# Casts: a column that was made into another type is read as what it should be, or not at all.
_FIELDS = f"""coalesce(p.number, 0)::bigint AS number, e.id::text AS id, e.kind::text AS kind, e.agent::text AS agent,
e.session::text AS session, e.sequence::bigint AS sequence, e.tool::text AS tool, e.verdict::text AS verdict,
e.time::text AS time, e.hash::bytea AS hash,
CASE WHEN octet_length(e.body::bytea) <= {LONGEST_ENTRY} THEN e.body::bytea END AS body"""
_ENTRIES = "licet.entries e LEFT JOIN licet.places p USING (agent, session, sequence)"
_PLACED = "licet.places p JOIN licet.entries e USING (agent, session, sequence)"
_ALONE = """NOT EXISTS (SELECT 1 FROM licet.entries o WHERE o.id = e.id AND o.kind = 'receipt'
AND o.agent = e.agent AND o.session = e.session AND o.time = e.time)"""


class _Recorded(msgspec.Struct):
    recorded: str


class Unreadable(LedgerUnavailable):
    """The server answers, and not with what a ledger has."""


class PostgresReader:
    """A ledger in a database as it is now; close it, or use it in a `with`."""

    def __init__(self, address: Database | Address | str, keys: str, secret: Secret | None = None) -> None:
        """Open it. `keys` is the path of the ledger's key files on this node, without their endings."""
        self._own = None if isinstance(address, Database) else _database(address, secret)
        self._database = address if isinstance(address, Database) else self._own or _database(address, secret)
        self.path, self.keys = self._database.address.shown, keys
        self._names = count(1)
        self._connection: Any = None
        try:
            self._connection = self._do(self._begin)
            row = self.row("SELECT id::text, key::text FROM licet.ledger LIMIT 1")
        except BaseException:
            self.close()
            raise
        # Its id and its public key; `verify` reports other values.
        self.ledger, self.key = ("", "") if row is None else (row[0] or "", row[1] or "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and the database if it was opened here."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(LedgerUnavailable):
                self._do(connection.close)
        if self._own is not None:
            self._own.close()

    # Entries ---------------------------------------------------------------------------------------------------------

    def list(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        kind: str | None = "receipt",
        **filters: Unpack[VerdictFilters],
    ) -> Sequence[Row]:
        """Return entries that match all given filters, the newest first; with `before`, only those before that number.

        Entries that wait for their place have the number 0, and are the newest.
        """
        where = _Where(kind, filters)
        if before is not None:
            where.add("p.number < {}::bigint", before)
        order = "e.time DESC, " if kind == "receipt" else ""
        order += "p.number DESC NULLS FIRST, e.time DESC, e.sequence DESC"
        rows = f"SELECT {_FIELDS} FROM {_ENTRIES} WHERE {where} ORDER BY {order}"  # noqa: S608 - our words
        return list(self._rows(rows + _limited(limit), *where.values))

    def containing(self, *texts: Sequence[str], **filters: Unpack[VerdictFilters]) -> Iterator[Row]:
        """Search receipts whose body contains at least one text of each list; the newest first, a few at a time."""
        where = _Where("receipt", filters)
        for some in texts:
            places = ["position({}::bytea in e.body) > 0"] * len(some)
            where.add(f"({' OR '.join(places) or 'false'})", *(text.encode() for text in some))
        order = "e.time DESC, p.number DESC NULLS FIRST"
        return self._rows(
            f"SELECT {_FIELDS} FROM {_ENTRIES} WHERE {where} ORDER BY {order}",  # noqa: S608 - our words
            *where.values,
        )

    def counts(self, **filters: Unpack[Filters]) -> Iterator[tuple[str, str, str, int]]:
        """The number of receipts per day, agent and verdict, the newest day first; counted by the index columns."""
        where = _Where("receipt", filters)
        query = f"""SELECT left(e.time::text, 10), e.agent::text, e.verdict::text, count(*) FROM licet.entries e
            WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1 DESC, 2, 3"""  # noqa: S608 - our words
        return ((day, name, verdict, number) for day, name, verdict, number in self.fetched(query, *where.values))

    def unended(self, *, limit: int = 50, **filters: Unpack[Filters]) -> tuple[Sequence[Row], int]:
        """Return decisions without a receipt, the newest first, and how many entries were not searched.

        Of the entries in the wanted time, the last hundred thousand are searched, and those that wait for their place.
        """
        since, until = filters.get("since"), filters.get("until")
        start = 1 if since is None else self._first_since(moment_text(since))
        # A call decided before `until` may have been recorded a little later.
        end = self.size if until is None else min(self.size, self._first_since(moment_text(until)) + SEARCHED_MEANWHILE)
        first = max(start, end - SEARCHED_UNENDED + 1)
        where = _Where("decision", filters)
        where.add("(p.number BETWEEN {}::bigint AND {}::bigint OR p.number IS NULL)", first, end)
        query = f"""SELECT {_FIELDS} FROM {_ENTRIES} WHERE {where} AND {_ALONE}
            ORDER BY e.time DESC, p.number DESC NULLS FIRST"""  # noqa: S608 - our words
        return list(self._rows(query + _limited(limit), *where.values)), first - start

    def sessions(self) -> Iterator[Row]:
        """The last entry of each session, the newest first."""
        query = f"""WITH RECURSIVE names AS (
            (SELECT agent, session FROM licet.entries ORDER BY agent, session LIMIT 1)
            UNION ALL SELECT following.agent, following.session FROM names CROSS JOIN LATERAL (
                SELECT agent, session FROM licet.entries
                WHERE (agent, session) > (names.agent, names.session) ORDER BY agent, session LIMIT 1
            ) AS following
        ), ends AS (
            SELECT names.agent, names.session, found.sequence FROM names CROSS JOIN LATERAL (
                SELECT sequence FROM licet.entries WHERE (agent, session) = (names.agent, names.session)
                ORDER BY sequence DESC LIMIT 1
            ) AS found
        )
        SELECT {_FIELDS} FROM {_ENTRIES} JOIN ends USING (agent, session, sequence)
        ORDER BY p.number DESC NULLS FIRST, e.time DESC"""  # noqa: S608 - our words
        return self._rows(query)

    def of_session(self, agent: str, session: str) -> Iterator[Row]:
        """All entries of a session and of its delegates, whose names begin with the agent's and `>`."""
        query = f"""SELECT {_FIELDS} FROM {_ENTRIES}
            WHERE session = $1 AND (agent = $2 OR starts_with(agent, $3)) ORDER BY agent, sequence DESC"""  # noqa: S608
        return self._rows(query, session, agent, f"{agent}>")

    def unknown(self) -> tuple[str, ...]:
        """The ids of all calls that began and have no receipt, the newest first."""
        query = f"""SELECT e.id::text FROM {_ENTRIES} WHERE e.kind = 'decision' AND {_ALONE}
            ORDER BY p.number DESC NULLS FIRST, e.time DESC"""  # noqa: S608 - our words
        return tuple(str(name) for (name,) in self.fetched(query))

    def show(self, id: str) -> Sequence[Row]:  # noqa: A002
        """Return the entries with an id, in order: of a call its decision, what it did, its receipt; maybe none."""
        query = f"""SELECT {_FIELDS} FROM {_ENTRIES} WHERE e.id = $1
            ORDER BY p.number NULLS LAST, e.agent, e.session, e.sequence"""  # noqa: S608 - our words
        return list(self._rows(query, id))

    def entries(self) -> Iterator[Row]:
        """Return every entry that has a place, in order, a few at a time."""
        return self._rows(f"SELECT {_FIELDS} FROM {_PLACED} ORDER BY p.number")  # noqa: S608 - our words

    # The tree --------------------------------------------------------------------------------------------------------

    def checkpoints(self) -> Iterator[Checkpoint]:
        """Return every signed head, the oldest first."""
        query = """SELECT coalesce(size::bigint, 0), body::bytea, coalesce(signature::bytea, '') FROM licet.heads
            ORDER BY 1"""
        return starmap(Checkpoint, self.fetched(query))

    def hashes(self) -> Iterator[bytes]:
        """Return the leaves of the tree in order, for inclusion proofs."""
        query = f"SELECT e.hash::bytea FROM {_PLACED} ORDER BY p.number"  # noqa: S608 - our words
        return chain.from_iterable(self.fetched(query))

    @property
    def size(self) -> int:
        """Return the number of entries that have a place."""
        row = self.row("SELECT coalesce(max(number), 0)::bigint FROM licet.places")
        return int(row[0])

    @property
    def waiting(self) -> int:
        """The number of entries that wait for their place in the tree."""
        row = self.row(f"SELECT count(*) FROM {_ENTRIES} WHERE p.number IS NULL")  # noqa: S608 - our words
        return int(row[0])

    def is_complete(self, first: int) -> bool:
        """Whether no entry is missing from this number to the last one that the newest head counts."""
        query = f"""SELECT count(*)::bigint, (SELECT coalesce(max(size), 0) FROM licet.heads)::bigint FROM {_PLACED}
            WHERE p.number >= $1"""  # noqa: S608 - our words
        found, size = self.row(query, first)
        return bool(found >= size - first + 1)

    def _first_since(self, moment: str) -> int:
        """The number of the first entry recorded at a time or later; one more than the last if there is none."""
        return bisect_left(range(1, self.size + 1), moment, key=self._recorded) + 1

    def _recorded(self, number: int) -> str:
        try:
            found = self.row(f"SELECT e.body::bytea FROM {_PLACED} WHERE p.number = $1", number)  # noqa: S608
            return msgspec.json.decode(found[0], type=_Recorded).recorded
        except (TypeError, ValueError):  # changed or missing: `verify` reports it
            return ""

    # The snapshot ----------------------------------------------------------------------------------------------------

    def row(self, query: str, *values: object) -> Any:
        """The first row of a query, or None."""
        return self._do(lambda: self._connection.fetchrow(query, *values))

    def fetched(self, query: str, *values: object) -> Iterator[Any]:
        """The rows of a query, fetched a portion at a time."""
        return chain.from_iterable(self.portions(query, *values))

    def portions(self, query: str, *values: object) -> Iterator[Sequence[Any]]:
        """The rows of a query, a portion at a time. Other queries may be made in between."""
        name = f"c{next(self._names)}"
        declare = f"DECLARE {name} NO SCROLL CURSOR FOR {query}"
        self._do(lambda: self._connection.execute(declare, *values))
        while portion := self._do(lambda: self._connection.fetch(f"FETCH {READ_AT_ONCE} FROM {name}")):
            yield portion
        self._do(lambda: self._connection.execute(f"CLOSE {name}"))

    def _rows(self, query: str, *values: object) -> Iterator[Row]:
        return starmap(Row, self.fetched(query, *values))

    def _do(self, work: Callable[[], Any]) -> Any:
        """Do something in the thread of the database, and wait for it."""

        async def done() -> Any:
            return await work()

        try:
            return self._database.do(done(), READ_SECONDS)
        except (Unavailable, AddressError) as wrong:
            raise LedgerUnavailable(f"the ledger cannot be read: {wrong}") from None
        except Exception as wrong:  # a database that was changed may answer anything
            text = f"{type(wrong).__name__}: {wrong}".splitlines()[0]
            raise Unreadable(f"{self.path} cannot be read: {text}") from None

    async def _begin(self) -> Connection:
        connection: Connection = await self._database.own_connection()
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # Rows that a policy hides are an error here. No function of anybody stands in for one of the server.
        await connection.execute("SET LOCAL row_security = off")
        await connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        return connection


class _Where:
    """The condition of a query, and its values."""

    def __init__(self, kind: str | None, filters: Mapping[str, object]) -> None:
        self._texts: list[str] = []
        self.values: list[object] = []
        if kind == "receipt":
            self.add("e.kind = 'receipt'")  # written out, for the indexes of receipts
        elif kind is not None:
            self.add("e.kind = {}", kind)
        for text, value in tests_of(filters):
            self.add(f"e.{text} {{}}", value)

    def add(self, text: str, *values: object) -> None:
        """Add a condition; `{}` stands for each value."""
        first = len(self.values) + 1
        self._texts.append(text.format(*(f"${number}" for number in range(first, first + len(values)))))
        self.values += values

    def __str__(self) -> str:
        return " AND ".join(self._texts) or "true"


def _limited(limit: int) -> str:
    return f" LIMIT {limit:d}" if limit >= 0 else ""


def _database(address: Address | str, secret: Secret | None) -> Database:
    try:
        return Database(address) if secret is None else Database(address, secret)
    except AddressError as wrong:
        raise LedgerUnavailable(str(wrong)) from None
