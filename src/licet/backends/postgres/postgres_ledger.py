"""The ledger in PostgreSQL: many nodes write it, each session is one chain, and an acknowledged entry is committed.

All entries that arrive while a batch is under way go over as the next one: one statement, one signature of the node.
Nothing is locked between sessions. Entries get their places in the tree afterwards (`sequencer`), so a call never waits
for that. Before it writes, and again every moment, a node checks that the newest signed head continues the one that it
has kept (`heads`), and that it is enrolled (`node_keys`).
"""

import atexit
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from licet.backends.limits import CHECK_SECONDS, LAST_PLACES_SECONDS, MOST_APPENDED
from licet.backends.memory import SystemClock
from licet.backends.postgres.address import Connection
from licet.backends.postgres.batches import (
    APPEND,
    Chains,
    Sending,
    Session,
    read_batch,
    read_rows,
    sending_of,
    session_of,
)
from licet.backends.postgres.database import Database
from licet.backends.postgres.heads import KeptHead
from licet.backends.postgres.node_keys import (
    BegunLedger,
    Enrolled,
    FindOperators,
    Node,
    is_node_act,
    no_operators,
    node_entry,
    not_enrolled,
)
from licet.backends.postgres.sequencer import Sequencer
from licet.backends.secrets import SigningKey, load_code
from licet.core.ledger.entry import Entry, LinkedEntry, Row, Tail, hash_text
from licet.guard.limits import STORE_SECONDS
from licet.guard.ports import LedgerUnavailable, Unavailable

if TYPE_CHECKING:
    from licet.guard.freezing import OperatorKey

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


