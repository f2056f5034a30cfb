"""The rules that the kernel enforced around a process, as a receipt keeps them.

The kernel reports no event for what it lets through, so a receipt keeps the rules instead. Of a long list it keeps the
beginning, the length, and a digest of everything.
"""

from collections.abc import Iterable
from hashlib import sha256
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.canonical import digest

MOST_TEXTS = 64  # of one list
MOST_CHARACTERS = 8192  # of one list
LISTS = ("granted", "closed", "rules", "runtime")
MOST_PROGRAMS = 8  # different sets of rules in one receipt


class Access(Struct, frozen=True):
    """The rules around one process: the capabilities, and the kernel rules that were made from them."""

    granted: tuple[str, ...]  # capabilities; none if the process has no access of its own
    closed: tuple[str, ...]  # denied capabilities inside of these
    rules: tuple[str, ...]  # kernel rules made from them
    runtime: tuple[str, ...]  # kernel rules for every such process: interpreter, libraries, devices, scratch
    counts: tuple[int, ...]  # the lengths of the four complete lists
    digest: str  # of the four complete lists

    @property
    def direct(self) -> bool:
        """Whether anything was granted to the process itself, rather than to its handles."""
        return self.counts[0] > 0

    def document(self) -> dict[str, Any]:
        """The same as plain data, as receipts have it."""
        return {
            **{name: list(getattr(self, name)) for name in LISTS},
            "counts": dict(zip(LISTS, self.counts, strict=True)),
            "digest": self.digest,
            "direct": self.direct,
        }


def access(granted: Iterable[str], closed: Iterable[str], rules: Iterable[str], runtime: Iterable[str]) -> Access:
    """Make an `Access` from complete lists: cut them, and compute their lengths and digest."""
    lists = [[visible(text) for text in texts] for texts in (granted, closed, rules, runtime)]
    complete = digest(dict(zip(LISTS, lists, strict=True)))
    first, second, third, fourth = map(_beginning, lists)
    return Access(first, second, third, fourth, tuple(map(len, lists)), complete)


def _beginning(texts: list[str]) -> tuple[str, ...]:
    kept, size = [], 0
    for text in islice(texts, MOST_TEXTS):
        size += len(text)
        if size > MOST_CHARACTERS:
            break
        kept.append(text)
    return tuple(kept)


class ProgramAccess(Struct, frozen=True):
    """The rules around the programs of a call: each different set once, up to a limit, and a digest of the others."""

    sets: tuple[Access, ...] = ()
    more: int = 0  # programs whose rules are not in `sets`
    digest: str = ""  # a chain over the digests of their rules

    def with_program(self, one: Access) -> "ProgramAccess":
        """The same with one more program."""
        if one in self.sets:
            return self
        if len(self.sets) < MOST_PROGRAMS:
            return replace(self, sets=(*self.sets, one))
        digest = sha256(f"{self.digest}{one.digest}".encode()).hexdigest()
        return replace(self, more=self.more + 1, digest=f"sha256:{digest}")

    def document(self) -> dict[str, Any]:
        """The same as plain data, as receipts have it."""
        return {"digest": self.digest or None, "more": self.more, "sets": [one.document() for one in self.sets]}


NO_PROGRAMS = ProgramAccess()
