"""How a ledger file is laid out: its tables in this format and in earlier ones, and the step from each to the next.

No step changes the body of an entry, its hash or a head: what was hashed and signed stays as it was written.

What a ledger says of its own end, and the tag that only the holder of its key can make.

A head is signed now and then. What was written since is spoken for by this tag, which every transaction makes anew:
without it, whoever can write the file and has no key could append entries, and the next head would be signed over them.
Nobody can check it without the private key.

The last signed head of a ledger, kept beside its key as `….head`: what the file must go on from.

Whoever changes the database, takes the newest heads out of it and hashes everything anew is found out by this one, and
nothing is signed on top. It never says more than the database holds: it is replaced after each signed head was kept.
"""

import hmac
import math
import os
import secrets
import shlex
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from licet.backends.keys import SigningKey, check_signature
from licet.backends.sqlite.file import Format
from licet.backends.sqlite.schema import foreign_part
from licet.core.canonical import canonical_json
from licet.core.ledger.entry import Head, HeadFacts, Unsound, read_head
from licet.core.ledger.evidence import head_line, kept_heads
from licet.core.ledger.merkle import Frontier
from licet.guard.ports import LedgerUnavailable
from licet.regular_files import read_regular

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


STATE = "SELECT id, key, size, frontier, recorded, signed, signed_at, tag, one FROM ledger LIMIT 2"
KEEP = "UPDATE ledger SET size = ?, frontier = ?, recorded = ?, signed = ?, signed_at = ?, tag = ?"
BEGIN = "INSERT INTO ledger VALUES (1, ?, ?, 0, x'', '', 0, 0, x'')"
# A ledger that began with tags is called so. Its name is in every entry and every signed head: nobody can make it look
# like one from before there were tags, which is taken without one.
_TAG_PREFIX = "2-"


class State(NamedTuple):
    """What the next entry follows, as the file says it."""

    ledger: str
    key: str
    size: int = 0
    frontier: bytes = b""
    recorded: str = ""
    signed: int = 0
    signed_at: float = 0.0
    tag: bytes = b""


OTHER_ROWS = "the table `ledger` has other rows than the one that licet writes"
COLUMNS = ("id", *State._fields[1:])
_KINDS = (str, str, int, bytes, str, int, float, bytes)


class Tagging:
    """Makes and checks the tags of one ledger."""

    def __init__(self, key: SigningKey) -> None:
        self._secret = key.derived(b"licet ledger tail")

    def tagged(self, state: State) -> State:
        """A state with its tag."""
        return state._replace(tag=self._tag(state))

    def wrong(self, state: State) -> bool:
        """Whether nobody who has the key left a ledger so."""
        if not state.tag and may_lack_tag(state.ledger):
            return False
        try:
            return not hmac.compare_digest(state.tag, self._tag(state))
        except ValueError:  # a text with lone surrogates, or a number that licet never writes
            return True

    def _tag(self, state: State) -> bytes:
        ledger, key, size, frontier, recorded, signed, signed_at, _ = state
        said = canonical_json([ledger, key, recorded, size, signed, repr(signed_at)])
        return hmac.digest(self._secret, said + frontier, "sha256")


def new_name() -> str:
    """A name for a ledger that begins now."""
    return _TAG_PREFIX + secrets.token_hex(16)


def may_lack_tag(ledger: str) -> bool:
    """Whether a ledger of this name may be from before there were tags."""
    return not ledger.startswith(_TAG_PREFIX)


def read_state(db: sqlite3.Connection) -> State | None:
    """What the file says; `ValueError` if a column holds what it cannot."""
    found = db.execute(STATE).fetchall()
    if not found:
        return None
    if len(found) > 1 or found[0][-1] != 1:
        raise ValueError(OTHER_ROWS)
    if (wrong := misshapen(found[0][:-1])) is not None:
        raise ValueError(wrong)
    return State(*found[0][:-1])


def misshapen(row: Sequence[object]) -> str | None:
    """Which column of the table `ledger` holds what it cannot: SQLite takes anything anywhere."""
    for name, value, kind in zip(COLUMNS, row, _KINDS, strict=True):
        if type(value) is not kind or (type(value) is float and not math.isfinite(value)):
            return f"the table `ledger` says {name} {ascii(value)[:40]}, which it cannot be"
    return None


_MOST = 65_536  # bytes


