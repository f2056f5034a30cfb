"""Key-value stores: in one SQLite file that any number of processes share, and in memory.

Both encode and limit keys and values in the same way; the functions for that come first.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from licet.backends.limits import LARGEST_KEY, LARGEST_SCOPE, PER_ENTRY
from licet.backends.sqlite import Format, SqliteFile
from licet.core.policy.layer import whole_seconds
from licet.declare.plain_json import is_heavy
from licet.guard.handles.secrets_and_kv import TOO_HEAVY, too_long, too_many
from licet.guard.limits import LARGEST_VALUE, MOST_KEYS, MOST_UNITS
from licet.guard.ports import ENDED, Ended, TooLarge


def key_bytes(key: str) -> bytes:
    """Encode a key as bytes, so that order and prefixes are exact."""
    if not issubclass(type(key), str):
        raise TypeError(f"expected text as a key, found {type(key).__name__}")
    raw = _encoded(key)
    if not 1 <= len(raw) <= LARGEST_KEY:
        raise ValueError(f"expected a key of 1 to {LARGEST_KEY} bytes, found one of {len(raw)}")
    return raw


def prefix_bytes(prefix: str) -> bytes:
    """Encode a prefix like a key; every key begins with the empty prefix."""
    return key_bytes(prefix) if prefix != "" else b""


def value_json(value: object) -> str:
    """Encode a value as JSON; raises an error for values that JSON cannot represent."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("expected a value that JSON can carry: this one is nested too deeply") from None
    except (TypeError, ValueError) as wrong:
        raise type(wrong)(f"expected a value that JSON can carry: {wrong}") from None
    if len(text) > LARGEST_VALUE:
        raise TooLarge(too_long(len(text)))
    if is_heavy(text.encode(), MOST_UNITS):
        raise TooLarge(TOO_HEAVY)
    return text


def check_listed(keys: int) -> None:
    """Refuse to list more keys than can be handled at once."""
    if keys > MOST_KEYS:
        raise TooLarge(too_many())


def size_of(key: bytes, value: str) -> int:
    """The number of bytes that an entry counts in its scope. JSON is stored in ASCII, so its length is its bytes."""
    return PER_ENTRY + len(key) + len(value)


def check_room(before: int, after: int, most: int) -> None:
    """Refuse a change that makes a scope larger than the limit. A scope above it may still become smaller."""
    if after > most and after > before:
        raise TooLarge(f"this store may hold {most} bytes, and would have {after}: delete what is no longer needed")


def expiry(now: float, ttl_seconds: int | None) -> float | None:
    """The time when an entry expires; None for never."""
    if ttl_seconds is None:
        return None
    return now + whole_seconds(ttl_seconds, "ttl_seconds")


def _encoded(key: str) -> bytes:
    try:
        return str.encode(key)
    except UnicodeEncodeError:
        raise ValueError("expected a key without lone surrogates") from None


