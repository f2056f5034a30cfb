"""The encodings of a secret that redaction searches for, grouped by how a text is normalised before the search.

`docs/handles.md` lists which forms are found and which are not; a test checks this list against the code.

Views of a text in which secrets are searched: decoded or normalised, with a map back to the original positions.

For example, the view of `p%61ss` without escapes is `pass`, and its second byte maps to the three bytes `%61`. The map
is computed only if something was found in the view.
"""

import base64
import json
import re
import shlex
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from urllib.parse import quote, quote_plus

from licet.core.late_pattern import late_pattern

SHORT = 4  # characters; shorter values are searched only as they are, because their encodings occur by chance
_LEAST = 8  # characters; a shorter encoding could be part of an ordinary word or number
_ANY = "surrogateescape"
_ESCAPED = late_pattern(rb"%[0-9A-Fa-f]{2}|%u[0-9A-Fa-f]{4}|&(?:#[0-9xX]|(?:amp|lt|gt|quot|apos);)")
_CONTROL_NAMES = {b"\t": b"ht", b"\n": b"nl", b"\v": b"vt", b"\f": b"ff", b"\r": b"cr", b" ": b"sp"}  # by `od -a`
_OCTAL = [f"{byte:03o}".encode() for byte in range(256)]
WHITE = b" \t\r\n\f\v"

Spellings = dict[bytes, bytes]  # bytes to search for -> label to write instead


class Forms:
    """The spellings of all secrets, by the normalisation of the text in which they are searched."""

    __slots__ = ("_dumped", "_values", "exact", "has_escapes", "hexed", "lower", "packed", "squeezed", "wide")

    def __init__(self) -> None:
        self.exact: Spellings = {}  # text unchanged: short values
        self.lower: Spellings = {}  # lower case: values in any case, and in the usual escapes
        self.wide: Spellings = {}  # lower case, only if the text has NUL: UTF-16 and UTF-32
        self.packed: Spellings = {}  # no white space, `-_` read as `+/`: base64
        self.squeezed: Spellings = {}  # lower case, no white space: base32, lists of decimal and octal numbers
        self.hexed: Spellings = {}  # lower case, no white space or separators: hex
        self.has_escapes = False  # whether a value has escapes in it, such as `%41`, which decoding would change
        self._values: Spellings = {}
        self._dumped: Spellings = {}

    @property
    def dumped(self) -> Spellings:
        """As `hexed`, without the offsets and text column of a hex dump. Made on demand: few texts are dumps."""
        if not self._dumped:
            found: Spellings = {}
            for raw, label in self._values.items():
                _put(found, _dumped(raw), label)
            self._dumped = found
        return self._dumped

    def add(self, name: str, value: str) -> None:
        """Add the spellings of one value. A known spelling keeps its label, unless it is this value itself."""
        for raw, text in _spellings(value).items():
            label = _label(name, raw)
            self.has_escapes = self.has_escapes or _ESCAPED.search(raw) is not None
            own = text == value.strip()
            if len(text) < SHORT:
                _put(self.exact, [raw], label, own)
                continue
            _put(self.lower, [raw.lower()], label, own)
            _put(self.lower, (form.lower() for form in _quoted(raw)), label)
            for form, wide_label in _wide(text, label):
                _put(self.wide, [form], wide_label)
            _put(self.packed, _base64_forms(raw, text), label)
            _put(self.squeezed, _squeezed(raw), label)
            _put(self.hexed, [raw.hex().encode()], label)
            _put(self._values, [raw], label)


def _put(into: Spellings, found: Iterable[bytes], label: bytes, replace: bool = False) -> None:
    for form in found:
        if form and (replace or form not in into):
            into[form] = label


def _label(name: str, raw: bytes) -> bytes:
    """The label that replaces a value. It must not contain the value, which may be equal to its name."""
    for label in (f"[redacted {name}]", "[redacted]"):
        if raw.lower() not in (encoded := _bytes(label)).lower():
            return encoded
    return "[…]".encode()


