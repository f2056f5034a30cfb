"""What a process could touch by itself: the rules that the kernel held it to, as a receipt keeps them.

A receipt has no event for what the kernel lets through, so it keeps the rules instead. Their number is bounded only by
the machine; of long lists a receipt keeps the beginning, how long they are, and a digest of everything.
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
MOST_PROGRAMS = 8  # different sets of rules that one receipt tells


class Access(Struct, frozen=True):
    """The rules around one process: the capabilities that they were made from, and what these became."""

    granted: tuple[str, ...]  # capabilities; none if the process has no access of its own
    closed: tuple[str, ...]  # capabilities inside of these that are denied
    rules: tuple[str, ...]  # what the kernel was told for them
    runtime: tuple[str, ...]  # what it was told for every such process: interpreter, libraries, devices, scratch
    counts: tuple[int, ...]  # how long the four lists are
    digest: str  # of all four, complete

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
    """The rules around one process; what a receipt cannot keep of them is counted and under the digest."""
    lists = [[visible(text) for text in texts] for texts in (granted, closed, rules, runtime)]
    whole = digest(dict(zip(LISTS, lists, strict=True)))
    first, second, third, fourth = map(_beginning, lists)
    return Access(first, second, third, fourth, tuple(map(len, lists)), whole)


def _beginning(texts: list[str]) -> tuple[str, ...]:
    kept, size = [], 0
    for text in islice(texts, MOST_TEXTS):
        size += len(text)
        if size > MOST_CHARACTERS:
            break
        kept.append(text)
    return tuple(kept)


class ProgramAccess(Struct, frozen=True):
    """The rules around the programs of a call: each different set once, and a digest of those that are not told."""

    sets: tuple[Access, ...] = ()
    more: int = 0  # further programs with other rules
    digest: str = ""  # over the digests of their rules, one after the other

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
