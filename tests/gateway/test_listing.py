"""The definitions of a server: all pages, in its order, within limits, and again when they changed meanwhile."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from licet.mcp.exchange import UpstreamError
from licet.mcp.limits import MOST_TIMES
from licet.mcp.listing import BadListing, Definitions, definitions

from .servers import call, seen, serving, text_of

ERAS = ("2025", "2026")
SCHEMA = {"type": "object"}


def names(found: Definitions) -> list[str]:
    return [tool["name"] for tool in found.tools]


def read(script: dict[str, Any] | str, **options: Any) -> Definitions:
    async def scene() -> Definitions:
        async with serving(script, **options) as upstream:
            return await definitions(upstream, upstream.opened, seconds=60)

    return asyncio.run(scene())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("page", [0, 1, 2, 100])
def test_all_definitions_come_in_the_order_of_the_server(era: str, page: int) -> None:
    tools = [{"name": name, "inputSchema": SCHEMA, "x": {"vendor": 1}} for name in ("c", "a", "b")]
    resources = [{"uri": "a:1", "name": "r"}, {"uri": "a:2", "name": "r"}]
    templates = [{"uriTemplate": "a:{n}", "name": "t"}]
    prompts = [{"name": "p"}]
    script = {
        "era": era,
        "page": page,
        "tools": tools,
        "resources": resources,
        "templates": templates,
        "prompts": prompts,
    }
    assert read(script) == Definitions(tuple(tools), tuple(resources), tuple(templates), tuple(prompts))


@pytest.mark.parametrize("era", ERAS)
def test_only_lists_that_the_server_announces_are_asked_for(era: str) -> None:
    async def scene() -> list[str]:
        script = {"era": era, "capabilities": {"prompts": {}}, "calls": {"seen": [["seen"]]}}
        async with serving(script, prefer=era) as upstream:
            assert await definitions(upstream, upstream.opened, seconds=60) == Definitions()
            return [message["method"] for message in await seen(upstream)]

    assert [method for method in asyncio.run(scene()) if method.endswith("/list")] == ["prompts/list"]


def test_a_list_that_the_server_does_not_have_after_all_is_empty() -> None:
    on = {"resources/templates/list": [["error", -32601, "Method not found"]]}
    found = read({"era": "2025", "resources": [{"uri": "a:1", "name": "r"}], "on": on})
    assert (len(found.resources), found.templates) == (1, ())


def test_another_error_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="broken"):
        read({"on": {"tools/list": [["error", -32603, "broken"]]}})


def page(tools: str, cursor: str = "") -> list[Any]:
    """A page of a list; `{id}` in it makes it another one each time."""
    return ["line", '{"jsonrpc":"2.0","id":{id},"result":{"tools":' + tools + cursor + "}}"]


def long_page(before: str, repeated: str, count: int, after: str) -> list[Any]:
    """A page that would be too long for a command line."""
    begin = '{"jsonrpc":"2.0","id":{id},"result":{"tools":' + before
    return [["bytes", begin, 1], ["bytes", repeated, count], ["line", after + "}}"]]


BAD: list[tuple[str, list[Any], str]] = [
    ("endless", page('[{"name":"t{id}"}]', ',"nextCursor":"c{id}"'), "more than 100 pages"),
    ("repeated-cursor", page('[{"name":"t{id}"}]', ',"nextCursor":"c"'), "the cursor `c` comes a second time"),
    ("empty-cursor", page("[]", ',"nextCursor":""'), "the cursor `` comes a second time"),
    ("cursor-number", page("[]", ',"nextCursor":7'), "`nextCursor` is not a short text"),
    ("cursor-long", page("[]", ',"nextCursor":"' + "c" * 10_001 + '"'), "`nextCursor` is not a short text"),
    ("no-list", page("7"), "expected a list under `tools`"),
    ("absent", ["result", {"resultType": "complete"}], "expected a list under `tools`"),
]


GOOD: dict[str, Any] = {"name": "good", "inputSchema": SCHEMA}
# What a server defines next to a good tool, and what is left out of its lists.
LEFT_OUT: dict[str, tuple[list[Any], dict[str, str]]] = {
    "no name": ([{"title": "t", "inputSchema": SCHEMA}], {"tools/number 1": "no text under `name`"}),
    "a number": ([{"name": 7, "inputSchema": SCHEMA}], {"tools/number 1": "no text under `name`"}),
    "an empty name": ([{"name": "", "inputSchema": SCHEMA}], {"tools/number 1": "no text under `name`"}),
    "two of one name": ([{"name": "a", "inputSchema": SCHEMA}] * 2, {"tools/a": "2 definitions have this `name`"}),
    "no type": (
        [{"name": "a", "inputSchema": {}}],
        {"tools/a": "it does not fit the MCP schema: Object missing required field `type` - at `$.inputSchema`"},
    ),
    "a long name": (
        [{"name": "a" * 2001, "inputSchema": SCHEMA}],
        {f"tools/{'a' * 100}…": "its `name` has more than 2000 characters"},
    ),
    "a long text": (
        [{"name": "a", "inputSchema": SCHEMA, "description": "x" * (256 << 10)}],
        {"tools/a": "it has more than 256 KiB"},
    ),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("case", LEFT_OUT)
def test_a_definition_that_cannot_be_used_is_left_out_with_the_reason(tmp_path: Path, era: str, case: str) -> None:
    tools, left_out = LEFT_OUT[case]
    script = tmp_path / "script"  # too long for a command line
    script.write_text(json.dumps({"era": era, "tools": [*tools, GOOD]}))
    found = read(f"@{script}")
    assert found == Definitions(tools=(GOOD,), left_out=left_out)


def test_what_is_no_object_is_left_out() -> None:
    found = read({"on": {"tools/list": [page('[{"name":"good","inputSchema":{"type":"object"}},7]')]}})
    assert found == Definitions(tools=(GOOD,), left_out={"tools/number 2": "no text under `name`"})


def test_reasons_are_given_for_a_hundred_definitions() -> None:
    found = read({"tools": [GOOD, *({"name": f"t{number}"} for number in range(110))]})
    assert [one["name"] for one in found.tools] == ["good"]
    assert len(found.left_out) == 101
    assert found.left_out["tools/…"] == "10 more definitions cannot be used"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("action", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_lists_that_cannot_be_read_are_an_error(era: str, action: list[Any], message: str) -> None:
    with pytest.raises(BadListing, match=message):
        read({"era": era, "on": {"tools/list": [action]}})


def test_too_many_definitions_are_an_error() -> None:
    with pytest.raises(BadListing, match="more than 10000 definitions"):
        read({"on": {"tools/list": long_page("[", '{"name":"t"},', 10_000, '{"name":"t"}]')}})


def test_a_page_that_is_too_long_is_not_read() -> None:
    with pytest.raises(UpstreamError, match=r"a message of 5[0-9]* bytes, more than the 4194304 that are read"):
        read({"on": {"tools/list": long_page("[", "{},", (5 << 20) // 3, "{}]")}})


def test_definitions_that_are_too_large_are_an_error() -> None:
    actions = long_page('[{"name":"t{id}","description":"', "x", 1 << 20, '"}],"nextCursor":"c{id}"')
    with pytest.raises(BadListing, match="more than 4194304 bytes"):
        read({"on": {"tools/list": actions}})


def test_two_resources_of_one_uri_are_left_out() -> None:
    found = read({"resources": [{"uri": "a:1", "name": "r"}, {"uri": "a:1", "name": "s"}, {"uri": "a:2", "name": "t"}]})
    assert [one["uri"] for one in found.resources] == ["a:2"]
    assert found.left_out == {"resources/a:1": "2 definitions have this `uri`"}


def test_a_server_that_does_not_answer_in_time_is_an_error() -> None:
    async def scene() -> None:
        async with serving({"on": {"tools/list": [["hang"]]}}) as upstream:
            await definitions(upstream, upstream.opened, seconds=0.05)

    with pytest.raises(BadListing, match=r"within 0\.05 s"):
        asyncio.run(scene())


# Lists that change ----------------------------------------------------------------------------------------------------

CHANGED = ["notify", "notifications/tools/list_changed", {}]
MAY_CHANGE = {"tools": {"listChanged": True}}


def test_tools_that_a_2025_server_adds_after_it_was_opened_are_found() -> None:
    at_first = [["tools", ["early", "late"]], CHANGED, page('[{"name":"early"}]')]
    script = {"era": "2025", "capabilities": MAY_CHANGE, "on": {"tools/list": [["times", at_first, [["default"]]]]}}
    assert names(read(script)) == ["early", "late"]


def test_lists_that_change_each_time_they_are_read_are_an_error() -> None:
    async def scene() -> int:
        on = {"tools/list": [CHANGED, page("[]"), CHANGED]}
        script = {"era": "2025", "capabilities": MAY_CHANGE, "on": on, "calls": {"seen": [["seen"]]}}
        async with serving(script) as upstream:
            with pytest.raises(BadListing, match="changed each of the 5 times"):
                await definitions(upstream, upstream.opened, seconds=60)
            return [message["method"] for message in await seen(upstream)].count("tools/list")

    assert asyncio.run(scene()) == MOST_TIMES


def test_a_storm_of_changes_at_the_start_does_not_stop_the_listing() -> None:
    async def scene() -> str:
        script = {"era": "2025", "capabilities": MAY_CHANGE, "opened": [["repeat", 5_000, CHANGED]]}
        async with serving(script) as upstream:
            assert names(await definitions(upstream, upstream.opened, seconds=60)) == ["echo"]
            return text_of(await call(upstream, "echo"))

    assert asyncio.run(scene()) == "{}"
