"""Verifies a ledger in one pass over its entries and its signed checkpoints.

It checks these rules. The first broken rule is the finding:

- Entries are numbered from 1 without gaps (`missing`, `moved`).
- The bytes of an entry have the recorded hash, are canonical JSON, and fit the schema of this format (`edited`).
- An entry names the ledger that all others name (`foreign`).
- The index columns of an entry are equal to its fields (`column`).
- An entry has the next sequence number of its session, and the hash of the session's previous entry (`chain`).
- An entry of a running call comes after the decision of the call, and before its receipt (`order`).
- A checkpoint can be read (`head`), names the right key (`key`), is signed with it (`signature`), and is of this ledger
  (`foreign`).
- The root that a checkpoint signs is the root of the tree over that many entries (`root`). Only this rule
  proves the number of an entry. Later entries are still read, since a broken chain may narrow the range of the finding.
- No checkpoint covers more entries than there are (`truncated`).
- A checkpoint covers all entries but the newest: at most 4096 of them, recorded in at most 10 seconds (`unsigned`).
- The time of recording does not go back by more than a minute (`clock`): the clocks of many nodes differ a little. It
  is reported only if no other rule is broken.

Of a file, `backends.ledger.verify` also checks that every call has an id of its own (`twice`).

Only the end of each session's chain and the calls without a receipt are kept in memory, so a ledger of any size can be
verified.

    outcome = verify(reader.entries(), reader.checkpoints(), key="ed25519:…", check=check_signature)
    if outcome.finding is not None:
        print(outcome.finding)  # entry 7 (r-7): its bytes are not those that were hashed

Evidence packs: a few entries that can be checked without their ledger, signed as an in-toto Statement in DSSE.

A pack has a signed checkpoint, the bytes of its entries, and for each entry its number and the inclusion proof for the
tree of the checkpoint. The same entries and checkpoint always give the same bytes. A pack proves that its entries are
in the ledger. It does not prove that other entries do not exist.
"""

import base64
import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.ledger.entry import (
    CLOCK_CORRECTION,
    COLUMNS,
    START,
    Checkpoint,
    CheckpointFacts,
    CheckSignature,
    LinkedEntry,
    Row,
    Tail,
    Unsound,
    canonical_object,
    entry_fields,
    hash_text,
    read_checkpoint,
    read_entry,
)
from licet.core.ledger.merkle import Frontier, includes, leaf_hash
from licet.core.values import canonical_json

_columns = attrgetter(*COLUMNS)
_AT_ONCE = 1024  # leaves
# A writer signs a checkpoint earlier than this.
UNSIGNED_SECONDS, UNSIGNED_ENTRIES = 10, 4096

FindingKind = Literal[
    "edited",
    "column",
    "missing",
    "moved",
    "foreign",
    "chain",
    "order",
    "root",
    "truncated",
    "key",
    "signature",
    "checkpoint",
    "unsigned",
    "twice",
    "clock",
]


class Finding(Struct, frozen=True):
    """The first broken rule, with the entry or the range of entries that it is about."""

    kind: FindingKind
    number: int  # 0: of an entry that has no place in the tree yet
    text: str
    id: str = ""
    until: int = 0  # the last entry, if the finding is about a range

    def __str__(self) -> str:
        where = f"entries {self.number} to {self.until}" if self.until > self.number else f"entry {self.number}"
        where = where if self.number else "an entry without a place"
        return f"{where}{f' ({self.id})' if self.id else ''}: {self.text}"


class Outcome(Struct, frozen=True):
    """The result of a verification."""

    entries: int
    checkpoints: int
    signed: int  # entries that the last checkpoint covers; later ones are linked, but not signed yet
    ledger: str
    root: str  # of all entries
    finding: Finding | None
    # The end of the ledger as its entries show it; the caller compares it with the state that the file has stored.
    frontier: bytes = b""
    recorded: str = ""
    ends: Mapping[tuple[str, str], Tail] = {}  # the last entry of each agent and session
    tagged: bool = False  # whether the MAC over the entries that are not signed yet was checked with the private key
    unknown: tuple[str, ...] = ()  # the ids of calls that began and have no receipt, the newest first
    waiting: int = 0  # entries of a database that have no place in the tree yet, so that no checkpoint covers them

    @property
    def ok(self) -> bool:
        return self.finding is None


