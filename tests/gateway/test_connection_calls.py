"""Calls of a client: results, refusals, cancellation, limits, progress and log messages, in both eras."""

import asyncio
import json
from typing import Any

import pytest

from licet.gateway.catalog import ShownTool
from licet.gateway.limits import MOST_RUNNING
from licet.mcp.jsonrpc import Notification, Request

from .scenes import played
from .scripted_backend import META, Scene, ScriptedBackend, tool

LEVEL = f"{META}logLevel"


def core(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what only 2026 adds."""
    return {key: value for key, value in result.items() if key not in ("resultType", "_meta")}


def line(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


@pytest.mark.parametrize(
    ("params", "result"),
    [
        ({"name": "echo", "arguments": {"a": 1}}, {"content": [{"type": "text", "text": '{"a": 1}'}]}),
        ({"name": "echo"}, {"content": [{"type": "text", "text": "{}"}]}),
        ({"name": "echo", "arguments": None}, {"content": [{"type": "text", "text": "{}"}]}),
        ({"name": "refuse"}, line("BUDGET_EXCEEDED: s.refuse would exceed the budget")),
        ({"name": "cut"}, line("TOOL_NOT_AVAILABLE: the call was cut off")),
        ({"name": "crash"}, line("DECISION_FAILED: the gateway failed, and has reported why")),
        ({"name": "nothing"}, line("UNKNOWN_TOOL: there is no tool `nothing`")),
        ({"name": "s.echo"}, line("UNKNOWN_TOOL: there is no tool `s.echo`")),
        ({"name": "a\u202eb"}, line("UNKNOWN_TOOL: there is no tool `a\\u202eb`")),
    ],
)
@played()
async def test_calls_and_refusals_are_results(
    scene: Scene, era: str, params: dict[str, Any], result: dict[str, Any]
) -> None:
    [answer] = await scene.request("tools/call", params)
    assert core(answer["result"]) == result
    assert ("resultType" in answer["result"]) == (era == "2026")


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, -32602),
        ({"name": 1}, -32602),
        ({"name": "echo", "arguments": [1]}, -32602),
        ({"name": "echo", "arguments": "a"}, -32602),
        ({"name": "fail"}, -32000),
    ],
)
@played()
async def test_malformed_calls_and_errors_of_a_server_are_errors(
    scene: Scene, params: dict[str, Any], code: int
) -> None:
    [answer] = await scene.request("tools/call", params)
    assert answer["error"]["code"] == code


@played("2025")
async def test_a_crash_is_reported_and_told_to_nobody_else(scene: Scene) -> None:
    assert "secret detail" not in json.dumps(await scene.call("crash"))
    assert [event.reason for event in scene.backend.events] == ["the gateway failed: RuntimeError: secret detail"]


@played("2025")
async def test_an_unknown_tool_is_reported(scene: Scene) -> None:
    await scene.call("nothing")
    assert [(event.kind, event.name) for event in scene.backend.events] == [("tool", "nothing")]
    assert scene.backend.happened == []


@played()
async def test_a_result_of_json_text_is_shaped_without_its_unknown_keys(scene: Scene, era: str) -> None:
    [answer] = await scene.call("raw")
    assert core(answer["result"]) == {"content": [], **({"structuredContent": [1]} if era == "2026" else {})}
    assert [event.name for event in scene.backend.events] == ["tools/call _meta"]


@played()
async def test_a_cancelled_call_ends_without_an_answer(scene: Scene) -> None:
    assert await scene.call("hang", number=7) == []
    assert await scene.tell(Notification("notifications/cancelled", {"requestId": 7, "reason": "bored"})) == []
    assert scene.backend.happened[1:] == ["hanging", "stopped"]
    [answer] = await scene.call("echo", number=7)  # the id is free again
    assert answer["id"] == 7


@played()
async def test_a_call_that_ignores_its_cancellation_is_not_heard(scene: Scene) -> None:
    await scene.call("stubborn", number=7, progressToken=7)
    assert await scene.tell(Notification("notifications/cancelled", {"requestId": 7})) == []


@pytest.mark.parametrize("other", [8, "7", None, True, 1.0, [7], {"a": 7}])
@played("2025")
async def test_a_cancellation_of_something_else_changes_nothing(scene: Scene, other: object) -> None:
    await scene.call("hang", number=7)
    await scene.call("hang", number=1)
    assert await scene.tell(Notification("notifications/cancelled", {"requestId": other})) == []
    assert "stopped" not in scene.backend.happened


@played()
async def test_a_repeated_id_of_a_running_request_is_refused_and_the_first_goes_on(scene: Scene) -> None:
    await scene.call("hang", number=7)
    [answer] = await scene.call("echo", number=7)
    assert answer["error"]["code"] == -32600
    assert "stopped" not in scene.backend.happened
    [answer] = await scene.call("echo", number="7")
    assert "result" in answer


@played()
async def test_too_many_requests_at_once_are_refused(scene: Scene) -> None:
    assert await scene.tell(*(scene.message("tools/call", {"name": "hang"}, n) for n in range(MOST_RUNNING))) == []
    [answer] = await scene.call("echo", number=MOST_RUNNING)
    assert answer["error"] == {"code": -32603, "message": f"too many requests at once: at most {MOST_RUNNING}"}
    await scene.tell(Notification("notifications/cancelled", {"requestId": 0}))
    [answer] = await scene.call("echo", number=MOST_RUNNING)
    assert "result" in answer


@played("2025")
async def test_a_burst_of_short_requests_is_served(scene: Scene) -> None:
    many = 3 * MOST_RUNNING
    answers = await scene.tell(*(scene.message("tools/call", {"name": "echo"}, n) for n in range(many)))
    assert sorted(answer["id"] for answer in answers if "result" in answer) == list(range(many))


# Progress -------------------------------------------------------------------------------------------------------------

HALF = {"progress": 0.5, "total": 1, "message": "half", "progressToken": "the server's", "_meta": {"x": 1}}


@pytest.mark.parametrize("token", [0, 7, "a", "7"])
@played()
async def test_progress_carries_the_token_of_the_client(scene: Scene, token: Any) -> None:
    told, answer = await scene.call("tell", {"progress": [HALF]}, progressToken=token)
    params = {"progressToken": token, "progress": 0.5, "total": 1, "message": "half"}
    assert told == {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    assert "result" in answer


@pytest.mark.parametrize(
    ("progress", "meta"),
    [
        pytest.param(HALF, {}, id="nobody asked"),
        pytest.param(HALF, {"progressToken": None}, id="no token"),
        pytest.param(HALF, {"progressToken": [1]}, id="malformed token"),
        pytest.param({"progress": "half"}, {"progressToken": 1}, id="malformed progress"),
        pytest.param({}, {"progressToken": 1}, id="no progress"),
    ],
)
@played()
async def test_other_progress_is_dropped(scene: Scene, progress: dict[str, Any], meta: dict[str, Any]) -> None:
    assert len(await scene.call("tell", {"progress": [progress]}, **meta)) == 1


@played()
async def test_nothing_is_told_after_the_end_of_a_call(scene: Scene) -> None:
    await scene.call("tell", {}, progressToken=1, **{LEVEL: "debug"})
    before = len(scene.sent)
    scene.backend.late.progress({"progress": 1})
    scene.backend.late.log({"level": "error", "data": "late"})
    assert len(scene.sent) == before


@played()
async def test_progress_and_logs_are_left_out_while_the_transport_is_behind(scene: Scene) -> None:
    scene.crowded = True
    told = {"progress": [HALF] * 3, "log": [{"level": "error", "data": 1}]}
    [answer] = await scene.call("tell", told, progressToken=1, **{LEVEL: "debug"})
    assert "result" in answer


# Log messages ---------------------------------------------------------------------------------------------------------

LOG: list[dict[str, Any]] = [
    {"level": level, "data": level, "logger": "x", "_meta": {}} for level in ("debug", "info", "error")
]


def levels(answers: list[dict[str, Any]]) -> list[str]:
    return [answer["params"]["level"] for answer in answers if answer.get("method") == "notifications/message"]


@pytest.mark.parametrize(
    ("level", "passed", "asked_of_servers"),
    [
        ("", ["debug", "info", "error"], "info"), ("info", ["info", "error"], "info"), ("alert", [], "alert"),
        ("debug", ["debug", "info", "error"], "debug"),
    ],
)  # fmt: skip
@played("2025")
async def test_a_level_of_2025_holds_for_the_connection(
    scene: Scene, level: str, passed: list[str], asked_of_servers: str
) -> None:
    if level:
        [answer] = await scene.request("logging/setLevel", {"level": level})
        assert answer["result"] == {}
        assert scene.backend.happened == [("log level", level)]
    answers = await scene.call("tell", {"log": LOG})
    assert levels(answers) == passed
    assert all("_meta" not in answer.get("params", {}) for answer in answers)
    assert scene.backend.happened[-1] == ("level", asked_of_servers)
    before = len(scene.sent)
    for params in LOG:
        scene.client.log(params)
    assert levels(scene.sent[before:]) == passed


@pytest.mark.parametrize(
    ("meta", "passed", "asked_of_servers"),
    [
        ({}, [], ""),
        ({LEVEL: "info"}, ["info", "error"], "info"),
        ({LEVEL: "loud"}, [], ""),
        ({LEVEL: "emergency"}, [], "emergency"),
    ],
)
@played("2026")
async def test_a_level_of_2026_holds_for_one_request(
    scene: Scene, meta: dict[str, Any], passed: list[str], asked_of_servers: str
) -> None:
    assert levels(await scene.call("tell", {"log": LOG}, **meta)) == passed
    assert scene.backend.happened[-1] == ("level", asked_of_servers)
    scene.client.log(LOG[2])
    assert levels(scene.sent) == passed


@pytest.mark.parametrize("params", [{"level": "loud", "data": 1}, {"level": "info"}, {"data": 1}, {"level": ["info"]}])
@played("2025")
async def test_a_malformed_log_message_is_dropped_and_reported(scene: Scene, params: dict[str, Any]) -> None:
    assert len(await scene.call("tell", {"log": [params]})) == 1
    assert [event.sender for event in scene.backend.events] == ["server"]


@pytest.mark.parametrize("level", ["loud", None, 1, ["info"]])
@played("2025")
async def test_an_unknown_level_is_refused(scene: Scene, level: Any) -> None:
    [answer] = await scene.request("logging/setLevel", {"level": level})
    assert answer["error"]["code"] == -32602


# Waiting for servers --------------------------------------------------------------------------------------------------


@played()
async def test_what_is_not_listed_any_more_can_still_be_called_to_hear_why_not(scene: Scene) -> None:
    scene.backend.shown = (tool("s.echo"), ShownTool("s.refuse", tool("s.refuse").definition, listed=False))
    [answer] = await scene.request("tools/list")
    assert [shown["name"] for shown in answer["result"]["tools"]] == ["echo"]
    [answer] = await scene.call("refuse", number=2)
    assert answer["result"]["content"][0]["text"].startswith("BUDGET_EXCEEDED: ")


def test_a_request_of_a_client_that_left_is_forgotten() -> None:
    async def run() -> None:
        scene = Scene(ScriptedBackend())
        await scene.start("2026")
        await scene.tell(*(Request(n, "tools/call", scene.message("", {"name": "hang"}).params) for n in range(5)))
        await scene.connection.close()
        assert scene.backend.happened.count("stopped") == 5
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
