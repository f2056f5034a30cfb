"""Remote servers of both eras over streamable HTTP: requests, streams, sessions, cancellation, bounds."""

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.http_servers import (
    LEGACY,
    META,
    MODERN,
    Asked,
    Handler,
    HttpServer,
    Out,
    link_to,
    listening,
    notified,
    opened,
    text_result,
)
from gateway.servers import SECONDS, RecordingPeer, bounded, call, run, text_of
from licet.mcp import http_link, http_messages
from licet.mcp.exchange import TimedOut, UpstreamError
from licet.mcp.limits import MOST_CALLS, MOST_RESUMED
from licet.mcp.link import Gone
from licet.mcp.upstream import Upstream

ERAS = pytest.mark.parametrize("era", ["2025", "2026"])


@ERAS
@pytest.mark.parametrize("streams", [False, True], ids=["JSON", "events"])
@pytest.mark.parametrize("knows_era", [False, True])
@bounded
async def test_a_server_is_opened_listed_and_called(era: str, streams: bool, knows_era: bool) -> None:
    server = HttpServer(era, streams=streams)
    async with opened(server, prefer=era if knows_era else "") as upstream:
        assert upstream.opened.era == era
        listed = await upstream.request("tools/list", {}, seconds=SECONDS)
        assert [one["name"] for one in listed.data["tools"]] == ["echo"]
        assert text_of(await call(upstream, "echo", {"a": "ü"})) == '{"a": "\\u00fc"}'
    sent = server.posted("tools/call")[0].headers
    assert sent["accept"] == "application/json, text/event-stream"
    assert sent["mcp-protocol-version"] == (LEGACY if era == "2025" else MODERN)
    assert sent.get("mcp-session-id") == ("s-1" if era == "2025" else None)
    assert (sent.get("mcp-method"), sent.get("mcp-name")) == ((None, None) if era == "2025" else ("tools/call", "echo"))
    assert [one.headers["mcp-session-id"] for one in server.seen if one.verb == "DELETE"] == (
        ["s-1"] if era == "2025" else []
    )


@ERAS
@pytest.mark.parametrize("streams", [False, True], ids=["JSON", "events"])
@bounded
async def test_calls_one_after_another_use_one_connection(era: str, streams: bool) -> None:
    server = HttpServer(era, streams=streams, on={"GET": _no_get})
    async with opened(server, prefer=era) as upstream:
        for number in range(5):
            await call(upstream, "echo", {"n": number})
            await asyncio.sleep(0.01)  # for the end of the stream, which comes after the answer
    assert server.connections <= 2  # the GET stream may have been asked for on another one


async def _no_get(asked: Asked, out: Out) -> None:
    await out.raw(405)


@bounded
async def test_the_initialize_request_has_no_version_and_no_session() -> None:
    server = HttpServer("2025")
    async with opened(server):
        pass
    (first,) = server.posted("initialize")
    assert not {"mcp-protocol-version", "mcp-session-id", "mcp-method"} & first.headers.keys()


@ERAS
@bounded
async def test_progress_and_logs_come_before_the_answer(era: str) -> None:
    async def busy(asked: Asked, out: Out) -> None:
        token = asked.params["_meta"]["progressToken"]
        for step in (1, 2):
            await out.event(notified("notifications/progress", progressToken=token, progress=step))
        await out.event(notified("notifications/message", level="info", data="working"))
        await out.event(out.answer(text_result("done")))
        await out.end()

    peer, steps = RecordingPeer(), []
    async with opened(HttpServer(era, calls={"busy": busy}), peer) as upstream:
        answer = await call(upstream, "busy", progress=lambda step: steps.append(step["progress"]))
        assert (text_of(answer), steps) == ("done", [1, 2])
        assert [note.params["data"] for note in peer.notes] == ["working"]


def test_a_server_of_2025_asks_on_the_stream_of_a_call_and_is_answered_by_a_post() -> None:
    answers: asyncio.Queue[dict[str, Any]]

    async def asks(asked: Asked, out: Out) -> None:
        await out.event({"jsonrpc": "2.0", "id": "q-1", "method": "elicitation/create", "params": {}})
        came = await answers.get()
        await out.event(out.answer(text_result(json.dumps(came["result"]))))
        await out.end()

    class Asking(HttpServer):
        async def answer(self, asked: Asked, out: Out) -> None:
            if asked.message.get("id") == "q-1":
                answers.put_nowait(asked.message)
            await super().answer(asked, out)

    async def work() -> None:
        nonlocal answers
        answers = asyncio.Queue()
        peer = RecordingPeer({"elicitation/create": {"action": "accept"}})
        async with opened(Asking("2025", calls={"asks": asks}), peer, {"elicitation": {}}) as upstream:
            assert text_of(await call(upstream, "asks")) == '{"action": "accept"}'

    run(work())


