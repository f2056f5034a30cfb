"""Budgets in one SQLite file that any number of processes share, and their memory twin.

Checking a limit and reserving is one transaction. A reservation counts as spent at once, and survives a power cut
before the call has any effect. So a process that dies between reserving and settling needs no repair: its calls count
at their maximum.

Group commit: writes that arrive during a transaction are written together in the next one.

A write that must survive a power cut waits for the disk. It does so in a thread, so that no event loop is blocked.
"""

import asyncio
import itertools
import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from licet.backends.limits import MOST_WRITES, WRITE_SECONDS
from licet.backends.sqlite import FORKS, Format, Patience, SqliteFile, busy
from licet.core.decision.request import NOTHING, Spent, Usage, overspent, plus, settlement
from licet.core.values import money_text
from licet.guard.deadlines import store_deadline
from licet.guard.ports import Claim, Reservation, Unavailable, free_after_fork

_T = TypeVar("_T")


class _Waiting(Struct, frozen=True):
    """A write, and the future that waits for it."""

    act: Callable[[sqlite3.Connection], Any]
    durable: bool
    future: "asyncio.Future[Any]"
    since: float
    until: float  # when the caller gives up


class SqliteBatches:
    """Transactions of one file. Those that are `durable` survive a power cut, the others only the process."""

    def __init__(self, durable: SqliteFile, quick: SqliteFile) -> None:
        self._durable, self._quick = durable, quick
        self.reset_in_child()
        FORKS.add(self)

    def close_for_fork(self) -> None:
        """Writes go on: the files themselves are closed."""

    def reset_in_child(self) -> None:
        """Start empty: in a new object, and in a forked child."""
        self._lock = threading.Lock()
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Waiting]]
        self._waiting = weakref.WeakKeyDictionary()
        self._writing: set[asyncio.Task[None]] = set()
        self._thread: tuple[int, ThreadPoolExecutor] | None = None

    async def write(self, act: Callable[[sqlite3.Connection], _T], *, durable: bool) -> _T:
        """Run a function in a transaction, perhaps together with others; it may be tried several times.

        If it raises an error that is not SQLite's, it must do so before it writes: the transaction is committed for the
        others.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            waiting = self._waiting.get(loop)
            if waiting is None:
                waiting = self._waiting[loop] = []
                task = loop.create_task(self._write(loop, waiting))
                self._writing.add(task)
                task.add_done_callback(self._writing.discard)
        future: asyncio.Future[_T] = loop.create_future()
        waiting.append(_Waiting(act, durable, future, time.monotonic(), store_deadline()))
        return await future

    async def _write(self, loop: asyncio.AbstractEventLoop, waiting: list[_Waiting]) -> None:
        """Write until nothing waits. Only the transaction runs in a thread, the rest in the caller's loop."""
        batch: list[_Waiting] = []
        pauses = Patience(self._durable.path, float("inf"))
        try:
            while waiting:
                batch, waiting[:MOST_WRITES] = waiting[:MOST_WRITES], []
                batch = [one for one in batch if not one.future.done()]  # some callers have given up
                if not batch:
                    continue
                outcomes = await self._written(loop, batch)
                if outcomes is not None:
                    _resolve(batch, outcomes)
                    continue
                waiting[:0] = batch  # the file is busy: try again, together with writes that have arrived meanwhile
                self._give_up(waiting)
                await asyncio.sleep(pauses.next_pause())
        finally:
            with self._lock:
                self._waiting.pop(loop, None)
            # otherwise the remaining callers would wait for ever
            _resolve([*batch, *waiting], Unavailable("writing was cancelled"))

    def _give_up(self, waiting: list[_Waiting]) -> None:
        """End the waits whose deadline has passed."""
        now = time.monotonic()
        late = [one for one in waiting if one.until <= now]
        waiting[:] = [one for one in waiting if one.until > now]
        for one in late:
            _resolve([one], busy(self._durable.path, now - one.since))

    async def _written(
        self, loop: asyncio.AbstractEventLoop, batch: list[_Waiting]
    ) -> "list[Any] | Unavailable | None":
        """Return the result of each write, or why none was possible; None if the file is busy."""
        file = self._durable if any(one.durable for one in batch) else self._quick
        step = partial(file.try_write, partial(_outcomes, batch), WRITE_SECONDS)
        try:
            done = await loop.run_in_executor(self._executor(), step)
        except Unavailable as wrong:
            return wrong
        except Exception as wrong:  # any error must wake the callers
            return Unavailable(f"{file.path} cannot be written: {type(wrong).__name__}: {wrong}")
        return None if done is None else done[0]

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._thread is None or self._thread[0] != os.getpid():  # a forked child has no thread
                self._thread = os.getpid(), ThreadPoolExecutor(1, "licet sqlite")
            return self._thread[1]


