"""The overhead of walls around a program: starting one, and one request through the proxy.

A start is raced against bubblewrap if it is installed, and against an interpreter that does nothing: `ctx.process`
starts one interpreter for each program, and so does `licet run`. A request is timed inside the walls, in one process
that makes many, and compared with the same process without walls: to the web server of the standard library, and to a
server that only sends prepared bytes.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.fetch import SERVER, serving
from benchmarks.harness import (
    Effort,
    Row,
    Timing,
    at_most,
    duration,
    other_walls,
    spawn_race,
    versus_floor,
)
from licet.guard.execution import Layers

__all__ = ["measure"]

THROUGH_PROXY, RUN = at_most(5.5), at_most(15)
_REQUESTS = 150

_CLIENT = f"""
import http.client, sys, time
host, port, target = sys.argv[1], int(sys.argv[2]), sys.argv[3]
times = []
for _ in range({_REQUESTS}):
    began = time.perf_counter_ns()
    connection = http.client.HTTPConnection(host, port)
    connection.request("GET", target)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    times.append(time.perf_counter_ns() - began)
    assert answer.status == 200 and b"oslo" in body, (answer.status, body)
times.sort()
print(times[0], times[len(times) // 2])
"""


def measure(effort: Effort) -> list[Row]:
    """The rows of this part; without namespaces, rows that say so."""
    from licet.sandbox import probe

    if not probe.support().namespaces:
        return [Row("a request through the proxy", "direct", target=THROUGH_PROXY, note="there are no namespaces here")]
    return [
        _requests(effort, _PLAIN_SERVER, "direct, to http.server", target=THROUGH_PROXY),
        _requests(effort, SERVER, "direct, to bytes that are ready"),
        *_starts(effort),
        *_whole_commands(effort),
    ]


_PLAIN_SERVER = """
import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"oslo")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def _requests(effort: Effort, program: str, against: str, **goal: Any) -> Row:
    python = os.path.realpath(sys.executable)

    async def run() -> dict[str, list[Timing]]:
        found: dict[str, list[Timing]] = {"direct": [], "proxy": []}
        with serving(program) as url:
            port = url.split(":")[2].partition("/")[0]
            direct, walled = _handle("open", port), _handle("walled", port)
            for _ in range(max(3, effort.processes // 8)):
                for name, handle, words in (
                    ("direct", direct, ("127.0.0.1", port, "/points/oslo")),
                    ("proxy", walled, ("127.0.0.1", "3128", url)),
                ):
                    ended = await handle(python, ["-I", "-c", _CLIENT, *words])
                    assert ended.exit_code == 0, ended.stderr
                    found[name].append(Timing(*map(float, ended.stdout.split())))
        return found

    found = asyncio.run(run())
    # Medians and not minima: two processes and two event loops take turns here.
    typical = {name: min(one.median for one in each) for name, each in found.items()}
    proxy, direct = (Timing(typical[name], typical[name]) for name in ("proxy", "direct"))
    return versus_floor("a request through the proxy", against, proxy, direct, **goal)


def _starts(effort: Effort) -> list[Row]:
    async def run() -> tuple[Timing, Timing]:
        walled, bare = _handle("walled", None), _handle("open", None)
        times: dict[str, list[float]] = {"walled": [], "open": []}
        for number in range(effort.processes // 2 + 1):
            for name, handle in (("walled", walled), ("open", bare)):
                began = time.perf_counter_ns()
                ended = await handle("true", [])
                took = time.perf_counter_ns() - began
                assert ended.exit_code == 0
                if number:
                    times[name].append(took)
        return (
            Timing(min(times["walled"]), median(times["walled"])),
            Timing(min(times["open"]), median(times["open"])),
        )

    walled, bare = asyncio.run(run())
    return [versus_floor("ctx.process.spawn of `true`", "supervised, without walls", walled, bare)]


def _whole_commands(effort: Effort) -> list[Row]:
    with TemporaryDirectory() as place:
        manifest = Path(place, "agent.yaml")
        manifest.write_text('agent: a\ncapabilities: {process: {allowed_binaries: ["true"]}}\n', encoding="utf-8")
        licet = [sys.executable, "-c", "from licet.cli import program; program()"]
        commands = {
            "run": [*licet, "run", str(manifest), "--", "true"],
            "interpreter": [sys.executable, "-I", "-S", "-c", "pass"],
            "licet": [*licet, "check", str(manifest)],
        }
        if (others := other_walls()) is not None:
            commands["others"] = others[1]
        times = spawn_race(commands, effort, environment={"XDG_STATE_HOME": place})
    rows = [
        versus_floor("licet run -- true", "python -I -S -c pass", times["run"], times["interpreter"], RUN),
        versus_floor("licet run -- true", "licet check", times["run"], times["licet"]),
    ]
    if others is None:
        return rows
    own, theirs = times["run"].best - times["licet"].best, times["others"].best
    less = Row("licet run -- true, less licet check", others[0], duration(own), duration(theirs), own / theirs)
    return [*rows, less]


class _Open:
    layers = Layers(())

    def around(self, command: Any) -> Any:
        """Return the command unchanged."""
        return command


def _handle(kind: str, port: str | None) -> Callable[..., Awaitable[Any]]:
    """`ctx.process.spawn` of a call that may start any program and reach one port."""
    from licet import load_manifest
    from licet.backends.http import HttpClient
    from licet.core.decision.reach import reach_of
    from licet.core.decision.request import Request
    from licet.guard.grant import Grant
    from licet.guard.handles.processes import ScopedProcesses
    from licet.sandbox.programs.runner import LocalProcesses
    from licet.sandbox.programs.walls import ProgramWalls

    python = os.path.realpath(sys.executable)
    network = f', "network:http:127.0.0.1:{port}"' if port else ""
    allow = f'\n  destinations: {{allow: ["127.0.0.1:{port}"]}}' if port else ""
    with TemporaryDirectory() as place:
        path = Path(place, "agent.yaml")
        path.write_text(
            "agent: bench\n"
            f'tools: {{go: {{needs: ["process:exec:*"{network}], effect: read_only, sandbox: isolated}}}}\n'
            f'capabilities:\n  tools: [go]\n  process: {{allowed_binaries: ["*", "{python}"]}}{allow}\n',
            encoding="utf-8",
        )
        manifest = load_manifest(path).expand(place, place)
    reach = reach_of(manifest, "go")
    assert reach is not None

    async def nobody(*_: Any) -> None:
        raise AssertionError("nobody is asked here")

    grant = Grant(Request("go"), reach, manifest.digest, (), nobody)
    walls = ProgramWalls(HttpClient())

    class Sandbox:
        def walls(self, held: Any) -> Any:
            return walls.walls(held) if kind == "walled" else _Open()

    local = LocalProcesses("/usr/bin:/bin")
    return ScopedProcesses(grant, local, Sandbox(), binaries={}, seconds=120.0).spawn  # type: ignore[arg-type]
