"""A server of either era, seen as its client: opening, asking, being asked, progress, cancellation, changes."""

import asyncio
import json
from typing import Any

import pytest

from licet.mcp.exchange import TimedOut, UpstreamError
from licet.mcp.jsonrpc import Notification, Request
from licet.mcp.link import Gone
from licet.mcp.upstream import Opened

from .servers import RecordingPeer, call, seen, serving, text_of

META = "io.modelcontextprotocol/"
ABOUT = {"name": "scripted", "version": "1"}
ERAS = ("2025", "2026")
SEEN: dict[str, Any] = {"seen": [["seen"]]}
OFFERS = {"sampling": {}, "elicitation": {"form": {}}, "roots": {"listChanged": True}}


def methods(messages: list[dict[str, Any]]) -> list[str]:
    return [message["method"] for message in messages if "method" in message]


# Opening --------------------------------------------------------------------------------------------------------------

OPENINGS: list[tuple[str, dict[str, Any], str, str, str, list[str]]] = [
    ("both", {}, "", "2026", "2026-07-28", ["server/discover"]),
    ("both-restarted", {}, "2025", "2025", "2025-11-25", ["initialize", "notifications/initialized"]),
    ("modern", {"era": "2026"}, "", "2026", "2026-07-28", ["server/discover"]),
    ("modern-restarted", {"era": "2026"}, "2026", "2026", "2026-07-28", ["server/discover"]),
    ("legacy", {"era": "2025"}, "", "2025", "2025-11-25",
     ["server/discover", "initialize", "notifications/initialized"]),
    ("legacy-restarted", {"era": "2025"}, "2025", "2025", "2025-11-25", ["initialize", "notifications/initialized"]),
    ("old", {"era": "2025", "version": "2024-11-05"}, "", "2025", "2024-11-05",
     ["server/discover", "initialize", "notifications/initialized"]),
    ("python-1.x", {"era": "2025", "on": {"server/discover": [["error", -32602, "Invalid request parameters"]]}}, "",
     "2025", "2025-11-25", ["server/discover", "initialize", "notifications/initialized"]),
    ("lists-legacy-versions",
     {"era": "2025", "on": {"server/discover": [["result", {"supportedVersions": ["2025-11-25"]}]]}}, "",
     "2025", "2025-11-25", ["server/discover", "initialize", "notifications/initialized"]),
    ("odd-discovery", {"era": "2025", "on": {"server/discover": [["result", {"supportedVersions": 7}]]}}, "",
     "2025", "2025-11-25", ["server/discover", "initialize", "notifications/initialized"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "prefer", "era", "version", "messages"),
    [case[1:] for case in OPENINGS],
    ids=[case[0] for case in OPENINGS],
)
def test_a_server_is_opened_in_its_era(
    script: dict[str, Any], prefer: str, era: str, version: str, messages: list[str]
) -> None:
    async def scene() -> tuple[Opened, list[str]]:
        async with serving({**script, "calls": SEEN}, prefer=prefer) as upstream:
            return upstream.opened, methods(await seen(upstream))

    opened, came = asyncio.run(scene())
    assert (opened.era, opened.version, opened.server, opened.instructions) == (era, version, ABOUT, "be kind")
    assert came == [*messages, "tools/call"]


def test_a_server_that_ignores_the_probe_is_opened_in_2025() -> None:
    async def scene() -> str:
        script = {"era": "2025", "on": {"server/discover": [["hang"]]}}
        async with serving(script, probe_seconds=0.05) as upstream:
            return upstream.opened.era

    assert asyncio.run(scene()) == "2025"


def test_a_slow_server_that_took_the_probe_for_its_first_request_is_opened_in_2026() -> None:
    async def scene() -> tuple[str, list[str]]:
        # Both requests wait in the pipe before the server reads the first of them.
        script = {"start": [["sleep", 1]], "calls": SEEN}
        async with serving(script, probe_seconds=0.01) as upstream:
            return upstream.opened.era, methods(await seen(upstream))

    assert asyncio.run(scene()) == ("2026", ["server/discover", "initialize", "server/discover", "tools/call"])


NOT_OPENED: list[tuple[str, dict[str, Any], str, str]] = [
    ("unknown-version", {"era": "2025", "version": "2031-01-01"}, "", "unknown version: 2031-01-01"),
    ("no-capabilities", {"era": "2025", "on": {"initialize": [["result", {"protocolVersion": "2025-11-25"}]]}}, "",
     "does not say what it can do"),
    ("newer-only", {"on": {"server/discover": [["error", -32022, "no", {"supported": ["2031-01-01"]}]]}}, "", "no"),
    ("changed-to-legacy", {"era": "2025"}, "2026", "Method not found"),
    ("changed-to-modern", {"era": "2026"}, "2025", "Unsupported protocol version"),
    ("refuses", {"era": "2025", "on": {"initialize": [["error", -32603, "no licence"]]}}, "", "no licence"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "prefer", "message"), [case[1:] for case in NOT_OPENED], ids=[case[0] for case in NOT_OPENED]
)
def test_a_server_that_cannot_be_opened_is_an_error(script: dict[str, Any], prefer: str, message: str) -> None:
    async def scene() -> None:
        async with serving(script, prefer=prefer):
            pass

    with pytest.raises(UpstreamError, match=message):
        asyncio.run(scene())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("offers", [{}, OFFERS])
def test_the_capabilities_are_announced_as_given_and_no_others(era: str, offers: dict[str, Any]) -> None:
    async def scene() -> list[dict[str, Any]]:
        async with serving({"era": era, "calls": SEEN}, offers=offers, prefer=era) as upstream:
            return await seen(upstream)

    messages = asyncio.run(scene())
    if era == "2025":
        assert messages[0]["params"]["capabilities"] == offers
        assert [message["params"] for message in messages[2:]] == [{"name": "seen", "arguments": {}}]
    else:
        assert [message["params"]["_meta"][f"{META}clientCapabilities"] for message in messages] == [offers, offers]


# Asking the server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
def test_a_result_keeps_the_bytes_that_came(era: str) -> None:
    spelled = '{"resultType":"complete", "content": [ ],"n":1.50}'

    async def scene() -> bytes:
        script = {"era": era, "calls": {"spelled": [["line", '{"jsonrpc":"2.0","id":{id},"result":' + spelled + "}"]]}}
        async with serving(script) as upstream:
            return (await call(upstream, "spelled")).text

    assert asyncio.run(scene()) == spelled.encode()


@pytest.mark.parametrize("era", ERAS)
def test_many_calls_at_once_get_their_own_answers(era: str) -> None:
    async def scene() -> list[str]:
        async with serving({"era": era}) as upstream:
            answers = await asyncio.gather(*(call(upstream, "echo", {"n": number}) for number in range(50)))
            return [text_of(answer) for answer in answers]

    assert asyncio.run(scene()) == [json.dumps({"n": number}) for number in range(50)]


@pytest.mark.parametrize("era", ERAS)
def test_the_meta_of_a_caller_does_not_reach_the_server(era: str) -> None:
    async def scene() -> dict[str, Any]:
        async with serving({"era": era, "calls": SEEN}) as upstream:
            meta = {"progressToken": "theirs", "traceparent": "x", f"{META}clientCapabilities": {"sampling": {}}}
            params = {"name": "seen", "arguments": {}, "_meta": meta}
            answer = await upstream.request("tools/call", params, seconds=30, level="debug" if era == "2026" else "")
            found: dict[str, Any] = json.loads(text_of(answer))[-1]["params"].get("_meta", {})
            return found

    meta = asyncio.run(scene())
    if era == "2025":
        assert meta == {}
    else:
        assert meta.pop(f"{META}clientInfo")["name"] == "licet"
        capabilities = {f"{META}clientCapabilities": {}, f"{META}protocolVersion": "2026-07-28"}
        assert meta == {**capabilities, f"{META}logLevel": "debug"}


@pytest.mark.parametrize("era", ERAS)
def test_an_error_of_the_server_is_bounded(era: str) -> None:
    long = {"a": "x" * 100_000}

    async def scene() -> tuple[UpstreamError, UpstreamError]:
        calls = {"short": [["error", -32000, "bad", {"a": 1}]], "long": [["error", 10**12, "m" * 5_000, long]]}
        async with serving({"era": era, "calls": calls}) as upstream:
            errors = await asyncio.gather(call(upstream, "short"), call(upstream, "long"), return_exceptions=True)
            assert isinstance(errors[0], UpstreamError)
            assert isinstance(errors[1], UpstreamError)
            return errors[0], errors[1]

    short, cut = asyncio.run(scene())
    assert (short.code, short.message, short.data) == (-32000, "bad", {"a": 1})
    assert (cut.code, len(cut.message), cut.data is short.data) == (-32603, 2_000, False)


@pytest.mark.parametrize("era", ERAS)
def test_progress_reaches_the_caller_of_its_own_request(era: str) -> None:
    async def scene() -> tuple[list[Any], list[Any]]:
        steps = [["progress", 1, 2], ["progress", 2, 2], ["text", "done"], ["progress", 3, 2]]
        async with serving({"era": era, "calls": {"slow": steps}}) as upstream:
            first: list[Any] = []
            second: list[Any] = []
            await asyncio.gather(
                call(upstream, "slow", progress=first.append), call(upstream, "slow", progress=second.append)
            )
            await call(upstream, "echo")
            return first, second

    expected = [{"progress": 1, "total": 2}, {"progress": 2, "total": 2}]
    assert asyncio.run(scene()) == (expected, expected)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_a_cancelled_call_tells_the_server_and_its_late_answer_is_dropped(era: str, how: str) -> None:
    peer = RecordingPeer()

    async def scene() -> tuple[list[dict[str, Any]], str]:
        calls = {"slow": [["until_cancelled"], ["text", "late"]], **SEEN}
        async with serving({"era": era, "calls": calls}, peer) as upstream:
            started = asyncio.Event()

            async def slow(seconds: float) -> None:
                started.set()
                await call(upstream, "slow", seconds=seconds)

            if how == "cancelled":
                task = asyncio.create_task(slow(30))
                await started.wait()
                while not upstream.waiting:
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                with pytest.raises(TimedOut):
                    await slow(0.05)
            echoed = text_of(await call(upstream, "echo", {"a": 1}))
            return await seen(upstream), echoed

    messages, echoed = asyncio.run(scene())
    asked = next(message for message in messages if message.get("params", {}).get("name") == "slow")
    told = [message["params"] for message in messages if message["method"] == "notifications/cancelled"]
    assert told == [{"requestId": asked["id"]}]
    assert peer.reports == [f"a late or repeated answer: id {asked['id']}"]
    assert echoed == '{"a": 1}'


def test_a_log_level_is_set_once_for_a_2025_server_and_sent_with_each_request_to_a_2026_server() -> None:
    async def scene(era: str) -> list[tuple[str, Any]]:
        async with serving({"era": era, "calls": SEEN}, prefer=era) as upstream:
            for level in ("info", "info", "error", "debug"):
                await call(upstream, "echo", level=level)
            sent = (await seen(upstream))[2 if era == "2025" else 1 : -1]
            return [
                (m["method"], m["params"].get("level") or m["params"].get("_meta", {}).get(f"{META}logLevel"))
                for m in sent
            ]

    ask = "tools/call"
    assert asyncio.run(scene("2026")) == [(ask, "info"), (ask, "info"), (ask, "error"), (ask, "debug")]
    raised = [("logging/setLevel", "info"), (ask, None), (ask, None), (ask, None)]
    assert asyncio.run(scene("2025")) == [*raised, ("logging/setLevel", "debug"), (ask, None)]


def test_a_level_that_does_not_exist_is_an_error() -> None:
    async def scene() -> None:
        async with serving({}) as upstream:
            await upstream.set_level("loud", seconds=1)

    with pytest.raises(ValueError, match="expected a log level"):
        asyncio.run(scene())


# Being asked ----------------------------------------------------------------------------------------------------------

SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "m"}
ASKS: dict[str, list[Any]] = {
    "2025": [["ask", "sampling/createMessage", {"maxTokens": 5}]],
    "2026": [["input", {"k": ["sampling/createMessage", {"maxTokens": 5}]}, "state-1"]],
}


