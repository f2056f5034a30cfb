"""Canonical JSON (RFC 8785), the digest of a value, and the text of a public key.

Everything that is hashed or signed is written by `canonical_json`:

- Data that msgspec writes exactly as RFC 8785 demands (no floats, ASCII keys, integers below 2**53) is written by
  msgspec, which is about thirty times faster. A property test compares the two writers.
- Everything else is written by `rfc8785`, or refused by it: integers from 2**53 on, NaN, lone surrogates, bytes.

>>> canonical_json({"b": [1, True], "a": None})
b'{"a":null,"b":[1,true]}'
"""

import base64
import json
from decimal import Decimal
from hashlib import sha256
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(order="sorted")
_SAFE = 2**53  # JSON numbers from here on are not exact everywhere, and RFC 8785 does not write such integers
_WITH_EXPONENT = 1e21  # RFC 8785 writes floats below this without an exponent


def canonical_json(value: Any) -> bytes:
    """Encode a value as RFC 8785 JSON; `ValueError` if that is not possible.

    Decimals become text without trailing zeros, sets become sorted lists. A `msgspec.Struct` is encoded by its fields,
    which must hold no floats.
    """
    if isinstance(value, msgspec.Struct) or _is_simple(value):
        return _ENCODER.encode(value)
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
    if not _is_simple(value) and _has_large_number(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return canonical_json(value)


def data_digest(value: Any) -> str:
    """The digest of JSON data from outside: the same as `digest`, but defined for numbers of any size."""
    return f"sha256:{sha256(data_json(value)).hexdigest()}"


def _is_simple(value: Any) -> bool:
    """Whether msgspec encodes a value exactly as RFC 8785 demands."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-_SAFE < value < _SAFE)
    if kind is dict:
        return all(type(key) is str and key.isascii() and _is_simple(item) for key, item in value.items())
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
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def milliseconds(duration_ms: float) -> str:
    """A duration as JSON and receipts write it, with three decimals: `12.345`. No hashed entry may have a float."""
    return f"{duration_ms:.3f}"


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
