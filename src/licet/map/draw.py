"""Draws a surface as one SVG: agent → bundles → tools → hosts, paths, secrets, binaries and the rest, and a legend.

The picture has no script and no font, and fetches nothing. All text comes from files, so it is escaped; long text is
shortened in the middle, and complete in the tooltip. `cards` decides what is shown, and `layout` where.

The layout of a layered picture: an order with few crossings, then positions near the linked boxes.

It knows columns, groups and links by key, and nothing of capabilities, colours or text. It is deterministic.
"""

import unicodedata
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import RESOURCE_KINDS
from licet.core.algebra.scope import visible
from licet.core.review.surface import Surface
from licet.map.cards import HEADINGS, picture_of
from licet.map.model import CLASS_COLOURS, Card, Line, Link, Picture, style_sheet

GAP = 8.0  # between two boxes
GROUP_GAP = 16.0  # between two groups
_MOST_AIR = 26.0  # added between two boxes of a column that is not full
_SWEEPS = 6

Links = Iterable[tuple[str, str]]
Near = Mapping[str, list[str]]


class Item(Struct, frozen=True):
    """A box: its key, and how tall it is."""

    key: str
    height: float


class Group(Struct, frozen=True):
    """Boxes that stay together under one heading; a pinned group stays where it was put."""

    name: str
    items: tuple[Item, ...]
    heading: float = 0.0
    pinned: bool = False


class Placement(Struct, frozen=True):
    """The top of every box and, by column and group, of every heading; and the total height."""

    tops: Mapping[str, float]
    headings: Mapping[tuple[int, str], float]
    height: float

    def moved(self, down: float) -> "Placement":
        """The same positions, further down."""
        tops = {key: top + down for key, top in self.tops.items()}
        return Placement(tops, {key: top + down for key, top in self.headings.items()}, self.height + down)


Column = tuple[Group, ...]


def place(columns: Iterable[Column], links: Links) -> Placement:
    """Find a position for every box; links go from a column to the next one."""
    right: dict[str, list[str]] = {}
    left: dict[str, list[str]] = {}
    for source, target in dict.fromkeys(links):
        right.setdefault(source, []).append(target)
        left.setdefault(target, []).append(source)
    ordered = _ordered(tuple(columns), left, right)
    height = max(map(_natural_height, ordered), default=0.0)
    tallest = max(range(len(ordered)), key=lambda index: _natural_height(ordered[index]), default=0)
    centres: dict[str, float] = {}
    headings: dict[tuple[int, str], float] = {}
    tops: dict[str, float] = {}
    # From the tallest column outwards: it has no freedom, and the other columns move towards their links.
    for index in (*range(tallest, -1, -1), *range(tallest + 1, len(ordered))):
        near = right if index < tallest else left
        found = _settled(ordered[index], near, centres, height)
        for group in ordered[index]:
            for item in group.items:
                tops[item.key] = found[item.key]
                centres[item.key] = found[item.key] + item.height / 2
            if group.items and group.heading:
                headings[index, group.name] = found[group.items[0].key] - group.heading
    return Placement(tops, headings, height)


def _ordered(columns: tuple[Column, ...], left: Near, right: Near) -> tuple[Column, ...]:
    """The columns in an order with few crossings: each box near the mean of its neighbours, sweep after sweep."""
    best, fewest = columns, _crossings(columns, right)
    for _ in range(_SWEEPS):
        for near, path in ((left, range(1, len(columns))), (right, range(len(columns) - 2, -1, -1))):
            for index in path:
                neighbours = columns[index - 1 if near is left else index + 1]
                sorted_column = _sorted(columns[index], near, _ranks(neighbours))
                columns = (*columns[:index], sorted_column, *columns[index + 1 :])
        crossings = _crossings(columns, right)
        if crossings < fewest:
            best, fewest = columns, crossings
    return best


def _sorted(column: Column, near: Near, ranks: Mapping[str, float]) -> Column:
    own = _ranks(column)

    def weight(key: str) -> float:
        held = [ranks[other] for other in near.get(key, ()) if other in ranks]
        return sum(held) / len(held) if held else own[key]

    def mean(group: Group) -> float:
        return sum(weight(item.key) for item in group.items) / (len(group.items) or 1)

    groups = [
        replace(group, items=tuple(sorted(group.items, key=lambda item: (round(weight(item.key), 6), item.key))))
        for group in column
    ]
    free = iter(sorted((group for group in groups if not group.pinned), key=lambda group: (mean(group), group.name)))
    return tuple(group if group.pinned else next(free) for group in groups)


