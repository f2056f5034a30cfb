"""The blocks of money that this process has leased from budgets, and what its calls have taken from them.

A block is a reservation for several calls at once, so it counts in full for everybody else. This object only does sums:
`postgres_budgets` asks the database for blocks, and writes down what was taken before a call begins.

Why no limit is ever passed, whatever crashes. For each counter of the database, at every moment:

1.  `counter = settled + reservations that are open`, where a block is one reservation at its full amount. One function
    adds to a counter, in a transaction that holds it, and only if the sum stays within the limit. All others lower it.
2.  A process takes from a block no more than is left of it (`Leases.take`), and a call begins only after
    `licet.begin_leased` has written the new sum into the row of the block, in the transaction of its decision where
    there is an opening. That row cannot hold more than the amount of the block.
3.  So `spent + reserved + what is left of blocks <= limit`: calls in a block cost at most what the block holds.
4.  A process that dies leaves its blocks at their full amount: at most these are withheld. After `expires` another
    process ends such a block at the sum in its row. That row is locked and deleted: a call of the dead process that
    comes later finds no row, and does not begin; one that came before is in the sum.
5.  The sum in the row is never less than what the begun calls may cost. It falls only when one of them has ended for
    less, and requests that arrive late change nothing, since each carries a number that only grows.

Blocks shrink towards the end, so little is withheld there: none is larger than an eighth of what remains, and the last
ones are single calls. What a receipt says of the spending before a call from a block leaves out what other nodes have
spent since the block was taken. Limits that count calls stay exact: a call that has one is never taken from a block.
"""

import threading
from collections.abc import Iterable, Sequence, Set
from decimal import Decimal
from time import monotonic

from msgspec import Struct

from licet.backends.limits import IDLE_LEASE_SECONDS, MOST_LEASED_CALLS
from licet.backends.sqlite import FORKS
from licet.core.decision.request import NOTHING, Spent, Usage, plus, settlement, spent_of
from licet.guard.ports import Claim, Reservation, free_after_fork


class Ending(Struct, frozen=True):
    """How a reservation ends: what was set aside, what of it was spent, and by how many calls."""

    id: str
    claim: Claim
    reserved: Decimal
    cost_usd: Decimal
    calls: int


class BlockSum(Struct, frozen=True):
    """What was taken from a block so far; a larger number is a later sum."""

    id: str
    number: int
    calls: int
    cost_usd: Decimal


class _Block:
    """One block: what was taken, and by which calls that have not ended."""

    __slots__ = ("amount", "before", "calls", "claim", "id", "made", "number", "open", "spent", "used")

    def __init__(self, id: str, claim: Claim, calls: int, before: Spent) -> None:  # noqa: A002
        self.id, self.claim, self.before = id, claim, before
        self.calls, self.amount = calls, claim.cost_usd * calls
        self.made, self.spent, self.number = 0, NOTHING, 0
        self.open: set[str] = set()
        self.used = monotonic()

    @property
    def has_room(self) -> bool:
        return self.made < self.calls and plus(self.spent, self.claim.cost_usd) <= self.amount

    def ending(self) -> Ending:
        return Ending(self.id, self.claim, self.amount, self.spent, self.made)


