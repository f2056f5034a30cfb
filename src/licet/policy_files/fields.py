"""Getting at the values of a checked file: by key, as bare data, and as the rules that a list stands for."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.capability import Capability, capability
from licet.core.algebra.domains import DOMAINS
from licet.core.origin import Origin, Problem
from licet.core.policy.connector import ConnectorRef
from licet.core.policy.layer import Rule
from licet.policy_files.shapes import Located

Value = Located[Any]
Fields = Mapping[str, Value]
Problems = list[Problem]
NONE: Fields = {}


class Lists(Struct, frozen=True):
    """The lists of rules under some keys, wherever those stand: `capabilities`, a personality, a bundle."""

    keys: Fields
    prefix: str
    origin: Origin

    def listed(self, *path: str) -> tuple[Value, ...]:
        """The entries of a list, none if it is absent."""
        found = at(self.keys, *path)
        return found.value if found is not None else ()

    def rules(self, kind: str, key: str) -> Iterator[Rule]:
        """The rules of one kind, such as `fs:read`, that a list of bare scopes (paths, names) stands for."""
        domain, action = kind.split(":")
        atoms = DOMAINS[domain].actions[action]
        name = self.prefix + key
        for item in self.listed(*key.split(".")):
            scope = "" if item.value == "*" else item.value
            yield Rule(capability(domain, atoms, scope, None), item.origin, name)

    def whole_rules(self, *path: str) -> Iterator[Rule]:
        """The rules of a list that holds whole capabilities (hosts are read as such too)."""
        key = self.prefix + ".".join(path)
        for item in self.listed(*path):
            yield Rule(item.value, item.origin, key)


def at(keys: Fields, *path: str) -> Value | None:
    """The value at a path of keys, or None."""
    held: Value | None = None
    for part in path:
        held = keys.get(part)
        if held is None:
            return None
        keys = held.value if isinstance(held.value, Mapping) else NONE
    return held


def record(keys: Fields, key: str) -> Fields:
    """The mapping under a key, empty if it is absent."""
    held = keys.get(key)
    return held.value if held is not None else NONE


def plain(keys: Fields, key: str, default: Any) -> Any:
    """The bare value under a key, or a default."""
    held = keys.get(key)
    return held.value if held is not None else default


def stated(keys: Fields, key: str) -> tuple[tuple[Any, Origin], ...]:
    """The word under a key with its place, if it is there."""
    held = keys.get(key)
    return ((held.value, held.origin),) if held is not None else ()


def numbers(held: Value | None) -> Mapping[str, int]:
    """A mapping of limits as bare numbers."""
    return {key: item.value for key, item in held.value.items()} if held is not None else {}


def data(held: Value) -> Any:
    """A checked value as plain data, without places in files."""
    value = held.value
    return _bare([data(item) for item in value] if isinstance(value, tuple) else value)


def _bare(value: Any) -> Any:
    match value:
        case Located():
            return data(value)
        case Capability() | ConnectorRef():
            return str(value)
        case Mapping():
            return {str(key): _bare(item) for key, item in value.items()}
        case list():
            return tuple(map(_bare, value))
    return value


def key_origin(held: Value) -> Origin:
    """Where the key of a value stands, or the value itself."""
    return held.key_origin or held.origin
