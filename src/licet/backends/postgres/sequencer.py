"""The sequencer gives entries their places in the tree, and signs its heads: any process that has the ledger's key.

- It takes entries of transactions before the oldest that is still open anywhere in the server: no further entry can
  come before them. A transaction that somebody forgot holds this back, and no call waits for it.
- It takes what an enrolled node has signed, as it was signed. The entries of a session get their places in order.
- One process at a time writes, under a lock of its transaction, and only after the head that it has read. One that
  slept finds another head, and reads again; whatever it tries, no place and no head is given twice.
- It continues the last head that this node has kept, and signs nothing on top of another tree.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from licet.backends.limits import (
    CONNECT_TO_SERVER_SECONDS,
    MOST_PLACED,
    MOST_TAILS,
    MOST_WAITING,
    PLACE_SECONDS,
    STANDBY_SECONDS,
)
from licet.backends.postgres.address import Connection
from licet.backends.postgres.batches import Session, SignedBatch, read_batch, row_of
from licet.backends.postgres.database import Database
from licet.backends.postgres.heads import KeptHead
from licet.backends.postgres.node_keys import BegunLedger, NodeActs, is_node_act
from licet.core.ledger.entry import (
    COLUMNS,
    NODES_AGENT,
    NODES_SESSION,
    START,
    Checkpoint,
    Row,
    Tail,
    Unsound,
    check_row,
    hash_text,
    read_entry,
)
from licet.core.ledger.merkle import Frontier, leaf_hash
from licet.guard.deadlines import store_deadline

SEQUENCER_LOCK = 0x6C6963_0002  # nobody else takes this advisory lock: `place_entries` does
_COLUMNS = "id, kind, entries.agent, entries.session, entries.sequence, tool, verdict, time, entries.hash, body"
# Written so that each entry is looked up in the index of places, whatever the planner knows of both tables.
_NO_PLACE = """LEFT JOIN LATERAL (SELECT true AS found FROM licet.places WHERE places.agent = entries.agent
    AND places.session = entries.session AND places.sequence = entries.sequence LIMIT 1) AS placed ON true"""
_NEXT = f"""
SELECT {_COLUMNS}, batch, xid::text AS known FROM licet.entries {{joined}}
WHERE xid >= $1::text::xid8 AND xid < $2::text::xid8 {{condition}}
    AND (xid, entries.agent, entries.session, entries.sequence) > ($1::text::xid8, $3, $4, $5)
