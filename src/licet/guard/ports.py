"""When a file that is written in a thread may take its place: as long as somebody waits for it.

The ports: what the straight path of a call asks of the world.

Each has a memory twin and, sooner or later, a real backend; one contract suite holds both. Nothing is decided behind a
port: whoever stands there acts on what was checked, and reports what it really touched.
"""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

from licet.core.decision.budget import Spent
from licet.core.decision.decision import Usage
from licet.core.policy.manifest import Budget
from licet.declare.context import Json
from licet.guard.execution import Processes, Sandbox
from licet.guard.people import Approver, ApproverFunction
from licet.values import dataclass, fields

Turn = AbstractContextManager[object]
ANY_TIME: Turn = nullcontext()


class GivenUp(Exception):
    """The turn of a write is over before it came."""


class Waiting:
    """A turn until it is given up. Taking it and giving it up exclude each other: either comes first."""

    __slots__ = ("_given_up", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False

    def give_up(self) -> None:
        """From now on, nothing takes its place; what is doing so this moment is waited for."""
        with self._lock:
            self._given_up = True

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._given_up:
            self._lock.release()
            raise GivenUp

    def __exit__(self, *error: object) -> None:
        self._lock.release()


# Files ---------------------------------------------------------------------------------------------------------------


class Escaped(Exception):
    """A path led outside what is held: through a link, a race, or to something that is no file or directory."""


class Held(Protocol):
    """What a call holds of the file system, as a files backend needs to know it."""

    def root(self, action: str, path: str) -> str:
        """The outermost directory or file that is held and contains a path; links may not lead out of it."""

    def covers(self, action: str, path: str) -> bool:
        """Whether a path, as it turned out to be, is held."""

    def covers_tree(self, action: str, path: str) -> bool:
        """Whether a path and everything below it is held."""

    def overlaps(self, action: str, path: str) -> bool:
        """Whether anything at a path or below it is held."""

    def denied(self, action: str) -> tuple[str, ...]:
        """The paths that denies name; the same tuple each time, so that a backend can remember what it found there."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known about a file or directory."""

    kind: Literal["file", "directory"]
    size: int
    modified: float
    mode: int


class Files(Protocol):
    """Files that a call holds. Paths are absolute and clean; `OSError` is the system's no, `Escaped` is ours.

    A backend that writes no files of this machine says so with `in_memory = True`, and so do programs in memory.
    """

    def pin(self, roots: Iterable[str], writable: Callable[[str], bool]) -> None:
        """Remember where the roots of grants really are, before any tool can put a link in their place.

        `writable` tells whether a tool may write in a directory: a link there may be one that it put there earlier.
        """

    def open(self, path: str, mode: str, held: Held) -> BinaryIO:
        """A regular file, opened as what was checked: `rb`, `wb`, `ab`, `xb` or `r+b`."""

    def write(self, path: str, data: bytes, held: Held, turn: Turn = ANY_TIME) -> None:
        """Put data in the place of a file, in its turn: all of it, or nothing."""

    def stat(self, path: str, held: Held) -> Stat:
        """What a path is; `FileNotFoundError` if it is nothing."""

    def list(self, path: str, held: Held) -> list[str]:
        """The names in a directory that are held too, sorted."""

    def mkdir(self, path: str, held: Held) -> None:
        """Make a directory, and its parents as far as they are held; one that is there already is fine."""

    def delete(self, path: str, held: Held) -> None:
        """Remove a file or an empty directory."""

    def rename(self, source: str, target: str, held: Held) -> None:
        """Move a file or a directory; what stood at the target is replaced, as the system does it."""


# Network -------------------------------------------------------------------------------------------------------------


class Unresolved(Exception):
    """A name that no resolver knows, or that could not be asked about."""


class Unconnected(Exception):
    """A connection that could not be made or broke: what went wrong, in a few words."""


class Unreached(Unconnected):
    """A connection that was never made: nothing was sent, so another address may be tried."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request as it is sent: the canonical URL, and the checked address that the connection goes to."""

    method: str
    url: str
    host: str
    port: int
    address: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout: float  # for each wait: connecting, sending, the next bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of an answer, and its body as it comes, still encoded as it was sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: AsyncIterator[bytes]
    http_version: str = "HTTP/1.1"


# The session that a name is looked up for. A resolver that can hang may use it to keep the lookups of one session from
# taking the threads of all others.
LOOKED_UP_FOR: ContextVar[str] = ContextVar("LOOKED_UP_FOR", default="")


class Http(Protocol):
    """The network: names to addresses, and requests to addresses. It follows nothing and remembers no cookies."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Every address of a name, as text; `Unresolved` if there is none."""

    def send(self, exchange: Exchange) -> AbstractAsyncContextManager[Reply]:
        """Send a request to its address, with its host for TLS; `Unconnected` if that fails."""

    async def close(self) -> None:
        """Close idle connections."""


# Secrets, environment, storage ---------------------------------------------------------------------------------------


class Unavailable(Exception):
    """A store that cannot be used as it is: what is wrong with it, and how to mend it, for the operator."""


class TooLarge(ValueError):
    """A value that a store does not take: it is too large, or the store would be with it."""


class Secrets(Protocol):
    """Where secret values are kept."""

    async def get(self, reference: str) -> str | None:
        """The value of a secret, or None if it is not known here."""


SecretsFunction = Callable[[str], Awaitable[str | None]]


class Kv(Protocol):
    """Small values under keys, in scopes that the framework names; a scope takes so much, and no more."""

    async def get(self, scope: str, key: str) -> Json:
        """The value under a key, or None."""

    async def set(self, scope: str, key: str, value: Json, ttl_seconds: int | None = None) -> None:
        """Keep a value that JSON can carry, for some seconds or for ever; `TooLarge` if it does not fit."""

    async def delete(self, scope: str, key: str) -> bool:
        """Forget a key; whether it was there."""

    async def list(self, scope: str, prefix: str = "") -> Sequence[str]:
        """The keys that begin with exactly this prefix, sorted."""

    async def clear(self, scope: str) -> None:
        """Forget a whole scope."""


# Records, money, people, time ----------------------------------------------------------------------------------------


class LedgerUnavailable(Exception):
    """The ledger could not keep an entry."""


class Entry(NamedTuple):
    """One thing that the ledger keeps: a decision before its call runs, or a receipt after it."""

    kind: Literal["decision", "receipt"]
    id: str
    agent: str
    session: str
    tool: str
    manifest: str  # its digest
    time: datetime
    content: Any  # what the call is held to, or its result; the ledger writes down what it says
    call: Any = None  # the call, for a ledger that has `keeps_facts = True`: it may look, and must not keep it


class Ledger(Protocol):
    """What happened, in order. No ledger, no call."""

    async def record(self, entry: Entry) -> None:
        """Keep an entry; when this returns it is kept. `LedgerUnavailable` if it is not."""


class Claim(NamedTuple):
    """What a call wants to spend, and the limits that hold for it."""

    agent: str
    session: str
    tool: str
    day: str
    cost_usd: Decimal
    budget: Budget
    max_calls: int | None  # of this tool in a session, and so is the next
    max_cost_usd: Decimal | None


class Reservation(NamedTuple):
    """Money and calls set aside before anything happens, and what had been spent until then."""

    id: str
    claim: Claim
    before: Spent


class Budgets(Protocol):
    """What has been spent. Reserving is atomic: limits hold under any concurrency.

    A store that cannot be read or written raises `Unavailable`. What is never settled counts as it was reserved.
    A bundle that has a budget is an account of its own, whose `agent` is `AGENT bundle NAME`.
    """

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved."""

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Set aside one call and its cost, or None if a limit would be passed."""

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Turn a reservation into what was really spent, once; `ValueError` for more than was set aside."""

    async def refund(self, reservation: Reservation) -> None:
        """Give a reservation back, once: nothing happened."""


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """The time of day, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only ever grow."""


# Rules on arguments: a function that is given a tool's rules and gives one that says what is wrong with its arguments.
ArgumentRules = Callable[[Mapping[str, Any]], Callable[[Mapping[str, Any]], str]]


# All of them ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ports:
    """Every part a call may need; a tool that needs one that is None is refused."""

    files: Files | None = None
    http: Http | None = None
    secrets: Secrets | SecretsFunction | None = None
    kv: Kv | None = None
    processes: Processes | None = None
    environ: Mapping[str, str] | None = None
    ledger: Ledger | None = None
    budgets: Budgets | None = None
    approver: Approver | ApproverFunction | None = None
    sandbox: Sandbox | None = None
    clock: Clock | None = None
    argument_rules: ArgumentRules | None = None
    state: tuple[str, ...] = ()  # where the parts keep their own files: no grant ever reaches them

    def __repr__(self) -> str:
        # By their names alone: the environment is one of them, and it is full of secrets.
        given = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "state"}
        parts = ", ".join(f"{name}={type(part).__name__}" for name, part in given.items() if part is not None)
        return f"{type(self).__name__}({parts})"

    @property
    def empty(self) -> bool:
        """Whether nothing stands behind any capability."""
        parts = (self.files, self.http, self.secrets, self.kv, self.processes, self.environ)
        return all(part is None for part in parts)
