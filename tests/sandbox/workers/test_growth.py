"""After many calls everything is as it was: processes, open files, memory, and the directory for temporary files."""

import asyncio
import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.programs import until
from effort import LONG
from licet import Backends, Gate
from licet.backends.memory import MemoryLedger
from licet.sandbox.native import InProcess
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls
from licet.sandbox.workers import engine, pool
from sandbox import wild_tools as wild
from sandbox.growth_tools import again, once, start
from sandbox.levels import gate, needs_walls
from sandbox.workers.test_survival import processes_of

CALLS = 10_000 if LONG else 80
ROOM = 4 << 20  # bytes that a process may grow by without a leak: caches, arenas


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for everything temporary, and workers that were started with it."""
    needs_walls()
    pool.close_workers()
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    pool.close_workers()


def made(tmp_path: Path) -> Gate:
    sandbox = engine.Workers(InProcess(), ProgramWalls())
    ledger = MemoryLedger(most=100)  # it keeps the latest: what it holds is no leak, and would hide one
    parts = Backends.memory(
        environ={"NAME": "x"}, processes=LocalProcesses("/usr/bin:/bin"), sandbox=sandbox, ledger=ledger
    )
    tools = (once, again, start, wild.misbehave)
    return gate(tmp_path, "restricted", *tools, backends=parts, sandbox={"allow_degraded": True})


async def calls(at: Gate, many: int) -> None:
    async with at.session("s") as session:
        for number in range(many):
            assert (await session.call("once", {"text": f"a{number}"})).value == f"A{number}"
            assert (await session.call("again", {"text": "b"})).value == "bx"
            if number % 50 == 0:
                assert (await session.call("misbehave", {"how": "exit"})).reason == "TOOL_CRASHED"
            if number % 100 == 0:
                assert (await session.call("start")).value == 0


def memory(process: int) -> int:
    """The bytes of a process that are its own."""
    whole, shared = Path(f"/proc/{process}/statm").read_text().split()[1:3]
    return (int(whole) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def things() -> int:
    gc.collect()
    return len(gc.get_objects())


def zombies(parent: int) -> set[str]:
    lines = processes_of(parent)
    return {line.split()[0] for line in lines if line.rpartition(")")[2].split()[0] == "Z"}


def test_nothing_grows_with_the_number_of_calls(tmp_path: Path, alone: Path) -> None:
    at = made(tmp_path)
    asyncio.run(calls(at, 60))
    zygote = pool.pool._zygote
    assert zygote is not None
    parked = 8  # two of each tool

    def settled() -> bool:
        return len(zygote.workers) <= parked and len(os.listdir(zygote.base)) <= parked

    until(settled)
    host, dead = os.getpid(), zombies(os.getpid())
    files, held = len(os.listdir("/proc/self/fd")), things()
    sizes = {process: memory(process) for process in (host, zygote._process.pid)}
    asyncio.run(calls(at, CALLS))
    until(settled)
    assert pool.pool._zygote is zygote
    until(lambda: not zombies(host) - dead and not zombies(zygote._process.pid))
    assert len(processes_of(zygote._process.pid)) <= parked
    until(lambda: len(os.listdir("/proc/self/fd")) <= files + 4)  # as many sockets as workers are parked
    assert things() - held < CALLS // 4
    grown = {process: memory(process) - size for process, size in sizes.items()}
    assert max(grown.values()) < ROOM, grown
    pool.close_workers()
    assert os.listdir(alone) == []
