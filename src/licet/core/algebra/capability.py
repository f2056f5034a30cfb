"""A capability: one rule `domain:action:scope`, canonical, immutable, with `covers` and an exact `meet`."""

from typing import Any, NoReturn, Self

from licet.core.algebra.domains import DOMAINS, EVERYTHING, parse_rule
from licet.core.algebra.scope import TOP, host_key, plain_host_key


class Immutable:
    """The base of values whose constructor parses text: `Capability`, `Use`, `CapabilitySet`.

    A Struct takes its fields as they are, so these are ordinary classes with `__slots__`. `made` fills the fields of
    one; after that, setting an attribute raises.
    """

    __slots__ = ()

    @classmethod
    def made(cls, **fields: object) -> Self:
        """A value with these fields, which are not checked."""
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
    """One rule: what it covers, and what it has in common with another. It may hold wildcards; a `Use` may not."""

    __slots__ = ("atoms", "domain", "key", "place", "port")

    domain: str
    atoms: int
    key: str
    port: int | None
    place: str | int  # the table it belongs to: its port, or its domain if it names none

    def __new__(cls, text: str) -> "Capability":
        """Read a rule, or raise `Malformed` with what was expected."""
        return capability(*parse_rule(text))

    @classmethod
    def parse(cls, text: str) -> "Capability":
        """Read a rule, or raise `Malformed` with what was expected."""
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
        """Whether the scope is exactly `*`: whatever the ceiling allows."""
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
        """The one rule for what both cover, or None."""
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
        """Canonical order: by code point of the text. Coverage is `covers`, not `<`."""
        return str(self) < str(other)

    def __reduce__(self) -> tuple[type["Capability"], tuple[str]]:
        return Capability, (str(self),)


def capability(domain: str, atoms: int, key: str, port: int | None) -> Capability:
    """A capability from its parts; `atoms` must be one of the domain's phrases."""
    place = domain if port is None else port
    return Capability.made(domain=domain, atoms=atoms, key=key, port=port, place=place)


Box = tuple[str, int | None]


def meet_boxes(domain: str, one: Box, two: Box) -> Box | None:
    """What two scopes (key and port) have in common: the narrower of each part, or nothing."""
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
    """The rule for every request to a host, written as in `destinations`: a host pattern, perhaps with a port."""
    text = str.__str__(text)  # a subclass may compare as it likes
    key = plain_host_key(text)
    if key is not None:
        return capability("network", EVERYTHING, key, None)
    if "@" in text or "/" in text:
        host_key(text)  # says what is wrong with a URL where a host belongs
    return Capability(f"network:*:*@{text}")
