"""The contract of stores for calls with an id, on the memory twin, SQLite and PostgreSQL; and what a file adds."""

import asyncio
import gc
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from licet.backends.kept_calls import MemoryKeptCalls, SqliteKeptCalls
from licet.backends.limits import KEPT_SECONDS
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_kept_calls import PostgresKeptCalls
from licet.backends.secrets import generated_key
from licet.guard.ports import Begun, CallKey, Kept, KeptCalls, Lost, Reused, Unavailable, UnderWay

KEY = CallKey("a", "s", "t", "one")
ALIVE = 0.3  # seconds


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def secret() -> bytes:
    return b"secret"


async def other_secret() -> bytes:
    return b"another"


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Desk:
    """A store, and how its time passes."""

    def __init__(self, store: KeptCalls, clock: Clock, database: Database | None = None) -> None:
        self.store, self.clock, self.database = store, clock, database

    async def wait(self, seconds: float) -> None:
        """Let time pass, on the clock of the server, too."""
        self.clock.now += seconds
        if self.database is not None:
            moved = f"UPDATE licet.kept_calls SET expires = expires - make_interval(secs => {seconds})"
            await self.database.once(lambda connection: connection.execute(moved))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def desk(request: pytest.FixtureRequest, store_path: Path, clock: Clock) -> Iterator[Desk]:
    if request.param == "memory":
        yield Desk(MemoryKeptCalls(clock), clock)
    elif request.param == "sqlite":
        yield Desk(SqliteKeptCalls(store_path / "state" / "kept.sqlite", secret, clock), clock)
    else:
        database = Database(request.getfixturevalue("postgres"))
        yield Desk(PostgresKeptCalls(database, Node(generated_key()), everybody, clock, ALIVE), clock, database)
        database.close()


@pytest.fixture
def store(desk: Desk) -> KeptCalls:
    return desk.store


async def everybody(_: str) -> bool:
    return True


async def begun(store: KeptCalls, key: CallKey = KEY, arguments: str = "x", receipt: str = "r-1") -> Begun:
    found = await store.begin(key, arguments, receipt)
    assert isinstance(found, Begun)
    return found


def test_the_first_one_begins_and_others_see_it_run_and_end(store: KeptCalls) -> None:
    async def scene() -> None:
        first = await begun(store)
        assert (first.key, first.receipt) == (KEY, "r-1")
        assert await store.begin(KEY, "x", "r-2") == UnderWay("r-1")
        await store.finish(first, b"data")
        assert await store.begin(KEY, "x", "r-3") == Kept("r-1", b"data")
        assert await store.begin(KEY, "x", "r-4") == Kept("r-1", b"data")

    asyncio.run(scene())


def test_one_that_did_not_run_frees_its_id(store: KeptCalls) -> None:
    async def scene() -> None:
        await store.drop(await begun(store))
        await begun(store, arguments="other", receipt="r-2")

    asyncio.run(scene())


def test_other_arguments_are_told_whatever_became_of_the_first(store: KeptCalls) -> None:
    async def scene() -> None:
        first = await begun(store)
        assert await store.begin(KEY, "y", "r-2") == Reused("r-1")
        await store.finish(first, b"data")
        assert await store.begin(KEY, "y", "r-3") == Reused("r-1")

    asyncio.run(scene())


def test_every_part_of_a_key_counts(store: KeptCalls) -> None:
    async def scene() -> list[Begun]:
        keys = [KEY, CallKey("b", "s", "t", "one"), CallKey("a", "r", "t", "one"), CallKey("a", "s", "u", "one")]
        return [await begun(store, key, receipt=f"r-{n}") for n, key in enumerate([*keys, CallKey("a", "s", "t", "2")])]

    asyncio.run(scene())


def test_one_that_nobody_runs_any_more_is_lost(store: KeptCalls) -> None:
    async def scene() -> None:
        first = await begun(store)
        assert await store.begin(KEY, "x", "r-2") == UnderWay("r-1")
        del first
        gc.collect()
        await asyncio.sleep(ALIVE)
        assert await store.begin(KEY, "x", "r-3") == Lost("r-1")
        assert await store.begin(KEY, "x", "r-4") == Lost("r-1")

    asyncio.run(scene())


def test_after_a_day_an_id_is_free_unless_its_call_still_runs(desk: Desk) -> None:
    store = desk.store

    async def scene() -> None:
        await store.finish(await begun(store), b"data")
        long = await begun(store, CallKey("a", "s", "t", "long"), receipt="r-2")
        await desk.wait(KEPT_SECONDS - 100)
        assert await store.begin(KEY, "x", "r-3") == Kept("r-1", b"data")
        await desk.wait(100)
        again = await begun(store, receipt="r-4")
        assert await store.begin(long.key, "x", "r-5") == UnderWay("r-2")
        await store.finish(long, b"late")
        await store.finish(again, b"new")
        assert await store.begin(KEY, "x", "r-6") == Kept("r-4", b"new")

    asyncio.run(scene())


def test_a_call_that_runs_for_long_stays_under_way(store: KeptCalls) -> None:
    async def scene() -> None:
        first = await begun(store)
        for number in range(4):
            await asyncio.sleep(ALIVE / 2)
            assert await store.begin(KEY, "x", f"r-{number + 2}") == UnderWay("r-1")
        await store.finish(first, b"data")

    asyncio.run(scene())


def test_many_at_once_have_one_first(store: KeptCalls) -> None:
    async def scene() -> list[object]:
        return await asyncio.gather(*(store.begin(KEY, "x", f"r-{n}") for n in range(32)))

    found = asyncio.run(scene())
    assert sum(isinstance(one, Begun) for one in found) == 1
    assert sum(isinstance(one, UnderWay) for one in found) == 31