def _spellings(value: str) -> dict[bytes, str]:
    """The byte strings to search for, by text: the stripped value, with LF and CRLF, in upper and lower case."""
    found: dict[bytes, str] = {}
    trimmed = value.strip()  # headers, and files that are read line by line, are stripped
    flat = trimmed.replace("\r\n", "\n")
    lines = dict.fromkeys((trimmed, flat, flat.replace("\n", "\r\n")))
    # The search ignores the case of ASCII letters; other letters need spellings of their own.
    cased = [] if trimmed.isascii() else [trimmed.upper(), trimmed.lower()]
    for text in filter(None, (*lines, *cased)):
        found.setdefault(_bytes(text), text)
        with suppress(UnicodeEncodeError):  # environment variables may hold bytes that are not UTF-8
            found.setdefault(text.encode("utf-8", _ANY), text)
        if not text.isascii() and len(text) >= SHORT:
            # `\xfc` in a text may mean a character or a byte; the search reads it as a byte.
            found.setdefault(b"".join(_byte_or_utf8(sign) for sign in text), text)
    return found


def _byte_or_utf8(sign: str) -> bytes:
    return sign.encode("latin-1") if sign < "\u0100" else _bytes(sign)


def _quoted(raw: bytes) -> Iterator[bytes]:
    """The value in its usual escapes. Most are decoded anyway, but the text before them can prevent that."""
    # Their tables take long to load, and most processes hold no secret.
    import html
    from quopri import encodestring

    text = raw.decode("utf-8", _ANY)
    yield raw.replace(b" ", b"+")
    for form in (quote(text, "", errors=_ANY), quote(text, errors=_ANY), quote_plus(text, errors=_ANY)):
        yield form.encode()
    yield repr(raw)[2:-1].encode()
    for form in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]):
        yield _bytes(form)
        yield _bytes(form.replace("/", "\\/"))
    yield _bytes(html.escape(text))
    yield encodestring(raw, quotetabs=True).replace(b"=\n", b"")
    yield _bytes(text.replace('"', '""'))  # as in CSV
    if "'" in text:
        yield _bytes(text.replace("'", "''"))  # as in SQL
        yield _bytes(text.replace("'", "'\\''"))
        yield _bytes(shlex.quote(text)[1:-1])
    yield _bytes(re.sub(r"([^\w@%+=:,./-])", r"\\\1", text))


