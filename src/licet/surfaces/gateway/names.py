"""The names under which a client sees tools and prompts.

In policy and receipts a tool is `server.tool`. Model APIs mostly accept `[A-Za-z0-9_-]{1,64}`, so clients are shown
names of that form. Two tools never share a shown name: that is a `Clash`, which `licet lock` refuses.
"""

import re
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import Literal

from licet.errors import LicetError

Naming = Literal["plain", "prefixed", "whole"]  # whole: tools of a workspace, which belong to no server

LONGEST = 64
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
    if len(fit) <= LONGEST:
        return fit
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{fit[: LONGEST - _HASH_DIGITS - 1]}_{digits}"
