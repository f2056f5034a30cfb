"""Where a path leads, and through which links: who may change one of those decides where it leads.

Each link is read once, so that what is told about the way is true of the place that it led to, whatever changes.
"""

import errno
import os

from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, use_of_path

_MOST_LINKS = 40


class FoundProgram(str):
    """The real path of a program, and the links that were met on the way there from its name."""

    links: tuple[str, ...]

    def __new__(cls, real: str, links: tuple[str, ...]) -> "FoundProgram":
        """Keep the links with the path."""
        found = super().__new__(cls, real)
        found.links = links
        return found


def followed(path: str) -> tuple[str, tuple[str, ...]]:
    """The same absolute path without links, and the links that were met; `OSError` if they lead in circles."""
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
        except OSError:  # no link, or nothing at all: whoever opens it will see
            real = candidate
            continue
        links.append(candidate)
        if len(links) > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        real = "/" if target.startswith("/") else real
        rest = target.split("/") + rest
    return real, tuple(links)


def changeable(path: str, ceiling: CapabilitySet) -> bool:
    """Whether some tool of a manifest may write a path, and so may have put there what is there now."""
    try:
        return ceiling.has(use_of_path("write", path))
    except InvalidUse:
        return True
