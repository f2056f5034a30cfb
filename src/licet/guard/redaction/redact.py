"""Redaction: replaces the secrets that a call has seen by labels such as `[redacted NAME]`.

`encodings` has the forms of a secret that are searched for, and the decoded forms of a text in which they are searched.
The time is linear in the length of the text. A long text is searched in blocks, so that other tasks can run in between.
Limit: code that wants to leak a value can always encode it in another way (reversed, split, encrypted); only walls and
grants stop that.

A secret is replaced by a label in plain text, and in JSON that must stay JSON.
"""

import asyncio
import codecs
import json
import re
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import chain, islice
from time import monotonic

from msgspec import Struct

from licet.core.late_pattern import late_pattern
from licet.guard.redaction.encodings import (
    BARRIER,
    UNFINISHED,
    Forms,
    Spellings,
    View,
    hexed,
    hexed_numbers,
    lower,
    packed,
    quoted_printable,
    readings,
    squeezed,
    undumped,
)


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
_TOKEN = late_pattern(
    rb"""["0-9tfn{}-](?:(?<=")(?:[^"\\]+|\\.)*+(?:"|(\\?\Z))|(?<=[0-9])[-+.0-9eE]*+|(?<=-)[0-9][-+.0-9eE]*+
    |(?<=t)rue|(?<=f)alse|(?<=n)ull|)""",
    re.DOTALL | re.VERBOSE,
)
_NO_VALUES = b'"{}-tfn'  # these characters alone
_ESCAPE = late_pattern(rb"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_COLON = late_pattern(rb"[ \t\r\n]*+:")
_STRUCTURE = late_pattern(rb"[\s{}\[\]:,]*")
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


BLOCK = 1 << 14  # bytes per search
_MOST_AT_ONCE = 1 << 17  # bytes times secrets that are searched without a pause: a few milliseconds
_MOST_FOUND = 200  # secrets that are found without a pause
_STRETCH = 40  # bytes in a text for one byte of a value: two levels of escapes, or an HTML escape with leading zeros
_MORE = 512  # plus the offsets and text column of a hex dump
_WHOLE, _FEW = 8, 3  # bytes at the end of a piece that match the start of a spelling, for which they are held back
_MOST = 20_000  # secrets in one text; a text with more is replaced completely
_TOO_MANY = b"[redacted: too many secrets]"
_BETWEEN = BARRIER.decode()  # separates joined texts
_HEAD = 8  # first bytes of a spelling, for a fast search for its start


class Redactor:
    """A set of secrets, and the search for them in texts. Safe to use while another thread adds a secret."""

    __slots__ = ("_cached", "_names", "longest")

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # value -> name
        self._cached = (self._names, Forms())  # the forms, and the secrets that they were made from
        self.longest = 0  # bytes of the longest value

    def __bool__(self) -> bool:
        return bool(self._names)

    def add(self, name: str, value: str) -> None:
        """Add a secret."""
        if value and value not in self._names:
            self.longest = max(self.longest, len(value.encode("utf-8", "surrogatepass")))
            self._names = {**self._names, value: name}  # a copy: another thread may be reading the old dict

    @property
    def forms(self) -> Forms:
        """The spellings of all secrets."""
        names = self._names
        made_from, forms = self._cached
        if made_from is not names:  # another thread may add a secret meanwhile: the next search then makes them anew
            forms = Forms()
            for value, name in names.items():
                forms.add(name, value)
            self._cached = (names, forms)
        return forms

    @property
    def reach(self) -> int:
        """The most bytes that an encoded secret may take in a text; a longer encoding is not found."""
        return _STRETCH * self.longest + _MORE

    @property
    def nearby(self) -> int:
        """As `reach`, for a secret that crosses blocks or pieces. A long value may be dumped, or escaped once."""
        return min(self.reach, 5 * self.longest + (1 << 13))

    # Complete texts --------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Replace every secret in a text by its label."""
        if not self._names:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        clean = self.octets(raw)
        if clean is raw:
            return text
        try:
            return clean.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # a value that is not UTF-8 was part of a character
            return clean.decode("utf-8", "replace")

    def texts(self, texts: list[str]) -> list[str]:
        """Redact several texts. They are joined, because one search is much faster than many."""
        clean = self.text(_BETWEEN.join(texts)).split(_BETWEEN) if self._names else texts
        return clean if len(clean) == len(texts) else [self.text(text) for text in texts]

    def octets(self, raw: bytes) -> bytes:
        """Replace every secret in bytes; returns the same object if there is none."""
        return _at_once(self.work(raw))

    def json(self, text: bytes) -> bytes:
        """Replace every secret in the strings, keys and numbers of a JSON text, which stays valid JSON."""
        return _at_once(self.work(text, as_json=True))

    def beginning(self, raw: bytes, most: int) -> bytes:
        """The first `most` bytes, without secrets and without the first part of one."""
        return _at_once(self.work_on_beginning(raw, most))

    def name(self, text: str, most: int) -> str:
        """As `text`, for a name of which only `most` bytes are known: it may end with half a secret."""
        raw = text.encode("utf-8", "surrogatepass")
        return _at_once(self.work(raw, cut=len(raw) >= most)).decode("utf-8", "replace")

    def beginning_of(self, text: str, most: int) -> str:
        """As `beginning`, for a text. Half a surrogate pair is escaped before the search."""
        return shown(self.beginning(encoded(text), most))

    def work(self, raw: bytes, *, as_json: bool = False, cut: bool = False) -> Generator[None, None, bytes]:
        """As `octets` or `json`, with a pause after each block. With `cut`, the text may end with half a secret."""
        if cut and self._names:
            raw = raw[: max(len(raw) - self.nearby, 0) + _held_from(raw[-self.nearby :], self.forms)]
        spans = yield from self._spans(raw, in_json=as_json)
        if len(spans) > _MOST:  # each takes memory, and little of the text would be left
            return b'"%b"' % _TOO_MANY if as_json else _TOO_MANY
        if not spans:
            return raw
        if as_json:
            return (yield from replaced_in_json(raw, spans))
        return replaced(raw, spans, len(raw))

    def work_on_beginning(self, raw: bytes, most: int) -> Generator[None, None, bytes]:
        """As `beginning`, with a pause after each block."""
        # Search only as far as a secret that begins in the first `most` bytes can reach, so the work is bounded.
        spans = yield from self._spans(raw[: most + self.reach])
        return replaced(raw[:most], spans, most)[:most]

    def _spans(self, raw: bytes, *, in_json: bool = False) -> Generator[None, None, list[Span]]:
        found: list[Span] = []
        for start in range(0, len(raw) if self._names else 0, BLOCK):
            if start or len(self._names) * len(raw) > _MOST_AT_ONCE:
                yield
            low = max(start - self.nearby, 0)  # a secret may begin in the block before
            inside = []
            for span in _found(raw[low : start + BLOCK], self.forms, in_json=in_json):
                inside.append(span)
                if len(inside) % _MOST_FOUND == 0:
                    yield
            inside = merged(inside)
            # Secrets that end before this block were found with the block before.
            latest = [Span(low + one.start, low + one.end, one.label) for one in inside if low + one.end > start]
            before = []
            while latest and found and found[-1].end > latest[0].start:
                before.append(found.pop())
            found += merged(before + latest)
            if len(found) > _MOST:
                break
        return found

    # Texts in pieces -------------------------------------------------------------------------------------------------

    def stream(self) -> "RedactedStream":
        """Redact a text that arrives in pieces. Secrets that are added meanwhile count from then on."""
        return RedactedStream(self)


def encoded(text: str) -> bytes:
    """The bytes of a text that is redacted and then shown, with each half of a surrogate pair escaped."""
    return text.encode("utf-8", "backslashreplace")


def shown(clean: bytes) -> str:
    """The text of redacted bytes, which may end within a character.

    Nothing else is dropped: what is left on both sides could be the parts of a secret.
    """
    return codecs.utf_8_decode(clean, "replace", False)[0]


async def in_turn(work: Generator[None, None, bytes], seconds: float | None = None) -> bytes:
    """Do the work up to its first pause here, and the rest in a thread, which ends with the task that waits for it.

    Raises `TimeoutError` if the rest takes longer.
    """
    try:
        next(work)
    except StopIteration as done:
        result: bytes = done.value
        return result
    ended, until = threading.Event(), None if seconds is None else monotonic() + seconds
    try:
        # The thread looks at the clock itself: a cancel by a timer would be ignored while a call ends.
        return await asyncio.to_thread(_at_once, work, ended, until)
    finally:
        ended.set()


def _at_once(
    work: Generator[None, None, bytes], ended: threading.Event | None = None, until: float | None = None
) -> bytes:
    while (ended is None or not ended.is_set()) and (until is None or monotonic() < until):
        try:
            next(work)
        except StopIteration as done:
            result: bytes = done.value
            return result
    raise TimeoutError("time is up, or nobody waits for this any more")


class RedactedStream:
    """Redacts a text in pieces. Bytes that may be the start of a secret are held back until more has arrived."""

    __slots__ = ("_before", "_held", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = b""  # the end of what was returned: a secret may begin in it
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Take the next piece, and return the bytes that are safe to pass on."""
        return _at_once(self.work(piece))

    def work(self, piece: bytes) -> Generator[None, None, bytes]:
        """As `feed`, with a pause after each block."""
        if not self._redactor:
            return piece
        clean = []
        for start in range(0, len(piece), BLOCK):
            if start:
                yield
            clean.append(self._take(piece[start : start + BLOCK], last=False))
        return b"".join(clean)

    def finish(self, *, cut: bool = False) -> bytes:
        """Return the rest. If the text was cut, the held bytes may be half a secret, and are dropped."""
        return b"" if cut or not self._held else self._take(b"", last=True)

    def _take(self, piece: bytes, *, last: bool) -> bytes:
        redactor, done = self._redactor, len(self._before)
        text = self._before + self._held + piece
        spans = merged(list(_found(text, redactor.forms)))
        until = len(text)
        if not last:
            until = _held_from(text[-redactor.nearby :], redactor.forms) + max(until - redactor.nearby, 0)
            for span in spans:
                if span.start < until < span.end:  # it may be the first part of a longer secret
                    until = span.start
            until = max(until, done)
        ready = [
            Span(max(one.start, done), one.end, one.label) for one in spans if one.end > done and one.start < until
        ]
        clean = replaced(text, ready, until, done)
        self._before, self._held = text[max(until - redactor.nearby, 0) : until], text[until:]
        return clean


def _found(text: bytes, forms: Forms, *, in_json: bool = False) -> Iterator[Span]:
    for view, spellings in _searches(text, forms, in_json=in_json):
        for found in _places(view.raw, spellings):
            yield Span(view.begin(found.start), view.end(found.end - 1), found.label)


_QUOTED_TAIL = late_pattern(rb"=(?:[0-9A-Fa-f]|[ \t]{0,4}\r?)?\Z")  # what may be the beginning of `=3D`


def _held_from(text: bytes, forms: Forms) -> int:
    """The first position that, with the next piece, may turn out to be a secret; the end if there is none."""
    held = _unfinished(text)
    plain, mail = text[:held], _QUOTED_TAIL.sub(b"", text[:held])
    for known in (plain,) if mail == plain else (plain, mail):
        for view, spellings in _searches(known, forms):
            at = _prefix_start(view.raw, spellings)
            begun = len(view.raw) - at
            # A reader may be waiting for this text, so a chance match does not hold it back: not one or two characters
            # of an encoding, and not a few characters before white space. The rest of a real secret is still redacted.
            few = 1 if spellings in (forms.exact, forms.lower, forms.wide) else _FEW
            if begun >= _WHOLE or (begun >= few and view.end(len(view.raw) - 1) == len(known)):
                held = min(held, view.begin(at))
    return held


def _searches(text: bytes, forms: Forms, *, in_json: bool = False) -> Iterator[tuple[View, Spellings]]:
    """Each view of a text, with the spellings to search for in it."""
    views = readings(text)
    if forms.has_escapes:  # decoding would change these values, too: decode also the escapes of JSON alone
        views = chain(views, islice(readings(text, json_alone=True), 1, None))
    for view in views:
        if forms.exact:
            yield view, forms.exact
        if not forms.lower:
            continue
        small = lower(view)
        yield small, forms.lower
        if b"\0" in view.raw:
            yield small, forms.wide
        yield packed(view), forms.packed
        yield squeezed(view), forms.squeezed
        yield hexed(view), forms.hexed
        if (numbers := hexed_numbers(view)) is not None:
            yield numbers, forms.hexed
        if (mail := quoted_printable(view)) is not None:
            yield lower(mail), forms.lower
        for dump in undumped(view, in_json=in_json):
            yield squeezed(dump), {**forms.squeezed, **forms.dumped}
            yield hexed(dump), forms.dumped


def _places(raw: bytes, spellings: Spellings) -> Iterator[Span]:
    for form, label in spellings.items():
        start = raw.find(form)
        while start >= 0:
            end = start + len(form)
            yield Span(start, end, label)
            start = raw.find(form, end)


def _prefix_start(raw: bytes, spellings: Spellings) -> int:
    """The start of the longest suffix that is a prefix of some spelling; the end if there is none."""
    size = len(raw)
    first = size
    for form in spellings:
        start = raw.find(form[:_HEAD], max(size - len(form) + 1, 0), first)
        while start >= 0 and not form.startswith(raw[start:]):
            start = raw.find(form[:_HEAD], start + 1, first)
        if start >= 0:
            first = start
            continue
        for length in range(min(_HEAD - 1, len(form) - 1, size), 0, -1):
            if size - length >= first:
                break
            if form.startswith(raw[-length:]):
                first = size - length
                break
    return first


def _unfinished(text: bytes) -> int:
    """The start of an incomplete escape at the end of a text; the end if there is none."""
    tail = max(len(text) - 40, 0)
    for view in readings(text[tail:]):
        found = UNFINISHED.search(view.raw)
        if found is not None and found.start() < len(view.raw):
            return tail + view.begin(found.start())
    return len(text)
