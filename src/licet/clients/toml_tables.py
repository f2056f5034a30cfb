"""TOML: reads it, and edits single tables of servers.

`tomlkit` says where each statement (a header, or a key with its value) is; an entry is every statement about it. It
gets one section of the file after the other, since it puts tables of a whole file in another order. `tomllib` reads the
file before and after each edit.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from licet.clients.jsonc import BadConfig, KeyPath, Original, Span, newline_of, table_of
from licet.clients.limits import TOML_CHARACTERS
from licet.core.late_pattern import late_pattern

if TYPE_CHECKING:
    from tomlkit.items import Item, Key

_HEADER = late_pattern(r"^[ \t]*\[", re.MULTILINE)  # or a line inside of a value
_MARKED = late_pattern("\0[^\1]*\1\r?\n?")  # no TOML has these two characters
_BLANK = late_pattern(r"(?:[ \t]*\r?\n)+")


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
    from tomlkit.exceptions import TOMLKitError  # not needed before an edit

    if len(text) > TOML_CHARACTERS:
        raise BadConfig(f"it is larger than {TOML_CHARACTERS >> 10} KiB: edit it by hand")
    at = int(text.startswith("\ufeff"))
    ends = [*(one.start() for one in _HEADER.finditer(text, at + 1)), len(text)]
    done, count = 0, 1
    while at < len(text):
        end = ends[min(done + count, len(ends)) - 1]
        try:
            yield from list(_in_section(text[at:end], at))
        except (TOMLKitError, RecursionError):
            if end == len(text):
                raise BadConfig("it cannot be edited: edit it by hand") from None
            count *= 2  # it ends inside of a value
        else:
            at, done, count = end, done + count, 1


def _in_section(text: str, start: int) -> Iterator[_Statement]:
    """The statements of a part of a file, found by having it written again with a mark at both ends of each."""
    import tomlkit

    document = tomlkit.parse(text)
    found = list(_mark(document.body, (), ()))
    marked = document.as_string()
    if marked.replace("\0", "").replace("\1", "") != text:
        raise BadConfig("it cannot be edited without a change elsewhere: edit it by hand")
    for (path, header), place in zip(found, _MARKED.finditer(marked), strict=True):
        yield _Statement(start + place.start(), start + place.end() - 2, path, header)
        start -= 2  # the marks


def _mark(
    body: Iterable[tuple["Key | None", "Item"]], path: KeyPath, header: KeyPath
) -> Iterator[tuple[KeyPath, KeyPath | None]]:
    """Mark the statements of a table, in the order of the file: the path of each, and of the header it stands under."""
    from tomlkit.items import AoT, Table

    for key, item in body:
        if isinstance(item, AoT):
            yield from _mark([(key, one) for one in item.body], path, header)
        elif key is not None:  # neither a comment nor blanks
            here, table = (*path, key.key), item if isinstance(item, Table) else None
            if table is None or not (table.is_super_table() or key.is_dotted()):  # those have no line of their own
                item.trivia.indent = "\0" + item.trivia.indent
                item.trivia.trail = "\1" + item.trivia.trail
                yield here, header if table is None else None
            if table is not None:
                yield from _mark(table.value.body, here, header if key.is_dotted() else here)


def _runs(text: str, table: KeyPath, names: Iterable[str]) -> list[_Run]:
    """The runs of statements about the named entries, in the order of the file."""
    wanted, before = set(names), None
    runs: list[_Run] = []
    for one in _statements(text):
        about = one.path[len(table)] if len(one.path) > len(table) and one.path[: len(table)] == table else None
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
    import tomlkit

    path = (*table, name)
    if header is not None:
        inline = tomlkit.inline_table()
        inline.update(data)
        return f"{tomlkit.key(path[len(header) :]).as_string()} = {inline.as_string()}{newline}"
    for key in reversed(path):
        data = {key: data}
    return tomlkit.dumps(data).replace("\n", newline)
