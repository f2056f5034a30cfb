"""Servers that crash, hang, flood or lie: each costs its own calls, and no more than a flood costs the connection.

Each case is a script. Where the connection survives, an ordinary call afterwards is answered.
"""

import asyncio
import json
from typing import Any

import pytest

from licet.mcp.exchange import Answer, TimedOut, UpstreamError
from licet.mcp.jsonrpc import INVALID_REQUEST, Notification, Request
from licet.mcp.limits import MOST_ANSWER_BYTES, MOST_ASKS, MOST_BAD_LINES
from licet.mcp.link import Gone, Rate

from .servers import RecordingPeer, call, seen, serving, text_of

ERAS = ("2025", "2026")


def line(text: str) -> list[Any]:
    return ["line", '{"jsonrpc":"2.0",' + text + "}"]


OK = '"result":{"resultType":"complete","content":[{"type":"text","text":"ok"}]}'

# What a tool does, what its call gives (a text, or an error that contains one), and what is reported.
SURVIVED: list[tuple[str, list[Any], str, list[str]]] = [
    ("noise", [["line", "Listening on stdio"], ["text", "ok"]], "ok", ["not JSON: Listening on stdio"]),
    ("blank-lines", [["line", ""], ["line", "  "], ["text", "ok"]], "ok", []),
    ("broken-json", [["line", '{"jsonrpc":"2.0","id":{id},"result":'], ["text", "ok"]], "ok", ["not JSON"]),
    ("not-utf8", [["line", "\udcff"], ["text", "ok"]], "ok", ["not JSON"]),
    ("batch", [["line", '[{"jsonrpc":"2.0","id":{id},"result":{}}]'], ["text", "ok"]], "ok", ["a batch"]),
    ("wrong-id", [line('"id":999,' + OK), ["text", "ok"]], "ok", ["an answer to no request: id 999"]),
    ("text-id", [line('"id":"{id}",' + OK)], "ok", []),
    ("padded-id", [line('"id":"0{id}",' + OK), ["text", "ok"]], "ok", ["an answer to no request"]),
    ("no-id", [line(OK), ["text", "ok"]], "ok", ["a result without `id`"]),
    ("null-id", [line('"id":null,"error":{"code":-32700,"message":"eh"}'), ["text", "ok"]], "ok",
     ["an error without an id: eh"]),
    ("repeated", [["text", "ok"], ["text", "again"]], "ok", ["a late or repeated answer"]),
    ("both", [["text", "ok"], ["error", -1, "no"]], "ok", ["a late or repeated answer"]),
    ("duplicate-keys", [line('"id":{id},"result":{"content":[],"content":[1]}')], "malformed answer: duplicate keys",
     ["duplicate keys"]),
    ("duplicate-id", [line('"id":998,"id":{id},' + OK)], "malformed answer: duplicate keys", ["duplicate keys"]),
    ("deep", [line('"id":{id},"result":{"a":' + "[" * 200 + "]" * 200 + "}")], "nested in more than", ["nested"]),
    ("very-deep", [line('"id":{id},"result":{"a":' + "[" * 5000 + "]" * 5000 + "}"), ["text", "ok"]], "ok", ["nested"]),
    ("no-object", [line('"id":{id},"result":[]')], "`result` is not an object", ["`result`"]),
    ("unknown-type", [["result", {"resultType": "task"}]], "unknown type: task", []),
    ("unknown-notification", [["notify", "notifications/vendor", {}], ["text", "ok"]], "ok",
     ["an unknown notification: `notifications/vendor`"]),
    ("progress-of-nobody",
     [["notify", "notifications/progress", {"progressToken": 77, "progress": 1}], ["text", "ok"]], "ok", []),
    ("cancels-nothing", [["notify", "notifications/cancelled", {"requestId": 5}], ["text", "ok"]], "ok", []),
    ("cancels-oddly", [["notify", "notifications/cancelled", {"requestId": [5]}], ["text", "ok"]], "ok", []),
    ("many-lines", [["repeat", 3_000, ["line", "noise {n}"]], ["text", "ok"]], "ok", ["not JSON: noise"] * 10),
]  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("actions", "outcome", "reports"), [case[1:] for case in SURVIVED], ids=[case[0] for case in SURVIVED]
)
@pytest.mark.sampled(12)
def test_a_bad_line_costs_that_line_or_that_call(
    era: str, actions: list[Any], outcome: str, reports: list[str]
) -> None:
    peer = RecordingPeer()

    async def scene() -> tuple[str, str]:
        async with serving({"era": era, "calls": {"bad": actions}}, peer) as upstream:
            try:
                first = text_of(await call(upstream, "bad"))
            except UpstreamError as wrong:
                first = wrong.message
            return first, text_of(await call(upstream, "echo"))

    first, then = asyncio.run(scene())
    assert outcome in first
    assert then == "{}"
    assert len(peer.reports) == len(reports)
    assert all(expected in found for expected, found in zip(reports, peer.reports, strict=True)), peer.reports
    assert peer.notes == []
    assert peer.asks == []


