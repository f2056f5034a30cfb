"""The contract of key-value stores, on the memory twin, on SQLite and on PostgreSQL; and what a file adds to it."""

import asyncio
import ctypes
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from licet.backends.kv import MemoryKv, SqliteKv
from licet.backends.postgres.database import Database
from licet.backends.postgres.postgres_kv import PostgresKv
from licet.guard.ports import Kv, TooLarge, Unavailable
from older_files import older_file
from postgres_server import fresh


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


KINDS = ["memory", "sqlite", "postgres"]


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """One database for the file: each test begins with empty tables."""
    made = Database(fresh())
    yield made
    made.close()


def emptied(database: Database) -> Database:
    tables = "TRUNCATE licet.kv_entries, licet.kv_sizes, licet.kv_writes"
    database.wait(lambda connection: connection.execute(tables), 10)
    return database


@pytest.fixture(params=KINDS)
def kv(request: pytest.FixtureRequest, store_path: Path, clock: Clock) -> Kv:
    if request.param == "postgres":
        return PostgresKv(emptied(request.getfixturevalue("database")), clock)
    return MemoryKv(clock) if request.param == "memory" else SqliteKv(store_path / "state" / "kv.db", clock)


VALUES: list[Any] = [None, True, 0, -1.5, "", "text \ud800 é", [], {}, {"a": [1, {"b": None}]}, 2**80]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(kv: Kv, value: Any) -> None:
    async def run() -> None:
        await kv.set("s", "k", value)
        assert await kv.get("s", "k") == value
        assert type(await kv.get("s", "k")) is type(value)

    asyncio.run(run())


def test_a_missing_key_is_none_and_delete_returns_false(kv: Kv) -> None:
    async def run() -> None:
        assert await kv.get("s", "k") is None
        assert await kv.delete("s", "k") is False
        await kv.set("s", "k", 1)
        await kv.set("s", "k", 2)
        assert await kv.get("s", "k") == 2
        assert await kv.delete("s", "k") is True
        assert await kv.get("s", "k") is None
        assert await kv.list("s") == []

    asyncio.run(run())


def test_scopes_do_not_see_each_other(kv: Kv) -> None:
    async def run() -> None:
        for scope in ("session:a", "session:ab", "session:A"):
            await kv.set(scope, "k", scope)
        assert [await kv.get(scope, "k") for scope in ("session:a", "session:ab", "session:A", "session")] == [
            "session:a",
            "session:ab",
            "session:A",
            None,
        ]
        await kv.clear("session:a")
        assert await kv.list("session:a") == []
        assert await kv.list("session:ab") == ["k"]

    asyncio.run(run())


KEYS = [
    "a",
    "A",
    "a_b",
    "axb",
    "a%b",
    "a%",
    "a\0b",
    "a/b",
    "aé",
    "a\ud7ff",
    "a\U0010ffff",
    "b",
    "[a-b]",
    "a*",
    "é",
    "ab",
]


@pytest.mark.parametrize(
    "prefix", ["", "a", "A", "a_", "a%", "a*", "[", "a\0", "aé", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "é", "zz"]
)
def test_a_prefix_is_exact(kv: Kv, prefix: str) -> None:
    async def run() -> None:
        for key in KEYS:
            await kv.set("s", key, key)
            await kv.set("other", key + "!", key)
        assert await kv.list("s", prefix) == sorted(key for key in KEYS if key.startswith(prefix))
        for key in KEYS:
            assert await kv.get("s", key) == key

    asyncio.run(run())


def test_entries_are_forgotten_when_their_time_is_up(kv: Kv, clock: Clock) -> None:
    async def run() -> None:
        await kv.set("s", "brief", 1, 10)
        await kv.set("s", "long", 2, 20)
        await kv.set("s", "for ever", 3)
        clock.now += 9.9
        assert await kv.list("s") == ["brief", "for ever", "long"]
        clock.now += 0.1
        assert await kv.get("s", "brief") is None
        assert await kv.list("s") == ["for ever", "long"]
        assert await kv.delete("s", "brief") is False
        await kv.set("s", "long", 4)  # set again without a limit, it does not expire
        clock.now += 1e9
        assert await kv.list("s") == ["for ever", "long"]
        await kv.set("s", "longest", 5, 2**53 - 1)
        assert await kv.get("s", "longest") == 5

    asyncio.run(run())


