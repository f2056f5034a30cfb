"""Key-value stores in PostgreSQL: repeated writes, several nodes at once, and rows that somebody else has written."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from licet.backends.postgres.database import Database
from licet.backends.postgres.postgres_kv import PostgresKv
from licet.guard.ports import ENDED, Ended, TooLarge, Unavailable
from postgres_server import server

SET = "SELECT licet.kv_write($1, 's', 'k', $2, NULL, 1000, NULL, 'ended')"
DELETE = "SELECT licet.kv_write($1, 's', 'k', NULL, NULL, 1000, NULL, 'ended')"


@pytest.fixture
def nodes(postgres: str) -> Iterator[list[Database]]:
    made = [Database(postgres) for _ in range(2)]
    yield made
    for one in made:
        one.close()


def ask(database: Database, query: str, *values: Any) -> Any:
    return database.wait(lambda connection: connection.fetchval(query, *values), 10)


def test_a_write_that_is_sent_again_has_the_effect_and_the_answer_of_the_first(nodes: list[Database]) -> None:
    one, other = nodes
    first, second, third, fourth = (UUID(int=number) for number in range(4))
    assert ask(one, SET, first, '"a"') == 0
    assert ask(other, SET, second, '"b"') == 0
    assert ask(one, SET, first, '"a"') == 0
    assert asyncio.run(PostgresKv(other).get("s", "k")) == "b"
    assert ask(one, DELETE, third) == 1
    assert ask(one, DELETE, third) == 1
    assert ask(one, DELETE, fourth) == 0
    assert ask(other, SET, UUID(int=9), '"' + "x" * 2000 + '"') == 64 + 1 + 2002
    assert ask(other, SET, UUID(int=9), '"small"') == 64 + 1 + 2002


def test_nodes_that_write_at_once_keep_the_limit_of_a_scope(nodes: list[Database]) -> None:
    stores = [PostgresKv(one, most_bytes=1000) for one in nodes]

    async def run() -> list[Any]:
        writes = (stores[number % 2].set("s", f"k{number:02}", "x" * 33) for number in range(20))
        return await asyncio.gather(*writes, return_exceptions=True)  # each takes 102 bytes

    outcomes = asyncio.run(run())
    assert sum(one is None for one in outcomes) == 9
    assert sum(isinstance(one, TooLarge) for one in outcomes) == 11
    assert ask(nodes[0], "SELECT bytes FROM licet.kv_sizes") == 9 * 102


def test_no_value_is_left_of_a_session_that_another_node_ends(nodes: list[Database]) -> None:
    one, other = (PostgresKv(database) for database in nodes)

    async def write(number: int) -> None:
        await one.set("session:s@a", f"k{number}", number)

    async def end() -> None:
        await other.set(ENDED, "session:s@a", True)
        await other.clear("session:s@a")

    async def run() -> list[Any]:
        early = [asyncio.create_task(write(number)) for number in range(8)]
        await end()
        late = [asyncio.create_task(write(number)) for number in range(8, 12)]
        found = await asyncio.gather(*early, *late, return_exceptions=True)
        assert await other.list("session:s@a") == []
        return found

    outcomes = asyncio.run(run())
    assert all(isinstance(one, Ended) for one in outcomes[8:])


def test_expired_entries_of_other_scopes_go_too(nodes: list[Database]) -> None:
    store = PostgresKv(nodes[0], lambda: 1000.0)
    later = PostgresKv(nodes[0], lambda: 2000.0)
    asyncio.run(store.set("s", "k", 1, 10))
    asyncio.run(store.set("s", "stays", 1))
    asyncio.run(later.set("t", "k", 1))
    assert ask(nodes[0], "SELECT array_agg(key ORDER BY key) FROM licet.kv_entries") == [b"k", b"stays"]
    assert ask(nodes[0], "SELECT bytes FROM licet.kv_sizes WHERE scope = 's'") == 64 + 5 + 1


def test_the_clock_of_the_server_decides_when_a_value_ends(nodes: list[Database]) -> None:
    store = PostgresKv(nodes[0])
    asyncio.run(store.set("s", "k", 1, 60))
    assert asyncio.run(store.get("s", "k")) == 1
    left = "SELECT expires - extract(epoch FROM now()) FROM licet.kv_entries"
    assert 50 < ask(nodes[0], left) <= 60


@pytest.mark.parametrize("value", ["no json", "[" * 100_000, '{"a":'])
def test_a_value_that_somebody_else_wrote_is_refused(nodes: list[Database], value: str) -> None:
    store = PostgresKv(nodes[0])
    ask(nodes[0], "INSERT INTO licet.kv_entries VALUES ('s', 'k', $1)", value)
    ask(nodes[0], r"INSERT INTO licet.kv_entries VALUES ('t', '\xff', '1')")
    with pytest.raises(Unavailable, match="that licet has not written"):
        asyncio.run(store.get("s", "k"))
    with pytest.raises(Unavailable, match="that licet has not written"):
        asyncio.run(store.list("t"))


def test_a_scope_may_have_any_character(nodes: list[Database]) -> None:
    store = PostgresKv(nodes[0])
    asyncio.run(store.set("session:a\0b é", "k", 1))
    assert asyncio.run(store.get("session:a\0b é", "k")) == 1
    assert asyncio.run(store.get("session:a", "k")) is None


def test_a_killed_connection_is_another_attempt(nodes: list[Database]) -> None:
    store = PostgresKv(nodes[0])

    async def run() -> None:
        for number in range(5):
            await store.set("s", "k", number)
            await server().sql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name = 'licet' AND pid <> pg_backend_pid()"
            )
            assert await store.get("s", "k") == number

    asyncio.run(run())