# What a tool does, and why the connection is over.
ENDED: list[tuple[str, list[Any], str]] = [
    ("crash", [["exit", 3]], "it closed its output"),
    ("crash-in-a-line", [["bytes", '{"jsonrpc":"2.0","id":{id},"result":{}', 1], ["exit", 0]], "it closed its output"),
    ("flood-of-one-line", [["repeat", 34, ["bytes", "x", 1 << 20]]], "it sent a line of more than 33554432 bytes"),
    ("flood-of-lines", [["repeat", MOST_BAD_LINES + 1, ["line", "x"]], ["text", "ok"]],
     "10000 lines in a row that are no messages"),
]  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("actions", "reason"), [case[1:] for case in ENDED], ids=[case[0] for case in ENDED])
def test_a_crash_or_a_flood_ends_the_connection_and_answers_every_call_once(
    era: str, actions: list[Any], reason: str
) -> None:
    async def scene() -> tuple[list[Answer | BaseException], str]:
        script = {"era": era, "calls": {"bad": actions, "hang": [["hang"]]}}
        async with serving(script, grace=0.01) as upstream:
            waiting = (call(upstream, "hang") for _ in range(3))
            outcomes = await asyncio.gather(*waiting, call(upstream, "bad"), return_exceptions=True)
            with pytest.raises(Gone):
                await call(upstream, "echo")
            return outcomes, await upstream.ended()

    outcomes, ended = asyncio.run(scene())
    assert reason in ended
    assert [type(outcome) for outcome in outcomes] == [Gone] * 4


@pytest.mark.parametrize(
    "actions", [[["exit", 1]], [["stderr", "no such module"], ["exit", 1]], [["line", "?"], ["exit", 0]]]
)
def test_a_server_that_ends_at_its_start_is_gone(actions: list[Any]) -> None:
    async def scene() -> None:
        async with serving({"start": actions}):
            pass

    with pytest.raises(Gone):
        asyncio.run(scene())


def test_a_server_that_never_answers_is_not_opened() -> None:
    async def scene() -> None:
        hang = [["hang"]]
        script = {"on": {"server/discover": hang, "initialize": hang}}
        async with serving(script, is_opened=False) as upstream:
            await upstream.open(seconds=0.05)

    with pytest.raises(TimedOut, match=r"no answer to `initialize` within 0\.05 s"):
        asyncio.run(scene())


@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_hangs_costs_only_itself(era: str) -> None:
    async def scene() -> str:
        async with serving({"era": era, "calls": {"hang": [["hang"]]}}) as upstream:
            with pytest.raises(TimedOut):
                await call(upstream, "hang", seconds=0.05)
            return text_of(await call(upstream, "echo"))

    assert asyncio.run(scene()) == "{}"


@pytest.mark.parametrize("era", ERAS)
def test_a_server_that_does_not_read_blocks_neither_the_loop_nor_more_than_its_own_calls(era: str) -> None:
    large = {"text": "x" * 200_000}  # more than a pipe holds

    async def scene() -> tuple[list[Answer | BaseException], str]:
        script = {"era": era, "calls": {"stop": [["text", "stopped"], ["stop_reading"]]}}
        async with serving(script, grace=0.01) as stuck, serving({"era": era}) as other:
            await call(stuck, "stop")
            many = [asyncio.create_task(call(stuck, "echo", large, seconds=0.3)) for _ in range(20)]
            answered = text_of(await call(other, "echo", {"a": 1}))
            return await asyncio.gather(*many, return_exceptions=True), answered

    outcomes, answered = asyncio.run(scene())
    assert {type(outcome) for outcome in outcomes} == {TimedOut}
    assert answered == '{"a": 1}'


