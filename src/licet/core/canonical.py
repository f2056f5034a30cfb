"""Canonical JSON (RFC 8785) and the content address of a value."""

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
