"""The signed heads of a ledger in PostgreSQL, and what a node keeps of them in its own directory.

- A ledger begins with the process that finds none, which makes its key: `ledger.key` and `ledger.pub`. It signs the
  empty tree first, so that there is always a head to continue from.
- Another node joins. It takes the key of the ledger from the first head that it sees, unless `ledger.pub` was put there
  before.
- Each node keeps the last head that it saw, as `ledger.head`. A database whose newest head does not continue it was set
  back or changed, and nothing is written to it.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from licet.backends.ledger.state import LastCheckpoint, new_ledger_id, read_last, write_last
from licet.backends.limits import HASHES_AT_ONCE
from licet.backends.postgres.address import Connection
from licet.backends.postgres.node_keys import BegunLedger
from licet.backends.secrets import SigningKey, check_signature, generated_key, ledger_key
from licet.core.ledger.entry import Checkpoint, Unsound, checkpoint_body, hash_text, read_checkpoint, time_text
from licet.core.ledger.merkle import HASH_BYTES, Frontier
from licet.core.values import key_bytes
from licet.guard.ports import LedgerUnavailable
from licet.own_files import create_file, read_regular

_LEDGER = "SELECT id, key FROM licet.ledger"
_BEGIN = """
WITH begun AS (INSERT INTO licet.ledger (id, key) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id)
INSERT INTO licet.heads (size, body, signature, frontier, below)
SELECT 0, $3::bytea, $4::bytea, $5::bytea, '3'::xid8 FROM begun
"""
# With the oldest transaction that is still open, which is older than anything that is read afterwards.
_NEWEST = """
SELECT size, body, signature, frontier, below::text, pg_snapshot_xmin(pg_current_snapshot())::text AS before
FROM licet.heads ORDER BY size DESC LIMIT 1
"""
_HEAD = """
INSERT INTO licet.heads (size, body, signature, frontier, below) VALUES ($1, $2, $3, $4, $5::text::xid8)
"""
_HASHES = """
SELECT count(*), string_agg(hash, ''::bytea ORDER BY number) FROM licet.places WHERE number > $1 AND number <= $2
"""
_MOST_KEY = 4096  # bytes


class Newest(Struct, frozen=True):
    """A row of a head, with `before`: all transactions before that one had ended. And the head that was known then."""

    row: Any
    last: LastCheckpoint | None


class KeptHead:
    """The newest head that this node has seen, of the ledger that it has begun or joined."""

    def __init__(self, directory: Path, now: Callable[[], datetime]) -> None:
        self._directory, self._now = directory, now
        self._paths = {name: os.fspath(directory / f"ledger.{name}") for name in ("key", "pub", "head")}
        self.key: SigningKey | None = None  # where this node has it
        self._begun: BegunLedger | None = None
        self._last: LastCheckpoint | None = None
        self._stored = -1  # the size that the file has

    async def begun(self, connection: Connection) -> BegunLedger:
        """The ledger, which begins if there is none."""
        if self._begun is None:
            await self.follow(connection)
        if self._begun is None:
            raise LedgerUnavailable("the ledger has not begun")
        return self._begun

    @property
    def last(self) -> LastCheckpoint | None:
        """The newest head that was seen."""
        return self._last

    async def newest(self, connection: Connection) -> "Newest":
        """The newest head of the database, which nobody has checked yet."""
        last = self._last  # before it asks: one that is noted meanwhile may be newer than the answer
        if (found := await connection.fetchrow(_NEWEST)) is None:
            raise self._set_back("it has no signed head any more", last)
        return Newest(found, last)

    async def follow(self, connection: Connection, newest: "Newest | None" = None) -> LastCheckpoint:
        """The newest head of the database, if it continues the one that was kept; `LedgerUnavailable` otherwise."""
        begun = self._begun or await self._joined(connection)
        newest = newest or await self.newest(connection)
        found, last = newest.row, newest.last
        head = _head(found, begun)
        facts = read_checkpoint(head.body)
        if last is None:  # trusted on first use: it is signed with the key of the ledger
            frontier = _frontier(facts.size, found["frontier"], facts.root)
        elif facts.size < last.facts.size:
            raise self._set_back(f"its newest head has {facts.size} entries", last)
        else:
            frontier = last.frontier.copy()
            await _grow(connection, frontier, facts.size)
            if frontier.size != facts.size or hash_text(frontier.root) != facts.root:
                raise self._set_back("its tree does not continue that head", last)
        self._begun, followed = begun, LastCheckpoint(head, facts, frontier)
        self._note(followed)
        return followed

    def advance(self, head: Checkpoint, frontier: Frontier) -> None:
        """Note a head that this process has signed, and that the database has kept."""
        self._note(LastCheckpoint(head, read_checkpoint(head.body), frontier.copy()))

    def _note(self, head: LastCheckpoint) -> None:
        if self._last is None or self._last.facts.size <= head.facts.size:  # another look may have been faster
            self._last = head

    def signed(self, key: SigningKey, begun: BegunLedger, frontier: Frontier) -> Checkpoint:
        """Sign the head of a tree."""
        body = checkpoint_body(begun.ledger, frontier.size, frontier.root, time_text(self._now()), key.public)
        return Checkpoint(frontier.size, body, key.sign(body))

    async def insert(self, connection: Connection, head: Checkpoint, frontier: Frontier, below: str) -> None:
        """Write a head into the database; an error if another sequencer was faster."""
        await connection.execute(_HEAD, head.size, head.body, head.signature, bytes(frontier), below)

    def store(self) -> None:
        """Write the newest head into the directory of this node, if the file has an older one."""
        last = self._last
        if last is None or last.facts.size <= self._stored:
            return
        there = read_last(self._paths["head"])
        if there is None or there.facts.ledger != last.facts.ledger or there.facts.size < last.facts.size:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_last(self._paths["head"], last.checkpoint, last.frontier)
        self._stored = last.facts.size

    # The ledger of this directory -------------------------------------------------------------------------------------

    async def _joined(self, connection: Connection) -> BegunLedger:
        found = await connection.fetchrow(_LEDGER)
        key, public, last = self._own_key(), self._pinned(), read_last(self._paths["head"])
        if found is None:
            found = await self._begin(connection, key, public, last)
            key = self.key
        ledger, signer = found["id"], found["key"]
        if type(ledger) is not str or type(signer) is not str or _is_no_key(signer):
            raise LedgerUnavailable("the database names a ledger that licet has not begun")
        expected = key.public if key is not None else public
        if expected is not None and expected != signer:
            path = self._paths["key" if key is not None else "pub"]
            raise LedgerUnavailable(
                f"the ledger in the database is signed with {signer}, and {path} says {expected}: this is another "
                "state, or its ledger was replaced; give each state a directory of its own"
            )
        begun = BegunLedger(ledger, signer)
        if last is not None:
            if last.facts.ledger != ledger or last.facts.key != signer:
                raise self._set_back(f"it has another ledger, {ledger}", last)
            if not check_signature(signer, last.checkpoint.body, last.checkpoint.signature):
                raise LedgerUnavailable(f"{self._paths['head']} is not signed with {signer}: put it back from a backup")
            self._last = last
        elif expected is None:
            newest = await connection.fetchrow(_NEWEST)
            if newest is None:
                raise LedgerUnavailable("the ledger in the database has no signed head")
            _head(newest, begun)  # nothing is pinned that its key has not signed
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                create_file(self._paths["pub"], f"{signer}\n".encode(), 0o644)
        self.key = key
        return begun

    async def _begin(
        self, connection: Connection, key: SigningKey | None, public: str | None, last: LastCheckpoint | None
    ) -> dict[str, str]:
        """Begin a ledger in an empty database; another node may be faster."""
        if last is not None and last.facts.size:
            raise self._set_back("it has no ledger any more", last)
        if key is None and public is not None:
            raise LedgerUnavailable(
                f"the database has no ledger, and this node expects one that is signed with {public}: the node with "
                f"ledger.key begins it; move {self._paths['pub']} away to begin another one here"
            )
        is_new = key is None
        if key is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = ledger_key(self._paths["key"], generated_key())
        ledger, empty = new_ledger_id(), Frontier()
        head = self.signed(key, BegunLedger(ledger, key.public), empty)
        await connection.execute(_BEGIN, ledger, key.public, head.body, head.signature, bytes(empty))
        found = await connection.fetchrow(_LEDGER)
        if is_new and found["key"] != key.public:  # the key has signed nothing that anybody has
            for name in ("key", "pub"):
                os.unlink(self._paths[name])
            self.key = None
        else:
            self.key = key
        return {"id": found["id"], "key": found["key"]}

    def _own_key(self) -> SigningKey | None:
        return ledger_key(self._paths["key"]) if os.path.lexists(self._paths["key"]) else None

    def _pinned(self) -> str | None:
        path = self._paths["pub"]
        try:
            text = read_regular(path, _MOST_KEY).decode().strip()
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            text = ""
        if _is_no_key(text):
            raise LedgerUnavailable(f"{path} holds no public key: put that of the ledger there")
        return text

    def _set_back(self, why: str, last: LastCheckpoint | None) -> LedgerUnavailable:
        size = 0 if last is None else last.facts.size
        seen = f"{size} {'entry' if size == 1 else 'entries'}"
        if last is not None:
            seen += f" at {last.facts.time}"
        return LedgerUnavailable(
            f"the database was set back or changed since the last head that this node saw ({seen}): {why}. Nothing is "
            f"written to it: restore its newest backup; if what is lost stays lost, move {self._paths['head']} away"
        )


def _is_no_key(text: str) -> bool:
    return key_bytes(text) is None


def _head(found: dict[str, object], begun: BegunLedger) -> Checkpoint:
    """A head of the database, if the key of the ledger has signed it."""
    size, body, signature = found["size"], found["body"], found["signature"]
    if not (type(size) is int and type(body) is bytes and type(signature) is bytes):
        raise LedgerUnavailable("the newest head in the database is no head")
    try:
        facts = read_checkpoint(body)
    except Unsound as wrong:
        raise LedgerUnavailable(f"the newest head in the database cannot be read: {wrong}") from None
    if facts.size != size or facts.ledger != begun.ledger or facts.key != begun.key:
        raise LedgerUnavailable(f"the newest head in the database is not one of the ledger {begun.ledger}")
    if not check_signature(begun.key, body, signature):
        raise LedgerUnavailable(f"the newest head in the database is not signed with {begun.key}")
    return Checkpoint(size, body, signature)


def _frontier(size: int, data: object, root: str) -> Frontier:
    wrong = LedgerUnavailable("the newest head in the database has another tree than it has signed")
    try:
        frontier = Frontier.of_bytes(size, data if type(data) is bytes else b"")
    except ValueError:
        raise wrong from None
    if hash_text(frontier.root) != root:
        raise wrong
    return frontier


async def _grow(connection: Connection, frontier: Frontier, size: int) -> None:
    """Add the hashes of the places up to a size, as far as there are any."""
    while frontier.size < size:
        end = min(size, frontier.size + HASHES_AT_ONCE)
        count, joined = await connection.fetchrow(_HASHES, frontier.size, end)
        if count != end - frontier.size or len(joined) != count * HASH_BYTES:
            return
        frontier.extend(joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES))
