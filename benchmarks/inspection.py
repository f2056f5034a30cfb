"""The overhead of looking into the HTTPS of programs: the same requests through one proxy, inspected and in a tunnel.

A client and a server run in processes of their own, with the TLS of the standard library; between them is the proxy of
a run, in this process. In a tunnel both share one TLS connection. Where the proxy looks into it, it ends TLS, checks
each request, and sends it on over TLS of its own. One run has a key besides, which is placed in each request and looked
for in each answer. Ways take turns, and times are those of the client, by the wall clock.
"""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Effort, Row, Target, Timing, at_least, at_most, versus_floor

if TYPE_CHECKING:
    from licet.guard.grant import Grant

__all__ = ["measure"]

HOST = "127.0.0.1"
KEPT, FIRST, RATE, GROWTH = at_most(5), at_most(4), at_least(0.5), at_most(1)
MB = 1 << 20
MOST_GROWTH = 16 * MB
_REQUESTS = 100  # those on one connection, and a tenth of them as first ones
KINDS = {"ordinary": "http.client to http.server", "ready": "bytes that are ready"}
_SECRET = "ghp_" + "Ab3" * 12

# Two servers of one process: the web server of the standard library, and one that only sends bytes that are ready.
_SERVER = """
import http.server, socket, sys, threading
from licet.sandbox.inspection.authority import Authority
authority = Authority(("127.0.0.1",))
context = authority.context("127.0.0.1")
block = bytes(1 << 18)
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", 1 << 16, True
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "300")
        if self.path.startswith("/last/"):
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(block[:300])
    def log_message(self, *_): pass
class Pages(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    def finish_request(self, made, address):
        try:
            with context.wrap_socket(made, server_side=True) as secured:
                super().finish_request(secured, address)
        except OSError:
            pass
def serve(made):
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(made, server_side=True) as secured:
            talk(secured)
    except OSError:
        pass
def talk(secured):
    data, room = b"", bytearray(1 << 18)
    while True:
        while b"\\r\\n\\r\\n" not in data:
            more = secured.recv(65536)
            if not more:
                return
            data += more
        head, _, data = data.partition(b"\\r\\n\\r\\n")
        length = [line for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length:")]
        left = int(length[0].partition(b":")[2]) if length else 0
        size = int(head.split()[1].rpartition(b"/")[2])
        taken = min(left, len(data))
        data, left = data[taken:], left - taken
        while left:
            got = secured.recv_into(room, min(left, len(room)))
            if not got:
                return
            left -= got
        last = b"connection: close\\r\\n" if b" /last/" in head else b""
        answer = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/plain\\r\\n%bcontent-length: %d\\r\\n\\r\\n"
        secured.sendall(answer % (last, size) + block[:size])
        size -= min(size, len(block))
        while size:
            secured.sendall(memoryview(block)[:size])
            size -= min(size, len(block))
        if last:
            return
pages, ready = Pages(("127.0.0.1", 0), Page), socket.create_server(("127.0.0.1", 0), backlog=128)
print(pages.server_address[1], ready.getsockname()[1], len(authority.certificate), flush=True)
sys.stdout.write(authority.certificate.decode())
sys.stdout.flush()
threading.Thread(target=pages.serve_forever, daemon=True).start()
while True:
    threading.Thread(target=serve, args=(ready.accept()[0],), daemon=True).start()
"""

