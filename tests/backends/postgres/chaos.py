"""Nodes of one state under load, while connections, servers and nodes are killed; and what must hold afterwards.

As a program it is one node: it makes calls through a gate until its input ends, and writes down what its tool did and
what it was told, each in one write. `Chaos` starts four of them and does the harm. Nothing here depends on how fast
anything is: the next kill waits until calls went on after the last one.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

NODES = 4
CALLERS = 6  # of each node
SESSIONS = 5  # shared by all nodes
COST = Decimal("0.01")
HANG_SECONDS = 90.0  # without any call, after which the test fails: a hang, and no measure
CALL_SECONDS = 60  # the time that a call has, so that none gives up while a server starts


# One node -------------------------------------------------------------------------------------------------------------


async def run_node(url: str, folder: Path, number: int) -> None:
    """Make calls until the input ends."""
    from guard.gates import gate
    from licet import Backends, tool

    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(*words: str) -> None:
        os.write(log, (" ".join(words) + "\n").encode())

    @tool(needs=[], effect="write_limited", sandbox="native", cost_usd=str(COST))
    async def act(name: str) -> str:
        """Have an effect."""
        note("ran", name)
        return name

    backends = Backends.postgres(url, directory=folder / "state")
    at = gate(
        folder,
        act,
        backends=backends,
        budget={"max_cost_usd_per_day": 1_000_000, "max_calls_per_day": 100_000_000},
        limits={"wall_seconds": CALL_SECONDS},
    )
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)

    async def call_on(caller: int) -> None:
        count = 0
        while not ended.is_set():
            count += 1
            name = f"{number}-{caller}-{count}"
            async with at.session(f"s{(caller + count) % SESSIONS}") as session:
                result = await session.call("act", {"name": name})
            if result.ok:
                note("ok", name, result.receipt)
            else:
                note("no", name, result.receipt or "-", result.explain().replace("\n", " ")[:400])

    await asyncio.gather(*(call_on(caller) for caller in range(CALLERS)))
    backends.close()


# All of them, and the harm --------------------------------------------------------------------------------------------


class Chaos:
    """Four nodes on one state, in a server with a standby that is synchronous."""

    def __init__(self, folder: Path, primary: Any, standby: Any, seed: int) -> None:
        self.folder, self.primary, self.standby = folder, primary, standby
        self.url = f"postgresql://postgres@/postgres?host={primary.folder},{standby.folder}"
        self.wild = random.Random(seed)
        self.done = Counter[str]()
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._read = [0] * NODES  # bytes of each log
        self._rest = [b""] * NODES
        self.lines: list[list[str]] = []
        self.acknowledged = 0

    async def prepare(self) -> None:
        """Begin the ledger and enrol the nodes. Two of them have its key: either may be the sequencer."""
        from licet.backends.postgres.database import Database
        from licet.backends.postgres.node_keys import Node
        from licet.backends.postgres.postgres_ledger import PostgresLedger

        homes = [self.home(number) / "state" for number in range(NODES)]
        for home in homes:
            home.mkdir(parents=True)
        database = Database(self.url)
        ledger = PostgresLedger(database, Node.of(homes[0]), homes[0])
        await ledger.begun()
        for home in homes[1:]:
            await ledger.enrol(Node.of(home).public)
        await asyncio.to_thread(ledger.close)
        await asyncio.to_thread(database.close)
        for name in ("ledger.key", "ledger.pub"):
            (homes[1] / name).write_bytes((homes[0] / name).read_bytes())
            os.chmod(homes[1] / name, 0o600)

    def home(self, number: int) -> Path:
        return self.folder / f"node{number}"

    def start(self) -> None:
        tests = Path(__file__).parents[2]
        for number in range(NODES):
            command = [sys.executable, __file__, self.url, str(self.home(number)), str(number)]
            environment = {**os.environ, "PYTHONPATH": str(tests)}
            with open(self.home(number) / "said", "wb") as said:
                self._nodes.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said, env=environment)
                )

    async def went_on(self, nodes: Sequence[int] = range(NODES)) -> None:
        """Wait until each of these nodes was told of another call that it was done."""
        wanted, until = set(nodes), time.monotonic() + HANG_SECONDS
        self._news(set())
        while wanted:
            for number, node in enumerate(self._nodes):
                assert node.poll() is None, f"node {number} ended: {self._said(number)}"
            assert time.monotonic() < until, f"calls of {sorted(wanted)} do not go on: {self.lines[-5:]}"
            wanted -= self._news(set())
            await asyncio.sleep(0.005)

    def _news(self, found: set[int]) -> set[int]:
        """Read on in the logs; the nodes that were told of calls that they were done."""
        for number in range(NODES):
            log = self.home(number) / "log"
            if not log.exists():
                continue
            with open(log, "rb") as file:
                file.seek(self._read[number])
                data = file.read()
            self._read[number] += len(data)
            *whole, self._rest[number] = (self._rest[number] + data).split(b"\n")
            for line in whole:
                words = line.decode().split(" ", 3)
                self.lines.append(words)
                if words[0] == "ok":
                    self.acknowledged += 1
                    found.add(number)
        return found

    def _said(self, number: int) -> str:
        return (self.home(number) / "said").read_text(errors="replace")[-2000:]

    async def harm(self, kills: int) -> None:
        """Kill so many connections, servers and nodes, one after the other, each after calls have gone on."""
        stops = _spread(kills, max(1, kills // 40))
        servers = {at + 1 for at in _spread(kills, max(1, kills // 60))} - stops
        for number in range(kills):
            if number in stops:
                await self._stop_a_node()
            elif number in servers:
                await self._kill_the_server()
            else:
                await self._end_a_connection()

    async def _end_a_connection(self) -> None:
        ended = await self.primary.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE backend_type = "
            "'client backend' AND pid != pg_backend_pid() ORDER BY random() LIMIT 1) AS one"
        )
        self.done["connections"] += ended
        await self.went_on([self.wild.randrange(NODES)])

    async def _kill_the_server(self) -> None:
        await asyncio.to_thread(self.primary.kill)
        await asyncio.to_thread(self.primary.start)
        self.done["servers"] += 1
        await self.went_on()

    async def _stop_a_node(self) -> None:
        """Let a node sleep in the middle of whatever it does, until others have gone on without it."""
        number = self.wild.randrange(NODES)
        node = self._nodes[number]
        node.send_signal(signal.SIGSTOP)
        try:
            others = [other for other in range(NODES) if other != number]
            await self.went_on(others)
            await asyncio.sleep(1.5)  # another sequencer takes over meanwhile
            await self.went_on(others)
        finally:
            node.send_signal(signal.SIGCONT)
        self.done["nodes"] += 1
        await self.went_on()

    async def promote(self) -> None:
        """Kill the primary for good, and make the standby the next one."""
        await asyncio.to_thread(self.primary.kill)
        await self.standby.sql("SELECT pg_promote(true)")
        self.done["promotions"] += 1
        await self.went_on()

    async def end(self) -> None:
        """Let the nodes end their calls."""
        for node in self._nodes:
            assert node.stdin is not None
            node.stdin.close()
        for number, node in enumerate(self._nodes):
            code = await asyncio.to_thread(node.wait, HANG_SECONDS)
            assert code == 0, f"node {number} failed: {self._said(number)}"
        self._news(set())

    def kill(self) -> None:
        """End what is left of it."""
        for node in self._nodes:
            if node.poll() is None:
                node.kill()
                node.wait()

    # What must hold ---------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Nothing acknowledged was lost or doubled, budgets are exact, and chains are whole."""
        entries = await self._entries()
        decisions = Counter(one["id"] for one in entries if one["kind"] == "decision")
        receipts = Counter(one["id"] for one in entries if one["kind"] == "receipt")
        allowed = {one["id"] for one in entries if one["kind"] == "receipt" and one["verdict"] == "allow"}
        told = {words[2]: words[1] for words in self.lines if words[0] == "ok"}
        ran = Counter(words[1] for words in self.lines if words[0] == "ran")
        assert len(told) == self.acknowledged > 0
        assert not (lost := [words[3] for words in self.lines if words[0] == "no"]), f"calls were refused: {lost[:3]}"
        assert not told.keys() - decisions.keys(), "acknowledged calls have no decision"
        assert not told.keys() - allowed, "acknowledged calls have no receipt"
        assert max(decisions.values()) == max(receipts.values()) == 1, "an entry was doubled"
        assert max(ran.values()) == 1, "a call ran twice"
        assert not set(told.values()) - ran.keys(), "a call was acknowledged that never ran"
        assert sum(ran.values()) <= sum(decisions.values()), "a call ran without a decision"
        await self._check_budgets(len(decisions))
        await self._check_chains(entries)

    async def _entries(self) -> Sequence[Mapping[str, Any]]:
        return await self._fetch("SELECT id, kind, session, verdict FROM licet.entries WHERE agent = 'tester'")

    async def _check_budgets(self, begun: int) -> None:
        """Each decision has spent once, and nothing else has: the two are kept together."""
        found = await self._fetch(
            "SELECT kind, sum(calls)::bigint AS calls, sum(cost_usd) AS cost FROM licet.budget_counters "
            "WHERE agent = 'tester' GROUP BY kind"
        )
        spent = {one["kind"]: (one["calls"], one["cost"]) for one in found}
        assert spent == dict.fromkeys(("session", "tool", "day"), (begun, begun * COST))

    async def _check_chains(self, entries: Sequence[Mapping[str, Any]]) -> None:
        from licet.backends.postgres.database import Database
        from licet.backends.postgres.node_keys import Node
        from licet.backends.postgres.postgres_ledger import PostgresLedger
        from licet.backends.postgres.verify_database import verify_database

        home = self.home(0) / "state"
        database = Database(self.url)
        ledger = PostgresLedger(database, Node.of(home), home, sequences=False)
        await ledger.begun()
        await ledger.sequencer.place_now()
        key = (home / "ledger.pub").read_text().strip()
        outcome = await asyncio.to_thread(verify_database, self.url, str(home / "ledger"), key)
        await asyncio.to_thread(ledger.close)
        await asyncio.to_thread(database.close)
        assert outcome.finding is None
        assert outcome.entries == outcome.signed >= len(entries)

    async def _fetch(self, query: str) -> Sequence[Mapping[str, Any]]:
        import asyncpg

        connection = await asyncpg.connect(host=str(self.standby.folder), user="postgres", database="postgres")
        try:
            found: Sequence[Mapping[str, Any]] = await connection.fetch(query)
            return found
        finally:
            await connection.close()


def _spread(kills: int, count: int) -> set[int]:
    return {(2 * at + 1) * kills // (2 * count) for at in range(count)}


if __name__ == "__main__":
    asyncio.run(run_node(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
