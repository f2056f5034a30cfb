"""Stores as earlier versions have left them."""

import sqlite3
from contextlib import closing
from pathlib import Path


def older_file(path: Path, script: str) -> Path:
    """A file of SQLite that some statements have made, and that its owner alone can read."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)
    path.chmod(0o600)
    return path
