"""A connection: which era it speaks, what it answers at once, and what it never passes on."""

import asyncio
from typing import Any

import pytest

from licet.gateway.limits import MOST_REPORTS
from licet.mcp.jsonrpc import Failure, Message, Notification, Request, Response
from licet.mcp.protocol import HANDSHAKE_VERSIONS, Claims

from .scripted_backend import CLIENT, META, Scene, ScriptedBackend, envelope, prompt, resource, template

INITIALIZE = Request(
    0, "initialize", {"protocolVersion": "2025-11-25", "clientInfo": CLIENT, "capabilities": {"roots": {}}}
)
DISCOVER = Request(1, "server/discover", {"_meta": envelope({"sampling": {}})})
INITIALIZED = Notification("notifications/initialized")
LISTED = Request(9, "tools/list", {"_meta": envelope()})
PLAIN_LIST = Request(9, "tools/list")


def said(scene: Scene, *messages: Message) -> list[dict[str, Any]]:
    return asyncio.run(scene.tell(*messages))


def codes(answers: list[dict[str, Any]]) -> list[Any]:
    return [answer.get("error", {}).get("code", "ok") for answer in answers]


def test_initialize_is_answered_in_2025() -> None:
    scene = Scene()
    assert said(scene, INITIALIZE) == [
        {
            "jsonrpc": "2.0",
            "id": 0,
            "result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"logging": {}, "tools": {"listChanged": True}},
                "serverInfo": {"name": "licet", "version": "0.1.0"},
                "instructions": "be careful",
            },
        }
    ]
    assert scene.client.era == "2025"
    assert scene.backend.happened == [("client", "test", ["roots"], "2025-11-25")]


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_older_versions_are_spoken(version: str) -> None:
    [answer] = said(Scene(), Request(0, "initialize", {**INITIALIZE.params, "protocolVersion": version}))
    assert answer["result"]["protocolVersion"] == version


def test_discover_is_answered_in_2026() -> None:
    scene = Scene(ScriptedBackend(resources=[resource("s", "a://b")], prompts=[prompt("s", "p")]))
    [answer] = said(scene, DISCOVER)
    assert answer["result"] == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {
            "logging": {}, "tools": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True}, "completions": {},
        },
        "instructions": "be careful",
        "ttlMs": 60_000,
        "cacheScope": "private",
        "_meta": {f"{META}serverInfo": {"name": "licet", "version": "0.1.0"}},
    }  # fmt: skip
    assert scene.client.era == "2026"
    assert scene.backend.happened == [("client", "test", ["sampling"], "2026-07-28")]


@pytest.mark.parametrize(
    ("backend", "announced"),
    [
        ({}, set()),
        ({"resources": [resource("s", "a://b")]}, {"resources", "completions"}),
        ({"templates": [template("s", "a://{b}")]}, {"resources", "completions"}),
        ({"prompts": [prompt("s", "p")]}, {"prompts", "completions"}),
    ],
)
def test_what_the_servers_offer_is_announced(backend: dict[str, Any], announced: set[str]) -> None:
    [answer] = said(Scene(ScriptedBackend(**backend)), INITIALIZE)
    assert answer["result"]["capabilities"].keys() == {"logging", "tools"} | announced


WRONG_VERSION = Request(1, "server/discover", {"_meta": envelope() | {f"{META}protocolVersion": "2027-01-01"}})


@pytest.mark.parametrize(
    ("messages", "answers", "era"),
    [
        # 2.x clients probe with `server/discover` and fall back on any error, on the same pipe.
        pytest.param([Request(1, "server/discover"), INITIALIZE], [-32602, "ok"], "2025", id="probe without envelope"),
        pytest.param([WRONG_VERSION, INITIALIZE], [-32022, "ok"], "2025", id="probe for a later version"),
        pytest.param([WRONG_VERSION, DISCOVER], [-32022, "ok"], "2026", id="probe again for a known version"),
        pytest.param([DISCOVER, INITIALIZE], ["ok", -32022], "2026", id="initialize after discover"),
        pytest.param([LISTED], ["ok"], "2026", id="a stateless client that never discovers"),
        pytest.param([LISTED, INITIALIZE], ["ok", -32022], "2026", id="initialize after an enveloped request"),
        pytest.param([INITIALIZE, LISTED], ["ok", -32600], "2025", id="enveloped request after initialize"),
        pytest.param([INITIALIZE, DISCOVER], ["ok", -32600], "2025", id="discover after initialize"),
        pytest.param([INITIALIZE, Request(1, "server/discover")], ["ok", -32601], "2025", id="bare discover in 2025"),
        pytest.param([INITIALIZE, INITIALIZE], ["ok", -32600], "2025", id="initialize twice"),
        pytest.param([INITIALIZE, PLAIN_LIST], ["ok", "ok"], "2025", id="list before initialized"),
        pytest.param([DISCOVER, PLAIN_LIST], ["ok", -32602], "2026", id="request without envelope in 2026"),
        pytest.param([PLAIN_LIST, INITIALIZE], [-32600, "ok"], "2025", id="list before initialize"),
        pytest.param([Request(5, "ping"), INITIALIZE], ["ok", "ok"], "2025", id="ping before initialize"),
        pytest.param([INITIALIZE, Request(5, "ping")], ["ok", "ok"], "2025", id="ping in 2025"),
        pytest.param([DISCOVER, Request(5, "ping", {"_meta": envelope()})], ["ok", -32601], "2026", id="ping in 2026"),
        pytest.param([DISCOVER, Request(5, "ping")], ["ok", -32601], "2026", id="bare ping in 2026"),
        pytest.param([Request(0, "initialize"), DISCOVER], [-32602, "ok"], "2026", id="malformed initialize"),
        pytest.param(
            [Request(0, "initialize", {**INITIALIZE.params, "_meta": envelope()})], ["ok"], "2025", id="both at once"
        ),
    ],
)  # fmt: skip
def test_the_first_accepted_request_decides_the_era(messages: list[Message], answers: list[Any], era: str) -> None:
    scene = Scene()
    assert codes(said(scene, *messages)) == answers
    assert scene.client.era == era


