"""Names that lead where an attacker wants, a client that goes there, and the handle that does not."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

import httpcore2
import httpx2

from guard.grants import grant
from licet.backends.http import HttpClient
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.handles.messages import Response
from licet.ports import Exchange
from licet.testing import Answer

SECRET = b"what the inner network keeps"


class Names:
    """A resolver that an attacker holds: each name has answers for one question after another, the last for ever."""

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self.answers = {name: list(map(list, answers)) for name, answers in names.items()}
        self.asked: list[str] = []

    def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        answers = self.answers[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]


class NamedClient(HttpClient):
    """The real network, with that resolver."""

    def __init__(self, names: Names, **given: Any) -> None:
        super().__init__(**given)
        self.names = names

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return self.names(host) if host in self.names.answers else await super().resolve(host, port)


class _Resolving(httpcore2.AnyIOBackend):
    def __init__(self, names: Names) -> None:
        self.names = names

    async def connect_tcp(self, host: str, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        address = self.names(host)[0] if host in self.names.answers else host
        return await super().connect_tcp(address, *args, **kwargs)


def unguarded(names: Names | None = None) -> httpx2.AsyncClient:
    """A client as tools use it: it resolves when it connects, and follows redirects."""
    transport = httpx2.AsyncHTTPTransport()
    transport._pool = httpcore2.AsyncConnectionPool(network_backend=_Resolving(names or Names({})))
    return httpx2.AsyncClient(transport=transport, follow_redirects=True)


def reached(url: str, names: Names | None = None, method: str = "GET", **given: Any) -> bytes:
    """What an unguarded client brings back."""

    async def work() -> bytes:
        async with unguarded(names) as client:
            return (await client.request(method, url, **given)).content

    return asyncio.run(work())


def fetching(names: Names | None, *rules: str, private: Iterable[str] = (), **given: Any) -> ScopedFetch:
    """The handle of a call that holds some rules, which the manifest writes too."""
    return ScopedFetch(grant(rules, private=private, **given), NamedClient(names or Names({})))


def answer(act: Awaitable[Response]) -> Response:
    """What the handle brings back."""

    async def work() -> Response:
        return await act

    return asyncio.run(work())


def inner(_: Exchange) -> Answer:
    """A site that nobody outside should see."""
    return Answer(200, (), SECRET)
