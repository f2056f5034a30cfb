"""A call makes no files without number: not with its handles, not by itself, and not with its programs."""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attacks import entry_tools as tools
from attacks.entry_tools import CALLS, REFUSED
from attacks.walled_programs import Programs, needs_namespaces
from licet import Gate, Result, Tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.memory import MemoryLedger
from licet.guard.limits import WRITTEN_PATHS
from licet.sandbox import probe
from licet.sandbox.kernel import system_calls
from licet.sandbox.kernel.entry_count import EntryCount
from licet.sandbox.native import InProcess
from licet.sandbox.programs.walls import ProgramWalls
from licet.sandbox.workers.engine import Workers
from licet.sandbox.workers.pool import pool
from sandbox.levels import call, gate, local_backends, needs_walls

needs_count = pytest.mark.skipif(not probe.support().wall_holds(probe.ENTRIES), reason="nothing can be counted here")
pytestmark = needs_count


def made(place: Path) -> int:
    return sum(len(names) + len(files) for _, names, files in os.walk(place / "work" / "out"))


def gate_of(place: Path, one: Tool, limits: Mapping[str, int], level: str = "isolated", **more: Any) -> Gate:
    needs_walls()
    (place / "work" / "out").mkdir(parents=True, exist_ok=True)
    (place / "work" / "out" / "old").touch()
    backends = more.pop("backends", None) or local_backends(place / "state")
    return gate(place / "work", level, one, backends=backends, limits=limits, **more)


def once(place: Path, one: Tool, given: Mapping[str, Any], limits: Mapping[str, int], **more: Any) -> Result:
    return call(gate_of(place, one, limits, **more), one.name, given)


@pytest.mark.who
def test_a_tool_makes_no_files_without_number(tmp_path: Path) -> None:
    free, held = tmp_path / "free", tmp_path / "held"
    long = {"wall_seconds": 100, "cpu_seconds": 100}
    result = once(free, tools.makes, {"many": 3000}, {"written_paths": 10**6, **long})
    assert (result.reason, made(free)) == ("ALLOWED", 3001)
    result = once(tmp_path / "fewer", tools.makes, {"many": 3000}, {"written_paths": 200, **long})
    assert (result.reason, made(tmp_path / "fewer")) == ("LIMIT_PATHS", 201)
    shutil.rmtree(free)
    ledger = MemoryLedger()
    backends = local_backends(held / "state", ledger=ledger)
    result = once(held, tools.makes, {"many": 50_000}, long, backends=backends)
    assert (result.reason, made(held)) == ("LIMIT_PATHS", WRITTEN_PATHS + 1)
    assert str(result.error) == f"LIMIT_PATHS: it made more than {WRITTEN_PATHS} files and directories"
    assert ledger.receipts[-1].reason == "LIMIT_PATHS"
    shutil.rmtree(held)


@pytest.mark.who
@pytest.mark.parametrize("name", [name for name in CALLS if name.split()[0] in system_calls.NUMBERS["x86_64"]])
@pytest.mark.sampled(4)
def test_every_call_that_makes_an_entry_counts(tmp_path: Path, name: str) -> None:
    if name.split(maxsplit=1)[0] not in system_calls.NUMBERS[system_calls.machine()]:
        pytest.skip("this architecture has no such call")
    free, held = tmp_path / "free", tmp_path / "held"
    result = once(free, tools.calls, {"name": name, "many": 20}, {"written_paths": 20})
    if name == "openat without a name" and result.value != [""] * 20:
        pytest.skip("this file system has no files without a name")
    assert result.value == [""] * 20, result.error
    result = once(held, tools.calls, {"name": name, "many": 20}, {"written_paths": 7})
    assert result.value == [*[""] * 7, *["EDQUOT"] * 13], result.error


@pytest.mark.parametrize("name", [name for name in REFUSED if name.split()[0] in system_calls.NUMBERS["x86_64"]])
@pytest.mark.sampled(1)
def test_what_cannot_be_counted_makes_nothing(tmp_path: Path, name: str) -> None:
    result = once(tmp_path, tools.calls, {"name": name, "many": 3}, {"written_paths": 20})
    assert set(result.value) <= {"EPERM", "ENOSYS"}
    assert made(tmp_path) == 1


