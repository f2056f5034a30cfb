"""Memory twins of the ports that a call passes on its way: ledger, budgets, approver, clock."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from time import monotonic

from licet.core.decision import Usage
from licet.guard.ports import Answer, Claim, Entry, LedgerUnavailable, Question, Reservation


class SystemClock:
    """The time of this machine."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        return monotonic()


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
    """Entries in a list. `room` is how many it takes before it is full."""

    def __init__(self, room: int | None = None) -> None:
        self.entries: list[Entry] = []
        self._room = room

    async def record(self, entry: Entry) -> None:
        """Keep an entry."""
        if self._room is not None and len(self.entries) >= self._room:
            raise LedgerUnavailable("the ledger is full")
        self.entries.append(entry)


class MemoryBudgets:
    """What was spent, in this process. Nothing awaits between looking and taking, so a limit cannot be passed."""

    def __init__(self) -> None:
        self._held: dict[str, Reservation] = {}
        self._settled: list[tuple[Claim, Decimal]] = []
        self._ids = itertools.count(1)

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved."""
        return self._usage(agent, session, day)

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Set aside one call and its cost, or None if a limit would be passed."""
        used, budget = self._usage(claim.agent, claim.session, claim.day), claim.budget
        wanted = (
            (used.calls + 1, budget.max_calls_per_session),
            (used.calls_of_tool.get(claim.tool, 0) + 1, claim.max_calls),
            (used.cost_usd + claim.cost_usd, budget.max_cost_usd),
            (used.cost_usd_today + claim.cost_usd, budget.max_cost_usd_per_day),
        )
        if any(limit is not None and amount > limit for amount, limit in wanted):
            return None
        reservation = Reservation(f"b-{next(self._ids)}", claim)
        self._held[reservation.id] = reservation
        return reservation

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Turn a reservation into what was really spent."""
        if self._held.pop(reservation.id, None) is not None:
            self._settled.append((reservation.claim, cost_usd))

    async def refund(self, reservation: Reservation) -> None:
        """Give a reservation back."""
        self._held.pop(reservation.id, None)

    def _usage(self, agent: str, session: str, day: str) -> Usage:
        spent = [*self._settled, *((held.claim, held.claim.cost_usd) for held in self._held.values())]
        own = [(claim, cost) for claim, cost in spent if claim.agent == agent]
        here = [(claim, cost) for claim, cost in own if claim.session == session]
        tools = [claim.tool for claim, _ in here]
        return Usage(
            calls=len(here),
            calls_of_tool={tool: tools.count(tool) for tool in tools},
            cost_usd=sum((cost for _, cost in here), Decimal(0)),
            cost_usd_today=sum((cost for claim, cost in own if claim.day == day), Decimal(0)),
        )


class MemoryApprover:
    """Answers by a function, and remembers what it was asked; without one, nobody is there."""

    def __init__(self, answer: Callable[[Question], Answer] | None = None) -> None:
        self.asked: list[Question] = []
        self._answer = answer

    async def ask(self, question: Question) -> Answer:
        """The answer, or `absent` if nobody is there."""
        self.asked.append(question)
        return self._answer(question) if self._answer else "absent"
