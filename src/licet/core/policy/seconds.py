"""Numbers of seconds that come from outside: from tools, from models by way of tools, and from files.

Every wait and every lifetime goes through here. NaN is neither more nor less than any limit, so whatever compares it
with one lets it pass: such a call would never end.
"""

from math import inf

LONGEST = 100 * 366 * 86400  # clocks and system calls take this much; what is longer means "for ever" and is cut


def seconds(value: object, name: str) -> float:
    """A number above 0, cut at `LONGEST`; `ValueError` for anything else: text, true and false, NaN, infinity."""
    kind = type(value)
    number: float = 0
    if issubclass(kind, float):
        number = float.__float__(value)  # type: ignore[arg-type] # a subclass may say anything of itself
    elif issubclass(kind, int) and kind is not bool:
        number = int.__int__(value)  # type: ignore[arg-type]
    if not 0 < number < inf:
        raise ValueError(f"expected `{name}` to be a number of seconds above 0")
    return float(min(number, LONGEST))


def whole_seconds(value: object, name: str) -> int:
    """A whole number of at least 1, cut at `LONGEST`; `ValueError` for anything else."""
    if type(value) is not int or value < 1:
        raise ValueError(f"expected a whole number of seconds, at least 1, as `{name}`")
    return min(value, LONGEST)
