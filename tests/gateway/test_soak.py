"""Many calls at once, gateways that share a store, and servers that are killed: nothing is lost, doubled or leaked.

It takes a few seconds, and five minutes with LICET_LONG=1.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from effort import LONG
from sandbox.levels import needs_walls

from .clients import Client, process_client, text_of
from .test_stdio import LICET, servers_of
from .workspaces import AGENT, Workspace

SECONDS = 300 if LONG else 4
IN_FLIGHT = 50
GATEWAYS = 8 if LONG else 3
MOST_GROWTH = 1.25  # of the memory of a gateway, after it has warmed up
SERVERS: dict[str, Any] = {
    name: {"script": {"era": era}, "tools": {"*": {"effect": "read_only"}}}
    for name, era in (("a", "2025"), ("b", "2026"))
}


class Driver:
    """One client that keeps calls in flight, and counts the answers."""

    def __init__(self, name: str, client: Client) -> None:
        self.name, self.client = name, client
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.sent = 0

    async def work(self, until: float) -> None:
        while time.monotonic() < until or not self.answers["ok"]:  # a slow machine may need longer for the first
            self.sent += 1
            number = f"{self.name}-{self.sent}"
            result = await self.client.call(random.choice(("a__echo", "b__echo")), {"number": number})
            text = text_of(result)
            if result.get("isError"):
                self.answers[text.partition(":")[0]] += 1
                await asyncio.sleep(0.05)  # its server is started again
            elif text == f'{{"number": "{number}"}}':
                self.answers["ok"] += 1
            else:
                self.wrong.append(text)


def command_of(workspace: Workspace, session: str) -> list[str]:
    place = workspace.place
    options = ["--state", str(workspace.state), "--workdir", str(place), "--session", session]
    return [*LICET, "gateway", str(place / AGENT), *options]


def memory_of(pid: int) -> int:
    """The resident memory of a process, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


async def killing(pids: list[int], until: float) -> int:
    """Kill a server of some gateway now and then; how many were killed."""
    killed = 0
    while time.monotonic() < until - 2:
        await asyncio.sleep(1.5)
        servers = servers_of(random.choice(pids))
        if servers:
            try:
                os.kill(random.choice(servers), signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                continue
    return killed


@pytest.mark.parametrize("gateways", [GATEWAYS, 1])
@pytest.mark.sampled(1)
@pytest.mark.skipif(sys.platform != "linux", reason="finds servers and memory in /proc")
def test_calls_survive_load_and_killed_servers(tmp_path: Path, store_path: Path, gateways: int) -> None:
    needs_walls()
    workspace = Workspace(tmp_path, store_path, SERVERS, {"tools": ["a.echo", "b.echo"]})
    drivers: list[Driver] = []
    grown: list[float] = []

    async def one(name: str, each: int, pids: list[int], ready: asyncio.Barrier) -> None:
        async with process_client(command_of(workspace, f"g-{name}"), random.choice(("2025", "2026"))) as (
            client,
            process,
        ):
            driver = Driver(name, client)
            drivers.append(driver)
            await client.tools()
            pids.append(process.pid)
            await ready.wait()
            began = time.monotonic()
            until = began + SECONDS
            tasks = [asyncio.create_task(driver.work(until)) for _ in range(each)]
            await asyncio.sleep(SECONDS / 3)
            before = memory_of(process.pid)
            await asyncio.gather(*tasks)
            grown.append(memory_of(process.pid) / before)

    async def scene() -> int:
        pids: list[int] = []
        ready = asyncio.Barrier(gateways + 1)
        each = IN_FLIGHT if gateways == 1 else IN_FLIGHT // gateways + 1
        runs = [asyncio.create_task(one(str(number), each, pids, ready)) for number in range(gateways)]
        await ready.wait()
        killed = await killing(pids, time.monotonic() + SECONDS)
        await asyncio.gather(*runs)
        return killed

    killed = asyncio.run(scene())
    assert killed > 0
    entries = workspace.entries()
    for driver in drivers:
        assert driver.wrong == []
        assert driver.client.twice == []
        assert sum(driver.answers.values()) == driver.sent
        assert driver.answers["ok"] > 0
        assert set(driver.answers) <= {"ok", "TOOL_NOT_AVAILABLE"}
        mine = [entry for entry in entries if entry.session == f"g-{driver.name}"]
        receipts = [entry for entry in mine if entry.kind == "receipt"]
        assert len(receipts) == driver.sent
        assert len({entry.id for entry in receipts}) == driver.sent
        assert Counter(entry.code for entry in receipts)["ok"] == driver.answers["ok"]
        assert len({entry.arguments for entry in receipts}) == driver.sent
    verified = subprocess.run(
        [*LICET, "receipts", "verify", "--state", str(workspace.state)], capture_output=True, text=True, check=False
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert max(grown) < (MOST_GROWTH if LONG else 2)
    print(
        f"{gateways} gateways: {sum(driver.sent for driver in drivers)} calls, {killed} servers killed, grown {grown}"
    )
