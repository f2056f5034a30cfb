"""Lines and messages: what is read, what is refused, and that nothing is read differently than it was sent."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from licet.mcp import jsonrpc
from licet.mcp.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    BadMessage,
    Failure,
    Message,
    Notification,
    Request,
    Response,
    read_message,
    write_message,
)
from licet.mcp.limits import MOST_DEPTH, MOST_DIGITS, MOST_LINE_BYTES

READ: list[tuple[str, Message]] = [
    ('{"jsonrpc":"2.0","id":1,"method":"ping"}', Request(1, "ping", {})),
    ('{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"a":[1]}}', Request(0, "initialize", {"a": [1]})),
    ('{"jsonrpc":"2.0","id":"x","method":"ping","params":null}', Request("x", "ping", {})),
    (' {"method" : "ping",\t"id": -3, "jsonrpc": "2.0"} \r', Request(-3, "ping", {})),
    ('{"jsonrpc":"2.0","method":"notifications/initialized"}', Notification("notifications/initialized", {})),
    ('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}', Failure(None, -32700, "m")),
    ('{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}', Failure(None, -32700, "m")),
    ('{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"m","data":null}}', Failure(5, 1, "m", None)),
    (f'{{"jsonrpc":"2.0","id":{2**53 - 1},"method":"ping"}}', Request(2**53 - 1, "ping", {})),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":{"b":1},"c":{"b":1}}}',
     Request(1, "m", {"a": {"b": 1}, "c": {"b": 1}})),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"\\u00e9 \\/"}}', Request(1, "m", {"x": "é /"})),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":' + "7" * MOST_DIGITS + "}}",
     Request(1, "m", {"x": int("7" * MOST_DIGITS)})),
    ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"a\\\\","y":"\\"' + "7" * 5000 + '"}}',
     Request(1, "m", {"x": "a\\", "y": '"' + "7" * 5000})),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), READ)
def test_a_line_is_read(line: str, message: Message) -> None:
    assert read_message(line.encode()) == message


def test_a_result_stays_the_bytes_that_came_and_is_parsed_once() -> None:
    read = read_message(b'{"jsonrpc": "2.0", "id": 7, "result": {"n": 1.50, "t": "\\u00e9"}}')
    assert isinstance(read, Response)
    assert isinstance(read.result, msgspec.Raw)
    assert (read.id, bytes(read.result), read.data) == (7, b'{"n": 1.50, "t": "\\u00e9"}', {"n": 1.5, "t": "é"})
    assert write_message(read) == b'{"jsonrpc":"2.0","id":7,"result":{"n": 1.50, "t": "\\u00e9"}}\n'


def deep(levels: int) -> str:
    """A request that is nested in so many levels, with the message and its parameters."""
    inside = levels - 2
    return '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + "[" * inside + "]" * inside + "}}"


REFUSED: list[tuple[str, str | bytes, str, int, Any]] = [
    ("empty", "", "not JSON", PARSE_ERROR, None),
    ("noise", "Server started on stdio", "not JSON", PARSE_ERROR, None),
    ("cut", '{"jsonrpc":"2.0","id":1,', "not JSON", PARSE_ERROR, None),
    ("two", '{"jsonrpc":"2.0","id":1,"method":"m"} {}', "not JSON", PARSE_ERROR, None),
    ("not-utf8", b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', "not JSON", PARSE_ERROR, None),
    ("not-utf8-inside", b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}', "not JSON", PARSE_ERROR, None),
    ("bom", b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}', "not JSON", PARSE_ERROR, None),
    ("nan", '{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}', "not JSON", PARSE_ERROR, None),
    ("huge-number", '{"jsonrpc":"2.0","id":1,"result":{"a":1e999}}', "not JSON", PARSE_ERROR, None),
    ("many-digits", '{"jsonrpc":"2.0","id":1,"result":{"a":' + "1" * (MOST_DIGITS + 1) + "}}", "digits",
     INVALID_REQUEST, None),
    ("many-digits-after-texts", '{"jsonrpc":"2.0","id":1,"result":{"a":"\\\\","b\\"":["' + "1" * 500 + '",-' + "1" * 500
     + "]}}", "digits", INVALID_REQUEST, None),
    ("many-digits-of-a-fraction", '{"jsonrpc":"2.0","id":1,"result":{"a":0.' + "1" * 500 + "}}", "digits",
     INVALID_REQUEST, None),
    ("surrogate", '{"jsonrpc":"2.0","id":1,"result":{"a":"\\ud800"}}', "not JSON", PARSE_ERROR, None),
    ("batch", '[{"jsonrpc":"2.0","id":1,"method":"m"}]', "a batch", INVALID_REQUEST, None),
    ("scalar", "7", "not an object", INVALID_REQUEST, None),
    ("version-1", '{"jsonrpc":"1.0","id":1,"method":"m"}', "`jsonrpc`", INVALID_REQUEST, 1),
    ("version-absent", '{"id":1,"method":"m"}', "`jsonrpc`", INVALID_REQUEST, 1),
    ("version-number", '{"jsonrpc":2.0,"id":1,"method":"m"}', "`jsonrpc`", INVALID_REQUEST, 1),
    ("id-float", '{"jsonrpc":"2.0","id":1.0,"method":"m"}', "`id`", INVALID_REQUEST, None),
    ("id-bool", '{"jsonrpc":"2.0","id":true,"method":"m"}', "`id`", INVALID_REQUEST, None),
    ("id-null", '{"jsonrpc":"2.0","id":null,"method":"m"}', "`id`", INVALID_REQUEST, None),
    ("id-null-result", '{"jsonrpc":"2.0","id":null,"result":{}}', "`id`", INVALID_REQUEST, None),
    ("id-large", f'{{"jsonrpc":"2.0","id":{2**53},"method":"m"}}', "`id`", INVALID_REQUEST, None),
    ("id-small", f'{{"jsonrpc":"2.0","id":-{2**53},"method":"m"}}', "`id`", INVALID_REQUEST, None),
    ("id-long", '{"jsonrpc":"2.0","id":"' + "a" * 257 + '","method":"m"}', "`id`", INVALID_REQUEST, None),
    ("id-list", '{"jsonrpc":"2.0","id":[1],"method":"m"}', "`id`", INVALID_REQUEST, None),
    ("method-number", '{"jsonrpc":"2.0","id":1,"method":1}', "`method`", INVALID_REQUEST, 1),
    ("method-null", '{"jsonrpc":"2.0","id":1,"method":null}', "`method`", INVALID_REQUEST, 1),
    ("params-list", '{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', "`params`", INVALID_REQUEST, 1),
    ("unknown-key", '{"jsonrpc":"2.0","id":1,"method":"m","x":1}', "unknown keys", INVALID_REQUEST, 1),
    ("nothing", '{"jsonrpc":"2.0","id":1}', "expected `method`", INVALID_REQUEST, 1),
    ("both", '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}', "expected", INVALID_REQUEST, 1),
    ("params-of-result", '{"jsonrpc":"2.0","id":1,"params":{},"result":{}}', "expected", INVALID_REQUEST, 1),
    ("request-and-result", '{"jsonrpc":"2.0","id":1,"method":"m","result":{}}', "with a result", INVALID_REQUEST, 1),
    ("result-without-id", '{"jsonrpc":"2.0","result":{}}', "without `id`", INVALID_REQUEST, None),
    ("result-text", '{"jsonrpc":"2.0","id":1,"result":"x"}', "`result`", INVALID_REQUEST, 1),
    ("error-text", '{"jsonrpc":"2.0","id":1,"error":"x"}', "`error`", INVALID_REQUEST, 1),
    ("error-code", '{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"m"}}', "`error`", INVALID_REQUEST, 1),
    ("error-message", '{"jsonrpc":"2.0","id":1,"error":{"code":1}}', "`error`", INVALID_REQUEST, 1),
    ("twice", '{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', "duplicate keys", INVALID_REQUEST, 2),
    ("twice-inside", '{"jsonrpc":"2.0","id":1,"method":"m","params":{"p":"a","p":"b"}}', "duplicate keys",
     INVALID_REQUEST, 1),
    ("twice-equal", '{"jsonrpc":"2.0","id":1,"result":{"a":[{"p":1,"p":1}]}}', "duplicate keys", INVALID_REQUEST, 1),
    ("twice-escaped", '{"jsonrpc":"2.0","id":1,"result":{"uri":1,"\\u0075ri":2}}', "duplicate keys",
     INVALID_REQUEST, 1),
    ("deep", deep(MOST_DEPTH + 1), "nested", INVALID_REQUEST, 1),
    ("very-deep", deep(100_000), "nested", INVALID_REQUEST, None),
    ("heavy-numbers", '{"jsonrpc":"2.0","id":1,"result":{"a":[' + f"{'9' * MOST_DIGITS}," * 2500 + "1]}}", "too many",
     INVALID_REQUEST, None),
    ("heavy", '{"jsonrpc":"2.0","id":1,"result":{"a":[' + "[]," * 250_000 + "1]}}", "too many", INVALID_REQUEST, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "reason", "code", "request_id"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_a_bad_line_is_refused(line: str | bytes, reason: str, code: int, request_id: Any) -> None:
    with pytest.raises(BadMessage) as bad:
        read_message(line.encode() if isinstance(line, str) else line)
    assert (bad.value.code, bad.value.id) == (code, request_id)
    assert reason in bad.value.reason


def test_the_longest_line_is_read_and_a_longer_one_is_not() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"%s"}}'
    fits = frame % (b"x" * (MOST_LINE_BYTES - len(frame) + 2))
    assert len(fits) == MOST_LINE_BYTES
    assert isinstance(read_message(fits), Request)
    with pytest.raises(BadMessage, match="more than"):
        read_message(fits + b" ")


def test_nesting_at_the_limit_and_many_shallow_objects_are_read() -> None:
    deepest = deep(MOST_DEPTH)
    assert isinstance(read_message(deepest.encode()), Request)
    assert isinstance(read_message(deepest.replace('{"a":', '{"b":[],"a":').encode()), Request)
    many = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "result": {"a": [{"b": [1]}] * 500}})
    assert isinstance(read_message(many), Response)


WRITTEN: list[tuple[Message, str]] = [
    (Request(1, "tools/list"), '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'),
    (Request("a", "m", {"b": 1}), '{"jsonrpc":"2.0","id":"a","method":"m","params":{"b":1}}'),
    (Notification("n"), '{"jsonrpc":"2.0","method":"n"}'),
    (Response(0, {}), '{"jsonrpc":"2.0","id":0,"result":{}}'),
    (Response(0, Raw(b'{"a":1}'), {"other": 2}), '{"jsonrpc":"2.0","id":0,"result":{"a":1}}'),
    (Failure(None, -32700, "m"), '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}'),
    (Failure(1, 2, "m", None), '{"jsonrpc":"2.0","id":1,"error":{"code":2,"message":"m","data":null}}'),
]


@pytest.mark.parametrize(("message", "line"), WRITTEN)
def test_a_message_is_written(message: Message, line: str) -> None:
    assert write_message(message) == line.encode() + b"\n"


@pytest.mark.parametrize("space", [b"\n", b"\r", b"\r\n"])
def test_a_message_inside_a_result_does_not_become_a_line_of_its_own(space: bytes) -> None:
    smuggled = b'{"jsonrpc":"2.0","id":9,"result":{"content":[]}}'
    line = write_message(Response(1, Raw(b'{"a":' + space + smuggled + space + b"}")))
    assert line.splitlines() == [line.removesuffix(b"\n")]
    assert json.loads(line)["result"]["a"] == json.loads(smuggled)


ids = st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=256)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=3)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Request, ids, st.text(), objects),
    st.builds(Notification, st.text(), objects),
    st.builds(Response, ids, objects),
    st.builds(Failure, ids | st.none(), st.integers(), st.text(), values | st.just(UNSET)),
)


@given(messages)
def test_what_is_written_is_read_again(message: Message) -> None:
    line = write_message(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    read = read_message(line.removesuffix(b"\n"))
    if isinstance(read, Response) and isinstance(message, Response):
        assert (read.id, read.data) == (message.id, message.result)
    else:
        assert read == message


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "é"]), values), max_size=3), st.booleans(), st.booleans())
def test_the_fast_check_for_duplicate_keys_agrees_with_the_parser(
    pairs: list[tuple[str, Any]], is_ascii: bool, is_compact: bool
) -> None:
    separators = (",", ":") if is_compact else (", ", ": ")

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=is_ascii, separators=separators)

    inside = "{" + separators[0].join(text(key) + separators[1] + text(value) for key, value in pairs) + "}"
    line = b'{"jsonrpc":"2.0","id":1,"result":' + inside.encode() + b"}"
    is_double = len(dict(pairs)) < len(pairs)
    assert jsonrpc._has_duplicate_keys(line) is is_double
    if is_double:
        with pytest.raises(BadMessage, match="duplicate keys"):
            read_message(line)
    else:
        assert isinstance(read_message(line), Response)
