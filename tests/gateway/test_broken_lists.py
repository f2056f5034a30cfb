"""Lists with items that are no JSON for everybody: these are left out by name, and cost no other definition."""

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.mcp.broken_lists import Unreadable, broken_list
from licet.mcp.exchange import Answer, UpstreamError
from licet.mcp.jsonrpc import BadMessage, Response, read_message
from licet.mcp.limits import MOST_BROKEN_MARKS, MOST_DEFINITIONS, MOST_DEPTH, MOST_LEFT_OUT
from licet.mcp.listing import Definitions, definitions
from sandbox.levels import needs_walls

from .clients import text_of
from .http_servers import Asked, HttpServer, Out, opened
from .servers import call, serving
from .test_listing import read
from .workspaces import Workspace

SCHEMA = '{"type":"object","properties":{"n":{"type":"number","default":%s}}}'
GOOD = '{"name":"echo","inputSchema":{"type":"object"}}'
DEEP = "[" * (MOST_DEPTH + 10) + "]" * (MOST_DEPTH + 10)
# The text of a value, and what is said of a tool that has it.
BROKEN: dict[str, tuple[str, str]] = {
    "nan": ("NaN", "it cannot be read: `NaN` is no number in JSON"),
    "infinity": ("-Infinity", "it cannot be read: `-Infinity` is no number in JSON"),
    "too large": ("1e400", "it cannot be read: a number that is too large for a reader"),
    "too many digits": ("1" * 5_000, "it cannot be read: a number of more than 400 digits"),
    "surrogate": (r'"\ud800"', "it cannot be read: a text with half a surrogate pair"),
    "key twice": ('{"a":1,"a":2}', "it cannot be read: duplicate keys"),
    "deep": (DEEP, f"it cannot be read: nested in more than {MOST_DEPTH} levels"),
    "no json": ("{'a': 1}", "it cannot be read: not JSON"),
}


def tool_of(name: str, value: str) -> str:
    return f'{{"name":"{name}","inputSchema":{SCHEMA % value}}}'


def line(*items: str) -> str:
    return '{"jsonrpc":"2.0","id":{id},"result":{"tools":[' + ",".join(items) + '],"resultType":"complete"}}'


def script_of(*items: str, era: str = "2025") -> dict[str, Any]:
    return {"era": era, "on": {"tools/list": [["line", line(*items)]]}}


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.sampled(5)
def test_a_tool_that_cannot_be_read_is_left_out_by_name_and_costs_no_other(era: str, case: str) -> None:
    value, why = BROKEN[case]
    found = read(script_of(GOOD, tool_of("bad", value), tool_of("good", "1.0"), era=era))
    assert [tool["name"] for tool in found.tools] == ["echo", "good"]
    assert found.left_out == {"tools/bad": why}


def test_a_name_that_cannot_be_told_is_a_number() -> None:
    twice, none = '{"name":"a","name":"b","n":NaN}', '{"n":NaN}'
    found = read(script_of(GOOD, twice, none, tool_of("echo", "NaN")))
    assert found.tools == ()  # the name of one that cannot be read counts too
    assert set(found.left_out) == {"tools/number 2", "tools/number 3", "tools/echo"}


def test_no_definition_is_left_out_because_another_one_is_shown_by_its_name() -> None:
    """A name may have hidden characters, which are written out, and another one be what is written then."""
    literal = (r"z\\u200b", "y\\\\u200b", "number 3", "…")
    hidden = (tool_of("z\\u200b", "NaN"), '{"name":"y\\u200b"}', '{"n":NaN}')
    found = read(script_of(*hidden, *(tool_of(name, "1.0") for name in literal), *["{}"] * MOST_LEFT_OUT))
    assert {tool["name"] for tool in found.tools} == {r"z\u200b", r"y\u200b", "number 3", "…"}
    assert {r"tools/z\u200b…", r"tools/y\u200b…", "tools/number 3…", "tools/……"} <= found.left_out.keys()
    assert not {f"tools/{tool['name']}" for tool in found.tools} & found.left_out.keys()


def test_what_is_broken_outside_of_the_items_breaks_the_list() -> None:
    for text in (
        '{"jsonrpc":"2.0","id":1,"result":{"tools":[],"x":NaN}}',
        '{"jsonrpc":"2.0","id":1,"result":{"tools":[NaN],"tools":[]}}',
        '{"jsonrpc":"2.0","id":1,"result":{"tools":[NaN]}',
        '{"jsonrpc":"2.0","id":1,"result":{"other":[NaN]}}',
        '{"jsonrpc":"2.0","id":1,"result":[{"tools":[NaN]}]}',
        '{"jsonrpc":"2.0","id":1,"params":{"tools":[NaN]}}',
        "NaN",
    ):
        assert broken_list(text.encode(), key="tools", name="name") is None