def verify(
    rows: Iterable[Row],
    checkpoints: Iterable[Checkpoint],
    *,
    key: str,
    check: CheckSignature,
    kept: Iterable[Checkpoint] = (),
) -> Outcome:
    """Check every rule.

    `key` is the public key that all checkpoints must be signed with. `kept` are checkpoints that were stored outside
    the ledger. Without them, an older copy of the complete file would not be noticed.
    """
    ledger = _Ledger(_Checkpoints(key, check, _in_order(checkpoints, kept)))
    finding = ledger.read_all(rows) or ledger.end()
    return ledger.outcome(finding)


def _in_order(checkpoints: Iterable[Checkpoint], kept: Iterable[Checkpoint]) -> Iterator[Checkpoint]:
    every = heapq.merge(checkpoints, sorted(kept, key=_size), key=_size)
    return (checkpoint for checkpoint, _ in groupby(every))  # a checkpoint that is also in `kept` counts once


def _size(checkpoint: Checkpoint) -> int:
    return checkpoint.size


class _Ledger:
    """The state of one pass: the tree, the chains, and the time of the last entry."""

    def __init__(self, checkpoints: "_Checkpoints") -> None:
        self._checkpoints = checkpoints
        self._ledger = checkpoints.ledger
        self._frontier = Frontier()
        self._leaves: list[bytes] = []  # of the entries that were read since it grew
        self._tails: dict[tuple[str, str], Tail] = {}
        self._open: set[tuple[str, str, str]] = set()  # calls that have begun and have no receipt so far
        self._recorded = ""
        self._clock: Finding | None = None  # where the time first went back

    def read_all(self, rows: Iterable[Row]) -> Finding | None:
        """Read every entry, and each checkpoint once its entries are read; return the first broken rule."""
        checkpoints, frontier = self._checkpoints, self._frontier
        checkpoints.compare(frontier, "")
        for number, row in enumerate(rows, 1):
            if (finding := self._broken_rule(row, number)) is not None:
                self._grow()
                return finding if checkpoints.mismatch is None else narrowed(checkpoints.mismatch, finding)
            self._leaves.append(row.hash)
            if checkpoints.is_due(number) or len(self._leaves) == _AT_ONCE:
                self._grow()
                if (finding := checkpoints.compare(frontier, self._recorded)) is not None:
                    return finding
        self._grow()
        return None

    def _grow(self) -> None:
        """Add the leaves to the tree, many at once."""
        self._frontier.extend(self._leaves)
        self._leaves.clear()

    def end(self) -> Finding | None:
        """Check the rules about the number of entries, after all were read."""
        checkpoints, size = self._checkpoints, self._frontier.size
        if (finding := checkpoints.mismatch or checkpoints.wrong) is not None:
            return finding
        if (following := checkpoints.next) is not None:
            text = f"a checkpoint of {following.time} has signed {following.size} entries, and there are {size}"
            if size > checkpoints.signed:  # the last entries may be new ones, written over missing ones
                text += f"; no checkpoint covers what is after entry {checkpoints.signed}, so none of it is proven"
            return Finding("truncated", size + 1, text, until=following.size)
        if size and not checkpoints.signed:
            return Finding("unsigned", 1, "no checkpoint covers any entry", until=size)
        if size - checkpoints.signed > UNSIGNED_ENTRIES or _late(checkpoints.proven, self._recorded):
            text = f"not proven: the last checkpoint was signed at {checkpoints.proven}, and one is signed in moments"
            return Finding("unsigned", checkpoints.signed + 1, text, until=size)
        return self._clock

    def outcome(self, finding: Finding | None) -> Outcome:
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

    def _broken_rule(self, row: Row, expected: int) -> Finding | None:
        """Check one entry, and make it the end of its session's chain."""
        number = row.number
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
        finding = finding or self._out_of_order(row, entry)
        if finding is not None:
            return finding
        if entry.recorded < self._recorded and self._clock is None and _went_back(entry.recorded, self._recorded):
            text = f"the time went back from {self._recorded} to {entry.recorded}"
            self._clock = Finding("clock", number, text, row.id)
        self._recorded = entry.recorded
        self._tails[entry.agent, entry.session] = Tail(entry.sequence, row.hash, number)
        return None

    def _out_of_order(self, row: Row, entry: LinkedEntry) -> Finding | None:
        """Check that an entry of a running call comes while the call runs; note which calls do."""
        call = entry.agent, entry.session, entry.id
        match entry.kind:
            case "decision":
                self._open.add(call)
            case "receipt":
                self._open.discard(call)
            case "progress" if call not in self._open:
                text = "it says what a running call did, and comes before its decision or after its receipt"
                return Finding("order", row.number, text, row.id)
        return None

    def _foreign(self, row: Row, entry: LinkedEntry) -> Finding | None:
        self._ledger = self._ledger or self._checkpoints.ledger or entry.ledger
        if entry.ledger == self._ledger:
            return None
        text = f"it was written to the ledger {entry.ledger}, and this one is {self._ledger}"
        return Finding("foreign", row.number, text, row.id)

    def _broken_chain(self, row: Row, entry: LinkedEntry) -> Finding | None:
        """Check the sequence number and the link to the session's previous entry."""
        tail, signed = self._tails.get((entry.agent, entry.session), START), self._checkpoints.signed
        if entry.sequence != tail.sequence + 1:
            first = max(signed, tail.number) + 1  # no entry is missing before this one
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
    if _columns(row) == _columns(entry):
        return None
    for name in COLUMNS:
        if getattr(row, name) != getattr(entry, name):
            text = f"its index says {name} `{getattr(row, name)}`, and the entry says `{getattr(entry, name)}`"
            return Finding("column", row.number, text, row.id)
    return None


