"""Memory twins of the ports that a call passes on its way: ledger, budgets, approver, clock."""

import itertools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from sys import maxsize
from time import monotonic

from licet.core.budget import NOTHING, Spent, overspent, plus, settlement
from licet.core.decision import Usage
from licet.guard.people import Answer, Question
from licet.guard.ports import Claim, Entry, LedgerUnavailable, Reservation
from licet.guard.result import Result, ResultParts

MOST_ENTRIES = 50_000
WHOLE_ENTRIES = 100  # the latest ones, with the value that a call gave back
_AGED = -1 - WHOLE_ENTRIES
_UNSPENT = (0, NOTHING)


class SystemClock:
    """The time of this machine: the system's own functions, since every call asks three times."""

    now = staticmethod(partial(datetime.now, UTC))  # the time of day, in UTC
    monotonic = staticmethod(monotonic)  # seconds that only ever grow


class MemoryClock:
    """A time that moves when it is told to."""

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

    Of all but the last few, what a call gave back is not kept, only how it ended: a process may run for months.
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
            if isinstance(content, ResultParts) and content.value is not None:
                entries[_AGED] = old._replace(content=_without_value(content))


def _without_value(result: ResultParts) -> Result:
    parts = ResultParts(result.tool)
    for name in ResultParts.__slots__:
        if name != "value":
            setattr(parts, name, getattr(result, name))
    return parts.sealed(result._holding)


class MemoryBudgets:
    """What was spent, in this process. Looking and taking is one step for every thread: no limit can be passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Claim] = {}
        # What sessions have spent, by agent and session; calls of each tool; money of an agent and day.
        self._sessions: dict[tuple[str, str], tuple[int, Decimal]] = {}
        self._tools: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._days: dict[tuple[str, str], Decimal] = {}
        self._ids = itertools.count(1)

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved."""
        with self._lock:
            calls, cost = self._sessions.get((agent, session), _UNSPENT)
            of_tool = {tool: calls for tool, calls in self._tools.get((agent, session), {}).items() if calls}
            return Usage(calls, of_tool, cost, self._days.get((agent, day), NOTHING))

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Set aside one call and its cost, or None if a limit would be passed."""
        account = claim.agent, claim.session
        with self._lock:
            calls, cost = self._sessions.get(account, _UNSPENT)
            today = self._days.get((claim.agent, claim.day), NOTHING)
            before = Spent(calls, self._tools[account][claim.tool], cost, today)
            if overspent(before, claim.cost_usd, claim.budget, claim.max_calls) is not None:
                return None
            reservation = Reservation(f"b-{next(self._ids)}", claim, before)
            self._held[reservation.id] = claim
            self._spend(claim, 1, claim.cost_usd)
        return reservation

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Turn a reservation into what was really spent."""
        less = settlement(reservation.claim.cost_usd, cost_usd)
        with self._lock:
            if (claim := self._held.pop(reservation.id, None)) is not None and less:
                self._spend(claim, 0, less)

    async def refund(self, reservation: Reservation) -> None:
        """Give a reservation back."""
        with self._lock:
            if (claim := self._held.pop(reservation.id, None)) is not None:
                self._spend(claim, -1, settlement(claim.cost_usd, NOTHING))

    def _spend(self, claim: Claim, calls: int, cost_usd: Decimal) -> None:
        account, day = (claim.agent, claim.session), (claim.agent, claim.day)
        before, cost = self._sessions.get(account, _UNSPENT)
        self._sessions[account] = before + calls, plus(cost, cost_usd)
        self._tools[account][claim.tool] += calls
        self._days[day] = plus(self._days.get(day, NOTHING), cost_usd)


class MemoryApprover:
    """Answers by a function, and remembers what it was asked; without one, nobody is there."""

    def __init__(self, answer: Callable[[Question], Answer] | None = None) -> None:
        self.asked: list[Question] = []
        self._answer = answer

    async def ask(self, question: Question) -> Answer:
        """The answer, or `absent` if nobody is there."""
        self.asked.append(question)
        return self._answer(question) if self._answer else "absent"
