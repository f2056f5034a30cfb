"""Resolves a path and lists the links on the way: a tool that can replace one of them decides where the path leads.

Each link is read once, so the listed links belong to the returned path, even if a link changes meanwhile.
"""

import errno
import os

from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, use_of_path

_MOST_LINKS = 40


class FoundProgram(str):
    """The real path of a program, the links on the way from its name to it, and the path with these links."""

    links: tuple[str, ...]
    path: str

    def __new__(cls, real: str, links: tuple[str, ...], path: str = "") -> "FoundProgram":
        found = super().__new__(cls, real)
        found.links, found.path = links, path or real
        return found


def followed(path: str) -> tuple[str, tuple[str, ...]]:
    """The real path of an absolute path, and the links on the way; `OSError` if they form a loop."""
    real, rest, links = "/", path.split("/"), list[str]()
    while rest:
        step = rest.pop(0)
        if step in ("", "."):
            continue
        if step == "..":
            real = os.path.dirname(real)
            continue
        candidate = os.path.join(real, step)
        try:
            target = os.readlink(candidate)
        except OSError:  # not a link, or it does not exist
            real = candidate
            continue
        links.append(candidate)
        if len(links) > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        real = "/" if target.startswith("/") else real
        rest = target.split("/") + rest
    return real, tuple(links)


def changeable(path: str, ceiling: CapabilitySet) -> bool:
    """Whether any tool of a manifest may write a path, and so may have replaced what is there."""
    try:
        return ceiling.has(use_of_path("write", path))
    except InvalidUse:
        return True
