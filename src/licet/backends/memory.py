"""Memory twins of the ports that a call passes on its way: ledger, budgets, approver, clock.

The memory twin of the ledger file: the same chain, the same heads, and nothing on a disk.
"""

import secrets
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from sys import maxsize
from time import monotonic

from licet.backends.keys import SigningKey, generated_key
from licet.core.ledger.entry import Head, Row, head_body, kept_at, time_text
from licet.core.ledger.merkle import Frontier
from licet.guard.ports import Entry, LedgerUnavailable
from licet.guard.receipt import Stems
from licet.guard.result import ResultParts

MOST_ENTRIES = 50_000
WHOLE_ENTRIES = 100  # the latest ones, with the value that a call gave back
_AGED = -1 - WHOLE_ENTRIES
_SHORT, _SHORT_TEXT = frozenset((bool, int, float)), 100


class SystemClock:
    """The time of this machine: the system's own functions, since every call asks three times."""

    now = staticmethod(partial(datetime.now, UTC))  # the time of day, in UTC
    monotonic = staticmethod(monotonic)  # seconds that only ever grow


class MemoryClock:
    """A clock that moves only when `advance` is called."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start, self._passed = start, 0.0

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._passed += seconds


class MemoryLedger:
    """The latest entries, in this process. `room` is how many it takes before it is full.

    Of all but the last few, what a call gave back is not kept unless it is short: a process may run for months.
    """

    def __init__(self, room: int | None = None, most: int = MOST_ENTRIES) -> None:
        self.entries: deque[Entry] = deque(maxlen=most)
        self._room = maxsize if room is None else room

    async def record(self, entry: Entry) -> None:
        """Keep an entry."""
        entries = self.entries
        if len(entries) >= self._room:
            raise LedgerUnavailable("the ledger is full")
        entries.append(entry)
        if len(entries) > WHOLE_ENTRIES:
            content = (old := entries[_AGED]).content
            if isinstance(content, ResultParts) and not _is_short(content.value):
                entries[_AGED] = old._replace(content=_without_value(content))


def _is_short(value: object) -> bool:
    return value is None or type(value) in _SHORT or (type(value) is str and len(value) <= _SHORT_TEXT)


def _without_value(result: ResultParts) -> ResultParts:
    parts = ResultParts(result.tool)
    for name, field in vars(result).items():
        if name != "value":
            setattr(parts, name, field)
    return parts


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
