"""What became of calls with an id: in one SQLite file that any number of processes share, and in memory.

A row says that a call began, and later what is to be handed to those that repeat it. Each row is sealed with a key that
the file does not have: who can write the file and nothing else can make a call fail, and cannot plant a result.

Whether a call still runs is never read from the file. The process that runs it holds a lock of the system, which ends
with that process however it ends.
"""

import hmac
import os
import sqlite3
import threading
import time
import weakref
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct

from licet.backends.limits import KEPT_SECONDS, SWEPT_AT_ONCE
from licet.backends.sqlite import FORKS, Format, SqliteFile
from licet.core.values import canonical_json
from licet.guard.ports import (
    Begun,
    CallKey,
    Kept,
    LedgerUnavailable,
    Lost,
    Reused,
    Unavailable,
    UnderWay,
    free_after_fork,
)

Found = Begun | UnderWay | Kept | Reused | Lost

# Rows ----------------------------------------------------------------------------------------------------------------


class KeptRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call with an id, as it is sealed."""

    format: Literal[1] = 1
    agent: str
    session: str
    tool: str
    id: str
    arguments: str  # digest
    receipt: str
    until: int  # seconds since 1970
    result: str | None = None  # digest of what was kept; None while the call is under way
    node: str = ""  # the public key of the node that signs the row, in a database


_DECODER = msgspec.json.Decoder(KeptRow)


def begun_row(key: CallKey, arguments: str, receipt: str, until: int, node: str = "") -> KeptRow:
    """The row of a call that begins."""
    return KeptRow(
        agent=key.agent,
        session=key.session,
        tool=key.tool,
        id=key.id,
        arguments=arguments,
        receipt=receipt,
        until=until,
        node=node,
    )


def data_name(data: bytes) -> str:
    """The digest of what is kept."""
    return f"sha256:{sha256(data).hexdigest()}"


def read_row(body: object) -> KeptRow | None:
    """A row from the bytes that were sealed; None if they are no row. Whether the seal is right is another question."""
    if type(body) is not bytes:  # SQLite stores any type in any column
        return None
    try:
        row = _DECODER.decode(body)
        return row if canonical_json(row) == body else None
    except (ValueError, RecursionError):
        return None


def is_of(row: KeptRow, key: CallKey) -> bool:
    """Whether a row is about this call: it may have been copied from another one."""
    return (row.agent, row.session, row.tool, row.id) == (key.agent, key.session, key.tool, key.id)


def answer_from(row: KeptRow, data: object, arguments: str, *, runs: bool) -> UnderWay | Kept | Reused | Lost:
    """What a sealed row says to a call that comes again."""
    if row.arguments != arguments:
        return Reused(row.receipt)
    if row.result is None:
        return UnderWay(row.receipt) if runs else Lost(row.receipt)
    if type(data) is not bytes or not hmac.compare_digest(data_name(data), row.result):
        return Lost(row.receipt)
    return Kept(row.receipt, data)


# Which calls run -----------------------------------------------------------------------------------------------------


class RunningCalls:
    """The calls that run on this machine. Each holds a lock of the system on one byte of a file.

    These locks belong to a process: they end with it, also when it is killed, and a forked child has none of them. They
    would also end when the process closes the file anywhere, so each process opens it once.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        self.reset_in_child()
        FORKS.add(self)

    def close_for_fork(self) -> None:
        """The file stays open: closing it would end the locks."""

    def reset_in_child(self) -> None:
        """Hold nothing, in a new object and in a forked child."""
        self._lock = threading.RLock()  # an object that is garbage lets go in whatever thread finds it
        self._held: set[str] = set()

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def hold(self, begun: Begun) -> None:
        """Say that a call runs, for as long as its object exists."""
        with self._lock:
            try:
                self._set(begun.receipt, "LOCK_EX")
            except OSError as error:
                raise Unavailable(f"{self.path} cannot be locked: {error.strerror}") from None
            self._held.add(begun.receipt)
        weakref.finalize(begun, self.let_go, begun.receipt)

    def let_go(self, receipt: str) -> None:
        """Say that a call does not run any more. Again, this does nothing."""
        with self._lock:
            if receipt in self._held:
                self._held.discard(receipt)
                with suppress(OSError, Unavailable):
                    self._set(receipt, "LOCK_UN")

    def holds(self, receipt: str) -> bool:
        """Whether a call runs, in this process or in another one."""
        with self._lock:
            if receipt in self._held:
                return True
            try:
                self._set(receipt, "LOCK_SH")
            except (BlockingIOError, PermissionError):  # systems say it in both ways
                return True
            except OSError as error:
                raise Unavailable(f"{self.path} cannot be locked: {error.strerror}") from None
            self._set(receipt, "LOCK_UN")
            return False

    def _set(self, receipt: str, kind: Literal["LOCK_EX", "LOCK_SH", "LOCK_UN"]) -> None:
        import fcntl  # not on every platform

        if self._file < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                self._file = os.open(self.path, flags, 0o600)
            except OSError as error:
                raise Unavailable(f"{self.path} cannot be opened: {error.strerror}") from None
        at = int.from_bytes(sha256(receipt.encode()).digest()[:7])
        how = fcntl.LOCK_UN if kind == "LOCK_UN" else getattr(fcntl, kind) | fcntl.LOCK_NB
        fcntl.lockf(self._file, how, 1, at)


