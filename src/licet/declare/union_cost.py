"""Whether checking arguments by type hints would try the same values over and over.

pydantic tries each choice of a union. If a hint contains itself in two choices that take the same values, such as
`A | B` with fields of `A | B`, each level of nesting doubles the work: thirty levels never end. So where hints are of
this kind, what pydantic would try is counted first.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from msgspec import Struct

from licet.declare.patience import leave_loop

_FEW_TRIES = 4000
_MOST_TRIES = 12_000  # about 20 ms if each of them fails

_LISTS = frozenset(("list", "set", "frozenset", "tuple", "generator"))
_FIELDS = frozenset(("model-fields", "typed-dict", "dataclass-args", "arguments", "arguments-v3"))
_NO_SCHEMAS = frozenset(("definitions", "metadata", "serialization", "default", "config"))


class _TooMany(Exception):
    """More was counted than is worth counting."""


class _Part(Struct):
    """A part of a hint: which parts it holds, for the same value, for each item, or for the value of a name."""

    is_choice: bool  # only one of the parts is tried
    takes: str  # `list`, `dict`, or empty for both
    held: list[Any]
    named: dict[str, Any] | None  # of fields that have one name each


def explodes(schema: Any) -> Callable[[Any], bool] | None:
    """A function that says whether checking some data would explode; None if that cannot be with these hints."""
    count = _Count(schema)
    return count.explodes if count.known and count.width > 1 else None


class _Count:
    """Counts what pydantic tries. `known` are the definitions of a schema, which may contain themselves."""

    def __init__(self, schema: Any) -> None:
        self.known = {held["ref"]: held for held in schema.get("definitions", ())}
        self._schema = schema
        self._parts: dict[int, _Part] = {}
        self.width = self._widest() if self.known else 0

    def explodes(self, data: Any) -> bool:
        """Whether there are too many tries: by a rough count, and if that is high, by an exact one."""
        level, tries, each = [data], 0, 1
        while level and tries <= _FEW_TRIES:
            tries += len(level) * each
            each *= self.width
            dicts = chain.from_iterable(one.values() for one in level if isinstance(one, dict))
            level = [*dicts, *chain.from_iterable(one for one in level if isinstance(one, list))]
        if tries <= _FEW_TRIES:
            return False
        leave_loop()
        try:
            return self._tries(self._schema, data, {}) > _MOST_TRIES
        except (_TooMany, RecursionError):
            return True

    def _tries(self, schema: Any, data: Any, counted: dict[tuple[int, int], int]) -> int:
        """How many values are tried, with each choice of each union. Every pair is counted once."""
        while schema["type"] == "definition-ref":
            schema = self.known[schema["schema_ref"]]
        pair = id(schema), id(data)
        if pair not in counted:
            if len(counted) > _MOST_TRIES:
                raise _TooMany
            counted[pair] = 1  # for a hint that holds itself without a level between
            part = self._part(schema)
            found = [self._tries(inner, value, counted) for inner, value in _inside(part, data)]
            counted[pair] = 1 + (max(found, default=0) if part.is_choice else sum(found))
        return counted[pair]

    def _part(self, schema: Any) -> _Part:
        if id(schema) not in self._parts:
            self._parts[id(schema)] = _part_of(schema)
        return self._parts[id(schema)]

    def _widest(self) -> int:
        """The most choices of one union that take the same kind of value and hold further values."""
        return max((self._width(one) for one in _all_schemas(self._schema) if one["type"] == "union"), default=0)

    def _width(self, union: Any) -> int:
        kinds = [self._takes(choice, set()) for choice in self._part(union).held]
        return max(sum("dict" in kind for kind in kinds), sum("list" in kind for kind in kinds))

    def _takes(self, schema: Any, seen: set[int]) -> set[str]:
        """Which kinds of values that hold others a schema takes."""
        if schema["type"] == "definition-ref":
            schema = self.known[schema["schema_ref"]]
        if id(schema) in seen:
            return set()
        part = self._part(schema)
        if part.takes:
            return {part.takes}
        return set().union(*(self._takes(inner, {*seen, id(schema)}) for inner in part.held))


def _part_of(schema: Any) -> _Part:
    kind = schema["type"]
    if kind not in _FIELDS:
        takes = "list" if kind in _LISTS else "dict" if kind == "dict" else ""
        return _Part(kind == "tagged-union", takes, [*_held(schema)], None)
    fields = schema.get("fields", schema.get("arguments_schema"))
    pairs = fields.items() if isinstance(fields, dict) else [(field["name"], field) for field in fields]
    if any("validation_alias" in field or "alias" in field for _, field in pairs):  # it may take any value
        return _Part(False, "dict", [field["schema"] for _, field in pairs], None)
    return _Part(False, "dict", [], {name: field["schema"] for name, field in pairs})


def _inside(part: _Part, data: Any) -> Iterable[tuple[Any, Any]]:
    """The parts inside a part, each with the value that it is for."""
    if part.named is not None:
        held = data if isinstance(data, dict) else {}
        return [(part.named[name], value) for name, value in held.items() if name in part.named]
    if not part.takes:
        return [(inner, data) for inner in part.held]
    values: Iterable[Any] = ()
    if part.takes == "list" and isinstance(data, list):
        values = data
    elif part.takes == "dict" and isinstance(data, dict):
        values = data.values()
    return [(inner, value) for inner in part.held for value in values]


def _held(schema: Any) -> Iterator[Any]:
    for key, value in schema.items():
        if key in _NO_SCHEMAS:
            continue
        if _is_schema(value):
            yield value
        elif isinstance(value, list) or key == "choices":
            choices = value.values() if isinstance(value, dict) else value
            yield from filter(_is_schema, (one[0] if isinstance(one, tuple) else one for one in choices))


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _all_schemas(schema: Any) -> Iterator[Any]:
    todo = [schema, *schema.get("definitions", ())]
    while todo:
        one = todo.pop()
        yield one
        part = _part_of(one) if one["type"] != "definition-ref" else None
        todo += [*part.held, *(part.named or {}).values()] if part else []
