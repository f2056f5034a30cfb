"""Concrete uses: one request, one path or one name. A handle checks a use before it acts.

- A use never has a wildcard. Its parser is not the parser of rules, see CONTRIBUTING.
- A use has the keys of all rules that could cover it, so that a check is a few look-ups.
- `destination` returns a URL with its use. The URL that is sent is the output of the same parser that produced the use,
  so a second parser cannot read another host from it.
- Nothing here decides, opens or connects.

>>> str(use_of_url("GET", "https://API.example.com./points"))
'network:https:get@api.example.com:443'

A capability: one rule `domain:action:scope` in canonical form, with `covers` and `meet` (the exact overlap).
"""

from functools import lru_cache
from typing import Any, NoReturn, Self

import can_ada
from msgspec import Struct

from licet.core.algebra import domains
from licet.core.algebra.domains import DEFAULT_PORTS, DOMAINS, EVERYTHING, Domain, parse_rule, split_text
from licet.core.algebra.scope import (
    LONGEST_LABEL,
    TOP,
    Malformed,
    checked_host,
    from_capital_sharp_s,
    host_ancestors,
    host_key,
    path_ancestors,
    plain_host_key,
    resolved_path,
    visible,
)
from licet.core.late_pattern import late_pattern
from licet.core.limits import LONGEST_PATH


class Immutable:
    """Base of the values whose constructor parses text: `Capability`, `Use`, `CapabilitySet`.

    The constructor of a Struct takes fields and not text, so these are ordinary classes with `__slots__`. `made`
    creates one from its fields; setting an attribute later raises.
    """

    __slots__ = ()

    @classmethod
    def made(cls, **fields: object) -> Self:
        """Create a value from its fields, without checking them."""
        value = object.__new__(cls)
        for name, field in fields.items():
            object.__setattr__(value, name, field)
        return value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} values cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} values cannot be changed: {name}")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Capability(Immutable):
    """One rule of a policy or a declaration. It may have wildcards; a `Use` may not."""

    __slots__ = ("atoms", "domain", "key", "place", "port")

    domain: str
    atoms: int
    key: str
    port: int | None
    place: str | int  # which table of a `CapabilitySet` it belongs to: its port, or its domain if it has no port

    def __new__(cls, text: str) -> "Capability":
        """Parse a rule; `Malformed` if the text is none."""
        return capability(*parse_rule(text))

    @classmethod
    def parse(cls, text: str) -> "Capability":
        """Parse a rule; `Malformed` if the text is none."""
        return cls(text)

    @property
    def action(self) -> str:
        """The middle part of the canonical text."""
        return str(self).split(":", 2)[1]

    @property
    def scope(self) -> str:
        """The last part of the canonical text."""
        return str(self).split(":", 2)[2]

    @property
    def defers(self) -> bool:
        """Whether the scope is exactly `*`. A tool that needs such a rule takes whatever the ceiling allows."""
        return self.key == TOP and self.port is None and self.atoms in DOMAINS[self.domain].top_phrases

    def covers(self, other: "Capability") -> bool:
        """Whether every use of `other` is also a use of this one."""
        return (
            self.domain == other.domain
            and not other.atoms & ~self.atoms
            and (self.port is None or self.port == other.port)
            and self.key in DOMAINS[self.domain].ancestors(other.key)
        )

    def covers_use(self, use: "Use") -> bool:
        """Whether this rule covers one use."""
        return (
            self.key in use.keys
            and self.domain == use.domain
            and bool(self.atoms & use.kind.atom)
            and (self.port is None or self.port == use.port)
        )

    def meet(self, other: "Capability") -> "Capability | None":
        """The rule for what both rules cover; None if they have nothing in common."""
        atoms = self.atoms & other.atoms
        if self.domain != other.domain or not atoms:
            return None
        box = meet_boxes(self.domain, (self.key, self.port), (other.key, other.port))
        return None if box is None else capability(self.domain, atoms, *box)

    def __str__(self) -> str:
        return DOMAINS[self.domain].render(self.atoms, self.key, self.port)

    def __repr__(self) -> str:
        return f"Capability({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Capability):
            return NotImplemented
        return (self.domain, self.atoms, self.key, self.port) == (other.domain, other.atoms, other.key, other.port)

    def __hash__(self) -> int:
        return hash((self.domain, self.atoms, self.key, self.port))

    def __lt__(self, other: "Capability") -> bool:
        """Sort by the code points of the text. Whether one rule covers another is `covers`, not `<`."""
        return str(self) < str(other)

    def __reduce__(self) -> tuple[type["Capability"], tuple[str]]:
        return Capability, (str(self),)


