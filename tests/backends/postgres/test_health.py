"""`licet doctor` for a state in PostgreSQL: what is wrong with it, whose fault it is, and how to fix it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from backends.postgres.ledger_nodes import entry
from command_line import enter_project, run
from licet.assemble.states import DatabaseState, close_databases, read_state
from licet.backends.memory import SystemClock
from licet.backends.postgres import health
from licet.backends.postgres.health import Check, health_of
from licet.backends.postgres.sequencer import SEQUENCER_LOCK
from licet.cli import doctor
from licet.guard.freezing import freeze_act, freeze_state
from licet.sandbox.probe import Support
from postgres_server import server


@pytest.fixture
def state(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseState]:
    enter_project(tmp_path, monkeypatch)
    monkeypatch.setattr(doctor, "look", lambda: Support(0, (), "not looked at"))
    found = read_state(postgres, tmp_path / "node")
    assert isinstance(found, DatabaseState)
    yield found
    close_databases()


def seen(state: DatabaseState, about: str) -> list[Check]:
    return [one for one in health_of(state.database) if one.about == about]


async def _connected(state: DatabaseState, user: str = "postgres") -> Any:
    name = state.address.rpartition("@/")[2].partition("?")[0]
    return await asyncpg.connect(
        host=str(server().folder), user=user, database=name, server_settings={"application_name": "forgetful"}
    )


@asynccontextmanager
async def forgotten(state: DatabaseState, kind: str) -> AsyncIterator[str]:
    """A transaction that has written something and is left open, as a person or a program does who went away."""
    connection = await _connected(state)
    await connection.execute("BEGIN; CREATE TABLE forgotten (number int); INSERT INTO forgotten VALUES (1)")
    name = str(connection.get_server_pid())
    if kind == "prepared":
        name = f"it's {name}"
        await connection.execute(f"PREPARE TRANSACTION '{name.replace(chr(39), chr(39) * 2)}'")
    try:
        yield name
    finally:
        if kind == "prepared":
            await connection.execute(f"ROLLBACK PREPARED '{name.replace(chr(39), chr(39) * 2)}'")
        await connection.close()


def test_a_state_that_is_well_is_well(state: DatabaseState) -> None:
    asyncio.run(state.ledger().record(entry("r1")))
    found = {one.about: one for one in health_of(state.database)}
    assert {name: one.verdict for name, one in found.items()} == {
        "server": "yes",
        "tables": "yes",
        "failover": "degraded",
        "changes": "yes",
        "role": "degraded",  # tests connect as the administrator
        "clock": "yes",
        "ledger": "yes",
    }
    assert "is a superuser" in found["role"].text
    assert "synchronous_standby_names" in found["failover"].fix
    assert all(one.fix for one in found.values() if one.verdict != "yes")


@pytest.mark.parametrize("kind", ["connection", "prepared"])
def test_a_forgotten_transaction_is_named(state: DatabaseState, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(health, "HELD_BACK_SECONDS", 0.0)
    monkeypatch.setattr(health, "HEAD_AGE_SECONDS", 0.0)
    asyncio.run(state.ledger().record(entry("r1")))
    assert seen(state, "order") == []

    async def play() -> tuple[str, list[Check], list[Check]]:
        async with forgotten(state, kind) as name:
            await state.ledger().record(entry("r2"))
            return name, await asyncio.to_thread(seen, state, "order"), await asyncio.to_thread(seen, state, "ledger")

    name, [found], [ledger] = asyncio.run(play())
    assert f"{'process' if kind == 'connection' else 'prepared transaction'} {name}" in found.text
    assert "postgres in the database test_" in found.text
    if kind == "connection":
        assert "of forgetful" in found.text
        assert "idle in transaction" in found.text
        assert found.fix == f"SELECT pg_terminate_backend({name})"
    else:
        assert found.fix == f"ROLLBACK PREPARED '{name.replace(chr(39), chr(39) * 2)}', or COMMIT PREPARED"
    assert "1 entry waits for a place" in ledger.text
    assert ledger.verdict == "degraded"
    assert seen(state, "order") == []


@pytest.mark.parametrize("lock", ["licet.freeze_lock()", str(SEQUENCER_LOCK)])
def test_who_keeps_a_lock_of_licet_is_named(state: DatabaseState, lock: str) -> None:
    asyncio.run(state.ledger().record(entry("r1")))

    async def play() -> tuple[str, list[Check]]:
        connection = await _connected(state)
        await connection.execute(f"SELECT pg_advisory_lock_shared({lock})")
        await asyncio.sleep(1.2)
        found = await asyncio.to_thread(seen, state, "order")
        await connection.close()
        return str(connection.get_server_pid()), found

    name, [found] = asyncio.run(play())
    assert f"process {name} of forgetful by postgres in the database" in found.text
    assert re.search(r"holds a lock of licet for \d+ seconds?", found.text)
    assert found.fix == f"SELECT pg_terminate_backend({name})"


def test_a_user_with_the_least_rights_sees_whose_transaction_it_is(state: DatabaseState, tmp_path: Path) -> None:
    name = "least_" + state.address.rpartition("@/")[2].partition("?")[0]
    asyncio.run(server().sql(f"CREATE ROLE {name} LOGIN", f"GRANT licet_runtime TO {name}"))
    least = read_state(state.address.replace("//postgres@", f"//{name}@"), tmp_path / "node")
    assert isinstance(least, DatabaseState)
    asyncio.run(state.ledger().record(entry("r1")))

    async def play() -> Mapping[str, Check]:
        async with forgotten(state, "connection"):
            await state.ledger().record(entry("r2"))
            return {one.about: one for one in await asyncio.to_thread(health_of, least.database)}

    found = asyncio.run(play())
    assert found["role"].verdict == "yes"
    assert "of forgetful by postgres" in found["order"].text
    assert "that this user may not see" in found["order"].text


def test_max_head_age_and_require_synchronous_make_it_a_failure(
    postgres: str, state: DatabaseState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "HEAD_AGE_SECONDS", -1.0)
    asyncio.run(state.ledger().record(entry("r1")))
    strict = read_state(f"{postgres}&max_head_age=1s&require_synchronous=true", tmp_path / "node")
    assert isinstance(strict, DatabaseState)
    waits = {"waiting": 1, "unsettled": 1}
    head = health._head({"size": 7, "age": 60.0}, waits, strict.database.address.max_head_age, is_held=True)
    assert head.verdict == "no"
    assert head.text.endswith("calls are refused, since the state has `max_head_age=1s`")
    assert [one.verdict for one in health_of(strict.database) if one.about == "failover"] == ["no"]


def test_a_server_that_is_not_there_is_one_finding(tmp_path: Path) -> None:
    gone = read_state(f"postgresql://postgres@/licet?host={tmp_path}", tmp_path / "node")
    assert isinstance(gone, DatabaseState)
    [found] = health_of(gone.database)
    assert (found.about, found.verdict) == ("server", "no")
    close_databases()


def test_a_database_without_tables_says_how_to_make_them(state: DatabaseState, tmp_path: Path) -> None:
    bare = read_state(server().url("postgres"), tmp_path / "node")
    assert isinstance(bare, DatabaseState)
    found = {one.about: one for one in health_of(bare.database)}
    assert found["tables"].verdict == "no"
    assert "licet db init" in found["tables"].text


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_shows_the_state_and_whether_this_machine_is_enrolled(
    state: DatabaseState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("licet.assemble.states.own_directory", lambda _: state.directory)
    said = run("doctor", "--state", state.address, code=1).output
    assert "this machine is no node of it yet" in said
    assert not state.directory.exists() or not list(state.directory.iterdir())  # a look makes nothing
    asyncio.run(state.ledger().record(entry("r1")))
    act = freeze_act(SystemClock.now(), "it mails strangers", "ann", agent="research")
    asyncio.run(freeze_state(state.freezes(), state.ledger(), act))
    told = json.loads(run("doctor", "--state", state.address, "--json", code=1).output)["state"]
    found = {one["about"]: one for one in told["checks"]}
    assert told["state"] == state.shown
    assert "is enrolled" in found["node"]["text"]
    assert found["freeze"]["text"] == "calls of agent research are frozen: it mails strangers"
    assert json.loads(run("doctor", "--json", code=1).output)["state"] is None
