"""One PostgreSQL database for all event loops of a process: a thread of its own holds the connections.

Connections belong to one event loop, and gates live in many. So whatever is asked goes to the loop of that thread, and
what waits at the same time goes over together (`Lane`).

A connection may break after the server has done what it was asked, and before it could say so. So every write carries
an id that was chosen before it is sent. It is sent again, over another connection and perhaps to another server, until
somebody answers or the caller's deadline passes; the second time has the effect and the answer of the first.
"""

import asyncio
import os
import random
import ssl
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from time import monotonic
from typing import Any, TypeVar

from licet.backends.limits import (
    CLOSE_SECONDS,
    CONNECT_TO_SERVER_SECONDS,
    FIRST_RETRY,
    HEAR_SECONDS,
    HEARTBEAT_SECONDS,
    LONGEST_RETRY,
    MOST_CONNECTIONS,
    POLL_SECONDS,
)
from licet.backends.postgres.address import Address, AddressError, Connection, read_address, tls_of
from licet.backends.postgres.driver_connections import (
    Pooled,
    connection_class,
    driver,
    in_transaction,
    is_lost,
    leaves,
    said_by,
    waits_for_standby,
)
from licet.backends.postgres.lanes import Answer, Item, Lane, Unreachable
from licet.backends.postgres.migrations import check_encoding, check_step
from licet.backends.sqlite import FORKS
from licet.guard.deadlines import note_unreached, store_deadline
from licet.guard.ports import Unavailable

T = TypeVar("T")

# Functions look again after they have locked something, which needs a snapshot for each statement; and nothing that
# another user has made may be found under the name of what the server has. Defaults of the server, of the database and
# of the role may be others.
_SETTINGS = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "search_path": "pg_catalog, pg_temp",
}
_CHECK = """SELECT pg_backend_pid() AS pid, (SELECT max(number) FROM licet.steps) AS step,
    current_setting('server_encoding') AS encoding, current_setting('synchronous_commit') AS waits,
    current_setting('synchronous_standby_names') AS standbys"""


Secret = Callable[[str], str | None]  # finds the value of a secret by its reference


