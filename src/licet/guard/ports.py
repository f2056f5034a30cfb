"""The ports: protocols of the backends that a call uses. Each has a real backend and a memory twin, with shared tests.

A backend decides nothing: the grant was checked before it is called. `execution` has the ports that run code, `people`
has the approver.

The approver port: the question, the answer, and the agreement that a call keeps.

Locks that are free in a forked child: the thread of the parent that held one does not exist there.
"""

import inspect
import os
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from typing import Any, BinaryIO, Literal, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from licet.core.algebra.rules import Capability
from licet.core.decision.request import Approval, Ground, Spent, Usage
from licet.core.ledger.entry import Entry
from licet.core.ledger.state_acts import StateAct, StateView
from licet.core.policy.terms import Approvals, Budget, StandingApproval
from licet.core.policy.tool import ToolSpec
from licet.declare.context import Json
from licet.guard.execution import Processes, Sandbox


class Question(Struct, frozen=True):
    """The question to an approver: the exact call, and what it could reach."""

    approval: Approval
    spec: ToolSpec
    arguments: Mapping[str, Any]  # as JSON data; arguments whose type is more than JSON are as they were sent
    stakes: tuple[Capability, ...]
    why: str
    expires_seconds: int
    agent: str = ""
    effect: str = ""  # the class of the call
    workdir: str = ""
    since: float = 0.0  # time of day; an answer to an earlier question does not count
    quorum: int = 1
    keys: tuple[str, ...] | None = None  # whose signatures count; None: no signature is needed
    names: Mapping[str, str] = {}  # the owners of `keys`, where the policy names them
    acts: tuple[str, ...] = ()  # deletes that the call is known to make; an approval covers these too
    deletes: tuple[str, ...] = ()  # rules of deletes of files: these do not ask again after an approval
    rules: tuple[Ground, ...] = ()  # what `why` says, with the lines of the policy and the edits that would settle it
    unmet: tuple[str, ...] = ()  # of each value that meets no rule of flow: the value, its origins, where it stands
    optional: bool = False  # without an answer the call runs with less: nobody is asked who did not want to be

    @property
    def signed(self) -> bool:
        """Whether only signatures count as an answer."""
        return self.quorum > 1 or self.keys is not None


Answer = Literal["approved", "denied", "expired", "absent"]


class Answered(Struct, frozen=True):
    """An answer with details; the plain word is enough if there are none."""

    answer: Answer
    by: tuple[str, ...] = ()  # public keys, `terminal` or `command`
    request: str = ""  # the id of the stored request
    note: str = ""  # for the operator
    fix: str = ""  # the command that would answer it
    first_only: bool = False  # the approval was for an earlier call: `Question.acts` of this one are asked about again
    asks_again: bool = (
        False  # the session must not remember the approval: it is for one call, or stored by the approver
    )
    to_use: bool = False  # the approval of `request` is not used up yet: `Opening.open` does it


ASKED_IN_AGENT = "asked in the agent"  # who answered, if a coding agent asks in its own prompt: licet sees no answer


class Agreement(Struct, frozen=True):
    """An approval and who gave it, for the receipt."""

    approval: Approval
    by: tuple[str, ...]
    request: str = ""  # the id of the stored request, or of the standing approval, if there is one
    standing: bool = False  # whether a standing approval covers the deletes of this call


@runtime_checkable
class Approver(Protocol):
    """Asks a person, or answers for one. With `verifies = True` it checks signatures against `Question.keys`.

    A call is one question. The deletes that its arguments foresee are in `Question.acts`; a yes covers these too.
    """

    async def ask(self, question: Question) -> Answer | Answered:
        """The answer, or `absent` if there is none yet."""


class NotStanding(Exception):
    """A standing approval that does not count. The text says why."""


class StandingApprovals(Protocol):
    """The standing approvals of deletes on this machine, which people give in `licet trust`."""

    def find(self, id: str | None, manifest: str, approvals: Approvals) -> StandingApproval:  # noqa: A002
        """The approval with this id for the policy with this digest; without an id, the one that lasts longest.

        Everything is checked again: policy, machine, time, signatures, and the ledger. Raises `NotStanding`.
        """

    def stands(self, approval: StandingApproval) -> bool:
        """Whether an approval that was found has neither ended nor been withdrawn. For each delete, so it is quick."""