@bounded
async def test_a_server_of_2026_asks_by_a_result_and_the_call_is_repeated() -> None:
    async def asks(asked: Asked, out: Out) -> None:
        if "inputResponses" in asked.params:
            await out.result(text_result(json.dumps(asked.params["inputResponses"])))
        else:
            wanted = {"name": {"method": "elicitation/create", "params": {}}}
            await out.result({"resultType": "input_required", "inputRequests": wanted})

    peer = RecordingPeer({"elicitation/create": {"action": "accept"}})
    async with opened(HttpServer("2026", calls={"asks": asks}), peer, {"elicitation": {}}) as upstream:
        assert text_of(await call(upstream, "asks")) == '{"name": {"action": "accept"}}'


@bounded
async def test_messages_of_a_2025_server_come_over_the_get_stream() -> None:
    async def changes(asked: Asked, out: Out) -> None:
        await out.stream()
        await out.piece(b": a comment\n\n")
        await out.event(notified("notifications/tools/list_changed"))
        await out.until_closed()

    peer = RecordingPeer()
    server = HttpServer("2025", on={"GET": changes})
    async with opened(server, peer) as upstream:
        await upstream.changed.wait()
        await peer.told_one.wait()
        (get,) = [one for one in server.seen if one.verb == "GET"]
        assert get.headers["mcp-session-id"] == "s-1"
        assert get.headers["mcp-protocol-version"] == LEGACY


@bounded
async def test_a_server_without_sessions_is_not_asked_for_a_get_stream() -> None:
    server = HttpServer("2025", session="")
    async with opened(server) as upstream:
        await call(upstream, "echo")
    assert {one.verb for one in server.seen} == {"POST"}


@bounded
async def test_a_get_stream_that_a_server_does_not_have_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "STREAM_PAUSES", (0.01,))
    answers = [503, 405]

    async def get(asked: Asked, out: Out) -> None:
        await out.raw(answers.pop(0))

    server = HttpServer("2025", on={"GET": get})
    async with opened(server) as upstream:
        while answers:
            await call(upstream, "echo")
        await asyncio.sleep(0.1)  # for a third one, which does not come
    assert [one.verb for one in server.seen].count("GET") == 2


@bounded
async def test_a_broken_get_stream_is_continued_after_its_last_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "STREAM_PAUSES", (0.01,))
    came: list[str | None] = []

    async def breaks(asked: Asked, out: Out) -> None:
        came.append(asked.headers.get("last-event-id"))
        if len(came) < 3:
            await out.event(notified("notifications/message", level="info", data=len(came)), f"e-{len(came)}")
            return  # the connection breaks
        await out.event(notified("notifications/tools/list_changed"))
        await out.until_closed()

    peer = RecordingPeer()
    async with opened(HttpServer("2025", on={"GET": breaks}), peer) as upstream:
        await upstream.changed.wait()
        assert came == [None, "e-1", "e-2"]


@bounded
async def test_changes_of_a_2026_server_come_over_the_listen_stream_which_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_link, "STREAM_PAUSES", (0.01,))
    times = 0

    async def listen(asked: Asked, out: Out) -> None:
        nonlocal times
        times += 1
        meta = {f"{META}subscriptionId": asked.message["id"]}
        await out.event(notified("notifications/subscriptions/acknowledged", notifications={}, _meta=meta))
        if times == 1:
            return  # the connection breaks
        if times == 2:
            await out.event(out.answer({}))  # the server ends the stream
            await out.end()
            return
        await out.event(notified("notifications/tools/list_changed", _meta=meta))
        await out.until_closed()

    server = HttpServer("2026", capabilities={"tools": {"listChanged": True}}, on={"subscriptions/listen": listen})
    async with opened(server) as upstream:
        await upstream.changed.wait()
        assert times == 3
        assert text_of(await call(upstream, "echo")) == "{}"


@bounded
async def test_changes_that_a_broken_stream_may_have_missed_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "STREAM_PAUSES", (0.01,))
    monkeypatch.setattr(http_link, "LASTING_SECONDS", -1.0)

    async def breaks(asked: Asked, out: Out) -> None:
        await out.stream()

    for era, verb in (("2025", "GET"), ("2026", "subscriptions/listen")):
        server = HttpServer(era, capabilities={"tools": {"listChanged": True}}, on={verb: breaks})
        async with opened(server) as upstream:
            await upstream.changed.wait()