def _outcomes(batch: list[_Waiting], db: sqlite3.Connection) -> list[Any]:
    return [_outcome(one, db) for one in batch]


def _outcome(one: _Waiting, db: sqlite3.Connection) -> Any:
    try:
        return one.act(db)
    except sqlite3.Error:
        raise  # the complete transaction is tried again or rolled back
    except Exception as wrong:
        return wrong


def _resolve(batch: list[_Waiting], outcomes: "list[Any] | Unavailable") -> None:
    for place, one in enumerate(batch):
        if one.future.done():
            continue
        # One error for each caller, because a raised error keeps a traceback.
        outcome = Unavailable(*outcomes.args) if isinstance(outcomes, Unavailable) else outcomes[place]
        if isinstance(outcome, Exception):
            one.future.set_exception(outcome)
        else:
            one.future.set_result(outcome)


# Money is text: SQLite has only floats, and integers that are too small for 15 decimals.
_SCHEMA = """
CREATE TABLE sessions (
    agent TEXT NOT NULL, session TEXT NOT NULL, calls INTEGER NOT NULL, cost_usd TEXT NOT NULL,
    PRIMARY KEY (agent, session)
) WITHOUT ROWID;
CREATE TABLE tools (
    agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, calls INTEGER NOT NULL,
    cost_usd TEXT NOT NULL DEFAULT '0', PRIMARY KEY (agent, session, tool)
) WITHOUT ROWID;
CREATE TABLE days (
    agent TEXT NOT NULL, day TEXT NOT NULL, cost_usd TEXT NOT NULL, calls INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent, day)
) WITHOUT ROWID;
CREATE TABLE held (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, day TEXT NOT NULL,
    cost_usd TEXT NOT NULL, since TEXT NOT NULL, process TEXT NOT NULL, lost TEXT
) WITHOUT ROWID;
"""
# Format 1 did not separate the money of tools, so each tool of a session gets the total of the session. It did not
# count the calls of a day either, and no policy could limit them, so they are counted from now on.
_SINCE_1 = """
ALTER TABLE tools ADD COLUMN cost_usd TEXT NOT NULL DEFAULT '0';
ALTER TABLE days ADD COLUMN calls INTEGER NOT NULL DEFAULT 0;
UPDATE tools SET cost_usd = (
    SELECT cost_usd FROM sessions WHERE sessions.agent = tools.agent AND sessions.session = tools.session
)
"""
FORMAT = Format(0x6C696362, 2, _SCHEMA, {1: _SINCE_1})  # `licb`: licet's budgets
_OF_SESSION = "SELECT calls, cost_usd FROM sessions WHERE agent = ? AND session = ?"
_OF_TOOL = "SELECT calls, cost_usd FROM tools WHERE agent = ? AND session = ? AND tool = ?"
_OF_TOOLS = "SELECT tool, calls, cost_usd FROM tools WHERE agent = ? AND session = ?"
_OF_DAY = "SELECT calls, cost_usd FROM days WHERE agent = ? AND day = ?"
_SET_SESSION = "INSERT OR REPLACE INTO sessions (agent, session, calls, cost_usd) VALUES (?, ?, ?, ?)"
_SET_TOOL = "INSERT OR REPLACE INTO tools (agent, session, tool, calls, cost_usd) VALUES (?, ?, ?, ?, ?)"
_SET_DAY = "INSERT OR REPLACE INTO days (agent, day, calls, cost_usd) VALUES (?, ?, ?, ?)"
# Nobody reads `process` and `lost` any more.
_HOLD = "INSERT INTO held (id, agent, session, tool, day, cost_usd, since, process) VALUES (?, ?, ?, ?, ?, ?, ?, '')"
_HELD = "SELECT agent, session, tool, day, cost_usd FROM held WHERE id = ?"
_RELEASE = "DELETE FROM held WHERE id = ?"


class _Account(Struct, frozen=True):
    """The sums that a call counts in: its session, its tool in that session, and its agent's day."""

    agent: str
    session: str
    tool: str
    day: str


class FlushesFirst(Protocol):
    """A ledger that makes other files durable before it keeps the next entry."""

    def flush_first(self, flush: Callable[[], None]) -> None:
        """Run a function before each transaction, in the thread that writes. If it raises, no entry is kept."""


