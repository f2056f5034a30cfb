"""Protocol versions: what a client may claim, and how results and definitions look in each version."""

import json
from typing import Any

import pytest

from licet.mcp.jsonrpc import ProtocolError, Response, write_message
from licet.mcp.protocol import (
    HANDSHAKE_VERSIONS,
    VERSIONS,
    definition_for,
    for_version,
    from_server,
    has_envelope,
    read_envelope,
    read_initialize,
    read_wishes,
)

from .scripted_backend import CLIENT, META, envelope

STAMP = {f"{META}serverInfo": {"name": "licet", "version": "0.1.0"}}


@pytest.mark.parametrize(
    ("asked", "given"),
    [*((version, version) for version in HANDSHAKE_VERSIONS), ("2026-07-28", "2025-11-25"), ("1.0", "2025-11-25")],
)
def test_initialize_settles_on_the_asked_version_or_the_newest(asked: str, given: str) -> None:
    claims = read_initialize({"protocolVersion": asked, "clientInfo": CLIENT, "capabilities": {"roots": {}}})
    assert (claims.version, claims.info, claims.capabilities) == (given, CLIENT, {"roots": {}})


@pytest.mark.parametrize(
    "change", [{"protocolVersion": 1}, {"clientInfo": None}, {"capabilities": []}, {"protocolVersion": None}]
)
def test_a_malformed_initialize_is_refused(change: dict[str, Any]) -> None:
    params = {"protocolVersion": "2025-11-25", "clientInfo": CLIENT, "capabilities": {}}
    with pytest.raises(ProtocolError) as error:
        read_initialize({**params, **change})
    assert error.value.code == -32602


@pytest.mark.parametrize(
    ("meta", "code", "named"),
    [
        (None, -32602, "protocolVersion` and `"),
        ([], -32602, "protocolVersion"),
        ({}, -32602, "clientCapabilities"),
        ({f"{META}protocolVersion": "2026-07-28"}, -32602, "lacks `io.modelcontextprotocol/clientCapabilities`"),
        (envelope() | {f"{META}clientCapabilities": 1}, -32602, "not an object"),
        (envelope() | {f"{META}protocolVersion": 1}, -32602, "not a text"),
        (envelope() | {f"{META}protocolVersion": "2027-01-01"}, -32022, "2026-07-28"),
        (envelope() | {f"{META}protocolVersion": "2025-11-25"}, -32022, "2026-07-28"),
    ],
)
def test_a_malformed_envelope_is_refused(meta: Any, code: int, named: str) -> None:
    with pytest.raises(ProtocolError, match=named) as error:
        read_envelope({"_meta": meta} if meta is not None else {})
    assert error.value.code == code


def test_an_unknown_version_names_those_that_are_spoken() -> None:
    with pytest.raises(ProtocolError) as error:
        read_envelope({"_meta": envelope() | {f"{META}protocolVersion": "2027-01-01"}}, also=("2025-11-25",))
    assert error.value.data == {"supported": ["2026-07-28", "2025-11-25"], "requested": "2027-01-01"}


def test_client_info_is_optional_and_a_malformed_one_counts_as_none() -> None:
    meta = envelope()
    assert read_envelope({"_meta": {**meta, f"{META}clientInfo": 7}}).info == {}
    del meta[f"{META}clientInfo"]
    assert read_envelope({"_meta": meta}).info == {}


@pytest.mark.parametrize(
    ("params", "is_modern"),
    [({}, False), ({"_meta": {"progressToken": 1}}, False), ({"_meta": 1}, False), ({"_meta": envelope()}, True)],
)
def test_only_the_version_key_makes_an_envelope(params: dict[str, Any], is_modern: bool) -> None:
    assert has_envelope(params) == is_modern


