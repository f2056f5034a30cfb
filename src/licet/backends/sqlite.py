"""One SQLite file that only its owner can read, shared by any number of processes: opening, transactions, waiting.

Everything runs in the caller's thread: a read takes some microseconds, and a switch to another thread costs several
times that. An event loop never waits for a lock: a busy file is tried again a little later, until the deadline of the
call.

The tables of a file are those that licet makes, which is checked in its schema before any row is read or written: a
trigger acts on what is written, a view can show rows that do not exist or never end, an incomplete index hides rows.

SQLite and forks are kept apart: either any number of threads use SQLite, or one thread forks.

SQLite has locks by process and records them in memory. A child that inherits those records believes that it has locks
which it does not have, and a mutex that another thread held stays locked in it. So a fork waits until no thread uses
SQLite, every file is closed before it, and both sides open their files again. Any number of threads may fork.
"""

import asyncio
import atexit
import os
import random
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from time import monotonic
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from licet.backends.limits import (
    CHECKPOINT_SECONDS,
    FIRST_PAUSE,
    FLUSHES_A_CHECKPOINT,
    FORK_SECONDS,
    LONGEST_OBJECT_NAME,
    LONGEST_PAUSE,
    MOST_OBJECTS,
    TURN_SECONDS,
)
from licet.guard.deadlines import store_deadline
from licet.guard.ports import Unavailable

# As bytes, because an attacker may have written bytes that are no text.
_SCHEMA = """SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
FROM main.sqlite_master LIMIT ?"""


class SchemaObject(Struct, frozen=True):
    """One table, index, trigger or view."""

    kind: bytes
    name: bytes
    table: bytes
    sql: bytes


def foreign_part(db: sqlite3.Connection, schema: str, *, exact: bool = False) -> str:
    """Describe the first object that these statements do not make; empty if there is none.

    Unless `exact` is set, columns of a table may have been added one by one, as in a migrated file.
    """
    ours = _ours(schema)
    found = _parts(db)
    known = {(part.kind, part.name): part for part in ours}
    for part in found:
        expected = known.pop((part.kind, part.name), None)
        if expected is None:
            return f"it has the {_text(part.kind)} `{_text(part.name)}`, which licet does not make"
        if part != expected and (exact or not _is_older(db, part, expected, schema)):
            return f"its {_text(part.kind)} `{_text(part.name)}` is not as licet makes it"
    for kind, name in known:
        return f"it lacks the {_text(kind)} `{_text(name)}`"
    return ""


def acting_part(db: sqlite3.Connection) -> str:
    """Describe the first trigger or view of a file of any version; empty if there is none."""
    for part in _parts(db):
        if part.kind not in (b"table", b"index"):
            return f"it has the {_text(part.kind)} `{_text(part.name)}`, which licet does not make"
    return ""


def _parts(db: sqlite3.Connection) -> list[SchemaObject]:
    with closing(db.execute(_SCHEMA, (MOST_OBJECTS,))) as rows:
        return [SchemaObject(*(value if isinstance(value, bytes) else b"" for value in row)) for row in rows]


@cache
def _ours(schema: str) -> Sequence[SchemaObject]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        return _parts(db)


def _is_older(db: sqlite3.Connection, part: SchemaObject, expected: SchemaObject, schema: str) -> bool:
    """Whether a table has the same columns, some of them added to a table of an earlier version."""
    named_alike = (part.kind, part.name, part.table) == (b"table", expected.name, expected.table)
    if not named_alike or not part.sql.upper().startswith(b"CREATE TABLE"):
        return False
    with closing(sqlite3.connect(":memory:")) as other:
        other.executescript(schema)
        return _columns(db, part.name) == _columns(other, part.name)


def _columns(db: sqlite3.Connection, table: bytes) -> list[tuple[object, ...]]:
    with closing(
        db.execute('SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)', (_text(table),))
    ) as rows:
        return sorted(rows.fetchall())


def _text(data: bytes) -> str:
    text = data.decode(errors="backslashreplace")
    return text if len(text) <= LONGEST_OBJECT_NAME else text[:LONGEST_OBJECT_NAME] + "…"


