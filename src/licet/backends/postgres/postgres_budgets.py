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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from decimal import Decimal
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from licet.backends.limits import CLOSE_SECONDS, FORGET_RESERVATIONS_SECONDS, LEASE_SECONDS, MOST_CLAIMS, MOST_COMPARED
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node, is_signed
from licet.backends.postgres.postgres_leases import BlockSum, Ending, Leases, block_of
from licet.core.decision.request import NOTHING, Spent, Usage, settlement
from licet.core.values import canonical_json, money_text
from licet.guard.ports import Claim, Reservation, Unavailable

_RESERVE = f"SELECT * FROM licet.reserve({', '.join(f'${n}' for n in range(1, 24))})"  # noqa: S608 - numbers
_SETTLE = f"SELECT * FROM licet.settle({', '.join(f'${n}' for n in range(1, 12))})"  # noqa: S608 - numbers
# What receipts say that calls of a day have spent, beside the counters that have less. One statement reads one moment,
# and a call is settled before its receipt is written; so no counter has less, unless somebody has changed it. Delegates
# spend from the account of another session: their receipts are left out.
_COMPARE = """
WITH receipts AS (
    SELECT session, tool, convert_from(body, 'UTF8')::jsonb AS body FROM licet.entries
    WHERE kind = 'receipt' AND agent = $1 AND time >= $2 AND time < $2 || '~'
), spent AS MATERIALIZED (
    SELECT session, tool, (body ->> 'cost_usd')::numeric AS cost_usd FROM receipts
    WHERE body ->> 'parent' IS NULL AND body -> 'events' @> '[{"kind": "BudgetSettled"}]'
), sums AS (
    SELECT 'day' AS kind, $2 AS name, '' AS tool, count(*) AS calls, coalesce(sum(cost_usd), 0) AS cost_usd FROM spent
    UNION ALL SELECT 'session', session, '', count(*), sum(cost_usd) FROM spent GROUP BY session
    UNION ALL SELECT 'tool', session, tool, count(*), sum(cost_usd) FROM spent GROUP BY session, tool
)
SELECT s.*, coalesce(c.calls, 0) AS counted, coalesce(c.cost_usd, 0) AS counted_usd
FROM sums AS s LEFT JOIN licet.budget_counters AS c
    ON c.agent = $1 AND c.kind = s.kind AND c.name = s.name AND c.tool = s.tool
WHERE s.calls > coalesce(c.calls, 0) OR s.cost_usd > coalesce(c.cost_usd, 0) LIMIT 1
"""
_OPEN_ROWS = """
SELECT r.id, r.agent, r.session, r.tool, r.day, r.calls, r.cost_usd, r.batch, b.node, b.body, b.signature
FROM licet.reservations AS r LEFT JOIN licet.budget_batches AS b ON b.id = r.batch
WHERE r.agent = $1 AND r.ended IS NULL AND r.batch IS NOT NULL LIMIT $2
"""
_PURPOSE = "budgets"  # of the signatures of nodes
_BEGIN = "SELECT * FROM licet.begin_leased($1, $2, $3, $4)"
_RENEW = "SELECT * FROM licet.renew_leases($1, $2)"
_SETTLE_EXPIRED = "SELECT licet.settle_expired()"
_FORGET = "SELECT licet.forget_reservations($1)"
_USAGE = """
SELECT q.place, c.kind, c.tool, c.calls, c.cost_usd,
    (SELECT array_agg(l.id) FROM licet.leases AS l WHERE l.id = ANY ($4::text[])) AS blocks
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
        self.columns = [[key[column] for key in ordered] for column in range(4)]
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
        _limits(one.max_calls_per_session for one in budgets),
        _limits(one.max_calls_per_day for one in budgets),
        _limits(one.max_calls for one in claims),
        _limits(one.max_cost_usd for one in budgets),
        _limits(one.max_cost_usd_per_day for one in budgets),
        _limits(one.max_cost_usd for one in claims),
        owner,
        lease_seconds,
    ]


def _limits(given: Iterable[Any]) -> list[Any]:
    """A column of limits. One without any is empty: a place that an array does not have is null, which is no limit."""
    column = list(given)
    return column if any(one is not None for one in column) else []


def beginning(blocks: Sequence[BlockSum]) -> list[Any]:
    """The arguments of `licet.begin_leased`."""
    return [
        [one.id for one in blocks],
        [one.number for one in blocks],
        [one.calls for one in blocks],
        [one.cost_usd for one in blocks],
    ]


def taken_or_wrong(row: Any) -> Taken | Unavailable:
    """An answer of `licet.reserve`; an error, of this claim alone, if a counter says what no call can have spent."""
    try:
        before = Spent(
            calls=_count(row["session_calls"]),
            calls_of_tool=_count(row["tool_calls"]),
            cost_usd=_money(row["session_cost"]),
            cost_usd_today=_money(row["day_cost"]),
            cost_usd_of_tool=_money(row["tool_cost"]),
            calls_today=_count(row["day_calls"]),
        )
        return Taken(_count(row["granted"]), before)
    except Unavailable as wrong:
        return wrong


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise _changed(value)
    return value


def _money(value: object) -> Decimal:
    """An amount of a counter. One below nothing would let calls spend beyond a limit."""
    if type(value) is not Decimal or not value.is_finite() or value < 0:
        raise _changed(value)
    return value


def _changed(value: object) -> Unavailable:
    return Unavailable(
        f"a budget in the database says {str(value)[:40]!a}, which licet never writes: an administrator of the "
        "database has to put it right"
    )


class PostgresBudgets:
    """Budgets that any number of nodes share. Without a node, reservations are not signed.

    `enrolled` tells whether a node is one of this state, or was: what it had set aside when it was dismissed counts on.
    With `lease`, calls spend from blocks: see `postgres_leases` for why no limit is passed.
    """

    def __init__(
        self,
        database: Database,
        node: Node | None = None,
        lease: Decimal | None = None,
        enrolled: Callable[[Connection, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._database, self._node, self._enrolled = database, node, enrolled
        self._compared: set[tuple[str, str]] = set()  # agents and days
        self.leases = Leases(lease if lease is not None else database.address.lease)
        self.owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._reserving = database.lane(self._reserve, MOST_CLAIMS)
        self._beginning = database.lane(self._begin, MOST_CLAIMS)
        self._settling = database.lane(self._settle, MOST_CLAIMS)
        self._reading = database.lane(self._read, MOST_CLAIMS)
        self._refunds: set[asyncio.Task[None]] = set()
        self._forgets = monotonic() + FORGET_RESERVATIONS_SECONDS
        self._kept_in: asyncio.AbstractEventLoop | None = None  # where a timer renews the blocks

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved. Blocks of other nodes count in full."""
        found, blocks = await self._reading.do((agent, session, day))
        return self.leases.less(agent, session, day, found, blocks)

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Reserve one call and its cost; None if a limit would be exceeded."""
        wanted = self.leases.wanted(claim)
        while wanted > 1 and (local := self.leases.take(claim)) is not None:
            if await self._begun(local):
                return local
        if wanted == 1 or not self.leases.asks(claim):  # one block at a time
            return await self._exactly(claim, 1)
        try:
            return await self._exactly(claim, wanted)
        finally:
            self.leases.asked(claim)

    async def _exactly(self, claim: Claim, wanted: int) -> Reservation | None:
        """Reserve in the database: one call, or a block to take the call from."""
        name, found = new_id(), Taken(0, Spent())
        for again in (True, False):
            found = await self._asked(Taking(name, claim, wanted))
            if found.calls or not (again and await self.free(claim.agent)):
                break
        return self.given(Taking(name, claim, wanted), found) if found.calls else None

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Replace a reservation by the real cost, once; `ValueError` for more than was reserved."""
        claim = reservation.claim
        settlement(claim.cost_usd, cost_usd)
        if not self.leases.end(reservation, cost_usd):
            await self._end(Ending(reservation.id, claim, claim.cost_usd, cost_usd, 1))

    async def refund(self, reservation: Reservation) -> None:
        """Release a reservation, once."""
        claim = reservation.claim
        if not self.leases.end(reservation, None):
            await self._end(Ending(reservation.id, claim, claim.cost_usd, NOTHING, 0))

    def given(self, taking: Taking, found: Taken) -> Reservation:
        """The reservation that was granted, or the first one of the block; blocks are renewed while they are used."""
        found = Taken(found.calls, self.leases.seen_by(taking.claim, found.before))
        if found.calls == 1:
            return Reservation(taking.id, taking.claim, found.before)
        if self._kept_in is None or self._kept_in.is_closed():
            self._database.start(self._keep())
        return self.leases.add(taking.id, taking.claim, found.calls, found.before)

    async def free(self, agent: str) -> bool:
        """Give back what nobody uses, of this process and of those that died; returns whether there was any."""
        own = self.leases.idle(agent) if self.leases.ids else ()
        for one in own:
            await self._end(one)
        return await self._database.once(_settle_expired) or bool(own)

    def close(self) -> None:
        """Give back what is left of blocks. The database is closed by who opened it."""
        if left := self.leases.all():
            with suppress(Exception):  # otherwise they expire
                self._database.wait(lambda connection: self._settle(connection, left), CLOSE_SECONDS)

    def __repr__(self) -> str:
        return f"PostgresBudgets({self._database.address.shown!r})"

    async def _asked(self, taking: Taking) -> Taken:
        asking = self._reserving.ask(taking)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(lambda done: self._give_back(done, taking))
            raise

    async def _begun(self, local: Reservation) -> bool:
        """Write down that a call takes from a block; False if others have ended that block."""
        begun = False
        try:
            begun = await self._beginning.do(block_of(local))
        finally:
            if not begun:
                self.leases.end(local, None)
        return begun

    async def _end(self, ending: Ending) -> None:
        # Written even if the caller is cancelled: otherwise the call would stay at its maximum.
        await asyncio.shield(self._settling.ask(ending))

    def _give_back(self, asking: "asyncio.Future[Taken]", taking: Taking) -> None:
        """The caller is gone, so the reservation is released."""
        if asking.cancelled() or asking.exception() is not None or not (calls := asking.result().calls):
            return
        ending = Ending(taking.id, taking.claim, taking.claim.cost_usd * calls, NOTHING, 0)
        task = asking.get_loop().create_task(self._end(ending))
        self._refunds.add(task)
        task.add_done_callback(self._refunds.discard)

    # In the thread of the database -----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Look after the blocks later. A timer waits and no task, which a close would wait for."""
        self._kept_in = loop = asyncio.get_running_loop()
        loop.call_later(LEASE_SECONDS / 6, self._look)

    def _look(self) -> None:
        if self.leases.ids:
            self._database.start(self._look_after())
        else:
            self._kept_in = None

    async def _look_after(self) -> None:
        """Renew the blocks of this process, and give back those that nobody uses."""
        with suppress(Exception):  # the next round, or the end of the lease, settles it
            await asyncio.gather(*(self._end(one) for one in self.leases.idle()))
            await self._database.once(self._renew)
        await self._keep()

    async def _renew(self, connection: Connection) -> None:
        known = set(self.leases.ids)  # one that is granted meanwhile is new, and not ended by others
        there = {row[0] for row in await connection.fetch(_RENEW, self.owner, LEASE_SECONDS)}
        self.leases.forget(known - there)

    async def _begin(self, connection: Connection, items: Sequence[str]) -> Sequence[bool | Exception]:
        rows = await connection.fetch(_BEGIN, *beginning(self.leases.begun(items)))
        there = {row[0] for row in rows}
        self.leases.forget(set(items) - there)
        return [one in there for one in items]

    async def compare_with_ledger(self, connection: Connection, claims: Iterable[Claim]) -> Mapping[str, str]:
        """The agents whose counters say less than the ledger, with what is wrong: once in a process for each day.

        Whoever administers the database can change a counter. A node that starts does not spend from one that was
        lowered.
        """
        found: dict[str, str] = {}
        for agent, day in {(one.agent, one.day) for one in claims} - self._compared:
            wrong = await self._difference(connection, agent, day)
            if not wrong and self._node is not None:
                wrong = await self._forged(connection, agent)
            if wrong:
                found[agent] = wrong
                continue
            if len(self._compared) >= MOST_COMPARED:
                self._compared.clear()
            self._compared.add((agent, day))
        return found

    async def _difference(self, connection: Connection, agent: str, day: str) -> str:
        row = await connection.fetchrow(_COMPARE, agent, day)
        if row is None:
            return ""
        where = f"of {row['kind']} `{row['name']}`" + (f", tool `{row['tool']}`," if row["tool"] else "")
        return (
            f"the budget of `{agent}` in {self._database.address.shown} was lowered: the counter {where} says "
            f"{row['counted']} calls and {money_text(row['counted_usd'])} USD, and receipts say {row['calls']} calls "
            f"and {money_text(row['cost_usd'])} USD; an administrator of the database has to put it right"
        )

    async def _forged(self, connection: Connection, agent: str) -> str:
        """What is wrong with a reservation that is still open: no enrolled node has signed it as it is."""
        for row in await connection.fetch(_OPEN_ROWS, agent, MOST_CLAIMS):
            is_fine = is_signed(row["node"], _PURPOSE, row["body"], row["signature"])
            if is_fine and self._enrolled is not None:
                is_fine = await self._enrolled(connection, row["node"])
            if not (is_fine and _is_listed(row)):
                return (
                    f"the reservation {row['id']} of `{agent}` in {self._database.address.shown} is not as a node of "
                    "this state has signed it: its row was changed"
                )
        return ""

    async def _reserve(self, connection: Connection, items: Sequence[Taking]) -> Sequence[Taken | Exception]:
        wrong = await self.compare_with_ledger(connection, (one.claim for one in items))
        fine = [one for one in items if one.claim.agent not in wrong] if wrong else items
        numbered = [Taking(one.id, one.claim, one.wanted, place) for place, one in enumerate(fine)]
        rows: Sequence[Any] = ()
        if fine:
            arguments = reserving(numbered, self.owner, LEASE_SECONDS)
            rows = await connection.fetch(_RESERVE, *arguments, *self._signed(fine))
        answers = map(taken_or_wrong, rows)
        return [Unavailable(wrong[one.claim.agent]) if one.claim.agent in wrong else next(answers) for one in items]

    def _signed(self, items: Sequence[Taking]) -> tuple[str | None, ...] | tuple[str, str, bytes, bytes]:
        """The node, the id of a batch, its body, and the signature."""
        if self._node is None:
            return None, None, None, None
        claims = [[one.id, *_account(one.claim), money_text(one.claim.cost_usd), one.wanted] for one in items]
        body = canonical_json(claims)
        return self._node.public, items[0].id, body, self._node.sign(_PURPOSE, body)

    async def _settle(self, connection: Connection, items: Sequence[Ending]) -> Sequence[Exception | None]:
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

    async def _read(
        self, connection: Connection, items: Sequence[tuple[str, str, str]]
    ) -> Sequence[tuple[Usage, Set[str]] | Exception]:
        """Usages, and the blocks of this process that these count in full."""
        found: list[dict[tuple[str, str], tuple[int, Decimal]]] = [{} for _ in items]
        columns, blocks = (list(column) for column in zip(*items, strict=True)), frozenset[str]()
        wrong: dict[int, Exception] = {}
        for row in await connection.fetch(_USAGE, *columns, self.leases.ids):
            at = row["place"] - 1
            try:
                found[at][row["kind"], row["tool"]] = _count(row["calls"]), _money(row["cost_usd"])
            except Unavailable as changed:
                wrong[at] = changed
            blocks = frozenset(row["blocks"] or ())
        return [wrong.get(at) or (_usage(one), blocks) for at, one in enumerate(found)]