@pytest.mark.parametrize("era", ERAS)
def test_a_server_asks_in_either_era_and_the_peer_sees_the_same(era: str) -> None:
    peer = RecordingPeer({"sampling/createMessage": SAMPLED})

    async def scene() -> Any:
        async with serving({"era": era, "calls": {"think": ASKS[era]}}, peer, OFFERS) as upstream:
            return json.loads(text_of(await call(upstream, "think", caller="call-1")))

    answer = asyncio.run(scene())
    [(request, during)] = peer.asks
    assert (request.method, request.params, during) == ("sampling/createMessage", {"maxTokens": 5}, "call-1")
    if era == "2025":
        assert answer == SAMPLED
    else:
        assert answer == {"inputResponses": {"k": SAMPLED}, "requestState": "state-1"}


@pytest.mark.parametrize("era", ERAS)
def test_a_server_asks_for_what_no_client_can_answer_and_nobody_is_asked(era: str) -> None:
    peer = RecordingPeer({"vendor/ask": SAMPLED})
    ask = [["ask", "vendor/ask", {}]] if era == "2025" else [["input", {"k": ["vendor/ask", {}]}]]

    async def scene() -> Any:
        async with serving({"era": era, "calls": {"think": ask}}, peer, OFFERS) as upstream:
            try:
                return json.loads(text_of(await call(upstream, "think")))
            except UpstreamError as wrong:
                return {"code": wrong.code, "message": wrong.message}

    assert asyncio.run(scene()) == {"code": -32601, "message": "Method not found: vendor/ask"}
    assert peer.asks == []
    assert peer.reports == ["a request that no client can answer: `vendor/ask`"]


