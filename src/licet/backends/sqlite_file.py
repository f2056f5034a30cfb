"""One SQLite file for its owner alone, shared by any number of processes: opening, transactions, forks.

Everything runs in the caller's thread: a read takes some microseconds, the way to a thread and back costs several
times that. No wait for another writer blocks the event loop: a busy file is tried again, a little later.
"""

import asyncio
import atexit
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

from licet.guard.ports import Unavailable

_PATIENCE = 10.0  # seconds that a write waits for others
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_T = TypeVar("_T")


class Format(NamedTuple):
    """What a file holds: a number that marks it as ours, a version, and the statements that make an empty one.

    `steps` has, by version, the statements that make a file of it one of the next.
    """

    application: int
    version: int
    schema: str
    steps: Mapping[int, str] = MappingProxyType({})


class SqliteFile:
    """A file that only its owner can read, and that every process opens for itself.

    Writes survive the process. With `NORMAL` a power cut may take back those of the last moments, never a part of one;
    with `FULL` it takes back none.
    """

    def __init__(
        self, path: str | os.PathLike[str], kind: Format, synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    ) -> None:
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self.path = os.path.abspath(path)
        self._kind = kind
        self._synchronous = synchronous
        self._lock = threading.Lock()
        self._abandoned: list[sqlite3.Connection] = []
        _FILES.add(self)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._shut()

    def __del__(self) -> None:
        self._shut()

    async def write(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something as one step: all of it is kept, or nothing."""
        return await self.read(self._transaction(act))

    async def read(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        """Look something up; as often as it takes, while the file is busy."""
        pauses = self._pauses()
        while (done := self._tried(act)) is None:
            await asyncio.sleep(next(pauses))
        return done[0]

    def write_waiting(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        """As `write`, in a thread that may wait."""
        transaction, pauses = self._transaction(act), self._pauses()
        while (done := self._tried(transaction)) is None:
            time.sleep(next(pauses))
        return done[0]

    def _transaction(self, act: Callable[[sqlite3.Connection], _T]) -> Callable[[sqlite3.Connection], _T]:
        def transaction(db: sqlite3.Connection) -> _T:
            db.execute("BEGIN IMMEDIATE")  # the right to write first: never a deadlock between two who have read
            try:
                done = act(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return done

        return transaction

    def _pauses(self) -> Iterator[float]:
        """How long to wait, again and again, for whoever writes now."""
        import random

        pause, given_up = 0.0005, time.monotonic() + _PATIENCE
        while time.monotonic() <= given_up:
            yield pause * random.random()  # noqa: S311 - so that two who wait do not meet again
            pause = min(pause * 2, 0.05)
        raise Unavailable(f"{self.path} has been busy for {_PATIENCE:g} seconds")

    def _tried(self, act: Callable[[sqlite3.Connection], _T]) -> tuple[_T] | None:
        """What came of it, or None if the file is busy."""
        try:
            with self._lock:
                return (act(self._open()),)
        except sqlite3.Error as error:
            if _code(error) not in _BUSY:
                raise self._unavailable(error) from None
        return None

    def _open(self) -> sqlite3.Connection:
        process = os.getpid()
        if self._connection is not None:
            if self._process == process:
                return self._connection
            # A child that was forked behind Python's back. To close what it inherited could harm the parent's locks.
            self._abandoned.append(self._connection)
            self._connection = None
        _make_private(self.path)
        db = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._connection, self._process = db, process
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA trusted_schema = OFF")
        ready = self._version(db) == self._kind.version
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise Unavailable(f"{self.path} is on a file system that cannot be shared: move it to a local disk")
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        if not ready:
            self._bring_up(db)

    def _bring_up(self, db: sqlite3.Connection) -> None:
        """Make an empty file ours, and an older one of ours a newer one: all of it or nothing."""
        kind = self._kind
        db.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(db)  # again: somebody else may just have made it
            steps = [kind.schema] if version is None else [kind.steps[step] for step in range(version, kind.version)]
            for statement in ";".join(steps).split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {kind.application:d}")
            db.execute(f"PRAGMA user_version = {kind.version:d}")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _version(self, db: sqlite3.Connection) -> int | None:
        """The version of the file; None if it is empty."""
        version, application = _marks(db)
        while (again := _marks(db)) != (version, application):  # somebody made the file ours between the two
            version, application = again
        if application == self._kind.application:
            if version > self._kind.version:
                raise Unavailable(f"{self.path} was written by a newer licet (format {version}): use that one")
            if any(step not in self._kind.steps for step in range(version, self._kind.version)):
                raise Unavailable(f"{self.path} has format {version}, which this licet no longer reads")
            return version
        if version or application or db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise Unavailable(f"{self.path} is a database of another program: choose another path")
        return None

    def _unavailable(self, error: sqlite3.Error) -> Unavailable:
        if _code(error) in _DAMAGED:
            return Unavailable(f"{self.path} is damaged or no database: move it away, or put a copy in its place")
        mend = ": make room where it is" if _code(error) == sqlite3.SQLITE_FULL else ""
        return Unavailable(f"{self.path} cannot be used: {error}{mend}")

    def _shut(self) -> None:
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
            self._connection = None

    def _before_fork(self) -> None:
        self._lock.acquire()  # no transaction is under way, and none begins until the child is there
        self._shut()

    def _after_fork(self) -> None:
        self._lock.release()


def _make_private(path: str) -> None:
    """Make the file and its directory for their owner alone, or say why what is there cannot be trusted."""
    folder = os.path.dirname(path)
    try:
        if not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, 0o700)
        found = os.stat(folder)
        if found.st_uid not in (0, os.geteuid()) or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
            raise Unavailable(f"{folder} can be changed by others: run `chmod 700 {folder}`, or choose another path")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        found = os.lstat(path)
    except OSError as error:
        mend = f"make {folder} a directory that you can write to, or choose another directory for the state"
        raise Unavailable(f"{path} cannot be made ({error.strerror}): {mend}") from None
    if not stat.S_ISREG(found.st_mode):
        raise Unavailable(f"{path} is not a regular file: choose another path")
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Unavailable(f"{path} is open to others: run `chmod 600 {path}` as its owner")


def _number(db: sqlite3.Connection, pragma: str) -> int:
    with closing(db.execute(f"PRAGMA {pragma}")) as rows:
        number: int = rows.fetchone()[0]
        return number


def _marks(db: sqlite3.Connection) -> tuple[int, int]:
    return _number(db, "user_version"), _number(db, "application_id")


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the first byte; the rest says more about the same


# SQLite keeps its locks by process and its notes about them in memory: a child that takes over those notes believes
# that it holds locks which it does not. So every file is closed before a fork, and opened again on either side.
_FILES: "weakref.WeakSet[SqliteFile]" = weakref.WeakSet()
_FORKING: list[SqliteFile] = []


def _close_all() -> None:
    for store in list(_FILES):
        with suppress(Exception):
            store.close()


atexit.register(_close_all)


def _before_fork() -> None:
    _FORKING[:] = list(_FILES)
    for store in _FORKING:
        store._before_fork()


def _after_fork() -> None:
    for store in _FORKING:
        store._after_fork()
    _FORKING.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
