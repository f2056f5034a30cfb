"""JSON with comments and trailing commas: reads it, and edits single members of one object.

A file with the same key twice in one object is refused: clients differ in which of the two counts.

Edits of a text as replaced spans: whatever lies outside of them stays as it is, byte for byte.

Guesses which values are tokens, so that they are hidden when a change is shown and never get into policy.

A guess can be wrong. So every literal value of a variable or header goes to the secrets file, whatever is guessed here.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from licet.clients.limits import CONFIG_DEPTH
from licet.core.late_pattern import late_pattern
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


_TOKEN = late_pattern(
    r"""(?P<skipped>[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<mark>[{}\[\],:])
      | (?P<word>[A-Za-z0-9+.\-]+)""",
    re.DOTALL | re.VERBOSE,
)


class _Member(Struct, frozen=True):
    """A key with its value. `comma` is where the comma after it is, -1 if there is none."""

    key: str
    start: int
    value: "_Node"
    comma: int

    @property
    def end(self) -> int:
        return self.value.end


class _Node(Struct, frozen=True):
    start: int
    end: int
    data: Any
    members: tuple[_Member, ...] = ()  # of an object; of a list, each item with its index as the key


class _Token(Struct, frozen=True):
    kind: str
    text: str
    start: int
    end: int


class _Parser:
    """Reads tokens one after the other, and keeps where each value was."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self._token = self._next()

    def document(self) -> _Node:
        node = self._value(0)
        if self._token.kind != "end":
            raise self._wrong("nothing more")
        return node

    def _next(self) -> _Token:
        while self._at < len(self._text):
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                raise BadConfig(f"line {self._line(self._at)}: found a character that is no JSON")
            self._at = found.end()
            if found.lastgroup != "skipped":
                return _Token(str(found.lastgroup), found[0], found.start(), found.end())
        return _Token("end", "", len(self._text), len(self._text))

    def _take(self, *expected: str) -> _Token:
        token = self._token
        if expected and token.text not in expected:
            raise self._wrong(" or ".join(f"`{one}`" for one in expected))
        self._token = self._next()
        return token

    def _value(self, depth: int) -> _Node:
        if depth > CONFIG_DEPTH:
            raise BadConfig(f"line {self._line(self._token.start)}: nested more than {CONFIG_DEPTH} deep")
        if self._token.text == "{":
            return self._object(depth)
        if self._token.text == "[":
            return self._array(depth)
        if self._token.kind not in ("string", "word"):
            raise self._wrong("a value")
        token = self._take()
        return _Node(token.start, token.end, self._scalar(token))

    def _scalar(self, token: _Token) -> Any:
        try:
            # A tab inside a string is no JSON, but some clients accept it; nothing is gained by refusing it.
            return json.loads(token.text, strict=False, parse_constant=_no_constant)
        except ValueError:
            raise BadConfig(f"line {self._line(token.start)}: found a word that is no JSON") from None

    def _object(self, depth: int) -> _Node:
        start = self._take().start
        members: dict[str, _Member] = {}
        while self._token.text != "}":
            if self._token.kind != "string":
                raise self._wrong("a key in double quotes, or `}`")
            key = self._take()
            name = self._scalar(key)
            if name in members:
                raise BadConfig(f"line {self._line(key.start)}: the key {key.text} is there twice")
            self._take(":")
            value = self._value(depth + 1)
            comma = self._token.start if self._token.text == "," else -1
            members[name] = _Member(name, key.start, value, comma)
            if comma < 0:
                break
            self._take()
        end = self._take("}").end
        data = {name: member.value.data for name, member in members.items()}
        return _Node(start, end, data, tuple(members.values()))

    def _array(self, depth: int) -> _Node:
        start = self._take().start
        items: list[_Member] = []
        while self._token.text != "]":
            value = self._value(depth + 1)
            comma = self._token.start if self._token.text == "," else -1
            items.append(_Member(str(len(items)), value.start, value, comma))
            if comma < 0:
                break
            self._take()
        end = self._take("]").end
        return _Node(start, end, [item.value.data for item in items], tuple(items))

    def _wrong(self, expected: str) -> BadConfig:
        found = "the end" if self._token.kind == "end" else f"`{self._token.text[:1]}`"
        return BadConfig(f"line {self._line(self._token.start)}: found {found}, expected {expected}")

    def _line(self, index: int) -> int:
        return self._text.count("\n", 0, index) + 1


def _no_constant(_: str) -> Any:
    raise ValueError("no JSON")


def _root(text: str) -> _Node:
    node = _Parser(text).document()
    if not isinstance(node.data, dict):
        raise BadConfig("it is no JSON object")
    return node


def _object_at(text: str, table: KeyPath) -> _Node | None:
    node: _Node | None = _root(text)
    table_of(node.data if node else {}, table)  # raises if it is something else than a table
    for key in table:
        node = next((member.value for member in node.members if member.key == key), None) if node else None
    return node if node is not None and isinstance(node.data, dict) else None


class Jsonc:
    """Reads and edits JSON files, with or without comments."""

    def read(self, text: str) -> dict[str, Any]:
        """The whole file as data; an empty file is an empty object."""
        if not text.strip("\ufeff \t\r\n"):
            return {}
        data: dict[str, Any] = _root(text).data
        return data

    def originals(self, text: str, table: KeyPath, names: Iterable[str]) -> dict[str, Original]:
        """The named members as they are written, with their keys."""
        wanted, node = set(names), _object_at(text, table)
        members = node.members if node else ()
        return {one.key: Original(text[one.start : one.end], one.value.data) for one in members if one.key in wanted}

    def swap(self, text: str, table: KeyPath, names: Iterable[str], new: str, data: Mapping[str, Any]) -> list[Span]:
        """Put one member in the place of the first named one, and take the other named ones out."""
        gone, node = set(names), _object_at(text, table)
        if node is None:
            raise BadConfig(f"there is no `{'.'.join(table)}`")
        if new in node.data and new not in gone:
            return _taken_out(text, node.members, gone)
        first = next(one for one in node.members if one.key in gone)
        return [
            Span(first.start, first.end, _member_text(text, node, first, new, data)),
            *_taken_out(text, node.members, gone - {first.key}),
        ]

    def put_back(self, text: str, table: KeyPath, new: str, originals: Mapping[str, Original]) -> list[Span]:
        """Put members in the place of the one called `new`, or at the end of the object."""
        node = _object_at(text, table)
        if node is None:
            raise BadConfig(f"there is no `{'.'.join(table)}`")
        texts = [original.text for original in originals.values()]
        place = next((one for one in node.members if one.key == new), None)
        if place is not None:
            if not texts:
                return _taken_out(text, node.members, {new})
            between = _between(text, place)
            return [Span(place.start, place.end, f",{between}".join(texts))]
        return _at_the_end(text, node, texts) if texts else []


def with_item(text: str, path: KeyPath, item: Any) -> str:
    """The text with one more item in the list at a path of keys; objects and the list are made where there are none."""
    if not text.strip("\ufeff \t\r\n"):
        return json.dumps(_nested(path, [item]), indent=2, ensure_ascii=False) + "\n"
    node, depth = _root(text), 0
    for key in path:
        inner = next((member.value for member in node.members if member.key == key), None)
        if inner is None:
            break
        node, depth = inner, depth + 1
        if not isinstance(node.data, list if depth == len(path) else dict):
            raise BadConfig(f"`{'.'.join(path[:depth])}` is no {'list' if depth == len(path) else 'object'}")
    left = path[depth:]
    key = f"{json.dumps(left[0])}: " if left else ""
    value = _nested(left[1:], [item]) if left else item
    indent = _own_indent(text, node.members[-1].start) if node.members else None
    if node.members and indent is None:
        written = json.dumps(value, ensure_ascii=False)
    else:
        lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
        start = _indent(text, node.start) + "  " if indent is None else indent
        written = (newline_of(text) + start).join(lines)
    return apply(text, _at_the_end(text, node, [key + written]))


def without_member(text: str, path: KeyPath) -> str:
    """The text without the member of an object, or the item of a list, at a path of keys and indexes."""
    node = _root(text)
    for key in path[:-1]:
        node = next(member.value for member in node.members if member.key == key)
    return apply(text, _taken_out(text, node.members, {path[-1]}))


def _nested(path: KeyPath, value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _at_the_end(text: str, node: _Node, texts: Sequence[str]) -> list[Span]:
    """Spans that put members at the end of an object, or items at the end of a list."""
    if not node.members:
        newline, outer = newline_of(text), _indent(text, node.start)
        inner = newline + outer + "  "
        written = inner + f",{inner}".join(texts) + newline + outer
        rest = text[node.start + 1 : node.end - 1]
        if rest.strip():  # comments: what follows them on their line would be one
            return [Span(node.end - 1, node.end - 1, written)]
        return [Span(node.start + 1, node.end - 1, written)]
    last = node.members[-1]
    between = _between(text, last)
    joined = between + f",{between}".join(texts)
    if last.comma < 0:
        return [Span(last.end, last.end, f",{joined}")]
    return [Span(last.comma + 1, last.comma + 1, f"{joined},")]


def _taken_out(text: str, members: Sequence[_Member], gone: set[str]) -> list[Span]:
    """Spans that take members out, with the commas that would be left over."""
    spans: list[Span] = []
    for one in members:
        if one.key not in gone:
            continue
        is_joined = one.comma >= 0 and not text[one.end : one.comma].strip(" \t")  # no comment in between
        end = one.comma + 1 if is_joined else one.end
        if one.comma >= 0 and not is_joined:
            spans.append(Span(one.comma, one.comma + 1))
        spans.append(_with_space(text, one.start, end))
    kept = [one for one in members if one.key not in gone]
    if members and members[-1].key in gone and members[-1].comma < 0 and kept:
        spans.append(Span(kept[-1].comma, kept[-1].comma + 1))
    return _merged(spans)


def _merged(spans: list[Span]) -> list[Span]:
    """Spans without a text, with those that overlap as one."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda one: one.start):
        if merged and span.start < merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(span.end, merged[-1].end))
        else:
            merged.append(span)
    return merged


def _with_space(text: str, start: int, end: int) -> Span:
    """A span with its whole line if nothing else is on it, else with the blanks on one side."""
    before, after = start, end
    while before and text[before - 1] in " \t":
        before -= 1
    while text[after : after + 1] in (" ", "\t"):
        after += 1
    if text[before - 1 : before] == "\n" and text[after : after + 1] in ("\r", "\n"):
        # The line break before it goes, not the one after it: a comment on the line before cannot swallow anything.
        return Span(before - (2 if text[before - 2 : before] == "\r\n" else 1), after)
    return Span(before, end) if text[after : after + 1] in ("}", "\r", "\n") else Span(start, after)


def _indent(text: str, index: int) -> str:
    """The blanks at the start of the line of `index`."""
    line = text[text.rfind("\n", 0, index) + 1 : index].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _own_indent(text: str, index: int) -> str | None:
    """The blanks before `index` if nothing else is before it on its line; None otherwise."""
    start = text.rfind("\n", 0, index) + 1
    before = text[start:index]
    return before if start and not before.strip(" \t") else None


def _between(text: str, member: _Member) -> str:
    """What is written after the comma between two members."""
    indent = _own_indent(text, member.start)
    return " " if indent is None else newline_of(text) + indent


def _member_text(text: str, node: _Node, place: _Member, name: str, data: Mapping[str, Any]) -> str:
    """A member, written in the style of the one whose place it takes."""
    key, indent = json.dumps(name, ensure_ascii=False), _own_indent(text, place.start)
    if indent is None or "\n" not in text[place.value.start : place.value.end]:
        return f"{key}: {json.dumps(data, ensure_ascii=False)}"
    outer = _indent(text, node.start)
    unit = indent.removeprefix(outer) if indent.startswith(outer) and indent != outer else "  "
    lines = json.dumps(data, indent=unit, ensure_ascii=False).split("\n")
    return f"{key}: {(newline_of(text) + indent).join(lines)}"


_NAMED = late_pattern(
    r"(?i)token|key|secret|passw|pwd|credential|auth|cookie|session|dsn|private|signature|(?:^|[_-])(?:pat|pass)(?:$|[_-])"
)
_KNOWN = late_pattern(
    r"(?:gh[pousr]_|github_pat_|glpat-|sk-|sk_|pk_|rk_|xox[abeprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|eyJ|npm_|pypi-|hf_|lin_api_|"
    r"ntn_|secret_|dop_v1_|shpat_|SG\.)[A-Za-z0-9_.\-]{8,}"
)
_WITH_PASSWORD = late_pattern(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s@]*:[^/\s@]+@")
_CREDENTIALS = late_pattern(r"(?i)\b(?:bearer|basic)\s+\S{6,}")
_RUN = late_pattern(r"[A-Za-z0-9+=]{20,}")
_FLAG = late_pattern(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_QUERY = late_pattern(r"[?&]([A-Za-z0-9_.-]+)=([^&#]+)")
_LEAST_BITS = 3.5  # per character; words and hexadecimal counters have less


def looks_secret(name: str, value: str) -> bool:
    """Whether a value is probably a token, by its name or its looks."""
    return bool(value) and (bool(_NAMED.search(name)) or looks_random(value))


def looks_random(value: str) -> bool:
    """Whether a text contains what looks like a token: a known prefix, a password in a URL, or random characters."""
    if _KNOWN.search(value) or _WITH_PASSWORD.search(value) or _CREDENTIALS.search(value):
        return True
    return any(_is_random(run) for run in _RUN.findall(value))


def _is_random(text: str) -> bool:
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    counts = Counter(text)
    return -sum(one / len(text) * math.log2(one / len(text)) for one in counts.values()) >= _LEAST_BITS


def secret_word(command: Sequence[str]) -> int | None:
    """The index of the first word of a command that is probably a token, or contains one; None if there is none."""
    for index, word in enumerate(command):
        flag = _FLAG.fullmatch(word)
        if looks_random(word) or any(_NAMED.search(name) for name, _ in _QUERY.findall(word)):
            return index
        if flag is None or not _NAMED.search(flag[1]):
            continue
        if flag[2]:
            return index
        if flag[2] is None and index + 1 < len(command) and not command[index + 1].startswith("-"):
            return index + 1
    return None
