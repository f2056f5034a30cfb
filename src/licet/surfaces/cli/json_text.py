"""JSON for people and programs: indented, in ASCII, and quick where one value stands in many places.

Hundreds of tools may reach the same hundreds of hosts. Their lists are one value then, and are put into words once.
"""

import json
from typing import Any


def json_text(value: Any) -> str:
    """The very text of `json.dumps(value, indent=2)`, for plain data whose keys are text."""
    parts: list[str] = []
    _write(value, "\n", _repeated(value), {}, parts)
    return "".join(parts)


def _write(value: Any, line: str, repeated: set[int], known: dict[tuple[int, str], str], parts: list[str]) -> None:
    if not value or not isinstance(value, dict | list):
        parts.append(json.dumps(value))
        return
    place = id(value), line  # the same value may stand at two depths
    if place in known:
        parts.append(known[place])
        return
    start, inner = len(parts), f"{line}  "
    held = isinstance(value, dict)
    before = "{" if held else "["
    for item in value:
        parts.append(f"{before}{inner}{json.dumps(item)}: " if held else f"{before}{inner}")
        _write(value[item] if isinstance(value, dict) else item, inner, repeated, known, parts)
        before = ","
    parts.append(f"{line}}}" if held else f"{line}]")
    if id(value) in repeated:
        parts[start:] = [text := "".join(parts[start:])]
        known[place] = text


def _repeated(value: Any) -> set[int]:
    """The lists and mappings that stand in more than one place."""
    seen: set[int] = set()
    repeated: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict | list):
            continue
        if id(one) in seen:
            repeated.add(id(one))
            continue
        seen.add(id(one))
        waiting += one.values() if isinstance(one, dict) else one
    return repeated
