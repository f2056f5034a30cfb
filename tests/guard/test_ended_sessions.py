"""`session.end()` while calls run: they are cancelled, and what they still write is refused."""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from guard.gates import gate
from guard.interrupting import interrupted
from licet import Backends, Context, Gate, Refused, Result, tool
from licet.backends.budgets import MemoryBudgets, SqliteBudgets
from licet.backends.kv import MemoryKv, SqliteKv
from licet.backends.memory import MemoryLedger
from licet.backends.postgres.database import Database
from licet.backends.postgres.postgres_kv import PostgresKv
from licet.guard.handles.secrets_and_kv import scope_id
from licet.guard.ports import Answer, Kv, Question
from licet.guard.session_end import mark_ended
from sandbox.levels import needs_walls

SCOPE = scope_id("session", "", "s", None, "tester")
NEEDS = ["storage:*:session", "fs:*:/srv", "env:read:HOME"]
SEEN: list[str] = []
LATER: list[asyncio.Task[None]] = []
BEGUN: list[asyncio.Event] = []


async def refusals(ctx: Context) -> list[str]:
    """The codes with which each kind of use is refused; `done` if it is not."""
    uses: list[Callable[[], Awaitable[Any]]] = [
        lambda: ctx.kv.set("late", 1),
        lambda: ctx.kv.delete("early"),
        lambda: ctx.fs.write("/srv/late", "x"),
        lambda: ctx.fs.write("/srv/late", "x" * (2 << 20)),  # in a thread
        lambda: ctx.fs.open("/srv/late", "w"),
        lambda: ctx.fs.mkdir("/srv/late"),
        lambda: ctx.fs.delete("/srv/old"),
    ]
    found = []
    for use in uses:
        try:
            await use()
            found.append("done")
        except Refused as refusal:
            found.append(refusal.code)
    return found


@tool(needs=NEEDS, effect="write_limited", sandbox="native", cost_usd="0.1")
async def hold(ctx: Context, how: str = "waits") -> str:
    """Store something, and wait until the session is ended."""
    await ctx.kv.set("early", 1)
    BEGUN[0].set()
    if how == "leaves a task":
        LATER.append(asyncio.ensure_future(_later(ctx)))
    for _ in range(1 if how != "swallows" else 3):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            SEEN.extend(await refusals(ctx))
            if how != "swallows":
                raise
    return "went on"


async def _later(ctx: Context) -> None:
    await asyncio.sleep(0.01)
    SEEN.extend(await refusals(ctx))


@tool(needs=["storage:*:session"], effect="write_limited", sandbox="restricted")
async def hold_behind_walls(ctx: Context) -> None:
    """Store something again and again."""
    for number in range(1_000_000):
        await ctx.kv.set("early", number)


@tool(needs=["storage:*:session", "fs:write:/srv"], effect="write_limited", sandbox="native", cost_usd="0.1")
async def keep(ctx: Context) -> str:
    """Store something."""
    await ctx.kv.set("a", 1)
    await ctx.fs.write("/srv/kept", "x")
    return "kept"


@pytest.fixture(autouse=True)
def fresh() -> None:
    SEEN.clear()
    LATER.clear()
    BEGUN[:] = [asyncio.Event()]


def opened(folder: Path, kv: Kv, **parts: Any) -> Gate:
    backends = Backends.memory(files={"/srv/old": b"x"}, kv=kv, **{"environ": {}, **parts})
    grants = ["fs:*:/srv", "env:read:HOME"]
    return gate(folder, hold, keep, backends=backends, grants=grants, budget={"max_cost_usd": 9})


@pytest.mark.parametrize("how", ["waits", "swallows", "leaves a task"])
def test_a_running_call_is_cancelled_and_refused_everything(how: str, tmp_path: Path) -> None:
    kv, ledger = MemoryKv(), MemoryLedger()

    async def run() -> Result:
        at = opened(tmp_path, kv, ledger=ledger)
        async with at.session("s") as session, at.session("other") as other:
            calling = asyncio.ensure_future(_call(session.call("hold", {"how": how})))
            await BEGUN[0].wait()
            await session.end()
            assert not await kv.list(SCOPE)
            assert (await session.call("keep")).reason == "SESSION_ENDED"
            assert (await other.call("keep")).ok  # nothing else was touched
            result = await calling
            await asyncio.gather(*LATER)
            assert not await kv.list(SCOPE)
            assert not at.running
            return result

    result = asyncio.run(run())
    assert (result.ok, result.code, result.reason) == (False, "execution_failed", "SESSION_ENDED")
    assert result.cost_usd  # it ran
    assert set(SEEN) == {"SESSION_ENDED"}, SEEN
    kept = [entry for entry in ledger.entries if entry.tool == "hold"]
    assert [(entry.kind, entry.reason) for entry in kept] == [("decision", "ALLOWED"), ("receipt", "SESSION_ENDED")]
    assert "SessionEnded" in [event.kind for event in kept[1].events]


