"""Many nodes on one PostgreSQL: how fast they write together, reserve, hear of answers, and go on after a promotion.

A real server writes to the disk before it answers, and nodes are processes of their own, each with 64 callers. Whatever
is compared works in turns, for slices of the same length on the same disk, and the best slice of each counts, by the
wall clock: server, nodes and disk share the work.
"""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Effort, Row, Timing, VerdictError, at_least, at_most, duration, versus_floor, versus_peer

__all__ = ["measure"]

ROOT = Path(__file__).parent.parent
NODES, CALLERS, CONNECTIONS = 4, 64, 64
SECONDS = 1.0  # of a slice
ENTRY = b"x" * 1000  # about the size of an entry

VERSUS_SQLITE, VERSUS_FLUSHES, VERSUS_ONE = at_least(1.2), at_least(20), at_least(1.4)
RESERVED, OPENED, HEARD, ALONE, PROMOTED = at_least(20), at_least(1.3), at_most(3), at_most(3), at_most(5)
_RESERVE = f"SELECT * FROM licet.reserve({', '.join(f'${n}' for n in range(1, 24))})"
_UPDATE = "UPDATE spent SET calls = calls + 1, cost = cost + $1 WHERE name = 'day' AND calls < $2 RETURNING calls"
_RING, _KEEP = "NOTIFY bell", "WITH kept AS (INSERT INTO rung DEFAULT VALUES) SELECT pg_notify('bell', '')"
# As `initdb` leaves it, but for a socket alone.
_SETTINGS = {"autovacuum": "on", "shared_buffers": "128MB"}


