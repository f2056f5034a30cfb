"""`licet gateway` against its server alone, a line proxy and FastMCP's proxy: round trips of the SDK, and starts.

Everything is measured by the wall clock, since several processes work on one request. A call through the gateway waits
until its decision, and then its receipt, are on the disk: two fdatasyncs, measured in the same rounds on the same file
system, are taken off before the ratio to the server alone. A list writes nothing, so nothing is taken off.

One row is processor time: what the process between client and server spends on an echo, in all its threads.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from benchmarks.harness import (
    Effort,
    Row,
    Target,
    Timing,
    VerdictError,
    at_least,
    at_most,
    duration,
    versus_floor,
    versus_peer,
)
from benchmarks.peers import AbsentPeerError, load

__all__ = ["measure"]

ROUND_TRIP, START, PEER_TARGET = at_most(1.35), at_most(1.5), at_least(1 / 0.6)
START_ALLOWANCE = 0.4e9  # ns
PROCESSOR = at_least(2.0)
TOOLS, FEW, LARGE, AT_ONCE = 200, 10, 1 << 20, 50
DIRECT, LINE, LICET, PEER = "the server alone", "line proxy", "licet", "FastMCP proxy, one middleware"
ENTRY = b"x" * 1000  # about the size of an entry of the ledger
HERE = Path(__file__).parent
SERVERS = ("first", "second")


class Trip(Struct, frozen=True):
    """One kind of request: how it is made and checked, how often in a slice, and how often the ledger is written."""

    what: str
    make: Callable[[Any], Awaitable[None]]
    times: int
    commits: int


def measure(effort: Effort) -> list[Row]:
    """Every row about the gateway."""
    try:
        mcp = load("mcp")
        load("fastmcp")
    except AbsentPeerError as why:
        return [Row("a round trip through the gateway", DIRECT, target=ROUND_TRIP, note=str(why))]
    # On the disk of the checkout: temporary files may be in memory, where nothing has to be written.
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        place = Path(folder)
        return [
            *_round_trips(place / "one", mcp, effort),
            _processor_time(place / "processor", rounds=max(8, effort.rounds // 4)),
            *_starts(place / "starts", mcp, effort),
        ]


# Round trips ----------------------------------------------------------------------------------------------------------


async def _echo(client: Any) -> None:
    _right(await _text(client, "echo", text="hello"), "hello")


async def _list(client: Any) -> None:
    _right(len(await _tools(client)), TOOLS)


async def _large(client: Any) -> None:
    text = await _text(client, "large", size=LARGE)
    _right((len(text), text[:8]), (LARGE, "one line"))


async def _many(client: Any) -> None:
    texts = [f"hello {number}" for number in range(AT_ONCE)]
    _right(await asyncio.gather(*(_text(client, "echo", text=text) for text in texts)), texts)


TRIPS = (
    Trip("echo", _echo, 20, 2),
    Trip(f"list of {TOOLS} tools", _list, 4, 0),
    Trip("result of 1 MB", _large, 4, 2),
    Trip(f"{AT_ONCE} echoes at once", _many, 2, 2),
)


def _round_trips(place: Path, mcp: Any, effort: Effort) -> list[Row]:
    times, synced = asyncio.run(_raced(place, mcp, rounds=max(8, effort.rounds // 4)))
    rows = [Row("two fdatasyncs of 1 kB", "", other=duration(synced))]
    for trip in TRIPS:
        found, what = times[trip.what], f"gateway: {trip.what}"
        rows += [
            _beyond(what, DIRECT, found[LICET], found[DIRECT], synced * trip.commits / 2, ROUND_TRIP),
            versus_floor(what, LINE, found[LICET], found[LINE]),
            versus_peer(what, PEER, found[LICET], found[PEER], PEER_TARGET),
        ]
    return rows


async def _raced(place: Path, mcp: Any, rounds: int) -> tuple[dict[str, dict[str, Timing]], float]:
    """Times of every request and every way, and of two fdatasyncs. The first round is not counted."""
    ways = _ways(place, (TOOLS,))
    times: dict[str, dict[str, list[float]]] = {trip.what: {name: [] for name in ways} for trip in TRIPS}
    syncs: list[float] = []
    file = os.open(place / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        async with AsyncExitStack() as stack:
            clients = {name: await stack.enter_async_context(_client(mcp, way, place)) for name, way in ways.items()}
            for number in range(rounds + 1):
                for trip in TRIPS:
                    names = [*clients][number % len(clients) :] + [*clients][: number % len(clients)]
                    for name in names:
                        took = await _slice(clients[name], trip)
                        times[trip.what][name] += took if number else []
                syncs += [_two_syncs(file) for _ in range(5)]
    finally:
        os.close(file)
    return {what: {name: _timing(found) for name, found in ways.items()} for what, ways in times.items()}, min(syncs)


async def _slice(client: Any, trip: Trip) -> list[float]:
    times = []
    for _ in range(trip.times):
        began = time.perf_counter_ns()
        await trip.make(client)
        times.append(time.perf_counter_ns() - began)
    return times


def _two_syncs(file: int) -> float:
    began = time.perf_counter_ns()
    for _ in range(2):
        os.write(file, ENTRY)
        os.fdatasync(file)
    return time.perf_counter_ns() - began


# Processor time -------------------------------------------------------------------------------------------------------


class _Lines:
    """A client that writes lines and reads lines, so that the process behind it can be watched by its id."""

    def __init__(self, way: list[str], place: Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(way, cwd=place, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._last = 0
        said = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.ask("initialize", said)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        self._last += 1
        self._write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if (message := json.loads(line)).get("id") == self._last and "method" not in message:
                return message["result"]
        raise VerdictError(f"no answer to `{method}`")

    def echo(self) -> None:
        _right(self.ask("tools/call", {"name": "echo", "arguments": {"text": "hello"}})["content"][0]["text"], "hello")

    def processor_time(self) -> int:
        """Nanoseconds that all threads of the process have run."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        self.process.stdin.flush()


