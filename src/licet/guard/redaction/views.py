"""Views of a text in which secrets are searched: decoded or normalised, with a map back to the original positions.

For example, the view of `p%61ss` without escapes is `pass`, and its second byte maps to the three bytes `%61`. The map
is computed only if something was found in the view.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate

from licet.guard.redaction.forms import WHITE

DEPTH = 3  # levels of escapes that are decoded: JSON in JSON in a result
_MOST_CACHED = 4096  # decoded escapes
_LONGEST_LINE = 256  # bytes of one line of a dump
_BASE64 = bytes.maketrans(b"-_", b"+/")
_SEPARATORS = WHITE + b":;,._-|<>()[]{}\"'"


class View:
    """A decoded or normalised text, with a map to the positions in its parent."""

    __slots__ = ("_marks", "_parent", "_parts", "_sources", "raw")

    def __init__(self, raw: bytes, parent: "View | None" = None, parts: "Callable[[], _Parts] | None" = None) -> None:
        self.raw = raw
        self._parent = parent
        self._parts = parts  # the pieces of this text and of the parent; None: same positions
        self._marks: list[int] = []
        self._sources: list[int] = []

    def begin(self, place: int) -> int:
        """The position in the original text where the byte at `place` begins."""
        if self._parent is None:
            return place
        return self._parent.begin(self._in_parent(place))

    def end(self, place: int) -> int:
        """The position in the original text where the byte at `place` ends."""
        if self._parent is None:
            return place + 1
        if self._parts is not None and (at := self._piece(place)) % 2:
            return self._parent.end(self._sources[at + 1] - 1)
        return self._parent.end(self._in_parent(place))

    def quotes(self) -> list[int]:
        """The positions of quotes that are not escaped in the parent: in JSON, they delimit strings."""
        pieces = [self.raw] if self._parts is None else self._parts()[0]
        starts = accumulate(map(len, pieces), initial=0)
        kept = [(start, piece) for start, piece in zip(starts, pieces, strict=False)][::2]
        return [start + found.start() for start, piece in kept for found in _QUOTE.finditer(piece)]

    def _in_parent(self, place: int) -> int:
        if self._parts is None:
            return place
        at = self._piece(place)
        return self._sources[at] + (0 if at % 2 else place - self._marks[at])  # an escape has one position

    def _piece(self, place: int) -> int:
        if not self._marks:
            assert self._parts is not None  # noqa: S101
            here, there = self._parts()
            self._marks = list(accumulate(map(len, here), initial=0))
            self._sources = list(accumulate(map(len, there), initial=0))
        # Pieces with even numbers are unchanged, those with odd numbers were decoded or removed.
        return bisect_right(self._marks, place, 0, len(self._marks) - 1) - 1


_Parts = tuple[list[bytes], list[bytes]]
_QUOTE = re.compile(b'"')


class _Dump(View):
    """Text without the offsets and text columns of hex dumps. What is found in a dump is replaced with its lines."""

    __slots__ = ("_lines",)

    def __init__(self, raw: bytes, parent: View, parts: "Callable[[], _Parts]", lines: list[tuple[int, int]]) -> None:
        super().__init__(raw, parent, parts)
        self._lines = lines  # start and end of each line of a dump, in the parent

    def begin(self, place: int) -> int:
        """The position where the line of this byte begins, at its offset."""
        assert self._parent is not None  # noqa: S101 - it is read from a text
        low = super()._in_parent(place)
        line = self._line(low)
        return self._parent.begin(line[0] if line else low)

    def end(self, place: int) -> int:
        """The position where the line of this byte ends."""
        assert self._parent is not None  # noqa: S101
        high = super()._in_parent(place)
        line = self._line(high)
        return self._parent.end(line[1] - 1 if line else high)

    def _line(self, place: int) -> tuple[int, int] | None:
        at = bisect_right(self._lines, (place, len(self._parent.raw) if self._parent else 0)) - 1
        return self._lines[at] if at >= 0 and place < self._lines[at][1] else None


def lower(view: View) -> View:
    """ASCII letters in lower case."""
    return View(view.raw.lower(), view)


def packed(view: View) -> View:
    """No white space, and the standard alphabet of base64."""
    return View(view.raw.translate(_BASE64, WHITE), view, lambda: _without(_SPACE, view.raw))


def squeezed(view: View) -> View:
    """Lower case, no white space."""
    return View(view.raw.lower().translate(None, WHITE), view, lambda: _without(_SPACE, view.raw))


def hexed(view: View) -> View:
    """Lower case, no white space, no separators."""
    return View(view.raw.lower().translate(None, _SEPARATORS), view, lambda: _without(_SEPARATOR, view.raw))


def hexed_numbers(view: View) -> View | None:
    """As `hexed`, also without `0x`; None if there is none. A separate view, because `0x` may also be data."""
    raw = view.raw.lower()
    if b"0x" not in raw:
        return None
    return View(raw.replace(b"0x", b"").translate(None, _SEPARATORS), view, lambda: _without(_BETWEEN, raw))


def _without(pattern: re.Pattern[bytes], raw: bytes) -> _Parts:
    there = pattern.split(raw)
    here = there.copy()
    here[1::2] = [b""] * (len(here) // 2)
    return here, there


_SPACE = re.compile(rb"([ \t\r\n\f\v]+)")
_SEPARATOR = re.compile(rb"([ \t\r\n\f\v:;,._|<>()\[\]{}\"'-]+)")
_BETWEEN = re.compile(rb"((?:0x|[ \t\r\n\f\v:;,._|<>()\[\]{}\"'-])+)")


def readings(raw: bytes, *, json_alone: bool = False) -> Iterator[View]:
    """The text, and the text with its escapes decoded once, twice and so on, up to `DEPTH` times.

    With `json_alone`, `%41` and `&amp;` are no escapes.
    """
    view = View(raw)
    yield view
    pattern = _BACKSLASHED if json_alone else _ESCAPE
    for _ in range(DEPTH):
        following = _decoded(view, pattern, _MEANINGS) if _may_escape(view.raw) else None
        if following is None:
            return
        view = following
        yield view


def quoted_printable(view: View) -> View | None:
    """The text decoded as quoted-printable; None if it has no such escape."""
    return _decoded(view, _QUOTED, _QUOTED_MEANINGS) if b"=" in view.raw else None


def undumped(view: View, *, in_json: bool = False) -> Iterator[View]:
    """The text without the offsets and text columns of hex dumps (`xxd`, `od`, `hexdump`), if it has a dump.

    What follows `|` or `>` is the text column, or data of `od -c`: there is a view for each of the two.
    In JSON, a dump ends with its string, and what is in two strings is not joined.
    """
    raw = view.raw
    # By the start of the offset: where its data begins, and whether a colon is before that.
    offsets = {found.start(): (found.end() - 1, found[1]) for found in _OFFSET.finditer(b"\n" + raw)}
    for found in _OFFSET_IN_TEXT.finditer(raw):
        offsets.setdefault(found.start(), (found.end(), found[1]))
    if not any(_DATA.match(raw, data) for data, _ in offsets.values()):
        return
    quotes = view.quotes() if in_json else []
    narrow: list[_Line] = []
    wide: list[_Line] = []
    done = 0
    for start, (data, colon) in sorted(offsets.items()):
        if start < done:
            continue
        close = raw.find(b"\n", data, data + _LONGEST_LINE)
        close = close if close >= 0 else min(len(raw), data + _LONGEST_LINE)
        at = bisect_right(quotes, start)
        close = min(close, quotes[at]) if at < len(quotes) else close
        if close <= data:
            continue
        line = raw[data:close]
        gutter = line.find(b"  ") if colon else max(line.find(b"  |"), line.find(b"  >"))
        narrow.append((start, data, data + gutter if gutter >= 0 else close, close))
        wide.append(narrow[-1] if colon else (start, data, close, close))
        done = close
    if narrow:
        yield _dump(view, narrow, quotes)
    if wide != narrow:
        yield _dump(view, wide, quotes)


_Line = tuple[int, int, int, int]  # of a dump: where its offset begins, its data begins and ends, and the line ends


def _dump(view: View, lines: list[_Line], quotes: list[int]) -> View:
    raw = view.raw
    here: list[bytes] = []  # pieces with even numbers are kept, those with odd numbers are changed
    there: list[bytes] = []
    done = 0
    for start, data, stop, close in lines:
        for quote in quotes[bisect_left(quotes, done) : bisect_right(quotes, start)]:
            here += [raw[done:quote], BARRIER]
            there += [raw[done:quote], raw[quote : quote + 1]]
            done = quote + 1
        here += [raw[done:start], b"", raw[data:stop], b""]
        there += [raw[done:start], raw[start:data], raw[data:stop], raw[stop:close]]
        done = close
    barred = bisect_left(quotes, done)
    if barred < len(quotes):
        quote = quotes[barred]
        here += [raw[done:quote], BARRIER]
        there += [raw[done:quote], raw[quote : quote + 1]]
        done = quote + 1
    here.append(raw[done:])
    there.append(raw[done:])
    return _Dump(b"".join(here), view, lambda: (here, there), [(line[0], line[3]) for line in lines])


_OFFSET = re.compile(rb"\n[ \t]{0,8}[0-9A-Fa-f]{4,16}(:?)[ \t]+")  # at the beginning of a line
# Behind a quote or other text, such as `body: `. Most offsets begin with zeros, and for these the search is fast.
_OFFSET_IN_TEXT = re.compile(rb"000(?<=[^0-9A-Za-z\n]000)[0-9A-Fa-f]{1,13}(:?)[ \t]+")
# What follows an offset in a dump, and rarely another number: two groups of digits, a long one, or columns.
_DATA = re.compile(
    rb"[0-9A-Fa-f]{2,8}[ \t]+[0-9A-Fa-f]{2,8}(?![0-9A-Za-z])|[0-9A-Fa-f]{8}|(?:\S{1,3}[ \t]+){3}\S{1,3}(?!\S)"
)
BARRIER = b"\x1e"  # no normalisation removes it


class _Meanings(dict[bytes, bytes]):
    """A cache of decoded escapes."""

    def __init__(self, meaning: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self._meaning = meaning

    def __missing__(self, escape: bytes) -> bytes:
        decoded = self._meaning(escape)
        if len(self) < _MOST_CACHED:
            self[escape] = decoded
        return decoded


def _decoded(view: View, pattern: re.Pattern[bytes], meanings: _Meanings) -> View | None:
    there = pattern.split(view.raw)
    if len(there) == 1:
        return None
    here = there.copy()
    here[1::2] = [meanings[escape] for escape in there[1::2]]
    return View(b"".join(here), view, lambda: (here, there))


def _may_escape(raw: bytes) -> bool:
    return b"\\" in raw or b"%" in raw or b"&" in raw


# Leading zeros of a number are ignored, up to a limit.
_BACKSLASHES = (
    rb"\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\u\{[0-9A-Fa-f]{1,6}\}"
    rb"|\\U[0-9A-Fa-f]{8}|\\x[0-9A-Fa-f]{2}|\\[0-7]{1,3}|\\[abefnrtv]|\\\r?\n|\\[^0-9A-Za-z]"
)
_BACKSLASHED = re.compile(rb"(" + _BACKSLASHES + rb")")
_ESCAPE = re.compile(
    rb"(%[0-9A-Fa-f]{2}|%u[0-9A-Fa-f]{4}|"
    + _BACKSLASHES
    + rb"|&(?:#(?=[0-9])0{0,16}+(?:[1-9][0-9]{0,6})?;?|#[xX](?=[0-9A-Fa-f])0{0,16}+(?:[1-9A-Fa-f][0-9A-Fa-f]{0,5})?;?"
    rb"|(?:amp|lt|gt|quot|apos);))"
)
_QUOTED = re.compile(rb"(=[0-9A-Fa-f]{2}|=[ \t]{0,4}\r?\n)")
# An incomplete escape at the end of a piece of text.
UNFINISHED = re.compile(
    rb"(?:%|%u[0-9A-Fa-f]{0,3}|%[0-9A-Fa-f]"
    rb"|(?:\\u[Dd][89ABab][0-9A-Fa-f]{2})?(?:\\(?:u[0-9A-Fa-f]{0,3}|u\{[0-9A-Fa-f]{0,6}|U[0-9A-Fa-f]{0,7}|x[0-9A-Fa-f]?"
    rb"|[0-7]{1,2})?)?"
    rb"|&(?:#[xX]?[0-9A-Fa-f]{0,22}|[a-z]{0,4}))\Z"
)
_SIMPLE = {b"a": b"\a", b"b": b"\b", b"e": b"\x1b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NAMED = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}


def _meaning(escape: bytes) -> bytes:
    first, kind = escape[:1], escape[1:2]
    if first == b"&":
        return _html(escape[1:].rstrip(b";"))
    if first == b"%":
        return _character(escape[2:]) if kind == b"u" else bytes.fromhex(escape[1:].decode())
    if len(escape) == 12:  # a pair of surrogates
        high, low = int(escape[2:6], 16), int(escape[8:12], 16)
        return chr(0x10000 + (high - 0xD800 << 10) + low - 0xDC00).encode()
    if kind == b"x":  # a byte, as in C and in the `repr` of bytes
        return bytes.fromhex(escape[2:].decode())
    if kind in (b"u", b"U"):
        return _character(escape[2:].strip(b"{}"))
    if kind.isdigit():
        return bytes((int(escape[1:], 8) & 0xFF,))
    return b"" if escape[-1:] == b"\n" else _SIMPLE.get(kind, kind)


def _character(digits: bytes) -> bytes:
    return chr(min(int(digits, 16), 0x10FFFF)).encode("utf-8", "surrogatepass")


def _html(escape: bytes) -> bytes:
    if escape[:1] != b"#":
        return _NAMED[escape]
    number = int(b"0" + escape[1:], 16) if escape[1:2] in b"xX" else int(escape[1:])
    return chr(min(number, 0x10FFFF)).encode("utf-8", "surrogatepass")  # also characters that browsers do not show


def _unquoted(escape: bytes) -> bytes:
    return b"" if escape[-1:] == b"\n" else bytes.fromhex(escape[1:].decode())


_MEANINGS, _QUOTED_MEANINGS = _Meanings(_meaning), _Meanings(_unquoted)
