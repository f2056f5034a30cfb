"""From bytes to text that reads the way it looks: size, UTF-8, and no characters that hide or split a line.

Knows nothing of YAML or JSON beyond that both are text. A refused character is replaced, one for one, so that the
rest of the file can still be read and its other problems reported in the same run.
"""

import re
import unicodedata
from collections.abc import Iterator

from licet.core.origin import Origin, Problem
from licet.core.scope import UNSEEN, visible

__all__ = ["REPLACED", "Unreadable", "hidden_in", "place", "plain_text", "shown"]

MOST_BYTES = 1 << 20
REPLACED = "\ufffd"

_PLAIN_ASCII = bytes(range(0x20, 0x7F)) + b"\t\n"

# Nowhere, not even in a comment: controls, the second kinds of line break, bidi controls, a stray byte order mark.
# YAML counts a lone CR, U+0085, U+2028 and U+2029 as line breaks where an editor shows one line.
_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff"
_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_NOWHERE = re.compile(rf"[{_CONTROLS}{_BIDI}\ufeff]|\r(?!\n)")

# Not in a name or a value, escaped or not: what takes no room on the screen (U+E0000 to U+E007F can spell a whole
# hidden sentence), and halves of surrogate pairs, which UTF-8 cannot carry.
_INVISIBLE = r"\u00ad\u180e\u200b-\u200d\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_HIDDEN = re.compile(rf"[{_CONTROLS}{_BIDI}{_INVISIBLE}{UNSEEN}\r\ud800-\udfff]")


class Unreadable(ValueError):
    """Reading cannot go on from here; `problem` says where that is and why."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def plain_text(data: bytes, file: str) -> tuple[str, Iterator[Problem]]:
    """The text of a file with every forbidden character replaced, and a problem for each of them."""
    if len(data) > MOST_BYTES:
        raise Unreadable(Problem(Origin(file, 1, 1), f"{len(data)} bytes", f"at most {MOST_BYTES} (1 MiB)"))
    # One C pass settles almost every file that people write.
    if data.isascii() and not data.translate(None, _PLAIN_ASCII):
        return data.decode("ascii"), iter(())
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        found = f"the byte 0x{data[error.start]:02X} at offset {error.start}"
        origin = place(data[: error.start].decode("utf-8").removeprefix("\ufeff"), -1, file)
        raise Unreadable(Problem(origin, found, "UTF-8", "save the file as UTF-8")) from None
    if _NOWHERE.search(text) is None:
        return text, iter(())
    return _NOWHERE.sub(REPLACED, text), _forbidden(text, file)


def hidden_in(text: str) -> str:
    """Name the first character of a value that a reader would not see, or the empty string."""
    found = _HIDDEN.search(text)
    return character(found[0]) if found else ""


def character(char: str) -> str:
    """A character as a person can look it up: its number, and its name where it has one."""
    name = unicodedata.name(char, "half of a surrogate pair" if "\ud800" <= char <= "\udfff" else "").lower()
    return f"U+{ord(char):04X}" + (f" ({name})" if name else "")


def shown(text: str, most: int = 80) -> str:
    """Text from a file in backticks, cut short, with everything invisible spelt out."""
    return f"`{visible(text[:most])}…`" if len(text) > most else f"`{visible(text)}`"


def place(text: str, index: int, file: str) -> Origin:
    """Where the character at `index` stands; -1 or beyond means after the last one."""
    index = len(text) if not 0 <= index <= len(text) else index
    return Origin(file, text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _forbidden(text: str, file: str) -> Iterator[Problem]:
    line, start = 1, 0
    for match in _NOWHERE.finditer(text):
        index = match.start()
        if breaks := text.count("\n", start, index):
            line, start = line + breaks, text.rfind("\n", start, index) + 1
        origin = Origin(file, line, index - start + 1)
        if match[0] == "\r":
            yield Problem(
                origin, "a carriage return alone", "a line feed", "editors show one line where YAML reads two"
            )
        else:
            yield Problem(origin, character(match[0]), "only characters that can be seen", "delete it")
