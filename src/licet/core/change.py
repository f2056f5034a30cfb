"""The words of a comparison: one change, all changes, and the phrases for values that went up, down or elsewhere."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal, TypeVar

from licet.core.canonical import money_text
from licet.core.origin import Origin
from licet.values import dataclass

Side = Literal["grown", "shrunk", "changed"]
T = TypeVar("T")
_NO_LIMIT = Decimal("Infinity")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: what kind it is, of which tool (None is the whole agent), and both sides of it in words."""

    kind: str
    tool: str | None
    text: str
    before: str = ""
    after: str = ""
    origin: Origin | None = None  # where it is written: in the old manifest if it shrank, else in the new one

    def document(self) -> dict[str, Any]:
        """The change as plain data."""
        return {
            "kind": self.kind,
            "tool": self.tool,
            "text": self.text,
            "before": self.before,
            "after": self.after,
            "origin": self.origin.full if self.origin else None,
        }


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that grew, everything that shrank, and what changed without doing either."""

    grown: tuple[Change, ...] = ()
    shrunk: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.grown or self.shrunk or self.changed)

    def document(self) -> dict[str, Any]:
        """The changes as plain data."""
        return {
            "grown": [change.document() for change in self.grown],
            "shrunk": [change.document() for change in self.shrunk],
            "changed": [change.document() for change in self.changed],
        }


Found = Iterator[tuple[Side, Change]]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the two sides of a comparison are written, and of which tool they speak, if of one."""

    old: Origin | None
    new: Origin | None
    tool: str | None = None

    def turned(self, side: Side, kind: str, what: str, before: str, after: str) -> Found:
        """A value that became another."""
        text = f"{what}: {before or 'none'} → {after or 'none'}"
        yield side, Change(kind, self.tool, text, before, after, self._origin(side))

    def moved(self, kind: str, what: str, before: T, after: T, rank: Callable[[T], Any]) -> Found:
        """A value on a scale that went up (grown) or down (shrunk)."""
        if before != after:
            side: Side = "grown" if rank(after) > rank(before) else "shrunk"
            yield from self.turned(side, kind, what, _said(before), _said(after))

    def limit(self, key: str, before: int | None, after: int | None) -> Found:
        """A limit of the sandbox, which has a default that is not known here."""
        if before is not None and after is not None:
            yield from self.moved("limit", key, before, after, int)
        elif before != after:
            # Stated against unstated: the number or the default may be the higher one, so it may have grown.
            words = ("the default" if one is None else str(one) for one in (before, after))
            yield from self.turned("grown", "limit", key, *words)

    def entry(self, side: Side, kind: str, text: str, item: str) -> Found:
        """Something that is there on one side only."""
        before, after = (item, "") if side == "shrunk" else ("", item)
        yield side, Change(kind, self.tool, text, before, after, self._origin(side))

    def _origin(self, side: Side) -> Origin | None:
        return self.old if side == "shrunk" else self.new


def no_limit_is_most(limit: int | Decimal | None) -> int | Decimal:
    """The rank of a limit of which absence means unlimited."""
    return _NO_LIMIT if limit is None else limit


def _said(value: object) -> str:
    if isinstance(value, Decimal):
        return money_text(value)
    return "no limit" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
