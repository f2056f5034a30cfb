"""A set of capabilities: allows and denies as one immutable value, in which a deny wins.

Whether a use is allowed is found by looking up its ancestors, nearest first. Overlap, union, comparison and difference
are exact. This is possible because several rules together cover a rule only if one of them alone covers it, for each
atom: there are always more names and ports than the rules list. See docs/algebra.md.

Grids: the rules of one domain, by scope key and port, and exact operations on them.

A box is a scope key and a port (None is any port). A grid maps boxes to atoms. To compare two grids, the ancestors of
each key of one grid are looked up in the other, so the cost of an operation is about the size of its input and output.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NoReturn

from msgspec import Struct

from licet.core.algebra.domains import DOMAINS, PATH_DOMAINS, Domain, parse_rule, phrases_for
from licet.core.algebra.rules import (
    DENY_SHIFT,
    ONE_ALLOW,
    Box,
    Capability,
    Immutable,
    Kind,
    Use,
    capability,
    meet_boxes,
)
from licet.core.algebra.scope import TOP, Malformed, directory_key, is_unexpanded
from licet.core.limits import MOST_BOXES
from licet.core.values import digest

Tables = dict[str | int, dict[str, int]]  # by domain, or by port: key -> allowed atoms | denied atoms << DENY_SHIFT
Grid = dict[str, dict[int | None, int]]  # key -> port -> atoms
Grids = dict[str, tuple[Grid, Grid]]  # by domain: allows, denies
Below = dict[str, list[str]]  # key -> the keys of a grid that it covers
Order = tuple[list[str], list[str]]  # the sort keys, and the keys in that order
EMPTY: tuple[Grid, Grid] = ({}, {})


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


def texts_of(grids: Grids, side: int) -> tuple[str, ...]:
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
    texts_of, keys = order
    if key == TOP:
        return keys
    first = DOMAINS[domain].begins_below(key)
    if not first:
        return []
    start = bisect_left(texts_of, first)
    return keys[start : bisect_left(texts_of, first[:-1] + chr(ord(first[-1]) + 1), start)]


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


def holes_left(
    domain: str, box: Box, atoms: int, sides: Iterable[tuple[Grid, Below]]
) -> list[tuple[int, tuple[Box, ...]]]:
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


Rules = Iterable[Capability | str]


class Piece(Struct, frozen=True):
    """A part of the difference of two sets: a rule, except for some narrower rules."""

    rule: Capability
    excepts: tuple[Capability, ...]

    def __str__(self) -> str:
        return str(self.rule) + (f" except {', '.join(map(str, self.excepts))}" if self.excepts else "")


class CapabilitySet(Immutable):
    """An immutable set of rules: `has(use)`, `a & b`, `a | b`, `a <= b`, and `a - b` for reports.

    A deny that starts with `~` or `${workdir}` may mean any directory until `expand` is called. Until then, the set
    allows no concrete use and no absolute rule with the domain and actions of the deny.
    """

    __slots__ = ("_answers", "_denied", "_grids", "_orders", "_ports", "_tables", "_texts")

    # A table maps keys to bits: the allowed atoms, and the denied atoms shifted by DENY_SHIFT.
    _tables: dict[str, dict[str, int]]  # by domain: the rules without a port
    _ports: dict[int | None, dict[str, int]]  # by port: the rules with a port
    # The rest is computed when it is first needed.
    _answers: dict[Kind, dict[str, bool]]  # by kind of use: which keys of `_tables` allow it and which deny it
    _grids: Grids | None  # the normal form
    _denied: Tables | None  # the denies of the normal form as tables
    _orders: dict[str, Order]  # by domain: the sorted keys of the allows of the normal form
    _texts: tuple[tuple[str, ...], tuple[str, ...]] | None  # the normal form as text: allows, denies

    def __new__(cls, rules: Rules = (), deny: Rules = ()) -> "CapabilitySet":
        """Create a set from rules and denies, each a text or a `Capability`."""
        tables: Tables = {}
        _fill(tables, rules, 0)
        _fill(tables, deny, DENY_SHIFT)
        return _from_tables(tables)

    def has(self, x: Use | Capability | str) -> bool:
        """Whether a use, or every use of a capability, is allowed; text is parsed as a use."""
        if type(x) is not Use:  # a subclass could have other keys than its text
            return self.verdict(x) is True
        try:
            answers = self._answers[x.kind]
        except KeyError:
            answers = self._answers[x.kind] = self.answers(x.kind)
        # The nearest key that has an answer decides, because allows that a deny covers were dropped.
        for key in x.keys:
            if key in answers:
                return answers[key] and (not self._ports or self._at_port(x) is not False)
        return bool(self._ports) and self._at_port(x) is True

    def lacks(self, uses: Iterable[Use]) -> Use | None:
        """The first use that is not allowed, or None if all are."""
        for use in uses:
            if not self.has(use):
                return use
        return None

    def answers(self, kind: Kind) -> dict[str, bool]:
        """Which keys allow or deny a kind of use, by the rules without a port.

        The key nearest to a use decides. Allows below a deny were dropped before, so a deny still wins.
        """
        table, bits = self._tables.get(kind.domain, {}), kind.bits
        found = {key: hit < ONE_ALLOW for key, known in table.items() if (hit := known & bits)}
        if kind.domain in PATH_DOMAINS and any(is_unexpanded(key) and not found[key] for key in found):
            return {TOP: False}  # a deny that is not expanded may mean any path
        return found

    def verdict(self, x: Use | Capability | str) -> bool | None:
        """True if allowed, False if a deny covers it, None if no rule covers it."""
        if isinstance(x, Capability):
            theirs = self._normal().get(x.domain, EMPTY)
            missing = uncovered(x.domain, ({x.key: {x.port: x.atoms}}, {}), theirs)
            return next(missing, None) is None or None
        use = x if type(x) is Use else Use(x)  # type: ignore[arg-type]
        if self.has(use):
            return True
        if self._answers[use.kind].get(TOP) is False:
            return False
        denied = use.kind.atom << DENY_SHIFT
        tables = (self._tables.get(use.domain, {}), self._ports.get(use.port, {}))
        return False if any(table.get(key, 0) & denied for table in tables for key in use.keys) else None

    def atoms_at(self, use: Use) -> tuple[int, int]:
        """The atoms that are allowed at the target of a use: at its port, and at any port."""
        allowed, denied = _atoms(self._tables.get(use.domain, {}), use)
        here = anywhere = allowed & ~denied
        for port, table in self._ports.items():
            more, less = _atoms(table, use)
            anywhere |= more & ~denied & ~less
            if port == use.port:
                here = (allowed | more) & ~denied & ~less
        return here, anywhere

    def covering(self, use: Use) -> tuple[Capability, ...]:
        """The allows of the normal form that cover a use, in canonical order."""
        domain, (grid, _), atom = DOMAINS[use.domain], self._normal().get(use.domain, EMPTY), use.kind.atom
        found = [
            capability(domain.name, phrase, key, port)
            for key in use.keys
            for port, atoms in grid.get(key, {}).items()
            if atoms & atom and (port is None or port == use.port)
            for phrase in phrases_for(domain, atoms)
            if phrase & atom
        ]
        return tuple(sorted(found))

    @property
    def allow(self) -> tuple[Capability, ...]:
        """The allows of the normal form, in canonical order."""
        return tuple(map(Capability, self._canonical()[0]))

    @property
    def deny(self) -> tuple[Capability, ...]:
        """The denies of the normal form, in canonical order."""
        return tuple(map(Capability, self._canonical()[1]))

    @property
    def digest(self) -> str:
        """The SHA-256 of the normal form: equal sets have equal digests."""
        allow, deny = self._canonical()
        return digest({"allow": allow, "deny": deny})

    def expand(self, workdir: str, home: str) -> "CapabilitySet":
        """The same set with `${workdir}` and `~` replaced by real directories."""
        return CapabilitySet(
            [expand_rule(rule, workdir, home) for rule in self.allow],
            [expand_rule(rule, workdir, home) for rule in self.deny],
        )

    def __and__(self, other: "CapabilitySet") -> "CapabilitySet":
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        mine, theirs = self._normal(), other._normal()
        # The grant of each tool has all denies of the manifest. Copying these tables is ten times faster than adding
        # the denies one by one.
        fewer, more = (self, other) if self._deny_count() <= other._deny_count() else (other, self)
        tables = {name: dict(table) for name, table in more._deny_tables().items()}
        for domain, (_, denies) in fewer._normal().items():
            put(tables, domain, denies, DENY_SHIFT)
        for domain in mine.keys() & theirs.keys():
            small, large = self, other
            if len(mine[domain][0]) > len(theirs[domain][0]):
                small, large = other, self
            common = meet(domain, small._normal()[domain][0], large._normal()[domain][0], large._order(domain))
            put(tables, domain, common, 0)
        return _from_tables(tables)

    def __or__(self, other: "CapabilitySet") -> "CapabilitySet":
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        tables: Tables = {}
        for one in (self, other):
            for name, table in one._named_tables():
                into = tables.setdefault(name, {})
                for key, bits in table.items():
                    into[key] = into.get(key, 0) | bits
        return _from_tables(tables)

    def __le__(self, other: "CapabilitySet") -> bool:
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        return next(self._uncovered(other._normal()), None) is None

    def __ge__(self, other: "CapabilitySet") -> bool:
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        return other <= self

    def __sub__(self, other: "CapabilitySet") -> tuple[Piece, ...]:
        """The parts of this set that the other does not allow, for reports; empty exactly when `self <= other`."""
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        mine, theirs = self._normal(), other._normal()
        own = {domain: (denies, index_below(domain, denies)) for domain, (_, denies) in mine.items()}
        their = {domain: (allows, index_below(domain, allows)) for domain, (allows, _) in theirs.items()}
        gathered: dict[tuple[str, Box, tuple[Box, ...]], int] = {}
        for domain, box, atoms, beyond in self._uncovered(other._normal()):
            sides = [own[domain], *([their[domain]] if beyond and domain in their else [])]
            for group, holes in holes_left(domain, box, atoms, sides):
                gathered[domain, box, holes] = gathered.get((domain, box, holes), 0) | group
        pieces = {
            Piece(capability(domain, phrase, *box), tuple(capability(domain, phrase, *hole) for hole in holes))
            for (domain, box, holes), atoms in gathered.items()
            for phrase in phrases_for(DOMAINS[domain], atoms)
        }
        return tuple(sorted(pieces, key=str))

    def __contains__(self, x: Use | Capability | str) -> bool:
        return self.has(x)

    def __iter__(self) -> Iterator[Capability]:
        """The allows, in canonical order."""
        return iter(self.allow)

    def __len__(self) -> int:
        return len(self._canonical()[0])

    @property
    def size(self) -> int:
        """The number of table entries, which is what the set takes in memory."""
        return sum(len(table) for _, table in self._named_tables())

    def __bool__(self) -> bool:
        """Whether anything is allowed at all."""
        return any(allows for allows, _ in self._normal().values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        return self._normal() == other._normal()

    def __hash__(self) -> int:
        return hash(self._canonical())

    def __str__(self) -> str:
        allow, deny = self._canonical()
        return "\n".join([*allow, *(f"deny {text}" for text in deny)])

    def __repr__(self) -> str:
        allow, deny = self._canonical()
        return f"CapabilitySet({list(allow)!r}" + (f", deny={list(deny)!r})" if deny else ")")

    def __reduce__(self) -> tuple[type["CapabilitySet"], tuple[tuple[str, ...], tuple[str, ...]]]:
        return CapabilitySet, self._canonical()

    def _refuse_change(self, other: object) -> NoReturn:
        # Without these, `a |= b` would quietly rebind the name to a wider set.
        raise TypeError("a CapabilitySet cannot be changed in place; write `a = a & b`")

    __iand__ = __ior__ = __isub__ = __ixor__ = __iadd__ = _refuse_change

    def _at_port(self, use: Use) -> bool | None:
        """Whether the rules with the port of a use allow or deny it; None if none covers it."""
        table = self._ports.get(use.port)
        if table is not None:
            for key in use.keys:
                if hit := table.get(key, 0) & use.kind.bits:
                    return hit < ONE_ALLOW
        return None

    def _named_tables(self) -> Iterator[tuple[str | int, dict[str, int]]]:
        yield from self._tables.items()
        yield from self._ports.items()  # type: ignore[misc]

    def _normal(self) -> Grids:
        grids = self._grids
        if grids is None:
            grids = normal(self._named_tables())
            object.__setattr__(self, "_grids", grids)
        return grids

    def _deny_count(self) -> int:
        return sum(len(denies) for _, denies in self._normal().values())

    def _deny_tables(self) -> Tables:
        denied = self._denied
        if denied is None:
            denied = {}
            for domain, (_, denies) in self._normal().items():
                put(denied, domain, denies, DENY_SHIFT)
            object.__setattr__(self, "_denied", denied)
        return denied

    def _order(self, domain: str) -> Order:
        order = self._orders.get(domain)
        if order is None:
            order = self._orders[domain] = ordered(domain, self._normal()[domain][0])
        return order

    def _canonical(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        texts = self._texts
        if texts is None:
            grids = self._normal()
            texts = texts_of(grids, 0), texts_of(grids, 1)
            object.__setattr__(self, "_texts", texts)
        return texts

    def _uncovered(self, theirs: Grids) -> Iterator[tuple[str, Box, int, bool]]:
        for domain, mine in self._normal().items():
            for box, atoms, beyond in uncovered(domain, mine, theirs.get(domain, EMPTY)):
                yield domain, box, atoms, beyond


def expand_rule(rule: Capability, workdir: str, home: str) -> Capability:
    """Replace `${workdir}` or `~` at the start of a rule's path with a real directory."""
    root, slash, rest = rule.key.partition("/")
    if rule.domain not in PATH_DOMAINS or root not in ("${workdir}", "~"):
        return rule
    if root == "~" and not home:
        raise Malformed("~", "a user with a home directory", "set HOME, or write the whole path")
    place = directory_key(workdir if root == "${workdir}" else home)
    # The key of the root directory is empty. If home is `/`, then `~` means every path and `~/x` is `/x`.
    return capability(rule.domain, rule.atoms, place + slash + rest, None)


