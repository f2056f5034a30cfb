"""Redaction: whatever leaves a call, without the secrets that the call has seen, in the forms they usually take.

Each value is looked for as it is, trimmed and with other ends of lines, in base64 at every alignment, and in hex, these
two also broken into lines; in the text itself, and in what the text says once percent, backslash and HTML escapes are
read, twice over. Limits: code that means to smuggle a value out can always find another form (reversed, split,
encrypted); only walls and grants stop that.
"""

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, quote_plus

SHORT = 4  # values shorter than this are looked for only as they are: their encodings turn up by chance
_DEPTH = 2  # JSON in JSON, or an escaped URL in HTML
_STRETCH = 250  # bytes for one of a value: hex makes two of it, each escape ten of one, and lines have breaks
_UNTOUCHED = (bool, type(None))

Span = tuple[int, int, bytes]  # where a secret stands, and what to say instead


class Redactor:
    """The secrets that one call has seen, and the way to say things without them."""

    __slots__ = ("_encoded", "_forms", "_hex", "_longest", "_names")

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # value -> name
        self._forms: dict[bytes, bytes] = {}  # what to look for -> what to say instead
        self._encoded: dict[bytes, bytes] = {}  # those of them that may be broken into lines
        self._hex: dict[bytes, bytes] = {}  # the same in lower-case hex; hex is found in either case
        self._longest = 0  # of the values, in bytes

    def __bool__(self) -> bool:
        return bool(self._names)

    def add(self, name: str, value: str) -> None:
        """Remember a value that this call has been given or that was placed for it."""
        if not value or value in self._names:
            return
        self._names[value] = name
        for raw, spelled in _spellings(value).items():
            label = _label(name, raw)
            if spelled == value or raw not in self._forms:  # its own name, where it is also another's beginning
                self._forms[raw] = label
            self._longest = max(self._longest, len(raw))
            if len(spelled) < SHORT:
                continue
            for form in _base64_forms(raw):
                self._encoded.setdefault(form, label)
            # Hosts are written in small letters, so a value that was made part of one is too.
            for form in (*_base64_forms(raw), *_escaped_forms(raw), raw.replace(b" ", b"+"), raw.lower()):
                self._forms.setdefault(form, label)
            for between in ("", ":", " "):
                written = raw.hex(between) if between else raw.hex()
                self._hex.setdefault(written.encode(), label)

    def text(self, text: str) -> str:
        """The text, with every secret replaced by its name."""
        if not self._names:
            return text
        raw = _bytes(text)
        clean = self.octets(raw)
        if clean is raw:
            return text
        try:
            return clean.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # a value that is not UTF-8 was part of a character
            return clean.decode("utf-8", "replace")

    def octets(self, raw: bytes) -> bytes:
        """The bytes, with every secret replaced by its name; the same object if there is none."""
        return self._without(raw, len(raw))

    def beginning(self, raw: bytes, most: int) -> bytes:
        """What at most so many bytes at the beginning say, without secrets: those that only begin there go too."""
        # No further than a secret could reach that begins within: the work is bounded, whatever was sent.
        return self._without(raw[: most + _STRETCH * self._longest], most)[:most]

    def _without(self, raw: bytes, until: int) -> bytes:
        spans = sorted(self._spans(raw), key=lambda span: (span[0], -span[1]))  # the longest first
        if not spans:
            return raw
        parts, done = [], 0
        for start, end, label in spans:
            if start >= until:
                break
            if start >= done:
                parts += [raw[done:start], label]
            done = max(done, end)  # what overlaps goes together
        parts.append(raw[done:until])
        return b"".join(parts)

    def data(self, data: Any) -> Any:
        """Plain JSON data with every text in it redacted, keys and numbers too."""
        if not self._names or type(data) in _UNTOUCHED:
            return data
        if isinstance(data, str):
            return self.text(str.__str__(data))
        if isinstance(data, dict):
            return {self.data(key): self.data(value) for key, value in dict.items(data)}
        if isinstance(data, list | tuple):
            return [self.data(value) for value in data]
        if isinstance(data, bytes):
            return self.octets(bytes(data))
        try:
            shown = str(data)  # a number may be the secret, too
        except ValueError:  # too many digits to be shown, and so to be looked at
            return "[redacted]"
        clean = self.text(shown)
        return data if clean == shown else clean

    def _spans(self, raw: bytes) -> Iterator[Span]:
        for view in _views(raw):
            yield from view.occurrences(self._forms)
            if self._hex:
                yield from view.lower().occurrences(self._hex)
                yield from self._broken(view)

    def _broken(self, view: "_View") -> Iterator[Span]:
        """What was encoded and then broken into lines."""
        if b"\n" not in view.raw:
            return
        flat = _LINE_BREAK.sub(b"", view.raw)
        small = flat.lower()
        if not any(form in flat for form in self._encoded) and not any(form in small for form in self._hex):
            return  # as in almost every text; what follows takes much longer
        joined = _View(view.raw, [], []).read(_LINE_BREAK, lambda _: b"")
        if joined is None:
            return
        for start, end, label in (*joined.places(self._encoded), *joined.lower().places(self._hex)):
            first, last = joined.source(start), joined.source(end - 1)
            if last - first >= end - start:  # else it stands on one line, and has been found
                yield view.source(first), view.source(last + 1), label