@bounded
async def test_a_listen_stream_that_the_server_refuses_is_reported_and_not_repeated() -> None:
    peer = RecordingPeer()
    server = HttpServer("2026", capabilities={"tools": {"listChanged": True}})
    async with opened(server, peer) as upstream:
        while not peer.reports:
            await call(upstream, "echo")
        assert peer.reports == ["changes are not reported: error -32601: `Method not found`"]
        assert len(server.posted("subscriptions/listen")) == 1


@ERAS
@bounded
async def test_a_cancelled_call_is_cancelled_at_the_server(era: str) -> None:
    """Until 2025-11-25 by a notification, since 2026-07-28 by closing the stream alone."""
    began, closed = asyncio.Event(), asyncio.Event()

    async def slow(asked: Asked, out: Out) -> None:
        await out.stream()
        began.set()
        await out.until_closed()
        closed.set()

    server = HttpServer(era, calls={"slow": slow})
    async with opened(server) as upstream:
        task = asyncio.create_task(call(upstream, "slow"))
        await began.wait()
        task.cancel()
        await closed.wait()
        while era == "2025" and not server.posted("notifications/cancelled"):
            await asyncio.sleep(0)
        number = server.posted("tools/call")[0].message["id"]
        assert text_of(await call(upstream, "echo")) == "{}"
    cancelled = [one.params for one in server.posted("notifications/cancelled")]
    assert cancelled == ([{"requestId": number}] if era == "2025" else [])


@ERAS
@bounded
async def test_a_call_that_takes_too_long_ends_alone(era: str) -> None:
    async def slow(asked: Asked, out: Out) -> None:
        await out.until_closed()

    async with opened(HttpServer(era, calls={"slow": slow})) as upstream:
        with pytest.raises(TimedOut):
            await call(upstream, "slow", seconds=0.05)
        assert text_of(await call(upstream, "echo")) == "{}"


@bounded
async def test_an_answer_that_a_2025_server_breaks_off_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "STREAM_PAUSES", (0.01,))
    came: list[str | None] = []

    async def later(asked: Asked, out: Out) -> None:
        await out.stream()
        await out.piece(b"retry: 10\nid: e-1\ndata:\n\n")
        await out.end()

    async def resumed(asked: Asked, out: Out) -> None:
        came.append(asked.headers.get("last-event-id"))
        if came[-1] is None:
            await out.raw(405)
        elif came[-1] == "e-1":
            await out.piece(b"id: e-2\ndata:\n\n")  # and the connection breaks again
        else:
            asked_for = server.posted("tools/call")[0].message["id"]
            await out.event({"jsonrpc": "2.0", "id": asked_for, "result": text_result("late")})
            await out.end()

    server = HttpServer("2025", calls={"later": later}, on={"GET": resumed})
    async with opened(server) as upstream:
        assert text_of(await call(upstream, "later")) == "late"
        assert [one for one in came if one] == ["e-1", "e-2"]
        assert len(server.posted("tools/call")) == 1


@bounded
async def test_an_answer_that_is_never_continued_fails_after_a_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "STREAM_PAUSES", (0.01,))

    async def never(asked: Asked, out: Out) -> None:
        await out.piece(b"retry: 1\nid: e-1\ndata:\n\n")
        await out.end()

    async def get(asked: Asked, out: Out) -> None:
        await (never(asked, out) if "last-event-id" in asked.headers else out.raw(405))

    server = HttpServer("2025", calls={"never": never}, on={"GET": get})
    async with opened(server) as upstream:
        with pytest.raises(Gone, match="ended its answer too early"):
            await call(upstream, "never")
        assert len([one for one in server.seen if "last-event-id" in one.headers]) == MOST_RESUMED


@bounded
async def test_the_end_of_a_session_ends_the_link_and_all_its_calls() -> None:
    async def lost(asked: Asked, out: Out) -> None:
        await out.raw(404)

    async def slow(asked: Asked, out: Out) -> None:
        await out.until_closed()

    reports: list[str] = []
    async with opened(HttpServer("2025", calls={"lost": lost, "slow": slow}), reports=reports) as upstream:
        waiting = asyncio.create_task(call(upstream, "slow"))
        with pytest.raises(Gone, match="session has ended"):
            await call(upstream, "lost")
        with pytest.raises(Gone):
            await waiting
        await upstream.ended()
        with pytest.raises(Gone):
            await call(upstream, "echo")
        assert reports == ["its session has ended; a new one is opened"]


