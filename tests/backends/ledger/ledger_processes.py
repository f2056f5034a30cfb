"""Processes that write one ledger, and are killed: run by the tests as a program of its own, which has no threads.

    python ledger_processes.py kill FOLDER ROUNDS SEED     writers one after the other, each killed at some moment
    python ledger_processes.py many FOLDER WRITERS CALLS   writers at the same time, each to its end
    python ledger_processes.py full FOLDER BYTES           one writer, whose files may not grow beyond a size
    python ledger_processes.py fork FOLDER                 a process that forks between calls, and both go on
    python ledger_processes.py open FOLDER                 a call that is killed as soon as its refusal is settled
    python ledger_processes.py call FOLDER                 one call, and a process that ends as processes do

It prints one JSON object with what was seen.
"""

import asyncio
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from licet import Backends, Context, Gate, Refused, load_manifest, tool
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.secrets import check_signature
from licet.core.ledger.verify import verify
from licet.guard.bind import BoundContext, parts_of
from licet.guard.ports import LedgerUnavailable


@tool(needs=[], effect="read_only", sandbox="native")
async def add(a: int) -> int:
    """Add one."""
    return a + 1


@tool(needs=["env:read:A"], effect="read_only", sandbox="native")
async def refused(ctx: Context) -> None:
    """Be refused, and be killed once that is settled."""
    with suppress(Refused):
        ctx.env.get("B")
    await parts_of(cast("BoundContext", ctx)).grant.settle()
    os.kill(os.getpid(), signal.SIGKILL)


TOOLS = ["add", "refused"]
MANIFEST = {"agent": "writer", "capabilities": {"tools": TOOLS, "native": TOOLS, "env": ["A"]}}


def gate(folder: Path) -> Gate:
    manifest = load_manifest(folder / "agent.yaml")
    return Gate(manifest, [add, refused], Backends.memory(ledger=SqliteLedger(ledger_path(folder))))


def ledger_path(folder: Path) -> Path:
    return folder / "state" / "ledger.sqlite"


def write_on(folder: Path, acknowledged: int, sessions: int, calls: int | None) -> None:
    """Make calls without end, and print which ones have returned."""

    async def one(at: Gate, session: str) -> None:
        async with at.session(session) as opened:
            done = 0
            while calls is None or done < calls:
                result = await opened.call("add", {"a": done})
                if result.ok:
                    os.write(acknowledged, f"{result.receipt}\n".encode())
                done += 1

    async def run() -> None:
        at = gate(folder)
        names = ["shared", *(f"own-{os.getpid()}-{number}" for number in range(sessions - 1))]
        await asyncio.gather(*(one(at, name) for name in names))

    asyncio.run(run())