def _ranks(column: Column) -> dict[str, float]:
    keys = [item.key for group in column for item in group.items]
    return {key: (place + 0.5) / len(keys) for place, key in enumerate(keys)}


def _crossings(columns: tuple[Column, ...], right: Near) -> int:
    crossings = 0
    for one, other in pairwise(columns):
        ranks = _ranks(other)
        seen: list[float] = []
        for key in _ranks(one):
            ends = sorted(ranks[target] for target in right.get(key, ()) if target in ranks)
            crossings += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return crossings


def _offsets(column: Column, air: float = 0.0) -> tuple[dict[str, float], float]:
    """How far down each box is in a column without gaps, and the height of that column."""
    offsets: dict[str, float] = {}
    down = 0.0
    for group in column:
        if not group.items:
            continue
        down += (GROUP_GAP + air if offsets else 0.0) + group.heading
        for place, item in enumerate(group.items):
            down += GAP + air if place else 0.0
            offsets[item.key] = down
            down += item.height
    return offsets, down


def _natural_height(column: Column) -> float:
    return _offsets(column)[1]


def _settled(column: Column, near: Near, centres: Mapping[str, float], height: float) -> dict[str, float]:
    """The tops of a column's boxes: in order, without overlap, as near to their neighbours as that allows."""
    natural = _natural_height(column)
    boxes = sum(len(group.items) for group in column)
    # A short column next to a tall one is spread out, so that its links are less steep.
    air = min(_MOST_AIR, max(0.0, 0.8 * height - natural) / max(boxes, 1))
    offsets, natural = _offsets(column, air)
    wishes: list[float | None] = []
    for group in column:
        for item in group.items:
            held = [centres[other] for other in near.get(item.key, ()) if other in centres]
            wishes.append(sum(held) / len(held) - item.height / 2 - offsets[item.key] if held else None)
    room = height - natural
    shifts = _rising([room / 2 if wish is None else wish for wish in _filled(wishes)])
    return {
        key: offset + min(max(shift, 0.0), room) for (key, offset), shift in zip(offsets.items(), shifts, strict=True)
    }


def _filled(wishes: list[float | None]) -> list[float | None]:
    """A box without links stays with the box above it, or else with the first one that has links."""
    last = next((wish for wish in wishes if wish is not None), None)
    filled = []
    for wish in wishes:
        last = last if wish is None else wish
        filled.append(last)
    return filled


def _rising(wishes: list[float]) -> list[float]:
    """The nearest non-decreasing values (least squares: neighbours that would cross share their mean)."""
    runs: list[tuple[float, int]] = []
    for wish in wishes:
        mean, count = wish, 1
        while runs and runs[-1][0] > mean:
            before, many = runs.pop()
            mean, count = (mean * count + before * many) / (count + many), count + many
        runs.append((mean, count))
    return [mean for mean, count in runs for _ in range(count)]


# Widths in em, rounded up: fonts differ, and text that is too short looks better than text that overflows.
_NARROW, _SLIM, _WIDE = frozenset("iljI|.,:;'!"), frozenset('ftr()[]{}/\\-"'), frozenset("mwMW@%…→")


def safe(text: str) -> str:
    """Text from a file as XML: markup and invisible characters are escaped."""
    return escape(visible(text))


def element(name: str, body: str = "", **attributes: str | float) -> str:
    """An XML element around a body that is XML already; attributes are escaped, `look` is the class."""
    held = ""
    for key, value in attributes.items():
        name_of = "class" if key == "look" else key.replace("_", "-")
        held += f' {name_of}="{safe(value) if isinstance(value, str) else _number(value)}"'
    return f"<{name}{held}>{body}</{name}>" if body else f"<{name}{held}/>"


def title(lines: Iterable[str]) -> str:
    """A tooltip of several lines; no lines, no tooltip."""
    held = "\n".join(safe(line) for line in lines if line)
    return f"<title>{held}</title>" if held else ""


def width(text: str, size: float) -> float:
    """About how wide a text is, in pixels."""
    return size * sum(map(_em, visible(text)))


def shortened(text: str, room: float, size: float) -> str:
    """The text, shortened in the middle if it is too long. More of the end is kept, where hosts and paths differ."""
    text = visible(text)
    if width(text, size) <= room:
        return text
    left = room - width("…", size)
    tail = _fitting(reversed(text), left * 0.6, size)[::-1]
    head = _fitting(text, left - width(tail, size), size)
    return f"{head}…{tail}"


def _fitting(characters: Iterable[str], room: float, size: float) -> str:
    kept = []
    for character in characters:
        room -= size * _em(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept)