class PostgresLedger:
    """The ledger of a state in PostgreSQL, for the node whose directory this is."""

    def __init__(
        self,
        database: Database,
        node: Node,
        directory: Path,
        now: Callable[[], datetime] = SystemClock.now,
        operators: FindOperators = no_operators,
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
        self.sequencer = Sequencer(database, self.head)
        self._database, self._now, self._sequences = database, now, sequences
        self._lane = database.lane(self._append, MOST_APPENDED)
        self._looks = database.lane(_lengths, MOST_APPENDED)
        self._sending: Sending | None = None
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

    async def begun(self) -> BegunLedger:
        """The ledger of this state, which begins if there is none."""
        found: list[BegunLedger] = []

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

    async def hand_over(self, operators: Sequence[str], key: "OperatorKey | None" = None) -> None:
        """Let operators enrol and dismiss nodes from here on; nothing happens if they do already.

        Signed by the key of the ledger, if the state has no operators so far, or by one of those it has.
        """
        begun = await self._read_nodes()
        present = self.enrolled.operators
        if present == tuple(operators):
            return
        signer = self._signer(begun, key if present else self.head.key)
        await self.record(node_entry("operators", operators, begun.ledger, signer, self._now()))

    def place_waiting(self) -> None:
        """Give every entry its place that can have one, where this node has the key of the ledger."""
        try:
            self._database.wait(self.head.begun, STORE_SECONDS)
            if self.head.key is not None:
                self.sequencer.place_rest(STORE_SECONDS)
        except Unavailable as wrong:
            raise LedgerUnavailable(str(wrong)) from None

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

    async def checked(self, connection: Connection) -> BegunLedger:
        """The ledger, after the checks without which this node writes nothing; each of them once in a while."""
        begun = await self.head.begun(connection)
        if time.monotonic() - self._checked < CHECK_SECONDS:
            return begun
        await self.head.follow(connection)
        self.head.store()
        await self._name_pinned(connection, begun)
        if not await self.enrolled.check_over(connection, self.node.public):
            await self._enrol_itself(connection, begun)
        await self._check_age(connection)
        self._checked = time.monotonic()
        if self._sequences and self.head.key is not None:
            self.sequencer.start()
        return begun

    async def go_on_from(
        self, connection: Connection, begun: BegunLedger, lost: Mapping[Session, Tail], before: Mapping[Session, Tail]
    ) -> Mapping[Session, LedgerUnavailable]:
        """Link to the ends that the database tells from now on; why not, of those that cannot be.

        `before` is what it had acknowledged when it was asked: meanwhile this node may have written more.
        """
        wrong: dict[Session, LedgerUnavailable] = {}
        for session, tail in lost.items():
            known = before[session]
            if tail.sequence < known.sequence or (tail.sequence == known.sequence and tail.hash != known.hash):
                wrong[session] = LedgerUnavailable(
                    f"the database was set back: it has acknowledged entry {known.sequence} of the session "
                    f"`{session[1]}`, and has it no more"
                )
        ends = {session: tail for session, tail in lost.items() if session not in wrong}
        try:
            await self._check_ends(
                connection, begun, {session: tail for session, tail in ends.items() if tail.sequence}
            )
        except LedgerUnavailable as changed:
            return {**wrong, **dict.fromkeys(ends, changed)}
        for session, tail in ends.items():
            self.chains.note(session, tail)
        return wrong

    async def _check_ends(self, connection: Connection, begun: BegunLedger, ends: Mapping[Session, Tail]) -> None:
        """Refuse ends that no node of this state has signed."""
        ends = {session: tail for session, tail in ends.items() if tail.sequence}
        if not ends:
            return
        columns = zip(*((*session, tail.sequence) for session, tail in ends.items()), strict=True)
        rows = await connection.fetch(_TAILS, *map(list, columns))
        found = {session_of(row): row.hash for row, _ in await self._trusted(connection, begun, rows)}
        for session, tail in ends.items():
            if found.get(session) != tail.hash:
                raise LedgerUnavailable(f"the database says of the session `{session[1]}` that it ends otherwise")

    async def _append(self, connection: Connection, entries: Sequence[Entry]) -> Sequence[Exception | None]:
        sending = self._sending
        if sending is None or sending.items is not entries:
            sending = self._sending = sending_of(entries, entries)
        try:
            try:
                begun = await self.checked(connection)
            except LedgerUnavailable as wrong:
                # What is about nodes is judged by its own signature: somebody has to be able to enrol the first one.
                begun = await self.head.begun(connection)
                others = [at for at in sending.waiting if not is_node_act(entries[at])]
                sending.answer({at: LedgerUnavailable(*wrong.args) for at in others})
            await self._send(connection, begun, sending)
        except LedgerUnavailable as wrong:
            sending.answer({at: LedgerUnavailable(*wrong.args) for at in sending.waiting})
        self._has_written = True  # the answer is kept too: the connection may be lost when it is given back
        return [sending.answers[at] for at in range(len(entries))]

    async def _send(self, connection: Connection, begun: BegunLedger, sending: Sending) -> None:
        """Send entries until each is kept or has failed; those of which another node was first are linked anew."""
        while sending.waiting:
            if (batch := sending.batch) is None:
                self.chains.link_waiting(begun.ledger, sending, self._now())
                continue
            before = self.chains.ends(batch)
            lost = self.chains.lost(await connection.fetch(APPEND, *batch.arguments()))
            self.chains.keep(batch, lost)
            sending.answer({at: None for at in sending.waiting if session_of(sending.entries[at]) not in lost})
            sending.batch = None
            sending.fail(await self.go_on_from(connection, begun, lost, before))

    async def _enrol_itself(self, connection: Connection, begun: BegunLedger) -> None:
        """Enrol this node, if it has the key of the ledger and the state no operators; refuse otherwise."""
        key = self.head.key
        is_dismissed = self.node.public in self.enrolled.ever
        if key is None or self.enrolled.operators or is_dismissed:
            raise not_enrolled(self.node.public, self.enrolled.operators, is_dismissed=is_dismissed)
        await self._write_act(
            connection, begun, node_entry("enrolment", [self.node.public], begun.ledger, key, self._now())
        )

    async def _name_pinned(self, connection: Connection, begun: BegunLedger) -> None:
        """Hand over to the operators that are pinned here, if the state was moved here from a directory with them."""
        key = self.head.key
        if key is None or not (pinned := await self.enrolled.unknown_operators(connection)) or self.enrolled.operators:
            return
        await self._write_act(connection, begun, node_entry("operators", pinned, begun.ledger, key, self._now()))

    async def _write_act(self, connection: Connection, begun: BegunLedger, entry: Entry) -> None:
        sending = sending_of([entry], [entry])
        await self._send(connection, begun, sending)
        if (wrong := sending.answers[0]) is not None:
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
        self, connection: Connection, begun: BegunLedger, rows: Sequence[Mapping[str, Any]]
    ) -> Sequence[tuple[Row, LinkedEntry]]:
        """Read entries, each of them in a batch that a node of this state has signed."""
        entries = read_rows(rows, begun.ledger)
        batches: dict[object, frozenset[bytes]] = {}
        for (row, entry), one in zip(entries, rows, strict=True):
            if is_node_act(entry):
                continue
            if (signed := batches.get(one["batch"])) is None:
                signed = batches[one["batch"]] = await self._signed(connection, begun, one)
            if row.hash not in signed:
                raise LedgerUnavailable(f"entry {row.id} in the database is not what its node has signed")
        return entries

    async def _signed(self, connection: Connection, begun: BegunLedger, one: Mapping[str, Any]) -> frozenset[bytes]:
        """The hashes of entries that a node of this state has signed together with this one."""
        batch = read_batch(begun.ledger, *(one[name] for name in ("batch", "node", "hashes", "signature")))
        if batch.problem:
            raise LedgerUnavailable(f"entry {one['id']} in the database was changed: {batch.problem}")
        if not await self.enrolled.check_ever_over(connection, batch.node):
            raise LedgerUnavailable(
                f"entry {one['id']} in the database is of a node that is not enrolled: {batch.node}"
            )
        return batch.hashes

    # Elsewhere --------------------------------------------------------------------------------------------------------

    async def _act(self, kind: Any, node: str, key: SigningKey | None) -> None:
        begun = await self._read_nodes()
        signer = self._signer(begun, key if key is not None or self.enrolled.operators else self.head.key)
        await self.record(node_entry(kind, [node], begun.ledger, signer, self._now()))

    async def _read_nodes(self) -> BegunLedger:
        """What the ledger says about its nodes, after what this node has to say about them itself."""

        async def read(connection: Connection) -> None:
            begun.append(await self.head.begun(connection))
            await self._name_pinned(connection, begun[-1])
            await self.enrolled.read(connection)

        begun: list[BegunLedger] = []
        await self._ask(read)
        return begun[-1]

    def _signer(self, begun: BegunLedger, key: "OperatorKey | None") -> "OperatorKey":
        """The key, if an act about nodes may be signed with it now."""
        operators = self.enrolled.operators
        if key is None:
            raise LedgerUnavailable(
                "this state has operators: sign with the key of one of them, --key FILE"
                if operators
                else "the key of the ledger is on another node: run this there, since the state has no operators"
            )
        if key.public in (operators or (begun.key,)):
            return key
        known = f"these are {', '.join(operators)}" if operators else "it has none, so the node with ledger.key signs"
        raise LedgerUnavailable(f"{key.public} is no operator of this state: {known}")

    async def _ask(self, act: Callable[[Connection], Awaitable[object]]) -> None:
        """Read something; what is wrong with the database is an error of the ledger."""
        wrong: list[LedgerUnavailable] = []

        async def asked(connection: Connection) -> None:
            wrong.clear()
            try:
                await act(connection)
            except LedgerUnavailable as error:
                wrong.append(error)
            except (TypeError, ValueError, LookupError, AttributeError) as error:  # a column was changed
                wrong.append(LedgerUnavailable(f"the ledger in the database was changed: {type(error).__name__}"))

        try:
            await self._database.once(asked)
        except Unavailable as error:
            raise LedgerUnavailable(str(error)) from None
        if wrong:
            raise wrong[0]


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
        session = session_of(entry)
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
