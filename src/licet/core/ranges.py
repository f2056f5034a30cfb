"""Address ranges: what several lists of CIDRs have in common, and what one list holds beyond another.

Two ranges are nested or disjoint. Once collapsed, a list holds a range whole only if one of its entries does.
"""

import ipaddress
from collections.abc import Iterable

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
        if not any(_inside(one, other) for other in known):
            held = [str(other) for other in known if _inside(other, one)]
            found.append(str(one) + (f" except {', '.join(held)}" if held else ""))
    return tuple(found)


def _collapsed(ranges: Iterable[Range]) -> tuple[Range, ...]:
    every = list(ranges)
    fours = ipaddress.collapse_addresses(one for one in every if isinstance(one, ipaddress.IPv4Network))
    sixes = ipaddress.collapse_addresses(one for one in every if isinstance(one, ipaddress.IPv6Network))
    return *fours, *sixes


def _meet(one: Range, other: Range) -> tuple[Range, ...]:
    return (one,) if _inside(one, other) else (other,) if _inside(other, one) else ()


def _inside(one: Range, other: Range) -> bool:
    if isinstance(one, ipaddress.IPv4Network):
        return isinstance(other, ipaddress.IPv4Network) and one.subnet_of(other)
    return isinstance(other, ipaddress.IPv6Network) and one.subnet_of(other)
