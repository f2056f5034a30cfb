"""What a key-value store takes: keys and values as every backend keeps them, and their limits."""

import json
from typing import Any

from licet.core.seconds import whole_seconds
from licet.declare.json_data import is_heavy
from licet.guard.kv_limits import LARGEST_VALUE, MOST_KEYS, MOST_UNITS, TOO_HEAVY, too_long, too_many
from licet.guard.ports import TooLarge

LARGEST_KEY = 512  # bytes
LARGEST_SCOPE = 64 << 20  # bytes of keys, values and what keeping each of them takes
PER_ENTRY = 64  # bytes: without them there would be no end to keys without a value


def key_bytes(key: str) -> bytes:
    """A key as it is kept: bytes, so that order and prefixes are exact."""
    if not issubclass(type(key), str):
        raise TypeError(f"expected text as a key, found {type(key).__name__}")
    raw = _encoded(key)
    if not 1 <= len(raw) <= LARGEST_KEY:
        raise ValueError(f"expected a key of 1 to {LARGEST_KEY} bytes, found one of {len(raw)}")
    return raw


def prefix_bytes(prefix: str) -> bytes:
    """A prefix as keys are kept; the empty one begins every key."""
    return key_bytes(prefix) if prefix != "" else b""


def value_json(value: Any) -> str:
    """A value as it is kept: JSON, and what JSON cannot carry is an error."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("expected a value that JSON can carry: this one is nested too deeply") from None
    except (TypeError, ValueError) as wrong:
        raise type(wrong)(f"expected a value that JSON can carry: {wrong}") from None
    if len(text) > LARGEST_VALUE:
        raise TooLarge(too_long(len(text)))
    if is_heavy(text.encode(), MOST_UNITS):
        raise TooLarge(TOO_HEAVY)
    return text


def check_listed(keys: int) -> None:
    """Refuse to list more keys than can be handled at once."""
    if keys > MOST_KEYS:
        raise TooLarge(too_many())


def size_of(key: bytes, value: str) -> int:
    """How much of its scope an entry takes; JSON is kept in ASCII, where a letter is a byte."""
    return PER_ENTRY + len(key) + len(value)


def check_room(before: int, after: int, most: int) -> None:
    """Refuse what makes a scope larger than it may be; one that is already may still become smaller."""
    if after > most and after > before:
        raise TooLarge(f"this store takes {most} bytes, and would hold {after}: delete what is no longer needed")


def expiry(now: float, ttl_seconds: int | None) -> float | None:
    """When an entry is forgotten; None for never."""
    if ttl_seconds is None:
        return None
    return now + whole_seconds(ttl_seconds, "ttl_seconds")


def _encoded(key: str) -> bytes:
    try:
        return str.encode(key)
    except UnicodeEncodeError:
        raise ValueError("expected a key without lone surrogates") from None
