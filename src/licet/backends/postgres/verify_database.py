"""Verifies the ledger of a PostgreSQL state: nothing that its server says is believed.

- `core.ledger.verify` checks the entries in the order of their places, and the signed heads. The last head that this
  node has seen counts as one that was kept elsewhere, so a database that was set back is noticed.
- Each place names one entry, and has its hash.
- Each entry is in a batch that is signed by a node, which was enrolled in the ledger before.
- An entry without a place is checked too, as far as it can be: its bytes, its batch, and its link. One that should have
  a place, and has none, was held back by the sequencer, or by somebody.
- The tables and functions are those that licet makes.
- No two calls have the same id. Calls that began and have no receipt are listed.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from licet.backends.ledger.reader import Progress
from licet.backends.ledger.state import LastCheckpoint, read_last
from licet.backends.limits import BATCHES_KNOWN, LONGEST_ENTRY
from licet.backends.postgres.address import Address
from licet.backends.postgres.batches import SignedBatch, read_batch
from licet.backends.postgres.changed_schema import changed_code, changed_tables
from licet.backends.postgres.database import Database, Secret
from licet.backends.postgres.node_keys import NodeActs, is_node_act
from licet.backends.postgres.postgres_reader import PostgresReader, Unreadable
from licet.backends.secrets import check_signature
from licet.core.ledger.entry import (
    NODES_AGENT,
    NODES_SESSION,
    START,
    Checkpoint,
    Row,
    Unsound,
    check_row,
    hash_text,
    read_checkpoint,
    read_entry,
)
from licet.core.ledger.merkle import Frontier
from licet.core.ledger.verify import Finding, Outcome, narrowed, verify

_SHORT = 80  # characters of a value in a message
_ROW = f"""coalesce(e.id::text, ''), e.kind::text, e.agent::text, e.session::text, e.sequence::bigint, e.tool::text,
e.verdict::text, e.time::text, e.hash::bytea,
CASE WHEN octet_length(e.body::bytea) <= {LONGEST_ENTRY} THEN e.body::bytea END AS body, e.batch::bytea"""
_PLACES = f"""SELECT coalesce(p.number::bigint, 0), e.hash IS NULL, p.hash::bytea, p.agent::text, p.session::text,
p.sequence::bigint, {_ROW}
FROM licet.places p LEFT JOIN licet.entries e ON e.agent = p.agent AND e.session = p.session AND e.sequence = p.sequence
ORDER BY p.number"""  # noqa: S608 - our words
_UNPLACED = f"""SELECT e.xid < coalesce((SELECT max(below) FROM licet.heads), '0'), {_ROW}
FROM licet.entries e LEFT JOIN licet.places p ON p.agent = e.agent AND p.session = e.session AND p.sequence = e.sequence
WHERE p.number IS NULL ORDER BY e.agent != '{NODES_AGENT}' OR e.session != '{NODES_SESSION}',
e.agent, e.session, e.sequence"""  # noqa: S608 - our words
_BATCHES = f"""SELECT id::bytea, node::text, signature::bytea,
CASE WHEN octet_length(hashes::bytea) <= {LONGEST_ENTRY} THEN hashes::bytea END
FROM licet.batches WHERE id = ANY($1::bytea[])"""  # noqa: S608 - our words
_TWICE = """SELECT max(coalesce(p.number, 0))::bigint, e.id::text, min(coalesce(p.number, 0))::bigint
FROM licet.entries e LEFT JOIN licet.places p USING (agent, session, sequence) GROUP BY e.id
HAVING count(*) > 1 AND (
    count(*) - count(*) FILTER (WHERE e.kind = 'progress') > count(DISTINCT nullif(e.kind, 'progress'))
    OR min(agent) != max(agent) OR min(session) != max(session) OR min(e.tool) != max(e.tool)
    OR min(e.time) != max(e.time)
) ORDER BY 1"""


def verify_database(
    address: Database | Address | str,
    keys: str,
    key: str,
    kept: Iterable[Checkpoint] = (),
    progress: Progress | None = None,
    secret: Secret | None = None,
    operators: Sequence[str] = (),
) -> Outcome:
    """Verify the ledger at an address against a public key, and against heads that were kept elsewhere.

    `operators` are those that are pinned here: the ledger must have named them.

    `keys` is the path of the ledger's key files on this node, without their endings: next to them is the last head that
    the node has seen. It is read first, because it never covers more than the database has at that time.
    """
    last = read_last(f"{keys}.head")
    with PostgresReader(address, keys, secret) as reader:
        try:
            if wrong := changed_tables(reader):
                return Outcome(0, 0, 0, "", "", Finding("column", 1, f"no entry was read: {wrong}"))
            return _Pass(reader, key, kept, last, progress, operators).outcome()
        except Unreadable as wrong:
            return Outcome(0, 0, 0, reader.ledger, "", Finding("edited", 1, str(wrong)))


class _Pass:
    """One pass over a ledger, as of one snapshot."""

    def __init__(
        self,
        reader: PostgresReader,
        key: str,
        kept: Iterable[Checkpoint],
        last: LastCheckpoint | None,
        progress: Progress | None,
        operators: Sequence[str],
    ) -> None:
        self._reader, self._key, self._progress = reader, key, progress
        self._kept = [*kept, last.checkpoint] if last is not None and last.facts.size else list(kept)
        # The table `ledger` is not signed, and a head is.
        ledger = next((one for one in map(_signed_ledger(key), self._heads()) if one), reader.ledger)
        self._last, self._batches = last, _Batches(reader, ledger)
        self._operators, self._acts = tuple(operators), NodeActs(ledger, key)
        self._seen = 0
        self._problem: Finding | None = None  # of the entry at which reading ended

    def _heads(self) -> Iterator[Checkpoint]:
        yield from self._kept
        yield from self._reader.checkpoints()

    def outcome(self) -> Outcome:
        try:
            outcome = verify(
                self._placed(),
                self._reader.checkpoints(),
                key=self._key,
                check=check_signature,
                kept=self._kept,
            )
        except Unreadable as wrong:
            return Outcome(self._seen, 0, 0, self._reader.ledger, "", Finding("edited", self._seen + 1, str(wrong)))
        outcome = replace(outcome, finding=self._first(outcome.finding))
        if outcome.finding is not None and outcome.finding.kind != "clock":
            return outcome
        found = self._wrong_ledger(outcome) or self._wrong_heads()
        waiting, wrong_waiting = (0, None) if found is not None else self._unplaced(outcome)
        found = (
            found
            or wrong_waiting
            or self._wrong_operators(outcome)
            or self._changed_code(outcome)
            or self._used_twice()
            or outcome.finding
        )
        return replace(outcome, finding=found, waiting=waiting, unknown=self._reader.unknown())

    def _first(self, finding: Finding | None) -> Finding | None:
        """Which of both comes first: what the core found, or the problem at which reading ended."""
        problem = self._problem
        if problem is None or finding is None or finding.kind in ("clock", "truncated", "unsigned"):
            return problem or finding
        return narrowed(finding, problem) if finding.kind == "root" else finding

    def _placed(self) -> Iterator[Row]:
        """The entries in the order of their places, up to the first that is not as its place or its batch says."""
        for portion in self._reader.portions(_PLACES):
            self._batches.learn({row[-1] for row in portion})
            for number, is_gone, digest, agent, session, sequence, *fields, batch in portion:
                if is_gone:
                    text = f"its place is that of entry {sequence} of session {_short(session)} of {_short(agent)}, "
                    self._problem = Finding("missing", number, f"{text}which was removed")
                    return
                row = Row(number, *fields)
                if row.hash != digest:
                    self._problem = Finding("edited", number, "its hash is not the one at its place", row.id)
                    return
                if wrong := self._unsigned(row, batch):
                    self._problem = Finding("signature", number, wrong, row.id)
                    return
                yield row
                self._seen += 1
                if self._progress is not None and not self._seen % 1000:
                    self._progress(self._seen)

    def _unsigned(self, row: Row, batch: bytes | None) -> str:
        """Why no node of this state has signed an entry, as of the acts before it; empty if one has."""
        found = self._batches.of(batch)
        if found.problem:
            return found.problem
        if row.hash not in found.hashes:
            return f"the node that signed its batch did not sign this entry: {_short(found.node)}"
        if not is_node_act(row):
            return "" if found.node in self._acts.ever else f"the node {_short(found.node)} is not enrolled"
        try:  # it counts by its own signature, whoever wrote it
            entry = read_entry(row.body)
        except Unsound:  # the core says what is wrong with it
            return ""
        wrong = self._acts.problem(entry)
        self._acts.apply(entry)
        return wrong

    def _unplaced(self, outcome: Outcome) -> tuple[int, Finding | None]:
        """Check the entries without a place; how many they are, and the first that is wrong."""
        waiting, ends = 0, dict(outcome.ends)
        for portion in self._reader.portions(_UNPLACED):
            self._batches.learn({row[-1] for row in portion})
            for is_late, *fields, batch in portion:
                waiting += 1
                row = Row(0, *fields)
                wrong = self._wrong_unplaced(row, batch, outcome, ends)
                if wrong is None and is_late:
                    wrong = "it should have a place, since later entries have theirs: it was left out, or changed since"
                if wrong is not None:
                    return waiting, Finding("missing" if is_late else "edited", 0, wrong, row.id)
        return waiting, None

    def _wrong_unplaced(self, row: Row, batch: bytes, outcome: Outcome, ends: dict[Any, Any]) -> str | None:
        try:
            check_row(row)
            entry = read_entry(row.body)
        except Unsound as wrong:
            return str(wrong)
        if entry.ledger != outcome.ledger:
            return f"it was written to the ledger {entry.ledger}, and this one is {outcome.ledger}"
        if unsigned := self._unsigned(row, batch):
            return unsigned
        tail = ends.get((row.agent, row.session), START)
        if row.sequence != tail.sequence + 1 or entry.previous != (hash_text(tail.hash) if tail.hash else None):
            return f"it does not link to the end of its session {_short(row.session)}"
        ends[row.agent, row.session] = row
        return None

    def _wrong_ledger(self, outcome: Outcome) -> Finding | None:
        """The row of the table `ledger`, and a ledger without entries although somebody has its key."""
        if not outcome.entries:
            return Finding("missing", 1, "there is none, and the first is made together with the key of a ledger")
        rows = list(self._reader.fetched("SELECT id::text, key::text FROM licet.ledger"))
        if [tuple(row) for row in rows] == [(outcome.ledger, self._key)]:
            return None
        shown = ", ".join(f"{_short(row[0])} with {_short(row[1])}" for row in rows) or "nothing"
        text = f"the table `ledger` says {shown}, the entries and heads say {outcome.ledger} with {self._key}"
        return Finding("column", 1, text, until=outcome.entries)

    def _wrong_heads(self) -> Finding | None:
        """The right edges of the tree that are kept with the heads, from which the sequencer goes on."""
        query = "SELECT size::bigint, frontier::bytea, body::bytea FROM licet.heads ORDER BY size DESC LIMIT 1"
        row = self._reader.row(query)
        size, frontier, body = row if row is not None else (0, b"", b"")
        if self._last is not None and size < self._last.facts.size:
            text = "the head that covers them was removed" if size else "no head covers any entry"
            return Finding("unsigned", size + 1, text, until=self._last.facts.size)
        try:
            root = hash_text(Frontier.of_bytes(size, frontier).root)
        except (TypeError, ValueError):
            root = ""
        if f'"{root}"'.encode() in body:
            return None
        return Finding("column", size, "the edge of the tree that is kept with the newest head is not what it signs")

    def _wrong_operators(self, outcome: Outcome) -> Finding | None:
        """Operators that are pinned here, and that no entry names although others name nodes."""
        acts = self._acts
        if not self._operators or self._operators in acts.handed_over or acts.ever == {self._key}:
            return None
        return Finding("missing", outcome.entries + 1, "the one that names the operators that are pinned here")

    def _changed_code(self, outcome: Outcome) -> Finding | None:
        wrong = changed_code(self._reader)
        text = f"all entries are as they were written, and {wrong}: `licet db init --print` shows the right ones"
        return Finding("column", 1, text, until=outcome.entries) if wrong else None

    def _used_twice(self) -> Finding | None:
        row = self._reader.row(_TWICE)
        if row is None:
            return None
        number, name, first = row
        return Finding("twice", number, f"its id is also that of another call, see entry {first}", name)


_NO_BATCH = SignedBatch(problem="no node has signed it: the batch that it names is not there")


class _Batches:
    """The batches that nodes have signed. The last ones are remembered, since entries of one come together."""

    def __init__(self, reader: PostgresReader, ledger: str) -> None:
        self._reader, self._ledger = reader, ledger
        self._known: OrderedDict[bytes, SignedBatch] = OrderedDict()

    def learn(self, ids: set[bytes]) -> None:
        """Look up those that are not known, in one query."""
        wanted = []
        for one in ids - {None}:
            if one in self._known:
                self._known.move_to_end(one)
            else:
                wanted.append(one)
        for id, node, signature, hashes in self._reader.fetched(_BATCHES, wanted) if wanted else ():  # noqa: A001
            self._known[id] = read_batch(self._ledger, id, node, hashes, signature)
        while len(self._known) > BATCHES_KNOWN:
            self._known.popitem(last=False)

    def of(self, batch: bytes | None) -> SignedBatch:
        """The batch that an entry names."""
        return self._known.get(batch or b"", _NO_BATCH)


def _signed_ledger(key: str) -> Callable[[Checkpoint], str]:
    """Returns what tells the ledger of a head that is signed with a key; empty of any other."""

    def ledger(head: Checkpoint) -> str:
        try:
            facts = read_checkpoint(head.body)
        except Unsound:
            return ""
        return facts.ledger if facts.key == key and check_signature(key, head.body, head.signature) else ""

    return ledger


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"
