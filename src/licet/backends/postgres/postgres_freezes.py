"""The freezes of a state in PostgreSQL, as each node believes them: rows that an enrolled node has signed.

Two checks stop a call. The database answers at its begin, exactly: a freeze that returned is seen by every call that
begins afterwards, on every node. And each node goes by what it has verified itself, so no row that the administrator of
the database writes ends a freeze. Deleting a row ends none either: a node forgets no freeze that it has read, and finds
older ones in the ledger. A freeze that nobody has signed stops calls too, since the database goes by it: it is listed,
and ended as others are.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress

from msgspec import UNSET
from msgspec.structs import replace

from licet.backends.freezes import Operators, checked_view, read_operators, write_operators
from licet.backends.limits import MOST_LOOKS_AT_ONCE
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import IsEnrolled, Node, is_signed
from licet.backends.secrets import check_signature
from licet.core.ledger.entry import STATE_AGENT, Entry, LinkedEntry, Unsound
from licet.core.ledger.state_acts import NOTHING, StateAct, StateView, act_of, folded, merged, read_row, row_bytes
from licet.guard.limits import STORE_SECONDS
from licet.guard.ports import LedgerUnavailable, Unavailable, free_after_fork

CHANNEL = "licet_freezes"
_UNSIGNED = "no enrolled node has signed this freeze"
_PURPOSE = "state act"  # of the signatures of nodes
_ADD = "SELECT licet.add_state_act($1, $2, $3, $4, $5, $6, $7, $8, $9)"
# Without a time, who holds this lock for ever would also stop what a freeze does not mean.
_WAIT = "SELECT set_config('lock_timeout', '2s', true), pg_advisory_xact_lock(licet.freeze_lock())"
_ALL = "SELECT body, node, signature FROM licet.state_acts ORDER BY number"
_FROZEN = """SELECT licet.frozen(asked.agent, asked.tool)
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked(agent, tool, place) ORDER BY asked.place"""

Recorded = Callable[[], Awaitable[Sequence[Entry]]]  # the entries of the ledger about the whole state


async def _nothing_recorded() -> Sequence[Entry]:
    return ()


class PostgresFreezes:
    """The freezes of a state in PostgreSQL. The keys of its operators are pinned in the directory of the node."""

    def __init__(
        self,
        database: Database,
        node: Node,
        enrolled: IsEnrolled,
        directory: str | os.PathLike[str],
        recorded: Recorded = _nothing_recorded,
    ) -> None:
        self._database, self._node, self._enrolled = database, node, enrolled
        self._directory, self._recorded_by_ledger = os.fspath(directory), recorded
        self._looks = database.lane(_looked_up, MOST_LOOKS_AT_ONCE)
        self._lock = free_after_fork(threading.Lock())
        self._listens_in = 0  # the process that hears of changes: a forked child has to ask anew
        self._recorded: tuple[Entry, ...] | None = None  # read once: what comes later is heard of
        self._acts: dict[str, StateAct] = {}  # verified; never forgotten
        self._unsigned: tuple[StateAct, ...] = ()  # freezes, as of the last look
        self._unsound: tuple[str, ...] = ()
        self._view: StateView | None = None
        self._wrong = ""  # why the state cannot be used
        self._has_news = False  # in the thread of the database
        self._reads_news_in: asyncio.AbstractEventLoop | None = None

    def frozen(self, agent: str, tool: str) -> str:
        """Why calls are stopped, as this node knows; empty if they are not."""
        if not self._is_read:
            self._database.do(self._load(), STORE_SECONDS)  # once in a process: what comes later is heard of
        return self._known().why(agent, tool)

    async def prepare(self) -> None:
        """Read what is frozen, if that was not read; from then on this node hears of it."""
        if not self._is_read:
            await self._load()

    async def look_up(self, agent: str, tool: str) -> None:
        """Ask the database, which knows every freeze that returned on any node."""
        await self.prepare()
        said: str = await self._looks.do((agent, tool))
        if not said or self._known().why(agent, tool):
            return
        await self._load()  # it was frozen a moment ago
        if not self._known().why(agent, tool):
            raise Unavailable(
                f"{self._database.address.shown} says that calls are frozen, and no enrolled node has signed that: "
                "its table `licet.state_acts` was changed"
            )

    async def add(self, act: StateAct) -> None:
        """Keep an act. Of a freeze: once this returns, no call on any node begins any more."""
        body, fact = row_bytes(act), act.fact
        named = [None if value is UNSET else value for value in (fact.agent, fact.tool)]
        why = fact.why if isinstance(fact.why, str) else ""
        ends = list(fact.about) if act.kind == "thaw" else []
        signature = self._node.sign(_PURPOSE, body)
        row = (act.id, act.kind, *named, why, ends, body, self._node.public, signature)
        await self._database.once(lambda connection: connection.execute(_ADD, *row))
        # From here on it is in force. An opening that was under way may not have read it.
        there: Set[str] | None = None
        try:
            there = await self._load()
        except Unavailable:
            if act.kind != "freeze":  # which anybody may make, also where nothing can be started
                raise
        if act.kind == "freeze":
            await self._wait_for_openings(act)
        if there is not None and act.id not in there:
            raise Unavailable(
                f"{self._database.address.shown} has taken the {act.kind} {act.id}, and does not have it: its table "
                "`licet.state_acts`, or a function of licet, was changed"
            )

    async def view(self) -> StateView:
        """What all acts of the state amount to now."""
        await self._load()
        return self._known()

    async def unpinned(self) -> StateView:
        """What the acts amount to, whatever keys are pinned here: for a person who is about to pin keys."""
        self._recorded = None
        await self._read()
        recorded: Sequence[Entry] = self._recorded or ()
        ledger = next((one.ledger for one in recorded if isinstance(one, LinkedEntry)), "")
        return folded(self._all(), ledger, check_signature)

    async def pin(self, operators: Operators) -> None:
        """Pin the keys of the operators on this node."""
        write_operators(self._directory, operators)

    def close(self) -> None:
        """Nothing ends: all stores of a node share its connections, and hear of changes as long as these last."""

    async def _wait_for_openings(self, act: StateAct) -> None:
        try:
            await self._database.once(lambda connection: connection.execute(_WAIT))
        except Unavailable as wrong:
            raise Unavailable(
                f"the freeze {act.id} is in force, and a call that was beginning at that moment may have begun: {wrong}"
            ) from None

    @property
    def _is_read(self) -> bool:
        return self._view is not None and self._listens_in == os.getpid()

    def _known(self) -> StateView:
        if self._wrong:
            raise Unavailable(self._wrong)
        return self._view or NOTHING

    def _all(self) -> Sequence[StateAct]:
        recorded = [act for act in map(act_of, self._recorded or ()) if act is not None]
        return merged(recorded, [*self._acts.values(), *self._unsigned])

    def _listen(self) -> None:
        with self._lock:
            if self._listens_in == os.getpid():
                return
            self._listens_in = os.getpid()
        self._database.listen(CHANNEL, self._heard)

    def _heard(self, _: str) -> None:
        """In the thread of the database. Anybody can notify, any number of times: one look is under way at once."""
        self._has_news = True
        if self._reads_news_in is not (loop := asyncio.get_running_loop()):
            self._reads_news_in = loop
            self._database.start_if_open(self._read_news)

    async def _read_news(self) -> None:
        try:
            while self._has_news:
                self._has_news = False
                with suppress(Exception):  # what is known goes on to count, and no call begins without the database
                    await self._load()
        finally:
            self._reads_news_in = None

    async def _load(self) -> Set[str]:
        """Read all acts, and believe those that count; returns the ids of those that are in the table."""
        self._listen()
        there = await self._read()
        try:
            view = checked_view(self._all(), read_operators(self._directory), self._database.address.shown)
        except Unavailable as wrong:
            self._wrong = str(wrong)
            raise
        self._view, self._wrong = replace(view, unsound=(*self._unsound, *view.unsound)), ""
        return there

    async def _read(self) -> Set[str]:
        """Add what is in the table, and at first in the ledger, to what this node knows."""
        if self._recorded is None:
            try:
                found = await self._recorded_by_ledger()
            except LedgerUnavailable as wrong:
                raise Unavailable(f"the freezes in the ledger cannot be read: {wrong}") from None
            self._recorded = tuple(sorted(found, key=_place))
        rows = await self._database.once(lambda connection: connection.fetch(_ALL))
        unsound, unsigned, there = list[str](), list[StateAct](), set[str]()
        for body, node, signature in rows:
            try:
                act = read_row(body)
            except Unsound as wrong:
                unsound.append(str(wrong))
                continue
            there.add(act.id)
            if is_signed(node, _PURPOSE, body, signature) and await self._enrolled(node):
                self._acts.setdefault(act.id, act)
            elif act.kind == "freeze":
                unsigned.append(replace(act, fact=replace(act.fact, why=_UNSIGNED)))  # the words may be anybody's
            else:
                unsound.append(f"{act.kind} {act.id}: no enrolled node has signed it")
        self._unsigned, self._unsound = tuple(unsigned), tuple(unsound)
        return there


def _place(entry: Entry) -> int:
    return entry.sequence if isinstance(entry, LinkedEntry) and entry.agent == STATE_AGENT else 0


async def _looked_up(connection: Connection, asked: Sequence[tuple[str, str]]) -> Sequence[str | Exception]:
    rows = await connection.fetch(_FROZEN, [agent for agent, _ in asked], [tool for _, tool in asked])
    return [row[0] for row in rows]
