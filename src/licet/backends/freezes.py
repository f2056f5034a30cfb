"""The freezes of a state, in a file of its directory and in memory; and the pinned keys of its operators.

Three places say the same: this store, which each call looks into; the ledger, which keeps every act; and for a state
with operators `operators.json`, which pins their keys and the ledger that they sign for. Removing one of them thaws
nothing: the acts of store and ledger count together, and a state whose operators are not the pinned ones is not used.

A look costs some microseconds: one `stat` where nobody has ever frozen the state, otherwise SQLite's own number of the
last change.
"""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from licet.backends.limits import LOOK_AT_FREEZES_SECONDS, MOST_OPERATORS_BYTES
from licet.backends.secrets import check_signature
from licet.backends.sqlite import Format, SqliteFile
from licet.core.ledger.entry import STATE_AGENT, STATE_SESSION, LinkedEntry, Unsound
from licet.core.ledger.state_acts import NOTHING, StateAct, StateView, act_of, folded, merged, read_row, row_bytes
from licet.core.values import canonical_json
from licet.guard.ports import LedgerUnavailable, Unavailable, free_after_fork
from licet.own_files import open_regular, read_most, replace_file

OPERATORS_FILE = "operators.json"  # in a state directory
_SCHEMA = "CREATE TABLE acts (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL)"
_FORMAT = Format(0x6C696366, 1, _SCHEMA, exact=True)  # `licf`: licet's freezes
_ADD = "INSERT OR IGNORE INTO acts (id, body) VALUES (?, ?)"
_ALL = "SELECT body FROM acts ORDER BY number"


