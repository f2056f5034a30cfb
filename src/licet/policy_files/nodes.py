"""Reads a policy file into nodes (scalars, sequences, mappings) that know their line and column.

- Scalars without quotes are read by the core schema of YAML 1.2. Numbers that other readers could read differently are
  errors.
- Each key may be given once. Tags, merge keys and further documents are errors.
- Size, depth, aliases and the number of problems are bounded.
- All problems of a file are reported in one run, unless its syntax is broken.
"""

import re
from collections.abc import Iterable
from collections.abc import Mapping as ReadOnly
from decimal import Decimal, DecimalException
from enum import Enum
from typing import Any, TypeAlias

from msgspec import Struct

from licet.core.origin import Origin, Problem
from licet.policy_files.syntax import REPLACED, Unreadable, hidden_in, json_events, plain_text, shown, yaml_events

LARGEST_INT = (1 << 53) - 1  # readers that store numbers as doubles would change a larger one

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER = re.compile(
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


DEEPEST = 32
MOST_ALIASED = 1000
MOST_PROBLEMS = 1000
MOST_VALUES = 200_000  # keys, values and collections in one file: each takes half a kilobyte, however short it is

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