# Reads orders, a line of JSON each, and answers with its times in nanoseconds. For the one server it is an ordinary
# client, and for the other one that does as little as can be done.
_CLIENT = """
import http.client, json, socket, ssl, sys, time
context = ssl.create_default_context(cafile=sys.argv[1])
context.set_alpn_protocols(["http/1.1"])
pages, ready, block, room = int(sys.argv[2]), int(sys.argv[3]), bytes(1 << 18), bytearray(1 << 18)
def ordinary(port, key, many):
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    connection.set_tunnel("127.0.0.1", pages)
    headers = {"User-Agent": "bench", "Accept": "*/*", "Authorization": "Bearer " + key}
    for _ in range(many):
        connection.request("GET", "/300" if many > 1 else "/last/300", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        assert (answer.status, len(body)) == (200, 300), (answer.status, body)
        yield
    connection.close()
def least(port, key, many, down, up):
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n" % ready)
    heard = b""
    while not heard.endswith(b"\\r\\n\\r\\n"):
        heard += made.recv(1)
    assert b" 200 " in heard, heard
    with context.wrap_socket(made, server_hostname="127.0.0.1") as secured:
        for _ in range(many):
            ask(secured, key, b"" if many > 1 else b"last/", down, up)
            yield
def ask(secured, key, way, down, up):
    lines = b"%s /%s%d HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\nUser-Agent: bench\\r\\nAccept: */*\\r\\n"
    head = lines % (b"POST" if up else b"GET", way, down, ready) + b"Authorization: Bearer %s\\r\\n" % key.encode()
    secured.sendall(head + (b"Content-Length: %d\\r\\n" % up if up else b"") + b"\\r\\n")
    while up:
        secured.sendall(memoryview(block)[:up])
        up -= min(up, len(block))
    data = b""
    while b"\\r\\n\\r\\n" not in data:
        more = secured.recv(65536)
        assert more, data
        data += more
    head, _, data = data.partition(b"\\r\\n\\r\\n")
    assert head.startswith(b"HTTP/1.1 200 "), head + data
    left = down - len(data)
    while left:
        got = secured.recv_into(room, min(left, len(room)))
        assert got, left
        left -= got
for line in sys.stdin:
    port, key, kind, connections, requests, down, up = json.loads(line)
    times = []
    for _ in range(connections):
        asking = ordinary(port, key, requests) if kind == "ordinary" else least(port, key, requests, down, up)
        own, began = [], time.perf_counter_ns()
        for _ in asking:
            now = time.perf_counter_ns()
            own.append(now - began)
            began = now
        times.append(own)
    print(json.dumps(times), flush=True)
"""


class _Client:
    """A process that makes the requests, and says how long they took."""

    def __init__(self, process: asyncio.subprocess.Process, ports: Mapping[str, int], keys: Mapping[str, str]) -> None:
        self._process, self._ports, self._keys = process, ports, keys

    async def asks(
        self, way: str, kind: str = "ready", *, connections: int = 1, requests: int = 1, down: int = 300, up: int = 0
    ) -> list[list[int]]:
        """Make requests one way; returns the nanoseconds of each, by connection. The first one has its handshake."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = [self._ports[way], self._keys.get(way, "no-key"), kind, connections, requests, down, up]
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        line = await self._process.stdout.readline()
        assert line, f"the client ended: {way}"
        found: list[list[int]] = json.loads(line)
        return found


def measure(effort: Effort) -> list[Row]:
    """The rows of this part."""
    return asyncio.run(_measured(effort))


async def _measured(effort: Effort) -> list[Row]:
    quick = effort.processes < Effort.full().processes
    with TemporaryDirectory() as place, _serving(Path(place, "roots.pem")) as ports:
        async with _meeting(Path(place), *ports) as client:
            rounds = max(4, effort.processes // 2)
            rows = [row for kind in KINDS for row in await _kept(client, kind, rounds)]
            rows += [row for kind in KINDS for row in await _first(client, kind, rounds)]
            return [*rows, *await _long(client, *((64 * MB, 3) if quick else (1024 * MB, 1)))]


# The measurements -----------------------------------------------------------------------------------------------------


async def _kept(client: _Client, kind: str, rounds: int) -> list[Row]:
    async def typical(way: str) -> float:
        ((_, *times),) = await client.asks(way, kind, requests=_REQUESTS)
        return median(times)

    times = await _in_turns(("tunnel", "inspected", "with a key"), rounds, typical)
    return [_row("a request over a kept connection", way, kind, times, KEPT) for way in ("inspected", "with a key")]


async def _first(client: _Client, kind: str, rounds: int) -> list[Row]:
    async def typical(way: str) -> float:
        return median(first for (first,) in await client.asks(way, kind, connections=_REQUESTS // 10))

    # The server ends each connection, so that the proxy has none to it that it could use again.
    times = await _in_turns(("tunnel", "inspected", "with a key"), rounds, typical)
    return [_row("the first request of a connection", way, kind, times, FIRST) for way in ("inspected", "with a key")]


def _row(what: str, way: str, kind: str, times: Mapping[str, Timing], target: Target) -> Row:
    goal = target if kind == "ordinary" else None
    return versus_floor(f"{what}, {way}", f"in a tunnel, {KINDS[kind]}", times[way], times["tunnel"], goal)


async def _in_turns(ways: Sequence[str], rounds: int, typical: Callable[[str], Awaitable[float]]) -> dict[str, Timing]:
    # Medians of slices and not minima: three processes take turns for each request.
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in ways:
            took = await typical(way)
            if number:
                found[way].append(took)
    return {way: Timing(min(each), median(each)) for way, each in found.items()}


async def _long(client: _Client, size: int, rounds: int) -> list[Row]:
    rows = []
    for direction in ("down", "up"):
        ways = ("tunnel", "inspected", "with a key")
        best: dict[str, float] = dict.fromkeys(ways, 0.0)
        growth: dict[str, int] = dict.fromkeys(ways, 0)
        for way in ways * rounds:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            small = _peak()
            up, down = (size, 300) if direction == "up" else (0, size)
            ((took,),) = await client.asks(way, down=down, up=up)
            growth[way] = max(growth[way], _peak() - small)
            best[way] = max(best[way], size / took * 1e9)
        for way in ways[1:]:
            what, rate, other = f"{size // MB} MB {direction}, {way}", best[way], best["tunnel"]
            rows += [
                Row(what, "in a tunnel", f"{rate / MB:.0f} MB/s", f"{other / MB:.0f} MB/s", rate / other, RATE),
                Row(what, "16 MB of growth", f"{growth[way] / MB:.1f} MB", "16 MB", growth[way] / MOST_GROWTH, GROWTH),
            ]
    return rows


def _peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) << 10 if found else 0


# Who takes part -------------------------------------------------------------------------------------------------------


@contextmanager
def _serving(roots: Path) -> Iterator[tuple[int, int]]:
    """The ports of both servers; their authority goes to a file."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            pages, ready, length = map(int, server.stdout.readline().split())
            roots.write_bytes(server.stdout.read(length))
            yield pages, ready
        finally:
            server.kill()


