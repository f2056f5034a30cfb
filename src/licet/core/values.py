"""Canonical JSON (RFC 8785), the digest of a value, and the text of a public key.

Everything that is hashed or signed is written by `canonical_json`:

- Data that msgspec writes exactly as RFC 8785 demands (no floats, ASCII keys, integers below 2**53) is written by
  msgspec, which is about thirty times faster. A property test compares the two writers.
- Everything else is written by `rfc8785`, or refused by it: integers from 2**53 on, NaN, lone surrogates, bytes.

>>> canonical_json({"b": [1, True], "a": None})
b'{"a":null,"b":[1,true]}'

A place in a policy file (`Origin`) and an error or warning about it (`Problem`). Reads no file.

Values with fields that equality leaves out, such as the place in a file where a rule is written.

The known word that a misspelled one is nearest to.
"""

import base64
import json
from collections.abc import Iterable
from decimal import Decimal
from hashlib import sha256
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

__all__ = ["CHECK_AND_RUN", "COMMAND_LINE", "DATA", "Origin", "Problem"]

_ENCODER = msgspec.json.Encoder(order="sorted")
_SAFE = 2**53  # JSON numbers from here on are not exact everywhere, and RFC 8785 does not write such integers
_WITH_EXPONENT = 1e21  # RFC 8785 writes floats below this without an exponent


def canonical_json(value: Any) -> bytes:
    """Encode a value as RFC 8785 JSON; `ValueError` if that is not possible.

    Decimals become text without trailing zeros, sets become sorted lists. A `msgspec.Struct` is encoded by its fields,
    which must hold no floats.
    """
    return _ENCODER.encode(value) if isinstance(value, msgspec.Struct) or _is_simple(value) else _rfc8785(value)


def _rfc8785(value: Any) -> bytes:
    import rfc8785

    return rfc8785.dumps(plain(value))


def digest(value: Any) -> str:
    """The digest of a value: `sha256:` and 64 hexadecimal digits over its canonical JSON."""
    return f"sha256:{sha256(canonical_json(value)).hexdigest()}"


