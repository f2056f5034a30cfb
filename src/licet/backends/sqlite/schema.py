"""Checks that the tables of a SQLite file are those that licet makes, before any row is read or written.

A trigger acts on what is written, a view can show rows that do not exist or never end, an incomplete index hides rows.
This module reads only the schema of a file.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache

from msgspec import Struct

# As bytes, because an attacker may have written bytes that are no text.
_SCHEMA = """SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
FROM main.sqlite_master LIMIT ?"""
_MOST = 1000  # objects of a schema that are read; licet's have about ten
_LONGEST = 60  # characters of a name


class SchemaObject(Struct, frozen=True):
    """One table, index, trigger or view."""

    kind: bytes
    name: bytes
    table: bytes
    sql: bytes


def foreign_part(db: sqlite3.Connection, schema: str, *, exact: bool = False) -> str:
    """Describe the first object that these statements do not make; empty if there is none.

    Unless `exact` is set, columns of a table may have been added one by one, as in a migrated file.
    """
    ours = _ours(schema)
    found = _parts(db)
    known = {(part.kind, part.name): part for part in ours}
    for part in found:
        expected = known.pop((part.kind, part.name), None)
        if expected is None:
            return f"it has the {_text(part.kind)} `{_text(part.name)}`, which licet does not make"
        if part != expected and (exact or not _is_older(db, part, expected, schema)):
            return f"its {_text(part.kind)} `{_text(part.name)}` is not as licet makes it"
    for kind, name in known:
        return f"it lacks the {_text(kind)} `{_text(name)}`"
    return ""


def acting_part(db: sqlite3.Connection) -> str:
    """Describe the first trigger or view of a file of any version; empty if there is none."""
    for part in _parts(db):
        if part.kind not in (b"table", b"index"):
            return f"it has the {_text(part.kind)} `{_text(part.name)}`, which licet does not make"
    return ""


def _parts(db: sqlite3.Connection) -> list[SchemaObject]:
    with closing(db.execute(_SCHEMA, (_MOST,))) as rows:
        return [SchemaObject(*(value if isinstance(value, bytes) else b"" for value in row)) for row in rows]


@cache
def _ours(schema: str) -> Sequence[SchemaObject]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        return _parts(db)


def _is_older(db: sqlite3.Connection, part: SchemaObject, expected: SchemaObject, schema: str) -> bool:
    """Whether a table has the same columns, some of them added to a table of an earlier version."""
    named_alike = (part.kind, part.name, part.table) == (b"table", expected.name, expected.table)
    if not named_alike or not part.sql.upper().startswith(b"CREATE TABLE"):
        return False
    with closing(sqlite3.connect(":memory:")) as other:
        other.executescript(schema)
        return _columns(db, part.name) == _columns(other, part.name)


def _columns(db: sqlite3.Connection, table: bytes) -> list[tuple[object, ...]]:
    with closing(
        db.execute('SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)', (_text(table),))
    ) as rows:
        return sorted(rows.fetchall())


def _text(data: bytes) -> str:
    text = data.decode(errors="backslashreplace")
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