# An ordinary function is called in a thread, since it may wait for a person.
ApproverFunction = Callable[[Question], Awaitable[Answer | Answered] | Answer | Answered]


async def answer_of(approver: Approver | ApproverFunction, question: Question) -> Answer | Answered:
    """Ask an approver: an object with `ask`, or a function. What is not async runs in a thread."""
    ask: Any = approver.ask if isinstance(approver, Approver) else approver
    is_async = inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(getattr(ask, "__call__", None))  # noqa: B004
    import asyncio  # reviews of policy import this module, and need no event loop

    found = ask(question) if is_async else await asyncio.to_thread(ask, question)
    answer: Answer | Answered = await found if inspect.isawaitable(found) else found
    return answer


Turn = AbstractContextManager[object]  # the lock under which a new file replaces the old one
ANY_TIME: Turn = nullcontext()


class GivenUp(Exception):
    """A write was cancelled before its file replaced the old one."""


class Waiting:
    """Lets a cancelled call stop a background write before the new file replaces the old one.

    The thread that writes enters this as its `turn`; `GivenUp` is raised there after `give_up`, or if the call is over.
    """

    __slots__ = ("_given_up", "_is_over", "_lock")

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        self._is_over = is_over

    def give_up(self) -> None:
        """Stop the write. If the file is being replaced right now, wait until that is done."""
        with self._lock:
            self._given_up = True

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._given_up or self._is_over():
            self._lock.release()
            raise GivenUp

    def __exit__(self, *error: object) -> None:
        self._lock.release()


# Files ---------------------------------------------------------------------------------------------------------------


class Escaped(Exception):
    """A path led outside the grant: through a link, a race, or to something other than a file or directory."""


class Held(Protocol):
    """The grant of a call for files, as a files backend needs it."""

    def root(self, action: str, path: str) -> str:
        """The outermost granted directory or file that contains a path; links may not lead out of it."""

    def covers(self, action: str, path: str) -> bool:
        """Whether a resolved path is granted."""

    def covers_tree(self, action: str, path: str) -> bool:
        """Whether a path and everything below it is granted."""

    def overlaps(self, action: str, path: str) -> bool:
        """Whether anything at a path or below it is granted."""

    def denied(self, action: str) -> tuple[str, ...]:
        """The denied paths; always the same tuple, so that a backend can cache by it."""


class Stat(Struct, frozen=True):
    """The status of a file or directory."""

    kind: Literal["file", "directory"]
    size: int
    modified: float
    mode: int


class Files(Protocol):
    """Files. Paths are absolute and normalised. `OSError` is an error of the system, `Escaped` a refusal.

    A backend that writes no files of this machine has `in_memory = True`, and so have programs in memory.
    """

    def pin(self, roots: Iterable[str], writable: Callable[[str], bool]) -> None:
        """Resolve the roots of grants, before any tool can replace one by a link.

        `writable` returns whether a tool may write in a directory: it may have put a link there earlier.
        """

    def open(self, path: str, mode: str, held: Held) -> BinaryIO:
        """Open the regular file that was checked, with mode `rb`, `wb`, `ab`, `xb` or `r+b`."""

    def write(self, path: str, data: bytes, held: Held, turn: Turn = ANY_TIME) -> None:
        """Replace a file atomically, while holding the write lock `turn`."""

    def stat(self, path: str, held: Held) -> Stat:
        """The status of a path, or `FileNotFoundError`."""

    def list(self, path: str, held: Held) -> list[str]:
        """The granted names in a directory, sorted."""

    def mkdir(self, path: str, held: Held) -> None:
        """Make a directory, and its granted parents; an existing one is fine."""

    def delete(self, path: str, held: Held) -> None:
        """Remove a file or an empty directory."""

    def rename(self, source: str, target: str, held: Held) -> None:
        """Move a file or a directory; the target is replaced, as by the system."""


# Network -------------------------------------------------------------------------------------------------------------


class Unresolved(Exception):
    """A name could not be resolved."""