def _fill(tables: Tables, rules: Rules, shift: int) -> None:
    """Add rules to tables: as allows if `shift` is 0, as denies if it is `DENY_SHIFT`."""
    if isinstance(rules, str):
        raise TypeError("expected a list of rules, found one text")
    name: str | int | None = None
    table: dict[str, int] = {}
    for rule in rules:
        if type(rule) is Capability:
            place, key, atoms = rule.place, rule.key, rule.atoms
        else:
            domain, atoms, key, port = parse_rule(rule)  # type: ignore[arg-type]
            place = domain if port is None else port
        if place != name:
            name, table = place, tables.setdefault(place, {})
        if shift:
            atoms <<= shift
        if key in table:
            table[key] |= atoms
        else:
            table[key] = atoms


def _from_tables(tables: Tables) -> CapabilitySet:
    drop_denied_allows(tables)
    return CapabilitySet.made(
        _tables={name: table for name, table in tables.items() if isinstance(name, str)},
        _ports={name: table for name, table in tables.items() if isinstance(name, int)},
        _answers={},
        _orders={},
        _denied=None,
        _grids=None,
        _texts=None,
    )


def _atoms(table: dict[str, int], use: Use) -> tuple[int, int]:
    """The atoms that a table allows and those that it denies at the target of a use."""
    bits = union_of(table.get(key, 0) for key in use.keys)
    denied = bits >> DENY_SHIFT
    if use.domain in PATH_DOMAINS:
        denied |= union_of(known >> DENY_SHIFT for key, known in table.items() if is_unexpanded(key))
    return bits & (ONE_ALLOW - 1), denied
