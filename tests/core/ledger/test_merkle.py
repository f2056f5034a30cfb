"""The Merkle tree: the roots and proofs of RFC 6962, from known inputs and against the definition written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.core.ledger.merkle import EMPTY_ROOT, Frontier, includes, inclusion_proofs, leaf_hash, node_hash

# The inputs that the reference implementation of Certificate Transparency is tested with, and its roots after each.
INPUTS = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [leaf_hash(data) for data in INPUTS]


def naive_root(leaves: list[bytes]) -> bytes:
    """The definition of RFC 6962, 2.1, as it is written."""
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    left = 1
    while left * 2 < len(leaves):
        left *= 2
    return node_hash(naive_root(leaves[:left]), naive_root(leaves[left:]))


def naive_path(index: int, leaves: list[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    left = 1
    while left * 2 < len(leaves):
        left *= 2
    if index < left:
        return [*naive_path(index, leaves[:left]), naive_root(leaves[left:])]
    return [*naive_path(index - left, leaves[left:]), naive_root(leaves[:left])]


def root_of(leaves: list[bytes]) -> bytes:
    frontier = Frontier()
    frontier.extend(leaves)
    return frontier.root


def test_the_empty_tree_and_the_prefixes_are_those_of_the_rfc() -> None:
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert root_of([]) == Frontier().root == EMPTY_ROOT
    assert leaf_hash(b"").hex() == ROOTS[0]
    assert node_hash(LEAVES[0], LEAVES[1]).hex() == ROOTS[1]


@pytest.mark.parametrize("size", range(1, 9))
def test_the_roots_of_the_reference_inputs(size: int) -> None:
    assert root_of(LEAVES[:size]).hex() == ROOTS[size - 1]


# Paths and proofs of the same reference: index and size, then the hashes.
PATHS: list[tuple[int, int, list[str]]] = [
    (0, 1, []),
    (0, 8, ["96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"]),
    (5, 8, ["bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"]),
    (2, 3, ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
]  # fmt: skip


@pytest.mark.parametrize(("index", "size", "path"), PATHS)
def test_the_paths_of_the_reference(index: int, size: int, path: list[str]) -> None:
    assert [step.hex() for step in inclusion_proofs(LEAVES[:size], size, [index])[index]] == path


sizes = st.integers(0, 40)


def some(size: int) -> list[bytes]:
    return [leaf_hash(bytes([number])) for number in range(size)]


@given(sizes)
def test_a_frontier_has_the_defined_root_and_survives_serialization(size: int) -> None:
    frontier = Frontier()
    for number, leaf in enumerate(some(size)):
        assert frontier.root == naive_root(some(size)[:number])
        frontier.add(leaf)
        frontier = Frontier.of_bytes(frontier.size, bytes(frontier))
    assert (frontier.size, frontier.root) == (size, naive_root(some(size)))


@given(st.data(), st.integers(1, 40))
def test_every_leaf_has_a_proof_that_fits_only_that_leaf(data: st.DataObject, size: int) -> None:
    leaves = some(size)
    index, root = data.draw(st.integers(0, size - 1)), naive_root(leaves)
    proof = inclusion_proofs(leaves, size, [index])[index]
    assert proof == naive_path(index, leaves)
    assert includes(leaves[index], index, size, proof, root)
    other = data.draw(st.integers(0, size).filter(lambda at: at != index))
    assert not includes(leaves[index], other, size, proof, root)
    assert not includes(leaf_hash(b"another"), index, size, proof, root)
    assert not includes(leaves[index], index, size, [*proof, root], root)
    assert not includes(leaves[index], index, size, proof, leaf_hash(b"another"))
    if proof:
        assert not includes(leaves[index], index, size, proof[:-1], root)
        at = data.draw(st.integers(0, len(proof) - 1))
        assert not includes(leaves[index], index, size, [*proof[:at], root, *proof[at + 1 :]], root)


NO_PROOFS: dict[str, tuple[int, int, list[bytes], bytes]] = {
    "before the first": (-1, 1, [], LEAVES[0]),
    "behind the last": (1, 1, [], LEAVES[0]),
    "of an empty tree": (0, 0, [], LEAVES[0]),
    "shorter than the tree is high": (0, 2, [], LEAVES[0]),
    "longer than the tree is high": (0, 1, LEAVES[1:2], node_hash(LEAVES[1], LEAVES[0])),
}


@pytest.mark.parametrize(("index", "size", "proof", "root"), NO_PROOFS.values(), ids=NO_PROOFS)
def test_an_impossible_proof_is_refused(index: int, size: int, proof: list[bytes], root: bytes) -> None:
    assert includes(LEAVES[0], index, size, proof, root) is False


@given(st.data(), st.integers(1, 40))
def test_proofs_of_several_leaves_equal_those_of_single_leaves(data: st.DataObject, size: int) -> None:
    leaves = some(size)
    wanted = data.draw(st.lists(st.integers(0, size - 1), min_size=1))
    proofs = inclusion_proofs(iter(leaves), size, wanted)
    assert proofs == {index: naive_path(index, leaves) for index in wanted}
    assert list(proofs) == sorted(proofs)


def test_an_empty_tree_has_no_leaf_to_prove() -> None:
    assert inclusion_proofs([], 0, []) == {}


@pytest.mark.parametrize(
    ("size", "peaks"), [(1, []), (0, [b"x" * 32]), (3, [b"x" * 32]), (1, [b"short"]), (-1, [b"x" * 32])]
)
def test_a_malformed_frontier_is_refused(size: int, peaks: list[bytes]) -> None:
    with pytest.raises(ValueError, match="cannot be a tree"):
        Frontier(size, peaks)


def test_a_frontier_with_half_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="complete hashes"):
        Frontier.of_bytes(1, b"x" * 33)


def test_a_copy_is_independent() -> None:
    first = Frontier()
    first.add(LEAVES[0])
    second = first.copy()
    second.add(LEAVES[1])
    assert (first.size, first.root.hex(), second.root.hex()) == (1, ROOTS[0], ROOTS[1])


@given(st.lists(st.integers(min_value=0, max_value=40), max_size=5))
def test_many_leaves_at_once_make_the_same_tree(parts: list[int]) -> None:
    at_once, one_by_one = Frontier(), Frontier()
    for part in parts:
        leaves = [leaf_hash(b"%d %d" % (one_by_one.size, number)) for number in range(part)]
        at_once.extend(iter(leaves))
        for leaf in leaves:
            one_by_one.add(leaf)
        assert (at_once.size, at_once.peaks) == (one_by_one.size, one_by_one.peaks)