ORDER BY xid, entries.agent, entries.session, entries.sequence LIMIT $6
"""  # noqa: S608 - our words
_ENTRIES = _NEXT.format(joined="", condition="")  # after those that this process has read
_WITHOUT_PLACE = _NEXT.format(joined=_NO_PLACE, condition="AND placed.found IS NULL")
_BATCHES = "SELECT id, node, hashes, signature FROM licet.batches WHERE id = ANY($1)"
_TAILS = """
SELECT wanted.agent, wanted.session, tail.sequence, tail.hash
FROM unnest($1::text[], $2::text[]) AS wanted (agent, session) JOIN LATERAL (
    SELECT places.sequence, places.hash FROM licet.places
    WHERE places.agent = wanted.agent AND places.session = wanted.session ORDER BY places.sequence DESC LIMIT 1
) AS tail ON true
"""
_PLACE = "SELECT licet.place_entries($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_NODES = f"""
SELECT {_COLUMNS} FROM licet.entries JOIN licet.places USING (agent, session, sequence)
WHERE agent = $1 AND session = $2 AND entries.hash = places.hash ORDER BY sequence
"""  # noqa: S608

Key = tuple[str, str, int]


class _Facts(Struct):
    """The fields of an entry that are judged here: its node vouches for the others."""

    ledger: str
    sequence: int
    previous: str | None
    agent: str
    session: str
    id: str
    kind: str
    tool: str
    verdict: str
    time: str


_indexed = attrgetter(*COLUMNS)
_FACTS = msgspec.json.Decoder(_Facts)


class _Candidate(Struct, frozen=True):
    """An entry without a place, which its node has signed."""

    row: Row
    previous: str | None
    xid: int


class _Cursor(Struct, frozen=True):
    """After which entry the next look begins."""

    xid: str
    agent: str = ""
    session: str = ""
    sequence: int = -1


class _Round(Struct, frozen=True):
    """What one look has done: how many places it gave, and the head that it signed."""

    is_ours: bool = True
    is_full: bool = False  # more entries wait
    places: int = 0
    head: Checkpoint | None = None
    frontier: Frontier | None = None


class Sequencer:
    """Gives places to entries while its process lives; `start` and `stop` may be called from any thread."""

    def __init__(self, database: Database, head: KeptHead) -> None:
        self._database, self._head = database, head
        self.reset()

    def reset(self) -> None:
        """Start without a task, in a new object and in a forked child."""
        self._process = os.getpid()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_active = False
        self._looks_in: asyncio.AbstractEventLoop | None = None  # while a look is under way
        self._forget()

    def _forget(self) -> None:
        """Forget what was read; the next look reads it again."""
        self._size = -1
        self._cursor: _Cursor | None = None
        self._tails: dict[Session, Tail] = {}
        self._waiting: dict[Key, _Candidate] = {}
        self._acts: NodeActs | None = None
        self._before = ""  # where it has looked at everything: what is older has ended
        self._rescans = self._follows = False  # whether all entries before the cursor were looked at
        self.problem = ""

    def start(self) -> None:
        """Look for entries from now on. In the thread of the database."""
        if self._process != os.getpid():
            self.reset()
        if self._task is None or self._task.done():
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._work())

    def stop(self) -> None:
        """Look no more."""
        task, loop, self._task, self._loop = self._task, self._loop, None, None
        if self._process == os.getpid() and task is not None and loop is not None:
            with suppress(RuntimeError):  # the loop is closed, so nothing works there
                loop.call_soon_threadsafe(task.cancel)

    def place_rest(self, seconds: float) -> int:
        """Give places to what can have one now, for callers that cannot await; returns how many."""
        until, count = time.monotonic() + seconds, 0
        while (left := until - time.monotonic()) > 0:
            done = self._database.wait(self._look, left)
            self._keep(done)
            count += done.places
            if not done.is_ours:
                time.sleep(PLACE_SECONDS)
            elif not done.is_full:
                break
        return count

    async def place_now(self) -> int:
        """Give places to what can have one now; returns how many."""
        count, until = 0, store_deadline()
        while time.monotonic() < until:
            done = await self._database.once(self._look)
            self._keep(done)
            count += done.places
            if not done.is_ours:
                await asyncio.sleep(PLACE_SECONDS)
            elif not done.is_full:
                break
        return count

    async def _work(self) -> None:
        while self._database.is_open_here():
            pause = STANDBY_SECONDS
            try:
                done = await self._database.asked(self._look, time.monotonic() + CONNECT_TO_SERVER_SECONDS, False)
                self._keep(done)
                self.problem = ""
                if done.is_ours:
                    pause = 0 if done.is_full else PLACE_SECONDS
            except Exception as wrong:  # tables that somebody has changed may cause any error; it looks again
                self._forget()
                self.problem = str(wrong)
            await asyncio.sleep(pause)

    def _keep(self, done: _Round) -> None:
        """Note what was committed."""
        if done.head is not None and done.frontier is not None:
            self._size = done.head.size
            self._head.advance(done.head, done.frontier)

    # One look, which may be repeated after a lost connection: it writes in one statement, or nothing ------------------

    async def _look(self, connection: Connection) -> _Round:
        loop = asyncio.get_running_loop()
        if self._looks_in is loop:  # one at a time; a look in a loop that was closed goes on no more
            return _Round(is_ours=False)
        self._looks_in = loop
        try:
            return await self._looked(connection)
        finally:
            if self._looks_in is loop:
                self._looks_in = None

    async def _looked(self, connection: Connection) -> _Round:
        begun = await self._head.begun(connection)
        key = self._head.key
        if key is None:
            self._is_active = False
            return _Round(is_ours=False)
        newest = await self._head.newest(connection)
        last = await self._head.follow(connection, newest)
        if last.facts.size != self._size:
            was_active, is_new = self._is_active, self._size < 0
            self._forget()
            self._size, self._is_active = last.facts.size, False
            if was_active or not is_new:  # another sequencer works: look again in a while whether it still does
                return _Round(is_ours=False)
        self._is_active = True
        before: str = newest.row["before"]
        if before == self._before and not self._rescans:  # no transaction has ended that was not looked at
            return _Round()
        size, self._size = self._size, -1  # until this is committed, whatever is remembered is doubtful
        if self._acts is None:
            self._acts = await placed_nodes(connection, begun)
        cursor = self._cursor or _Cursor(newest.row["below"])
        if self._rescans:
            cursor, self._rescans, self._follows = _Cursor("0"), False, False
        found = await connection.fetch(
            _ENTRIES if self._follows else _WITHOUT_PLACE,
            cursor.xid,
            before,
            cursor.agent,
            cursor.session,
            cursor.sequence,
            MOST_PLACED,
        )
        is_full = len(found) == MOST_PLACED
        self._follows = self._follows or not is_full
        if found:
            end = found[-1]
            self._cursor = _Cursor(end["known"], end["agent"], end["session"], end["sequence"])
        else:
            self._cursor = cursor
        self._before = "" if is_full else before
        placed = await self._judged(connection, found)
        if not placed:
            self._size = size
            return _Round(is_full=is_full)
        frontier = last.frontier.copy()
        frontier.extend(row.hash for row in placed)
        columns = (
            [row.hash for row in placed],
            [row.agent for row in placed],
            [row.session for row in placed],
            [row.sequence for row in placed],
        )
        head = self._head.signed(key, begun, frontier)
        seen = found[-1]["known"] if is_full else before
        below = min([int(seen), *(one.xid for one in self._waiting.values())])
        kept = head.size, head.body, head.signature, bytes(frontier), str(below)
        if not await connection.fetchval(_PLACE, last.facts.size, *columns, *kept):  # another one was faster
            self._forget()
            return _Round(is_ours=False)
        return _Round(is_full=is_full, places=len(placed), head=head, frontier=frontier)

    async def _judged(self, connection: Connection, found: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Those that get the next places, in order; entries that wait for one before them are remembered."""
        acts = self._acts
        assert acts is not None  # noqa: S101 - it was read before
        batches = await _batches(connection, acts.ledger, {one["batch"] for one in found})
        await self._read_tails(connection, {(one["agent"], one["session"]) for one in found})
        placed: list[Row] = []
        for one in found:
            row = row_of(one)
            facts = _problem(row, batches.get(one["batch"]), acts)
            if isinstance(facts, str):
                continue
            candidate: _Candidate | None = _Candidate(row, facts.previous, int(one["known"]))
            session, sequence = (row.agent, row.session), row.sequence
            while candidate is not None:
                tail = self._tails.get(session, START)
                if sequence > tail.sequence + 1:
                    if len(self._waiting) < MOST_WAITING:  # the one before it comes with a later transaction, or never
                        self._waiting[*session, sequence] = candidate
                    break
                if sequence <= tail.sequence or candidate.previous != (hash_text(tail.hash) if tail.hash else None):
                    break
                placed.append(candidate.row)
                self._tails[session] = Tail(sequence, candidate.row.hash)
                if is_node_act(candidate.row):
                    self._count(acts, candidate.row)
                sequence += 1
                candidate = self._waiting.pop((*session, sequence), None) if self._waiting else None
        return placed

    def _count(self, acts: NodeActs, row: Row) -> None:
        """Count an entry about a node from its place on."""
        known, operators = len(acts.enrolled), acts.operators
        acts.apply(read_entry(row.body))
        # What the node wrote before may count now, and so may enrolments of the operators.
        self._rescans = self._rescans or len(acts.enrolled) > known or acts.operators != operators

    async def _read_tails(self, connection: Connection, sessions: Iterable[Session]) -> None:
        if len(self._tails) > MOST_TAILS:
            self._tails.clear()
        unknown = [one for one in sessions if one not in self._tails]
        if not unknown:
            return
        self._tails.update(dict.fromkeys(unknown, START))
        for one in await connection.fetch(_TAILS, [one[0] for one in unknown], [one[1] for one in unknown]):
            self._tails[one["agent"], one["session"]] = Tail(one["sequence"], one["hash"])


