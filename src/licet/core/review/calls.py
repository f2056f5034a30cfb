"""The calls of a recording that needed one thing, as a line of a draft tells them."""

from licet.core.algebra.scope import visible
from licet.core.review.recording import Touch

_LONGEST = 60  # characters of a name in a line


class Calls:
    """The calls that needed one thing: how often, by which tools, and the first of them."""

    __slots__ = ("count", "first", "several", "tools")

    def __init__(self) -> None:
        self.count = 0
        self.several = False  # more than one call
        self.tools: set[str] = set()
        self.first: tuple[int, str, str] | None = None

    def add(self, touch: Touch) -> None:
        """Count one line of a recording."""
        self.count += touch.count
        self.tools.add(touch.tool)
        this = touch.time, touch.call, touch.tool
        if self.first is None:
            self.first = this
            return
        self.several = self.several or touch.call != self.first[1]
        if this < self.first:
            self.first = this

    def merge(self, other: "Calls") -> None:
        """Count all of another's calls."""
        self.count += other.count
        self.tools |= other.tools
        if other.first is None:
            return
        self.several |= other.several or (self.first is not None and other.first[1] != self.first[1])
        if self.first is None or other.first < self.first:
            self.first = other.first

    def text(self, noun: str) -> str:
        """One line: `12 reads by git, process 3`."""
        _, call, tool = self.first or (0, "", "")
        others = len(self.tools) - 1
        by = _short(tool) + (f" and {others} more" if others > 0 else "")
        return f"{self.count} {noun}{'' if self.count == 1 else 's'} by {by}, {'first ' * self.several}{_short(call)}"


def _short(text: str) -> str:
    seen = visible(text)
    return seen if len(seen) <= _LONGEST else f"{seen[:_LONGEST]}…"
