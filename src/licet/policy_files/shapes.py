"""Shapes of values in policy files: text, words, numbers, flags and any JSON; lists, mappings, records, alternatives.

Shared are values with their origin (`Located`), messages about a node of the wrong kind, and hints for misspelt words.

A shape describes what a policy file may contain at one place. It checks a node and also writes its own JSON Schema, so
that editors and the loader accept the same files. The loader refuses more than the schema in three cases only: what
`TextShape.parse` refuses, amounts with too many decimals (`Money`), and the size of `AnyJson`.
"""

import re
from collections.abc import Callable, Collection, Iterable
from collections.abc import Mapping as ReadOnly
from decimal import Decimal
from functools import cached_property
from itertools import combinations
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed, visible
from licet.core.policy.tool import LARGEST_AMOUNT, amount
from licet.core.values import Origin, Problem, nearest
from licet.policy_files.limits import LARGEST_INT, MOST_HINTED_PROBLEMS, MOST_WORDS_COMPARED
from licet.policy_files.nodes import REFUSED, Mapping, Node, Scalar, Sequence, UnsafeNumber, plain_value, shown

__all__ = [
    "AnyJson",
    "Either",
    "Field",
    "Flag",
    "Integer",
    "ListOf",
    "Located",
    "MappingOf",
    "Money",
    "OneOf",
    "Record",
    "Shape",
    "TextShape",
    "Value",
    "check",
    "json_schema",
]

T = TypeVar("T")


class Located(Struct, Generic[T], frozen=True):
    """A checked value with its origin and, inside a mapping, its key: the origin, and of a record the spelling."""

    value: T
    origin: Origin
    key_origin: Origin | None = None
    key: str = ""


Value: TypeAlias = Located[Any]
Problems: TypeAlias = list[Problem]


class Shape(Protocol):
    """What a node must look like. The same object checks nodes and writes JSON Schema."""

    @property
    def expected(self) -> str:
        """The phrase that follows "expected"."""

    def fits(self, node: Node) -> bool:
        """Whether the node has the right kind (text, number, list …). Its content is not checked."""

    def read(self, node: Node, problems: Problems) -> Value | None:
        """The value of the node; or None, and then at least one problem was added."""

    def schema(self) -> dict[str, Any]:
        """The same checks as JSON Schema."""


def text_of(node: Node) -> str | None:
    """The text of a node; None if it is not text."""
    return node.text if isinstance(node, Scalar) and isinstance(node.value, str) else None


def number_of(node: Node) -> int | Decimal | None:
    """The number of a node; None if it is not a number. Booleans are not numbers."""
    value = node.value if isinstance(node, Scalar) else None
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def report_mismatch(shape: Shape, node: Node, problems: Problems) -> Value | None:
    """Report a node that does not have this shape, with a hint if a small edit would help. Always returns None."""
    if not (isinstance(node, Scalar) and node.value is REFUSED):
        problems.append(Problem(node.origin, _found(node), shape.expected, _hint(shape, node)))
    return None


def _found(node: Node) -> str:
    match node:
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"
        case Scalar(text="", quoted=False):
            return "nothing"
        case Scalar(value=None):
            return f"a null {shown(node.text)}"
        case Scalar(value=bool()):
            return f"a boolean {shown(node.text)}"
        case Scalar(value=str()):
            return f"the text {shown(node.text)}"
        case _:
            return f"a number {shown(node.text)}"


def _hint(shape: Shape, node: Node) -> str:
    if not isinstance(node, Scalar) or shape.fits(node):
        return ""
    if not node.text:
        return "write `{}` for an empty mapping" if shape.fits(Mapping({}, node.origin)) else ""
    if shape.fits(Scalar(node.text, node.text, True, node.origin)):
        return "quote it if you mean the text"
    if node.value is not None and shape.fits(Sequence((node,), node.origin)):
        return "put it in `[` and `]` to make a list"
    try:
        bare = plain_value(node.text)
    except UnsafeNumber:
        return ""
    return "remove the quotes" if shape.fits(Scalar(node.text, bare, False, node.origin)) else ""


def did_you_mean(word: str, words: Collection[str], problems: Problems) -> str:
    """A hint with the known word that is most similar, or an empty text."""
    meant = meant_by(word, words, problems)
    return f"did you mean {shown(meant)}?" if meant else ""