class _View:
    """What a text says, and where in the text it says it."""

    __slots__ = ("_marks", "_sources", "raw")

    def __init__(self, raw: bytes, marks: list[int], sources: list[int]) -> None:
        self.raw = raw
        # Bytes from marks[i] on come from sources[i] on, one for one, up to the next mark.
        self._marks, self._sources = marks, sources

    def occurrences(self, forms: Mapping[bytes, bytes]) -> Iterator[Span]:
        """Each place where a form stands, in the source."""
        for start, end, label in self.places(forms):
            # The end is where the next byte begins: an escape that belongs to the secret goes with it.
            yield self.source(start), self.source(end), label

    def places(self, forms: Mapping[bytes, bytes]) -> Iterator[Span]:
        """Each place where a form stands, here."""
        for form, label in forms.items():
            start = self.raw.find(form)
            while start >= 0:
                end = start + len(form)
                yield start, end, label
                start = self.raw.find(form, end)

    def source(self, place: int) -> int:
        """Where a place comes from."""
        if not self._marks:
            return place
        at = bisect_right(self._marks, place) - 1
        return self._sources[at] + place - self._marks[at]

    def lower(self) -> "_View":
        """The same in lower case."""
        return _View(self.raw.lower(), self._marks, self._sources)

    def read(self, escape: re.Pattern[bytes], meaning: Callable[[bytes], bytes]) -> "_View | None":
        """What it says once some escapes are read, or None if it holds none."""
        parts: list[bytes] = []
        marks, sources, size, done = [0], [0], 0, 0
        for found in escape.finditer(self.raw):
            between, said = self.raw[done : found.start()], meaning(found[0])
            parts += [between, said]
            size += len(between)
            marks.append(size)  # the escape itself, whose bytes all come from one place
            sources.append(found.start())
            size += len(said)
            marks.append(size)
            sources.append(found.end())
            done = found.end()
        if not parts:
            return None
        parts.append(self.raw[done:])
        if not self._marks:
            return _View(b"".join(parts), marks, sources)
        return _View(b"".join(parts), *self._composed(marks, sources, size + len(parts[-1])))

    def _composed(self, marks: list[int], sources: list[int], size: int) -> tuple[list[int], list[int]]:
        """Marks that lead from what was read twice to the source."""
        both_marks, both_sources, inner = [], [], 0
        for i, mark in enumerate(marks):
            end = marks[i + 1] if i + 1 < len(marks) else size + 1
            both_marks.append(mark)
            both_sources.append(self.source(sources[i]))
            while inner < len(self._marks) and self._marks[inner] <= sources[i]:
                inner += 1
            step = inner
            while step < len(self._marks) and (place := mark + self._marks[step] - sources[i]) < end:
                both_marks.append(place)
                both_sources.append(self._sources[step])
                step += 1
        return both_marks, both_sources


def _views(raw: bytes) -> Iterator[_View]:
    level = [_View(raw, [], [])]
    yield level[0]
    for _ in range(_DEPTH):
        level = [
            seen
            for view in level
            for marker, escape, meaning in _ESCAPES
            if marker in view.raw and (seen := view.read(escape, meaning))
        ]
        yield from level


