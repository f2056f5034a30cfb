"""The tables of a state in PostgreSQL, as numbered steps of SQL: `steps/0001_….sql` and so on.

A step is applied once, by one process at a time, and all that are missing in one transaction. A version of licet works
with the steps that it knows, one less and one more: so neighbouring versions run side by side while a team upgrades.
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from msgspec import Struct

from licet.backends.limits import OLDEST_STEP
from licet.backends.postgres.address import Connection
from licet.guard.ports import Unavailable

_NAME = re.compile(r"(\d{4})_([a-z_]+)\.sql")
RUNTIME = "licet_runtime"  # the role that processes need; the steps name it too
_LOCK = 0x6C6963_0001  # `lic`: nobody else takes this advisory lock
_BEGIN = """
CREATE SCHEMA IF NOT EXISTS licet;
CREATE TABLE IF NOT EXISTS licet.steps (
    number integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now()
);
DO $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'licet_runtime') THEN
        CREATE ROLE licet_runtime NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN  -- made at the same time, for another database of this server
    NULL;
END $$;
GRANT USAGE ON SCHEMA licet TO licet_runtime;
GRANT SELECT ON licet.steps TO licet_runtime;
"""
_NOTE = "INSERT INTO licet.steps (number, name) VALUES ({number}, '{name}');"


class Step(Struct, frozen=True):
    """One step, with its statements."""

    number: int
    name: str
    sql: str


@cache
def steps() -> Sequence[Step]:
    """All steps of this version, in order."""
    found = [
        Step(int(name[1]), name[2], file.read_text(encoding="utf-8"))
        for file in files("licet.backends.postgres").joinpath("steps").iterdir()
        if (name := _NAME.fullmatch(file.name)) is not None
    ]
    return sorted(found, key=lambda step: step.number)


_EXPECTED = """DO $$ BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'a state needs a database whose encoding is UTF8';
    END IF;
    IF coalesce((SELECT max(number) FROM licet.steps), 0) <> {after} THEN
        RAISE EXCEPTION 'this script begins after step {after}, and the database has step %',
            coalesce((SELECT max(number) FROM licet.steps), 0)
            USING HINT = 'licet db init --print --after N prints the steps after N';
    END IF;
END $$;"""


def script(after: int = 0) -> str:
    """The SQL of all steps after a number, for an administrator who runs it by hand. It fails on other databases."""
    parts = ["BEGIN;", f"SELECT pg_advisory_xact_lock({_LOCK});", _BEGIN.strip(), _EXPECTED.format(after=after)]
    for step in steps():
        if step.number > after:
            parts += [f"-- step {step.number}: {step.name}", step.sql.strip(), _noted(step)]
    return "\n".join([*parts, "COMMIT;", ""])


def _noted(step: Step) -> str:
    return _NOTE.format(number=step.number, name=step.name)


async def migrate(connection: Connection, shown: str = "the database") -> Sequence[Step]:
    """Apply the steps that are missing; returns them. Other processes that do the same wait, and find none."""
    check_encoding(await connection.fetchval("SELECT current_setting('server_encoding')"), shown)
    async with connection.transaction(isolation="read_committed"):  # the next statement sees what others have done
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        known = await applied(connection) or 0
        if not (missing := [step for step in steps() if step.number > known]):
            return missing
        await connection.execute(_BEGIN)
        for step in missing:
            await connection.execute(step.sql)
            await connection.execute(_noted(step))
    return missing


async def applied(connection: Connection) -> int | None:
    """The number of the newest step of a database; None if there is none."""
    if await connection.fetchval("SELECT to_regclass('licet.steps')") is None:
        return None
    newest: int | None = await connection.fetchval("SELECT max(number) FROM licet.steps")
    return newest


async def check_version(connection: Connection, shown: str) -> None:
    """Refuse a database without tables, or with those of a version that is too far away."""
    check_step(await applied(connection), shown)


def check_encoding(encoding: str, shown: str) -> None:
    """Refuse a database that cannot keep all text."""
    if encoding != "UTF8":
        raise Unavailable(
            f"{shown} keeps text as {encoding}, which has not all characters: make a database with "
            "`CREATE DATABASE NAME ENCODING 'UTF8' TEMPLATE template0`"
        )


def check_step(found: int | None, shown: str) -> None:
    """Refuse a database by the number of its newest step."""
    known = steps()[-1].number
    if found is None:
        raise Unavailable(f"{shown} has no tables of licet: run `licet db init`")
    if found < known - OLDEST_STEP:
        raise Unavailable(f"{shown} has the tables of an older licet (step {found} of {known}): run `licet db init`")
    if found > known + OLDEST_STEP:
        raise Unavailable(f"{shown} has the tables of a newer licet (step {found}; this one knows {known}): upgrade")