def meant_by(word: str, words: Collection[str], problems: Problems) -> str:
    """The known word that is most similar, or an empty text."""
    if len(problems) > MOST_HINTED_PROBLEMS or (len(problems) + 1) * len(words) > MOST_WORDS_COMPARED:
        return ""
    plain = {_folded(known): known for known in words}
    near = nearest(_folded(word[:64]), plain)
    return plain[near] if near else ""


def _folded(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "").replace(" ", "")


def alternatives(phrases: Iterable[str]) -> str:
    """Join phrases: `a, b or c`."""
    *most, last = (*phrases,) or ("nothing",)
    return f"{', '.join(most)} or {last}" if most else last


def with_description(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, **schema} if description else schema


class TextShape(Struct, frozen=True, kw_only=True, dict=True):
    """Text, never empty, that matches `pattern` completely and that `parse` accepts. The value is what `parse` returns.

    `parse` refuses with a `ValueError`. Its message is `found …, expected …`, or it has the attributes `expected`,
    `found` and `hint`.
    """

    expected: str
    pattern: str = ""
    parse: Callable[[str], Any] | None = None
    examples: tuple[str, ...] = ()
    description: str = ""

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        # In the regular expressions of JSON Schema, `\d` and `\w` are ASCII.
        return re.compile(self.pattern, re.ASCII)

    def fits(self, node: Node) -> bool:
        return text_of(node) is not None

    def read(self, node: Node, problems: Problems) -> Value | None:
        text = text_of(node)
        if text is None:
            return report_mismatch(self, node, problems)
        if not text or (self.pattern and self._regex.fullmatch(text) is None):
            problems.append(Problem(node.origin, shown(text) if text else "an empty text", self.expected))
            return None
        if self.parse is None:
            return Located(text, node.origin)
        try:
            return Located(self.parse(text), node.origin)
        except ValueError as error:
            problems.append(self._refusal(text, node.origin, error))
            return None

    def _refusal(self, text: str, origin: Origin, error: ValueError) -> Problem:
        if isinstance(expected := getattr(error, "expected", None), str):
            found, hint = getattr(error, "found", text), getattr(error, "hint", "")
            return Problem(origin, shown(str(found)), visible(expected), visible(str(hint)))
        message = visible(str(error))
        if parts := re.fullmatch(r"found (.+?), expected (.+?)(?:; (.+))?", message):
            return Problem(origin, parts[1], parts[2], parts[3] or "")
        return Problem(origin, shown(text), self.expected, message)

    def schema(self) -> dict[str, Any]:
        demands: dict[str, Any] = {"type": "string", "minLength": 1}
        if self.pattern:
            demands["pattern"] = f"^(?:{self.pattern})$"
        if self.examples:
            demands["examples"] = list(self.examples)
        return with_description(demands, self.description or self.expected)


class OneOf(Struct, frozen=True):
    """One of some words."""

    words: tuple[str, ...]
    description: str = ""

    @property
    def expected(self) -> str:
        return alternatives(map(shown, self.words))

    def fits(self, node: Node) -> bool:
        return text_of(node) is not None

    def read(self, node: Node, problems: Problems) -> Value | None:
        word = text_of(node)
        if word is None:
            return report_mismatch(self, node, problems)
        if word in self.words:
            return Located(word, node.origin)
        problems.append(Problem(node.origin, shown(word), self.expected, did_you_mean(word, self.words, problems)))
        return None

    def schema(self) -> dict[str, Any]:
        return with_description({"type": "string", "enum": list(self.words)}, self.description)


class Integer(Struct, frozen=True):
    """An integer between two bounds, both included. `3.0` is an integer, as in JSON Schema."""

    minimum: int = 0
    maximum: int = LARGEST_INT
    description: str = ""

    @property
    def expected(self) -> str:
        if self.minimum == self.maximum:
            return f"the number {self.minimum}"
        bounds = (
            f"of at least {self.minimum}" if self.maximum == LARGEST_INT else f"from {self.minimum} to {self.maximum}"
        )
        return f"a whole number {bounds}"

    def fits(self, node: Node) -> bool:
        return number_of(node) is not None

    def read(self, node: Node, problems: Problems) -> Value | None:
        number = number_of(node)
        if number is not None and self.minimum <= number <= self.maximum and number == int(number):
            return Located(int(number), node.origin)
        return report_mismatch(self, node, problems)

    def schema(self) -> dict[str, Any]:
        return with_description({"type": "integer", "minimum": self.minimum, "maximum": self.maximum}, self.description)


