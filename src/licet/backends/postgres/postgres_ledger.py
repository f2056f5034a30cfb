"""The ledger in PostgreSQL: many nodes write it, each session is one chain, and an acknowledged entry is committed.

All entries that arrive while a batch is under way go over as the next one: one statement, one signature of the node.
Nothing is locked between sessions. Entries get their places in the tree afterwards (`sequencer`), so a call never waits
for that. Before it writes, and again every moment, a node checks that the newest signed head continues the one that it
has kept (`heads`), and that it is enrolled (`nodes`).
"""

import atexit
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from licet.backends.limits import CHECK_SECONDS, LAST_PLACES_SECONDS, MOST_APPENDED
from licet.backends.memory import SystemClock
from licet.backends.postgres.address import Connection
from licet.backends.postgres.batches import APPEND, Batch, Chains, Session, batch_problem, hashes_of, read_rows
from licet.backends.postgres.database import Database
from licet.backends.postgres.heads import KeptHead
from licet.backends.postgres.node_keys import (
    NODE_KINDS,
    Begun,
    Enrolled,
    Node,
    Operators,
    no_operators,
    node_entry,
    not_enrolled,
)
from licet.backends.postgres.sequencer import Sequencer
from licet.backends.secrets import SigningKey, load_code
from licet.core.ledger.entry import Entry, LinkedEntry, Row, Tail, hash_text
from licet.guard.ports import LedgerUnavailable, Unavailable

_ROW = "entries.id, kind, agent, session, sequence, tool, verdict, time, hash, body"
_BATCH = "batches.id AS batch, node, hashes, signature"
_OF_SESSION = f"""
SELECT {_ROW}, {_BATCH} FROM licet.entries LEFT JOIN licet.batches ON batches.id = entries.batch
LEFT JOIN unnest($3::text[], $4::bigint[]) AS known (known_agent, known_sequence) ON known_agent = agent
WHERE session = $2 AND (agent = $1 OR (agent > $1 || '>' AND agent < $1 || '?'))
    AND sequence >= coalesce(known_sequence, 0) ORDER BY agent, sequence
"""  # noqa: S608 - our words
# The names of delegates are searched one after the other: an agent may have had any number of sessions.
_LENGTHS = """
SELECT wanted.at, names.agent, tail.sequence
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (agent, session, at)
CROSS JOIN LATERAL (
    WITH RECURSIVE found (agent) AS (
        SELECT wanted.agent COLLATE "C"
        UNION ALL
        SELECT (
            SELECT min(entries.agent) FROM licet.entries
            WHERE entries.agent > greatest(found.agent, (wanted.agent || '>') COLLATE "C")
                AND entries.agent < (wanted.agent || '?') COLLATE "C"
        ) FROM found WHERE found.agent IS NOT NULL
    )
    SELECT found.agent FROM found WHERE found.agent IS NOT NULL
) AS names
CROSS JOIN LATERAL (
    SELECT entries.sequence FROM licet.entries
    WHERE entries.agent = names.agent AND entries.session = wanted.session ORDER BY entries.sequence DESC LIMIT 1
) AS tail
"""
_TAILS = f"""
SELECT {_ROW}, {_BATCH}
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS wanted (wanted_agent, wanted_session, wanted_sequence)
JOIN licet.entries ON agent = wanted_agent AND session = wanted_session AND sequence = wanted_sequence
LEFT JOIN licet.batches ON batches.id = entries.batch
"""  # noqa: S608
# The oldest entry of an enrolled node that has no place, which may be none of those that were held back before.
_WAITS = """
SELECT body FROM licet.entries JOIN licet.batches ON batches.id = entries.batch AND node = ANY($1)
WHERE xid >= (SELECT below FROM licet.heads ORDER BY size DESC LIMIT 1) AND NOT EXISTS (
    SELECT FROM licet.places AS placed WHERE placed.agent = entries.agent AND placed.session = entries.session
        AND placed.sequence = entries.sequence
) ORDER BY xid LIMIT 1
"""


