"""Where may a key begin in a text, found in a time that tells nothing about the key?

A program can have texts of its own making searched, and measure how long that takes. If a longer part of a right guess
took longer, the key would come out letter by letter. So a text is compared with a key only in windows that are too long
to guess: `UNGUESSABLE` random bits, if the key has them. All else follows from the shape of the key, which its stand-in
shows.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import log2
from operator import sub
from typing import NamedTuple

from licet.sandbox.limits import MOST_WINDOWS, UNGUESSABLE

Signs = frozenset[int]


class Searched(NamedTuple):
    """The characters of a key, or of a spelling of it."""

    text: bytes
    signs: Sequence[Signs]  # what each of them may be, by the shape of the key

    def __repr__(self) -> str:
        return f"Searched, {len(self.text)} characters"

    def small(self) -> "Searched":
        """The same without capitals."""
        return Searched(self.text.lower(), [frozenset(bytes(one).lower()) for one in self.signs])


class _Part(NamedTuple):
    """The part of a key that is searched for."""

    first: int
    length: int
    width: int  # of a window


class Windows:
    """The windows of some texts, which are numbered. Every occurrence of a text contains one that is looked up."""

    __slots__ = ("_step", "_table", "width")

    def __init__(self, texts: Iterable[tuple[int, Searched]], skipped: int = 0) -> None:
        """Not with the first `skipped` characters of each text: who asks cannot tell these from others."""
        those = list(texts)
        parts = [_part(one.signs, skipped) for _, one in those]
        length = min(part.length for part in parts)
        self.width = min(max(part.width for part in parts), length)
        self._step = length - self.width + 1
        self._table: dict[bytes, list[tuple[int, int]]] = {}
        for (number, one), part in zip(those, parts, strict=True):
            for at in range(part.first, part.first + self._step):
                self._table.setdefault(one.text[at : at + self.width], []).append((number, at))

    def __repr__(self) -> str:
        return f"Windows of {self.width} characters"

    def places(self, text: bytes) -> Iterator[tuple[int, int]]:
        """The number of a text, and where it may begin; that may be before the beginning."""
        width, table = self.width, self._table
        for start in range(0, len(text) - width + 1, self._step):
            if (found := table.get(text[start : start + width])) is not None:
                for number, before in found:
                    yield number, start - before


def runs(marked: bytes, shortest: int) -> Iterator[tuple[int, int]]:
    """The parts of a text, not shorter than that, whose characters are marked with a 1."""
    run = b"\1" * shortest
    start = marked.find(run)
    while start >= 0:
        end = marked.find(b"\0", start + shortest)
        end = len(marked) if end < 0 else end
        yield start, end
        start = marked.find(run, end)


def _part(signs: Sequence[Signs], skipped: int) -> _Part:
    """A part of a key without the words that it begins with, and the shortest windows in it that cannot be guessed."""
    bits = [log2(len(one)) for one in signs]
    first = max(skipped, next((at for at, some in enumerate(bits) if some > 1), 0))
    bits = bits[first : first + MOST_WINDOWS]
    length = len(bits)
    sums = [0.0, *accumulate(bits)]
    needed = min(UNGUESSABLE, sums[-1]) - 1e-6  # sums of fractions
    shortest = -(-length // 2)
    width = bisect_left(range(length), True, lo=shortest, key=lambda width: min(map(sub, sums[width:], sums)) >= needed)
    return _Part(first, length, width)
