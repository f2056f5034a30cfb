"""Connections of the driver: how they are made, what a transaction is, and which errors say that one was lost."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from licet.backends.postgres.address import AddressError, Connection
from licet.guard.ports import Unavailable

T = TypeVar("T")


def driver() -> Any:
    """The driver, which is loaded where a state is in PostgreSQL."""
    try:
        import asyncpg
    except ImportError:
        raise Unavailable("a state in PostgreSQL needs a driver: run `pip install 'licet[postgres]'`") from None
    return asyncpg


_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL search_path = pg_catalog, pg_temp"


# Arrays of boolean, bytea, integer, bigint, text, double precision, timestamptz, numeric and uuid: in each database.
_ARRAYS = frozenset({1000, 1001, 1007, 1016, 1009, 1022, 1185, 1231, 2951})
_TYPES: list[Any] = []


def connection_class(asyncpg: Any) -> Any:
    class Quiet(asyncpg.Connection):  # type: ignore[misc]
        """A connection that the pool does not reset: nothing of licet leaves anything behind in a session."""

        def get_reset_query(self) -> str:
            return ""

        async def _introspect_types(self, typeoids: Any, timeout: Any) -> Any:
            """What the driver asks of types, once in a process and not over each connection: six round trips."""
            if not _ARRAYS.issuperset(typeoids):
                return await super()._introspect_types(typeoids, timeout)
            if not _TYPES:
                _TYPES.append(await super()._introspect_types(list(_ARRAYS), timeout))
            return _TYPES[0]

    return Quiet


class Pooled:
    """A connection by way of a transaction pooler, which may lend out another one of the server after each transaction.

    The driver sends a statement in two parts, so each is a transaction of its own: then what it returns is committed,
    as it is without a pooler. A function that was told so could not take it back.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def execute(self, query: str, *args: Any) -> Any:
        return await self._alone(self._connection.execute, query, *args)

    async def executemany(self, query: str, args: Any) -> Any:
        return await self._alone(self._connection.executemany, query, args)

    async def fetch(self, query: str, *args: Any) -> Any:
        return await self._alone(self._connection.fetch, query, *args)

    async def fetchrow(self, query: str, *args: Any) -> Any:
        return await self._alone(self._connection.fetchrow, query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        return await self._alone(self._connection.fetchval, query, *args)

    def transaction(self) -> Any:
        return self._connection.transaction()

    async def _alone(self, ask: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        return await in_transaction(self._connection, lambda _: ask(*args))


async def in_transaction(connection: Connection, act: Callable[[Connection], Awaitable[T]]) -> T:
    """Do something in one transaction. A cancelled one is left to the caller, who ends its connection.

    The server may be the reason, and then a rollback would wait for it too.
    """
    await connection.execute(_BEGIN)
    try:
        answer = await act(connection)
    except Exception:
        await connection.execute("ROLLBACK")
        raise
    if (said := await connection.execute("COMMIT")) != "COMMIT":
        raise Unavailable(f"the database has not kept a transaction: {said}")
    return answer


async def is_synchronous(connection: Connection) -> bool:
    """Whether a commit waits for a standby, so that a failover loses nothing that was acknowledged."""
    waits = await connection.fetchval("SELECT current_setting('synchronous_commit')")
    return waits_for_standby(waits, await connection.fetchval("SELECT current_setting('synchronous_standby_names')"))


def waits_for_standby(waits: str, standbys: str) -> bool:
    return bool(standbys) and waits not in ("off", "local")


# Errors after which the same is sent again: nobody knows whether it was done, or it can be done elsewhere. asyncpg
# reports some killed connections as errors of its own.
_LOST_STATES = ("08", "40", "57P", "53300", "25006", "25P03", "25P04", "55P03", "57014")


def is_lost(wrong: BaseException, asyncpg: Any) -> bool:
    if isinstance(wrong, AddressError | Unavailable | ssl.SSLCertVerificationError):
        return False
    if isinstance(wrong, OSError | EOFError | asyncpg.InternalClientError):
        return True
    if isinstance(wrong, asyncpg.InterfaceError):
        return not isinstance(wrong, ValueError)  # a value that cannot be sent is no lost connection
    state = getattr(wrong, "sqlstate", None) or ""
    return isinstance(wrong, asyncpg.PostgresError) and state.startswith(_LOST_STATES)


def leaves(wrong: BaseException) -> bool:
    """Whether the connection must not be used again: its server is going down, or is no primary any more."""
    return (getattr(wrong, "sqlstate", None) or "").startswith(("08", "57P", "25006", "25P03", "25P04"))


def said_by(wrong: BaseException) -> str:
    text = str(wrong).strip().splitlines()
    return f"{text[0]}" if text else type(wrong).__name__
