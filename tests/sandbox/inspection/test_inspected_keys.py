"""Keys in inspected connections: when they are placed, what is on disk before that, and that none comes back."""

import asyncio
import gzip
import socket
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from licet.backends.memory import Answer
from licet.core.decision.decision import KeyKept, KeyPlaced, RequestMade
from licet.core.policy.inspection import Inspection
from licet.sandbox.inspection.stand_ins import read_keys
from loopback import serving, talking
from sandbox.inspection.programs_talk import (
    ENTRY,
    HOST,
    LAST,
    SECRET,
    STAND_IN,
    Keys,
    Run,
    all_of,
    ask,
    held,
    reasons,
)

PLACED = f"X-Key: {STAND_IN.decode()}\r\n"
ANY = "network:https:good.test"


def split() -> Iterator[bytes]:
    yield b"it is " + SECRET[:5]
    yield SECRET[5:6]
    yield SECRET[6:] + b" " + SECRET


def echo(exchange: Any) -> Answer:
    keys = [value for name, value in exchange.headers if name == "x-key"]
    match exchange.url.rpartition("/")[2]:
        case "header":
            return Answer(200, [("X-Echo", f"<{keys[0]}>")])
        case "name":
            return Answer(200, [(f"X-{keys[0]}", "1")])
        case "split":
            return Answer(200, (), split())
        case "gzip":
            return Answer(200, [("Content-Encoding", "gzip")], gzip.compress(b"a" * 100_000 + SECRET, mtime=0))
        case "deflate":
            return Answer(200, [("Content-Encoding", "deflate")], zlib.compress(SECRET))
        case "br":
            return Answer(200, [("Content-Encoding", "br")], b"?" + SECRET)
        case "both":
            return Answer(200, [("Content-Encoding", "gzip, br")], b"?" + SECRET)
        case "corrupt":
            return Answer(200, [("Content-Encoding", "gzip")], b"?" + SECRET)
        case _:
            return Answer(200, (), b"it is " + "".join(keys).encode() + b" and " + exchange.body)


def site(**given: Any) -> Any:
    return serving(echo, names=(HOST, "other.test"), **given)


def keyed(call: Any, *places: str, keys: Any = Keys, **given: Any) -> Run:
    hosts = tuple(place for place in places if place.startswith(HOST)) or (HOST,)
    return Run(call, *places, keys=keys, stand_ins=(replace(ENTRY, hosts=hosts),), **given)


def test_a_key_is_placed_and_does_not_come_back() -> None:
    with site() as server:
        call = held(f"{ANY}:{server.port}")
        run = keyed(call, f"{HOST}:{server.port}")
        requests = [ask("POST", path, server, PLACED, b"none") for path in ("/x?q=1", "/header", "/split")]
        (answer,) = run.talks(run.says(server, *requests, ask("GET", "/last", server, LAST)))
        assert [dict(one.headers).get("x-key") for one in server.seen] == [SECRET.decode()] * 3 + [None]
        assert {dict(one.headers)["accept-encoding"] for one in server.seen} == {"identity"}
    assert SECRET not in answer
    assert answer.count(STAND_IN) == 4
    assert b"it is " + STAND_IN + b" and none" in answer
    events = [event for event in call.events if isinstance(event, KeyPlaced)]
    assert [(event.capability, event.rule) for event in events] == [("secret:read:site/token", HOST)]
    made = [event.rule.split(" → ")[0] for event in call.events if isinstance(event, RequestMade)]
    assert made == ["POST /x", "POST /header", "POST /split", "GET /last"]


class Full:
    """A ledger that keeps nothing."""

    async def record(self, entry: Any) -> None:
        raise OSError("no space")


def test_no_key_leaves_before_its_first_use_is_on_disk() -> None:
    with site() as server:
        call = held(f"{ANY}:{server.port}")
        call.keep_in(Full(), lambda events: None, 0)  # type: ignore[arg-type, return-value]
        run = keyed(call, f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("GET", "/x", server, PLACED)))
        assert server.seen == []
    assert answer.split()[1] == b"403"
    assert b"LEDGER_UNAVAILABLE" in answer


AWAY = {
    "in a header": ("GET", "/x", PLACED, b""),
    "in the authorization": ("GET", "/x", f"Authorization: Bearer {STAND_IN.decode()}\r\n", b""),
    "in the path": ("GET", f"/{STAND_IN.decode()}", "", b""),
    "in a body": ("POST", "/x", "", b"before " + STAND_IN),
    "in a long body": ("POST", "/x", "", bytes(1 << 20) + STAND_IN + bytes(1 << 16)),
}