class Unconnected(Exception):
    """A connection could not be made, or broke; the text says why."""


class Unreached(Unconnected):
    """A connection was never made. Nothing was sent, so another address may be tried."""


class Exchange(Struct, frozen=True):
    """One request as it is sent: the canonical URL, and the checked address that the connection goes to."""

    method: str
    url: str
    host: str
    port: int
    address: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout: float  # for each wait: connecting, sending, the next bytes


class Upgraded(Protocol):
    """A connection after an upgrade: bytes of any kind, both ways."""

    async def read(self) -> bytes:
        """Some bytes, or none at the end; `Unconnected` if the connection broke."""

    async def write(self, data: bytes) -> None:
        """Write bytes; returns when more can be taken."""


class Reply(Struct, frozen=True):
    """The status and headers of an answer, and its body while it is received, still compressed."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: AsyncIterator[bytes]
    http_version: str = "HTTP/1.1"
    upgraded: Upgraded | None = None  # if the server agreed to an upgrade


# The session that a name is resolved for. A resolver may use it to limit the threads that one session can block.
LOOKED_UP_FOR: ContextVar[str] = ContextVar("LOOKED_UP_FOR", default="")


class Http(Protocol):
    """The network: resolves names, and sends requests to addresses. It follows no redirects and keeps no cookies."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Every address of a name, as text; `Unresolved` if there is none."""

    def send(self, exchange: Exchange) -> AbstractAsyncContextManager[Reply]:
        """Send a request to its address, with its host for TLS; `Unconnected` if that fails."""

    async def close(self) -> None:
        """Close idle connections."""


@runtime_checkable
class StreamingHttp(Http, Protocol):
    """A network that also sends bodies while they arrive, and upgrades connections. Inspected programs need it."""

    def send_streamed(
        self, exchange: Exchange, body: AsyncIterable[bytes], length: int | None
    ) -> AbstractAsyncContextManager[Reply]:
        """As `send`, with a body in pieces, of this length or of one that is not known yet.

        `Exchange.body` is empty. An error that `body` raises comes out as it is, and the server gets no complete
        request. The pieces are asked for once, after the connection was made: so `Unreached` has used none up.
        """

    def upgrade(self, exchange: Exchange, protocol: str) -> AbstractAsyncContextManager[Reply]:
        """As `send`, and ask for another protocol on the connection: the answer has `upgraded` if its status is 101."""


# Secrets, environment, storage ---------------------------------------------------------------------------------------


class Unavailable(Exception):
    """A store cannot be used; the text tells the operator why, and how to fix it."""


class Ended(Unavailable):
    """A scope of a store takes no more values, because its session has ended."""


ENDED = "licet:ended"  # the scope that lists ended sessions and their scopes; no tool can name it


class TooLarge(ValueError):
    """A value is too large, or would make its store too large."""


class Secrets(Protocol):
    """A source of secrets."""

    async def get(self, reference: str) -> str | None:
        """The value of a secret, or None if it is not known here."""


# An ordinary function is called in a thread, since it may wait for a vault.
SecretsFunction = Callable[[str], Awaitable[str | None] | str | None]


class Kv(Protocol):
    """Small values by key, in scopes that licet names. The size of a scope is limited.

    The stores of licet also raise `Ended` for a value in a scope whose name is a key in the scope `ENDED`: another
    process may have ended the session while a call of this one writes.
    """

    async def get(self, scope: str, key: str) -> Json:
        """The value under a key, or None."""

    async def set(self, scope: str, key: str, value: Json, ttl_seconds: int | None = None) -> None:
        """Store a JSON value, for some seconds or for ever; `TooLarge` if it does not fit."""

    async def delete(self, scope: str, key: str) -> bool:
        """Delete a key, and return whether it existed."""

    async def list(self, scope: str, prefix: str = "") -> Sequence[str]:
        """The keys that begin with exactly this prefix, sorted."""

    async def clear(self, scope: str) -> None:
        """Delete all keys of a scope."""


# Calls with an id ----------------------------------------------------------------------------------------------------


class CallKey(Struct, frozen=True):
    """Which call an id is about: the same id in another session, or of another tool, is another call."""

    agent: str
    session: str
    tool: str
    id: str


