"""Checks of foreign data that may take long: begun in the event loop, and if they are not short, done in a thread.

Whether checking arguments by type hints would try the same values over and over.

pydantic tries each choice of a union. If a hint contains itself in two choices that take the same values, such as
`A | B` with fields of `A | B`, each level of nesting doubles the work: thirty levels never end. So where hints are of
this kind, what pydantic would try is counted first.

How long a check of data by a JSON Schema can take at most, known before it begins.

The schema may be a server's, and a check in this process cannot be interrupted. The library that checks works through
`$ref` as if its target were written there, and remembers answers only where a `$ref` leads back to itself. So the time
of a yes or no is at most the number of parts of the schema with each `$ref` written out, times the number of values.
Where that is not so, because a keyword checks other parts again, or a number takes long, the process decides.
`json_schema` checks here what is short by this measure, and all else in a process that can be ended.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec import Struct

from licet.declare.plain_json import has_long_number

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_MOST_WAITING = 4  # threads
_IN_LOOP = ContextVar("_IN_LOOP", default=False)
P = ParamSpec("P")
T = TypeVar("T")


class Unfinished(Exception):
    """A check was begun in the event loop, and takes so long that others would notice."""


async def patiently(check: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Do a check here if it is short, and otherwise in a thread."""
    before = _IN_LOOP.set(True)
    try:
        return check(*args, **options)
    except Unfinished:
        loop = asyncio.get_running_loop()
        work: Awaitable[T] = loop.run_in_executor(_threads(os.getpid()), lambda: check(*args, **options))
    finally:
        _IN_LOOP.reset(before)
    return await work


def leave_loop() -> None:
    """Raise `Unfinished` if `patiently` tries this check in the event loop: it would take long."""
    if _IN_LOOP.get():
        raise Unfinished


def may_wait() -> None:
    """Leave the event loop before a check that waits for a process: waiting would block every other task."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Unfinished


@cache
def _threads(_: int) -> "ThreadPoolExecutor":
    """The threads of this process for such checks: others than those that stores and files need."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_MOST_WAITING, "licet checks")


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


def explodes(schema: Mapping[str, Any]) -> Callable[[Any], bool] | None:
    """A function that says whether checking some data would explode; None if that cannot be with these hints."""
    count = _Count(schema)
    return count.explodes if count.known and count.width > 1 else None