class Closable(Protocol):
    """A file that is closed before each fork."""

    def close_for_fork(self) -> None:
        """Close it; no thread uses it meanwhile."""

    def reset_in_child(self) -> None:
        """Drop what belongs to the parent, in a child that was just forked."""


class Forks:
    """Lets threads that use SQLite and threads that fork take turns, so that neither waits for long."""

    def __init__(self) -> None:
        self._files: weakref.WeakSet[Closable] = weakref.WeakSet()
        self.unusable = False  # in a child that was forked in the middle of a transaction
        self._begin()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._using: set[int] = set()  # threads
        self._waiting = 0  # threads that wait for the end of a fork
        self._wanted = 0.0  # until this time, forks wait for a thread that was refused
        self._forking: dict[int, int] = {}  # threads that fork; counted twice if a signal handler forks during a fork
        self._unclean = False  # a thread was still using SQLite when a fork began

    def add(self, file: Closable) -> None:
        """Close this file before each fork, as long as it exists."""
        with self._changed:
            self._files.add(file)

    def files(self) -> list[Closable]:
        """The files that are closed before a fork."""
        with self._changed:
            return list(self._files)

    def enter(self, seconds: float) -> bool:
        """Begin to use SQLite in this thread; False if forks prevented it for all of these seconds."""
        with self._changed:
            if self._forking:
                if seconds <= 0:
                    self._wanted = monotonic() + TURN_SECONDS
                    return False
                self._waiting += 1
                try:
                    if not self._changed.wait_for(lambda: not self._forking, seconds):
                        return False
                finally:
                    self._waiting -= 1
                    self._changed.notify_all()
            self._wanted = 0.0
            self._using.add(threading.get_ident())
            return True

    def leave(self) -> None:
        """End the use of SQLite in this thread."""
        with self._changed:
            self._using.discard(threading.get_ident())
            self._changed.notify_all()

    def before(self) -> None:
        """Wait until no other thread uses SQLite, and close every file."""
        me, give_up = threading.get_ident(), monotonic() + FORK_SECONDS
        with self._changed:
            if me not in self._forking:
                self._let_others_go_first(give_up)
            self._forking[me] = self._forking.get(me, 0) + 1
            # A signal handler may fork in the middle of a transaction of its own thread, which cannot end before the
            # fork.
            if me in self._using or not self._changed.wait_for(lambda: not self._using, give_up - monotonic()):
                self._unclean = True
                return
            for file in list(self._files):
                file.close_for_fork()

    def _let_others_go_first(self, give_up: float) -> None:
        """Wait for threads that could not use SQLite because of overlapping forks."""
        while (now := monotonic()) < give_up and (self._waiting or self._wanted > now):
            until = self._wanted if self._wanted > now else give_up
            self._changed.wait(min(give_up, until) - now)

    def after_in_parent(self) -> None:
        """Allow SQLite again, once no thread forks."""
        me = threading.get_ident()
        with self._changed:
            self._forking[me] -= 1
            if not self._forking[me]:
                del self._forking[me]
            if not self._forking:
                self._unclean = False
                self._changed.notify_all()

    def after_in_child(self) -> None:
        """Start with new locks: the threads that held the old ones do not exist in the child."""
        self.unusable = self.unusable or self._unclean
        self._begin()
        for file in list(self._files):
            file.reset_in_child()


FORKS = Forks()

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=FORKS.before, after_in_parent=FORKS.after_in_parent, after_in_child=FORKS.after_in_child)


# SQLite reports `PROTOCOL` if too many others have opened the file at the same moment.
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_MEND = "is damaged or no database: move it away, or put a copy in its place"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_T = TypeVar("_T")


class Format(Struct, frozen=True):
    """The format of a file: the number that marks it as licet's, a version, and the statements that make an empty one.

    `steps` has, by version, the statements that migrate a file to the next one. With `exact`, a migrated file has
    exactly the same tables as a new one.
    """

    application: int
    version: int
    schema: str
    steps: Mapping[int, str] = {}
    exact: bool = False
    outdated: str = ""  # the message about an older file that cannot be migrated


