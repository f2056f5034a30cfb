"""Whatever a tool does, its own call ends with a reason, and the host goes on: no zombies, no files, no processes."""

import asyncio
import linecache
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from attacks.programs import alive
from licet import Backends, Gate, tool
from licet.sandbox import probe
from licet.sandbox.limits import MOST_PARKED
from licet.sandbox.native import InProcess
from licet.sandbox.workers import pool
from licet.sandbox.workers.engine import Workers
from licet.sandbox.workers.pool import _spawned
from licet.sandbox.workers.zygote_client import WorkerProcess
from sandbox import filling_tools as filling
from sandbox import wild_tools as wild
from sandbox.levels import WALLED, call, gate, needs_walls

LIMITS = {
    "cpu_seconds": 1,
    "memory_mb": 256,
    "wall_seconds": 120,  # longer than anything here takes, however busy the machine
    "open_files": 64,
    "processes": 16,
    "file_mb": 8,
    "scratch_mb": 16,
}


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


ENDINGS = {
    "exit": ("TOOL_CRASHED", "ended with code 0"),
    "exit with code": ("TOOL_CRASHED", "ended with code 9"),
    "segfault": ("TOOL_CRASHED", "SIGSEGV"),
    "abort": ("TOOL_CRASHED", "SIGABRT"),
    "memory": ("LIMIT_MEMORY", "256 MB"),
    "memory bit by bit": ("LIMIT_MEMORY", "256 MB"),
    "spin": ("LIMIT_CPU", "1 seconds of CPU"),
    "spin, deaf": ("LIMIT_CPU", "1 seconds of CPU"),
    "sleep": ("LIMIT_TIME", "1 seconds"),
    "sleep, deaf": ("LIMIT_TIME", "1 seconds"),
    "kill group": ("TOOL_CRASHED", "SIGKILL"),
    "kill itself": ("TOOL_CRASHED", "SIGTERM"),
    "many files": ("LIMIT_FILES", "64 files"),
    "many threads": ("LIMIT_PROCESSES", "16 threads"),
    "more threads than memory": ("LIMIT_PROCESSES", "than its memory holds"),
    "large file": ("LIMIT_FILE_SIZE", "8 MB"),
    "many large files": ("LIMIT_DISK", "16 MB"),
    "long result": ("LIMIT_OUTPUT", "bytes of result"),
    "fork": ("TOOL_FAILED", "PermissionError"),
    "exec": ("TOOL_FAILED", "PermissionError"),
    "recursion": ("TOOL_FAILED", "RecursionError"),
    "hang up": ("TOOL_CRASHED", "gave no answer"),
    "raise the limits": ("TOOL_FAILED", "ValueError"),
}


def both(case: str) -> list[str]:
    return ["restricted"] if "sleep" in case or "spin" in case else list(WALLED)


@pytest.mark.parametrize(("how", "level"), [(how, level) for how in ENDINGS for level in both(how)])
@pytest.mark.sampled(10)
def test_each_way_to_end_badly_has_its_reason(tmp_path: Path, how: str, level: str) -> None:
    # However slow the machine, the limit that is tried is the first one to be met.
    own = {
        "sleep": {"wall_seconds": 1},
        "many threads": {"memory_mb": 1024},
        "more threads than memory": {"processes": 1000},
    }
    limits = {**LIMITS, **next((more for name, more in own.items() if name in how), {})}
    result = call(gate(tmp_path, level, wild.misbehave, limits=limits), "misbehave", {"how": how})
    reason, said = ENDINGS[how]
    assert (result.ok, result.reason) == (False, reason), result.error
    assert result.code == ("timed_out" if reason == "LIMIT_TIME" else "execution_failed")
    assert said in result.error
    assert call(gate(tmp_path, level, wild.count), "count").value == 1


