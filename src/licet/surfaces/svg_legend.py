"""What the colours and lines of a map mean: only those that are in it, in as many rows as they need."""

from collections.abc import Iterable, Iterator

from licet.core.entries import KINDS
from licet.surfaces.svg_cards import HEADINGS
from licet.surfaces.svg_parts import Picture
from licet.surfaces.svg_style import CLASS_COLOURS
from licet.surfaces.svg_text import element, safe, width

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
    """A sign, the room it takes, the words for it, and how they look."""
    accents = {card.accent for card in picture.cards}
    for effect in CLASS_COLOURS:
        if effect in accents:
            yield element("rect", look=f"c-{effect}", y=-10, width=4, height=12, rx=2), 10.0, effect, "muted small"
    groups = {card.group for card in picture.cards if card.column == 3}
    for kind in KINDS:
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