def capability(domain: str, atoms: int, key: str, port: int | None) -> Capability:
    """Create a capability from its parts; `atoms` must be one of the domain's `phrases`."""
    place = domain if port is None else port
    return Capability.made(domain=domain, atoms=atoms, key=key, port=port, place=place)


Box = tuple[str, int | None]  # a scope: its key and its port, where None is any port


def meet_boxes(domain: str, one: Box, two: Box) -> Box | None:
    """The overlap of two scopes: the narrower key and the narrower port; None if they are disjoint."""
    (key, port), (other_key, other_port) = one, two
    if port is not None and other_port is not None and port != other_port:
        return None
    ancestors = DOMAINS[domain].ancestors
    if other_key in ancestors(key):
        narrower = key
    elif key in ancestors(other_key):
        narrower = other_key
    else:
        return None
    return narrower, port if other_port is None else other_port


def destination_rule(text: str) -> Capability:
    """Parse an entry of `destinations`, a host pattern with or without a port, as the rule for every request to it."""
    text = str.__str__(text)  # a subclass of `str` can override comparisons
    key = plain_host_key(text)
    if key is not None:
        return capability("network", EVERYTHING, key, None)
    if "@" in text or "/" in text:
        host_key(text)  # raises the message for a URL in place of a host
    return Capability(f"network:*:*@{text}")


DENY_SHIFT = domains.EVERYTHING.bit_length()  # the tables of a set keep denied atoms this many bits above allowed ones
ONE_ALLOW = 1 << DENY_SHIFT  # bits below this number are allowed atoms only

