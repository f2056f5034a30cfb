"""Reads a policy file into nodes (scalars, sequences, mappings) that know their line and column.

- Scalars without quotes are read by the core schema of YAML 1.2. Numbers that other readers could read differently are
  errors.
- Each key may be given once. Tags, merge keys and further documents are errors.
- Size, depth, aliases and the number of problems are bounded.
- All problems of a file are reported in one run, unless its syntax is broken.

First the bytes are decoded to text, and YAML or JSON is parsed into one kind of events, from which nodes are made:

- Text must be UTF-8 of at most 1 MiB, without invisible characters and unusual line breaks. Each such character is
  replaced by another one, so that the rest of the file can be read and its problems reported in the same run.
- JSON has its own parser. YAML 1.1 parsers refuse some JSON (surrogate pairs, keys over 1024 characters) and accept
  more than JSON (comments, words without quotes).
"""

import bisect
import re
import unicodedata
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as ReadOnly
from decimal import Decimal, DecimalException
from enum import Enum
from typing import Any, NoReturn, TypeAlias

from msgspec import Struct

from licet.core.algebra.scope import UNSEEN, visible
from licet.core.late_pattern import late_pattern
from licet.core.values import Origin, Problem
from licet.policy_files.limits import DEEPEST, LARGEST_INT, MOST_ALIASED, MOST_BYTES, MOST_PROBLEMS, MOST_VALUES

REPLACED = "\ufffd"

_PLAIN_ASCII = bytes(range(0x20, 0x7F)) + b"\t\n"

# Refused everywhere, also in comments: control characters, bidi controls, a byte order mark that is not at the start,
# and unusual line breaks (a lone CR, U+0085, U+2028, U+2029), where editors show one line and YAML reads two.
_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff"
_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_NOWHERE = late_pattern(rf"[{_CONTROLS}{_BIDI}\ufeff]|\r(?!\n)")

# Refused in keys and values, also as escapes: characters without a width (U+E0000 to U+E007F can hide a sentence), and
# lone surrogates, which UTF-8 cannot encode.
_INVISIBLE = r"\u00ad\u180e\u200b-\u200d\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_HIDDEN = late_pattern(rf"[{_CONTROLS}{_BIDI}{_INVISIBLE}{UNSEEN}\r\ud800-\udfff]")