_SCHEMA = """
CREATE TABLE entries (
    scope TEXT NOT NULL, key BLOB NOT NULL, value TEXT NOT NULL, expires REAL, PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX by_expiry ON entries (expires) WHERE expires IS NOT NULL;
CREATE TABLE sizes (scope TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
"""
# The same sum as `size_of`, in SQL: 64 is `PER_ENTRY`.
_FROM_VERSION_1 = """
CREATE TABLE sizes (scope TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO sizes SELECT scope, sum(64 + length(key) + length(value)) FROM entries GROUP BY scope
"""
# Version 2 had one store of a personality per agent, as `personality:ID@AGENT`; now it is `personality:ID`. If several
# agents had a key, the value of the first agent by name is taken; the others keep their old name.
_ALIVE = "expires IS NULL OR expires > CAST(strftime('%s', 'now') AS INTEGER)"
_ID = "substr(scope, 1, instr(scope, '@') - 1)"  # no name has an `@`
_FROM_VERSION_2 = f"""
INSERT OR IGNORE INTO entries SELECT {_ID}, key, value, expires FROM entries
    WHERE scope GLOB 'personality:*@*' AND ({_ALIVE}) ORDER BY scope;
DELETE FROM entries WHERE scope GLOB 'personality:*@*' AND EXISTS (
    SELECT 1 FROM entries AS moved WHERE moved.scope = {_ID.replace("scope", "entries.scope")}
    AND moved.key = entries.key AND moved.value = entries.value
);
DELETE FROM sizes;
INSERT INTO sizes SELECT scope, sum(64 + length(key) + length(value)) FROM entries GROUP BY scope
"""  # noqa: S608
FORMAT = Format(0x6C69636B, 3, _SCHEMA, {1: _FROM_VERSION_1, 2: _FROM_VERSION_2})  # `lick`: licet's key-value files
_GET = "SELECT value FROM entries WHERE scope = ? AND key = ? AND (expires IS NULL OR expires > ?)"
_IS_ENDED = "SELECT 1 FROM entries WHERE scope = ? AND key = ?"
_LIST = """SELECT key FROM entries
WHERE scope = ? AND key >= ? AND (? IS NULL OR key < ?) AND (expires IS NULL OR expires > ?) ORDER BY key LIMIT ?"""
_SET = "INSERT OR REPLACE INTO entries (scope, key, value, expires) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM entries WHERE scope = ? AND key = ?"
_CLEAR = "DELETE FROM entries WHERE scope = ?"
_EXPIRED = "SELECT scope, sum(64 + length(key) + length(value)) FROM entries WHERE expires <= ? GROUP BY scope"
_FORGET = "DELETE FROM entries WHERE expires <= ?"
_SIZE_OF = "SELECT 64 + length(key) + length(value) FROM entries WHERE scope = ? AND key = ?"
_SCOPE = "SELECT bytes FROM sizes WHERE scope = ?"
_SET_SCOPE = "INSERT OR REPLACE INTO sizes (scope, bytes) VALUES (?, ?)"
_CLEAR_SCOPE = "DELETE FROM sizes WHERE scope = ?"


class SqliteKv:
    """Small values in a file that only its owner can read.

    Writes survive the process. A power cut may undo the writes of the last moments, but never a part of one.
    """

    def __init__(
        self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time, most_bytes: int = LARGEST_SCOPE
    ) -> None:
        self._file = SqliteFile(path, FORMAT)
        self._clock = clock
        self._most = most_bytes

    async def get(self, scope: str, key: str) -> Any:
        found = key_bytes(key)
        rows = await self._file.read(lambda db: db.execute(_GET, (scope, found, self._clock())).fetchall())
        return json.loads(rows[0][0]) if rows else None

    async def set(self, scope: str, key: str, value: object, ttl_seconds: int | None = None) -> None:
        kept, text, expires = key_bytes(key), value_json(value), expiry(self._clock(), ttl_seconds)

        def write(db: sqlite3.Connection) -> None:
            if db.execute(_IS_ENDED, (ENDED, str.encode(scope))).fetchone():
                raise Ended(ENDED)
            _forget(db, self._clock())
            before = _number(db, _SCOPE, scope)
            after = before + size_of(kept, text) - _number(db, _SIZE_OF, scope, kept)
            check_room(before, after, self._most)
            db.execute(_SET, (scope, kept, text, expires))
            db.execute(_SET_SCOPE, (scope, after))

        await self._file.write(write)

    async def delete(self, scope: str, key: str) -> bool:
        kept = key_bytes(key)

        def delete(db: sqlite3.Connection) -> bool:
            _forget(db, self._clock())
            size = _number(db, _SIZE_OF, scope, kept)
            if size:
                db.execute(_DELETE, (scope, kept))
                db.execute(_SET_SCOPE, (scope, _number(db, _SCOPE, scope) - size))
            return size > 0

        return await self._file.write(delete)

    async def list(self, scope: str, prefix: str = "") -> list[str]:
        start = prefix_bytes(prefix)
        # The upper bound: the prefix with its last byte plus one. UTF-8 has no byte 255, so this never overflows.
        end = start[:-1] + bytes([start[-1] + 1]) if start else None
        found = await self._file.read(
            lambda db: db.execute(_LIST, (scope, start, end, end, self._clock(), MOST_KEYS + 1)).fetchall()
        )
        check_listed(len(found))
        return [row[0].decode() for row in found]

    async def clear(self, scope: str) -> None:
        def clear(db: sqlite3.Connection) -> None:
            db.execute(_CLEAR, (scope,))
            db.execute(_CLEAR_SCOPE, (scope,))

        await self._file.write(clear)

    def close(self) -> None:
        self._file.close()