class Mark(NamedTuple):
    """A head, and the tree that it signed, so that it can be seen whether a longer one goes on from it."""

    head: Head
    facts: HeadFacts
    frontier: Frontier


def head_beside(path: str | os.PathLike[str]) -> str:
    """Where the last head of a ledger is kept."""
    return os.path.splitext(path)[0] + ".head"


def read_mark(path: str) -> Mark | None:
    """The last head that was kept; None if there never was one."""
    try:
        data = read_regular(path, _MOST, links=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be read: {error.strerror}") from None
    try:
        line, peaks = data.decode().splitlines()
        (head,) = kept_heads(line)
        facts = read_head(head.body)
        frontier = Frontier.of_bytes(facts.size, bytes.fromhex(peaks))
        if facts.root != f"sha256:{frontier.root.hex()}":
            raise Unsound("its tree is another")
    except ValueError:
        raise LedgerUnavailable(f"{path} holds no head of a ledger: {_not_compared(path)}") from None
    return Mark(head, facts, frontier)


def trusted_mark(path: str, key: str) -> Mark | None:
    """As `read_mark`, and signed with this key."""
    mark = read_mark(path)
    if mark is not None and not (mark.facts.key == key and check_signature(key, mark.head.body, mark.head.signature)):
        raise LedgerUnavailable(f"{path} is not signed with {key}: {_not_compared(path)}")
    return mark


def write_mark(path: str, head: Head, frontier: Frontier) -> None:
    """Replace the last head, whole or not at all."""
    spare = f"{path}.{secrets.token_hex(8)}"
    try:
        number = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(f"{head_line(head)}\n{bytes(frontier).hex()}\n")
                file.flush()
                os.fsync(number)
            os.replace(spare, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(spare)
            raise
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be written: {error.strerror}") from None


def not_from(path: str, mark: Mark | None) -> LedgerUnavailable:
    """Why a ledger is not gone on with."""
    if mark is None:
        text = f"{path} is not there, which has the last signed head of the ledger: put it back"
        return LedgerUnavailable(f"{text}; if there never was one, or it is lost, {_not_compared(path)}")
    size = f"{mark.facts.size} {'entry' if mark.facts.size == 1 else 'entries'} at {mark.facts.time}"
    text = f"the ledger was rolled back or changed since its last signed head ({size}, {path})"
    return LedgerUnavailable(f"{text}: {_verify(path)} tells more; {_not_compared(path)}")


def taken_away(path: str) -> LedgerUnavailable:
    """Why no ledger is begun with a key that has had one."""
    base = os.path.splitext(path)[0]
    text = f"{base}.key has signed a ledger, and neither {base}.sqlite nor {path} is there: put them back from a backup"
    return LedgerUnavailable(f"{text}, or move {base}.* away, the key too, to begin another ledger")


def astray(path: str, number: object) -> LedgerUnavailable:
    """Why nothing is linked to what is said to be the last entry of a session."""
    text = f"the table `chains` says that a session ends with entry {ascii(number)[:40]}, which the entries do not say"
    return LedgerUnavailable(f"{text}: {_verify(path)} tells more; {_not_compared(path)}")


def set_back(path: str, size: int) -> LedgerUnavailable:
    """Why whoever has a ledger open does not go on with it."""
    text = f"the ledger was set back or changed while it was in use: it no longer goes on from the {size} entries that"
    return LedgerUnavailable(f"{text} this process has seen: {_verify(path)} tells more; {_not_compared(path)}")


def untagged(path: str, signed: int, size: int) -> LedgerUnavailable:
    """Why nothing is linked to entries behind the last head, and nothing signed over them."""
    what = f"it says {size} entries, {size - signed} of them behind its last head, and bears no right tag for that"
    text = f"the ledger was changed by somebody who has not its key: {what}"
    return LedgerUnavailable(f"{text}: {_verify(path)} tells more; {_not_compared(path)}")


def unreadable(path: str, why: str) -> LedgerUnavailable:
    """Why a ledger with a table that no licet has written is not gone on with."""
    return LedgerUnavailable(f"{why}: {_verify(path)} tells more; {_not_compared(path)}")


def _verify(path: str) -> str:
    # With its file: without one, the ledger of the directory where it is typed would be verified, and found to be fine.
    return f"`licet receipts verify {shlex.quote(os.path.splitext(path)[0] + '.sqlite')}`"


def _not_compared(path: str) -> str:
    return f"keep what is there, and move {os.path.splitext(path)[0]}.* away to begin another ledger"