def test_a_name_that_is_only_changed_is_no_new_entry(tmp_path: Path) -> None:
    class_ = {"effect": "destructive", "approvals": {"write": "manifest", "delete": "session"}}
    backends = local_backends(tmp_path / "state", approver=MemoryApprover(lambda _: "approved"))
    budget = {"max_calls_per_session": 9}
    result = once(
        tmp_path, tools.renames, {"many": 20}, {"written_paths": 1}, **class_, budget=budget, backends=backends
    )
    assert (result.value, result.reason) == (20, "ALLOWED"), result.error


def test_threads_share_the_count(tmp_path: Path) -> None:
    result = once(tmp_path, tools.in_threads, {"threads": 8, "many": 20}, {"written_paths": 50})
    assert result.value == 51, result.error
    assert made(tmp_path) == 51


@needs_namespaces
@pytest.mark.parametrize("level", ["isolated", "native"])
@pytest.mark.who
def test_programs_and_what_they_start_are_counted(tmp_path: Path, level: str) -> None:
    make = 'for n in $(seq 40); do mkdir "out/$0-$n" || exit 7; done'
    line = f"sh -c '{make}' a & sh -c '{make}' b & wait; wait; : > out/one && : > out/two"
    free, held = tmp_path / "free", tmp_path / "held"
    result = once(free, tools.by_program, {"line": line}, {"written_paths": 100}, level=level)
    assert result.unwrap() == [0, "", ""]
    assert made(free) == 83
    result = once(held, tools.by_program, {"line": line}, {"written_paths": 50}, level=level)
    assert result.value[1] == "LIMIT_PATHS", result.value
    assert [event.reason for event in result.events if event.reason] == ["LIMIT_PATHS"]
    assert made(held) == 51


@needs_namespaces
@pytest.mark.who
def test_what_a_program_throws_away_is_not_counted(tmp_path: Path) -> None:
    line = (
        "for n in $(seq 40); do echo x > /dev/null 2>> /dev/null; done; echo x >> /dev/null; readlink /proc/self/fd/5"
    )
    result = once(tmp_path, tools.by_program, {"line": f"({line}) 5<>/dev/null"}, {"written_paths": 1})
    assert result.unwrap() == [0, "", "/dev/null\n"]


@needs_namespaces
def test_handles_the_tool_and_its_programs_have_one_count(tmp_path: Path) -> None:
    free, held = tmp_path / "free", tmp_path / "held"
    assert once(free, tools.every_way, {"many": 10}, {"written_paths": 41}).ok
    assert made(free) == 42
    result = once(held, tools.every_way, {"many": 10}, {"written_paths": 35})
    assert result.reason == "LIMIT_PATHS"
    assert made(held) == 36


def test_each_call_has_its_own_count(tmp_path: Path) -> None:
    for one in (tools.makes, tools.makes_again):
        at = gate_of(tmp_path / one.name, one, {"written_paths": 30})
        for number in range(3):
            given = {"many": 30, **({"call": str(number)} if one is tools.makes_again else {})}
            assert call(at, one.name, given).value == 30
        given["many"] = 31
        assert call(at, one.name, given).reason == "LIMIT_PATHS"


def test_nothing_of_a_count_is_left(tmp_path: Path) -> None:
    def counts() -> list[str]:
        files = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return [target for file in files if os.path.lexists(file) and "entries" in (target := os.readlink(file))]

    pool.close()
    at = gate_of(tmp_path, tools.makes, {"written_paths": 5})
    for many in (1, 9) * 5:
        call(at, "makes", {"many": many})
    assert 0 < len(counts()) <= 3  # of workers that wait
    pool.close()
    assert counts() == []


