"""Concrete uses: one request, one path, one name. What a handle asks about before it acts.

A use never holds a wildcard; its parser is not the parser of rules. It carries the keys that could cover it, so that
a decision is a chain of look-ups. Nothing here decides, and nothing here opens or connects.
"""

from typing import Any, NoReturn

import can_ada

from licet.core import network
from licet.core.domain import DOMAINS, Domain, split_text
from licet.core.scope import TOP, Malformed, checked_host, host_ancestors, path_ancestors, resolved_path, visible

DENY_SHIFT = 32  # in a table, the bits of denied atoms stand this far above those of allowed ones
ONE_ALLOW = 1 << DENY_SHIFT  # a hit below this is an allow


class InvalidUse(ValueError):
    """A request that names no concrete thing: it is refused before any rule is asked."""

    def __init__(self, found: str, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(f"found `{visible(found)}`, expected {expected}")

    def __reduce__(self) -> tuple[type["InvalidUse"], tuple[str, str]]:
        return InvalidUse, (self.found, self.expected)


class Kind:
    """What all uses of one atom share: `fs` `read`, or `network` `https` `get`."""

    __slots__ = ("action", "atom", "bits", "domain", "effect", "method")

    def __init__(self, domain: str, action: str, method: str, atom: int, effect: str) -> None:
        self.domain, self.action, self.method, self.atom, self.effect = domain, action, method, atom, effect
        self.bits = atom | atom << DENY_SHIFT


class Use:
    """One concrete act, such as `network:https:get@api.github.com:443` or `fs:read:/srv/data/a.txt`."""

    __slots__ = ("bits", "domain", "keys", "kind", "port", "target")

    kind: Kind
    domain: str
    bits: int
    keys: tuple[str, ...]
    target: str
    port: int | None

    def __new__(cls, text: str) -> "Use":
        """Read a concrete use, or raise `InvalidUse`."""
        return _parse(str.__str__(text))

    @classmethod
    def parse(cls, text: str) -> "Use":
        """Read a concrete use, or raise `InvalidUse`."""
        return cls(text)

    @property
    def action(self) -> str:
        """The action; for `network` the protocol."""
        return self.kind.action

    @property
    def method(self) -> str:
        """The method word of a request (`get` … `other`), or nothing."""
        return self.kind.method

    @property
    def effect(self) -> str:
        """What it does to the world: `read`, `write`, `delete`, or `other` where nobody can tell."""
        return self.kind.effect

    @property
    def scope(self) -> str:
        """The last part of the text."""
        if self.port is None:
            return self.target
        return f"{self.method}@{self.target}:{self.port}" if self.method else f"{self.target}:{self.port}"

    def __str__(self) -> str:
        return f"{self.domain}:{self.kind.action}:{self.scope}"

    def __repr__(self) -> str:
        return f"Use({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Use):
            return NotImplemented
        return self.kind is other.kind and self.target == other.target and self.port == other.port

    def __hash__(self) -> int:
        return hash((self.domain, self.bits, self.target, self.port))

    def __copy__(self) -> "Use":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Use":
        return self

    def __reduce__(self) -> tuple[type["Use"], tuple[str]]:
        return Use, (str(self),)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Use cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Use cannot be changed: {name}")


_new = object.__new__
_set_kind = Use.kind.__set__  # type: ignore[attr-defined]
_set_domain = Use.domain.__set__  # type: ignore[attr-defined]
_set_bits = Use.bits.__set__  # type: ignore[attr-defined]
_set_keys = Use.keys.__set__  # type: ignore[attr-defined]
_set_target = Use.target.__set__  # type: ignore[attr-defined]
_set_port = Use.port.__set__  # type: ignore[attr-defined]


def _use(kind: Kind, target: str, port: int | None, keys: tuple[str, ...]) -> Use:
    self = _new(Use)
    _set_kind(self, kind)
    _set_domain(self, kind.domain)
    _set_bits(self, kind.bits)
    _set_keys(self, keys)
    _set_target(self, target)
    _set_port(self, port)
    return self


def _kinds() -> dict[tuple[str, str, str], Kind]:
    """Every kind of use, by domain, action and method (for `storage`, by its kind of store)."""
    kinds = {}
    for domain in DOMAINS.values():
        for action in domain.actions:
            if domain.name == "network":
                continue
            for scope in ("tool-private", "session", "personality") if domain.name == "storage" else ("",):
                atom = domain.parse(action, scope or "*")[0]
                own = domain.name == "storage" and scope != "personality"
                effect = action if action in ("write", "delete") and not own else "read"
                kinds[domain.name, action, scope] = Kind(domain.name, action, "", atom, effect)
    effects = {method: effect for effect, methods in network.EFFECTS.items() for method in methods}
    for protocol in ("http", "https"):
        for method, atoms in network.METHOD_ATOMS.items():
            atom = atoms & network.PROTOCOL_ATOMS[protocol]
            effect = effects.get(method, "other")
            kinds["network", protocol, method] = Kind("network", protocol, method, atom, effect)
    kinds["network", "tcp", ""] = Kind("network", "tcp", "", network.TCP, "other")
    return kinds


_KINDS = _kinds()


def _parse(text: str) -> Use:
    try:
        domain, action, scope = split_text(text)
        if action == "*":
            raise InvalidUse(text, "one action; a use has no wildcard")
        if domain.name == "network":
            method, host, port = network.parse_target(action, scope)
            return _use(_KINDS["network", action, method], host, port, host_ancestors(host))
        if domain.name == "fs":
            return use_of_path(action, scope)
        return _named_use(domain, action, scope)
    except Malformed as wrong:
        raise InvalidUse(wrong.found, wrong.expected) from wrong


def _named_use(domain: Domain, action: str, scope: str) -> Use:
    target = domain.target(scope)
    if domain.name == "storage":
        return _use(_KINDS["storage", action, target], target, None, (TOP,))
    if target[:1] in ("~", "$") and domain.name == "process":
        raise InvalidUse(scope, "a binary name or an absolute path")
    return _use(_KINDS[domain.name, action, ""], target, None, domain.ancestors(target))


def use_of_url(method: str, url: str) -> Use:
    """The use that fetching a URL is, or `InvalidUse`: http and https only, no user name, no tricks."""
    if not isinstance(url, str) or not isinstance(method, str):
        raise InvalidUse(repr(url if isinstance(method, str) else method), "text")
    # A subclass may answer differently each time it is asked; its true characters cannot.
    method, url = str.__str__(method), str.__str__(url)
    if not url.isprintable() and _has_control(url):
        raise InvalidUse(url, "a URL without control characters")
    try:
        parsed = can_ada.parse(url)
    except (ValueError, TypeError) as wrong:
        raise InvalidUse(url, "an absolute http or https URL") from wrong
    protocol = parsed.protocol[:-1]
    try:
        kind = _KINDS.get(("network", protocol, method.lower())) or _KINDS[
            "network", protocol, network.method_word(method)
        ]
        if parsed.username or parsed.password:
            raise InvalidUse(f"…@{parsed.host}", "a URL without user name or password")
        host = checked_host(parsed.hostname, url)
    except KeyError:
        raise InvalidUse(protocol, "the scheme http or https") from None
    except Malformed as wrong:
        raise InvalidUse(wrong.found, wrong.expected) from wrong
    text = parsed.port
    port = int(text) if text else network.DEFAULT_PORTS[protocol]
    if not port:
        raise InvalidUse("0", "a port from 1 to 65535")
    return _use(kind, host, port, host_ancestors(host))


def use_of_path(action: str, path: Any, base: str | None = None) -> Use:
    """The use that reading, writing or deleting a path is, resolved lexically, or `InvalidUse`."""
    kind = _KINDS.get(("fs", action, ""))
    if kind is None:
        raise InvalidUse(str(action), "one of read, write, delete")
    text = _path_text(path)
    if text[:1] != "/":
        if base is None or not text:
            raise InvalidUse(text, "an absolute path")
        root = _path_text(base)
        if root[:1] != "/":
            raise InvalidUse(root, "an absolute path to start from")
        text = f"{root}/{text}"
    if "\0" in text or len(text) > 4096:
        raise InvalidUse(text[:80], "a path of at most 4096 characters, without NUL")
    text = resolved_path(text)
    return _use(kind, text, None, path_ancestors("" if text == "/" else text))


def _path_text(path: Any) -> str:
    """The true characters of a path, asked for once: a PathLike may answer differently the second time."""
    if not isinstance(path, str | bytes):
        fspath = getattr(type(path), "__fspath__", None)
        path = fspath(path) if fspath else None
    if isinstance(path, bytes):
        return bytes.decode(path, "utf-8", "surrogateescape")
    if not isinstance(path, str):
        raise InvalidUse(type(path).__name__, "a path")
    return str.__str__(path)


def _has_control(text: str) -> bool:
    return any(char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in text)

