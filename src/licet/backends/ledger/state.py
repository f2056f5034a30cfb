"""The tables of a ledger file, the row that says how the ledger ends, and the last checkpoint next to the key.

- `SCHEMA` is the layout of the file. There is one format; files of other formats are refused.
- `State` is the one row of the table `ledger`: what the next entry links to. Every transaction writes it with a MAC
  that only the holder of the private key can make (`Tagging`). Without it, somebody who can write the file could
  append entries after the last checkpoint, and the next checkpoint would sign them.
- `LastCheckpoint` is the file `….head`: the newest checkpoint, stored next to the key. A database that was changed and
  hashed anew does not match it, and nothing is signed on top. It is replaced after each checkpoint was committed, so it
  never covers more than the database holds.
"""

import hmac
import os
import secrets
import shlex
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from licet.backends.secrets import SigningKey, check_signature
from licet.backends.sqlite import Format, foreign_part
from licet.core.ledger.entry import Checkpoint, CheckpointFacts, Unsound, read_checkpoint
from licet.core.ledger.merkle import Frontier
from licet.core.ledger.verify import checkpoint_line, read_checkpoint_lines
from licet.core.values import canonical_json
from licet.guard.ports import LedgerUnavailable
from licet.own_files import read_regular, replace_file

# Only the body of an entry is signed. The other columns are indexes, or save the writer a search: `chains` has the end
# of each session, `ledger` what the next entry links to. Receipts are searched by one column and the time.
SCHEMA = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, kind TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
    sequence INTEGER NOT NULL, tool TEXT NOT NULL, verdict TEXT NOT NULL, time TEXT NOT NULL, hash BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX by_id ON entries (id);
