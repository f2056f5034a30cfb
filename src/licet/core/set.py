"""A set of capabilities: allows and denies as one immutable value, where deny wins.

Asking is a chain of look-ups along a use's ancestors. Meet, union, order and difference are exact: with unbounded
names and ports, a finite union of rules covers a rule only if one of them does, atom by atom. See docs/algebra.md.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Self

from licet.core import grid
from licet.core.capability import Box, Capability, capability
from licet.core.domain import DOMAINS, parse_rule, said
from licet.core.grid import Grids, Tables
from licet.core.use import DENY_SHIFT, ONE_ALLOW, Use

Probe = Callable[[str, int], int]
Rules = Iterable[Capability | str]


class Piece(NamedTuple):
    """Something one set reaches and another does not: a rule, except for some parts of it."""

    rule: Capability
    excepts: tuple[Capability, ...]

    def __str__(self) -> str:
        return str(self.rule) + (f" except {', '.join(map(str, self.excepts))}" if self.excepts else "")


class CapabilitySet:
    """What may be touched: `has(use)`, `a & b`, `a | b`, `a <= b`, and `a - b` for reports. It never changes."""

    __slots__ = ("_grids", "_ports", "_probes", "_tables", "_texts")

    _tables: Mapping[str | int, Mapping[str, int]]
    _probes: Mapping[str, Probe]
    _ports: Mapping[int | None, Probe]
    _grids: Grids | None
    _texts: tuple[tuple[str, ...], tuple[str, ...]] | None

    def __new__(cls, rules: Rules = (), deny: Rules = ()) -> "CapabilitySet":
        """Gather rules and denies, as text or as capabilities."""
        tables: Tables = {}
        _fill(tables, rules, 0)
        denied = _fill(tables, deny, DENY_SHIFT)
        return _from_tables(tables, denied)

    def has(self, x: "Use | Capability | str") -> bool:
        """Whether a use, or every use of a capability, is allowed; text is read as a use."""
        return self.verdict(x) is True

    def verdict(self, x: "Use | Capability | str") -> bool | None:
        """True if allowed, False if a deny says no, None if nothing covers it."""
        if x.__class__ is not Use:
            if isinstance(x, Capability):
                return CapabilitySet((x,)) <= self or None
            x = Use(x)  # type: ignore[arg-type]
        probe = self._probes.get(x.domain)
        verdict = None
        bits = x.bits
        if probe is not None:
            for key in x.keys:
                if hit := probe(key, 0) & bits:
                    verdict = hit < ONE_ALLOW
                    break
        if self._ports and verdict is not False and (probe := self._ports.get(x.port)) is not None:  # type: ignore[arg-type]
            for key in x.keys:
                if hit := probe(key, 0) & bits:
                    return hit < ONE_ALLOW
        return verdict

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
        """The SHA-256 of the canonical form: the same for every spelling of the same set."""
        allow, deny = self._canonical()
        # Rule texts hold no characters on which RFC 8785 and this spelling differ (a test holds the two together).
        text = json.dumps({"allow": allow, "deny": deny}, ensure_ascii=False, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def expand(self, workdir: str, home: str) -> "CapabilitySet":
        """The same set with `${workdir}` and `~` replaced by real directories."""
        places = {"${workdir}": workdir.rstrip("/"), "~": home.rstrip("/")}

        def rules(texts: tuple[str, ...]) -> Iterator[str]:
            for text in texts:
                domain, action, scope = text.split(":", 2)
                root, slash, rest = scope.partition("/")
                if domain in ("fs", "process") and root in places:
                    text = f"{domain}:{action}:{places[root]}{slash}{rest}" if places[root] or slash else f"{domain}:{action}:/"
                yield text

        allow, deny = self._canonical()
        return CapabilitySet(rules(allow), rules(deny))

    def __and__(self, other: "CapabilitySet") -> "CapabilitySet":
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        tables: Tables = {}
        mine, theirs = self._normal(), other._normal()
        for domain in mine.keys() & theirs.keys():
            grid.put(tables, domain, grid.meet(domain, mine[domain][0], theirs[domain][0]), 0)
        for side in (mine, theirs):
            for domain, (_, denies) in side.items():
                grid.put(tables, domain, denies, DENY_SHIFT)
        return _from_tables(tables, True)

    def __or__(self, other: "CapabilitySet") -> "CapabilitySet":
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        tables = {name: dict(table) for name, table in self._tables.items()}
        for name, table in other._tables.items():
            into = tables.setdefault(name, {})
            for key, bits in table.items():
                into[key] = into.get(key, 0) | bits
        return _from_tables(tables, True)

    def __le__(self, other: "CapabilitySet") -> bool:
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        return next(self._uncovered(other), None) is None

    def __ge__(self, other: "CapabilitySet") -> bool:
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        return other <= self

    def __sub__(self, other: "CapabilitySet") -> tuple[Piece, ...]:
        """What of this set the other does not cover, for reports; empty exactly when `self <= other`."""
        if not isinstance(other, CapabilitySet):
            return NotImplemented
        mine, theirs = self._normal(), other._normal()
        gathered: dict[tuple[str, Box, tuple[Box, ...]], int] = {}
        for domain, box, atoms, beyond in self._uncovered(other):
            excepting = (mine[domain][1], theirs.get(domain, grid.EMPTY)[0]) if beyond else (mine[domain][1],)
            while atoms:
                atom = atoms & -atoms
                place = domain, box, grid.excepts(domain, box, atom, excepting)
                gathered[place] = gathered.get(place, 0) | atom
                atoms ^= atom
        pieces = {
            Piece(capability(domain, phrase, *box), tuple(capability(domain, phrase, *hole) for hole in holes))
            for (domain, box, holes), atoms in gathered.items()
            for phrase in said(DOMAINS[domain], atoms, atoms)
        }
        return tuple(sorted(pieces, key=str))

    def __iter__(self) -> Iterator[Capability]:
        """The allows, in canonical order."""
        return iter(self.allow)

    def __len__(self) -> int:
        return len(self._canonical()[0])

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

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[type["CapabilitySet"], tuple[tuple[str, ...], tuple[str, ...]]]:
        return CapabilitySet, self._canonical()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a CapabilitySet cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a CapabilitySet cannot be changed: {name}")

    def _refuse_change(self, other: object) -> NoReturn:
        # Without these, `a |= b` would quietly rebind the name to a wider set.
        raise TypeError("a CapabilitySet cannot be changed in place; write `a = a & b`")

    __iand__ = __ior__ = __isub__ = __ixor__ = __iadd__ = _refuse_change

    def _normal(self) -> Grids:
        if self._grids is None:
            _set_grids(self, grid.normal(self._tables))
        assert self._grids is not None
        return self._grids

    def _canonical(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self._texts is None:
            grids = self._normal()
            _set_texts(self, (grid.texts(grids, 0), grid.texts(grids, 1)))
        assert self._texts is not None
        return self._texts

    def _uncovered(self, other: "CapabilitySet") -> Iterator[tuple[str, Box, int, bool]]:
        theirs = other._normal()
        for domain, mine in self._normal().items():
            for box, atoms, beyond in grid.uncovered(domain, mine, theirs.get(domain, grid.EMPTY)):
                yield domain, box, atoms, beyond


_set_tables = CapabilitySet._tables.__set__  # type: ignore[attr-defined]
_set_probes = CapabilitySet._probes.__set__  # type: ignore[attr-defined]
_set_ports = CapabilitySet._ports.__set__  # type: ignore[attr-defined]
_set_grids = CapabilitySet._grids.__set__  # type: ignore[attr-defined]
_set_texts = CapabilitySet._texts.__set__  # type: ignore[attr-defined]


def _fill(tables: Tables, rules: Rules, shift: int) -> bool:
    """Add rules to tables; whether there were any."""
    if isinstance(rules, str):
        raise TypeError("expected a list of rules, found one text")
    name: str | int | None = None
    table: dict[str, int] = {}
    for rule in rules:
        if type(rule) is Capability:
            domain, atoms, key, port = rule.domain, rule.atoms, rule.key, rule.port
        else:
            domain, atoms, key, port = parse_rule(str.__str__(rule))
        into = domain if port is None else port
        if into != name:
            name, table = into, tables.setdefault(into, {})
        table[key] = table.get(key, 0) | atoms << shift
    return name is not None


def _from_tables(tables: Tables, denied: bool) -> CapabilitySet:
    if denied:
        grid.fold(tables)
    self = object.__new__(CapabilitySet)
    _set_tables(self, MappingProxyType({name: MappingProxyType(table) for name, table in tables.items()}))
    _set_probes(self, MappingProxyType({name: table.get for name, table in tables.items() if isinstance(name, str)}))
    _set_ports(self, MappingProxyType({name: table.get for name, table in tables.items() if isinstance(name, int)}))
    _set_grids(self, None)
    _set_texts(self, None)
    return self
