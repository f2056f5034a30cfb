"""What a scalar without quotes means: the core schema of YAML 1.2, and only numbers every reader sees alike.

Policy files as positioned nodes: YAML 1.2 scalars, each key once, no tags, and a bound on everything.

Every problem is reported in one run, as far as the syntax can be followed. What the keys mean is not known here.
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

LARGEST_INT = (1 << 53) - 1  # beyond it, readers that keep numbers as doubles see another number

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
    """A number that not every reader of the file would see as the same number; the message says what would do."""


def plain_value(text: str) -> str | int | bool | Decimal | None:
    """What YAML 1.2 (core schema) makes of a scalar without quotes; `no`, `1_000` and `2024-01-01` are text."""
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

_MEANT_AS_TEXT = "quote it if you mean the text"


class AlreadyRefused(Enum):
    """A value that was there and has been reported already: whoever reads on need not complain again."""

    REFUSED = "refused"


REFUSED = AlreadyRefused.REFUSED


class Scalar(Struct, frozen=True):
    """One value: `text` as written (quotes and escapes undone), `value` as YAML 1.2 reads it."""

    text: str
    value: str | int | bool | Decimal | AlreadyRefused | None
    quoted: bool
    origin: Origin


class Sequence(Struct, frozen=True):
    """A list, in the order it was written."""

    items: tuple["Node", ...]
    origin: Origin


class MappingItem(Struct, frozen=True):
    """What a key leads to, and where the key itself stands."""

    key_origin: Origin
    node: "Node"


class Mapping(Struct, frozen=True):
    """Keys and their nodes, in the order they were written."""

    entries: ReadOnly[str, MappingItem]
    origin: Origin


Node: TypeAlias = Scalar | Sequence | Mapping


def read_nodes(data: bytes, file: str) -> tuple[Node | None, tuple[Problem, ...]]:
    """Read a YAML or (by its name, `.json`) JSON file: its root, and everything that is wrong with how it is written.

    With problems, the root is what could be read (refused parts are left out), so that a caller can look for more.
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
_DROPPED = object()  # the key was refused: its value is read, checked and left out


class _Open:
    """A collection whose end is still to come; `items` in a sequence, `entries` and the current `key` in a mapping."""

    __slots__ = ("anchor", "entries", "items", "key", "origin", "seen")

    def __init__(self, origin: Origin, anchor: str | None, mapping: bool) -> None:
        self.origin = origin
        self.anchor = anchor
        self.items: list[Node] | None = None if mapping else []
        self.entries: dict[str, MappingItem] = {}
        self.seen: dict[str, Origin] = {}  # where each key stands, also those whose value was refused
        self.key: Any = _NEXT if mapping else None

    def close(self) -> Node:
        if self.items is None:
            return Mapping(self.entries, self.origin)
        return Sequence(tuple(self.items), self.origin)


class _Builder:
    """Makes nodes of events and gathers problems; nothing here recurses, whatever the nesting."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node | None] = {}  # None: not ended yet, or refused
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
        """The root of the first document; more documents are a problem, and looked through for others."""
        from yaml import events as kinds

        scalar, alias = kinds.ScalarEvent, kinds.AliasEvent
        starts = (kinds.SequenceStartEvent, kinds.MappingStartEvent)
        ends = (kinds.SequenceEndEvent, kinds.MappingEndEvent)
        file, documents = self.file, 0
        top = bottom = _Open(Origin(file, 1, 1), None, mapping=False)
        stack = [bottom]
        for event in events:
            kind = type(event)
            mark = event.start_mark
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
        quoted = bool(event.style)  # plain is `None` to one parser and empty to the other
        if event.tag is not None or event.anchor is not None:
            self.properties(event, origin)
        # A value with a character that was already reported is left out without another word.
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
            # Stop: the parser's own work grows with the square of the depth.
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
        elif self.aliased <= MOST_ALIASED:  # past that it has been said once
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
        """The key to file the next node under, or the sign that it has none."""
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
            self.refuse(
                origin, f"the key {shown(node.text)} a second time", "each key once", f"it first stands at {first}"
            )
        else:
            top.seen[node.text] = origin
            return node.text
        return _DROPPED


def _extent(node: Node) -> tuple[int, int]:
    """How many nodes an alias of this node repeats, and how deep they go; counting ends where it is too many."""
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
