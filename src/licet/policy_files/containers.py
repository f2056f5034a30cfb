"""Shapes that contain other shapes: lists, mappings, records and alternatives.

A shape describes what a policy file may contain at one place. It checks a node and also writes its own JSON Schema, so
that editors and the loader accept the same files. The loader refuses more than the schema in three cases only: what
`TextShape.parse` refuses, amounts with too many decimals (`Money`), and the size of `AnyJson`.
"""

from collections.abc import Iterator
from collections.abc import Mapping as ReadOnly
from itertools import combinations
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.core.origin import Origin, Problem
from licet.policy_files.nodes import Mapping, Node, Scalar, Sequence
from licet.policy_files.shapes import (
    AnyJson,
    Flag,
    Integer,
    Located,
    Money,
    OneOf,
    Problems,
    Shape,
    TextShape,
    Value,
    alternatives,
    meant_by,
    report_mismatch,
    with_description,
)
from licet.policy_files.syntax import shown

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


class RecordValues(ReadOnly[str, Value]):
    """The values of a record by key. A refused value is absent, but `in` is true for its key."""

    def __init__(self, values: ReadOnly[str, Value], refused: frozenset[str]) -> None:
        self._values, self._refused = values, refused

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values or key in self._refused

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


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
        values: dict[str, Value] = {}
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
        return Located(RecordValues(values, frozenset(refused | misspelt - given.keys())), node.origin)

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
