"""Memory twins of the ports that a call passes on its way: ledger, budgets, approver, clock."""

import itertools
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from sys import maxsize
from time import monotonic

from licet.core.budget import NOTHING, Spent, overspent, plus, settlement
from licet.core.decision import Usage
from licet.core.manifest import Budget
from licet.guard.people import Answer, Question
from licet.guard.ports import Claim, Entry, LedgerUnavailable, Reservation
from licet.guard.result import Result, ResultParts

MOST_ENTRIES = 50_000
MOST_ASKED = 100  # questions that are remembered
WHOLE_ENTRIES = 100  # the latest ones, with the value that a call gave back
_AGED = -1 - WHOLE_ENTRIES
_SHORT, _SHORT_TEXT = frozenset((bool, int, float)), 100
MOST_LINES = 10_000  # claims that are known by their identity; the sums behind them stay
_new = tuple.__new__  # for what is a named tuple: making it so costs a third of calling its class


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


def _without_value(result: ResultParts) -> Result:
    parts = ResultParts(result.tool)
    for name in ResultParts.__slots__:
        if name != "value":
            setattr(parts, name, getattr(result, name))
    return parts.sealed(result._holding)


class _Sum:
    """Calls, and what they cost: spent and set aside."""

    __slots__ = ("calls", "cost_usd")

    def __init__(self) -> None:
        self.calls = 0
        self.cost_usd = NOTHING


class MemoryBudgets:
    """What was spent, in this process. Looking and taking is one step for every thread: no limit can be passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Claim] = {}
        self._sessions: dict[tuple[str, str], _Sum] = {}  # by agent and session
        self._tools: dict[tuple[str, str], dict[str, _Sum]] = {}  # the same, by tool
        self._days: dict[tuple[str, str], _Sum] = {}  # by agent and day
        # The sums that a call counts in, and what it wants, by the identity of its claim: most claims come many times.
        self._lines: dict[int, _Line] = {}
        self._ids = itertools.count(1)

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved."""
        with self._lock:
            whole, today = self._sessions.get((agent, session)) or _Sum(), self._days.get((agent, day)) or _Sum()
            tools = self._tools.get((agent, session), {})
            of_tool = {tool: spent.calls for tool, spent in tools.items() if spent.calls}
            cost_of_tool = {tool: spent.cost_usd for tool, spent in tools.items() if spent.cost_usd}
            return Usage(whole.calls, of_tool, whole.cost_usd, today.cost_usd, cost_of_tool, today.calls)

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Set aside one call and its cost, or None if a limit would be passed."""
        with self._lock:
            known = self._lines.get(id(claim))
            if known is None:
                known = self._line(claim)
            _, whole, of_tool, today, cost, limits = known
            calls, calls_of_tool, calls_today = whole.calls, of_tool.calls, today.calls
            spent = calls, calls_of_tool, whole.cost_usd, today.cost_usd, of_tool.cost_usd, calls_today
            if overspent(spent, cost, *limits) is not None:
                return None
            if cost:
                for one in (whole, of_tool, today):
                    one.cost_usd = plus(one.cost_usd, cost)
            whole.calls, of_tool.calls, today.calls = calls + 1, calls_of_tool + 1, calls_today + 1
            name = f"b-{next(self._ids)}"
            self._held[name] = claim
        made: Reservation = _new(Reservation, (name, claim, _new(Spent, spent)))
        return made

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Turn a reservation into what was really spent."""
        reserved = reservation[1].cost_usd
        if cost_usd is reserved:  # nothing goes back, and to forget one thing is one step
            self._held.pop(reservation[0], None)
            return
        self._end(reservation, 0, settlement(reserved, cost_usd))

    async def refund(self, reservation: Reservation) -> None:
        """Give a reservation back."""
        self._end(reservation, -1, settlement(reservation.claim.cost_usd, NOTHING))

    def _end(self, reservation: Reservation, calls: int, less: Decimal) -> None:
        with self._lock:
            claim = self._held.pop(reservation.id, None)
            if claim is not None:
                for one in self._line(claim)[1:4]:
                    one.calls += calls
                    one.cost_usd = plus(one.cost_usd, less)

    def _line(self, claim: Claim) -> "_Line":
        account = claim[:2]
        whole = self._sessions.setdefault(account, _Sum())
        of_tool = self._tools.setdefault(account, {}).setdefault(claim.tool, _Sum())
        today = self._days.setdefault((claim.agent, claim.day), _Sum())
        if len(self._lines) >= MOST_LINES:
            self._lines.clear()
        limits = claim.budget, claim.max_calls, claim.max_cost_usd
        line = self._lines[id(claim)] = claim, whole, of_tool, today, claim.cost_usd, limits
        return line


# A claim, which as long as it is here no other can have the identity of, the sums of its session, its tool and its day,
# what it costs, and its limits.
_Line = tuple[Claim, _Sum, _Sum, _Sum, Decimal, tuple[Budget, int | None, Decimal | None]]


class MemoryApprover:
    """Answers by a function, and remembers what it was asked last; without one, nobody is there."""

    def __init__(self, answer: Callable[[Question], Answer] | None = None) -> None:
        self.asked: list[Question] = []
        self._answer = answer

    async def ask(self, question: Question) -> Answer:
        """The answer, or `absent` if nobody is there."""
        self.asked.append(question)
        del self.asked[:-MOST_ASKED]
        return self._answer(question) if self._answer else "absent"
