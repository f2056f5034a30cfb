"""A ledger in one SQLite file: what was acknowledged survives `kill -9` and power loss; many processes may write.

One thread writes for the whole process. Whatever has come while it wrote is one transaction the next time, so the
price of a write to the disk is shared. Heads are signed now and then, never for each entry. The last one is also kept
beside the key: what does not go on from it is neither written to nor signed. Nor is what was written behind it by
somebody who has not the key (`ledger_tail`).
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
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from licet.backends.keys import SigningKey, generated_key, key_beside, load_code
from licet.backends.ledger.queue import Waiting, answer, give_up
from licet.backends.ledger.state import (
    BEGIN,
    FORMAT,
    KEEP,
    State,
    Tagging,
    astray,
    head_beside,
    new_name,
    not_from,
    read_mark,
    read_state,
    set_back,
    taken_away,
    trusted_mark,
    unreadable,
    untagged,
    write_mark,
)
from licet.backends.memory import SystemClock
from licet.backends.sqlite.file import Patience, SqliteFile, busy
from licet.core.ledger.entry import START, Head, Row, Stem, Tail, head_body, kept_at, time_text
from licet.core.ledger.merkle import Frontier
from licet.guard.deadline import STORE_SECONDS, store_deadline
from licet.guard.ports import Entry, LedgerUnavailable, Unavailable
from licet.guard.receipt import Stems

HEAD_SECONDS, HEAD_ENTRIES = 0.2, 4096  # a head is signed when this much has passed since the last
HEADS_APART = 64  # entries: of heads that are closer, only the newest is kept
_AT_ONCE = 2048  # entries in one transaction
_IDLE_SECONDS = 5.0
_WAIT = 0.05  # seconds for which one attempt waits for other threads of this process
_MOST_TAILS = 10_000
_new = tuple.__new__  # for what is a named tuple: making it so costs a third of calling its class

_ROWS = 32  # in one statement: SQLite has one step to make for all of them, and Python one lock to give and take
_ROW = f"({', '.join('?' * len(Row._fields))})"
_INSERT = f"INSERT INTO entries ({', '.join(Row._fields)}) VALUES {_ROW}"  # noqa: S608
_INSERT_ROWS = _INSERT + f", {_ROW}" * (_ROWS - 1)
_TAIL = """
SELECT chains.sequence, chains.hash, chains.number, entries.agent, entries.session, entries.sequence, entries.hash
FROM chains LEFT JOIN entries USING (number) WHERE chains.agent = ? AND chains.session = ?
"""
_CHAIN = "INSERT OR REPLACE INTO chains (agent, session, sequence, hash, number) VALUES (?, ?, ?, ?, ?)"
_HEAD = "INSERT OR REPLACE INTO heads (size, body, signature) VALUES (?, ?, ?)"


_BUSY = LedgerUnavailable("the ledger is busy")  # as an answer to the thread that writes: try again


class _Done(NamedTuple):
    """What a transaction left, to be remembered once it is kept."""

    state: State
    ends: dict[tuple[str, str], Tail]  # of the sessions that its entries belong to
    frontier: Frontier
    head: Head | None  # over everything, if one was signed


class SqliteLedger:
    """What happened, in a file that only its owner can read; the key that signs it is beside it, as `….key`."""

    keeps_facts = True

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], datetime] = SystemClock.now) -> None:
        self.path = os.path.abspath(path)
        self.key_path = os.path.splitext(self.path)[0] + ".key"
        self.head_path = head_beside(self.path)
        self._file = SqliteFile(self.path, FORMAT, "FULL", notices_removal=True)
        self._now = now
        self._stems = Stems()
        self._key: SigningKey | None = None
        self._tagging: Tagging | None = None
        self._left: State | None = None  # how this process has last left the ledger, since it was opened
        self._tails: dict[tuple[str, str], Tail] = {}  # ends of chains, true as long as nobody else writes
        self._alone()
        _LEDGERS.add(self)

    def load_code(self) -> None:
        """Import what signs entries."""
        load_code()

    def _alone(self) -> None:
        """Begin with nothing to do and nobody to do it: when it is made, and in a child that was forked."""
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._pending: deque[Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._unsigned = False  # whether this process has written what no head speaks for
        self._process = os.getpid()

    async def record(self, entry: Entry) -> None:
        """Keep an entry; when this returns it is on the disk."""
        loop, call = asyncio.get_running_loop(), entry.call
        # What a call leaves behind can be long: to write it down takes a while, and others have their turn meanwhile.
        long = call is not None and call.is_long
        stem = await asyncio.to_thread(self._stems.of, entry) if long else self._stems.of(entry)
        future = loop.create_future()
        if self._process != os.getpid():
            self._alone()
        with self._lock:  # that of `_ready`, without the two calls that it costs there
            self._pending.append(_new(Waiting, (stem, future, loop, time.monotonic(), store_deadline())))
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="licet ledger", daemon=True)
                self._thread.start()
            elif len(self._pending) == 1:  # whoever came before has told the thread already
                self._ready.notify()
        await future

    def close(self) -> None:
        """Keep what is waiting, sign a head, and let go of the file; the next entry opens it again."""
        thread = self._thread if self._process == os.getpid() else None
        if thread is not None:
            with self._ready:
                self._closing = True
                self._ready.notify()
            thread.join(STORE_SECONDS)  # what hangs is left to its daemon thread
            self._closing = False
        self._left = None  # whatever happens to it until it is opened again
        self._file.close()

    def __repr__(self) -> str:
        return f"SqliteLedger({self.path!r})"

    # In the thread that writes --------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Keep whatever has come since the last time, until nothing comes any more."""
        pauses, since = Patience(self.path, math.inf), time.monotonic()
        while True:
            with self._ready:
                if not self._pending and not self._closing:
                    self._ready.wait(HEAD_SECONDS if self._unsigned else _IDLE_SECONDS)
                batch = [self._pending.popleft() for _ in range(min(len(self._pending), _AT_ONCE))]
                if not batch and not self._unsigned:
                    self._thread = None
                    return
            failure = self._kept([one.stem for one in batch])
            if failure is not _BUSY:
                answer(batch, failure)
                pauses, since = Patience(self.path, math.inf), time.monotonic()
                if failure is not None and not batch:  # no head could be signed: whoever opens the ledger next does it
                    self._unsigned = False
                continue
            with self._ready:  # they try again, with those who have come meanwhile
                self._pending.extendleft(reversed(batch))
                late = give_up(self._pending)
            for one in late:
                answer([one], LedgerUnavailable(str(busy(self.path, time.monotonic() - one.since))))
            if not batch and time.monotonic() - since > STORE_SECONDS:
                self._unsigned = False  # as above
            time.sleep(pauses.next_pause())

    def _kept(self, stems: list[Stem]) -> LedgerUnavailable | None:
        """Append entries as one step, and sign a head if it is time; why that could not be done, or None."""
        try:
            key = self._signer()
            done = self._file.try_write(lambda db: self._append(db, key, stems), _WAIT) if key is not None else None
            if key is None or done is None:
                return _BUSY
            kept = done[0]
            self._left = kept.state
            self._tails |= kept.ends
            if kept.head is not None:
                self._mark(key, kept.head, kept.frontier)
        except (Unavailable, LedgerUnavailable) as wrong:
            return LedgerUnavailable(str(wrong))
        except Exception as wrong:  # whatever it is, nobody may wait for ever
            return LedgerUnavailable(f"{self.path} cannot be written: {type(wrong).__name__}: {wrong}")
        return None

    def _signer(self) -> SigningKey | None:
        """The key of this ledger: made with it, and never a second time. None if the file is busy."""
        if self._key is None:
            found = self._file.try_write(self._find_key, _WAIT)
            self._key = None if found is None else found[0]
        return self._key

    def _find_key(self, db: sqlite3.Connection) -> SigningKey:
        """Read the key, or make one for a new ledger; no other process writes meanwhile."""
        begun = self._state(db) is not None
        if os.path.lexists(self.key_path):
            key = key_beside(self.key_path)
            if not begun and read_mark(self.head_path) is None:  # a key is never made without a head
                raise taken_away(self.head_path)
            return key
        if begun:
            raise LedgerUnavailable(
                f"the key {self.key_path} that signs the ledger is gone: put its backup there, or move "
                f"{os.path.splitext(self.path)[0]}.* away to begin another ledger"
            )
        if (mark := read_mark(self.head_path)) is not None and mark.facts.size:
            raise not_from(self.head_path, mark)  # there was a ledger here, and its key went with it
        key, nothing = generated_key(), Frontier()
        # The head first: a process that is killed in between leaves one that speaks for nothing, and is replaced.
        write_mark(self.head_path, self._head(new_name(), nothing, key), nothing)
        return key_beside(self.key_path, key)

    def _state(self, db: sqlite3.Connection) -> State | None:
        try:
            return read_state(db)
        except ValueError as wrong:
            raise unreadable(self.head_path, str(wrong)) from None

    def _begin(self, db: sqlite3.Connection, key: SigningKey) -> State:
        if self._left is not None:
            raise set_back(self.head_path, self._left.size)
        mark = trusted_mark(self.head_path, key.public)
        if mark is not None and mark.facts.size:
            raise not_from(self.head_path, mark)  # there was a ledger here, and it was taken away
        name, nothing = new_name(), Frontier()
        db.execute(BEGIN, (name, key.public))
        # Before anything is kept: from here on there is always a head to go on from.
        write_mark(self.head_path, self._head(name, nothing, key), nothing)
        return State(name, key.public)

    def _head(self, ledger: str, frontier: Frontier, key: SigningKey) -> Head:
        body = head_body(ledger, frontier.size, frontier.root, time_text(self._now()), key.public)
        return Head(frontier.size, body, key.sign(body))

    def _trusted(self, db: sqlite3.Connection, key: SigningKey, tagging: Tagging) -> State:
        """What the next entry follows: as this process has left it, or as somebody with the key went on from there."""
        state = self._state(db)
        if state is None:
            return self._begin(db, key)
        if state.key != key.public:
            raise LedgerUnavailable(
                f"{self.path} is signed with {state.key}, and {self.key_path} holds {key.public}: "
                "put the right key there"
            )
        if state == self._left:
            return state
        self._tails.clear()  # somebody else has written
        if self._left is None:
            self._hold(db, key, state)
        elif not _goes_on(db, self._left, state):
            raise set_back(self.head_path, self._left.size)
        if tagging.wrong(state):
            raise untagged(self.head_path, state.signed, state.size)
        return state

    def _hold(self, db: sqlite3.Connection, key: SigningKey, state: State) -> None:
        """Refuse a file that does not go on from the last head that was signed."""
        mark = trusted_mark(self.head_path, key.public)
        if mark is None or mark.facts.ledger != state.ledger or not mark.facts.size <= state.size >= state.signed:
            raise not_from(self.head_path, mark)
        if not _grown_to(db, mark.frontier.copy(), state):
            raise not_from(self.head_path, mark)

    def _mark(self, key: SigningKey, head: Head, frontier: Frontier) -> None:
        """Keep a head beside the key, unless another process has kept a newer one."""
        with suppress(LedgerUnavailable):  # what is there is older, and as true; the next head replaces it
            mark = trusted_mark(self.head_path, key.public)
            if mark is not None and mark.facts.size < head.size:
                write_mark(self.head_path, head, frontier)

    def _append(self, db: sqlite3.Connection, key: SigningKey, stems: Iterable[Stem]) -> _Done:
        """Append entries, and sign a head if it is time; it changes nothing but the file."""
        tagging = self._tagging = self._tagging or Tagging(key)
        state = self._trusted(db, key, tagging)
        if len(self._tails) > _MOST_TAILS:
            self._tails.clear()
        frontier = Frontier.of_bytes(state.size, state.frontier)
        recorded = kept_at(self._now(), state.recorded)
        rows: list[Row] = []
        leaves: list[bytes] = []
        ends: dict[tuple[str, str], Tail] = {}
        session, sequence, before, number, ledger = None, 0, b"", state.size, state.ledger
        for stem in stems:
            within = stem[0]
            if within.chain != session:  # most follow one of the same session
                if session is not None:
                    ends[session] = Tail(sequence, before, number)
                session = within.chain
                sequence, before, _ = ends.get(session) or self._tail(db, session)
            sequence, number, link = sequence + 1, number + 1, within.link
            row = link(stem, ledger, number, sequence, before, recorded)
            before = row.hash
            rows.append(row)
            leaves.append(before)
        if session is not None:
            ends[session] = Tail(sequence, before, number)
        frontier.extend(leaves)
        left = state
        if rows:
            _insert(db, rows)
            db.executemany(_CHAIN, [(*session, *end) for session, end in ends.items()])
            left = state._replace(size=frontier.size, frontier=bytes(frontier), recorded=recorded)
        now = time.time()
        head = self._sign(db, key, left, frontier, now, not state.size or not rows)
        if head is not None:
            left = left._replace(signed=head.size, signed_at=now)
        if left is not state:
            left = tagging.tagged(left)
            db.execute(KEEP, left[2:])
        return _Done(left, ends, frontier, head)

    def _tail(self, db: sqlite3.Connection, session: tuple[str, str]) -> Tail:
        tail = self._tails.get(session)
        if tail is None:
            found = db.execute(_TAIL, session).fetchone()
            if found is None:
                return START
            tail, last = Tail(*found[:3]), found[3:]
            if last != (*session, tail.sequence, tail.hash):  # it names another entry, or none
                raise astray(self.head_path, tail.number)
        return tail

    def _sign(
        self, db: sqlite3.Connection, key: SigningKey, state: State, frontier: Frontier, now: float, due: bool
    ) -> Head | None:
        """Sign a head over everything, if it is time, or if another process has left entries without one."""
        size = state.size
        due = due or size - state.signed >= HEAD_ENTRIES or not 0 <= now - state.signed_at < HEAD_SECONDS
        self._unsigned = size > state.signed
        if not (due and self._unsigned):
            return None
        self._hold(db, key, state)
        head = self._head(state.ledger, frontier, key)
        near = [row[0] for row in db.execute("SELECT size FROM heads ORDER BY size DESC LIMIT 2")]
        if len(near) == 2 and near[0] - near[1] < HEADS_APART:  # the new one speaks for its entries too
            db.execute("DELETE FROM heads WHERE size = ?", (near[0],))
        db.execute(_HEAD, head)
        self._unsigned = False
        return head


