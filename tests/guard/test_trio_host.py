"""Sessions and calls under trio: they work as under asyncio."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from licet import Backends, Context, Result, Session, run, tool
from licet.backends.http import HttpClient
from licet.backends.memory import Answer, MemoryLedger
from licet.guard.trio_host import anywhere, close_loop
from loopback import serving
from sandbox import wild_tools as wild
from sandbox.growth_tools import again
from sandbox.levels import call, gate, needs_walls

LEVELS = ["native", "restricted", "isolated"]


@pytest.fixture(autouse=True)
def loop_beside() -> Iterator[None]:
    yield
    close_loop()  # and connections with it


@pytest.mark.parametrize("level", LEVELS)
def test_tools_run_under_trio(tmp_path: Path, level: str) -> None:
    if level != "native":
        needs_walls()
    at = gate(tmp_path, level, again, wild.count)
    results: list[Result] = []

    async def one(number: int) -> None:
        asked = partial(run, at, "again", {"text": str(number)}, session=f"s-{number}")
        results.append(await trio.to_thread.run_sync(asked))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(one, number)
        results.append(run(at, "count"))  # it holds up the loop, and works

    trio.run(main)
    *several, last = results
    assert sorted(result.unwrap() for result in several) == [f"{number}None" for number in range(4)]
    assert last.ok
    assert call(at, "count").ok  # and asyncio goes on as before


# Sessions


TRIO: dict[str, Callable[..., Any]] = {"trio": trio.run, "anyio": partial(anyio.run, backend="trio")}
both_runners = pytest.mark.parametrize("start", TRIO.values(), ids=TRIO)
EVERYWHERE = [pytest.param(level, start, id=f"{level}-{name}") for level in LEVELS for name, start in TRIO.items()]
VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="of nobody")


@tool(needs=["network:http:get@127.0.0.1"], effect="read_only")
async def ask(ctx: Context, url: str) -> str:
    """Ask a server."""
    return (await ctx.fetch(url)).text


@tool(needs=[], effect="read_only")
async def look() -> list[str]:
    """Where this runs."""
    return [type(asyncio.get_running_loop()).__module__.partition(".")[0], VARIABLE.get()]


@tool(needs=[], effect="read_only")
async def have_it_cancelled() -> None:
    """Let something else cancel the task."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.sleep(600)