TOLD = {  # how a call ended, in the words of the operator, and the key that would let it go on
    "memory": ("ended: `misbehave` ran into a limit", "raise `limits.memory_mb` of the bundle `all` ("),
    "many files": ("ended: `misbehave` ran into a limit", "raise `limits.open_files` of the bundle `all` ("),
    "large file": ("ended: `misbehave` ran into a limit", "raise `limits.file_mb` of the bundle `all` ("),
    "many large files": ("ended: `misbehave` ran into a limit", "raise `limits.scratch_mb` of the bundle `all` ("),
    "long result": ("ended: `misbehave` ran into a limit", ""),
    "sleep": ("timed out: `misbehave` was stopped", "raise `limits.wall_seconds` of the bundle `all` ("),
    "exit": ("ended: `misbehave` gave no answer", ""),
}


@pytest.mark.parametrize("how", TOLD)
@pytest.mark.sampled(3)
def test_what_ended_at_a_limit_was_not_denied(tmp_path: Path, how: str) -> None:
    limits = {**LIMITS, **({"wall_seconds": 1} if how == "sleep" else {})}
    result = call(gate(tmp_path, "restricted", wild.misbehave, limits=limits), "misbehave", {"how": how})
    first, *rest = result.explain().splitlines()
    heading, fix = TOLD[how]
    assert first == heading
    assert [line for line in rest if "to allow it" in line and fix in line] if fix else "to allow it" not in str(rest)


@pytest.mark.parametrize("level", WALLED)
def test_the_operator_is_told_the_line_of_the_tool_and_what_a_wall_may_have_to_do_with_it(
    tmp_path: Path, level: str
) -> None:
    source = Path(wild.__file__).read_text().splitlines()
    for how, walled in (("raise the limits", False), ("exec", True)):
        result = call(gate(tmp_path, level, wild.misbehave, limits=LIMITS), "misbehave", {"how": how})
        [number] = re.findall(rf"because .*\({re.escape(wild.__file__)}:(\d+)\)", result.explain())
        case = max(place for place, line in enumerate(source[: int(number)]) if line.strip().startswith("case "))
        assert source[case].strip() == f'case "{how}":'
        assert ("use its handle" in result.explain()) is walled
        assert "wild_tools" not in result.error


HARMLESS = {"print": "printed", "thread stays": "left a thread"}


@pytest.mark.parametrize("how", HARMLESS)
def test_what_is_merely_rude_ends_with_its_value(tmp_path: Path, how: str) -> None:
    result = call(gate(tmp_path, "restricted", wild.misbehave, limits=LIMITS), "misbehave", {"how": how})
    assert (result.value, result.error) == (HARMLESS[how], "")


