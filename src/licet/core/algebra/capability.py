"""A capability: one rule `domain:action:scope` in canonical form, with `covers` and `meet` (the exact overlap)."""

from typing import Any, NoReturn, Self

from licet.core.algebra.domains import DOMAINS, EVERYTHING, parse_rule
from licet.core.algebra.scope import TOP, host_key, plain_host_key


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


def destination(text: str) -> Capability:
    """Parse an entry of `destinations`, a host pattern with or without a port, as the rule for every request to it."""
    text = str.__str__(text)  # a subclass of `str` can override comparisons
    key = plain_host_key(text)
    if key is not None:
        return capability("network", EVERYTHING, key, None)
    if "@" in text or "/" in text:
        host_key(text)  # raises the message for a URL in place of a host
    return Capability(f"network:*:*@{text}")