def data_json(value: Any) -> bytes:
    """Encode JSON data from outside, with numbers of any size, so that different data has different bytes.

    RFC 8785 does not write integers from 2**53 on, and writes a larger float with the digits of an integer that it may
    not equal. Data with such a number is written by Python's `json` with sorted keys.
    """
    if _is_simple(value):
        return _ENCODER.encode(value)
    if _has_large_number(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return _rfc8785(value)


def data_digest(value: Any) -> str:
    """The digest of JSON data from outside: the same as `digest`, but defined for numbers of any size."""
    return f"sha256:{sha256(data_json(value)).hexdigest()}"


def is_same_number(one: float, two: float) -> bool:
    """Whether two numbers of JSON data are written alike: `1.0` is `1`, as what was written and read again is."""
    return bool(one == two) and data_json(one) == data_json(two)


def _is_simple(value: Any) -> bool:
    """Whether msgspec encodes a value exactly as RFC 8785 demands."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-_SAFE < value < _SAFE)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not key.isascii() or not _is_simple(item):
                return False
        return True
    return (kind is list or kind is tuple) and all(map(_is_simple, value))


def _has_large_number(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return bool(abs(value) >= _SAFE)
    if kind is float:
        return bool(_SAFE <= abs(value) < _WITH_EXPONENT)
    if kind is dict:
        return any(map(_has_large_number, value.values()))
    return (kind is list or kind is tuple) and any(map(_has_large_number, value))


def plain(value: Any) -> Any:
    """Convert a value to JSON data."""
    if isinstance(value, Decimal):
        return money_text(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def money_text(amount: Decimal) -> str:
    """An amount of money without exponent and trailing zeros: `5`, `0.25`."""
    if not amount:
        return "0"
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def milliseconds(duration_ms: float) -> str:
    """A duration as JSON and receipts write it, with three decimals: `12.345`. No hashed entry may have a float."""
    return f"{duration_ms:.3f}"


def nearest(word: str, words: Iterable[str]) -> str:
    """The most similar of these words; empty if none is similar."""
    import difflib  # only needed for a misspelled word

    return "".join(difflib.get_close_matches(word, list(words), 1))


def near_hint(word: str, words: Iterable[str]) -> str:
    """A hint with the most similar of these words; empty if none is similar."""
    return f"did you mean `{near}`?" if (near := nearest(word, words)) else ""


KEY = "ed25519:"

_PRIME = 2**255 - 19
_EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7  # y of two points of order 8
_SMALL = frozenset({0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH})  # y of all eight points whose order divides 8


def key_text(key: bytes) -> str:
    """A public key as text: `ed25519:` and URL-safe base64."""
    return KEY + base64.urlsafe_b64encode(key).decode().rstrip("=")


def key_bytes(text: str) -> bytes | None:
    """Read a public key in either alphabet of base64; None if it is malformed or of small order."""
    key = _decoded(text)
    return None if key is None or _of_small_order(key) else key


def checked_key(text: str) -> str:
    """Return the text of a public key; `ValueError` if it is of small order, since signatures for it can be forged."""
    key = _decoded(text)
    if key is not None and _of_small_order(key):
        raise ValueError("anybody can sign for this one: make a key with `licet approvals key FILE`")
    return text


def _of_small_order(key: bytes) -> bool:
    """Whether a key is a point of small order, in any encoding.

    Such a key needs no private half: under the neutral element one constant signature verifies for every message, and
    under the other points for one message in eight. RFC 8032 does not ask verifiers to refuse these keys, and verifiers
    reduce a `y` above the prime.
    """
    y = int.from_bytes(key, "little") & (2**255 - 1)  # the last bit is the sign of x
    return y % _PRIME in _SMALL


def _decoded(text: str) -> bytes | None:
    if not text.startswith(KEY):
        return None
    body = text.removeprefix(KEY).rstrip("=").replace("+", "-").replace("/", "_")
    try:
        key = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return key if len(key) == 32 else None


CHECK_AND_RUN = "check_and_run"  # the name of the agent in `check_and_run`, which has no manifest
COMMAND_LINE = "the command line"  # replaces the file name of a manifest that `licet run` made from its flags
DATA = "the data"  # replaces the file name of a manifest that was given as Python data


class Origin(Struct, frozen=True, order=True):
    """A place in a file. Lines and columns count from 1; line 0 means that no line is known.

    If the policy was given as data, `pointer` is the JSON pointer (RFC 6901) of the place, empty for the root.
    """

    file: str
    line: int
    column: int
    pointer: str = ""

    def __str__(self) -> str:
        if self.pointer:
            return self.pointer if self.file == DATA else f"{self.file} {self.pointer}"
        return f"{self.file}:{self.line}" if self._has_line else self.file

    @property
    def full(self) -> str:
        """The place as `file:line:column`, which editors and terminals make clickable; without a line, as `str`."""
        return f"{self.file}:{self.line}:{self.column}" if self._has_line else str(self)

    @property
    def _has_line(self) -> bool:
        return bool(self.line) and self.file != COMMAND_LINE  # nobody sees the lines that flags become


class Problem(Struct, frozen=True):
    """An error, warning or note about a file: what was found, what was expected and, as `hint`, how to fix it."""

    origin: Origin
    found: str
    expected: str
    hint: str = ""
    severity: Literal["error", "warning", "note"] = "error"

    def __str__(self) -> str:
        tail = f"; {self.hint}" if self.hint else ""
        return f"{self.origin.full}: {self.severity}: found {self.found}, expected {self.expected}{tail}"


class Compared(Struct, frozen=True, eq=False):
    """A frozen value that is compared, hashed and shown by all fields except those in `_not_compared`."""

    _not_compared: ClassVar[frozenset[str]] = frozenset()

    @property
    def _key(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self._compared())

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key == other._key

    def __ne__(self, other: object) -> bool:
        return not self == other  # Struct has a `!=` of its own, which compares identities here

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._compared())
        return f"{type(self).__name__}({shown})"

    def _compared(self) -> tuple[str, ...]:
        return tuple(name for name in self.__struct_fields__ if name not in self._not_compared)
