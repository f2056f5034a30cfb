"""What operators do with a database itself: make its tables, and look at what it is.

Both use a connection of their own, whose tables nobody has checked: these may be missing, or of another version.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from licet.backends.limits import INIT_SECONDS, STATUS_SECONDS
from licet.backends.postgres.address import Connection, servers_of
from licet.backends.postgres.database import Database
from licet.backends.postgres.driver_connections import driver, is_synchronous
from licet.backends.postgres.migrations import RUNTIME, Step, applied, check_version, migrate, steps
from licet.guard.ports import Unavailable

T = TypeVar("T")

_ABOUT = """SELECT current_user::text AS user, current_setting('server_version') AS version,
    coalesce((SELECT pg_has_role(current_user, oid, 'USAGE') FROM pg_roles WHERE rolname = $1), false) AS may_run"""


class ServerSeen(Struct, frozen=True):
    """One server of an address."""

    host: str
    port: int
    is_primary: bool | None  # None: it does not answer
    problem: str = ""


class DatabaseSeen(Struct, frozen=True):
    """What a database is, and whether its state can be used."""

    address: str
    user: str
    version: str
    step: int | None  # of its tables; None: there are none
    known: int  # the newest step of this licet
    problem: str  # why this licet cannot use its tables; empty if it can
    may_run: bool  # whether this user has the role that processes need
    is_synchronous: bool
    is_pooled: bool
    servers: tuple[ServerSeen, ...]


def make_tables(database: Database, role: str | None = None) -> Sequence[Step]:
    """Apply the steps that are missing, and give a user the role of processes; returns the steps."""

    async def act(connection: Connection) -> Sequence[Step]:
        if (found := await applied(connection)) is not None and found > steps()[-1].number:
            await check_version(connection, database.address.shown)
        made = await migrate(connection, database.address.shown)
        if role is not None:
            await connection.execute(await connection.fetchval("SELECT format($1, $2::text)", _GRANT, role))
        return made

    try:
        return database.do(over_own(database, act), INIT_SECONDS)
    except driver().InsufficientPrivilegeError as wrong:
        raise Unavailable(
            f"this user of {database.address.shown} may not do this ({wrong}): an administrator runs what "
            "`licet db init --print` prints, or gives it CREATEROLE, and CREATE on the database"
        ) from None
    except Exception as wrong:
        raise database.explained(wrong) from None


_GRANT = f"GRANT {RUNTIME} TO %I"


def look_at(database: Database) -> DatabaseSeen:
    """What is at an address. Raises `Unavailable` if no primary answers."""

    async def act(connection: Connection) -> DatabaseSeen:
        about = await connection.fetchrow(_ABOUT, RUNTIME)
        step, problem = None, ""
        try:
            step = await applied(connection)
            await check_version(connection, database.address.shown)
        except Unavailable as wrong:
            problem = str(wrong)
        except driver().InsufficientPrivilegeError:
            problem = f"this user may not read the tables: it needs the role {RUNTIME}"
        pid, own = await connection.fetchval("SELECT pg_backend_pid()"), connection.get_server_pid()  # type: ignore[attr-defined]
        return DatabaseSeen(
            database.address.shown,
            about["user"],
            about["version"],
            step,
            steps()[-1].number,
            problem,
            about["may_run"],
            await is_synchronous(connection),
            pid != own,
            tuple([await _seen(database, server) for server in servers_of(database.address)]),
        )

    try:
        return database.do(over_own(database, act), STATUS_SECONDS)
    except Exception as wrong:
        raise database.explained(wrong) from None


async def over_own(database: Database, act: Callable[[Connection], Awaitable[T]]) -> T:
    """Do something over a connection of its own, in the thread of the database."""
    connection = await database.plain_connection()
    try:
        return await act(connection)
    finally:
        connection.terminate()


async def _seen(database: Database, server: tuple[str, int]) -> ServerSeen:
    try:
        connection = await database.plain_connection(server)
    except Exception as wrong:
        return ServerSeen(*server, None, str(database.explained(wrong)))
    try:
        return ServerSeen(*server, not await connection.fetchval("SELECT pg_is_in_recovery()"))
    except Exception as wrong:
        return ServerSeen(*server, None, str(database.explained(wrong)))
    finally:
        connection.terminate()
