"""Check numbers of seconds that come from outside: from tools, from models through tools, and from files.

Every timeout and every lifetime is checked here. NaN is the reason: it is neither more nor less than any limit, so a
comparison lets it pass, and the call would never end.
"""

from math import inf

LONGEST = 100 * 366 * 86400  # clocks and system calls accept this much; longer times are cut to it


def seconds(value: object, name: str) -> float:
    """Check a number above 0 and cut it to `LONGEST`; `ValueError` for text, booleans, NaN and infinity."""
    kind = type(value)
    number: float = 0
    if issubclass(kind, float):
        number = float.__float__(value)  # type: ignore[arg-type] # the methods of a subclass may lie
    elif issubclass(kind, int) and kind is not bool:
        number = int.__int__(value)  # type: ignore[arg-type]
    if not 0 < number < inf:
        raise ValueError(f"expected `{name}` to be a number of seconds above 0")
    return float(min(number, LONGEST))


def whole_seconds(value: object, name: str) -> int:
    """Check a whole number of at least 1 and cut it to `LONGEST`; `ValueError` for anything else."""
    if type(value) is not int or value < 1:
        raise ValueError(f"expected a whole number of seconds, at least 1, as `{name}`")
    return min(value, LONGEST)
