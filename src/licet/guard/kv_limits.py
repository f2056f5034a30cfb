"""What a key-value store takes at most, the same for every backend and for whoever asks before it parses a value."""

LARGEST_VALUE = 1 << 20  # bytes of JSON
MOST_UNITS = 125_000  # of work to parse a value, see `is_heavy`; each is parsed by a slower reader than results are
MOST_KEYS = 50_000  # that are listed at once
TOO_HEAVY = "expected a value of fewer parts: it holds more than can be parsed without delay for others"


def too_long(size: int) -> str:
    """What is wrong with a value of so many bytes."""
    return f"expected a value of at most {LARGEST_VALUE} bytes of JSON, found one of {size}"


def too_many() -> str:
    """What is wrong with a list of all keys."""
    return f"more than {MOST_KEYS} keys begin with this prefix"