class Money(Struct, frozen=True):
    """An amount from 0 to a billion with at most 15 decimals, so that sums are exact."""

    description: str = ""

    expected = f"an amount from 0 to {LARGEST_AMOUNT} with at most 15 decimals"

    def fits(self, node: Node) -> bool:
        return number_of(node) is not None

    def read(self, node: Node, problems: Problems) -> Value | None:
        number = number_of(node)
        try:
            return report_mismatch(self, node, problems) if number is None else Located(amount(number), node.origin)
        except Malformed:
            return report_mismatch(self, node, problems)

    def schema(self) -> dict[str, Any]:
        return with_description({"type": "number", "minimum": 0, "maximum": LARGEST_AMOUNT}, self.description)


class Flag(Struct, frozen=True):
    """True or false."""

    description: str = ""

    expected = "`true` or `false`"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Scalar) and isinstance(node.value, bool)

    def read(self, node: Node, problems: Problems) -> Value | None:
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return Located(node.value, node.origin)
        return report_mismatch(self, node, problems)

    def schema(self) -> dict[str, Any]:
        return with_description({"type": "boolean"}, self.description)


class AnyJson(Struct, frozen=True):
    """Any JSON of at most `most` values, as plain data (dict, list, str, int, float, bool, None)."""

    most: int = 1000
    description: str = ""

    @property
    def expected(self) -> str:
        return f"at most {self.most} values"

    def fits(self, node: Node) -> bool:
        return True

    def read(self, node: Node, problems: Problems) -> Value | None:
        left = [self.most]
        data = _plain(node, left)
        if left[0] < 0:
            problems.append(Problem(node.origin, f"more than {self.most} values", self.expected))
            return None
        return Located(data, node.origin)

    def schema(self) -> dict[str, Any]:
        return with_description({}, self.description)


def _plain(node: Node, left: list[int]) -> Any:
    # `read_nodes` bounds the depth, so this may recurse.
    left[0] -= 1
    if left[0] < 0:
        return None
    if isinstance(node, Sequence):
        return [_plain(item, left) for item in node.items]
    if isinstance(node, Mapping):
        return {key: _plain(entry.node, left) for key, entry in node.entries.items()}
    return float(node.value) if isinstance(node.value, Decimal) else node.value


def check(shape: Shape, node: Node, problems: Problems) -> Value | None:
    """Check a node against a shape; return its value, and add every problem to the list.

    The value is complete only if no problem was added. It is what `parse` returns for a `TextShape` (without `parse`, a
    str), a str for `OneOf`, an int for `Integer`, a Decimal for `Money`, a bool for `Flag`, a tuple of values for
    `ListOf`, a mapping from key to value for `MappingOf` and `Record`, and plain data for `AnyJson`.
    """
    return shape.read(node, problems)


def json_schema(shape: Shape, title: str, description: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a file, for editors."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "description": description}
    return head | {key: value for key, value in shape.schema().items() if key != "description"}


class ListOf(Struct, frozen=True):
    """A list whose items have one shape; the value is a tuple. Repeated items are allowed."""

    shape: Shape
    least: int = 0
    description: str = ""

    @property
    def expected(self) -> str:
        return f"a list ({self.shape.expected} in each entry)"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Sequence)

    def read(self, node: Node, problems: Problems) -> Value | None:
        if not isinstance(node, Sequence):
            return report_mismatch(self, node, problems)
        if len(node.items) < self.least:
            problems.append(Problem(node.origin, f"{len(node.items)} entries", f"at least {self.least}"))
        read = self.shape.read
        values = [value for item in node.items if (value := read(item, problems)) is not None]
        return Located(tuple(values), node.origin)

    def schema(self) -> dict[str, Any]:
        demands: dict[str, Any] = {"type": "array", "items": self.shape.schema()}
        if self.least:
            demands["minItems"] = self.least
        return with_description(demands, self.description)


class MappingOf(Struct, frozen=True):
    """A mapping whose keys the author chooses, such as names of tools; the value maps parsed keys to values."""

    key: TextShape
    shape: Shape
    description: str = ""

    @property
    def expected(self) -> str:
        return f"a mapping ({self.key.expected} as each key)"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Mapping)

    def read(self, node: Node, problems: Problems) -> Value | None:
        if not isinstance(node, Mapping):
            return report_mismatch(self, node, problems)
        values: dict[Any, Value] = {}
        for text, entry in node.entries.items():
            origin = entry.key_origin
            key = self.key.read(Scalar(text, text, True, origin), problems)
            value = self.shape.read(entry.node, problems)
            if key is None or value is None:
                continue
            if key.value in values:
                first = values[key.value]
                problems.append(_again(Located(text, origin), first.key_origin or first.origin))
            else:
                values[key.value] = replace(value, key_origin=origin)
        return Located(values, node.origin)

    def schema(self) -> dict[str, Any]:
        demands = {
            "type": "object",
            "propertyNames": self.key.schema(),
            "additionalProperties": self.shape.schema(),
        }
        return with_description(demands, self.description)


