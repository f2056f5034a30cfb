"""How long a check of data by a JSON Schema can take at most, known before it begins.

The schema may be a server's, and a check in this process cannot be interrupted. The library that checks works through
`$ref` as if its target were written there, and remembers answers only where a `$ref` leads back to itself. So the time
of a yes or no is at most the number of parts of the schema with each `$ref` written out, times the number of values.
Where that is not so, because a keyword checks other parts again, or a number takes long, the process decides.
`json_schema` checks here what is short by this measure, and all else in a process that can be ended.
"""

from typing import Any

from msgspec import Struct

from licet.declare.plain_json import has_long_number

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


def has_long_integer(data: Any, text: bytes | None = None) -> bool:
    """Whether data, or its JSON if that is known, has an integer that is too long to compute with here."""
    if text is not None:
        return has_long_number(text, _MOST_DIGITS)
    return isinstance(data, int) and data.bit_length() > _MOST_BITS


def weight_of(schema: Any, *, of_any_size: bool = False) -> Weight | None:
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
    target: Any


class _Left(Struct):
    """The end of the target of a `$ref`."""

    reference: str


def _refers_elsewhere(key: str, held: Any, *, is_root: bool) -> bool:
    if key == "$schema":  # of another dialect: the schema is first checked by what that says
        return not (isinstance(held, str) and held.startswith(_KNOWN_DRAFTS))
    return key in _ELSEWHERE or (key in _BASES and isinstance(held, str) and not is_root)


def _target(schema: Any, reference: str) -> Any:
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
