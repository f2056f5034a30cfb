"""The spellings of a secret that redaction looks for, grouped by how a text is prepared before the search.

Which forms are caught and which are not is listed in `docs/redaction.md`; a test holds that table to this module.
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

SHORT = 4  # characters: shorter values are looked for only as they are, because their encodings turn up by chance
_LEAST = 8  # characters of a spelling that could be part of ordinary words or numbers
_ANY = "surrogateescape"
_OCTAL = [f"{byte:03o}".encode() for byte in range(256)]
WHITE = b" \t\r\n\f\v"

Spellings = dict[bytes, bytes]  # what to look for -> what to write instead


class Forms:
    """What to look for, by the preparation of the text."""

    __slots__ = ("_dumped", "_values", "exact", "hexed", "lower", "packed", "squeezed", "wide")

    def __init__(self) -> None:
        self.exact: Spellings = {}  # in the text as it is: short values
        self.lower: Spellings = {}  # in lower case: values as they are, in any case, and in the usual quoting
        self.wide: Spellings = {}  # in lower case, and only where the text has NUL: UTF-16 and UTF-32
        self.packed: Spellings = {}  # without white space, `-_` read as `+/`: base64
        self.squeezed: Spellings = {}  # in lower case, without white space: base32, lists of decimal and octal numbers
        self.hexed: Spellings = {}  # in lower case, without white space and separators: hex
        self._values: Spellings = {}
        self._dumped: Spellings = {}

    @property
    def dumped(self) -> Spellings:
        """As `hexed`, after offsets and gutters of a dump were removed: hex, words, characters. Few texts need it."""
        if not self._dumped:
            found: Spellings = {}
            for raw, label in self._values.items():
                _put(found, _dumped(raw), label)
            self._dumped = found
        return self._dumped

    def add(self, name: str, value: str) -> None:
        """Add the spellings of one value; one that is there already keeps its name, unless this is the value itself."""
        for raw, text in _spellings(value).items():
            label = _label(name, raw)
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
    """What is written instead; a value that is its own name must not come back in it."""
    for label in (f"[redacted {name}]", "[redacted]"):
        if raw.lower() not in (said := _bytes(label)).lower():
            return said
    return "[…]".encode()


def _spellings(value: str) -> dict[bytes, str]:
    """A value without the white space around it, as its lines may end, in upper and lower case, and its bytes."""
    found: dict[bytes, str] = {}
    trimmed = value.strip()  # as headers are, and files that are read line by line
    flat = trimmed.replace("\r\n", "\n")
    lines = dict.fromkeys((trimmed, flat, flat.replace("\n", "\r\n")))
    # Bytes ignore the case of ASCII by themselves; other letters need their own spelling.
    cased = [] if trimmed.isascii() else [trimmed.upper(), trimmed.lower()]
    for text in filter(None, (*lines, *cased)):
        found.setdefault(_bytes(text), text)
        with suppress(UnicodeEncodeError):  # variables of the system may hold bytes that are not UTF-8
            found.setdefault(text.encode("utf-8", _ANY), text)
        if not text.isascii() and len(text) >= SHORT:
            # `\xfc` in a text may be a character or a byte; it is read as a byte.
            found.setdefault(b"".join(_byte_or_utf8(sign) for sign in text), text)
    return found


def _byte_or_utf8(sign: str) -> bytes:
    return sign.encode("latin-1") if sign < "\u0100" else _bytes(sign)


def _quoted(raw: bytes) -> Iterator[bytes]:
    """The value in its usual escapes. Most are read anyway, but the text before them can spoil that."""
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
    """The value in wide characters, with a label that is just as wide: the text around it stays readable."""
    for codec in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        with suppress(UnicodeEncodeError):
            form, said = text.encode(codec), label.decode().encode(codec)
            if text.isascii():  # then the zeros around it are the same whichever end comes first
                form, said = form.strip(b"\0"), said.strip(b"\0")
            yield form.lower(), said


def _base64_forms(raw: bytes, text: str) -> Iterator[bytes]:
    """The value in base64 as it shows in the encoding of anything that contains it: whole, and at each alignment."""
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
    """The characters that hold bits of the value alone, and none of its neighbours."""
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
    yield raw.hex().encode()
    yield raw.lower().translate(None, WHITE)
    for size in (2, 4):
        for start in range(size):
            words = [raw[at : at + size] for at in range(start, len(raw) - size + 1, size)]
            if len(words) * size >= SHORT and len(words) > 1:
                yield b"".join(word[::-1].hex().encode() for word in words)
                if size == 2:
                    yield "".join(f"{int.from_bytes(word, 'little'):06o}" for word in words).encode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
