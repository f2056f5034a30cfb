"""Edits of a text as replaced spans: whatever lies outside of them stays as it is, byte for byte."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from licet.errors import LicetError

KeyPath = tuple[str, ...]


class BadConfig(LicetError):
    """A configuration that cannot be read or edited safely. The text has the reason."""


class Span(Struct, frozen=True):
    """A part of a text, and what takes its place."""

    start: int
    end: int
    text: str = ""


class Original(Struct, frozen=True):
    """An entry as it was: its text, and what it said."""

    text: str
    data: Any


class ConfigFormat(Protocol):
    """How the server entries of one kind of file are read and edited. `table` is the path of keys to the entries."""

    def read(self, text: str) -> dict[str, Any]:
        """The whole file as data; raises `BadConfig`."""

    def originals(self, text: str, table: KeyPath, names: Iterable[str]) -> dict[str, Original]:
        """The named entries as they are written."""

    def swap(self, text: str, table: KeyPath, names: Iterable[str], new: str, data: Mapping[str, Any]) -> list[Span]:
        """Put one entry in the place of the first named one, and take the other named ones out.

        An entry called `new` that says the same as `data` already stays, and all named ones are taken out.
        """

    def put_back(self, text: str, table: KeyPath, new: str, originals: Mapping[str, Original]) -> list[Span]:
        """Put entries in the place of the one called `new`, or at the end if that is gone (`new` is then empty)."""


def apply(text: str, spans: Iterable[Span]) -> str:
    """The text with each span replaced."""
    parts, at = [], 0
    for span in sorted(spans, key=lambda one: (one.start, one.end)):
        if span.start < at:
            raise BadConfig("two edits of one place")
        parts += [text[at : span.start], span.text]
        at = span.end
    return "".join((*parts, text[at:]))


def newline_of(text: str) -> str:
    """The line ending that a text uses first."""
    found = re.search(r"\r?\n", text)
    return found[0] if found else "\n"


def table_of(data: Any, table: KeyPath) -> dict[str, Any]:
    """The entries at a path of keys; none if there is no such table."""
    for key in table:
        data = data.get(key) if isinstance(data, dict) else None
    if data is not None and not isinstance(data, dict):
        raise BadConfig(f"`{'.'.join(table)}` is no table of servers")
    return data or {}


def swapped(data: dict[str, Any], names: Iterable[str], new: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a table says after `swap`, in order."""
    gone, result = set(names), {}
    is_there = new in data and new not in gone
    for name, value in data.items():
        if name not in gone:
            result[name] = value
        elif not is_there:
            result[new], is_there = dict(entry), True
    return result


def checked(form: ConfigFormat, text: str, spans: list[Span], table: KeyPath, expected: Mapping[str, Any]) -> str:
    """The edited text, once it is sure that it says what was meant and nothing else has changed."""
    edited = apply(text, spans)
    try:
        after = form.read(edited)
    except BadConfig as wrong:
        raise BadConfig(f"the edit would break it ({wrong})") from None
    before = form.read(text)
    if table_of(after, table) != expected:
        raise BadConfig("the edit would say something else than was meant")
    if _without(before, table) != _without(after, table):
        raise BadConfig("the edit would change more than the server entries")
    return edited


def _without(data: dict[str, Any], table: KeyPath) -> Any:
    """The data with an empty table; a table that is not there counts as empty."""
    if not table:
        return {}
    inner = data.get(table[0])
    return {**data, table[0]: _without(inner if isinstance(inner, dict) else {}, table[1:])}