@tool(needs=[], effect="read_only")
async def interrupt() -> None:
    """Leave as if somebody had pressed a key."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("level", "start"), EVERYWHERE)
def test_a_session_works_under_trio(tmp_path: Path, level: str, start: Callable[..., Any]) -> None:
    if level != "native":
        needs_walls()
    at = gate(tmp_path, level, again)

    async def main() -> None:
        async with at.session("s") as session:
            assert (await session.call("again", {"text": "one"})).value == "oneNone"
            assert (await session.call("again", {"text": 1})).reason == "INPUT_INVALID"
            many = await session.call_many([("again", {"text": str(number)}) for number in range(5)], at_once=2)
            assert [result.value for result in many] == [f"{number}None" for number in range(5)]
            assert await session.available() == ["again"]
            await session.end()
            assert (await session.call("again", {"text": "x"})).reason == "SESSION_ENDED"
        assert (await at.session("another").call("again", {"text": "alone"})).ok

    start(main)
    assert call(at, "again", {"text": "asyncio"}).reason == "SESSION_ENDED"  # the same session, in another loop


@both_runners
def test_tasks_of_a_nursery_call_side_by_side(tmp_path: Path, start: Callable[..., Any]) -> None:
    here, together = 0, threading.Event()

    async def meeting(_: str) -> str:
        nonlocal here
        here += 1
        if here == 4:
            together.set()
        while not together.is_set():
            await asyncio.sleep(0.01)
        return "together"

    at = gate(tmp_path, "native", wild.meet, backends=Backends.memory(secrets=meeting), secrets=["place"])
    values: list[object] = []

    async def one(session: Session) -> None:
        values.append((await session.call("meet")).value)

    async def main() -> None:
        async with at.session("s") as session, trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(one, session)

    start(main)
    assert values == [len("together")] * 4


@pytest.mark.parametrize("many", [False, True], ids=["call", "call_many"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_cancelled_scope_ends_its_call_which_has_left_its_receipt_by_then(
    tmp_path: Path, level: str, many: bool
) -> None:
    if level != "native":
        needs_walls()
    asked, ledger = threading.Event(), MemoryLedger()

    async def never(_: str) -> str:
        asked.set()
        await asyncio.sleep(600)
        raise AssertionError("somebody waited")

    at = gate(tmp_path, level, wild.meet, backends=Backends.memory(secrets=never, ledger=ledger), secrets=["place"])

    async def cancel(scope: trio.CancelScope) -> None:
        await trio.to_thread.run_sync(asked.wait)
        scope.cancel()

    async def main() -> None:
        async with at.session("s") as session, trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel, scope)
                await (session.call_many([("meet", None)] * 2, at_once=1) if many else session.call("meet"))
            assert scope.cancelled_caught
            (receipt,) = ledger.receipts
            assert receipt.code != "ok"

    trio.run(main)


KEPT: list[HttpClient] = []  # with the loop of tools, which ends with the process: the collector would warn


@both_runners
def test_requests_work_under_trio(tmp_path: Path, start: Callable[..., Any]) -> None:
    with serving(lambda _: Answer(200, (), b"answered")) as server:
        url = f"http://127.0.0.1:{server.port}/"
        client = HttpClient()
        KEPT.append(client)
        at = gate(tmp_path, "native", ask, backends=Backends.memory(http=client))

        async def main() -> list[object]:
            async with at.session("s") as session:
                return [(await session.call("ask", {"url": url})).unwrap() for _ in range(2)]

        assert start(main) == ["answered"] * 2
        assert server.connections == 1  # which stayed open between the calls


def test_a_native_tool_runs_in_a_loop_of_asyncio_with_the_variables_of_its_caller(tmp_path: Path) -> None:
    at = gate(tmp_path, "native", look)

    async def main() -> object:
        VARIABLE.set("of the caller")
        return (await at.session("s").call("look")).unwrap()

    assert trio.run(main) == ["asyncio", "of the caller"]


def test_a_call_that_something_else_cancels_is_a_failure(tmp_path: Path) -> None:
    at = gate(tmp_path, "native", have_it_cancelled)

    async def main() -> None:
        result = await at.session("s").call("have_it_cancelled")
        assert (result.ok, result.reason) == (False, "TOOL_FAILED")

        async def cancelled() -> None:
            raise asyncio.CancelledError

        with pytest.raises(RuntimeError, match="was cancelled, and not by its caller"):
            await anywhere(cancelled())

    trio.run(main)


def test_an_interrupt_that_a_tool_raises_ends_its_call_and_nothing_else(tmp_path: Path) -> None:
    at = gate(tmp_path, "native", interrupt, again)

    async def main() -> None:
        session = at.session("s")
        assert (await session.call("interrupt")).code == "execution_failed"
        assert (await session.call("again", {"text": "on"})).value == "onNone"

    trio.run(main)


def test_trio_as_a_guest_of_asyncio_and_asyncio_itself(tmp_path: Path) -> None:
    at = gate(tmp_path, "native", again)

    async def guest() -> object:
        return (await at.session("s").call("again", {"text": "guest"})).unwrap()

    async def host() -> list[object]:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=over.set_result
        )
        own = (await at.session("s").call("again", {"text": "host"})).unwrap()
        return [own, (await over).unwrap()]

    assert asyncio.run(host()) == ["hostNone", "guestNone"]


def test_under_another_event_loop_the_error_names_the_alternative(tmp_path: Path) -> None:
    session = gate(tmp_path, "native", again).session("s")
    for attempt in (session.__aenter__(), session.call("again")):
        with pytest.raises(RuntimeError, match=r"asyncio or of trio.*`licet.run` in a thread"):
            attempt.send(None)


FORKED = """
import asyncio, os, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import trio
from licet.guard.trio_host import anywhere
from sandbox.growth_tools import again
from sandbox.levels import gate

at = gate(Path({place!r}), "native", again)

async def main():
    return (await at.session("s").call("again", {{"text": "x"}})).unwrap()

assert trio.run(main) == "xNone"
child = os.fork()
if not child:
    assert trio.run(main) == "xNone"
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert trio.run(main) == "xNone"

async def stay():
    try:
        await asyncio.sleep(600)
    finally:
        print("cleared up", flush=True)

async def leave():
    global left
    left = asyncio.create_task(stay())
    await asyncio.sleep(0)

trio.run(lambda: anywhere(leave()))
print("done", flush=True)
"""


def test_a_host_under_trio_may_fork_and_ends_quietly(tmp_path: Path) -> None:
    script = FORKED.format(tests=str(Path(__file__).parent.parent), place=str(tmp_path))
    command = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=os.environ)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\ncleared up\n", "")


FULL = """
import os, resource
import trio
from licet.guard.trio_host import anywhere

async def answer():
    return "answered"

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    files = []
    try:
        while True:
            files.append(os.dup(0))
    except OSError:
        pass
    try:
        await anywhere(answer())
    except OSError as wrong:
        print(wrong.strerror, flush=True)
    for file in files:
        os.close(file)
    print(await anywhere(answer()), flush=True)

trio.run(main)
"""


def test_an_asyncio_loop_that_cannot_be_started_raises_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout) == (0, "Too many open files\nanswered\n")
