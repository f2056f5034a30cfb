"""HTTP messages: checks outgoing headers and bodies, decodes incoming bodies, and has the `Response` of a request.

An error message never contains the value of a header or a body, because it may be a secret. A body is decompressed
piece by piece, so that one that would be too large is stopped early.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from encodings import normalize_encoding
from encodings.aliases import aliases
from typing import Any

from msgspec import Struct

from licet.core.algebra.domains import TOKEN
from licet.guard.execution import JsonText
from licet.guard.limits import COMPRESSED_STEP, MOST_HEADER_BYTES, UNPACKED_STEP
from licet.guard.meter import Meter

Pairs = tuple[tuple[str, str], ...]

# Headers of one connection, and those with the host or the length: licet writes them itself.
HOP_BY_HOP = frozenset(
    {"connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
# Many servers replace the method of a request by this header, and that method was not checked.
METHOD_OVERRIDES = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
# A body of these has no meaning (RFC 9110). A server that does not read it takes it for the next request on the
# connection: one that was never checked, or that somebody else's request completes.
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_DEFAULTS = (("accept", "*/*"), ("accept-encoding", "gzip, deflate"), ("user-agent", "licet"))


class BadRequest(ValueError):
    """A request is malformed; the text says how."""


class Outgoing(Struct, frozen=True):
    """The headers and the body that a caller gave."""

    headers: Pairs = ()
    body: bytes = b""
    is_json: bool = False

    @property
    def lines(self) -> Pairs:
        """The headers as they are sent, with the defaults that the caller left out."""
        if not self.headers:
            return _DEFAULTS
        given = {name.lower() for name, _ in self.headers}
        return (*self.headers, *(pair for pair in _DEFAULTS if pair[0] not in given))

    def without_body(self) -> "Outgoing":
        """The same without its body and `content-*` headers."""
        return Outgoing(tuple(pair for pair in self.headers if not pair[0].lower().startswith("content-")))


def outgoing(headers: object, json_value: object, body: object, meter: Meter | None = None) -> Outgoing:
    """Check the parts of a request; `BadRequest` if one is malformed, `Exceeded` if there are too many headers."""
    if headers is None and json_value is None and body is None:
        return _NOTHING
    pairs = _pairs(headers, meter or Meter())
    if json_value is None:
        return Outgoing(pairs, _bytes(body))
    if body is not None:
        raise BadRequest("found both `json` and `body`, expected one of them")
    # JSON text from a worker is sent unparsed: a body may be anything.
    data = bytes(json_value) if type(json_value) is JsonText else _dumped(json_value)
    if not any(name.lower() == "content-type" for name, _ in pairs):
        pairs = (*pairs, ("content-type", "application/json"))
    return Outgoing(pairs, data, True)


def _dumped(json_value: object) -> bytes:
    try:
        return json.dumps(json_value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as wrong:
        raise BadRequest("found a value under `json` that JSON cannot carry") from wrong


_NOTHING = Outgoing()


def check_may_have_body(method: str) -> None:
    """Raise `BadRequest` for a method whose requests have no body."""
    if (word := method.upper()) in _WITHOUT_BODY:
        raise BadRequest(f"{word} has no body: some servers take one for the next request")


def check_header_name(name: str) -> None:
    """Raise `BadRequest` for a header that names another method, or that looks like one that licet writes itself.

    Some servers treat `_` as `-`.
    """
    dashed = name.lower().replace("_", "-")
    if dashed in METHOD_OVERRIDES:
        raise BadRequest(f"the header `{name}` names another method than the one that is checked: send that one")
    if "_" in name and is_connections_own(dashed):
        raise BadRequest(f"the header `{name}` is `{dashed}` to some servers, which is not a caller's to set")


def is_connections_own(name: str) -> bool:
    """Whether a header is about one connection, the host or the length; the name in lower case."""
    return name in HOP_BY_HOP or name.startswith("proxy-")


def checked_value(name: str, value: str) -> str:
    """The value of a header without the spaces around it, or `BadRequest` if it is more than one line of ASCII."""
    bare = value.strip(" \t")
    if not HEADER_VALUE.fullmatch(bare):
        raise BadRequest(f"the header `{name}` has a value that is not one line of visible ASCII")
    return bare


def _pairs(headers: Any, meter: Meter) -> Pairs:
    if headers is None:
        return ()
    given: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    pairs = []
    try:
        for name, value in given:
            pairs.append((_text(name), _text(value)))
            meter.check_headers(len(pairs))
    except (TypeError, ValueError) as wrong:
        raise BadRequest("expected `headers` to be texts by name, or pairs of texts") from wrong
    if sum(len(name) + len(value) for name, value in pairs) > MOST_HEADER_BYTES:
        raise BadRequest(f"found more than {MOST_HEADER_BYTES} bytes of headers")
    return tuple((_checked_name(name), checked_value(name, value)) for name, value in pairs)


def _checked_name(name: str) -> str:
    if not TOKEN.fullmatch(name):
        raise BadRequest("a header has a name with characters that no name has")
    if is_connections_own(name.lower()):
        raise BadRequest(f"the header `{name}` is not a caller's to set")
    check_header_name(name)
    return name


def _text(text: object) -> str:
    # Not `str(text)`: a subclass may return another text each time.
    if not issubclass(type(text), str):
        raise TypeError
    return str.__str__(text)


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    if issubclass(type(body), str):
        try:
            return str.encode(body, "utf-8")
        except UnicodeEncodeError as wrong:
            raise BadRequest("found a body that is not Unicode text") from wrong
    if issubclass(type(body), bytes | bytearray | memoryview):
        return bytes(memoryview(body))
    raise BadRequest("expected `body` to be bytes or text")


_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)

# The encodings of the web, as Python names them. Python has more codecs, some of which are very slow with hostile
# bytes.
_CHARSETS = frozenset(
    {
        *("ascii", "utf_8", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "latin_1", "koi8_r", "koi8_u", "cp866"),
        *(f"iso8859_{part}" for part in (*range(2, 11), *range(13, 17))),
        *(f"cp{page}" for page in range(1250, 1259)),
        *("shift_jis", "cp932", "euc_jp", "iso2022_jp", "euc_kr", "cp949", "gb2312", "gbk", "gb18030", "big5"),
    }
)


class Headers(Mapping[str, str]):
    """Headers in their original order. Names are case-insensitive, and the values of a repeated name are joined."""

    __slots__ = ("_values", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)
        self._values: dict[str, list[str]] = {}
        for name, value in self.pairs:
            self._values.setdefault(name.lower(), []).append(value)

    def all(self, name: str) -> tuple[str, ...]:
        """All values of a name. Some headers, such as `Set-Cookie`, cannot be joined."""
        return tuple(self._values.get(name.lower(), ()))

    def __getitem__(self, name: str) -> str:
        found = self.all(name)
        if not found:
            raise KeyError(name)
        return ", ".join(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return self.pairs == other.pairs if isinstance(other, Headers) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({list(self.pairs)!r})"


class BadStatus(Exception):
    """A response has an error status, 400 or more."""

    def __init__(self, status: int, url: str) -> None:
        self.status, self.url = status, url
        super().__init__(f"{url} answered {status}")

    def __reduce__(self) -> tuple[type["BadStatus"], tuple[int, str]]:
        return BadStatus, (self.status, self.url)


class Response(Struct, frozen=True):
    """A complete answer. `url` is the one after redirects."""

    status: int
    url: str
    headers: Headers
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 200 to 299."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The content as text, in the encoding of its headers or UTF-8. Invalid bytes are replaced."""
        named = _CHARSET.search(self.headers.get("content-type", ""))
        plain = normalize_encoding(named[1]).lower() if named else "utf_8"
        codec = aliases.get(plain, plain)
        return self.content.decode(codec if codec in _CHARSETS else "utf-8", "replace")

    def json(self) -> Any:
        """The content as JSON, or `ValueError`."""
        return json.loads(self.content)

    def raise_for_status(self) -> "Response":
        """The response itself; raises `BadStatus` if the status is 400 or more."""
        if self.status >= 400:
            raise BadStatus(self.status, self.url)
        return self


