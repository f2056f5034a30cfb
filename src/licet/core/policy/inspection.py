"""Which HTTPS connections of programs are looked into, and which keys are placed there: `inspect` and `stand_ins`.

For a place under `inspect`, the proxy ends the TLS of a program, so that rules with a method hold inside. A stand-in is
a value without worth that a program gets in place of a secret; the proxy puts the secret there, towards its hosts.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.rules import Use
from licet.core.algebra.set import CapabilitySet

HTTPS_PORT = 443


class StandIn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `stand_ins`: where the secret comes from, and where it is placed."""

    name: str  # of the variable; of an entry with a file, only a name
    secret: str = ""  # a reference, or
    file: str = ""  # a file that a program sees with the stand-in in it, and
    field: str = ""  # where in the file the secret is
    hosts: tuple[str, ...] = ()  # as `inspect` has them
    headers: tuple[str, ...] = ()  # besides `authorization`; lower-case
    body: tuple[str, ...] = ()  # fields of JSON and of forms

    @property
    def places(self) -> CapabilitySet:
        """The connections in which the secret is placed."""
        return places_of(self.hosts)


class Inspection(Struct, frozen=True):
    """What the proxy of one program looks into, and what it places there."""

    inspect: tuple[str, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()

    @property
    def places(self) -> CapabilitySet:
        """The connections that are looked into."""
        return places_of(self.inspect)

    def __bool__(self) -> bool:
        return bool(self.inspect or self.stand_ins)


def places_of(hosts: tuple[str, ...]) -> CapabilitySet:
    """Hosts, each with or without a port, as connections."""
    return CapabilitySet(f"network:tcp:{place_with_port(host)}" for host in hosts)


def place_with_port(host: str) -> str:
    """A host with its port: 443 if it names none.

    >>> place_with_port("*.example.com"), place_with_port("[::1]:8443")
    ('*.example.com:443', '[::1]:8443')
    """
    name, _, port = host.rpartition(":")
    return (
        host
        if name and port.isdecimal() and (not name.startswith("[") or name.endswith("]"))
        else f"{host}:{HTTPS_PORT}"
    )


def is_inspected(places: CapabilitySet, host: str, port: int) -> bool:
    """Whether a connection is looked into. Raises `InvalidUse` for what is no host."""
    return places.has(Use(f"network:tcp:{host}:{port}"))


def stand_in(name: str, stated: Mapping[str, Any]) -> StandIn:
    """An entry of `stand_ins`, as checked plain data."""
    lists = {key: tuple(stated.get(key, ())) for key in ("hosts", "body")}
    headers = tuple(header.lower() for header in stated.get("headers", ()))
    texts = {key: str(stated.get(key, "")) for key in ("secret", "file", "field")}
    return StandIn(name=name, headers=headers, **lists, **texts)
