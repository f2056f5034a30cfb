"""Where does a text have a key, and how is another value written in its place?

A key is searched as it is and in base64, standard and URL alphabet, alone or inside longer base64. In each of the two,
every character may also be percent-coded or escaped as in JSON. What is written has the same length in the same
spelling, so a text keeps its length, and all that follows in it keeps its place. Not searched: encodings inside each
other (base64 of JSON escapes), base64 in lines, compressed text, other character sets.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from licet.sandbox.inspection.held_back import Shapes
from licet.sandbox.inspection.key_shapes import shape_of
from licet.sandbox.limits import FEWEST_SEARCHED, SEARCHED_AT_ONCE

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_STANDARD, _TO_URL = bytes.maketrans(b"-_", b"+/"), bytes.maketrans(b"+/", b"-_")
_SIX = {sign: bits for bits, sign in enumerate(_STANDARD)}

LONGEST_ESCAPE = 6  # bytes; `\u0041`
_UNIT = re.compile(rb'%([0-9A-Fa-f]{2})|\\u00([0-7][0-9A-Fa-f])|\\([/"])|([^%\\])', re.DOTALL)
_STRIDE = 1024  # bytes; those behind an escape in which the next ones are not looked for
_HEAD = 24  # characters; those of a form that a pattern searches for

Edge = dict[int, int]


class Form(Struct, frozen=True):
    """One spelling of a key, character by character, and what is written instead.

    The first and the last character of base64 may share their bits with what is next to the key. They are `first` and
    `last`: what such a character may be, and becomes. One that would stay as it is belongs to no form, so that it is
    not waited for.
    """

    core: bytes
    new: bytes
    is_base64: bool = False
    first: Edge | None = None
    last: Edge | None = None

    def __repr__(self) -> str:
        return f"Form of {self.size} characters"

    @property
    def size(self) -> int:
        """How many characters it has."""
        return len(self.core) + (self.first is not None) + (self.last is not None)

    def may_be(self, at: int) -> bytes:
        """The characters that it may have at a place."""
        at -= self.first is not None
        if at < 0 and self.first:
            return _both(self.first)
        if at == len(self.core) and self.last:
            return _both(self.last)
        return _both((self.core[at],)) if self.is_base64 else self.core[at : at + 1]

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


def _both(standard: Iterable[int]) -> bytes:
    """Characters of base64 in both alphabets."""
    signs = bytes(standard)
    return bytes(sorted({*signs, *signs.translate(_TO_URL)}))


def forms_of(key: bytes, new: bytes) -> Iterator[Form]:
    """The spellings of a key, with the new value of the same length."""
    yield Form(key, new)
    for before in range(3):
        start, end = before * 8, (before + len(key)) * 8
        old_text, new_text = (base64.b64encode(b"\0" * before + value + b"\0\0\0") for value in (key, new))
        core = slice(-(-start // 6), end // 6)
        first = _edge(old_text[start // 6], new_text[start // 6], (1 << 6 - start % 6) - 1) if start % 6 else None
        last = _edge(old_text[end // 6], new_text[end // 6], 0b111111 ^ (1 << 6 - end % 6) - 1) if end % 6 else None
        yield Form(old_text[core], new_text[core], True, first, last)


def _edge(old: int, new: int, own: int) -> Edge | None:
    """What a character of base64 becomes of which a key owns some bits; None if these are the same."""
    was, becomes = _SIX[old] & own, _SIX[new] & own
    if was == becomes:
        return None
    return {_STANDARD[rest | was]: _STANDARD[rest | becomes] for rest in range(64) if not rest & own}


class _Searched:
    """A form with what finds it: a literal for text without escapes, and patterns for text with them."""

    __slots__ = ("_head", "anchor", "form", "key", "offset")

    def __init__(self, key: int, form: Form) -> None:
        self.key, self.form = key, form
        self.anchor, self.offset = _anchor(form)
        self._head: re.Pattern[bytes] | None = None

    @property
    def head(self) -> re.Pattern[bytes]:
        """The first characters, in any escapes."""
        if self._head is None:
            units = [_unit(self.form.may_be(at)) for at in range(min(self.form.size, _HEAD))]
            self._head = re.compile(_first_unit(self.form.may_be(0)) + b"".join(units[1:]))
        return self._head


def _anchor(form: Form) -> tuple[bytes, int]:
    """A long part of a form that is the same in both alphabets, and its place."""
    if not form.is_base64:
        return form.core, 0
    longest = max(re.finditer(rb"[A-Za-z0-9]+|\A", form.core), key=lambda found: len(found[0]))
    return longest[0], longest.start() + (form.first is not None)


def _unit(signs: bytes) -> bytes:
    return rb"(?:[%b]|%%(?:%b)|\\u00(?:%b)|\\[%b])" % (_set(signs), *[_hex(signs)] * 2, _backslashed(signs))


def _first_unit(signs: bytes) -> bytes:
    """As `_unit`, and begins with a set, at which a pattern is searched fast."""
    own = _set(signs)
    return rb"[%b%%\\](?:(?<=[%b])|(?<=%%)(?:%b)|(?<=\\)(?:u00(?:%b)|[%b]))" % (
        own, own, *[_hex(signs)] * 2, _backslashed(signs),
    )  # fmt: skip


def _set(signs: bytes) -> bytes:
    return b"".join(rb"\x%02x" % sign for sign in signs)


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


class KeySearch:
    """Finds keys in texts. The keys are numbered as they were given: each with what is written in its place."""

    __slots__ = ("_alphabet", "_escapes", "_forms", "_reach", "_slashes", "shapes", "step")

    def __init__(self, keys: Iterable[tuple[bytes, bytes]]) -> None:
        pairs = tuple(keys)
        self._forms = [_Searched(number, form) for number, pair in enumerate(pairs) for form in forms_of(*pair)]
        #: How many bytes are searched before other tasks should run.
        self.step = max(SEARCHED_AT_ONCE // max(len(pairs), 1), FEWEST_SEARCHED)
        #: What may begin a key.
        self.shapes = Shapes(shape_of(old.decode()) for old, _ in pairs)
        signs = bytes({sign for one in self._forms for sign in one.form.core} | {*_STANDARD, *b"-_"})
        # What no key has in it ends every match: most texts end in such a character.
        self._alphabet = signs + b"%\\"
        self._escapes = re.compile(rb"%%(?:%b)" % _hex(signs))
        self._slashes = re.compile(rb"\\(?:u00(?:%b)|[%b])" % (_hex(signs), _backslashed(signs)))
        self._reach = LONGEST_ESCAPE * max((one.form.size for one in self._forms), default=0)

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
        return any(one.form.core.lower() in small for one in self._forms)

    def found(self, text: bytes) -> list[Match]:
        """Every occurrence, by where it ends; they may overlap."""
        places: dict[tuple[int, int], None] = {}
        for number, one in enumerate(self._forms):
            at = text.find(one.anchor)
            while at >= 0:
                if at >= one.offset:
                    places[number, at - one.offset] = None
                at = text.find(one.anchor, at + 1)
        for low, high in self._escaped(text):
            for number, one in enumerate(self._forms):
                head = one.head.search(text, low, high)
                while head is not None:
                    places[number, head.start()] = None
                    head = one.head.search(text, head.start() + 1, high)
        matches = [match for number, at in places if (match := self._match(text, number, at)) is not None]
        return sorted(matches, key=lambda match: (match.end, -match.start))

    def _escaped(self, text: bytes) -> Iterator[tuple[int, int]]:
        """The parts of a text in which a key with escapes may begin: around escapes, up to what no key has in it."""
        for mark, escapes in ((b"%", self._escapes), (b"\\", self._slashes)):
            found = escapes.search(text) if mark in text else None
            done = 0
            while found is not None:
                at = found.start()
                before = text[max(at - self._reach, done) : at]
                after = text[at : at + _STRIDE + LONGEST_ESCAPE * _HEAD]
                high = at + len(after) - len(after.lstrip(self._alphabet))
                yield at - len(before) + len(before.rstrip(self._alphabet)), high
                done = min(at + _STRIDE, high)
                found = escapes.search(text, done)

    def _match(self, text: bytes, number: int, at: int) -> Match | None:
        one = self._forms[number]
        size = one.form.size
        given = text[at : at + size]
        if len(given) == size and one.form.begins(given):
            return Match(one.key, one.form, at, at + size)
        if b"%" not in given and b"\\" not in given:
            return None
        units = _units(text, at, one.form)
        if units is None:
            return None
        return Match(one.key, one.form, at, units[-1][1], tuple(units))


def _units(text: bytes, at: int, form: Form) -> list[tuple[int, int]] | None:
    """Where the characters of a form are, beginning at a place; None if others are there, or fewer."""
    units: list[tuple[int, int]] = []
    known = bytearray()
    size, step = form.size, _HEAD
    while len(units) < size:
        unit = _UNIT.match(text, at)
        if unit is None:
            break
        units.append((at, at := unit.end()))
        digits = unit[1] or unit[2]
        known.append(int(digits, 16) if digits else (unit[3] or unit[4])[0])
        if len(units) == step or len(units) == size:
            if not form.begins(bytes(known)):
                return None
            step *= 2
    return units if len(units) == size else None


class KeyStream:
    """A text in pieces, with the new values where keys were. Bytes that may begin a key are held back meanwhile.

    Which ones these are follows from the shape of the keys alone, which their stand-ins have too: who sees what is held
    back learns nothing about a key.
    """

    __slots__ = ("_on_match", "_out", "_search", "_text")

    def __init__(self, search: KeySearch, on_match: Callable[[Match], None] | None = None) -> None:
        self._search, self._on_match = search, on_match
        self._text = b""  # what is held back, as it came
        self._out = b""  # and with what was written to it

    def __repr__(self) -> str:
        return "KeyStream"

    def feed(self, piece: bytes) -> bytes:
        """Take the next piece, and return what can be passed on."""
        if not piece:
            return b""
        known = len(self._text)
        text, out = (self._text + piece, self._out + piece) if known else (piece, piece)
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
        begun = self._search.shapes.open_from(text)
        self._text, self._out = text[begun:], out[begun:]
        return out[:begun] if self._text else out

    def steps(self, piece: bytes) -> Iterator[bytes]:
        """As `feed`, in steps between which other tasks can run, also where text is made to be slow to search."""
        for start in range(0, len(piece), self._search.step):
            yield self.feed(piece[start : start + self._search.step])

    def finish(self) -> bytes:
        """Return the rest: no key goes on behind the end."""
        rest, self._text, self._out = self._out, b"", b""
        return rest


def rewritten(search: KeySearch, text: bytes) -> bytes:
    """A whole text with the new values."""
    stream = KeyStream(search)
    return stream.feed(text) + stream.finish()
