"""`ctx.fetch` over a network in memory: checks, requests, answers and refusals."""

import asyncio
import gzip
import pickle
import zlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from counted import work
from guard.grants import grant
from licet.backends.memory import Answer, MemoryHttp, Names, Routes
from licet.core.algebra.rules import Use
from licet.core.decision.decision import Event
from licet.core.decision.request import Approval
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.handles.fetch import FetchLimits, ScopedFetch
from licet.guard.handles.messages import BadStatus, Headers, Response
from licet.guard.ports import Exchange, Unconnected, Unreached
from licet.guard.redaction.redact import Redactor

PUBLIC = {"a.test": ["93.184.215.14"], "b.test": ["93.184.215.15"]}
BOTH = ("network:*:a.test", "network:*:b.test")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def fetching(
    routes: Routes, names: Names = PUBLIC, held: Grant | None = None, **given: Any
) -> tuple[ScopedFetch, MemoryHttp]:
    net = MemoryHttp(routes, names)
    return ScopedFetch(held or grant(BOTH), net, **given), net


def fetched(routes: Routes, url: str = "https://a.test/", /, **given: Any) -> Response:
    fetch, _ = fetching(routes)
    response: Response = run(fetch(url, **given))
    return response


def refusal(routes: Routes, url: str = "https://a.test/", /, *, names: Names = PUBLIC, **given: Any) -> Refused:
    held = given.pop("held", None)
    fetch, _ = fetching(routes, names, held, limits=given.pop("limits", FetchLimits()))
    with pytest.raises(Refused) as refused:
        run(fetch(url, **given))
    assert fetch._grant.events[-1].reason == refused.value.code  # whatever is refused is recorded
    return refused.value


def parts_of(refused: Refused) -> tuple[str, str, str]:
    """The reason, use and text of a refusal."""
    (ground,) = refused.decision.rules
    return refused.code, str(refused.use), ground.text


def page(body: bytes = b"page", status: int = 200, **headers: str) -> Answer:
    return Answer(status, [(name.replace("_", "-"), value) for name, value in headers.items()], body)


def moved(location: str, status: int = 302) -> Answer:
    return Answer(status, [("Location", location)], b"moved")


# What comes back ------------------------------------------------------------------------------------------------------


def test_a_response_is_plain_data() -> None:
    given = page('{"größe": 1}'.encode(), content_type="application/json")
    response = fetched(given_at("https://a.test/x", given), "https://A.test/x#fragment")
    assert (response.status, response.url, response.ok) == (200, "https://a.test/x", True)
    assert response.headers["CONTENT-TYPE"] == "application/json"
    assert (response.json(), response.text) == ({"größe": 1}, '{"größe": 1}')
    assert pickle.loads(pickle.dumps(response)) == response
    assert response.raise_for_status() is response
    with pytest.raises(AttributeError):
        response.status = 201  # type: ignore[misc]


def given_at(url: str, answer: Answer) -> Routes:
    return {url: answer}


@pytest.mark.parametrize(
    ("status", "ok", "bad"), [(199, False, False), (200, True, False), (299, True, False), (300, False, False),
                              (399, False, False), (400, False, True), (500, False, True)]
)  # fmt: skip
def test_ok_and_raise_for_status_follow_the_status(status: int, ok: bool, bad: bool) -> None:
    response = Response(status, "https://a.test/", Headers(), b"")
    assert response.ok is ok
    if bad:
        with pytest.raises(BadStatus, match=f"https://a.test/ answered {status}") as raised:
            response.raise_for_status()
        assert pickle.loads(pickle.dumps(raised.value)).status == status
    else:
        response.raise_for_status()


