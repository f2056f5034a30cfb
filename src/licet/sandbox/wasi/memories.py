"""Reads from a module how much memory it declares, also of the modules inside a component, which wasmtime does not say.

It runs in the worker that compiled the module, after wasmtime has checked it.
"""

from collections.abc import Iterator

_HEADER = 8  # bytes
_MEMORY_SECTION = 5
_COMPONENT_PARTS = (1, 4)  # sections of a component that hold a core module, and another component
_IS_COMPONENT = 4, b"\x0d\0\x01\0"
_PAGE = 1 << 16
_MOST = (1 << 53) - 1  # JSON has no larger integers


def memory_of(data: bytes) -> tuple[int, int]:
    """The bytes of all memories at the start, and the most that they can grow to; 0 if there is no such limit."""
    least, most, unlimited = 0, 0, False
    for low, high in _memories(memoryview(data)):
        least += low
        most += high or 0
        unlimited = unlimited or high is None
    return min(least, _MOST), 0 if unlimited else min(most, _MOST)


def _memories(data: memoryview) -> Iterator[tuple[int, int | None]]:
    """The least and the most bytes of each memory."""
    waiting = [data]  # instead of recursion: components can be nested deeply
    while waiting:
        part = waiting.pop()
        is_component = bytes(part[_IS_COMPONENT[0] : _HEADER]) == _IS_COMPONENT[1]
        for kind, body in _sections(part):
            if is_component and kind in _COMPONENT_PARTS:
                waiting.append(body)
            elif not is_component and kind == _MEMORY_SECTION:
                yield from _limits(body)


def _sections(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = _HEADER
    while at < len(data):
        size, begin = _number(data, at + 1)
        yield data[at], data[begin : begin + size]
        at = begin + size


def _limits(body: memoryview) -> Iterator[tuple[int, int | None]]:
    count, at = _number(body, 0)
    for _ in range(count):
        flags = body[at]
        low, at = _number(body, at + 1)
        high = None
        if flags & 1:
            high, at = _number(body, at)
        page = _PAGE
        if flags & 8:  # pages of another size, as a power of two
            power, at = _number(body, at)
            page = 1 << power
        yield low * page, None if high is None else high * page


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """An unsigned integer in LEB128, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:  # the highest bit says that more follows
            return value, at
        shift += 7
