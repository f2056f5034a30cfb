"""Calls with an id on several nodes: one of them runs the call, whatever breaks. Nobody is believed without a key."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guard.gates import gate
from licet import Backends, Result, tool
from licet.backends.kept_calls import begun_row, data_name
from licet.backends.limits import CLOCKS_APART, KEPT_SECONDS
from licet.backends.memory import MemoryLedger
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_kept_calls import PURPOSE, PostgresKeptCalls
from licet.backends.secrets import generated_key
from licet.core.values import canonical_json
from licet.guard.ports import Begun, CallKey, Kept, Lost, UnderWay
from postgres_server import server

KEY = CallKey("a", "s", "t", "one")
ALIVE = 0.5  # seconds
MINE, OTHER, STRANGER = (Node(generated_key()) for _ in range(3))


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def enrolled(public: str) -> bool:
    return public in (MINE.public, OTHER.public)


@pytest.fixture
def database(postgres: str) -> Iterator[Database]:
    opened = Database(postgres)
    yield opened
    opened.close()


def store(database: Database, node: Node = MINE, **more: Any) -> PostgresKeptCalls:
    return PostgresKeptCalls(database, node, enrolled, **{"alive_seconds": ALIVE, **more})


async def sql(database: Database, statement: str, *values: object) -> None:
    await database.once(lambda connection: connection.execute(statement, *values))


def test_another_node_waits_for_the_first_and_gets_its_result(database: Database) -> None:
    async def scene() -> None:
        one, two = store(database), store(Database(database.address), OTHER)
        first = await one.begin(KEY, "x", "r-1")
        assert isinstance(first, Begun)
        assert await two.begin(KEY, "x", "r-2") == UnderWay("r-1")
        await one.finish(first, b"data")
        assert await two.begin(KEY, "x", "r-2") == Kept("r-1", b"data")

    asyncio.run(scene())


def test_of_many_nodes_that_begin_at_once_one_is_first(database: Database) -> None:
    keys = [CallKey("a", "s", "t", str(number)) for number in range(4)]

    async def scene() -> list[list[Any]]:
        stores = [store(Database(database.address)) for _ in range(4)]
        asked = [
            one.begin(key, "x", f"r-{key.id}-{node}-{number}")
            for number in range(4)
            for node, one in enumerate(stores)
            for key in (keys if node % 2 else reversed(keys))
        ]
        found = await asyncio.gather(*asked)
        rows = await database.once(lambda connection: connection.fetch("SELECT id, receipt FROM licet.kept_calls"))
        return [found, [tuple(row) for row in rows]]

    found, rows = asyncio.run(scene())
    firsts = {one.receipt for one in found if isinstance(one, Begun)}
    assert len(firsts) == 4
    assert {receipt for _, receipt in rows} == firsts
    assert {one.receipt for one in found if isinstance(one, UnderWay)} <= firsts


def test_one_that_asks_again_after_a_lost_connection_begins_once(database: Database) -> None:
    """The statement was done, and the answer never came: `Database` sends it again."""

    async def scene() -> None:
        one = store(database)
        first, again = await one.begin(KEY, "x", "r-1"), await one.begin(KEY, "x", "r-1")
        assert isinstance(first, Begun)
        assert isinstance(again, Begun)
        await server().sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname <> 'postgres' AND pid <> pg_backend_pid()"
        )
        await one.finish(first, b"data")
        await one.finish(first, b"data")
        assert await one.begin(KEY, "x", "r-2") == Kept("r-1", b"data")

    asyncio.run(scene())


def test_a_caller_that_gives_up_while_it_begins_leaves_its_id_free(database: Database) -> None:
    async def scene() -> None:
        one = store(database)
        asking = asyncio.create_task(one.begin(KEY, "x", "r-1"))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        for _ in range(100):
            await asyncio.sleep(0.01)
            found = await one.begin(KEY, "x", "r-2")
            if isinstance(found, Begun):
                return
        pytest.fail(f"it is {found}")

    asyncio.run(scene())


# Whoever administers the database ------------------------------------------------------------------------------------


def signed(node: Node, until: int, data: bytes | None, **changed: str) -> tuple[bytes, bytes, bytes | None]:
    row = begun_row(CallKey(**{**_fields(), **changed}), "x", "r-0", until, node.public)
    body = canonical_json(row if data is None else type(row)(**{**_fields_of(row), "result": data_name(data)}))
    return body, node.sign(PURPOSE, body), data


def _fields() -> dict[str, str]:
    return {name: getattr(KEY, name) for name in KEY.__struct_fields__}


def _fields_of(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


PLANTED: dict[str, Any] = {
    "by a node of this state": (lambda now: signed(OTHER, now + 60, b"data"), Kept("r-0", b"data")),
    "by a key that nobody enrolled": (lambda now: signed(STRANGER, now + 60, b"data"), Lost("")),
    "for another call": (lambda now: signed(MINE, now + 60, b"data", session="other"), Lost("")),
    "by an older row": (lambda now: signed(MINE, now - CLOCKS_APART - 1, b"data"), Lost("r-0")),
    "with other data": (lambda now: (*signed(MINE, now + 60, b"data")[:2], b"planted"), Lost("r-0")),
    "with a row that is no JSON": (lambda _: (b"\xff[", b"", b"data"), Lost("")),
    "with another signature": (lambda now: (signed(MINE, now + 60, b"data")[0], b"x" * 64, b"data"), Lost("")),
    "with an end that was taken back": (lambda now: signed(MINE, now + 60, None), Lost("r-0")),
}


@pytest.mark.parametrize("how", PLANTED)
def test_a_row_that_no_node_signed_is_not_believed(how: str, database: Database) -> None:
    clock = Clock()
    made, expected = PLANTED[how]
    body, signature, data = made(int(clock.now))

    async def scene() -> object:
        await sql(
            database,
            "INSERT INTO licet.kept_calls VALUES ($1, $2, $3, $4, 'r-0', now(), now() + interval '1 day', $5, $6, $7)",
            *_fields().values(),
            body,
            signature,
            data,
        )
        return await store(database, clock=clock).begin(KEY, "x", "r-1")

    assert asyncio.run(scene()) == expected


def test_the_runtime_role_needs_no_more_than_it_has(database: Database) -> None:
    async def scene() -> None:
        await sql(database, "CREATE ROLE app LOGIN IN ROLE licet_runtime")
        try:
            as_app = Database(database.address.dsn.replace("postgres@", "app@"))
            one = store(as_app)
            first = await one.begin(KEY, "x", "r-1")
            assert isinstance(first, Begun)
            await one.finish(first, b"data")
            assert await one.begin(KEY, "x", "r-2") == Kept("r-1", b"data")
            as_app.close()
        finally:
            await sql(database, "DROP ROLE app")

    asyncio.run(scene())


def test_results_are_deleted_after_their_day(database: Database) -> None:
    async def scene() -> int:
        one = store(database)
        for number in range(3):
            first = await one.begin(CallKey("a", "s", "t", str(number)), "x", f"r-{number}")
            assert isinstance(first, Begun)
            await one.finish(first, b"data")
        await sql(database, f"UPDATE licet.kept_calls SET expires = expires - make_interval(secs => {KEPT_SECONDS})")
        await store(database).begin(KEY, "x", "r-9")
        for _ in range(200):
            left: int = await database.once(lambda c: c.fetchval("SELECT count(*) FROM licet.kept_calls"))
            if left == 1:
                break
            await asyncio.sleep(0.01)
        return left

    assert asyncio.run(scene()) == 1


# Nodes that end ------------------------------------------------------------------------------------------------------

HOLDER = """
import asyncio, os, sys, time
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_kept_calls import PostgresKeptCalls
from licet.backends.secrets import generated_key
from licet.guard.ports import CallKey