class _Count:
    """Counts what pydantic tries. `known` are the definitions of a schema, which may contain themselves."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.known = {held["ref"]: held for held in schema.get("definitions", ())}
        self._schema = schema
        self._parts: dict[int, _Part] = {}
        self.width = self._widest() if self.known else 0

    def explodes(self, data: object) -> bool:
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

    def _tries(self, schema: Mapping[str, Any], data: object, counted: dict[tuple[int, int], int]) -> int:
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

    def _part(self, schema: Mapping[str, Any]) -> _Part:
        if id(schema) not in self._parts:
            self._parts[id(schema)] = _part_of(schema)
        return self._parts[id(schema)]

    def _widest(self) -> int:
        """The most choices of one union that take the same kind of value and hold further values."""
        return max((self._width(one) for one in _all_schemas(self._schema) if one["type"] == "union"), default=0)

    def _width(self, union: Mapping[str, Any]) -> int:
        kinds = [self._takes(choice, set()) for choice in self._part(union).held]
        return max(sum("dict" in kind for kind in kinds), sum("list" in kind for kind in kinds))

    def _takes(self, schema: Mapping[str, Any], seen: set[int]) -> set[str]:
        """Which kinds of values that hold others a schema takes."""
        if schema["type"] == "definition-ref":
            schema = self.known[schema["schema_ref"]]
        if id(schema) in seen:
            return set()
        part = self._part(schema)
        if part.takes:
            return {part.takes}
        return set().union(*(self._takes(inner, {*seen, id(schema)}) for inner in part.held))


def _part_of(schema: Mapping[str, Any]) -> _Part:
    kind = schema["type"]
    if kind not in _FIELDS:
        takes = "list" if kind in _LISTS else "dict" if kind == "dict" else ""
        return _Part(kind == "tagged-union", takes, [*_held(schema)], None)
    fields = schema["fields"] if "fields" in schema else schema["arguments_schema"]
    pairs = fields.items() if isinstance(fields, dict) else [(field["name"], field) for field in fields]
    if any("validation_alias" in field or "alias" in field for _, field in pairs):  # it may take any value
        return _Part(False, "dict", [field["schema"] for _, field in pairs], None)
    return _Part(False, "dict", [], {name: field["schema"] for name, field in pairs})


def _inside(part: _Part, data: object) -> Iterable[tuple[Any, Any]]:
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


def _held(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key, value in schema.items():
        if key in _NO_SCHEMAS:
            continue
        if _is_schema(value):
            yield value
        elif isinstance(value, list) or key == "choices":
            choices = value.values() if isinstance(value, dict) else value
            yield from filter(_is_schema, (one[0] if isinstance(one, tuple) else one for one in choices))


def _is_schema(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _all_schemas(schema: Mapping[str, Any]) -> Iterator[Any]:
    todo = [schema, *schema.get("definitions", ())]
    while todo:
        one = todo.pop()
        yield one
        part = _part_of(one) if one["type"] != "definition-ref" else None
        todo += [*part.held, *(part.named or {}).values()] if part else []


# Nanoseconds, each measured with schemas made to be slow, and then rounded up.
_PER_PAIR = 350  # of one part of a schema and one value
_PER_TEXT_PAIR = 0.3  # of one part of a schema and one byte
_PER_COMPARISON = 100  # of two items of a list that must be unique
_PER_PATTERN = {1 << 14: 1500, 1 << 19: 60_000}  # and byte: by how many bytes a pattern may take after compiling
_PER_FORMAT = 25  # and byte
_PER_FRACTION = 60_000  # and value: `multipleOf` a fraction is exact, and `1e308` has many digits
_SHORT = 8_000_000  # a check here may take this long
_MOST_PARTS = 1500  # more would take too long to compile here
_MOST_PATTERNS = 12
SMALL_PATTERN, LARGEST_PATTERN = _PER_PATTERN  # `\\PL{200}` takes ten times the largest, a readable one far less

_NOTES = frozenset(("$comment", "$id", "$schema", "default", "description", "id", "title"))
# What changes the meaning of a `$ref`, or refers in another way.
_ELSEWHERE = frozenset(("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"))
# The library checks all sibling keywords again before each of these. Nested, the work doubles at each level.
_REPEATED = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_MOST_DIGITS = 100  # of a number; exact arithmetic with longer ones takes long
_MOST_BITS = 332  # the same
_BASES = frozenset(("$id", "id"))
_KNOWN_DRAFTS = ("http://json-schema.org/", "https://json-schema.org/")
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b",[{")


class Weight(Struct, frozen=True):
    """The parts of a schema that take time, each `$ref` written out."""

    parts: int = 0
    patterns: int = 0
    formats: int = 0
    unique: int = 0
    fractions: int = 0

    def is_short(self, size: int, values: int, largest_pattern: int) -> bool:
        """Whether checking some data, by its bytes and number of values, takes so little time that it may be done here.

        No pattern of the schema takes more than `largest_pattern` bytes.
        """
        pairs = self.parts * (values * _PER_PAIR + size * _PER_TEXT_PAIR)
        scans = size * (self.patterns * _PER_PATTERN[largest_pattern] + self.formats * _PER_FORMAT)
        compared = self.unique * values * values * _PER_COMPARISON
        return pairs + scans + compared + self.fractions * values * _PER_FRACTION <= _SHORT


def values_in(text: bytes) -> int:
    """The number of values in a JSON text, or more."""
    return 1 + len(text.translate(None, _NO_MARKS))


def has_long_integer(data: object, text: bytes | None = None) -> bool:
    """Whether data, or its JSON if that is known, has an integer that is too long to compute with here."""
    if text is not None:
        return has_long_number(text, _MOST_DIGITS)
    return isinstance(data, int) and data.bit_length() > _MOST_BITS


def weight_of(schema: object, *, of_any_size: bool = False) -> Weight | None:
    """The weight of a schema; None if it is too large to compile here, or what it takes is not known.

    Keywords are not told from names, and so some things are counted that take no time.
    """
    most_parts, most_patterns = (1 << 30, 1 << 30) if of_any_size else (_MOST_PARTS, _MOST_PATTERNS)
    parts = patterns = formats = unique = fractions = 0
    starts: set[str] = set()  # each `$ref` that leads back to itself: it is counted once more, from there
    path: set[str] = set()
    todo: list[Any] = [schema]
    while todo:
        value = todo.pop()
        parts += 1
        many = len(value) if isinstance(value, dict | list) else 0
        if parts + many > most_parts or patterns > most_patterns or has_long_integer(value):
            return None
        if isinstance(value, list):
            todo += value
        elif isinstance(value, _Left):
            path.discard(value.reference)
        elif isinstance(value, _Followed) and value.reference not in path:
            path.add(value.reference)
            todo += [_Left(value.reference), value.target]
        elif isinstance(value, _Followed) and value.reference not in starts:  # the library remembers the answers there
            starts.add(value.reference)
            todo.insert(0, value.target)  # when everything else is done
        elif isinstance(value, dict):
            for key, held in value.items():
                if key == "$ref" and isinstance(held, str):
                    target = _target(schema, held)
                    if target is None:
                        return None
                    todo.append(_Followed(held, target))
                elif key in _REPEATED or _refers_elsewhere(key, held, is_root=value is schema):
                    return None
                elif key in _NOTES and isinstance(held, str):
                    continue
                else:
                    patterns += key == "pattern" and isinstance(held, str)
                    patterns += len(held) if key == "patternProperties" and isinstance(held, dict) else 0
                    formats += key == "format" and isinstance(held, str)
                    unique += key == "uniqueItems" and held is True
                    fractions += key == "multipleOf" and isinstance(held, float)
                    todo.append(held)
    return Weight(parts, patterns, formats, unique, fractions)


class _Followed(Struct):
    """A `$ref` whose target is counted in its place."""

    reference: str
    target: object


class _Left(Struct):
    """The end of the target of a `$ref`."""

    reference: str


def _refers_elsewhere(key: str, held: object, *, is_root: bool) -> bool:
    if key == "$schema":  # of another dialect: the schema is first checked by what that says
        return not (isinstance(held, str) and held.startswith(_KNOWN_DRAFTS))
    return key in _ELSEWHERE or (key in _BASES and isinstance(held, str) and not is_root)


def _target(schema: object, reference: str) -> Any:
    """What a `$ref` within a schema leads to; None if it leads elsewhere, or is written in an unusual way."""
    if not (reference == "#" or reference.startswith("#/")) or "%" in reference:
        return None
    for step in reference.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and step.isdecimal() and int(step) < len(schema):
            schema = schema[int(step)]
        elif isinstance(schema, dict) and step in schema:
            schema = schema[step]
        else:
            return None
    return schema
