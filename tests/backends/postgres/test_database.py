"""The thread that holds the connections: batches, lost connections, deadlines, forks, notifications."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

import pytest

from licet.backends.postgres.address import AddressError, Connection, read_address
from licet.backends.postgres.database import Database
from licet.guard.deadlines import CURRENT, StoreDeadline
from licet.guard.ports import Unavailable
from postgres_server import server


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


async def pid(connection: Connection) -> int:
    found: int = await connection.fetchval("SELECT pg_backend_pid()")
    return found


def test_event_loops_in_several_threads_share_the_connections(postgres: str) -> None:
    database, found = Database(postgres), []

    async def ask() -> None:
        found.extend(await asyncio.gather(*(database.once(pid) for _ in range(5))))

    threads = [threading.Thread(target=asyncio.run, args=(ask(),)) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    database.close()
    assert len(found) == 15
    assert len(set(found)) <= 8


@in_loop
async def test_what_waits_goes_over_together(postgres: str) -> None:
    batches: list[int] = []

    async def act(connection: Connection, items: Sequence[int]) -> Sequence[int | Exception]:
        batches.append(len(items))
        doubled: list[int] = await connection.fetchval("SELECT array_agg(x * 2) FROM unnest($1::int[]) AS x", items)
        return [ValueError("seven") if one == 7 else two for one, two in zip(items, doubled, strict=True)]

    database = Database(postgres)
    lane = database.lane(act, most=64)
    answers = await asyncio.gather(*(lane.do(one) for one in range(100)), return_exceptions=True)
    database.close()
    assert [one for one in answers if not isinstance(one, BaseException)] == [2 * one for one in range(100) if one != 7]
    assert isinstance(answers[7], ValueError)
    assert sum(batches) == 100
    assert len(batches) < 10
    assert max(batches) <= 64


@in_loop
async def test_a_killed_connection_is_another_attempt(postgres: str) -> None:
    database, attempts = Database(postgres), []

    async def write(connection: Connection) -> int:
        await connection.execute("CREATE TABLE IF NOT EXISTS public.seen (id int PRIMARY KEY)")
        await connection.execute("INSERT INTO public.seen VALUES (1) ON CONFLICT DO NOTHING")
        attempts.append(await pid(connection))
        if len(attempts) == 1:
            await server().sql(f"SELECT pg_terminate_backend({attempts[0]})")
        found: int = await connection.fetchval("SELECT count(*) FROM public.seen")
        return found

    assert await database.run(write) == 1
    database.close()
    assert len(set(attempts)) == 2


@in_loop
async def test_a_server_that_is_away_is_an_error_in_time(postgres: str) -> None:
    database = Database(postgres.replace("licet-pg-", "licet-gone-"))
    token = CURRENT.set(StoreDeadline(0.3))
    try:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await database.once(pid)
    finally:
        CURRENT.reset(token)
    database.close()


@in_loop
async def test_a_database_without_tables_says_what_to_do() -> None:
    database = Database(server().url("template1"))
    with pytest.raises(Unavailable, match="licet db init"):
        await database.once(pid)
    database.close()


@in_loop
async def test_a_call_that_gave_up_does_not_stop_the_others(postgres: str) -> None:
    async def act(connection: Connection, items: Sequence[float]) -> Sequence[float]:
        await connection.execute("SELECT pg_sleep($1)", max(items))
        return items

    database = Database(postgres)
    lane = database.lane(act, most=1)
    slow, other = asyncio.ensure_future(lane.do(0.2)), asyncio.ensure_future(lane.do(0.0))
    await asyncio.sleep(0)
    slow.cancel()
    assert await other == 0.0
    database.close()


@pytest.mark.parametrize("way", ["once", "lane"])
@in_loop
async def test_who_waits_when_a_state_is_closed_is_told(
    postgres: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("licet.backends.postgres.database.CLOSE_SECONDS", 0.5)
    begun = threading.Event()

    async def act(connection: Connection, items: Sequence[int]) -> Sequence[int]:
        begun.set()
        await connection.execute("SELECT pg_sleep(60)")
        return items

    database = Database(postgres)
    lane = database.lane(act, most=1)
    waiting: list[asyncio.Future[Any]]
    if way == "lane":
        waiting = [asyncio.ensure_future(lane.do(one)) for one in range(2)]  # one under way, and one behind it
    else:
        waiting = [asyncio.ensure_future(database.once(lambda connection: act(connection, [0])))]
    await asyncio.to_thread(begun.wait, 10)
    await asyncio.to_thread(database.close)
    for one in waiting:
        with pytest.raises(Unavailable, match="was closed here"):
            await asyncio.wait_for(one, 10)
    assert await database.once(pid)
    database.close()


@in_loop
async def test_a_notification_is_heard(postgres: str) -> None:
    database, heard, first = Database(postgres), asyncio.Queue[str](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(text: str) -> None:
        loop.call_soon_threadsafe(heard.put_nowait if text else lambda _: first.set(), text)

    end = database.listen("licet_test", hear)
    await asyncio.wait_for(first.wait(), 10)
    await database.once(lambda connection: connection.execute("SELECT pg_notify('licet_test', 'news')"))
    assert await asyncio.wait_for(heard.get(), 10) == "news"
    assert not database.is_deaf
    end()
    database.close()


LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'licet'"


async def connections(postgres: str, wanted: int) -> None:
    """Wait until a database has so many connections of licet."""
    name = urlsplit(postgres).path.removeprefix("/")
    async with asyncio.timeout(10):
        while await server().sql(LISTENING, database=name) != wanted:
            await asyncio.sleep(0.01)


async def news(database: Database, channel: str, heard: Callable[[], bool]) -> None:
    """Notify until that was heard."""
    async with asyncio.timeout(10):
        while not heard():
            await database.once(lambda connection: connection.execute("SELECT pg_notify($1, 'news')", channel))
            await asyncio.sleep(0.01)


@in_loop
async def test_listeners_that_come_and_go_share_one_connection_and_miss_nothing(postgres: str) -> None:
    database = Database(postgres)
    heard: list[list[str]] = [[] for _ in range(21)]
    first, *ends = (database.listen(f"licet_{number}", texts.append) for number, texts in enumerate(heard))
    for number in (0, 20):
        await news(database, f"licet_{number}", lambda number=number: "news" in heard[number])  # type: ignore[misc]
    for end in ends:
        end()
    heard[0].clear()
    await news(database, "licet_0", lambda: "news" in heard[0])
    assert not database.is_deaf
    await connections(postgres, 2)  # one that listens, and one of the pool
    first()
    await connections(postgres, 1)
    again = database.listen("licet_1", heard[1].append)
    await news(database, "licet_1", lambda: "news" in heard[1])
    again()
    database.close()
    await connections(postgres, 0)


@in_loop
async def test_what_was_listened_to_is_heard_after_a_killed_connection_and_a_close(postgres: str) -> None:
    database, heard = Database(postgres), list[str]()
    database.listen("licet_test", heard.append)
    await news(database, "licet_test", lambda: "news" in heard)
    name = urlsplit(postgres).path.removeprefix("/")
    await server().sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'licet'", database=name
    )
    heard.clear()
    await news(database, "licet_test", lambda: "news" in heard and "" in heard)  # told that some may have been missed
    database.close()
    heard.clear()
    await news(database, "licet_test", lambda: "news" in heard)
    database.close()
    await connections(postgres, 0)


def test_a_forked_child_has_connections_of_its_own(postgres: str) -> None:
    database = Database(postgres)
    parent = asyncio.run(database.once(pid))
    if not (child := os.fork()):
        os._exit(0 if asyncio.run(database.once(pid)) != parent else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert asyncio.run(database.once(pid)) == parent
    database.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:hunter2@db/licet", "holds a password"),
        ("postgresql://db/licet?password=hunter2", "names a secret"),
        ("postgresql://db/licet?sslmode=require", "unverified"),
        ("postgresql://db/licet?sslmode=disable", "unverified"),
        ("postgresql://db/licet?service=x", "no parameter"),
        ("postgresql://db/licet?lease=0", "no amount"),
        ("postgresql://db/licet?max_head_age=soon", "no time"),
        ("postgresql://db/licet?require_synchronous=yes", "`true` or `false`"),
        ("mysql://db/licet", "begins with postgresql://"),
    ],
)
def test_addresses_that_are_not_used(url: str, says: str) -> None:
    with pytest.raises(AddressError, match=says) as error:
        read_address(url)
    assert "hunter2" not in str(error.value)


def test_an_address_with_parameters() -> None:
    found = read_address(
        "postgresql://u@a,b:5433/licet?password=secret:db/x&max_head_age=5m&require_synchronous=true&lease=0.5"
    )
    assert (found.password, found.max_head_age, found.require_synchronous, str(found.lease)) == (
        "db/x",
        300,
        True,
        "0.5",
    )
    assert found.dsn == "postgresql://u@a,b:5433/licet"
    assert not found.is_local


@in_loop
async def test_a_transaction_pooler_is_noticed(pooled: str) -> None:
    database = Database(pooled)

    async def add(connection: Connection, items: Sequence[int]) -> Sequence[int]:
        return [await connection.fetchval("SELECT $1::int + 1", one) for one in items]

    lane, one = database.lane(add, most=4), database.lane(add, most=1)
    assert await asyncio.gather(*(lane.do(n) for n in range(40))) == list(range(1, 41))
    assert await asyncio.gather(*(one.do(n) for n in range(40))) == list(range(1, 41))
    # The driver sends a statement in two parts, and the pooler has fewer connections than it gets them from.
    alone = (database.once(lambda connection, n=n: connection.fetchval("SELECT $1::int", n)) for n in range(200))  # type: ignore[misc]
    assert await asyncio.gather(*alone) == list(range(200))
    assert database.is_pooled
    database.close()


@in_loop
async def test_behind_a_transaction_pooler_changes_are_polled(pooled: str) -> None:
    database, polled = Database(pooled), asyncio.Event()
    loop = asyncio.get_running_loop()
    database.listen("licet_test", lambda text: text or loop.call_soon_threadsafe(polled.set))
    await asyncio.wait_for(polled.wait(), 10)
    assert database.is_deaf
    polled.clear()
    await asyncio.wait_for(polled.wait(), 10)
    database.close()