@pytest.mark.parametrize(
    ("meta", "token", "level", "unknown"),
    [
        (1, None, "", ()),
        ({"progressToken": 0}, 0, "", ()),
        ({"progressToken": "a"}, "a", "", ()),
        ({"progressToken": True}, None, "", ()),
        ({"progressToken": 1.5}, None, "", ()),
        ({f"{META}logLevel": "info"}, None, "info", ()),
        ({f"{META}logLevel": "loud"}, None, "", ()),
        ({f"{META}logLevel": ["info"]}, None, "", ()),
        ({"traceparent": "00-1", "com.vendor/x": 1}, None, "", ("traceparent", "com.vendor/x")),
    ],
)
def test_meta_of_a_request(meta: Any, token: object, level: str, unknown: tuple[str, ...]) -> None:
    wishes = read_wishes({"_meta": meta}, "2026")
    assert (wishes.progress_token, wishes.level, wishes.unknown) == (token, level, unknown)
    assert read_wishes({"_meta": meta}, "2025").level == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_results_say_their_type_and_lifetime_since_2026_alone(version: str) -> None:
    plain = [for_version(method, {"x": 1}, version) for method in ("tools/list", "resources/read", "tools/call")]
    if version == "2026-07-28":
        kind = {"resultType": "complete", "x": 1, "_meta": STAMP}
        assert plain == [
            {**kind, "ttlMs": 60_000, "cacheScope": "private"}, {**kind, "ttlMs": 0, "cacheScope": "private"}, kind,
        ]  # fmt: skip
    else:
        assert plain == [{"x": 1}] * 3


AUDIO = {"type": "audio", "data": "", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
TEXT = {"type": "text", "text": "t"}


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("2024-11-05", [TEXT, "[resource] file:///a", "[audio, which protocol version 2024-11-05 does not have]"]),
        ("2025-03-26", [TEXT, "[resource] file:///a", AUDIO]),
        ("2025-06-18", [TEXT, LINK, AUDIO]),
        ("2025-11-25", [TEXT, LINK, AUDIO]),
        ("2026-07-28", [TEXT, LINK, AUDIO]),
    ],
)
def test_content_that_a_version_does_not_know_becomes_text(version: str, shown: list[Any]) -> None:
    expected = [{"type": "text", "text": block} if isinstance(block, str) else block for block in shown]
    result: Any = {"content": [TEXT, LINK, AUDIO]}
    assert plain(from_server("tools/call", result, version)[0])["content"] == expected
    result = {"messages": [{"role": "user", "content": block} for block in (TEXT, LINK, AUDIO)]}
    shaped = plain(from_server("prompts/get", result, version)[0])
    assert [message["content"] for message in shaped["messages"]] == expected


def plain(value: Any) -> Any:
    return json.loads(write_message(Response(1, value)))["result"]


@pytest.mark.parametrize("value", [[1], 1, "a", None, {"a": 1}])
def test_structured_content_is_an_object_before_2026(value: Any) -> None:
    result: Any = {"content": [], "structuredContent": value, "isError": False}
    assert plain(from_server("tools/call", result, "2026-07-28")[0])["structuredContent"] == value
    older = plain(from_server("tools/call", result, "2025-11-25")[0])
    assert older == (result if isinstance(value, dict) else {"content": [], "isError": False})


def test_what_a_server_says_beyond_the_table_is_left_out_and_named() -> None:
    result = {
        "content": [], "_meta": {"x": 1}, "task": {}, "resultType": "complete", "ttlMs": 9, "cacheScope": "public",
    }  # fmt: skip
    assert from_server("tools/call", result, "2025-11-25") == ({"content": []}, ["_meta", "task"])
    shaped, dropped = from_server("resources/read", {"contents": [], "ttlMs": 86_400_000, "x": 1}, "2026-07-28")
    assert (shaped["ttlMs"], shaped["cacheScope"], shaped["_meta"], dropped) == (0, "private", STAMP, ["x"])


@pytest.mark.parametrize(
    ("schema", "older"),
    [({"type": "object"}, True), ({"type": "array"}, False), ({"anyOf": []}, False), ("text", False)],
)
def test_output_schemas_are_of_objects_before_2026(schema: Any, older: bool) -> None:
    definition = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema}
    assert ("outputSchema" in definition_for("tools", definition, "2025-11-25")) == older
    assert definition_for("tools", definition, "2026-07-28") == definition


def test_definitions_show_neither_tasks_nor_meta() -> None:
    definition = {"name": "t", "title": "T", "inputSchema": {}, "execution": {"taskSupport": "required"}, "_meta": {}}
    assert definition_for("tools", definition, "2025-11-25") == {"name": "t", "title": "T", "inputSchema": {}}
