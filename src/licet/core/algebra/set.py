"""A set of capabilities: allows and denies as one immutable value, in which a deny wins.

Whether a use is allowed is found by looking up its ancestors, nearest first. Overlap, union, comparison and difference
are exact. This is possible because several rules together cover a rule only if one of them alone covers it, for each
atom: there are always more names and ports than the rules list. See docs/algebra.md.
"""

from collections.abc import Iterable, Iterator
from typing import NoReturn

from msgspec import Struct

from licet.core.algebra import grid
from licet.core.algebra.capability import Box, Capability, Immutable, capability
from licet.core.algebra.domains import DOMAINS, PATH_DOMAINS, parse_rule, phrases_for
from licet.core.algebra.grid import Grids, Order, Tables
from licet.core.algebra.scope import TOP, Malformed, directory_key, is_unexpanded
from licet.core.algebra.use import DENY_SHIFT, ONE_ALLOW, Kind, Use
from licet.core.canonical import digest

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
            return CapabilitySet((x,)) <= self or None
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
            grid.put(tables, domain, denies, DENY_SHIFT)
        for domain in mine.keys() & theirs.keys():
            small, large = self, other
            if len(mine[domain][0]) > len(theirs[domain][0]):
                small, large = other, self
            common = grid.meet(domain, small._normal()[domain][0], large._normal()[domain][0], large._order(domain))
            grid.put(tables, domain, common, 0)
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
        return next(self._uncovered(other), None) is None

    def __ge__(self, other: "CapabilitySet") -> bool:
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        return other <= self

    def __sub__(self, other: "CapabilitySet") -> tuple[Piece, ...]:
        """The parts of this set that the other does not allow, for reports; empty exactly when `self <= other`."""
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        mine, theirs = self._normal(), other._normal()
        own = {domain: (denies, grid.index_below(domain, denies)) for domain, (_, denies) in mine.items()}
        their = {domain: (allows, grid.index_below(domain, allows)) for domain, (allows, _) in theirs.items()}
        gathered: dict[tuple[str, Box, tuple[Box, ...]], int] = {}
        for domain, box, atoms, beyond in self._uncovered(other):
            sides = [own[domain], *([their[domain]] if beyond and domain in their else [])]
            for group, holes in grid.holes(domain, box, atoms, sides):
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
            grids = grid.normal(self._named_tables())
            object.__setattr__(self, "_grids", grids)
        return grids

    def _deny_count(self) -> int:
        return sum(len(denies) for _, denies in self._normal().values())

    def _deny_tables(self) -> Tables:
        denied = self._denied
        if denied is None:
            denied = {}
            for domain, (_, denies) in self._normal().items():
                grid.put(denied, domain, denies, DENY_SHIFT)
            object.__setattr__(self, "_denied", denied)
        return denied

    def _order(self, domain: str) -> Order:
        order = self._orders.get(domain)
        if order is None:
            order = self._orders[domain] = grid.ordered(domain, self._normal()[domain][0])
        return order

    def _canonical(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        texts = self._texts
        if texts is None:
            grids = self._normal()
            texts = grid.texts(grids, 0), grid.texts(grids, 1)
            object.__setattr__(self, "_texts", texts)
        return texts

    def _uncovered(self, other: "CapabilitySet") -> Iterator[tuple[str, Box, int, bool]]:
        theirs = other._normal()
        for domain, mine in self._normal().items():
            for box, atoms, beyond in grid.uncovered(domain, mine, theirs.get(domain, grid.EMPTY)):
                yield domain, box, atoms, beyond


def expand_rule(rule: Capability, workdir: str, home: str) -> Capability:
    """Replace `${workdir}` or `~` at the start of a rule's path with a real directory."""
    root, slash, rest = rule.key.partition("/")
    if rule.domain not in ("fs", "process") or root not in ("${workdir}", "~"):
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
    grid.drop_denied_allows(tables)
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
    bits = grid.union_of(table.get(key, 0) for key in use.keys)
    denied = bits >> DENY_SHIFT
    if use.domain in PATH_DOMAINS:
        denied |= grid.union_of(known >> DENY_SHIFT for key, known in table.items() if is_unexpanded(key))
    return bits & (ONE_ALLOW - 1), denied