async def everybody(_):
    return True

async def scene():
    store = PostgresKeptCalls(Database(sys.argv[1]), Node(generated_key()), everybody, alive_seconds=0.5)
    first = await store.begin(CallKey("a", "s", "t", "one"), "x", "r-1")
    os.write(1, b"begun\\n")
    time.sleep(60)  # a tool that blocks its own thread still runs

asyncio.run(scene())
"""


def test_a_node_that_was_killed_leaves_its_call_unknown(database: Database) -> None:
    async def everybody(_: str) -> bool:
        return True

    async def scene(holder: "subprocess.Popen[bytes]") -> None:
        one = PostgresKeptCalls(database, MINE, everybody, alive_seconds=ALIVE)
        await asyncio.sleep(2 * ALIVE)
        assert await one.begin(KEY, "x", "r-2") == UnderWay("r-1")
        holder.kill()
        holder.wait()
        await asyncio.sleep(ALIVE)
        for receipt in ("r-3", "r-4"):
            assert await one.begin(KEY, "x", receipt) == Lost("r-1")

    address = database.address.dsn
    with subprocess.Popen([sys.executable, "-c", HOLDER, address], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == b"begun\n"
            asyncio.run(scene(holder))
        finally:
            holder.kill()


def test_two_gates_on_one_database_run_a_call_once(tmp_path: Path, database: Database) -> None:
    ran: list[int] = []

    @tool(needs=[], effect="read_only", sandbox="native")
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(os.getpid())
        await asyncio.sleep(0.1)
        return f"paid {amount}"

    ledger = MemoryLedger()
    gates = [
        gate(tmp_path, pay, backends=Backends.memory(ledger=ledger, kept_calls=store(Database(database.address), node)))
        for node in (MINE, OTHER)
    ]

    async def scene() -> list[Result]:
        async with gates[0].session("s") as one, gates[1].session("s") as two:
            return await asyncio.gather(*(at.call("pay", {"amount": 7}, id="order-1") for at in (one, two) * 4))

    results = asyncio.run(scene())
    assert [one.value for one in results] == ["paid 7"] * 8
    assert len(ran) == 1
    assert sum(not one.repeats for one in results) == 1
