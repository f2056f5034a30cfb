"""A key-value store in memory: for tests, and for what need not outlive the process."""

import json
import time
from collections.abc import Callable
from typing import Any

from licet.backends.kv_entries import (
    LARGEST_SCOPE,
    check_listed,
    check_room,
    expiry,
    key_bytes,
    prefix_bytes,
    size_of,
    value_json,
)

_Entry = tuple[str, float | None]  # JSON, and when it is forgotten


class MemoryKv:
    """Keeps JSON texts, so that nobody changes a value by holding on to it."""

    def __init__(self, clock: Callable[[], float] = time.time, most_bytes: int = LARGEST_SCOPE) -> None:
        self._clock = clock
        self._most = most_bytes
        self._sizes: dict[str, int] = {}
        self._scopes: dict[str, dict[bytes, _Entry]] = {}

    async def get(self, scope: str, key: str) -> Any:
        """The value under a key, or None."""
        entry = self._living(scope).get(key_bytes(key))
        return None if entry is None else json.loads(entry[0])

    async def set(self, scope: str, key: str, value: Any, ttl_seconds: int | None = None) -> None:
        """Keep a value that JSON can carry, for some seconds or for ever."""
        kept, entry = key_bytes(key), (value_json(value), expiry(self._clock(), ttl_seconds))
        old, before = self._living(scope).get(kept), self._sizes.get(scope, 0)
        after = before + size_of(kept, entry[0]) - (size_of(kept, old[0]) if old is not None else 0)
        check_room(before, after, self._most)
        self._scopes.setdefault(scope, {})[kept] = entry
        self._sizes[scope] = after

    async def delete(self, scope: str, key: str) -> bool:
        """Forget a key; whether it was there."""
        return self._forget(scope, self._living(scope), key_bytes(key))

    async def list(self, scope: str, prefix: str = "") -> list[str]:
        """The keys that begin with exactly this prefix, sorted."""
        start = prefix_bytes(prefix)
        found = [key for key in self._living(scope) if key.startswith(start)]
        check_listed(len(found))
        return [key.decode() for key in sorted(found)]

    async def clear(self, scope: str) -> None:
        """Forget a whole scope."""
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
