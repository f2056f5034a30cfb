"""What was acknowledged outlives its server where a standby is synchronous; elsewhere licet says that it may not."""

import asyncio
from collections.abc import Iterator

import pytest

from backends.postgres.test_database import in_loop
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.migrations import migrate
from licet.guard.ports import Unavailable
from postgres_server import NoServer, Server, Standby, binaries_once

_INSERT = "INSERT INTO public.kept VALUES ($1) ON CONFLICT DO NOTHING"


@pytest.fixture
def pair() -> Iterator[tuple[Server, Standby]]:
    """A primary with the tables of licet, whose commits wait for its standby, and that standby."""
    known = binaries_once()
    if not known:
        pytest.skip("there is no PostgreSQL on this machine")
    primary = Server(next(iter(known.values())), synchronous_commit="on")
    try:
        asyncio.run(_prepare(primary))
        standby = Standby(primary)
    except NoServer as why:
        primary.stop()
        pytest.skip(str(why))
    yield primary, standby
    standby.stop()
    primary.stop()


async def _prepare(primary: Server) -> None:
    import asyncpg

    connection = await asyncpg.connect(host=str(primary.folder), user="postgres")
    try:
        await migrate(connection)
        await connection.execute("CREATE TABLE kept (number int PRIMARY KEY)")
    finally:
        await connection.close()


async def _wait_for_standby(primary: Server) -> None:
    await primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    while await primary.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != 1:
        await asyncio.sleep(0.02)


@in_loop
async def test_after_a_promotion_writes_go_on_and_nothing_acknowledged_is_lost(pair: tuple[Server, Standby]) -> None:
    primary, standby = pair
    await _wait_for_standby(primary)
    database = Database(f"postgresql://postgres@/postgres?host={primary.folder},{standby.folder}")
    acknowledged: list[int] = []

    async def keep(numbers: range) -> None:
        for number in numbers:
            await database.once(lambda connection, number=number: connection.execute(_INSERT, number))  # type: ignore[misc]
            acknowledged.append(number)

    writers = [asyncio.ensure_future(keep(range(start, start + 200))) for start in range(0, 800, 200)]
    while len(acknowledged) < 100:
        await asyncio.sleep(0.01)
    primary.kill()
    before = len(acknowledged)
    await standby.sql("SELECT pg_promote(true)")
    await asyncio.gather(*writers)
    database.close()
    assert before < 800, "the server was killed too late to show anything"
    assert sorted(acknowledged) == list(range(800))
    assert await standby.sql("SELECT count(*) FROM kept") == 800


@in_loop
async def test_a_server_without_a_synchronous_standby_is_refused_on_demand(pair: tuple[Server, Standby]) -> None:
    primary, _ = pair

    async def one(connection: Connection) -> int:
        found: int = await connection.fetchval("SELECT 1")
        return found

    careful = Database(primary.url() + "&require_synchronous=true")
    with pytest.raises(Unavailable, match="may lose acknowledged entries"):
        await careful.once(one)
    assert await Database(primary.url()).once(one) == 1
    await _wait_for_standby(primary)
    assert await careful.once(one) == 1