def narrowed(mismatch: Finding, finding: Finding) -> Finding:
    """Narrow a range that does not match its checkpoint to the part that a broken chain points to, if they overlap."""
    first = max(mismatch.number, finding.number)
    last = min(mismatch.until, max(finding.number, finding.until))
    return replace(finding, number=first, until=last) if first <= last else mismatch


def _went_back(recorded: str, last: str) -> bool:
    """Whether a time is so much earlier than the one before that it is no correction of a clock."""
    try:
        return datetime.fromisoformat(last) - datetime.fromisoformat(recorded) > CLOCK_CORRECTION
    except (TypeError, ValueError):  # an entry may have any text as its time
        return True


def _late(signed: str, last: str) -> bool:
    """Whether the last entry was recorded so long after a checkpoint that another one should have been signed."""
    try:
        passed = datetime.fromisoformat(last) - datetime.fromisoformat(signed)
    except (TypeError, ValueError):  # entries that are not signed may have any text as their time
        return bool(last > signed)
    return passed.total_seconds() > UNSIGNED_SECONDS


class _Checkpoints:
    """Reads the checkpoints in the order of their sizes, and tracks how many entries they prove."""

    def __init__(self, key: str, check: CheckSignature, checkpoints: Iterator[Checkpoint]) -> None:
        self._key, self._check, self._checkpoints = key, check, checkpoints
        self.ledger = ""
        self.signed = self.count = 0
        self.proven = ""  # the time of the last checkpoint, or of the last entry that it covers if that is later
        self.mismatch: Finding | None = None  # a range that does not match its checkpoint
        self.next: CheckpointFacts | None = None
        self.wrong = self._advance()

    def is_due(self, size: int) -> bool:
        """Whether a checkpoint is to be checked, or one that is wrong reported, after so many entries."""
        following, wrong = self.next, self.wrong
        return (following is not None and following.size <= size) or (wrong is not None and wrong.number <= size)

    def compare(self, frontier: Frontier, recorded: str) -> Finding | None:
        """Check every checkpoint whose size is not larger than the number of entries read so far."""
        while self.next is not None and self.next.size <= frontier.size:
            checkpoint = self.next
            if self.mismatch is None:
                if checkpoint.root == hash_text(frontier.root) and checkpoint.size == frontier.size:
                    self.signed, self.proven = checkpoint.size, max(checkpoint.time, recorded)
                else:
                    text = f"they do not match the checkpoint signed at {checkpoint.time}"
                    self.mismatch = Finding("root", self.signed + 1, text, until=checkpoint.size)
            self.wrong = self._advance()
        wrong = self.wrong
        return wrong if wrong is not None and wrong.number <= frontier.size and self.mismatch is None else None

    def _advance(self) -> Finding | None:
        """Read the next checkpoint. Return what is wrong with it, or None."""
        checkpoint, self.next = next(self._checkpoints, None), None
        if checkpoint is None:
            return None
        self.count += 1
        size = checkpoint.size
        try:
            facts = read_checkpoint(checkpoint.body)
        except Unsound as wrong:
            return Finding("checkpoint", size, f"the checkpoint after it cannot be read: {wrong}")
        if facts.size != size:
            text = f"the index of the checkpoint after it says size {size}, and the checkpoint says {facts.size}"
            return Finding("checkpoint", size, text)
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


PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:licet:receipts:2"


class Pack(Struct, frozen=True):
    """The contents of a pack that was checked."""

    key: str
    checkpoint: CheckpointFacts
    entries: tuple[dict[str, Any], ...]  # the number and the fields of each


# Checkpoints that are stored elsewhere ------------------------------------------------------------------------------


def checkpoint_line(checkpoint: Checkpoint) -> str:
    """A checkpoint as one line of text, to store it outside the ledger."""
    fields = {"checkpoint": canonical_object(checkpoint.body), "signature": _text(checkpoint.signature)}
    return canonical_json(fields).decode()


def read_checkpoint_lines(text: str) -> list[Checkpoint]:
    """Read checkpoints, one per line; `Unsound` if a line is not a checkpoint, or there is none."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = canonical_object(line.strip().encode())
            if fields.keys() != {"checkpoint", "signature"}:
                raise Unsound("expected a line that `licet receipts head` has printed")
            body = canonical_json(fields["checkpoint"])
            found.append(Checkpoint(read_checkpoint(body).size, body, _bytes(fields["signature"])))
        except ValueError as wrong:
            raise Unsound(f"line {number} is no checkpoint of a ledger: {wrong}") from None
    if not found:
        raise Unsound("there is no checkpoint in it")
    return found


# Making --------------------------------------------------------------------------------------------------------------


def statement(rows: Iterable[Row], checkpoint: Checkpoint, proofs: dict[int, list[bytes]]) -> bytes:
    """The in-toto Statement about some entries, as canonical JSON. The keys of `proofs` are indexes from 0."""
    rows = sorted(rows, key=lambda row: row.number)
    subjects = [{"name": _subject_name(row), "digest": {"sha256": sha256(row.body).hexdigest()}} for row in rows]
    entries = [
        {"body": row.body.decode(), "number": row.number, "proof": [step.hex() for step in proofs[row.number - 1]]}
        for row in rows
    ]
    signed = {"body": checkpoint.body.decode(), "signature": _text(checkpoint.signature)}
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": subjects,
            "predicateType": PREDICATE_TYPE,
            "predicate": {"checkpoint": signed, "entries": entries},
        }
    )


def _subject_name(entry: Row | LinkedEntry) -> str:
    """The name of an entry in a pack. No two entries have the same: only of `progress` a call has several."""
    name = f"{entry.id}/{entry.kind}"
    return f"{name}/{entry.sequence}" if entry.kind == "progress" else name


def to_sign(payload: bytes) -> bytes:
    """The bytes that are signed for a payload: DSSE's pre-authentication encoding, which includes the payload type."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope(payload: bytes, key: str, signature: bytes) -> str:
    """The DSSE envelope around a signed payload."""
    signed = {"keyid": key, "sig": base64.b64encode(signature).decode()}
    packed = base64.b64encode(payload).decode()
    return canonical_json({"payload": packed, "payloadType": PAYLOAD_TYPE, "signatures": [signed]}).decode() + "\n"


# Checking ------------------------------------------------------------------------------------------------------------


