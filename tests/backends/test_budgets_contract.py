"""The contract of budgets, on the memory twin, on SQLite and on PostgreSQL; and what a file adds to it."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest

from effort import LONG
from licet.backends.budgets import MemoryBudgets, SqliteBudgets
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_budgets import PostgresBudgets
from licet.core.decision.request import Spent, Usage
from licet.core.policy.terms import Budget
from licet.guard.ports import Budgets, Claim, Reservation, Unavailable
from older_files import older_file
from postgres_server import fresh
from reservations import EMPTY, held_in

D = Decimal


@pytest.fixture(scope="module")
def shared_database() -> str:
    return fresh()


@pytest.fixture(params=["memory", "sqlite", "sqlite, flushed by a ledger", "postgres", "postgres, leased"])
def budgets(request: pytest.FixtureRequest, store_path: Path) -> Iterator[Budgets]:
    if request.param == "memory":
        yield MemoryBudgets()
        return
    if "postgres" in request.param:
        database = Database(request.getfixturevalue("shared_database"))
        database.wait(lambda connection: connection.execute(EMPTY), 10)
        lease = D(1) if "leased" in request.param else None
        store = PostgresBudgets(database, Node.of(store_path / "node"), lease)
        yield store
        store.close()
        database.close()
        return
    ledger = SqliteLedger(store_path / "state" / "ledger.sqlite") if "ledger" in request.param else None
    kept = SqliteBudgets(store_path / "state" / "budgets.sqlite", ledger)
    yield kept
    kept.close()


def claim(
    tool: str = "t",
    session: str = "s",
    agent: str = "a",
    day: str = "2026-01-01",
    cost: str = "0.10",
    max_calls: int | None = None,
    of_tool: str | None = None,
    **limits: Any,
) -> Claim:
    own = None if of_tool is None else D(of_tool)
    return Claim(agent, session, tool, day, D(cost), Budget(**limits), max_calls, own)


def used(calls: int, cost: str) -> Usage:
    """The usage of a session that has only called `t`, on one day."""
    spent = D(cost)
    return Usage(calls, {"t": calls} if calls else {}, spent, spent, {"t": spent} if spent else {}, calls)


async def reserved(budgets: Budgets, wanted: Claim) -> Reservation:
    found = await budgets.reserve(wanted)
    assert found is not None
    return found


def test_usage_is_counted_by_session_tool_and_day(budgets: Budgets) -> None:
    async def run() -> None:
        kept = [await reserved(budgets, claim(tool)) for tool in ("t", "t", "u")]
        await budgets.settle(kept[0], D("0.03"))
        await budgets.refund(kept[1])
        await reserved(budgets, claim(session="other"))
        await reserved(budgets, claim(day="2026-01-02"))
        await reserved(budgets, claim(agent="b"))
        tenth = D("0.10")
        spent = tenth * 2 + D("0.03")
        of_tools = {"t": D("0.13"), "u": tenth}
        assert await budgets.usage("a", "s", "2026-01-01") == Usage(3, {"t": 2, "u": 1}, spent, spent, of_tools, 3)
        later = await budgets.usage("a", "s", "2026-01-02")
        assert (later.calls_today, later.cost_usd_today) == (1, tenth)
        assert await budgets.usage("b", "s", "2026-01-01") == used(1, "0.10")
        assert await budgets.usage("c", "s", "2026-01-01") == used(0, "0")

    asyncio.run(run())


ENDINGS: dict[str, tuple[list[tuple[str, str]], Usage]] = {
    "never": ([], used(1, "0.10")),
    "for all of it": ([("settle", "0.10")], used(1, "0.10")),
    "for less": ([("settle", "0.04")], used(1, "0.04")),
    "for nothing": ([("settle", "0")], used(1, "0")),
    "given back": ([("refund", "")], used(0, "0")),
    "given back twice": ([("refund", ""), ("refund", "")], used(0, "0")),
    "given back, then settled": ([("refund", ""), ("settle", "0.10")], used(0, "0")),
    "settled, then given back": ([("settle", "0.04"), ("refund", "")], used(1, "0.04")),
    "settled twice": ([("settle", "0.04"), ("settle", "0.01")], used(1, "0.04")),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_a_reservation_ends_once(budgets: Budgets, case: str) -> None:
    steps, expected = ENDINGS[case]

    async def run() -> Usage:
        kept = await reserved(budgets, claim())
        for step, cost in steps:
            await (budgets.settle(kept, D(cost)) if step == "settle" else budgets.refund(kept))
        return await budgets.usage("a", "s", "2026-01-01")

    assert asyncio.run(run()) == expected


@pytest.mark.parametrize("cost", ["0.11", "-0.01"])
def test_a_settlement_above_the_reservation_is_refused(budgets: Budgets, cost: str) -> None:
    async def run() -> Usage:
        kept = await reserved(budgets, claim())
        with pytest.raises(ValueError, match=r"at most the 0\.10"):
            await budgets.settle(kept, D(cost))
        return await budgets.usage("a", "s", "2026-01-01")

    assert asyncio.run(run()).cost_usd == D("0.10")  # it stays reserved


LIMITS: dict[str, tuple[list[Claim], list[bool]]] = {
    "calls of a session": ([claim(max_calls_per_session=2)] * 3, [True, True, False]),
    "calls of a tool": (
        [claim(max_calls=1), claim(max_calls=1), claim("u", max_calls=1), claim(session="x", max_calls=1)],
        [True, False, True, True],
    ),
    "calls of a day": (
        [
            claim(session="x", max_calls_per_day=2),
            claim("u", session="y", cost="0", max_calls_per_day=2),
            claim(session="z", max_calls_per_day=2),
            claim(session="z", max_calls_per_day=2, day="2026-01-02"),
            claim(agent="b", max_calls_per_day=2),
        ],
        [True, True, False, True, True],
    ),
    "money of a tool": (
        [
            *[claim(of_tool="0.20")] * 3,
            claim("u", of_tool="0.20"),
            claim(session="x", of_tool="0.20"),
            claim(cost="0", of_tool="0.20"),
            claim(day="2026-01-02", of_tool="0.20"),
        ],
        [True, True, False, True, True, True, False],
    ),
    "money of a session": (
        [*[claim(max_cost_usd=D("0.25"))] * 3, claim(cost="0.05", max_cost_usd=D("0.25"))],
        [True, True, False, True],
    ),
    "money of a day": (
        [
            claim(session="x", max_cost_usd_per_day=D("0.20")),
            claim(session="y", max_cost_usd_per_day=D("0.20")),
            claim(session="z", max_cost_usd_per_day=D("0.20")),
            claim(session="z", max_cost_usd_per_day=D("0.20"), day="2026-01-02"),
            claim(agent="b", max_cost_usd_per_day=D("0.20")),
        ],
        [True, True, False, True, True],
    ),
    "the same day of another month": (
        [claim(day=f"2026-{month}-01", max_cost_usd_per_day=D("0.10")) for month in ("01", "01", "02")],
        [True, False, True],
    ),
    "the finest amounts": (
        [claim(cost="0.000000000000001", max_cost_usd=D("0.000000000000002"))] * 3,
        [True, True, False],
    ),
    "the largest amounts": (
        [
            claim(cost="999999999.999999999999999", max_cost_usd=D(1_000_000_000)),
            claim(cost="0.000000000000002", max_cost_usd=D(1_000_000_000)),
            claim(cost="0.000000000000001", max_cost_usd=D(1_000_000_000)),
        ],
        [True, False, True],
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_a_limit_is_reached_and_never_passed(budgets: Budgets, case: str) -> None:
    claims, expected = LIMITS[case]

    async def run() -> list[bool]:
        return [await budgets.reserve(one) is not None for one in claims]

    with localcontext() as coarse:
        coarse.prec = 2  # as a tool of this process may have it
        assert asyncio.run(run()) == expected


def test_a_reservation_knows_what_was_spent_before_it(budgets: Budgets) -> None:
    async def run() -> list[Spent]:
        first = await reserved(budgets, claim())
        await budgets.settle(first, D("0.04"))
        second = await reserved(budgets, claim("u"))
        return [first.before, second.before, (await reserved(budgets, claim(day="2026-01-02"))).before]

    assert asyncio.run(run()) == [
        Spent(),
        Spent(1, 0, D("0.04"), D("0.04"), D(0), 1),
        Spent(2, 1, D("0.14"), D(0), D("0.04"), 0),
    ]


def test_no_limit_is_passed_by_many_at_once(budgets: Budgets) -> None:
    limit = claim(max_cost_usd=D("1.00"), max_calls_per_session=1000)

    async def one(number: int) -> int:
        kept = await budgets.reserve(limit)
        if kept is None:
            return 0
        await asyncio.sleep(0)
        await (budgets.refund(kept) if number % 3 == 0 else budgets.settle(kept, D("0.10")))
        return number % 3 and 1

    async def run() -> None:
        taken = sum(await asyncio.gather(*(one(number) for number in range(60))))
        usage = await budgets.usage("a", "s", "2026-01-01")
        assert (usage.calls, usage.cost_usd) == (taken, D("0.10") * taken)
        assert 0 < taken <= 10
        left = [await budgets.reserve(limit) is not None for _ in range(11)]
        assert left == [True] * (10 - taken) + [False] * (1 + taken)

    asyncio.run(run())


# What a file adds -----------------------------------------------------------------------------------------------------


def kept_in(path: Path, act: Callable[[SqliteBudgets], Awaitable[Any]]) -> Any:
    """Run something with a new store on a file, and return its result."""
    store = SqliteBudgets(path)

    async def run() -> Any:
        return await act(store)

    try:
        return asyncio.run(run())
    finally:
        store.close()


def test_a_reservation_survives_its_process_and_can_be_settled_by_another(store_path: Path) -> None:
    path = store_path / "budgets.sqlite"
    kept = kept_in(path, lambda store: store.reserve(claim()))
    kept_in(path, lambda store: store.settle(kept, D("0.07")))
    assert kept_in(path, lambda store: store.usage("a", "s", "2026-01-01")).cost_usd == D("0.07")
    assert held_in(path) == []
    assert path.stat().st_mode & 0o777 == 0o600


def test_money_is_kept_as_exact_text(store_path: Path) -> None:
    path = store_path / "budgets.sqlite"
    kept_in(path, lambda store: store.reserve(claim(cost="0.1")))
    kept_in(path, lambda store: store.reserve(claim(cost="0.2")))
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT cost_usd, typeof(cost_usd) FROM sessions").fetchall()
        rows += db.execute("SELECT cost_usd, typeof(cost_usd) FROM days").fetchall()
        rows += db.execute("SELECT cost_usd, typeof(cost_usd) FROM tools").fetchall()
    db.close()
    assert rows == [("0.3", "text")] * 3


FIRST_FORMAT = """
CREATE TABLE sessions (
    agent TEXT NOT NULL, session TEXT NOT NULL, calls INTEGER NOT NULL, cost_usd TEXT NOT NULL,
    PRIMARY KEY (agent, session)
) WITHOUT ROWID;
CREATE TABLE tools (
    agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, calls INTEGER NOT NULL,
    PRIMARY KEY (agent, session, tool)
) WITHOUT ROWID;
CREATE TABLE days (
    agent TEXT NOT NULL, day TEXT NOT NULL, cost_usd TEXT NOT NULL, PRIMARY KEY (agent, day)
) WITHOUT ROWID;
CREATE TABLE held (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, day TEXT NOT NULL,
    cost_usd TEXT NOT NULL, since TEXT NOT NULL, process TEXT NOT NULL, lost TEXT
) WITHOUT ROWID;
INSERT INTO sessions VALUES ('a', 's', 3, '0.5'), ('a', 'x', 1, '0.25');
INSERT INTO tools VALUES ('a', 's', 't', 2), ('a', 's', 'u', 1), ('a', 'x', 't', 1);
INSERT INTO days VALUES ('a', '2026-01-01', '0.75');
INSERT INTO held VALUES ('b-1', 'a', 's', 't', '2026-01-01', '0.10', '2026-01-01T00:00+00:00', '1-2/pid:[1]/1/1', NULL);
PRAGMA application_id = 1818846050;
PRAGMA user_version = 1;
"""


def test_a_file_of_format_1_is_migrated_without_losing_spending(store_path: Path) -> None:
    path = older_file(store_path / "budgets.sqlite", FIRST_FORMAT)
    # Only the spending of the session is known, so each tool counts as having spent all of it.
    half = D("0.5")
    found = kept_in(path, lambda store: store.usage("a", "s", "2026-01-01"))
    assert found == Usage(3, {"t": 2, "u": 1}, half, D("0.75"), {"t": half, "u": half}, 0)
    assert held_in(path) == ["0.10"]
    assert kept_in(path, lambda store: store.reserve(claim(of_tool="0.59"))) is None
    assert kept_in(path, lambda store: store.reserve(claim(of_tool="0.60", max_calls_per_day=1))) is not None
    assert kept_in(path, lambda store: store.reserve(claim(max_calls_per_day=1))) is None
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    db.close()


CRASH = """
import asyncio, os, signal, sys
from decimal import Decimal
from licet.backends.budgets import SqliteBudgets
from licet.core.policy.terms import Budget
from licet.guard.ports import Claim