class SqliteBudgets:
    """Budgets in a file that only its owner can read. Amounts are exact decimals, stored as text.

    Only a reservation must be on the disk before the call runs: if a power cut undoes a settlement, the call counts at
    its maximum. By itself, the store waits for the disk with each reservation. If a ledger `flushes_first`, the disk is
    left to the decision that follows, which is kept before the call runs and waits for the disk anyway.
    """

    def __init__(self, path: str | os.PathLike[str], flushed_by: FlushesFirst | None = None) -> None:
        self.path = os.path.abspath(path)
        self._quick = SqliteFile(path, FORMAT, checkpoints=flushed_by is None)
        self._durable = SqliteFile(path, FORMAT, "FULL")
        self._batches = SqliteBatches(self._durable, self._quick) if flushed_by is None else None
        self._refunds: set[asyncio.Task[None]] = set()
        self._unflushed = False
        if flushed_by is not None:
            flushed_by.flush_first(self._flush)

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        def read(db: sqlite3.Connection) -> Usage:
            db.execute("BEGIN")  # read all three in one snapshot
            try:
                (calls, cost), (calls_today, today) = _of_session(db, agent, session), _of_day(db, agent, day)
                tools = {tool: _sum(found) for tool, *found in db.execute(_OF_TOOLS, (agent, session))}
                of_tool = {tool: called for tool, (called, _) in tools.items() if called}
                cost_of_tool = {tool: spent for tool, (_, spent) in tools.items() if spent}
                return Usage(calls, of_tool, cost, today, cost_of_tool, calls_today)
            finally:
                db.execute("ROLLBACK")

        return await self._quick.read(read)

    async def reserve(self, claim: Claim) -> Reservation | None:
        name = f"b-{secrets.token_hex(8)}"
        take = partial(self._take, name, claim)
        if self._batches is None:
            taken = await self._quick.write(take)
            self._unflushed = True
            return taken
        taking = asyncio.ensure_future(self._batches.write(take, durable=True))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._give_back)  # the caller is gone, so the reservation is released
            raise

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        settlement(reservation.claim.cost_usd, cost_usd)
        await self._settled(reservation, cost_usd)

    async def refund(self, reservation: Reservation) -> None:
        await self._settled(reservation, None)

    async def _settled(self, reservation: Reservation, cost_usd: Decimal | None) -> None:
        settle = partial(_settle, reservation.id, cost_usd)
        if self._batches is None and self._quick.write_now(settle):
            return
        # Written even if the caller is cancelled: otherwise the call would stay at its maximum.
        busy = self._quick.write(settle) if self._batches is None else self._batches.write(settle, durable=False)
        await asyncio.shield(asyncio.ensure_future(busy))

    def close(self) -> None:
        self._durable.close()
        self._quick.close()

    def __repr__(self) -> str:
        return f"SqliteBudgets({self.path!r})"

    def _flush(self) -> None:
        """Wait until every reservation is on the disk."""
        if self._unflushed:
            self._unflushed = False  # first: one that is made meanwhile is flushed with its own decision
            try:
                self._durable.flush()
            except BaseException:
                self._unflushed = True
                raise

    def _take(self, name: str, claim: Claim, db: sqlite3.Connection) -> Reservation | None:
        account = _Account(claim.agent, claim.session, claim.tool, claim.day)
        (calls, cost), (calls_of_tool, cost_of_tool), (calls_today, today) = sums = _sums(db, account)
        before = Spent(calls, calls_of_tool, cost, today, cost_of_tool, calls_today)
        if overspent(before, claim.cost_usd, claim.budget, claim.max_calls, claim.max_cost_usd) is not None:
            return None
        _spend(db, account, sums, 1, claim.cost_usd)
        since = datetime.now(UTC).isoformat()
        db.execute(_HOLD, (name, *astuple(account), money_text(claim.cost_usd), since))
        return Reservation(name, claim, before)

    def _give_back(self, taking: "asyncio.Future[Reservation | None]") -> None:
        if taking.cancelled() or taking.exception() is not None or (taken := taking.result()) is None:
            return
        task = taking.get_loop().create_task(self.refund(taken))
        self._refunds.add(task)
        task.add_done_callback(self._refunds.discard)


def _settle(name: str, cost_usd: Decimal | None, db: sqlite3.Connection) -> None:
    """End a reservation at its real cost, or without one. A reservation that has ended already is not changed."""
    found = db.execute(_HELD, (name,)).fetchone()
    if found is None:
        return
    account, reserved = _Account(*found[:4]), Decimal(found[4])
    calls, more = -1 if cost_usd is None else 0, settlement(reserved, cost_usd or NOTHING)
    if calls or more:
        _spend(db, account, _sums(db, account), calls, more)
    db.execute(_RELEASE, (name,))


