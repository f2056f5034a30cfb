"""Key-value stores in PostgreSQL, shared by all nodes of a state.

Order, limits and lifetimes are those of the other stores. A write goes over in one function of the database, with an id
that was chosen before: sent again after a lost connection, it has the effect and the answer of the first time, even if
another node has written the same key meanwhile.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from licet.backends.kv import check_listed, check_room, expiry, key_bytes, prefix_bytes, value_json
from licet.backends.limits import LARGEST_SCOPE, MOST_READS
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.guard.limits import MOST_KEYS
from licet.guard.ports import ENDED, Ended, Unavailable

_WRITE = "SELECT licet.kv_write($1, $2, $3, $4, $5, $6, $7, $8)"
_NOW = "coalesce({}, extract(epoch FROM clock_timestamp()))"
_GET = f"""SELECT e.value FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS asked (scope, key, number)
LEFT JOIN licet.kv_entries AS e ON e.scope = asked.scope AND e.key = asked.key
    AND (e.expires IS NULL OR e.expires > {_NOW.format("$3::double precision")})
ORDER BY asked.number"""  # noqa: S608
_LIST = f"""SELECT key FROM licet.kv_entries WHERE scope = $1 AND key >= $2 AND ($3::bytea IS NULL OR key < $3)
    AND (expires IS NULL OR expires > {_NOW.format("$4::double precision")}) ORDER BY key LIMIT $5"""  # noqa: S608


class PostgresKv:
    """Small values of all nodes of a state. Lifetimes are by the clock of the server, unless one is given."""

    def __init__(
        self, database: Database, clock: Callable[[], float] | None = None, most_bytes: int = LARGEST_SCOPE
    ) -> None:
        self._database, self._clock, self._most = database, clock, most_bytes
        self._reads = database.lane(self._read, MOST_READS)

    async def get(self, scope: str, key: str) -> Any:
        text = await self._reads.do((_scope(scope), key_bytes(key)))
        try:
            return None if text is None else json.loads(text)
        except (TypeError, ValueError, RecursionError):
            raise self._changed(scope) from None

    async def set(self, scope: str, key: str, value: object, ttl_seconds: int | None = None) -> None:
        kept, text = key_bytes(key), value_json(value)
        expiry(0.0, ttl_seconds)  # raises for what is no number of seconds
        answer = await self._written(scope, kept, text, ttl_seconds)
        if answer < 0:
            raise Ended(ENDED)
        check_room(0, answer, self._most)

    async def delete(self, scope: str, key: str) -> bool:
        return await self._written(scope, key_bytes(key), None) > 0

    async def list(self, scope: str, prefix: str = "") -> list[str]:
        start = prefix_bytes(prefix)
        # As in the store in SQLite: UTF-8 has no byte 255, so the last one plus one never overflows.
        end = start[:-1] + bytes([start[-1] + 1]) if start else None
        asked = _scope(scope), start, end, self._now(), MOST_KEYS + 1
        found = await self._database.once(lambda connection: connection.fetch(_LIST, *asked))
        check_listed(len(found))
        try:
            return [row[0].decode() for row in found]
        except ValueError:
            raise self._changed(scope) from None

    async def clear(self, scope: str) -> None:
        await self._written(scope, None, None)

    def close(self) -> None:
        """Nothing ends: all stores of a node share its connections."""

    async def _written(self, scope: str, key: bytes | None, value: str | None, ttl: int | None = None) -> int:
        write = UUID(bytes=os.urandom(16))
        lasts = None if ttl is None else float(ttl)
        sent = write, _scope(scope), key, value, lasts, self._most, self._now(), ENDED.encode()
        answer: int = await self._database.once(lambda connection: connection.fetchval(_WRITE, *sent))
        return answer

    async def _read(
        self, connection: Connection, asked: Sequence[tuple[bytes, bytes]]
    ) -> Sequence[str | Exception | None]:
        scopes, keys = zip(*asked, strict=True)
        rows = await connection.fetch(_GET, list(scopes), list(keys), self._now())
        return [row[0] for row in rows]

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _changed(self, scope: str) -> Unavailable:
        where = self._database.address.shown
        return Unavailable(f"{where} holds something in {scope!a} that licet has not written: restore a backup")


def _scope(scope: str) -> bytes:
    return scope.encode()
