"""Stores as earlier versions have left them: made by statements here, or by the code of a commit in `older/`."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

OLDER = Path(__file__).parent / "older"
MADE_BY = ("f932e7aa",)  # commits, the oldest first
_TIMES = """
UPDATE licet.kept_calls SET expires = clock_timestamp() + interval '1 hour', alive_until = clock_timestamp()
"""


def older_file(path: Path, script: str) -> Path:
    """A file of SQLite that some statements have made, and that its owner alone can read."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)
    path.chmod(0o600)
    return path


def older_state(made: Path, state: Path) -> Path:
    """A copy of the state that a commit has left in a directory."""
    state.mkdir(mode=0o700, parents=True)
    for file in sorted((made / "files").iterdir()):
        if file.suffix == ".sql":
            older_file(state / f"{file.stem}.sqlite", file.read_text())
        elif file.suffix in (".head", ".key", ".pub") or file.name == "operators.json":
            private_copy(file, state / file.name)
    return state


def older_database(made: Path) -> str:
    """The address of a new database with the state that a commit has dumped; its node is in `database/node`.

    The test is skipped where no server can be had.
    """
    from postgres_server import fresh

    address = fresh(copied="template0")
    asyncio.run(_restored(address, (made / "database" / "licet.sql").read_text()))
    return address


async def _restored(address: str, dump: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(address)
    try:
        await connection.execute(dump)
        await connection.execute(_TIMES)
        # Entries are in the order of transactions, whose numbers begin low in a new server: they have to go on.
        below = int(await connection.fetchval("SELECT max(below)::text FROM licet.heads"))
        while int(await connection.fetchval("SELECT pg_current_xact_id()::text")) < below:
            pass
    finally:
        await connection.close()


def private_copy(file: Path, path: Path) -> Path:
    """A copy that its owner alone can read: a repository does not keep that."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(file, path)
    path.chmod(0o600)
    return path