def _wide(text: str, label: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The value in UTF-16 and UTF-32, with a label in the same encoding, so that the text stays readable."""
    for codec in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        with suppress(UnicodeEncodeError):
            form, wide_label = text.encode(codec), label.decode().encode(codec)
            if text.isascii():  # without the outer zeros both byte orders are the same
                form, wide_label = form.strip(b"\0"), wide_label.strip(b"\0")
            yield form.lower(), wide_label


def _base64_forms(raw: bytes, text: str) -> Iterator[bytes]:
    """The value in base64: alone, and as part of a longer encoded text, at each of the three alignments."""
    whole = base64.b64encode(raw)
    yield whole
    yield whole.rstrip(b"=")
    escaped = quote(whole, "").encode()
    yield from (escaped, re.sub(rb"%..", lambda found: found[0].lower(), escaped))
    cores = [raw]
    with suppress(UnicodeEncodeError):
        cores += [text.encode("utf-16-le").strip(b"\0"), text.encode("utf-16-be").strip(b"\0")]
    for core in dict.fromkeys(cores):
        for before in range(3):
            yield _own(base64.b64encode(b"\0" * before + core + b"\0" * 3), before, len(core), 6)


def _own(encoded: bytes, before: int, size: int, bits: int) -> bytes:
    """The encoded characters that depend only on the value, and not on the bytes before or after it."""
    return encoded[-(-before * 8 // bits) : (before + size) * 8 // bits]


def _squeezed(raw: bytes) -> Iterator[bytes]:
    if len(raw) * 8 // 5 >= _LEAST:
        whole = base64.b32encode(raw).lower()
        yield whole
        yield whole.rstrip(b"=")
    for before in range(5):
        own = _own(base64.b32encode(b"\0" * before + raw + b"\0" * 5), before, len(raw), 5).lower()
        if len(own) >= _LEAST:
            yield own
    yield ",".join(map(str, raw)).encode()
    yield "".join(map(str, raw)).encode()
    yield b"".join([_OCTAL[byte] for byte in raw])
    if len(bare := raw.lower().translate(None, WHITE)) >= _LEAST:
        yield bare


def _dumped(raw: bytes) -> Iterator[bytes]:
    small = raw.lower()
    yield raw.hex().encode()
    yield small.translate(None, WHITE)
    signs = [small[at : at + 1] for at in range(len(small))]
    yield b"".join(_CONTROL_NAMES.get(sign, sign) for sign in signs)
    yield b"".join(sign if sign < b"\x80" else _OCTAL[sign[0]] for sign in signs).translate(None, WHITE)
    for size in (2, 4):
        for start in range(size):
            words = [raw[at : at + size] for at in range(start, len(raw) - size + 1, size)]
            if len(words) * size >= SHORT and len(words) > 1:
                numbers = [int.from_bytes(word, "little") for word in words]
                yield b"".join(word[::-1].hex().encode() for word in words)
                yield "".join(map(str, numbers)).encode()
                if size == 2:
                    yield "".join(f"{number:06o}" for number in numbers).encode()
                    yield "".join(f"{number:05d}" for number in numbers).encode()
                else:
                    yield "".join(f"{number:011o}" for number in numbers).encode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


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
_QUOTE = late_pattern(b'"')


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


_SPACE = late_pattern(rb"([ \t\r\n\f\v]+)")
_SEPARATOR = late_pattern(rb"([ \t\r\n\f\v:;,._|<>()\[\]{}\"'-]+)")
_BETWEEN = late_pattern(rb"((?:0x|[ \t\r\n\f\v:;,._|<>()\[\]{}\"'-])+)")


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
        for at in quotes[bisect_left(quotes, done) : bisect_right(quotes, start)]:
            here += [raw[done:at], BARRIER]
            there += [raw[done:at], raw[at : at + 1]]
            done = at + 1
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


_OFFSET = late_pattern(rb"\n[ \t]{0,8}[0-9A-Fa-f]{4,16}(:?)[ \t]+")  # at the beginning of a line
# Behind a quote or other text, such as `body: `. Most offsets begin with zeros, and for these the search is fast.
_OFFSET_IN_TEXT = late_pattern(rb"000(?<=[^0-9A-Za-z\n]000)[0-9A-Fa-f]{1,13}(:?)[ \t]+")
# What follows an offset in a dump, and rarely another number: two groups of digits, a long one, or columns.
_DATA = late_pattern(
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
_BACKSLASHED = late_pattern(rb"(" + _BACKSLASHES + rb")")
_ESCAPE = late_pattern(
    rb"(%[0-9A-Fa-f]{2}|%u[0-9A-Fa-f]{4}|"
    + _BACKSLASHES
    + rb"|&(?:#(?=[0-9])0{0,16}+(?:[1-9][0-9]{0,6})?;?|#[xX](?=[0-9A-Fa-f])0{0,16}+(?:[1-9A-Fa-f][0-9A-Fa-f]{0,5})?;?"
    rb"|(?:amp|lt|gt|quot|apos);))"
)
_QUOTED = late_pattern(rb"(=[0-9A-Fa-f]{2}|=[ \t]{0,4}\r?\n)")
# An incomplete escape at the end of a piece of text.
UNFINISHED = late_pattern(
    rb"(?:%|%u[0-9A-Fa-f]{0,3}|%[0-9A-Fa-f]"
    rb"|(?:\\u[Dd][89ABab][0-9A-Fa-f]{2})?(?:\\(?:u[0-9A-Fa-f]{0,3}|u\{[0-9A-Fa-f]{0,6}|U[0-9A-Fa-f]{0,7}|x[0-9A-Fa-f]?"
    rb"|[0-7]{1,2})?)?"
    rb"|&(?:#[xX]?[0-9A-Fa-f]{0,22}|[a-z]{0,4}))\Z"
)
_SIMPLE = {b"a": b"\a", b"b": b"\b", b"e": b"\x1b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_ENTITIES = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}


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
        return _ENTITIES[escape]
    number = int(b"0" + escape[1:], 16) if escape[1:2] in b"xX" else int(escape[1:])
    return chr(min(number, 0x10FFFF)).encode("utf-8", "surrogatepass")  # also characters that browsers do not show


def _unquoted(escape: bytes) -> bytes:
    return b"" if escape[-1:] == b"\n" else bytes.fromhex(escape[1:].decode())


_MEANINGS, _QUOTED_MEANINGS = _Meanings(_meaning), _Meanings(_unquoted)
