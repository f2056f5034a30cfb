"""What an attack costs others: an honest session calls a tool while each attack runs in the same host.

Each attack has its own host process, which reports by how much the honest calls took longer at the 99th percentile, and
by how much the process grew at most. An attack that was not stopped for the expected reason counts as a missed target,
however little it cost.
"""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import flood_tools
from benchmarks.fetch import serving
from benchmarks.flood_tools import MB
from benchmarks.harness import Effort, Row, at_most
from licet import Backends, Gate, Session, load_manifest
from licet.sandbox import probe

__all__ = ["measure"]

DELAY, GROWTH = 0.050, 128 * MB
BASELINE, PACE = 400, 0.002  # honest calls without an attack, and the time between two of them
ENOUGH = 200  # honest calls during an attack; a shorter attack is repeated

# Serves a page of any size: `/<bytes>`. It reads requests to their end. `/chunks/<bytes>` is answered in chunks of one
# byte, `/hints/<number>` with so many interim answers before the real one.
SERVER = """
import asyncio
piece = bytes(1 << 16)
async def talk(reader, writer):
    try:
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        size = int(head.split(b" ")[1].rpartition(b"/")[2] or 0)
        lengths = [line for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length:")]
        left = int(lengths[0].split(b":")[1]) if lengths else 0
        while left and (data := await reader.read(min(left, 1 << 20))):
            left -= len(data)
        if b" /chunks/" in head:
            writer.write(b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n")
            writer.write(b"1\\r\\na\\r\\n" * size + b"0\\r\\n\\r\\n")
            return await writer.drain()
        if b" /hints/" in head:
            writer.write(b"HTTP/1.1 103 \\r\\n\\r\\n" * size)
            size = 0
        writer.write(b"HTTP/1.1 200 OK\\r\\nconnection: close\\r\\ncontent-length: %d\\r\\n\\r\\n" % size)
        for _ in range(size // len(piece)):
            writer.write(piece)
            await writer.drain()
        writer.write(piece[: size % len(piece)])
        await writer.drain()
    except (OSError, EOFError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()
async def main():
    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=1 << 26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""

Attack = Callable[[Session, str, Path], Awaitable[str]]


def _calls(tool: str, expected: str, given: Callable[[str, Path], dict[str, Any]]) -> tuple[Attack, str]:
    """One call of a tool; returns its reason, or its value as text."""

    async def attack(session: Session, url: str, place: Path) -> str:
        result = await session.call(tool, given(url, place))
        return f"{result.reason} {str(result.value)[:2000]}"

    return attack, expected


PYTHON = os.path.realpath(sys.executable)
ATTACKS: dict[str, tuple[Attack, str]] = {
    "a result of 31 MB of objects": _calls("result", "^LIMIT_OUTPUT", lambda *_: {"size": 31 * MB}),
    "a result of 1 MB of objects": _calls("result", "^LIMIT_OUTPUT", lambda *_: {"size": MB}),
    "a stored value of 31 MB": _calls("value", "^ALLOWED LIMIT_SIZE", lambda *_: {"size": 31 * MB}),
    "150,000 strings after a secret": _calls("strings", "^ALLOWED", lambda *_: {"many": 150_000}),
    "opened files that are never received": _calls("files", "^LIMIT_HOST_FILES", lambda *_: {"many": 3000}),
    "answers that are never read": _calls("answers", "^(LIMIT_WAITING|TOOL_CRASHED)", lambda *_: {"many": 60_000}),
    "pieces of a stream that are never read": _calls(
        "pieces", "^(TOOL_CRASHED|LIMIT_WAITING)", lambda url, _: {"url": f"{url}/{200 * MB}", "many": 20_000}
    ),
    "100 proxied GETs with 32 MB": _calls(
        "bodies",
        "^ALLOWED (400|413|ConnectionResetError|BrokenPipeError|,)+$",
        lambda url, _: {"python": PYTHON, "method": "GET", "url": f"{url}/0", "many": 100, "size": 32 * MB},
    ),
    "100 proxied POSTs with 32 MB": _calls(
        "bodies",
        "^ALLOWED .*(413|ConnectionResetError)",
        lambda url, _: {"python": PYTHON, "method": "POST", "url": f"{url}/0", "many": 100, "size": 32 * MB},
    ),
    "eight fetches of 256 MiB": _calls(
        "fetches",
        "^ALLOWED .*LIMIT_HOST_MEMORY",
        lambda url, _: {"url": f"{url}/{256 * MB}", "many": 8, "size": 256 * MB},
    ),
    "30,000 chunks of one byte": _calls(
        "fetches", "^ALLOWED", lambda url, _: {"url": f"{url}/chunks/30000", "many": 1, "size": MB}
    ),
    "eight answers of 4,000 chunks": _calls(
        "fetches", "^ALLOWED", lambda url, _: {"url": f"{url}/chunks/4000", "many": 8, "size": MB}
    ),
    "100,000 interim answers": _calls(
        "fetches", "^ALLOWED .*CONNECT_FAILED", lambda url, _: {"url": f"{url}/hints/100000", "many": 8, "size": MB}
    ),
    "30,000 chunks of one byte to a program": _calls(
        "bodies",
        "^ALLOWED 200",
        lambda url, _: {"python": PYTHON, "method": "GET", "url": f"{url}/chunks/30000", "many": 1, "size": 0},
    ),
    "300,000 headers": _calls("headers", "^LIMIT_HEADERS", lambda url, _: {"url": f"{url}/0", "many": 300_000}),
    "names that no resolver answers": _calls("names", "^ALLOWED left", lambda *_: {"many": 40}),
    "a directory of 100,000 names": _calls("listing", "^LIMIT_SIZE", lambda _, place: {"path": str(place / "many")}),
    "arguments of 30 million values": _calls("arguments", "^INPUT_INVALID", lambda *_: {"items": _MANY}),
}
_MANY: list[Any] = [{}] * 30_000_000 if "arguments" in " ".join(sys.argv[1:]) else []


def measure(effort: Effort) -> list[Row]:
    """Two rows for each attack: how much longer the honest calls took, and how much the host grew."""
    if missing := probe.support().missing("restricted"):
        return [Row("floods", "an honest session", target=at_most(1), note=missing[0])]
    rows = []
    for name in ATTACKS:
        command = [sys.executable, "-m", "benchmarks.floods", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            rows.append(Row(name, "50 ms at p99", target=at_most(1), note=done.stderr.strip()[-200:]))
            continue
        stopped = re.search(ATTACKS[name][1], found["outcome"]) is not None
        note = "" if stopped else f"not stopped: {found['outcome'][:100]}"
        delay, growth = found["delay"], found["growth"]
        met = (delay / DELAY, growth / GROWTH) if stopped else (float("inf"), float("inf"))
        rows += [
            Row(name, "50 ms at p99", f"{delay * 1e3:.1f} ms", "50 ms", max(met[0], 0.0), at_most(1), note),
            Row(name, "128 MB of growth", f"{growth / MB:.0f} MB", "128 MB", max(met[1], 0.0), at_most(1)),
        ]
    return rows


# One host ------------------------------------------------------------------------------------------------------------


async def _host(name: str, place: Path, url: str) -> dict[str, Any]:
    attack, _ = ATTACKS[name]
    gate = _gate(place)
    port = int(url.rpartition(":")[2])
    tool, given = ("honest_fetch", {"port": port}) if name.startswith("names") else ("honest", {"a": 1, "b": 2})
    outcome = ""
    async with gate.session("honest") as session, gate.session("hostile") as hostile:
        await hostile.call(
            "fetches", {"url": f"{url}/1", "many": 1, "size": 10}
        )  # imports happen once, and count for no attack
        await _times(session, tool, given, 20)
        before = await _times(session, tool, given, BASELINE)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        small, during = _peak(), list[float]()
        while len(during) < ENOUGH:
            over = asyncio.Event()

            async def run(over: asyncio.Event = over) -> str:
                try:
                    return await attack(hostile, url, place)
                finally:
                    over.set()

            running = asyncio.ensure_future(run())
            during += await _times(session, tool, given, None, over)
            outcome = await running
            during += await _times(session, tool, given, 10)  # the memory that it did not release
        growth = _peak() - small
    return {"delay": _p99(during) - _p99(before), "growth": growth, "outcome": outcome, "calls": len(during)}


async def _times(
    session: Session, tool: str, given: dict[str, Any], many: int | None, over: asyncio.Event | None = None
) -> list[float]:
    times: list[float] = []
    while len(times) < many if many is not None else not (over and over.is_set()):
        began = time.perf_counter()
        (await session.call(tool, given)).unwrap()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(PACE)
    return times


def _p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def _peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) << 10 if found else 0


def _gate(place: Path) -> Gate:
    names = [tool.name for tool in flood_tools.TOOLS]
    rules = sorted({str(rule) for tool in flood_tools.TOOLS for rule in tool.needs})
    capabilities = {
        "tools": names,
        "native": ["arguments", "honest_fetch", "names"],
        "max_side_effect_class": "write_limited",
        "approvals": {"write": "manifest"},
        "grants": rules,
        "private": ["127.0.0.0/8"],
    }
    (place / "policy").mkdir()
    path = place / "policy" / "agent.yaml"
    path.write_text(json.dumps({"agent": "bench", "version": "1", "capabilities": capabilities}))
    (place / "a.txt").write_text("a")

    async def secrets(reference: str) -> str:
        return "s3cr3t-v4lue-9000"

    backends = Backends.local(place / "state", secrets=secrets)
    manifest = load_manifest(path)
    return Gate(manifest, flood_tools.TOOLS, backends, workdir=place, pin=manifest.digest)


@contextmanager
def _resolver() -> Iterator[None]:
    """A resolver that knows one name, and never answers for some."""
    real = socket.getaddrinfo

    def ask(host: str, port: Any, *args: Any, **kind: Any) -> Any:
        if str(host).endswith(".hangs.test"):
            time.sleep(20)
        return real("127.0.0.1" if host == "honest.test" else host, port, *args, **kind)

    socket.getaddrinfo = ask  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.getaddrinfo = real


def main() -> None:
    """Run one attack, and print what it cost."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))).resolve()
        (place / "many").mkdir()
        if sys.argv[1].startswith("a directory"):
            for number in range(100_000):
                os.mknod(place / "many" / f"name-{number}")
        url = stack.enter_context(serving(SERVER)).rpartition("/points")[0]
        stack.enter_context(_resolver())
        print(json.dumps(asyncio.run(_host(sys.argv[1], place, url))))


if __name__ == "__main__":
    main()
