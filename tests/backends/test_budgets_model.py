"""Budgets in every order of reserving, settling, refunding, crashing and restarting, compared with a naive sum."""

import asyncio
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from effort import LONG
from licet.backends.budgets import MemoryBudgets, SqliteBudgets
from licet.backends.postgres.database import Database
from licet.backends.postgres.postgres_budgets import PostgresBudgets
from licet.core.decision.request import Usage
from licet.core.policy.terms import Budget
from licet.guard.ports import Budgets, Claim, Reservation
from postgres_server import fresh
from reservations import EMPTY

AGENTS, SESSIONS, TOOLS, DAYS = ("a", "b"), ("s", "u"), ("t", "v"), ("2026-01-31", "2026-02-01")
COSTS = ("0", "0.01", "0.1", "0.25", "0.000000000000001")
LIMITS = st.builds(
    Budget,
    st.sampled_from((None, 3, 6)),
    st.sampled_from((None, Decimal("0.3"), Decimal("0.500000000000001"))),
    st.sampled_from((None, Decimal("0.4"), Decimal(1))),
    st.sampled_from((None, 4, 7)),
)
MONEY = st.builds(
    Budget,
    max_cost_usd=st.sampled_from((None, Decimal("0.5"), Decimal(2))),
    max_cost_usd_per_day=st.sampled_from((None, Decimal("0.7"), Decimal(3))),
)


@dataclass
class Modelled:
    """One admitted call: what it counts, and whether it is still unsettled."""

    store: int
    reservation: Reservation
    counts: Fraction
    calls: int = 1
    open: bool = True


