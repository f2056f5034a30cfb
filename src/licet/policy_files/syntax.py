"""The syntax of policy files: decodes bytes to text, and parses YAML or JSON into one kind of events.

- Text must be UTF-8 of at most 1 MiB, without invisible characters and unusual line breaks. Each such character is
  replaced by another one, so that the rest of the file can be read and its problems reported in the same run.
- JSON has its own parser. YAML 1.1 parsers refuse some JSON (surrogate pairs, keys over 1024 characters) and accept
  more than JSON (comments, words without quotes).

`nodes` turns the events into nodes.
"""

import bisect
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, NoReturn

from licet.core.algebra.scope import UNSEEN, visible
from licet.core.origin import Origin, Problem

MOST_BYTES = 1 << 20
REPLACED = "\ufffd"

_PLAIN_ASCII = bytes(range(0x20, 0x7F)) + b"\t\n"

# Refused everywhere, also in comments: control characters, bidi controls, a byte order mark that is not at the start,
# and unusual line breaks (a lone CR, U+0085, U+2028, U+2029), where editors show one line and YAML reads two.
_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff"
_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_NOWHERE = re.compile(rf"[{_CONTROLS}{_BIDI}\ufeff]|\r(?!\n)")

# Refused in keys and values, also as escapes: characters without a width (U+E0000 to U+E007F can hide a sentence), and
# lone surrogates, which UTF-8 cannot encode.
_INVISIBLE = r"\u00ad\u180e\u200b-\u200d\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_HIDDEN = re.compile(rf"[{_CONTROLS}{_BIDI}{_INVISIBLE}{UNSEEN}\r\ud800-\udfff]")


