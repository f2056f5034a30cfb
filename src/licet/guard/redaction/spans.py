"""Spans of secrets in a text, and their replacement by labels: in plain text, and in JSON that must stay JSON."""

import json
import re
from collections.abc import Generator
from contextlib import suppress

from msgspec import Struct


class Span(Struct, frozen=True):
    """The position of a secret, and the label that replaces it."""

    start: int
    end: int
    label: bytes


def merged(spans: list[Span]) -> list[Span]:
    """Sort spans, and join those that overlap, under the label of the first (of two with one start, the longer)."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, span.end), last.label)
        else:
            merged.append(span)
    return merged


def replaced(raw: bytes, spans: list[Span], until: int, done: int = 0) -> bytes:
    """The text from `done` to `until`, with spans replaced by their labels."""
    parts = []
    for span in spans:
        if span.start >= until:
            break
        parts += [raw[done : span.start], span.label]
        done = span.end
    parts.append(raw[done:until])
    return b"".join(parts)


# JSON ----------------------------------------------------------------------------------------------------------------

# It begins with a set of characters, and matches at each of them, so the search never goes back. A string that is not
# closed ends with the text, and group 1 matches.
_TOKEN = re.compile(
    rb"""["0-9tfn{}-](?:(?<=")(?:[^"\\]+|\\.)*+(?:"|(\\?\Z))|(?<=[0-9])[-+.0-9eE]*+|(?<=-)[0-9][-+.0-9eE]*+
    |(?<=t)rue|(?<=f)alse|(?<=n)ull|)""",
    re.DOTALL | re.VERBOSE,
)
_NO_VALUES = b'"{}-tfn'  # these characters alone
_ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*+:")
_STRUCTURE = re.compile(rb"[\s{}\[\]:,]*")
_TOKENS = 2000  # between two pauses


def replaced_in_json(text: bytes, spans: list[Span]) -> Generator[None, None, bytes]:
    """Replace spans by labels, so that valid JSON stays valid. Works on a text that is not JSON, too."""
    parts: list[bytes] = []
    keys = _RedactedKeys(text)
    index = done = 0
    for number, token in enumerate(_TOKEN.finditer(text), 1):
        if number % _TOKENS == 0:
            yield
        start, end = token.span()
        if end - start == 1 and text[start] in _NO_VALUES:
            keys.follow(text[start])
            continue
        while index < len(spans) and spans[index].start < start:  # spans between two tokens
            part = text[max(spans[index].start, done) : min(spans[index].end, start)]
            if not _STRUCTURE.fullmatch(part):
                parts += [text[done : max(spans[index].start, done)], spans[index].label]
                done = max(done, min(spans[index].end, start))
            if spans[index].end > start:
                break
            index += 1
        if index == len(spans):
            break
        if spans[index].start >= end:
            continue
        if text[start] == 0x22:
            clean = yield from _redacted_string(text, token, spans, index)
            if _COLON.match(text, end):
                clean = yield from keys.unique(clean)
        else:
            word = text[start] in b"tfn"  # true, false or null, and not a number
            clean = text[start:end] if word else b'"' + _inside_json(spans[index].label) + b'"'
        parts += [text[done:start], clean]
        done = end
        while index < len(spans) and spans[index].end <= end:
            index += 1
    for span in spans[index:]:
        if not _STRUCTURE.fullmatch(text[max(span.start, done) : span.end]):
            parts += [text[done : max(span.start, done)], span.label]
            done = max(done, span.end)
    parts.append(text[done:])
    clean = b"".join(parts)
    try:
        clean.decode()
    except UnicodeDecodeError:  # a value that is not UTF-8 was part of a character
        clean = clean.decode("utf-8", "replace").encode()
    return clean


def _redacted_string(
    text: bytes, token: re.Match[bytes], spans: list[Span], index: int
) -> Generator[None, None, bytes]:
    start, end = token.span()
    last = end - 1 if token[1] is None else end  # the position of the closing quote
    parts, done = [], start
    escapes = _ESCAPE.finditer(text, start + 1, last)
    first = behind = start + 1  # the start and end of an escape
    steps = 0
    while index < len(spans) and spans[index].start < last:
        places = []
        for place in (max(spans[index].start, start + 1), min(spans[index].end, last)):
            while behind <= place and (escape := next(escapes, None)) is not None:
                first, behind = escape.span()
                if (steps := steps + 1) % _TOKENS == 0:
                    yield
            places.append((first, behind) if first < place < behind else (place, place))  # no escape is cut in two
        low, high = places[0][0], places[1][1]
        if low >= done and low < high:
            parts += [text[done:low], _inside_json(spans[index].label)]
        done = max(done, high)
        index += 1
        if (steps := steps + 1) % _TOKENS == 0:
            yield
    return b"".join((*parts, text[done:end]))


def _inside_json(label: bytes) -> bytes:
    narrow = label.replace(
        b"\0", b""
    )  # of a label in UTF-16: inside JSON in a string, NUL would have to be escaped twice
    return json.dumps(narrow.decode("utf-8", "replace"), ensure_ascii=False)[1:-1].encode("utf-8", "replace")


class _RedactedKeys:
    """Numbers redacted keys that equal another key of their object, because a reader would lose one of the two."""

    __slots__ = ("_counts", "_depth", "_known", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._depth = 0
        self._counts: dict[int, dict[str, int]] = {}  # of the open object of each depth: how often a key came
        self._known: set[str] | None = None  # keys of the text that look like redacted ones

    def follow(self, sign: int) -> None:
        """Note whether an object begins or ends."""
        if sign == 0x7B:
            self._depth += 1
        elif sign == 0x7D and self._depth:
            self._counts.pop(self._depth, None)
            self._depth -= 1

    def unique(self, key: bytes) -> Generator[None, None, bytes]:
        """A redacted key, with a number if it is not the first one in its object."""
        if self._known is None:
            self._known = yield from _keys_with_labels(self._text)
        # Among keys that look alike, count through all objects.
        counts = self._counts.setdefault(0 if self._known else self._depth, {})
        name = _decoded(key)
        found, number, mark = name, counts.get(name, 0) + 1, ""
        while found in self._known or found in counts:
            number = max(number, 2)
            mark = f" ({number})"
            found = name + mark
            number += 1
            if number % _TOKENS == 0:
                yield
        counts[found] = max(counts.get(found, 0), 1)
        counts[name] = max(number - 1, 1)
        return key[:-1] + mark.encode() + b'"' if mark else key


_LABELS = ("[redacted", "[…]")


def _keys_with_labels(text: bytes) -> Generator[None, None, set[str]]:
    found: set[str] = set()
    if b"\\" not in text and not any(label.encode() in text for label in _LABELS):
        return found
    for number, token in enumerate(_TOKEN.finditer(text), 1):
        if number % _TOKENS == 0:
            yield
        if text[token.start()] == 0x22 and _COLON.match(text, token.end()):
            key = _decoded(token[0])
            if any(label in key for label in _LABELS):
                found.add(key)
    return found


def _decoded(key: bytes) -> str:
    """A key as a reader of JSON sees it."""
    shown = key.decode("utf-8", "replace")
    if "\\" in shown:
        with suppress(ValueError):  # not JSON
            return str(json.loads(shown, strict=False))
    return shown[1:-1]
