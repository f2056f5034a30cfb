"""Memory twins of the ledger and the clock. The ledger keeps the same chains and checkpoints as the file.

A network in memory, behind the same port as the real one: names and sites that a test defines.
"""

import inspect
import json
import secrets
import threading
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.backends.secrets import SigningKey, generated_key
from licet.core.algebra.scope import is_address
from licet.core.decision.foreseen import on_this_machine
from licet.core.ledger.entry import (
    START,
    Checkpoint,
    Entry,
    LinkedEntry,
    Row,
    Tail,
    checkpoint_body,
    link,
    read_entry,
    recorded_at,
    time_text,
)
from licet.core.ledger.merkle import Frontier
from licet.guard.ports import Exchange, LedgerUnavailable, Reply, Unconnected, Unreached, Unresolved, free_after_fork

_AT_ONCE = 256  # leaves
MOST_ENTRIES = 20_000  # entries that one process keeps, because it may run for months


class SystemClock:
    """The time of this machine."""

    now = staticmethod(partial(datetime.now, UTC))  # the time of day, in UTC
    monotonic = staticmethod(monotonic)  # monotonic seconds


class MemoryClock:
    """A clock that moves only when `advance` is called."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start, self._passed = start, 0.0

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """A monotonic clock, in seconds."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._passed += seconds


class MemoryLedger:
    """The latest entries, linked as in a file, in this process. It is full after `quota` entries.

    It drops the oldest entry when it has `most`. The chain and the tree keep growing then, but the remaining entries
    cannot be verified from the beginning.
    """

    def __init__(
        self,
        quota: int | None = None,
        now: Callable[[], datetime] = SystemClock.now,
        ledger: str | None = None,
        most: int = MOST_ENTRIES,
    ) -> None:
        self.ledger = secrets.token_hex(16) if ledger is None else ledger
        self.rows: deque[Row] = deque(maxlen=most)
        self._quota, self._now = quota, now
        self._tails: dict[tuple[str, str], Tail] = {}  # the ends of the chains, by agent and session
        self._agents: dict[str, list[str]] = {}  # by session
        self._frontier = Frontier()
        self._leaves: list[bytes] = []  # of the rows since the tree grew: it grows by many at once
        self._recorded = ""
        self._key: SigningKey | None = None
        self._lock = free_after_fork(threading.Lock())  # several event loops, each in its thread, may share a ledger

    async def record(self, entry: Entry) -> None:
        """Store an entry."""
        session = entry.agent, entry.session
        with self._lock:
            number = self._frontier.size + len(self._leaves) + 1
            if self._quota is not None and number > self._quota:
                raise LedgerUnavailable("the ledger is full")
            recorded = recorded_at(self._now(), self._recorded)
            row = link(entry, self.ledger, number, self._tails.get(session, START), recorded)
            if session not in self._tails:
                self._agents.setdefault(entry.session, []).append(entry.agent)
            self._recorded, self._tails[session] = recorded, Tail(row.sequence, row.hash, number)
            self._leaves.append(row.hash)
            if len(self._leaves) == _AT_ONCE:
                self._grow()
            self.rows.append(row)

    def _grow(self) -> None:
        self._frontier.extend(self._leaves)
        self._leaves.clear()

    async def lengths_of(self, agent: str, session: str) -> Mapping[str, int]:
        """How many entries a session and its delegates have, by agent."""
        with self._lock:
            names = [name for name in self._agents.get(session, ()) if _is_of(name, agent)]
            return {name: self._tails[name, session].sequence for name in names}

    async def entries_of(self, agent: str, session: str, after: Mapping[str, int] | None = None) -> Sequence[Entry]:
        """The entries of a session and of its delegates, as far as they are kept."""
        known = after or {}
        with self._lock:
            rows = [row for row in self.rows if row.session == session and row.sequence > known.get(row.agent, 0)]
        return [read_entry(row.body) for row in rows if _is_of(row.agent, agent)]

    async def derived(self, purpose: bytes) -> bytes:
        """A secret for one purpose, from the key of this ledger."""
        return self._signer().derived(purpose)

    @property
    def entries(self) -> Sequence[LinkedEntry]:
        """The stored entries, the oldest first."""
        return [read_entry(row.body) for row in self.rows]

    @property
    def receipts(self) -> Sequence[LinkedEntry]:
        """The receipts among the entries, the oldest first."""
        return [entry for entry in self.entries if entry.kind == "receipt"]

    @property
    def key(self) -> str:
        """The public key that signs checkpoints."""
        return self._signer().public

    def checkpoints(self) -> Iterator[Checkpoint]:
        """One checkpoint over all entries so far."""
        with self._lock:
            self._grow()
        frontier, key = self._frontier, self._signer()
        body = checkpoint_body(self.ledger, frontier.size, frontier.root, time_text(self._now()), key.public)
        return iter([Checkpoint(frontier.size, body, key.sign(body))])

    def _signer(self) -> SigningKey:
        if self._key is None:
            self._key = generated_key()
        return self._key


def _is_of(name: str, agent: str) -> bool:
    return name == agent or name.startswith(f"{agent}>")


class Answer(Struct, frozen=True):
    """The answer of a site: `Answer.json({"rain": True})`, `Answer.text("rain")`, or its parts.

    A body may be an iterable of pieces. An exception that the iterable raises breaks the connection at that point.
    After an upgrade, status 101, `talk` is called with all that is sent, and what it returns comes back.
    """

    status: int = 200
    headers: Iterable[tuple[str, str]] = ()
    body: bytes | Iterable[bytes] = b""
    talk: Callable[[bytes], bytes] | None = None

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
        empty = exchange.method == "HEAD" or answer.status in (101, 204, 304)
        upgraded = _Talk(answer.talk) if answer.status == 101 and answer.talk is not None else None
        pieces = _pieces(b"" if empty else answer.body)
        yield Reply(answer.status, tuple(answer.headers), pieces, upgraded=upgraded)

    @asynccontextmanager
    async def send_streamed(
        self, exchange: Exchange, body: AsyncIterable[bytes], length: int | None
    ) -> AsyncGenerator[Reply]:
        """The same: the site is asked when the body is complete."""
        whole = b"".join([piece async for piece in body])
        if length is not None and len(whole) != length:
            raise Unconnected("the request cannot be sent as HTTP")
        async with self.send(replace(exchange, body=whole)) as reply:
            yield reply

    def upgrade(self, exchange: Exchange, protocol: str) -> AbstractAsyncContextManager[Reply]:
        """The same: the site finds the protocol in the header `upgrade`."""
        return self.send(replace(exchange, headers=(*exchange.headers, ("upgrade", protocol))))

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


class _Talk:
    """A connection after an upgrade, that a function answers. It ends when the function has nothing to say."""

    def __init__(self, talk: Callable[[bytes], bytes]) -> None:
        from asyncio import Queue  # who reads policy alone imports this module, and needs no event loop

        self._talk = talk
        self._said: Queue[bytes] = Queue()

    async def read(self) -> bytes:
        """What the function returned."""
        return await self._said.get()

    async def write(self, data: bytes) -> None:
        """Call the function."""
        self._said.put_nowait(self._talk(data))


async def _pieces(body: bytes | Iterable[bytes]) -> AsyncIterator[bytes]:
    try:
        for piece in (body,) if isinstance(body, bytes) else body:
            if piece:
                yield piece
    except Exception as wrong:
        raise Unconnected("the connection broke") from wrong
