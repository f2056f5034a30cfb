"""Draws a surface as one SVG: agent → bundles → tools → hosts, paths, secrets, binaries and the rest, and a legend.

The picture has no script and no font, and fetches nothing. All text comes from files, so it is escaped; long text is
shortened in the middle, and complete in the tooltip. `cards` decides what is shown, and `layout` where.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from html import escape

from licet.core.algebra.domains import RESOURCE_KINDS
from licet.core.algebra.scope import visible
from licet.core.review.surface import Surface
from licet.surfaces.map.cards import HEADINGS, picture_of
from licet.surfaces.map.layout import Column, Group, Item, Placement, place
from licet.surfaces.map.model import CLASS_COLOURS, Card, Line, Link, Picture, style_sheet

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