class Leases:
    """The blocks of this process, for any thread. A forked child has none: the parent spends from its own."""

    def __init__(self, amount: Decimal | None) -> None:
        self._amount = amount
        self.reset_in_child()
        FORKS.add(self)

    def close_for_fork(self) -> None:
        """Nothing is open."""

    def reset_in_child(self) -> None:
        """Start empty, in a new object and in a forked child."""
        self._lock = free_after_fork(threading.Lock())
        self._blocks: dict[str, _Block] = {}
        self._current: dict[Claim, _Block] = {}  # by the claim: other limits are another block
        self._asking: set[Claim] = set()
        self._count = 0

    def wanted(self, claim: Claim) -> int:
        """For how many calls a claim is asked at once; 1 for what must be exact."""
        budget = claim.budget
        counted = (claim.max_calls, budget.max_calls_per_session, budget.max_calls_per_day)
        if self._amount is None or not claim.cost_usd or any(limit is not None for limit in counted):
            return 1
        return max(1, min(int(self._amount / claim.cost_usd), MOST_LEASED_CALLS))

    def asks(self, claim: Claim) -> bool:
        """Whether the caller is the one who asks for the next block; `asked` ends that."""
        with self._lock:
            if claim in self._asking:
                return False
            self._asking.add(claim)
            return True

    def asked(self, claim: Claim) -> None:
        """Let the next one ask."""
        with self._lock:
            self._asking.discard(claim)

    def add(self, id: str, claim: Claim, calls: int, before: Spent) -> Reservation:  # noqa: A002
        """Spend from a new block from now on. Its first call is that of who asked, which its row has from the start."""
        with self._lock:
            block = self._blocks[id] = self._current[claim] = _Block(id, claim, calls, before)
            return self._taken(block)

    def take(self, claim: Claim) -> Reservation | None:
        """Set one call aside from a block that is here; None if none has room."""
        with self._lock:
            block = self._current.get(claim)
            return self._taken(block) if block is not None and block.has_room else None

    def end(self, reservation: Reservation, cost_usd: Decimal | None) -> bool:
        """End a reservation from a block at its real cost, or without one; False if it is from no block.

        One whose block is gone changes nothing: it was counted in full when the block ended.
        """
        name, _, own = reservation.id.partition("/")
        if not own:
            return False
        with self._lock:
            block = self._blocks.get(name)
            if block is not None and reservation.id in block.open:
                block.open.discard(reservation.id)
                block.made -= cost_usd is None
                block.spent = plus(block.spent, settlement(block.claim.cost_usd, cost_usd or NOTHING))
                block.used = monotonic()
        return True

    def begun(self, ids: Iterable[str]) -> Sequence[BlockSum]:
        """What was taken from blocks so far, to be written down. Blocks that are gone are left out."""
        with self._lock:
            found = [self._blocks[name] for name in sorted(set(ids)) if name in self._blocks]
            for block in found:
                block.number += 1
            return [BlockSum(block.id, block.number, block.made, block.spent) for block in found]

    def forget(self, ids: Iterable[str]) -> None:
        """Spend no more from blocks that others have ended."""
        with self._lock:
            for name in ids:
                if name in self._blocks:
                    self._remove(name)

    def idle(self, agent: str | None = None) -> Sequence[Ending]:
        """Remove the blocks to give back: those unused for a while, or all that an agent has no open call in."""
        now = monotonic()
        with self._lock:
            done = [
                block
                for block in self._blocks.values()
                if not block.open
                and (
                    block.claim.agent == agent
                    or now - block.used >= IDLE_LEASE_SECONDS
                    or self._current.get(block.claim) is not block
                )
            ]
            return [self._remove(block.id).ending() for block in done]

    def all(self) -> Sequence[Ending]:
        """Remove every block. Calls that have not ended count in full."""
        with self._lock:
            return [self._remove(name).ending() for name in list(self._blocks)]

    @property
    def ids(self) -> Sequence[str]:
        """The blocks that are here."""
        with self._lock:
            return list(self._blocks)

    def less(self, agent: str, session: str, day: str, usage: Usage, blocks: Set[str] | None = None) -> Usage:
        """A usage without what is left of the blocks of this process: its own calls may still spend that.

        `blocks` are those that the usage counts: others may have ended some. None are all.
        """
        own = self._left(agent, blocks)
        if not own:
            return usage
        of_tool, cost_of_tool = dict(usage.calls_of_tool), dict(usage.cost_usd_of_tool)
        calls, cost, today, calls_today = usage.calls, usage.cost_usd, usage.cost_usd_today, usage.calls_today
        for claim, left, free in own:
            if claim.session == session:
                tool = claim.tool
                calls, cost = max(0, calls - left), _less(cost, free)
                of_tool[tool] = max(0, of_tool.get(tool, 0) - left)
                cost_of_tool[tool] = _less(cost_of_tool.get(tool, NOTHING), free)
            if claim.day == day:
                calls_today, today = max(0, calls_today - left), _less(today, free)
        some = {tool: number for tool, number in of_tool.items() if number}
        return Usage(calls, some, cost, today, {tool: paid for tool, paid in cost_of_tool.items() if paid}, calls_today)

    def seen_by(self, claim: Claim, before: Spent) -> Spent:
        """What was spent before a claim, without what is left of the blocks of this process."""
        own = self._left(claim.agent, None)
        if not own:
            return before
        tool = claim.tool
        found = Usage(
            before.calls,
            {tool: before.calls_of_tool},
            before.cost_usd,
            before.cost_usd_today,
            {tool: before.cost_usd_of_tool},
            before.calls_today,
        )
        return spent_of(self.less(claim.agent, claim.session, claim.day, found), tool)

    def _left(self, agent: str, blocks: Set[str] | None) -> Sequence[tuple[Claim, int, Decimal]]:
        with self._lock:
            return [
                (block.claim, block.calls - block.made, plus(block.amount, -block.spent))
                for block in self._blocks.values()
                if block.claim.agent == agent and (blocks is None or block.id in blocks)
            ]

    def _taken(self, block: _Block) -> Reservation:
        before = _before(block)
        block.made += 1
        block.spent = plus(block.spent, block.claim.cost_usd)
        block.used = monotonic()
        self._count += 1
        name = f"{block.id}/{self._count}"
        block.open.add(name)
        return Reservation(name, block.claim, before)

    def _remove(self, id: str) -> _Block:  # noqa: A002
        block = self._blocks.pop(id)
        if self._current.get(block.claim) is block:
            del self._current[block.claim]
        return block


def block_of(reservation: Reservation) -> str:
    """The block that a reservation was taken from; empty if from none."""
    name, _, own = reservation.id.partition("/")
    return name if own else ""


def _less(amount: Decimal, free: Decimal) -> Decimal:
    return max(NOTHING, plus(amount, -free))


def _before(block: _Block) -> Spent:
    """What was spent before the next call of a block: as the database said, and from this block since then."""
    known, calls, cost = block.before, block.made, block.spent
    return Spent(
        known.calls + calls,
        known.calls_of_tool + calls,
        plus(known.cost_usd, cost),
        plus(known.cost_usd_today, cost),
        plus(known.cost_usd_of_tool, cost),
        known.calls_today + calls,
    )
