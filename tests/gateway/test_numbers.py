"""Numbers that JSON can write in several ways, or that some readers cannot hold: in definitions, arguments, results.

A lock is written, read again and compared with what the server sends, so every form that a server may use has to come
back as the same number. Libraries write `1.0` for whole floats (pydantic, FastMCP), the bounds of safe integers (zod),
and those of 64 bits (Go).
"""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from licet.core.algebra.set import CapabilitySet
from licet.core.policy.lock import Lock, LockedServer, changed, read_lock, write_lock
from licet.core.policy.lock_changes import lock_changes
from licet.core.policy.tool import ToolSpec
from licet.core.values import digest
from licet.gateway.connection import refused_line
from licet.mcp.jsonrpc import BadMessage, read_message
from licet.mcp.listing import Definitions, as_locked
from sandbox.levels import needs_walls

from .clients import text_of
from .workspaces import Workspace

NUMBERS: list[float] = [
    *(1.0, 0.0, -0.0, 1.5, 1e16, 1e20, 1.2345678901234567e20, 1e21, 1.7976931348623157e308, 5e-324),
    *(2**53 - 1, 2**53, 2**53 + 1, -(2**53), 2**63 - 1, -(2**63), 2**64 - 1, 10**30, 10**390),
]


def schema_of(number: float) -> dict[str, Any]:
    bounds = {"type": "number", "default": number, "minimum": number}
    return {"type": "object", "properties": {"n": bounds}}


def tool_of(number: float) -> dict[str, Any]:
    return {"name": "count", "description": "Counts.", "inputSchema": schema_of(number)}


def workspace_of(tmp_path: Path, store_path: Path, **script: Any) -> Workspace:
    entries = {name: {"effect": "read_only"} for name in ("count", "echo")}
    given = {"tools": ["s.count", "s.echo"]}
    return Workspace(tmp_path / "p", store_path / "s", {"s": {"script": script, "tools": entries}}, given)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: repr(number)[:30])
@pytest.mark.sampled(6)
def test_a_tool_with_any_number_in_its_schema_is_shown_and_called(
    tmp_path: Path, store_path: Path, number: float
) -> None:
    needs_walls()
    workspace = workspace_of(tmp_path, store_path, tools=[tool_of(number), "echo"])

    async def steps() -> tuple[dict[str, Any], str, str]:
        async with workspace.gateway() as client:
            shown = await client.tools()
            without = text_of(await client.call("count", {}))
            return shown["count"], without, text_of(await client.call("count", {"n": number}))

    shown, *said = asyncio.run(steps())
    assert shown["inputSchema"]["properties"]["n"]["minimum"] == number
    assert json.loads(said[0]).get("n", number) == number
    assert json.loads(said[1]) == {"n": number}
    assert not [line for line in workspace.reports if "licet.lock" in line]
    assert [receipt.code for receipt in workspace.receipts()] == ["ok", "ok"]


def test_results_and_arguments_keep_every_digit(tmp_path: Path, store_path: Path) -> None:
    needs_walls()
    value = {"n": 2**63 + 1, "m": -(10**30), "f": 1.0, "small": 5e-324, "large": 1.2345678901234567e20}
    result = {"content": [{"type": "text", "text": "x"}], "structuredContent": value}
    workspace = workspace_of(tmp_path, store_path, tools=["count", "echo"], calls={"count": [["result", result]]})

    async def steps() -> tuple[dict[str, Any], str]:
        async with workspace.gateway() as client:
            return await client.call("count", {}), text_of(await client.call("echo", value))

    said, echoed = asyncio.run(steps())
    assert said["structuredContent"] == value
    assert json.loads(echoed) == value
    digests = [(receipt.arguments, receipt.result) for receipt in workspace.receipts()]
    assert len(set(digests)) == 2


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_result_with_a_number_that_json_does_not_have_is_an_error_at_once(
    tmp_path: Path, store_path: Path, number: str
) -> None:
    needs_walls()
    line = '{"jsonrpc":"2.0","id":{id},"result":{"content":[],"structuredContent":{"n":' + number + "}}}"
    workspace = workspace_of(tmp_path, store_path, tools=["count", "echo"], calls={"count": [["line", line]]})

    async def steps() -> tuple[str, str]:
        async with workspace.gateway() as client:
            async with asyncio.timeout(20):  # and not the 60 s of a call without an answer
                return text_of(await client.call("count", {})), await client.say("echo")

    failed, other = asyncio.run(steps())
    assert "a malformed answer: not JSON" in failed
    assert other == "{}"


# Schemas as libraries write them --------------------------------------------------------------------------------------

sizes = st.integers(-(2**70), 2**70)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9).map(float)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def pydantic_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """What a pydantic model, and so FastMCP, writes: bounds and defaults as they stand in the source."""
    default = draw(floats | sizes | texts | st.none())
    kind: Any = draw(st.sampled_from((int, float, float | None, int | None, list[float], dict[str, float], Any)))
    bound = draw(sizes if kind is int else floats | sizes)
    limits: dict[str, Any] = {draw(st.sampled_from(("ge", "gt", "le", "lt"))): bound} if kind in (int, float) else {}
    model = create_model("Arguments", n=(Annotated[kind, Field(**limits, description=draw(texts))], default))
    schema: dict[str, Any] = json.loads(json.dumps(model.model_json_schema()))
    return schema


