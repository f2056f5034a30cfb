"""What is wrong with a state in PostgreSQL, or may become so, and how to fix it: for `licet doctor`.

It looks with a connection of its own, and changes nothing. The role of processes is enough: whose transaction holds the
order back is seen in the locks of the server, which everybody may read. Since when needs `pg_read_all_stats`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from licet.backends.limits import (
    CLOCK_APART_SECONDS,
    HEAD_AGE_SECONDS,
    HELD_BACK_SECONDS,
    MOST_HELD_BACK,
    STATUS_SECONDS,
)
from licet.backends.postgres.address import Connection
from licet.backends.postgres.database import Database
from licet.backends.postgres.migrations import RUNTIME
from licet.backends.postgres.sequencer import SEQUENCER_LOCK
from licet.backends.postgres.server_status import DatabaseSeen, look_at, over_own
from licet.core.algebra.scope import visible
from licet.guard.ports import Unavailable

_CLOCK = "SELECT clock_timestamp()"
_RIGHTS = """
SELECT current_user::text AS name, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS is_superuser,
    (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'licet.entries'::regclass) AS is_owner,
    has_table_privilege('licet.entries', 'UPDATE, DELETE, TRUNCATE') AS may_change
"""
_HEAD = """
SELECT extract(epoch FROM clock_timestamp() - max(signed))::float8 AS age, max(size) AS size FROM licet.heads
"""
# As the sequencer counts: entries of transactions from the newest head on that have no place.
_WAITING = """
SELECT count(*) AS waiting, count(*) FILTER (WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())) AS unsettled FROM (
    SELECT xid FROM licet.entries WHERE xid >= coalesce(
        (SELECT below FROM licet.heads ORDER BY size DESC LIMIT 1), '0'::xid8
    ) AND NOT EXISTS (
        SELECT FROM licet.places WHERE places.agent = entries.agent AND places.session = entries.session
            AND places.sequence = entries.sequence
    ) LIMIT 10000
) AS waits
"""
# Every open transaction with a number has a lock on it, which everybody may see; prepared ones have no process. And
# anybody who may connect can take a lock of licet, and keep it without a transaction.
_OPEN = """
SELECT 'connection' AS kind, locks.pid::text AS name, coalesce(usename, '') AS role, coalesce(datname, '') AS base,
    coalesce(application_name, '') AS program, coalesce(state, '') AS state,
    extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age
FROM pg_locks AS locks LEFT JOIN pg_stat_activity AS active ON active.pid = locks.pid
WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted AND locks.pid != pg_backend_pid()
UNION ALL
SELECT 'prepared', gid, owner, database, '', 'prepared',
    extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts
UNION ALL
SELECT 'lock', locks.pid::text, coalesce(usename, ''), coalesce(datname, ''), coalesce(application_name, ''),
    coalesce(state, ''), extract(epoch FROM clock_timestamp() - coalesce(xact_start, state_change))::float8
FROM pg_locks AS locks JOIN pg_stat_activity AS active ON active.pid = locks.pid
WHERE locktype = 'advisory' AND granted AND locks.pid != pg_backend_pid() AND objsubid = 1
    AND coalesce(xact_start, state_change) < clock_timestamp() - interval '1 second'
    AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) IN (licet.freeze_lock(), $2)