class Unreadable(ValueError):
    """A problem after which the rest of the file cannot be read."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def plain_text(data: bytes, file: str) -> tuple[str, Iterator[Problem]]:
    """Decode a file; return the text with forbidden characters replaced, and a problem for each of them."""
    if len(data) > MOST_BYTES:
        raise Unreadable(Problem(Origin(file, 1, 1), f"{len(data)} bytes", f"at most {MOST_BYTES} (1 MiB)"))
    # A fast path for plain ASCII, which most files are.
    if data.isascii() and not data.translate(None, _PLAIN_ASCII):
        return data.decode("ascii"), iter(())
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        found = f"the byte 0x{data[error.start]:02X} at offset {error.start}"
        origin = place(data[: error.start].decode("utf-8").removeprefix("\ufeff"), -1, file)
        raise Unreadable(Problem(origin, found, "UTF-8", "save the file as UTF-8")) from None
    if _NOWHERE.search(text) is None:
        return text, iter(())
    return _NOWHERE.sub(REPLACED, text), _forbidden(text, file)


def hidden_in(text: str) -> str:
    """The name of the first invisible character in a value; empty if there is none."""
    found = _HIDDEN.search(text)
    return character(found[0]) if found else ""


def character(char: str) -> str:
    """A character as text for a message, such as `U+200B (zero width space)`."""
    name = unicodedata.name(char, "half of a surrogate pair" if "\ud800" <= char <= "\udfff" else "").lower()
    return f"U+{ord(char):04X}" + (f" ({name})" if name else "")


def shown(text: str, most: int = 80) -> str:
    """Text from a file for a message: in backticks, cut after `most` characters, invisible characters escaped."""
    return f"`{visible(text[:most])}…`" if len(text) > most else f"`{visible(text)}`"


def place(text: str, index: int, file: str) -> Origin:
    """The line and column of the character at `index`; -1 or an index beyond the end means the end of the text."""
    index = len(text) if not 0 <= index <= len(text) else index
    return Origin(file, text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _forbidden(text: str, file: str) -> Iterator[Problem]:
    line, start = 1, 0
    for match in _NOWHERE.finditer(text):
        index = match.start()
        if breaks := text.count("\n", start, index):
            line, start = line + breaks, text.rfind("\n", start, index) + 1
        origin = Origin(file, line, index - start + 1)
        if match[0] == "\r":
            yield Problem(
                origin, "a carriage return alone", "a line feed", "editors show one line where YAML reads two"
            )
        else:
            yield Problem(origin, character(match[0]), "only characters that can be seen", "delete it")


_OPENED = "it opens at {opened}"

# Fragments of the error messages of libyaml and PyYAML, with the expectation and the hint that are shown instead.
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
_WORD = late_pattern(r"[\w.-]{1,40}|.", re.DOTALL)

_JSON_TOKEN = late_pattern(r'[ \t\n\r]*([][{},:"]|[^][{},:" \t\n\r]+|)')
_JSON_PLAIN = late_pattern(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


def yaml_events(text: str, file: str) -> Iterator[Any]:
    """Parse YAML into events; with libyaml if PyYAML was built with it."""
    import yaml

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)
    try:
        yield from iter(loader.get_event, None)
    except yaml.MarkedYAMLError as error:
        raise Unreadable(_complaint(error, text, file)) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # For escapes such as "\U00110000", the Python parser raises an error without a place.
        origin = place(text, loader.get_mark().index if hasattr(loader, "get_mark") else -1, file)
        raise Unreadable(Problem(origin, "an escape", "the escape of a whole character")) from None


def _complaint(error: Any, text: str, file: str) -> Problem:
    message = str(error.problem)
    index = min(error.problem_mark.index, len(text))
    expected, hint = next(((e, h) for words, e, h in _COMPLAINTS if words in message), ("valid YAML", message))
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
    """Parse JSON strictly by RFC 8259 into the same events as YAML."""
    import json.decoder

    import yaml

    lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def refuse(index: int, expected: str, hint: str = "") -> NoReturn:
        raise Unreadable(Problem(place(text, index, file), _at(text, index), expected, hint))

    closers: list[str] = []
    fresh = False  # directly after `[` or `{`, where the closing bracket is allowed instead of a value
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


_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER = late_pattern(
    r"(?P<decimal>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hexadecimal>[0-9a-fA-F]+)"
    r"|(?P<fraction>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<endless>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_BASES = {"decimal": 10, "octal": 8, "hexadecimal": 16}


class UnsafeNumber(ValueError):
    """A number that another reader might read differently; the message says what is expected instead."""


def plain_value(text: str) -> str | int | bool | Decimal | None:
    """The value of a scalar without quotes in YAML 1.2 (core schema); `no`, `1_000` and `2024-01-01` are text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789" or (match := _NUMBER.fullmatch(text)) is None:
        return text
    kind = match.lastgroup or ""
    if kind == "endless":
        raise UnsafeNumber("a finite number")
    if kind == "fraction":
        return _fraction(text)
    try:
        number = int(match[kind], _BASES[kind])
    except ValueError:  # Python's own limit on digits
        number = LARGEST_INT + 1
    if abs(number) > LARGEST_INT:
        raise UnsafeNumber(f"a whole number within {LARGEST_INT}")
    return number


