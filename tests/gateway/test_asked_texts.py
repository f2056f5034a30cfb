"""What a server asks, as a person is shown it: without hidden characters and misleading addresses, or not at all."""

import json
from typing import Any

import pytest

from licet.core.algebra.scope import visible
from licet.gateway.questions import presented
from licet.mcp.jsonrpc import ProtocolError, Request

FORM, SAMPLING = "elicitation/create", "sampling/createMessage"
HIDDEN = ("\x1b[2J", "\u202e", "\U000e0041", "\u200b")
FIELD = {"type": "object", "properties": {"f": {"type": "string"}}}


def with_field(**field: Any) -> dict[str, Any]:
    return {"requestedSchema": {"type": "object", "properties": {"f": {"type": "string", **field}}}}


FORMS: list[tuple[dict[str, Any], Any]] = [
    (with_field(title="a@@b"), with_field(title="a@@b")),
    (with_field(description="a@@b"), with_field(description="a@@b")),
    (with_field(enum=["a"], enumNames=["a@@b"]), with_field(enum=["a"], enumNames=["a@@b"])),
    (with_field(oneOf=[{"const": "a", "title": "a@@b"}]), with_field(oneOf=[{"const": "a", "title": "a@@b"}])),
    (with_field(enum=["a@@b"]), None),
    (with_field(oneOf=[{"const": "a@@b", "title": "a"}]), None),
    (with_field(default="a@@b"), None),
    ({"requestedSchema": {"type": "object", "properties": {"a@@b": {"type": "string"}}}}, None),
    ({"requestedSchema": {"type": "object", "properties": {"title": {"type": "string", "title": "a@@b"}}}},
     {"requestedSchema": {"type": "object", "properties": {"title": {"type": "string", "title": "a@@b"}}}}),
    ({"requestedSchema": {"type": "object", "properties": {}, "required": ["a@@b"]}}, None),
    ({"requestedSchema": {"type": "object", "properties": {"x" * 201: {"type": "string"}}}}, None),
    ({"requestedSchema": {"type": "object", "x" * 70_000: 1}}, None),
    ({"requestedSchema": "a form"}, None),
    ({"mode": "url", "url": "https://example.com/a?b=c#d"}, {"url": "https://example.com/a?b=c#d"}),
    ({"mode": "url", "url": "http://localhost:8000/"}, {"url": "http://localhost:8000/"}),
    *(({"mode": "url", "url": url}, None) for url in (
        "http://example.com/", "https://a@example.com/", "https://exam@@ple.com/", "javascript:alert(1)", "file:///etc",
        "https:///", "https://ex\\ample.com", "https://[", "https://" + "a" * 3000, "https://éxample.com/", 7,
    )),
]  # fmt: skip


def filled(value: Any, char: str) -> Any:
    return json.loads(json.dumps(value).replace("@@", json.dumps(char)[1:-1]))


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
@pytest.mark.parametrize(("params", "shown"), FORMS, ids=range(len(FORMS)))
def test_a_form_is_shown_without_hidden_characters_or_not_at_all(params: Any, shown: Any, hidden: str) -> None:
    request = Request(1, FORM, {"message": "m", **filled(params, hidden)})
    if shown is None:
        with pytest.raises(ProtocolError):
            presented("s", request)
        return
    found = presented("s", request).params
    for key, value in filled(shown, visible(hidden)).items():
        assert found[key] == value


def test_an_elicitation_has_an_id_that_no_server_chooses() -> None:
    params = {"message": "m", "mode": "url", "url": "https://example.com/", "elicitationId": "of another server"}
    assert presented("s", Request(1, FORM, params)).params["elicitationId"] != "of another server"


def test_hidden_characters_of_sampling_are_written_visibly() -> None:
    params = {"messages": [{"role": "user", "content": {"type": "text", "text": "a\u202eb"}}], "systemPrompt": "\u200b"}
    found = presented("s", Request(1, SAMPLING, params)).params
    assert found["messages"][0]["content"]["text"] == "a\\u202eb"
    assert found["systemPrompt"].endswith("\n\n\\u200b")


def test_a_question_of_any_size_is_refused() -> None:
    with pytest.raises(ProtocolError, match="at most 1048576 bytes"):
        presented("s", Request(1, SAMPLING, {"messages": ["\u200b" * (1 << 20)]}))
