"""How much a call keeps of its own checks: a tool that asks without end fills neither memory nor its receipt.

What was granted, what was refused and what people were asked have a room each, so that none hides another. What finds
no room is counted.
"""

from licet.core.decision import Ask, Deny
from licet.core.use import Use

# In bytes, about. What one check takes at least makes it some 4000 that are granted and 1000 that are refused.
GRANTED, REFUSED, ASKED = 8 << 20, 4 << 20, 2 << 20
_A_GRANT, _A_REFUSAL = 2 << 10, 4 << 10


class Room:
    """What is left for the checks of one call, and how many have found none."""

    __slots__ = ("_asked", "_granted", "_refused", "more_asked", "more_granted", "more_refused")

    def __init__(self) -> None:
        self._granted, self._refused, self._asked = GRANTED, REFUSED, ASKED
        self.more_granted = self.more_refused = self.more_asked = 0

    def take(self, use: Use | None, refusal: Deny | Ask | None) -> bool:
        """Whether there is room for a check, which is taken then."""
        size = _size(use) if use is not None else 0
        if refusal is None:
            size = max(size, _A_GRANT)
            if size > self._granted:
                self.more_granted += 1
                return False
            self._granted -= size
            return True
        size = max(size + sum(len(rule.text) + len(rule.fix) for rule in refusal.rules), _A_REFUSAL)
        if size > self._refused:
            self.more_refused += 1
            return False
        self._refused -= size
        return True

    def take_asked(self, use: Use) -> bool:
        """Whether there is room for what a person is asked about a use, or for what they answer."""
        size = max(_size(use), _A_GRANT)
        if size > self._asked:
            self.more_asked += 1
            return False
        self._asked -= size
        return True


def _size(use: Use) -> int:
    return len(use.keys) * len(use.target) // 2  # of a path, all that is above it