def _processor_time(place: Path, rounds: int) -> Row:
    """What the gateway and FastMCP's proxy spend on one echo with a daily budget, in turns."""
    what, times = "gateway: processor time of an echo", 50
    if not Path("/proc/self/schedstat").exists():
        return Row(what, PEER, target=PROCESSOR, note="the system does not tell the time of threads")
    ways = _ways(place, (FEW,))
    clients = {name: _Lines(ways[name], place) for name in (LICET, PEER)}
    spent: dict[str, list[float]] = {name: [] for name in clients}
    try:
        for number in range(rounds + 1):
            for name, client in clients.items():
                before = client.processor_time()
                for _ in range(times):
                    client.echo()
                spent[name] += [(client.processor_time() - before) / times] if number else []
    finally:
        for client in clients.values():
            client.close()
    return versus_peer(what, PEER, _timing(spent[LICET]), _timing(spent[PEER]), PROCESSOR)


# Starting -------------------------------------------------------------------------------------------------------------


def _starts(place: Path, mcp: Any, effort: Effort) -> list[Row]:
    """From nothing to a list of all tools: one server, and two that start at the same time."""
    one, two = _ways(place / "1", (TOOLS,)), _ways(place / "2", (TOOLS, FEW))
    ways = {DIRECT: (one[DIRECT], TOOLS), "1 server": (one[LICET], TOOLS), "2 servers": (two[LICET], TOOLS + FEW)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(max(8, effort.processes // 4) + 1):
        for name, (way, tools) in ways.items():
            took = asyncio.run(_start(mcp, way, place / name[0] if name != DIRECT else place / "1", tools))
            times[name] += [took] if number else []
    found = {name: _timing(each) for name, each in times.items()}
    return [
        _beyond(f"gateway: start until `tools/list`, {name}", floor, found[name], found[DIRECT], START_ALLOWANCE, START)
        for name, floor in (("1 server", DIRECT), ("2 servers", "the slower server alone"))
    ]


async def _start(mcp: Any, way: list[str], place: Path, tools: int) -> float:
    began = time.perf_counter_ns()
    async with _client(mcp, way, place) as client:
        _right(len(await _tools(client)), tools)
        return time.perf_counter_ns() - began


# Ways to reach the server ---------------------------------------------------------------------------------------------


def _ways(place: Path, sizes: tuple[int, ...]) -> dict[str, list[str]]:
    """The commands that a client can start; the ones without licet reach the first server alone."""
    place.mkdir(parents=True)
    script = shutil.copy(HERE / "gateway_server.py", place)
    servers = {name: [sys.executable, script, str(size)] for name, size in zip(SERVERS, sizes, strict=False)}
    _write_policy(place, servers, sizes)
    licet = os.fspath(Path(sys.executable).with_name("licet"))
    done = subprocess.run([licet, "lock", "agent.yaml"], cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise VerdictError(f"`licet lock`: {done.stderr[-400:]}")
    proxies, first = [sys.executable, os.fspath(HERE / "gateway_proxies.py")], servers[SERVERS[0]]
    return {
        DIRECT: first,
        LINE: [*proxies, "line", *first],
        LICET: [licet, "gateway", "agent.yaml", "--state", "state"],
        PEER: [*proxies, "fastmcp", *first],
    }


def _write_policy(place: Path, servers: Mapping[str, list[str]], sizes: tuple[int, ...]) -> None:
    entry: dict[str, Any] = {"grants": [f"fs:read:{place}"], "tools": {"*": {"effect": "read_only"}}}
    entries = {name: {"command": command, **entry} for name, command in servers.items()}
    offered = {name: ["echo", "large", *(f"read_end_{number}" for number in range(2, size))]
               for name, size in zip(servers, sizes, strict=True)}  # fmt: skip
    content = {
        "tools": [f"{name}.{tool}" for name, tools in offered.items() for tool in tools],
        "fs_reach": {"read": [os.fspath(place)]},
        "limits": {"output_kb": 4 * LARGE // 1024},
        "budget": {"max_calls_per_day": 10**6},  # as `licet check` demands of an agent without a person
    }
    (place / "licet.yaml").write_text(json.dumps({"servers": entries}))
    (place / "agent.yaml").write_text(json.dumps({"agent": "bench", "capabilities": content}))


def _client(mcp: Any, way: list[str], place: Path) -> Any:
    server = mcp.StdioServerParameters(command=way[0], args=way[1:], cwd=place)
    return mcp.Client(server, cache=None)  # with its cache it would not ask twice


async def _text(client: Any, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    _right(result.is_error or False, False)
    return str(result.content[0].text)


async def _tools(client: Any) -> list[Any]:
    found, page = [], await client.list_tools()
    found += page.tools
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        found += page.tools
    return found


# Rows -----------------------------------------------------------------------------------------------------------------


def _beyond(what: str, floor: str, licet: Timing, other: Timing, allowance: float, target: Target) -> Row:
    """The time of licet beyond an allowance, as a multiple of the floor's time."""
    ratio = max(licet.best - allowance, 0) / other.best
    note = f"beyond {duration(allowance)}" if allowance else ""
    return Row(what, floor, duration(licet.best), duration(other.best), ratio, target, note)


def _timing(found: list[float]) -> Timing:
    return Timing(min(found), median(found))


def _right(found: object, expected: object) -> None:
    if found != expected:
        raise VerdictError(f"found {str(found)[:100]}, expected {str(expected)[:100]}")
