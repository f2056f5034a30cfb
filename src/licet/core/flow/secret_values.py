"""Does a text hold one of the secret values that a session has read?

Results may have as many secret values as fit into the memory of a session, and a call as many texts as its arguments
have. So each text is searched once for all of them, and the work for one call is bounded.
"""

from collections.abc import Iterator

from msgspec import Struct

from licet.core.limits import FEW_SECRETS, MOST_SECRET_STEPS, SHORTEST_SECRET


class SecretFound(Struct, frozen=True):
    """A secret value that stands in an argument, and where it was read. The value itself is not said."""

    receipt: str
    tool: str
    pointer: str


class TooManySecrets(Exception):
    """A search would take too long, so what it would have found is not known."""


class Steps:
    """The work that the searches for one call may still do."""

    __slots__ = ("left",)

    def __init__(self, left: int = MOST_SECRET_STEPS) -> None:
        self.left = left

    def spend(self, number: int) -> None:
        """Count some work; raises `TooManySecrets` when none is left."""
        self.left -= number
        if self.left < 0:
            raise TooManySecrets


class SecretValues:
    """The secret values of a session, case folded, and where each was read."""

    __slots__ = ("_lengths", "places", "size")

    def __init__(self) -> None:
        self.places: dict[str, SecretFound] = {}
        self.size = 0  # characters of all values
        self._lengths: dict[str, dict[int, None]] = {}  # of the values, by how these begin

    def add(self, value: str, place: SecretFound) -> None:
        """Keep a value that is not known yet."""
        if value not in self.places:
            self.places[value] = place
            self.size += len(value)
            self._lengths.setdefault(value[:SHORTEST_SECRET], {})[len(value)] = None

    def copy(self) -> "SecretValues":
        """The same values, so that either can get more. They share their lengths: one too many finds nothing."""
        other = SecretValues()
        other.places, other.size, other._lengths = self.places.copy(), self.size, self._lengths.copy()
        return other

    def found_in(self, text: str, steps: Steps) -> Iterator[str]:
        """The values that stand in a text that is case folded."""
        if len(self.places) <= FEW_SECRETS:
            steps.spend(1 + len(text) // SHORTEST_SECRET)
            yield from (value for value in list(self.places) if value in text)
            return
        steps.spend(1 + len(text))
        for at in range(len(text) - SHORTEST_SECRET + 1):
            lengths = self._lengths.get(text[at : at + SHORTEST_SECRET])
            for length in list(lengths) if lengths is not None else ():
                steps.spend(1 + length // SHORTEST_SECRET)
                value = text[at : at + length]
                if value in self.places:
                    yield value
