"""Converts the arguments and results of tools to JSON and back, and limits how much is written or parsed.

pydantic writes results, since it knows models, dates and enums. Short plain data, such as the words of a command, is
written by msgspec: the bytes are the same, and `licet run` need not load pydantic.
"""

import base64
import dataclasses
import enum
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple

PLAIN = frozenset((str, int, bool, type(None)))  # every writer of JSON writes these alike
_FEW, _SHORT = 100, 8_000  # values of short data, and its characters and bits of integers
MOST_DIGITS = 4300  # of an integer: the limit of Python and pydantic; converting more takes quadratic time
MOST_DEPTH = 250  # levels of nesting; the limit of pydantic is a little higher
MOST_SIZE = 32 << 20  # bytes of JSON; an object that is contained twice counts twice, as it is written twice
MOST_HELD = 250_000  # lists and objects; each takes about a microsecond to check
_PER_VALUE = 2  # bytes at least: one for the value, one for the comma
_BITS_PER_DIGIT = 3.3219280949
# The time to parse a text depends on the number of its values, and hardly on their length. One unit is the time for one
# value in a list, about 50 ns. A list costs 4 units more, an object 2, and each key of an object 3. Only integers of
# hundreds of digits take longer than others, those of thousands the longest.
_UNITS = ((b",", 1), (b"[", 4), (b"{", 2), (b":", 3))
_NO_UNITS = bytes(byte for byte in range(256) if bytes((byte,)) not in {mark for mark, _ in _UNITS})
_ALIKE = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_RUN, _PER_RUN = b"0" * 100, 150  # digits in a row, and their units
MOST_UNITS = 250_000  # about 10 ms
_MOST_QUOTES = 60_000


class DataTooLarge(ValueError):
    """The JSON of some data would be longer than its limit."""


def plain_json(value: object) -> bytes:
    """Convert data to JSON; `ValueError` if that is not possible."""
    if is_short_and_plain(value):
        return msgspec.json.encode(value)
    text: bytes = json_core().to_json(value, inf_nan_mode="strings", fallback=_fields)
    return text


def _fields(value: object) -> dict[str, Any]:
    """The fields of a Struct, such as the `Stat` that `ctx.fs.stat` returns; pydantic does not know that class."""
    if isinstance(value, Struct):
        return asdict(value)
    raise ValueError(f"a {type(value).__name__}")


def check_bounded(value: object, most: int = MOST_SIZE) -> bool:
    """Raise `ValueError` for data that takes too long to write as JSON, because writing cannot be interrupted.

    Returns whether there are bytes in the data.

    Refused are integers with very many digits, lists that contain the same list many times, and iterators, which may
    never end. No code of the value runs, apart from attributes of a dataclass, Struct or model.
    """
    digits = getattr(sys, "get_int_max_str_digits", int)() or MOST_DIGITS
    bits, left = int(min(digits, MOST_DIGITS) * _BITS_PER_DIGIT), most
    levels: list[Iterator[Any]] = [iter((value,))]
    held, has_bytes = 0, False
    while levels:
        for one in levels[-1]:
            kind = type(one)
            left -= _PER_VALUE
            if issubclass(kind, str):
                left -= str.__len__(one)
            elif issubclass(kind, bytes | bytearray):
                left -= memoryview(one).nbytes
                has_bytes = True
            elif issubclass(kind, int):
                if int.bit_length(one) > bits:
                    raise ValueError(f"an integer of more than {min(digits, MOST_DIGITS)} digits")
                left -= int.bit_length(one) // 4  # a digit or less
            elif kind is list and set(map(type, one)) == {str}:  # a fast path for long lists of strings
                left -= _PER_VALUE * len(one) + sum(map(len, one))
            elif kind is not float and one is not None:
                levels.append(_held(one, kind))
                held += 1
                break
            if left < 0:
                raise DataTooLarge(f"more than {most} bytes")
        else:
            levels.pop()
        if held > MOST_HELD:
            raise ValueError(f"more than {MOST_HELD} lists and objects")
        if len(levels) > MOST_DEPTH:
            raise ValueError(f"data in more than {MOST_DEPTH} levels")
    return has_bytes


