"""A key-value store in one SQLite file, shared by any number of processes."""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from licet.backends.kv_entries import expiry, key_bytes, prefix_bytes, value_json
from licet.backends.sqlite_file import Format, SqliteFile

_SCHEMA = """
CREATE TABLE entries (
    scope TEXT NOT NULL, key BLOB NOT NULL, value TEXT NOT NULL, expires REAL, PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX by_expiry ON entries (expires) WHERE expires IS NOT NULL;
"""
_FORMAT = Format(0x6C69636B, 1, _SCHEMA)  # `lick`: licet's key-value files
_GET = "SELECT value FROM entries WHERE scope = ? AND key = ? AND (expires IS NULL OR expires > ?)"
_LIST = """SELECT key FROM entries
WHERE scope = ? AND key >= ? AND (? IS NULL OR key < ?) AND (expires IS NULL OR expires > ?) ORDER BY key"""
_SET = "INSERT OR REPLACE INTO entries (scope, key, value, expires) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM entries WHERE scope = ? AND key = ? AND (expires IS NULL OR expires > ?)"
_CLEAR = "DELETE FROM entries WHERE scope = ?"
_FORGET = "DELETE FROM entries WHERE expires <= ?"


class SqliteKv:
    """Small values in a file that only its owner can read.

    Writes survive the process; a power cut may take back those of the last moments, never a part of one.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> None:
        self._file = SqliteFile(path, _FORMAT)
        self._clock = clock

    async def get(self, scope: str, key: str) -> Any:
        """The value under a key, or None."""
        found = key_bytes(key)
        rows = await self._file.read(lambda db: db.execute(_GET, (scope, found, self._clock())).fetchall())
        return json.loads(rows[0][0]) if rows else None

    async def set(self, scope: str, key: str, value: Any, ttl_seconds: int | None = None) -> None:
        """Keep a value that JSON can carry, for some seconds or for ever."""
        entry = scope, key_bytes(key), value_json(value), expiry(self._clock(), ttl_seconds)

        def write(db: sqlite3.Connection) -> None:
            db.execute(_FORGET, (self._clock(),))
            db.execute(_SET, entry)

        await self._file.write(write)

    async def delete(self, scope: str, key: str) -> bool:
        """Forget a key; whether it was there."""
        found = key_bytes(key)
        return await self._file.write(lambda db: db.execute(_DELETE, (scope, found, self._clock())).rowcount > 0)

    async def list(self, scope: str, prefix: str = "") -> list[str]:
        """The keys that begin with exactly this prefix, sorted."""
        start = prefix_bytes(prefix)
        # The first text that no longer begins with it; UTF-8 has no byte 255, so one more always fits.
        end = start[:-1] + bytes([start[-1] + 1]) if start else None
        found = await self._file.read(lambda db: db.execute(_LIST, (scope, start, end, end, self._clock())).fetchall())
        return [row[0].decode() for row in found]

    async def clear(self, scope: str) -> None:
        """Forget a whole scope."""
        await self._file.write(lambda db: db.execute(_CLEAR, (scope,)).rowcount)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()
