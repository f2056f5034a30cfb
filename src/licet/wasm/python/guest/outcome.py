"""What one run gives back: its output, its result as JSON, and its error as a traceback of the code alone."""

import io
import json
import math
import os
import traceback
from collections.abc import Mapping
from typing import Any

FILE = "<code>"
MOST_OUTPUT = 256 * 1024  # bytes of each stream
MOST_REPR = 16 * 1024  # characters of a value that is not JSON
MOST_TRACEBACK = 16 * 1024  # characters
MOST_FRAMES = 20  # at each end of a traceback
MOST_DEPTH = 100
_NESTED = (dict, list, tuple)
_OWN = os.path.dirname(__file__)


class Output(io.RawIOBase):
    """A stream that keeps the beginning of what is written, and counts the rest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kept = bytearray()
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        size = len(data)
        self._written += size
        if (left := MOST_OUTPUT - len(self._kept)) > 0:
            self._kept += data[:left]
        return size

    def text(self) -> str:
        """What was kept. A text that was cut says so."""
        if self._written <= MOST_OUTPUT:
            return self._kept.decode("utf-8", "replace")
        kept = self._kept.decode("utf-8", "ignore")
        return f"{kept}\n[{self.name} was cut: this is the beginning, {MOST_OUTPUT} of {self._written} bytes]\n"


def stream(output: Output) -> io.TextIOWrapper:
    return io.TextIOWrapper(output, "utf-8", "backslashreplace", write_through=True)


def as_json(value: object) -> str:
    """A value as JSON text. What JSON cannot hold is in it as its `repr`, and NaN and Infinity as their names."""
    if not _is_flat_enough(value):
        value = _plain(value, 0, set())
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=short_repr)
    except (TypeError, ValueError):  # keys that are not texts, NaN, a cycle, or a number with too many digits
        text = json.dumps(_plain(value, 0, set()), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace").decode()  # lone surrogates become `?`


def _is_flat_enough(value: object) -> bool:
    """Whether a value has few levels. The writer of JSON recurses in C, and the stack of the instance is small."""
    level = {id(value): value}
    for _ in range(MOST_DEPTH):
        parts = [one.values() if isinstance(one, dict) else one for one in level.values() if isinstance(one, _NESTED)]
        level = {id(item): item for part in parts for item in part if isinstance(item, _NESTED)}
        if not level:
            return True
    return False


def _plain(value: object, depth: int, above: set[int]) -> Any:
    """A copy of a value with nothing that JSON cannot hold."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(float(value))
    if isinstance(value, int):
        return int(value) if value.bit_length() < 10_000 else short_repr(value)
    if not isinstance(value, _NESTED):
        return short_repr(value)
    if id(value) in above:
        return "<the same value again: a cycle>"
    if depth >= MOST_DEPTH:
        return f"<more than {MOST_DEPTH} levels deep>"
    above.add(id(value))
    try:
        if isinstance(value, dict):
            return {_key(key): _plain(item, depth + 1, above) for key, item in value.items()}
        return [_plain(item, depth + 1, above) for item in value]
    finally:
        above.discard(id(value))


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return short_repr(key)


def short_repr(value: object) -> str:
    """The `repr` of a value, at most `MOST_REPR` characters of it."""
    try:
        text = str(repr(value))
    except Exception as problem:  # its own `__repr__` fails, it is too deep, or a number has too many digits
        return f"<{type(value).__name__} without a repr: {type(problem).__name__}: {str(problem)[:200]}>"
    return text if len(text) <= MOST_REPR else f"{text[:MOST_REPR]}… ({len(text)} characters)"


def error_text(problem: BaseException) -> str:
    """The traceback of an error, without the frames of the runner."""
    try:
        left_out = _cut_middle(problem)
        described = traceback.TracebackException.from_exception(problem, compact=True)
        _shorten(described)
        text = "".join(described.format()).rstrip("\n")
    except (Exception, RecursionError) as second:
        return f"{type(problem).__name__}: its text could not be made: {type(second).__name__}"
    text = text.encode("utf-8", "replace").decode()
    if len(text) > MOST_TRACEBACK:
        half = MOST_TRACEBACK // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"
    return f"{text}\n[{left_out} frames in the middle of the traceback are left out]" if left_out else text


def _cut_middle(problem: BaseException) -> int:
    """Take the middle out of long tracebacks, which cost much to describe; how many frames that were."""
    left, seen, count = [problem], {id(problem)}, 0
    while left:
        one = left.pop()
        frames, here = [], one.__traceback__
        while here:
            frames.append(here)
            here = here.tb_next
        if len(frames) > 2 * MOST_FRAMES:
            frames[MOST_FRAMES - 1].tb_next = frames[-MOST_FRAMES]
            count += len(frames) - 2 * MOST_FRAMES
        others = [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]
        left += [other for other in others if other is not None and id(other) not in seen]
        seen |= {id(other) for other in others}
    return count


def _shorten(described: traceback.TracebackException) -> None:
    left: list[traceback.TracebackException | None] = [described]
    while left:
        if (one := left.pop()) is None:
            continue
        names = [frame.filename for frame in one.stack]
        first = names.index(FILE) if FILE in names else len(names)
        one.stack[:] = [frame for frame in one.stack[first:] if not _is_own(frame.filename)]
        left += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]


def _is_own(name: str) -> bool:
    return name.startswith((f"{_OWN}/", "<frozen importlib"))


def answer_text(result: object, outputs: Mapping[str, Output], error: str | None, limit: str | None = None) -> str:
    """The answer to the host."""
    rest: dict[str, Any] = {name: output.text() for name, output in outputs.items()} | {"error": error}
    if limit:
        rest["limit"] = limit
    return f'{{"result":{as_json(result)},{json.dumps(rest, ensure_ascii=False)[1:]}'
