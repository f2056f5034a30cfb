"""Canonical JSON (RFC 8785) and the content address of a value."""

import hashlib
from decimal import Decimal
from typing import Any


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value; decimals become normalised strings, sets sorted lists."""
    import rfc8785

    return rfc8785.dumps(plain(value))


def digest(value: Any) -> str:
    """The content address of a value: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(canonical_json(value)).hexdigest()


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
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"
