"""Budgets in PostgreSQL, for any number of nodes. Amounts are exact: `numeric` there and `Decimal` here.

Nothing is a statement per call: what waits in this process goes over in one batch, and a batch takes each counter once.
A counter that many calls share is locked until its transaction is on the disk, so one call per transaction would be as
many calls as the disk has flushes.

A reservation has an id that is chosen here, so that one which is sent again is the same. Each is covered by a signature
of its node: that of the batch in which it was asked for, or that of the decision that was kept with it.
"""

import asyncio
import os
import secrets
from collections.abc import Iterable, Sequence
from decimal import Decimal
from time import monotonic
from typing import Any, NamedTuple

from msgspec import Struct

from licet.backends.limits import FORGET_RESERVATIONS_SECONDS, MOST_CLAIMS
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.nodes import Node
from licet.core.decision.request import NOTHING, Spent, Usage, settlement
from licet.core.values import canonical_json, money_text
from licet.guard.ports import Claim, Reservation

_RESERVE = f"SELECT * FROM licet.reserve({', '.join(f'${n}' for n in range(1, 24))})"  # noqa: S608 - numbers
_SETTLE = f"SELECT * FROM licet.settle({', '.join(f'${n}' for n in range(1, 12))})"  # noqa: S608 - numbers
_FORGET = "SELECT licet.forget_reservations($1)"
_USAGE = """
SELECT q.place, c.kind, c.tool, c.calls, c.cost_usd
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS q (agent, session, day, place)
JOIN licet.budget_counters AS c ON c.agent = q.agent AND (c.kind, c.name) IN (
    ('session', q.session), ('tool', q.session), ('day', q.day)
)
"""


class Taking(Struct, frozen=True):
    """A claim that is asked for under an id, and for how many calls at once."""

    id: str
    claim: Claim
    wanted: int = 1
    of_call: int = 0  # claims with the same number are taken together or not at all


class Taken(Struct, frozen=True):
    """What a claim was given: for how many calls, and what was spent before; none if a limit would be exceeded."""

    calls: int
    before: Spent


class _Ending(NamedTuple):
    id: str
    claim: Claim
    reserved: Decimal
    cost_usd: Decimal
    calls: int