class Operators(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pinned keys of the operators of a state, and the ledger that they sign acts for."""

    ledger: str
    keys: tuple[str, ...]
    format: Literal[1] = 1


def read_operators(directory: str | os.PathLike[str]) -> Operators | None:
    """The pinned keys in a state directory; None if there are none. `Unavailable` if they cannot be trusted."""
    path = os.path.join(directory, OPERATORS_FILE)
    try:
        with open_regular(path, links=False) as file:
            about, data = os.fstat(file), read_most(file, MOST_OPERATORS_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}") from None
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o022:
        raise Unavailable(f"{path} can be changed by others: run `chmod 600 {path}` as its owner")
    try:
        found = msgspec.json.decode(data, type=Operators)
    except ValueError:
        raise Unavailable(f"{path} holds no keys of operators: put its backup there") from None
    return found


def write_operators(directory: str | os.PathLike[str], operators: Operators) -> None:
    """Pin the keys of the operators of a state."""
    path = os.path.join(directory, OPERATORS_FILE)
    try:
        replace_file(path, canonical_json(operators) + b"\n")
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from None


def checked_view(acts: Sequence[StateAct], pinned: Operators | None, where: str) -> StateView:
    """What acts amount to; `Unavailable` if the operators are not the pinned ones."""
    view = folded(acts, pinned.ledger if pinned is not None else "", check_signature)
    if view.keys == (pinned.keys if pinned is not None else ()):
        return view
    if pinned is None:
        raise Unavailable(
            f"{where} has operators, and {OPERATORS_FILE} with their keys is missing here: pin keys that you know "
            "with `licet state init --operator KEY`, or put the backup of the file there"
        )
    raise Unavailable(
        f"{where} has other operators than {OPERATORS_FILE} says: put the files of the state back from a backup, or "
        "pin keys that you know with `licet state init --operator KEY`"
    )


def recorded_acts(ledger: str | os.PathLike[str]) -> Sequence[LinkedEntry]:
    """The entries about the whole state in a ledger file, in their order; none if there is no ledger."""
    if not os.path.lexists(ledger):
        return []
    from licet.backends.ledger.reader import entries_of_session  # where nobody ever froze anything, nothing reads it

    try:
        found = entries_of_session(os.fspath(ledger), STATE_AGENT, STATE_SESSION)
    except (LedgerUnavailable, Unsound) as wrong:
        raise Unavailable(f"the freezes in the ledger cannot be read: {wrong}") from None
    return sorted((one for one in found if one.agent == STATE_AGENT), key=lambda one: one.sequence)


class SqliteFreezes:
    """The freezes of a state directory, in a file that only its owner can read."""

    def __init__(self, path: str | os.PathLike[str], ledger: str | os.PathLike[str] | None = None) -> None:
        """Name the file, and that of the ledger if it is not `ledger.sqlite` next to it."""
        self._file = SqliteFile(path, _FORMAT, "FULL", notices_removal=True)
        self._directory = os.path.dirname(self._file.path)
        self._ledger = os.path.join(self._directory, "ledger.sqlite") if ledger is None else os.fspath(ledger)
        self._view = NOTHING
        self._seen: tuple[Any, int] | None = None  # the connection and its number of the last change, of `_view`
        self._is_unused = False  # whether the ledger was asked, and nobody has ever frozen this state

    def frozen(self, agent: str, tool: str) -> str:
        """Why calls of a tool by an agent are stopped; empty if they are not."""
        view = self._now()
        return view.why(agent, tool) if view.freezes else ""

    async def look_up(self, agent: str, tool: str) -> None:
        """Nothing: every process of this machine sees one file."""

    async def add(self, act: StateAct) -> None:
        """Keep an act. It is on the disk when this returns."""
        body = row_bytes(act)
        self._seen = None  # SQLite counts no change of this connection
        await self._file.write(lambda db: db.execute(_ADD, (act.id, body)))
        self._seen = None

    async def view(self) -> StateView:
        """What all acts of the state amount to now."""
        return self._now()

    async def unpinned(self) -> StateView:
        """What the acts amount to, whatever keys are pinned here: for a person who is about to pin keys."""
        recorded = recorded_acts(self._ledger)
        ledger = recorded[0].ledger if recorded else ""
        bodies: Sequence[object] = []
        if os.path.lexists(self._file.path):
            bodies = await self._file.read(_bodies)
        return folded(merged(_acts(recorded), _rows(bodies)[0]), ledger, check_signature)

    async def pin(self, operators: Operators) -> None:
        """Pin the keys of the operators in the directory of the state."""
        write_operators(self._directory, operators)
        self._seen = None

    def close(self) -> None:
        """Close the file; the next look opens it again."""
        self._seen = None
        self._file.close()

    def _now(self) -> StateView:
        try:
            os.stat(self._file.path)
        except FileNotFoundError:
            return self._without_file()
        except OSError as error:
            raise Unavailable(f"{self._file.path} cannot be read: {error.strerror}") from None
        seen = self._file.read_now(_version, LOOK_AT_FREEZES_SECONDS)
        if self._seen != seen:
            bodies = self._file.read_now(_bodies, LOOK_AT_FREEZES_SECONDS)
            self._view = self._read(bodies)
            self._seen = seen  # from before the rows were read: a change meanwhile is read once more
        return self._view

    def _without_file(self) -> StateView:
        self._seen = None
        if self._is_unused:
            return NOTHING
        view = self._read([])
        self._is_unused = view == NOTHING
        return view

    def _read(self, bodies: Sequence[object]) -> StateView:
        pinned = read_operators(self._directory)
        stored, unsound = _rows(bodies)
        view = checked_view(merged(_acts(recorded_acts(self._ledger)), stored), pinned, self._directory)
        return msgspec.structs.replace(view, unsound=(*unsound, *view.unsound)) if unsound else view


def _rows(bodies: Iterable[object]) -> tuple[list[StateAct], list[str]]:
    """The acts in rows, and what is wrong with the others."""
    stored: list[StateAct] = []
    unsound: list[str] = []
    for body in bodies:
        try:
            stored.append(read_row(body))
        except Unsound as wrong:
            unsound.append(str(wrong))
    return stored, unsound


def _acts(entries: Iterable[LinkedEntry]) -> list[StateAct]:
    return [act for act in map(act_of, entries) if act is not None]


def _version(db: sqlite3.Connection) -> tuple[Any, int]:
    (number,) = db.execute("PRAGMA data_version").fetchone()
    return db, number


def _bodies(db: sqlite3.Connection) -> list[object]:
    return [row[0] for row in db.execute(_ALL).fetchall()]


class MemoryFreezes:
    """Freezes in memory, for gates of one process; the memory twin."""

    def __init__(self, operators: Sequence[str] = (), ledger: str = "memory") -> None:
        self._first = tuple(operators)
        self._acts: list[StateAct] = []
        self._view = StateView(ledger, self._first)
        self._lock = free_after_fork(threading.Lock())

    def frozen(self, agent: str, tool: str) -> str:
        """Why calls of a tool by an agent are stopped; empty if they are not."""
        view = self._view
        return view.why(agent, tool) if view.freezes else ""

    async def look_up(self, agent: str, tool: str) -> None:
        """Nothing: nobody else knows these freezes."""

    async def add(self, act: StateAct) -> None:
        """Keep an act."""
        with self._lock:
            if act.id not in {one.id for one in self._acts}:  # one that comes again is the same
                self._acts.append(read_row(row_bytes(act)))
            self._view = folded(self._acts, self._view.ledger, check_signature, self._first)

    async def view(self) -> StateView:
        """What all acts amount to now."""
        return self._view
