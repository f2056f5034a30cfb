"""What a map is made of: cards, their lines, and links; and how many of each are drawn before one stands for the rest.

A picture of thousands of boxes is slow to draw and tells nobody anything. The table and the JSON are always complete.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from licet.values import dataclass, replace

MOST_BUNDLES = 60
MOST_TOOLS = 100
MOST_TARGETS = 200  # of one kind
MOST_DENIED = 60
MOST_TIPS = 40  # lines of one tooltip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a card: text, how it looks, and what stands at its right."""

    text: str
    baseline: float
    look: str
    size: float
    pill: str = ""
    aside: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """One box."""

    key: str
    column: int
    group: str
    look: str
    height: float
    lines: tuple[Line, ...]
    tip: tuple[str, ...]
    accent: str = ""
    stands_for: int = 1


@dataclass(frozen=True, slots=True)
class Link:
    """One line between two boxes."""

    source: str
    target: str
    look: str
    tip: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything to draw."""

    summary: str
    cards: tuple[Card, ...]
    links: tuple[Link, ...]

    def worded(self, say: Callable[[str], str]) -> "Picture":
        """The same picture in other words: `say` is given each text of a box or a tooltip."""
        cards = (
            replace(
                card,
                lines=tuple(replace(line, text=say(line.text)) for line in card.lines),
                tip=tuple(map(say, card.tip)),
            )
            for card in self.cards
        )
        links = (replace(link, tip=tuple(map(say, link.tip))) for link in self.links)
        return Picture(self.summary, tuple(cards), tuple(links))


class Links:
    """One link between two boxes: a target reached in two ways with different exceptions is still one."""

    def __init__(self) -> None:
        self._drawn_as: dict[str, str] = {}
        self._joined: dict[tuple[str, str], tuple[dict[str, None], list[str]]] = {}

    def stand_for(self, card: Card, keys: Sequence[str]) -> None:
        """Let a card stand for others, which are not drawn."""
        self._drawn_as.update(dict.fromkeys(keys, card.key))

    def add(self, source: str, target: str, look: str, tip: Callable[[], str] | None = None) -> None:
        """Link two boxes, or what stands for them."""
        place = self._drawn_as.get(source, source), self._drawn_as.get(target, target)
        looks, tips = self._joined.setdefault(place, ({}, []))
        looks[look] = None
        if tip is not None and len(tips) < MOST_TIPS:
            tips.append(tip())

    def __iter__(self) -> Iterator[Link]:
        for (source, target), (looks, tips) in self._joined.items():
            words = dict.fromkeys(word for look in looks for word in look.split())
            yield Link(source, target, " ".join(words), tuple(tips))


def drawn(items: Sequence[T], most: int, matters: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """The items that are drawn, in order, and the rest: where there are too many, those that matter come first."""
    if len(items) <= most:
        return [*items], []
    first = set(sorted(range(len(items)), key=lambda place: not matters(items[place]))[:most])
    return (
        [item for place, item in enumerate(items) if place in first],
        [item for place, item in enumerate(items) if place not in first],
    )


def more(rest: int, column: int, group: str, look: str, aside: str = "") -> Card:
    """The card that stands for all that is not drawn in a group."""
    text = f"… and {rest} more"
    line = Line(text, 18, f"{'struck ' if group == 'denied' else ''}target", 12.5, aside=aside)
    tip = text, "`licet surface` lists them all, as a table or with --json"
    return Card(f"~more:{column}:{group}", column, group, look, 28, (line,), tip, stands_for=rest)
