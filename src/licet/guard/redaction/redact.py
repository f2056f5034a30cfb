"""Redaction: secrets that a call has seen are replaced by their names in whatever leaves it, or comes back to it.

`secret_forms` has the spellings that are looked for, `secret_views` the readings of a text they are looked for in. Time
grows with the length of the text. Long texts are searched in blocks, so that an event loop can run others between them.
Limits: code that means to smuggle a value out can always find another form (reversed, split, encrypted); only walls and
grants stop that.
"""

import asyncio
import re
from collections.abc import Generator, Iterator

from licet.guard.redaction.forms import Forms, Spellings
from licet.guard.redaction.spans import Span, merged, replaced, replaced_in_json
from licet.guard.redaction.views import (
    UNFINISHED,
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

BLOCK = 1 << 14  # bytes that are searched at once
_STRETCH = 40  # bytes that one byte of a value may take: two levels of escapes, or a character of HTML with zeros
_MORE = 512  # and what lines of a dump have around it
_WHOLE, _FEW = 8, 3  # bytes of a spelling at the end of a piece for which it is held
_MOST = 20_000  # secrets in one text; one with more is left out as a whole
_TOO_MANY = b"[redacted: a secret stands here too often]"
_BETWEEN = "\x1e"  # stands between two texts: in no form of a secret it is left out
_HEAD = 8  # bytes by which the beginning of a spelling is looked for


class Redactor:
    """The values of some secrets, and the way to say things without them."""

    __slots__ = ("_known", "_names", "longest")

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # value -> name
        self._known: Forms | None = None  # of all of them, once they are needed
        self.longest = 0  # of the values, in bytes

    def __bool__(self) -> bool:
        return bool(self._names)

    def add(self, name: str, value: str) -> None:
        """Remember a value."""
        if value and value not in self._names:
            self._names = {**self._names, value: name}  # a new one: another thread may be reading the old one
            self.longest = max(self.longest, len(value.encode("utf-8", "surrogatepass")))
            self._known = None

    @property
    def forms(self) -> Forms:
        """What to look for."""
        known = self._known
        if known is None:
            known = Forms()
            for value, name in self._names.items():
                known.add(name, value)
            self._known = known
        return known

    @property
    def reach(self) -> int:
        """How many bytes a secret may take in a text at most; what is spread wider is not found."""
        return _STRETCH * self.longest + _MORE

    @property
    def nearby(self) -> int:
        """The same across the blocks or pieces of a text: of a long value, dumps and one level of escapes fit in."""
        return min(self.reach, 5 * self.longest + (1 << 13))

    # Whole texts -----------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """The text, with every secret replaced by its name."""
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
        """Several texts; one search over all of them takes a fraction of one for each."""
        clean = self.text(_BETWEEN.join(texts)).split(_BETWEEN) if self._names else texts
        return clean if len(clean) == len(texts) else [self.text(text) for text in texts]

    def octets(self, raw: bytes) -> bytes:
        """The bytes, with every secret replaced by its name; the same object if there is none."""
        return _at_once(self.work(raw))

    def json(self, text: bytes) -> bytes:
        """JSON with every secret in its texts, keys and numbers replaced; it stays JSON."""
        return _at_once(self.work(text, as_json=True))

    def beginning(self, raw: bytes, most: int) -> bytes:
        """At most so many bytes from the beginning, without secrets and without the first part of one."""
        return _at_once(self.work_on_beginning(raw, most))

    def work(self, raw: bytes, *, as_json: bool = False, cut: bool = False) -> Generator[None, None, bytes]:
        """The same as `octets` or `json`, with a pause after each block. What was cut may end with half a secret."""
        if cut and self._names:
            raw = raw[: max(len(raw) - self.nearby, 0) + _held_from(raw[-self.nearby :], self.forms)]
        spans = yield from self._spans(raw)
        if len(spans) > _MOST:  # each takes memory, and not much would be left of the text
            return b'"%b"' % _TOO_MANY if as_json else _TOO_MANY
        if not spans:
            return raw
        if as_json:
            return (yield from replaced_in_json(raw, spans))
        return replaced(raw, spans, len(raw))

    def work_on_beginning(self, raw: bytes, most: int) -> Generator[None, None, bytes]:
        """The same as `beginning`, with a pause after each block."""
        # No further than a secret could reach that begins within: the work is bounded, whatever was sent.
        spans = yield from self._spans(raw[: most + self.reach])
        return replaced(raw[:most], spans, most)[:most]

    def _spans(self, raw: bytes) -> Generator[None, None, list[Span]]:
        found: list[Span] = []
        for start in range(0, len(raw) if self._names else 0, BLOCK):
            if start:
                yield
            low = max(start - self.nearby, 0)  # a secret may have begun in the block before
            inside = merged(list(_found(raw[low : start + BLOCK], self.forms)))
            # What ends before this block was found with the one before it.
            latest = [Span(low + one.start, low + one.end, one.label) for one in inside if low + one.end > start]
            while latest and found and found[-1].end > latest[0].start:
                latest = merged([found.pop(), *latest])
            found += latest
            if len(found) > _MOST:
                break
        return found

    # Texts that come in pieces ---------------------------------------------------------------------------------------

    def stream(self) -> "RedactedStream":
        """Redacts a text that comes in pieces; values that are added meanwhile count from then on."""
        return RedactedStream(self)


async def in_turn(work: Generator[None, None, bytes]) -> bytes:
    """Do work with pauses in an event loop: others run in between."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: bytes = done.value
            return result
        await asyncio.sleep(0)


def _at_once(work: Generator[None, None, bytes]) -> bytes:
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: bytes = done.value
            return result


class RedactedStream:
    """What comes in pieces, without secrets. Bytes that may be the beginning of one are held until that is known."""

    __slots__ = ("_before", "_held", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = b""  # the end of what was handed out: a secret may have begun in it
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What can be said now that this piece has come."""
        return _at_once(self.work(piece))

    def work(self, piece: bytes) -> Generator[None, None, bytes]:
        """The same as `feed`, with a pause after each block."""
        if not self._redactor:
            return piece
        said = []
        for start in range(0, len(piece), BLOCK):
            if start:
                yield
            said.append(self._take(piece[start : start + BLOCK], last=False))
        return b"".join(said)

    def finish(self, *, cut: bool = False) -> bytes:
        """The rest, now that nothing more comes. After a cut, what was held may be the first part of a secret."""
        return b"" if cut or not self._held else self._take(b"", last=True)

    def _take(self, piece: bytes, *, last: bool) -> bytes:
        redactor, done = self._redactor, len(self._before)
        text = self._before + self._held + piece
        spans = merged(list(_found(text, redactor.forms)))
        until = len(text)
        if not last:
            until = _held_from(text[-redactor.nearby :], redactor.forms) + max(until - redactor.nearby, 0)
            for span in spans:
                if span.start < until < span.end:  # perhaps it is only the first part of a longer one
                    until = span.start
            until = max(until, done)
        ready = [
            Span(max(one.start, done), one.end, one.label) for one in spans if one.end > done and one.start < until
        ]
        said = replaced(text, ready, until, done)
        self._before, self._held = text[max(until - redactor.nearby, 0) : until], text[until:]
        return said


def _found(text: bytes, forms: Forms) -> Iterator[Span]:
    for view, spellings in _looks(text, forms):
        for found in _places(view.raw, spellings):
            yield Span(view.begin(found.start), view.end(found.end - 1), found.label)


_QUOTED_TAIL = re.compile(rb"=(?:[0-9A-Fa-f]|[ \t]{0,4}\r?)?\Z")  # what may be the beginning of `=3D`


def _held_from(text: bytes, forms: Forms) -> int:
    """Where the first thing begins that the next piece may show to be a secret; the end if there is none."""
    held = _unfinished(text)
    whole, mail = text[:held], _QUOTED_TAIL.sub(b"", text[:held])
    for known in (whole,) if mail == whole else (whole, mail):
        for view, spellings in _looks(known, forms):
            at = _begun(view.raw, spellings)
            begun = len(view.raw) - at
            # Text that somebody waits for is not held by chance: not for one or two characters of an encoding, and if
            # white space follows, which ends a line, not for a few. What follows them is redacted all the same.
            few = 1 if spellings in (forms.exact, forms.lower, forms.wide) else _FEW
            if begun >= _WHOLE or (begun >= few and view.end(len(view.raw) - 1) == len(known)):
                held = min(held, view.begin(at))
    return held


def _looks(text: bytes, forms: Forms) -> Iterator[tuple[View, Spellings]]:
    """Each reading of a text, with what to look for in it."""
    for view in readings(text):
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
        if (dump := undumped(view)) is not None:
            yield squeezed(dump), {**forms.squeezed, **forms.dumped}
            yield hexed(dump), forms.dumped


def _places(raw: bytes, spellings: Spellings) -> Iterator[Span]:
    for form, label in spellings.items():
        start = raw.find(form)
        while start >= 0:
            end = start + len(form)
            yield Span(start, end, label)
            start = raw.find(form, end)


def _begun(raw: bytes, spellings: Spellings) -> int:
    """Where the longest part at the end begins that a spelling could begin with; the end itself if there is none."""
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
    """Where an escape begins that the text ends in the middle of; the end if there is none."""
    tail = max(len(text) - 40, 0)
    for view in readings(text[tail:]):
        found = UNFINISHED.search(view.raw)
        if found is not None and found.start() < len(view.raw):
            return tail + view.begin(found.start())
    return len(text)
