"""One yes serves two calls: in two processes at once, or because a process was killed between the yes and its use."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from guard.questions import question
from licet import Backends, Context, Gate, Result, load_manifest, tool
from licet.backends.approvals.store import SqliteApprovals

TESTS = Path(__file__).parents[2]
PROCESSES, CALLS = 4, 12

ASKING = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from guard.questions import question
from licet.backends.approvals.store import SqliteApprovals

async def run():
    store = SqliteApprovals(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        answered = await store.ask(question(arguments={"number": number}))
        if answered.answer == "approved":
            print(number, flush=True)

asyncio.run(run())
"""


def approved(path: Path, calls: int) -> SqliteApprovals:
    """A store with a yes to each of some calls."""
    store = SqliteApprovals(path)

    async def run() -> None:
        for number in range(calls):
            asked = await store.ask(question(arguments={"number": number}))
            await store.approve(await store.find(asked.request))

    asyncio.run(run())
    return store


def start(path: Path, calls: int) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", ASKING, str(TESTS), str(path), str(calls)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def output(process: "subprocess.Popen[str]") -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_looking_and_then_using_serves_everybody_who_looked() -> None:
    used = {"a-1": 0}
    seen = [used["a-1"] == 0 for _ in range(PROCESSES)]  # each of them looks before any of them has written
    assert seen.count(True) == PROCESSES


def test_of_many_processes_exactly_one_gets_each_yes(tmp_path: Path) -> None:
    approved(tmp_path / "approvals.sqlite", CALLS).close()
    askers = [start(tmp_path / "approvals.sqlite", CALLS) for _ in range(PROCESSES)]
    for one in askers:
        assert output(one).readline() == "ready\n"
    for one in askers:
        go(one)
    got = [int(line) for one in askers for line in one.communicate()[0].split()]
    assert [one.returncode for one in askers] == [0] * PROCESSES
    assert sorted(got) == list(range(CALLS))


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_yes_that_was_used_stays_used_whenever_its_process_is_killed(tmp_path: Path, after: int) -> None:
    path = tmp_path / "approvals.sqlite"
    store = approved(path, CALLS)
    with start(path, CALLS) as asker:
        assert output(asker).readline() == "ready\n"
        go(asker)
        used = [int(output(asker).readline()) for _ in range(after)]
        asker.kill()
        used += [int(line) for line in output(asker)]  # what it said before it ended

    async def again() -> list[str]:
        return [(await store.ask(question(arguments={"number": number}))).answer for number in range(CALLS)]

    answers = asyncio.run(again())
    assert all(answers[number] == "absent" for number in used)
    # One may have been in use at the moment of the kill; every other yes is still there.
    assert answers.count("approved") in (CALLS - len(used), CALLS - len(used) - 1)


# A whole call ---------------------------------------------------------------------------------------------------------

PAYING = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[1])
from attacks.stores import test_approval_used_twice as scene
from licet import run

at, moment = scene.gate(scene.Path(sys.argv[2])), sys.argv[3]

def end():
    os.kill(os.getpid(), signal.SIGKILL)

store = at.ports.approver
asked = store.ask
async def ask(question):
    if moment == "before it is used":
        end()
    answered = await asked(question)
    if moment == "after it was used":
        end()
    return answered
store.ask = ask
run(at, "pay", {"to": "alice"}, session="s")
if moment == "after the call":
    end()
"""


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def pay(ctx: Context, to: str) -> None:
    """Pay somebody."""
    with await ctx.fs.open("paid.txt", "ab") as file:
        file.write(f"{to}\n".encode())


def gate(folder: Path) -> Gate:
    """A gate at which each payment asks, with its state on disk."""
    (folder / "agent.yaml").write_text(
        "agent: clerk\ncapabilities:\n  tools: [pay]\n  native: [pay]\n  max_side_effect_class: write_limited\n"
        f'  fs_reach: {{write: ["{folder}"]}}\n  approvals: {{write: call, expires_seconds: 86400}}\n'
    )
    return Gate(load_manifest(folder / "agent.yaml"), [pay], Backends.local(folder / "state"), workdir=folder)


MOMENTS = {  # what was paid when the process is killed then, and what the repeated call comes to
    "before it is used": (0, "ALLOWED"),
    "after it was used": (0, "APPROVAL_REQUIRED"),
    "after the call": (1, "APPROVAL_REQUIRED"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.sampled(1)
def test_killed_at_any_moment_nothing_is_lost_and_nothing_done_twice(tmp_path: Path, moment: str) -> None:
    def paid() -> int:
        file = tmp_path / "paid.txt"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def again() -> Result:
        async def run() -> Result:
            async with gate(tmp_path).session("s") as session:
                return await session.call("pay", {"to": "alice"})

        return asyncio.run(run())

    store = SqliteApprovals(tmp_path / "state" / "approvals.sqlite")
    assert again().reason == "APPROVAL_REQUIRED"
    asyncio.run(store.approve(asyncio.run(store.list())[0]))
    done = subprocess.run([sys.executable, "-c", PAYING, str(TESTS), str(tmp_path), moment], check=False)
    assert done.returncode == -9
    times, reason = MOMENTS[moment]
    assert paid() == times
    assert again().reason == reason
    assert paid() == times + (reason == "ALLOWED")
    assert again().reason == "APPROVAL_REQUIRED"
    asyncio.run(store.approve(asyncio.run(store.list())[-1]))  # the request of the refused call is there
    assert again().ok