@pytest.mark.parametrize(
    ("content_type", "content", "text"),
    [
        ("text/plain", "ü".encode(), "ü"),
        ("text/plain; charset=iso-8859-1", b"\xfc", "ü"),
        ('text/plain; Charset="utf-16-le"', "ü".encode("utf-16-le"), "ü"),
        ("text/plain", b"\xff", "\ufffd"),
        ("text/plain; charset=no-such-thing", b"x", "x"),
        ("text/plain; charset=punycode", b"x-", "x-"),
        ("text/plain; charset=unicode-escape", b"\\x41", "\\x41"),
        ("text/plain; charset=hex", b"41", "41"),
        ("text/plain; charset=punycode-", b"x-eda", "x-eda"),
        ("text/plain; charset=-unicode..escape", b"\\x41", "\\x41"),
        ("text/plain; charset=utf-7", b"+AOQ-", "+AOQ-"),
        ("text/plain; charset=Latin1", b"\xfc", "ü"),
        ("text/plain; charset=windows-1251", b"\xe6", "ж"),
        ("text/plain; charset=Shift_JIS", "語".encode("cp932"), "語"),
        ("text/plain; charset=x", b"\xff", "\ufffd"),
        ("", b"x", "x"),
    ],
)
def test_text_is_decoded_as_the_headers_say(content_type: str, content: bytes, text: str) -> None:
    assert Response(200, "", Headers([("Content-Type", content_type)]), content).text == text


def test_headers_are_found_in_any_case_and_repeated_ones_are_joined() -> None:
    headers = Headers([("A", "1"), ("b", "2"), ("a", "3")])
    assert (headers["a"], headers.all("A"), headers.get("c"), list(headers), len(headers)) == (
        "1, 3", ("1", "3"), None, ["a", "b"], 2,
    )  # fmt: skip
    assert headers == Headers(headers.pairs) != Headers()
    assert hash(headers) == hash(Headers(headers.pairs))
    assert headers != {"a": "1, 3", "b": "2"}
    assert repr(headers) == "Headers([('A', '1'), ('b', '2'), ('a', '3')])"


def test_reading_every_header_costs_no_more_than_there_are() -> None:
    few, many = (Headers((f"h{number}", "v") for number in range(size)) for size in (100, 1000))
    assert work(lambda: dict(many)) < 11 * work(lambda: dict(few))


def test_a_stream_is_read_as_it_comes() -> None:
    async def work() -> None:
        fetch, _ = fetching({"https://a.test/": Answer(201, [("X", "y")], [b"one", b"two"])})
        async with fetch.stream("https://a.test/") as answer:
            assert (answer.status, answer.url, answer.headers["x"], answer.ok) == (201, "https://a.test/", "y", True)
            assert [piece async for piece in answer] == [b"one", b"two"]
        async with fetch.stream("https://a.test/") as answer:
            assert await answer.read() == b"onetwo"
            assert await answer.read() == b""
        async with fetch.stream("https://a.test/") as answer:
            pass
        with pytest.raises(RuntimeError, match="inside `async with`"):
            await answer.read()

    run(work())


# What is sent ---------------------------------------------------------------------------------------------------------


def test_what_is_sent_is_what_was_checked() -> None:
    fetch, net = fetching(lambda _: page())
    run(fetch("HTTP://A.Test:80/a b/../c?d#e", "post", headers={"X-One": " 1 "}, body=b"body"))
    (sent,) = net.sent
    assert (sent.method, sent.url, sent.host, sent.port, sent.address) == (
        "POST", "http://a.test/c?d", "a.test", 80, "93.184.215.14",
    )  # fmt: skip
    assert (dict(sent.headers)["X-One"], sent.body) == ("1", b"body")
    assert net.resolved == ["a.test"]  # once


def test_every_request_has_a_few_headers_of_its_own_which_a_caller_may_replace() -> None:
    fetch, net = fetching(lambda _: page())
    run(fetch("https://a.test/"))
    run(fetch("https://a.test/", headers=[("User-Agent", "me"), ("x", "y")]))
    first, second = (dict(sent.headers) for sent in net.sent)
    assert first == {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "licet"}
    assert second == {"accept": "*/*", "accept-encoding": "gzip, deflate", "User-Agent": "me", "x": "y"}


@pytest.mark.parametrize(
    ("given", "body", "content_type"),
    [
        ({"json": {"ü": [1, None]}}, '{"ü":[1,null]}'.encode(), "application/json"),
        ({"json": {}, "headers": {"Content-Type": "application/x+json"}}, b"{}", "application/x+json"),
        ({"json": False}, b"false", "application/json"),
        ({"body": "ü"}, "ü".encode(), None),
        ({"body": bytearray(b"x")}, b"x", None),
        ({"body": memoryview(b"xyz")[1:]}, b"yz", None),
        ({}, b"", None),
    ],
)
def test_a_body_is_bytes_text_or_json(given: dict[str, Any], body: bytes, content_type: str | None) -> None:
    fetch, net = fetching(lambda _: page())
    run(fetch("https://a.test/", "POST", **given))
    headers = {name.lower(): value for name, value in net.sent[0].headers}
    assert (net.sent[0].body, headers.get("content-type")) == (body, content_type)