def started(folder: Path, sessions: int, calls: int | None) -> tuple[int, int]:
    """Start a writer, and return the end of a pipe from which its output is read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    code = 1
    try:
        write_on(folder, writing, sessions, calls)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def drained(pipe: int) -> bytes:
    said = b""
    while more := os.read(pipe, 65536):
        said += more
    os.close(pipe)
    return said


def checked(folder: Path) -> dict[str, Any]:
    with LedgerReader(ledger_path(folder)) as reader:
        outcome = verify(reader.entries(), reader.checkpoints(), key=reader.key, check=check_signature)
        receipts = [row.id for row in reader.entries() if row.kind == "receipt"]
    found = str(outcome.finding) if outcome.finding else ""
    return {"finding": found, "entries": outcome.entries, "signed": outcome.signed, "receipts": receipts}


def kill(folder: Path, rounds: int, seed: int) -> dict[str, Any]:
    dice, acknowledged, findings = random.Random(seed), [], []
    seen: dict[str, Any] = {"receipts": [], "entries": 0}
    for number in range(rounds):
        child, pipe = started(folder, sessions=3, calls=None)
        said, wanted = b"", dice.choice([0, 0, 1, 2, 5, 20])
        while said.count(b"\n") < wanted and (more := os.read(pipe, 65536)):
            said += more
        time.sleep(dice.random() * dice.choice([0.001, 0.01, 0.05]))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said += drained(pipe)
        acknowledged += said.decode().split("\n")[:-1]
        if number % 50 and number != rounds - 1 and rounds > 100:
            continue  # otherwise every round would read a longer ledger
        try:
            seen = checked(folder)
        except LedgerUnavailable:
            if acknowledged:
                raise
        if seen.get("finding"):
            findings.append(seen["finding"])
    lost = set(acknowledged) - set(seen["receipts"])
    return {
        "acknowledged": len(acknowledged),
        "lost": sorted(lost),
        "findings": findings,
        "entries": seen["entries"],
        "folder": sorted(os.listdir(folder / "state")),
    }


def many(folder: Path, writers: int, calls: int) -> dict[str, Any]:
    running = [started(folder, 2, calls) for _ in range(writers)]
    said = b"".join(drained(pipe) for _, pipe in running)
    codes = [os.waitpid(child, 0)[1] for child, _ in running]
    seen = checked(folder)
    acknowledged = said.decode().split("\n")[:-1]
    return {
        "codes": codes,
        "acknowledged": len(acknowledged),
        "lost": sorted(set(acknowledged) - set(seen.pop("receipts"))),
        **seen,
    }


def full(folder: Path, size: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    at, reasons, told, ok = gate(folder), [], "", []

    async def run() -> None:
        nonlocal told
        async with at.session("s") as session:
            for number in range(2000):
                result = await session.call("add", {"a": number})
                if result.ok:
                    ok.append(result.receipt)
                    continue
                reasons.append(result.reason)
                told = result.explain()
                if len(reasons) == 5:
                    return

    asyncio.run(run())
    refused = checked(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    again = asyncio.run(_once(at))
    at.ports.ledger.close()  # type: ignore[union-attr]
    after = checked(folder)
    lost = sorted(set(ok) - set(after["receipts"]))
    return {
        "reasons": reasons,
        "told": told,
        "ok": len(ok),
        "lost": lost,
        "full": refused["finding"],
        "again": again,
        "after": after["finding"],
        "signed": after["signed"] == after["entries"],
    }


async def _once(at: Gate, name: str = "add") -> bool:
    async with at.session("s") as session:
        return (await session.call(name, {"a": 1} if name == "add" else {})).ok


def fork(folder: Path) -> dict[str, Any]:
    at = gate(folder)
    fine = [asyncio.run(_once(at)) for _ in range(2)]
    child = os.fork()  # the writing thread exists, and stays in the parent
    if not child:
        code = 1
        try:
            code = 0 if all(asyncio.run(_once(at)) for _ in range(2)) else 2
        finally:
            os._exit(code)
    code = os.waitpid(child, 0)[1]
    fine += [asyncio.run(_once(at)) for _ in range(2)]
    at.ports.ledger.close()  # type: ignore[union-attr]
    with LedgerReader(ledger_path(folder)) as reader:
        sequences = [row.sequence for row in reader.entries()]
    return {"code": code, "ok": all(fine), "sequences": sequences, **checked(folder)}


def killed(folder: Path) -> dict[str, Any]:
    child = os.fork()
    if not child:
        try:
            asyncio.run(_once(gate(folder), "refused"))
        finally:
            os._exit(1)
    ended_by = os.WTERMSIG(os.waitpid(child, 0)[1])
    at = gate(folder)
    fine = asyncio.run(_once(at))
    at.ports.ledger.close()  # type: ignore[union-attr]
    return {"ended_by": ended_by, "ok": fine, **checked(folder)}


def call(folder: Path) -> dict[str, Any]:
    return {"ok": asyncio.run(_once(gate(folder)))}


if __name__ == "__main__":
    what, place, *numbers = sys.argv[1:]
    (Path(place) / "agent.yaml").write_text(json.dumps(MANIFEST), encoding="utf-8")  # before anybody reads it
    if what in ("kill", "many"):  # what takes long is loaded once, and not by each writer
        asyncio.run(_once(Gate(load_manifest(Path(place) / "agent.yaml"), [add, refused], Backends.memory())))
    ways: dict[str, Callable[..., dict[str, Any]]]
    ways = {"kill": kill, "many": many, "full": full, "fork": fork, "open": killed, "call": call}
    print(json.dumps(ways[what](Path(place), *map(int, numbers))))