_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_UNCODED = frozenset({"", "identity"})
#: The codings of a body that `Decoder` knows, each with the method behind it.
CODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


def codings_of(headers: Pairs) -> tuple[str, ...]:
    """The codings that headers state for a body, in order, without those that leave it as it is."""
    stated = (value.split(",") for name, value in headers if name.lower() == "content-encoding")
    return tuple(word for words in stated for one in words if (word := one.strip().lower()) not in _UNCODED)


class BodyTooLarge(Exception):
    """A body is larger than its limit."""


class Corrupt(Exception):
    """A body does not have the encoding that its headers state."""


class Decoder:
    """Decompresses one body piece by piece. A body with an unknown coding is passed through."""

    __slots__ = ("_coding", "_decoded", "_ended", "_head", "_most", "_raw", "_unpack")

    def __init__(self, coding: str, most: int) -> None:
        self._coding = CODINGS.get(coding.strip().lower(), "")
        self._most = most
        self._raw = self._decoded = 0
        self._head = b""  # the first byte, until the second arrives
        self._ended = False  # one compressed stream is complete
        self._unpack: Any = None  # the decompressor of the current stream

    def feed(self, raw: bytes) -> Iterator[bytes]:
        """Decompress the next bytes; `BodyTooLarge` or `Corrupt` if that fails.

        A piece may be empty: after each step the caller can let other tasks run.
        """
        # Compressed bytes count too: gzip members that decompress to nothing could continue for ever.
        self._raw += len(raw)
        if self._raw > self._most:
            raise BodyTooLarge
        if not self._coding:
            yield raw
            return
        for start in range(0, len(raw), COMPRESSED_STEP):
            yield from self._decode(raw[start : start + COMPRESSED_STEP])

    def finish(self) -> None:
        """Check at the end of the body that it is complete; otherwise `Corrupt`."""
        if self._head or self._unpack is not None:
            raise Corrupt(f"the body ends in the middle of its {self._coding} data")

    def _decode(self, raw: bytes) -> Iterator[bytes]:
        while raw:
            if self._unpack is None:
                raw = self._begin(raw)
                continue
            try:
                piece = self._unpack.decompress(raw, min(UNPACKED_STEP, self._most - self._decoded + 1))
            except zlib.error as wrong:
                raise Corrupt(f"the body is not {self._coding} data") from wrong
            self._decoded += len(piece)
            if self._decoded > self._most:
                raise BodyTooLarge
            raw = self._unpack.unconsumed_tail
            if self._unpack.eof:
                raw, self._unpack, self._ended = self._unpack.unused_data, None, True
            yield piece  # also an empty one: members that decompress to nothing take time too

    def _begin(self, raw: bytes) -> bytes:
        """Start the next compressed stream, and return the bytes that belong to it."""
        if self._ended:
            # Another gzip member, or padding, which is ignored.
            if self._coding != "gzip" or raw[:1] != b"\x1f":
                return b""
            self._unpack = zlib.decompressobj(_GZIP)
            return raw
        raw, self._head = self._head + raw, b""
        if len(raw) < 2:
            self._head = raw
            return b""
        form = _GZIP
        if self._coding == "deflate":  # zlib by the standard, but some servers send raw deflate
            form = _ZLIB if raw[0] & 0x0F == 8 and int.from_bytes(raw[:2]) % 31 == 0 else _RAW
        self._unpack = zlib.decompressobj(form)
        return raw