_HIDDEN = late_pattern("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class InvalidUse(ValueError):
    """A use that is malformed or not concrete: it is refused before any rule is checked."""

    def __init__(self, found: str, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(f"found `{visible(found)}`, expected {expected}")

    def __reduce__(self) -> tuple[type["InvalidUse"], tuple[str, str]]:
        return InvalidUse, (self.found, self.expected)


class Kind(Struct, frozen=True, eq=False):
    """The common part of all uses with one atom, such as `fs` `read` or `network` `https` `get`.

    There is one object for each atom, so kinds are compared by identity.
    """

    domain: str
    action: str
    method: str
    atom: int
    effect: str

    @property
    def bits(self) -> int:
        """The bits that these uses have in a table: the allowed atom and the denied atom."""
        return self.atom | self.atom << DENY_SHIFT


class Use(Immutable):
    """One concrete act, such as `network:https:get@api.github.com:443` or `fs:read:/srv/data/a.txt`.

    `keys` are the target and its ancestors: the scope keys of all rules that can cover the use.
    """

    __slots__ = ("keys", "kind", "port", "target")

    kind: Kind
    keys: tuple[str, ...]
    target: str
    port: int | None

    def __new__(cls, text: str) -> "Use":
        """Parse a concrete use; `InvalidUse` if the text is none."""
        return _parse(_true_text(text))

    @classmethod
    def parse(cls, text: str) -> "Use":
        """Parse a concrete use; `InvalidUse` if the text is none."""
        return cls(text)

    @property
    def domain(self) -> str:
        """The domain, such as `fs` or `network`."""
        return self.kind.domain

    @property
    def action(self) -> str:
        """The action; for `network` the protocol."""
        return self.kind.action

    @property
    def method(self) -> str:
        """The method of a request as rules name it (`get` … `other`); empty for other uses."""
        return self.kind.method

    @property
    def effect(self) -> str:
        """The effect on the target: `read`, `write`, `delete`, or `other` if it cannot be known."""
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
        return hash((self.kind.domain, self.kind.atom, self.target, self.port))

    def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
        # The name of a file may contain `*`, but the text of a use may not, so paths are restored by `use_of_path`.
        return (use_of_path, (self.action, self.target)) if self.domain == "fs" else (Use, (str(self),))


def _use(kind: Kind, target: str, port: int | None, keys: tuple[str, ...]) -> Use:
    return Use.made(kind=kind, target=target, port=port, keys=keys)


def _kinds() -> dict[tuple[str, str, str], Kind]:
    """Every kind of use, by domain, action and method; in `storage`, by domain, action and scope."""
    kinds = {}
    for domain in DOMAINS.values():
        for action in domain.actions:
            if domain.name == "network" or action == "*":
                continue
            for scope in ("tool-private", "session", "personality") if domain.name == "storage" else ("",):
                atom = domain.parse(action, scope or "*")[0]
                own = domain.name == "storage" and scope != "personality"
                effect = action if action in ("write", "delete") and not own else "read"
                effect = "other" if domain.name == "socket" else effect
                kinds[domain.name, action, scope] = Kind(domain.name, action, "", atom, effect)
    effects = {method: effect for effect, methods in domains.EFFECTS.items() for method in methods}
    for protocol in ("http", "https"):
        for method, atoms in domains.METHOD_ATOMS.items():
            atom = atoms & domains.PROTOCOL_ATOMS[protocol]
            effect = effects.get(method, "other")
            kinds["network", protocol, method] = Kind("network", protocol, method, atom, effect)
    kinds["network", "tcp", ""] = Kind("network", "tcp", "", domains.TCP, "other")
    return kinds


_KINDS = _kinds()
_DEFAULT_PORTS = {f"{protocol}:": port for protocol, port in domains.DEFAULT_PORTS.items()}
_REQUESTS = {
    (f"{protocol}:", spelling): _KINDS["network", protocol, method]
    for protocol in domains.DEFAULT_PORTS
    for method in domains.METHODS
    for spelling in (method, method.upper())
}


def _parse(text: str) -> Use:
    try:
        domain, action, scope = split_text(text)
        if action == "*" or "*" in scope:
            raise InvalidUse(text, "one concrete use, without a wildcard")
        if domain.name == "network":
            method, host, port = domains.parse_target(action, scope)
            return _use(_KINDS["network", action, method], host, port, host_ancestors(host))
        if domain.name == "fs":
            return use_of_path(action, scope)
        return _named_use(domain, action, scope)
    except Malformed as wrong:
        raise InvalidUse(wrong.found, wrong.expected) from wrong


def _named_use(domain: Domain, action: str, scope: str) -> Use:
    if domain.name == "socket" or (domain.name == "process" and "/" in scope):
        scope = use_of_path("read", scope).target
    target = domain.target(scope)
    if domain.name == "storage":
        return _use(_KINDS["storage", action, target], target, None, (TOP,))
    if domain.name == "process" and target[:1] in ("~", "$"):
        raise InvalidUse(scope, "a binary name or an absolute path")
    return _use(_KINDS[domain.name, action, ""], target, None, domain.ancestors(target))


def use_of_url(method: str, url: str) -> Use:
    """The use of a request to a URL. `InvalidUse` if it is not http or https, has a user name, or is ambiguous."""
    if type(url) is not str or type(method) is not str:
        method, url = _true_text(method), _true_text(url)
    if not url.isprintable() and _HIDDEN.search(url):
        raise InvalidUse(url, "a URL without control characters")
    try:
        parsed = can_ada.parse(url)
    except ValueError as wrong:
        raise InvalidUse(url, "an absolute http or https URL") from wrong
    scheme, hostname, port = parsed.protocol, parsed.hostname, parsed.port
    try:
        kind = _REQUESTS.get((scheme, method)) or _REQUESTS[scheme, domains.method_word(method)]
        host = hostname[:-1] if hostname[-1:] == "." else hostname
        name, _, domain = host.partition(".")
        if name.isalnum() and name.isascii() and len(host) <= LONGEST_LABEL and (parents := _parents(domain)):
            keys = (host,) + parents  # faster than unpacking
        else:
            host = checked_host(hostname, hostname)
            keys = host_ancestors(host)
    except KeyError:
        raise InvalidUse(scheme, "the scheme http or https") from None
    except Malformed as wrong:
        raise InvalidUse(wrong.found, wrong.expected) from wrong
    if "ss" in host and from_capital_sharp_s(host, url):
        raise InvalidUse(url, "a host whose spelling is settled; write `ß` or `ss` for the capital sharp s")
    if "@" in url and parsed.has_credentials():
        raise InvalidUse(f"…@{host}", "a URL without user name or password")
    if port == "0":
        raise InvalidUse(port, "a port from 1 to 65535")
    return _use(kind, host, int(port) if port else _DEFAULT_PORTS[scheme], keys)


@lru_cache(4096)  # many hosts have the same parent domain
def _parents(domain: str) -> tuple[str, ...]:
    """The ancestors of the hosts directly below a domain; empty if the domain is not canonical."""
    try:
        return host_ancestors(f".{domain}") if checked_host(domain, domain) == domain else ()
    except Malformed:
        return ()


def use_of_path(action: str, path: object, base: object = None, home: object = None) -> Use:
    """The use of reading, writing or deleting a path; `..` is resolved without looking at the file system.

    With `home`, a path that is `~` or begins with `~/` lies below that directory, as in a rule.
    """
    action = _true_text(action)
    kind = _KINDS.get(("fs", action, ""))
    if kind is None:
        raise InvalidUse(action, "one of read, write, delete")
    text = path_text(path)
    if home is not None and text.partition("/")[0] == "~":
        if (root := path_text(home))[:1] != "/":
            raise InvalidUse(text, "a user with a home directory: set HOME, or write the whole path")
        text = root + text[1:]
    if text[:1] != "/":
        root = "" if base is None or not text else path_text(base)
        if root[:1] != "/":
            raise InvalidUse(text, "an absolute path, or one that a base directory makes absolute")
        text = f"{root}/{text}"
    if "\0" in text or len(text) > LONGEST_PATH:
        raise InvalidUse(text, f"a path of at most {LONGEST_PATH} characters, without NUL")
    if not text.isascii() and not _openable(text):
        raise InvalidUse(text, "a path that has one spelling")
    text = resolved_path(text)
    return _use(kind, text, None, path_ancestors(text) if text != "/" else (TOP,))


def _openable(text: str) -> bool:
    # Surrogate escapes encode bytes that are not UTF-8. If they could also encode valid UTF-8, one file would have two
    # names in text, and a deny of the one name would not stop the other.
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == text
    except UnicodeEncodeError:
        return False


def path_text(path: Any) -> str:
    """Convert a path to plain text, exactly once: a PathLike may return something else the second time."""
    if not issubclass(type(path), str | bytes):
        try:
            path = type(path).__fspath__(path)
        except Exception as wrong:
            raise InvalidUse(type(path).__name__, "a path") from wrong
    if issubclass(type(path), bytes):
        return bytes.decode(path, "utf-8", "surrogateescape")
    return _true_text(path)


def _true_text(text: object) -> str:
    """Convert to a plain `str`: the methods of a subclass may lie, but its characters cannot."""
    if type(text) is str:
        return text
    if not issubclass(type(text), str):  # `isinstance` can be fooled by a `__class__` property
        raise InvalidUse(type(text).__name__, "text")
    return str.__str__(text)


class Destination(Struct, frozen=True):
    """One request: its use, its method, and its URL in canonical form, without a fragment."""

    use: Use
    method: str
    url: str

    @property
    def origin(self) -> tuple[str, str, int | None]:
        """The protocol, host and port of the request."""
        return self.use.action, self.use.target, self.use.port


def destination(method: str, url: str) -> Destination:
    """Parse a URL into the request that is sent; `InvalidUse` as in `use_of_url`."""
    # Plain text first: the methods of a subclass of `str` may lie, but its characters cannot.
    text = str.__str__(url) if issubclass(type(url), str) else url
    word = str.__str__(method) if issubclass(type(method), str) else method
    use = use_of_url(word, text)
    parsed = can_ada.parse(text)
    port = "" if use.port == DEFAULT_PORTS[use.action] else f":{use.port}"
    # The host is the one in the use, without a trailing dot: certificates and virtual hosts have none either.
    sent = f"{use.action}://{use.target}{port}{parsed.pathname}{parsed.search}"
    return Destination(use, word if use.method == "other" else use.method.upper(), sent)


def redirected(method: str, source: str, location: str) -> Destination:
    """Parse a `Location` header, relative to the canonical URL that answered with it, into the next request."""
    if not location.isprintable():
        raise InvalidUse(location, "a URL without control characters")
    try:
        joined = can_ada.parse(source) + location
    except ValueError as wrong:
        raise InvalidUse(location, "a URL that can be followed") from wrong
    reached = destination(method, joined.href)
    if from_capital_sharp_s(reached.use.target, location):
        raise InvalidUse(location, "a host whose spelling is settled")
    return reached