@pytest.mark.parametrize("last", [["exit", 1], ["stop_reading"]])
def test_the_end_of_a_server_wakes_the_calls_that_are_being_sent(last: list[Any]) -> None:
    large = {"text": "x" * 2_000_000}

    async def scene() -> list[Answer | BaseException]:
        script = {"calls": {"stop": [["text", "stopped"], ["sleep", 0.3], ["close"], last]}}
        async with serving(script, grace=0.01) as upstream:
            await call(upstream, "stop")
            return await asyncio.gather(*(call(upstream, "echo", large) for _ in range(5)), return_exceptions=True)

    assert {type(outcome) for outcome in asyncio.run(scene())} == {Gone}


# Requests of the server -----------------------------------------------------------------------------------------------


def test_a_request_of_a_2026_server_is_refused() -> None:
    peer = RecordingPeer({"roots/list": {"roots": []}})

    async def scene() -> str:
        script = {"era": "2026", "calls": {"ask": [["ask", "roots/list", {}]], "ping": [["ask", "ping", {}]]}}
        async with serving(script, peer, {"roots": {}}) as upstream:
            return text_of(await call(upstream, "ask")) + text_of(await call(upstream, "ping"))

    assert asyncio.run(scene()).count("-32601") == 2
    assert peer.asks == []
    assert [report.rpartition(" ")[2] for report in peer.reports] == ["`roots/list`", "`ping`"]


@pytest.mark.parametrize("method", ["tools/call", "vendor/run", "tasks/get", "logging/setLevel"])
def test_a_server_may_ask_only_what_a_client_answers(method: str) -> None:
    peer = RecordingPeer({method: {}})

    async def scene() -> str:
        script = {"era": "2025", "calls": {"ask": [["ask", method, {}]]}}
        async with serving(script, peer, {"roots": {}, "sampling": {}, "tasks": {}}) as upstream:
            return text_of(await call(upstream, "ask"))

    assert "-32601" in asyncio.run(scene())
    assert peer.asks == []


def test_a_flood_of_requests_is_answered_in_part() -> None:
    peer = RecordingPeer()

    async def scene() -> tuple[int, str]:
        async def wait(_: object) -> dict[str, Any]:
            await asyncio.sleep(30)
            return {}

        peer.answers = wait
        flood = ["repeat", 500, ["line", '{"jsonrpc":"2.0","id":"q{n}","method":"roots/list"}']]
        script = {"era": "2025", "calls": {"flood": [flood, ["text", "ok"]]}}
        async with serving(script, peer, {"roots": {}}) as upstream:
            await call(upstream, "flood")
            return len(peer.asks), text_of(await call(upstream, "echo"))

    assert asyncio.run(scene()) == (MOST_ASKS, "{}")
    assert len(peer.reports) == 500 - MOST_ASKS


def test_a_repeated_id_of_a_request_is_dropped() -> None:
    peer = RecordingPeer()

    async def scene() -> None:
        async def wait(_: object) -> dict[str, Any]:
            await asyncio.sleep(30)
            return {}

        peer.answers = wait
        ask = ["line", '{"jsonrpc":"2.0","id":"q","method":"roots/list"}']
        async with serving(
            {"era": "2025", "calls": {"ask": [ask, ask, ["text", ""]]}}, peer, {"roots": {}}
        ) as upstream:
            await call(upstream, "ask")

    asyncio.run(scene())
    assert len(peer.asks) == 1
    assert peer.reports == ["a repeated id, or too many requests at once: `roots/list`"]


def test_an_error_in_the_peer_is_an_internal_error_for_the_server() -> None:
    async def wrong(_: object) -> dict[str, Any]:
        raise KeyError("secret")

    async def scene() -> str:
        script = {"era": "2025", "calls": {"ask": [["ask", "roots/list", {}]]}}
        async with serving(script, RecordingPeer(wrong), {"roots": {}}) as upstream:
            return text_of(await call(upstream, "ask"))

    assert asyncio.run(scene()) == '{"code": -32603, "message": "internal error"}'