_RUNNING: "weakref.WeakValueDictionary[str, RunningCalls]" = weakref.WeakValueDictionary()
_MAKING = free_after_fork(threading.Lock())


def _running_in(path: str) -> RunningCalls:
    """The calls that run, by the path of their file: the same object for all stores of this process."""
    with _MAKING:
        found = _RUNNING.get(path)
        if found is None:
            found = _RUNNING[path] = RunningCalls(path)
        return found


# Stores --------------------------------------------------------------------------------------------------------------


_SCHEMA = """
CREATE TABLE calls (
    agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, id TEXT NOT NULL,
    until INTEGER NOT NULL, body BLOB NOT NULL, seal BLOB NOT NULL, data BLOB,
    PRIMARY KEY (agent, session, tool, id)
);
CREATE INDEX by_until ON calls (until);
"""
_FORMAT = Format(0x6C696364, 1, _SCHEMA, exact=True)  # `licd`: licet's files of calls that were done
_FIND = "SELECT body, seal, data FROM calls WHERE agent = ? AND session = ? AND tool = ? AND id = ?"
_BEGIN = "INSERT OR REPLACE INTO calls (agent, session, tool, id, until, body, seal) VALUES (?, ?, ?, ?, ?, ?, ?)"
_FINISH = """UPDATE calls SET body = ?, seal = ?, data = ?
WHERE agent = ? AND session = ? AND tool = ? AND id = ? AND body = ?"""
_DROP = "DELETE FROM calls WHERE agent = ? AND session = ? AND tool = ? AND id = ? AND body = ?"
_OLD = "SELECT rowid, body FROM calls WHERE until <= ? ORDER BY until LIMIT ?"
_SWEEP = "DELETE FROM calls WHERE rowid = ?"


