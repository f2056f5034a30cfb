"""The arguments of a call as a person types them: `key=value`, `key:=json`, or a file with a JSON object."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from licet.backends.regular_files import read_regular

_WORD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:?=)(.*)", re.DOTALL)
_LARGEST = 4 << 20  # bytes of a file of arguments; what a call takes is limited again, and less


class BadArguments(ValueError):
    """Words that are no arguments, and what was expected instead."""


class BadFile(BadArguments):
    """A file of arguments that is none."""


def typed_arguments(words: Iterable[str], file: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were typed. Text stays text where the schema takes text; elsewhere it is read as JSON."""
    arguments = {} if file is None else _from_file(file)
    for word in words:
        parts = _WORD.fullmatch(word)
        if parts is None:
            raise BadArguments(f"`{word[:80]}` is no argument; expected `key=value` or `key:=json`")
        key, sign, text = parts.groups()
        if key in arguments:
            raise BadArguments(f"`{key}` is given twice")
        wanted = schema.get("properties", {}).get(key)
        if sign == "=" and (wanted is None or _takes_text(wanted, schema)):
            arguments[key] = text
        else:
            arguments[key] = _read(text, f"the value of `{key}`", wanted)
    return arguments


def _from_file(file: str) -> dict[str, Any]:
    try:
        data = sys.stdin.buffer.read(_LARGEST + 1) if file == "-" else read_regular(file, _LARGEST)
        if len(data) > _LARGEST:
            raise BadFile(f"{file} is larger than {_LARGEST} bytes")
        text = data.decode()
    except (OSError, ValueError) as error:
        if isinstance(error, BadFile):
            raise
        if file.lstrip().startswith("{"):
            raise BadFile("expected the name of a file, found JSON: pipe it in with `--args -`") from None
        if isinstance(error, UnicodeDecodeError):
            raise BadFile(f"{file} is not a text in UTF-8") from None
        raise BadFile(f"cannot read {file}: {getattr(error, 'strerror', 'no name of a file')}") from None
    try:
        found = _read(text, file)
    except BadArguments as wrong:
        raise BadFile(str(wrong)) from None
    if not isinstance(found, dict):
        raise BadFile(f"{file} holds no JSON object")
    return found


def _read(text: str, what: str, wanted: Any = None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        kind = wanted.get("type") if isinstance(wanted, dict) else None
        expected = f"JSON for a value of type {kind}" if isinstance(kind, str) else "JSON"
        why = f" ({error})" if isinstance(error, BadArguments) else ""
        raise BadArguments(f"{what} is no JSON{why}; expected {expected}") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadArguments("a key twice")
    return found


def _no_number(word: str) -> NoReturn:
    raise BadArguments(f"{word} is no number of JSON")


def _takes_text(wanted: Any, schema: Mapping[str, Any], depth: int = 0) -> bool:
    """Whether a schema takes texts, perhaps among other things; one that says nothing takes anything."""
    if not isinstance(wanted, dict) or depth > 8:
        return True
    if isinstance(reference := wanted.get("$ref"), str):
        return _takes_text(schema.get("$defs", {}).get(reference.rpartition("/")[2]), schema, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in wanted:
            return any(_takes_text(one, schema, depth + 1) for one in wanted[key])
    if "enum" in wanted or "const" in wanted:
        return any(isinstance(one, str) for one in wanted.get("enum", [wanted.get("const")]))
    kind = wanted.get("type", "string")
    return "string" in ([kind] if isinstance(kind, str) else kind)
