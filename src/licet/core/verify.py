"""Holding a whole ledger to what it says of itself: every hash, every chain, every signed head, in one pass.

It sees rows and heads as they come and keeps only the end of each session's chain, so a ledger of any size can be
verified. What was changed with all hashes behind it, but without the key, no longer fits the heads.
"""

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from typing import Any

from licet.core.canonical import quoted
from licet.core.finding import Finding, Outcome, both
from licet.core.heads import CheckSignature, Head, HeadFacts, read_head
from licet.core.merkle import Frontier, leaf_hash
from licet.core.receipt import Row, Tail, Unsound, canonical_text, check_entry

_MOST_KINDS, _NEVER = 4096, 1 << 63
# No writer leaves more behind its last head: it signs within moments, or after so many entries.
UNSIGNED_SECONDS, UNSIGNED_ENTRIES = 10, 4096
_LEAVES = 512  # that wait for their place in the tree
_AT_ID, _TIME = ',"format":1,"id":', len("2026-01-01T00:00:00.000000Z")
_SEARCHED = ("id", "kind", "agent", "session", "sequence", "tool", "verdict", "time")
_LAST = ("tool", "tool_digest", "truncated", "verdict")
_FORMAT_ID = _AT_ID.encode()
_LEAF = sha256(b"\x00")  # `leaf_hash` begins so; to copy it is quicker than to begin anew
# The fields of a `Row`: to make one of each of a million tuples takes a while.
Columns = tuple[int, str, str, str, str, int, str, str, str, bytes, bytes]


