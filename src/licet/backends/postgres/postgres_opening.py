"""The one transaction before calls: frozen? approval used, budget set aside, decision kept; a round trip for a batch.

A freeze waits for the openings that are under way, and no call opens after it has returned. Where another node went on
with a session, its calls are linked anew and asked again: of such a call nothing was kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from licet.backends.limits import LEASE_SECONDS, MOST_OPENED
from licet.backends.memory import SystemClock
from licet.backends.postgres.address import Connection
from licet.backends.postgres.batches import Batch, Sending, Session, sending_of, session_of
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import BegunLedger
from licet.backends.postgres.postgres_budgets import (
    PostgresBudgets,
    Taken,
    Taking,
    beginning,
    new_id,
    reserving,
    taken_or_wrong,
)
from licet.backends.postgres.postgres_leases import block_of
from licet.backends.postgres.postgres_ledger import PostgresLedger
from licet.core.ledger.entry import Tail
from licet.guard.ports import Beginning, LedgerUnavailable, Opened, Reservation, Unavailable

_OPEN = f"SELECT * FROM licet.open_calls({', '.join(f'${n}' for n in range(1, 42))})"  # noqa: S608 - numbers
_USE = "SELECT licet.use_approval($1, $2)"
_REFUSALS = {"frozen": "FROZEN", "used": "APPROVAL_REQUIRED", "exceeded": "BUDGET_EXCEEDED"}


class _Asked(Struct, frozen=True):
    """A call as it is sent: what it takes from the database, and what from blocks that are here."""

    begins: Beginning
    takings: Sequence[Taking]
    local: Sequence[Reservation]


class _Answered(Struct, frozen=True):
    """What the database said of a call: `opened` with what it was given, or why not."""

    state: str
    detail: str = ""
    taken: Sequence[Taken] = ()


class PostgresOpening:
    """Opens calls of a node, with its ledger and its budgets."""

    def __init__(
        self,
        database: Database,
        ledger: PostgresLedger,
        budgets: PostgresBudgets,
        now: Callable[[], datetime] = SystemClock.now,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Take the stores of a node; `prepare` reads what is frozen, if that was not read."""
        self._database, self._ledger, self._budgets, self._now = database, ledger, budgets, now
        self._prepare = prepare
        self._lane = database.lane(self._act, MOST_OPENED)
        self._sending: Sending | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def prepare(self) -> None:
        """Read what is frozen, if that was not read."""
        if self._prepare is not None:
            await self._prepare()

    async def open(self, begins: Beginning) -> Opened:
        """Open a call, or say why not; `LedgerUnavailable` if its decision could not be kept."""
        again = True
        while True:
            asked, asking = self._prepared(begins)
            try:
                answered = await self._sent(asked)
            finally:
                for one in asking:
                    self._budgets.leases.asked(one.claim)
            if answered.state == "opened":
                return Opened(self._reservations(asked, answered.taken))
            self._give_back(asked)
            if answered.state == "ended":
                self._budgets.leases.forget([answered.detail])
            elif answered.state == "exceeded" and again:
                again = False
                freed = [await self._budgets.free(agent) for agent in {claim.agent for claim in begins.claims}]
                if not any(freed):
                    return Opened(refused="BUDGET_EXCEEDED")
            else:
                return Opened(refused=_REFUSALS[answered.state], why=answered.detail)

    async def use(self, request: str, call: str) -> bool:
        """Use an approval up for a call that was opened before; False if another call has."""
        used: bool = await self._database.once(lambda connection: connection.fetchval(_USE, request, call))
        return used

    def __repr__(self) -> str:
        return f"PostgresOpening({self._database!r})"

    def _prepared(self, begins: Beginning) -> tuple[_Asked, Sequence[Taking]]:
        """A call as it is sent, and those of its claims that ask for a block."""
        leases, takings, local, asking = self._budgets.leases, list[Taking](), list[Reservation](), list[Taking]()
        for claim in begins.claims:
            wanted = leases.wanted(claim)
            if wanted > 1 and (here := leases.take(claim)) is not None:
                local.append(here)
                continue
            wanted = wanted if wanted > 1 and leases.asks(claim) else 1
            takings.append(Taking(new_id(), claim, wanted))
            if wanted > 1:
                asking.append(takings[-1])
        return _Asked(begins, takings, local), asking

    async def _sent(self, asked: _Asked) -> _Answered:
        sending = self._lane.ask(asked)
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            sending.add_done_callback(lambda done: self._end(done, asked))
            raise
        except (LedgerUnavailable, Unavailable) as wrong:
            self._give_back(asked)
            raise LedgerUnavailable(str(wrong)) from None

    def _give_back(self, asked: _Asked) -> None:
        for one in asked.local:
            self._budgets.leases.end(one, None)

    def _end(self, sending: "asyncio.Future[_Answered]", asked: _Asked) -> None:
        """The caller is gone, and its call does not run: what was set aside for it is released."""
        self._give_back(asked)
        if sending.cancelled() or sending.exception() is not None or (answer := sending.result()).state != "opened":
            return
        task = sending.get_loop().create_task(self._refund(self._reservations(asked, answer.taken)))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _refund(self, reservations: Sequence[Reservation]) -> None:
        for one in reservations:
            await self._budgets.refund(one)

    def _reservations(self, asked: _Asked, found: Sequence[Taken]) -> Sequence[Reservation]:
        """One for each claim, in their order."""
        given = [self._budgets.given(one, got) for one, got in zip(asked.takings, found, strict=True)]
        by_claim = {one.claim: one for one in (*given, *asked.local)}
        return [by_claim[claim] for claim in asked.begins.claims]

    # In the thread of the database -----------------------------------------------------------------------------------

    async def _act(self, connection: Connection, items: Sequence[_Asked]) -> Sequence[_Answered | Exception]:
        sending = self._sending
        if sending is None or sending.items is not items:
            sending = self._sending = sending_of(items, [one.begins.entry for one in items])
        try:
            begun = await self._ledger.checked(connection)
            while sending.waiting:
                if (batch := sending.batch) is None:
                    await self._check_budgets(connection, sending)
                    self._ledger.chains.link_waiting(begun.ledger, sending, self._now())
                    continue
                await self._send(connection, begun, sending, batch)
        except LedgerUnavailable as wrong:
            sending.answer({at: LedgerUnavailable(*wrong.args) for at in sending.waiting})
        return [sending.answers[at] for at in range(len(items))]

    async def _check_budgets(self, connection: Connection, sending: Sending) -> None:
        """Refuse the calls whose budget was lowered in the database."""
        claims = {at: sending.items[at].begins.claims for at in sending.waiting}
        all_claims = [claim for some in claims.values() for claim in some]
        if not (wrong := await self._budgets.compare_with_ledger(connection, all_claims)):
            return
        found = {at: [wrong[one.agent] for one in some if one.agent in wrong] for at, some in claims.items()}
        sending.answer({at: LedgerUnavailable(texts[0]) for at, texts in found.items() if texts})

    async def _send(self, connection: Connection, begun: BegunLedger, sending: Sending, batch: Batch) -> None:
        """Send what waits, and note the answers; calls whose session has moved on are linked anew."""
        waiting, chains = list(sending.waiting), self._ledger.chains
        before = chains.ends(batch)
        rows = await connection.fetch(
            _OPEN, *batch.arguments(), *self._arguments([sending.items[at] for at in waiting])
        )
        found: list[list[Taken]] = [[] for _ in waiting]
        answers: dict[int, _Answered | LedgerUnavailable] = {}
        for row in rows:
            if row["claim"] is None:
                continue
            if isinstance(one := taken_or_wrong(row), Unavailable):
                answers[waiting[row["call"] - 1]] = LedgerUnavailable(*one.args)
            else:
                found[row["call"] - 1].append(one)
        moved: dict[Session, Tail] = {}
        for row in rows:
            if row["claim"] is not None:
                continue
            place, state = row["call"] - 1, row["state"]
            kept = batch.rows[place]
            if state == "opened":
                chains.note(session_of(kept), Tail(kept.sequence, kept.hash))
            if state != "moved":
                answers.setdefault(waiting[place], _Answered(state, row["detail"] or "", found[place]))
            elif row["tail_hash"] is not None:
                moved[session_of(kept)] = Tail(row["tail_sequence"], row["tail_hash"])
        sending.answer(answers)
        sending.batch = None
        sending.fail(await self._ledger.go_on_from(connection, begun, moved, before))

    def _arguments(self, items: Sequence[_Asked]) -> list[Any]:
        """The arguments of `licet.open_calls` after those of the entries."""
        uses = [(n, request) for n, one in enumerate(items, 1) for request in one.begins.approvals]
        takings = [
            Taking(taking.id, taking.claim, taking.wanted, n)
            for n, one in enumerate(items, 1)
            for taking in one.takings
        ]
        local = [(n, block_of(reservation)) for n, one in enumerate(items, 1) for reservation in one.local]
        sums = self._budgets.leases.begun(name for _, name in local)
        return [
            [n for n, _ in uses],
            [request for _, request in uses],
            *reserving(takings, self._budgets.owner, LEASE_SECONDS),
            [n for n, _ in local],
            [name for _, name in local],
            *beginning(sums),
        ]
