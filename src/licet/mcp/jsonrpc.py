"""Reads and writes the messages of JSON-RPC 2.0, one message a line, as MCP uses them.

Everything that two parsers could read differently is refused: duplicate keys, unknown keys, ids that are not exact. So
what the gateway has checked is what the other side reads. Results are kept as the bytes that came.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from licet.declare.plain_json import digit_units, has_long_number, is_heavy, with_digits_alike
from licet.mcp.limits import LONGEST_ID, MOST_DEPTH, MOST_DIGITS, MOST_ID, MOST_LINE_BYTES, MOST_UNITS

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022  # since 2026-07-28

Id = int | str


class Request(Struct, frozen=True):
    """A request. Absent parameters are an empty object."""

    id: Id
    method: str
    params: dict[str, Any] = {}


class Notification(Struct, frozen=True):
    """A message that is not answered."""

    method: str
    params: dict[str, Any] = {}


class Response(Struct, frozen=True):
    """The answer to a request.

    In a message that was read, `result` is the JSON that came, and `data` is the same parsed. Either is written: `data`
    only spares its reader a second parse.
    """

    id: Id
    result: Raw | Mapping[str, Any]
    data: dict[str, Any] | UnsetType = UNSET


class Failure(Struct, frozen=True):
    """The answer to a request that failed. Its id is None if the request could not be read."""

    id: Id | None
    code: int
    message: str
    data: object = UNSET


Message = Request | Notification | Response | Failure


class BadMessage(Exception):
    """A line is no message: the reason, the error code for an answer, and the id if one could be read.

    `is_answer` says whether that id is the one of a request that we sent.
    """

    def __init__(
        self, reason: str, code: int = INVALID_REQUEST, request_id: Id | None = None, is_answer: bool = False
    ) -> None:
        self.reason = reason
        self.code = code
        self.id = request_id
        self.is_answer = is_answer
        super().__init__(reason)


class ProtocolError(Exception):
    """A request is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = UNSET) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class _ResultOnly(Struct):
    result: Raw


class _Line(Struct, omit_defaults=True):
    """The keys of a message in the order in which they are written."""

    jsonrpc: str
    id: Id | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    result: object = UNSET
    error: dict[str, Any] | UnsetType = UNSET


_decode = msgspec.json.Decoder().decode
_decode_result = msgspec.json.Decoder(_ResultOnly).decode
_encode = msgspec.json.Encoder().encode
_KEYS = frozenset(_Line.__struct_fields__)
_CONTAINERS = frozenset((dict, list))
_LONG = MOST_UNITS // 4  # bytes; no byte costs more than 4 units, no container or comma with its key more than 5


def read_message(line: bytes) -> Message:
    """Read one line, without its newline. Raises `BadMessage`."""
    if len(line) > MOST_LINE_BYTES:
        raise BadMessage(f"a line of more than {MOST_LINE_BYTES} bytes")
    alike = with_digits_alike(line)
    containers = alike.count(b"{") + alike.count(b"[")  # at most: some may be inside texts
    digits = digit_units(alike)
    most = 5 * (containers + alike.count(b",")) + digits
    if len(line) > _LONG and most > MOST_UNITS and is_heavy(line, MOST_UNITS):
        raise BadMessage("a line with too many values")
    if digits and has_long_number(line, MOST_DIGITS):
        raise BadMessage(f"a number of more than {MOST_DIGITS} digits")
    try:
        data = _decode(line)
    except RecursionError:
        raise BadMessage(f"nested in more than {MOST_DEPTH} levels") from None
    except ValueError:  # also text that is not UTF-8, and numbers out of range
        raise BadMessage("not JSON", PARSE_ERROR) from None
    if isinstance(data, list):
        raise BadMessage("a batch, which MCP does not have")
    if not isinstance(data, dict):
        raise BadMessage("not an object")
    request_id = data.get("id") if _is_id(data.get("id")) else None
    try:
        _check_form(line, data, containers)
        return _message(line, data)
    except BadMessage as bad:
        is_answer = "method" not in data and ("result" in data or "error" in data)
        raise BadMessage(bad.reason, bad.code, request_id, is_answer) from None


# Where SDKs write the id of an answer: before its result, or after it.
_ID = rb'"id"\s*:\s*([0-9]{1,15}|"[0-9]{1,15}")'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb'\s*,\s*"(?:result|error|jsonrpc)"')
_ID_LAST = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


def failed_answer(first: bytes, last: bytes, text: str) -> bytes:
    """The line of an error in the place of an answer of which only the two ends are known; empty if it is none."""
    number = answered_id(first, last)
    return write_message(Failure(number, INTERNAL_ERROR, text)).rstrip(b"\n") if number is not None else b""


def answered_id(first: bytes, last: bytes) -> int | None:
    """The id of our request that a line answers, of which only the two ends are read; None if it is no answer."""
    found = _ID_FIRST.match(first) or (_ID_LAST.search(last) if b'"method"' not in first else None)
    return int(found[1].strip(b'"')) if found is not None else None