# Arguments in headers, since 2026-07-28 -------------------------------------------------------------------------------


def _schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


_REGION = {"type": "string", "x-mcp-header": "Region"}
PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "plain": (_schema(region=_REGION), {"region": "eu-1", "other": "x"}, {"region": "eu-1"}),
    "absent": (_schema(region=_REGION), {}, {}),
    "null": (_schema(region=_REGION), {"region": None}, {}),
    "number": (_schema(n={"type": "integer", "x-mcp-header": "N"}), {"n": 42}, {"n": "42"}),
    "flag": (_schema(f={"type": "boolean", "x-mcp-header": "F"}), {"f": True}, {"f": "true"}),
    "nested": (_schema(a=_schema(b=_REGION)), {"a": {"b": "eu"}}, {"region": "eu"}),
    "not ASCII": (_schema(region=_REGION), {"region": "größe"}, {"region": "=?base64?Z3LDtsOfZQ==?="}),
    "a line break": (_schema(region=_REGION), {"region": "a\r\nX: 1"}, {"region": "=?base64?YQ0KWDogMQ==?="}),
    "a lie about base64": (
        _schema(region=_REGION),
        {"region": "=?base64?eA==?="},
        {"region": "=?base64?PT9iYXNlNjQ/ZUE9PT89?="},
    ),
}


@pytest.mark.parametrize("case", PARAMETERS)
@bounded
async def test_arguments_are_repeated_in_headers(case: str) -> None:
    schema, arguments, expected = PARAMETERS[case]
    server = HttpServer("2026")
    async with opened(server, schemas={"echo": schema}) as upstream:
        await call(upstream, "echo", arguments)
    headers = server.posted("tools/call")[0].headers
    assert {k.removeprefix("mcp-param-"): v for k, v in headers.items() if k.startswith("mcp-param-")} == expected


BAD_PARAMETERS = {
    "a line break in the name": (_schema(a={"type": "string", "x-mcp-header": "A\r\nHost"}), "invalid .x-mcp-header."),
    "no text": (_schema(a={"type": "string", "x-mcp-header": 1}), "invalid .x-mcp-header."),
    "twice": (_schema(a=_REGION, b={"type": "string", "x-mcp-header": "region"}), "invalid .x-mcp-header."),
    "a number with a fraction": (_schema(a={"type": "number", "x-mcp-header": "A"}), "invalid .x-mcp-header."),
    "long": (_schema(a=_REGION), "more than 32768 bytes"),
}


@pytest.mark.parametrize("case", BAD_PARAMETERS)
@bounded
async def test_a_call_whose_headers_cannot_be_written_is_not_sent(case: str) -> None:
    schema, expected = BAD_PARAMETERS[case]
    server = HttpServer("2026")
    async with opened(server, schemas={"echo": schema}) as upstream:
        with pytest.raises(UpstreamError, match=expected):
            await call(upstream, "echo", {"a": "x" * 40_000, "b": "y"})
    assert not server.posted("tools/call")


# Bad servers ----------------------------------------------------------------------------------------------------------


def _raw(status: int, body: bytes = b"", **headers: str) -> Handler:
    async def answer(asked: Asked, out: Out) -> None:
        await out.raw(status, body, **headers)

    return answer


def _json(value: Callable[[Any], Any], status: int = 200) -> Handler:
    async def answer(asked: Asked, out: Out) -> None:
        await out.json(value(asked.message["id"]), status)

    return answer


def _stream(*pieces: bytes) -> Handler:
    async def answer(asked: Asked, out: Out) -> None:
        for piece in pieces:
            await out.piece(piece.replace(b"{id}", str(asked.message["id"]).encode()))
        await out.end()

    return answer


async def _hangs_up(asked: Asked, out: Out) -> None:
    return


async def _breaks_off(asked: Asked, out: Out) -> None:
    await out.piece(b'data: {"jsonrpc": "2.0", "id')


