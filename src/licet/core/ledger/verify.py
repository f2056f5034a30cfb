"""Verifies a ledger in one pass over its entries and its signed checkpoints.

These rules are checked, and the first one that is broken is the finding:

- Entries are numbered from 1 without gaps (`missing`, `moved`).
- The bytes of an entry have the recorded hash, are canonical JSON, and fit the schema of this format (`edited`).
- An entry names the ledger that all others name (`foreign`).
- The index columns of an entry say what the entry says (`column`).
- An entry has the next sequence number of its session, and the hash of the session's previous entry (`chain`).
- A checkpoint can be read (`head`), names the right key (`key`), is signed with it (`signature`), and is of this ledger
  (`foreign`).
- The root that a checkpoint signs is the root of the tree over that many entries (`root`). This alone proves the place
  of an entry in the ledger. Later entries are still read: a broken chain may tell which entry of the range it is.
- No checkpoint covers more entries than there are (`truncated`).
- A checkpoint covers all entries but the newest: at most 4096 of them, recorded in at most 10 seconds (`unsigned`).
- The time of recording does not go back (`clock`); it is reported if nothing else is wrong.

Only the end of each session's chain is kept in memory, so a ledger of any size can be verified.

    outcome = verify(reader.entries(), reader.checkpoints(), key="ed25519:…", check=check_signature)
    if outcome.finding is not None:
        print(outcome.finding)  # entry 7 (r-7): its bytes are not those that were hashed
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.ledger.entry import (
    COLUMNS,
    START,
    Checkpoint,
    CheckpointFacts,
    CheckSignature,
    LinkedEntry,
    Row,
    Tail,
    Unsound,
    hash_text,
    read_checkpoint,
    read_entry,
)
from licet.core.ledger.merkle import Frontier, leaf_hash

# A writer signs a checkpoint within moments, or after this many entries.
UNSIGNED_SECONDS, UNSIGNED_ENTRIES = 10, 4096

FindingKind = Literal[
    "edited",
    "column",
    "missing",
    "moved",
    "foreign",
    "chain",
    "root",
    "truncated",
    "key",
    "signature",
    "head",
    "unsigned",
    "clock",
]


class Finding(Struct, frozen=True):
    """The first broken rule: at which entry, or in which range of entries, and how."""

    kind: FindingKind
    number: int
    text: str
    id: str = ""
    until: int = 0  # the last entry of a range, where only a range is known

    def __str__(self) -> str:
        where = f"entries {self.number} to {self.until}" if self.until > self.number else f"entry {self.number}"
        return f"{where}{f' ({self.id})' if self.id else ''}: {self.text}"


class Outcome(Struct, frozen=True):
    """The result of a verification."""

    entries: int
    checkpoints: int
    signed: int  # entries that the last checkpoint covers; later ones are linked, and not signed yet
    ledger: str
    root: str  # of all entries
    finding: Finding | None
    # What the next entry links to, to compare with what the file says of its own end.
    frontier: bytes = b""
    recorded: str = ""
    ends: Mapping[tuple[str, str], Tail] = {}  # of the chain of each agent and session
    tagged: bool = (
        False  # whether the private key was there, and showed that its holder wrote the entries not signed yet
    )

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.finding is None


def verify(
    rows: Iterable[Row],
    checkpoints: Iterable[Checkpoint],
    *,
    key: str,
    check: CheckSignature,
    kept: Iterable[Checkpoint] = (),
) -> Outcome:
    """Check every rule, against the checkpoints that this key has signed.

    `kept` are checkpoints that were stored elsewhere. Only they reveal an older copy of the complete file.
    """
    ledger = _Ledger(_Checkpoints(key, check, _in_order(checkpoints, kept)))
    finding = ledger.read_all(rows) or ledger.end()
    return ledger.outcome(finding)


def _in_order(checkpoints: Iterable[Checkpoint], kept: Iterable[Checkpoint]) -> Iterator[Checkpoint]:
    every = heapq.merge(checkpoints, sorted(kept, key=_size), key=_size)
    return (checkpoint for checkpoint, _ in groupby(every))  # one that was also kept elsewhere counts once


def _size(checkpoint: Checkpoint) -> int:
    return checkpoint.size


class _Ledger:
    """The state of one pass: the tree, the chains, and the time of the last entry."""

    def __init__(self, checkpoints: "_Checkpoints") -> None:
        self._checkpoints = checkpoints
        self._ledger = checkpoints.ledger
        self._frontier = Frontier()
        self._tails: dict[tuple[str, str], Tail] = {}
        self._recorded = ""
        self._clock: Finding | None = None  # where the time first went back

    def read_all(self, rows: Iterable[Row]) -> Finding | None:
        """Read every entry; the first broken rule of an entry, or of a checkpoint up to it."""
        checkpoints, frontier = self._checkpoints, self._frontier
        checkpoints.compare(frontier, "")
        for row in rows:
            if (finding := self._broken_rule(row)) is not None:
                return finding if checkpoints.doubt is None else narrowed(checkpoints.doubt, finding)
            frontier.add(row.hash)
            if (finding := checkpoints.compare(frontier, self._recorded)) is not None:
                return finding
        return None

    def end(self) -> Finding | None:
        """Check the rules about the number of entries, once all are read."""
        checkpoints, size = self._checkpoints, self._frontier.size
        if (finding := checkpoints.doubt or checkpoints.wrong) is not None:
            return finding
        if (following := checkpoints.next) is not None:
            text = f"a checkpoint of {following.time} has signed {following.size} entries, and there are {size}"
            if size > checkpoints.signed:  # entries may be missing before these, and these written anew
                text += f"; no checkpoint covers what is after entry {checkpoints.signed}, so none of it is proven"
            return Finding("truncated", size + 1, text, until=following.size)
        if size and not checkpoints.signed:
            return Finding("unsigned", 1, "no checkpoint covers any entry", until=size)
        if size - checkpoints.signed > UNSIGNED_ENTRIES or _late(checkpoints.proven, self._recorded):
            text = f"not proven: the last checkpoint was signed at {checkpoints.proven}, and one is signed in moments"
            return Finding("unsigned", checkpoints.signed + 1, text, until=size)
        return self._clock

    def outcome(self, finding: Finding | None) -> Outcome:
        """The result, with the end of the ledger as its entries say it."""
        checkpoints, frontier = self._checkpoints, self._frontier
        return Outcome(
            entries=frontier.size,
            checkpoints=checkpoints.count,
            signed=checkpoints.signed,
            ledger=self._ledger or checkpoints.ledger,
            root=hash_text(frontier.root),
            finding=finding,
            frontier=bytes(frontier),
            recorded=self._recorded,
            ends=self._tails,
        )

    def _broken_rule(self, row: Row) -> Finding | None:
        """Check one entry, and take it as the end of its session's chain."""
        number, expected = row.number, self._frontier.size + 1
        if number > expected:
            return Finding("missing", expected, f"after entry {expected - 1} comes entry {number}", until=number - 1)
        if number < expected:
            return Finding("moved", number, f"it is where entry {expected} should be", row.id)
        if type(row.hash) is not bytes or type(row.body) is not bytes or leaf_hash(row.body) != row.hash:
            return Finding("edited", number, "its bytes are not those that were hashed", row.id)
        try:
            entry = read_entry(row.body)
        except Unsound as wrong:
            return Finding("edited", number, str(wrong), row.id)
        finding = self._foreign(row, entry) or _wrong_column(row, entry) or self._broken_chain(row, entry)
        if finding is not None:
            return finding
        if entry.recorded < self._recorded and self._clock is None:
            text = f"the time went back from {self._recorded} to {entry.recorded}"
            self._clock = Finding("clock", number, text, row.id)
        self._recorded = entry.recorded
        self._tails[entry.agent, entry.session] = Tail(entry.sequence, row.hash, number)
        return None

    def _foreign(self, row: Row, entry: LinkedEntry) -> Finding | None:
        self._ledger = self._ledger or self._checkpoints.ledger or entry.ledger
        if entry.ledger == self._ledger:
            return None
        text = f"it was written to the ledger {entry.ledger}, and this one is {self._ledger}"
        return Finding("foreign", row.number, text, row.id)

    def _broken_chain(self, row: Row, entry: LinkedEntry) -> Finding | None:
        """Where a chain is broken: at one entry, or in the range that no checkpoint covers."""
        tail, signed = self._tails.get((entry.agent, entry.session), START), self._checkpoints.signed
        if entry.sequence != tail.sequence + 1:
            first = max(signed, tail.number) + 1  # nothing is missing before that
            text = f"{row.id} is number {entry.sequence} of its session, after number {tail.sequence}"
            return Finding("chain", first, text, row.id if first == row.number else "", row.number)
        if entry.previous == (hash_text(tail.hash) if tail.hash else None):
            return None
        if tail.number > signed:
            text = f"entry {row.number} does not link to entry {tail.number} of its session: one of them was changed"
            return Finding("chain", tail.number, text, until=row.number)
        before = f"entry {tail.number} of its session" if tail.number else "the start of its session"
        return Finding("chain", row.number, f"it does not link to {before}", row.id)