def with_typed_bytes(value: object) -> Any:
    """The same data with `{"type": "bytes", "base64": …}` in place of bytes. Models write their own fields."""
    match value:
        case bytes() | bytearray():
            return {"type": "bytes", "base64": base64.b64encode(value).decode()}
        case dict():
            return {key: with_typed_bytes(one) for key, one in dict.items(value)}
        case list() | tuple() | set() | frozenset() | deque():
            return [with_typed_bytes(one) for one in value]
        case Struct():
            return {key: with_typed_bytes(one) for key, one in asdict(value).items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: with_typed_bytes(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _held(value: Any, kind: type) -> Iterator[Any]:
    """The values inside a value, read without methods that its class may override."""
    if issubclass(kind, dict):
        return (part for pair in dict.items(value) for part in pair)
    for known in (list, tuple, set, frozenset, deque):
        if issubclass(kind, known):
            return known.__iter__(value)
    if hasattr(kind, "__next__") or hasattr(kind, "__anext__"):
        raise ValueError("an iterator or a generator: make a list of it")
    if issubclass(kind, enum.Enum):
        return iter((value.value,))
    if issubclass(kind, Struct):
        return iter(astuple(value))
    if dataclasses.is_dataclass(kind):
        return iter([getattr(value, field.name) for field in dataclasses.fields(kind)])
    if hasattr(kind, "__pydantic_fields__"):
        return iter([*vars(value).values(), *(getattr(value, "__pydantic_extra__", None) or {}).values()])
    return iter(())


def plain_data(text: bytes) -> Any:
    """Parse any JSON text."""
    return json_core().from_json(text)


def is_heavy(text: bytes, most: int = MOST_UNITS) -> bool:
    """Whether parsing a JSON text would take too long, estimated without parsing it."""
    if len(text) * _MOST_PER_BYTE <= most or _units(text) <= most:
        return False
    # The counted characters may be inside strings: count again without the strings, unless there are so many strings
    # that this would take as long as parsing. After a syntax error the count may be wrong, but a parser stops there.
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return bare.count(b'"') > _MOST_QUOTES or _units(b"".join(bare.split(b'"')[::2])) > most


def _units(text: bytes) -> int:
    marks = text.translate(None, _NO_UNITS)  # one pass over a long text instead of four
    return sum(units * marks.count(mark) for mark, units in _UNITS) + digit_units(with_digits_alike(text))


def with_digits_alike(text: bytes) -> bytes:
    """A JSON text with `0` in place of each digit."""
    return text.translate(_ALIKE)


def digit_units(alike: bytes) -> int:
    """The units of the long numbers in a text with digits alike, or more: some may be inside strings."""
    return _PER_RUN * alike.count(_RUN)


def has_long_number(text: bytes, most: int) -> bool:
    """Whether a number in a JSON text has more than so many digits in a row, at least 100. The text is not parsed."""
    if len(text) <= most:
        return False
    alike = with_digits_alike(text)
    if not digit_units(alike):
        return False
    bare = alike.replace(b"\\\\", b"").replace(b'\\"', b"")
    run, start, quotes = b"0" * (most + 1), 0, 0
    while (found := bare.find(run, start)) != -1:
        quotes += bare.count(b'"', start, found)
        if quotes % 2 == 0:
            return True
        start = bare.find(b'"', found)  # the end of the string that the digits are in
        if start == -1:
            return False
    return False


_MOST_PER_BYTE = max(units for _, units in _UNITS)


def data_again(text: bytes) -> Any:
    """Parse a text that `plain_json` wrote."""
    return msgspec.json.decode(text)


def is_finite(text: bytes) -> bool:
    """Whether a JSON text has no NaN or infinity, which are not valid JSON."""
    if b"NaN" not in text and b"Infinity" not in text:
        return True
    try:  # they may be part of a string
        json_core().from_json(text, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def json_core() -> Any:
    """The module pydantic_core, imported when it is first needed."""
    import pydantic_core

    return pydantic_core


def is_short_and_plain(value: object) -> bool:
    """Whether a value has few parts, and only strings, integers, booleans and nulls, in lists and objects.

    No limit for what is written or parsed is below this.
    """
    values, left = [value], _SHORT
    for count, one in enumerate(values):  # the list grows meanwhile
        kind = type(one)
        if isinstance(one, str) and kind is str:
            left -= len(one)
        elif isinstance(one, int) and kind is int:
            left -= one.bit_length()
        elif isinstance(one, dict | list) and len(one) > 10 * _FEW:  # before it is copied
            return False
        elif isinstance(one, dict) and kind is dict:
            for name in one:
                if type(name) is not str:
                    return False
                left -= len(name)
            values += one.values()
        elif isinstance(one, list) and kind is list:
            values += one
        elif kind not in PLAIN:
            return False
        if left < 0 or count > _FEW or len(values) > 10 * _FEW:
            return False
    return True