def verify(
    entries: Iterable[Columns],
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


def _in_session(session: str) -> str:
    return f',"session":{quoted(session)},"time":"'


class _Chain:
    """The end of one session's chain, and how the next entry names it."""

    __slots__ = ("number", "previous", "sequence")

    def __init__(self) -> None:
        self.sequence = self.number = 0
        self.previous = "null"

    @property
    def tail(self) -> Tail:
        return Tail(self.sequence, bytes.fromhex(self.previous[len('"sha256:') : -1]), self.number)


# What entries of one tool, session and outcome have in common: the chain, the first bytes, the words between id,
# number, parent, previous, recorded; sequence, time, and the end. Then how far from its end the time of recording is.
_Like = tuple[_Chain, bytes, str, str, str, str, str, int]


class _Walk:
    """One pass over a ledger."""

    def __init__(self, key: str, check: CheckSignature, heads: Iterator[Head]) -> None:
        self._key, self._check, self._heads = key, check, heads
        self._frontier = Frontier()
        self._tails: dict[tuple[str, str], _Chain] = {}
        self._ledger = ""
        self._like: dict[tuple[str, str, str, str, str], _Like] = {}
        self._shapes: dict[tuple[str, str, str, str], _Like] = {}  # the same in any session
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

    def all(self, entries: Iterable[Columns]) -> Finding | None:
        """Every entry; the first thing that is wrong, with one of them or with a head up to it.

        Most entries are like one before them but for a few words. Whether one is, and follows, is seen at a glance
        here; any other is read word by word, and so is each that no head will speak for: whoever has no key could
        have written it. A million times: what is short here is quick.
        """
        like_of, begin_leaf, frontier, leaves = self._like.get, _LEAF.copy, self._frontier, list[bytes]()
        until, last = self._until, self._recorded
        for expected, row in enumerate(entries, 1):
            number, name, kind, agent, session, sequence, tool, verdict, time, hashed, body = row
            at = -1
            try:
                like = like_of((kind, agent, session, tool, verdict)) or self._like_elsewhere(row)
                if like is not None and number == expected and until != _NEVER:
                    chain, opening, kept, parent, reason, within, closing, behind = like
                    middle = f"{_AT_ID}{quoted(name)}{kept}{number}{parent}{chain.previous}{reason}".encode()
                    leaf = begin_leaf()
                    leaf.update(body)
                    if (
                        sequence == chain.sequence + 1
                        and body.startswith(opening)
                        and body.endswith(f',"sequence":{sequence}{within}{time}{closing}'.encode())
                        and leaf.digest() == hashed
                    ):
                        at = len(body) - behind
                        if not body.endswith(middle, 0, at):
                            at = self._found(row, like, middle)
            except (AttributeError, TypeError, ValueError):  # a column or a body that holds anything else
                at = -1
            if at < 0:
                frontier.extend(leaves)
                leaves.clear()
                self._recorded = last
                if (finding := self.take(Row(*row))) is not None:
                    return finding
                until, last = self._until, self._recorded
                continue
            recorded = body[at : at + _TIME]
            if recorded < last:
                self._went_back(number, name, last, recorded)
            last = recorded
            chain.sequence, chain.number, chain.previous = sequence, number, f'"sha256:{hashed.hex()}"'
            leaves.append(hashed)
            if number >= until or len(leaves) == _LEAVES:
                frontier.extend(leaves)
                leaves.clear()
                self._recorded = last
                if number >= until and (finding := self._heads_so_far()) is not None:
                    return finding
                until = self._until
        self._recorded = last
        frontier.extend(leaves)
        return None

    def _like_elsewhere(self, row: Columns) -> _Like | None:
        """What an entry has in common with those of other sessions, if it is the first of its own."""
        _, _, kind, agent, session, _, tool, verdict, _, _, _ = row
        shape = self._shapes.get((kind, agent, tool, verdict))
        if shape is None:
            return None
        _, opening, kept, parent, reason, _, closing, behind = shape
        chain = self._tails.setdefault((agent, session), _Chain())
        like = chain, opening, kept, parent, reason, _in_session(session), closing, behind
        self._remember((kind, agent, session, tool, verdict), like)
        return like

    def _remember(self, key: tuple[str, str, str, str, str], like: _Like) -> None:
        if len(self._like) >= _MOST_KINDS:
            self._like.clear()
        if len(self._shapes) >= _MOST_KINDS:
            self._shapes.clear()
        kind, agent, _, tool, verdict = key
        self._like[key] = self._shapes[kind, agent, tool, verdict] = like

    def _found(self, row: Columns, like: _Like, middle: bytes) -> int:
        """Where an entry has these words, and says next when it was recorded; remembered, for most say it there.

        Strings in JSON have their quotes escaped: what has bare quotes can only stand where the keys are.
        """
        _, _, kind, agent, session, _, tool, verdict, _, _, body = row
        at = body.find(_FORMAT_ID)
        if not body.startswith(middle, at):
            return -1
        at += len(middle)
        self._remember((kind, agent, session, tool, verdict), (*like[:7], len(body) - at))
        return at

    def take(self, row: Row) -> Finding | None:
        """One more entry, read word by word; what is wrong with it, or with a head up to it."""
        try:
            finding = self._standing(row)
        except (AttributeError, TypeError, ValueError) as wrong:  # no entry, or a column that holds anything else
            finding = self._unreadable(row, wrong)
        if finding is not None:
            return finding if self._doubt is None else both(self._doubt, finding)
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
            if size > self._signed:  # some may have been taken out of them, and all that follow written anew
                more += f"; nothing after entry {self._signed} fits a head, so none of it is proven"
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

    def _went_back(self, number: int, name: str, last: bytes, recorded: bytes) -> None:
        """Note where the clock went back first."""
        if self._clock is None:
            text = f"the time went back from {last.decode()} to {recorded.decode(errors='replace')}"
            self._clock = Finding("clock", number, text, name)

    def _read(self, row: Row, chain: "_Chain") -> Finding | None:
        """Read an entry word by word, and remember what others of its kind will have in common with it."""
        entry = check_entry(row.body)
        self._ledger = self._ledger or entry["ledger"]  # no head has told it yet
        if (finding := self._misfit(row, entry)) is not None:
            return finding
        if row.sequence != chain.sequence + 1 or canonical_text(entry["previous"]) != chain.previous.encode():
            return self._broken(row, chain)
        names = "kind", "ledger", "manifest"
        kept = "".join(f',"{name}":{quoted(entry[name])}' for name in names)
        rest = "".join(f',"{name}":{canonical_text(entry[name]).decode()}' for name in _LAST)
        like = (
            chain,
            f'{{"agent":{quoted(entry["agent"])},"approvals":'.encode(),
            f'{kept},"number":',
            f',"parent":{canonical_text(entry["parent"]).decode()},"previous":',
            f',"reason":{quoted(entry["reason"])},"recorded":"',
            _in_session(entry["session"]),
            f'"{rest}}}',
            0,
        )
        self._remember((row.kind, row.agent, row.session, row.tool, row.verdict), like)
        recorded = entry["recorded"].encode()
        if recorded < self._recorded:
            self._went_back(row.number, row.id, self._recorded, recorded)
        self._recorded = recorded
        chain.sequence, chain.number, chain.previous = row.sequence, row.number, f'"sha256:{row.hash.hex()}"'
        self._tails[row.agent, row.session] = chain
        return None

    def _unreadable(self, row: Row, wrong: Exception) -> Finding:
        """What is wrong with a row that could not even be looked at."""
        try:
            finding = self._misfit(row, check_entry(bytes(row.body)))
        except (TypeError, ValueError) as also:
            return Finding("edited", row.number, str(also), row.id)
        return finding or Finding("edited", row.number, str(wrong), row.id)

    def _misfit(self, row: Row, entry: dict[str, Any]) -> Finding | None:
        """Say what of a row does not fit what its body says."""
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