class MemoryModel(RuleBasedStateMachine):
    """Two users of one store of budgets, and a list of every admitted call."""

    is_exact = True  # whether a call is only refused if it does not fit

    def __init__(self) -> None:
        super().__init__()
        self.stores: list[Any] = self.opened()
        self.made: list[Modelled] = []
        self.limits, self.max_calls, self.max_cost = Budget(), None, None

    def opened(self) -> list[Budgets]:
        return [MemoryBudgets()] * 2

    @initialize(limits=LIMITS, max_calls=st.sampled_from((None, 2)), max_cost=st.sampled_from((None, Decimal("0.2"))))
    def limited(self, limits: Budget, max_calls: Any, max_cost: Any) -> None:
        self.limits, self.max_calls, self.max_cost = limits, max_calls, max_cost

    # The model adds everything up again each time, as fractions.

    def counted(self, **where: str) -> tuple[int, Fraction]:
        fitting = [
            one
            for one in self.made
            if all(getattr(one.reservation.claim, key) == value for key, value in where.items())
        ]
        return sum(one.calls for one in fitting), sum((one.counts for one in fitting), Fraction(0))

    def fits(self, claim: Claim) -> bool:
        calls, cost = self.counted(agent=claim.agent, session=claim.session)
        of_tool, cost_of_tool = self.counted(agent=claim.agent, session=claim.session, tool=claim.tool)
        calls_today, today = self.counted(agent=claim.agent, day=claim.day)
        more = Fraction(claim.cost_usd)
        limits = (
            (calls + 1, self.limits.max_calls_per_session),
            (of_tool + 1, self.max_calls),
            (cost + more, self.limits.max_cost_usd),
            (today + more, self.limits.max_cost_usd_per_day),
            (calls_today + 1, self.limits.max_calls_per_day),
            (cost_of_tool + more, self.max_cost),
        )
        return all(limit is None or wanted <= Fraction(limit) for wanted, limit in limits)

    def let_through(self, store: int, reservation: Reservation) -> None:
        self.made.append(Modelled(store, reservation, Fraction(reservation.claim.cost_usd)))

    # What may happen

    @rule(
        stores=st.lists(st.integers(0, 1), min_size=1, max_size=5),
        agent=st.sampled_from(AGENTS),
        session=st.sampled_from(SESSIONS),
        tool=st.sampled_from(TOOLS),
        day=st.sampled_from(DAYS),
        cost=st.sampled_from(COSTS),
    )
    def reserve_at_once(self, stores: list[int], agent: str, session: str, tool: str, day: str, cost: str) -> None:
        """Several calls of one kind at the same time in both processes: as many are admitted as fit."""
        claim = Claim(agent, session, tool, day, Decimal(cost), self.limits, self.max_calls, self.max_cost)

        async def all_of_them() -> list[Reservation | None]:
            return list(await asyncio.gather(*(self.stores[store].reserve(claim) for store in stores)))

        answers = asyncio.run(all_of_them())
        granted = [(store, kept) for store, kept in zip(stores, answers, strict=True) if kept is not None]
        for store, kept in sorted(granted, key=lambda one: one[1].before.calls):  # in the order in which they were
            assert self.fits(claim)
            if not self.is_exact:
                self.let_through(store, kept)
                continue
            calls, spent = self.counted(agent=agent, session=session)
            assert (kept.before.calls, Fraction(kept.before.cost_usd)) == (calls, spent)
            of_tool = kept.before.calls_of_tool, Fraction(kept.before.cost_usd_of_tool)
            assert of_tool == self.counted(agent=agent, session=session, tool=tool)
            today = kept.before.calls_today, Fraction(kept.before.cost_usd_today)
            assert today == self.counted(agent=agent, day=day)
            self.let_through(store, kept)
        if len(granted) < len(stores) and self.is_exact:
            assert not self.fits(claim)

    @precondition(lambda self: self.made)
    @rule(
        data=st.data(),
        store=st.integers(0, 1),
        part=st.sampled_from((Fraction(0), Fraction(1, 5), Fraction(1))),
        refund=st.booleans(),
    )
    def end(self, data: st.DataObject, store: int, part: Fraction, refund: bool) -> None:
        """Settle or refund any call, in any process, also one that has ended."""
        one = data.draw(st.sampled_from(self.made))
        reserved = one.reservation.claim.cost_usd
        cost = min(reserved, (reserved * part.numerator / part.denominator).quantize(Decimal("1e-15")))
        used = self.stores[store]
        asyncio.run(used.refund(one.reservation) if refund else used.settle(one.reservation, cost))
        if one.open:
            one.open = False
            one.counts, one.calls = (Fraction(0), 0) if refund else (Fraction(cost), 1)

    # What always holds

    @invariant()
    def the_books_agree(self) -> None:
        async def look() -> dict[tuple[str, str, str], Usage]:
            return {
                (agent, session, day): await self.stores[0].usage(agent, session, day)
                for agent in AGENTS
                for session in SESSIONS
                for day in DAYS
            }

        for (agent, session, day), usage in asyncio.run(look()).items():
            calls, cost = self.counted(agent=agent, session=session)
            if not self.is_exact:
                assert usage.calls >= calls
                assert usage.cost_usd >= cost
                assert usage.cost_usd_today >= self.counted(agent=agent, day=day)[1]
                continue
            assert (usage.calls, Fraction(usage.cost_usd)) == (calls, cost)
            assert (usage.calls_today, Fraction(usage.cost_usd_today)) == self.counted(agent=agent, day=day)
            of_tools = {tool: self.counted(agent=agent, session=session, tool=tool) for tool in TOOLS}
            assert usage.calls_of_tool == {tool: calls for tool, (calls, _) in of_tools.items() if calls}
            costs = {tool: Fraction(cost) for tool, cost in usage.cost_usd_of_tool.items()}
            assert costs == {tool: cost for tool, (_, cost) in of_tools.items() if cost}

    @invariant()
    def no_limit_is_passed(self) -> None:
        for agent in AGENTS:
            for session in SESSIONS:
                calls, cost = self.counted(agent=agent, session=session)
                assert calls <= (self.limits.max_calls_per_session or calls)
                assert cost <= Fraction(self.limits.max_cost_usd or cost)
                for tool in TOOLS:
                    calls, cost = self.counted(agent=agent, session=session, tool=tool)
                    assert calls <= (self.max_calls or calls)
                    assert cost <= Fraction(self.max_cost or cost)
            for day in DAYS:
                calls, spent = self.counted(agent=agent, day=day)
                assert calls <= (self.limits.max_calls_per_day or calls)
                assert spent <= Fraction(self.limits.max_cost_usd_per_day or spent)


