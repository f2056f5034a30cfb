"""Finds what somebody else has changed in the tables and functions of licet: a view in place of a table, a trigger.

The SQL steps of this version are compared with the catalog of the server. The administrator of the server can change
the catalog too: so a difference locates a change, and no difference proves nothing. Entries are proven by `verify`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache

from msgspec import Struct

from licet.backends.postgres.migrations import steps
from licet.backends.postgres.postgres_reader import PostgresReader
from licet.core.late_pattern import late_pattern

_TABLE = late_pattern(r"CREATE TABLE (?:IF NOT EXISTS )?licet\.(\w+)")
_TRIGGER = late_pattern(r"CREATE (?:OR REPLACE )?(?:CONSTRAINT )?TRIGGER (\w+)")
_FUNCTION = late_pattern(r"CREATE (?:OR REPLACE )?FUNCTION licet\.(\w+)\s*\(")
_TEXT = late_pattern(r"\bAS\s+(?:(\$\w*\$)(.*?)\1|'((?:[^']|'')*)')", re.DOTALL)
_SETTING = late_pattern(r"\bSET (\w+) = (\w+(?:, \w+)*)")

_RELATIONS = """SELECT c.relname::text, c.relkind::text, c.relrowsecurity,
EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid),
EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'licet' AND c.relkind IN ('r', 'v', 'm', 'f', 'p') ORDER BY 1"""
_TRIGGERS = """SELECT t.tgname::text, c.relname::text FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'licet' AND NOT t.tgisinternal ORDER BY 2, 1"""
_FUNCTIONS = """SELECT p.proname::text, p.prosrc::text, coalesce(array_to_string(p.proconfig, ';'), '')::text
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'licet'
ORDER BY 1"""


class _Expected(Struct, frozen=True):
    tables: frozenset[str]
    triggers: frozenset[str]
    functions: Mapping[str, frozenset[tuple[str, str]]]  # by name: the text, and the settings


@cache
def _expected(applied: int) -> _Expected:
    tables, triggers = set[str](), set[str]()
    functions: dict[str, set[tuple[str, str]]] = {}
    for step in steps()[:applied]:
        # What a step replaces is what an earlier one made.
        tables.update(_TABLE.findall(step.sql))
        triggers.update(_TRIGGER.findall(step.sql))
        made: dict[str, set[tuple[str, str]]] = {}
        for start in _FUNCTION.finditer(step.sql):
            if (body := _TEXT.search(step.sql, start.end())) is None:
                continue
            settings = _SETTING.findall(step.sql[start.end() : body.start()])
            text = body[2] if body[1] else body[3].replace("''", "'")
            made.setdefault(start[1], set()).add((text, ";".join(f"{name}={value}" for name, value in settings)))
        functions |= made
    return _Expected(
        frozenset(tables), frozenset(triggers), {name: frozenset(texts) for name, texts in functions.items()}
    )


def _applied(reader: PostgresReader) -> int:
    """The number of the newest step; the server has refused one that is too far away."""
    row = reader.row("SELECT max(number)::bigint FROM licet.steps")
    return int(row[0]) if row is not None and row[0] is not None else 0


def changed_tables(reader: PostgresReader) -> str:
    """What is no table that licet makes, in place of one; empty if nothing is. No row is read before this was asked."""
    found = {name: rest for name, *rest in reader.fetched(_RELATIONS)}
    for name in sorted(_expected(_applied(reader)).tables):
        if name not in found:
            return f"there is no table licet.{name}"
        kind, hides, rewrites, inherits = found[name]
        if kind not in ("r", "p"):
            return f"licet.{name} is no table"
        if rewrites:
            return f"licet.{name} has a rule, and licet makes none"
        if inherits:
            return f"another table inherits from licet.{name}, so that its rows look like those of licet"
        if hides:
            return f"licet.{name} has a policy of rows, which hides some of them"
    return ""


def changed_code(reader: PostgresReader) -> str:
    """A trigger that licet does not make, or a function with another text; empty if there is none."""
    return next(_changed_code(reader), "")


def _changed_code(reader: PostgresReader) -> Iterator[str]:
    applied = _applied(reader)
    if applied > len(steps()):  # a newer version has made other ones
        return
    expected = _expected(applied)
    for name, table in reader.fetched(_TRIGGERS):
        if name not in expected.triggers:
            yield f"the table licet.{table} has a trigger `{ascii(name)[1:-1]}`, which licet does not make"
    found: dict[str, set[tuple[str, str]]] = {}
    for name, text, settings in reader.fetched(_FUNCTIONS):
        found.setdefault(name, set()).add((text, settings))
    for name, texts in expected.functions.items():
        if name not in found:
            yield f"the function licet.{name} is missing"
        elif found[name] != texts:
            yield f"the function licet.{name} is not the one that licet makes"
