"""The parts of a map: cards, their lines, links, and the style sheet with light and dark colours.

A picture of thousands of boxes is slow and unreadable, so their number is limited, and one card represents the rest.
The table and the JSON are always complete.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import ResourceKind
from licet.core.policy.layer import EffectClass
from licet.map.limits import MOST_TIPS

T = TypeVar("T")


class Line(Struct, frozen=True):
    """One line of a card: text, its style, and a note at its right."""

    text: str
    baseline: float
    look: str
    size: float
    pill: str = ""
    aside: str = ""


class Card(Struct, frozen=True):
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


class Link(Struct, frozen=True):
    """One line between two boxes."""

    source: str
    target: str
    look: str
    tip: tuple[str, ...] = ()


class Picture(Struct, frozen=True):
    """Everything to draw."""

    summary: str
    cards: tuple[Card, ...]
    links: tuple[Link, ...]

    def worded(self, say: Callable[[str], str]) -> "Picture":
        """The same picture with each text of a box or a tooltip rephrased by `say`."""
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
    """At most one link between two boxes, even if a target is reached in two ways with different exceptions."""

    def __init__(self) -> None:
        self._drawn_as: dict[str, str] = {}
        self._joined: dict[tuple[str, str], tuple[dict[str, None], list[str]]] = {}

    def stand_for(self, card: Card, keys: Sequence[str]) -> None:
        """Let a card represent others, which are not drawn."""
        self._drawn_as.update(dict.fromkeys(keys, card.key))

    def add(self, source: str, target: str, look: str, tip: Callable[[], str] | None = None) -> None:
        """Link two boxes, or the cards that represent them."""
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
    """The items that are drawn, in order, and the rest. If there are too many, the most important ones are drawn."""
    if len(items) <= most:
        return [*items], []
    first = set(sorted(range(len(items)), key=lambda place: not matters(items[place]))[:most])
    return (
        [item for place, item in enumerate(items) if place in first],
        [item for place, item in enumerate(items) if place not in first],
    )


def more(rest: int, column: int, group: str, look: str, aside: str = "") -> Card:
    """The card that represents all items of a group that are not drawn."""
    text = f"… and {rest} more"
    line = Line(text, 18, f"{'struck ' if group == 'denied' else ''}target", 12.5, aside=aside)
    tip = text, "`licet surface` lists them all, as a table or with --json"
    return Card(f"~more:{column}:{group}", column, group, look, 28, (line,), tip, stands_for=rest)


# (light, dark): each readable as a line and as a tint on its background.
KIND_COLOURS: dict[ResourceKind, tuple[str, str]] = {
    "hosts": ("#2563eb", "#7da7ff"),
    "paths": ("#0f766e", "#4fd1bd"),
    "secrets": ("#be185d", "#f58ab8"),
    "binaries": ("#b4530a", "#f5a35c"),
    "env": ("#4d7c0f", "#a9d65c"),
    "storage": ("#7c3aed", "#b79cff"),
    "tools": ("#52607a", "#a3b1c9"),
    "connectors": ("#0e7490", "#62d4ec"),
    "sockets": ("#9f1239", "#fb7a90"),
}
CLASS_COLOURS: dict[EffectClass, tuple[str, str]] = {
    "read_only": ("#2f9e63", "#5fd494"),
    "write_limited": ("#d19a00", "#f2c744"),
    "full": ("#e2620e", "#ff9a52"),
    "destructive": ("#c81e1e", "#ff7b7b"),
}
_DENIED = ("#b42318", "#ff8f85")

_SHAPES = """
.licet-map { font-family: system-ui, sans-serif; }
.licet-map text { fill: INK; }
.licet-map .page { fill: PAGE; }
.licet-map .box { fill: CARD; stroke: EDGE; }
.licet-map .muted, .licet-map .head { fill: MUTED; }
.licet-map .head { font-size: 11px; font-weight: 600; letter-spacing: .04em; text-transform: uppercase; }
.licet-map .h1 { font-size: 20px; font-weight: 650; }
.licet-map .title { font-size: 15px; font-weight: 650; }
.licet-map .name { font-size: 13px; font-weight: 600; }
.licet-map .target { font-size: 12.5px; }
.licet-map .small { font-size: 11px; }
.licet-map .pill { fill: PAGE; stroke: EDGE; }
.licet-map .pill.native { fill: DENIED; fill-opacity: .14; stroke: DENIED; }
.licet-map .link { fill: none; stroke: EDGE; stroke-width: 1.4; }
.licet-map .reach { stroke-opacity: FAINT; }
.licet-map .writes { stroke-width: 2.4; }
.licet-map .link.guess { stroke-dasharray: 3 4; stroke-width: 1.4; }
.licet-map .loose .box { stroke-dasharray: 4 3; }
.licet-map .off { opacity: .55; }
.licet-map .struck { fill: DENIED; text-decoration: line-through; }
.licet-map .denied .box { fill: DENIED; fill-opacity: .06; stroke: DENIED; stroke-opacity: .5; stroke-dasharray: 4 3; }
.licet-map:has(.tool:hover) .tool:not(:hover) { opacity: .18; }
.licet-map .tool:hover .reach { stroke-opacity: 1; }
""".strip()
_DAY = {"INK": "#1c2128", "PAGE": "#fafbfc", "CARD": "#ffffff", "EDGE": "#bcc5cf", "MUTED": "#5c6672"}
_NIGHT = {"INK": "#e6e9ee", "PAGE": "#0f1216", "CARD": "#181c22", "EDGE": "#3d4652", "MUTED": "#98a2af"}


def style_sheet(links: int) -> str:
    """The style sheet of a map with this many links: light colours, and dark ones for dark mode."""
    # The more links there are, the fainter each is, so that they do not form a wall; pointing at a tool shows its own.
    faint = min(0.5, max(0.07, 4.5 / max(links, 1) ** 0.5))
    day = _rules(0).replace("FAINT", f"{faint:.2f}")
    return "\n".join([day, "@media (prefers-color-scheme: dark) {", *_colours_only(_rules(1)), "}"])


def _colours_only(rules: str) -> Iterator[str]:
    for line in rules.splitlines():
        selector, _, held = line.partition(" { ")
        kept = [declared for declared in held.removesuffix(" }").split("; ") if "#" in declared]
        if kept:
            yield f"{selector} {{ {'; '.join(kept).removesuffix(';')}; }}"


def _rules(time: int) -> str:
    words = {**(_NIGHT if time else _DAY), "DENIED": _DENIED[time]}
    rules = _SHAPES
    for word, colour in words.items():
        rules = rules.replace(word, colour)
    lines = [rules]
    for name, colours in (*KIND_COLOURS.items(), *CLASS_COLOURS.items()):
        lines.append(f".licet-map .c-{name} {{ fill: {colours[time]}; }}")
    for name, colours in KIND_COLOURS.items():
        colour = colours[time]
        lines.append(
            f".licet-map .k-{name} rect {{ fill: {colour}; fill-opacity: .09; stroke: {colour}; stroke-opacity: .55; }}"
        )
        lines.append(f".licet-map .l-{name} {{ stroke: {colour}; }}")
    return "\n".join(lines)