def _em(character: str) -> float:
    if character in _NARROW:
        return 0.32
    if character in _SLIM:
        return 0.42
    if character in _WIDE:
        return 0.98
    if character.isascii():
        return 0.7 if character.isupper() else 0.6
    return 1.05 if unicodedata.east_asian_width(character) in "WF" else 0.72


def _number(value: float) -> str:
    return f"{round(value, 1):g}" if abs(value) < 1e5 else f"{value:.0f}"


ROW = 20.0
_SIZE = 11.0
_AIR = 18.0


def legend(picture: Picture, left: float, top: float, right: float) -> tuple[list[str], int]:
    """The legend between two edges, and how many rows it has."""
    drawn = []
    x, row = left, 0
    for sign, room, words, look in _items(picture):
        across = room + width(words, _SIZE)
        if x > left and x + across > right:
            x, row = left, row + 1
        text = element("text", safe(words), look=look, x=room)
        drawn.append(element("g", sign + text, transform=f"translate({x:.1f} {top + row * ROW:.1f})"))
        x += across + _AIR
    return drawn, row + 1


def _items(picture: Picture) -> Iterator[tuple[str, float, str, str]]:
    """A symbol, its width, its caption, and the style of the caption."""
    accents = {card.accent for card in picture.cards}
    for effect in CLASS_COLOURS:
        if effect in accents:
            yield element("rect", look=f"c-{effect}", y=-10, width=4, height=12, rx=2), 10.0, effect, "muted small"
    groups = {card.group for card in picture.cards if card.column == 3}
    for kind in RESOURCE_KINDS:
        if kind in groups:
            sign = element("rect", look="swatch", y=-10, width=12, height=12, rx=3)
            yield element("g", sign, look=f"k-{kind}"), 18.0, HEADINGS[kind].lower(), "muted small"
    looks = set(_words(link.look for link in picture.links))
    for look, style, words in (
        ("reach", "", "reads"),
        ("writes", " writes", "writes"),
        ("guess", " guess", "could reach"),
    ):
        if look in looks:
            yield element("path", look=f"link{style}", d="M0 -4h22"), 28.0, words, "muted small"
    if "struck" in _words(line.look for card in picture.cards for line in card.lines):
        yield "", 0.0, "denied", "struck small"


def _words(looks: Iterable[str]) -> Iterator[str]:
    return (word for look in looks for word in look.split())


_MARGIN = 28.0
_LEGEND = 92.0
_HEADING = 24.0
_WIDTHS = (216.0, 168.0, 276.0, 350.0)  # of the agent, bundles, tools and what they reach
_GUTTER = 64.0
_WIDE_GUTTER = 190.0, 460.0  # wider for tall maps, because steep links look like a wall
_SMALL = 11.0


def svg_map(surface: Surface, say: Callable[[str], str] = str) -> str:
    """Draw everything an agent can reach as a standalone SVG document; `say` may rephrase its texts."""
    picture = picture_of(surface).worded(say)
    columns = [_column(picture, index) for index in range(4)]
    placed = place(columns, ((link.source, link.target) for link in picture.links))
    lefts = _lefts(columns, placed.height)
    across = lefts[3] + _WIDTHS[3] + _MARGIN
    signs, rows = legend(picture, _MARGIN, _LEGEND, across - _MARGIN)
    placed = placed.moved(_LEGEND + rows * ROW + 8)
    across, down = round(across, 1), round(placed.height + _MARGIN, 1)
    room = across - 2 * _MARGIN
    heading = f"What {surface.agent} can reach"
    parts = [
        element("title", safe(heading)),
        element("desc", safe(picture.summary)),
        element("style", f"\n{style_sheet(len(picture.links))}\n"),
        element("rect", look="page", width=across, height=down),
        _text(shortened(heading, room, 20), "h1", _MARGIN, 42),
        _text(shortened(picture.summary, room, _SMALL), "muted small", _MARGIN, 64),
        *signs,
        *_headings(picture, placed, lefts),
        *_drawn(picture, placed, lefts),
    ]
    return (
        element(
            "svg",
            "\n" + "\n".join(parts) + "\n",
            xmlns="http://www.w3.org/2000/svg",
            look="licet-map",
            width=across,
            height=down,
            viewBox=f"0 0 {across:g} {down:g}",
            role="img",
            aria_label=heading,
        )
        + "\n"
    )


def _column(picture: Picture, index: int) -> Column:
    groups: dict[str, list[Card]] = {}
    for card in picture.cards:
        if card.column == index:
            groups.setdefault(card.group, []).append(card)
    return tuple(
        Group(
            name,
            tuple(Item(card.key, card.height) for card in cards),
            _HEADING if index == 3 else 0.0,
            pinned=index == 3 or name.startswith("~"),
        )
        for name, cards in groups.items()
    )