_Sums = tuple[tuple[int, Decimal], tuple[int, Decimal], tuple[int, Decimal]]


def _sums(db: sqlite3.Connection, account: _Account) -> _Sums:
    """The calls and the cost of a session, of its tool, and of its agent's day."""
    agent, session = account.agent, account.session
    return _of_session(db, agent, session), _of_tool(db, account), _of_day(db, agent, account.day)


def _spend(db: sqlite3.Connection, account: _Account, sums: _Sums, calls: int, cost_usd: Decimal) -> None:
    """Add to these sums."""
    agent, session = account.agent, account.session
    for (called, cost), set_to, whose in zip(
        sums,
        (_SET_SESSION, _SET_TOOL, _SET_DAY),
        ((agent, session), (agent, session, account.tool), (agent, account.day)),
        strict=True,
    ):
        db.execute(set_to, (*whose, called + calls, money_text(plus(cost, cost_usd))))


def _of_session(db: sqlite3.Connection, agent: str, session: str) -> tuple[int, Decimal]:
    return _sum(db.execute(_OF_SESSION, (agent, session)).fetchone())


def _of_tool(db: sqlite3.Connection, account: _Account) -> tuple[int, Decimal]:
    return _sum(db.execute(_OF_TOOL, (account.agent, account.session, account.tool)).fetchone())


def _of_day(db: sqlite3.Connection, agent: str, day: str) -> tuple[int, Decimal]:
    return _sum(db.execute(_OF_DAY, (agent, day)).fetchone())


def _sum(found: Sequence[Any] | None) -> tuple[int, Decimal]:
    return (found[0], Decimal(found[1])) if found else (0, NOTHING)


class _Sum:
    """Calls and their cost, spent and reserved."""

    __slots__ = ("calls", "cost_usd")

    def __init__(self) -> None:
        self.calls = 0
        self.cost_usd = NOTHING


class MemoryBudgets:
    """Budgets in this process. Checking and reserving is one step for every thread, so no limit is exceeded."""

    def __init__(self) -> None:
        self._lock = free_after_fork(threading.Lock())
        self._held: dict[str, Claim] = {}
        self._sessions: dict[tuple[str, str], _Sum] = {}  # by agent and session
        self._tools: dict[tuple[str, str], dict[str, _Sum]] = {}  # the same, by tool
        self._days: dict[tuple[str, str], _Sum] = {}  # by agent and day
        self._ids = itertools.count(1)

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved."""
        with self._lock:
            session_sum, today = self._sessions.get((agent, session)) or _Sum(), self._days.get((agent, day)) or _Sum()
            tools = self._tools.get((agent, session), {})
            of_tool = {tool: spent.calls for tool, spent in tools.items() if spent.calls}
            cost_of_tool = {tool: spent.cost_usd for tool, spent in tools.items() if spent.cost_usd}
            return Usage(session_sum.calls, of_tool, session_sum.cost_usd, today.cost_usd, cost_of_tool, today.calls)

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Set aside one call and its cost, or None if a limit would be passed."""
        with self._lock:
            session, tool, day = sums = self._sums(claim)
            spent = Spent(session.calls, tool.calls, session.cost_usd, day.cost_usd, tool.cost_usd, day.calls)
            if overspent(spent, claim.cost_usd, claim.budget, claim.max_calls, claim.max_cost_usd) is not None:
                return None
            for one in sums:
                one.calls += 1
                one.cost_usd = plus(one.cost_usd, claim.cost_usd)
            name = f"b-{next(self._ids)}"
            self._held[name] = claim
        return Reservation(name, claim, spent)

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Turn a reservation into what was really spent."""
        self._end(reservation, 0, settlement(reservation.claim.cost_usd, cost_usd))

    async def refund(self, reservation: Reservation) -> None:
        """Give a reservation back."""
        self._end(reservation, -1, settlement(reservation.claim.cost_usd, NOTHING))

    def _end(self, reservation: Reservation, calls: int, less: Decimal) -> None:
        with self._lock:
            claim = self._held.pop(reservation.id, None)
            if claim is not None:
                for one in self._sums(claim):
                    one.calls += calls
                    one.cost_usd = plus(one.cost_usd, less)

    def _sums(self, claim: Claim) -> tuple[_Sum, _Sum, _Sum]:
        """The sums of the session, of the tool in it, and of the agent's day."""
        account = claim.agent, claim.session
        return (
            self._sessions.setdefault(account, _Sum()),
            self._tools.setdefault(account, {}).setdefault(claim.tool, _Sum()),
            self._days.setdefault((claim.agent, claim.day), _Sum()),
        )
