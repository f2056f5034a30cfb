"""Four nodes under load while connections, servers and nodes are killed, and a standby is promoted.

A sample of kills here, and 1,000 with LICET_LONG=1. What was acknowledged is neither lost nor doubled.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from backends.postgres.chaos import Chaos
from effort import LONG
from licet.backends.postgres.migrations import migrate
from postgres_server import NoServer, Server, Standby, binaries_once

KILLS = 1000 if LONG else 8


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    known = binaries_once()
    if not known:
        pytest.skip("there is no PostgreSQL on this machine")
    # A server that is killed keeps what it has written to files, also without `fsync`: only a power cut would take it.
    primary = Server(next(iter(known.values())), synchronous_commit="on", full_page_writes="on")
    try:
        asyncio.run(_make_tables(primary))
        standby = Standby(primary)
    except NoServer as why:
        primary.stop()
        pytest.skip(str(why))
    made = Chaos(tmp_path, primary, standby, seed=KILLS)
    yield made
    made.kill()
    standby.stop()
    primary.stop()


async def _make_tables(primary: Server) -> None:
    connection = await asyncpg.connect(host=str(primary.folder), user="postgres")
    try:
        await migrate(connection)
    finally:
        await connection.close()


async def _wait_for_standby(primary: Server) -> None:
    await primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    while await primary.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != 1:
        await asyncio.sleep(0.02)


def test_nothing_acknowledged_is_lost_or_doubled_whatever_is_killed(chaos: Chaos) -> None:
    async def play() -> None:
        await _wait_for_standby(chaos.primary)
        await chaos.prepare()
        chaos.start()
        await chaos.went_on()
        await chaos.harm(KILLS)
        await chaos.promote()
        await chaos.end()
        await chaos.check()

    asyncio.run(play())
    assert chaos.done["connections"] >= KILLS // 2
    assert all(chaos.done[kind] for kind in ("servers", "nodes", "promotions"))