async def run():
    budgets = SqliteBudgets(sys.argv[1])
    claim = Claim("a", "s", "t", "2026-01-01", Decimal("0.10"), Budget(), None, None)
    await budgets.settle(await budgets.reserve(claim), Decimal("0.02"))
    await budgets.reserve(claim)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(run())
"""


def test_a_call_that_a_crash_cut_off_counts_at_its_maximum(store_path: Path) -> None:
    path = store_path / "budgets.sqlite"
    ended = subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL

    async def after(store: SqliteBudgets) -> list[Any]:
        usage = await store.usage("a", "s", "2026-01-01")
        refused = await store.reserve(claim(max_cost_usd=D("0.20")))
        mine = await reserved(store, claim(max_cost_usd=D("0.22")))
        await store.settle(mine, D("0.10"))
        return [usage, refused]

    usage, refused = kept_in(path, after)
    assert (usage.calls, usage.cost_usd, usage.cost_usd_today) == (2, D("0.12"), D("0.12"))
    assert refused is None
    later = kept_in(path, lambda store: store.usage("a", "s", "2026-01-01"))
    assert (later.calls, later.cost_usd) == (3, D("0.22"))


def test_a_call_that_an_earlier_version_marked_as_lost_can_still_be_settled(store_path: Path) -> None:
    path = store_path / "budgets.sqlite"
    kept = kept_in(path, lambda store: store.reserve(claim()))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE held SET process = 'another boot/pid:[1]/1/1', lost = '2026-01-01T00:00+00:00'")
    db.close()
    kept_in(path, lambda store: store.settle(kept, D("0.01")))
    assert held_in(path) == []
    assert kept_in(path, lambda store: store.usage("a", "s", "2026-01-01")).cost_usd == D("0.01")


def test_who_stops_waiting_for_a_reservation_gets_it_back(store_path: Path) -> None:
    store = SqliteBudgets(store_path / "budgets.sqlite")

    async def run() -> None:
        for turns in range(6):  # so that some are cancelled before, some during, and some after the write
            asking = asyncio.ensure_future(store.reserve(claim()))
            for _ in range(turns):
                await asyncio.sleep(0.002)
            asking.cancel()
            try:
                kept = await asking
            except asyncio.CancelledError:
                continue
            assert kept is not None
            await store.refund(kept)
        for _ in range(1000):
            assert store._batches is not None
            if not (held_in(store_path / "budgets.sqlite") or store._refunds or store._batches._writing):
                break
            await asyncio.sleep(0.02)
        assert await store.usage("a", "s", "2026-01-01") == used(0, "0")

    asyncio.run(run())
    store.close()


def test_one_that_fails_spoils_nothing_for_those_who_are_written_with_it(store_path: Path) -> None:
    store = SqliteBudgets(store_path / "budgets.sqlite")

    async def run() -> list[Any]:
        kept = [await reserved(store, claim()) for _ in range(3)]
        forged = Reservation(kept[1].id, claim(cost="9"), Spent())  # it claims that more was reserved than really was
        ends = (store.settle(kept[0], D("0.01")), store.settle(forged, D(9)), store.settle(kept[2], D("0.02")))
        said = await asyncio.gather(*ends, return_exceptions=True)
        return [*map(type, said), (await store.usage("a", "s", "2026-01-01")).cost_usd]

    assert asyncio.run(run()) == [type(None), ValueError, type(None), D("0.13")]
    store.close()


def test_an_unusable_file_is_a_clear_error_and_blocks_no_call(store_path: Path) -> None:
    path = store_path / "budgets.sqlite"
    path.write_bytes(b"no database at all, but long enough to be looked at " * 40)
    path.chmod(0o600)
    acts: list[Callable[[SqliteBudgets], Awaitable[Any]]] = [
        lambda store: store.reserve(claim()),
        lambda store: store.usage("a", "s", "2026-01-01"),
        lambda store: store.settle(Reservation("b-1", claim(), Spent()), D(0)),
    ]
    for act in acts:
        with pytest.raises(Unavailable, match="damaged or no database"):
            kept_in(path, act)


# One process forks all the others, because starting an interpreter for each takes longer than the test.
HAMMER = """
import asyncio, os, random, sys
from decimal import Decimal
from licet.backends.budgets import SqliteBudgets
from licet.core.policy.terms import Budget
from licet.guard.ports import Claim, Unavailable

