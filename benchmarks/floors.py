"""The floors: the simplest pure Python that gives the same verdicts, without types, reasons or positions of rules.

Denies are applied once, when the sets are built: allows inside a denied scope are dropped. Then the most specific key
decides, so one chain of look-ups answers allow and deny. Only sets and strings are used here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse

__all__ = [
    "Sets",
    "call_floor",
    "fold",
    "host_key",
    "host_keys",
    "keyed_floor",
    "path_keys",
    "walking_host_floor",
    "walking_path_floor",
]

Keys = tuple[str, ...]
Sets = tuple[frozenset[str], frozenset[str]]  # all keys of rules, and the allowed ones


def host_key(pattern: str) -> str:
    """`*.x.com` as the key `.x.com`; a host is its own key."""
    return pattern[1:] if pattern[0] == "*" else pattern


def host_keys(host: str) -> Keys:
    """The keys that could cover a host (or a host key), the most specific first."""
    keys = [host]
    _, dot, rest = host.lstrip(".").partition(".")
    while dot:
        keys.append(f".{rest}")
        _, dot, rest = rest.partition(".")
    keys.append("")
    return tuple(keys)


def path_keys(path: str) -> Keys:
    """The keys that could cover a path, the most specific first."""
    keys = []
    while path:
        keys.append(path)
        path = path.rpartition("/")[0]
    keys.append("")
    return tuple(keys)


def keyed_floor(sets: Sets) -> Callable[[Keys], bool]:
    """A decision for a request that already has its keys."""
    known, allowed = sets

    def decide(keys: Keys) -> bool:
        for key in keys:
            if key in known:
                return key in allowed
        return False

    return decide


def walking_host_floor(sets: Sets) -> Callable[[str], bool]:
    """A decision for a canonical host: its keys are cut at the dots, as far as needed."""
    known, allowed = sets
    domains = frozenset(key[1:] for key in known if key[:1] == ".")
    allowed_domains = frozenset(key[1:] for key in allowed if key[:1] == ".")
    everything = "" in allowed

    def decide(host: str) -> bool:
        if host in known:
            return host in allowed
        _, dot, host = host.partition(".")  # faster here than `find` or `split`
        while dot:
            if host in domains:
                return host in allowed_domains
            _, dot, host = host.partition(".")
        return everything

    return decide


def walking_path_floor(sets: Sets) -> Callable[[str], bool]:
    """A decision for a clean path: its keys are cut at the slashes, as far as needed."""
    known, allowed = sets
    everything = "" in allowed

    def decide(path: str) -> bool:
        while path:
            if path in known:
                return path in allowed
            path = path.rpartition("/")[0]
        return everything

    return decide


def fold(allow: Iterable[str], deny: Iterable[str], walking: Callable[[Sets], Callable[[str], bool]]) -> Sets:
    """Build the two sets of the floor: a deny wins, so an allow inside a deny is dropped."""
    denied = frozenset(deny)
    inside_a_deny = walking((denied, denied))
    allowed = frozenset(filterfalse(inside_a_deny, allow))
    return denied | allowed, allowed


Tools = Mapping[str, Mapping[str, Sets]]
FloorCall = tuple[str, Sequence[tuple[str, Keys]]]


def call_floor(call: FloorCall, tools: Tools) -> bool:
    """A decision for a complete call: bundle and effect decide beforehand which acts of which tools have sets."""
    name, uses = call
    tool = tools.get(name)
    if tool is None:
        return False
    for act, keys in uses:
        sets = tool.get(act)
        if sets is None:
            return False
        known, allowed = sets
        for key in keys:
            if key in known:
                if key in allowed:
                    break
                return False
        else:
            return False
    return True