def _lefts(columns: list[Column], height: float) -> list[float]:
    """The left edge of each column; without bundles they have no column."""
    wide = min(max(_WIDE_GUTTER[0], height / 12), _WIDE_GUTTER[1])
    bundles = _MARGIN + _WIDTHS[0] + _GUTTER
    tools = bundles + (_WIDTHS[1] + _GUTTER if columns[1] else 0.0)
    return [_MARGIN, bundles, tools, tools + _WIDTHS[2] + wide]


def _headings(picture: Picture, placed: Placement, lefts: list[float]) -> Iterator[str]:
    for (column, group), top in placed.headings.items():
        count = sum(card.stands_for for card in picture.cards if (card.column, card.group) == (column, group))
        yield _text(f"{HEADINGS[group]} · {count}", "head", lefts[column] + 2, top + 15)


def _drawn(picture: Picture, placed: Placement, lefts: list[float]) -> Iterator[str]:
    """Draw every box, and with each tool its links, so that pointing at the tool highlights them."""
    spots = {card.key: (lefts[card.column], placed.tops[card.key]) for card in picture.cards}
    widths = {card.key: _WIDTHS[card.column] for card in picture.cards}
    starts = _spread(picture, placed, lambda link: (link.source, link.target))
    ends = _spread(picture, placed, lambda link: (link.target, link.source))
    curves: dict[str, list[str]] = {}
    for link in picture.links:
        start = spots[link.source][0] + widths[link.source], starts[link]
        end = spots[link.target][0], ends[link]
        curves.setdefault(link.source, []).append(_curve(link, start, end))
    for card in picture.cards:
        x, y = spots[card.key]
        box = element("rect", look="box", x=x, y=y, width=widths[card.key], height=card.height, rx=8)
        inside = element("g", title(card.tip) + box + "".join(_inside(card, x, y)))
        yield element("g", "\n".join([*curves.get(card.key, ()), inside]), look=card.look)


def _spread(picture: Picture, placed: Placement, ends: Callable[[Link], tuple[str, str]]) -> dict[Link, float]:
    """How far down each link meets a box: in the order of their other ends, so that few links cross there."""
    heights = {card.key: card.height for card in picture.cards}
    meeting: dict[str, list[tuple[float, Link]]] = {}
    for link in picture.links:
        here, there = ends(link)
        meeting.setdefault(here, []).append((placed.tops[there], link))
    found = {}
    for key, links in meeting.items():
        room = min(heights[key] - 16, 5.0 * (len(links) - 1))
        first = placed.tops[key] + (heights[key] - room) / 2
        for nth, (_, link) in enumerate(sorted(links, key=lambda held: held[0])):
            found[link] = first + (room * nth / (len(links) - 1) if nth else 0.0)
    return found


def _curve(link: Link, start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    middle = (x1 + x2) / 2
    path = f"M{x1:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    return element("path", title(link.tip), look=f"link {link.look}".strip(), d=path)


def _inside(card: Card, x: float, y: float) -> Iterator[str]:
    inset = 14.0
    if card.accent:
        inset = 20.0
        yield element("rect", look=f"c-{card.accent}", x=x + 8, y=y + 8, width=4, height=card.height - 16, rx=2)
    for line in card.lines:
        yield from _line(line, x + inset, x + _WIDTHS[card.column] - 12, y + line.baseline)


def _line(line: Line, left: float, right: float, y: float) -> Iterator[str]:
    if line.pill:
        across = width(line.pill, _SMALL) + 14
        look = "pill native" if line.pill == "native" else "pill"
        yield element("rect", look=look, x=right + 2 - across, y=y - 12.5, width=across, height=17, rx=8.5)
        yield _text(line.pill, "small", right + 2 - across / 2, y - 0.5, "middle")
        right -= across + 6
    if line.aside:
        aside = shortened(line.aside, (right - left) * 0.45, _SMALL)
        yield _text(aside, "muted small", right, y, "end")
        right -= width(aside, _SMALL) + 10
    # Bold letters are wider.
    size = line.size * (1.08 if line.look in ("name", "title") else 1.0)
    yield _text(shortened(line.text, right - left, size), line.look, left, y)


def _text(text: str, look: str, x: float, y: float, anchor: str = "") -> str:
    aligned = {"text_anchor": anchor} if anchor else {}
    return element("text", safe(text), look=look, x=x, y=y, **aligned)
