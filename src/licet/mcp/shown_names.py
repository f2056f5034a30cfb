"""The names under which a client sees tools and prompts.

In policy and receipts a tool is `server.tool`. Model APIs mostly accept `[A-Za-z0-9_-]{1,64}`, so clients are shown
names of that form. Two tools never share a shown name: that is a `Clash`, which `licet lock` refuses.

The names under which clients see locked tools and prompts: clashes are refused, and changes are reported.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Literal

from msgspec.structs import replace

from licet.core.policy.lock import LockedServer
from licet.errors import LicetError
from licet.mcp.limits import LONGEST_SHOWN_NAME, MOST_CLASHES_NAMED

Naming = Literal["plain", "prefixed", "whole"]  # whole: tools of a workspace, which belong to no server

_HASH_DIGITS = 6
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


class Clash(LicetError):
    """Two tools or prompts would be shown under one name."""

    def __init__(self, shown: str, first: str, second: str) -> None:
        self.shown = shown
        self.first = first
        self.second = second
        super().__init__(f"`{first}` and `{second}` would both be shown as `{shown}`")

    def __reduce__(self) -> tuple[type["Clash"], tuple[str, str, str]]:
        return Clash, (self.shown, self.first, self.second)


def naming(servers: Collection[str], configured: Naming | Literal[""] = "") -> Naming:
    """How tools are named: as `gateway: {names: …}` says, else plainly if there is one server."""
    return configured or ("plain" if len(servers) <= 1 else "prefixed")


def shown_names(full_names: Iterable[str], how: Naming) -> dict[str, str]:
    """The full name behind each shown name. Raises `Clash`."""
    shown: dict[str, str] = {}
    for full in sorted(set(full_names)):
        name = shown_name(full, how)
        if name in shown:
            raise Clash(name, shown[name], full)
        shown[name] = full
    return shown


def shown_name(full: str, how: Naming) -> str:
    """The name that clients see instead of `server.name`, or of the name of a tool of a workspace."""
    if how == "whole":
        return fitting(full)
    server, dot, name = full.partition(".")
    if not (server and dot and name):
        raise ValueError(f"`{full}` is not of the form `server.name`")
    return fitting(name if how == "plain" else f"{server}__{name}")


def fitting(name: str) -> str:
    """The name in characters that model APIs accept. A long name is cut, and its hash keeps it apart from others."""
    fit = _OTHER.sub("_", name)
    if len(fit) <= LONGEST_SHOWN_NAME:
        return fit
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{fit[: LONGEST_SHOWN_NAME - _HASH_DIGITS - 1]}_{digits}"


def without_clashes(servers: Mapping[str, LockedServer], how: Naming | Literal[""]) -> dict[str, LockedServer]:
    """The servers with tools and prompts refused that a client could not tell apart, behind all servers or one.

    All of them are refused: if the first one won, a server could take the place of a tool of another one.
    """
    refused = {name: dict(locked.refused) for name, locked in servers.items()}
    for kind in ("tools", "prompts"):
        offered = [(name, one) for name, locked in servers.items() for one in locked.in_all_versions(kind)]
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
            named = " and ".join(f"`{server}.{one}`" for server, one in found[:MOST_CLASHES_NAMED])
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
    full = [f"{name}.{tool}" for name, locked in servers.items() for tool in locked.in_all_versions("tools")]
    return {one: shown_name(one, shown_as) for one in full}