def _percent(escape: bytes) -> bytes:
    return bytes.fromhex(escape[1:].decode())


_SIMPLE = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def _backslash(escape: bytes) -> bytes:
    """What an escape of JSON, JavaScript or Python's `repr` stands for."""
    kind = escape[1:2]
    if len(escape) == 12:  # a pair of surrogates
        high, low = int(escape[2:6], 16), int(escape[8:12], 16)
        return _bytes(chr(0x10000 + (high - 0xD800 << 10) + low - 0xDC00))
    if len(escape) > 2:
        digits = escape[2:]
        return _bytes(chr(min(int(digits, 16), 0x10FFFF)))
    return _SIMPLE.get(kind, kind)


def _backslash_byte(escape: bytes) -> bytes:
    return bytes.fromhex(escape[2:].decode()) if len(escape) > 2 else _backslash(escape)


_NAMED = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}


def _html(escape: bytes) -> bytes:
    said = escape[1:-1]
    if said[:1] != b"#":
        return _NAMED[said]
    number = int(said.lower().partition(b"x")[2], 16) if said[1:2] in b"xX" else int(said[1:])
    return _bytes(chr(min(number, 0x10FFFF)))  # also what browsers would not show: it may be the value's own


_ESCAPES: tuple[tuple[bytes, re.Pattern[bytes], Callable[[bytes], bytes]], ...] = (
    (b"%", re.compile(rb"%[0-9A-Fa-f]{2}"), _percent),
    (
        b"\\",
        re.compile(
            rb"\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}"
            rb"|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\x[0-9A-Fa-f]{2}|\\[\"'\\/bfnrt]"
        ),
        _backslash,
    ),
    # The same once more, as it is in the `repr` of bytes.
    (b"\\x", re.compile(rb"\\x[0-9A-Fa-f]{2}|\\[\"'\\nrt]"), _backslash_byte),
    # Zeros mean nothing, but no more of them than `_STRETCH` has room for.
    (b"&", re.compile(rb"&(?:#0{0,60}[0-9]{1,7}|#[xX]0{0,60}[0-9A-Fa-f]{1,6}|amp|lt|gt|quot|apos);"), _html),
)


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """The value in base64 as it shows in the encoding of anything that contains it: whole, and at each alignment."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw)
        # Characters that also hold bits of a neighbour are not the value's own.
        own = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        for form in (encoded, own) if before == 0 else (own,):
            yield form
            yield form.translate(_URL_SAFE)


def _escaped_forms(raw: bytes) -> Iterator[bytes]:
    """The value in its usual escapes: what stands before it may spoil the reading of the first of them."""
    text = raw.decode("utf-8", "surrogateescape")
    for written in (text, base64.b64encode(raw).decode()):
        for form in (quote(written, "", errors=_ANY), quote(written, errors=_ANY), quote_plus(written, errors=_ANY)):
            yield form.encode()
            yield re.sub(rb"%..", lambda found: found[0].lower(), form.encode())
    yield repr(raw)[2:-1].encode()
    for form in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]):
        yield _bytes(form)
        yield _bytes(form.replace("/", "\\/"))
    yield _bytes(text.translate(_HTML))


_ANY = "surrogateescape"
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_LINE_BREAK = re.compile(rb"(?<=[\w+/-])\r?\n[ \t]*(?=[\w+/=-])")  # inside of base64 or hex


def _label(name: str, raw: bytes) -> bytes:
    """What is said instead; a value that is its own name must not come back in it."""
    for label in (f"[redacted {name}]", "[redacted]"):
        if raw not in (said := _bytes(label)):
            return said
    return "[…]".encode()


def _spellings(value: str) -> dict[bytes, str]:
    """A value and its bytes, as it is and as it arrives: without white space around it, with other ends of lines."""
    found: dict[bytes, str] = {}
    trimmed = value.strip()  # as headers are, and files that are read line by line
    flat = trimmed.replace("\r\n", "\n")
    for spelled in filter(None, (value, trimmed, flat, flat.replace("\n", "\r\n"))):
        found.setdefault(_bytes(spelled), spelled)
        with suppress(UnicodeEncodeError):  # variables of the system may hold bytes that are not UTF-8
            found.setdefault(spelled.encode("utf-8", "surrogateescape"), spelled)
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
