"""Ledgers as earlier versions have left them; run as a program, processes that are killed while they bring one up.

    python older_ledgers.py FOLDER STEP     the ledger in a folder, brought up again and again; each process is killed
                                            some steps of SQLite later than the one before it

It prints one JSON object with what each of them left behind.
"""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from licet.backends.ledger.state import FORMAT, foreign_tables
from licet.backends.sqlite.file import SqliteFile

# As it was written down then, and not made of what is written down now.
FORMAT_1 = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
    sequence INTEGER NOT NULL, tool TEXT NOT NULL, verdict TEXT NOT NULL, time TEXT NOT NULL, hash BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX by_id ON entries (id);
CREATE INDEX by_agent ON entries (agent) WHERE kind = 'receipt';
CREATE INDEX by_tool ON entries (tool) WHERE kind = 'receipt';
CREATE INDEX by_verdict ON entries (verdict) WHERE kind = 'receipt';
CREATE INDEX by_time ON entries (time) WHERE kind = 'receipt';
CREATE TABLE chains (
    agent TEXT NOT NULL, session TEXT NOT NULL, sequence INTEGER NOT NULL, hash BLOB NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (agent, session)
) WITHOUT ROWID;
CREATE TABLE heads (size INTEGER PRIMARY KEY, body BLOB NOT NULL, signature BLOB NOT NULL);
CREATE TABLE ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, key TEXT NOT NULL, size INTEGER NOT NULL,
    frontier BLOB NOT NULL, recorded TEXT NOT NULL, signed INTEGER NOT NULL, signed_at REAL NOT NULL
);
PRAGMA application_id = 0x6C69636C;
PRAGMA user_version = 1;
"""


def set_back(path: Path) -> None:
    """Write a ledger of today as format 1 had it: the same entries and heads, in the tables of then."""
    older = path.with_suffix(".older")
    with closing(sqlite3.connect(older, isolation_level=None)) as db:
        db.executescript(FORMAT_1)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("ATTACH ? AS today", (str(path),))
        for table in ("entries", "chains", "heads", "ledger"):
            names = ", ".join(row[1] for row in db.execute(f"PRAGMA main.table_info({table})"))
            db.execute(f"INSERT INTO {table} SELECT {names} FROM today.{table}")
    older.chmod(0o600)
    older.replace(path)


def state(path: Path) -> dict[str, Any]:
    """What a file holds: its format, its tables, and whether they are whole."""
    with closing(sqlite3.connect(path)) as db:
        kept = db.execute("SELECT number, hash, body FROM entries ORDER BY number").fetchall()
        heads = db.execute("SELECT * FROM heads ORDER BY size").fetchall()
        version = db.execute("PRAGMA user_version").fetchone()[0]
        return {
            "version": version,
            "foreign": foreign_tables(db, version),
            "whole": db.execute("PRAGMA integrity_check").fetchone()[0],
            "kept": hashlib.sha256(repr((kept, heads)).encode()).hexdigest(),
        }


class _Killed:
    """Ends its own process for good after so many steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def __call__(self, *_: object) -> int:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


def _bring_up(path: Path, steps: int, step: int) -> int:
    """Open a ledger to write in a process that lives for so many steps; the signal that ended it, or 0."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code, connect, killed = 1, sqlite3.connect, _Killed(steps)

    def watched(*words: Any, **more: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*words, **more)
        db.set_trace_callback(killed)  # before each statement, COMMIT too
        db.set_progress_handler(killed, step)  # and within one
        return db

    try:
        sqlite3.connect = watched  # type: ignore[assignment]
        SqliteFile(path, FORMAT, "FULL").write_waiting(lambda db: None)
        code = 0
    finally:
        os._exit(code)


def main(folder: Path, step: int) -> dict[str, Any]:
    path, copies, left = folder / "ledger.sqlite", folder / "copy", []
    for steps in range(10_000):
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir(mode=0o700)
        copy = copies / path.name
        shutil.copy2(path, copy)
        code = _bring_up(copy, steps, step)
        left.append(state(copy))
        if code != -signal.SIGKILL:
            return {"code": code, "left": left}
    return {"code": None, "left": left}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
