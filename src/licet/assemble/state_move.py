"""Moves a state from a directory to a database, or back: the ledger, values by key, what was spent, and the operators.

Freezes are entries of the ledger, so they come with it. Requests for approval and results that were kept for calls with
an id are not moved: who waits is asked again, and nothing of them is needed for what has ended.
"""

import asyncio
from pathlib import Path

from msgspec import Struct

from licet.assemble.states import BUDGETS, KV, LEDGER, DatabaseState, DirectoryState, State
from licet.backends.freezes import read_operators, write_operators
from licet.backends.ledger.reader import Progress
from licet.guard.ports import LedgerUnavailable, Unavailable

NOT_MOVED = ("requests for approval", "standing approvals", "results of calls with an id")


class MoveRefused(Exception):
    """A state that was not moved. The text says why, and what to do."""


class MovedState(Struct, frozen=True):
    """A state that was moved."""

    entries: int
    aside: str  # the file of the ledger that was moved from; empty of a database
    left: tuple[str, ...] = NOT_MOVED


async def move(source: State, target: State, progress: Progress | None = None) -> MovedState:
    """Move a state; `MoveRefused` leaves the source in use, or is mended by the same move again."""
    return await asyncio.to_thread(_move, source, target, progress)


def _move(source: State, target: State, progress: Progress | None) -> MovedState:
    if isinstance(source, DirectoryState) == isinstance(target, DirectoryState):
        raise MoveRefused("a state moves from a directory to a database, or back: copy the files of a directory")
    from licet.backends.postgres.ledger_move import NotMoved, ledger_to_database, ledger_to_file
    from licet.backends.postgres.rows_move import rows_to_database, rows_to_directory

    try:
        if isinstance(source, DirectoryState) and isinstance(target, DatabaseState):
            database = target.database
            moved = ledger_to_database(
                source.path / LEDGER,
                database,
                target.directory,
                target.shown,
                progress,
                lambda: rows_to_database(source.path / KV, source.path / BUDGETS, database),
                _operators(source.path),
            )
        elif isinstance(source, DatabaseState) and isinstance(target, DirectoryState):
            database = source.database
            # Gates are stopped, so nobody else does: entries of other nodes wait for a node with this key.
            source.ledger().place_waiting()
            moved = ledger_to_file(
                database,
                source.directory,
                target.path / LEDGER,
                source.shown,
                progress,
                lambda: rows_to_directory(database, target.path / KV, target.path / BUDGETS),
                _operators(source.directory),
            )
        else:
            raise MoveRefused("one of these states cannot be moved")
        _pin(source.directory, target.directory)
        if isinstance(target, DatabaseState) and (operators := _operators(target.directory)):
            asyncio.run(target.ledger().hand_over(operators))
    except (NotMoved, LedgerUnavailable, Unavailable) as wrong:
        raise MoveRefused(str(wrong)) from None
    return MovedState(moved.entries, moved.aside)


def _operators(directory: Path) -> tuple[str, ...]:
    found = read_operators(directory)
    return () if found is None else found.keys


def _pin(source: Path, target: Path) -> None:
    """The keys of the operators, in the directory of the target too."""
    found = read_operators(source)
    if found is not None and source != target:
        write_operators(target, found)