def test_a_worker_serves_one_call_unless_the_tool_says_otherwise(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", wild.count, wild.count_on)
    assert [call(at, "count").value for _ in range(3)] == [1, 1, 1]
    assert [call(at, "count_on").value for _ in range(3)] == [1, 2, 3]


def test_a_worker_whose_pid_is_not_known_yet_is_not_charged_with_the_cpu_time_of_the_host(tmp_path: Path) -> None:
    """The zygote reports the pid of a worker while that one already works, so its result may be there first."""

    async def hide_pid(_: str) -> str:
        zygote = pool.pool._zygote
        assert zygote is not None
        (worker,) = zygote._running
        while worker.calls == 1 and not worker.pid:
            await asyncio.sleep(0.01)
        worker.pid = 0  # as if the report were still on its way
        return "secret"

    while time.process_time() <= LIMITS["cpu_seconds"]:
        pass  # the host has used more than a call may
    backends = Backends.memory(secrets=hide_pid)
    at = gate(tmp_path, "restricted", wild.meet_again, backends=backends, limits=LIMITS, secrets=["place"])
    assert [call(at, "meet_again").value for _ in range(3)] == [1, 2, 3]


def test_a_worker_that_is_started_ahead_does_not_come_before_the_one_that_has_served(tmp_path: Path) -> None:
    pool.close_workers()
    at = gate(tmp_path, "restricted", wild.count_on)
    assert call(at, "count_on").value == 1
    ((prepared, waiting),) = pool.pool._parked.items()
    zygote = pool.pool._zygote
    assert zygote is not None
    with pool.pool._lock:  # as if none had been started ahead until now
        while len(waiting) > 1:
            zygote.end(waiting.popleft())
    pool.pool.park(prepared, zygote)
    assert call(at, "count_on").value == 2


def test_when_too_many_are_parked_the_one_that_served_last_stays(tmp_path: Path) -> None:
    pool.close_workers()
    at = gate(tmp_path, "restricted", wild.count_on)
    assert call(at, "count_on").value == 1
    ((prepared, waiting),) = pool.pool._parked.items()
    zygote, served = pool.pool.take(prepared)
    others = [_spawned(zygote, prepared) for _ in range(MOST_PARKED)]
    for worker in (*others, served):
        pool.pool.give_back(prepared, zygote, worker)
    assert list(waiting) == [*others[1:], served]
    assert call(at, "count_on").value == 2


def test_workers_of_the_tool_that_was_used_longest_ago_make_room(tmp_path: Path) -> None:
    pool.close_workers()
    at = gate(tmp_path, "restricted", wild.count_on, wild.leave_behind)
    assert call(at, "count_on").value == 1
    ((prepared, waiting),) = pool.pool._parked.items()
    taken = [pool.pool.take(prepared)[1]]
    assert call(at, "leave_behind", {"name": "file"}).ok  # used later, and two are parked for it
    other = next(found for found in pool.pool._parked if found is not prepared)
    zygote = pool.pool._zygote
    assert zygote is not None
    taken += [_spawned(zygote, prepared) for _ in range(MOST_PARKED - 1)]
    for worker in taken:
        pool.pool.give_back(prepared, zygote, worker)
    assert list(waiting) == taken
    assert other not in pool.pool._parked


def test_first_calls_from_two_threads_share_what_is_prepared(tmp_path: Path) -> None:
    both, sandbox = threading.Barrier(2, timeout=60), Workers(InProcess())

    def support() -> probe.Support:
        """What the machine has: both ask for it before one of them goes on."""
        both.wait()
        return probe.support()

    pool.close_workers()
    at = gate(tmp_path, "restricted", wild.count_on, backends=Backends.memory(sandbox=sandbox))
    sandbox.support = support
    values: list[object] = []
    threads = [threading.Thread(target=lambda: values.append(call(at, "count_on").value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(values) == 2
    assert len(pool.pool._parked) == 1


def test_answers_that_a_call_did_not_wait_for_are_not_for_the_next(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", wild.ask_and_go)
    assert [call(at, "ask_and_go").reason for _ in range(5)] == ["ALLOWED"] * 5


def test_an_answer_that_was_given_up_half_way_is_not_for_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(9 << 20))
    at = gate(tmp_path, "restricted", wild.impatient, backends=Backends.local(tmp_path / "state"))
    ways = [{"path": str(tmp_path / "big"), "give_up": give_up} for give_up in (True, False)]
    said = [call(at, "impatient", way).unwrap() for way in ways * 2]
    assert said == ["gave up", f"{9 << 20} bytes"] * 2


@pytest.mark.parametrize("data", ["x", '\x0f\x00\x00\x00\x00\x00\x00\x00{"op":"nothing"}'])
def test_what_a_worker_says_after_its_call_is_not_for_the_next(tmp_path: Path, data: str) -> None:
    pool.close_workers()
    at = gate(tmp_path, "restricted", wild.say_more)
    for _ in range(2):
        assert call(at, "say_more", {"data": data}).unwrap() == "said"
        ((worker,),) = pool.pool._parked.values()
        assert worker.calls == 1  # the one before it was not taken again
        assert soon(lambda worker=worker: worker.pid)
        os.kill(worker.pid, signal.SIGUSR1)
        assert select.select([worker.end], [], [], 60)[0]
    assert call(at, "say_more", {"data": data}).unwrap() == "said"


def test_who_waits_for_a_call_is_held_to_its_limits_too(tmp_path: Path) -> None:
    pool.close_workers()
    at = gate(tmp_path, "restricted", filling.busy, limits=LIMITS)
    assert call(at, "busy").ok
    waiting = [child for each in pool.pool._parked.values() for child in each]
    assert waiting
    for child in waiting:
        assert soon(lambda child=child: child.pid and filling.LOADED in os.listdir(child.scratch))
        os.kill(child.pid, signal.SIGUSR1)
    assert soon(lambda: all(child.exit is not None for child in waiting))
    assert {child.ended and child.ended[0] for child in waiting} == {"LIMIT_DISK"}
    assert call(at, "busy").ok  # by a new one


def test_each_worker_draws_numbers_of_its_own(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", wild.draw)
    drawn = [call(at, "draw").unwrap() for _ in range(5)]
    assert len(set(drawn)) == len(drawn)


def test_a_worker_that_stays_does_not_keep_files_for_the_next_call(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", wild.leave_behind)
    assert [call(at, "leave_behind", {"name": name}).value for name in "abc"] == [[], [], []]


def test_scratch_disappears_whatever_is_in_it(tmp_path: Path) -> None:
    result = call(gate(tmp_path, "restricted", wild.where), "where")
    (scratch,) = result.unwrap()
    assert soon(lambda: not os.path.lexists(scratch))
    assert os.path.isdir("/etc")


def soon(true: object, seconds: float = 60) -> bool:
    """Whether something becomes true before long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_many_calls_leave_no_processes_files_or_scratch(tmp_path: Path) -> None:
    pool.close_workers()
    at = gate(tmp_path, "restricted", wild.count, wild.count_on, wild.misbehave)

    async def calls(many: int) -> None:
        async with at.session("s") as session:
            for _ in range(many):
                assert (await session.call("count")).ok
                assert (await session.call("count_on")).ok
                await session.call("misbehave", {"how": "exit"})

    asyncio.run(calls(5))
    zygote = pool.pool._zygote
    assert zygote is not None
    assert soon(lambda: len(zygote.workers) <= 6)
    before = open_files()
    asyncio.run(calls(20))
    assert soon(lambda: len(zygote.workers) <= 6 and len(os.listdir(zygote.base)) <= 6)
    assert open_files() <= before + 4
    states = [line.split()[2] for line in processes_of(zygote._process.pid)]
    assert "Z" not in states
    assert len(states) <= 6


def processes_of(parent: int) -> list[str]:
    """The lines of /proc about the children of a process."""
    lines = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                line = Path(f"/proc/{entry}/stat").read_text(encoding="utf-8")
            except OSError:
                continue
            if int(line.rpartition(")")[2].split()[1]) == parent:
                lines.append(line)
    return lines


@pytest.mark.parametrize("noticed", [True, False])
def test_a_dead_zygote_is_replaced(tmp_path: Path, noticed: bool) -> None:
    at = gate(tmp_path, "restricted", wild.count)
    assert call(at, "count").ok
    zygote = pool.pool._zygote
    assert zygote is not None
    zygote._process.kill()
    zygote._process.wait()
    if noticed:
        assert soon(lambda: zygote.dead)
    else:  # no worker is waiting either, so the dead zygote is asked for one
        for waiting in pool.pool._parked.values():
            while waiting:
                waiting.pop().end.close()
    assert call(at, "count").value == 1
    assert soon(lambda: not os.path.lexists(zygote.base))


def test_calls_run_side_by_side(tmp_path: Path) -> None:
    here = 0

    async def meeting(_: str) -> str:
        """What nobody is told before all four have asked."""
        nonlocal here
        here += 1
        while here < 4:
            await asyncio.sleep(0.01)
        return "together"

    backends = Backends.memory(secrets=meeting)
    at = gate(tmp_path, "restricted", wild.meet, backends=backends, secrets=["place"])

    async def many() -> list[object]:
        async with at.session("s") as session:
            return [result.value for result in await session.call_many([("meet", None)] * 4)]

    assert asyncio.run(many()) == [len("together")] * 4


def test_a_threaded_host_can_call_from_every_thread(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", wild.count, wild.count_on)
    values: list[object] = []

    def work() -> None:
        for _ in range(3):
            values.append(call(at, "count").value)
            assert call(at, "count_on").ok

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [1] * 12


def test_a_cancelled_call_ends_its_worker(tmp_path: Path) -> None:
    at = gate(tmp_path, "restricted", wild.misbehave)

    async def cancelled() -> None:
        async with at.session("s") as session:
            task = asyncio.create_task(session.call("misbehave", {"how": "sleep, deaf"}))
            while not (deaf := [worker for worker in working() if ignores(worker.pid, signal.SIGTERM)]):
                assert not task.done()
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ended.extend(deaf)

    ended: list[WorkerProcess] = []
    asyncio.run(cancelled())
    (worker,) = ended
    assert soon(lambda: worker.exit is not None)
    assert not working()


def working() -> list[WorkerProcess]:
    """The workers that run a call."""
    zygote = pool.pool._zygote
    return [] if zygote is None else list(zygote._running)


def ignores(process: int, number: signal.Signals) -> bool:
    """Whether a process ignores a signal."""
    if not process:
        return False
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    [mask] = [line.split()[1] for line in lines if line.startswith("SigIgn:")]
    return bool(int(mask, 16) >> (number - 1) & 1)


FORKED = """
import asyncio, os, sys
sys.path.insert(0, {tests!r})
from itertools import accumulate
from pathlib import Path
from sandbox.levels import call, gate
from sandbox import filling_tools as filling
from sandbox import wild_tools as wild
from licet.sandbox.bridge import broker; from licet.sandbox.workers import engine as workers

at = gate(Path({place!r}), "restricted", wild.count)
assert call(at, "count").value == 1
mine = workers.pool._zygote._process.pid
child = os.fork()
if not child:
    good = call(at, "count").value == 1 and workers.pool._zygote._process.pid != mine
    workers.close_workers()
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
assert call(at, "count").value == 1
assert workers.pool._zygote._process.pid == mine
print("fine")
"""


def test_a_fork_of_the_host_starts_its_own_workers_and_leaves_those_of_its_parent_alone(tmp_path: Path) -> None:
    code = FORKED.format(tests=str(Path(__file__).parents[2]), place=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stderr


def test_workers_end_with_a_host_that_is_killed(tmp_path: Path) -> None:
    code = FORKED.partition("mine =")[0].format(tests=str(Path(__file__).parents[2]), place=str(tmp_path))
    code += "print(workers.pool._zygote._process.pid, workers.pool._zygote.base, flush=True)\n"
    code += "import time; time.sleep(60)"
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    number, scratch = host.stdout.readline().split()
    zygote = int(number)
    assert os.path.isdir(scratch)
    assert os.path.exists(f"/proc/{zygote}")
    assert soon(lambda: processes_of(zygote))
    workers_there = [int(line.split()[0]) for line in processes_of(zygote)]
    host.kill()
    host.wait()
    host.stdout.close()
    assert soon(lambda: not any(map(alive, [zygote, *workers_there])))  # whoever takes them over may never bury them
    assert not os.path.lexists(scratch)


def test_a_tool_that_no_other_process_can_find_is_refused_and_says_how_to_mend_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As from Python 3.13 after `python -c`: a text under the name that code made from any text has.
    other = "@other\ndef typed_in():\n    return 2\n".splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, "<string>", (36, None, other, "<string>"))

    @tool(needs=[], effect="read_only", name="inner")
    def closure() -> int:
        return 1

    namespace: dict[str, object] = {"tool": tool, "__name__": "made_up"}
    exec("@tool(needs=[], effect='read_only')\ndef typed_in() -> int:\n    return 1\n", namespace)
    typed_in = namespace["typed_in"]
    for which, said in ((closure, "inside a function"), (typed_in, "source was not kept")):
        at: Gate = gate(tmp_path, "restricted", which)  # type: ignore[arg-type]
        result = call(at, which.name)  # type: ignore[attr-defined]
        assert (result.code, result.reason) == ("not_available", "SANDBOX_UNAVAILABLE")
        assert said in result.error
        assert "define it at the top of a module" in result.error