async def _batches(connection: Connection, ledger: str, wanted: Iterable[bytes]) -> Mapping[bytes, SignedBatch]:
    """The batches by id, with what is wrong with them."""
    return {one["id"]: read_batch(ledger, *one) for one in await connection.fetch(_BATCHES, list(wanted))}


def _problem(row: Row, batch: SignedBatch | None, acts: NodeActs) -> _Facts | str:
    """Why an entry gets no place; what is judged further if nothing is wrong with it so far."""
    if batch is None:
        return "it has no signature of a node"
    if batch.problem:
        return batch.problem
    if row.hash not in batch.hashes:
        return f"the node {batch.node} has not signed it"
    if leaf_hash(row.body) != row.hash:
        return "its bytes are not those that were hashed"
    try:
        facts = _FACTS.decode(row.body)
    except (ValueError, RecursionError):
        return "it cannot be read"
    if facts.ledger != acts.ledger:
        return f"it is of another ledger, {facts.ledger}"
    if _indexed(row) != _indexed(facts):
        name = next(name for name in COLUMNS if getattr(row, name) != getattr(facts, name))
        return f"its index says {name} `{getattr(row, name)}`, and the entry says `{getattr(facts, name)}`"
    if batch.node in acts.enrolled:
        return facts
    if is_node_act(facts):  # it counts by its own signature, whoever sent it
        with suppress(Unsound):
            if not acts.problem(read_entry(row.body)):
                return facts
    return f"the node {batch.node} is not enrolled"


async def placed_nodes(connection: Connection, begun: BegunLedger) -> NodeActs:
    """The nodes that the entries in the tree enrol."""
    acts = NodeActs(begun.ledger, begun.key)
    for one in await connection.fetch(_NODES, NODES_AGENT, NODES_SESSION):
        with suppress(Unsound, TypeError, ValueError):  # one that was changed enrols nobody
            row = row_of(one)
            check_row(row)
            acts.apply(read_entry(row.body))
    return acts
