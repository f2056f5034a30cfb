"""Moves values by key, and what was spent, between the files of a directory and a database, as rows.

What the target had of these is replaced. A reservation that is open stays counted as spent, so no limit is exceeded.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from licet.backends.budgets import FORMAT as BUDGETS
from licet.backends.kv import FORMAT as VALUES
from licet.backends.kv import size_of
from licet.backends.limits import MOVE_SECONDS, MOVED_AT_ONCE
from licet.backends.postgres.database import Database
from licet.backends.sqlite import SqliteFile

T = TypeVar("T")

_SPENT = """SELECT agent, 'session', session, '', calls, cost_usd FROM sessions
UNION ALL SELECT agent, 'tool', session, tool, calls, cost_usd FROM tools
UNION ALL SELECT agent, 'day', day, '', calls, cost_usd FROM days"""
_COUNTERS = """INSERT INTO licet.budget_counters (agent, kind, name, tool, calls, cost_usd)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::numeric[])"""
_VALUES = """INSERT INTO licet.kv_entries (scope, key, value, expires)
SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::double precision[])"""
_VALUE = "INSERT INTO entries (scope, key, value, expires) VALUES (?, ?, ?, ?)"
_SIZES = """INSERT INTO licet.kv_sizes (scope, bytes)
SELECT scope, sum(licet.kv_size(key, value)) FROM licet.kv_entries GROUP BY scope"""
_OF_KIND = {
    "session": "INSERT INTO sessions (agent, session, calls, cost_usd) VALUES (?1, ?2, ?4, ?5)",
    "tool": "INSERT INTO tools (agent, session, tool, calls, cost_usd) VALUES (?1, ?2, ?3, ?4, ?5)",
    "day": "INSERT INTO days (agent, day, calls, cost_usd) VALUES (?1, ?2, ?4, ?5)",
}


def rows_to_database(kv: Path, budgets: Path, database: Database) -> None:
    """Copy what the files have, if they are there."""
    values: Sequence[Any] = _read(kv, VALUES, "SELECT scope, key, value, expires FROM entries") if kv.exists() else ()
    spent: Sequence[Any] = _read(budgets, BUDGETS, _SPENT) if budgets.exists() else ()
    database.do(
        _replaced(
            database,
            [(scope.encode(), key, value, expires) for scope, key, value, expires in values],
            [(*names, calls, Decimal(cost)) for *names, calls, cost in spent],
        ),
        MOVE_SECONDS,
    )


async def _replaced(database: Database, values: Sequence[Any], spent: Sequence[Any]) -> None:
    connection = await database.own_connection()
    try:
        async with connection.transaction():
            await connection.execute("DELETE FROM licet.kv_entries")
            await connection.execute("DELETE FROM licet.kv_sizes")
            await connection.execute("DELETE FROM licet.budget_counters")
            for insert, rows in ((_VALUES, values), (_COUNTERS, spent)):
                for at in range(0, len(rows), MOVED_AT_ONCE):
                    await connection.execute(insert, *map(list, zip(*rows[at : at + MOVED_AT_ONCE], strict=True)))
            await connection.execute(_SIZES)
    finally:
        await connection.close()


def rows_to_directory(database: Database, kv: Path, budgets: Path) -> None:
    """Copy what a database has into files, which are made."""
    values, spent = database.do(_all(database), MOVE_SECONDS)

    def write_values(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM entries")
        db.execute("DELETE FROM sizes")
        sizes: dict[str, int] = {}
        for scope, key, value, expires in values:
            name = bytes(scope).decode()
            db.execute(_VALUE, (name, key, value, expires))
            sizes[name] = sizes.get(name, 0) + size_of(key, value)
        db.executemany("INSERT INTO sizes (scope, bytes) VALUES (?, ?)", sizes.items())

    def write_spent(db: sqlite3.Connection) -> None:
        for table in ("sessions", "tools", "days", "held"):
            db.execute(f"DELETE FROM {table}")  # noqa: S608 - our words
        for agent, kind, name, tool, calls, cost in spent:
            db.execute(_OF_KIND[kind], (agent, name, tool, calls, _amount(cost)))

    _write(kv, VALUES, write_values)
    _write(budgets, BUDGETS, write_spent)


async def _all(database: Database) -> tuple[Sequence[Any], Sequence[Any]]:
    connection = await database.own_connection()
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            values = await connection.fetch("SELECT scope, key, value, expires FROM licet.kv_entries ORDER BY 1, 2")
            spent = await connection.fetch(
                "SELECT agent, kind, name, tool, calls, cost_usd FROM licet.budget_counters ORDER BY 1, 2, 3, 4"
            )
            return values, spent
    finally:
        await connection.close()


def _amount(cost: Decimal) -> str:
    text = format(cost, "f")
    return text.rstrip("0").rstrip(".") or "0" if "." in text else text


def _read(path: Path, form: Any, query: str) -> Sequence[Any]:
    file = SqliteFile(path, form)
    try:
        return file.read_now(lambda db: db.execute(query).fetchall(), MOVE_SECONDS)
    finally:
        file.close()


def _write(path: Path, form: Any, act: Callable[[sqlite3.Connection], None]) -> None:
    file = SqliteFile(path, form, "FULL")
    try:
        asyncio.run(file.write(act))
    finally:
        file.close()
