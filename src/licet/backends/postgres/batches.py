"""Batches of entries: linked to the ends of their sessions, signed once by their node, and checked by everybody else.

A node links an entry itself, to the last entry of the session that it knows. Where another node was faster, the
database says how the session ends now, and the entry is linked to that.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from licet.backends.limits import MOST_TAILS
from licet.backends.postgres.node_keys import Node, is_signed
from licet.core.ledger.entry import (
    START,
    Entry,
    LinkedEntry,
    Row,
    Tail,
    Unsound,
    check_row,
    link,
    read_entry,
    recorded_at,
)
from licet.core.ledger.merkle import HASH_BYTES
from licet.guard.ports import LedgerUnavailable

APPEND = "SELECT * FROM licet.append_entries($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
PURPOSE = "batch"
_COLUMNS = len(Row._fields) - 1
Session = tuple[str, str]  # the agent and the name


class Batch(Struct, frozen=True):
    """Entries that one node has linked and signed together."""

    id: bytes
    node: str
    signature: bytes
    rows: Sequence[Row]  # without a number
    previous: Sequence[bytes | None]  # the hash that the first entry of each session links to

    def arguments(self) -> tuple[object, ...]:
        """The arguments of `licet.append_entries`, without the last one."""
        rows = self.rows
        texts = (
            [row.agent for row in rows],
            [row.session for row in rows],
            [row.sequence for row in rows],
            self.previous,
            [row.id for row in rows],
            [row.kind for row in rows],
            [row.tool for row in rows],
            [row.verdict for row in rows],
            [row.time for row in rows],
        )
        return self.id, self.node, self.signature, *texts, [row.hash for row in rows], [row.body for row in rows]


def batch_text(ledger: str, batch: bytes, hashes: bytes) -> bytes:
    """What a node signs of a batch: for this ledger alone, with the hashes of its entries one after the other."""
    return b"%b\n%b\n%b" % (ledger.encode(), batch.hex().encode(), hashes)


class SignedBatch(Struct, frozen=True):
    """What a node has signed at once. With a `problem`, nobody has signed anything."""

    node: str = ""
    hashes: frozenset[bytes] = frozenset()  # of entries
    problem: str = ""


def read_batch(ledger: str, batch: object, node: object, hashes: object, signature: object) -> SignedBatch:
    """Read the row of a batch, which somebody may have changed. Whether its node is enrolled is another question."""
    if type(batch) is not bytes or type(hashes) is not bytes or len(hashes) % HASH_BYTES:
        return SignedBatch(problem="the hashes of its batch are cut, or the batch is missing")
    if type(node) is not str or not is_signed(node, PURPOSE, batch_text(ledger, batch, hashes), signature):
        return SignedBatch(problem=f"its batch is not signed by the node {ascii(node)[1:-1]}")
    return SignedBatch(node, frozenset(hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)))


class Sending(Struct, eq=False):
    """Entries on their way, until each has an answer: what is sent again after a lost connection is the same batch."""

    items: Sequence[Any]  # as a lane gave them: the same object again is another attempt
    entries: Sequence[Entry]
    waiting: list[int]  # the places of those without an answer
    answers: dict[int, Any] = {}
    batch: Batch | None = None  # of those that wait

    def answer(self, answers: Mapping[int, Any]) -> None:
        """Note answers, by place."""
        self.answers.update(answers)
        self.waiting = [at for at in self.waiting if at not in self.answers]

    def fail(self, wrong: Mapping[Session, LedgerUnavailable]) -> None:
        """Answer what waits in these sessions with an error."""
        found = {at: wrong.get(session_of(self.entries[at])) for at in self.waiting}
        self.answer({at: LedgerUnavailable(*one.args) for at, one in found.items() if one is not None})


def sending_of(items: Sequence[Any], entries: Sequence[Entry]) -> Sending:
    """Entries that begin their way."""
    return Sending(items, entries, list(range(len(entries))))


def session_of(entry: Entry | Row) -> Session:
    """The session whose chain an entry is in."""
    return entry.agent, entry.session


class Chains:
    """How sessions end, as far as this process knows, and the batches that it links to them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tails: dict[Session, Tail] = {}  # that the database has acknowledged; the oldest are forgotten
        self._recorded = ""

    def link(self, ledger: str, entries: Iterable[Entry], now: datetime) -> Batch:
        """Link and sign entries; the database decides whether it keeps them. `ValueError` if it cannot."""
        ends: dict[Session, Tail] = {}
        rows: list[Row] = []
        previous: list[bytes | None] = []
        self._recorded = recorded = recorded_at(now, self._recorded)
        for entry in entries:
            session = session_of(entry)
            before = ends.get(session)
            tail = self._tails.get(session, START) if before is None else before
            row = link(entry, ledger, 0, tail, recorded)
            if "\0" in f"{row.agent}{row.session}{row.id}{row.tool}{row.time}":
                raise ValueError("it has a text with a zero byte, which PostgreSQL does not keep")
            previous.append(tail.hash if before is None else None)
            ends[session] = Tail(row.sequence, row.hash)
            rows.append(row)
        batch = os.urandom(16)
        signature = self._node.sign(PURPOSE, batch_text(ledger, batch, b"".join(row.hash for row in rows)))
        return Batch(batch, self._node.public, signature, rows, previous)

    def link_waiting(self, ledger: str, sending: Sending, now: datetime) -> None:
        """Link what waits; an entry that cannot be written fails alone."""
        try:
            sending.batch = self.link(ledger, [sending.entries[at] for at in sending.waiting], now)
        except (ValueError, TypeError):
            wrong: dict[int, LedgerUnavailable] = {}
            for at in sending.waiting:
                try:
                    self.link(ledger, [sending.entries[at]], now)
                except (ValueError, TypeError) as error:
                    wrong[at] = LedgerUnavailable(f"an entry cannot be written: {error}")
            sending.answer(wrong)

    def lost(self, answer: Iterable[Sequence[object]]) -> Mapping[Session, Tail]:
        """Read the answer of `licet.append_entries`: the sessions of which it has kept nothing, and how they end."""
        found: dict[Session, Tail] = {}
        for agent, session, sequence, digest in answer:
            if not (type(agent) is type(session) is str and type(sequence) is int and type(digest) is bytes):
                raise LedgerUnavailable("the database says of a session that it ends with something that is no entry")
            found[agent, session] = Tail(sequence, digest)
        return found

    def known(self, session: Session) -> Tail:
        """How a session ends, as far as the database has acknowledged it."""
        return self._tails.get(session, START)

    def ends(self, batch: Batch) -> Mapping[Session, Tail]:
        """How the sessions of a batch end, as far as the database has acknowledged it by now.

        To be asked before the batch is sent: entries may be acknowledged over another connection while it is under way,
        and the answer does not know of them.
        """
        return {session: self.known(session) for session in {session_of(row) for row in batch.rows}}

    def note(self, session: Session, tail: Tail) -> None:
        """Remember how a session ends. An older end, which came over a slower connection, changes nothing."""
        if tail.sequence < self.known(session).sequence:
            return
        self._tails.pop(session, None)
        self._tails[session] = tail
        if len(self._tails) > MOST_TAILS:
            del self._tails[next(iter(self._tails))]

    def keep(self, batch: Batch, lost: Iterable[Session]) -> None:
        """Remember the ends of the sessions whose entries were kept."""
        others = frozenset(lost)
        for row in batch.rows:
            if (session := session_of(row)) not in others:
                self.note(session, Tail(row.sequence, row.hash))


def row_of(found: Any) -> Row:
    """The row of an entry that a query has returned, whose first columns are those of `Row` without the number."""
    return Row(0, *tuple(found)[:_COLUMNS])


def read_rows(found: Iterable[object], ledger: str) -> list[tuple[Row, LinkedEntry]]:
    """Read entries that the database has returned: what was changed there is an error, and no entry."""
    rows: list[tuple[Row, LinkedEntry]] = []
    for one in found:
        row = row_of(one)
        try:
            check_row(row)
            entry = read_entry(row.body)
        except (Unsound, TypeError, ValueError) as wrong:
            raise LedgerUnavailable(f"an entry of the ledger was changed in the database: {wrong}") from None
        if entry.ledger != ledger:
            raise LedgerUnavailable(f"an entry in the database is of another ledger: {row.id}")
        rows.append((row, entry))
    return rows