# Input ----------------------------------------------------------------------------------------------------------------


def test_a_server_may_ask_for_input_ten_times_and_no_more() -> None:
    peer = RecordingPeer({"roots/list": {"roots": []}})

    async def scene() -> int:
        calls = {"again": [["input_again", {"k": ["roots/list", {}]}, "s"]], "seen": [["seen"]]}
        async with serving({"calls": calls}, peer, {"roots": {}}) as upstream:
            with pytest.raises(UpstreamError, match="asked for input more than 10 times"):
                await call(upstream, "again")
            return [message["method"] for message in await seen(upstream)].count("tools/call") - 1

    assert asyncio.run(scene()) == 11
    assert len(peer.asks) == 10


BAD_INPUT: list[tuple[str, Any, str]] = [
    ("list", {"inputRequests": [1]}, "malformed request for input"),
    ("not-a-request", {"inputRequests": {"k": 7}}, "malformed request for input"),
    ("no-method", {"inputRequests": {"k": {"params": {}}}}, "malformed request for input"),
    ("state", {"requestState": 7}, "malformed request for input"),
    ("many", {"inputRequests": {str(n): {"method": "roots/list"} for n in range(17)}}, "malformed request for input"),
    ("other-method", {"inputRequests": {"k": {"method": "tools/call"}}}, "Method not found: tools/call"),
]


@pytest.mark.parametrize(("result", "message"), [case[1:] for case in BAD_INPUT], ids=[case[0] for case in BAD_INPUT])
def test_a_malformed_request_for_input_ends_the_call(result: Any, message: str) -> None:
    peer = RecordingPeer({"roots/list": {"roots": []}})

    async def scene() -> None:
        calls = {"bad": [["result", {"resultType": "input_required", **result}]]}
        async with serving({"calls": calls}, peer, {"roots": {}}) as upstream:
            await call(upstream, "bad")

    with pytest.raises(UpstreamError, match=message):
        asyncio.run(scene())
    assert peer.asks == []


def test_a_2025_server_cannot_ask_by_a_result() -> None:
    async def scene() -> None:
        calls = {"bad": [["input", {"k": ["roots/list", {}]}]]}
        async with serving({"era": "2025", "calls": calls}, offers={"roots": {}}) as upstream:
            await call(upstream, "bad")

    with pytest.raises(UpstreamError, match="a result of an unknown type: input_required"):
        asyncio.run(scene())


# Notifications --------------------------------------------------------------------------------------------------------

CHANGED = "notifications/tools/list_changed"


@pytest.mark.parametrize("era", ERAS)
def test_a_storm_of_notifications_is_cut(era: str) -> None:
    peer = RecordingPeer()

    async def scene() -> str:
        capabilities = {"tools": {"listChanged": True}}
        storm = ["repeat", 20_000, ["notify", CHANGED, {}]]
        script = {"era": era, "capabilities": capabilities, "calls": {"storm": [storm, ["text", "ok"]]}}
        async with serving(script, peer) as upstream:
            upstream._rate = Rate(1_000, 200, lambda: 0.0)
            await call(upstream, "echo")
            return text_of(await call(upstream, "storm"))

    assert asyncio.run(scene()) == "ok"
    assert peer.notes == [Notification(CHANGED, {})] * len(peer.notes)
    assert 990 <= len(peer.notes) <= 1_000
    assert peer.reports == ["too many notifications: some are dropped"]


STREAM = "io.modelcontextprotocol/subscriptionId"


@pytest.mark.parametrize("meta", [{}, {STREAM: 99}, {STREAM: 0}, {STREAM: None}, 7])
def test_a_2026_server_tells_only_what_was_asked_for(meta: Any) -> None:
    peer = RecordingPeer()

    async def scene() -> None:
        note = ["line", json.dumps({"jsonrpc": "2.0", "method": CHANGED, "params": {"_meta": meta}})]
        async with serving({"era": "2026", "calls": {"tell": [note, ["text", ""]]}}, peer) as upstream:
            await call(upstream, "tell")

    asyncio.run(scene())
    assert peer.notes == []
    assert peer.reports == [f"a notification that was not asked for: `{CHANGED}`"]


