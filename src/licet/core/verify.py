"""Holding a whole ledger to what it says of itself: every hash, every chain, every signed head, in one pass.

It sees rows and heads as they come and keeps only the end of each session's chain, so a ledger of any size can be
verified. What was changed with all hashes behind it, but without the key, no longer fits the heads.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from typing import Any, Literal, NamedTuple

from licet.core.canonical import quoted
from licet.core.merkle import Frontier, leaf_hash
from licet.core.receipt import FORMAT, Row, Tail, Unsound, canonical_object, canonical_text, check_entry

Kind = Literal[
    "edited",  # the bytes of an entry are not those that were hashed, or are no entry
    "column",  # what is searched for is not what the entry says
    "missing",  # a number is left out
    "moved",  # an entry stands where it was not written, once more or in another order
    "foreign",  # an entry or a head of another ledger
    "chain",  # an entry does not follow the one before it in its session
    "root",  # some entry of a range is not the one that was signed
    "truncated",  # a head has signed more entries than there are
    "key",  # a head that another key has signed
    "signature",  # a head that nobody has signed
    "head",  # a head that is none
    "unsigned",  # more entries than could be waiting for a head have none
    "clock",  # the time went back
]
_MOST_KINDS, _NEVER = 4096, 1 << 63
# No writer leaves more behind its last head: it signs within moments, or after so many entries.
UNSIGNED_SECONDS, UNSIGNED_ENTRIES = 10, 4096
_LEAVES = 512  # that wait for their place in the tree
_AT_ID, _TIME = ',"format":1,"id":', len("2026-01-01T00:00:00.000000Z")
_SEARCHED = ("id", "kind", "agent", "session", "sequence", "tool", "verdict", "time")
_LAST = ("tool", "tool_digest", "truncated", "verdict")
_FORMAT_ID = _AT_ID.encode()
CheckSignature = Callable[[str, bytes, bytes], bool]  # of the key `ed25519:…`: message, signature


class Finding(NamedTuple):
    """The first thing that is wrong: at which entry (or up to which), and how."""

    kind: Kind
    number: int
    text: str
    id: str = ""
    until: int = 0  # the last entry of a range, where only a range is known

    def __str__(self) -> str:
        where = f"entries {self.number} to {self.until}" if self.until > self.number else f"entry {self.number}"
        return f"{where}{f' ({self.id})' if self.id else ''}: {self.text}"


class Head(NamedTuple):
    """A signed statement that a ledger had a size and a root."""

    size: int  # as it is searched for; the body counts
    body: bytes
    signature: bytes


class HeadFacts(NamedTuple):
    """What a head says."""

    ledger: str
    size: int
    root: str
    time: str
    key: str


class Outcome(NamedTuple):
    """What came of a verification."""

    entries: int
    heads: int
    signed: int  # entries that the last head speaks for; those after it are linked, and not signed yet
    ledger: str
    root: str  # of all entries
    finding: Finding | None
    # What the next entry follows, for whoever keeps it beside the entries.
    frontier: bytes = b""
    recorded: str = ""
    ends: Mapping[tuple[str, str], Tail] = {}  # of the chain of each agent and session

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.finding is None


def head_body(ledger: str, size: int, root: bytes, time: str, key: str) -> bytes:
    """The bytes that are signed."""
    return (
        f'{{"format":{FORMAT},"key":{quoted(key)},"kind":"head","ledger":{quoted(ledger)},'
        f'"root":"sha256:{root.hex()}","size":{size},"time":{quoted(time)}}}'
    ).encode()


def read_head(body: bytes) -> HeadFacts:
    """What a head says, read strictly; `Unsound` if it is none."""
    found = canonical_object(body)
    if type(found.get("format")) is int and found["format"] > FORMAT:
        raise Unsound(f"it has format {found['format']}, which a newer licet has written: use that one")
    texts = ("key", "kind", "ledger", "root", "time")
    if found.keys() != {"format", "size", *texts} or found["format"] != FORMAT or found["kind"] != "head":
        raise Unsound("it is no head of a ledger")
    if any(type(found[name]) is not str for name in texts) or type(found["size"]) is not int or found["size"] < 0:
        raise Unsound("it is no head of a ledger")
    return HeadFacts(*(found[name] for name in HeadFacts._fields))


def verify(
    entries: Iterable[Row],
    heads: Iterable[Head],
    *,
    key: str,
    check: CheckSignature,
    kept: Iterable[Head] = (),
) -> Outcome:
    """Recompute everything from the entries, and hold it to the heads that this key has signed.

    `kept` are heads from elsewhere: only they tell an older copy of the whole file from the truth.
    """
    every = heapq.merge(heads, sorted(kept, key=_size), key=_size)
    walk = _Walk(key, check, (head for head, _ in groupby(every)))  # one that was kept elsewhere too counts once
    return walk.outcome(walk.all(entries) or walk.end())


def _size(head: Head) -> int:
    return head.size


def _late(signed: str, last: str) -> bool:
    """Whether more time has passed since a head than a writer lets pass."""
    try:
        passed = datetime.fromisoformat(last) - datetime.fromisoformat(signed)
    except (TypeError, ValueError):  # of what nobody has signed
        return bool(last > signed)
    return passed.total_seconds() > UNSIGNED_SECONDS


def _both(doubt: Finding, finding: Finding) -> Finding:
    """What a head and a chain tell together: the part of the range that both speak of."""
    first = max(doubt.number, finding.number)
    last = min(doubt.until, max(finding.number, finding.until))
    return finding._replace(number=first, until=last) if first <= last else doubt


class _Chain:
    """The end of one session's chain, and how the next entry names it."""

    __slots__ = ("number", "previous", "sequence")

    def __init__(self) -> None:
        self.sequence = self.number = 0
        self.previous = "null"

    @property
    def tail(self) -> Tail:
        return Tail(self.sequence, bytes.fromhex(self.previous[len('"sha256:') : -1]), self.number)