class SqliteKeptCalls:
    """Calls with an id, in a file that only its owner can read. That a call began survives a power cut.

    `secret` computes the key of the seals, which is not in the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        secret: Callable[[], Awaitable[bytes]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = SqliteFile(path, _FORMAT)
        self._running = _running_in(f"{os.path.realpath(path)}-running")
        self._find_secret = secret
        self._secret = b""
        self._clock = clock
        self._rows: weakref.WeakKeyDictionary[Begun, KeptRow] = weakref.WeakKeyDictionary()

    async def begin(self, key: CallKey, arguments: str, receipt: str) -> Found:
        await self._load_secret()

        def begin(db: sqlite3.Connection) -> Found:
            now = int(self._clock())
            db.execute("PRAGMA secure_delete = ON")  # what is deleted may be private
            self._sweep(db, now)
            found = db.execute(_FIND, _columns(key)).fetchone()
            if found is not None and (known := self._known(key, arguments, found, now)) is not None:
                return known
            row = begun_row(key, arguments, receipt, now + KEPT_SECONDS)
            body = canonical_json(row)
            db.execute(_BEGIN, (*_columns(key), row.until, body, self._seal(body)))
            begun = Begun(key, arguments, receipt)
            self._running.hold(begun)  # before anybody can see the row
            self._rows[begun] = row
            return begun

        found = await self._file.write(begin)
        if isinstance(found, Begun):
            try:
                await to_thread(self._file.flush)
            except BaseException:  # nobody runs the call; if the file is busy now, its end counts as unknown
                self._file.write_now(self._dropped(found))
                raise
        return found

    async def finish(self, begun: Begun, data: bytes) -> None:
        row = self._rows[begun]
        body = canonical_json(msgspec.structs.replace(row, result=data_name(data)))
        sealed = body, self._seal(body), data

        def finish(db: sqlite3.Connection) -> None:
            db.execute(_FINISH, (*sealed, *_columns(begun.key), canonical_json(row)))

        await self._file.write(finish)
        self._running.let_go(begun.receipt)

    async def drop(self, begun: Begun) -> None:
        await self._file.write(self._dropped(begun))
        self._running.let_go(begun.receipt)

    def _dropped(self, begun: Begun) -> Callable[[sqlite3.Connection], object]:
        values = *_columns(begun.key), canonical_json(self._rows[begun])
        return lambda db: db.execute(_DROP, values)

    def close(self) -> None:
        self._file.close()

    def __repr__(self) -> str:
        return f"SqliteKeptCalls({self._file.path!r})"

    async def _load_secret(self) -> None:
        if not self._secret:
            try:
                self._secret = await self._find_secret()
            except LedgerUnavailable as broken:
                raise Unavailable(str(broken)) from None

    def _seal(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, body, "sha256")

    def _known(self, key: CallKey, arguments: str, found: tuple[object, ...], now: int) -> Found | None:
        """What a row says; None if its time is over. What was not written here says only that something is wrong."""
        body, seal, data = found
        row = read_row(body)
        if row is None or type(body) is not bytes or type(seal) is not bytes or not is_of(row, key):
            return Lost("")
        if not hmac.compare_digest(self._seal(body), seal):
            return Lost("")
        runs = row.result is None and self._running.holds(row.receipt)
        if row.until <= now and not runs:
            return None
        return answer_from(row, data, arguments, runs=runs)

    def _sweep(self, db: sqlite3.Connection, now: int) -> None:
        """Delete rows whose time is over, some at once."""
        for number, body in db.execute(_OLD, (now, SWEPT_AT_ONCE)).fetchall():
            row = read_row(body)
            if row is None or row.result is not None or not self._running.holds(row.receipt):
                db.execute(_SWEEP, (number,))


def _columns(key: CallKey) -> tuple[str, str, str, str]:
    return key.agent, key.session, key.tool, key.id


class _Entry(Struct):
    arguments: str
    receipt: str
    until: float
    runs: Callable[[], Begun | None]
    data: bytes | None = None


class MemoryKeptCalls:
    """Calls with an id, in this process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = free_after_fork(threading.Lock())
        self._calls: dict[CallKey, _Entry] = {}

    async def begin(self, key: CallKey, arguments: str, receipt: str) -> Found:
        """Begin the call of an id, or learn what became of the first."""
        with self._lock:
            now = self._clock()
            for old in [one for one, entry in self._calls.items() if entry.until <= now and entry.runs() is None]:
                del self._calls[old]
            if (found := self._calls.get(key)) is not None:
                return _told(found, arguments)
            begun = Begun(key, arguments, receipt)
            self._calls[key] = _Entry(arguments, receipt, now + KEPT_SECONDS, weakref.ref(begun))
            return begun

    async def finish(self, begun: Begun, data: bytes) -> None:
        """Keep what a call has to say to those that repeat it."""
        with self._lock:
            if (found := _own(self._calls, begun)) is not None:
                found.data, found.runs = data, _nobody

    async def drop(self, begun: Begun) -> None:
        """Forget a call that did not run."""
        with self._lock:
            if _own(self._calls, begun) is not None:
                del self._calls[begun.key]


def _own(calls: Mapping[CallKey, _Entry], begun: Begun) -> _Entry | None:
    found = calls.get(begun.key)
    return found if found is not None and found.receipt == begun.receipt else None


def _nobody() -> None:
    return None


def _told(found: _Entry, arguments: str) -> UnderWay | Kept | Reused | Lost:
    if found.arguments != arguments:
        return Reused(found.receipt)
    if found.data is not None:
        return Kept(found.receipt, found.data)
    return UnderWay(found.receipt) if found.runs() is not None else Lost(found.receipt)