def is_pack(data: bytes) -> bool:
    """Whether data looks like a pack. Nothing is verified: it may be forged."""
    try:
        found = json.loads(base64.b64decode(json.loads(data)["payload"]))
        return bool(found["predicateType"] == PREDICATE_TYPE)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def check_pack(data: bytes, key: str, check: CheckSignature) -> Pack | Finding:
    """Check a pack against a public key; return its contents, or the first error."""
    try:
        checkpoint, packed, subjects = _contents(data, key, check)
    except (KeyError, TypeError, AttributeError):
        return Finding("edited", 0, "the pack does not have the fields of a pack")
    except ValueError as wrong:
        return Finding("edited", 0, f"the pack: {wrong}")
    entries: list[dict[str, Any]] = []
    tails: dict[tuple[str, str], tuple[int, bytes]] = {}
    for one, subject in zip(packed, subjects, strict=True):
        last = entries[-1]["number"] if entries else 0
        try:
            body, number, proof = one["body"].encode(), one["number"], [bytes.fromhex(step) for step in one["proof"]]
            entry = read_entry(body)
            problem = _misplaced(entry, body, number, proof, checkpoint, last)
            problem = problem or _misnamed(entry, body, subject) or _unlinked(entry, body, tails)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return Finding("edited", last + 1, f"it cannot be read: {error}")
        if problem:
            return Finding("edited", number, problem, entry.id)
        entries.append({"number": number, **entry_fields(body)})
    return Pack(key, checkpoint, tuple(entries))


def _contents(data: bytes, key: str, check: CheckSignature) -> tuple[CheckpointFacts, list[Any], list[Any]]:
    """Check both signatures; return the checkpoint, the entries and the subjects of a pack."""
    found = canonical_object(_payload(data, key, check))
    if found.get("_type") != STATEMENT_TYPE or found.get("predicateType") != PREDICATE_TYPE:
        raise Unsound(f"it is no statement of type {PREDICATE_TYPE}")
    checkpoint = _checkpoint(found["predicate"]["checkpoint"], key, check)
    packed, subjects = found["predicate"]["entries"], found["subject"]
    if not packed or len(packed) != len(subjects):
        raise Unsound(f"it has {len(subjects)} subjects and {len(packed)} entries")
    return checkpoint, packed, subjects


def _payload(data: bytes, key: str, check: CheckSignature) -> bytes:
    found = canonical_object(data.strip())
    if found.keys() != {"payload", "payloadType", "signatures"} or found["payloadType"] != PAYLOAD_TYPE:
        raise Unsound(f"it is no DSSE envelope around {PAYLOAD_TYPE}")
    payload = _bytes(found["payload"])
    if not any(check(key, to_sign(payload), _bytes(one["sig"])) for one in found["signatures"]):
        raise Unsound(f"it has no valid signature of {key}")
    return payload


def _checkpoint(signed: dict[str, str], key: str, check: CheckSignature) -> CheckpointFacts:
    body = signed["body"].encode()
    facts = read_checkpoint(body)
    if facts.key != key or not check(key, body, _bytes(signed["signature"])):
        raise Unsound(f"its checkpoint has no valid signature of {key}")
    return facts


def _misplaced(
    entry: LinkedEntry, body: bytes, number: object, proof: list[bytes], checkpoint: CheckpointFacts, last: int
) -> str:
    """Why the proof does not show that an entry has this number in the ledger of the checkpoint; empty if it does."""
    if type(number) is not int:
        raise Unsound("its number is not an integer")
    if number <= last:
        return f"it comes after entry {last}"
    if entry.ledger != checkpoint.ledger:
        return f"it was written to the ledger {entry.ledger}, and the checkpoint is of {checkpoint.ledger}"
    if not includes(leaf_hash(body), number - 1, checkpoint.size, proof, bytes.fromhex(checkpoint.root[7:])):
        return f"the checkpoint of {checkpoint.time} does not cover it"
    return ""


def _misnamed(entry: LinkedEntry, body: bytes, subject: dict[str, Any]) -> str:
    """Why a subject does not match its entry; empty if it does."""
    expected = {"name": _subject_name(entry), "digest": {"sha256": sha256(body).hexdigest()}}
    return "" if subject == expected else f"its subject is `{subject.get('name')}` with another digest"


def _unlinked(entry: LinkedEntry, body: bytes, tails: dict[tuple[str, str], tuple[int, bytes]]) -> str:
    """Why an entry does not link to its session's previous one; empty if it does, or that one is not in the pack."""
    session = entry.agent, entry.session
    sequence, before = tails.get(session, (0, b""))
    tails[session] = entry.sequence, leaf_hash(body)
    links = entry.previous == (hash_text(before) if before else None)
    return "it does not link to the one before it" if entry.sequence == sequence + 1 and not links else ""


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise Unsound("a signature is text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Unsound("a signature is no base64") from None