# The chain, the first bytes, and the words between id, number, parent, previous, recorded; sequence, time, and the end.
_Like = tuple[_Chain, bytes, str, str, str, str, str]


class _Walk:
    """One pass over a ledger."""

    def __init__(self, key: str, check: CheckSignature, heads: Iterator[Head]) -> None:
        self._key, self._check, self._heads = key, check, heads
        self._frontier = Frontier()
        self._tails: dict[tuple[str, str], _Chain] = {}
        self._ledger = ""
        # What entries of one tool, session and outcome had in common the last time: most are like the one before.
        self._like: dict[tuple[str, str, str, str, str], _Like] = {}
        self._signed = self._head_count = 0
        self._recorded = b""
        self._proven = ""  # when what is signed was there
        self._doubt: Finding | None = None  # a range that a head does not fit; a chain may still say which entry it is
        self._clock: Finding | None = None
        self._next: HeadFacts | None = None
        self._until = 0  # the size at which a head has something to say
        self._wrong_head = self._advance()
        self._heads_so_far()

    def outcome(self, finding: Finding | None) -> Outcome:
        frontier = self._frontier
        root = "sha256:" + frontier.root.hex()
        recorded = self._recorded.decode(errors="replace")
        ends = {session: chain.tail for session, chain in self._tails.items()}
        counts = frontier.size, self._head_count, self._signed
        return Outcome(*counts, self._ledger, root, finding, bytes(frontier), recorded, ends)

    def all(self, entries: Iterable[Row]) -> Finding | None:
        """Every entry; the first thing that is wrong, with one of them or with a head up to it.

        Most entries are like one before them but for a few words. Whether one is, and follows, is seen at a glance
        here; any other is read word by word. A million times: what is short here is quick.
        """
        like_of, frontier, leaves = self._like.get, self._frontier, list[bytes]()
        for expected, row in enumerate(entries, 1):
            number, name, kind, agent, session, sequence, tool, verdict, time, hashed, body = row
            at = -1
            try:
                like = like_of((kind, agent, session, tool, verdict))
                if like is not None and number == expected:
                    chain, opening, kept, parent, reason, within, closing = like
                    # Strings in JSON have their quotes escaped: what has bare quotes can only stand where the keys are.
                    middle = f"{_AT_ID}{quoted(name)}{kept}{number}{parent}{chain.previous}{reason}".encode()
                    if (
                        sequence == chain.sequence + 1
                        and body.startswith(middle, found := body.find(_FORMAT_ID))
                        and body.startswith(opening)
                        and body.endswith(f',"sequence":{sequence}{within}{time}{closing}'.encode())
                        and sha256(b"\x00" + body).digest() == hashed
                    ):
                        at = found + len(middle)
            except (AttributeError, TypeError, ValueError):  # a column or a body that holds anything else
                at = -1
            if at < 0:
                frontier.extend(leaves)
                leaves.clear()
                if (finding := self.take(row)) is not None:
                    return finding
                continue
            recorded = body[at : at + _TIME]
            if recorded < self._recorded:
                self._went_back(row, recorded)
            self._recorded = recorded
            chain.sequence, chain.number, chain.previous = sequence, number, f'"sha256:{hashed.hex()}"'
            leaves.append(hashed)
            if number >= self._until or len(leaves) == _LEAVES:
                frontier.extend(leaves)
                leaves.clear()
                if number >= self._until and (finding := self._heads_so_far()) is not None:
                    return finding
        frontier.extend(leaves)
        return None

    def take(self, row: Row) -> Finding | None:
        """One more entry, read word by word; what is wrong with it, or with a head up to it."""
        try:
            finding = self._standing(row)
        except (AttributeError, TypeError, ValueError) as wrong:  # no entry, or a column that holds anything else
            finding = self._misfit(row) or Finding("edited", row.number, str(wrong), row.id)
        if finding is not None:
            return finding if self._doubt is None else _both(self._doubt, finding)
        frontier = self._frontier
        frontier.add(row.hash)
        return self._heads_so_far() if frontier.size >= self._until else None

    def end(self) -> Finding | None:
        """What only shows when there are no more entries."""
        size = self._frontier.size
        if (finding := self._heads_so_far() or self._doubt or self._wrong_head) is not None:
            return finding
        if self._next is not None:
            more = f"a head of {self._next.time} has signed {self._next.size} entries, and there are {size}"
            return Finding("truncated", size + 1, more, until=self._next.size)
        if size and not self._signed:
            return Finding("unsigned", 1, "no head speaks for any entry", until=size)
        if size - self._signed > UNSIGNED_ENTRIES or _late(self._proven, self._recorded.decode(errors="replace")):
            text = f"not proven: the last head that is left was signed at {self._proven}, and one is signed in moments"
            return Finding("unsigned", self._signed + 1, text, until=size)
        return self._clock

    def _standing(self, row: Row) -> Finding | None:
        """Whether a row stands in its place, is what was hashed, and follows the last one of its session."""
        number, name, hashed, body = row.number, row.id, row.hash, row.body
        expected = self._frontier.size + 1
        if number > expected:
            text = f"after entry {expected - 1} comes entry {number}"
            return Finding("missing", expected, text, until=number - 1)
        if number < expected:
            return Finding("moved", number, f"it stands where entry {expected} should", name)
        if leaf_hash(body) != hashed:
            return Finding("edited", number, "its bytes are not those that were hashed", name)
        return self._read(row, self._tails.get((row.agent, row.session)) or _Chain())

    def _went_back(self, row: Row, recorded: bytes) -> None:
        """Note where the clock went back first."""
        if self._clock is None:
            text = f"the time went back from {self._recorded.decode()} to {recorded.decode(errors='replace')}"
            self._clock = Finding("clock", row.number, text, row.id)

    def _read(self, row: Row, chain: "_Chain") -> Finding | None:
        """Read an entry word by word, and remember what others of its kind will have in common with it."""
        entry = check_entry(row.body)
        self._ledger = self._ledger or entry["ledger"]  # no head has told it yet
        if (finding := self._misfit(row)) is not None:
            return finding
        if row.sequence != chain.sequence + 1 or canonical_text(entry["previous"]) != chain.previous.encode():
            return self._broken(row, chain)
        if len(self._like) >= _MOST_KINDS:
            self._like.clear()
        names = "kind", "ledger", "manifest"
        kept = "".join(f',"{name}":{quoted(entry[name])}' for name in names)
        rest = "".join(f',"{name}":{canonical_text(entry[name]).decode()}' for name in _LAST)
        self._like[row.kind, row.agent, row.session, row.tool, row.verdict] = (
            chain,
            f'{{"agent":{quoted(entry["agent"])},"approvals":'.encode(),
            f'{kept},"number":',
            f',"parent":{canonical_text(entry["parent"]).decode()},"previous":',
            f',"reason":{quoted(entry["reason"])},"recorded":"',
            f',"session":{quoted(entry["session"])},"time":"',
            f'"{rest}}}',
        )
        recorded = entry["recorded"].encode()
        if recorded < self._recorded:
            self._went_back(row, recorded)
        self._recorded = recorded
        chain.sequence, chain.number, chain.previous = row.sequence, row.number, f'"sha256:{row.hash.hex()}"'
        self._tails[row.agent, row.session] = chain
        return None

    def _misfit(self, row: Row) -> Finding | None:
        """Say what of a row does not fit its body."""
        try:
            entry: dict[str, Any] = check_entry(bytes(row.body))
        except (TypeError, ValueError) as wrong:
            return Finding("edited", row.number, str(wrong), row.id)
        if entry["ledger"] != self._ledger:
            text = f"it was written to the ledger {entry['ledger']}, and this one is {self._ledger}"
            return Finding("foreign", row.number, text, row.id)
        if entry["number"] != row.number:
            return Finding("moved", row.number, f"it was written as entry {entry['number']}", row.id)
        for name in _SEARCHED:
            if (column := getattr(row, name)) != entry[name]:
                text = f"it is searched for by {name} `{column}`, and says `{entry[name]}`"
                return Finding("column", row.number, text, row.id)
        return None

    def _broken(self, row: Row, tail: "_Chain") -> Finding:
        """Where a chain broke: at one entry, or in the range that nothing vouches for."""
        if row.sequence != tail.sequence + 1:
            first = max(self._signed, tail.number) + 1  # up to there nothing is missing
            text = f"{row.id} is number {row.sequence} of its session, after number {tail.sequence}"
            return Finding("chain", first, text, row.id if first == row.number else "", row.number)
        if tail.number > self._signed:
            text = f"entry {row.number} does not follow entry {tail.number} of its session: one of them was changed"
            return Finding("chain", tail.number, text, until=row.number)
        before = f"entry {tail.number} of its session" if tail.number else "the start of its session"
        return Finding("chain", row.number, f"it does not follow {before}", row.id)

    def _heads_so_far(self) -> Finding | None:
        """Hold the entries so far to the heads that speak for no more than them."""
        frontier = self._frontier
        while self._next is not None and self._next.size <= frontier.size:
            head = self._next
            if self._doubt is None:
                if head.root == "sha256:" + frontier.root.hex() and head.size == frontier.size:
                    self._signed, self._proven = head.size, max(head.time, self._recorded.decode(errors="replace"))
                else:
                    text = f"they are not those that were signed at {head.time}"
                    self._doubt = Finding("root", self._signed + 1, text, until=head.size)
            self._wrong_head = self._advance()
        wrong = self._wrong_head
        following = self._next.size if self._next is not None else wrong.number if wrong is not None else None
        self._until = _NEVER if following is None else following
        return wrong if wrong is not None and wrong.number <= frontier.size and self._doubt is None else None

    def _advance(self) -> Finding | None:
        """Take the next head; what is wrong with it."""
        head, self._next = next(self._heads, None), None
        if head is None:
            return None
        self._head_count += 1
        try:
            facts = read_head(head.body)
        except Unsound as wrong:
            return Finding("head", head.size, f"the head after it cannot be read: {wrong}")
        if facts.size != head.size:
            text = f"the head after it is searched for by size {head.size}, and says {facts.size}"
            return Finding("head", head.size, text)
        if facts.key != self._key:
            return Finding("key", facts.size, f"the head after it is signed with {facts.key}, not with {self._key}")
        if not self._check(facts.key, head.body, head.signature):
            return Finding("signature", facts.size, f"the head after it bears no signature of {facts.key}")
        self._ledger = self._ledger or facts.ledger
        if facts.ledger != self._ledger:
            text = f"the head after it is of the ledger {facts.ledger}, and this one is {self._ledger}"
            return Finding("foreign", facts.size, text)
        self._next = facts
        return None