WRONG: list[tuple[str, Any, Any, Any, str]] = [
    ("no key", "", 1, None, "1 to 512 bytes"),
    ("a long key", "x" * 513, 1, None, "1 to 512 bytes, found one of 513"),
    ("a key of many bytes", "é" * 257, 1, None, "found one of 514"),
    ("a broken key", "\ud800", 1, None, "lone surrogates"),
    ("no text as key", b"k", 1, None, "expected text as a key, found bytes"),
    ("a large value", "k", "x" * (1 << 20), None, "at most 1048576 bytes of JSON, found one of 1048578"),
    ("no JSON", "k", {1, 2}, None, "JSON can carry"),
    ("not a number", "k", float("nan"), None, "JSON can carry"),
    ("no seconds", "k", 1, 0, "at least 1"),
    ("seconds as text", "k", 1, "5", "whole number of seconds"),
    ("yes as seconds", "k", 1, True, "whole number of seconds"),
]


@pytest.mark.parametrize(("name", "key", "value", "ttl", "said"), WRONG, ids=[case[0] for case in WRONG])
def test_a_value_that_does_not_fit_is_a_clear_error_and_is_not_stored(
    kv: Kv, name: str, key: Any, value: Any, ttl: Any, said: str
) -> None:
    async def run() -> None:
        with pytest.raises((ValueError, TypeError), match=said):
            await kv.set("s", key, value, ttl)
        assert await kv.list("s") == []

    asyncio.run(run())


def test_a_value_at_the_limit_is_stored(kv: Kv) -> None:
    async def run() -> None:
        await kv.set("s", "k" * 512, "x" * ((1 << 20) - 2))
        assert await kv.get("s", "k" * 512) == "x" * ((1 << 20) - 2)

    asyncio.run(run())


MOST = 1000  # bytes, of which an entry takes 64 besides its key and its value
# the operation, its key, the length of its text in bytes, and its lifetime
Step = tuple[str, str, int | None, int | None]

ROOM: dict[str, tuple[list[Step], bool]] = {
    # the operations before, and whether a last text of 100 bytes then fits: with its key and quotes it takes 167
    "nothing": ([], True),
    "almost too much": ([("set", "a", 766, None)], True),
    "a byte more": ([("set", "a", 767, None)], False),
    "many small ones": ([("set", f"k{number}", 0, None) for number in range(12)], True),
    "one more of them": ([("set", f"k{number}", 0, None) for number in range(13)], False),
    "the same key again and again": ([("set", "a", 766, None)] * 5, True),
    "one that became smaller": ([("set", "a", 900, None), ("set", "a", 700, None)], True),
    "one that became larger": ([("set", "a", 700, None), ("set", "a", 900, None)], False),
    "one that was deleted": ([("set", "a", 900, None), ("delete", "a", None, None)], True),
    "one that was deleted twice": ([("set", "b", 767, None), *[("delete", "a", None, None)] * 2], False),
    "one that was forgotten": ([("set", "a", 900, 5), ("wait", "", None, 10)], True),
    "one that is not forgotten yet": ([("set", "a", 900, 50), ("wait", "", None, 10)], False),
    "one that was forgotten and looked for": ([("set", "a", 900, 5), ("wait", "", None, 10), ("list", "", 0, 0)], True),
    "one that was forgotten and deleted": ([("set", "a", 900, 5), ("wait", "", None, 10), ("delete", "a", 0, 0)], True),
    "all that was cleared": ([("set", "a", 500, None), ("set", "b", 200, 9), ("clear", "", None, None)], True),
    "what is in another scope": ([("other", "a", 900, None)], True),
    "letters that take more bytes": ([("set", "é" * 30, 708, None)], False),
}


@pytest.fixture(params=KINDS)
def small(request: pytest.FixtureRequest, store_path: Path, clock: Clock) -> Kv:
    if request.param == "postgres":
        return PostgresKv(emptied(request.getfixturevalue("database")), clock, MOST)
    if request.param == "memory":
        return MemoryKv(clock, MOST)
    return SqliteKv(store_path / "small.db", clock, MOST)