@pytest.mark.parametrize("plain", [False, True], ids=["inspected", "plain"])
@pytest.mark.parametrize(("method", "path", "more", "body"), AWAY.values(), ids=AWAY.keys())
def test_no_stand_in_goes_to_another_host(method: str, path: str, more: str, body: bytes, plain: bool) -> None:
    with serving(echo) if plain else site() as server:
        call = held(f"network:*:other.test:{server.port}", effect="full")
        run = keyed(call, f"other.test:{server.port}")

        def plainly(made: socket.socket) -> bytes:
            made.sendall(ask(method, f"http://other.test:{server.port}{path}", server, more, body))
            return all_of(made)

        request = ask(method, path, server, more, body, "other.test")
        (answer,) = run.talks(plainly if plain else run.says(server, request, host="other.test", name="other.test"))
        assert server.seen == []
    assert answer.split()[1] == b"403"
    assert b"SECRET_NOT_DECLARED" in answer
    assert reasons(call) == ["SECRET_NOT_DECLARED"]
    assert call.events[-1].capability.endswith(f"@other.test:{server.port}")


@pytest.mark.parametrize("plain", [False, True], ids=["inspected", "plain"])
def test_an_attempt_to_send_a_key_away_is_recorded_where_no_host_is_allowed(plain: bool) -> None:
    with serving(echo) if plain else site() as server:
        call = held()
        run = keyed(call, f"other.test:{server.port}")

        def plainly(made: socket.socket) -> bytes:
            made.sendall(ask("GET", f"http://other.test:{server.port}/x", server, PLACED))
            return all_of(made)

        request = ask("GET", "/x", server, PLACED, b"", "other.test")
        run.talks(plainly if plain else run.says(server, request, host="other.test", name="other.test"))
    assert reasons(call) == ["SECRET_NOT_DECLARED"]


def test_a_key_is_not_placed_without_tls() -> None:
    with serving(echo) as server:
        call = held(f"network:http:{HOST}:{server.port}")
        run = keyed(call, "nothing.test")

        def plainly(made: socket.socket) -> bytes:
            made.sendall(ask("GET", f"http://{HOST}:{server.port}/x", server, PLACED))
            return all_of(made)

        (answer,) = run.talks(plainly)
        assert server.seen == []
    assert answer.split()[1] == b"403"


def test_a_stand_in_elsewhere_goes_on_as_it_is_and_is_noted() -> None:
    with site() as server:
        call = held(f"{ANY}:{server.port}")
        run = keyed(call, f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("POST", "/x", server, LAST, b"<" + STAND_IN + b">")))
        assert server.seen[0].body == b"<" + STAND_IN + b">"
    assert answer.endswith(b"<" + STAND_IN + b">")
    (event,) = [event for event in call.events if isinstance(event, KeyKept)]
    assert (event.capability, event.rule) == ("secret:read:site/token", f"body, to {HOST}")


JSON = "Content-Type: application/json\r\n"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_key_is_placed_in_a_field_of_a_body(chunked: bool) -> None:
    with site() as server:
        call = held(f"{ANY}:{server.port}")
        run = keyed(call, f"{HOST}:{server.port}")
        body = b'{"key":"' + STAND_IN + b'"}'
        request = ask("POST", "/x", server, JSON + LAST, b"" if chunked else body)
        if chunked:
            more = f"Transfer-Encoding: chunked\r\n{JSON}{LAST}"
            request = ask("POST", "/x", server, more) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        (answer,) = run.talks(run.says(server, request))
        assert server.seen[0].body == b'{"key":"' + SECRET + b'"}'
    assert answer.endswith(body)
    assert call.meter.memory == 0


@pytest.mark.parametrize("chunked", [False, True])
def test_in_a_longer_body_no_key_is_placed(chunked: bool) -> None:
    with site() as server:
        call = held(f"{ANY}:{server.port}")
        run = keyed(call, f"{HOST}:{server.port}")
        body = b'{"key":"' + STAND_IN + b'", "x":"' + b"a" * 200_000 + b'"}'
        request = ask("POST", "/x", server, JSON + LAST, body)
        if chunked:
            more = f"Transfer-Encoding: chunked\r\n{JSON}{LAST}"
            request = ask("POST", "/x", server, more) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        (answer,) = run.talks(run.says(server, request))
        assert server.seen[0].body == body
    assert answer.endswith(body)
    assert any(isinstance(event, KeyKept) for event in call.events)
    assert call.meter.memory == 0


def test_a_key_in_the_name_of_a_header_does_not_come_back() -> None:
    with site() as server:
        run = keyed(held(f"{ANY}:{server.port}"), f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("GET", "/name", server, PLACED + LAST)))
    assert b"x-" + STAND_IN + b": 1" in answer.lower()
    assert SECRET not in answer.lower()


COMPRESSED = {
    "gzip": b"200",
    "deflate": b"200",
    "br": b"502",
    "both": b"502",
    "corrupt": b"200",  # its head has been sent when that is noticed
}


@pytest.mark.parametrize(("path", "status"), COMPRESSED.items())
def test_a_compressed_answer_is_unpacked_or_refused(path: str, status: bytes) -> None:
    with site() as server:
        run = keyed(held(f"{ANY}:{server.port}"), f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("GET", f"/{path}", server, PLACED + LAST)))
    assert SECRET not in answer
    if path == "corrupt":
        assert answer.endswith(b"<broken off>")
        return
    assert answer.split()[1] == status
    assert b"content-encoding" not in answer.lower()
    assert (STAND_IN in answer) == (status == b"200")