@pytest.mark.parametrize("era", ERAS)
def test_a_refusal_of_the_peer_reaches_the_server_or_ends_the_call(era: str) -> None:
    async def scene() -> Any:
        async with serving({"era": era, "calls": {"think": ASKS[era]}}, RecordingPeer(), OFFERS) as upstream:
            try:
                return json.loads(text_of(await call(upstream, "think")))
            except UpstreamError as wrong:
                return {"code": wrong.code, "message": wrong.message}

    assert asyncio.run(scene()) == {"code": -32000, "message": "not now"}


def test_a_refused_input_cancels_the_other_questions() -> None:
    cancelled = []

    async def answer(request: Request) -> dict[str, Any]:
        if request.method == "roots/list":
            raise UpstreamError(-1, "raised below")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(request.method)
            raise
        return {}

    async def scene() -> None:
        wanted = {"a": ["sampling/createMessage", {}], "b": ["roots/list", {}]}
        async with serving({"calls": {"think": [["input", wanted]]}}, RecordingPeer(answer), OFFERS) as upstream:
            with pytest.raises(UpstreamError, match="raised below"):
                await call(upstream, "think")
            await asyncio.sleep(0)

    asyncio.run(scene())
    assert cancelled == ["sampling/createMessage"]


def test_input_without_questions_repeats_the_call_with_the_state_of_the_server() -> None:
    async def scene() -> Any:
        async with serving({"calls": {"wait": [["input", {}, "s"]]}}) as upstream:
            return json.loads(text_of(await call(upstream, "wait")))

    assert asyncio.run(scene()) == {"inputResponses": None, "requestState": "s"}


