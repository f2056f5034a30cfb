"""Whether the file around the entries of a ledger is what licet makes: its tables, and what they are searched by.

Verification reads every entry from its table. A search reads an index first, and one that was tampered with leaves
entries out; SQLite itself can tell.
"""

import re
import sqlite3
from contextlib import closing
from functools import cache

from licet.backends.ledger_reader import SCHEMA, LedgerReader
from licet.core.verify import Finding

_TABLES = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
_LEFT_OUT = re.compile(r"row (\d+) missing from index (\w+)")


def damage(path: str) -> Finding | None:
    """What is wrong with the file around the entries; None if nothing is."""
    with LedgerReader(path) as reader:
        size = reader.size
        try:
            if [*reader.tables(_TABLES)] != _own_tables():
                return Finding("column", 1, "the tables around them are not those that licet makes", until=size)
            told = reader.tables("PRAGMA integrity_check(1)")
        except sqlite3.Error as error:
            return Finding("edited", 1, f"the file is damaged: {error}", until=size)
    text = str(told[0][0])
    if text == "ok":
        return None
    if found := _LEFT_OUT.search(text):
        return Finding("column", int(found[1]), f"a search does not find it: the index {found[2]} leaves it out")
    return Finding("edited", 1, f"the file is damaged: {' '.join(text.split())}", until=size)


@cache
def _own_tables() -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return db.execute(_TABLES).fetchall()
