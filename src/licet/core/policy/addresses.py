"""Address ranges: what several lists of CIDRs have in common, and what one list holds beyond another.

Two ranges are nested or disjoint. Once collapsed, a list holds a range whole only if one of its entries does.

Which addresses a connection may go to: public ones, and those that a manifest opens by itself.

Rules are about names; a name can lead anywhere. This is asked with every address of an answer before anything is
dialled, and all of them must pass. Nothing here resolves or connects.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from msgspec import Struct

from licet.core.origin import Origin
from licet.core.policy.bundle import Bundle
from licet.core.policy.manifest_fields import ManifestFields

Range = ipaddress.IPv4Network | ipaddress.IPv6Network


def common_ranges(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The ranges that are in every list, collapsed and in order; with no list at all, none."""
    common: tuple[Range, ...] | None = None
    for texts in lists:
        ranges = _collapsed(ipaddress.ip_network(text) for text in texts)
        if common is not None:
            ranges = _collapsed(met for one in common for other in ranges for met in _meet(one, other))
        common = ranges
    return tuple(map(str, common or ()))


def beyond(ranges: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """What of some ranges others do not hold, in words: a range, except for the parts that they do hold."""
    known = _collapsed(map(ipaddress.ip_network, others))
    found = []
    for one in _collapsed(map(ipaddress.ip_network, ranges)):
        if not any(_nested(one, other) for other in known):
            held = [str(other) for other in known if _nested(other, one)]
            found.append(str(one) + (f" except {', '.join(held)}" if held else ""))
    return tuple(found)


def _collapsed(ranges: Iterable[Range]) -> tuple[Range, ...]:
    every = list(ranges)
    fours = ipaddress.collapse_addresses(one for one in every if isinstance(one, ipaddress.IPv4Network))
    sixes = ipaddress.collapse_addresses(one for one in every if isinstance(one, ipaddress.IPv6Network))
    return *fours, *sixes


def _meet(one: Range, other: Range) -> tuple[Range, ...]:
    return (one,) if _nested(one, other) else (other,) if _nested(other, one) else ()


def _nested(one: Range, other: Range) -> bool:
    if isinstance(one, ipaddress.IPv4Network):
        return isinstance(other, ipaddress.IPv4Network) and one.subnet_of(other)
    return isinstance(other, ipaddress.IPv6Network) and one.subnet_of(other)


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Private = tuple[tuple[str, ...], ...]

# `ipaddress.is_global` changes between releases of Python, and calls site-local, NAT64, 6to4 and IPv4-compatible
# addresses global. So the ranges are written out, after the registries of special-purpose addresses at IANA.
_CLOSED_4 = (
    ("0.0.0.0/8", "this host"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared behind a carrier's NAT"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "for protocol assignments"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "for 6to4 relays"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarking"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
)
_UNICAST_6 = "2000::/3"  # all that IPv6 has given out to the public; what is outside needs no list to be closed
_CLOSED_6 = (
    ("::/128", "this host"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "IPv4-mapped"),
    ("::ffff:0:0:0/96", "IPv4-translated"),
    ("::/96", "IPv4-compatible"),
    ("64:ff9b::/96", "NAT64"),
    ("64:ff9b:1::/48", "local NAT64"),
    ("2001::/32", "Teredo"),
    ("2001::/23", "for protocol assignments"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "6to4"),
    ("3fff::/20", "for documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
# Where clouds keep the credentials of the machine itself. No manifest opens these.
_METADATA = frozenset(
    int(ip_address(text))
    for text in (
        "169.254.169.254",  # AWS, Azure, Google and most others
        "169.254.170.2",  # AWS, containers
        "169.254.170.23",  # AWS, Kubernetes pods
        "169.254.0.23",  # Tencent
        "169.254.42.42",  # Scaleway
        "168.63.129.16",  # Azure, the host of the machine
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS, Kubernetes pods
        "fd20:ce::254",  # Google
        "fd00:42::42",  # Scaleway
        "fe80::a9fe:a9fe",  # OpenStack
    )
)
_LOW = 0xFFFFFFFF


def _table(rows: tuple[tuple[str, str], ...]) -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(text), title) for text, title in rows)


_RANGES_4, _RANGES_6, _UNICAST = _table(_CLOSED_4), _table(_CLOSED_6), ip_network(_UNICAST_6)


class Nature(Struct, frozen=True):
    """What an address is: nothing special if it has no title, and which addresses a manifest must open to reach it."""

    title: str
    metadata: bool
    closed: tuple[Address, ...]


PUBLIC = Nature("", False, ())


@lru_cache(4096)
def nature(text: str) -> Nature:
    """What an address is, judged by itself and by any IPv4 address inside it; what is no address is closed for good."""
    try:
        address = ip_address(text)
    except ValueError:
        return Nature("no address", True, ())
    inner, hidden = _inside(address)
    if any(int(face) in _METADATA for face in (address, *inner, *hidden)):
        return Nature("a metadata service", True, ())
    closed = tuple(face for face in (address, *inner) if _title(face))
    return Nature(_title(closed[0]), False, closed) if closed else PUBLIC


def _title(address: Address) -> str:
    ranges = _RANGES_4 if address.version == 4 else _RANGES_6
    for network, title in ranges:
        if address in network:
            return title
    return "" if address.version == 4 or address in _UNICAST else "reserved"


def _inside(address: Address) -> tuple[tuple[IPv4Address, ...], tuple[IPv4Address, ...]]:
    """The IPv4 addresses that an IPv6 address surely carries, and those that it carries in some networks."""
    if address.version == 4:
        return (), ()
    bits = int(address)
    low = IPv4Address(bits & _LOW)
    match _title(address):
        case "IPv4-mapped" | "IPv4-translated" | "IPv4-compatible" | "NAT64":
            return (low,), ()
        case "local NAT64":
            # How long the prefix is only its network knows: RFC 6052 puts the address elsewhere for 48, 56 and 64,
            # and leaves out the octet from bit 64 to 71.
            joined = (bits >> 64 & 0xFFFF) << 56 | bits & (1 << 56) - 1
            return (low,), tuple(IPv4Address(joined >> shift & _LOW) for shift in (40, 32, 24))
        case "6to4":
            return (IPv4Address(bits >> 80 & _LOW),), ()
        case "Teredo":  # the server, and the client with every bit turned over
            return (IPv4Address(bits >> 64 & _LOW), IPv4Address(bits & _LOW ^ _LOW)), ()
        case _:
            return (), ()


def barred(addresses: Sequence[str], private: Private, written: bool = False) -> tuple[str, ...]:
    """The addresses that no connection may go to: neither public, nor in every ceiling's list, nor written there."""
    return tuple(text for text in addresses if not _open(nature(text), private, written))


def _open(found: Nature, private: Private, written: bool) -> bool:
    if found.metadata:
        return False
    return written or all(_listed(face, private) for face in found.closed)


def _listed(address: Address, private: Private) -> bool:
    return bool(private) and all(in_list(address, ranges) for ranges in private)


def in_list(address: Address, ranges: tuple[str, ...]) -> bool:
    return any(address.version == network.version and address in network for network in _networks(ranges))


@lru_cache(256)
def _networks(ranges: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(map(ip_network, ranges))


class PrivateList(Struct, frozen=True):
    """One list of private addresses: its key, its ranges, and where it is written or would be."""

    key: str
    ranges: tuple[str, ...]
    origin: Origin


def private_lists(manifest: ManifestFields, bundles: Iterable[Bundle]) -> Iterator[PrivateList]:
    """The lists of each ceiling and each bundle: a connection to a private address needs all of them to hold it."""
    written = manifest.places.get("private")
    known = manifest.natives if len(manifest.natives) == len(manifest.private) else ()
    for number, ranges in enumerate(manifest.private or ((),)):
        ceiling = known[number] if known else None
        key = ceiling.key.replace("native", "private") if ceiling else "capabilities.private"
        origin = ceiling.origin if ceiling else manifest.origin
        yield PrivateList(key, ranges, written if written and written.file == origin.file else origin)
    for bundle in bundles:
        if bundle.private is not None:
            yield PrivateList(f"bundles.{bundle.name}.private", bundle.private, bundle.place("private"))