def test_a_server_that_refuses_to_report_changes_is_used_without() -> None:
    peer = RecordingPeer()

    async def scene() -> str:
        capabilities = {"tools": {"listChanged": True}}
        on = {"subscriptions/listen": [["error", -32603, "no"]]}
        async with serving({"era": "2026", "capabilities": capabilities, "on": on}, peer) as upstream:
            await call(upstream, "echo")
            return text_of(await call(upstream, "echo"))

    assert asyncio.run(scene()) == "{}"
    assert peer.reports == ["changes are not reported: error -32603: `no`"]


def test_an_error_in_the_gateway_ends_the_connection_and_no_call_waits_in_vain() -> None:
    class Broken(RecordingPeer):
        def told(self, server: str, notification: Notification) -> None:
            raise KeyError("a bug")

    async def scene() -> str:
        calls = {"log": [["log", "info", "x"], ["hang"]]}
        async with serving({"calls": calls}, Broken()) as upstream:
            with pytest.raises(Gone):
                await call(upstream, "log")
            return await upstream.ended()

    assert asyncio.run(scene()) == "an error in the gateway: KeyError: 'a bug'"


ASKED = {
    "the id first": ('{"jsonrpc":"2.0","id":71,"method":"ping","params":{"a":"', '"}}', 71),
    "the id last": ('{"method":"ping","params":{"a":"', '"},"jsonrpc":"2.0","id":71}', 71),
    "a text": ('{"jsonrpc":"2.0","id":"a-7é","method":"ping","params":{"a":"', '"}}', "a-7é"),
    "spaces": (' { "jsonrpc": "2.0", "id": -71, "method": "ping", "params": {"a": "', '"}}', -71),
    "an id of another object": ('{"jsonrpc":"2.0","method":"x","params":{"a":"', '","id":71}}', None),
    "no id": ('{"jsonrpc":"2.0","method":"x","params":{"a":"', '"}}', None),
}


@pytest.mark.parametrize("most", [MOST_ANSWER_BYTES, 4 << 20], ids=["nobody waits for so much", "somebody does"])
@pytest.mark.parametrize("name", ASKED)
def test_a_request_that_is_too_long_is_answered_with_an_error(name: str, most: int) -> None:
    first, last, asked = ASKED[name]

    async def scene() -> list[dict[str, Any]]:
        long = [["bytes", first, 1], ["bytes", "x", (1 << 20) + 1], ["line", last], ["text", "ok"]]
        async with serving({"era": "2025", "calls": {"bad": long, "seen": [["seen"]]}}) as upstream:
            assert text_of(await call(upstream, "bad", most=most)) == "ok"
            return [message for message in await seen(upstream) if "method" not in message]

    answers = asyncio.run(scene())
    assert [answer["id"] for answer in answers] == ([] if asked is None else [asked])
    assert all(answer["error"]["code"] == INVALID_REQUEST for answer in answers)


def test_a_malformed_request_is_answered_with_an_error() -> None:
    async def scene() -> list[dict[str, Any]]:
        bad = [line('"id":71,"method":"ping","params":[]'), line('"id":72,"method":7'), ["text", "ok"]]
        async with serving({"era": "2025", "calls": {"bad": bad, "seen": [["seen"]]}}) as upstream:
            assert text_of(await call(upstream, "bad")) == "ok"
            return [message for message in await seen(upstream) if "method" not in message]

    assert [(answer["id"], answer["error"]["code"]) for answer in asyncio.run(scene())] == [
        (71, INVALID_REQUEST),
        (72, INVALID_REQUEST),
    ]


def test_one_request_too_many_is_answered_with_an_error() -> None:
    async def never(request: Request) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def scene() -> list[dict[str, Any]]:
        asks = line('"id":"q{n}","method":"roots/list"')
        bad = [["repeat", MOST_ASKS + 1, asks], ["text", "ok"]]
        script = {"era": "2025", "calls": {"bad": bad, "seen": [["seen"]]}}
        async with serving(script, RecordingPeer(never), {"roots": {}}) as upstream:
            assert text_of(await call(upstream, "bad")) == "ok"
            return [message for message in await seen(upstream) if "method" not in message]

    assert [answer["id"] for answer in asyncio.run(scene())] == [f"q{MOST_ASKS}"]
