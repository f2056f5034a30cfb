"""`ctx.fetch` over real connections: TLS with an authority of our own, HTTP/1.1 and HTTP/2, many at once."""

import asyncio
import gc
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from effort import LONG
from guard.grants import grant
from licet.backends.http import HttpClient
from licet.backends.memory import Answer
from licet.errors import Refused
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.ports import Exchange
from loopback import Server, authority_file, serving

LARGE = bytes(range(256)) * (5 * 4096)  # 5 MiB


def site(asked: Exchange) -> Answer:
    """A small service that speaks JSON."""
    path = "/" + asked.url.partition("://")[2].partition("/")[2]
    match path:
        case "/moved":
            return Answer(307, [("Location", "/echo")])
        case "/large":
            return Answer(200, [("Content-Encoding", "gzip")], gzip.compress(LARGE, 1))
        case "/pieces":
            return Answer(200, (), [b"x" * 1000] * 100)
        case _:
            told = {"method": asked.method, "body": asked.body.decode(), "key": dict(asked.headers).get("x-key")}
            return Answer(200, [("Content-Type", "application/json")], json.dumps(told).encode())


class Service:
    """A server, and handles of calls that may use it."""

    def __init__(self, server: Server, authority: str, host: str) -> None:
        self.server = server
        self.url = f"https://{host}:{server.port}"
        self.client = HttpClient(ca_file=authority)

    def fetch(self) -> ScopedFetch:
        return ScopedFetch(grant(["network:https:localhost"], private=["127.0.0.0/8", "::1/128"]), self.client)


@pytest.fixture(params=[False, True], ids=["HTTP/1.1", "HTTP/2"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with serving(site, names=("localhost",), http2=request.param) as server:
        yield Service(server, authority_file(tmp_path), "localhost")


def test_json_goes_there_and_back(service: Service) -> None:
    async def work() -> None:
        for path in ("/echo", "/moved"):
            reply = await service.fetch()(f"{service.url}{path}", "POST", json={"a": "ü"}, headers={"X-Key": "k"})
            assert (reply.status, reply.url) == (200, f"{service.url}/echo")
            assert reply.json() == {"method": "POST", "body": '{"a":"ü"}', "key": "k"}
        assert service.server.connections == 1

    asyncio.run(work())


def test_large_compressed_and_chunked_bodies_are_received(service: Service) -> None:
    async def work() -> None:
        assert (await service.fetch()(f"{service.url}/large")).content == LARGE
        async with service.fetch().stream(f"{service.url}/pieces") as answer:
            assert b"".join([piece async for piece in answer]) == b"x" * 100_000
        with pytest.raises(Refused, match="LIMIT_SIZE"):
            await service.fetch()(f"{service.url}/large", max_bytes=len(LARGE) - 1)
        assert (await service.fetch()(f"{service.url}/echo")).ok

    asyncio.run(work())


MANY = 200 if LONG else 50


def test_many_at_once_do_not_mix(service: Service) -> None:
    async def one(number: int) -> Any:
        return (await service.fetch()(f"{service.url}/echo", "POST", body=str(number))).json()["body"]

    async def work() -> None:
        assert await asyncio.gather(*map(one, range(MANY))) == [str(number) for number in range(MANY)]

    asyncio.run(work())


@pytest.mark.parametrize("seconds", [0.001, 0.005, 0.02])
@pytest.mark.sampled(1)
def test_a_cancelled_request_affects_no_other_and_leaves_no_connection_open(service: Service, seconds: float) -> None:
    async def work() -> None:
        tasks = [asyncio.create_task(service.fetch()(f"{service.url}/large")) for _ in range(6)]
        await asyncio.sleep(seconds)
        for task in tasks[::2]:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [one.content == LARGE if not isinstance(one, BaseException) else one for one in ended[1::2]] == [
            True
        ] * 3
        assert (await service.fetch()(f"{service.url}/echo")).ok

    asyncio.run(work())
    gc.collect()  # what was left open would complain now
