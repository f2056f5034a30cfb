"""What a scalar without quotes means: the core schema of YAML 1.2, and only numbers every reader sees alike."""

import re
from decimal import Decimal, DecimalException

__all__ = ["UnsafeNumber", "plain_value"]

LARGEST_INT = (1 << 53) - 1  # beyond it, readers that keep numbers as doubles see another number

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER = re.compile(
    r"(?P<decimal>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hexadecimal>[0-9a-fA-F]+)"
    r"|(?P<fraction>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<endless>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_BASES = {"decimal": 10, "octal": 8, "hexadecimal": 16}


class UnsafeNumber(ValueError):
    """A number that not every reader of the file would see as the same number; the message says what would do."""


def plain_value(text: str) -> str | int | bool | Decimal | None:
    """What YAML 1.2 (core schema) makes of a scalar without quotes; `no`, `1_000` and `2024-01-01` are text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789" or (match := _NUMBER.fullmatch(text)) is None:
        return text
    kind = match.lastgroup or ""
    if kind == "endless":
        raise UnsafeNumber("a finite number")
    if kind == "fraction":
        return _fraction(text)
    try:
        number = int(match[kind], _BASES[kind])
    except ValueError:  # Python's own limit on digits
        number = LARGEST_INT + 1
    if abs(number) > LARGEST_INT:
        raise UnsafeNumber(f"a whole number within {LARGEST_INT}")
    return number


def _fraction(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except DecimalException:
        number = Decimal("1e999")
    if not number:
        return Decimal(0)
    if abs(number.adjusted()) > 307:
        raise UnsafeNumber("a number that a double can hold")
    return number
