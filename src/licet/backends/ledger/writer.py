"""The ledger in one SQLite file: an acknowledged entry survives `kill -9` and power loss, and many processes may write.

One thread writes for the whole process. All entries that arrive during a transaction are written together in the next
one, so they share the cost of one fsync. A checkpoint is signed now and then, not for each entry. The last checkpoint
is also stored next to the key. A file that does not continue from it is neither written nor signed, and neither is a
file whose MAC is wrong (`state`).

The calls that wait until their entry is on the disk, with their deadlines and their event loops.

One thread writes for the calls of several event loops; `writer` has that thread.
"""

import asyncio
import atexit
import math
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec import Struct

from licet.backends.ledger.state import (
    BEGIN,
    FORMAT,
    KEEP,
    State,
    Tagging,
    changed_while_open,
    checkpoint_path,
    ledger_missing,
    ledger_moved,
    moved_to,
    new_ledger_id,
    not_continued,
    read_last,
    read_state,
    trusted_last,
    write_last,
    wrong_chains,
    wrong_mac,
    wrong_table,
)
from licet.backends.memory import SystemClock
from licet.backends.secrets import SigningKey, generated_key, ledger_key, load_code
from licet.backends.sqlite import Patience, SqliteFile, busy
from licet.core.ledger.entry import START, Checkpoint, Entry, Row, Tail, checkpoint_body, link, recorded_at, time_text
from licet.core.ledger.merkle import Frontier
from licet.guard.deadlines import store_deadline
from licet.guard.limits import STORE_SECONDS
from licet.guard.ports import LedgerUnavailable, Unavailable


class WaitingEntry(Struct, frozen=True, eq=False):
    """An entry that a call waits for."""

    entry: Entry
    future: "asyncio.Future[None]"
    loop: asyncio.AbstractEventLoop
    since: float
    until: float  # when the call gives up, by `time.monotonic`


def give_up(pending: deque[WaitingEntry]) -> list[WaitingEntry]:
    """Remove and return those whose deadline has passed."""
    now = time.monotonic()
    late = [one for one in pending if one.until <= now]
    if late:
        rest = [one for one in pending if one.until > now]
        pending.clear()
        pending.extend(rest)
    return late


