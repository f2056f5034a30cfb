"""How a ledger file is laid out: its tables in this format and in earlier ones, and the step from each to the next.

No step changes the body of an entry, its hash or a head: what was hashed and signed stays as it was written.
"""

import sqlite3

from licet.backends.sqlite_file import Format
from licet.backends.sqlite_schema import foreign_part

# The body of an entry is what counts. Everything beside it is for searching, or saves the writer looking things up:
# `chains` has the end of each session, `ledger` what the next entry follows.
_KEPT = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
    sequence INTEGER NOT NULL, tool TEXT NOT NULL, verdict TEXT NOT NULL, time TEXT NOT NULL, hash BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX by_id ON entries (id);
CREATE INDEX by_time ON entries (time) WHERE kind = 'receipt';
CREATE TABLE chains (
    agent TEXT NOT NULL, session TEXT NOT NULL, sequence INTEGER NOT NULL, hash BLOB NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (agent, session)
) WITHOUT ROWID;
CREATE TABLE heads (size INTEGER PRIMARY KEY, body BLOB NOT NULL, signature BLOB NOT NULL);
CREATE TABLE ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, key TEXT NOT NULL, size INTEGER NOT NULL,
    frontier BLOB NOT NULL, recorded TEXT NOT NULL, signed INTEGER NOT NULL, signed_at REAL NOT NULL
)"""
# Who has the key tags what it leaves (`ledger_tail`). A table that was made without has nothing there.
_TAGGED = """;
ALTER TABLE ledger ADD COLUMN tag BLOB NOT NULL DEFAULT x''"""
# People look for receipts, by one thing and the time: only those are in an index.
_SEARCHED = """;
CREATE INDEX by_agent ON entries (agent, time) WHERE kind = 'receipt';
CREATE INDEX by_tool ON entries (tool, time) WHERE kind = 'receipt';
CREATE INDEX by_verdict ON entries (verdict, time) WHERE kind = 'receipt'"""
_SEARCHED_FIRST = _SEARCHED.replace(", time)", ")")
_SINCE_1 = "DROP INDEX by_agent; DROP INDEX by_tool; DROP INDEX by_verdict" + _SEARCHED + _TAGGED

FORMAT = Format(0x6C69636C, 2, _KEPT + _SEARCHED + _TAGGED, {1: _SINCE_1}, exact=True)  # `licl`: licet's ledgers
# Format 1 had the indexes of format 2 before it was called so.
_SCHEMAS = {1: (_KEPT + _SEARCHED_FIRST, _KEPT + _SEARCHED), FORMAT.version: (FORMAT.schema,)}


def foreign_tables(db: sqlite3.Connection, version: int) -> str:
    """What of a file in some format licet does not make; nothing if all of it is ours."""
    wrong = [foreign_part(db, schema, exact=True) for schema in _SCHEMAS.get(version, ())]
    return "" if "" in wrong else (wrong or [f"its format {version} is not known"])[0]