def measure(effort: Effort) -> list[Row]:
    """Every row about many nodes; where there is no server, the reason."""
    try:
        servers = _servers()
        kind = next(iter(servers.binaries_once().values()), None)
    except ImportError as why:
        return _skipped(str(why))
    if kind is None:
        return _skipped("there is no PostgreSQL on this machine, and no package that has one")
    rounds = max(3, effort.rounds // 12)
    with ExitStack() as ended:
        server = servers.Server(kind, durable=True, **_SETTINGS)
        ended.callback(server.stop)
        place = Path(ended.enter_context(tempfile.TemporaryDirectory(dir=server.folder.parent, prefix="licet-bench-")))
        return [
            *_ledger(server, place, rounds),
            *_reserved(server, place, rounds),
            *_opened(server, place, rounds),
            *_answers(server, place, effort),
            _alone(server, place, effort),
            *_promoted(servers, kind, place),
        ]


def _skipped(why: str) -> list[Row]:
    targets = (VERSUS_SQLITE, VERSUS_FLUSHES, VERSUS_ONE, RESERVED, OPENED, HEARD, ALONE, PROMOTED)
    return [Row("many nodes on PostgreSQL", "", target=target, note=why) for target in targets]


def _servers() -> Any:
    """The module of the tests that starts real servers."""
    sys.path.insert(0, os.fspath(ROOT / "tests"))
    try:
        import asyncpg  # noqa: F401

        import postgres_server
    finally:
        sys.path.remove(os.fspath(ROOT / "tests"))
    return postgres_server


# Nodes ----------------------------------------------------------------------------------------------------------------


class _Nodes:
    """Processes that work together when they are told to."""

    def __init__(self, kind: str, state: str, directories: Sequence[Path], ended: ExitStack) -> None:
        words = [sys.executable, "-m", "benchmarks.node_callers", kind, state]
        self.processes: list[subprocess.Popen[str]] = []
        for each in directories:
            command = [*words, os.fspath(each), each.name, str(CALLERS)]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
            ended.callback(_end, process)
            self.processes.append(process)
        for process in self.processes:
            if _said(process) != "ready":
                raise VerdictError(f"a node of `{kind}` does not start")

    def work(self, seconds: float = SECONDS, many: int = NODES) -> float:
        """Let so many nodes work; returns nanoseconds for each piece of work."""
        for process in self.processes[:many]:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        answers = [json.loads(_said(process)) for process in self.processes[:many]]
        return float(max(took for _, took in answers) * 1e9 / sum(done for done, _ in answers))


def _said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _end(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(30)


def _state(server: Any, place: Path, name: str, many: int = NODES) -> tuple[str, list[Path]]:
    """A new database with the tables of licet, and the directories of its nodes, which are enrolled."""
    asyncio.run(server.sql(f"CREATE DATABASE {name}"))
    directories = [place / name / f"{name}{number}" for number in range(many)]
    asyncio.run(_prepare(server.url(name), directories))
    return server.url(name), directories


async def _prepare(url: str, directories: Sequence[Path]) -> None:
    from asyncpg import connect

    from licet.backends.postgres.migrations import migrate

    connection = await connect(url)
    try:
        await migrate(connection)
    finally:
        await connection.close()
    database, ledger = _node(url, directories[0])
    await ledger.begun()
    for other in directories[1:]:
        await ledger.enrol(_node_key(other).public)
    await asyncio.to_thread(ledger.close)
    await asyncio.to_thread(database.close)


def _node(url: str, directory: Path) -> tuple[Any, Any]:
    from licet.backends.postgres.database import Database
    from licet.backends.postgres.postgres_ledger import PostgresLedger

    database = Database(url)
    return database, PostgresLedger(database, _node_key(directory), directory)


def _node_key(directory: Path) -> Any:
    from licet.backends.postgres.node_keys import Node

    return Node.of(directory)


def _in_turns(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Timing]:
    """The best and the median slice of each way; the first round warms caches."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        names = [*ways][number % len(ways) :] + [*ways][: number % len(ways)]
        for name in names:
            took = ways[name]()
            times[name] += [took] if number else []
    return {name: Timing(min(each), median(each)) for name, each in times.items()}


# The ledger -----------------------------------------------------------------------------------------------------------


def _ledger(server: Any, place: Path, rounds: int) -> list[Row]:
    url, directories = _state(server, place, "ledger")
    late: list[float] = []
    with ExitStack() as ended:
        nodes = _Nodes("ledger", url, directories, ended)
        sqlite = _Nodes("sqlite", os.fspath(place / "sqlite" / "ledger.sqlite"), [place / "sqlite"], ended)

        def four() -> float:
            took = nodes.work()
            late.append(asyncio.run(_until_placed(url)))
            return took

        def one() -> float:
            took = nodes.work(many=1)
            asyncio.run(_until_placed(url))
            return took

        with _appended(place / "plain") as flush:
            ways = {"four": four, "one": one, "sqlite": sqlite.work, "flush": flush}
            times = _in_turns(ways, rounds)
    _check(url, directories[0])
    what = f"ledger: an entry of {NODES} nodes, {CALLERS} callers each"
    return [
        versus_peer(what, "one node on SQLite", times["four"], times["sqlite"], VERSUS_SQLITE),
        versus_peer(what, "one write and fdatasync each", times["four"], times["flush"], VERSUS_FLUSHES),
        versus_peer(what, "one node on PostgreSQL", times["four"], times["one"], VERSUS_ONE),
        _within("ledger: the last entry has its place in the tree", min(late[1:]), 0.2),
    ]


async def _until_placed(url: str) -> float:
    """Seconds until every entry has its place."""
    from asyncpg import connect

    connection, began = await connect(url), time.perf_counter()
    try:
        entries = await connection.fetchval("SELECT count(*) FROM licet.entries")
        while (await connection.fetchval("SELECT max(size) FROM licet.heads")) < entries:
            await asyncio.sleep(0.005)
            if time.perf_counter() - began > 120:
                raise VerdictError("entries get no places")
        return time.perf_counter() - began
    finally:
        await connection.close()


def _check(url: str, directory: Path) -> None:
    """All that is in the tree is whole, and signed."""
    from licet.backends.postgres.verify_database import verify_database

    key = (directory / "ledger.pub").read_text().strip()
    outcome = verify_database(url, os.fspath(directory / "ledger"), key)
    if outcome.finding is not None or outcome.waiting or outcome.signed != outcome.entries:
        raise VerdictError(f"the ledger is not whole: {outcome.finding or outcome.waiting}")


@contextmanager
def _appended(path: Path) -> Iterator[Callable[[], float]]:
    """One write and fdatasync for each entry."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def work() -> float:
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < SECONDS:
            os.write(file, ENTRY)
            os.fdatasync(file)
            done += 1
        return (time.perf_counter() - began) * 1e9 / done

    try:
        yield work
    finally:
        os.close(file)


# Budgets, and the step before a call ----------------------------------------------------------------------------------


def _reserved(server: Any, place: Path, rounds: int) -> list[Row]:
    url, directories = _state(server, place, "reserve")
    with ExitStack() as ended:
        nodes = _Nodes("reserve", url, directories, ended)
        loop = ended.enter_context(asyncio.Runner())
        connections = loop.run(_connections(url))
        ways = {
            "licet": nodes.work,
            "each": lambda: loop.run(_statements(connections, _reserves)),
            "update": lambda: loop.run(_statements(connections, _updates)),
        }
        times = _in_turns(ways, rounds)
        loop.run(_closed(connections))
    what, each = (
        f"budgets: a call set aside on one counter, {NODES} nodes",
        f"a statement each, {CONNECTIONS} connections",
    )
    return [
        versus_peer(what, f"the same, {each}", times["licet"], times["each"], RESERVED),
        versus_peer(what, f"a bare UPDATE, {each}", times["licet"], times["update"]),
    ]


async def _connections(url: str) -> list[Any]:
    from asyncpg import connect

    found = [await connect(url) for _ in range(CONNECTIONS)]
    await found[0].execute("CREATE TABLE spent (name text PRIMARY KEY, calls bigint, cost numeric)")
    await found[0].execute("INSERT INTO spent VALUES ('day', 0, 0)")
    return found


async def _statements(connections: Sequence[Any], act: Callable[[Any, int], Awaitable[object]]) -> float:
    began, done = time.perf_counter(), 0

    async def works(number: int, connection: Any) -> None:
        nonlocal done
        while time.perf_counter() - began < SECONDS:
            await act(connection, number)
            done += 1

    await asyncio.gather(*itertools.starmap(works, enumerate(connections)))
    return (time.perf_counter() - began) * 1e9 / done


async def _reserves(connection: Any, number: int) -> None:
    """One reservation in a transaction of its own: the function that licet calls with a batch."""
    from benchmarks.node_callers import claim
    from licet.backends.limits import LEASE_SECONDS
    from licet.backends.postgres.postgres_budgets import Taking, new_id, reserving

    arguments = reserving([Taking(new_id(), claim(f"each-{number}"))], "bench", LEASE_SECONDS)
    row = await connection.fetchrow(_RESERVE, *arguments, None, None, None, None)
    assert row["granted"] == 1


async def _updates(connection: Any, _: int) -> None:
    assert await connection.fetchval(_UPDATE, Decimal("0.001"), 10**12) is not None


async def _closed(connections: Sequence[Any]) -> None:
    for one in connections:
        await one.close()


def _opened(server: Any, place: Path, rounds: int) -> list[Row]:
    """Each node has an agent of its own; without a target, all nodes also share the counter of one agent."""
    rows = []
    for end, whose, target in (("", "an agent each", OPENED), ("-shared", "one agent", None)):
        with ExitStack() as ended:
            found = {}
            for kind in ("opening", "steps"):
                url, directories = _state(server, place, f"{kind}{end}".replace("-", "_"))
                found[kind] = _Nodes(f"{kind}{end}", url, directories, ended).work
            times = _in_turns(found, rounds)
        what = f"a call opened in one transaction, {NODES} nodes, {whose}"
        rows.append(
            versus_peer(what, "frozen?, budget and decision in three", times["opening"], times["steps"], target)
        )
    return rows


# Answers --------------------------------------------------------------------------------------------------------------


def _answers(server: Any, place: Path, effort: Effort) -> list[Row]:
    """From the moment at which a person answers at one node, until another one is told, and until its call goes on."""
    url, (there, here) = _state(server, place, "answers", 2)
    times = asyncio.run(_answered(url, here, there, max(10, effort.rounds)))
    bare, what = "a bare NOTIFY, there and back", "an answer"
    return [
        versus_floor(f"{what} reaches a waiting node", bare, times["told"], times["bare"], HEARD),
        versus_floor(f"{what} reaches a waiting node", "one INSERT and NOTIFY, and back", times["told"], times["kept"]),
        versus_floor(f"{what} lets the waiting call go on", bare, times["on"], times["bare"]),
    ]


async def _answered(url: str, here: Path, there: Path, rounds: int) -> dict[str, Timing]:
    from asyncpg import connect

    from licet.backends.approvals.waiting import WaitingApprover
    from licet.backends.postgres.postgres_approvals import ANSWERS, PostgresApprovals

    stores, ends, databases = [], [], []
    for directory in (here, there):
        database, ledger = _node(url, directory)
        databases.append(database)
        ends += [ledger.close, database.close]
        await ledger.begun()
        stores.append(PostgresApprovals(database, ledger.node, ledger.enrolled.check))
    asked: asyncio.Queue[Any] = asyncio.Queue()
    waiting = WaitingApprover(stores[0], lambda _, kept, __: asked.put_nowait(kept))
    told: list[int] = []
    databases[0].listen(ANSWERS, lambda text: told.append(time.perf_counter_ns()) if text else None)
    bells = [await connect(url) for _ in range(2)]
    await bells[0].execute("CREATE TABLE rung (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")
    times: dict[str, list[float]] = {"told": [], "on": [], "bare": [], "kept": []}
    try:
        for number in range(rounds + 1):
            call = asyncio.ensure_future(waiting.ask(_question(number)))
            shown = await asked.get()
            await asyncio.sleep(0.03)  # until it waits, and nothing else goes on
            shown = await stores[1].find(shown.request.id)
            told.clear()
            began = time.perf_counter_ns()
            await stores[1].approve(shown)
            if (await call).answer != "approved":
                raise VerdictError("the answer did not arrive")
            on = time.perf_counter_ns() - began
            bare = [await _bell(*bells, _RING) for _ in range(3)]
            kept = [await _bell(*bells, _KEEP) for _ in range(3)]
            if number:
                times["told"].append(told[0] - began)
                times["on"].append(on)
                times["bare"] += bare
                times["kept"] += kept
    finally:
        for bell in bells:
            await bell.close()
        for end in ends:
            await asyncio.to_thread(end)
    return {name: Timing(min(each), median(each)) for name, each in times.items()}


def _question(number: int) -> Any:
    from licet import Capability, CapabilitySet, ToolSpec
    from licet.core.decision.request import Approval
    from licet.core.values import digest
    from licet.guard.ports import Question

    arguments, reach = {"amount": number}, "network:https:post@bank.example"
    return Question(
        approval=Approval("sha256:" + "0" * 64, "pay", "s", digest(arguments), ""),
        spec=ToolSpec("pay", CapabilitySet([reach]), effect="write_limited", sandbox="restricted"),
        arguments=arguments,
        stakes=(Capability(reach),),
        why="class write_limited asks before each call",
        expires_seconds=300,
        agent="bench",
        effect="write_limited",
        workdir="/srv",
    )


async def _bell(here: Any, there: Any, ring: str) -> float:
    """One notification to another connection, and one back."""
    heard = asyncio.Event()

    def answer(*_: object) -> None:
        pending.append(asyncio.ensure_future(there.execute("NOTIFY back")))

    pending: list[asyncio.Future[Any]] = []
    back: Callable[..., None] = lambda *_: heard.set()  # noqa: E731
    await there.add_listener("bell", answer)
    await here.add_listener("back", back)
    began = time.perf_counter_ns()
    await here.execute(ring)
    await heard.wait()
    took = time.perf_counter_ns() - began
    await asyncio.gather(*pending)
    await there.remove_listener("bell", answer)
    await here.remove_listener("back", back)
    return took


# One call alone -------------------------------------------------------------------------------------------------------


def _alone(server: Any, place: Path, effort: Effort) -> Row:
    url, (directory,) = _state(server, place, "alone", 1)
    times = asyncio.run(_one_by_one(url, directory, place / "alone.sqlite", max(4, effort.rounds // 4)))
    what = "ledger: one entry alone"
    return versus_floor(what, "SQLite", times["postgres"], times["sqlite"], ALONE)


async def _one_by_one(url: str, directory: Path, path: Path, rounds: int) -> dict[str, Timing]:
    from benchmarks.node_callers import entry
    from licet.backends.ledger.writer import SqliteLedger

    database, ledger = _node(url, directory)
    file = SqliteLedger(path)
    times: dict[str, list[float]] = {"postgres": [], "sqlite": []}
    try:
        for number in range(rounds + 1):
            for name, each in (("postgres", ledger), ("sqlite", file)):
                for n in range(50):
                    began = time.perf_counter_ns()
                    await each.record(entry(f"r-{number}-{n}", "alone"))
                    times[name] += [time.perf_counter_ns() - began] if number else []
    finally:
        for close in (ledger.close, database.close, file.close):
            await asyncio.to_thread(close)
    return {name: Timing(min(each), median(each)) for name, each in times.items()}


# A promotion ----------------------------------------------------------------------------------------------------------


def _promoted(servers: Any, kind: Path, place: Path) -> list[Row]:
    """A standby to which commits wait is promoted after its primary was killed."""
    what = "after a promotion, calls go on"
    if not (kind / "pg_basebackup").exists():
        return [Row(what, "", target=PROMOTED, note="this PostgreSQL has no pg_basebackup")]
    with ExitStack() as ended:
        primary = servers.Server(kind, durable=True, **_SETTINGS)
        ended.callback(primary.stop)
        _, (directory,) = _state(primary, place, "promoted", 1)
        standby = servers.Standby(primary, durable=True)
        ended.callback(standby.stop)
        took, lost, kept = asyncio.run(_promotion(primary, standby, directory))
    return [
        _within(what, took, PROMOTED.limit),
        Row(f"of {kept:,} acknowledged entries, lost", "", f"{lost}", "", float(lost), at_most(0)),
    ]


async def _promotion(primary: Any, standby: Any, directory: Path) -> tuple[float, int, int]:
    from benchmarks.node_callers import entry

    await primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    while await primary.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != 1:
        await asyncio.sleep(0.02)
    url = f"postgresql://postgres@/promoted?host={primary.folder},{standby.folder}"
    database, ledger = _node(url, directory)
    acknowledged: list[tuple[str, float]] = []
    ends = asyncio.Event()

    async def calls(caller: int) -> None:
        n = 0
        while not ends.is_set():
            await ledger.record(entry(f"r-{caller}-{n}", f"s{caller}"))
            acknowledged.append((f"r-{caller}-{n}", time.perf_counter()))
            n += 1

    callers = [asyncio.ensure_future(calls(caller)) for caller in range(CALLERS)]
    await asyncio.sleep(SECONDS)
    await asyncio.to_thread(primary.kill)
    killed = time.perf_counter()
    await standby.sql("SELECT pg_promote(true)")
    while not acknowledged or acknowledged[-1][1] < killed + 0.01:
        await asyncio.sleep(0.005)
    await asyncio.sleep(SECONDS / 2)
    ends.set()
    await asyncio.gather(*callers)
    went_on = min(moment for _, moment in acknowledged if moment > killed) - killed
    ids = [name for name, _ in acknowledged]
    query = "SELECT array_agg(id) FROM licet.entries"
    found = await standby.sql(query, database="promoted")
    for close in (ledger.close, database.close):
        await asyncio.to_thread(close)
    return went_on, len(set(ids) - set(found)) + len(found) - len(set(found)), len(ids)


# Rows -----------------------------------------------------------------------------------------------------------------


def _within(what: str, seconds: float, limit: float) -> Row:
    """A time, as a multiple of the time that it may take."""
    return Row(what, f"{limit:g} s", duration(seconds * 1e9), "", seconds / limit, at_most(1))
