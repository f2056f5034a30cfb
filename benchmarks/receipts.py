"""The cost of receipts: chained in memory, durable on a disk, verified, and in a ledger of a million.

Work that only computes is measured in CPU time, as everywhere here. Work that waits for a disk or uses two threads is
measured by the wall clock, interleaved, and the best of many counts.
"""

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from benchmarks.harness import (
    Contestant,
    Effort,
    Row,
    Timing,
    VerdictError,
    at_least,
    at_most,
    race,
    versus_floor,
    versus_peer,
)
from licet import Backends, Gate, Session, load_manifest, tool
from licet.assemble.ledger import public_key
from licet.backends.ledger.reader import LedgerReader, verify_ledger
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.memory import MemoryLedger
from licet.backends.secrets import check_signature, generated_key
from licet.core.ledger.entry import Entry, time_text

__all__ = ["measure"]

CHAINED, DURABLE, VERIFIED, APPENDED, FOUND = at_most(2.5), at_least(3.5), at_least(8), at_most(1.2), at_most(2)
CITIES = [f"city {number}" for number in range(50)]
AT_ONCE = 64
FEW = 1_000
CHECKED, SIGNATURES = 30_000, 2_000  # receipts and signatures that take about the same time to verify
BATCH = 1_000  # receipts that are appended at once, to measure the ledger and not the disk
QUICK, FULL = 30_000, 1_000_000
BUDGET = {"max_calls_per_session": 10**12, "max_cost_usd": 10**9}


def measure(effort: Effort) -> list[Row]:
    """Every row about receipts."""
    many = FULL if effort.rounds >= Effort.full().rounds else QUICK
    # On the disk of the checkout: temporary files may be in memory, where nothing has to be written.
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        place = Path(folder)
        return [
            *_chained(place, effort),
            *_durable(place, effort),
            *_verified(place, effort),
            *_large(place, many, effort),
        ]


@tool(name="noop", needs=["env:read:*"], effect="read_only", sandbox="native")
async def _noop(city: str) -> str:
    """Do nothing."""
    return city


def _session(place: Path, ledger: Any = None, **capabilities: Any) -> Session:
    path = place / "agent.yaml"
    content = {"tools": ["noop"], "native": ["noop"], "env": ["LANG"], **capabilities}
    path.write_text(json.dumps({"agent": "bench", "capabilities": content}))
    parts = {} if ledger is None else {"ledger": ledger}
    return Gate(load_manifest(path), [_noop], Backends.memory(**parts), workdir=place).session("bench")


# A call with and without ---------------------------------------------------------------------------------------------


def _chained(place: Path, effort: Effort) -> list[Row]:
    loop, chained, listed = asyncio.new_event_loop(), MemoryLedger(), _Listed()
    bare, kept = _session(place, listed), _session(place, chained, budget=BUDGET)

    def contestant(name: str, session: Session, forget: Callable[[], object]) -> Contestant:
        async def each(cities: Sequence[str]) -> list[Any]:
            return [await session.call("noop", {"city": city}) for city in cities]

        def read(results: list[Any]) -> list[str]:
            forget()
            return [result.unwrap() for result in results]

        return Contestant(name, lambda cities: loop.run_until_complete(each(cities)), [CITIES], read)

    ways = [contestant("bare", bare, listed.entries.clear), contestant("kept", kept, chained.rows.clear)]
    try:
        times = race(ways, [CITIES], replace(effort, slice_ns=effort.slice_ns * 5))
    finally:
        loop.close()
    each = {name: Timing(timing.best / len(CITIES), timing.median / len(CITIES)) for name, timing in times.items()}
    what = "a governed call with chained receipt and budget"
    return [versus_floor(what, "the same call without them", each["kept"], each["bare"], CHAINED)]


# Durable -------------------------------------------------------------------------------------------------------------


