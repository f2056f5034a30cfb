"""Reads the answer to a list of which some items are no JSON for everybody, so that these items alone are lost.

A server can write `NaN` or `1e400` into one schema, half a surrogate pair into one description, a key twice, or more
levels than a message may have. Then no parser is used on the answer as a whole: its items are cut out by their
brackets, and each of them is read as a message would be.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from licet.declare.plain_json import is_heavy
from licet.mcp.jsonrpc import BadMessage, Response, read_message
from licet.mcp.limits import LONGEST_NAME, MOST_BROKEN_MARKS, MOST_DEFINITIONS, MOST_UNITS

# A text that is not closed ends with the line: otherwise the search would begin again at each quote inside it.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
_MARKS = (b'"', b"[", b"{", b",")
_OBJECT = re.compile(rb"\s*:\s*\{")
_LIST = re.compile(rb"\s*:\s*\[")
_TEXT = re.compile(rb'\s*:\s*("(?:[^"\\]++|\\.)*+")', re.DOTALL)
_CONSTANT = re.compile(r"NaN|-?Infinity")


class Unreadable(Struct, frozen=True):
    """An item of a list that cannot be read: its name, if that can be told, and why."""

    name: str
    why: str


def broken_list(line: bytes, *, key: str, name: str) -> dict[str, Any] | None:
    """The result of an answer with the list `key`, in which an `Unreadable` stands for each item that cannot be read.

    None if something else in the line is wrong, or it has more than can be read so. `name` is the key that tells items
    apart. It may take a second or two: not for an event loop.
    """
    if is_heavy(line, MOST_UNITS) or sum(map(line.count, _MARKS)) > MOST_BROKEN_MARKS:
        return None
    span = _list_span(line, key)
    if span is None or len(span[2]) > MOST_DEFINITIONS:
        return None
    start, end, items = span
    try:
        answer = read_message(line[:start] + line[end:])
        if not isinstance(answer, Response) or not isinstance(answer.data, dict) or answer.data.get(key) != []:
            return None
    except BadMessage:
        return None
    return {**answer.data, key: [_read(item, key, name) for item in items]}


def _read(item: bytes, key: str, name: str) -> Any:
    nested = f'{{"jsonrpc":"2.0","id":1,"result":{{"{key}":['.encode()  # as many levels as in the answer
    try:
        answer = read_message(nested + item + b"]}}")
    except BadMessage as bad:
        return Unreadable(_name(item, name), f"it cannot be read: {_reason(item, bad)}")
    values = answer.data[key] if isinstance(answer, Response) and isinstance(answer.data, dict) else []
    if len(values) == 1:  # none between two commas
        return values[0]
    return Unreadable("", "it cannot be read: not JSON")


def _reason(item: bytes, bad: BadMessage) -> str:
    """Why an item cannot be read, more exactly than that it is no JSON."""
    numbers: list[str] = []
    try:
        text = item.decode()
        json.loads(text, parse_constant=numbers.append, parse_float=lambda digits: _kept(digits, numbers))
    except (ValueError, RecursionError):
        return bad.reason
    if numbers:
        return f"`{numbers[0][:40]}` is no number in JSON" if _CONSTANT.fullmatch(numbers[0]) else _TOO_LARGE
    return "a text with half a surrogate pair" if bad.reason == "not JSON" else bad.reason


_TOO_LARGE = "a number that is too large for a reader"


def _kept(digits: str, numbers: list[str]) -> float:
    number = float(digits)
    if abs(number) == float("inf"):
        numbers.append(digits)
    return number


def _name(item: bytes, name: str) -> str:
    """The name of an item that cannot be read; empty if it has none, or several."""
    names = [text for depth, text in _texts_at(item, name) if depth == 1]
    return names[0] if len(names) == 1 and len(names[0]) <= LONGEST_NAME else ""


def _texts_at(item: bytes, key: str) -> Iterator[tuple[int, str]]:
    """Each text under a key, with the depth of the object that has it."""
    depth = 0
    for token in _TOKEN.finditer(item):
        mark = token[0]
        if mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
        elif mark != b"," and _decoded(mark) == key and (value := _TEXT.match(item, token.end())):
            yield depth, _decoded(value[1])


def _decoded(text: bytes) -> str:
    try:
        decoded: str = json.loads(text)
    except ValueError:
        return ""
    return decoded


def _list_span(line: bytes, key: str) -> tuple[int, int, list[bytes]] | None:
    """Where the items of `result.KEY` begin and end, and each of them; None if the brackets do not fit."""
    depth, start, item_start, in_result = 0, -1, -1, False
    items: list[bytes] = []
    for token in _TOKEN.finditer(line):
        mark = token[0]
        if mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
            in_result = in_result and depth >= 2
            if start >= 0 and depth == 2:
                last = line[item_start : token.start()]
                return start, token.start(), [*items, last] if items or last.strip() else []
        elif mark == b"," and start >= 0 and depth == 3:
            items.append(line[item_start : token.start()])
            item_start = token.end()
        elif start < 0 and mark != b",":
            if depth == 1 and _decoded(mark) == "result" and _OBJECT.match(line, token.end()):
                in_result = True
            elif depth == 2 and in_result and _decoded(mark) == key and (opened := _LIST.match(line, token.end())):
                start = item_start = opened.end()
    return None