def answer(batch: Sequence[WaitingEntry], failure: LedgerUnavailable | None) -> None:
    """Wake up every waiting call, in one step for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for one in batch:
        loops.setdefault(one.loop, []).append(one.future)
    for loop, futures in loops.items():
        with suppress(RuntimeError):  # the loop is closed, so no call waits in it
            loop.call_soon_threadsafe(_wake, futures, failure)


def _wake(futures: list["asyncio.Future[None]"], failure: LedgerUnavailable | None) -> None:
    for future in futures:
        if future.done():  # its call was cancelled meanwhile
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(LedgerUnavailable(*failure.args))  # one each: a raised exception keeps a traceback


CHECKPOINT_SECONDS, CHECKPOINT_ENTRIES = 0.2, 4096  # a checkpoint is signed after this much time, or so many entries
CHECKPOINTS_APART = 64  # entries: of checkpoints that are closer, only the newest is kept
_AT_ONCE = 2048  # entries in one transaction
_IDLE_SECONDS = 5.0
_WAIT = 0.05  # seconds for which one attempt waits for other threads of this process

_INSERT = f"INSERT INTO entries ({', '.join(Row._fields)}) VALUES ({', '.join('?' * len(Row._fields))})"  # noqa: S608
_TAIL = """
SELECT chains.sequence, chains.hash, chains.number, entries.agent, entries.session, entries.sequence, entries.hash
FROM chains LEFT JOIN entries USING (number) WHERE chains.agent = ? AND chains.session = ?
"""
_CHAIN = "INSERT OR REPLACE INTO chains (agent, session, sequence, hash, number) VALUES (?, ?, ?, ?, ?)"
_CHECKPOINT = "INSERT OR REPLACE INTO checkpoints (size, body, signature) VALUES (?, ?, ?)"

# The names of delegates are searched one after the other: an agent may have had any number of sessions.
_LENGTHS = """
WITH RECURSIVE names (agent) AS (
    VALUES (?) UNION ALL
    SELECT (SELECT min(agent) FROM chains WHERE chains.agent > max(names.agent, ?) AND chains.agent < ?)
    FROM names WHERE names.agent IS NOT NULL
)
SELECT chains.agent, chains.sequence FROM names CROSS JOIN chains USING (agent) WHERE chains.session = ?
"""

_BUSY = LedgerUnavailable("the ledger is busy")  # compared by identity: the writing thread tries again


class _Done(Struct, frozen=True):
    """The result of a transaction, to be used once it is committed."""

    state: State
    frontier: Frontier
    checkpoint: Checkpoint | None  # over all entries, if one was signed


class SqliteLedger:
    """A ledger file that only its owner can read; the key that signs it is next to it, as `….key`."""

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], datetime] = SystemClock.now) -> None:
        self.path = os.path.abspath(path)
        self.key_path = os.path.splitext(self.path)[0] + ".key"
        self.head_path = checkpoint_path(self.path)
        self._file = SqliteFile(self.path, FORMAT, "FULL", notices_removal=True)
        # Of its own, so that a look at a session never waits for the thread that writes.
        self._lengths = SqliteFile(self.path, FORMAT, "FULL", notices_removal=True)
        self._now = now
        self._key: SigningKey | None = None
        self._tagging: Tagging | None = None
        self._flushes: list[Callable[[], None]] = []
        self._left: State | None = None  # the state that this process wrote last, since it opened the file
        self.reset()
        _LEDGERS.add(self)

    def load_code(self) -> None:
        """Import the code that signs, before a tool could put another module on the import path."""
        load_code()

    def flush_first(self, flush: Callable[[], None]) -> None:
        """Run a function before each transaction, in the thread that writes. If it raises, no entry is kept."""
        self._flushes.append(flush)

    def reset(self) -> None:
        """Start without a thread and without waiting calls, in a new object and in a forked child."""
        self._ready = threading.Condition()
        self._pending: deque[WaitingEntry] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._unsigned = False  # whether this process has written entries that no checkpoint covers yet
        self._process = os.getpid()

    async def record(self, entry: Entry) -> None:
        """Keep an entry; when this returns it is on the disk."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self._process != os.getpid():
            self.reset()
        with self._ready:
            self._pending.append(WaitingEntry(entry, future, loop, time.monotonic(), store_deadline()))
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="licet ledger", daemon=True)
                self._thread.start()
            else:
                self._ready.notify()
        await future

    async def lengths_of(self, agent: str, session: str) -> Mapping[str, int]:
        """How many entries a session and its delegates have, by agent: some searches of an index."""
        if not os.path.lexists(self.path):  # a query would make the file
            return {}
        first, after = f"{agent}>", f"{agent}?"
        found = await self._lengths.read(lambda db: db.execute(_LENGTHS, (agent, first, after, session)).fetchall())
        return dict(found)

    async def entries_of(self, agent: str, session: str, after: Mapping[str, int] | None = None) -> Sequence[Entry]:
        """The entries of a session and of its delegates."""
        from licet.backends.ledger.reader import entries_of_session  # only sessions under `flow:` need it

        return await asyncio.to_thread(entries_of_session, self.path, agent, session, after)

    async def derived(self, purpose: bytes) -> bytes:
        """A secret for one purpose, from the key of this ledger, which is made if there is none."""
        return await asyncio.to_thread(self._derived, purpose)

    def _derived(self, purpose: bytes) -> bytes:
        since, pauses = time.monotonic(), Patience(self.path, math.inf)
        while (key := self._signer()) is None:
            if time.monotonic() - since > STORE_SECONDS:
                raise LedgerUnavailable(str(busy(self.path, time.monotonic() - since)))
            time.sleep(pauses.next_pause())
        return key.derived(purpose)

    def close(self) -> None:
        """Write what is waiting, sign a checkpoint, and close the file; the next entry opens it again."""
        thread = self._thread if self._process == os.getpid() else None
        if thread is not None:
            with self._ready:
                self._closing = True
                self._ready.notify()
            thread.join(STORE_SECONDS)  # a thread that hangs is a daemon
            self._closing = False
        self._left = None  # the file may be moved or replaced until it is opened again
        self._file.close()
        self._lengths.close()

    def __repr__(self) -> str:
        return f"SqliteLedger({self.path!r})"

    # In the writing thread ------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write everything that has arrived since the last transaction, until nothing arrives any more."""
        pauses, since = Patience(self.path, math.inf), time.monotonic()
        while True:
            with self._ready:
                if not self._pending and not self._closing:
                    self._ready.wait(CHECKPOINT_SECONDS if self._unsigned else _IDLE_SECONDS)
                batch = [self._pending.popleft() for _ in range(min(len(self._pending), _AT_ONCE))]
                if not batch and not self._unsigned:
                    self._thread = None
                    return
            failure = self._kept([one.entry for one in batch])
            if failure is not _BUSY:
                answer(batch, failure)
                pauses, since = Patience(self.path, math.inf), time.monotonic()
                if (
                    failure is not None and not batch
                ):  # no checkpoint could be signed: the next process that writes does it
                    self._unsigned = False
                continue
            with self._ready:  # try again, together with the entries that have arrived since
                self._pending.extendleft(reversed(batch))
                late = give_up(self._pending)
            for one in late:
                answer([one], LedgerUnavailable(str(busy(self.path, time.monotonic() - one.since))))
            if not batch and time.monotonic() - since > STORE_SECONDS:
                self._unsigned = False  # as above
            time.sleep(pauses.next_pause())

    def _kept(self, entries: list[Entry]) -> LedgerUnavailable | None:
        """Append entries in one transaction, and sign a checkpoint if it is due; why that failed, or None."""
        try:
            for flush in self._flushes:
                flush()
            key = self._signer()
            done = self._file.try_write(lambda db: self._append(db, key, entries), _WAIT) if key is not None else None
            if key is None or done is None:
                return _BUSY
            kept = done[0]
            self._left = kept.state
            if kept.checkpoint is not None:
                self._store_last(key, kept.checkpoint, kept.frontier)
        except (Unavailable, LedgerUnavailable) as wrong:
            return LedgerUnavailable(str(wrong))
        except Exception as wrong:  # any other error must wake up the waiting calls too
            return LedgerUnavailable(f"{self.path} cannot be written: {type(wrong).__name__}: {wrong}")
        return None

    def _signer(self) -> SigningKey | None:
        """The key of this ledger, made once together with it; None if the file is busy."""
        if self._key is None:
            self._check_not_removed()
            found = self._file.try_write(self._find_key, _WAIT)
            self._key = None if found is None else found[0]
        return self._key

    def _check_not_removed(self) -> None:
        """Refuse to begin a ledger for a key that has signed one; opening the file would leave an empty one."""
        if os.path.lexists(self.key_path) and not os.path.lexists(self.path):
            last = read_last(self.head_path)
            if last is None:  # a key is never made without a checkpoint
                raise ledger_missing(self.head_path)
            if last.facts.size:
                raise not_continued(self.head_path, last)

    def _find_key(self, db: sqlite3.Connection) -> SigningKey:
        """Read the key, or make one for a new ledger; no other process writes meanwhile."""
        begun = self._state(db) is not None
        if os.path.lexists(self.key_path):
            key = ledger_key(self.key_path)
            if not begun and read_last(self.head_path) is None:  # a key is never made without a checkpoint
                raise ledger_missing(self.head_path)
            return key
        if begun:
            raise LedgerUnavailable(
                f"the key {self.key_path} that signs the ledger is missing: put its backup there, or move "
                f"{os.path.splitext(self.path)[0]}.* away to begin another ledger"
            )
        if (last := read_last(self.head_path)) is not None and last.facts.size:
            raise not_continued(self.head_path, last)  # there was a ledger here, and it was removed with its key
        key, empty = generated_key(), Frontier()
        # The checkpoint first: a process that is killed in between leaves an empty one, which is replaced.
        write_last(self.head_path, self._checkpoint(new_ledger_id(), empty, key), empty)
        return ledger_key(self.key_path, key)

    def _state(self, db: sqlite3.Connection) -> State | None:
        try:
            return read_state(db)
        except ValueError as wrong:
            raise wrong_table(self.head_path, str(wrong)) from None

    def _begin(self, db: sqlite3.Connection, key: SigningKey) -> State:
        if self._left is not None:
            raise changed_while_open(self.head_path, self._left.size)
        last = trusted_last(self.head_path, key.public)
        if last is not None and last.facts.size:
            raise not_continued(self.head_path, last)  # there was a ledger here, and it was removed
        ledger, empty = new_ledger_id(), Frontier()
        db.execute(BEGIN, (ledger, key.public))
        # Before any entry is written: from here on there is always a checkpoint to continue from.
        write_last(self.head_path, self._checkpoint(ledger, empty, key), empty)
        return State(ledger, key.public)

    def _checkpoint(self, ledger: str, frontier: Frontier, key: SigningKey) -> Checkpoint:
        body = checkpoint_body(ledger, frontier.size, frontier.root, time_text(self._now()), key.public)
        return Checkpoint(frontier.size, body, key.sign(body))

    def _trusted(self, db: sqlite3.Connection, key: SigningKey, tagging: Tagging) -> State:
        """The state that the next entry links to: as this process left it, or as a holder of the key continued it."""
        state = self._state(db)
        if state is None:
            return self._begin(db, key)
        if to := moved_to(state.key):
            raise ledger_moved(self.path, to)
        if state.key != key.public:
            raise LedgerUnavailable(
                f"{self.path} is signed with {state.key}, and {self.key_path} holds {key.public}: "
                "put the right key there"
            )
        if state == self._left:
            return state
        if self._left is None:
            self._check_continues(db, key, state)
        elif not _continues(db, self._left, state):
            raise changed_while_open(self.head_path, self._left.size)
        if tagging.wrong(state):
            raise wrong_mac(self.head_path, state.signed, state.size)
        return state

    def _check_continues(self, db: sqlite3.Connection, key: SigningKey, state: State) -> None:
        """Refuse a file that does not continue from the last checkpoint."""
        last = trusted_last(self.head_path, key.public)
        if last is None or last.facts.ledger != state.ledger or not last.facts.size <= state.size >= state.signed:
            raise not_continued(self.head_path, last)
        if not _grows_to(db, last.frontier.copy(), state):
            raise not_continued(self.head_path, last)

    def _store_last(self, key: SigningKey, checkpoint: Checkpoint, frontier: Frontier) -> None:
        """Store a checkpoint next to the key, unless another process has stored a newer one."""
        with suppress(LedgerUnavailable):  # the stored one is older and still true; the next checkpoint replaces it
            last = trusted_last(self.head_path, key.public)
            if last is not None and last.facts.size < checkpoint.size:
                write_last(self.head_path, checkpoint, frontier)

    def _append(self, db: sqlite3.Connection, key: SigningKey, entries: Iterable[Entry]) -> _Done:
        """Append entries, and sign a checkpoint if it is due; changes nothing but the file."""
        tagging = self._tagging = self._tagging or Tagging(key)
        state = self._trusted(db, key, tagging)
        frontier = Frontier.of_bytes(state.size, state.frontier)
        recorded = recorded_at(self._now(), state.recorded)
        rows: list[Row] = []
        ends: dict[tuple[str, str], Tail] = {}
        for number, entry in enumerate(entries, state.size + 1):
            session = entry.agent, entry.session
            tail = ends.get(session) or self._tail(db, session)
            row = link(entry, state.ledger, number, tail, recorded)
            ends[session] = Tail(row.sequence, row.hash, number)
            rows.append(row)
        frontier.extend(row.hash for row in rows)
        left = state
        if rows:
            db.executemany(_INSERT, rows)
            db.executemany(_CHAIN, [(*session, *end) for session, end in ends.items()])
            left = state._replace(size=frontier.size, frontier=bytes(frontier), recorded=recorded)
        now = time.time_ns() // 1_000_000
        checkpoint = self._sign(db, key, left, frontier, now, not state.size or not rows)
        if checkpoint is not None:
            left = left._replace(signed=checkpoint.size, signed_ms=now)
        if left is not state:
            left = tagging.tagged(left)
            db.execute(KEEP, left[2:])
        return _Done(left, frontier, checkpoint)

    def _tail(self, db: sqlite3.Connection, session: tuple[str, str]) -> Tail:
        found = db.execute(_TAIL, session).fetchone()
        if found is None:
            return START
        tail, last = Tail(*found[:3]), found[3:]
        if last != (*session, tail.sequence, tail.hash):  # `chains` names another entry, or none
            raise wrong_chains(self.head_path, tail.number)
        return tail

    def _sign(
        self, db: sqlite3.Connection, key: SigningKey, state: State, frontier: Frontier, now: int, due: bool
    ) -> Checkpoint | None:
        """Sign a checkpoint over all entries, if it is due, or if another process has left entries without one."""
        size = state.size
        due = due or size - state.signed >= CHECKPOINT_ENTRIES
        due = due or not 0 <= now - state.signed_ms < CHECKPOINT_SECONDS * 1000
        self._unsigned = size > state.signed
        if not (due and self._unsigned):
            return None
        self._check_continues(db, key, state)
        checkpoint = self._checkpoint(state.ledger, frontier, key)
        near = [row[0] for row in db.execute("SELECT size FROM checkpoints ORDER BY size DESC LIMIT 2")]
        if len(near) == 2 and near[0] - near[1] < CHECKPOINTS_APART:  # the new one covers its entries too
            db.execute("DELETE FROM checkpoints WHERE size = ?", (near[0],))
        db.execute(_CHECKPOINT, checkpoint)
        self._unsigned = False
        return checkpoint


def _continues(db: sqlite3.Connection, left: State, state: State) -> bool:
    """Whether a ledger still has every entry that it had, and no fewer of them signed."""
    if state.ledger != left.ledger or state.signed < left.signed:
        return False
    return _grows_to(db, Frontier.of_bytes(left.size, left.frontier), state)


def _grows_to(db: sqlite3.Connection, frontier: Frontier, state: State) -> bool:
    """Whether a tree with the entries after it becomes the tree of a state."""
    found = db.execute("SELECT hash FROM entries WHERE number > ? ORDER BY number", (frontier.size,))
    try:
        while leaves := found.fetchmany(_AT_ONCE):
            frontier.extend(leaf for (leaf,) in leaves)
        return (frontier.size, bytes(frontier)) == (state.size, state.frontier)
    except TypeError:  # a value that is not a hash
        return False


# A process that ends signs what it has written; after one that is killed, the next process does.
_LEDGERS: "weakref.WeakSet[SqliteLedger]" = weakref.WeakSet()


def _close_all() -> None:
    for ledger in list(_LEDGERS):
        with suppress(Exception):
            ledger.close()


def _in_child() -> None:
    for ledger in list(_LEDGERS):  # the thread and the waiting calls stayed in the parent
        ledger.reset()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
