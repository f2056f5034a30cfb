"""Grids: the rules of one domain, by scope key and port, and exact operations on them.

A box is a scope key and a port (None is any port). A grid maps boxes to atoms. To compare two grids, the ancestors of
each key of one grid are looked up in the other, so the cost of an operation is about the size of its input and output.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from licet.core.algebra.capability import Box, meet_boxes
from licet.core.algebra.domains import DOMAINS, PATH_DOMAINS, Domain, phrases_for
from licet.core.algebra.scope import TOP, is_unexpanded
from licet.core.algebra.use import DENY_SHIFT, ONE_ALLOW

Tables = dict[str | int, dict[str, int]]  # by domain, or by port: key -> allowed atoms | denied atoms << DENY_SHIFT
Grid = dict[str, dict[int | None, int]]  # key -> port -> atoms
Grids = dict[str, tuple[Grid, Grid]]  # by domain: allows, denies
Below = dict[str, list[str]]  # key -> the keys of a grid that it covers
Order = tuple[list[str], list[str]]  # the sort keys, and the keys in that order
EMPTY: tuple[Grid, Grid] = ({}, {})


# Hosts without ports on one side and ports without hosts on the other overlap in a box for each pair. No other input
# has an overlap that is much larger than itself.
MOST_BOXES = 100_000


class TooManyPairs(ValueError):
    """Raised instead of building a set with a rule for each pair of many rules, which would exhaust memory."""

    def __init__(self) -> None:
        super().__init__("too many pairs of rules to hold in memory")


def drop_denied_allows(tables: Tables) -> None:
    """Drop the allows that a deny of the same table covers, so that the nearest key with an atom decides about it."""
    for name, table in tables.items():
        denies = {key: bits >> DENY_SHIFT for key, bits in table.items() if bits >= ONE_ALLOW}
        if not denies:
            continue
        ancestors = _domain(name).ancestors
        outside = denies.keys().isdisjoint
        for key, bits in table.items():
            if bits & (ONE_ALLOW - 1) and not outside(chain := ancestors(key)):
                table[key] = bits & ~union_of(denies.get(above, 0) for above in chain)


def put(tables: Tables, domain: str, grid: Grid, shift: int) -> None:
    """Add the boxes of a grid to tables: as allows if `shift` is 0, as denies if it is `DENY_SHIFT`."""
    for key, ports in grid.items():
        for port, atoms in ports.items():
            table = tables.setdefault(domain if port is None else port, {})
            table[key] = table.get(key, 0) | atoms << shift


def normal(tables: Iterable[tuple[str | int, dict[str, int]]]) -> Grids:
    """The normal form: for each atom the largest denies, and the largest allows that no deny covers."""
    raw: Grids = {}
    for name, table in tables:
        domain, port = (name, None) if isinstance(name, str) else ("network", name)
        allows, denies = raw.setdefault(domain, ({}, {}))
        for key, bits in table.items():
            _add(allows, key, port, bits & (ONE_ALLOW - 1))
            _add(denies, key, port, bits >> DENY_SHIFT)
    grids: Grids = {}
    for domain, (allows, denies) in raw.items():
        ancestors = DOMAINS[domain].ancestors
        kept: tuple[Grid, Grid] = ({}, {})
        for key, port, atoms in boxes(denies):
            _add(kept[1], key, port, atoms & ~_above(denies, ancestors(key), port))
        for key, port, atoms in boxes(allows):
            chain = ancestors(key)
            _add(kept[0], key, port, atoms & ~_above(allows, chain, port) & ~covering(denies, chain, port))
        if kept != EMPTY:
            grids[domain] = kept
    return grids


def texts(grids: Grids, side: int) -> tuple[str, ...]:
    """The texts of the rules of a normal form, sorted: its allows (side 0) or its denies (side 1)."""
    found = []
    for name, sides in grids.items():
        domain = DOMAINS[name]
        for key, port, atoms in boxes(sides[side]):
            found += [domain.render(phrase, key, port) for phrase in phrases_for(domain, atoms)]
    return tuple(sorted(found))


def meet(domain: str, small: Grid, large: Grid, order: Order) -> Grid:
    """The overlap of two grids. `order` sorts the keys of the large one, so that only a part of it is visited."""
    met: Grid = {}
    ancestors = DOMAINS[domain].ancestors
    left = MOST_BOXES + 2 * (len(small) + len(large))
    for key, ports in small.items():
        pairs = [(key, ports, large[above]) for above in ancestors(key) if above in large]
        pairs += [(below, large[below], ports) for below in keys_below(domain, order, key) if below != key]
        for narrower, one, two in pairs:
            left -= len(one) * len(two)
            if left < 0:
                raise TooManyPairs
            _meet_ports(met, narrower, one, two)
    return met


def _meet_ports(met: Grid, key: str, ports: dict[int | None, int], others: dict[int | None, int]) -> None:
    """Add to `met` the overlap of two lists of ports at a key."""
    for other, atoms in others.items():
        if other is not None and None not in ports:
            if other in ports:
                _add(met, key, other, atoms & ports[other])
            continue
        for port, mask in ports.items():
            if port is None or other is None or port == other:
                _add(met, key, other if port is None else port, atoms & mask)


def ordered(domain: str, grid: Grid) -> Order:
    """Sort the keys of a grid so that all keys that one key covers are next to each other."""
    sorted_as = DOMAINS[domain].sorted_as
    both = sorted((sorted_as(key), key) for key in grid)
    return [text for text, _ in both], [key for _, key in both]


def keys_below(domain: str, order: Order, key: str) -> list[str]:
    """The keys of an order that a key covers, which may include the key itself."""
    texts, keys = order
    if key == TOP:
        return keys
    first = DOMAINS[domain].begins_below(key)
    if not first:
        return []
    start = bisect_left(texts, first)
    return keys[start : bisect_left(texts, first[:-1] + chr(ord(first[-1]) + 1), start)]


def covering(grid: Grid, chain: Iterable[str], port: int | None) -> int:
    """The atoms of all boxes of a grid that cover a box, which is given by the ancestors of its key and its port."""
    if grid.keys().isdisjoint(chain):  # fast path: most chains have no key in the grid
        return 0
    atoms = 0
    for key in chain:
        if (ports := grid.get(key)) is not None:
            atoms |= ports.get(None, 0)
            if port is not None:
                atoms |= ports.get(port, 0)
    return atoms


def uncovered(domain: str, mine: tuple[Grid, Grid], theirs: tuple[Grid, Grid]) -> Iterator[tuple[Box, int, bool]]:
    """What `mine` allows and `theirs` does not: each box, its atoms, and whether it is outside of their allows.

    If it is not outside of their allows, one of their denies covers it.
    """
    ancestors = DOMAINS[domain].ancestors
    (allows, own_denies), (their_allows, their_denies) = mine, theirs
    unknown = _unknown(domain, own_denies, their_denies)
    below: Below | None = None

    def cut(box: Box, atoms: int, covered: int) -> Iterator[tuple[Box, int, bool]]:
        nonlocal below
        left = atoms & ~covering(own_denies, ancestors(box[0]), box[1])
        if left & ~covered:  # the piece outside their allows includes this box, except for their allows inside it
            below = below or index_below(domain, their_allows)
            left &= covered | union_of(mask for _, mask in overlapping(domain, box, their_allows, below))
        if left:
            yield box, left, False

    def lost(key: str) -> int:
        # An allow of every path, or of an unexpanded one, contains the deny itself, and that part is found below.
        return 0 if key == TOP or is_unexpanded(key) else unknown

    for key, port, every in boxes(allows):
        if every & lost(key):
            yield (key, port), every & lost(key), False
        atoms, chain = every & ~lost(key), ancestors(key)
        covered, denied = covering(their_allows, chain, port), covering(their_denies, chain, port)
        if beyond := atoms & ~covered & ~denied:
            yield (key, port), beyond, True
        if atoms & denied:
            yield (key, port), atoms & denied, False
        if port is None and their_denies:
            for above in chain:
                for other, mask in their_denies.get(above, {}).items():
                    if other is not None and mask & atoms & ~denied:
                        yield from cut((key, other), mask & atoms & ~denied, covered)
    for key, port, atoms in boxes(their_denies):
        for above in ancestors(key)[1:]:
            for other, mask in allows.get(above, {}).items():
                if mask & atoms & ~lost(above) and (port is None or other is None or port == other):
                    chain = ancestors(above)
                    seen = mask & atoms & ~lost(above) & ~covering(their_denies, chain, other)
                    covered = covering(their_allows, chain, other)
                    yield from cut((key, other if port is None else port), seen, covered)


def _unknown(domain: str, own_denies: Grid, their_denies: Grid) -> int:
    """The atoms of their denies that start with `~` or `${workdir}`, and so may mean any path.

    Denies that one of mine covers are left out: whichever path they mean, my set does not allow it either.
    """
    if domain not in PATH_DOMAINS:
        return 0
    ancestors = DOMAINS[domain].ancestors
    return union_of(
        atoms & ~covering(own_denies, ancestors(key), port)
        for key, port, atoms in boxes(their_denies)
        if is_unexpanded(key)
    )


def index_below(domain: str, grid: Grid) -> Below:
    """For each key, the keys of a grid that it covers."""
    below: Below = {}
    for key in grid:
        for above in DOMAINS[domain].ancestors(key):
            below.setdefault(above, []).append(key)
    return below


def overlapping(domain: str, box: Box, grid: Grid, below: Below) -> Iterator[tuple[Box, int]]:
    """The overlaps of a box with the boxes of a grid, each with the atoms that the grid has there."""
    key, _ = box
    for other in (*below.get(key, ()), *DOMAINS[domain].ancestors(key)[1:]):
        for other_port, atoms in grid.get(other, {}).items():
            if (met := meet_boxes(domain, box, (other, other_port))) is not None:
                yield met, atoms


def holes(domain: str, box: Box, atoms: int, sides: Iterable[tuple[Grid, Below]]) -> list[tuple[int, tuple[Box, ...]]]:
    """The largest parts of a box that are in one of several grids, grouped by atoms with the same parts."""
    met: Grid = {}
    for grid, below in sides:
        for (key, port), mask in overlapping(domain, box, grid, below):
            _add(met, key, port, mask & atoms)
    ancestors = DOMAINS[domain].ancestors
    kept = [((key, port), mask & ~_above(met, ancestors(key), port)) for key, port, mask in boxes(met)]
    groups = [atoms]
    for mask in {mask for _, mask in kept}:
        groups = [part for group in groups for part in (group & mask, group & ~mask) if part]
    order = sorted(kept, key=lambda hole: (hole[0][0], hole[0][1] or 0))
    return [(group, tuple(hole for hole, mask in order if mask & group)) for group in groups]


def boxes(grid: Grid) -> Iterator[tuple[str, int | None, int]]:
    """Iterate over the key, port and atoms of each box of a grid."""
    for key, ports in grid.items():
        for port, atoms in ports.items():
            yield key, port, atoms


def union_of(masks: Iterable[int]) -> int:
    atoms = 0
    for mask in masks:
        atoms |= mask
    return atoms


def _above(grid: Grid, chain: tuple[str, ...], port: int | None) -> int:
    """The atoms of the boxes that cover the box of `chain[0]` and `port` and are larger than it."""
    atoms = covering(grid, chain[1:], port)
    if port is not None:
        atoms |= grid.get(chain[0], {}).get(None, 0)
    return atoms


def _add(grid: Grid, key: str, port: int | None, atoms: int) -> None:
    if atoms:
        ports = grid.setdefault(key, {})
        ports[port] = ports.get(port, 0) | atoms


def _domain(name: str | int) -> Domain:
    return DOMAINS[name if isinstance(name, str) else "network"]
