"""The Merkle tree (RFC 6962) over the entries of a ledger: its root, and inclusion proofs for single entries.

Leaves and inner nodes are hashed with different first bytes, so that a node cannot be passed off as an entry. The
leaves are not kept: a `Frontier` has one hash for each bit that is set in the number of leaves.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """The hash of one entry (RFC 6962, 2.1)."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node with these children (RFC 6962, 2.1)."""
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
        """Read what `bytes(frontier)` has written."""
        if len(data) % HASH_BYTES:
            raise ValueError("a frontier is a sequence of complete hashes")
        return cls(size, (data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)))

    def __bytes__(self) -> bytes:
        return b"".join(self.peaks)

    def add(self, leaf: bytes) -> None:
        """Append a leaf: each subtree that it completes is joined with its left neighbour."""
        root, size = leaf, self.size
        while size & 1:
            root = node_hash(self.peaks.pop(), root)
            size >>= 1
        self.peaks.append(root)
        self.size += 1

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append many leaves, level by level: the same as `add` for each, in half the time."""
        nodes, peaks, size, right = list(leaves), self.peaks, self.size, list[bytes]()
        self.size += len(nodes)
        while nodes:
            if size & 1:
                nodes.insert(0, peaks.pop())
            if len(nodes) & 1:
                right.append(nodes.pop())
            nodes = _paired(nodes)
            size >>= 1
        peaks += reversed(right)

    def copy(self) -> "Frontier":
        return Frontier(self.size, self.peaks)

    @property
    def root(self) -> bytes:
        if not self.peaks:
            return EMPTY_ROOT
        *left, root = self.peaks
        for peak in reversed(left):
            root = node_hash(peak, root)
        return root


def _paired(nodes: list[bytes]) -> list[bytes]:
    each = iter(nodes)
    return [sha256(b"\x01%b%b" % pair).digest() for pair in zip(each, each, strict=True)]


def inclusion_proofs(leaves: Iterable[bytes], size: int, wanted: Collection[int]) -> dict[int, list[bytes]]:
    """The inclusion proofs of several leaves of one tree, made in one pass over all leaves (RFC 6962, 2.1.1)."""
    proofs: dict[int, list[bytes]] = {index: [] for index in sorted(wanted)}
    _subtree(iter(leaves), 0, size, list(proofs), proofs)
    return proofs


def _subtree(leaves: Iterator[bytes], start: int, end: int, inside: list[int], proofs: dict[int, list[bytes]]) -> bytes:
    """The root of the leaves from `start` to `end`. For each wanted leaf (`inside`) it adds the steps of its proof."""
    if not inside or end - start == 1:
        frontier = Frontier()
        for _ in range(end - start):
            frontier.add(next(leaves))
        return frontier.root
    middle = start + (1 << (end - start - 1).bit_length() - 1)
    halves = [index for index in inside if index < middle], [index for index in inside if index >= middle]
    left = _subtree(leaves, start, middle, halves[0], proofs)
    right = _subtree(leaves, middle, end, halves[1], proofs)
    for half, other in zip(halves, (right, left), strict=True):
        for index in half:
            proofs[index].append(other)
    return node_hash(left, right)


def includes(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that the tree with this size and root has the leaf at the index (RFC 9162, 2.1.3.2)."""
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