# What a file adds ----------------------------------------------------------------------------------------------------


def in_file(folder: Path, clock: Callable[[], float], key: Any = secret) -> SqliteKeptCalls:
    return SqliteKeptCalls(folder / "kept.sqlite", key, clock)


def changed(folder: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(folder / "kept.sqlite") as db:
        db.execute(statement, values)
    db.close()


def test_another_store_of_the_same_file_knows_what_is_kept(store_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        one, two = in_file(store_path, clock), in_file(store_path, clock)
        first = await begun(one)
        assert await two.begin(KEY, "x", "r-2") == UnderWay("r-1")
        await one.finish(first, b"data")
        one.close()
        assert await two.begin(KEY, "x", "r-3") == Kept("r-1", b"data")

    asyncio.run(scene())
    for path in store_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


PLANTED = {
    "a result": ("UPDATE calls SET data = CAST('planted' AS BLOB)", Lost("r-1")),
    "a seal": ("UPDATE calls SET seal = zeroblob(32)", Lost("")),
    "a text for a seal": ("UPDATE calls SET seal = 'x'", Lost("")),
    "a body": ("UPDATE calls SET body = CAST(replace(body, 'sha256', 'sha512') AS BLOB)", Lost("")),
    "a number for a body": ("UPDATE calls SET body = 7", Lost("")),
    "nested JSON for a body": (
        "UPDATE calls SET body = CAST(replace(hex(zeroblob(9000)), '0', '[') AS BLOB)",
        Lost(""),
    ),
    "a later end": ("UPDATE calls SET until = until + 1000000000", Kept("r-1", b"data")),
    "a row of another call": ("UPDATE calls SET id = 'one' WHERE id = 'other'", Lost("")),
}


@pytest.mark.parametrize("change", PLANTED)
def test_what_another_writer_plants_is_not_believed(change: str, store_path: Path, clock: Clock) -> None:
    statement, expected = PLANTED[change]

    async def scene() -> object:
        store = in_file(store_path, clock)
        if change != "a row of another call":
            await store.finish(await begun(store), b"data")
        await store.finish(await begun(store, CallKey("a", "s", "t", "other"), receipt="r-2"), b"data")
        store.close()
        changed(store_path, statement)
        return await in_file(store_path, clock).begin(KEY, "x", "r-3")

    assert asyncio.run(scene()) == expected


def test_a_file_from_a_state_with_another_key_is_not_believed(store_path: Path, clock: Clock) -> None:
    async def scene() -> object:
        store = in_file(store_path, clock)
        await store.finish(await begun(store), b"data")
        return await in_file(store_path, clock, other_secret).begin(KEY, "x", "r-2")

    assert asyncio.run(scene()) == Lost("")


def test_what_is_deleted_does_not_stay_in_the_file(store_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        store = in_file(store_path, clock)
        await store.finish(await begun(store), b"private " * 1000)
        clock.now += KEPT_SECONDS
        await begun(store, CallKey("a", "s", "t", "other"), receipt="r-2")
        store.close()

    asyncio.run(scene())
    assert b"private" not in b"".join(path.read_bytes() for path in store_path.iterdir())


def test_a_caller_that_gives_up_while_it_begins_leaves_its_id_free(store_path: Path, clock: Clock) -> None:
    async def scene() -> None:
        store = in_file(store_path, clock)
        asking = asyncio.create_task(store.begin(KEY, "x", "r-1"))
        await asyncio.sleep(0)
        asking.cancel()  # it waits for the disk
        with pytest.raises(asyncio.CancelledError):
            await asking
        await begun(store, receipt="r-2")

    asyncio.run(scene())


def test_a_store_that_cannot_be_used_says_so(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "kept.sqlite").write_bytes(b"x" * 5000)
    (tmp_path / "kept.sqlite").chmod(0o600)
    with pytest.raises(Unavailable, match="no database"):
        asyncio.run(in_file(tmp_path, clock).begin(KEY, "x", "r-1"))
    (tmp_path / "kept.sqlite").unlink()
    (tmp_path / "kept.sqlite-running").mkdir()
    with pytest.raises(Unavailable, match="cannot be opened"):
        asyncio.run(in_file(tmp_path, clock).begin(KEY, "x", "r-1"))


HOLDER = """
import asyncio, os, sys, time
from licet.backends.kept_calls import SqliteKeptCalls
from licet.guard.ports import CallKey

async def secret():
    return b"secret"

async def scene():
    store = SqliteKeptCalls(sys.argv[1], secret, lambda: 1_000_000.0)
    first = await store.begin(CallKey("a", "s", "t", "one"), "x", "r-1")
    if sys.argv[2] == "forked" and os.fork() == 0:
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(60)
    os.write(1, b"begun\\n")
    time.sleep(60)

asyncio.run(scene())
"""


@pytest.mark.parametrize("how", ["alone", "forked"])
def test_a_process_that_was_killed_leaves_its_call_unknown(how: str, store_path: Path, clock: Clock) -> None:
    def begin(receipt: str) -> object:
        return asyncio.run(in_file(store_path, clock).begin(KEY, "x", receipt))

    command = [sys.executable, "-c", HOLDER, str(store_path / "kept.sqlite"), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        said = sorted(holder.stdout.readline().strip() for _ in range(2 if how == "forked" else 1))
        try:
            assert said.pop() == "begun"
            assert begin("r-2") == UnderWay("r-1")
            assert begin("r-3") == UnderWay("r-1")  # and looking does not end it
            holder.kill()
            holder.wait()
            assert begin("r-4") == Lost("r-1")
        finally:
            holder.kill()
            for child in said:  # it has none of the locks, and the pipe
                os.kill(int(child), signal.SIGKILL)