class _Sending(Struct, eq=False):
    """Entries on their way: what is sent again after a lost connection is the same batch."""

    items: Sequence[Entry]
    waiting: list[int]  # which of them have no answer so far
    outcomes: dict[int, Exception]
    batch: Batch | None = None


class PostgresLedger:
    """The ledger of a state in PostgreSQL, for the node whose directory this is."""

    def __init__(
        self,
        database: Database,
        node: Node,
        directory: Path,
        now: Callable[[], datetime] = SystemClock.now,
        operators: Operators = no_operators,
        *,
        sequences: bool = True,
    ) -> None:
        """Take the database, and what this node keeps for itself.

        A node that holds the key of the ledger also places entries, unless `sequences` is false.
        """
        self.node, self.directory = node, directory
        self.chains = Chains(node)
        self.head = KeptHead(directory, now)
        self.enrolled = Enrolled(self._ask, self.head.begun, operators)
        self.sequencer = Sequencer(database, self.head, operators)
        self._database, self._now, self._operators, self._sequences = database, now, operators, sequences
        self._lane = database.lane(self._append, MOST_APPENDED, transaction=False)
        self._looks = database.lane(_lengths, MOST_APPENDED, transaction=False)
        self._sending: _Sending | None = None
        self._checked = -CHECK_SECONDS
        self._has_written = False
        _LEDGERS.add(self)

    def load_code(self) -> None:
        """Import the code that signs, before a tool could put another module on the import path."""
        load_code()

    async def record(self, entry: Entry) -> None:
        """Keep an entry; when this returns it is committed."""
        try:
            await self._lane.do(entry)
        except Unavailable as wrong:
            raise LedgerUnavailable(str(wrong)) from None

    async def lengths_of(self, agent: str, session: str) -> Mapping[str, int]:
        """How many entries a session and its delegates have, by agent: one round trip for all calls that ask."""
        try:
            found = await self._looks.do((agent, session))
            acknowledged = {name: self.chains.known((name, session)).sequence for name in {agent, *found}}
            if any(found.get(name, 0) < length for name, length in acknowledged.items()):
                found = await self._looks.do((agent, session))  # this node may have written one since it asked
        except Unavailable as wrong:
            raise LedgerUnavailable(str(wrong)) from None
        if any(found.get(name, 0) < length for name, length in acknowledged.items()):
            raise LedgerUnavailable(f"the newest entries of the session `{session}` are missing in the database")
        return found

    async def entries_of(self, agent: str, session: str, after: Mapping[str, int] | None = None) -> Sequence[Entry]:
        """The entries of a session and of its delegates, complete and signed by nodes of this state.

        Of the agents in `after`, the first so many entries are left out.
        """
        found: list[LinkedEntry] = []
        known = {name: length for name, length in (after or {}).items() if length}

        async def read(connection: Connection) -> None:
            begun = await self.head.begun(connection)
            acknowledged: dict[Session, int] = {}
            while True:
                rows = await connection.fetch(_OF_SESSION, agent, session, [*known], [*known.values()])
                entries = await self._trusted(connection, begun, rows)
                tails = _chains_of(entries, known)
                for _, name in _behind(tails, acknowledged):
                    raise LedgerUnavailable(f"the newest entries of the session `{name}` are missing in the database")
                if acknowledged:
                    break
                acknowledged = _behind(tails, {one: self.chains.known(one).sequence for one in tails})
                if not acknowledged:
                    break  # otherwise this node has written one since it asked, or the database was set back
            found[:] = [entry for _, entry in entries if entry.sequence > known.get(entry.agent, 0)]

        await self._ask(read)
        return found

    async def derived(self, purpose: bytes) -> bytes:
        """A secret for one purpose: of the key of the ledger where this node has it, or of the node's own.

        Nothing that two nodes compare may come from it. Digests of values in receipts do, for people who compare.
        """
        await self._ask(self.head.follow)
        key = self.head.key
        return self.node.derived(purpose) if key is None else key.derived(purpose)

    async def begun(self) -> Begun:
        """The ledger of this state, which begins if there is none."""
        found: list[Begun] = []

        async def read(connection: Connection) -> None:
            found.append(await self.head.begun(connection))

        await self._ask(read)
        return found[-1]

    async def check_node(self) -> None:
        """Check that this node may write, and enrol it where it can do that by itself; `LedgerUnavailable` if not."""
        await self._ask(self.checked)

    async def enrol(self, node: str, key: SigningKey | None = None) -> None:
        """Let a node write; signed with the key of an operator, or with that of the ledger."""
        await self._act("enrolment", node, key)

    async def dismiss(self, node: str, key: SigningKey | None = None) -> None:
        """Let a node write no more; signed as in `enrol`."""
        await self._act("dismissal", node, key)

    def close(self) -> None:
        """Give the last entries their places, where this node has the key; the next entry goes on."""
        self.sequencer.stop()
        if self._has_written and self._sequences and self.head.key is not None:
            self._has_written = False
            with suppress(Exception):  # the next process with the key does it
                self.sequencer.place_rest(LAST_PLACES_SECONDS)
        with suppress(LedgerUnavailable):
            self.head.store()

    def __repr__(self) -> str:
        return f"PostgresLedger({self._database!r})"

    # In the thread of the database ------------------------------------------------------------------------------------

    async def checked(self, connection: Connection) -> Begun:
        """The ledger, after the checks without which this node writes nothing; each of them once in a while."""
        begun = await self.head.begun(connection)
        if time.monotonic() - self._checked < CHECK_SECONDS:
            return begun
        await self.head.follow(connection)
        self.head.store()
        if not await self.enrolled.check_over(connection, self.node.public):
            await self._enrol_itself(connection, begun)
        await self._check_age(connection)
        self._checked = time.monotonic()
        if self._sequences and self.head.key is not None:
            self.sequencer.start()
        return begun

    def resolve(self, lost: Mapping[Session, Tail]) -> dict[Session, LedgerUnavailable]:
        """Which of the ends that the database told cannot be: it has acknowledged later ones."""
        wrong = {}
        for session, tail in lost.items():
            known = self.chains.known(session)
            if tail.sequence < known.sequence or (tail.sequence == known.sequence and tail.hash != known.hash):
                wrong[session] = LedgerUnavailable(
                    f"the database was set back: it has acknowledged entry {known.sequence} of the session "
                    f"`{session[1]}`, and has it no more"
                )
        return wrong

    async def adopt(self, connection: Connection, begun: Begun, lost: Mapping[Session, Tail]) -> None:
        """Link to the ends that the database told from now on, if nodes of this state have signed them."""
        begin = [session for session, tail in lost.items() if tail.sequence]
        columns = [one[0] for one in begin], [one[1] for one in begin], [lost[one].sequence for one in begin]
        rows = await connection.fetch(_TAILS, *columns) if begin else []
        found = {(row.agent, row.session): row for row, _ in await self._trusted(connection, begun, rows)}
        for session, tail in lost.items():
            if tail.sequence and ((row := found.get(session)) is None or row.hash != tail.hash):
                raise LedgerUnavailable(f"the database says of the session `{session[1]}` that it ends otherwise")
            self.chains.note(session, tail)

    async def _append(self, connection: Connection, entries: Sequence[Entry]) -> Sequence[Exception | None]:
        try:
            sending = self._sending
            if sending is None or sending.items is not entries:
                sending = self._sending = _begun(entries)
            try:
                begun = await self.checked(connection)
            except LedgerUnavailable as wrong:
                # What is about nodes is judged by its own signature: somebody has to be able to enrol the first one.
                begun = await self.head.begun(connection)
                for at in [at for at in sending.waiting if entries[at].kind not in NODE_KINDS]:
                    sending.outcomes[at] = LedgerUnavailable(*wrong.args)
                sending.waiting = [at for at in sending.waiting if at not in sending.outcomes]
            await self._send(connection, begun, sending)
        except LedgerUnavailable as wrong:
            return [LedgerUnavailable(*wrong.args) for _ in entries]
        self._has_written = True  # the answer is kept too: the connection may be lost when it is given back
        return [sending.outcomes.get(at) for at in range(len(entries))]

    async def _send(self, connection: Connection, begun: Begun, sending: _Sending) -> None:
        """Send entries until each is kept or has failed; those of which another node was first are linked anew."""
        while sending.waiting:
            if sending.batch is None:
                self._link(begun, sending)
                continue
            batch = sending.batch
            lost = self.chains.lost(await connection.fetch(APPEND, *batch.arguments()))
            wrong = self.resolve(lost)
            self.chains.keep(batch, lost)
            sending.batch = None
            sending.waiting = [at for at in sending.waiting if _session(sending.items[at]) in lost]
            for at in sending.waiting:
                if (found := wrong.get(_session(sending.items[at]))) is not None:
                    sending.outcomes[at] = LedgerUnavailable(*found.args)
            sending.waiting = [at for at in sending.waiting if at not in sending.outcomes]
            if sending.waiting:
                await self.adopt(connection, begun, {one: tail for one, tail in lost.items() if one not in wrong})

    def _link(self, begun: Begun, sending: _Sending) -> None:
        """Link what waits; an entry that cannot be written fails alone."""
        now = self._now()
        try:
            sending.batch = self.chains.link(begun.ledger, [sending.items[at] for at in sending.waiting], now)
        except (ValueError, TypeError):
            for at in sending.waiting:
                try:
                    self.chains.link(begun.ledger, [sending.items[at]], now)
                except (ValueError, TypeError) as wrong:
                    sending.outcomes[at] = LedgerUnavailable(f"an entry cannot be written: {wrong}")
            sending.waiting = [at for at in sending.waiting if at not in sending.outcomes]

    async def _enrol_itself(self, connection: Connection, begun: Begun) -> None:
        """Enrol this node, if it has the key of the ledger and the state no operators; refuse otherwise."""
        key = self.head.key
        if key is None or await self._operators():
            raise not_enrolled(self.node.public)
        if self.node.public in self.enrolled.ever:
            raise LedgerUnavailable(f"this node was dismissed from this state: `licet state enrol {self.node.public}`")
        sending = _begun([node_entry("enrolment", self.node.public, begun.ledger, key, self._now())])
        await self._send(connection, begun, sending)
        for wrong in sending.outcomes.values():
            raise wrong
        await self.enrolled.read(connection)

    async def _check_age(self, connection: Connection) -> None:
        """Refuse if an entry waits for its place for longer than the address of the state allows."""
        most, last = self._database.address.max_head_age, self.head.last
        if most is None or last is None or self._age(last.facts.time) <= most:
            return
        if (body := await connection.fetchval(_WAITS, sorted(self.enrolled.now))) is None:
            return
        if (age := self._age(_recorded(body))) > most:
            raise LedgerUnavailable(
                f"no head of the ledger was signed for {age:.0f} seconds, and `max_head_age` is {most}: "
                "`licet doctor` says what holds it back"
            )

    def _age(self, moment: str) -> float:
        try:
            since = datetime.fromisoformat(moment)
        except ValueError:
            return float("inf")
        now = self._now()
        now = now.replace(tzinfo=UTC) if now.tzinfo is None else now
        return (now - since).total_seconds()

    async def _trusted(
        self, connection: Connection, begun: Begun, rows: Sequence[Mapping[str, Any]]
    ) -> Sequence[tuple[Row, LinkedEntry]]:
        """Read entries, each of them in a batch that a node of this state has signed."""
        entries = read_rows(rows, begun.ledger)
        batches: dict[object, frozenset[bytes]] = {}
        for (row, entry), one in zip(entries, rows, strict=True):
            if entry.kind in NODE_KINDS:
                continue
            if (signed := batches.get(one["batch"])) is None:
                signed = batches[one["batch"]] = await self._batch(connection, begun, one)
            if row.hash not in signed:
                raise LedgerUnavailable(f"entry {row.id} in the database is not what its node has signed")
        return entries

    async def _batch(self, connection: Connection, begun: Begun, one: Mapping[str, Any]) -> frozenset[bytes]:
        if one["batch"] is None:
            raise LedgerUnavailable(f"entry {one['id']} in the database has no signature of a node")
        if wrong := batch_problem(begun.ledger, one["batch"], one["node"], one["hashes"], one["signature"]):
            raise LedgerUnavailable(f"entry {one['id']} in the database was changed: {wrong}")
        if not await self.enrolled.check_ever_over(connection, one["node"]):
            raise LedgerUnavailable(
                f"entry {one['id']} in the database is of a node that is not enrolled: {one['node']}"
            )
        return hashes_of(one["hashes"])

    # Elsewhere --------------------------------------------------------------------------------------------------------

    async def _act(self, kind: Any, node: str, key: SigningKey | None) -> None:
        begun = await self.begun()
        signer = key or self.head.key
        if signer is None:
            raise LedgerUnavailable("the key of the ledger is on another node: an operator's key is needed here")
        allowed = await self._operators() or (begun.key,)
        if signer.public not in allowed:
            raise LedgerUnavailable(f"{signer.public} is no operator of this state: {', '.join(allowed)}")
        await self.record(node_entry(kind, node, begun.ledger, signer, self._now()))

    async def _ask(self, act: Callable[[Connection], Awaitable[object]]) -> None:
        """Read something; what is wrong with the database is an error of the ledger."""
        wrong: list[LedgerUnavailable] = []

        async def asked(connection: Connection) -> None:
            wrong.clear()
            try:
                await act(connection)
            except LedgerUnavailable as error:
                wrong.append(error)

        try:
            await self._database.once(asked)
        except Unavailable as error:
            raise LedgerUnavailable(str(error)) from None
        if wrong:
            raise wrong[0]


