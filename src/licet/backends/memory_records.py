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
from licet.guard.people import Answer, Question
from licet.guard.ports import Claim, Entry, LedgerUnavailable, Reservation
from licet.guard.result import Result, ResultParts

MOST_ENTRIES = 50_000
MOST_ASKED = 100  # questions that are remembered
WHOLE_ENTRIES = 100  # the latest ones, with the value that a call gave back
_AGED = -1 - WHOLE_ENTRIES
_SHORT, _SHORT_TEXT = frozenset((bool, int, float)), 100
_NO_DAY = 0, NOTHING
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


class _Account:
    """What a session has spent and set aside."""

    __slots__ = ("calls", "calls_of_tool", "cost_usd", "cost_usd_of_tool")

    def __init__(self) -> None:
        self.calls = 0
        self.calls_of_tool: dict[str, int] = {}
        self.cost_usd = NOTHING
        self.cost_usd_of_tool: dict[str, Decimal] = {}


class MemoryBudgets:
    """What was spent, in this process. Looking and taking is one step for every thread: no limit can be passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Claim] = {}
        self._accounts: dict[tuple[str, str], _Account] = {}  # by agent and session
        self._days: dict[tuple[str, str], tuple[int, Decimal]] = {}  # by agent and day: calls, and what they cost
        self._ids = itertools.count(1)

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved."""
        with self._lock:
            account = self._accounts.get((agent, session)) or _Account()
            of_tool = {tool: calls for tool, calls in account.calls_of_tool.items() if calls}
            cost_of_tool = {tool: cost for tool, cost in account.cost_usd_of_tool.items() if cost}
            calls_today, today = self._days.get((agent, day), _NO_DAY)
            return Usage(account.calls, of_tool, account.cost_usd, today, cost_of_tool, calls_today)

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Set aside one call and its cost, or None if a limit would be passed."""
        agent, session, tool, day, cost, budget, max_calls, max_cost = claim
        with self._lock:
            account = self._accounts.get((agent, session))
            if account is None:
                account = self._accounts[agent, session] = _Account()
            calls_today, today = self._days.get((agent, day), _NO_DAY)
            of_tool, cost_of_tool = account.calls_of_tool.get(tool, 0), account.cost_usd_of_tool.get(tool, NOTHING)
            before = _new(Spent, (account.calls, of_tool, account.cost_usd, today, cost_of_tool, calls_today))
            if overspent(before, cost, budget, max_calls, max_cost) is not None:
                return None
            account.calls += 1
            account.calls_of_tool[tool] = of_tool + 1
            if cost:
                account.cost_usd = plus(account.cost_usd, cost)
                account.cost_usd_of_tool[tool] = plus(cost_of_tool, cost)
                today = plus(today, cost)
            self._days[agent, day] = calls_today + 1, today
            name = f"b-{next(self._ids)}"
            self._held[name] = claim
        made: Reservation = _new(Reservation, (name, claim, before))
        return made

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Turn a reservation into what was really spent."""
        reserved = reservation.claim.cost_usd
        less = settlement(reserved, cost_usd) if cost_usd is not reserved else NOTHING
        with self._lock:
            claim = self._held.pop(reservation.id, None)
            if claim is not None and less:
                self._give_back(claim, 0, less)

    async def refund(self, reservation: Reservation) -> None:
        """Give a reservation back."""
        with self._lock:
            claim = self._held.pop(reservation.id, None)
            if claim is not None:
                self._give_back(claim, -1, settlement(claim.cost_usd, NOTHING))

    def _give_back(self, claim: Claim, calls: int, less: Decimal) -> None:
        account, tool, day = self._accounts[claim.agent, claim.session], claim.tool, (claim.agent, claim.day)
        account.calls += calls
        account.calls_of_tool[tool] += calls
        account.cost_usd = plus(account.cost_usd, less)
        account.cost_usd_of_tool[tool] = plus(account.cost_usd_of_tool.get(tool, NOTHING), less)
        calls_today, today = self._days[day]
        self._days[day] = calls_today + calls, plus(today, less)


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
