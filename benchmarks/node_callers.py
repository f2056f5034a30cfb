"""One node of a state, as a process of its own: it has callers, and works when it is told to.

It says `ready` on a line, reads a line with a number of seconds, lets its callers work for so long, and answers with
how often they did and how long that took. At the end of its input it closes its stores.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Literal

from licet.backends.ledger.writer import SqliteLedger
from licet.backends.postgres.database import Database
from licet.backends.postgres.node_keys import Node
from licet.backends.postgres.postgres_budgets import PostgresBudgets
from licet.backends.postgres.postgres_freezes import PostgresFreezes
from licet.backends.postgres.postgres_ledger import PostgresLedger
from licet.backends.postgres.postgres_opening import PostgresOpening
from licet.core.ledger.entry import Entry
from licet.core.policy.terms import Budget
from licet.guard.ports import Beginning, Claim

AGENT, DAY = "bench", "2026-01-01"
SHARED = Budget(max_calls_per_day=10**12)  # one counter for all callers of all nodes
DIGEST = "sha256:" + "0" * 64

Act = Callable[[int, int], Awaitable[object]]  # one piece of work, of a caller, with a number that counts up


def main() -> None:
    """Work as one node: its kind, its state, its directory, its name, and how many callers it has."""
    kind, state, directory, name, callers = sys.argv[1:]
    asyncio.run(_serve(kind, state, Path(directory), name, int(callers)))


def entry(name: str, session: str, kind: Literal["receipt", "decision"] = "receipt", agent: str = AGENT) -> Entry:
    """An entry about as large as that of a call."""
    return Entry(
        kind=kind,
        id=name,
        agent=agent,
        session=session,
        tool="noop",
        time="2026-01-01T00:00:00.000000Z",
        manifest=DIGEST,
        arguments=DIGEST,
        rules=("allow tool noop (agent.yaml:3)", "allow env:read:LANG (agent.yaml:5)"),
    )


def claim(session: str, agent: str = AGENT) -> Claim:
    """What a call sets aside: of one counter that all calls of an agent share."""
    return Claim(agent, session, "noop", DAY, Decimal("0.001"), SHARED, None, None)


async def _serve(kind: str, state: str, directory: Path, name: str, callers: int) -> None:
    act, close = _work(kind, state, directory, name)
    await act(0, 0)
    numbers = count(1)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        seconds, done = float(line), 0
        began = time.perf_counter()

        async def works(caller: int, until: float) -> None:
            nonlocal done
            while time.perf_counter() < until:
                await act(caller, next(numbers))
                done += 1

        await asyncio.gather(*(works(caller, began + seconds) for caller in range(callers)))
        print(json.dumps([done, time.perf_counter() - began]), flush=True)
    await asyncio.to_thread(close)


def _work(kind: str, state: str, directory: Path, name: str) -> tuple[Act, Callable[[], object]]:
    if kind == "sqlite":
        file = SqliteLedger(state)
        return lambda caller, n: file.record(entry(f"r-{name}-{n}", f"{name}-{caller}")), file.close
    database = Database(state)
    ledger = PostgresLedger(database, Node.of(directory), directory)
    budgets = PostgresBudgets(database, ledger.node)
    freezes = PostgresFreezes(database, ledger.node, ledger.enrolled.check, directory)
    opening = PostgresOpening(database, ledger, budgets)

    async def opens(caller: int, n: int, agent: str = AGENT) -> None:
        session = f"{name}-{caller}"
        decision = entry(f"r-{name}-{n}", session, "decision", agent)
        found = await opening.open(Beginning(decision, (claim(session, agent),)))
        assert not found.refused, found

    async def takes_steps(caller: int, n: int, agent: str = AGENT) -> None:
        session = f"{name}-{caller}"
        await freezes.look_up(agent, "noop")
        assert await budgets.reserve(claim(session, agent)) is not None
        await ledger.record(entry(f"r-{name}-{n}", session, "decision", agent))

    def close() -> None:
        ledger.close()
        database.close()

    acts: dict[str, Act] = {
        "ledger": lambda caller, n: ledger.record(entry(f"r-{name}-{n}", f"{name}-{caller}")),
        "reserve": lambda caller, n: budgets.reserve(claim(f"{name}-{caller}")),
        "opening": lambda caller, n: opens(caller, n, name),  # an agent for each node
        "steps": lambda caller, n: takes_steps(caller, n, name),
        "opening-shared": opens,
        "steps-shared": takes_steps,
    }
    return acts[kind], close


if __name__ == "__main__":
    main()
