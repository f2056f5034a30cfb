"""What became of calls with an id, in a database that any number of nodes share.

Each row is signed by the node that wrote it, and a row without that signature is refused. The administrator of the
database can delete a row: then the call may run again, and the ledger has two decisions.

Whether a call still runs is known by a time in its row, on the clock of the server. The node that runs the call moves
it on every few seconds, in the thread of the database, whatever the tool does with its own thread.
"""

import asyncio
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.backends.kept_calls import Found, KeptRow, answer_from, begun_row, data_name, is_of, read_row
from licet.backends.limits import ALIVE_SECONDS, CLOCKS_APART, KEPT_SECONDS, MOST_BEGUN, SWEEP_PAUSE, SWEPT_AT_ONCE
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import IsEnrolled, Node, is_signed
from licet.backends.sqlite import FORKS
from licet.core.values import canonical_json
from licet.guard.limits import STORE_SECONDS
from licet.guard.ports import Begun, CallKey, Lost, Unavailable

PURPOSE = "kept call"
_BEGIN = """SELECT found.begun, found.runs, found.body, found.signature, found.data
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bytea[])
    WITH ORDINALITY AS one (agent, session, tool, id, receipt, body, signature, number)
CROSS JOIN LATERAL licet.begin_call(
    one.agent, one.session, one.tool, one.id, one.receipt, one.body, one.signature, $8, $9
) AS found ORDER BY one.number"""
_ITS_ROW = "WHERE agent = $1 AND session = $2 AND tool = $3 AND id = $4 AND body = $5"
_FINISH = f"UPDATE licet.kept_calls SET body = $6, signature = $7, data = $8 {_ITS_ROW}"  # noqa: S608
_DROP = f"DELETE FROM licet.kept_calls {_ITS_ROW}"  # noqa: S608
_BEAT = """UPDATE licet.kept_calls AS kept SET alive_until = clock_timestamp() + make_interval(secs => $6)
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS one (agent, session, tool, id, receipt)
WHERE kept.agent = one.agent AND kept.session = one.session AND kept.tool = one.tool AND kept.id = one.id
    AND kept.receipt = one.receipt AND kept.data IS NULL"""
_SWEEP = """DELETE FROM licet.kept_calls WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM licet.kept_calls
    WHERE expires <= clock_timestamp() AND (data IS NOT NULL OR alive_until <= clock_timestamp())
    ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED
))"""


class _Item(Struct, frozen=True):
    key: CallKey
    receipt: str
    body: bytes
    signature: bytes


class _Told(Struct, frozen=True):
    begun: bool
    runs: bool
    body: object
    signature: object
    data: object


