"""The nodes of a state: each process that writes belongs to one, and signs what it writes with the key of its node.

The key is made on the node, in the directory that it keeps for itself, and never leaves it. Whoever administers the
database can write any row; without the key of a node that an operator has enrolled, such a row is refused.

A node is enrolled, and dismissed, by an entry of the ledger that holds a signed act: signed by one of the operators of
the state, or by the key of the ledger where the state has no operators. An act counts once.
"""

import base64
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

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
from licet.core.ledger.operator_acts import OperatorAct, act_bytes, read_act
from licet.guard.ports import LedgerUnavailable

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
    """Whether a node has signed these bytes for this purpose. Whether it is enrolled is another question."""
    if type(public) is not str or type(body) is not bytes or type(signature) is not bytes:  # a column was changed
        return False
    return check_signature(public, _text(purpose, body), signature)


def _text(purpose: str, body: bytes) -> bytes:
    return b"licet node\n" + purpose.encode() + b"\n" + body


# Acts about nodes ----------------------------------------------------------------------------------------------------

Operators = Callable[[], Awaitable[tuple[str, ...]]]
NODE_KINDS = ("enrolment", "dismissal")
_ACTS = {"enrolment": "enrol", "dismissal": "dismiss"}


async def no_operators() -> tuple[str, ...]:
    """The operators of a state without any."""
    return ()


def node_entry(
    kind: Literal["enrolment", "dismissal"], node: str, ledger: str, key: SigningKey, now: datetime
) -> Entry:
    """The entry that enrols or dismisses a node; `key` is that of an operator, or of the ledger."""
    act = OperatorAct(
        act="enrol" if kind == "enrolment" else "dismiss",
        ledger=ledger,
        about=(node,),
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
            node=node,
            act=base64.b64encode(body).decode(),
            signature=base64.b64encode(key.sign(body)).decode(),
            by=key.public,
        ),
    )


class NodeActs:
    """Which nodes are enrolled, after some acts in their order."""

    def __init__(self, ledger: str, key: str) -> None:
        self.ledger, self._key = ledger, key
        self.enrolled: set[str] = set()
        # Also those that were dismissed: what they wrote before still counts. The key of the ledger has signed what was
        # moved from a file.
        self.ever: set[str] = {key}
        self._nonces: set[str] = set()

    def problem(self, entry: Entry, operators: Sequence[str]) -> str:
        """Why an entry enrols or dismisses nobody; empty if it does."""
        fact = entry.node
        if entry.kind not in NODE_KINDS or fact is UNSET:
            return "it is about no node"
        try:
            body, signature = (base64.b64decode(text, validate=True) for text in (fact.act, fact.signature))
            act = read_act(body)
        except (Unsound, ValueError):
            return "its act cannot be read"
        if act.act != _ACTS[entry.kind] or act.about != (fact.node,) or act.ledger != self.ledger:
            return "its act is about something else"
        if act.nonce in self._nonces:
            return "its act has counted before"
        if fact.by not in (operators or (self._key,)):
            return f"{fact.by} is no operator of this state"
        if not check_signature(fact.by, body, signature):
            return f"its act is not signed by {fact.by}"
        return ""

    def apply(self, entry: Entry, operators: Sequence[str]) -> None:
        """Count an entry, if it enrols or dismisses a node."""
        if self.problem(entry, operators) or entry.node is UNSET:
            return
        node = entry.node.node
        self._nonces.add(read_act(base64.b64decode(entry.node.act)).nonce)
        if entry.kind == "enrolment":
            self.enrolled.add(node)
            self.ever.add(node)
        else:
            self.enrolled.discard(node)


# The nodes of a state, as its ledger says -----------------------------------------------------------------------------

_ROWS = """
SELECT id, kind, agent, session, sequence, tool, verdict, time, hash, body FROM licet.entries
WHERE agent = $1 AND session = $2 AND sequence > $3 ORDER BY sequence
"""


class Begun(Struct, frozen=True):
    """A ledger that has begun: its id, and the public key that signs its heads."""

    ledger: str
    key: str


class Enrolled:
    """The enrolled nodes, read from the ledger.

    Entries are read on from the last one that was seen, and never fewer: nobody can take a dismissal back from a
    process that has seen it.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[Connection], Awaitable[None]]], Awaitable[None]],
        begun: Callable[[Connection], Awaitable[Begun]],
        operators: Operators = no_operators,
    ) -> None:
        self._ask, self._begun, self._operators = ask, begun, operators
        self._acts: NodeActs | None = None
        self._entries: list[LinkedEntry] = []
        self._tail = b""
        self._counted: tuple[str, ...] = ()  # the operators by whom the entries were judged
        self._read = 0.0

    async def check(self, public: str) -> bool:
        """Whether a node is enrolled."""
        if self._is_due(public):
            await self._ask(self.read)
        return public in self.now

    async def check_ever(self, public: str) -> bool:
        """Whether a node is enrolled, or was: what it wrote in the ledger before it was dismissed still counts."""
        if public not in self.ever:
            await self._ask(self.read)
        return public in self.ever

    async def check_over(self, connection: Connection, public: str) -> bool:
        """As `check`, over a connection that is open already."""
        if self._is_due(public):
            await self.read(connection)
        return public in self.now

    async def check_ever_over(self, connection: Connection, public: str) -> bool:
        """As `check_ever`, over a connection that is open already."""
        if public not in self.ever:
            await self.read(connection)
        return public in self.ever

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
        begun, operators = await self._begun(connection), await self._operators()
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
        if self._acts is None or operators != self._counted or len(known) > len(self._entries):
            acts = NodeActs(begun.ledger, begun.key)
            for entry in known:
                acts.apply(entry, operators)
            self._acts = acts
        self._entries, self._tail, self._counted, self._read = known, tail, operators, time.monotonic()


def _changed(sequence: int, why: str) -> LedgerUnavailable:
    return LedgerUnavailable(f"entry {sequence} about the nodes of the state was changed in the database: {why}")


def not_enrolled(public: str) -> LedgerUnavailable:
    """The refusal of a node that nobody has enrolled."""
    return LedgerUnavailable(f"this node is not enrolled in this state: an operator runs `licet state enrol {public}`")
