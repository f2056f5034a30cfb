"""A body that the server does not read, and takes for the next request on the connection, or for its beginning."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from attacks.granted import agree, refused
from attacks.nets import NamedClient, Names, fetching
from guard.grants import grant
from licet.guard.handles.fetch import ScopedFetch

HALF = b"POST /admin HTTP/1.1\r\nHost: inner.test\r\nX-Rest: "  # the next request on the connection completes it
READING = ["GET", "HEAD", "OPTIONS"]
UNDEFINED = ["DELETE", "PROPFIND", "QUERY"]


class Site:
    """A server that keeps connections open and never reads a body, as handlers of `http.server` do by default."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, str, str | None]] = []  # method, path, whose credential


@contextmanager
def unread_bodies() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            site.seen.append((self.command, self.path, self.headers.get("X-Key")))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    for method in (*READING, *UNDEFINED, "POST"):
        setattr(Handler, f"do_{method}", Handler.answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        site.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join(5)


def test_an_unguarded_client_lets_one_user_write_the_request_of_another() -> None:
    async def work() -> None:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{site.port}") as client:
            await client.request("GET", "/innocent", content=HALF)
            await client.get("/other", headers={"X-Key": "of somebody else"})

    with unread_bodies() as site:
        asyncio.run(work())
    assert site.seen == [("GET", "/innocent", None), ("POST", "/admin", "of somebody else")]


@pytest.mark.parametrize("method", [*READING, "get", "Options"])
@pytest.mark.parametrize("given", [{"body": HALF}, {"json": "POST /admin HTTP/1.1"}], ids=["body", "json"])
def test_a_request_that_reads_has_no_body(method: str, given: dict[str, Any]) -> None:
    with unread_bodies() as site:
        url = f"http://127.0.0.1:{site.port}/innocent"
        fetch = fetching(None, "network:*:127.0.0.1")
        assert refused(fetch(url, method, **given)) == "INPUT_INVALID"
        assert f"{method.upper()} has no body" in fetch._grant.events[-1].rule
    assert site.seen == []


@pytest.mark.parametrize("method", READING)
def test_an_empty_body_is_none(method: str) -> None:
    with unread_bodies() as site:
        url = f"http://127.0.0.1:{site.port}/innocent"

        async def work() -> int:
            return (await fetching(None, "network:*:127.0.0.1")(url, method, body=b"")).status

        assert asyncio.run(work()) == 204


@pytest.mark.parametrize("method", UNDEFINED)
def test_nothing_follows_a_body_that_servers_may_leave_unread(method: str) -> None:
    async def work() -> None:
        await mine(f"{origin}/innocent", method, body=HALF)
        await other(f"{origin}/other", headers={"X-Key": "of somebody else"})

    with unread_bodies() as site:
        origin, client = f"http://127.0.0.1:{site.port}", NamedClient(Names({}))
        mine, other = (
            ScopedFetch(grant(["network:*:127.0.0.1"], effect="destructive", ask=agree), client) for _ in range(2)
        )
        asyncio.run(work())
    assert site.seen == [(method, "/innocent", None), ("GET", "/other", "of somebody else")]


@pytest.mark.parametrize("method", UNDEFINED)
def test_a_whole_request_in_such_a_body_is_not_answered(method: str) -> None:
    with unread_bodies() as site:
        held = grant(["network:*:127.0.0.1"], effect="destructive", ask=agree)
        fetch = ScopedFetch(held, NamedClient(Names({})))

        async def work() -> None:
            await fetch(f"http://127.0.0.1:{site.port}/innocent", method, body=b"POST /admin HTTP/1.1\r\n\r\n")

        asyncio.run(work())
    assert site.seen == [(method, "/innocent", None)]
