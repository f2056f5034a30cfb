"""A surface as a picture: agent → bundles → tools → hosts, paths, secrets, binaries and the rest, in one SVG.

It stands alone: no script, no font, nothing to fetch. All text comes from files and is escaped in `svg_text`; what a
shape is about in full is in its tooltip. What is shown is decided in `svg_cards`, where it goes in `svg_layout`.
"""

from collections.abc import Callable, Iterator

from licet.core.surface import Surface
from licet.surfaces.svg_cards import HEADINGS, picture_of
from licet.surfaces.svg_layout import Column, Group, Item, Placement, place
from licet.surfaces.svg_legend import ROW, legend
from licet.surfaces.svg_parts import Card, Line, Link, Picture
from licet.surfaces.svg_style import style_sheet
from licet.surfaces.svg_text import element, safe, shortened, title, width

_MARGIN = 28.0
_LEGEND = 92.0
_HEADING = 24.0
_WIDTHS = (216.0, 168.0, 276.0, 350.0)  # of the agent, bundles, tools and what they reach
_GUTTER = 64.0
_WIDE_GUTTER = 190.0, 460.0  # between tools and targets: wider the taller the map, or its curves would be walls
_SMALL = 11.0


def svg_map(surface: Surface, say: Callable[[str], str] = str) -> str:
    """Draw everything an agent can reach as a standalone SVG document; `say` may put its texts in other words."""
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
    """Where each column begins; bundles take no room if there are none."""
    wide = min(max(_WIDE_GUTTER[0], height / 12), _WIDE_GUTTER[1])
    bundles = _MARGIN + _WIDTHS[0] + _GUTTER
    tools = bundles + (_WIDTHS[1] + _GUTTER if columns[1] else 0.0)
    return [_MARGIN, bundles, tools, tools + _WIDTHS[2] + wide]


def _headings(picture: Picture, placed: Placement, lefts: list[float]) -> Iterator[str]:
    for (column, group), top in placed.headings.items():
        count = sum(card.stands_for for card in picture.cards if (card.column, card.group) == (column, group))
        yield _text(f"{HEADINGS[group]} · {count}", "head", lefts[column] + 2, top + 15)


def _drawn(picture: Picture, placed: Placement, lefts: list[float]) -> Iterator[str]:
    """Every box, and with each tool the links that leave it, so that pointing at a tool brings them out."""
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
    """How far down each link meets a box: side by side in the order of the other ends, so that few cross there."""
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
