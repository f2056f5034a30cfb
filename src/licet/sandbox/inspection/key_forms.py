"""Where does a text have a key, and how is another value written in its place?

A key is searched as it is and in base64, standard and URL alphabet, alone or inside longer base64, also in lines. In
each of the two, every character may also be percent-coded or escaped as in JSON. What is written has the same length in
the same spelling, so a text keeps its length, and all that follows in it keeps its place. Not searched: encodings
inside each other (base64 of JSON escapes), compressed text, other character sets.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from licet.sandbox.inspection.held_back import Shapes, signs_in_base64
from licet.sandbox.inspection.key_shapes import shape_of
from licet.sandbox.inspection.key_windows import Searched, Signs, Windows, runs
from licet.sandbox.inspection.line_breaks import (
    BEGINS_BREAK,
    BETWEEN_LINES,
    BLANKS,
    BREAK,
    IN_LINES,
    SHORTEST_LINE,
    WHITE,
    break_over,
    is_break,
    longest_with_breaks,
)
from licet.sandbox.limits import FEWEST_SEARCHED, SEARCHED_AT_ONCE

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_STANDARD, _TO_URL = bytes.maketrans(b"-_", b"+/"), bytes.maketrans(b"+/", b"-_")
_SIX = {sign: bits for bits, sign in enumerate(_STANDARD)}

LONGEST_ESCAPE = 6  # bytes; `\u0041`
_ESCAPE = re.compile(rb'(%[0-9A-Fa-f]{2}|\\u00[0-7][0-9A-Fa-f]|\\[/"])')
_UNIT = re.compile(_ESCAPE.pattern + rb"|[^%\\]", re.DOTALL)
_BREAK_OR_ESCAPE = re.compile(b"(" + BREAK.pattern + b"|" + _ESCAPE.pattern[1:])
_ONE = re.compile(_BREAK_OR_ESCAPE.pattern + rb"|.", re.DOTALL)
_STRIDE = 8192  # bytes; those behind an escape in which the next ones are not looked for

Edge = dict[int, int]


class Form(Struct, frozen=True):
    """One spelling of a key, character by character, and what is written instead.

    The first and the last character of base64 may share their bits with what is next to the key. They are `first` and
    `last`: what such a character may be, and becomes. One that would stay as it is belongs to no form, so that it is
    not waited for.
    """

    core: bytes
    new: bytes
    signs: tuple[Signs, ...]  # what each character of the core may be, by the shape of the key
    is_base64: bool = False
    first: Edge | None = None
    last: Edge | None = None

    def __repr__(self) -> str:
        return f"Form of {self.size} characters"

    @property
    def searched(self) -> Searched:
        """What of it is searched for."""
        return Searched(self.core, self.signs)

    @property
    def size(self) -> int:
        """How many characters it has."""
        return len(self.core) + (self.first is not None) + (self.last is not None)

    def begins(self, text: bytes) -> bool:
        """Whether it may begin with these characters, of which there are not more than it has."""
        given = text.translate(_TO_STANDARD) if self.is_base64 else text
        if self.first is not None:
            if given and given[0] not in self.first:
                return False
            given = given[1:]
        if len(given) > len(self.core):
            return given.startswith(self.core) and self.last is not None and given[-1] in self.last
        return self.core.startswith(given)

    def written(self, old: bytes, now: bytes) -> bytes:
        """The new characters for the old ones. `now` is what other matches have made of these."""
        if not self.is_base64:
            return self.new
        made = bytearray(self.new)
        old_six, now_six = old.translate(_TO_STANDARD), now.translate(_TO_STANDARD)
        if self.first is not None:
            made[:0] = bytes((self.first.get(now_six[0], self.first[old_six[0]]),))
        if self.last is not None:
            made.append(self.last.get(now_six[-1], self.last[old_six[-1]]))
        return bytes(made).translate(_TO_URL) if b"-" in old or b"_" in old else bytes(made)


def forms_of(key: bytes, new: bytes) -> Iterator[Form]:
    """The spellings of a key, with the new value of the same length."""
    signs = [frozenset(one.encode()) for one in shape_of(key.decode())]
    yield Form(key, new, tuple(signs))
    for before in range(3):
        start, end = before * 8, (before + len(key)) * 8
        old_text, new_text = (base64.b64encode(b"\0" * before + value + b"\0\0\0") for value in (key, new))
        core = slice(-(-start // 6), end // 6)
        first = _edge(old_text[start // 6], new_text[start // 6], (1 << 6 - start % 6) - 1) if start % 6 else None
        last = _edge(old_text[end // 6], new_text[end // 6], 0b111111 ^ (1 << 6 - end % 6) - 1) if end % 6 else None
        in_base64, shares_first, shares_last = signs_in_base64(signs, before)
        whole = in_base64[shares_first : len(in_base64) - shares_last]
        yield Form(old_text[core], new_text[core], tuple(whole), True, first, last)


def _edge(old: int, new: int, own: int) -> Edge | None:
    """What a character of base64 becomes of which a key owns some bits; None if these are the same."""
    was, becomes = _SIX[old] & own, _SIX[new] & own
    if was == becomes:
        return None
    return {_STANDARD[rest | was]: _STANDARD[rest | becomes] for rest in range(64) if not rest & own}


def _hex(signs: Iterable[int]) -> bytes:
    """The numbers of characters, in hexadecimal digits of either case."""
    by_first: dict[int, list[str]] = {}
    for sign in signs:
        by_first.setdefault(sign >> 4, []).append(f"{sign & 15:x}")
    return "|".join(f"{high}[{''.join(low)}{''.join(low).upper()}]" for high, low in by_first.items()).encode()


def _backslashed(signs: bytes) -> bytes:
    """Those of the characters that JSON may have behind a backslash."""
    return bytes(sign for sign in signs if sign in b'/"') or rb"\x00"


class Match(Struct, frozen=True):
    """One occurrence of a key: its number, and where its characters are."""

    key: int
    form: Form
    start: int
    end: int
    units: tuple[tuple[int, int], ...] = ()  # start and end of each character; empty: one byte each

    def old(self, text: bytes) -> bytes:
        """Its characters, without escapes."""
        if not self.units:
            return text[self.start : self.end]
        return bytes(_decoded(text[start:end]) for start, end in self.units)

    def _now(self, text: bytes, out: bytearray) -> bytes:
        """Its characters in a copy; the old one of an escape that another match begins inside, and was written over."""
        if not self.units:
            return bytes(out[self.start : self.end])
        return bytes(
            _decoded(bytes((out if _UNIT.fullmatch(out, start, end) else text)[start:end])) for start, end in self.units
        )

    def write(self, text: bytes, out: bytearray) -> None:
        """Write the new value over the occurrence, in a copy that others may have been written to."""
        new = self.form.written(self.old(text), self._now(text, out)) if self.form.is_base64 else self.form.new
        if not self.units:
            out[self.start : self.end] = new
            return
        for sign, (start, end) in zip(new, self.units, strict=True):
            if end - start == 1:
                out[start] = sign
            elif end - start > 2:  # `\/` can be written for no other character; the key's other ones are gone
                had = bytes(out[end - 2 : end])
                # Most write `%2F` and `\\u002f`.
                capitals = had == had.upper() if end - start == 3 else had != had.lower()
                out[end - 2 : end] = b"%02X" % sign if capitals else b"%02x" % sign


def _decoded(unit: bytes) -> int:
    return int(unit[-2:], 16) if len(unit) > 2 else unit[-1]


class _Signs(dict[bytes, bytes]):
    """The character of each escape that was met; none of a break."""

    def __missing__(self, escape: bytes) -> bytes:
        if len(escape) > LONGEST_ESCAPE:  # a break, of which there are too many to keep each
            return b""
        self[escape] = made = b"" if is_break(escape) else bytes((_decoded(escape),))
        return made


_SIGNS = _Signs()


class KeySearch:
    """Finds keys in texts. The keys are numbered as they were given: each with what is written in its place."""

    __slots__ = (
        "_alphabet",
        "_escapes",
        "_forms",
        "_in_parts",
        "_is_plain",
        "_mask",
        "_reach",
        "_shortest",
        "_small",
        "_windows",
        "shapes",
        "step",
    )

    def __init__(self, keys: Iterable[tuple[bytes, bytes]]) -> None:
        pairs = tuple(keys)
        self._forms = [(number, form) for number, pair in enumerate(pairs) for form in forms_of(*pair)]
        #: How many bytes are searched before other tasks should run.
        self.step = max(SEARCHED_AT_ONCE // max(len(pairs), 1), FEWEST_SEARCHED)
        #: What may begin a key.
        self.shapes = Shapes(shape_of(old.decode()) for old, _ in pairs)
        groups: dict[tuple[bool, int], list[int]] = {}
        for at, (number, form) in enumerate(self._forms):
            groups.setdefault((form.is_base64, len(pairs[number][0])), []).append(at)
        # Who looks for what is behind an escape cannot tell the characters in the escape from those behind it.
        self._windows = [
            (is_base64, Windows(((at, self._forms[at][1].searched) for at in those), LONGEST_ESCAPE - 1))
            for (is_base64, _), those in groups.items()
        ]
        self._small = [Windows([(at, form.searched.small())]) for at, (_, form) in enumerate(self._forms)]
        self._shortest = min((windows.width for _, windows in self._windows), default=1)
        signs = bytes({sign for _, form in self._forms for sign in form.core} | {*_STANDARD, *b"-_"})
        # What no key has in it ends every match: most texts end in such a character.
        self._alphabet = signs + b"%\\\r\n"
        self._mask = bytes(sign in signs for sign in range(256))
        # Two patterns, because each begins with a character that is searched for fast.
        self._escapes = (
            (b"%", re.compile(rb"%%(?:%b)" % _hex(signs))),
            (b"\\", re.compile(rb"\\(?:u00(?:%b)|[%b])" % (_hex(signs), _backslashed(signs)))),
        )
        longest = max((form.size for _, form in self._forms), default=0)
        self._reach = longest_with_breaks(LONGEST_ESCAPE * longest)
        # What a text has with breaks in it, which blanks may belong to.
        self._in_parts = re.compile(b"(?:[%b]++|%b|[%%\\\\\r\n])*+" % (re.escape(signs), BREAK.pattern))
        # Then no key has a part of an escape or of a break in its middle.
        self._is_plain = not {*b"%\\"} & {*signs}

    def __bool__(self) -> bool:
        return bool(self._forms)

    def __repr__(self) -> str:
        return f"KeySearch of {len(self._forms)} forms"

    def has(self, text: bytes) -> bool:
        """Whether a key occurs."""
        return bool(self.found(text))

    def has_in_any_case(self, text: bytes) -> bool:
        """Whether a key occurs, also where capitals were not kept: in a name of a header."""
        small = unquote_to_bytes(text).lower()
        return any(
            small.startswith(self._forms[number][1].core.lower(), at)
            for windows in self._small
            for number, at in windows.places(small)
            if at >= 0
        )

    def found(self, text: bytes) -> list[Match]:
        """Every occurrence, by where it ends; they may overlap."""
        if not self._forms:
            return []
        plain: Iterable[tuple[int, int]] = (runs_of_signs := self._runs(text))
        parts = [*self._escaped(text), *self._in_lines(text, runs_of_signs)]
        # What is behind escapes and breaks is searched without them, and all else between them then, too.
        plain = _outside(plain, sorted(parts)) if parts and self._is_plain else plain
        places = dict.fromkeys(place for place in self._places(text, plain) if place[1] >= 0)
        for low, high in parts:
            places.update(dict.fromkeys(self._places_with_escapes(text, low, high)))
        matches = [match for number, at in places if (match := self._match(text, number, at)) is not None]
        return sorted(matches, key=lambda match: (match.end, -match.start))

    def _runs(self, text: bytes) -> list[tuple[int, int]]:
        """The parts of a text that are long enough for a part of a key, or for a line of one."""
        return list(runs(text.translate(self._mask), min(self._shortest, SHORTEST_LINE)))

    def _places(self, text: bytes, runs_of_signs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Which form may begin where in a text without escapes and breaks, also before it."""
        for start, end in runs_of_signs:
            part = text[start:end]
            standard = part.translate(_TO_STANDARD)
            for is_base64, windows in self._windows:
                for number, at in windows.places(standard if is_base64 else part):
                    yield number, start + at - (self._forms[number][1].first is not None)

    def _escaped(self, text: bytes) -> Iterator[tuple[int, int]]:
        """The parts of a text that may have keys with escapes."""
        for mark, escapes in self._escapes:
            found = escapes.search(text) if mark in text else None
            while found is not None:
                low, high, done = self._around(text, found.start())
                yield low, high
                found = escapes.search(text, done)

    def _in_lines(self, text: bytes, runs_of_signs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The parts of a text that may have keys in lines: a line ends in a run of what keys have in them."""
        # Most runs are words. One that is shorter than a line ends a line only behind an escape.
        if b"\\" in text or b"%" in text:
            ends = [end for start, end in runs_of_signs if end - start >= SHORTEST_LINE or text[start - 1] in b"%\\"]
        else:
            ends = [end for start, end in runs_of_signs if end - start >= SHORTEST_LINE]
        done, size = 0, len(text)
        for end in ends:
            if done <= end < size and text[end] in BEGINS_BREAK and BETWEEN_LINES.match(text, end) is not None:
                low, high, done = self._around(text, end)
                yield low, high

    def _around(self, text: bytes, at: int) -> tuple[int, int, int]:
        """The part around a place, up to what no key has in it; and where the next part begins."""
        stride = max(self._reach, _STRIDE)
        lowest, highest = max(at - self._reach, 0), at + stride + self._reach
        low = lowest + len(text[lowest:at].rstrip(self._alphabet))
        while low > lowest and text[low - 1] in BLANKS and (line_break := break_over(text, low - 1)) is not None:
            low = lowest + len(text[lowest : line_break[0]].rstrip(self._alphabet))
        after = text[at:highest]
        high = at + len(after) - len(after.lstrip(self._alphabet))
        if high < len(text) and text[high] in BLANKS and (line_break := break_over(text, high)) is not None:
            parts = self._in_parts.match(text, line_break[1], max(highest, line_break[1]))
            high = parts.end() if parts is not None else line_break[1]
        return low, high, min(at + stride, high)

    def _places_with_escapes(self, text: bytes, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Which form may begin where in a part of a text."""
        part = text[low:high]
        units: list[tuple[int, int]] = []
        is_coded = b"%" in part or b"\\" in part
        if is_coded:
            split = _BREAK_OR_ESCAPE.split(part)
            split[1::2] = map(_SIGNS.__getitem__, split[1::2])
            decoded = b"".join(split)
        else:
            decoded = part.translate(None, WHITE)
        for number, at in self._places(decoded, self._runs(decoded)):
            if not units and is_coded:
                units = [one.span() for one in _ONE.finditer(part) if not (one[1] and is_break(one[1]))]
            elif not units:
                units = [(place, place + 1) for place, sign in enumerate(part) if sign not in WHITE]
            if at >= 0:
                yield number, low + units[at][0]
            # The last characters of an escape or of a break may be the first ones of a key.
            for inside in range(1, LONGEST_ESCAPE):
                if 0 <= (unit := at + inside) < len(units):
                    for end in _ends_before(part, units, unit):
                        yield number, low + end - inside

    def _match(self, text: bytes, number: int, at: int) -> Match | None:
        key, form = self._forms[number]
        given = text[at : at + form.size]
        if len(given) == form.size and form.begins(given):
            return Match(key, form, at, at + form.size)
        if not any(sign in given for sign in (b"%", b"\\", b"\n", b"\r", b" ", b"\t")):
            return None
        units = _units(text, at, form)
        if units is None:
            return None
        return Match(key, form, at, units[-1][1], tuple(units))


def _ends_before(part: bytes, units: list[tuple[int, int]], unit: int) -> Iterator[int]:
    """Where something ends, before a character, whose last bytes may be the first characters of a key."""
    before, start = units[unit - 1][1] if unit else 0, units[unit][0]
    yield start
    # `\\r` and `%0D` may belong to a key, and the `\\n` is a break.
    yield from (at for at in range(before, start) if at == before or is_break(part[at:start]))


def _units(text: bytes, at: int, form: Form) -> list[tuple[int, int]] | None:
    """Where the characters of a form are, beginning at a place; None if others are there, or fewer."""
    units: list[tuple[int, int]] = []
    known = bytearray()
    line = -SHORTEST_LINE  # where it begins; that of the first character is known to the break behind it
    while len(units) < form.size:
        if form.is_base64 and units and (line_break := BREAK.match(text, at)) and at - line >= SHORTEST_LINE:
            line = at = line_break.end()
        unit = _UNIT.match(text, at)
        if unit is None:
            return None
        units.append((at, at := unit.end()))
        known.append(_decoded(unit[0]))
    return units if form.begins(bytes(known)) else None


def _outside(plain: Iterable[tuple[int, int]], parts: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Those runs that lie in none of some parts, which are in order."""
    following = iter(parts)
    low, high = next(following)
    for start, end in plain:
        while high < end and (part := next(following, None)) is not None:
            low, high = part
        if not low <= start <= end <= high:
            yield start, end


class KeyStream:
    """A text in pieces, with the new values where keys were. Bytes that may begin a key are held back meanwhile.

    Which ones these are follows from the shape of the keys alone, which their stand-ins have too: who sees what is held
    back learns nothing about a key.
    """

    __slots__ = ("_before", "_on_match", "_out", "_search", "_text")

    def __init__(self, search: KeySearch, on_match: Callable[[Match], None] | None = None) -> None:
        self._search, self._on_match = search, on_match
        self._before = b""  # the last bytes that were passed on, as they came: a line may begin there
        self._text = b""  # what is held back, as it came
        self._out = b""  # and with what was written to it

    def __repr__(self) -> str:
        return "KeyStream"

    def feed(self, piece: bytes) -> bytes:
        """Take the next piece, and return what can be passed on."""
        if not piece:
            return b""
        if self._text or (self._before and piece[0] in IN_LINES):
            before, known = len(self._before), len(self._before) + len(self._text)
            text = self._before + self._text + piece
            out = text if self._out is self._text else self._before + self._out + piece
        else:
            before, known, text, out = 0, 0, piece, piece
        # Those that end in what was held back are written there already.
        matches = [match for match in self._search.found(text) if match.end > known]
        if self._on_match is not None:
            for match in matches:
                self._on_match(match)
        elif matches:
            changed = bytearray(out)
            for match in matches:
                match.write(text, changed)
            out = bytes(changed)
        begun = max(self._search.shapes.open_from(text), before)
        self._before = text[max(begun - SHORTEST_LINE, 0) : begun] if text[begun - 1] in IN_LINES else b""
        self._text = text[begun:]
        self._out = self._text if out is text else out[begun:]
        return out[before:begun] if before or self._text else out

    def steps(self, piece: bytes) -> Iterator[bytes]:
        """As `feed`, in steps between which other tasks can run, also where text is made to be slow to search."""
        for start in range(0, len(piece), self._search.step):
            yield self.feed(piece[start : start + self._search.step])

    def finish(self) -> bytes:
        """Return the rest: no key goes on behind the end."""
        rest = self._out
        self._before = self._text = self._out = b""
        return rest


def rewritten(search: KeySearch, text: bytes) -> bytes:
    """A whole text with the new values."""
    stream = KeyStream(search)
    return stream.feed(text) + stream.finish()
