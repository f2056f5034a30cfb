"""The nodes of a state: each process that writes belongs to one, and signs what it writes with the key of its node.

The key is made on the node, in the directory that it keeps for itself, and never leaves it. The administrator
of the database can write any row; a row without the signature of an enrolled node is refused.

A node is enrolled, and dismissed, by an entry of the ledger that holds a signed act. The key of the ledger signs it,
until an entry of the same chain hands over to operators; later ones are handed over to by those before them. So an act
is judged by who could sign at its place in the chain: the nodes of yesterday stay when operators come or change. An act
counts once.
"""

import base64
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import UNSET, Struct

from licet.backends.limits import ENROLLED_SECONDS
from licet.backends.postgres.address import Connection
from licet.backends.secrets import SigningKey, check_signature, create_key, read_key
from licet.core.ledger.entry import (
    NODES_AGENT,
    NODES_SESSION,
    Entry,
    LinkedEntry,
    NodeFact,
    Row,
    Unsound,
    check_row,
    hash_text,
    read_entry,
    time_text,
)
from licet.core.ledger.operator_acts import Kind, OperatorAct, act_bytes, read_act
from licet.guard.ports import LedgerUnavailable

if TYPE_CHECKING:
    from licet.guard.freezing import OperatorKey

IsEnrolled = Callable[[str], Awaitable[bool]]  # whether a node with this public key may write
KEY_FILE = "node.key"
_MEND = "put the key of this node there, or move it away: the next start makes another one, which needs to be enrolled"