_ERROR = {"code": -32602, "message": "no such tool"}
BAD: dict[str, tuple[Handler, type[Exception], str]] = {
    "hangs up": (_hangs_up, Gone, "CONNECT_FAILED"),
    "breaks off": (_breaks_off, Gone, "ended too early"),
    "401": (_raw(401, b"x"), UpstreamError, r"login \(HTTP status 401\): OAuth comes in a later version"),
    "401 in JSON": (_json(lambda _: {"error": _ERROR}, 401), UpstreamError, "OAuth comes in a later version"),
    "403": (_raw(403), UpstreamError, "HTTP status 403"),
    "500": (_raw(500, b"<html>", content_type="text/html"), UpstreamError, "HTTP status 500"),
    "accepted": (_raw(202), UpstreamError, "HTTP status 202"),
    "empty": (_raw(200), UpstreamError, "neither JSON nor a stream"),
    "HTML": (_raw(200, b"<html>", content_type="text/html"), UpstreamError, "neither JSON nor a stream"),
    "error at 400": (_json(lambda n: {"jsonrpc": "2.0", "id": n, "error": _ERROR}, 400), UpstreamError, "no such tool"),
    "error without id": (
        _json(lambda _: {"jsonrpc": "2.0", "id": None, "error": _ERROR}, 400),
        UpstreamError,
        "no such tool",
    ),
    "an error that is none": (_json(lambda _: {"error": {"code": "x"}}, 400), UpstreamError, "HTTP status 400"),
    "broken JSON at 400": (_raw(400, b"{", content_type="application/json"), UpstreamError, "HTTP status 400"),
    "broken JSON": (_raw(200, b"{", content_type="application/json"), Gone, "not one to the request"),
    "a batch": (_json(lambda n: [{"jsonrpc": "2.0", "id": n, "result": {}}]), Gone, "not one to the request"),
    "another id": (_json(lambda _: {"jsonrpc": "2.0", "id": 999, "result": {}}), Gone, "not one to the request"),
    "a result that is none": (_json(lambda n: {"jsonrpc": "2.0", "id": n, "result": 1}), UpstreamError, "malformed"),
    "an id twice": (
        _stream(b'data: {"jsonrpc": "2.0", "id": 0, "id": {id}, "result": {}}\n\n'),
        UpstreamError,
        "duplicate keys",
    ),
    "an empty stream": (_stream(b""), Gone, "ended"),
    "a stream of noise": (_stream(b"data: noise\n\n", b"event: other\ndata: {}\n\n"), Gone, "ended its answer"),
    "a stream with another id": (
        _stream(b'data: {"jsonrpc": "2.0", "id": 999, "result": {}}\n\n'),
        Gone,
        "ended its answer",
    ),
    "false gzip": (_raw(200, b"x" * 99, content_type="application/json", content_encoding="gzip"), Gone, "not gzip"),
    "long headers": (_raw(200, b"", x_long="x" * 70_000), Gone, "CONNECT_FAILED|LIMIT_SIZE"),
    "redirects in a circle": (_raw(307, location="/mcp"), Gone, "more than 5 times"),
    "a redirect that changes the method": (_raw(302, location="/other"), Gone, "does not keep the method"),
    "a redirect to nothing": (_raw(307, location="http://[::"), Gone, "an address that is none"),
    "not modified": (_raw(304), UpstreamError, "HTTP status 304"),
}


@ERAS
@pytest.mark.parametrize("case", BAD)
@pytest.mark.sampled(8)
@bounded
async def test_a_bad_answer_costs_its_own_call_alone(case: str, era: str) -> None:
    handler, kind, text = BAD[case]
    release = asyncio.Event()

    async def slow(asked: Asked, out: Out) -> None:
        await release.wait()
        await out.result(text_result("slow"))

    async with opened(HttpServer(era, calls={"bad": handler, "slow": slow})) as upstream:
        waiting = asyncio.create_task(call(upstream, "slow"))
        with pytest.raises(kind, match=text):
            await call(upstream, "bad")
        release.set()
        assert text_of(await waiting) == "slow"
        assert text_of(await call(upstream, "echo")) == "{}"


FLOODS: dict[str, Callable[[int], Handler]] = {
    "one event": lambda size: _stream(b"data: ", *([b"x" * (1 << 20)] * size)),
    "an event of many lines": lambda size: _stream(*([b"data: " + b"x" * (1 << 20) + b"\n"] * size)),
    "one JSON text": lambda size: _raw(200, b" " * (size << 20), content_type="application/json"),
    "compressed": lambda size: _raw(
        200, gzip.compress(b" " * (size << 20)), content_type="application/json", content_encoding="gzip"
    ),
    "a compressed event": lambda size: _raw(
        200, gzip.compress(b"data: " + b"x" * (size << 20)), content_type="text/event-stream", content_encoding="gzip"
    ),
}