async def _call(answer: Awaitable[Result]) -> Result:
    """Await a call; its task is not left as cancelled."""
    result = await answer
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)
    return result


def test_a_call_that_asks_an_approver_is_cancelled_and_nothing_is_remembered(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def approver(question: Question) -> Answer:
        asked.set()
        await asyncio.Event().wait()
        return "approved"

    async def run() -> Result:
        backends = Backends.memory(files={"/srv/old": b"x"}, approver=approver)
        at = gate(tmp_path, keep, backends=backends, grants=["fs:*:/srv"], approvals={"write": "session"})
        async with at.session("s") as session:
            calling = asyncio.ensure_future(session.call("keep"))
            await asked.wait()
            await session.end()
            assert not at.agreed
            return await calling

    result = asyncio.run(run())
    assert (result.reason, result.code) == ("SESSION_ENDED", "not_available")


@pytest.mark.parametrize("answer", ["approved", "denied"])
def test_a_call_that_waits_for_a_person_does_not_outlive_its_session(store_path: Path, answer: Answer) -> None:
    """Another process ends the session while a person is asked: the call has not begun, whatever the answer is."""
    kv, ledger = SqliteKv(store_path / "kv.sqlite"), MemoryLedger()

    async def approver(question: Question) -> Answer:
        await mark_ended(SqliteKv(store_path / "kv.sqlite"), "tester", "s")
        return answer

    async def run() -> Result:
        backends = Backends.memory(files={"/srv/old": b"x"}, kv=kv, approver=approver, ledger=ledger)
        at = gate(store_path, keep, backends=backends, grants=["fs:*:/srv"], approvals={"write": "session"})
        async with at.session("s") as session:
            result = await session.call("keep")
            assert not at.agreed
            return result

    result = asyncio.run(run())
    assert (result.reason, result.code) == ("SESSION_ENDED", "not_available")
    assert [entry.kind for entry in ledger.entries] == ["receipt"]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("by_delegate", [False, True])
def test_a_running_call_is_cancelled_when_another_process_ends_its_session(
    store_path: Path, request: pytest.FixtureRequest, kind: str, by_delegate: bool
) -> None:
    here: Kv
    there: Kv
    close: list[Any] = []
    if kind == "memory":
        here = there = MemoryKv()
    elif kind == "sqlite":
        here, there = SqliteKv(store_path / "kv.sqlite"), SqliteKv(store_path / "kv.sqlite")
        close = [here, there]
    else:
        close = [Database(request.getfixturevalue("postgres")) for _ in range(2)]
        here, there = PostgresKv(close[0]), PostgresKv(close[1])

    async def run() -> tuple[Result, Result, float]:
        at = opened(store_path, here)
        async with at.session("s") as session, at.session("other") as other:
            caller = session.delegate(agent="child", allow=["fs:*:/srv", "env:read:HOME"]) if by_delegate else session
            calling = asyncio.ensure_future(caller.call("hold"))
            await BEGUN[0].wait()
            BEGUN[0].clear()
            staying = asyncio.ensure_future(other.call("hold"))
            await BEGUN[0].wait()
            began = monotonic()
            await mark_ended(there, "tester", "s")
            result = await calling
            took = monotonic() - began
            await asyncio.sleep(0)
            assert not staying.done()  # it is of another session
            await other.end()
            return result, await caller.call("hold"), took

    result, later, took = asyncio.run(run())
    for one in close:
        one.close()
    assert [one.reason for one in (result, later)] == ["SESSION_ENDED"] * 2
    assert took < 1
    assert SEEN
    assert not set(SEEN) & {"done"}


def test_calls_of_a_delegate_end_with_the_session_that_delegated(tmp_path: Path) -> None:
    async def run() -> Result:
        at = opened(tmp_path, MemoryKv())
        async with at.session("s") as session:
            child = session.delegate(agent="child", allow=["fs:*:/srv", "env:read:HOME"])
            calling = asyncio.ensure_future(child.call("hold"))
            await BEGUN[0].wait()
            await session.end()
            return await calling

    assert asyncio.run(run()).reason == "SESSION_ENDED"


def test_a_session_is_ended_from_another_thread(tmp_path: Path) -> None:
    async def run() -> Result:
        at = opened(tmp_path, MemoryKv())
        async with at.session("s") as session:
            calling = asyncio.ensure_future(session.call("hold"))
            await BEGUN[0].wait()
            ending = threading.Thread(target=lambda: asyncio.run(at.session("s").end()))
            ending.start()
            result = await calling
            await asyncio.to_thread(ending.join)
            return result

    assert asyncio.run(run()).reason == "SESSION_ENDED"


def test_a_tool_ends_its_own_session(tmp_path: Path) -> None:
    ends: list[Any] = []

    @tool(needs=["storage:*:session"], effect="write_limited", sandbox="native")
    async def finish(ctx: Context) -> str:
        """End the session."""
        await ctx.kv.set("a", 1)
        await ends[0].end()
        try:
            await ctx.kv.set("b", 1)
        except Refused as refusal:
            return refusal.code
        return "stored"

    async def run() -> Result:
        kv = MemoryKv()
        at = gate(tmp_path, finish, backends=Backends.memory(kv=kv))
        async with at.session("s") as session:
            ends.append(session)
            result = await session.call("finish")
        assert not await kv.list(SCOPE)
        return result

    assert asyncio.run(run()).value == "SESSION_ENDED"


def test_a_call_whose_session_ends_at_any_moment_has_a_result_and_leaves_nothing(store_path: Path) -> None:
    """`end` runs at each wait of a call, in stores that wait."""
    ledger = MemoryLedger()

    async def run() -> set[str]:
        reasons: set[str] = set()
        for first in itertools.count(1):
            name = f"s{first}"
            async with at.session(name) as session:
                calling = asyncio.ensure_future(_ended(session.call("keep"), first, session.end))
                result = await calling
            if (last := ENDS.pop("task", None)) is None:
                assert result.ok
                return reasons
            await last
            reasons.add(result.reason)
            assert not await kv.list(scope_id("session", "", name, None, "tester"))
        raise AssertionError

    kv, budgets = SqliteKv(store_path / "kv.sqlite"), SqliteBudgets(store_path / "budgets.sqlite")
    at = opened(store_path, kv, ledger=ledger, budgets=budgets)
    assert asyncio.run(run()) >= {"SESSION_ENDED"}
    sessions = [entry.session for entry in ledger.entries if entry.kind == "receipt"]
    assert sessions == [f"s{number}" for number in range(1, len(sessions) + 1)]


ENDS: dict[str, asyncio.Task[None]] = {}


async def _ended(answer: Awaitable[Result], first: int, end: Any) -> Result:
    def act() -> None:
        ENDS["task"] = asyncio.ensure_future(end())

    return await interrupted(answer, first, again=False, late=False, act=act)


def test_a_tool_behind_walls_stores_nothing_after_its_session(store_path: Path) -> None:
    needs_walls()
    kv = SqliteKv(store_path / "kv.sqlite")

    async def run() -> Result:
        backends = Backends.local(store_path / "state", kv=kv, ledger=MemoryLedger(), budgets=MemoryBudgets())
        at = gate(store_path, hold_behind_walls, backends=backends, native=[])
        async with at.session("s") as session:
            calling = asyncio.ensure_future(session.call("hold_behind_walls"))
            while not calling.done() and await kv.get(SCOPE, "early") is None:
                await asyncio.sleep(0.001)
            await session.end()
            assert not await kv.list(SCOPE)
            result = await calling
            assert not await kv.list(SCOPE)
            return result

    assert asyncio.run(run()).reason == "SESSION_ENDED"


def test_a_session_that_another_process_ends_stores_nothing_more(store_path: Path) -> None:
    async def run() -> None:
        here, there = (opened(store_path, SqliteKv(store_path / "kv.sqlite")) for _ in range(2))
        async with here.session("s") as session, there.session("s") as same:
            assert (await session.call("keep")).ok
            await same.end()
            result = await session.call("keep")  # this process has not heard of the end
            assert (result.ok, result.reason) == (False, "SESSION_ENDED")
            assert not await SqliteKv(store_path / "kv.sqlite").list(SCOPE)

    asyncio.run(run())