class Patience:
    """The pauses between attempts at a busy file, until a deadline."""

    def __init__(self, path: str, until: float | None = None) -> None:
        self._path = path
        self._began = time.monotonic()
        self._until = store_deadline() if until is None else until
        self._pause = FIRST_PAUSE

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self._until - time.monotonic())

    def next_pause(self) -> float:
        """Return the seconds until the next attempt; raises `Unavailable` if the deadline has passed."""
        now = time.monotonic()
        if now >= self._until:
            raise self.given_up()
        # Random, so that two waiting processes do not collide again and again.
        pause, self._pause = self._pause * random.random(), min(self._pause * 2, LONGEST_PAUSE)  # noqa: S311
        return min(pause, self._until - now)

    def given_up(self) -> Unavailable:
        """The error after the deadline: which file was busy, and for how long."""
        return busy(self._path, time.monotonic() - self._began)


def busy(path: str, waited: float) -> Unavailable:
    """The error for a file that was busy for too long."""
    return Unavailable(f"{path} was busy: waited {waited:.1f} seconds for the other processes and threads that use it")


class SqliteFile:
    """A file that only its owner can read, and that every process opens for itself.

    Writes survive the process. With `NORMAL` a power cut may undo those of the last moments, never a part of one; with
    `FULL` it undoes none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: Format,
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        *,
        notices_removal: bool = False,
        checkpoints: bool = True,
    ) -> None:
        """Name a file; it is opened when it is first used.

        With `notices_removal`, a file that was removed or replaced while it was open is opened anew. Otherwise writes
        continue to go to the removed file, which nobody else can see. Without `checkpoints`, a write never waits for
        the disk, and another connection has to call `flush` now and then.
        """
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self.path = os.path.abspath(path)
        self._kind = kind
        self._synchronous = synchronous
        self._lock = threading.Lock()
        self._notices_removal = notices_removal
        self._checkpoints = checkpoints
        self._flushes = 0
        self._opened: tuple[int, int] | None = None  # its device and inode
        self._log: tuple[int, int] | None = None  # those of its write-ahead log, once it is there
        self._checked: int | None = None  # the schema version that was last found to be licet's
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
        """Run a function in one transaction."""
        return await self._soon(self._transaction(act))

    async def read(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a query, again and again while the file is busy."""
        return await self._soon(lambda db: self._queried(db, act))

    def read_now(self, act: Callable[[sqlite3.Connection], _T], seconds: float) -> _T:
        """As `read`, for callers that cannot await. Readers wait for no writer, so this takes moments."""
        if (done := self._tried(lambda db: self._queried(db, act), seconds)) is None:
            raise busy(self.path, seconds)
        return done[0]

    def _queried(self, db: sqlite3.Connection, act: Callable[[sqlite3.Connection], _T]) -> _T:
        self._check_schema(db)
        return act(db)

    async def _soon(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        patience = Patience(self.path)
        while (done := self._tried(act, 0)) is None:
            await asyncio.sleep(patience.next_pause())
        return done[0]

    def write_now(self, act: Callable[[sqlite3.Connection], object]) -> bool:
        """As `write`, but without waiting; returns whether it was written, or False if the file is busy."""
        return self._tried(self._transaction(act), 0) is not None

    def flush(self) -> None:
        """Wait until every committed transaction of any process is on the disk; in a thread, since this blocks.

        `FULL` does the same at each commit: it syncs the write-ahead log. What is no longer in the log was synced when
        it was copied into the database.
        """
        try:
            if not self._flushes:  # the log's name must be on the disk too
                _sync(os.path.dirname(self.path), os.fsync)
            _sync(f"{self.path}-wal", getattr(os, "fdatasync", os.fsync))
        except FileNotFoundError:
            pass  # the last connection was closed, and has synced the database
        except OSError as error:
            raise Unavailable(f"{self.path} cannot be written to the disk: {error.strerror}") from None
        self._flushes += 1
        if self._flushes % FLUSHES_A_CHECKPOINT == 0:
            self._tried(_checkpoint, CHECKPOINT_SECONDS)

    def try_write(self, act: Callable[[sqlite3.Connection], _T], seconds: float) -> tuple[_T] | None:
        """As `write`, but one attempt, in a thread that may block this many seconds; None if the file is busy."""
        return self._tried(self._transaction(act), seconds)

    def _transaction(self, act: Callable[[sqlite3.Connection], _T]) -> Callable[[sqlite3.Connection], _T]:
        def transaction(db: sqlite3.Connection) -> _T:
            # the write lock comes first, so that two readers that want to write cannot deadlock
            db.execute("BEGIN IMMEDIATE")
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

        Nobody else can change the schema while a transaction has the write lock. A later change gives it another
        version, or is not seen by this connection.
        """
        version = _number(db, "schema_version")
        if version == self._checked:
            return
        if wrong := foreign_part(db, self._kind.schema, exact=self._kind.exact):
            raise Unavailable(f"{self.path} is not used: {wrong}")
        self._checked = version

    def _tried(self, act: Callable[[sqlite3.Connection], _T], seconds: float) -> tuple[_T] | None:
        """Return the result, or None if the file is busy; waits this many seconds for other threads of this process."""
        try:
            return self._used(lambda: act(self._open()), seconds)
        except sqlite3.Error as error:
            if _code(error) not in _BUSY:
                raise self._unavailable(error) from None
        except UnicodeDecodeError:  # SQLite repeats a name that is not text
            raise Unavailable(f"{self.path} {_MEND}") from None
        return None

    def _used(self, act: Callable[[], _T], seconds: float) -> tuple[_T] | None:
        """Run a function while no other thread uses this file and none forks; None if that is not possible in time."""
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
            if self._process == process and not (self._notices_removal and self._is_removed()):
                return self._connection
            if self._process == process:
                self._shut()
        if self._connection is not None:
            # A child that was forked without Python's knowledge. Closing the inherited connection could break the
            # parent's locks.
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
        self._log = _identity(f"{self.path}-wal")
        return db

    def _is_removed(self) -> bool:
        """Whether the file or its log was removed or replaced: nobody else would see what is written."""
        log = _identity(f"{self.path}-wal")
        if self._log is None:  # SQLite makes it with the first write, and keeps it while the file is open
            self._log = log
        return self._opened != _identity(self.path) or self._log != log

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA trusted_schema = OFF")
        ready = self._version(db) == self._kind.version
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise Unavailable(f"{self.path} is on a file system that cannot be shared: move it to a local disk")
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        if not self._checkpoints:
            db.execute("PRAGMA wal_autocheckpoint = 0")
        if not ready:
            self._migrate(db)

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Create the tables of an empty file, or migrate an older one, in one transaction."""
        kind = self._kind
        db.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(db)  # read again, because another process may just have created the tables
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
        """Refuse an older file with triggers or views: they would act on what the migration writes."""
        if wrong := acting_part(db):
            raise Unavailable(f"{self.path} is not used: {wrong}")

    def _version(self, db: sqlite3.Connection) -> int | None:
        """Return the version of the file; None if it is empty."""
        while True:
            version, application = marks = _marks(db)
            is_empty = db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
            if _marks(db) == marks:  # otherwise another process created the tables between these reads
                break
        if application == self._kind.application:
            if version > self._kind.version:
                raise Unavailable(f"{self.path} was written by a newer licet (format {version}): use that one")
            if any(step not in self._kind.steps for step in range(version, self._kind.version)):
                known = f"has format {version}, which this licet no longer reads"
                raise Unavailable(f"{self.path} {self._kind.outdated or known}")
            return version
        if version or application or not is_empty:
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
        """Close the file before a fork, while no thread uses it."""
        self._shut()

    def reset_in_child(self) -> None:
        """Start with a new lock, and drop a connection that could not be closed before the fork."""
        self._lock = threading.Lock()
        if self._connection is not None:
            self._abandoned.append(self._connection)
            self._connection = None


def _checkpoint(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # as much as is possible without waiting for anybody


def _sync(path: str, sync: Callable[[int], None]) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(file)
    finally:
        os.close(file)


def _identity(path: str) -> tuple[int, int] | None:
    """The device and inode of the file at a path; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_private(path: str) -> None:
    """Create the file and its directory for their owner only, or refuse existing ones that others could change."""
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
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the first byte is enough; the others describe the same error


def _close_all() -> None:
    for file in FORKS.files():
        if isinstance(file, SqliteFile):
            with suppress(Exception):
                file.close()


atexit.register(_close_all)
