"""The memory twin of the ledger file: the same chain, the same heads, and nothing on a disk."""

import secrets
from collections.abc import Callable, Iterator
from datetime import datetime
from sys import maxsize

from licet.backends.ledger_entries import Stems
from licet.backends.ledger_keys import SigningKey, generated_key
from licet.backends.memory_records import SystemClock
from licet.core.heads import Head, head_body
from licet.core.merkle import Frontier
from licet.core.receipt import Row, kept_at, time_text
from licet.guard.ports import Entry, LedgerUnavailable


class _End:
    """The end of one session's chain."""

    __slots__ = ("hash", "sequence")

    def __init__(self) -> None:
        self.sequence, self.hash = 0, b""


class ChainedMemoryLedger:
    """Every entry, linked as in a file, in this process. `room` is how many it takes before it is full."""

    keeps_facts = True

    def __init__(
        self,
        room: int | None = None,
        now: Callable[[], datetime] = SystemClock.now,
        ledger: str | None = None,
    ) -> None:
        self.ledger = secrets.token_hex(16) if ledger is None else ledger
        self.rows: list[Row] = []
        self._room, self._now = maxsize if room is None else room, now
        self._stems = Stems()
        self._ends: dict[tuple[str, str], _End] = {}  # of the chains of agents and sessions
        self._frontier = Frontier()  # of the rows that a head was asked for
        self._recorded = ""
        self._key: SigningKey | None = None

    async def record(self, entry: Entry) -> None:
        """Keep an entry."""
        rows = self.rows
        number = len(rows) + 1
        if number > self._room:
            raise LedgerUnavailable("the ledger is full")
        stem = self._stems.of(entry)
        recorded = self._recorded = kept_at(self._now(), self._recorded)
        within = stem[0]
        end = self._ends.get(within.chain)
        if end is None:
            end = self._ends[within.chain] = _End()
        link, sequence = within.link, end.sequence + 1
        row = link(stem, self.ledger, number, sequence, end.hash, recorded)
        end.sequence, end.hash = sequence, row.hash
        rows.append(row)

    @property
    def key(self) -> str:
        """The public key that heads are signed with."""
        return self._signer().public

    def entries(self) -> Iterator[Row]:
        """Every entry in order."""
        return iter(self.rows)

    def heads(self) -> Iterator[Head]:
        """A head over everything so far."""
        frontier, key = self._frontier, self._signer()
        for row in self.rows[frontier.size :]:
            frontier.add(row.hash)
        body = head_body(self.ledger, frontier.size, frontier.root, time_text(self._now()), key.public)
        return iter([Head(frontier.size, body, key.sign(body))])

    def _signer(self) -> SigningKey:
        if self._key is None:
            self._key = generated_key()
        return self._key
