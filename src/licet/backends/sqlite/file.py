"""One SQLite file for its owner alone, shared by any number of processes: opening, transactions, waiting.

Everything runs in the caller's thread: a read takes some microseconds, and a switch to another thread costs several
times that. No lock is waited for in an event loop: a busy file is tried again a little later, until the deadline of the
call. How forks and files are kept apart is in `forks`, what a file must look like in `sqlite_schema`.
"""

import asyncio
import atexit
import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Literal, TypeVar

from msgspec import Struct

from licet.backends.sqlite.forks import FORKS
from licet.backends.sqlite.schema import acting_part, foreign_part
from licet.guard.deadline import store_deadline
from licet.guard.ports import Unavailable

# `PROTOCOL` is what SQLite says when too many others have opened the file at the same moment.
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_MEND = "is damaged or no database: move it away, or put a copy in its place"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.05  # seconds between two attempts
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_T = TypeVar("_T")


class Format(Struct, frozen=True):
    """What a file holds: a number that marks it as ours, a version, and the statements that make an empty one.

    `steps` has, by version, the statements that make a file of it one of the next. With `exact`, a file that was
    brought up has the very same tables as a new one.
    """

    application: int
    version: int
    schema: str
    steps: Mapping[int, str] = {}
    exact: bool = False
    outdated: str = ""  # the message about a file of an older version that no step brings up


class Patience:
    """The pauses between attempts at a busy file, until a deadline."""

    def __init__(self, path: str, until: float | None = None) -> None:
        self._path = path
        self._began = time.monotonic()
        self._until = store_deadline() if until is None else until
        self._pause = _FIRST_PAUSE

    @property
    def left(self) -> float:
        """The seconds that are left, never less than none."""
        return max(0.0, self._until - time.monotonic())

    def next_pause(self) -> float:
        """The seconds until the next attempt; `Unavailable` if the deadline has come."""
        now = time.monotonic()
        if now >= self._until:
            raise self.given_up()
        # At random, so that two that wait do not meet again and again.
        pause, self._pause = self._pause * random.random(), min(self._pause * 2, _LONGEST_PAUSE)  # noqa: S311
        return min(pause, self._until - now)

    def given_up(self) -> Unavailable:
        """Why nothing came of it: which file was waited for, and for how long."""
        return busy(self._path, time.monotonic() - self._began)


def busy(path: str, waited: float) -> Unavailable:
    """Why a file could not be used in time."""
    return Unavailable(f"{path} was busy: waited {waited:.1f} seconds for the other processes and threads that use it")


