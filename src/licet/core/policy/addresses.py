"""Which IP addresses a connection may go to: public ones, and those that the policy lists under `private`.

Rules are about host names, and the DNS may return any address for a name. So every address in an answer is checked here
before anything is dialled, and all of them must pass. Nothing here resolves or connects.

The functions on ranges compare lists of CIDRs. Two ranges are nested or disjoint, so once a list is collapsed, it
contains a range only if one of its entries does.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)

from msgspec import Struct

from licet.core.values import Origin

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Private = tuple[tuple[str, ...], ...]  # one list of ranges per ceiling and per bundle that has one


def common_ranges(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The ranges that are in every list, collapsed and sorted; none if there are no lists."""
    common: tuple[Network, ...] | None = None
    for texts in lists:
        ranges = _collapsed(ip_network(text) for text in texts)
        if common is not None:
            ranges = _collapsed(met for one in common for other in ranges for met in _meet(one, other))
        common = ranges
    return tuple(map(str, common or ()))


def beyond(ranges: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The ranges that are not in `others`, as text: a range, except for the parts of it that are in `others`."""
    known = _collapsed(map(ip_network, others))
    found = []
    for one in _collapsed(map(ip_network, ranges)):
        if not any(_nested(one, other) for other in known):
            held = [str(other) for other in known if _nested(other, one)]
            found.append(str(one) + (f" except {', '.join(held)}" if held else ""))
    return tuple(found)


def _collapsed(ranges: Iterable[Network]) -> tuple[Network, ...]:
    every = list(ranges)
    fours = collapse_addresses(one for one in every if isinstance(one, IPv4Network))
    sixes = collapse_addresses(one for one in every if isinstance(one, IPv6Network))
    return *fours, *sixes


def _meet(one: Network, other: Network) -> tuple[Network, ...]:
    return (one,) if _nested(one, other) else (other,) if _nested(other, one) else ()


def _nested(one: Network, other: Network) -> bool:
    if isinstance(one, IPv4Network):
        return isinstance(other, IPv4Network) and one.subnet_of(other)
    return isinstance(other, IPv6Network) and one.subnet_of(other)


# `ipaddress.is_global` changes between releases of Python, and calls site-local, NAT64, 6to4 and IPv4-compatible
# addresses global. So the ranges are listed here, from IANA's registries of special-purpose addresses.
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
_UNICAST_6 = "2000::/3"  # all public IPv6 addresses; everything outside of it is closed without being listed
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
# Cloud metadata services, which hand out the credentials of the machine. No manifest can open these.
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


class AddressKind(Struct, frozen=True):
    """The kind of an address: public, a cloud metadata service, or in a range that is closed by default."""

    title: str  # in words, such as `loopback`; empty if it is public
    metadata: bool  # no manifest can open it
    closed: tuple[Address, ...]  # what `private` must list: the address, and the IPv4 addresses embedded in it


PUBLIC = AddressKind("", False, ())


@lru_cache(4096)
def address_kind(text: str) -> AddressKind:
    """Classify an address and the IPv4 addresses embedded in it; text that is no address can never be opened."""
    try:
        address = ip_address(text)
    except ValueError:
        return AddressKind("no address", True, ())
    certain, possible = _embedded_ipv4(address)
    if any(int(one) in _METADATA for one in (address, *certain, *possible)):
        return AddressKind("a metadata service", True, ())
    closed = tuple(one for one in (address, *certain) if _title(one))
    return AddressKind(_title(closed[0]), False, closed) if closed else PUBLIC


def _title(address: Address) -> str:
    ranges = _RANGES_4 if address.version == 4 else _RANGES_6
    for network, title in ranges:
        if address in network:
            return title
    return "" if address.version == 4 or address in _UNICAST else "reserved"


def _embedded_ipv4(address: Address) -> tuple[tuple[IPv4Address, ...], tuple[IPv4Address, ...]]:
    """The IPv4 addresses that an IPv6 address certainly embeds, and those that it embeds in some networks."""
    if address.version == 4:
        return (), ()
    bits = int(address)
    low = IPv4Address(bits & _LOW)
    match _title(address):
        case "IPv4-mapped" | "IPv4-translated" | "IPv4-compatible" | "NAT64":
            return (low,), ()
        case "local NAT64":
            # The length of the prefix depends on the network. RFC 6052 puts the IPv4 address at another position for
            # the lengths 48, 56 and 64, and skips the bits 64 to 71.
            joined = (bits >> 64 & 0xFFFF) << 56 | bits & (1 << 56) - 1
            return (low,), tuple(IPv4Address(joined >> shift & _LOW) for shift in (40, 32, 24))
        case "6to4":
            return (IPv4Address(bits >> 80 & _LOW),), ()
        case "Teredo":  # the server, and the client with every bit inverted
            return (IPv4Address(bits >> 64 & _LOW), IPv4Address(bits & _LOW ^ _LOW)), ()
        case _:
            return (), ()


def refused_addresses(addresses: Sequence[str], private: Private, written: bool = False) -> tuple[str, ...]:
    """The addresses that no connection may go to: those that are neither public nor in every list of `private`.

    `written` says that the rules name exactly this address, which opens it without a list.
    """
    return tuple(text for text in addresses if not _is_open(address_kind(text), private, written))


def _is_open(kind: AddressKind, private: Private, written: bool) -> bool:
    if kind.metadata:
        return False
    return written or all(_listed(one, private) for one in kind.closed)


def _listed(address: Address, private: Private) -> bool:
    return bool(private) and all(in_list(address, ranges) for ranges in private)


def in_list(address: Address, ranges: tuple[str, ...]) -> bool:
    return any(address.version == network.version and address in network for network in _networks(ranges))


@lru_cache(256)
def _networks(ranges: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(map(ip_network, ranges))


class PrivateList(Struct, frozen=True):
    """One list `private` of a policy: its key, its ranges, and where it is written or should be."""

    key: str
    ranges: tuple[str, ...]
    origin: Origin