def test_without_who_counts_nothing_is_made(tmp_path: Path) -> None:
    """A call waits for the zygote. When that ends, the call fails, and the worker is killed."""
    at = gate_of(tmp_path, tools.makes, {"written_paths": 10**6, "wall_seconds": 60, "cpu_seconds": 60})

    async def scene() -> tuple[int, Result]:
        async with at.session("s") as opened:
            running = asyncio.ensure_future(opened.call("makes", {"many": 10**6}))
            while made(tmp_path) < 10:
                await asyncio.sleep(0.01)
            zygote = pool._zygote
            assert zygote is not None
            os.kill(zygote._process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, zygote._process.pid, os.WSTOPPED | os.WNOWAIT)
            before = made(tmp_path)
            zygote._process.kill()
            return before, await running

    before, result = asyncio.run(scene())
    assert result.reason in ("TOOL_CRASHED", "TOOL_FAILED"), result.error  # it is killed before or after ENOSYS
    assert made(tmp_path) <= before + 1  # what had its answer already
    shutil.rmtree(tmp_path / "work")


def test_a_count_that_answers_nobody_keeps_no_call_beyond_its_time(tmp_path: Path) -> None:
    pool.close()
    at = gate_of(tmp_path, tools.makes, {"written_paths": 10**6, "wall_seconds": 2})

    async def scene() -> Result:
        async with at.session("s") as opened:
            running = asyncio.ensure_future(opened.call("makes", {"many": 10**6}))
            while made(tmp_path) < 10:
                await asyncio.sleep(0.01)
            assert pool._zygote is not None
            os.kill(pool._zygote._process.pid, signal.SIGSTOP)
            return await running

    try:
        assert asyncio.run(scene()).reason == "LIMIT_TIME"
    finally:
        assert pool._zygote is not None
        pool._zygote._process.kill()
        pool.close()
    shutil.rmtree(tmp_path / "work")


@needs_namespaces
def test_a_run_has_no_limit_but_the_one_of_its_policy(tmp_path: Path) -> None:
    """`licet run` counts nothing unless it is told to; a server's process outlives calls, and is not counted."""
    (tmp_path / "out").mkdir()
    line = ("sh", "-c", f"for n in $(seq 30); do mkdir {tmp_path}/out/$0-$n; done")
    rules = (f"fs:write:{tmp_path}/out",)
    assert Programs("namespaces", rules, limits={"written_paths": 10}).run(*line, "a").reason == "LIMIT_PATHS"
    assert len(os.listdir(tmp_path / "out")) == 10
    server = Programs("namespaces", rules, limits={"written_paths": 10})
    server.grant.outlives_calls = True
    assert server.run(*line, "b").reason == ""
    assert len(os.listdir(tmp_path / "out")) == 40


def test_where_nothing_can_be_counted_it_is_said(tmp_path: Path) -> None:
    """As in a kernel without notifications, or inside of `licet run`, whose filter has a listener already."""
    full = probe.support()
    less = replace(full, findings=tuple(one for one in full.findings if one.wall != probe.ENTRIES))
    workers = Workers(InProcess(), ProgramWalls(), support=lambda: less)
    assert workers.tool_layers(tools.makes, "isolated", allow_degraded=False).missing == ("limit of entries",)
    assert workers.tool_layers(tools.makes, "restricted", allow_degraded=False).missing == ()
    backends = local_backends(tmp_path / "state", sandbox=workers)
    assert once(tmp_path, tools.makes, {"many": 20}, {"written_paths": 5}, backends=backends).value == 20
    assert Workers(InProcess()).tool_layers(tools.makes, "isolated", allow_degraded=False).missing == ()


def test_copies_of_a_count_count_together() -> None:
    count = EntryCount(3)
    copy = count.copy()
    assert [count.take(), copy.take(), count.take(), copy.take(), count.take()] == [True, True, True, False, False]
    assert count.is_exceeded
    assert copy.taken == 5
    count.begin(1)
    assert (copy.taken, copy.is_exceeded) == (1, False)
    count.close()
    assert copy.take()
    with pytest.raises(OSError, match="Bad file descriptor"):
        count.take()
    copy.close()
    copy.close()
