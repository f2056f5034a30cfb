"""Tables of cases that list everything with the same outcome together."""

from collections.abc import Mapping, Sequence
from typing import Any


def grouped(table: Mapping[Any, Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The rows of a table: each entry of a list, and what it comes to; several columns where that is a tuple."""
    return [
        (left, *(right if isinstance(right, tuple) else (right,))) for right, lefts in table.items() for left in lefts
    ]