class Begun:
    """The right to run a call with an id. While this object exists, a call with the same id waits."""

    def __init__(self, key: CallKey, arguments: str, receipt: str) -> None:
        self.key = key
        self.arguments = arguments  # their digest
        self.receipt = receipt


class UnderWay(Struct, frozen=True):
    """The first call of this id runs now, in this process or in another one."""

    receipt: str


class Kept(Struct, frozen=True):
    """The first call of this id ran, and `data` is what was kept of it."""

    receipt: str
    data: bytes


class Reused(Struct, frozen=True):
    """The id was used for a call with other arguments."""

    receipt: str


class Lost(Struct, frozen=True):
    """The first call of this id began, and how it ended is not known. `receipt` is empty if not even that is known."""

    receipt: str


class KeptCalls(Protocol):
    """What became of the calls with an id of the last 24 hours. `Unavailable` if the store cannot be used.

    The first call with an id begins; it ends with data, or is dropped. A later call with this id gets the same data.
    A row that the store cannot prove to be its own is `Lost`.
    """

    async def begin(self, key: CallKey, arguments: str, receipt: str) -> Begun | UnderWay | Kept | Reused | Lost:
        """Begin the call of an id, or learn what became of the first. What began is durable before this returns."""

    async def finish(self, begun: Begun, data: bytes) -> None:
        """Keep what a call has to say to those that repeat it."""

    async def drop(self, begun: Begun) -> None:
        """Forget a call that did not run: its id is free again."""


# Records, money, people, time ----------------------------------------------------------------------------------------


class LedgerUnavailable(Exception):
    """The ledger could not keep an entry."""


class Ledger(Protocol):
    """Stores entries in order. Without a ledger, calls are refused.

    A call has a decision and a receipt. One whose programs are refused something, or use a key, has further entries of
    the kind `progress` between both.
    """

    async def record(self, entry: Entry) -> None:
        """Store an entry durably before returning; `LedgerUnavailable` if that fails."""


@runtime_checkable
class ReadableLedger(Ledger, Protocol):
    """A ledger from which a session learns what it has read before, and what it reads in other processes.

    Without one, a session under a policy with `flow:` counts as one that has read untrusted text. Each agent that has
    entries in a session has a chain of them; the names of delegates begin with the agent's and `>`. An entry that
    `record` has returned for, in any process, is in every later answer.
    """

    async def lengths_of(self, agent: str, session: str) -> Mapping[str, int]:
        """How many entries a session and its delegates have, by agent. It is asked at each call, so it is cheap."""

    async def entries_of(self, agent: str, session: str, after: Mapping[str, int] | None = None) -> Sequence[Entry]:
        """The entries of a session and of its delegates, in any order; `LedgerUnavailable` if they cannot be read.

        Of the agents in `after`, the first so many entries are left out.
        """

    async def derived(self, purpose: bytes) -> bytes:
        """A secret for one purpose, which only the holder of the ledger's key can compute."""


class Claim(Struct, frozen=True):
    """What a call wants to spend, and its limits."""

    agent: str
    session: str
    tool: str
    day: str
    cost_usd: Decimal
    budget: Budget
    max_calls: int | None  # of this tool in a session, as the next one
    max_cost_usd: Decimal | None


class Reservation(Struct, frozen=True):
    """Money and calls that are reserved for a call, and what had been spent before."""

    id: str
    claim: Claim
    before: Spent


class Budgets(Protocol):
    """What has been spent. Reserving is atomic, so concurrent calls never exceed a limit.

    A store that cannot be read or written raises `Unavailable`. A reservation that is never settled counts in full.
    A bundle that has a budget is an account of its own, whose `agent` is `AGENT bundle NAME`.
    """

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        """What a session, and its agent on a day, have spent and reserved."""

    async def reserve(self, claim: Claim) -> Reservation | None:
        """Reserve one call and its cost; None if a limit would be exceeded."""

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        """Replace a reservation by the real cost, once; `ValueError` for more than was reserved."""

    async def refund(self, reservation: Reservation) -> None:
        """Release a reservation, once."""