class Unreadable(ValueError):
    """A problem after which the rest of the file cannot be read."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def plain_text(data: bytes, file: str) -> tuple[str, Iterator[Problem]]:
    """Decode a file; return the text with forbidden characters replaced, and a problem for each of them."""
    if len(data) > MOST_BYTES:
        raise Unreadable(Problem(Origin(file, 1, 1), f"{len(data)} bytes", f"at most {MOST_BYTES} (1 MiB)"))
    # A fast path for plain ASCII, which most files are.
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
    """The name of the first invisible character in a value; empty if there is none."""
    found = _HIDDEN.search(text)
    return character(found[0]) if found else ""


def character(char: str) -> str:
    """A character as text for a message, such as `U+200B (zero width space)`."""
    name = unicodedata.name(char, "half of a surrogate pair" if "\ud800" <= char <= "\udfff" else "").lower()
    return f"U+{ord(char):04X}" + (f" ({name})" if name else "")


def shown(text: str, most: int = 80) -> str:
    """Text from a file for a message: in backticks, cut after `most` characters, invisible characters escaped."""
    return f"`{visible(text[:most])}…`" if len(text) > most else f"`{visible(text)}`"


def place(text: str, index: int, file: str) -> Origin:
    """The line and column of the character at `index`; -1 or an index beyond the end means the end of the text."""
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


_OPENED = "it opens at {opened}"

# Fragments of the error messages of libyaml and PyYAML, with the expectation and the hint that are shown instead.
_COMPLAINTS = (
    ("mapping values", "one `key: value` on a line", "quote the text if the `:` belongs to it"),
    ("sequence entries", "a list to start on its own line", ""),
    ("mapping keys", "a key without `?`", ""),
    ("start any token", "a value", "quote the text if it begins with this character"),
    ("',' or ']'", "`,` or `]`", _OPENED),
    ("',' or '}'", "`,` or `}`", _OPENED),
    ("node content", "a value", ""),
    ("'-' indicator", "another item, indented like the first", ""),
    ("expected key", "another key, indented like the first", ""),
    ("<block end>", "more of the same, indented like the first", ""),
    ("expected ':'", "`:` after the key", ""),
    ("unexpected end", "a closing quote", _OPENED),
    ("unexpected document", "a closing quote", _OPENED),
    ("<document start>", "nothing more after the value", ""),
    ("Unicode character escape", "the escape of a whole character", "write the character itself"),
    ("escape character", "an escape that YAML knows", "double the backslash, or use single quotes"),
    ("numbers", "hexadecimal digits", ""),
    ("number", "hexadecimal digits", ""),
    ("alphabetic", "a name of letters and digits", "quote the text if it begins with `*` or `&`"),
    ("directive", "a file without `%` lines", ""),
    ("incompatible", "a file without `%` lines", ""),
    ("handle", "a value without a tag", ""),
    ("tag", "a value without a tag", ""),
    ("URI", "a value without a tag", ""),
    ("'>'", "a value without a tag", ""),
    ("'!'", "a value without a tag", ""),
    ("' '", "a value without a tag", ""),
    ("indentation indicator", "an indentation from 1 to 9", ""),
    ("tab", "spaces", "indent with spaces"),
    ("line break", "the end of the line", ""),
    ("chomping", "the end of the line", ""),
)
_WORD = re.compile(r"[\w.-]{1,40}|.", re.DOTALL)

_JSON_TOKEN = re.compile(r'[ \t\n\r]*([][{},:"]|[^][{},:" \t\n\r]+|)')
_JSON_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


def yaml_events(text: str, file: str) -> Iterator[Any]:
    """Parse YAML into events; with libyaml if PyYAML was built with it."""
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)
    try:
        yield from iter(loader.get_event, None)
    except yaml.MarkedYAMLError as error:
        raise Unreadable(_complaint(error, text, file)) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # For escapes such as "\U00110000", the Python parser raises an error without a place.
        origin = place(text, loader.get_mark().index if hasattr(loader, "get_mark") else -1, file)
        raise Unreadable(Problem(origin, "an escape", "the escape of a whole character")) from None


def _complaint(error: Any, text: str, file: str) -> Problem:
    message = str(error.problem)
    index = min(error.problem_mark.index, len(text))
    expected, hint = next(((e, h) for words, e, h in _COMPLAINTS if words in message), ("valid YAML", message))
    found = _at(text, index)
    if found == "a tab":
        hint = "indent with spaces"
    elif hint is _OPENED:
        opened = error.context_mark
        hint = hint.format(opened=Origin(file, opened.line + 1, opened.column + 1).full)
    return Problem(place(text, index, file), found, expected, hint)


def _at(text: str, index: int) -> str:
    match = _WORD.match(text, index)
    if match is None:
        return "the end of the file"
    return {"\n": "the end of the line", "\r": "the end of the line", "\t": "a tab", " ": "a space"}.get(
        match[0], shown(match[0])
    )


def json_events(text: str, file: str) -> Iterator[Any]:
    """Parse JSON strictly by RFC 8259 into the same events as YAML."""
    import json.decoder

    import yaml

    lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def refuse(index: int, expected: str, hint: str = "") -> NoReturn:
        raise Unreadable(Problem(place(text, index, file), _at(text, index), expected, hint))

    closers: list[str] = []
    fresh = False  # directly after `[` or `{`, where the closing bracket is allowed instead of a value
    wants = "value"
    end = 0
    while match := _JSON_TOKEN.match(text, end):
        piece, start, end = match[1], match.start(1), match.end()
        if not piece and not closers:
            return
        line = bisect.bisect_right(lines, start) - 1
        mark = yaml.Mark(file, start, line, start - lines[line], None, 0)
        if closers and piece == closers[-1] and (fresh or wants == "more"):
            yield (yaml.SequenceEndEvent if closers.pop() == "]" else yaml.MappingEndEvent)(mark, mark)
            fresh, wants = False, "more"
        elif wants == "more":
            if not closers:
                refuse(start, "nothing more after the value")
            if piece != ",":
                refuse(start, f"`,` or `{closers[-1]}`")
            wants = "key" if closers[-1] == "}" else "value"
        elif wants == "colon":
            if piece != ":":
                refuse(start, "`:` after the key")
            wants = "value"
        elif piece == '"':
            try:
                value, end = json.decoder.scanstring(text, end, True)  # type: ignore[attr-defined]
            except json.JSONDecodeError as error:
                if error.msg.startswith("Unterminated"):
                    refuse(len(text), "a closing quote", _OPENED.format(opened=place(text, start, file).full))
                control = error.msg.startswith("Invalid control")
                refuse(error.pos, "a closing quote before it" if control else "an escape that JSON knows")
            yield yaml.ScalarEvent(None, None, (False, True), value, mark, mark, style='"')
            fresh, wants = False, "colon" if wants == "key" else "more"
        elif wants == "key":
            refuse(start, 'a key in `"` quotes')
        elif piece in ("[", "{"):
            closers.append("]" if piece == "[" else "}")
            yield (yaml.SequenceStartEvent if piece == "[" else yaml.MappingStartEvent)(None, None, True, mark, mark)
            fresh, wants = True, "value" if piece == "[" else "key"
        elif _JSON_PLAIN.fullmatch(piece):
            yield yaml.ScalarEvent(None, None, (True, False), piece, mark, mark)
            fresh, wants = False, "more"
        else:
            refuse(start, "a JSON value", 'put text in `"` quotes' if piece.isalnum() else "")