def test_initialize_in_2026_is_told_which_versions_are_spoken() -> None:
    answer = said(Scene(), DISCOVER, INITIALIZE)[-1]
    assert answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/get", "x/y"],
)
def test_methods_of_2025_do_not_exist_in_2026(method: str) -> None:
    code = -32022 if method == "initialize" else -32601
    assert codes(said(Scene(), DISCOVER, Request(2, method, {"_meta": envelope()}))) == ["ok", code]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/list", "vendor/method", "subscriptions/listen", "", "a\u202eb"])
def test_a_request_that_is_not_in_the_table_is_answered_and_reported_once(method: str) -> None:
    scene = Scene()
    answers = said(scene, INITIALIZE, Request(1, method), Request(2, method))
    assert codes(answers) == ["ok", -32601, -32601]
    assert "\u202e" not in answers[1]["error"]["message"]
    assert [(event.sender, event.kind) for event in scene.backend.events] == [("client", "request")]


@pytest.mark.parametrize("start", [INITIALIZE, DISCOVER])
@pytest.mark.parametrize("method", ["notifications/tasks/status", "vendor/note", "tools/call"])
def test_a_notification_that_is_not_in_the_table_is_dropped_and_reported(start: Request, method: str) -> None:
    scene = Scene()
    assert len(said(scene, start, Notification(method))) == 1
    [event] = scene.backend.events
    assert str(event) == f"client: notification `{method}`: not in the table of methods: dropped"


def test_parameters_and_meta_that_are_not_in_the_table_are_reported_once_and_stay_behind() -> None:
    scene = Scene()
    params = {"name": "echo", "arguments": {}, "task": {"ttl": 1}, "_meta": {"traceparent": "00", "progressToken": 1}}
    said(scene, INITIALIZE, Request(1, "tools/call", params), Request(2, "tools/call", params))
    assert [(event.kind, event.name) for event in scene.backend.events] == [
        ("parameter", "tools/call task"), ("_meta", "traceparent"),
    ]  # fmt: skip
    assert scene.backend.happened[1:] == [("call", "s.echo", {})] * 2


def test_reports_are_bounded() -> None:
    scene = Scene()
    said(scene, INITIALIZE, *(Request(1, f"vendor/{'x' * 500}{number}") for number in range(3)))
    assert [len(event.name) for event in scene.backend.events] == [200]
    said(scene, *(Request(1, f"vendor/{number}") for number in range(MOST_REPORTS * 2)))
    assert len(scene.backend.events) == MOST_REPORTS


@pytest.mark.parametrize(
    "answer", [Response(1, {}), Failure(7, -1, "no"), Failure(None, -32700, "no"), Response("x", {})]
)
def test_an_answer_to_nothing_is_dropped_and_reported(answer: Message) -> None:
    scene = Scene()
    assert len(said(scene, INITIALIZE, answer)) == 1
    assert [event.kind for event in scene.backend.events] == ["answer"]


def test_claims_are_told_again_only_when_they_change() -> None:
    scene = Scene()
    other = Request(3, "tools/list", {"_meta": envelope({"roots": {}})})
    said(scene, DISCOVER, Request(2, "tools/list", {"_meta": envelope({"sampling": {}})}), other, other)
    assert scene.backend.happened == [
        ("client", "test", ["sampling"], "2026-07-28"), ("client", "test", ["roots"], "2026-07-28"),
    ]  # fmt: skip


def test_changed_roots_are_told_to_the_backend_in_2025_alone() -> None:
    scene, later = Scene(), Scene()
    said(scene, INITIALIZE, INITIALIZED, Notification("notifications/roots/list_changed"))
    said(later, DISCOVER, Notification("notifications/roots/list_changed"))
    assert scene.backend.happened[1:] == ["roots changed"]
    assert later.backend.happened[1:] == []


class Failing(ScriptedBackend):
    def client_is(self, claims: Claims) -> None:
        raise OSError("no ledger at /srv/secret")


@pytest.mark.parametrize("start", [INITIALIZE, DISCOVER])
def test_a_backend_that_cannot_record_the_client_starts_nothing(start: Request) -> None:
    scene = Scene(Failing())
    [answer] = said(scene, start)
    assert (answer["error"]["code"], scene.client.era) == (-32603, "")
    assert "secret" not in answer["error"]["message"]
    assert "no ledger" in scene.backend.events[0].reason


def test_nothing_is_taken_or_sent_after_the_end() -> None:
    async def run() -> None:
        scene = Scene()
        await scene.start()
        await scene.call("hang")
        await scene.connection.close()
        assert scene.backend.happened[-2:] == ["stopped", "closed"]
        assert await scene.call("echo", {}, 2) == []
        scene.client.list_changed("tools")
        assert scene.sent == []

    asyncio.run(run())
