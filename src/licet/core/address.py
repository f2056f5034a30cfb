"""Which addresses a connection may go to: public ones, and those that a manifest opens by itself.

Rules are about names; a name can lead anywhere. This is asked with every address of an answer before anything is
dialled, and all of them must pass. Nothing here resolves or connects.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from licet.core.bundle import Bundle
from licet.core.decision import Ground
from licet.core.folding import CEILINGS
from licet.core.manifest import Manifest
from licet.core.origin import Origin
from licet.core.reach import Reach, rule_covers
from licet.core.scope import is_address, visible
from licet.core.use import Use

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


class Nature(NamedTuple):
    """What an address is: nothing special if it has no title, and which addresses a manifest must open to reach it."""

    title: str
    metadata: bool
    closed: tuple[Address, ...]


_PUBLIC = Nature("", False, ())


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
    return Nature(_title(closed[0]), False, closed) if closed else _PUBLIC


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
    return bool(private) and all(_in_list(address, ranges) for ranges in private)


def _in_list(address: Address, ranges: tuple[str, ...]) -> bool:
    return any(address.version == network.version and address in network for network in _networks(ranges))


@lru_cache(256)
def _networks(ranges: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(map(ip_network, ranges))


class PrivateList(NamedTuple):
    """One list of private addresses: its key, its ranges, and where it is written or would be."""

    key: str
    ranges: tuple[str, ...]
    origin: Origin


def private_lists(manifest: Manifest, bundles: Iterable[Bundle]) -> Iterator[PrivateList]:
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


def is_written(use: Use, reach: Reach) -> bool:
    """Whether every ceiling has a rule for exactly this address; a wildcard or the tool's own need is not that."""
    ceilings = [layer for layer in reach.layers if layer.kind in CEILINGS]
    return bool(ceilings) and all(
        any(rule.capability.key == use.target and rule_covers(rule.capability, use) for rule in layer.allows)
        for layer in ceilings
    )


def address_grounds(use: Use, addresses: Sequence[str], reach: Reach) -> tuple[Ground, ...]:
    """Why a connection may not go to these addresses of a host, with the lines that would allow it; or nothing.

    The first ground repeats only what the caller knows. What a name of the inner network leads to is for the operator.
    """
    if addresses and all(nature(text) is _PUBLIC for text in addresses):
        return ()
    literal = is_address(use.target)
    wrong = barred(addresses, reach.manifest.private, literal and is_written(use, reach))
    fix, opened = _fix(wrong, reach), not wrong
    for bundle in reach.bundles:
        # A bundle that lists private addresses is held to them, whatever addresses the ceilings write out.
        if bundle.private is not None:
            closed = barred(addresses, (bundle.private,), literal and _is_written_in(bundle, use))
            wrong = tuple(dict.fromkeys((*wrong, *closed)))
            fix = "; ".join(filter(None, (fix, _bundle_fix(closed, bundle))))
    if any(nature(text).metadata for text in wrong):
        fix = ""
    if addresses and not wrong:
        return ()
    found = [f"{visible(text)} is {nature(text).title}" for text in wrong]
    said = found if literal and found else [f"{use.target} leads to an address that is not public", *found]
    faces = [face for text in wrong for face in nature(text).closed]
    lists = [
        one for one in private_lists(reach.manifest, reach.bundles) if not opened or one.key.startswith("bundles.")
    ]
    lacking = (one.origin for one in lists if not all(_in_list(face, one.ranges) for face in faces))
    origin = next((place for place in lacking if place.line), None) if faces else None
    return tuple(Ground("ADDRESS_NOT_ALLOWED", text, origin, fix) for text in said)


def _fix(wrong: tuple[str, ...], reach: Reach) -> str:
    """The line for each ceiling that would open these addresses."""
    manifest = reach.manifest
    if not wrong:
        return ""
    faces = [face for text in wrong for face in nature(text).closed]
    steps = []
    for key, ranges, origin in private_lists(manifest, ()):
        missing = dict.fromkeys(_exact(face) for face in faces if not _in_list(face, ranges))
        if missing:
            listed = ", ".join(f'"{text}"' for text in (*ranges, *missing))
            steps.append(f"set `{key}: [{listed}]` in {origin.file}")
    return "; ".join(steps)


def _bundle_fix(wrong: tuple[str, ...], bundle: Bundle) -> str:
    ranges = bundle.private or ()
    faces = [face for text in wrong for face in nature(text).closed if not _in_list(face, ranges)]
    missing = dict.fromkeys(map(_exact, faces))
    listed = ", ".join(f'"{text}"' for text in (*ranges, *missing))
    return f"set `bundles.{bundle.name}.private: [{listed}]` in {bundle.origin.file}" if missing else ""


def _is_written_in(bundle: Bundle, use: Use) -> bool:
    """Whether the destinations of a bundle name exactly this address."""
    rules = bundle.seat.layer.allows if bundle.seat.layer else ()
    return any(rule.capability.key == use.target and rule_covers(rule.capability, use) for rule in rules)


def _exact(address: Address) -> str:
    bare = str(address).partition("%")[0]  # the interface of a link-local address is not part of a range
    return f"{bare}/{address.max_prefixlen}"