def test_a_compressed_answer_that_unpacks_to_too_much_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("licet.sandbox.inspection.key_checks.MOST_DECODED", 50_000)
    with site() as server:
        run = keyed(held(f"{ANY}:{server.port}"), f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("GET", "/gzip", server, PLACED + LAST)))
    assert answer.endswith(b"<broken off>")


def test_an_answer_without_a_body_keeps_its_headers() -> None:
    with site() as server:
        run = keyed(held(f"{ANY}:{server.port}"), f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("HEAD", "/br", server, PLACED + LAST)))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"content-encoding: br" in answer.lower()


def test_a_key_does_not_come_back_on_a_connection_that_began_before_it_left() -> None:
    placed = threading.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/events" not in head:
            writer.write(b"HTTP/1.1 204 No\r\n\r\n")
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nfirst ")
        await writer.drain()
        assert await asyncio.to_thread(placed.wait, 10)
        writer.write(SECRET)
        writer.close()
        await writer.wait_closed()

    with talking(talk, names=(HOST,)) as server:
        run = keyed(held(f"{ANY}:{server.port}"), f"{HOST}:{server.port}")

        def both(made: socket.socket) -> bytes:
            address = made.getpeername()
            with run.tls(made, server) as events:
                events.sendall(ask("GET", "/events", server, LAST))
                data = b""
                while b"first " not in data:
                    data += events.recv(1000)
                with run.tls(socket.create_connection(address, 10), server) as other:
                    other.sendall(ask("GET", "/x", server, PLACED + LAST))
                    assert all_of(other).startswith(b"HTTP/1.1 204 ")
                placed.set()
                return data + all_of(events)

        (answer,) = run.talks(both)
    assert SECRET not in answer
    assert STAND_IN in answer


@pytest.mark.parametrize("coded", [False, True])
def test_a_host_that_kept_a_key_from_another_run_does_not_show_it(coded: bool) -> None:
    """An answer never has a key of the run, whether the key is listed there or not: this run has placed nothing yet."""

    def kept(exchange: Any) -> Answer:
        text = b"you once sent " + SECRET
        return Answer(200, [("Content-Encoding", "gzip")], gzip.compress(text)) if coded else Answer(200, (), text)

    with serving(kept, names=(HOST, "other.test")) as server:
        call = held(f"{ANY}:{server.port}", f"network:https:other.test:{server.port}")
        run = keyed(call, f"{HOST}:{server.port}", f"other.test:{server.port}")
        request = ask("GET", "/", server, LAST, host="other.test")
        unlisted, listed = run.talks(
            run.says(server, request, host="other.test", name="other.test"),
            run.says(server, ask("GET", "/", server, LAST)),
        )
        assert not run.inspecting.keys.placed
    assert SECRET not in listed
    assert STAND_IN in listed
    assert SECRET not in unlisted


def test_a_listed_host_does_not_show_a_key_without_tls() -> None:
    with serving(lambda _: Answer(200, (), b"you once sent " + SECRET)) as server:
        run = keyed(held(f"network:http:{HOST}:{server.port}"), "nothing.test")

        def plainly(made: socket.socket) -> bytes:
            made.sendall(ask("GET", f"http://{HOST}:{server.port}/x", server))
            return all_of(made)

        (answer,) = run.talks(plainly)
    assert answer.endswith(b"you once sent " + STAND_IN)


def test_without_stand_ins_requests_are_as_programs_sent_them() -> None:
    with site() as server:
        run = Run(held(f"{ANY}:{server.port}"), f"{HOST}:{server.port}")
        request = ask("GET", "/x", server, f"{PLACED}Accept-Encoding: gzip\r\n{LAST}")
        run.talks(run.says(server, request))
        assert dict(server.seen[0].headers)["accept-encoding"] == "gzip"
        assert dict(server.seen[0].headers)["x-key"] == STAND_IN.decode()


def test_real_keys_are_placed_and_taken_out() -> None:
    secret = "ghs_k2jQx84hZbT0fLwPq7Rm3N9sYv6u1cDe5AgX"

    async def value(reference: str) -> str:
        return secret

    def back(exchange: Any) -> Answer:
        return Answer(200, (), dict(exchange.headers)["authorization"].encode())

    with serving(back, names=(HOST,)) as server:
        entry = replace(ENTRY, hosts=(f"{HOST}:{server.port}",))
        keys = asyncio.run(read_keys(Inspection((HOST,), (entry,)), value, lambda path: b""))
        stand_in = keys.environment["TOKEN"]
        run = Run(held(f"{ANY}:{server.port}"), f"{HOST}:{server.port}", keys=lambda: keys, stand_ins=(entry,))
        (answer,) = run.talks(run.says(server, ask("GET", "/", server, f"Authorization: Bearer {stand_in}\r\n{LAST}")))
        assert dict(server.seen[0].headers)["authorization"] == f"Bearer {secret}"
    assert answer.endswith(f"Bearer {stand_in}".encode())