class Beginning(Struct, frozen=True):
    """A call that is about to begin: its decision, what it spends, and the approvals that it uses up."""

    entry: Entry
    claims: tuple[Claim, ...] = ()  # all of them are set aside, or none
    approvals: tuple[str, ...] = ()  # ids of stored requests


class Opened(Struct, frozen=True):
    """A call that was opened, with a reservation for each claim; or why it was not: then nothing of it was kept."""

    reservations: Sequence[Reservation] = ()
    refused: str = ""  # `FROZEN`, `APPROVAL_REQUIRED` (another call has used it up) or `BUDGET_EXCEEDED`
    why: str = ""


class Opening(Protocol):
    """Begins a call in one step: not frozen, its approvals used up, its budget set aside, and its decision kept.

    Where there is none, guard takes these steps one after the other.
    """

    async def prepare(self) -> None:
        """Read what the steps of a call ask without waiting, such as what is frozen; at once, where that is known."""

    async def open(self, begins: Beginning) -> Opened:
        """Do all of it, or nothing; `LedgerUnavailable` if nobody knows whether the decision was kept."""

    async def use(self, request: str, call: str) -> bool:
        """Use up an approval that a call got after it was opened; False if another call has used it."""


class Freezes(Protocol):
    """What people have stopped on a state, and the keys of those who may let it go on.

    A store that cannot be read, or whose operators are not those that it was set up with, raises `Unavailable`.
    """

    def frozen(self, agent: str, tool: str) -> str:
        """Why calls of a tool by an agent are stopped; empty if they are not. For each check, so it is quick.

        A freeze that was added by any process of this machine counts at once. One of another node counts when it was
        heard of, within a second, or looked up.
        """

    async def look_up(self, agent: str, tool: str) -> None:
        """Learn what other nodes have frozen, before a call begins: `frozen` then knows every freeze that returned."""

    async def add(self, act: StateAct) -> None:
        """Keep an act durably. Who adds a thaw has checked that it counts: a row that does not is never believed."""

    async def view(self) -> StateView:
        """What all acts of the state amount to now."""


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """The time of day, in UTC."""

    def monotonic(self) -> float:
        """A monotonic clock, in seconds."""


# Takes the rules on a tool's arguments, and returns a function that checks arguments: it returns what is wrong, or "".
ArgumentRules = Callable[[Mapping[str, Any]], Callable[[Mapping[str, Any]], str]]


# All of them ---------------------------------------------------------------------------------------------------------


class Ports(Struct, frozen=True, kw_only=True):
    """All backends of a gate. A tool that needs one that is None is refused."""

    files: Files | None = None
    http: Http | None = None
    secrets: Secrets | SecretsFunction | None = None
    kv: Kv | None = None
    processes: Processes | None = None
    environ: Mapping[str, str] | None = None
    ledger: Ledger | None = None
    budgets: Budgets | None = None
    approver: Approver | ApproverFunction | None = None
    standing: StandingApprovals | None = None
    kept_calls: KeptCalls | None = None
    sandbox: Sandbox | None = None
    freezes: Freezes | None = None
    opening: Opening | None = None
    clock: Clock | None = None
    argument_rules: ArgumentRules | None = None
    state: tuple[str, ...] = ()  # paths where the backends keep their own files; no grant reaches them

    def __repr__(self) -> str:
        # Only the type names: the environment is one of the fields, and it may hold secrets.
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "state"}
        parts = ", ".join(f"{name}={type(part).__name__}" for name, part in given.items() if part is not None)
        return f"{type(self).__name__}({parts})"

    @property
    def empty(self) -> bool:
        """Whether there is no backend for any capability."""
        parts = (self.files, self.http, self.secrets, self.kv, self.processes, self.environ)
        return all(part is None for part in parts)


_Lock = TypeVar("_Lock")
_LOCKS: "weakref.WeakSet[Any]" = weakref.WeakSet()


def free_after_fork(lock: _Lock) -> _Lock:
    """Return the lock. In a forked child it is free, also if a thread of the parent held it."""
    _LOCKS.add(lock)
    return lock


def _in_child() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # noqa: SLF001, as the standard library does with its own locks; it has no public form


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