@pytest.mark.parametrize("case", ROOM)
def test_a_scope_takes_so_much_and_no_more(small: Kv, clock: Clock, case: str) -> None:
    steps, fits = ROOM[case]

    async def run() -> None:
        for act, key, size, seconds in steps:
            if act == "wait":
                clock.now += seconds or 0
            elif act in ("set", "other"):
                await small.set("s" if act == "set" else "t", key, "x" * (size or 0), seconds)
            elif act == "clear":
                await small.clear("s")
            else:
                await (small.delete if act == "delete" else small.list)("s", key)
        before = await small.list("s")
        if fits:
            await small.set("s", "z", "x" * 100)
            assert await small.get("s", "z") == "x" * 100
            return
        with pytest.raises(TooLarge, match=f"this store may hold {MOST} bytes, and would have 1[0-9]+: delete"):
            await small.set("s", "z", "x" * 100)
        assert await small.list("s") == before

    asyncio.run(run())


def test_a_scope_above_the_limit_may_become_smaller(store_path: Path, database: Database) -> None:
    memory, path = MemoryKv(), store_path / "kv.db"
    wide, narrow = PostgresKv(emptied(database)), PostgresKv(database, most_bytes=MOST)
    large, tight = SqliteKv(path), SqliteKv(path, most_bytes=MOST)

    async def run() -> None:
        for store in (memory, large, wide):
            await store.set("s", "a", "x" * 5000)
        memory._most = MOST
        for store in (memory, tight, narrow):
            await store.set("s", "a", "x" * 4000)
            with pytest.raises(TooLarge):
                await store.set("s", "a", "x" * 4001)
            with pytest.raises(TooLarge):
                await store.set("s", "b", "")
            assert await store.get("s", "a") == "x" * 4000

    asyncio.run(run())
    large.close()
    tight.close()


def test_a_value_that_is_too_large_is_refused_as_such(kv: Kv) -> None:
    with pytest.raises(TooLarge, match="at most 1048576 bytes"):
        asyncio.run(kv.set("s", "k", "x" * (1 << 20)))


def test_deep_values_are_an_error_and_no_crash(kv: Kv) -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="nested too deeply"):
        asyncio.run(kv.set("s", "k", value))
    while value:  # or forgetting it would recurse
        value = value.pop()


def test_changing_a_returned_value_does_not_change_the_store(kv: Kv) -> None:
    async def run() -> None:
        value: list[Any] = [1]
        await kv.set("s", "k", value)
        value.append(2)
        found: Any = await kv.get("s", "k")
        found.append(3)
        assert await kv.get("s", "k") == [1]

    asyncio.run(run())


# SQLite ---------------------------------------------------------------------------------------------------------------


def both(path: Path, act: Callable[[SqliteKv], Any]) -> Any:
    store = SqliteKv(path)
    try:
        return asyncio.run(act(store))
    finally:
        store.close()


def test_files_are_for_their_owner_alone(store_path: Path) -> None:
    old = os.umask(0)
    try:
        store = SqliteKv(store_path / "state" / "licet" / "kv.db")
        asyncio.run(store.set("s", "k", 1))
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (store_path / "state" / "licet").iterdir()}
    assert modes == {"kv.db": 0o600, "kv.db-wal": 0o600, "kv.db-shm": 0o600}
    assert stat.S_IMODE((store_path / "state" / "licet").stat().st_mode) == 0o700
    store.close()


def test_values_outlive_the_process_and_the_store_opens_again(store_path: Path) -> None:
    both(store_path / "kv.db", lambda store: store.set("s", "k", 1))
    assert both(store_path / "kv.db", lambda store: store.get("s", "k")) == 1
    store = SqliteKv(store_path / "kv.db")
    store.close()
    assert asyncio.run(store.get("s", "k")) == 1
    store.close()


FIRST_FORMAT = """
CREATE TABLE entries (
    scope TEXT NOT NULL, key BLOB NOT NULL, value TEXT NOT NULL, expires REAL, PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX by_expiry ON entries (expires) WHERE expires IS NOT NULL;
INSERT INTO entries VALUES ('s', x'61', '"xxxxxxxx"', NULL), ('s', x'c3a9', '12345', NULL), ('t', x'61', '1', 2000.0);
PRAGMA application_id = 1818846059;
PRAGMA user_version = 1;
"""