def _goes_on(db: sqlite3.Connection, left: State, state: State) -> bool:
    """Whether a ledger still has everything that it had, and no head less."""
    if state.ledger != left.ledger or state.signed < left.signed:
        return False
    return _grown_to(db, Frontier.of_bytes(left.size, left.frontier), state)


def _grown_to(db: sqlite3.Connection, frontier: Frontier, state: State) -> bool:
    """Whether a tree becomes that of a state by the entries that follow."""
    found = db.execute("SELECT hash FROM entries WHERE number > ? ORDER BY number", (frontier.size,))
    try:
        while leaves := found.fetchmany(_AT_ONCE):
            frontier.extend(leaf for (leaf,) in leaves)
        return (frontier.size, bytes(frontier)) == (state.size, state.frontier)
    except TypeError:  # somebody has written what is no hash
        return False


def _insert(db: sqlite3.Connection, rows: list[Row]) -> None:
    rest = len(rows) - len(rows) % _ROWS
    for start in range(0, rest, _ROWS):
        db.execute(_INSERT_ROWS, tuple(chain.from_iterable(rows[start : start + _ROWS])))
    db.executemany(_INSERT, rows[rest:])


# A process that ends signs what it has written; one that is killed leaves that to the next.
_LEDGERS: "weakref.WeakSet[SqliteLedger]" = weakref.WeakSet()


def _close_all() -> None:
    for ledger in list(_LEDGERS):
        with suppress(Exception):
            ledger.close()


def _in_child() -> None:
    for ledger in list(_LEDGERS):  # the thread stayed with the parent, and so did those who wait
        ledger._alone()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