path, processes = sys.argv[1], int(sys.argv[2])

def claim(session, cost, agent="a", of_tool=None, **limits):
    return Claim(agent, session, "t", "2026-01-01", Decimal(cost), Budget(**limits), None, of_tool)

CALLS = claim("calls", "0", max_calls_per_session=150)
DAY = [claim(f"day-{number}", "0", agent="b", max_calls_per_day=150) for number in range(3)]
TOOL = claim("tool", "0.01", of_tool=Decimal("1.20"))
THREE = claim("money", "0.03", max_cost_usd=Decimal("2.40"), max_cost_usd_per_day=Decimal(5))
ONE = claim("money", "0.01", max_cost_usd=Decimal("2.40"), max_cost_usd_per_day=Decimal(5))

async def patiently(act):
    while True:
        try:
            return await act()
        except Unavailable:  # too busy for ten seconds: a call would be refused, and here it is made again
            pass

async def take(dice):
    store, cents = SqliteBudgets(path), 0
    for claim in (CALLS, dice.choice(DAY), TOOL, THREE, ONE):
        # Whoever gives something back, or settles for less, takes again: nothing that still fits is left.
        while (kept := await patiently(lambda: store.reserve(claim))) is not None:
            turn = dice.random()
            if turn < 0.2:
                await patiently(lambda: store.refund(kept))
                continue
            cost = min(claim.cost_usd, Decimal("0.01")) if turn < 0.4 else claim.cost_usd
            await patiently(lambda: store.settle(kept, cost))
            cents += int(cost * 100) if claim.session == "money" else 0
    store.close()
    return cents

