"""Spans of secrets in a text, and their replacement by labels: in plain text, and in JSON that must stay JSON."""

import json
import re
from collections.abc import Generator

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

_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*+"|-?[0-9][-+.0-9eE]*+|true|false|null', re.DOTALL)
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
        keys.follow(start, end)
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
        parts += [text[done:start], _redacted_token(text, start, end, spans, index)]
        done = end
        if text[end : end + 1] == b":" and parts[-1][:1] == b'"':
            parts[-1] = keys.unique(parts[-1])
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


def _redacted_token(text: bytes, start: int, end: int, spans: list[Span], index: int) -> bytes:
    if text[start] in b"tfn":  # true, false or null
        return text[start:end]
    if text[start] != 0x22:  # a number
        return b'"' + _inside_json(spans[index].label) + b'"'
    parts, done = [], start
    while index < len(spans) and spans[index].start < end - 1:
        low = _escape_around(text, max(spans[index].start, start + 1), start)[0]
        high = _escape_around(text, min(spans[index].end, end - 1), start)[1]
        if low >= done and low < high:
            parts += [text[max(done, start) : low], _inside_json(spans[index].label)]
        done = max(done, high)
        index += 1
    return b"".join((*parts, text[done:end]))


def _escape_around(text: bytes, place: int, start: int) -> tuple[int, int]:
    """The start and end of the JSON escape around a position, or the position twice."""
    for slash in range(place - 1, max(place - 6, start), -1):
        if text[slash] == 0x5C:
            first = slash
            while first > start and text[first - 1] == 0x5C:
                first -= 1
            if (slash - first) % 2:
                return place, place  # an escaped backslash
            end = slash + (6 if text[slash + 1 : slash + 2] == b"u" else 2)
            return (slash, end) if end > place else (place, place)
    return place, place


def _inside_json(label: bytes) -> bytes:
    narrow = label.replace(
        b"\0", b""
    )  # of a label in UTF-16: inside JSON in a string, NUL would have to be escaped twice
    return json.dumps(narrow.decode("utf-8", "replace"), ensure_ascii=False)[1:-1].encode("utf-8", "replace")


class _RedactedKeys:
    """Numbers redacted keys that equal another key of their object, because a reader would lose one of the two."""

    __slots__ = ("_known", "_objects", "_place", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._place = 0  # the end of the token before
        self._objects: list[dict[bytes, int]] = [{}]  # of each open object: how often a key came
        self._known: set[bytes] | None = None  # keys of the text that look like redacted ones

    def follow(self, start: int, end: int) -> None:
        """Note which objects begin and end before the next token."""
        for sign in self._text[self._place : start].translate(None, _NO_BRACES):
            if sign == 0x7B:
                self._objects.append({})
            elif len(self._objects) > 1:
                self._objects.pop()
        self._place = end

    def unique(self, key: bytes) -> bytes:
        """A redacted key, with a number if it is not the first one in its object."""
        if self._known is None:
            self._known = _keys_with_labels(self._text)
        counts = self._objects[0 if self._known else -1]  # among keys that look alike, count through all objects
        found, number = key, counts.get(key, 0) + 1
        while found in self._known or found in counts:
            number = max(number, 2)
            found = key[:-1] + f' ({number})"'.encode()
            number += 1
        counts[found] = max(counts.get(found, 0), 1)
        counts[key] = max(number - 1, 1)
        return found


_NO_BRACES = bytes(byte for byte in range(256) if byte not in b"{}")
_KEY = re.compile(rb'("(?:[^"\\]+|\\.)*+")[ \t\r\n]*:', re.DOTALL)
_LABELS = (b"[redacted", "[…]".encode())


def _keys_with_labels(text: bytes) -> set[bytes]:
    if not any(label in text for label in _LABELS):
        return set()
    return {found[1] for found in _KEY.finditer(text) if any(label in found[1] for label in _LABELS)}
