"""TOML: reads it, and edits single tables of servers.

The text is cut into statements (headers, and keys with their values); an entry is every statement about it. `tomllib`
reads the file before and after each edit, so the cutting need not refuse anything by itself.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.clients.jsonc import BadConfig, KeyPath, Original, Span, newline_of, table_of

_STRING = r"\"\"\"(?:\\.|[^\\])*?\"\"\"\"{0,2}|'''.*?''''{0,2}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'"
_KEY = re.compile(r"[ \t]*(?P<part>[A-Za-z0-9_-]+|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*')[ \t]*(?P<dot>\.?)", re.DOTALL)
_VALUE = re.compile(
    rf"(?P<string>{_STRING})|#[^\n]*|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<end>\n)|[^\n\"'#\[\]{{}}]+", re.DOTALL
)
_BLANK = re.compile(r"(?:[ \t]*\r?\n)+")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _Statement(Struct, frozen=True):
    """A header, or a key with its value, with all of its lines. `path` is the whole path of its key."""

    start: int
    end: int
    path: KeyPath
    header: KeyPath | None  # of the table that it stands in; None for a header itself


class _Run(Struct, frozen=True):
    """Statements about one entry that follow each other."""

    name: str
    start: int
    end: int
    first: _Statement


def _statements(text: str) -> Iterator[_Statement]:
    at, header = int(text.startswith("\ufeff")), KeyPath()
    while at < len(text):
        here = at
        while text[here : here + 1] in (" ", "\t"):
            here += 1
        if text[here : here + 1] in ("", "#", "\n", "\r"):
            at = _line_end(text, here)
        elif text[here] == "[":
            header, end = _keys(text, here + (2 if text[here : here + 2] == "[[" else 1))
            end = _line_end(text, end)
            yield _Statement(at, end, header, None)
            at = end
        else:
            keys, end = _keys(text, here)
            end = _value_end(text, end)
            yield _Statement(at, end, (*header, *keys), header)
            at = end


def _keys(text: str, at: int) -> tuple[KeyPath, int]:
    """The keys of a dotted key, and where it ends."""
    keys: list[str] = []
    while found := _KEY.match(text, at):
        part = found["part"]
        keys.append(tomllib.loads(f"k = {part}")["k"] if part[0] in "\"'" else part)
        at = found.end()
        if not found["dot"]:
            return tuple(keys), at
    raise BadConfig("a key could not be read")


def _value_end(text: str, at: int) -> int:
    """The end of the line on which a value ends."""
    depth = 0
    while found := _VALUE.match(text, at):
        at = found.end()
        depth += bool(found["open"]) - bool(found["close"])
        if found["end"] and depth <= 0:
            return at
    if at < len(text):
        raise BadConfig("a value could not be read")
    return at


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _runs(text: str, table: KeyPath, names: Iterable[str]) -> list[_Run]:
    """The runs of statements about the named entries, in the order of the file."""
    wanted, before = set(names), ""
    runs: list[_Run] = []
    for one in _statements(text):
        about = one.path[len(table)] if len(one.path) > len(table) and one.path[: len(table)] == table else ""
        if one.path == table and one.header is not None:
            raise BadConfig(f"`{'.'.join(table)}` is written as one value: write a table for each server")
        if about in wanted and about == before:
            runs[-1] = _Run(about, runs[-1].start, one.end, runs[-1].first)
        elif about in wanted:
            runs.append(_Run(about, one.start, one.end, one))
        before = about
    return runs


class Toml:
    """Reads and edits TOML files."""

    def read(self, text: str) -> dict[str, Any]:
        """The whole file as data."""
        try:
            return tomllib.loads(text.removeprefix("\ufeff"))
        except (tomllib.TOMLDecodeError, RecursionError) as wrong:
            # The message of the parser names a place, and may quote one character.
            raise BadConfig(f"it is no TOML: {wrong}") from None

    def originals(self, text: str, table: KeyPath, names: Iterable[str]) -> dict[str, Original]:
        """The named entries as they are written; parts of one that are apart are joined."""
        data = table_of(self.read(text), table)
        texts: dict[str, str] = {}
        for run in _runs(text, table, names):
            texts[run.name] = texts.get(run.name, "") + _ended(text[run.start : run.end], text)
        return {name: Original(written, data[name]) for name, written in texts.items()}

    def swap(self, text: str, table: KeyPath, names: Iterable[str], new: str, data: Mapping[str, Any]) -> list[Span]:
        """Put one entry in the place of the first part of a named one, and take the other parts out."""
        gone = set(names)
        runs = _runs(text, table, gone)
        if not runs:
            raise BadConfig(f"there is no `{'.'.join(table)}`")
        if new in table_of(self.read(text), table) and new not in gone:
            return [_with_blank_lines(text, run) for run in runs]
        first = runs[0]
        written = _entry_text(table, first.first.header, new, data, newline_of(text))
        return [Span(first.start, first.end, written), *(_with_blank_lines(text, run) for run in runs[1:])]

    def put_back(self, text: str, table: KeyPath, new: str, originals: Mapping[str, Original]) -> list[Span]:
        """Put entries in the place of the one called `new`, or at the end of the file."""
        newline, runs = newline_of(text), _runs(text, table, {new} if new else ())
        if not runs:
            tables = [_entry_text(table, None, name, one.data, newline) for name, one in originals.items()]
            return [Span(len(text), len(text), "".join(_lead(text, newline) + one for one in tables))] if tables else []
        first, rest = runs[0], [_with_blank_lines(text, run) for run in runs[1:]]
        if not originals:
            return [_with_blank_lines(text, first), *rest]
        in_header = first.first.header is None
        texts = [
            one.text
            if _is_header(one.text) == in_header
            else _entry_text(table, first.first.header, name, one.data, newline)
            for name, one in originals.items()
        ]
        return [Span(first.start, first.end, (newline if in_header else "").join(texts)), *rest]


def _is_header(text: str) -> bool:
    return text.lstrip().startswith("[")


def _ended(written: str, text: str) -> str:
    return written if written.endswith("\n") else written + newline_of(text)


def _lead(text: str, newline: str) -> str:
    return newline if not text or text.endswith("\n") else newline * 2


def _with_blank_lines(text: str, run: _Run) -> Span:
    blank = _BLANK.match(text, run.end)
    return Span(run.start, blank.end() if blank else run.end)


def _entry_text(table: KeyPath, header: KeyPath | None, name: str, data: Mapping[str, Any], newline: str) -> str:
    """An entry as a table of its own, or as one line inside the table of `header`."""
    if header is not None:
        key = ".".join(map(_key, (*table, name)[len(header) :]))
        return f"{key} = {_value(data)}{newline}"
    lines = [f"[{'.'.join(map(_key, (*table, name)))}]", *(f"{_key(key)} = {_value(one)}" for key, one in data.items())]
    return newline.join(lines) + newline


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _value(text)


def _value(value: Any) -> str:
    """A value on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():  # the escapes of JSON are those of TOML, apart from DEL, which TOML wants escaped too
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return str(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return f"{{ {', '.join(f'{_key(key)} = {_value(one)}' for key, one in value.items())} }}"
        case _:
            return str(value.isoformat())