ORDER BY age DESC NULLS FIRST LIMIT $1
"""


class Check(Struct, frozen=True):
    """One thing that was looked at. `fix` is what to do about it; empty if nothing has to be done."""

    about: str
    verdict: Literal["yes", "degraded", "no"]
    text: str
    fix: str = ""


def health_of(database: Database) -> Sequence[Check]:
    """What a look at the database of a state has found; the most important first."""
    try:
        seen = look_at(database)
    except Unavailable as wrong:
        return [Check("server", "no", str(wrong), "start it, or correct the address: calls are refused meanwhile")]
    found = [_server(seen), _tables(seen), *_standbys(seen, database), _pooler(seen)]
    if seen.step is None:
        return found
    before = datetime.now(UTC)
    rows: dict[str, Any] = {}

    async def look(connection: Connection) -> None:
        rows["clock"] = await connection.fetchval(_CLOCK)
        rows["after"] = datetime.now(UTC)
        rows["rights"] = await connection.fetchrow(_RIGHTS)
        rows["head"] = await connection.fetchrow(_HEAD)
        rows["waiting"] = await connection.fetchrow(_WAITING)
        rows["open"] = await connection.fetch(_OPEN, MOST_HELD_BACK, SEQUENCER_LOCK)

    try:
        database.do(over_own(database, look), STATUS_SECONDS)
    except Exception as wrong:
        return [*found, Check("tables", "no", str(database.explained(wrong)), f"GRANT {RUNTIME} TO {seen.user}")]
    held = _held_back(rows["open"], rows["waiting"])
    head = _head(rows["head"], rows["waiting"], database.address.max_head_age, is_held=bool(held))
    return [*found, _role(seen, rows["rights"]), _clock(before, rows["clock"], rows["after"]), head, *held]


def _server(seen: DatabaseSeen) -> Check:
    primaries = [f"{one.host}:{one.port}" for one in seen.servers if one.is_primary]
    lost = [f"{one.host}:{one.port}: {one.problem}" for one in seen.servers if one.is_primary is None]
    text = f"{visible(seen.address)}, PostgreSQL {visible(seen.version)}, primary {', '.join(map(visible, primaries))}"
    if len(primaries) > 1:
        fix = "stop the one that was replaced: nodes that reach it write what will be lost"
        return Check("server", "no", f"{text}: more than one server takes writes", fix)
    if lost:
        return Check("server", "degraded", f"{text}; no answer from {visible('; '.join(lost))}", "start it again")
    return Check("server", "yes", text)


def _tables(seen: DatabaseSeen) -> Check:
    if seen.problem:
        return Check("tables", "no", seen.problem, "" if "licet db init" in seen.problem else "`licet db init`")
    return Check("tables", "yes", f"step {seen.step} of {seen.known}")


def _standbys(seen: DatabaseSeen, database: Database) -> Sequence[Check]:
    if seen.is_synchronous:
        return [Check("failover", "yes", "replication is synchronous: a failover loses nothing acknowledged")]
    text = "replication is asynchronous, or there is none: a failover loses entries that were acknowledged"
    fix = "set `synchronous_standby_names`; `?require_synchronous=true` in the address refuses calls without it"
    return [Check("failover", "no" if database.address.require_synchronous else "degraded", text, fix)]


def _pooler(seen: DatabaseSeen) -> Check:
    if not seen.is_pooled:
        return Check("changes", "yes", "answers and freezes are heard of at once")
    text = "a transaction pooler stands between, and listening is deaf there: answers and freezes are polled"
    return Check("changes", "degraded", text, "name the server itself in the address, if they should come at once")


def _role(seen: DatabaseSeen, rights: Mapping[str, Any]) -> Check:
    name = visible(str(rights["name"]))
    if not seen.may_run:
        return Check("role", "no", f"{name} lacks the role {RUNTIME}", f"GRANT {RUNTIME} TO {name}")
    too_much = (
        "is a superuser"
        if rights["is_superuser"]
        else "owns the tables"
        if rights["is_owner"]
        else "may change entries"
        if rights["may_change"]
        else ""
    )
    if too_much:
        fix = f"connect as a user with the role {RUNTIME} alone: `licet db init --role NAME`"
        return Check("role", "degraded", f"{name} {too_much}, and so may every process of licet here", fix)
    return Check("role", "yes", f"{name} can add entries and read them, and change none")


def _clock(before: datetime, theirs: datetime, after: datetime) -> Check:
    """How far the clocks are apart at least: the server has read its own between two looks at this one."""
    apart = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    text = f"the clocks of this machine and of the server are {apart:.1f} seconds apart"
    if apart <= CLOCK_APART_SECONDS:
        return Check("clock", "yes", text)
    fix = "synchronise both: deadlines of approvals and ages of heads are wrong by as much"
    return Check("clock", "degraded", text, fix)


def _head(head: Mapping[str, Any], waiting: Mapping[str, Any], most: int | None, *, is_held: bool) -> Check:
    if head["size"] is None:
        return Check("ledger", "yes", "it has not begun: the first call begins it")
    age, number = head["age"] or 0.0, waiting["waiting"]
    more = "at least " if number == 10_000 else ""
    entries = f"{more}{number:,} {'entry waits' if number == 1 else 'entries wait'} for a place"
    text = f"the newest head has {head['size']:,} entries, and was signed {_ago(age)} ago; {entries}"
    if not number or age <= HEAD_AGE_SECONDS:
        return Check("ledger", "yes", text)
    fix = "end what holds it back, below" if is_held else "run a node that holds the key of the ledger"
    if most is None or age <= most:
        return Check("ledger", "degraded", text, fix)
    return Check("ledger", "no", f"{text}; calls are refused, since the state has `max_head_age={most}s`", fix)


def _held_back(rows: Sequence[Mapping[str, Any]], waiting: Mapping[str, Any]) -> Sequence[Check]:
    """Transactions that are open for long: no entry of a later one gets its place, and heads age."""
    found = []
    for row in rows:
        age = row["age"]
        if (age is not None and age < HELD_BACK_SECONDS) or (age is None and not waiting["unsettled"]):
            continue
        since = "for a time that this user may not see" if age is None else f"for {_ago(age)}"
        name = visible(str(row["name"]))
        state = f", {visible(row['state'])}" if row["state"] else ""
        program = f" of {visible(row['program'])}" if row["program"] else ""
        who = f"{visible(row['role'])} in the database {visible(row['base'])}"
        if row["kind"] == "prepared":
            quoted = name.replace("'", "''")
            text, fix = f"prepared transaction {name} by {who}", f"ROLLBACK PREPARED '{quoted}', or COMMIT PREPARED"
        else:
            text, fix = f"process {name}{program} by {who}{state}", f"SELECT pg_terminate_backend({name})"
        if row["kind"] == "lock":
            what = f"{text} holds a lock of licet {since}: calls, freezes or places wait for it"
            found.append(Check("order", "degraded", what, fix))
            continue
        found.append(Check("order", "degraded", f"{text} has been open {since}: it holds every later entry back", fix))
    return found


def _ago(seconds: float) -> str:
    if seconds < 120:
        whole = round(max(0.0, seconds))
        return f"{whole} {'second' if whole == 1 else 'seconds'}"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