start, go = os.pipe()
tell, told = os.pipe()
children = []
for number in range(processes):
    if (child := os.fork()) == 0:
        try:
            os.close(go)
            os.read(start, 1)  # all begin when the other end is closed
            mine = asyncio.run(take(random.Random(number)))
            os.write(told, b"%d\\n" % mine)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(start), os.close(go), os.close(told)
wrong = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert wrong == [0] * processes, wrong
with os.fdopen(tell) as lines:
    print(sum(map(int, lines)))
"""


def test_many_processes_end_exactly_at_the_limit(store_path: Path) -> None:
    path, processes = store_path / "budgets.sqlite", 64 if LONG else 24
    done = subprocess.run(
        [sys.executable, "-c", HAMMER, str(path), str(processes)], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    money = kept_in(path, lambda store: store.usage("a", "money", "2026-01-01"))
    assert money.cost_usd == money.cost_usd_today - D("1.20") == D(done.stdout) / 100 == D("2.40")
    assert kept_in(path, lambda store: store.usage("a", "calls", "2026-01-01")).calls == 150
    assert kept_in(path, lambda store: store.usage("b", "day-0", "2026-01-01")).calls_today == 150
    assert kept_in(path, lambda store: store.usage("a", "tool", "2026-01-01")).cost_usd_of_tool == {"t": D("1.20")}
    assert held_in(path) == []
