"""Attacks on the values that tools keep: those of another session, and prefixes that are patterns."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from guard.grants import grant
from licet.backends.kv import SqliteKv
from licet.guard.handles.secrets_and_kv import ScopedKv
from licet.testing import MemoryKv

# A tool reads or changes what another session, another agent or another tool has kept, by a key or name it chooses.


SECRET = "what s-1 keeps"
# Keys that would lead elsewhere if the scope and the key were put together as text.
KEYS = ["note", "session:s-1@clerk/note", "../session:s-1@clerk/note", "@clerk\0note", "s-1:note", "session:s-1@clerk"]


def test_a_store_that_puts_scope_and_key_together_can_be_talked_into_another() -> None:
    store = {"s-1:note": SECRET}
    session, key = "s", "-1:note"
    assert store.get(f"{session}{key}") == SECRET


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryKv() if request.param == "memory" else SqliteKv(tmp_path / "kv.db")


OTHERS: list[dict[str, str]] = [
    {"session": "s-2"},
    {"session": "S-1"},
    {"session": "s-1/note"},
    {"session": "s"},
    {"agent": "cook"},
    {"session": "s-2", "name": "s-1"},
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_nobody_else_sees_or_changes_a_session_s_values(backend: Any, other: dict[str, str]) -> None:
    async def scene() -> None:
        own = ScopedKv(grant(["storage:*:session"]), backend)
        await own.set("note", SECRET)
        for kind in ("session", "tool-private", "personality"):
            given: dict[str, Any] = {"personality": "s-1", **other}
            thief = ScopedKv(grant([f"storage:*:{kind}"], **given), backend)
            assert await thief.list() == []
            for key in KEYS:
                assert await thief.get(key) is None
                assert await thief.delete(key) is False
                await thief.set(key, "changed")
            for key in KEYS:
                await thief.delete(key)
        assert await own.list() == ["note"]
        assert await own.get("note") == SECRET

    asyncio.run(scene())


def test_the_tools_of_a_session_share_its_store_and_no_other(backend: Any) -> None:
    async def scene() -> None:
        await ScopedKv(grant(["storage:*:session"], name="one"), backend).set("note", SECRET)
        await ScopedKv(grant(["storage:*:tool-private"], name="one"), backend).set("note", "private")
        assert await ScopedKv(grant(["storage:*:session"], name="two"), backend).get("note") == SECRET
        assert await ScopedKv(grant(["storage:*:tool-private"], name="two"), backend).get("note") is None
        later = grant(["storage:*:tool-private"], name="one", session="s-2")
        assert await ScopedKv(later, backend).get("note") == "private"  # a tool's own store outlives the session

    asyncio.run(scene())


# A prefix with `_` or `%` lists keys that do not begin with it --------------------------------------------------------


SIMILAR = ["user_1", "userX1", "USER_1", "100%", "100 and more", "a[b]", "ab", "a*"]
PREFIXES = {"user_": ["user_1"], "100%": ["100%"], "%": [], "_": [], "a[": ["a[b]"], "a*": ["a*"], "U": ["USER_1"]}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_prefix_is_no_pattern(tmp_path: Path, kind: str, prefix: str) -> None:
    backend: Any = MemoryKv() if kind == "memory" else SqliteKv(tmp_path / "kv.db")
    kv = ScopedKv(grant(["storage:*:session"]), backend)

    async def scene() -> list[str]:
        for key in SIMILAR:
            await kv.set(key, 1)
        return await kv.list(prefix)

    assert asyncio.run(scene()) == PREFIXES[prefix]


def test_with_like_it_is_one() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE kv (key TEXT)")
    db.executemany("INSERT INTO kv VALUES (?)", [(key,) for key in SIMILAR])

    def like(prefix: str) -> list[str]:
        return [row[0] for row in db.execute("SELECT key FROM kv WHERE key LIKE ? || '%'", (prefix,))]

    assert like("user_") == ["user_1", "userX1", "USER_1"]
    assert like("100%") == ["100%", "100 and more"]
    assert like("%") == SIMILAR
    db.close()
