"""The encodings of a secret that redaction searches for, grouped by how a text is normalised before the search.

`docs/handles.md` lists which forms are found and which are not; a test checks this list against the code.
"""

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from quopri import encodestring
from urllib.parse import quote, quote_plus

SHORT = 4  # characters; shorter values are searched only as they are, because their encodings occur by chance
_LEAST = 8  # characters; a shorter encoding could be part of an ordinary word or number
_ANY = "surrogateescape"
_ESCAPED = re.compile(rb"%[0-9A-Fa-f]{2}|%u[0-9A-Fa-f]{4}|&(?:#[0-9xX]|(?:amp|lt|gt|quot|apos);)")
_NAMED = {b"\t": b"ht", b"\n": b"nl", b"\v": b"vt", b"\f": b"ff", b"\r": b"cr", b" ": b"sp"}  # by `od -a`
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
    yield b"".join(_NAMED.get(sign, sign) for sign in signs)
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
