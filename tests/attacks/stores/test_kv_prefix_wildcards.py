"""A prefix with `_` or `%` lists keys that do not begin with it."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from guard.grants import grant
from licet.backends.kv import MemoryKv, SqliteKv
from licet.guard.handles.secrets_and_kv import ScopedKv

KEYS = ["user_1", "userX1", "USER_1", "100%", "100 and more", "a[b]", "ab", "a*"]
PREFIXES = {"user_": ["user_1"], "100%": ["100%"], "%": [], "_": [], "a[": ["a[b]"], "a*": ["a*"], "U": ["USER_1"]}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_prefix_is_no_pattern(tmp_path: Path, kind: str, prefix: str) -> None:
    backend: Any = MemoryKv() if kind == "memory" else SqliteKv(tmp_path / "kv.db")
    kv = ScopedKv(grant(["storage:*:session"]), backend)

    async def scene() -> list[str]:
        for key in KEYS:
            await kv.set(key, 1)
        return await kv.list(prefix)

    assert asyncio.run(scene()) == PREFIXES[prefix]


def test_with_like_it_is_one() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE kv (key TEXT)")
    db.executemany("INSERT INTO kv VALUES (?)", [(key,) for key in KEYS])

    def like(prefix: str) -> list[str]:
        return [row[0] for row in db.execute("SELECT key FROM kv WHERE key LIKE ? || '%'", (prefix,))]

    assert like("user_") == ["user_1", "userX1", "USER_1"]
    assert like("100%") == ["100%", "100 and more"]
    assert like("%") == KEYS
    db.close()