@st.composite
def zod_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """zod: bounds of safe integers and of single floats, `$schema`, no further properties."""
    safe = {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1}
    single = {"type": "number", "minimum": -3.4028234663852886e38, "maximum": 3.4028234663852886e38}
    stated = {"type": "number", draw(st.sampled_from(("exclusiveMinimum", "multipleOf", "default"))): draw(floats)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"n": draw(st.sampled_from((safe, single, stated)))},
        "required": ["n"],
        "additionalProperties": False,
    }


@st.composite
def go_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Go: bounds are 64-bit floats, written with all digits below 1e21, so as integers of any size; or integers."""
    number = draw(floats | st.sampled_from((2.0**63, -(2.0**63), 2**63 - 1, 2**64 - 1)) | sizes)
    written = int(number) if number == int(number) and abs(number) < 1e21 else number
    return {
        "type": "object",
        "properties": {"n": {"type": ["null", "integer"], "minimum": written, "enum": [written, None]}},
        "additionalProperties": {},
    }


schemas = pydantic_schemas() | zod_schemas() | go_schemas()


def locked_again(server: LockedServer) -> LockedServer:
    return read_lock(write_lock(Lock(format=1, servers={"s": server}))).servers["s"]


@given(schemas, schemas)
def test_what_a_library_writes_is_the_same_after_it_was_locked(one: dict[str, Any], other: dict[str, Any]) -> None:
    tools = ({"name": "one", "inputSchema": one}, {"name": "other", "inputSchema": other})
    live = as_locked(Definitions(tools=tools), {})
    locked = locked_again(live)
    assert changed(locked, live) == {}
    assert list(lock_changes(Lock(format=1, servers={"s": locked}), Lock(format=1, servers={"s": live}))) == []
    for tool in ("one", "other"):
        read, sent = (
            ToolSpec("s.t", CapabilitySet(), schema=each.listed("tools")[tool]["inputSchema"])
            for each in (locked, live)
        )
        assert read.digest == sent.digest


@given(sizes | floats, sizes | floats)
def test_another_number_is_a_change_and_another_digest(one: float, other: float) -> None:
    first, second = (as_locked(Definitions(tools=(tool_of(number),)), {}) for number in (one, other))
    specs = {ToolSpec("s.t", CapabilitySet(), schema=schema_of(number)).digest for number in (one, other)}
    if one != other:
        assert changed(locked_again(first), second)
        assert len(specs) == 2
    elif type(one) is type(other):
        assert not changed(locked_again(first), second)
        assert len(specs) == 1


def test_true_is_not_one() -> None:
    """Python takes them for equal: a lock that was made again would not have shown the change."""
    before, after = (as_locked(Definitions(tools=(tool_of(value),)), {}) for value in (1, True))
    assert changed(before, after) == {
        "count": "has another inputSchema/properties/n/default, inputSchema/properties/n/minimum"
    }
    lines = list(lock_changes(Lock(format=1, servers={"s": before}), Lock(format=1, servers={"s": after})))
    assert "    inputSchema/properties/n/default: 1 -> true" in lines


def test_a_schema_that_could_be_digested_before_has_the_digest_that_it_had() -> None:
    for number in (1, 1.0, 1.5, 1e16, 1e20, 2**53 - 1):
        spec = ToolSpec("s.t", CapabilitySet(), schema=schema_of(number))
        assert spec.digest == digest(
            {
                "name": "s.t",
                "description": "",
                "needs": [],
                "effect": None,
                "sandbox": None,
                "connector": None,
                "cost_usd": None,
                "schema": schema_of(number),
                "storage_ttl_seconds": None,
            }
        )


def test_a_large_integer_has_another_digest_than_its_text_and_its_float() -> None:
    large = 10**20
    schemas = [schema_of(large), schema_of(float(large)), schema_of(str(large)), None]  # type: ignore[arg-type]
    assert len({ToolSpec("s.t", CapabilitySet(), schema=schema).digest for schema in schemas}) == len(schemas)


def test_a_model_with_bounds_of_64_bits_is_what_pydantic_writes() -> None:
    class Arguments(BaseModel):
        n: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
        f: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0

    written = msgspec.json.encode(Arguments.model_json_schema())
    assert b"9223372036854775807" in written
    assert b"1.0" in written


BAD_CALLS = {
    "id first": ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"arguments":{"n":NaN}}}', 7),
    "id last": ('{"method":"tools/call","params":{"arguments":{"n":1e400}},"jsonrpc":"2.0","id":"seven"}', "seven"),
    "half a surrogate pair": ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n":"\\ud800"}}', 7),
    "cut": ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"n":NaN', None),
    "an answer": ('{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}', None),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_call_with_arguments_that_are_no_json_is_answered(case: str) -> None:
    """A client would wait for it otherwise."""
    text, request_id = BAD_CALLS[case]
    with pytest.raises(BadMessage) as bad:
        read_message(text.encode())
    refused = refused_line(text.encode(), bad.value)
    assert (refused.id if refused is not None else None) == request_id
