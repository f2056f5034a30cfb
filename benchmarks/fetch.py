"""The overhead of `ctx.fetch`: the same small page over a kept connection, compared with a bare httpx2 client.

The server is a separate process, so that only the client is timed. The URL has an address: licet resolves a name again
for each request, by design, and a bare client on a kept connection never does.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import Contestant, Effort, Row, at_most, race, versus_floor

__all__ = ["measure"]

TARGET = at_most(1.25)
BODY = b'{"city": "oslo", "forecast": "rain"}' * 8

SERVER = f"""
import asyncio
body = {BODY!r}
answer = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body) + body
class Page(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(answer * data.count(b"\\r\\n\\r\\n"))
async def main():
    server = await asyncio.get_running_loop().create_server(Page, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextmanager
def serving(program: str) -> Iterator[str]:
    """Serve a page from another process, which first prints its port."""
    server = subprocess.Popen([sys.executable, "-I", "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/points/oslo"
    finally:
        server.kill()
        server.wait()


def measure(effort: Effort) -> list[Row]:
    """One row: a small page over a kept connection."""
    import httpx2

    loop = asyncio.new_event_loop()
    wait = loop.run_until_complete
    with serving(SERVER) as url:
        bare = httpx2.AsyncClient(trust_env=False)
        fetch, network = _fetch()
        questions = [url] * 20
        contestants = [
            Contestant("httpx2", lambda asked: wait(bare.get(asked)), questions, _read),
            Contestant("licet", lambda asked: wait(fetch(asked)), questions, _read),
        ]
        times = race(contestants, [(200, BODY)] * len(questions), effort)
        wait(bare.aclose())
        wait(network.close())
        loop.close()
    return [
        versus_floor("fetch a page, kept connection", "httpx2 AsyncClient", times["licet"], times["httpx2"], TARGET)
    ]


def _read(response: Any) -> tuple[int, bytes]:
    return getattr(response, "status", 0) or response.status_code, response.content


def _fetch() -> tuple[Any, Any]:
    from tempfile import TemporaryDirectory

    from licet import load_manifest
    from licet.backends.http import HttpClient
    from licet.core.decision.reach import Reach, reach_of
    from licet.core.decision.request import Request
    from licet.guard.grant import Grant
    from licet.guard.handles.fetch import ScopedFetch

    with TemporaryDirectory() as place:
        path = f"{place}/agent.yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(_MANIFEST)
        manifest = load_manifest(path).expand(place, place)
    reach = reach_of(manifest, "look")
    assert reach is not None

    async def nobody(*_: Any) -> None:
        raise AssertionError("nobody is asked about a GET")

    digest, network = manifest.digest, HttpClient()

    def fetch(url: str, reach: Reach = reach) -> Any:
        return ScopedFetch(Grant(Request("look"), reach, digest, (), nobody), network)(url)  # one per call

    return fetch, network


_MANIFEST = """
agent: bench
tools: {look: {needs: ["network:*:127.0.0.1"], effect: read_only, sandbox: restricted}}
capabilities:
  tools: [look]
  destinations: {allow: ["127.0.0.1"]}
"""
