"""What two nodes do holds on servers that are set up otherwise: other defaults, another collation, a pooler."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from backends.postgres.test_database import in_loop
from cli.test_cli_many_nodes import MAIL, Team, said
from licet.assemble.ledger import LedgerPlace, open_reader, verify_at
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.server_status import make_tables
from licet.guard.ports import Unavailable
from postgres_server import NoServer, Pooler, server

# Each of them has broken some program: isolation, what may be written and for how long, how text is read and written.
DEFAULTS = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "search_path": "''",
    "statement_timeout": "'5s'",
    "lock_timeout": "'20ms'",
    "idle_in_transaction_session_timeout": "'1s'",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "client_encoding": "'LATIN1'",
    "bytea_output": "'escape'",
    "datestyle": "'SQL, DMY'",
    "intervalstyle": "'sql_standard'",
    "timezone": "'Pacific/Kiritimati'",
    "extra_float_digits": "-15",
    "plan_cache_mode": "force_generic_plan",
    "jit_above_cost": "0",
}


def named(address: str) -> str:
    return urlsplit(address).path.removeprefix("/")


def with_other_defaults(address: str) -> str:
    changes = [f"ALTER DATABASE {named(address)} SET {name} = {value}" for name, value in DEFAULTS.items()]
    asyncio.run(server().sql(*changes, "SELECT 1"))
    return address


def with_another_collation(address: str) -> str:
    """A database of its own, which sorts as people do, and whose tables are made by `licet db init`."""
    name = f"{named(address)}_icu"
    sorts = "ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'de-AT' LOCALE 'C'"
    try:
        asyncio.run(server().sql(f"CREATE DATABASE {name} TEMPLATE template0 {sorts}", "SELECT 1"))
    except asyncpg.FeatureNotSupportedError as why:
        pytest.skip(f"this PostgreSQL has no ICU: {why}")
    database = Database(with_other_defaults(server().url(name)))
    make_tables(database)
    database.close()
    return server().url(name)


@pytest.fixture
def place(request: pytest.FixtureRequest, postgres: str) -> Iterator[str]:
    """The address of a database that is set up in one of these ways."""
    if request.param != "a pooler":
        make: Callable[[str], str] = request.param
        yield make(postgres).replace("//postgres@", "//runner@")
        return
    try:
        pooler = Pooler(server(), user="runner")
    except NoServer as why:
        pytest.skip(str(why))
    yield pooler.url(named(with_other_defaults(postgres))).replace("//postgres@", "//runner@")
    pooler.stop()


@pytest.mark.parametrize(
    "place",
    [with_other_defaults, with_another_collation, "a pooler"],
    indirect=True,
    ids=["other defaults", "another collation", "a pooler"],
)
@pytest.mark.sampled(1)
def test_two_nodes_agree_whatever_the_server_is_set_to(tmp_path: Path, runner: str, place: str) -> None:
    team = Team(tmp_path, place, "a", "b")
    a, b = team.gate("a"), team.gate("b")

    async def isolation(connection: Connection) -> str:
        found: str = await connection.fetchval("SELECT current_setting('transaction_isolation')")
        return found

    async def scene() -> None:
        # Under another one, a function would see the old picture after it has waited for a lock.
        database = team.state("a").database
        assert [await database.once(isolation), await database.run(isolation)] == ["read committed"] * 2

        # One budget and one result of an id, also where both nodes ask at once; and one chain of the session.
        many = await asyncio.gather(*(said(one, "count", session="1") for one in (a, b) for _ in range(8)))
        assert sorted(many) == ["BUDGET_EXCEEDED"] * 13 + ["counted"] * 3
        again = await asyncio.gather(*(said(one, "count", session="x.1", id="i-1") for one in (a, b) for _ in range(3)))
        assert again == ["counted"] * 6

        assert await said(a, "send_mail", to="Grüße 🎉") == "APPROVAL_REQUIRED"
        people = team.state("b").approvals()
        [waiting] = await people.list()
        await people.approve(waiting)
        once = await asyncio.gather(*(said(one, "send_mail", to="Grüße 🎉") for one in (a, b, a)))
        assert sorted(once) == ["APPROVAL_REQUIRED", "APPROVAL_REQUIRED", "sent"]

        flowing = [team.gate(node, "flow.json", approver=lambda _: "denied") for node in "ab"]
        assert await said(flowing[0], "list_mail", session="read") == MAIL
        assert await said(flowing[1], "send_mail", session="read", to="mallory@evil.example") == "APPROVAL_DENIED"

        await asyncio.to_thread(a.freeze, "strange 🎉")
        assert await said(b, "count", session="t") == "FROZEN"
        await asyncio.to_thread(a.thaw)
        while (now := await said(b, "count", session="t")) == "FROZEN":  # until it hears of that, or looks
            await asyncio.sleep(0.1)
        assert now == "counted"
        async with a.session("t") as session:
            await session.end()
        assert await said(b, "count", session="t") == "SESSION_ENDED"

    asyncio.run(asyncio.wait_for(scene(), 60))
    for state in (team.state("a"), team.state("b")):
        state.ledger().close()  # places what was written last
        at = LedgerPlace.of(state)
        with open_reader(at) as reader:
            key = reader.key
        assert verify_at(at, key).finding is None


@in_loop
async def test_a_database_that_has_not_all_characters_is_refused(postgres: str) -> None:
    name = f"{named(postgres)}_latin"
    await server().sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'", "SELECT 1")
    database = Database(server().url(name))
    with pytest.raises(Unavailable, match="keeps text as LATIN1"):
        await asyncio.to_thread(make_tables, database)
    database.close()
