"""Holding a whole ledger to what it says of itself: every hash, every chain, every signed head, in one pass.

It sees rows and heads as they come and keeps only the end of each session's chain, so a ledger of any size can be
verified. What was changed with all hashes behind it, but without the key, no longer fits the heads.
"""

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby

from licet.core.ledger.entry import CheckSignature, Head, HeadFacts, Unsound, read_head
from licet.core.ledger.linked import NEVER, Chain, Columns, Finding, Linked, Outcome
from licet.core.ledger.merkle import Frontier
from licet.core.ledger.verify_part import Part

# No writer leaves more behind its last head: it signs within moments, or after so many entries.
UNSIGNED_SECONDS, UNSIGNED_ENTRIES = 10, 4096


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
    walk = _Walk(_Heads(key, check, _in_order(heads, kept)))
    return walk.outcome(walk.linked.all(entries) or walk.end())


def verify_joined(
    entries: Iterable[Columns],
    parts: Iterable[Part | None],
    rest: Iterable[Columns],
    heads: Iterable[Head],
    *,
    key: str,
    check: CheckSignature,
    kept: Iterable[Head] = (),
) -> Outcome | None:
    """As `verify`, where somebody else has looked at the entries between the first and the rest.

    None if anything is wrong with any of them: what it is, and where, only `verify` can tell.
    """
    held = _Heads(key, check, _in_order(heads, kept))
    walk, joined = _Walk(held), 0
    if walk.linked.all(entries) is not None:
        return None
    for part in parts:
        if part is None or not walk.join(part):
            return None
        joined = part.last
    finding = walk.linked.all(rest) or walk.end()
    # What no head speaks for is to be read word by word, and a part is not.
    return walk.outcome(None) if finding is None and held.signed >= joined else None


def _in_order(heads: Iterable[Head], kept: Iterable[Head]) -> Iterator[Head]:
    every = heapq.merge(heads, sorted(kept, key=_size), key=_size)
    return (head for head, _ in groupby(every))  # one that was kept elsewhere too counts once


def _size(head: Head) -> int:
    return head.size


def _late(signed: str, last: str) -> bool:
    """Whether more time has passed since a head than a writer lets pass."""
    try:
        passed = datetime.fromisoformat(last) - datetime.fromisoformat(signed)
    except (TypeError, ValueError):  # of what nobody has signed
        return bool(last > signed)
    return passed.total_seconds() > UNSIGNED_SECONDS


class _Walk:
    """One pass over a ledger."""

    def __init__(self, heads: "_Heads") -> None:
        self._heads = heads
        self.linked = Linked(heads)

    def outcome(self, finding: Finding | None) -> Outcome:
        heads, linked = self._heads, self.linked
        root = "sha256:" + heads.frontier.root.hex()
        recorded = linked.recorded.decode(errors="replace")
        ends = {session: chain.tail for session, chain in linked.tails.items()}
        counts = heads.frontier.size, heads.count, heads.signed
        return Outcome(*counts, heads.ledger, root, finding, bytes(heads.frontier), recorded, ends)

    def join(self, part: Part) -> bool:
        """Go on behind a part that was looked at by itself; False if it does not follow, or a head does not fit."""
        heads, linked = self._heads, self.linked
        if (part.first, part.ledger) != (linked.size + 1, heads.ledger) or part.since < linked.recorded:
            return False
        for session, (sequence, previous, number) in part.ends.items():
            chain, began = linked.tails.setdefault(session, Chain()), part.begun.get(session, (0, "null"))
            if began != (chain.sequence, chain.previous):
                return False
            chain.sequence, chain.previous, chain.number = sequence, previous, number
        linked.size, linked.recorded = part.last, part.recorded
        return all(heads.joined(leaves, root, part.recorded) for leaves, root in part.trees)

    def end(self) -> Finding | None:
        """What only shows when there are no more entries."""
        heads = self._heads
        size = heads.frontier.size
        if (finding := heads.so_far() or heads.doubt or heads.wrong) is not None:
            return finding
        if heads.next is not None:
            more = f"a head of {heads.next.time} has signed {heads.next.size} entries, and there are {size}"
            if size > heads.signed:  # some may have been taken out of them, and all that follow written anew
                more += f"; nothing after entry {heads.signed} fits a head, so none of it is proven"
            return Finding("truncated", size + 1, more, until=heads.next.size)
        if size and not heads.signed:
            return Finding("unsigned", 1, "no head speaks for any entry", until=size)
        if size - heads.signed > UNSIGNED_ENTRIES or _late(heads.proven, self.linked.recorded.decode(errors="replace")):
            text = f"not proven: the last head that is left was signed at {heads.proven}, and one is signed in moments"
            return Finding("unsigned", heads.signed + 1, text, until=size)
        return self.linked.clock


class _Heads:
    """The signed heads, the smallest first, and the tree that they are held against."""

    def __init__(self, key: str, check: CheckSignature, heads: Iterator[Head]) -> None:
        self._key, self._check, self._heads = key, check, heads
        self.frontier = Frontier()
        self.ledger = ""
        self.signed = self.count = 0
        self.proven = ""  # when what is signed was there
        self.doubt: Finding | None = None  # a range that a head does not fit
        self.next: HeadFacts | None = None
        self.until = 0
        self._recorded = b""
        self.wrong = self._advance()
        self.so_far()

    def grown(self, leaves: list[bytes], recorded: bytes) -> Finding | None:
        """Take the hashes of the next entries; what is wrong with a head up to them."""
        self._recorded = recorded
        self.frontier.extend(leaves)
        return self.so_far() if self.frontier.size >= self.until else None

    def joined(self, leaves: int, root: bytes, recorded: bytes) -> bool:
        """Take so many entries, a whole subtree of them; False if a head does not fit, or is about some of them."""
        self._recorded = recorded
        self.frontier.add(root, leaves)
        size = self.frontier.size
        return size < self.until or (size == self.until and self.so_far() is None and self.doubt is None)

    def so_far(self) -> Finding | None:
        """Hold the entries so far to the heads that speak for no more than them."""
        frontier = self.frontier
        while self.next is not None and self.next.size <= frontier.size:
            head = self.next
            if self.doubt is None:
                if head.root == "sha256:" + frontier.root.hex() and head.size == frontier.size:
                    self.signed, self.proven = head.size, max(head.time, self._recorded.decode(errors="replace"))
                else:
                    text = f"they are not those that were signed at {head.time}"
                    self.doubt = Finding("root", self.signed + 1, text, until=head.size)
            self.wrong = self._advance()
        wrong = self.wrong
        following = self.next.size if self.next is not None else wrong.number if wrong is not None else None
        self.until = NEVER if following is None else following
        return wrong if wrong is not None and wrong.number <= frontier.size and self.doubt is None else None

    def _advance(self) -> Finding | None:
        """Take the next head; what is wrong with it."""
        head, self.next = next(self._heads, None), None
        if head is None:
            return None
        self.count += 1
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
        self.ledger = self.ledger or facts.ledger
        if facts.ledger != self.ledger:
            text = f"the head after it is of the ledger {facts.ledger}, and this one is {self.ledger}"
            return Finding("foreign", facts.size, text)
        self.next = facts
        return None
