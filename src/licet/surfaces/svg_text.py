"""Text in a picture: made safe for XML, measured without a font, and shortened in the middle."""

import unicodedata
from collections.abc import Iterable
from html import escape

from licet.core.scope import visible

# Widths in em, on the generous side: fonts differ, and text that ends early looks better than text that runs out.
_NARROW, _SLIM, _WIDE = frozenset("iljI|.,:;'!"), frozenset('ftr()[]{}/\\-"'), frozenset("mwMW@%…→")


def safe(text: str) -> str:
    """Text from a file as XML: what could be markup is escaped, what could hide is spelled out."""
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
    """The text if it fits, else its beginning and, longer, its end: that is where hosts and paths differ."""
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