@asynccontextmanager
async def _meeting(place: Path, *servers: int) -> AsyncIterator[_Client]:
    """A client, and the proxy of a run for each way."""
    from licet.backends.http import HttpClient
    from licet.core.policy.inspection import NOTHING_INSPECTED, Inspection, StandIn
    from licet.sandbox.inspection.authority import Authority
    from licet.sandbox.inspection.inspected import Inspecting
    from licet.sandbox.inspection.stand_ins import read_keys
    from licet.sandbox.programs.proxy import Egress

    places = tuple(f"{HOST}:{port}" for port in servers)
    authority = Authority(places)
    entry = StandIn(name="TOKEN", secret="bench/token", hosts=places)

    async def value(_: str) -> str:
        return _SECRET

    def nothing(_: str) -> bytes:
        raise AssertionError("no key is in a file here")

    without = await read_keys(NOTHING_INSPECTED, value, nothing)
    keys = await read_keys(Inspection(places, (entry,)), value, nothing)
    ways: dict[str, Inspecting | None] = {
        "tunnel": None,
        "inspected": Inspecting(Inspection(places), authority, without),
        "with a key": Inspecting(Inspection(places, (entry,)), authority, keys),
    }
    roots = place / "roots.pem"
    trusted = place / "both.pem"
    trusted.write_bytes(roots.read_bytes() + authority.certificate)
    proxies, ports, networks = [], {}, []
    for way, inspecting in ways.items():
        networks.append(HttpClient(ca_file=str(roots)))
        proxies.append(Egress(_grant(place, places), networks[-1], most_requests=1 << 40, inspecting=inspecting))
        listener = socket.create_server((HOST, 0), backlog=128)
        listener.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )  # and so those that are accepted: for tunnels, too
        ports[way] = listener.getsockname()[1]
        proxies[-1].serve(listener)
    process = await asyncio.create_subprocess_exec(
        *(os.path.realpath(sys.executable), "-I", "-c", _CLIENT, str(trusted), *map(str, servers)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield _Client(process, ports, {"with a key": keys.environment["TOKEN"]})
    finally:
        process.kill()
        await process.wait()
        for proxy in proxies:
            await proxy.close()
        for network in networks:
            await network.close()


def _grant(place: Path, servers: Sequence[str]) -> "Grant":
    """What a call holds that may connect to the servers, and send them any request."""
    from licet import load_manifest
    from licet.core.decision.reach import reach_of
    from licet.core.decision.request import Request
    from licet.guard.grant import Grant

    rules = [f"network:{action}:{server}" for action in ("https", "tcp") for server in servers]
    path = place / "agent.yaml"
    path.write_text(
        "agent: bench\n"
        f"tools: {{go: {{needs: {json.dumps(rules)}, effect: write_limited, sandbox: isolated}}}}\n"
        f"capabilities: {{tools: [go], grants: {json.dumps(rules)}, approvals: {{write: manifest}}}}\n",
        encoding="utf-8",
    )
    manifest = load_manifest(path).expand(str(place), str(place))
    reach = reach_of(manifest, "go")
    assert reach is not None

    async def nobody(*_: Any) -> None:
        raise AssertionError("nobody is asked here")

    return Grant(Request("go"), reach, manifest.digest, (), nobody)