class SqliteModel(MemoryModel):
    """Two processes at one file, which may end in the middle of a call."""

    def opened(self) -> list[Budgets]:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "budgets.sqlite"
        return [SqliteBudgets(self.path), SqliteBudgets(self.path)]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.folder.cleanup()

    @rule(store=st.integers(0, 1))
    def restart(self, store: int) -> None:
        """Start again; what was not settled counts at its maximum."""
        self.stores[store].close()
        self.stores[store] = SqliteBudgets(self.path)


class PostgresModel(MemoryModel):
    """Two nodes at one database, of which one may end at any time."""

    url = ""
    lease: Decimal | None = None

    def opened(self) -> list[Budgets]:
        if not PostgresModel.url:
            PostgresModel.url = fresh()
        self.databases = [Database(self.url), Database(self.url)]
        self.databases[0].wait(lambda connection: connection.execute(EMPTY), 10)
        return [PostgresBudgets(one, lease=self.lease) for one in self.databases]

    def teardown(self) -> None:
        for one in self.databases:
            one.close()

    @rule(store=st.integers(0, 1))
    def crash(self, store: int) -> None:
        """Lose the process; what was not settled counts at its maximum."""
        self.databases[store].close()
        self.databases[store] = Database(self.url)
        self.stores[store] = PostgresBudgets(self.databases[store], lease=self.lease)

    @rule(store=st.integers(0, 1))
    def lose_connections(self, store: int) -> None:
        """End the other's connections at the server: what it sends next is sent again."""
        self.databases[store].wait(lambda connection: connection.execute(_KILL), 10)


class LeasedModel(PostgresModel):
    """Two nodes that lease blocks: more may be refused, and no limit is passed."""

    is_exact = False
    lease = Decimal("0.2")

    @initialize(limits=MONEY, max_cost=st.sampled_from((None, Decimal("0.2"))))
    def limited(self, limits: Budget, max_cost: Any) -> None:  # calls with a limit on their number lease nothing
        self.limits, self.max_cost = limits, max_cost

    @rule()
    def settle_the_dead(self) -> None:
        """Let the blocks of processes that have died expire, and end them."""
        owners = [one.owner for one in self.stores]
        self.databases[0].wait(lambda connection: connection.execute(_EXPIRE, owners), 10)
        asyncio.run(self.stores[0].free("nobody"))
        left = "SELECT count(*) FROM licet.leases WHERE owner <> ALL ($1)"
        assert self.databases[0].wait(lambda connection: connection.fetchval(left, owners), 10) == 0

    @rule(store=st.integers(0, 1))
    def settle_the_living(self, store: int) -> None:
        """Let all blocks expire and end them, as if their process had slept for long."""
        self.databases[0].wait(lambda connection: connection.execute(_EXPIRE, []), 10)
        asyncio.run(self.stores[store].free("nobody"))

    @rule(store=st.integers(0, 1))
    def end_in_order(self, store: int) -> None:
        """Give back every block."""
        self.stores[store].close()


_EXPIRE = "UPDATE licet.leases SET expires = now() - interval '1 second' WHERE owner <> ALL ($1)"
_KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

MemoryModel.TestCase.settings = settings(
    max_examples=settings().max_examples // (3 if LONG else 5), stateful_step_count=25
)
SqliteModel.TestCase.settings = settings(
    max_examples=settings().max_examples // (4 if LONG else 8), stateful_step_count=25
)
PostgresModel.TestCase.settings = settings(
    max_examples=max(3, settings().max_examples // (4 if LONG else 20)), stateful_step_count=20
)
TestMemoryBudgets, TestSqliteBudgets = MemoryModel.TestCase, SqliteModel.TestCase
LeasedModel.TestCase.settings = settings(PostgresModel.TestCase.settings, phases=[Phase.generate])
TestPostgresBudgets, TestLeasedBudgets = PostgresModel.TestCase, LeasedModel.TestCase