class _Counters:
    """The counters of claims, each once and in the order of their keys, which is the order in which all take them."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        keys = [
            (
                (one.agent, "session", one.session, ""),
                (one.agent, "tool", one.session, one.tool),
                (one.agent, "day", one.day, ""),
            )
            for one in claims
        ]
        ordered = sorted({key for three in keys for key in three})
        places = {key: place for place, key in enumerate(ordered, 1)}
        self.columns = [list(column) for column in zip(*ordered, strict=True)]
        self.at = [[places[three[number]] for three in keys] for number in range(3)]


def new_id() -> str:
    """An id of a reservation, which nobody else chooses."""
    return f"b-{secrets.token_hex(12)}"


def reserving(takings: Sequence[Taking], owner: str, lease_seconds: float) -> list[Any]:
    """The arguments of `licet.reserve` but for the signature."""
    claims = [one.claim for one in takings]
    counters, budgets = _Counters(claims), [one.budget for one in claims]
    return [
        *counters.columns,
        [one.id for one in takings],
        [one.of_call for one in takings],
        *counters.at,
        [one.cost_usd for one in claims],
        [one.wanted for one in takings],
        [one.max_calls_per_session for one in budgets],
        [one.max_calls_per_day for one in budgets],
        [one.max_calls for one in claims],
        [one.max_cost_usd for one in budgets],
        [one.max_cost_usd_per_day for one in budgets],
        [one.max_cost_usd for one in claims],
        owner,
        lease_seconds,
    ]


def taken(row: Any) -> Taken:
    """An answer of `licet.reserve`."""
    before = Spent(
        calls=row["session_calls"],
        calls_of_tool=row["tool_calls"],
        cost_usd=row["session_cost"],
        cost_usd_today=row["day_cost"],
        cost_usd_of_tool=row["tool_cost"],
        calls_today=row["day_calls"],
    )
    return Taken(row["granted"], before)


class PostgresBudgets:
    """Budgets that any number of nodes share. Without a node, reservations are not signed."""

    def __init__(self, database: Database, node: Node | None = None) -> None:
        self._database, self._node = database, node
        self._owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._reserving = database.lane(self._reserve, MOST_CLAIMS, transaction=False)
        self._settling = database.lane(self._settle, MOST_CLAIMS, transaction=False)
        self._reading = database.lane(self._read, MOST_CLAIMS, transaction=False)
        self._refunds: set[asyncio.Task[None]] = set()
        self._forgets = monotonic() + FORGET_RESERVATIONS_SECONDS

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved, on all nodes."""
        return await self._reading.do((agent, session, day))

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Reserve one call and its cost; None if a limit would be exceeded."""
        name = new_id()
        asking = asyncio.ensure_future(self._reserving.do(Taking(name, claim)))
        try:
            found = await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(lambda done: self._give_back(done, name, claim))
            raise
        return Reservation(name, claim, found.before) if found.calls else None

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Replace a reservation by the real cost, once; `ValueError` for more than was reserved."""
        claim = reservation.claim
        settlement(claim.cost_usd, cost_usd)
        await self._end(_Ending(reservation.id, claim, claim.cost_usd, cost_usd, 1))

    async def refund(self, reservation: Reservation) -> None:
        """Release a reservation, once."""
        claim = reservation.claim
        await self._end(_Ending(reservation.id, claim, claim.cost_usd, NOTHING, 0))

    def close(self) -> None:
        """The database is closed by who opened it."""

    def __repr__(self) -> str:
        return f"PostgresBudgets({self._database.address.shown!r})"

    async def _end(self, ending: _Ending) -> None:
        # Written even if the caller is cancelled: otherwise the call would stay at its maximum.
        await asyncio.shield(asyncio.ensure_future(self._settling.do(ending)))

    def _give_back(self, asking: "asyncio.Future[Taken]", name: str, claim: Claim) -> None:
        if asking.cancelled() or asking.exception() is not None or not (found := asking.result()).calls:
            return
        task = asking.get_loop().create_task(self.refund(Reservation(name, claim, found.before)))
        self._refunds.add(task)
        task.add_done_callback(self._refunds.discard)

    # In the thread of the database -----------------------------------------------------------------------------------

    async def _reserve(self, connection: Connection, items: Sequence[Taking]) -> Sequence[Taken | Exception]:
        numbered = [Taking(one.id, one.claim, one.wanted, place) for place, one in enumerate(items)]
        rows = await connection.fetch(_RESERVE, *reserving(numbered, self._owner, 0.0), *self._signed(items))
        return [taken(row) for row in rows]

    def _signed(self, items: Sequence[Taking]) -> tuple[str | None, ...] | tuple[str, str, bytes, bytes]:
        """The node, the id of a batch, its body, and the signature."""
        if self._node is None:
            return None, None, None, None
        claims = [[one.id, *_account(one.claim), money_text(one.claim.cost_usd), one.wanted] for one in items]
        body = canonical_json(claims)
        return self._node.public, items[0].id, body, self._node.sign("budgets", body)

    async def _settle(self, connection: Connection, items: Sequence[_Ending]) -> Sequence[Exception | None]:
        counters = _Counters(one.claim for one in items)
        rows = await connection.fetch(
            _SETTLE,
            *counters.columns,
            [one.id for one in items],
            *counters.at,
            [one.reserved for one in items],
            [one.cost_usd for one in items],
            [one.calls for one in items],
        )
        wrong = {row["place"]: row["cost_usd"] for row in rows}
        if monotonic() >= self._forgets:
            self._forgets = monotonic() + FORGET_RESERVATIONS_SECONDS
            await connection.execute(_FORGET, FORGET_RESERVATIONS_SECONDS)
        return [
            ValueError(f"expected at most the {wrong[place]} that was set aside for {one.id}, found {one.reserved}")
            if place in wrong
            else None
            for place, one in enumerate(items, 1)
        ]

    async def _read(self, connection: Connection, items: Sequence[tuple[str, str, str]]) -> Sequence[Usage | Exception]:
        found: list[dict[tuple[str, str], tuple[int, Decimal]]] = [{} for _ in items]
        for row in await connection.fetch(_USAGE, *(list(column) for column in zip(*items, strict=True))):
            found[row["place"] - 1][row["kind"], row["tool"]] = row["calls"], row["cost_usd"]
        return [_usage(one) for one in found]


def _account(claim: Claim) -> tuple[str, str, str, str]:
    return claim.agent, claim.session, claim.tool, claim.day


def _usage(found: dict[tuple[str, str], tuple[int, Decimal]]) -> Usage:
    (calls, cost), (calls_today, today) = (found.get((kind, ""), (0, NOTHING)) for kind in ("session", "day"))
    tools = {tool: spent for (kind, tool), spent in found.items() if kind == "tool"}
    of_tool = {tool: called for tool, (called, _) in tools.items() if called}
    cost_of_tool = {tool: paid for tool, (_, paid) in tools.items() if paid}
    return Usage(calls, of_tool, cost, today, cost_of_tool, calls_today)