def test_a_text_that_is_not_closed_is_searched_once() -> None:
    text = b'{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"' + b'\\"' * 20_000 + b"}]}}"
    began = time.process_time()
    assert broken_list(text, key="tools", name="name") is None
    assert time.process_time() - began < 2  # a search from each of its quotes takes ten seconds


def test_an_empty_place_in_a_list_is_left_out() -> None:
    text = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"},,NaN]}}'
    found = broken_list(text, key="tools", name="name")
    assert found is not None
    assert [type(item) for item in found["tools"]] == [dict, Unreadable, Unreadable]


def test_a_list_is_not_read_item_by_item_if_that_would_take_long() -> None:
    many, marks = ",".join(["NaN"] * (MOST_DEFINITIONS + 1)), "1," * MOST_BROKEN_MARKS
    for items in (many, f'{{"name":"a","n":NaN,"l":[{marks}1]}}'):
        text = f'{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{items}]}}}}'
        assert broken_list(text.encode(), key="tools", name="name") is None


def test_a_broken_list_is_read_beside_the_event_loop() -> None:
    threads: list[str] = []

    def mend(line: bytes) -> dict[str, Any] | None:
        threads.append(threading.current_thread().name)
        return broken_list(line, key="tools", name="name")

    async def scene() -> Answer:
        async with serving(script_of(GOOD, tool_of("bad", "NaN"))) as upstream:
            return await upstream.request("tools/list", {}, seconds=60, mend=mend)

    assert len(asyncio.run(scene()).data["tools"]) == 2
    assert threads != [threading.main_thread().name]
    assert len(threads) == 1


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(values, max_size=5), values, st.booleans())
def test_a_list_that_can_be_read_is_cut_as_the_parser_does(items: list[Any], beside: Any, spaced: bool) -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"a": beside, "tools": items, "z": beside}}
    text = json.dumps(answer, ensure_ascii=spaced, separators=(" , ", " : ") if spaced else (",", ":")).encode(
        errors="surrogatepass"
    )
    try:
        whole = read_message(text)
    except BadMessage:
        return
    assert isinstance(whole, Response)
    assert broken_list(text, key="tools", name="name") == whole.data


def test_a_running_server_loses_only_the_tool_that_cannot_be_read(tmp_path: Path, store_path: Path) -> None:
    needs_walls()
    broken = {**script_of(tool_of("good", "1.0"), tool_of("bad", "NaN")), "tools": [json.loads(tool_of("good", "1.0"))]}
    locked = {"tools": [json.loads(tool_of(name, "1.0")) for name in ("bad", "good")]}
    entries = {name: {"effect": "read_only"} for name in ("bad", "good")}
    server = {"script": broken, "locked": locked, "tools": entries}
    other = {"script": {}, "tools": {"echo": {"effect": "read_only"}}}
    given = {"tools": ["s.bad", "s.good", "t.echo"]}
    workspace = Workspace(tmp_path / "p", store_path / "state", {"s": server, "t": other}, given)

    async def steps() -> list[str]:
        async with workspace.gateway() as client:
            return [text_of(await client.call(name, {})) for name in ("s__good", "s__bad", "t__echo")]

    good, bad, echo = asyncio.run(steps())
    assert (good, echo) == ("{}", "{}")
    assert bad.startswith("TOOL_NOT_AVAILABLE")
    assert any(
        "tools/bad is left out: it cannot be read: `NaN` is no number in JSON" in one for one in workspace.reports
    )


def test_definitions_without_anything_broken_are_read_as_before() -> None:
    assert read(script_of(GOOD)) == Definitions(tools=({"name": "echo", "inputSchema": {"type": "object"}},))


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("streams", [False, True], ids=["json", "events"])
def test_a_remote_server_loses_only_that_tool_too(era: str, streams: bool) -> None:
    async def lists(asked: Asked, out: Out) -> None:
        tools = [json.loads(GOOD), {"name": "bad", "inputSchema": {"type": "object", "default": float("nan")}}]
        if streams:
            await out.event(out.answer({"tools": tools}))
            await out.end()
        else:
            await out.json(out.answer({"tools": tools}))

    async def fails(asked: Asked, out: Out) -> None:
        answer = out.answer({"content": [], "structuredContent": {"n": float("inf")}})
        await (out.event(answer) if streams else out.json(answer))
        if streams:
            await out.end()

    async def scene() -> Definitions:
        async with opened(HttpServer(era, on={"tools/list": lists}, calls={"echo": fails}), prefer=era) as upstream:
            with pytest.raises(UpstreamError, match="a malformed answer: not JSON"):
                await call(upstream, "echo")
            return await definitions(upstream, upstream.opened, seconds=20)

    found = asyncio.run(asyncio.wait_for(scene(), 60))
    assert [tool["name"] for tool in found.tools] == ["echo"]
    assert found.left_out == {"tools/bad": "it cannot be read: `NaN` is no number in JSON"}