def test_a_file_of_format_1_is_migrated_with_the_sizes_of_its_entries(store_path: Path) -> None:
    path = older_file(store_path / "kv.db", FIRST_FORMAT)
    assert both(path, lambda store: store.get("s", "é")) == 12345
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT * FROM sizes").fetchall() == [("s", 64 + 1 + 10 + 64 + 2 + 5), ("t", 64 + 1 + 1)]
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
    db.close()


SECOND_FORMAT = """
CREATE TABLE entries (
    scope TEXT NOT NULL, key BLOB NOT NULL, value TEXT NOT NULL, expires REAL, PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX by_expiry ON entries (expires) WHERE expires IS NOT NULL;
CREATE TABLE sizes (scope TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO entries VALUES
    ('personality:p@clerk', x'61', '1', NULL), ('personality:p@cook', x'61', '2', NULL),
    ('personality:p@clerk', x'62', '3', 2000.0), ('personality:p@cook', x'62', '4', 20000000000.0),
    ('personality:p@cook', x'63', '5', NULL),
    ('session:personality:p@cook', x'61', '7', NULL), ('tool:t@cook', x'61', '8', NULL);
INSERT INTO sizes SELECT scope, sum(64 + length(key) + length(value)) FROM entries GROUP BY scope;
PRAGMA application_id = 1818846059;
PRAGMA user_version = 2;
"""


def test_stores_of_a_personality_that_were_kept_per_agent_become_one(store_path: Path) -> None:
    path = older_file(store_path / "kv.db", SECOND_FORMAT)
    found = [both(path, partial(SqliteKv.get, scope="personality:p", key=key)) for key in "abc"]
    assert found == [1, 4, 5]  # of two values, that of the first agent by name; never one that is over
    assert both(path, lambda store: store.get("personality:p@cook", "a")) == 2  # nothing is lost
    assert both(path, lambda store: store.list("personality:p@cook")) == ["a"]
    assert both(path, lambda store: store.get("session:personality:p@cook", "a")) == 7
    assert both(path, lambda store: store.get("tool:t@cook", "a")) == 8
    with sqlite3.connect(path) as db:
        assert dict(db.execute("SELECT * FROM sizes"))["personality:p"] == 3 * 66
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
    db.close()


def test_stored_sizes_match_the_entries(store_path: Path, clock: Clock) -> None:
    store, path = SqliteKv(store_path / "kv.db", clock), store_path / "kv.db"

    async def run() -> None:
        for number in range(40):
            await store.set(f"s{number % 3}", f"k{number % 7}é", "ü" * number, number % 5 or None)
            clock.now += 1
            if number % 4 == 0:
                await store.delete(f"s{number % 3}", f"k{number % 5}é")
        await store.clear("s2")

    asyncio.run(run())
    store.close()
    with sqlite3.connect(path) as db:
        kept = db.execute("SELECT scope, bytes FROM sizes WHERE bytes").fetchall()
        counted = "SELECT scope, sum(64 + length(key) + length(value)) FROM entries GROUP BY scope"
        assert kept == db.execute(counted).fetchall()
    db.close()
    assert kept


def newer(path: Path) -> None:
    both(path, lambda store: store.set("s", "k", 1))
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    path.chmod(0o600)


def damaged(path: Path) -> None:
    both(path, lambda store: store.set("s", "k", "x" * 50_000))
    raw = bytearray(path.read_bytes())
    raw[100:] = b"\xa5" * (len(raw) - 100)
    path.write_bytes(raw)


def text(path: Path) -> None:
    path.write_text("this is no database at all, but it is long enough to be looked at" * 20)
    path.chmod(0o600)


def open_to_others(path: Path) -> None:
    path.touch()
    path.chmod(0o644)


def link(path: Path) -> None:
    path.with_name("other").touch(0o600)
    path.symlink_to(path.with_name("other"))


def open_folder(path: Path) -> None:
    path.parent.chmod(0o777)


TROUBLES = [
    (newer, "written by a newer licet \\(format 9\\)"),
    (foreign, "a database of another program"),
    (damaged, "damaged or no database"),
    (text, "damaged or no database"),
    (open_to_others, "chmod 600"),
    (link, "not a regular file"),
    (Path.mkdir, "not a regular file"),
    (open_folder, "chmod 700"),
]