def _fraction(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except DecimalException:
        number = Decimal("1e999")
    if not number:
        return Decimal(0)
    if abs(number.adjusted()) > 307:
        raise UnsafeNumber("a number that a double can hold")
    return number


_MEANT_AS_TEXT = "quote it if you mean the text"


class AlreadyRefused(Enum):
    """Marks a value that was reported as a problem already, so that it is not reported again."""

    REFUSED = "refused"


REFUSED = AlreadyRefused.REFUSED


class Scalar(Struct, frozen=True):
    """A scalar: `text` is without quotes and escapes, `value` is as YAML 1.2 reads it."""

    text: str
    value: str | int | bool | Decimal | AlreadyRefused | None
    quoted: bool
    origin: Origin


class Sequence(Struct, frozen=True):
    """A list."""

    items: tuple["Node", ...]
    origin: Origin


class MappingItem(Struct, frozen=True):
    """The node under a key, and the place of the key."""

    key_origin: Origin
    node: "Node"


class Mapping(Struct, frozen=True):
    """A mapping from keys to nodes, in the order of the file."""

    entries: ReadOnly[str, MappingItem]
    origin: Origin


Node: TypeAlias = Scalar | Sequence | Mapping


def read_nodes(data: bytes, file: str) -> tuple[Node | None, tuple[Problem, ...]]:
    """Read YAML, or JSON if the name ends in `.json`; return the root node and all problems of the syntax.

    If there are problems, the root lacks the refused parts. The caller can still check it to find more problems.
    """
    builder = _Builder(file)
    try:
        text, problems = plain_text(data, file)
        for problem in problems:
            builder.report(problem)
        events = json_events if file.lower().endswith(".json") else yaml_events
        root = builder.build(events(text, file), text)
    except Unreadable as stop:
        builder.problems.append(stop.problem)
        root = None
    return root, tuple(sorted(builder.problems, key=lambda problem: (problem.origin.line, problem.origin.column)))


_NEXT = object()  # a mapping waits for its next key
_DROPPED = object()  # the key was refused: its value is checked and left out


class _Open:
    """A collection whose end was not read yet; `items` is for a sequence, `entries` and `key` are for a mapping."""

    __slots__ = ("anchor", "entries", "items", "key", "origin", "seen")

    def __init__(self, origin: Origin, anchor: str | None, mapping: bool) -> None:
        self.origin = origin
        self.anchor = anchor
        self.items: list[Node] | None = None if mapping else []
        self.entries: dict[str, MappingItem] = {}
        self.seen: dict[str, Origin] = {}  # the place of each key, also of those whose value was refused
        self.key: Any = _NEXT if mapping else None

    def close(self) -> Node:
        if self.items is None:
            return Mapping(self.entries, self.origin)
        return Sequence(tuple(self.items), self.origin)


class _Builder:
    """Makes nodes from parser events and collects problems. It does not recurse, so deep nesting is harmless."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node | None] = {}  # None if the node is not complete yet, or was refused
        self.aliased = 0

    def report(self, problem: Problem) -> None:
        if len(self.problems) >= MOST_PROBLEMS:
            raise Unreadable(
                Problem(problem.origin, f"{MOST_PROBLEMS} problems before this", "fewer, to read the rest")
            )
        self.problems.append(problem)

    def refuse(self, origin: Origin, found: str, expected: str, hint: str = "") -> None:
        self.report(Problem(origin, found, expected, hint))

    def build(self, events: Iterable[Any], text: str) -> Node | None:
        """The root of the first document. Further documents are a problem, and are checked for more problems."""
        from yaml import events as kinds

        scalar, alias = kinds.ScalarEvent, kinds.AliasEvent
        starts = (kinds.SequenceStartEvent, kinds.MappingStartEvent)
        ends = (kinds.SequenceEndEvent, kinds.MappingEndEvent)
        file, documents = self.file, 0
        top = bottom = _Open(Origin(file, 1, 1), None, mapping=False)
        stack = [bottom]
        for number, event in enumerate(events):
            kind = type(event)
            mark = event.start_mark
            if number > MOST_VALUES:
                origin = Origin(file, mark.line + 1, mark.column + 1)
                raise Unreadable(Problem(origin, f"more than {MOST_VALUES} keys and values", "fewer, in several files"))
            if kind is scalar:
                node: Node | None = self.scalar(event, Origin(file, mark.line + 1, mark.column + 1))
            elif kind in starts:
                top = self.opened(event, Origin(file, mark.line + 1, mark.column + 1), kind is starts[1], len(stack))
                stack.append(top)
                continue
            elif kind in ends:
                node = self.closed(stack.pop())
                top = stack[-1]
            elif kind is alias:
                node = self.alias(event, Origin(file, mark.line + 1, mark.column + 1), top.key is _NEXT, len(stack))
            else:
                if kind is kinds.DocumentStartEvent:
                    documents += 1
                    self.document(
                        Origin(file, mark.line + 1, mark.column + 1), documents, text[mark.index : mark.index + 1]
                    )
                continue
            if top.items is not None:
                if node is not None:
                    top.items.append(node)
            elif top.key is _NEXT:
                top.key = self.key(top, node)
            else:
                if top.key is not _DROPPED:
                    origin = top.seen[top.key]
                    top.entries[top.key] = MappingItem(origin, node or Scalar("", REFUSED, False, origin))
                top.key = _NEXT
        return self.root(bottom)

    def root(self, bottom: _Open) -> Node | None:
        root = bottom.items[0] if bottom.items else None
        if isinstance(root, Scalar) and not root.text and not root.quoted:
            root = None
        if root is None and not self.problems:
            self.refuse(bottom.origin, "an empty file", "keys and their values")
        return root

    def document(self, origin: Origin, number: int, first: str) -> None:
        if first == "%":
            self.refuse(origin, "a `%` directive", "a file without directives", "delete the line")
        if number > 1:
            self.refuse(
                origin, "a second document", "one document in a file", "move what follows `---` to its own file"
            )
            self.anchors.clear()

    def scalar(self, event: Any, origin: Origin) -> Scalar | None:
        text: str = event.value
        quoted = bool(event.style)  # without quotes, it is None in one parser and empty in the other
        if event.tag is not None or event.anchor is not None:
            self.properties(event, origin)
        # A value with a character that was reported already is left out without another problem.
        if not (text.isascii() and text.isprintable()):
            hidden = hidden_in(text)
            if hidden:
                self.refuse(origin, f"{hidden} in {shown(text)}", "only characters that can be seen")
            if hidden or (self.problems and REPLACED in text):
                return None
        if quoted:
            node = Scalar(text, text, True, origin)
        else:
            try:
                node = Scalar(text, plain_value(text), False, origin)
            except UnsafeNumber as refusal:
                self.refuse(origin, shown(text), str(refusal), _MEANT_AS_TEXT)
                return None
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def opened(self, event: Any, origin: Origin, mapping: bool, depth: int) -> _Open:
        if depth > DEEPEST:
            # Stop here, since the time of the parser grows with the square of the depth.
            raise Unreadable(Problem(origin, f"nesting deeper than {DEEPEST}", f"at most {DEEPEST} levels"))
        if event.tag is not None or event.anchor is not None:
            self.properties(event, origin)
        return _Open(origin, event.anchor, mapping)

    def closed(self, ended: _Open) -> Node:
        node = ended.close()
        if ended.anchor is not None:
            self.anchors[ended.anchor] = node
        return node

    def properties(self, event: Any, origin: Origin) -> None:
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!", 1)
            self.refuse(origin, f"the tag {shown(tag)}", "a value without a tag", "quotes make a value text")
        if event.anchor is not None:
            if event.anchor in self.anchors:
                self.refuse(origin, f"the anchor {shown('&' + event.anchor)} a second time", "each anchor once")
            self.anchors[event.anchor] = None

    def alias(self, event: Any, origin: Origin, as_key: bool, depth: int) -> Node | None:
        name = shown("*" + event.anchor)
        if event.anchor not in self.anchors:
            self.refuse(origin, f"the alias {name}", f"the anchor {shown('&' + event.anchor)} somewhere before it")
            return None
        node = self.anchors[event.anchor]
        if as_key:
            self.refuse(origin, f"the alias {name} as a key", "the key itself")
        elif node is None:
            self.refuse(origin, f"the alias {name}", "an alias of something that is complete before it")
        elif self.aliased <= MOST_ALIASED:  # reported once
            size, height = _extent(node)
            self.aliased += size
            if self.aliased > MOST_ALIASED:
                self.refuse(origin, f"the alias {name}", f"at most {MOST_ALIASED} values repeated by aliases in a file")
            elif depth + height > DEEPEST + 1:
                self.refuse(origin, f"the alias {name}", f"at most {DEEPEST} levels of nesting")
            else:
                return node
        return None

    def key(self, top: _Open, node: Node | None) -> object:
        """The key for the next node, or `_DROPPED` if it was refused."""
        if node is None:
            return _DROPPED
        origin = node.origin
        if not isinstance(node, Scalar):
            self.refuse(origin, "a list or mapping as a key", "a key that is text")
        elif node.text == "<<" and not node.quoted:
            self.refuse(origin, "the merge key `<<`", "the keys written out")
        elif not node.text:
            self.refuse(origin, "an empty key", "a key that is text")
        elif not isinstance(node.value, str):
            self.refuse(origin, f"the key {shown(node.text)}, which is not text", "a key that is text", _MEANT_AS_TEXT)
        elif node.text in top.seen:
            first = top.seen[node.text].full
            self.refuse(origin, f"the key {shown(node.text)} a second time", "each key once", f"it is first at {first}")
        else:
            top.seen[node.text] = origin
            return node.text
        return _DROPPED


def _extent(node: Node) -> tuple[int, int]:
    """The number of nodes that an alias of this node repeats, and their depth; counting stops above the limit."""
    size = height = 0
    pending: list[tuple[Node, int]] = [(node, 0)]
    while pending and size <= MOST_ALIASED:
        node, level = pending.pop()
        size, height = size + 1, max(height, level)
        if isinstance(node, Sequence):
            pending.extend((item, level + 1) for item in node.items)
        elif isinstance(node, Mapping):
            pending.extend((entry.node, level + 1) for entry in node.entries.values())
    return size, height
