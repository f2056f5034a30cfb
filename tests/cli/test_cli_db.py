"""`licet db`: tables that are made once, a script for administrators, least rights, and what a database is."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from command_line import enter_project, run
from licet.assemble.states import close_databases
from licet.backends.postgres.migrations import script, steps
from postgres_server import NoServer, server

NEWEST = steps()[-1].number
_NUMBERS = itertools.count(1)


def sql(database: str, *statements: str, user: str = "postgres") -> Any:
    """Run statements, each on its own; the value of the last."""

    async def act() -> Any:
        connection = await asyncpg.connect(host=str(server().folder), user=user, database=database)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    return asyncio.run(act())


def name_of(address: str) -> str:
    return address.rpartition("@/")[2].partition("?")[0]


def as_user(address: str, user: str) -> str:
    return address.replace("//postgres@", f"//{user}@")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a database without tables."""
    enter_project(tmp_path, monkeypatch)
    name = f"bare_{next(_NUMBERS)}"
    try:
        there = server()
    except NoServer as why:
        pytest.skip(str(why))
    asyncio.run(there.sql(f"CREATE DATABASE {name} TEMPLATE template0"))
    yield there.url(name)
    close_databases()


def test_tables_are_made_once(empty: str) -> None:
    said = run("db", "init", empty).output
    assert "step 0001 applied: kv" in said
    assert f"up to date, at step {NEWEST}" in said
    assert "GRANT licet_runtime TO myuser" in said
    again = json.loads(run("db", "init", empty, "--json").output)
    assert again["applied"] == []
    assert again["step"] == NEWEST


def test_the_state_of_the_environment_is_the_database(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LICET_STATE", empty)
    assert "applied: kv" in run("db", "init").output
    assert "primary" in run("db", "status").output


def test_the_printed_script_makes_the_same_tables(empty: str) -> None:
    name = name_of(empty)
    text = run("db", "init", "--print").output
    assert text == script()
    sql(name, text, "SELECT 1")
    assert sql(name, "SELECT max(number) FROM licet.steps") == NEWEST
    assert json.loads(run("db", "init", empty, "--json").output)["applied"] == []
    with pytest.raises(asyncpg.RaiseError, match=f"begins after step 0, and the database has step {NEWEST}"):
        sql(name, text, "SELECT 1")
    sql(name, script(NEWEST), "SELECT 1")


def test_a_user_who_may_not_create_is_told_who_may(empty: str) -> None:
    user = f"plain_{name_of(empty)}"
    sql(name_of(empty), f"CREATE ROLE {user} LOGIN", "SELECT 1")
    said = run("db", "init", as_user(empty, user), code=1).output
    assert "an administrator runs what `licet db init --print` prints" in said
    assert "Traceback" not in said


def test_a_role_is_given_the_least_that_processes_need(empty: str) -> None:
    user = f"run-ner_{name_of(empty)}"
    sql(name_of(empty), f'CREATE ROLE "{user}" LOGIN', "SELECT 1")
    assert f"{user} may run processes" in run("db", "init", empty, "--role", user).output
    assert run("db", "status", as_user(empty, user)).exit_code == 0
    # No table can be emptied or changed in its form, and what is only added to is never changed.
    rows = sql(
        name_of(empty),
        "SELECT coalesce(array_agg(c.relname || ' ' || p), '{}') FROM pg_class AS c JOIN pg_namespace AS n "
        "ON n.oid = c.relnamespace, unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS p "
        f"WHERE n.nspname = 'licet' AND c.relkind = 'r' AND has_table_privilege('{user}', c.oid, p)",
    )
    mine = {tuple(row.split()) for row in rows}
    assert not {(table, act) for table, act in mine if act in ("TRUNCATE", "TRIGGER")}
    assert not {table for table, _ in mine} & {"entries", "batches", "places", "heads", "steps", "freezes", "answers"}
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        sql(name_of(empty), "CREATE TABLE licet.mine (x int)", "SELECT 1", user=user)
    # Nobody else may call a function, and none looks for its tables where a caller could put others.
    wrong = sql(
        name_of(empty),
        "SELECT coalesce(array_agg(proname::text), '{}') FROM pg_proc WHERE pronamespace = 'licet'::regnamespace "
        "AND (has_function_privilege('public', oid, 'EXECUTE') "
        "OR NOT coalesce(proconfig, '{}') @> '{\"search_path=licet, pg_temp\"}')",
    )
    assert not wrong


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (NEWEST + 5, "has the tables of a newer licet"),
        (-1, "has the tables of an older licet"),
        (None, "has no tables of licet: run `licet db init`"),
    ],
)
def test_tables_of_another_version_are_named(empty: str, step: int | None, says: str) -> None:
    if step is not None:
        run("db", "init", empty)
        sql(
            name_of(empty),
            f"INSERT INTO licet.steps VALUES ({step}, 'x')" if step > 0 else "UPDATE licet.steps SET number = -number",
            "SELECT 1",
        )
    said = run("db", "status", empty, code=1).output
    assert says in said
    if step == NEWEST + 5:
        assert says in run("db", "init", empty, code=1).output


def test_what_a_database_is(empty: str) -> None:
    run("db", "init", empty)
    seen = json.loads(run("db", "status", empty, "--json").output)
    assert seen["user"] == "postgres"
    assert (seen["step"], seen["known"], seen["problem"]) == (NEWEST, NEWEST, "")
    assert not seen["is_synchronous"]
    assert not seen["is_pooled"]
    assert [(one["port"], one["is_primary"]) for one in seen["servers"]] == [(5432, True)]
    text = run("db", "status", empty).output
    assert "asynchronous: a failover may lose" in text


BAD = [
    ("postgresql://u:hunter2@db/licet", "holds a password"),
    ("postgresql://db/licet?password=hunter2", "names a secret"),
    ("postgresql://db/licet?sslmode=disable", "unverified"),
    ("postgresql://db/licet?speed=9", "`speed` is no parameter"),
    ("mysql://db/licet", "`mysql://` is no state"),
    ("somewhere", "a directory needs no tables"),
]


@pytest.mark.parametrize(("address", "says"), BAD, ids=[one[1] for one in BAD])
@pytest.mark.parametrize("way", ["argument", "option", "variable"])
def test_an_address_that_cannot_be_used_is_a_bad_command_line(
    address: str, says: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "variable":
        monkeypatch.setenv("LICET_STATE", address)
    words = {"argument": [address], "option": ["--state", address], "variable": []}[way]
    said = " ".join(run("db", "status", *words, code=2).output.split())
    assert says in said
    assert "hunter2" not in said


def test_a_server_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    said = run("db", "status", f"postgresql://postgres@/x?host={tmp_path}", code=1).output
    assert "cannot be reached" in said
    assert len(said.splitlines()) == 1


def test_printing_connects_to_nothing(tmp_path: Path) -> None:
    assert (
        "takes no ADDRESS" in run("db", "init", "--print", f"postgresql://postgres@/x?host={tmp_path}", code=2).output
    )
    assert "goes with --print" in run("db", "init", "--after", "3", code=2).output
