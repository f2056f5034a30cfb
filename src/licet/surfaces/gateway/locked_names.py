"""The names under which clients see locked tools and prompts: clashes are refused, and changes are reported."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec.structs import replace

from licet.core.policy.lock import LockedServer
from licet.surfaces.gateway.names import Naming, naming, shown_name

_MOST_NAMED = 5


def without_clashes(servers: Mapping[str, LockedServer], how: Naming | Literal[""]) -> dict[str, LockedServer]:
    """The servers with tools and prompts refused that a client could not tell apart, behind all servers or one.

    All of them are refused: if the first one won, a server could take the place of a tool of another one.
    """
    refused = {name: dict(locked.refused) for name, locked in servers.items()}
    for kind in ("tools", "prompts"):
        offered = [(name, one) for name, locked in servers.items() for one in locked.listed(kind)]
        offered = [(name, one) for name, one in offered if f"{kind}/{one}" not in refused[name]]
        groups: list[tuple[Naming, list[tuple[str, str]]]] = [(naming(servers, how), offered)]
        groups += [("plain", [pair for pair in offered if pair[0] == name]) for name in servers]
        for shown_as, pairs in groups:
            for name, one, why in _clashes(pairs, shown_as):
                refused[name].setdefault(f"{kind}/{one}", why)
    return {name: replace(locked, refused=refused[name]) for name, locked in servers.items()}


def _clashes(pairs: Iterable[tuple[str, str]], how: Naming) -> Iterator[tuple[str, str, str]]:
    shown: dict[str, list[tuple[str, str]]] = {}
    for server, one in pairs:
        shown.setdefault(shown_name(f"{server}.{one}", how), []).append((server, one))
    for name, found in shown.items():
        if len(found) > 1:
            named = " and ".join(f"`{server}.{one}`" for server, one in found[:_MOST_NAMED])
            yield from ((server, one, f"{named} would all be shown as `{name}`") for server, one in found)


def renamed(
    old: Mapping[str, LockedServer], new: Mapping[str, LockedServer], how: Naming | Literal[""]
) -> Iterator[str]:
    """A line for each tool that clients see under another name when servers are added or removed."""
    before, after = _shown(old, how), _shown(new, how)
    for full in sorted(before.keys() & after.keys()):
        if before[full] != after[full]:
            yield f"! clients see {full} as `{after[full]}`, no longer as `{before[full]}`"


def _shown(servers: Mapping[str, LockedServer], how: Naming | Literal[""]) -> dict[str, str]:
    shown_as = naming(servers, how)
    full = [f"{name}.{tool}" for name, locked in servers.items() for tool in locked.listed("tools")]
    return {one: shown_name(one, shown_as) for one in full}