class SqliteFile:
    """A file that only its owner can read, and that every process opens for itself.

    Writes survive the process. With `NORMAL` a power cut may take back those of the last moments, never a part of one;
    with `FULL` it takes back none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: Format,
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        *,
        notices_removal: bool = False,
    ) -> None:
        """Name a file, which is opened when it is first used.

        With `notices_removal`, a file that was taken away or replaced while it was open is opened anew; otherwise what
        is written goes on into the file that nobody else can see any more.
        """
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self.path = os.path.abspath(path)
        self._kind = kind
        self._synchronous = synchronous
        self._lock = threading.Lock()
        self._notices_removal = notices_removal
        self._opened: tuple[int, int] | None = None  # which file that was
        self._checked: int | None = None  # the version of the schema that was last found to be ours
        self._abandoned: list[sqlite3.Connection] = []
        FORKS.add(self)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        patience = Patience(self.path)
        while self._used(self._shut, patience.left) is None:
            time.sleep(patience.next_pause())

    def __del__(self) -> None:
        self._shut()

    async def write(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something as one step: all of it is kept, or nothing."""
        return await self._soon(self._transaction(act))

    async def read(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        """Look something up; as often as it takes, while the file is busy."""

        def checked(db: sqlite3.Connection) -> _T:
            self._check_schema(db)
            return act(db)

        return await self._soon(checked)

    async def _soon(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        patience = Patience(self.path)
        while (done := self._tried(act, 0)) is None:
            await asyncio.sleep(patience.next_pause())
        return done[0]

    def write_waiting(self, act: Callable[[sqlite3.Connection], _T], until: float | None = None) -> _T:
        """As `write`, in a thread that may wait."""
        transaction, patience = self._transaction(act), Patience(self.path, until)
        while (done := self._tried(transaction, patience.left)) is None:
            time.sleep(patience.next_pause())
        return done[0]

    def try_write(self, act: Callable[[sqlite3.Connection], _T], seconds: float) -> tuple[_T] | None:
        """As `write`, once, in a thread that may wait so long for other threads; None if the file is busy."""
        return self._tried(self._transaction(act), seconds)

    def _transaction(self, act: Callable[[sqlite3.Connection], _T]) -> Callable[[sqlite3.Connection], _T]:
        def transaction(db: sqlite3.Connection) -> _T:
            db.execute("BEGIN IMMEDIATE")  # the right to write first: never a deadlock between two who have read
            try:
                self._check_schema(db)
                done = act(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return done

        return transaction

    def _check_schema(self, db: sqlite3.Connection) -> None:
        """Refuse a file with triggers, views or tables that licet does not make: they would act on what is written.

        Nobody else can change the schema while a transaction has the right to write. A later change gives it another
        version, or is not seen by this connection.
        """
        version = _number(db, "schema_version")
        if version == self._checked:
            return
        if wrong := foreign_part(db, self._kind.schema, exact=self._kind.exact):
            raise Unavailable(f"{self.path} is not used: {wrong}")
        self._checked = version

    def _tried(self, act: Callable[[sqlite3.Connection], _T], seconds: float) -> tuple[_T] | None:
        """What came of it, or None if the file is busy; threads of this process are waited for so long."""
        try:
            return self._used(lambda: act(self._open()), seconds)
        except sqlite3.Error as error:
            if _code(error) not in _BUSY:
                raise self._unavailable(error) from None
        except UnicodeDecodeError:  # SQLite repeats a name that is no text
            raise Unavailable(f"{self.path} {_MEND}") from None
        return None

    def _used(self, act: Callable[[], _T], seconds: float) -> tuple[_T] | None:
        """Do something while no other thread uses this file and none forks; None if that cannot be had in time."""
        until = time.monotonic() + seconds
        if not FORKS.enter(seconds):
            return None
        try:
            if not self._lock.acquire(timeout=max(0.0, until - time.monotonic())):
                return None
            try:
                return (act(),)
            finally:
                self._lock.release()
        finally:
            FORKS.leave()

    def _open(self) -> sqlite3.Connection:
        process = os.getpid()
        if FORKS.unusable:
            raise Unavailable(
                f"{self.path} cannot be used in this process: it was forked in the middle of a write that did not end; "
                "start processes with `spawn`"
            )
        if self._connection is not None:
            if self._process == process and not (self._notices_removal and self._opened != _identity(self.path)):
                return self._connection
            if self._process == process:
                self._shut()
        if self._connection is not None:
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
        self._connection, self._process, self._checked, self._opened = db, process, None, _identity(self.path)
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
            self._check_nothing_acts(db)
            steps = [kind.schema] if version is None else [kind.steps[step] for step in range(version, kind.version)]
            for statement in ";".join(steps).split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {kind.application:d}")
            db.execute(f"PRAGMA user_version = {kind.version:d}")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _check_nothing_acts(self, db: sqlite3.Connection) -> None:
        """Refuse an older file with triggers or views: they would act on what the steps write."""
        if wrong := acting_part(db):
            raise Unavailable(f"{self.path} is not used: {wrong}")

    def _version(self, db: sqlite3.Connection) -> int | None:
        """The version of the file; None if it is empty."""
        version, application = _marks(db)
        while (again := _marks(db)) != (version, application):  # somebody made the file ours between the two
            version, application = again
        if application == self._kind.application:
            if version > self._kind.version:
                raise Unavailable(f"{self.path} was written by a newer licet (format {version}): use that one")
            if any(step not in self._kind.steps for step in range(version, self._kind.version)):
                known = f"has format {version}, which this licet no longer reads"
                raise Unavailable(f"{self.path} {self._kind.outdated or known}")
            return version
        if version or application or db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise Unavailable(f"{self.path} is a database of another program: choose another path")
        return None

    def _unavailable(self, error: sqlite3.Error) -> Unavailable:
        if _code(error) in _DAMAGED:
            return Unavailable(f"{self.path} {_MEND}")
        mend = ": make room where it is" if _code(error) == sqlite3.SQLITE_FULL else ""
        return Unavailable(f"{self.path} cannot be used: {error}{mend}")

    def _shut(self) -> None:
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
            self._connection = None

    def close_for_fork(self) -> None:
        """Close the file before a fork; no thread uses it meanwhile."""
        self._shut()

    def begin_in_child(self) -> None:
        """Begin with a lock of this process's own, and let go of a connection that could not be closed before."""
        self._lock = threading.Lock()
        if self._connection is not None:
            self._abandoned.append(self._connection)
            self._connection = None


def _identity(path: str) -> tuple[int, int] | None:
    """Which file has a name now; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


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


def _close_all() -> None:
    for file in FORKS.files():
        if isinstance(file, SqliteFile):
            with suppress(Exception):
                file.close()


atexit.register(_close_all)