CREATE INDEX by_time ON entries (time) WHERE kind = 'receipt';
CREATE INDEX by_agent ON entries (agent, time) WHERE kind = 'receipt';
CREATE INDEX by_tool ON entries (tool, time) WHERE kind = 'receipt';
CREATE INDEX by_verdict ON entries (verdict, time) WHERE kind = 'receipt';
CREATE TABLE chains (
    agent TEXT NOT NULL, session TEXT NOT NULL, sequence INTEGER NOT NULL, hash BLOB NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (agent, session)
) WITHOUT ROWID;
CREATE TABLE checkpoints (size INTEGER PRIMARY KEY, body BLOB NOT NULL, signature BLOB NOT NULL);
CREATE TABLE ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, key TEXT NOT NULL, size INTEGER NOT NULL,
    frontier BLOB NOT NULL, recorded TEXT NOT NULL, signed INTEGER NOT NULL, signed_ms INTEGER NOT NULL,
    tag BLOB NOT NULL
)"""
OUTDATED = (
    "was written by an older licet: it holds entries of format 1, and this version reads format 2; read it with the "
    "version that wrote it, or move it away with its key to begin another ledger"
)
FORMAT = Format(0x6C69636C, 3, SCHEMA, exact=True, outdated=OUTDATED)  # `licl`: licet's ledgers


def foreign_tables(db: sqlite3.Connection) -> str:
    """Return the first table, index, trigger or view that licet did not make; empty if there is none."""
    return foreign_part(db, SCHEMA, exact=True)


STATE = "SELECT id, key, size, frontier, recorded, signed, signed_ms, tag, one FROM ledger LIMIT 2"
KEEP = "UPDATE ledger SET size = ?, frontier = ?, recorded = ?, signed = ?, signed_ms = ?, tag = ?"
BEGIN = "INSERT INTO ledger VALUES (1, ?, ?, 0, x'', '', 0, 0, x'')"


class State(NamedTuple):
    """The row of the table `ledger`: what the next entry links to."""

    ledger: str
    key: str
    size: int = 0
    frontier: bytes = b""
    recorded: str = ""
    signed: int = 0
    signed_ms: int = 0  # when, in milliseconds of the epoch
    tag: bytes = b""


OTHER_ROWS = "the table `ledger` has other rows than the one that licet writes"
COLUMNS = ("id", *State._fields[1:])
_KINDS = (str, str, int, bytes, str, int, int, bytes)


class Tagging:
    """Makes and checks the MAC over the end of one ledger."""

    def __init__(self, key: SigningKey) -> None:
        self._secret = key.derived(b"licet ledger tail")

    def tagged(self, state: State) -> State:
        """Return a state with its MAC."""
        return state._replace(tag=self._tag(state))

    def wrong(self, state: State) -> bool:
        """Whether the MAC of a state is missing or wrong."""
        try:
            return not hmac.compare_digest(state.tag, self._tag(state))
        except ValueError:  # a text with lone surrogates, or a number that licet never writes
            return True

    def _tag(self, state: State) -> bytes:
        signed_part = canonical_json(
            [state.ledger, state.key, state.size, state.recorded, state.signed, state.signed_ms]
        )
        return hmac.digest(self._secret, signed_part + state.frontier, "sha256")


def new_ledger_id() -> str:
    """A random id for a new ledger."""
    return secrets.token_hex(16)


def read_state(db: sqlite3.Connection) -> State | None:
    """Read the state of a ledger; None if it has not begun, `ValueError` if a column holds a wrong type."""
    found = db.execute(STATE).fetchall()
    if not found:
        return None
    if len(found) > 1 or found[0][-1] != 1:
        raise ValueError(OTHER_ROWS)
    if (wrong := wrong_column(found[0][:-1])) is not None:
        raise ValueError(wrong)
    return State(*found[0][:-1])


def wrong_column(row: Sequence[object]) -> str | None:
    """Which column of the table `ledger` has a wrong type: SQLite takes any type in any column."""
    for name, value, kind in zip(COLUMNS, row, _KINDS, strict=True):
        if type(value) is not kind:
            return f"the table `ledger` says {name} {ascii(value)[:40]}, which has a wrong type"
    return None


_MOST = 65_536  # bytes


class LastCheckpoint(Struct, frozen=True):
    """The newest checkpoint, and the right edge of the tree that it signed: a longer tree can be computed from it."""

    checkpoint: Checkpoint
    facts: CheckpointFacts
    frontier: Frontier


def checkpoint_path(path: str | os.PathLike[str]) -> str:
    """The file that has the last checkpoint of a ledger."""
    return os.path.splitext(path)[0] + ".head"


def read_last(path: str) -> LastCheckpoint | None:
    """Read the last checkpoint; None if there is no file."""
    try:
        data = read_regular(path, _MOST, links=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be read: {error.strerror}") from None
    try:
        line, peaks = data.decode().splitlines()
        (checkpoint,) = read_checkpoint_lines(line)
        facts = read_checkpoint(checkpoint.body)
        frontier = Frontier.of_bytes(facts.size, bytes.fromhex(peaks))
        if facts.root != f"sha256:{frontier.root.hex()}":
            raise Unsound("its root is not that of its tree")
    except ValueError:
        raise LedgerUnavailable(f"{path} holds no checkpoint of a ledger: {_aside(path)}") from None
    return LastCheckpoint(checkpoint, facts, frontier)


def trusted_last(path: str, key: str) -> LastCheckpoint | None:
    """As `read_last`, and check that it is signed with this key."""
    last = read_last(path)
    if last is not None and not (
        last.facts.key == key and check_signature(key, last.checkpoint.body, last.checkpoint.signature)
    ):
        raise LedgerUnavailable(f"{path} is not signed with {key}: {_aside(path)}")
    return last


def write_last(path: str, checkpoint: Checkpoint, frontier: Frontier) -> None:
    """Replace the last checkpoint atomically."""
    try:
        replace_file(path, f"{checkpoint_line(checkpoint)}\n{bytes(frontier).hex()}\n".encode())
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be written: {error.strerror}") from None


def not_continued(path: str, last: LastCheckpoint | None) -> LedgerUnavailable:
    """The error for a ledger that does not continue from its last checkpoint."""
    if (moved := _moved_aside(path)) is not None:
        return moved
    if last is None:
        text = f"{path} is missing, which has the last checkpoint of the ledger: put it back"
        return LedgerUnavailable(f"{text}; if there never was one, or it is lost, {_aside(path)}")
    size = f"{last.facts.size} {'entry' if last.facts.size == 1 else 'entries'} at {last.facts.time}"
    text = f"the ledger was rolled back or changed since its last checkpoint ({size}, {path})"
    return LedgerUnavailable(f"{text}: {_verify(path)} shows where; {_aside(path)}")


# A ledger that was moved to a database says so in the column `key`, so that a process that has it open stops too.
_MOVED = " moved to "


def moved_key(key: str, to: str) -> str:
    """The column `key` of a ledger that was moved."""
    return f"{key}{_MOVED}{to}"


def moved_to(key: str) -> str:
    """Where a ledger was moved to, by its column `key`; empty if it was not."""
    return key.partition(_MOVED)[2]


def moved_path(path: str | os.PathLike[str], number: int = 1) -> str:
    """The name that a file gets after its ledger was moved."""
    base, ending = os.path.splitext(path)
    return f"{base}.moved{f'-{number}' if number > 1 else ''}{ending}"


def ledger_moved(path: str, to: str) -> LedgerUnavailable:
    """The error for a ledger that was moved to a database."""
    return LedgerUnavailable(f"the ledger {path} was moved to {to}: use that with `--state`")


def _moved_aside(path: str) -> LedgerUnavailable | None:
    """The error for a ledger whose file was set aside when it was moved, and for an empty one in its place."""
    file = f"{os.path.splitext(path)[0]}.sqlite"
    aside = moved_path(file)
    return ledger_moved(file, f"another state, and {aside} is what it was") if os.path.lexists(aside) else None


def ledger_missing(path: str) -> LedgerUnavailable:
    """The error for a key whose ledger is missing."""
    base = os.path.splitext(path)[0]
    text = f"{base}.key has signed a ledger, and both {base}.sqlite and {path} are missing: put them back from a backup"
    return LedgerUnavailable(f"{text}, or move {base}.* away, the key too, to begin another ledger")


def wrong_chains(path: str, number: object) -> LedgerUnavailable:
    """The error for a table `chains` that does not match the entries."""
    text = f"the table `chains` says that a session ends with entry {ascii(number)[:40]}, which the entries do not say"
    return LedgerUnavailable(f"{text}: {_verify(path)} shows where; {_aside(path)}")


def changed_while_open(path: str, size: int) -> LedgerUnavailable:
    """The error for a ledger that was replaced by an older or a changed one while it was open."""
    if (moved := _moved_aside(path)) is not None:
        return moved
    text = f"the ledger was rolled back or changed while it was in use: it no longer has the {size} entries that"
    return LedgerUnavailable(f"{text} this process has seen: {_verify(path)} shows where; {_aside(path)}")


def wrong_mac(path: str, signed: int, size: int) -> LedgerUnavailable:
    """The error for a ledger whose MAC is missing or wrong."""
    what = (
        f"it claims {size} entries, but the MAC over the {size - signed} after the last checkpoint is missing or wrong"
    )
    text = f"the ledger was changed without its key: {what}"
    return LedgerUnavailable(f"{text}: {_verify(path)} shows where; {_aside(path)}")


def wrong_table(path: str, why: str) -> LedgerUnavailable:
    """The error for a table with values that licet never writes."""
    return LedgerUnavailable(f"{why}: {_verify(path)} shows where; {_aside(path)}")


def _verify(path: str) -> str:
    # With the file: without it, the ledger of the current directory would be verified.
    return f"`licet receipts verify {shlex.quote(os.path.splitext(path)[0] + '.sqlite')}`"


def _aside(path: str) -> str:
    return f"keep the files, and move {os.path.splitext(path)[0]}.* away to begin another ledger"