# The same for requests, whose ids the other side chooses.
_ASKED = rb'"id"\s*:\s*(-?[0-9]{1,15}|"[^"\\\x00-\x1f]{0,256}")'
_ASKED_FIRST = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ASKED + rb'\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"'
)
_ASKED_LAST = re.compile(_ASKED + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_METHOD_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"')


def refused_request(first: bytes, last: bytes, text: str) -> bytes:
    """The answer to a request of which only the two ends are known; empty if it is none, or its id is not there."""
    number = asked_id(first, last)
    return write_message(Failure(number, INVALID_REQUEST, text)) if number is not None else b""


def asked_id(first: bytes, last: bytes) -> Id | None:
    """The id of a request of the other side, of which only the two ends are read; None if it is none."""
    found = _ASKED_FIRST.match(first) or (_ASKED_LAST.search(last) if _METHOD_FIRST.match(first) else None)
    try:
        number: Id | None = _decode(found[1]) if found else None
    except ValueError:  # text that is not UTF-8
        return None
    return number


def write_message(message: Message) -> bytes:
    """The line of a message, with its newline at the end and nowhere else."""
    match message:
        case Request(request_id, method, params):
            line = _Line("2.0", id=request_id, method=method, params=params or UNSET)
        case Notification(method, params):
            line = _Line("2.0", method=method, params=params or UNSET)
        case Response(request_id, result):
            line = _Line("2.0", id=request_id, result=result)
        case Failure(failed_id, code, reason, data):
            error = {"code": code, "message": reason}
            line = _Line("2.0", id=failed_id, error=error if data is UNSET else {**error, "data": data})
    text = _encode(line)
    # Strings hold no raw line breaks, but the spaces between the tokens of a raw result may. A reader that splits lines
    # at `\r` too would take an object between two of them for a message of its own.
    if b"\n" in text or b"\r" in text:
        text = text.replace(b"\n", b" ").replace(b"\r", b" ")
    return text + b"\n"


def _message(line: bytes, data: dict[str, Any]) -> Message:
    if data.get("jsonrpc") != "2.0":
        raise BadMessage('`jsonrpc` is not "2.0"')
    if not data.keys() <= _KEYS:
        raise BadMessage("unknown keys next to `jsonrpc`")
    has_id, request_id = "id" in data, data.get("id")
    if has_id and not _is_id(request_id) and not (request_id is None and "error" in data):
        raise BadMessage("`id` is neither an exact integer nor a short text")
    if "method" in data:
        return _call(data)
    if "params" in data or ("result" in data) == ("error" in data):
        raise BadMessage("expected `method`, `result` or `error`")
    if "error" in data:
        return _failure(request_id, data["error"])
    if not has_id:
        raise BadMessage("a result without `id`")
    if not isinstance(data["result"], dict):
        raise BadMessage("`result` is not an object")
    return Response(data["id"], _decode_result(line).result, data["result"])


def _call(data: dict[str, Any]) -> Request | Notification:
    method, params = data["method"], data.get("params")
    if not isinstance(method, str):
        raise BadMessage("`method` is not a text")
    if "result" in data or "error" in data:
        raise BadMessage("a request with a result")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise BadMessage("`params` is not an object")
    return Request(data["id"], method, params) if "id" in data else Notification(method, params)


def _failure(request_id: Id | None, error: object) -> Failure:
    if not isinstance(error, dict) or type(error.get("code")) is not int or not isinstance(error.get("message"), str):
        raise BadMessage("`error` is not an object with `code` and `message`")
    return Failure(request_id, error["code"], error["message"], error.get("data", UNSET))


def _is_id(found: object) -> bool:
    if type(found) is int:
        return -MOST_ID < found < MOST_ID
    return isinstance(found, str) and len(found) <= LONGEST_ID


def _check_form(line: bytes, data: dict[str, Any], containers: int) -> None:
    """Refuse deep nesting and duplicate keys, at every level."""
    if containers > MOST_DEPTH and _is_deep(data):
        raise BadMessage(f"nested in more than {MOST_DEPTH} levels")
    # SDKs write compact JSON: if writing the data gives the same bytes, no key was lost. This is five times faster than
    # a parser that looks for duplicates.
    if _encode(data) != line and _has_duplicate_keys(line):
        raise BadMessage("duplicate keys")


def _is_deep(data: dict[str, Any]) -> bool:
    level: list[Any] = [data]
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _CONTAINERS
        ]
        if not level:
            return False
    return True


class _Duplicate(Exception):
    pass


def _pairs(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _Duplicate


_find_duplicates = json.JSONDecoder(object_pairs_hook=_pairs).decode


def _has_duplicate_keys(line: bytes) -> bool:
    """Whether some object has a key twice; also true for what only one of the two parsers can read."""
    try:
        _find_duplicates(line.decode())
    except (_Duplicate, ValueError):
        return True
    return False