@pytest.mark.parametrize(
    "given",
    [
        {"json": 1, "body": b""},
        {"json": {1, 2}},
        {"json": float("nan")},
        {"json": "\ud800"},
        {"body": "\ud800"},
        {"body": 5},
        {"headers": 5},
        {"headers": {"x": 5}},
        {"headers": {"x": b"y"}},
        {"headers": [5]},
        {"headers": [("a", "b", "c")]},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": "1"},
        {"timeout": True},
        {"max_bytes": -1},
        {"max_bytes": 1.5},
    ],
)
def test_a_malformed_request_is_refused_before_anything_is_sent(given: dict[str, Any]) -> None:
    fetch, net = fetching(lambda _: page())
    with pytest.raises(Refused) as refused:
        run(fetch("https://a.test/", "POST", **given))
    assert (refused.value.code, net.sent, net.resolved) == ("INPUT_INVALID", [], [])


class Vault:
    """Replaces placeholders `<NAME>`, and counts how often."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.asked = 0
        self.placed = Redactor()

    async def resolve(self, text: str, escape: Callable[[str], str] = str) -> str:
        self.asked += 1
        for name, value in self.values.items():
            text = text.replace(f"<{name}>", escape(value))
        return text

    async def resolve_bytes(self, data: bytes, escape: Callable[[str], str] = str) -> bytes:
        return (await self.resolve(data.decode(), escape)).encode()


def test_placeholders_become_secrets_in_headers_and_bodies_alone() -> None:
    fetch, net = fetching(lambda _: page(), placeholders=Vault(KEY='s"e'))
    run(fetch("https://a.test/?<KEY>", "POST", headers={"Authorization": "Bearer <KEY>"}, json={"key": "<KEY>"}))
    run(fetch("https://a.test/", "POST", body=b"key=<KEY>"))
    first, second = net.sent
    assert first.url == "https://a.test/?%3CKEY%3E"
    assert dict(first.headers)["Authorization"] == 'Bearer s"e'
    assert (first.body, second.body) == (b'{"key":"s\\"e"}', b'key=s"e')


def test_a_secret_that_looks_like_a_placeholder_is_left_alone() -> None:
    routes = {"https://a.test/": moved("/next", 307), "https://a.test/next": page()}
    fetch, net = fetching(routes, placeholders=Vault(OTHER="hush", KEY="<OTHER>"))
    run(fetch("https://a.test/", "POST", headers={"x": "<KEY>"}, body="<KEY>"))
    assert [(dict(sent.headers)["x"], sent.body) for sent in net.sent] == [("<OTHER>", b"<OTHER>")] * 2


def test_a_secret_is_not_looked_up_for_a_host_that_is_not_held() -> None:
    vault = Vault(KEY="secret")
    fetch, _ = fetching(lambda _: page(), placeholders=vault)
    with pytest.raises(Refused):
        run(fetch("https://evil.test/", headers={"x": "<KEY>"}))
    assert vault.asked == 0


def test_a_secret_with_a_line_break_is_not_put_into_a_header_nor_into_a_message() -> None:
    fetch, net = fetching(lambda _: page(), placeholders=Vault(KEY="hush\r\nX-Evil: 1"))
    with pytest.raises(Refused) as refused:
        run(fetch("https://a.test/", headers={"x": "<KEY>"}))
    assert refused.value.code == "INPUT_INVALID"
    assert "hush" not in str(refused.value) + refused.value.explain() + repr(fetch._grant.events)
    assert net.sent == []


# What is asked --------------------------------------------------------------------------------------------------------


def test_each_hop_is_checked_and_recorded() -> None:
    seen: list[Event] = []
    routes = {"https://a.test/": moved("https://b.test/x"), "https://b.test/x": page()}
    fetch, _ = fetching(routes, held=grant(BOTH, seen=seen))
    assert run(fetch("https://a.test/")).url == "https://b.test/x"
    assert [event.capability for event in seen] == [
        "network:https:get@a.test:443", "network:https:get@b.test:443",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "method", "effect", "code"),
    [
        ("https://c.test/", "GET", "write_limited", "HOST_NOT_ALLOWED"),
        ("https://a.test/", "POST", "read_only", "SIDE_EFFECT_EXCEEDED"),
        ("https://a.test/", "DELETE", "write_limited", "SIDE_EFFECT_EXCEEDED"),
        ("ftp://a.test/", "GET", "write_limited", "HOST_NOT_ALLOWED"),
        ("https://u:p@a.test/", "GET", "write_limited", "HOST_NOT_ALLOWED"),
        ("a.test", "GET", "write_limited", "HOST_NOT_ALLOWED"),
        ("https://a.test/", "CONNECT", "write_limited", "HOST_NOT_ALLOWED"),
        ("https://a.test/", "GET /", "write_limited", "HOST_NOT_ALLOWED"),
        ("https://a.test/", "PROPFIND", "write_limited", "SIDE_EFFECT_EXCEEDED"),
        (None, "GET", "write_limited", "HOST_NOT_ALLOWED"),
    ],
)
def test_a_use_that_is_not_granted_is_refused(url: Any, method: str, effect: Any, code: str) -> None:
    fetch, net = fetching(lambda _: page(), held=grant(BOTH, effect=effect))
    with pytest.raises(Refused) as refused:
        run(fetch(url, method))
    assert (refused.value.code, net.sent, net.resolved) == (code, [], [])


def test_a_delete_asks_an_approver_and_the_timeout_is_paused_meanwhile() -> None:
    asked: list[str] = []

    async def slow(_: Approval, use: Use) -> None:
        asked.append(str(use))
        await asyncio.sleep(0.4)

    held = grant(BOTH, effect="full", ask=slow)
    fetch, net = fetching(lambda _: page(), held=held)
    assert run(fetch("https://a.test/x", "DELETE", timeout=0.3)).ok
    assert (asked, net.sent[0].method) == (["network:https:delete@a.test:443"], "DELETE")


def test_a_handle_refuses_after_its_call() -> None:
    async def work() -> None:
        held = grant(BOTH)
        fetch, _ = fetching({"https://a.test/": Answer(200, (), [b"a", b"b"])}, held=held)
        async with fetch.stream("https://a.test/") as answer:
            held.over = True
            with pytest.raises(Refused, match="SESSION_ENDED"):
                await answer.read()
        with pytest.raises(Refused, match="SESSION_ENDED"):
            await fetch("https://a.test/")

    run(work())


# Redirects ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        (301, "GET", "GET", b""), (301, "POST", "GET", b""), (301, "PUT", "PUT", b"body"),
        (302, "GET", "GET", b""), (302, "POST", "GET", b""), (302, "PATCH", "PATCH", b"body"),
        (303, "GET", "GET", b""), (303, "POST", "GET", b""), (303, "PUT", "GET", b""), (303, "HEAD", "HEAD", b""),
        (307, "GET", "GET", b""), (307, "POST", "POST", b"body"),
        (308, "GET", "GET", b""), (308, "POST", "POST", b"body"),
    ],
)  # fmt: skip
def test_a_redirect_changes_the_method_as_browsers_do(status: int, method: str, then: str, body: bytes) -> None:
    fetch, net = fetching({"https://a.test/": moved("/next", status), "https://a.test/next": page()})
    given = None if method in ("GET", "HEAD") else b"body"
    run(fetch("https://a.test/", method, headers={"Content-Type": "text/plain", "X-Kept": "1"}, body=given))
    _, second = net.sent
    assert (second.method, second.url, second.body) == (then, "https://a.test/next", body)
    assert dict(second.headers)["X-Kept"] == "1"
    assert ("Content-Type" in dict(second.headers)) is (method == then)


@pytest.mark.parametrize(("status", "location"), [(200, "/next"), (304, "/next"), (300, "/next"), (302, None)])
def test_an_answer_that_is_no_redirect_is_returned(status: int, location: str | None) -> None:
    answer = Answer(status, [("Location", location)] if location else [])
    assert fetched({"https://a.test/": answer}).status == status


@pytest.mark.parametrize("target", ["/next", "https://elsewhere.test/"])
def test_a_redirect_is_an_answer_where_none_is_followed(target: str) -> None:
    fetch, net = fetching({"https://a.test/": moved(target)})
    answer = run(fetch("https://a.test/", redirects=False))
    assert (answer.status, answer.headers["location"], answer.content) == (302, target, b"moved")
    assert [one.url for one in net.sent] == ["https://a.test/"]
    assert refusal({}, redirects=1).code == "INPUT_INVALID"


def test_at_most_five_redirects_are_followed() -> None:
    def steps(last: int) -> Routes:
        routes: dict[str, Any] = {f"https://a.test/{n}": moved(f"/{n + 1}") for n in range(last)}
        return routes | {f"https://a.test/{last}": page()}

    assert fetched(steps(5), "https://a.test/0").url == "https://a.test/5"
    refused = refusal(steps(6), "https://a.test/0")
    assert parts_of(refused) == ("LIMIT_REDIRECTS", "network:https:get@a.test:443", "more than 5 redirects")


@pytest.mark.parametrize("following", ["https://b.test/", "http://a.test/", "https://a.test:444/"])
def test_no_header_of_the_caller_is_sent_to_another_origin(following: str) -> None:
    fetch, net = fetching({"https://a.test/": moved(following), following: moved("https://a.test/back"),
                           "https://a.test/back": page()})  # fmt: skip
    run(fetch("https://a.test/", headers={"Authorization": "key", "Cookie": "a=b", "X-Any": "1", "Accept": "x/y"}))
    assert len(net.sent) == 3
    for sent in net.sent[1:]:  # and what was dropped does not come back
        assert dict(sent.headers) == {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "licet"}


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_is_not_sent_to_another_origin(status: int) -> None:
    refused = refusal(
        {"https://a.test/": moved("https://b.test/", status)}, "https://a.test/", method="POST", body=b"x"
    )
    assert parts_of(refused) == (
        "LIMIT_REDIRECTS",
        "network:https:post@b.test:443",
        "a redirect from a.test would send the body to another origin",
    )


def test_a_redirect_from_https_to_http_needs_its_own_grant() -> None:
    routes = {"https://a.test/": moved("http://a.test/"), "http://a.test/": page()}
    refused = refusal(routes, held=grant(["network:https:a.test"]))
    assert (refused.code, str(refused.use)) == ("HOST_NOT_ALLOWED", "network:http:get@a.test:80")


def test_a_location_that_is_not_ascii_is_read_as_utf_8() -> None:
    routes = {"https://a.test/": moved("/ü".encode().decode("latin-1")), "https://a.test/%C3%BC": page()}
    assert fetched(routes).url == "https://a.test/%C3%BC"


def test_a_redirect_whose_own_body_breaks_is_followed() -> None:
    routes = {"https://a.test/": Answer(302, [("Location", "/next")], breaking(b"")), "https://a.test/next": page()}
    assert fetched(routes).ok


def test_the_body_of_a_redirect_is_not_read_to_its_end() -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while read < 1000:
            read += 1
            yield bytes(1024)

    routes = {"https://a.test/": Answer(302, [("Location", "/next")], endless()), "https://a.test/next": page()}
    assert fetched(routes).ok
    assert read == 17  # one more than 16 KiB


def breaking(*pieces: bytes) -> Iterator[bytes]:
    yield from pieces
    raise ValueError


# Addresses ------------------------------------------------------------------------------------------------------------


def test_addresses_are_tried_in_turn_until_a_connection_is_made() -> None:
    def site(asked: Exchange) -> Answer:
        if asked.address != "93.184.215.3":
            raise Unreached("connection refused")
        return page()

    names = {"a.test": [f"93.184.215.{n}" for n in range(1, 6)]}
    fetch, net = fetching(site, names)
    assert run(fetch("https://a.test/")).ok
    assert [sent.address[-1] for sent in net.sent] == ["1", "2", "3"]


def test_only_a_few_addresses_are_tried() -> None:
    def site(_: Exchange) -> Answer:
        raise Unreached("connection refused")

    names = {"a.test": [f"93.184.215.{n}" for n in range(1, 9)]}
    fetch, net = fetching(site, names)
    with pytest.raises(Refused) as refused:
        run(fetch("https://a.test/"))
    assert parts_of(refused.value)[::2] == ("CONNECT_FAILED", "connection refused")
    assert len(net.sent) == 4


def test_a_request_that_may_have_arrived_is_not_sent_again() -> None:
    def site(_: Exchange) -> Answer:
        raise Unconnected("the connection broke")

    fetch, net = fetching(site, {"a.test": ["93.184.215.1", "93.184.215.2"]})
    with pytest.raises(Refused) as refused:
        run(fetch("https://a.test/"))
    assert parts_of(refused.value)[::2] == ("CONNECT_FAILED", "the connection broke")
    assert len(net.sent) == 1


def test_a_private_address_needs_the_manifest() -> None:
    names = {"a.test": ["10.0.0.1"]}
    refused = refusal(lambda _: page(), names=names)
    assert str(refused) == "ADDRESS_NOT_ALLOWED: a.test leads to an address that is not public"
    assert "10.0.0.1 is private" in refused.explain()
    assert 'set `capabilities.private: ["10.0.0.1/32"]` in agent.yaml' in refused.explain()
    fetch, net = fetching(lambda _: page(), names, grant(BOTH, private=["10.0.0.0/8"]))
    assert run(fetch("https://a.test/")).ok
    assert net.sent[0].address == "10.0.0.1"


@pytest.mark.parametrize(
    ("names", "text"),
    [({}, "no resolver knows the name"), (lambda _: 1 / 0, "the backend failed: ZeroDivisionError")],
)
def test_a_name_that_does_not_resolve_is_refused(names: Names, text: str) -> None:
    assert parts_of(refusal(lambda _: page(), names=names)) == ("RESOLVE_FAILED", "network:https:get@a.test:443", text)


def test_an_empty_answer_is_refused() -> None:
    class Empty(MemoryHttp):
        async def resolve(self, host: str, port: int) -> list[str]:
            return []

    with pytest.raises(Refused) as refused:
        run(ScopedFetch(grant(BOTH), Empty(lambda _: page()))("https://a.test/"))
    assert parts_of(refused.value)[::2] == ("RESOLVE_FAILED", "the name has no address")


def test_an_error_of_the_backend_refuses_and_its_text_is_not_shown() -> None:
    def site(_: Exchange) -> Answer:
        raise KeyError("hush")

    refused = refusal(site)
    assert parts_of(refused)[::2] == ("CONNECT_FAILED", "the backend failed: KeyError")


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["", "identity", "br", "gzip, gzip"])
def test_a_body_may_be_as_large_as_the_limit_and_no_larger(coding: str) -> None:
    routes = {"https://a.test/": page(b"x" * 100, content_encoding=coding)}
    assert len(fetched(routes, max_bytes=100).content) == 100
    refused = refusal(routes, max_bytes=99)
    assert parts_of(refused) == ("LIMIT_SIZE", "network:https:get@a.test:443", "the body has more than 99 bytes")


def test_a_body_is_limited_to_ten_mebibytes_by_default_and_to_a_fixed_maximum_for_any_caller() -> None:
    ten = 10 * 1024 * 1024
    whole = Answer(200, (), [b"x" * ten])
    over = Answer(200, (), [b"x" * ten, b"x"])
    assert len(fetched({"https://a.test/": whole}).content) == ten
    assert refusal({"https://a.test/": over}).code == "LIMIT_SIZE"
    assert (
        refusal({"https://a.test/": over}, limits=FetchLimits(most_body_bytes=ten), max_bytes=ten * 2).code
        == "LIMIT_SIZE"
    )
    assert len(fetched({"https://a.test/": over}, max_bytes=ten + 1).content) == ten + 1


@pytest.mark.parametrize(("size", "code"), [(64 * 1024 - 1, ""), (64 * 1024, "LIMIT_SIZE")])
def test_the_size_of_response_headers_is_limited(size: int, code: str) -> None:
    routes = {"https://a.test/": page(x="y" * size)}
    if code:
        assert parts_of(refusal(routes))[::2] == (code, "the answer has more than 65536 bytes of headers")
    else:
        assert fetched(routes).ok


@pytest.mark.parametrize(("lines", "code"), [(256, ""), (257, "LIMIT_SIZE")])
def test_the_number_of_response_headers_is_limited(lines: int, code: str) -> None:
    routes = {"https://a.test/": Answer(200, [(f"h{number}", "v") for number in range(lines)], b"")}
    if code:
        assert parts_of(refusal(routes))[::2] == (code, "the answer has more than 256 headers")
    else:
        assert len(fetched(routes).headers) == lines


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = [
    ("gzip", gzip.compress(b"content", mtime=0)),
    ("GZIP ", gzip.compress(b"content", mtime=0)),
    ("x-gzip", gzip.compress(b"con", mtime=0) + gzip.compress(b"tent", mtime=0)),
    ("gzip", gzip.compress(b"content", mtime=0) + b"\0" * 20),
    ("deflate", zlib.compress(b"content")),
    ("deflate", zlib.compress(b"content", 9)),
    ("deflate", bare(b"content")),
]


@pytest.mark.parametrize(("coding", "data"), PACKED)
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_compressed_bodies_are_decompressed_however_they_are_split(coding: str, data: bytes, step: int) -> None:
    cut = [data[start : start + step] for start in range(0, len(data), step)]
    answer = Answer(200, [("Content-Encoding", coding)], cut)
    assert fetched({"https://a.test/": answer}, max_bytes=len(data)).content == b"content"


def test_a_large_compressed_body_is_decompressed_completely() -> None:
    content = bytes(range(256)) * 8192  # more than is unpacked at once
    answer = Answer(200, [("Content-Encoding", "gzip")], gzip.compress(content, 1))
    assert fetched({"https://a.test/": answer}).content == content


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "unheard-of"])
def test_a_body_with_an_unknown_coding_is_returned_unchanged(coding: str) -> None:
    response = fetched({"https://a.test/": page(b"\x1f\x8b raw", content_encoding=coding)})
    assert (response.content, response.headers["content-encoding"]) == (b"\x1f\x8b raw", coding)


@pytest.mark.parametrize(
    ("coding", "data", "text"),
    [
        ("gzip", b"not gzip at all", "the body is not gzip data"),
        ("deflate", b"\xff\xff\xff", "the body is not deflate data"),
        ("gzip", gzip.compress(b"content", mtime=0)[:-1], "the body ends in the middle of its gzip data"),
        (
            "gzip",
            gzip.compress(b"content", mtime=0) + gzip.compress(b"x", mtime=0)[:5],
            "the body ends in the middle of its gzip data",
        ),
        ("gzip", b"\x1f", "the body ends in the middle of its gzip data"),
        ("deflate", zlib.compress(b"content")[:4], "the body ends in the middle of its deflate data"),
    ],
)
def test_a_body_that_does_not_decompress_is_refused(coding: str, data: bytes, text: str) -> None:
    refused = refusal({"https://a.test/": page(data, content_encoding=coding)})
    assert parts_of(refused) == ("CONNECT_FAILED", "network:https:get@a.test:443", text)


def test_an_empty_body_is_not_decompressed() -> None:
    assert fetched({"https://a.test/": page(b"", content_encoding="gzip")}).content == b""


def test_a_broken_body_is_refused() -> None:
    refused = refusal({"https://a.test/": Answer(200, (), breaking(b"a"))})
    assert parts_of(refused)[::2] == ("CONNECT_FAILED", "the connection broke")


def test_time_is_counted_over_everything() -> None:
    async def slow(asked: Exchange) -> Answer:
        await asyncio.sleep(0.06)
        return moved(f"{asked.url}x")

    refused = refusal(slow, timeout=0.15)
    assert parts_of(refused)[::2] == ("LIMIT_TIME", "no complete answer within 0.15 seconds")


def test_time_is_counted_while_a_stream_is_read() -> None:
    async def work() -> None:
        fetch, _ = fetching({"https://a.test/": page()})
        async with fetch.stream("https://a.test/", timeout=1.0):
            await asyncio.sleep(5)

    with pytest.raises(Refused, match="LIMIT_TIME"):
        run(work())


def test_a_timeout_error_of_the_caller_does_not_become_a_refusal() -> None:
    async def work() -> None:
        fetch, _ = fetching({"https://a.test/": page()})
        async with fetch.stream("https://a.test/"):
            raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        run(work())


def test_a_cancelled_caller_is_cancelled() -> None:
    async def work() -> None:
        async def stuck(_: Exchange) -> Answer:
            await asyncio.sleep(5)
            return page()

        fetch, _ = fetching(stuck)
        task = asyncio.create_task(fetch("https://a.test/"))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())