def test_a_ping_of_a_2025_server_is_answered_here() -> None:
    peer = RecordingPeer()

    async def scene() -> Any:
        async with serving({"era": "2025", "calls": {"ping": [["ask", "ping", {}]]}}, peer) as upstream:
            return json.loads(text_of(await call(upstream, "ping")))

    assert asyncio.run(scene()) == {}
    assert peer.asks == []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("is_asked", [True, False])
def test_the_time_of_a_call_stands_while_the_peer_is_asked(
    era: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> str:
        loop, late = asyncio.get_running_loop(), [0.0]
        clock = loop.time
        monkeypatch.setattr(loop, "time", lambda: clock() + late[0])

        async def answer(request: Request) -> dict[str, Any]:
            late[0] += 1_000
            await asyncio.sleep(0.01)
            return SAMPLED

        calls = {"think": ASKS[era], "hang": [["log", "info", ""], ["hang"]]}
        async with serving({"era": era, "calls": calls}, RecordingPeer(answer), OFFERS) as upstream:
            if is_asked:
                return text_of(await call(upstream, "think", caller="c", seconds=300))
            task = asyncio.create_task(call(upstream, "hang", caller="c", seconds=300))
            await call(upstream, "echo", seconds=300)
            late[0] += 1_000
            with pytest.raises(TimedOut):
                await task
            return "four"

    assert "four" in asyncio.run(scene())


def test_with_several_calls_at_once_a_2025_server_does_not_say_which_one_asks() -> None:
    peer = RecordingPeer({"sampling/createMessage": SAMPLED})

    async def scene() -> None:
        calls = {"hang": [["hang"]], "think": ASKS["2025"]}
        async with serving({"era": "2025", "calls": calls}, peer, OFFERS) as upstream:
            other = asyncio.create_task(call(upstream, "hang", caller="call-1"))
            while not upstream.waiting:
                await asyncio.sleep(0)
            await call(upstream, "think", caller="call-2")
            other.cancel()

    asyncio.run(scene())
    assert [during for _, during in peer.asks] == [None]


def test_a_server_may_take_back_its_question() -> None:
    reached = []

    async def answer(request: Request) -> dict[str, Any]:
        reached.append(request.id)
        try:
            await asyncio.sleep(30)
        finally:
            reached.append("cancelled")
        return {}

    async def scene() -> list[dict[str, Any]]:
        ask = '{"jsonrpc":"2.0","id":"q","method":"roots/list"}'
        back = ["notify", "notifications/cancelled", {"requestId": "q"}]
        script = {"era": "2025", "calls": {"ask": [["line", ask], ["text", ""]], "back": [back, ["text", ""]], **SEEN}}
        async with serving(script, RecordingPeer(answer), OFFERS) as upstream:
            await call(upstream, "ask")
            while not reached:
                await asyncio.sleep(0)
            await call(upstream, "back")
            return await seen(upstream)

    messages = asyncio.run(scene())
    assert reached == ["q", "cancelled"]
    assert [message for message in messages if message.get("id") == "q"] == []


# Changes --------------------------------------------------------------------------------------------------------------

CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"


@pytest.mark.parametrize("era", ERAS)
def test_changes_and_logs_are_told(era: str) -> None:
    peer = RecordingPeer()

    async def scene() -> None:
        actions = [["notify", CHANGED, {}], ["log", "info", "x"], ["notify", UPDATED, {"uri": "a:b"}], ["text", ""]]
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
        script = {"era": era, "capabilities": capabilities, "calls": {"change": actions}}
        async with serving(script, peer) as upstream:
            await upstream.subscribe("a:b", seconds=30)
            await call(upstream, "echo")  # the new stream of a 2026 server is open then
            await call(upstream, "change")

    asyncio.run(scene())
    assert peer.notes == [
        Notification(CHANGED, {}),
        Notification("notifications/message", {"level": "info", "data": "x"}),
        Notification(UPDATED, {"uri": "a:b"}),
    ]
    assert peer.reports == []


def test_a_2026_server_is_asked_again_when_the_watched_resources_change() -> None:
    async def scene() -> list[Any]:
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        async with serving({"era": "2026", "capabilities": capabilities, "calls": SEEN}) as upstream:
            await call(upstream, "echo")
            for step in (upstream.subscribe, upstream.unsubscribe):
                await step("a:b", seconds=30)
                await call(upstream, "echo")
            return [
                message["params"].get("notifications", "cancelled")
                for message in await seen(upstream)
                if message["method"] in ("subscriptions/listen", "notifications/cancelled")
            ]

    lists = {"toolsListChanged": True}
    with_resource = {**lists, "resourceSubscriptions": ["a:b"]}
    assert [step for step in asyncio.run(scene()) if step != "cancelled"] == [lists, with_resource, lists]
    assert asyncio.run(scene()).count("cancelled") == 2


def test_a_2025_server_is_told_of_other_roots_only_if_that_was_announced() -> None:
    async def scene(offers: dict[str, Any]) -> int:
        async with serving({"era": "2025", "calls": SEEN}, offers=offers) as upstream:
            await upstream.roots_changed()
            return methods(await seen(upstream)).count("notifications/roots/list_changed")

    assert asyncio.run(scene(OFFERS)) == 1
    assert asyncio.run(scene({"roots": {}})) == 0
    assert asyncio.run(scene({})) == 0


def test_after_close_nothing_can_be_asked() -> None:
    async def scene() -> None:
        async with serving({}) as upstream:
            await upstream.close()
            assert await upstream.ended() == "it was closed"
            await call(upstream, "echo")

    with pytest.raises(Gone, match="it was closed"):
        asyncio.run(scene())