class Node:
    """This node: it signs. `public` is how others know it."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self.public = key.public

    @classmethod
    def of(cls, directory: Path) -> "Node":
        """The node whose directory this is; its key is made by the first process that asks."""
        path = os.fspath(directory / KEY_FILE)
        try:
            return cls(read_key(path, _MEND, links=False))
        except FileNotFoundError:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return cls(create_key(path))
        except FileExistsError:  # another process was first
            return cls(read_key(path, _MEND, links=False))

    def sign(self, purpose: str, body: bytes) -> bytes:
        """Sign bytes for one purpose, such as `batch` or `approval`: a signature for one counts for no other."""
        return self._key.sign(_text(purpose, body))

    def derived(self, purpose: bytes) -> bytes:
        """A secret for one purpose, which only this node can compute."""
        return self._key.derived(_text("derived", purpose))


def is_signed(public: object, purpose: str, body: object, signature: object) -> bool:
    """Whether a node has signed these bytes for this purpose. Whether it is enrolled is another question.

    Columns of a table that somebody has changed may have values of any type.
    """
    if not (type(public) is str and type(body) is bytes and type(signature) is bytes):
        return False
    return check_signature(public, _text(purpose, body), signature)


def _text(purpose: str, body: bytes) -> bytes:
    return b"licet node\n" + purpose.encode() + b"\n" + body


# Acts about nodes ----------------------------------------------------------------------------------------------------

FindOperators = Callable[[], Awaitable[tuple[str, ...]]]
_ACTS: dict[str, Kind] = {"enrolment": "enrol", "dismissal": "dismiss", "operators": "operators"}


async def no_operators() -> tuple[str, ...]:
    """The operators of a state without any."""
    return ()


class _Named(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def session(self) -> str: ...


def is_node_act(one: _Named) -> bool:
    """Whether an entry is about the nodes of a state. The signature in it counts, not that of its writer."""
    return one.kind in _ACTS and one.agent == NODES_AGENT and one.session == NODES_SESSION


def node_entry(
    kind: Literal["enrolment", "dismissal", "operators"],
    about: Sequence[str],
    ledger: str,
    key: "OperatorKey",
    now: datetime,
) -> Entry:
    """The entry that enrols or dismisses a node, or hands over to operators; `key` is one that may sign it now."""
    act = OperatorAct(
        act=_ACTS[kind],
        ledger=ledger,
        about=tuple(about),
        time=time_text(now),
        nonce=os.urandom(16).hex(),
    )
    body = act_bytes(act)
    return Entry(
        kind=kind,
        id=f"n-{act.nonce}",
        agent=NODES_AGENT,
        session=NODES_SESSION,
        tool="licet",
        time=act.time,
        manifest="",
        node=NodeFact(
            node="" if kind == "operators" else about[0],
            act=base64.b64encode(body).decode(),
            signature=base64.b64encode(key.sign(body)).decode(),
            by=key.public,
        ),
    )


class NodeActs:
    """Which nodes are enrolled, and by whom others can be, after some acts in their order."""

    def __init__(self, ledger: str, key: str) -> None:
        self.ledger, self._key = ledger, key
        self.operators: tuple[str, ...] = ()  # empty while the key of the ledger signs
        self.handed_over: set[tuple[str, ...]] = set()  # to these operators, at some time
        self.enrolled: set[str] = set()
        # Also those that were dismissed: what they wrote before still counts. The key of the ledger has signed what was
        # moved from a file.
        self.ever: set[str] = {key}
        self._nonces: set[str] = set()

    def problem(self, entry: Entry) -> str:
        """Why an entry does not count; empty if it does."""
        fact = entry.node
        if not is_node_act(entry) or fact is UNSET:
            return "it is about no node"
        try:
            body, signature = (base64.b64decode(text, validate=True) for text in (fact.act, fact.signature))
            act = read_act(body)
        except (Unsound, ValueError):
            return "its act cannot be read"
        is_about = bool(act.about) if entry.kind == "operators" else act.about == (fact.node,)
        if act.act != _ACTS[entry.kind] or not is_about or act.ledger != self.ledger:
            return "its act is about something else"
        if act.nonce in self._nonces:
            return "its act has counted before"
        if fact.by not in (self.operators or (self._key,)):
            return f"{fact.by} is no operator of this state"
        if not check_signature(fact.by, body, signature):
            return f"its act is not signed by {fact.by}"
        return ""

    def apply(self, entry: Entry) -> None:
        """Count an entry, if it counts."""
        if self.problem(entry) or entry.node is UNSET:
            return
        node, act = entry.node.node, read_act(base64.b64decode(entry.node.act))
        self._nonces.add(act.nonce)
        if entry.kind == "operators":
            self.operators = act.about
            self.handed_over.add(act.about)
        elif entry.kind == "enrolment":
            self.enrolled.add(node)
            self.ever.add(node)
        else:
            self.enrolled.discard(node)


# The nodes of a state, as its ledger says -----------------------------------------------------------------------------

_ROWS = """
SELECT id, kind, agent, session, sequence, tool, verdict, time, hash, body FROM licet.entries
WHERE agent = $1 AND session = $2 AND sequence > $3 ORDER BY sequence
"""


class BegunLedger(Struct, frozen=True):
    """A ledger that has begun: its id, and the public key that signs its heads."""

    ledger: str
    key: str


class Enrolled:
    """The enrolled nodes, read from the ledger.

    Entries are read on from the last one that was seen, and never fewer: nobody can take a dismissal back from a
    process that has seen it. Where operators are pinned on this node, a ledger that does not know them is not believed.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[Connection], Awaitable[None]]], Awaitable[None]],
        begun: Callable[[Connection], Awaitable[BegunLedger]],
        operators: FindOperators = no_operators,
    ) -> None:
        self._ask, self._begun, self._pinned = ask, begun, operators
        self._acts: NodeActs | None = None
        self._entries: list[LinkedEntry] = []
        self._tail = b""
        self._read = 0.0

    async def check(self, public: str) -> bool:
        """Whether a node is enrolled."""
        if self._is_due(public):
            await self._ask(self._checked)
        return public in self.now

    async def check_ever(self, public: str) -> bool:
        """Whether a node is enrolled, or was: what it wrote in the ledger before it was dismissed still counts."""
        if public not in self.ever:
            await self._ask(self._checked)
        return public in self.ever

    async def check_over(self, connection: Connection, public: str) -> bool:
        """As `check`, over a connection that is open already."""
        if self._is_due(public):
            await self._checked(connection)
        return public in self.now

    async def check_ever_over(self, connection: Connection, public: str) -> bool:
        """As `check_ever`, over a connection that is open already."""
        if public not in self.ever:
            await self._checked(connection)
        return public in self.ever

    async def unknown_operators(self, connection: Connection) -> tuple[str, ...]:
        """The operators that are pinned here, if the ledger was never handed over to them; else nothing."""
        pinned = await self._pinned()
        if pinned and not self._knows(pinned):
            await self.read(connection)
        return () if self._knows(pinned) else pinned

    def _knows(self, operators: tuple[str, ...]) -> bool:
        return self._acts is not None and operators in self._acts.handed_over

    async def _checked(self, connection: Connection) -> None:
        await self.read(connection)
        if await self.unknown_operators(connection):
            raise LedgerUnavailable(
                "the ledger does not name the operators that are pinned on this node: if it was just moved here, make "
                "a call at the node that holds ledger.key; otherwise the database was changed"
            )

    @property
    def operators(self) -> tuple[str, ...]:
        """Who enrols nodes now, as far as this process has read; empty if it is the key of the ledger."""
        return () if self._acts is None else self._acts.operators

    @property
    def ever(self) -> frozenset[str]:
        """The nodes that are enrolled or were, as far as this process has read."""
        return frozenset() if self._acts is None else frozenset(self._acts.ever)

    @property
    def now(self) -> frozenset[str]:
        """The nodes that are enrolled, as far as this process has read."""
        return frozenset() if self._acts is None else frozenset(self._acts.enrolled)

    def _is_due(self, public: str) -> bool:
        return public not in self.now or time.monotonic() - self._read > ENROLLED_SECONDS

    async def read(self, connection: Connection) -> None:
        """Read the entries about nodes that are new."""
        begun = await self._begun(connection)
        known, tail = list(self._entries), self._tail
        for one in await connection.fetch(_ROWS, NODES_AGENT, NODES_SESSION, len(known)):
            row = Row(0, *one)
            try:
                check_row(row)
                entry = read_entry(row.body)
            except (Unsound, TypeError, ValueError) as wrong:
                raise _changed(len(known) + 1, str(wrong)) from None
            if entry.sequence != len(known) + 1 or entry.previous != (hash_text(tail) if tail else None):
                raise _changed(len(known) + 1, "it does not follow the one before")
            if entry.ledger != begun.ledger:
                raise _changed(len(known) + 1, "it is of another ledger")
            known.append(entry)
            tail = row.hash
        if len(known) < len(self._entries):  # another read was faster
            return
        acts = NodeActs(begun.ledger, begun.key) if self._acts is None else self._acts
        for entry in known[len(self._entries) :]:
            acts.apply(entry)
        self._acts, self._entries, self._tail, self._read = acts, known, tail, time.monotonic()


def _changed(sequence: int, why: str) -> LedgerUnavailable:
    return LedgerUnavailable(f"entry {sequence} about the nodes of the state was changed in the database: {why}")


def not_enrolled(public: str, operators: Sequence[str], *, is_dismissed: bool) -> LedgerUnavailable:
    """The refusal of a node that nobody has enrolled, or that was dismissed."""
    run = f"run `licet state enrol {public}` at the node that began the ledger"
    if operators:
        run = f"an operator runs `licet state enrol {public} --key FILE`, anywhere"
    what = "was dismissed from" if is_dismissed else "is not enrolled in"
    return LedgerUnavailable(f"this node {what} this state: {run}")