def _forget(db: sqlite3.Connection, now: float) -> None:
    """Delete expired entries of every scope."""
    for scope, size in db.execute(_EXPIRED, (now,)).fetchall():
        db.execute(_SET_SCOPE, (scope, _number(db, _SCOPE, scope) - size))
    db.execute(_FORGET, (now,))


def _number(db: sqlite3.Connection, query: str, *values: object) -> int:
    """Return the first number of a query, or 0."""
    found = db.execute(query, values).fetchone()
    return found[0] if found else 0


_Entry = tuple[str, float | None]  # JSON, and when it expires


class MemoryKv:
    """A store in memory. It keeps JSON text, so that a caller cannot change a stored value."""

    def __init__(self, clock: Callable[[], float] = time.time, most_bytes: int = LARGEST_SCOPE) -> None:
        self._clock = clock
        self._most = most_bytes
        self._sizes: dict[str, int] = {}
        self._scopes: dict[str, dict[bytes, _Entry]] = {}

    async def get(self, scope: str, key: str) -> Any:
        """Return the value under a key, or None."""
        kept, entries = key_bytes(key), self._scopes.get(scope, {})
        if (found := entries.get(kept)) is None:
            return None
        text, expires = found
        if expires is not None and expires <= self._clock():
            self._forget(scope, entries, kept)
            return None
        return json.loads(text)

    async def set(self, scope: str, key: str, value: object, ttl_seconds: int | None = None) -> None:
        """Store a JSON value, for some seconds or for ever."""
        kept, entry = key_bytes(key), (value_json(value), expiry(self._clock(), ttl_seconds))
        if str.encode(scope) in self._scopes.get(ENDED, ()):
            raise Ended(ENDED)
        old, before = self._living(scope).get(kept), self._sizes.get(scope, 0)
        after = before + size_of(kept, entry[0]) - (size_of(kept, old[0]) if old is not None else 0)
        check_room(before, after, self._most)
        self._scopes.setdefault(scope, {})[kept] = entry
        self._sizes[scope] = after

    async def delete(self, scope: str, key: str) -> bool:
        """Delete a key, and return whether it existed."""
        return self._forget(scope, self._living(scope), key_bytes(key))

    async def list(self, scope: str, prefix: str = "") -> list[str]:
        """The keys that begin with exactly this prefix, sorted."""
        start = prefix_bytes(prefix)
        found = [key for key in self._living(scope) if key.startswith(start)]
        check_listed(len(found))
        return [key.decode() for key in sorted(found)]

    async def clear(self, scope: str) -> None:
        """Delete all keys of a scope."""
        self._scopes.pop(scope, None)
        self._sizes.pop(scope, None)

    def _living(self, scope: str) -> dict[bytes, _Entry]:
        entries, now = self._scopes.get(scope, {}), self._clock()
        for key in [key for key, (_, expires) in entries.items() if expires is not None and expires <= now]:
            self._forget(scope, entries, key)
        return entries

    def _forget(self, scope: str, entries: dict[bytes, _Entry], key: bytes) -> bool:
        old = entries.pop(key, None)
        if old is not None:
            self._sizes[scope] -= size_of(key, old[0])
        return old is not None
