"""Data as JSON, and back: what a tool is given, and what it gives back, is only ever data.

pydantic's core is the fastest reader and writer of it. It takes longer to load than all else that it takes to start a
program, and so a few words are written and read without it.
"""

import json
from typing import Any

PLAIN = frozenset((str, int, bool, type(None)))  # what everybody spells alike, but for large numbers
_SMALL = 1 << 63
_core: Any = None  # once it is loaded


def plain_json(value: object) -> bytes:
    """Data as JSON; `ValueError` if JSON cannot carry it."""
    if _core is None and _is_spelled_alike(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    text: bytes = json_core().to_json(value, inf_nan_mode="strings")
    return text


def plain_data(text: bytes) -> Any:
    """The data that a JSON text says, whoever wrote it."""
    return json_core().from_json(text)


def data_again(text: bytes) -> Any:
    """The data that a text of `plain_json` says."""
    return json.loads(text) if _core is None else _core.from_json(text)


def is_finite(text: bytes) -> bool:
    """Whether a JSON text has only numbers that JSON knows."""
    if b"NaN" not in text and b"Infinity" not in text:
        return True
    try:  # perhaps they are only part of a text
        json_core().from_json(text, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def json_core() -> Any:
    """The reader and writer itself, which is loaded now if it is not there yet."""
    global _core
    if _core is None:
        import pydantic_core

        _core = pydantic_core
    return _core


def _is_spelled_alike(value: Any, depth: int = 3) -> bool:
    """Whether every writer of JSON spells a value the same: texts, small whole numbers, a few levels of them."""
    kind = type(value)
    if kind is int:
        return bool(-_SMALL < value < _SMALL)
    if kind is dict or kind is list:
        names, held = (value.keys(), value.values()) if kind is dict else ((), value)
        known = depth > 0 and all(type(name) is str for name in names)
        return known and all(_is_spelled_alike(one, depth - 1) for one in held)
    return kind in PLAIN
