"""Which bytes at the end of a piece of text may begin a key, so that they wait for the next piece?

A program sees what waits. If that followed from the key itself, a program could send guesses to itself and learn from
each whether it is right. So it follows from the shape of a key alone, which its stand-in shows to every program.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from licet.sandbox.inspection.key_windows import Signs
from licet.sandbox.inspection.line_breaks import (
    BEGINS_BREAK,
    BEGUN_BREAK,
    BLANKS,
    BREAK,
    LINE,
    LONGEST_BREAK,
    MOST_BLANKS,
    SHORTEST_LINE,
    longest_with_breaks,
)

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_ANY = frozenset(range(256))
_HEX = frozenset(b"0123456789abcdefABCDEF")
_LONGEST_ESCAPE = 6  # bytes; `\u0041`
_MARK = re.compile(rb"[%\\\r]")  # what an escape begins with, or a break of more than one byte
_INNER = b"\n" + BLANKS  # what is before a byte inside of a break, besides marks
_BEHIND_BLANK = (b"", b"\r", b"\n", b"\\")  # in a break; nothing, if it may follow
_GROUP = 3  # bytes; those of four characters of base64


class Shapes:
    """What every spelling of some keys may have at each of its places, and what of a text fits there.

    The places of all spellings are numbered through, and a set of them is a number with one bit for each.
    """

    __slots__ = ("_at", "_begins", "_behind_breaks", "_last", "_reach")

    def __init__(self, shapes: Iterable[Sequence[str]]) -> None:
        places: list[Signs] = []
        longest = 0
        starts: list[int] = []
        lasts: list[int] = []
        behind_breaks: list[int] = []
        for shape in shapes:
            signs = [frozenset(one.encode()) for one in shape]
            spellings = ((signs, False), *(_in_base64(signs, by) for by in range(_GROUP)))
            for number, (spelled, first_may_differ) in enumerate(spellings):
                if number:  # base64, which may be in lines
                    behind_breaks += range(len(places) + 1, len(places) + len(spelled))
                # A first character of base64 whose bits of the key stay as they are is no part of its spelling.
                starts += [len(places), len(places) + 1] if first_may_differ else [len(places)]
                places += spelled
                lasts.append(len(places) - 1)
                longest = max(longest, len(spelled))
        self._begins, self._last = _bits(starts, len(places)), _bits(lasts, len(places))
        self._behind_breaks = _bits(behind_breaks, len(places))
        by_signs: dict[Signs, list[int]] = {}
        for place, one in enumerate(places):
            by_signs.setdefault(one, []).append(place)
        #: The places at which each character may be.
        self._at = [0] * 256
        for one, those in by_signs.items():
            bits = _bits(those, len(places))
            for sign in one:
                self._at[sign] |= bits
        self._reach = longest_with_breaks(_LONGEST_ESCAPE * longest)

    def __repr__(self) -> str:
        return f"Shapes up to {self._reach} bytes"

    def open_from(self, text: bytes) -> int:
        """Where the first thing of the shape of a key begins that may go on behind the end; the end if none does."""
        size = first = len(text)
        inner = ~self._last
        # Of the bytes looked at, the last one first: the places at which a text from there to the end fits.
        fits = [0] * (LONGEST_BREAK - 1) + [-1]
        blanks = 0  # in a row, from the next byte on
        for at in range(size - 1, max(size - self._reach, 0) - 1, -1):
            sign = text[at]
            if sign in BLANKS and at and text[at - 1] in BLANKS:
                blanks += 1
                if blanks > MOST_BLANKS:
                    break
                fits.append(0)
                continue
            here, behind, begins_break = self._at[sign] & inner & fits[-1] >> 1, 0, sign in BEGINS_BREAK
            blanks = blanks + 1 if begins_break and sign in BLANKS else 0
            if begins_break:
                here = 0 if blanks else self._escaped(text[at : at + _LONGEST_ESCAPE], fits)
                behind = self._behind_break(text, at, fits)
            if here & self._begins:
                first = at
            in_break = begins_break and at and text[at - 1] in _INNER  # perhaps, and not at its first byte
            if not (here or behind or in_break) and _MARK.search(text, max(at - _LONGEST_ESCAPE, 0), at) is None:
                break
            fits.append(here | behind)
        return first

    def _behind_break(self, text: bytes, at: int, fits: list[int]) -> int:
        """The places that fit behind a break here, of which a text may have only the beginning."""
        if text[at] in BLANKS and text[at + 1 : at + 2] not in _BEHIND_BLANK:
            return 0
        if at < SHORTEST_LINE or LINE.match(text, at - SHORTEST_LINE) is None:
            return 0
        if (line_break := BREAK.match(text, at)) is not None:
            return self._behind_breaks & fits[at - line_break.end()]
        return self._behind_breaks if BEGUN_BREAK.match(text, at) is not None else 0

    def _escaped(self, rest: bytes, fits: list[int]) -> int:
        """The places at which an escape fits, of which a text may have only the beginning."""
        inner, here = ~self._last, 0
        for length, value in _escapes(rest):
            here |= self._at[value] & inner & fits[-length] >> 1
        if len(rest) < _LONGEST_ESCAPE:
            for value in _begun(rest):
                here |= self._at[value]
        return here


def _bits(places: Iterable[int], size: int) -> int:
    made = bytearray(size // 8 + 1)
    for place in places:
        made[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(made, "little")


def _in_base64(signs: Sequence[Signs], before: int) -> tuple[list[Signs], bool]:
    """What each character of base64 may be, in both alphabets, that has bits of a key behind some other bytes.

    Also whether the first one is shared with those bytes. One that is shared, and has the same bits for every key of
    the shape, is left out.
    """
    made, shares_first, shares_last = signs_in_base64(signs, before)
    start, end = before * 8, (before + len(signs)) * 8
    if shares_last and len({sign & (1 << end % 6) - 1 for sign in signs[-1]}) == 1:
        made.pop()
    if shares_first and len({sign >> 8 - (6 - start % 6) for sign in signs[0]}) == 1:
        made.pop(0)
        shares_first = False
    return made, shares_first


def signs_in_base64(signs: Sequence[Signs], before: int) -> tuple[list[Signs], bool, bool]:
    """What each character of base64 may be that has bits of a key; whether the first and the last have others."""
    octets = [_ANY] * before + [*signs] + [_ANY] * _GROUP
    start, end = before * 8, (before + len(signs)) * 8
    places = range(start // 6, -(-end // 6))
    made = [_six(octets[at * 6 // 8], octets[at * 6 // 8 + 1], at * 6 % 8) for at in places]
    return made, bool(start % 6), bool(end % 6)


@lru_cache(maxsize=4096)
def _six(one: Signs, two: Signs, offset: int) -> Signs:
    """The characters for six bits of two bytes."""
    high = {one_byte << 8 & 0xFF00 for one_byte in one}
    values = {(a | b) >> 10 - offset & 63 for a in high for b in ({0} if offset <= 2 else two)}
    made = {_STANDARD[value] for value in values}
    return frozenset(made | {sign for was, sign in zip(b"+/", b"-_", strict=True) if was in made})


def _escapes(rest: bytes) -> Iterable[tuple[int, int]]:
    """The length of the escape that a text begins with, and its character."""
    if rest[:1] == b"%" and len(rest) >= 3 and _HEX.issuperset(rest[1:3]):
        yield 3, int(rest[1:3], 16)
    elif rest[:4] == b"\\u00" and len(rest) == _LONGEST_ESCAPE and _HEX.issuperset(rest[4:6]):
        yield 6, int(rest[4:6], 16)
    elif rest[:1] == b"\\" and rest[1:2] in (b"/", b'"'):
        yield 2, rest[1]


@lru_cache(maxsize=256)
def _begun(rest: bytes) -> tuple[int, ...]:
    """The characters whose escape a text may be the beginning of."""
    if rest.startswith(b"\\U"):  # no escape, though `%4A` and `%4a` are the same
        return ()
    small = rest.lower()
    found = [
        sign
        for sign in range(128)
        if any(len(rest) < len(one) and one.startswith(small) for one in (b"%%%02x" % sign, b"\\u%04x" % sign))
    ]
    return (*found, *b'/"') if rest == b"\\" else tuple(found)
