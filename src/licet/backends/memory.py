"""Memory twins of the ledger and the clock. The ledger keeps the same chains and checkpoints as the file."""

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic

from licet.backends.keys import SigningKey, generated_key
from licet.core.ledger.entry import (
    START,
    Checkpoint,
    Entry,
    LinkedEntry,
    Row,
    Tail,
    checkpoint_body,
    link,
    read_entry,
    recorded_at,
    time_text,
)
from licet.core.ledger.merkle import Frontier
from licet.guard.fork_locks import free_after_fork
from licet.guard.ports import LedgerUnavailable

MOST_ENTRIES = 20_000  # entries that one process keeps, because it may run for months


class SystemClock:
    """The time of this machine."""

    now = staticmethod(partial(datetime.now, UTC))  # the time of day, in UTC
    monotonic = staticmethod(monotonic)  # monotonic seconds


class MemoryClock:
    """A clock that moves only when `advance` is called."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start, self._passed = start, 0.0

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """A monotonic clock, in seconds."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._passed += seconds


class MemoryLedger:
    """The latest entries, linked as in a file, in this process. It is full after `quota` entries.

    It drops the oldest entry when it has `most`. The chain and the tree keep growing then, but the remaining entries
    cannot be verified from the beginning.
    """

    def __init__(
        self,
        quota: int | None = None,
        now: Callable[[], datetime] = SystemClock.now,
        ledger: str | None = None,
        most: int = MOST_ENTRIES,
    ) -> None:
        self.ledger = secrets.token_hex(16) if ledger is None else ledger
        self.rows: deque[Row] = deque(maxlen=most)
        self._quota, self._now = quota, now
        self._tails: dict[tuple[str, str], Tail] = {}  # the ends of the chains, by agent and session
        self._frontier = Frontier()
        self._recorded = ""
        self._key: SigningKey | None = None
        self._lock = free_after_fork(threading.Lock())  # several event loops, each in its thread, may share a ledger

    async def record(self, entry: Entry) -> None:
        """Store an entry."""
        session = entry.agent, entry.session
        with self._lock:
            number = self._frontier.size + 1
            if self._quota is not None and number > self._quota:
                raise LedgerUnavailable("the ledger is full")
            recorded = recorded_at(self._now(), self._recorded)
            row = link(entry, self.ledger, number, self._tails.get(session, START), recorded)
            self._recorded, self._tails[session] = recorded, Tail(row.sequence, row.hash, number)
            self._frontier.add(row.hash)
            self.rows.append(row)

    @property
    def entries(self) -> Sequence[LinkedEntry]:
        """The stored entries, the oldest first."""
        return [read_entry(row.body) for row in self.rows]

    @property
    def receipts(self) -> Sequence[LinkedEntry]:
        """The receipts among the entries, the oldest first."""
        return [entry for entry in self.entries if entry.kind == "receipt"]

    @property
    def key(self) -> str:
        """The public key that signs checkpoints."""
        return self._signer().public

    def checkpoints(self) -> Iterator[Checkpoint]:
        """One checkpoint over all entries so far."""
        frontier, key = self._frontier, self._signer()
        body = checkpoint_body(self.ledger, frontier.size, frontier.root, time_text(self._now()), key.public)
        return iter([Checkpoint(frontier.size, body, key.sign(body))])

    def _signer(self) -> SigningKey:
        if self._key is None:
            self._key = generated_key()
        return self._key
