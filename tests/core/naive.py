"""A naive reference for the algebra: rules and uses as plain fields, compared one by one.

It shares no code with the library. A universe has every use that the small rules of `strategies` can distinguish, and a
name, a path and a port that no rule mentions, because these are unbounded. A set of uses is the bits of an int.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, reduce

EFFECT_OF = {
    "get": "read",
    "head": "read",
    "options": "read",
    "post": "write",
    "put": "write",
    "patch": "write",
    "delete": "delete",
    "other": "other",
}
METHODS = tuple(EFFECT_OF)
ACTIONS = {
    "fs": ("read", "write", "delete"),
    "network": ("http", "https", "tcp", "read", "write", "delete"),
    "process": ("exec",),
    "env": ("read",),
    "secret": ("read",),
    "storage": ("read", "write"),
    "tool": ("call",),
    "connector": ("use",),
    "socket": ("connect",),
}
DOMAINS = tuple(ACTIONS)
KINDS = ("tool-private", "session", "personality")


@dataclass(frozen=True, slots=True)
class PlainUse:
    """One concrete act; `scope` is a host in `network`."""

    domain: str
    action: str
    scope: str
    method: str = ""
    port: int = 0

    @property
    def text(self) -> str:
        method = f"{self.method}@" if self.method else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.domain}:{self.action}:{method}{self.scope}{port}"


@dataclass(frozen=True, slots=True)
class PlainRule:
    """One rule as its author wrote it; the last fields are for `network`, where `scope` is a host pattern."""

    domain: str
    action: str
    scope: str
    method: str = "*"
    protocol: str = "*"
    port: int | None = None
    bare: bool = False  # a method without a host

    @property
    def text(self) -> str:
        if self.domain != "network":
            return f"{self.domain}:{self.action}:{self.scope}"
        if self.bare and (self.scope, self.protocol, self.port) == ("*", "*", None):
            return f"network:{self.action}:{self.method}"
        # A lone method word would be read as a method, so such a host needs the star.
        method = f"{self.method}@" if self.method != "*" or self.scope in METHODS else ""
        protocol = f"{self.protocol}://" if self.protocol != "*" else ""
        port = "" if self.port is None else f":{self.port}"
        return f"network:{self.action}:{method}{protocol}{self.scope}{port}"

    def reaches(self, use: PlainUse) -> bool:
        """Whether the rule covers a use."""
        if self.domain != use.domain:
            return False
        if self.domain == "network":
            return (
                self._says_action(use)
                and self.protocol in ("*", use.action)
                and (self.method == "*" or self.method == use.method)
                and _host_under(self.scope, use.scope)
                and self.port in (None, use.port)
            )
        return self.action in ("*", use.action) and _SCOPES[self.domain](self.scope, use.scope)

    def _says_action(self, use: PlainUse) -> bool:
        if self.action in ("*", "http", "https", "tcp"):
            return self.action in ("*", use.action)
        return use.action != "tcp" and EFFECT_OF[use.method] == self.action


def _host_under(pattern: str, host: str) -> bool:
    if pattern[:2] == "*.":
        return host.endswith(pattern[1:])
    return pattern in ("*", host)


def _path_under(rule: str, path: str) -> bool:
    if rule in ("*", "/"):
        return True
    wanted = rule.split("/")
    return path.split("/")[: len(wanted)] == wanted


def _reference_under(rule: str, reference: str) -> bool:
    if rule[-2:] == "/*":
        return reference.startswith(rule[:-1]) and reference != rule[:-1]
    return rule in ("*", reference)


def _same_name(rule: str, name: str) -> bool:
    return rule in ("*", name)


_SCOPES = {
    "fs": _path_under,
    "process": _same_name,
    "env": _same_name,
    "secret": _reference_under,
    "storage": _same_name,
    "tool": _same_name,
    "connector": _same_name,
    "socket": _same_name,
}

# What the small rules are made of. `z` and port 9 stand for everything that no rule names.
HOSTS = ("*", "*.b", "*.a.b", "b", "a.b", "*.a", "a", "c.a.b", "10.0.0.1", "[::1]", "get")
PORTS = (None, None, 80, 443)
PATHS = ("*", "/", "/a", "/a/b", "/a/b/a", "/b", "/ab")
REFERENCES = ("*", "a", "a/*", "a/b", "a/b/*", "a/b/c", "ab", "b/*")
NAMES = ("*", "a", "b")
SOCKETS = ("*", "/a", "/a/b")
BINARIES = ("*", "a", "/a", "/a/b")
SMALL_SCOPES = {
    "fs": PATHS,
    "process": BINARIES,
    "env": NAMES,
    "secret": REFERENCES,
    "storage": ("*", *KINDS),
    "tool": NAMES,
    "connector": NAMES,
    "socket": SOCKETS,
}
_CONCRETE = {
    "fs": ("/", "/a", "/a/b", "/a/b/a", "/b", "/ab", "/z", "/a/z", "/a/b/z", "/a/b/a/z", "/b/z", "/ab/z"),
    "process": ("a", "/a", "/a/b", "z", "/z"),
    "env": ("a", "b", "z"),
    "secret": ("a", "a/b", "a/b/c", "ab", "b", "z", "a/z", "a/b/z", "a/b/c/z", "b/z", "ab/z"),
    "storage": KINDS,
    "tool": ("a", "b", "z"),
    "connector": ("a", "b", "z"),
    "socket": ("/a", "/a/b", "/z"),
}
_CONCRETE_HOSTS = ("z", "z.b", "z.a.b", "z.a", "b", "a.b", "a", "c.a.b", "z.c.a.b", "10.0.0.1", "[::1]", "get", "z.get")
REQUESTS = tuple((protocol, method) for protocol in ("http", "https") for method in METHODS) + (("tcp", ""),)


@cache
def universe(domain: str) -> tuple[PlainUse, ...]:
    """Every use of a domain that the small rules can tell apart, and some that they cannot."""
    if domain == "network":
        return tuple(
            PlainUse("network", protocol, host, method, port)
            for protocol, method in REQUESTS
            for host in _CONCRETE_HOSTS
            for port in (80, 443, 9)
        )
    return tuple(PlainUse(domain, action, scope) for action in ACTIONS[domain] for scope in _CONCRETE[domain])


@cache
def reach(rule: PlainRule) -> int:
    """The uses of its domain's universe that a rule covers."""
    return sum(1 << bit for bit, use in enumerate(universe(rule.domain)) if rule.reaches(use))


def reach_of(domain: str, allow: Iterable[PlainRule], deny: Iterable[PlainRule] = ()) -> int:
    """The uses of one domain that some rules allow and no deny covers: deny wins."""
    allowed, denied = (
        reduce(int.__or__, (reach(rule) for rule in rules if rule.domain == domain), 0) for rules in (allow, deny)
    )
    return allowed & ~denied