@pytest.mark.parametrize(("trouble", "said"), TROUBLES)
def test_a_file_that_cannot_be_trusted_is_a_clear_error(store_path: Path, trouble: Any, said: str) -> None:
    path = store_path / "kv.db"
    trouble(path)
    before = path.read_bytes() if path.is_file() else b""
    for act in (lambda store: store.get("s", "k"), lambda store: store.set("s", "k", 1)):
        with pytest.raises(Unavailable, match=said) as caught:
            both(path, act)
        assert str(store_path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_expired_entries_leave_the_file(store_path: Path) -> None:
    clock = Clock()
    store = SqliteKv(store_path / "kv.db", clock)

    async def run() -> None:
        for number in range(50):
            await store.set("s", f"k{number}", 1, 5)
        clock.now += 10
        await store.set("s", "new", 1)

    asyncio.run(run())
    store.close()
    with sqlite3.connect(store_path / "kv.db") as db:
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    db.close()


PROCESSES, ROUNDS = 4, 60

HAMMER = f"""
import asyncio, sys
from licet.backends.kv import SqliteKv

async def run(number):
    store = SqliteKv(sys.argv[1])  # the first to come makes the file, and all come at once
    sys.stdin.readline()
    for turn in range({ROUNDS}):
        await store.set("s", f"p{{number}}-{{turn}}", turn)
        await store.set("s", "shared", [number] * 100)
        assert len(set(await store.get("s", "shared"))) == 1  # a whole value of somebody
    for turn in range(0, {ROUNDS}, 2):
        assert await store.delete("s", f"p{{number}}-{{turn}}")
    store.close()

asyncio.run(run(int(sys.argv[2])))
"""


def test_many_processes_lose_nothing(store_path: Path) -> None:
    path = store_path / "kv.db"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", HAMMER, str(path), str(number)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for number in range(PROCESSES)
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
    said = [worker.communicate(timeout=600)[1] for worker in workers]
    assert said == [b""] * PROCESSES
    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    keys = both(path, lambda store: store.list("s", "p"))
    assert keys == sorted(f"p{number}-{turn}" for number in range(PROCESSES) for turn in range(1, ROUNDS, 2))


def test_a_write_waits_for_another_without_stopping_the_loop(store_path: Path) -> None:
    store = SqliteKv(store_path / "kv.db")

    async def run() -> None:
        await store.set("s", "k", 1)
        other = sqlite3.connect(store_path / "kv.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.set("s", "k", 2))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert await store.get("s", "k") == 1  # readers never wait
        other.execute("ROLLBACK")
        other.close()
        await waiting
        assert await store.get("s", "k") == 2

    asyncio.run(run())
    store.close()


def test_threads_share_a_store(store_path: Path) -> None:
    store = SqliteKv(store_path / "kv.db")

    async def write(number: int) -> None:
        for turn in range(30):
            await store.set("s", f"{number}-{turn}", turn)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(write(n))) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asyncio.run(store.list("s"))) == 90
    store.close()


def in_child(fork: Callable[[], int], act: Callable[[], object]) -> int:
    """Return the exit code of a forked child that runs a function."""
    child = fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # other tests leave threads behind
@pytest.mark.parametrize("fork", [os.fork, ctypes.CDLL(None).fork], ids=["by Python", "behind its back"])
def test_a_forked_child_opens_the_file_for_itself(store_path: Path, fork: Callable[[], int]) -> None:
    store = SqliteKv(store_path / "kv.db")
    asyncio.run(store.set("s", "parent", 1))
    inherited = store._file._connection

    def child() -> None:
        assert asyncio.run(store.get("s", "parent")) == 1
        assert store._file._connection is not inherited  # it works with the parent's for a while, and then no longer
        asyncio.run(store.set("s", "child", 2))

    assert in_child(fork, child) == 0
    assert asyncio.run(store.list("s")) == ["child", "parent"]
    asyncio.run(store.set("s", "parent", 3))
    assert in_child(fork, lambda: json.dumps(asyncio.run(store.get("s", "parent"))) == "3" or os._exit(2)) == 0
    with sqlite3.connect(store_path / "kv.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    store.close()