@pytest.mark.parametrize("case", FLOODS)
@bounded
async def test_a_flood_costs_its_own_call_alone(case: str) -> None:
    async with opened(HttpServer("2025", calls={"flood": FLOODS[case](2)})) as upstream:
        with pytest.raises(Gone, match="it sent a message of more than 1048576 bytes"):
            await call(upstream, "flood")
        assert text_of(await call(upstream, "echo")) == "{}"


@bounded
async def test_messages_that_nobody_has_received_yet_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few compressed bytes may be many messages, and each is within its limit."""
    monkeypatch.setattr(http_messages, "HELD_MB", 4)
    note = b'data: {"jsonrpc":"2.0","method":"x","params":{"a":"' + b"x" * 1_000_000 + b'"}}\n\n'
    flood = _raw(200, gzip.compress(note * 100), content_type="text/event-stream", content_encoding="gzip")
    async with listening(HttpServer("2025", calls={"flood": flood})) as server:
        link = link_to(server.url)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "flood"}}
        with pytest.raises(Gone, match="it sent too much at once"):
            await link.send(json.dumps(message).encode() + b"\n")
        waiting = [await link.receive() for _ in range(link._inbox.qsize())]
        assert sum(map(len, waiting)) <= 4 << 20
        assert link._meter.memory == 0
        await link.close()


@bounded
async def test_the_unfinished_messages_of_all_calls_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "HELD_MB", 4)

    async def part(asked: Asked, out: Out) -> None:
        await out.piece(b"data: " + b"x" * 1_000_000)
        await out.until_closed()

    async with opened(HttpServer("2025", calls={"part": part})) as upstream:
        tasks = [asyncio.create_task(call(upstream, "part")) for _ in range(5)]
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [str(task.exception()) for task in done] == ["it sent too much at once"]
        assert len(waiting) == 4
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert text_of(await call(upstream, "echo")) == "{}"


@bounded
async def test_a_flood_of_events_ends_the_conversation() -> None:
    async def floods(asked: Asked, out: Out) -> None:
        while True:
            await out.piece(b"data: noise\n\n" * 1000)

    async with opened(HttpServer("2025", calls={"floods": floods})) as upstream:
        with pytest.raises(Gone):
            await call(upstream, "floods")
        assert "lines in a row that are no messages" in await upstream.ended()


def test_more_calls_than_streams_wait_and_all_are_answered() -> None:
    most = 0

    async def work() -> None:
        nonlocal most
        now, go = 0, asyncio.Event()

        async def held(asked: Asked, out: Out) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            if now == MOST_CALLS:
                await asyncio.sleep(0.2)  # for others, which do not come
                go.set()
            await go.wait()
            now -= 1
            await out.result(text_result(str(asked.params["arguments"]["n"])))

        count = MOST_CALLS + 20
        async with opened(HttpServer("2025", calls={"held": held})) as upstream:
            answers = await asyncio.gather(*(call(upstream, "held", {"n": number}) for number in range(count)))
            assert [text_of(answer) for answer in answers] == [str(number) for number in range(count)]
        assert most == MOST_CALLS

    run(work())


@pytest.mark.parametrize("session", ["s 1", "ü", "x" * 2000])
@bounded
async def test_a_session_id_that_is_no_header_is_refused(session: str) -> None:
    async with listening(HttpServer("2025", session=session)) as server:
        link = link_to(server.url)
        line = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n'
        with pytest.raises(Gone, match="visible ASCII"):
            await link.send(line)
        await link.close()
        assert {one.verb for one in server.seen} == {"POST"}


@bounded
async def test_a_server_that_nobody_runs_is_gone_and_has_no_era() -> None:
    server = HttpServer()
    async with listening(server):
        pass
    upstream = Upstream("far", link_to(server.url), RecordingPeer(), {})
    with pytest.raises(Gone, match="CONNECT_FAILED: connection refused"):
        await upstream.open(seconds=SECONDS)
    await upstream.close()


@bounded
async def test_closing_ends_calls_that_wait_and_leaves_no_task() -> None:
    began = asyncio.Event()

    async def slow(asked: Asked, out: Out) -> None:
        began.set()
        await out.until_closed()

    async with opened(HttpServer("2025", calls={"slow": slow})) as upstream:
        waiting = asyncio.create_task(call(upstream, "slow"))
        await began.wait()
        await upstream.close()
        with pytest.raises(Gone):
            await waiting
        names = [str(task.get_coro()) for task in asyncio.all_tasks()]
        assert not [name for name in names if "HttpLink" in name], names