class PostgresKeptCalls:
    """Calls with an id, for all nodes of a state. `enrolled` tells whether a public key is that of one of its nodes."""

    def __init__(
        self,
        database: Database,
        node: Node,
        enrolled: IsEnrolled,
        clock: Callable[[], float] = time.time,
        alive_seconds: float = ALIVE_SECONDS,
    ) -> None:
        self._database, self._node, self._enrolled = database, node, enrolled
        self._clock, self._alive = clock, alive_seconds
        self._beginning = database.lane(self._begin_all, MOST_BEGUN)
        self._rows: weakref.WeakKeyDictionary[Begun, KeptRow] = weakref.WeakKeyDictionary()
        self._dropping: set[asyncio.Future[Any]] = set()
        self.reset_in_child()
        FORKS.add(self)

    def close_for_fork(self) -> None:
        """There is nothing to close."""

    def reset_in_child(self) -> None:
        """Run nothing, in a new object and in a forked child."""
        self._lock = threading.Lock()
        self._live: dict[str, weakref.ref[Begun]] = {}
        self._is_beating = False
        self._beats_in: asyncio.AbstractEventLoop | None = None  # of a timer; it goes when the state is closed
        self._swept = 0.0

    async def begin(self, key: CallKey, arguments: str, receipt: str) -> Found:
        until = int(self._clock()) + KEPT_SECONDS
        row = begun_row(key, arguments, receipt, until, self._node.public)
        body = canonical_json(row)
        item = _Item(key, receipt, body, self._node.sign(PURPOSE, body))
        asking = asyncio.ensure_future(self._beginning.do(item))
        try:
            told = await asyncio.shield(asking)
        except BaseException:  # the row may be there, and nobody runs the call
            self._dropping.add(asking)
            asking.add_done_callback(partial(self._give_back, item))
            raise
        self._sweep_soon()
        if not told.begun:
            return await self._known(key, arguments, told)
        begun = Begun(key, arguments, receipt)
        self._rows[begun] = row
        self._keep_alive(begun)
        return begun

    async def finish(self, begun: Begun, data: bytes) -> None:
        row = self._rows[begun]
        body = canonical_json(replace(row, result=data_name(data)))
        values = (*_columns(begun.key), canonical_json(row), body, self._node.sign(PURPOSE, body), data)
        await self._database.once(lambda connection: connection.execute(_FINISH, *values))
        self._let_go(begun)

    async def drop(self, begun: Begun) -> None:
        values = *_columns(begun.key), canonical_json(self._rows[begun])
        await self._database.once(lambda connection: connection.execute(_DROP, *values))
        self._let_go(begun)

    def __repr__(self) -> str:
        return f"PostgresKeptCalls({self._database!r})"

    # Beginning -------------------------------------------------------------------------------------------------------

    async def _begin_all(self, connection: Connection, items: Sequence[_Item]) -> Sequence[_Told]:
        """Begin several calls in one statement: in the order of their keys, so that two nodes cannot deadlock."""
        order = sorted(range(len(items)), key=lambda number: _columns(items[number].key))
        sent = [items[number] for number in order]
        columns = zip(*((*_columns(one.key), one.receipt, one.body, one.signature) for one in sent), strict=True)
        rows = await connection.fetch(_BEGIN, *map(list, columns), self._alive, float(KEPT_SECONDS))
        told = {number: _Told(row[0], bool(row[1]), *row[2:]) for number, row in zip(order, rows, strict=True)}
        return [told[number] for number in range(len(items))]

    async def _known(self, key: CallKey, arguments: str, told: _Told) -> Found:
        """What a row says, if a node of this state has signed it. One from before its day was brought back."""
        row = read_row(told.body)
        if row is None or not is_of(row, key):
            return Lost("")
        if not is_signed(row.node, PURPOSE, told.body, told.signature) or not await self._enrolled(row.node):
            return Lost("")
        if row.until + CLOCKS_APART < self._clock():
            return Lost(row.receipt)
        return answer_from(row, told.data, arguments, runs=told.runs)

    def _give_back(self, item: _Item, asking: "asyncio.Future[_Told]") -> None:
        """Drop a call that may have begun after its caller had given up. If that fails, its end counts as unknown."""
        self._dropping.discard(asking)
        failed = asking.cancelled() or asking.exception() is not None
        if failed or asking.result().begun:
            values = *_columns(item.key), item.body
            self._later(lambda connection: connection.execute(_DROP, *values))

    def _later(self, act: Callable[[Connection], Awaitable[Any]]) -> None:
        async def work() -> None:
            with suppress(Exception):
                await self._database.asked(act, monotonic() + STORE_SECONDS, transaction=False)

        self._database.start(work())

    def _sweep_soon(self) -> None:
        """Delete rows whose time is over, now and then; no call waits for it."""
        now = monotonic()
        with self._lock:
            if self._swept and now < self._swept + SWEEP_PAUSE:
                return
            self._swept = now
        self._later(lambda connection: connection.execute(_SWEEP, SWEPT_AT_ONCE))

    # Staying alive ---------------------------------------------------------------------------------------------------

    def _keep_alive(self, begun: Begun) -> None:
        with self._lock:
            self._live[begun.receipt] = weakref.ref(begun)
            is_over = self._beats_in is not None and self._beats_in.is_closed()
            begins, self._is_beating = is_over or not self._is_beating, True
            self._beats_in = None if begins else self._beats_in
        if begins:
            self._database.start(self._beat_later())

    def _let_go(self, begun: Begun) -> None:
        with self._lock:
            self._live.pop(begun.receipt, None)

    async def _beat_later(self) -> None:
        """In the thread of the database: look later. A timer waits and no task, which a close would wait for."""
        self._beats_in = loop = asyncio.get_running_loop()
        loop.call_later(self._alive / 3, lambda: self._database.start(self._beat()))

    async def _beat(self) -> None:
        """Say of each call that runs that it does, until none is left."""
        try:
            if await self._beaten():
                await self._beat_later()
        except BaseException:  # the state was closed: the next call that begins starts again
            with self._lock:
                self._is_beating = False
            raise

    async def _beaten(self) -> bool:
        with self._lock:
            keys = [(one.key, one.receipt) for live in self._live.values() if (one := live()) is not None]
            self._live = {receipt: self._live[receipt] for _, receipt in keys}
            if not keys:
                self._is_beating = False  # under the lock: a call that begins now starts another beat
                return False
        columns = zip(*((*_columns(key), receipt) for key, receipt in keys), strict=True)
        values = *map(list, columns), self._alive
        with suppress(Unavailable):  # it is tried again; meanwhile the end of these calls may be unknown to others
            await self._database.asked(
                lambda connection: connection.execute(_BEAT, *values), monotonic() + self._alive / 3, transaction=False
            )
        return True


def _columns(key: CallKey) -> tuple[str, str, str, str]:
    return key.agent, key.session, key.tool, key.id