def _durable(place: Path, effort: Effort) -> list[Row]:
    """The same calls through the ledger on disk: many at once, and each with its own commits.

    The target is about sharing the wait for the disk, so the comparison is the same ledger without sharing. A bare
    write and fsync is shown too, without a target, since that ratio depends on the disk: where an fsync takes 80 µs,
    ten times as fast would be 9 µs a call, which is less than a call that stores nothing.
    """
    ledger = SqliteLedger(place / "durable" / "ledger.sqlite")
    session, bare = _session(place, ledger, budget=BUDGET), _session(place)
    line = b"x" * 1000  # about the size of an entry
    calls = AT_ONCE * 8

    async def worker(numbers: range) -> None:
        for number in numbers:
            _right((await session.call("noop", {"city": str(number)})).value, str(number))

    async def together() -> None:
        await asyncio.gather(*(worker(range(start, calls, AT_ONCE)) for start in range(AT_ONCE)))

    async def one_by_one(file: int) -> None:
        for number in range(AT_ONCE):
            _right((await bare.call("noop", {"city": str(number)})).value, str(number))
            os.write(file, line)
            os.fsync(file)

    async def one_after_the_other() -> None:
        for number in range(AT_ONCE):
            _right((await session.call("noop", {"city": str(number)})).value, str(number))

    times: dict[str, list[float]] = {"licet": [], "fsync": [], "alone": []}
    file = os.open(place / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(max(4, effort.rounds // 4)):
            times["licet"].append(_clocked(together) / calls)
            times["fsync"].append(_clocked(lambda: one_by_one(file)) / AT_ONCE)
            times["alone"].append(_clocked(one_after_the_other) / AT_ONCE)
    finally:
        os.close(file)
        ledger.close()
    took = {name: _timing(found) for name, found in times.items()}
    what = f"a durable call, {AT_ONCE} at once"
    return [
        versus_peer(what, "the same ledger, commits of its own per call", took["licet"], took["alone"], DURABLE),
        versus_peer(what, "a call that keeps nothing, one write and fsync", took["licet"], took["fsync"]),
    ]


# Verified ------------------------------------------------------------------------------------------------------------


def _verified(place: Path, effort: Effort) -> list[Row]:
    path = place / "verified" / "ledger.sqlite"
    _fill(path, CHECKED, _sample(place))
    held_to, key = public_key(None, path), generated_key()
    with LedgerReader(path) as reader:
        signed = [(row.body, key.sign(row.body)) for row in reader.list(limit=SIGNATURES)]

    def ledger() -> None:
        outcome = verify_ledger(path, held_to)
        _right((outcome.ok, outcome.entries, outcome.signed), (True, CHECKED, CHECKED))

    def signatures() -> None:
        _right([check_signature(key.public, body, signature) for body, signature in signed], [True] * SIGNATURES)

    times: dict[str, list[float]] = {"licet": [], "signatures": []}
    for _ in range(max(6, effort.rounds // 4)):
        for name, act, many in (("licet", ledger, CHECKED), ("signatures", signatures, SIGNATURES)):
            began = time.perf_counter_ns()
            act()
            times[name].append((time.perf_counter_ns() - began) / many)
    took = {name: _timing(found) for name, found in times.items()}
    what = "verifying one receipt of a ledger"
    return [versus_peer(what, "one Ed25519 signature each", took["licet"], took["signatures"], VERIFIED)]


# Large ---------------------------------------------------------------------------------------------------------------


def _large(place: Path, many: int, effort: Effort) -> list[Row]:
    sample = _sample(place)
    small, large = place / "small" / "ledger.sqlite", place / "large" / "ledger.sqlite"
    for path, size in ((small, FEW), (large, many)):
        _fill(path, size, sample)
    few = f"the same on {FEW:,}"
    rows = [_appended(small, large, many, sample, effort, few)]
    ways: dict[str, Callable[[LedgerReader], int]] = {
        "list": lambda reader: len(reader.list()),
        "list --tool": lambda reader: len(reader.list(tool="noop")),
        "list --verdict": lambda reader: len(reader.list(verdict="deny")),
        "list --agent --verdict": lambda reader: len(reader.list(agent="bench", verdict="allow")),
        "list --since": lambda reader: len(reader.list(since="2020-01-01")),
        "list --until": lambda reader: len(reader.list(until="2020-01-01")) + 50,
        "show": lambda reader: len(reader.show(f"r-bench-{FEW // 2}")) + 49,
    }
    for name, way in ways.items():
        ends = [Contestant(str(path), _reading(way), [path], int) for path in (small, large)]
        times = race(ends, [50], effort)
        what = f"{name}, {many:,} receipts"
        rows.append(versus_floor(what, few, times[str(large)], times[str(small)], FOUND))
    return rows


def _reading(way: Callable[[LedgerReader], int]) -> Callable[[Path], int]:
    def read(path: Path) -> int:
        with LedgerReader(path) as reader:
            return way(reader)

    return read


def _appended(small: Path, large: Path, many: int, sample: Sequence[Entry], effort: Effort, few: str) -> Row:
    """Append a thousand receipts in one step: to a fresh copy of the small ledger, and to the large one.

    Their times continue after the existing ones, as those of real calls do. With the same times in each round, only the
    large ledger would have to insert more and more of them into the middle of its indexes.
    """
    times: dict[str, list[float]] = {"small": [], "large": []}
    for number in range(max(12, effort.rounds // 2)):
        copy = small.parent.parent / f"copy-{number}"
        shutil.copytree(small.parent, copy)
        behind = many + number * (BATCH + 1)
        for name, path, size in (("small", copy / small.name, FEW), ("large", large, behind)):
            ledger = SqliteLedger(path)
            asyncio.run(_append(ledger, _entries(sample, f"first-{number}", range(size, size + 1))))  # it is open now
            entries = _entries(sample, f"{name}-{number}", range(size + 1, size + 1 + BATCH))
            times[name].append(_clocked(lambda ledger=ledger, entries=entries: _append(ledger, entries)) / BATCH)
            ledger.close()
        shutil.rmtree(copy)
    what = f"appending to {many:,} receipts"
    return versus_floor(what, few, _timing(times["large"]), _timing(times["small"]), APPENDED)


class _Listed:
    """A ledger that only appends entries to a list."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    async def record(self, entry: Entry) -> None:
        self.entries.append(entry)


def _sample(place: Path) -> list[Entry]:
    """Two receipts of real calls: one allowed, one denied."""
    kept = _Listed()
    session = _session(place, kept, budget=BUDGET)

    async def calls() -> None:
        await session.call("noop", {"city": "oslo"})
        await session.call("nobody", {})

    asyncio.run(calls())
    return [entry for entry in kept.entries if entry.kind == "receipt"]


def _entries(sample: Sequence[Entry], name: str, numbers: range) -> list[Entry]:
    """Receipts like those of the sample, each with its own id and time."""
    each = ((sample[number % 2], number) for number in numbers)
    return [replace(entry, id=f"r-{name}-{number}", time=_later(entry.time, number)) for entry, number in each]


def _later(time: str, milliseconds: int) -> str:
    return time_text(datetime.fromisoformat(time) + timedelta(milliseconds=milliseconds))


def _fill(path: Path, size: int, sample: Sequence[Entry]) -> None:
    ledger = SqliteLedger(path)
    for start in range(0, size, BATCH):
        asyncio.run(_append(ledger, _entries(sample, "bench", range(start, min(start + BATCH, size)))))
    ledger.close()
    with LedgerReader(path) as reader:
        _right(reader.size, size)


async def _append(ledger: SqliteLedger, entries: Sequence[Entry]) -> None:
    await asyncio.gather(*map(ledger.record, entries))


def _clocked(act: Callable[[], Coroutine[Any, Any, None]]) -> float:
    async def timed() -> float:
        began = time.perf_counter_ns()
        await act()
        return time.perf_counter_ns() - began

    return asyncio.run(timed())


def _timing(found: list[float]) -> Timing:
    return Timing(min(found), median(found))


def _right(found: object, expected: object) -> None:
    if found != expected:
        raise VerdictError(f"found {str(found)[:100]}, expected {str(expected)[:100]}")