def _wrong_column(row: Row, entry: LinkedEntry) -> Finding | None:
    for name in COLUMNS:
        if getattr(row, name) != getattr(entry, name):
            text = f"its index says {name} `{getattr(row, name)}`, and the entry says `{getattr(entry, name)}`"
            return Finding("column", row.number, text, row.id)
    return None


def narrowed(doubt: Finding, finding: Finding) -> Finding:
    """The part of a doubted range that a broken chain points to as well; the whole range if they do not meet."""
    first = max(doubt.number, finding.number)
    last = min(doubt.until, max(finding.number, finding.until))
    return replace(finding, number=first, until=last) if first <= last else doubt


def _late(signed: str, last: str) -> bool:
    """Whether more time has passed since a checkpoint than a writer lets pass."""
    try:
        passed = datetime.fromisoformat(last) - datetime.fromisoformat(signed)
    except (TypeError, ValueError):  # entries that are not signed may hold any text as a time
        return bool(last > signed)
    return passed.total_seconds() > UNSIGNED_SECONDS


class _Checkpoints:
    """The signed checkpoints, the smallest first, and how far they prove the ledger."""

    def __init__(self, key: str, check: CheckSignature, checkpoints: Iterator[Checkpoint]) -> None:
        self._key, self._check, self._checkpoints = key, check, checkpoints
        self.ledger = ""
        self.signed = self.count = 0
        self.proven = ""  # the time at which the signed entries were there
        self.doubt: Finding | None = None  # a range that does not match its checkpoint
        self.next: CheckpointFacts | None = None
        self.wrong = self._advance()

    def compare(self, frontier: Frontier, recorded: str) -> Finding | None:
        """Check every checkpoint whose size is not larger than the number of entries read so far."""
        while self.next is not None and self.next.size <= frontier.size:
            checkpoint = self.next
            if self.doubt is None:
                if checkpoint.root == hash_text(frontier.root) and checkpoint.size == frontier.size:
                    self.signed, self.proven = checkpoint.size, max(checkpoint.time, recorded)
                else:
                    text = f"they do not match the checkpoint signed at {checkpoint.time}"
                    self.doubt = Finding("root", self.signed + 1, text, until=checkpoint.size)
            self.wrong = self._advance()
        wrong = self.wrong
        return wrong if wrong is not None and wrong.number <= frontier.size and self.doubt is None else None

    def _advance(self) -> Finding | None:
        """Read the next checkpoint; which rule it breaks."""
        checkpoint, self.next = next(self._checkpoints, None), None
        if checkpoint is None:
            return None
        self.count += 1
        size = checkpoint.size
        try:
            facts = read_checkpoint(checkpoint.body)
        except Unsound as wrong:
            return Finding("head", size, f"the checkpoint after it cannot be read: {wrong}")
        if facts.size != size:
            text = f"the index of the checkpoint after it says size {size}, and the checkpoint says {facts.size}"
            return Finding("head", size, text)
        if facts.key != self._key:
            return Finding("key", size, f"the checkpoint after it is signed with {facts.key}, not with {self._key}")
        if not self._check(facts.key, checkpoint.body, checkpoint.signature):
            return Finding("signature", size, f"the checkpoint after it has no valid signature of {facts.key}")
        self.ledger = self.ledger or facts.ledger
        if facts.ledger != self.ledger:
            text = f"the checkpoint after it is of the ledger {facts.ledger}, and this one is {self.ledger}"
            return Finding("foreign", size, text)
        self.next = facts
        return None
