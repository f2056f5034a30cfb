"""Syntax: the text of a YAML or JSON file as one stream of events, or the one place where it stops making sense.

JSON has its own small reader because YAML 1.1 parsers do not read all of it (surrogate pairs, keys over 1024
characters) and read more than it (comments, bare words). What the events mean is decided in `yaml_nodes`.
"""

import bisect
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from licet.backends.yaml_text import Unreadable, place, shown
from licet.core.origin import Origin, Problem

__all__ = ["json_events", "yaml_events"]

_OPENED = "it opens at {opened}"

# What a parser complains about (libyaml's words and PyYAML's), and what to tell a person instead.
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
    """Every event of a YAML stream, from libyaml where PyYAML has it."""
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)
    try:
        yield from iter(loader.get_event, None)
    except yaml.MarkedYAMLError as error:
        raise Unreadable(_complaint(error, text, file)) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # The pure parser stumbles over escapes such as "\U00110000" without saying where.
        origin = place(text, loader.get_mark().index if hasattr(loader, "get_mark") else -1, file)
        raise Unreadable(Problem(origin, "an escape", "the escape of a whole character")) from None


def _complaint(error: Any, text: str, file: str) -> Problem:
    said = str(error.problem)
    index = min(error.problem_mark.index, len(text))
    expected, hint = next(((e, h) for words, e, h in _COMPLAINTS if words in said), ("valid YAML", said))
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
    """The same events from a JSON text, read by RFC 8259 and nothing looser."""
    import json.decoder

    import yaml

    lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def refuse(index: int, expected: str, hint: str = "") -> NoReturn:
        raise Unreadable(Problem(place(text, index, file), _at(text, index), expected, hint))

    closers: list[str] = []
    fresh = False  # right after `[` or `{`, the only place where a closer may stand in for a first item
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
