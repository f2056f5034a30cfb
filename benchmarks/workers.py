"""The cost of a call behind walls, compared with starting a bare interpreter, as any other fresh process would need.

Measured by the wall clock, since two processes work on one call. Everything is interleaved, so that a busy machine
slows all of them.
"""

import asyncio
import compileall
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import walled_tools
from benchmarks.harness import (
    Effort,
    Row,
    Timing,
    VerdictError,
    at_least,
    at_most,
    other_walls,
    versus_floor,
    versus_peer,
)
from licet import Backends, Gate, Session, load_manifest
from licet.sandbox import probe
from licet.sandbox.workers import pool

__all__ = ["measure"]

BARE = "python -I -S -c pass"
WARM, PARKED, ROUND_TRIP = at_most(1 / 15), at_most(1 / 5), at_most(1 / 60)
FRESH_RATE, WARM_RATE = at_least(1.5), at_least(15)
PRIVATE_KB = 5 * 1024
THINKING = 0.03  # seconds between two calls, in which the next worker is prepared
# Short enough that some are not disturbed: on a busy machine a process is interrupted every few milliseconds.
WARM_AT_ONCE, FRESH_AT_ONCE, SLICES = 32, 10, 8
# callers that make warm calls at the same time, and the calls of each, when the rate is measured
CALLERS, WARM_BESIDE = 2, 128
WAITING = 4  # fresh calls before the clock starts, so that no measured worker was prepared while the host was idle


def measure(effort: Effort) -> list[Row]:
    """Every row about workers."""
    if missing := probe.support().missing("restricted"):
        return [Row("calls behind walls", BARE, target=WARM, note=missing[0])]
    compileall.compile_file(walled_tools.__file__, quiet=1)  # as for every tool whose module was imported before
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(_measured(_gate(Path(place)), effort))


def _gate(place: Path) -> Gate:
    tools = [walled_tools.fresh, walled_tools.warm, walled_tools.ask]
    names = [tool.name for tool in tools]
    path = place / "agent.yaml"
    path.write_text(json.dumps({"agent": "bench", "version": "1", "capabilities": {"tools": names, "env": ["BENCH"]}}))
    return Gate(load_manifest(path), tools, Backends.memory(environ={"BENCH": "yes"}), workdir=place)


async def _measured(gate: Gate, effort: Effort) -> list[Row]:
    times: dict[str, list[float]] = {
        name: [] for name in ("bare", "others", "warm", "rate", "parked", "asked", "fresh")
    }
    others = other_walls()
    async with gate.session("bench") as session:
        await _calls(session, "fresh", 3)
        await _calls(session, "warm", 3)
        for _ in range(effort.processes):
            # As often as the comparison: with more slices, the best one would be better.
            times["bare"] += [_spawned([sys.executable, "-I", "-S", "-c", "pass"]) for _ in range(SLICES)]
            if others is not None:
                times["others"].append(_spawned(others[1]))
            times["warm"] += [await _calls(session, "warm", WARM_AT_ONCE) for _ in range(SLICES)]
            times["rate"] += [await _concurrently(session, "warm", WARM_BESIDE) for _ in range(SLICES // 2)]
            await asyncio.sleep(THINKING)
            times["parked"].append(await _calls(session, "fresh", 1))
            times["asked"].append((await session.call("ask", {"many": 100})).unwrap())
            await _calls(session, "fresh", WAITING)
            times["fresh"] += [await _calls(session, "fresh", FRESH_AT_ONCE) for _ in range(SLICES // 2)]
            await asyncio.sleep(THINKING)  # workers that are prepared for the next round must not disturb this one
    took = {name: Timing(min(found), median(found)) for name, found in times.items() if found}
    bare = took["bare"]
    rows = [
        versus_floor("one call of a warm worker", BARE, took["warm"], bare, WARM),
        versus_floor("one call of a parked worker, with time to think", BARE, took["parked"], bare, PARKED),
        versus_floor("one question to the host inside a call", BARE, took["asked"], bare, ROUND_TRIP),
        versus_peer("fresh workers back to back", BARE, took["fresh"], bare, FRESH_RATE),
        versus_peer(f"calls of warm workers, {CALLERS} callers", BARE, took["rate"], bare, WARM_RATE),
    ]
    if others is not None:
        rows.append(versus_floor("one call of a parked worker", others[0], took["parked"], took["others"], at_most(1)))
    return [*rows, _memory()]


async def _calls(session: Session, tool: str, many: int) -> float:
    """Nanoseconds for one of many calls, one after the other."""
    began = time.perf_counter_ns()
    for number in range(many):
        result = await session.call(tool, {"a": number, "b": 1})
        if result.value != number + 1:
            raise VerdictError(f"{tool} answers {result!r}")
    return (time.perf_counter_ns() - began) / many


async def _concurrently(session: Session, tool: str, many: int) -> float:
    """The same for several callers at once."""
    began = time.perf_counter_ns()
    await asyncio.gather(*(_calls(session, tool, many) for _ in range(CALLERS)))
    return (time.perf_counter_ns() - began) / many / CALLERS


def _spawned(command: list[str]) -> float:
    began = time.perf_counter_ns()
    subprocess.run(command, check=True)
    return time.perf_counter_ns() - began


def _memory() -> Row:
    """The private memory of a waiting worker, against its target."""
    zygote = pool.pool._zygote
    kept = [_private(child.pid) for child in list(zygote.workers.values())] if zygote is not None else []
    found = [size for size in kept if size]
    if not found:
        return Row("private memory of a worker", "5 MB", target=at_most(1), note="could not be read")
    return Row("private memory of a worker", "5 MB", ratio=max(found) / PRIVATE_KB, target=at_most(1))


def _private(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