class Database:
    """The database at an address. Nothing is connected until it is first used."""

    def __init__(self, address: Address | str, secret: Secret = os.environ.get) -> None:
        """Take an address, and the function that finds its password."""
        self.address = read_address(address) if isinstance(address, str) else address
        self._secret = secret
        self._lanes: list[Lane[Any, Any]] = []
        self._heard: list[tuple[str, Callable[[str], object]]] = []
        self.reset_in_child()
        FORKS.add(self)

    def close_for_fork(self) -> None:
        """Connections stay open: a child never uses those of its parent."""

    def reset_in_child(self) -> None:
        """Start without a thread and connections, in a new object and in a forked child."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: Any = None
        self._lost = ""  # how a connection was lost last, until there is another one
        self._was_reached = self._is_unknown = False  # by this process; after it has asked for a whole time in vain
        self._connecting: asyncio.Lock | None = None
        self._listening: asyncio.Task[None] | None = None
        self._wanted: asyncio.Event | None = None  # set when the channels that are wanted have changed
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()  # loops of threads that were closed
        self.is_pooled = False  # whether a transaction pooler stands between: known once it is connected
        self.is_deaf = True  # whether notifications do not arrive here, so that changes are polled
        for lane in self._lanes:
            lane.reset()

    # For stores, in any event loop or thread -------------------------------------------------------------------------

    async def run(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something in one transaction, again if the connection is lost: with the same effect as once."""
        return await self._from_here(self.asked(act, store_deadline(), transaction=True))

    async def once(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        """The same where each statement is a transaction by itself: one round trip, and committed when it returns."""
        return await self._from_here(self.asked(act, store_deadline(), transaction=False))

    def wait(self, act: Callable[[Connection], Awaitable[T]], seconds: float) -> T:
        """As `run`, for callers that cannot await."""
        asking = self.asked(act, monotonic() + seconds, transaction=True)
        return asyncio.run_coroutine_threadsafe(asking, self._running()).result()

    def do(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Do something in the thread of the database once, for a caller that cannot await."""

        async def done() -> T:
            try:
                async with asyncio.timeout(seconds):
                    return await work
            except TimeoutError:
                raise Unreachable(f"{self.address.shown} did not answer in {seconds:.2g} seconds") from None
            except Exception as wrong:
                if is_lost(wrong, driver()):
                    raise Unreachable(f"{self.address.shown} cannot be reached: {said_by(wrong)}") from None
                raise

        try:
            return asyncio.run_coroutine_threadsafe(done(), self._running()).result()
        except Unreachable:
            note_unreached()
            raise

    async def own_connection(self) -> Any:
        """In the thread of the database: a connection outside the pool, for one long transaction; close it."""
        asyncpg = driver()
        try:
            connection = await self._connect(asyncpg, prepares=False)
        except Exception as wrong:
            raise wrong if is_lost(wrong, asyncpg) else self._unavailable(wrong, asyncpg) from None
        try:
            await self._check_server(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def plain_connection(self, server: tuple[str, int] | None = None) -> Any:
        """In the thread of the database: a connection whose tables nobody has looked at, to close afterwards.

        To a server that is named: whether it is the primary or not.
        """
        return await self._connect(driver(), prepares=False, server=server)

    def explained(self, wrong: Exception) -> Exception:
        """What an error of the driver means, for who operates the state; another error stays as it is."""
        asyncpg = driver()
        if is_lost(wrong, asyncpg):
            return Unavailable(f"{self.address.shown} cannot be reached: {said_by(wrong)}")
        return self._unavailable(wrong, asyncpg)

    def lane(
        self,
        act: Callable[[Connection, Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        most: int,
    ) -> Lane[Item, Answer]:
        """A lane whose items go over in batches. Each statement of the function is a transaction by itself."""
        lane: Lane[Item, Answer] = Lane(self, act, most)
        self._lanes.append(lane)
        return lane

    def listen(self, channel: str, heard: Callable[[str], object]) -> Callable[[], None]:
        """Call a function, in the thread of the database, with each notification; returns what ends that.

        It is called with no text where some may have been missed: after a lost connection, and every few moments where
        notifications do not arrive, as behind a transaction pooler. It must be quick.
        """
        entry = channel, heard
        self._heard.append(entry)
        self._running().call_soon_threadsafe(self._listen_now)

        def end() -> None:
            with suppress(ValueError):
                self._heard.remove(entry)
            loop = self._loop
            if loop is not None:
                with suppress(RuntimeError):  # it was closed meanwhile
                    loop.call_soon_threadsafe(self._listen_now)

        return end

    def close(self) -> None:
        """Close the connections; the next use opens others."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            pool, listening = self._pool, self._listening  # the next use has others, maybe at once
            if loop is not None:
                self._ended.add(loop)
        if loop is None or thread is None or thread is threading.current_thread():
            return
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: self._keep(loop.create_task(self._shut(loop, pool, listening))))
        thread.join(CLOSE_SECONDS)  # a thread that hangs is a daemon

    def __repr__(self) -> str:
        return f"Database({self.address.shown!r})"

    # The thread ------------------------------------------------------------------------------------------------------

    def _running(self) -> asyncio.AbstractEventLoop:
        with suppress(RuntimeError):  # where no loop runs
            if asyncio.get_running_loop() in self._ended:  # work that goes on after the end must not begin anew
                raise self._closed()
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._pool = self._connecting = self._listening = self._wanted = None
                self.is_deaf = True
                if self._heard:  # by an object that was closed and is used again, or by the parent of this process
                    self._loop.call_soon(self._listen_now)
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="licet postgres", daemon=True)
                self._thread.start()
            return self._loop

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin something in the thread of the database, and wait for nothing.

        It has no deadline of a call: it may go on for others when the call that began it is over.
        """
        try:
            loop = self._running()
        except Unavailable:  # this thread is about to end
            work.close()
            return
        loop.call_soon_threadsafe(lambda: self._keep(loop.create_task(work)), context=Context())

    def start_if_open(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """As `start`, for what a notification asks for: a database that was closed is not opened again for it."""
        with self._lock:
            loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has just been closed
                loop.call_soon_threadsafe(lambda: self._keep(loop.create_task(work())), context=Context())

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _from_here(self, asking: Coroutine[Any, Any, T]) -> T:
        try:
            loop = self._running()
        except Unavailable:
            asking.close()
            raise
        try:
            if asyncio.get_running_loop() is loop:
                return await asking
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, loop))
        except Unreachable:
            note_unreached()
            raise

    async def _shut(self, loop: asyncio.AbstractEventLoop, pool: Any, listening: "asyncio.Task[None] | None") -> None:
        """Wait a moment for requests that are under way, then cancel the rest: their callers get `Unavailable`."""
        if listening is not None:
            listening.cancel()
        waiting = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
        for patience in (CLOSE_SECONDS / 2, CLOSE_SECONDS / 4):
            if waiting:
                _, waiting = await asyncio.wait(waiting, timeout=patience)
            for task in waiting:
                task.cancel()
        if pool is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS / 5):
                    await pool.close()
            pool.terminate()
        loop.stop()

    # In the thread of the database -----------------------------------------------------------------------------------

    def is_open_here(self) -> bool:
        """Whether the event loop that asks is that of the connections: not any more once they are closed."""
        return self._loop is asyncio.get_running_loop()

    async def asked(self, act: Callable[[Connection], Awaitable[T]], until: float, transaction: bool) -> T:
        """Do something over a connection, in the thread of the database; again after a lost one, until a deadline."""
        try:
            return await self._tried(act, until, transaction)
        except asyncio.CancelledError:
            if self._loop is asyncio.get_running_loop():
                raise  # the caller gave up
            raise self._closed() from None

    async def _tried(self, act: Callable[[Connection], Awaitable[T]], until: float, transaction: bool) -> T:
        asyncpg = driver()
        pause = FIRST_RETRY
        while self._loop is asyncio.get_running_loop():
            try:
                async with asyncio.timeout_at(until):
                    answer = await self._done(act, transaction)
            except TimeoutError:
                self._is_unknown = self._is_unknown or not self._was_reached
                raise self.no_answer() from None
            except Exception as wrong:
                if not is_lost(wrong, asyncpg):
                    raise self._unavailable(wrong, asyncpg) from None
                self._lost = said_by(wrong)
            else:
                self._lost = ""
                return answer
            # A server that this process never reached was asked for the whole time once: it may be a wrong address.
            if monotonic() + pause >= until or (self._is_unknown and self._pool is None):
                self._is_unknown = self._is_unknown or not self._was_reached
                raise Unreachable(f"{self.address.shown} cannot be reached: {self._lost}")
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - only to spread attempts
            pause = min(pause * 2, LONGEST_RETRY)
        raise self._closed()

    async def _done(self, act: Callable[[Connection], Awaitable[T]], transaction: bool) -> T:
        asyncpg, pool = driver(), await self._connected()
        connection = await pool.acquire()
        try:
            if transaction:
                return await in_transaction(connection, act)
            alone: Any = Pooled(connection) if self.is_pooled else connection
            return await act(alone)
        except BaseException as wrong:
            # A cancelled statement may still be running, and one that was refused for its server would be again.
            if isinstance(wrong, asyncio.CancelledError) or leaves(wrong):
                with suppress(asyncpg.InterfaceError):  # the pool has it back already
                    connection.terminate()
            raise
        finally:
            await pool.release(connection)  # which goes on where the caller is cancelled

    async def _connected(self) -> Any:
        if self._pool is not None:
            return self._pool
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._pool is None:
                pool, first = await self._opened()
                if self._loop is not asyncio.get_running_loop():  # it was closed meanwhile
                    pool.terminate()
                    first.terminate()
                    raise self._closed()
                self._pool, self._was_reached, self._is_unknown = pool, True, False
            return self._pool

    async def _opened(self) -> tuple[Any, Any]:
        """The pool, and its first connection, which tells whether a pooler stands between."""
        asyncpg = driver()
        kind = connection_class(asyncpg)
        first = await self._checked(asyncpg, kind, is_first=True) or await self._checked(asyncpg, kind)
        ready = [first]

        async def connect(*_: object, **__: object) -> Any:
            return ready.pop() if ready else await self._checked(asyncpg, kind)

        return await asyncpg.create_pool(
            min_size=0, max_size=MOST_CONNECTIONS, connect=connect, connection_class=kind
        ), first

    async def _checked(self, asyncpg: Any, kind: Any, *, is_first: bool = False) -> Any:
        """A connection to a server that can be used; None if the first one turns out to be that of a pooler."""
        was_pooled, one = self.is_pooled, await self._connect(asyncpg, connection_class=kind)
        try:
            await self._check_server(one, is_first=is_first)
        except BaseException:
            one.terminate()
            raise
        if self.is_pooled and not was_pooled:  # it was made to prepare statements
            one.terminate()
            return None
        return one

    async def _connect(
        self, asyncpg: Any, *, prepares: bool = True, server: tuple[str, int] | None = None, **more: Any
    ) -> Any:
        settings = self._settings() | more
        if not prepares:
            settings["statement_cache_size"] = 0
        if server is not None:
            settings.update(host=server[0], port=server[1], target_session_attrs="any")
        try:
            return await asyncpg.connect(**settings)
        except asyncpg.ProtocolViolationError as wrong:
            # A pooler refuses settings that it does not know. Transactions are begun with them there.
            if self.is_pooled or "unsupported startup parameter" not in str(wrong):
                raise
            self.is_pooled = True
            return await self._connect(asyncpg, prepares=prepares, server=server, **more)

    def _settings(self) -> dict[str, Any]:
        address = self.address
        settings: dict[str, Any] = {
            "dsn": address.dsn,
            "ssl": tls_of(address),
            "timeout": CONNECT_TO_SERVER_SECONDS,
            "target_session_attrs": "primary",
            "server_settings": {"application_name": "licet"} | ({} if self.is_pooled else _SETTINGS),
            "statement_cache_size": 0 if self.is_pooled else 256,
        }
        if address.hosts:
            settings["host"] = list(address.hosts)
        if address.password:
            if (password := self._secret(address.password)) is None:
                raise AddressError(f"the secret `{address.password}`, the password of the state, is not known here")
            settings["password"] = password
        return settings

    async def _check_server(self, connection: Any, *, is_first: bool = False) -> None:
        """Refuse a server that a state cannot stand on. Of the first connection, find out where it leads."""
        asyncpg = driver()
        try:
            if self.is_pooled:
                row = await in_transaction(connection, lambda one: one.fetchrow(_CHECK))
            elif is_first:
                # A name of its own: behind a pooler, others have prepared statements under those of the driver.
                asking = await connection.prepare(_CHECK, name=f"licet_{os.urandom(8).hex()}")
                row = await asking.fetchrow()
                # A pooler makes up the number by which a client cancels: it has no process of its own behind it.
                self.is_pooled = row["pid"] != connection.get_server_pid()
            else:
                row = await connection.fetchrow(_CHECK)
        except asyncpg.InvalidSQLStatementNameError:  # it was prepared over another connection
            if not is_first:
                raise
            self.is_pooled = True
            return
        except asyncpg.UndefinedTableError as wrong:
            raise self._unavailable(wrong, asyncpg) from None
        check_step(row["step"], self.address.shown)
        check_encoding(row["encoding"], self.address.shown)
        if self.address.require_synchronous and not waits_for_standby(row["waits"], row["standbys"]):
            raise Unavailable(
                f"{self.address.shown} may lose acknowledged entries at a failover, since no standby is synchronous: "
                "set synchronous_standby_names there, or leave out `require_synchronous`"
            )

    def no_answer(self) -> Unreachable:
        """The error of who has waited until a deadline."""
        last = f": {self._lost}" if self._lost else ""
        return Unreachable(f"{self.address.shown} did not answer in time{last}")

    def _closed(self) -> Unavailable:
        return Unavailable(f"{self.address.shown} was closed here")

    def _unavailable(self, wrong: Exception, asyncpg: Any) -> Exception:
        """The error of a store; those of the function itself are its own."""
        where = self.address.shown
        if isinstance(wrong, AddressError):
            return Unavailable(str(wrong))
        if isinstance(
            wrong, asyncpg.UndefinedTableError | asyncpg.UndefinedFunctionError | asyncpg.InvalidSchemaNameError
        ):
            return Unavailable(f"{where} has no tables of this licet: run `licet db init`")
        if isinstance(wrong, ssl.SSLCertVerificationError):
            return Unavailable(f"{where} is not trusted: {said_by(wrong)}; `sslrootcert=FILE` names other roots")
        if isinstance(wrong, asyncpg.InsufficientPrivilegeError):
            return Unavailable(f"{where} refuses: {said_by(wrong)}; its user needs the role licet_runtime")
        if isinstance(wrong, asyncpg.PostgresError | asyncpg.ClientConfigurationError):
            return Unavailable(f"{where} refuses: {said_by(wrong)}")
        return wrong

    # Notifications ---------------------------------------------------------------------------------------------------

    def _listen_now(self) -> None:
        """Begin to listen, or to listen on other channels than before."""
        if self._listening is None or self._listening.done():
            self._wanted = asyncio.Event()
            # What is heard is looked at in this context, long after the deadline of the call that has begun it.
            self._listening = asyncio.get_running_loop().create_task(self._listen(self._wanted), context=Context())
        elif self._wanted is not None:
            self._wanted.set()

    async def _listen(self, wanted: asyncio.Event) -> None:
        """Hand on what is heard while anybody wants that; poll where nothing is heard, and after a lost connection."""
        asyncpg = driver()
        while self._heard:
            try:
                await self._hear(asyncpg, wanted)
            except Exception:  # noqa: S110 - it is tried again, and meanwhile changes are polled
                pass
            finally:
                self.is_deaf = True
            self._tell("")
            await asyncio.sleep(POLL_SECONDS)

    async def _hear(self, asyncpg: Any, wanted: asyncio.Event) -> None:
        """Listen until the connection is lost, or nobody wants to hear anything more. It is ended in each case."""
        connection = await self._connect(asyncpg)
        own, channels = asyncio.Event(), set[str]()
        probe = f"licet_{os.urandom(8).hex()}"
        try:
            if self.is_pooled or await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid():
                return  # a pooler: what is heard there depends on which connection of the server it lends out
            connection.add_termination_listener(lambda *_: wanted.set())
            await connection.add_listener(probe, lambda *_: own.set())
            while self._heard and not connection.is_closed():
                wanted.clear()
                now = {channel for channel, _ in list(self._heard)}
                for channel in now - channels:
                    await connection.add_listener(channel, self._hand_on)
                for channel in channels - now:
                    await connection.remove_listener(channel, self._hand_on)
                channels = now
                if not own.is_set():
                    await connection.execute("SELECT pg_notify($1, '')", probe)
                    async with asyncio.timeout(HEAR_SECONDS):
                        await own.wait()
                    self.is_deaf = False
                self._tell("")  # what changed before it listened
                while not await _set_within(wanted, HEARTBEAT_SECONDS):
                    # A connection whose other end is gone without a word stays open for hours.
                    async with asyncio.timeout(HEAR_SECONDS):
                        await connection.execute("SELECT 1")
        finally:
            connection.terminate()

    def _hand_on(self, _: object, __: int, channel: str, text: str) -> None:
        self._tell(text, channel)

    def _tell(self, text: str, channel: str | None = None) -> None:
        for name, heard in list(self._heard):
            if channel in (None, name):
                with suppress(Exception):  # an error of one listener must not keep the news from the others
                    heard(text)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