def _begun(entries: Sequence[Entry]) -> _Sending:
    return _Sending(entries, list(range(len(entries))), {})


def _session(entry: Entry) -> Session:
    return entry.agent, entry.session


class _Recorded(Struct):
    recorded: str = ""


def _recorded(body: object) -> str:
    try:
        return msgspec.json.decode(body if isinstance(body, bytes) else b"", type=_Recorded).recorded
    except (ValueError, RecursionError):
        return ""


async def _lengths(connection: Connection, wanted: Sequence[Session]) -> Sequence[Mapping[str, int]]:
    rows = await connection.fetch(_LENGTHS, [one[0] for one in wanted], [one[1] for one in wanted])
    found: list[dict[str, int]] = [{} for _ in wanted]
    for row in rows:
        found[row["at"] - 1][row["agent"]] = row["sequence"]
    return found


def _chains_of(entries: Iterable[tuple[Row, LinkedEntry]], known: Mapping[str, int]) -> Mapping[Session, Tail]:
    """How sessions end. Refuses one with a gap: an entry that is missing may be the one that read something private.

    Of agents of which the first entries are `known`, the chain begins with the last one of these.
    """
    tails: dict[Session, Tail] = {}
    for row, entry in entries:
        session = entry.agent, entry.session
        if session in tails or entry.sequence != known.get(entry.agent):
            tail = tails.get(session, Tail())
            if entry.sequence != tail.sequence + 1 or entry.previous != (hash_text(tail.hash) if tail.hash else None):
                raise LedgerUnavailable(f"entries of the session `{entry.session}` are missing in the database")
        tails[session] = Tail(entry.sequence, row.hash)
    return tails


def _behind(tails: Mapping[Session, Tail], acknowledged: Mapping[Session, int]) -> dict[Session, int]:
    """The sessions that are shorter than the database has acknowledged."""
    return {one: length for one, length in acknowledged.items() if tails.get(one, Tail()).sequence < length}


# A process that ends gives places to what it has written; after one that is killed, the next one does.
_LEDGERS: "weakref.WeakSet[PostgresLedger]" = weakref.WeakSet()


def _close_all() -> None:
    for ledger in list(_LEDGERS):
        with suppress(Exception):
            ledger.close()


atexit.register(_close_all)
