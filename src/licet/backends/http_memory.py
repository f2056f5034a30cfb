"""A network in memory, behind the same port as the real one: names and sites that a test defines."""

import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import is_address
from licet.core.decision.foreseen import on_this_machine
from licet.guard.ports import Exchange, Reply, Unconnected, Unreached, Unresolved


class Answer(Struct, frozen=True):
    """The answer of a site: `Answer.json({"rain": True})`, `Answer.text("rain")`, or its parts.

    A body may be an iterable of pieces. An exception that the iterable raises breaks the connection at that point.
    """

    status: int = 200
    headers: Iterable[tuple[str, str]] = ()
    body: bytes | Iterable[bytes] = b""

    @classmethod
    def json(cls, value: Any, status: int = 200) -> "Answer":
        """An answer with a JSON body."""
        return cls(status, (("content-type", "application/json"),), json.dumps(value).encode())

    @classmethod
    def text(cls, text: str, status: int = 200) -> "Answer":
        """An answer with a plain text body, in UTF-8."""
        return cls(status, (("content-type", "text/plain; charset=utf-8"),), text.encode())


Site = Callable[[Exchange], Answer | Awaitable[Answer]]
Routes = Site | Mapping[str, Answer | Site]
Names = Callable[[str], Sequence[str]] | Mapping[str, Sequence[str]]


PUBLIC_ADDRESS = "93.184.216.34"  # that names resolve to by default in tests


def everywhere(host: str) -> Sequence[str]:
    """An address for every name: a public one, or that of this machine."""
    return ("127.0.0.1", "::1") if on_this_machine(host) else (PUBLIC_ADDRESS,)


class MemoryHttp:
    """Sites by canonical URL, or one function for all of them; `sent` keeps the requests."""

    def __init__(self, routes: Routes, names: Names | None = None) -> None:
        for url, found in () if callable(routes) else routes.items():
            if not isinstance(found, Answer) and not callable(found):
                raise TypeError(f"expected an `Answer` or a function for {url}, found a {type(found).__name__}")
            if "://" not in url:
                raise TypeError(f"expected a URL with its scheme, such as `https://{url}`, found `{url}`")
        self._routes = routes
        self._names: Names = names if names is not None else {}
        self.sent: list[Exchange] = []
        self.resolved: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a name; an address resolves to itself."""
        if is_address(host):
            return (host.strip("[]"),)
        self.resolved.append(host)
        found = self._names(host) if callable(self._names) else self._names.get(host, ())
        if not found:
            raise Unresolved("no resolver knows the name")
        return tuple(found)

    @asynccontextmanager
    async def send(self, exchange: Exchange) -> AsyncGenerator[Reply]:
        """Send the request to the site at its URL."""
        site = self._routes if callable(self._routes) else self._routes.get(exchange.url)
        if site is None:
            known = ", ".join(self._routes) if not callable(self._routes) else ""
            raise Unreached(f"connection refused: the test has no answer for this URL, only for {known or 'none'}")
        self.sent.append(exchange)
        found = site(exchange) if callable(site) else site
        answer = await found if inspect.isawaitable(found) else found
        empty = exchange.method == "HEAD" or answer.status in (204, 304)
        yield Reply(answer.status, tuple(answer.headers), _pieces(b"" if empty else answer.body))

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


async def _pieces(body: bytes | Iterable[bytes]) -> AsyncIterator[bytes]:
    try:
        for piece in (body,) if isinstance(body, bytes) else body:
            if piece:
                yield piece
    except Exception as wrong:
        raise Unconnected("the connection broke") from wrong
