"""Canonical JSON (RFC 8785) and the content address of a value.

What a person is asked, in the one spelling that is stored, shown and signed; and whose yes counts.

Pure: the time and the check of a signature are passed in. An answer can only repeat the request, or say less.
"""

import base64
import hashlib
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from json import encoder
from typing import Any

# Python's own, as `random` has it: for a short text, what OpenSSL does before and after costs more than the hash. Where
# it is kept differs by version, and `hashlib` knows; to try one name after the other would take what others call so.
try:
    _short_sha256: Callable[[bytes], Any] = hashlib.__get_builtin_constructor("sha256")  # type: ignore[attr-defined]
except (AttributeError, ValueError):  # a Python that has OpenSSL alone
    _short_sha256 = sha256

_SHORT = 64  # bytes: beyond that OpenSSL makes up for it, from 3.12 on; in 3.11 from some 190 on
_WITH_EXPONENT = 1e21  # from here on floats are written with one, and like no integer
quoted: Callable[[str], str] = encoder.encode_basestring  # a text as RFC 8785 writes it, and without a detour


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value; decimals become normalised strings, sets sorted lists."""
    import rfc8785

    return rfc8785.dumps(plain(value))


def digest(value: Any) -> str:
    """The content address of a value: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + sha256(canonical_json(value)).hexdigest()


def data_digest(value: Any) -> str:
    """The content address of plain data, as it came from JSON: that of `digest`, but for numbers beyond 2**53."""
    return text_digest((quoted(value) if type(value) is str else data_text(value)).encode())


def text_digest(text: bytes) -> str:
    """The content address of a text that is canonical JSON already."""
    return f"sha256:{(_short_sha256 if len(text) <= _SHORT else sha256)(text).hexdigest()}"


def data_text(value: Any) -> str:
    """The one spelling of plain data: that of RFC 8785, which leaves numbers beyond 2**53 to others."""
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is dict:
        # RFC 8785 sorts as JavaScript does, by UTF-16; of ASCII that is the order of Python.
        names = sorted(value) if "".join(value).isascii() else sorted(value, key=_utf16)
        return "{" + ",".join([f"{quoted(name)}:{data_text(value[name])}" for name in names]) + "}"
    if kind is list:
        return "[" + ",".join([data_text(item) for item in value]) + "]"
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return int.__repr__(value)
    if kind is float and value.is_integer() and abs(value) < _WITH_EXPONENT:
        # Beyond 2**53 the shortest digits that mean a float, which RFC 8785 has, can be those of another integer.
        return int.__repr__(int(value))
    if kind is float and 1e-4 <= abs(value) < 1e16:  # where Python writes no exponent, it writes what RFC 8785 does
        return float.__repr__(value)
    return canonical_json(value).decode()


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def plain(value: Any) -> Any:
    """A value as bare JSON data."""
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


KEY = "ed25519:"

_PRIME = 2**255 - 19
_EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7  # y of two points of order 8
_SMALL = frozenset({0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH})  # y of all eight points whose order divides 8


def key_text(key: bytes) -> str:
    """The one spelling of a public key."""
    return KEY + base64.urlsafe_b64encode(key).decode().rstrip("=")


def key_bytes(text: str) -> bytes | None:
    """The public key in a text, in either alphabet of base 64; None if it is none, or one that anybody signs for."""
    key = _decoded(text)
    return None if key is None or _of_small_order(key) else key


def checked_key(text: str) -> str:
    """The text of a public key; `ValueError` if anybody could sign for it."""
    key = _decoded(text)
    if key is not None and _of_small_order(key):
        raise ValueError("anybody can sign for this one: make a key with `licet approvals key FILE`")
    return text


def _of_small_order(key: bytes) -> bool:
    """Whether a key is a point of small order, in whatever spelling.

    Nobody holds the private half of such a key, and nobody needs it: under the neutral element one constant verifies
    as the signature of every message, and under the others one message in eight, which is soon found. Verifying does
    not rule them out (RFC 8032 does not ask for it), and takes y above the prime for what is left of it.
    """
    y = int.from_bytes(key, "little") & (2**255 - 1)  # the last bit says which of two x is meant
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
