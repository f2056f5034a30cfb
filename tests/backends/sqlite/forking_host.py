"""A host whose threads fork while its calls write every store. A test runs it as a separate program.

    python forking_host.py FOLDER WAY THREADS FORKS CALLS

It prints one JSON object: the results of the calls in the parent, and how each child ended.
"""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from licet import Backends, Context, Gate, load_manifest, tool
from licet.backends.approvals.store import SqliteApprovals
from licet.backends.budgets import SqliteBudgets
from licet.backends.kv import SqliteKv
from licet.backends.ledger.writer import SqliteLedger

# `multiprocessing` waits for children of other threads too, and two such waits collide
ONE_AT_A_TIME = threading.Lock()
MANIFEST = """agent: forker
capabilities:
  tools: {keep: {sandbox: native}, write: {sandbox: native}}
  native: [keep, write]
  max_side_effect_class: write_limited
  fs_reach: {write: [/srv/out]}
  budget: {max_calls_per_session: 100000}
  limits: {wall_seconds: 20}
"""


@tool(needs=["storage:write:session", "storage:read:session"], effect="read_only", sandbox="native")
async def keep(ctx: Context, name: str, value: int) -> int:
    """Keep a number, and look it up."""
    await ctx.kv.set(name, value)
    found = await ctx.kv.get(name)
    return found if isinstance(found, int) else 0


@tool(needs=["fs:write:/srv/out"], effect="write_limited", sandbox="native")
async def write(ctx: Context, text: str) -> None:
    """Write a file, which a person has to agree to."""
    await ctx.fs.write("/srv/out/a", text)


def gate_at(folder: Path) -> Gate:
    (folder / "forker.yaml").write_text(MANIFEST)
    state = folder / "state"
    backends = Backends.memory(
        files={},
        kv=SqliteKv(state / "kv.sqlite"),
        ledger=SqliteLedger(state / "ledger.sqlite"),
        budgets=SqliteBudgets(state / "budgets.sqlite"),
        approver=SqliteApprovals(state / "approvals.sqlite"),
    )
    return Gate(load_manifest(folder / "forker.yaml"), [keep, write], backends)


async def calls(gate: Gate, session: str, many: int) -> list[str]:
    """Make calls that write all four stores, two at once, and return their results."""
    async with gate.session(session) as opened:
        asked = [("keep", {"name": f"n{number}", "value": number}) for number in range(many)]
        asked += [("write", {"text": f"{number}"}) for number in range(many // 10)]
        results = await opened.call_many(asked, at_once=4)
    return [result.reason if result.reason != "ALLOWED" else str(result.ok) for result in results]


def in_child(gate: Gate) -> None:
    """Make a few calls in a fork, with the stores that were open in the parent."""
    said = asyncio.run(calls(gate, f"child-{os.getpid()}", 2))
    os._exit(0 if said == ["True"] * 2 else 1)


def by_fork(gate: Gate) -> int:
    child = os.fork()
    if not child:
        try:
            in_child(gate)
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def by_subprocess(gate: Gate) -> int:
    return subprocess.run(["/bin/true"], preexec_fn=os.getpid, check=False).returncode


def by_multiprocessing(gate: Gate) -> int:
    process, code = multiprocessing.get_context("fork").Process(target=in_child, args=(gate,)), None
    with ONE_AT_A_TIME:
        process.start()
    while code is None:
        time.sleep(0.005)
        with ONE_AT_A_TIME:
            code = process.exitcode
    return code


WAYS: dict[str, Callable[[Gate], int]] = {
    "fork": by_fork,
    "subprocess": by_subprocess,
    "multiprocessing": by_multiprocessing,
}


def main() -> None:
    warnings.simplefilter("ignore")  # Python warns of forks in processes with threads
    folder, way = Path(sys.argv[1]), WAYS[sys.argv[2]]
    threads, forks, many = map(int, sys.argv[3:])
    gate, codes = gate_at(folder), list[int]()
    asyncio.run(calls(gate, "first", 1))
    start = threading.Barrier(threads)

    def fork_and_fork() -> None:
        start.wait()
        codes.extend([way(gate) for _ in range(forks)])

    forking = [threading.Thread(target=fork_and_fork) for _ in range(threads)]
    for thread in forking:
        thread.start()
    results = asyncio.run(calls(gate, "parent", many))
    for thread in forking:
        thread.join()
    print(json.dumps({"calls": results, "codes": codes}))


if __name__ == "__main__":
    main()
