"""Access to the values of a checked file: by key, as plain data, and lists as rules."""

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
    """A mapping whose keys hold lists of rules: `capabilities`, a personality, a bundle. `prefix` is its path."""

    keys: Fields
    prefix: str
    origin: Origin

    def key(self, name: str) -> str:
        """The path of a key as the file spells it, which may be an alias."""
        located = self.keys.get(name)
        return self.prefix + (located.key if located is not None and located.key else name)

    def listed(self, *path: str) -> tuple[Value, ...]:
        """The items of a list; none if it is absent."""
        found = at(self.keys, *path)
        return found.value if found is not None else ()

    def scope_rules(self, kind: str, key: str) -> Iterator[Rule]:
        """The rules of a list that has only scopes (paths, names); `kind` is their domain and action, as `fs:read`."""
        domain, action = kind.split(":")
        atoms = DOMAINS[domain].actions[action]
        name = self.prefix + key
        for item in self.listed(*key.split(".")):
            scope = "" if item.value == "*" else item.value
            yield Rule(capability(domain, atoms, scope, None), item.origin, name)

    def capability_rules(self, *path: str) -> Iterator[Rule]:
        """The rules of a list that has complete capabilities; hosts are parsed to such, too."""
        key = self.prefix + ".".join(path)
        for item in self.listed(*path):
            yield Rule(item.value, item.origin, key)


def at(keys: Fields, *path: str) -> Value | None:
    """The value at a path of keys, or None."""
    located: Value | None = None
    for part in path:
        located = keys.get(part)
        if located is None:
            return None
        keys = located.value if isinstance(located.value, Mapping) else NONE
    return located


def record(keys: Fields, key: str) -> Fields:
    """The mapping under a key, empty if it is absent, or if a list is written there, as `tools` may be."""
    located = keys.get(key)
    return located.value if located is not None and isinstance(located.value, Mapping) else NONE


def plain(keys: Fields, key: str, default: Any) -> Any:
    """The value under a key without its origin, or a default."""
    located = keys.get(key)
    return located.value if located is not None else default


def stated(keys: Fields, key: str) -> tuple[tuple[Any, Origin], ...]:
    """The value under a key with its origin, as a tuple of one; an empty tuple if it is absent."""
    located = keys.get(key)
    return ((located.value, located.origin),) if located is not None else ()


def numbers(located: Value | None) -> Mapping[str, int]:
    """A mapping of limits without origins."""
    return {key: item.value for key, item in located.value.items()} if located is not None else {}


def data(located: Value) -> Any:
    """A checked value as plain data, without origins."""
    value = located.value
    return _plain_data([data(item) for item in value] if isinstance(value, tuple) else value)


def _plain_data(value: Any) -> Any:
    match value:
        case Located():
            return data(value)
        case Capability() | ConnectorRef():
            return str(value)
        case Mapping():
            return {str(key): _plain_data(item) for key, item in value.items()}
        case list():
            return tuple(map(_plain_data, value))
    return value


def key_origin(located: Value) -> Origin:
    """The origin of a value's key; that of the value itself if it has none."""
    return located.key_origin or located.origin
