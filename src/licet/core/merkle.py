"""The tree of RFC 6962 over the entries of a ledger: one root for all of them, and short proofs about it.

A leaf and a node are hashed with different first bytes, so that nobody can pass a node off as an entry. Nothing here
keeps the leaves: a frontier grows by one leaf at a time and is never longer than the number of bits of its size.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """The hash of one entry (RFC 6962, 2.1)."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """The right edge of a growing tree: the roots of its complete subtrees, the largest first."""

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)
        if size < 0 or len(self.peaks) != size.bit_count() or any(len(peak) != HASH_BYTES for peak in self.peaks):
            raise ValueError(f"{len(self.peaks)} subtrees cannot be a tree of {size} leaves")

    @classmethod
    def of_bytes(cls, size: int, data: bytes) -> "Frontier":
        """The frontier that `bytes(frontier)` was made of."""
        if len(data) % HASH_BYTES:
            raise ValueError("a frontier is a row of whole hashes")
        return cls(size, (data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)))

    def __bytes__(self) -> bytes:
        return b"".join(self.peaks)

    def add(self, leaf: bytes) -> None:
        """Take one more leaf: each subtree that is complete by it becomes one with its neighbour."""
        peaks, size = self.peaks, self.size
        while size & 1:
            leaf = node_hash(peaks.pop(), leaf)
            size >>= 1
        peaks.append(leaf)
        self.size += 1

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Take many leaves, one level of the tree after the other: the same as `add` for each, in half the time."""
        nodes, peaks, size, right = list(leaves), self.peaks, self.size, list[bytes]()
        self.size += len(nodes)
        while nodes:
            if size & 1:
                nodes.insert(0, peaks.pop())
            if len(nodes) & 1:
                right.append(nodes.pop())
            each = iter(nodes)
            nodes = [sha256(b"\x01%b%b" % pair).digest() for pair in zip(each, each, strict=True)]
            size >>= 1
        peaks += reversed(right)

    def copy(self) -> "Frontier":
        """A frontier that grows by itself from here."""
        return Frontier(self.size, self.peaks)

    @property
    def root(self) -> bytes:
        """The root of the tree as it is now."""
        if not self.peaks:
            return EMPTY_ROOT
        *left, root = self.peaks
        for peak in reversed(left):
            root = node_hash(peak, root)
        return root


def root_of(leaves: Iterable[bytes]) -> bytes:
    """The root of a tree with these leaf hashes."""
    frontier = Frontier()
    frontier.extend(leaves)
    return frontier.root


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """What leads from one leaf to the root (RFC 6962, 2.1.1), the nearest neighbour first."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"there is no leaf {index} in a tree of {len(leaves)}")
    start, end, proof = 0, len(leaves), []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            proof.append(_subtree(leaves, middle, end))
            end = middle
        else:
            proof.append(_subtree(leaves, start, middle))
            start = middle
    return proof[::-1]


def includes(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that a leaf stands at an index of the tree with this size and root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(step, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, step)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def consistency_proof(leaves: Sequence[bytes], old: int) -> list[bytes]:
    """What shows that a tree begins with the one that its first `old` leaves were (RFC 6962, 2.1.2)."""
    if not 0 <= old <= len(leaves):
        raise ValueError(f"a tree of {len(leaves)} leaves was never one of {old}")
    if old in (0, len(leaves)):
        return []
    start, end, whole, proof = 0, len(leaves), True, []
    while old != end:  # `old` and the borders count from the first leaf of all
        middle = start + _split(end - start)
        if old <= middle:
            proof.append(_subtree(leaves, middle, end))
            end = middle
        else:
            proof.append(_subtree(leaves, start, middle))
            start, whole = middle, False
    if not whole:  # otherwise it is the old root itself, which whoever checks has
        proof.append(_subtree(leaves, start, end))
    return proof[::-1]


def extends(old: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether a proof shows that the tree of `size` begins with the one of `old` (RFC 9162, 2.1.4.2)."""
    if old > size or old < 0:
        return False
    if old in (0, size):
        return not proof and old_root == (EMPTY_ROOT if old == 0 else root)
    steps = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not steps:
        return False
    place, last = old - 1, size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    then = now = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            then, now = node_hash(step, then), node_hash(step, now)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            now = node_hash(now, step)
        place, last = place >> 1, last >> 1
    return last == 0 and then == old_root and now == root


def _split(size: int) -> int:
    """The largest power of two below a size: how many leaves stand on the left."""
    return 1 << (size - 1).bit_length() - 1


def _subtree(leaves: Sequence[bytes], start: int, end: int) -> bytes:
    return root_of(leaves[at] for at in range(start, end))
