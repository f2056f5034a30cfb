"""A part of a ledger that is looked at by itself, so that several can be at once; `verify_joined` puts them together.

What it says is only worth something together with all that comes before it, and with a head that speaks for it: where
a session goes on from is taken from its first entry in the part, and held to what came before when it is joined.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from licet.core.ledger.linked import Columns, Finding, Linked, Session
from licet.core.ledger.merkle import subtrees

_LEAVES = 4096  # that wait to become subtrees


class Part(NamedTuple):
    """What a part says of itself, in plain data."""

    first: int
    last: int
    ledger: str
    since: bytes  # when its first entry was recorded
    recorded: bytes  # when its last one was
    begun: Mapping[Session, tuple[int, str]]  # what its first entry follows, of a session that began before
    ends: Mapping[Session, tuple[int, str, int]]  # its last entry: sequence, hash as JSON, number
    trees: Sequence[tuple[int, bytes]]  # complete subtrees: how many leaves, and the root


def look_at_part(entries: Iterable[Columns], first: int, last: int, heads: Sequence[int]) -> Part | None:
    """Look at the entries from one number to another; None if anything is wrong, or there are not so many.

    `heads` are the sizes, in order, for which there is a head: the trees of the part end there.
    """
    trees = _Trees(first - 1, last, heads)
    linked = Linked(trees, first - 1)
    if linked.all(entries) is not None or linked.clock is not None or linked.size != last:
        return None
    ends = {session: (end.sequence, end.previous, end.number) for session, end in linked.tails.items()}
    return Part(first, last, trees.ledger, linked.since, linked.recorded, linked.begun, ends, trees.made())


class _Trees:
    """The subtrees of a part, and where they end."""

    def __init__(self, size: int, last: int, heads: Sequence[int]) -> None:
        self.signed = 0
        self.doubt: Finding | None = None
        self.ledger = ""
        self._size, self._last, self._heads = size, last, heads
        self._leaves: list[bytes] = []
        self._made: list[tuple[int, bytes]] = []
        self.until = self._following()

    def grown(self, leaves: list[bytes], recorded: bytes) -> Finding | None:
        """Take the hashes of the next entries."""
        self._leaves += leaves
        size = self._size + len(self._leaves)
        if size >= self.until or len(self._leaves) >= _LEAVES:
            self._made += subtrees(self._size, self._leaves)
            self._size, self._leaves = size, []
            self.until = self._following()
        return None

    def made(self) -> Sequence[tuple[int, bytes]]:
        """All of them, when there are no more entries."""
        return [*self._made, *subtrees(self._size, self._leaves)]

    def _following(self) -> int:
        """The size of the next head: nothing here is read as what no head will speak for."""
        at = bisect_right(self._heads, self._size)
        return self._heads[at] if at < len(self._heads) else self._last