async def _settle_expired(connection: Connection) -> bool:
    found = False
    while await connection.fetchval(_SETTLE_EXPIRED) is not None:
        found = True
    return found


def _is_listed(row: Mapping[str, Any]) -> bool:
    """Whether a batch lists a reservation as its row is; of a block, fewer calls may have been granted."""
    try:
        listed = msgspec.json.decode(row["body"], type=list[tuple[str, str, str, str, str, str, int]])
    except msgspec.DecodeError:
        return False
    for name, agent, session, tool, day, cost, wanted in listed:
        if name == row["id"]:
            same = (agent, session, tool, day) == (row["agent"], row["session"], row["tool"], row["day"])
            return same and row["calls"] <= wanted and row["cost_usd"] == Decimal(cost) * row["calls"]
    return False


def _account(claim: Claim) -> tuple[str, str, str, str]:
    return claim.agent, claim.session, claim.tool, claim.day


def _usage(found: dict[tuple[str, str], tuple[int, Decimal]]) -> Usage:
    (calls, cost), (calls_today, today) = (found.get((kind, ""), (0, NOTHING)) for kind in ("session", "day"))
    tools = {tool: spent for (kind, tool), spent in found.items() if kind == "tool"}
    of_tool = {tool: called for tool, (called, _) in tools.items() if called}
    cost_of_tool = {tool: paid for tool, (_, paid) in tools.items() if paid}
    return Usage(calls, of_tool, cost, today, cost_of_tool, calls_today)