class Field(Struct, frozen=True):
    """One key of a record. `aliases` are other names of the key; only one of all may be used in a file."""

    shape: Shape
    required: bool = False
    description: str = ""
    aliases: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        return self.shape.schema() | ({"description": self.description} if self.description else {})


class RecordValues(dict[str, Value]):
    """The values of a record by key. A refused value is absent, but `in` is true for its key."""

    refused: frozenset[str] = frozenset()

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.refused


class Record(Struct, frozen=True):
    """A mapping with known keys; the value maps the given keys to values. An alias becomes its main key."""

    fields: ReadOnly[str, Field]
    description: str = ""

    @property
    def expected(self) -> str:
        return f"a mapping with {alternatives(map(shown, self.fields))}"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Mapping)

    def read(self, node: Node, problems: Problems) -> Value | None:
        if not isinstance(node, Mapping):
            return report_mismatch(self, node, problems)
        spellings = {text: name for name, known in self.fields.items() for text in (name, *known.aliases)}
        given: dict[str, str] = {}
        values = RecordValues()
        refused: set[str] = set()
        misspelt: set[str] = set()
        for text, entry in node.entries.items():
            origin = entry.key_origin
            name = spellings.get(text)
            if name is None:
                # The main keys come last, since they win over an alias that is the same without `_` and case.
                meant = meant_by(text, (*spellings, *self.fields), problems)
                hint = f"did you mean {shown(meant)}?" if meant else ""
                problems.append(Problem(origin, f"the key {shown(text)}", alternatives(map(shown, self.fields)), hint))
                if meant:  # so it is not reported as missing, too
                    misspelt.add(spellings[meant])
            elif name in given:
                found = f"the key {shown(text)} in addition to {shown(given[name])}"
                problems.append(Problem(origin, found, "one of the two", f"keep {shown(name)}"))
            else:
                given[name] = text
                value = self.fields[name].shape.read(entry.node, problems)
                if value is not None:
                    values[name] = replace(value, key_origin=origin, key=text)
                else:
                    refused.add(name)
        for name, known_field in self.fields.items():
            if known_field.required and name not in given and name not in misspelt:
                expected = f"the key {shown(name)} ({known_field.shape.expected})"
                problems.append(Problem(node.origin, "a mapping without it", expected))
        values.refused = frozenset(refused | misspelt - given.keys())
        return Located(MappingProxyType(values), node.origin)

    def schema(self) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required: list[str] = []
        choices: list[dict[str, Any]] = []
        for name, known in self.fields.items():
            properties[name] = known.schema()
            also = {"deprecated": True, "description": f"another name of `{name}`"}
            properties |= {alias: known.schema() | also for alias in known.aliases}
            spellings = (name, *known.aliases)
            if known.required and known.aliases:
                choices.append({"oneOf": [{"required": [spelling]} for spelling in spellings]})
            elif known.required:
                required.append(name)
            else:
                choices += [{"not": {"required": list(pair)}} for pair in combinations(spellings, 2)]
        demands: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            demands["required"] = required
        if choices:
            demands["allOf"] = choices
        return with_description(demands, self.description)


class Either(Struct, frozen=True):
    """One of several shapes, chosen by the kind of the node, such as a list or a mapping."""

    shapes: tuple[Shape, ...]
    description: str = ""

    @property
    def expected(self) -> str:
        return alternatives(shape.expected for shape in self.shapes)

    def fits(self, node: Node) -> bool:
        return any(shape.fits(node) for shape in self.shapes)

    def read(self, node: Node, problems: Problems) -> Value | None:
        for shape in self.shapes:
            if shape.fits(node):
                return shape.read(node, problems)
        return report_mismatch(self, node, problems)

    def schema(self) -> dict[str, Any]:
        return with_description({"anyOf": [shape.schema() for shape in self.shapes]}, self.description)


def _again(value: Located[str], first: Origin) -> Problem:
    return Problem(
        value.origin, f"{shown(value.value)} a second time", "each entry once", f"it is first at {first.full}"
    )
