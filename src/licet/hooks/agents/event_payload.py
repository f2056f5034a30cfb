"""Reads the payload of a hook: one JSON object within limits, and its fields with their types.

A payload comes from a program that a model steers, so nothing here is lenient. A repeated key is refused, since two
readers may take different values of it; so are lone surrogates and numbers that JSON does not have.
"""

import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from licet.core.late_pattern import late_pattern
from licet.hooks.agent_event import AgentTool, Unreadable
from licet.hooks.limits import PAYLOAD_BYTES

_BLANKS_OF_OTHERS = "\ufeff\u180e\u200b"  # JavaScript trims the first of them
_UNSEEN = frozenset({"Cc", "Zl", "Zp", "Cs"})  # control characters and separators of lines

_WILDCARD = late_pattern(r"[*?\[{(]|[!@+]\(")
_ABSOLUTE_CHOICE = late_pattern(r"[{,(|][/~.]")  # `{/etc,a}`, and one that may be put together to `..`

DEEPEST = 64  # levels of objects and lists in a payload
_LONGEST_NUMBER = 400  # digits; Python itself refuses to read more than 4300


def payload_object(payload: bytes) -> dict[str, Any]:
    """The JSON object that a payload is. Raises `Unreadable`."""
    if len(payload) > PAYLOAD_BYTES:
        raise Unreadable(f"the payload has {len(payload)} bytes, and at most {PAYLOAD_BYTES} are read")
    try:
        text = payload.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite, parse_int=_whole
        )
    except UnicodeDecodeError:
        raise Unreadable("the payload is not UTF-8") from None
    except RecursionError:
        raise Unreadable(f"the payload is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:
        raise Unreadable(f"the payload is not JSON: {_first_line(error)}") from None
    if not isinstance(value, dict):
        raise Unreadable("the payload is no JSON object")
    _check(value, "\\u" in text)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    number = float(digits) if len(digits) <= _LONGEST_NUMBER else math.inf
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError("a number is too large")
    return int(digits)


def _first_line(error: ValueError) -> str:
    return str(error).partition("\n")[0][:200].encode("utf-8", "replace").decode("utf-8")


def _check(value: Any, escapes: bool) -> None:
    """Refuse what is nested too deeply, and lone surrogates, which only escapes can bring."""
    level: list[Any] = [value]
    for _ in range(DEEPEST + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
                if escapes:
                    below.extend(item)
            elif isinstance(item, list):
                below.extend(item)
            elif escapes and isinstance(item, str) and not _is_text(item):
                raise Unreadable("the payload has a lone surrogate")
        if not below:
            return
        level = below
    raise Unreadable(f"the payload is nested deeper than {DEEPEST} levels")


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def text_of(fields: Mapping[str, Any], name: str, whose: str = "the payload") -> str:
    """A field that must be text and not empty. Raises `Unreadable`."""
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise Unreadable(f"{whose} {_has(value, 'text')} in `{name}`")
    return value


def optional_text(fields: Mapping[str, Any], name: str) -> str:
    """A field that may be missing or null, and else must be text. Raises `Unreadable`."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unreadable(f"the payload {_has(value, 'text')} in `{name}`")
    return value


def object_of(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that must be an object. Raises `Unreadable`."""
    value = fields.get(name)
    if not isinstance(value, dict):
        raise Unreadable(f"the payload {_has(value, 'an object')} in `{name}`")
    return value


def optional_object(fields: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """A field that may be missing or null, and else must be an object. Raises `Unreadable`."""
    return None if fields.get(name) is None else object_of(fields, name)


def directory_of(fields: Mapping[str, Any], name: str = "cwd") -> str:
    """A field that must be the path of a directory from the root. Raises `Unreadable`."""
    path = text_of(fields, name)
    if not path.startswith("/") or "\0" in path:
        raise Unreadable(f"the payload has no absolute path in `{name}`")
    return path


def same_event(fields: Mapping[str, Any], event: str, name: str = "hook_event_name") -> None:
    """Refuse a payload that names another event than the command line does."""
    if fields.get(name) != event:
        raise Unreadable(f"the payload is not one of `{event}`: `{name}` says something else")


def foreign(fields: Mapping[str, Any], names: Iterable[str], product: str) -> None:
    """Refuse a payload with a field that this agent never sends, and another one does."""
    if found := next((name for name in names if name in fields), None):
        raise Unreadable(f"the payload has `{found}`, so it does not come from {product}")


def decidable(tool: AgentTool | None, arguments: Mapping[str, Any], *, expands_home: bool) -> None:
    """Refuse arguments that licet cannot decide about, and paths that the agent may take for others than licet does."""
    if tool is None:
        return
    if found := next((name for name in tool.undecided if arguments.get(name)), None):
        raise Unreadable(f"`{tool.name}` with `{found}` is nothing that licet can decide about")
    for name in (*tool.paths, *tool.patterns, tool.directory):
        given = arguments.get(name)
        for path in given if isinstance(given, list) else (given,):
            if isinstance(path, str) and not (is_plain_path(path) and (expands_home or path[:1] != "~")):
                raise Unreadable(f"`{tool.name}` has no plain path in `{name}`")
    for name in tool.patterns:
        given = arguments.get(name)
        if given is not None and not (isinstance(given, str) and _stays_below(given)):
            raise Unreadable(f"`{tool.name}` has a pattern in `{name}` whose directory licet cannot tell")


def _stays_below(pattern: str) -> bool:
    """Whether all that a pattern finds is below the directories that stand before its first wildcard."""
    start = _WILDCARD.search(pattern)
    rest = pattern[start.start() :] if start else ""
    return "\\" not in pattern and ".." not in rest and not _ABSOLUTE_CHOICE.search(rest)


def is_plain_path(path: str) -> bool:
    """Whether all readers take a path for the same one.

    Agents trim blanks, each its own ones, and may compose characters: a link whose name differs in that alone could
    then be followed instead of what was decided about.
    """
    if path.isascii():
        return path == path.strip() and path.isprintable()
    is_bare = path == path.strip().strip(_BLANKS_OF_OTHERS) and not _UNSEEN & set(map(unicodedata.category, path))
    return is_bare and unicodedata.is_normalized("NFC", path)


def _has(value: Any, expected: str) -> str:
    return f"has no {expected}" if value is None or value == "" else f"has something else than {expected}"
