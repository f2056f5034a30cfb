"""Inspected connections: which requests pass, how bodies and answers travel, and what a receipt says of them."""

import asyncio
import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
from typing import Any

import pytest

from licet.backends.memory import Answer
from licet.cli.run_hints import refusal_line
from licet.core.decision.decision import CapabilityDenied, RequestMade
from licet.sandbox.programs import proxy as egress
from loopback import Server, serving, talking
from sandbox.inspection.programs_talk import HOST, LAST, Names, Run, all_of, ask, by_connect, by_socks, held, reasons

GET = f"network:https:get@{HOST}"
POST = f"network:https:post@{HOST}"


def page(exchange: Any) -> Answer:
    match exchange.url.partition(HOST)[2].partition("/")[2]:
        case "none":
            return Answer(204)
        case "moved":
            return Answer(302, [("Location", "https://other.test/x")])
        case "pieces":
            return Answer(200, (), [b"one ", b"two"])
        case "breaks":
            return Answer(200, (), breaking())
        case _:
            return Answer(200, [("content-type", "text/plain"), ("keep-alive", "x")], b"a page " + exchange.body)


def breaking() -> Any:
    yield b"a beginning"
    raise ValueError


def site(**given: Any) -> Any:
    return serving(page, names=(HOST, "127.0.0.1"), **given)


def rules(server: Server, *words: str) -> tuple[str, ...]:
    return tuple(f"{word}:{server.port}" for word in words)


def test_requests_follow_each_other_on_one_connection_and_each_is_checked() -> None:
    with site() as server:
        call = held(*rules(server, GET))
        run = Run(call, f"{HOST}:{server.port}")

        def talk(made: socket.socket) -> Any:
            with run.tls(made, server) as secured:
                connection = http.client.HTTPConnection(HOST, server.port)
                connection.sock = secured
                found = []
                for method in ("GET", "GET", "POST"):
                    connection.request(method, "/x?q=1", body=b"abc" if method == "POST" else None)
                    answer = connection.getresponse()
                    found.append((answer.status, answer.headers["X-Licet"], answer.read()))
                return found, answer.headers["Connection"]

        ((found, last),) = run.talks(talk)
        assert found[:2] == [(200, None, b"a page ")] * 2
        assert found[2][:2] == (403, "refused")
        assert b"not with POST" in found[2][2]
        assert last == "close"
        assert [one.method for one in server.seen] == ["GET", "GET"]
        assert server.connections == 1
        assert {name for name, _ in server.seen[0].headers} <= {"accept-encoding", "user-agent"}
    made = [event.rule for event in call.events if isinstance(event, RequestMade)]
    assert made == ["GET /x → 200, 7 bytes"] * 2
    assert reasons(call) == ["HOST_NOT_ALLOWED"]


@pytest.mark.parametrize("way", [by_connect, by_socks])
def test_no_rule_opens_a_tunnel(way: Any) -> None:
    with site() as server:
        call = held(*rules(server, f"network:tcp:{HOST}"))
        run = Run(call, f"{HOST}:{server.port}")

        def talk(made: socket.socket) -> bytes:
            way(made, HOST, server.port)
            with run.trust().wrap_socket(made, server_hostname=HOST) as secured:
                secured.sendall(ask("GET", "/", server))
                return all_of(secured)

        def plainly(made: socket.socket) -> bytes:
            made.sendall(f"GET http://{HOST}:{server.port}/ HTTP/1.1\r\n\r\n".encode())
            return all_of(made)

        answers = run.talks(talk, plainly)
        assert server.connections == 0
    assert [answer.split()[1] for answer in answers] == [b"403", b"403"]


def test_other_hosts_are_tunnels() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"heard " + await reader.read())
        await writer.drain()
        writer.close()

    with talking(echo) as server:
        run = Run(held(*rules(server, "network:tcp:other.test")), HOST)

        def talk(made: socket.socket) -> bytes:
            by_connect(made, "other.test", server.port)
            made.sendall(b"you")
            made.shutdown(socket.SHUT_WR)
            return all_of(made)

        assert run.talks(talk) == [b"heard you"]


FORMS = {
    "the place": ("GET /x HTTP/1.1\r\nHost: {place}\r\n", "200"),
    "in capitals, with the dot of the root": ("GET /x HTTP/1.1\r\nHost: GOOD.test.:{port}\r\n", "200"),
    "the absolute form of the place": ("GET https://{place}/x HTTP/1.1\r\nHost: {place}\r\n", "200"),
    "HTTP/1.0": ("GET /x HTTP/1.0\r\nHost: {place}\r\n", "200"),
    "another host": ("GET /x HTTP/1.1\r\nHost: other.test:{port}\r\n", "403"),
    "another port": ("GET /x HTTP/1.1\r\nHost: good.test\r\n", "403"),
    "no host": ("GET /x HTTP/1.1\r\n", "403"),
    "no host, in HTTP/1.0": ("GET /x HTTP/1.0\r\n", "403"),
    "an empty host": ("GET /x HTTP/1.1\r\nHost:\r\n", "403"),
    "two hosts": ("GET /x HTTP/1.1\r\nHost: {place}\r\nHost: {place}\r\n", "400"),
    "a host with a user": ("GET /x HTTP/1.1\r\nHost: a@{place}\r\n", "403"),
    "any host": ("GET /x HTTP/1.1\r\nHost: *\r\n", "403"),
    "the absolute form of another host": ("GET https://other.test:{port}/x HTTP/1.1\r\nHost: {place}\r\n", "403"),
    "the absolute form without TLS": ("GET http://{place}/x HTTP/1.1\r\nHost: {place}\r\n", "403"),
    "the absolute form, with a user": ("GET https://a@{place}/x HTTP/1.1\r\nHost: {place}\r\n", "403"),
    "another host behind the path": ("GET @other.test/x HTTP/1.1\r\nHost: {place}\r\n", "403"),
    "a tunnel in the tunnel": ("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n", "403"),
    "the server itself": ("OPTIONS * HTTP/1.1\r\nHost: {place}\r\n", "403"),
    "two slashes": ("GET //other.test/x HTTP/1.1\r\nHost: {place}\r\n", "200"),
    "another version": ("GET /x HTTP/3.0\r\nHost: {place}\r\n", "400"),
}


@pytest.mark.parametrize(("head", "status"), FORMS.values(), ids=FORMS.keys())
def test_a_request_is_for_the_place_of_its_connection(head: str, status: str) -> None:
    with site() as server:
        call = held(*rules(server, "network:https:good.test", "network:https:other.test"))
        run = Run(call, f"{HOST}:{server.port}")
        place = f"{HOST}:{server.port}"
        text = head.format(place=place, port=server.port) + f"{LAST}\r\n"
        (answer,) = run.talks(run.says(server, text.encode()))
        assert [one.host for one in server.seen] == ([HOST] if status == "200" else [])
        assert all(one.url.startswith(f"https://{place}/") for one in server.seen)
    assert answer.split()[1] == status.encode()
    assert bool(reasons(call)) == (status != "200")


def test_a_name_in_the_handshake_is_that_of_the_place_or_absent() -> None:
    with site() as server:
        call = held(*rules(server, GET))
        run = Run(call, f"{HOST}:{server.port}")
        request = ask("GET", "/", server, LAST)

        def other(made: socket.socket) -> str:
            with pytest.raises(ssl.SSLError) as wrong:
                run.says(server, request, name="other.test")(made)
            return str(wrong.value.reason)

        reason, without = run.talks(other, run.says(server, request, name=None))
        assert len(server.seen) == 1
    assert reason == "TLSV1_UNRECOGNIZED_NAME"
    assert without.startswith(b"HTTP/1.1 200 ")
    assert "asks for other.test" in call.events[0].rule


def test_an_address_is_a_place_too() -> None:
    with site() as server:
        run = Run(held(f"network:https:get@127.0.0.1:{server.port}"), f"127.0.0.1:{server.port}")
        request = ask("GET", "/", server, LAST, host="127.0.0.1")
        (answer,) = run.talks(run.says(server, request, host="127.0.0.1", name="127.0.0.1"))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_addresses_are_checked_as_for_every_request() -> None:
    with site() as server:
        run = Run(held(f"network:https:get@inner.test:{server.port}"), f"inner.test:{server.port}")
        request = ask("GET", "/", server, LAST, host="inner.test")
        (answer,) = run.talks(run.says(server, request, host="inner.test", name="inner.test"))
    assert answer.split()[1] == b"403"
    assert b"ADDRESS_NOT_ALLOWED" in answer


def test_a_server_that_is_not_trusted_gets_nothing() -> None:
    class Distrusts(Names):
        def __init__(self, **_: Any) -> None:
            super().__init__(ssl_context=ssl.create_default_context())

    with site() as server:
        run = Run(held(*rules(server, GET)), f"{HOST}:{server.port}", net=Distrusts)
        (answer,) = run.talks(run.says(server, ask("GET", "/", server)))
        assert server.seen == []
    assert answer.split()[1] == b"502"
    assert b"not trusted" in answer


def test_a_redirect_is_an_answer() -> None:
    with site() as server:
        run = Run(held(*rules(server, GET)), f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("GET", "/moved", server, LAST)))
        assert len(server.seen) == 1
    assert b"\r\nlocation: https://other.test/x\r\n" in answer.lower()


# Bodies and answers ---------------------------------------------------------------------------------------------------

CHUNKED = "Transfer-Encoding: chunked\r\n"
BODIES = {
    "by length": (ask, {"body": b"abc"}, b"abc"),
    "in chunks": (ask, {"more": CHUNKED}, b"abc"),
    "none": (ask, {}, b""),
}


@pytest.mark.parametrize("http2", [False, True])
def test_bodies_by_length_and_in_chunks(http2: bool) -> None:
    with site(http2=http2) as server:
        run = Run(held(*rules(server, POST)), f"{HOST}:{server.port}")
        chunks = b"1\r\na\r\n2;x=y\r\nbc\r\n0\r\nTrailer: x\r\n\r\n"
        requests = (
            ask("POST", "/x", server, body=b"abc"),
            ask("POST", "/x", server, CHUNKED) + chunks,
            ask("POST", "/x", server, "Expect: 100-continue\r\n", b"abc"),
            ask("POST", "/x", server, f"{CHUNKED}Expect: 100-continue\r\n") + chunks,
            ask("POST", "/x", server, LAST + CHUNKED) + b"0\r\n\r\n",
        )
        (answer,) = run.talks(run.says(server, *requests))
        assert [one.body for one in server.seen] == [b"abc"] * 4 + [b""]
        assert not any(name in ("trailer", "expect") for one in server.seen for name, _ in one.headers)
    assert answer.count(b"HTTP/1.1 200 ") == 5
    # who sends the body at once does not wait for it, and may be told nevertheless
    assert answer.count(b"100 Continue") <= 2


def test_a_program_that_waits_for_it_is_told_to_send_its_body() -> None:
    with site() as server:
        run = Run(held(*rules(server, POST)), f"{HOST}:{server.port}")

        def talk(made: socket.socket) -> Any:
            with run.tls(made, server) as secured:
                secured.sendall(ask("POST", "/x", server, f"Expect: 100-continue\r\nContent-Length: 3\r\n{LAST}"))
                interim = secured.recv(1000)
                secured.sendall(b"abc")
                return interim, all_of(secured)

        def refused(made: socket.socket) -> bytes:
            with run.tls(made, server) as secured:
                secured.sendall(ask("PUT", "/x", server, "Expect: 100-continue\r\nContent-Length: 3\r\n"))
                return all_of(secured)

        (interim, answer), no = run.talks(talk, refused)
    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.endswith(b"a page abc")
    assert no.split()[1] == b"403"


ANSWERS = {
    "a body with a length": ("GET", "/x", "", b"\r\n\r\na page "),
    "a body in chunks": ("GET", "/pieces", "", b"\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"),
    "no body": ("GET", "/none", "", b"\r\n\r\n"),
    "the answer to HEAD": ("HEAD", "/x", "", b"\r\n\r\n"),
    "a redirect without a body": ("GET", "/moved", "", b"\r\n\r\n"),
    "a body that breaks off": ("GET", "/breaks", "", b"<broken off>"),
}


@pytest.mark.parametrize(("method", "path", "more", "end"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_ends_where_it_says(method: str, path: str, more: str, end: bytes) -> None:
    with site() as server:
        run = Run(held(*rules(server, GET, "network:https:head@good.test")), f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask(method, path, server), ask("GET", "/last", server, LAST)))
    first = answer.partition(b"HTTP/1.1 200 ")[2] if path == "/none" else answer
    broken = b"broken off" in end
    assert answer.endswith(end if broken else b"\r\n\r\na page ")
    assert answer.count(b"HTTP/1.1 ") == 2 or broken  # what had arrived may be lost then
    assert broken or answer.rpartition(b"HTTP/1.1 ")[0].endswith(end)
    assert first


def test_events_arrive_when_they_are_sent() -> None:
    heard = threading.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(3):
            writer.write(b"data: %d\n\n" % number)
            await writer.drain()
            assert await asyncio.to_thread(heard.wait, 10)  # the next event comes when this one has arrived
            heard.clear()
        writer.close()

    with talking(talk, names=(HOST,)) as server:
        run = Run(held(*rules(server, GET)), f"{HOST}:{server.port}")

        def listen(made: socket.socket) -> bytes:
            with run.tls(made, server) as secured:
                secured.sendall(ask("GET", "/", server, LAST))
                data = b""
                for number in range(3):
                    while b"data: %d\n\n" % number not in data:
                        more = secured.recv(1000)
                        assert more, data
                        data += more
                    heard.set()
                return data + all_of(secured)

        (answer,) = run.talks(listen)
    assert answer.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_of_any_length_take_no_memory(chunked: bool) -> None:
    block, blocks = bytes(1 << 20), 40

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = 0
        while (size < len(block) * blocks) if not chunked else True:
            data = await reader.read(65536)
            size += len(data)
            if chunked and data.endswith(b"0\r\n\r\n"):
                break
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(block) * blocks))
        for _ in range(blocks):
            writer.write(block)
            await writer.drain()
        assert head
        writer.close()
        await writer.wait_closed()

    with talking(talk, names=(HOST,)) as server:
        call = held(*rules(server, POST))
        run = Run(call, f"{HOST}:{server.port}")

        def both(made: socket.socket) -> int:
            with run.tls(made, server) as secured:
                length = CHUNKED if chunked else f"Content-Length: {len(block) * blocks}\r\n"
                secured.sendall(ask("POST", "/", server, length + LAST))
                for _ in range(blocks):
                    secured.sendall(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
                secured.sendall(b"0\r\n\r\n" if chunked else b"")
                size = 0
                while more := secured.recv(65536):
                    size += len(more)
                return size

        tracemalloc.start()
        try:
            (size,) = run.talks(both)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert size > len(block) * blocks
    assert peak < 16 << 20
    assert call.meter.memory == 0


def test_a_program_that_has_gone_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("licet.sandbox.inspection.inspected.ENDED_SECONDS", 0.01)
    asked, gone = threading.Event(), threading.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()  # the end of the connection, and no timeout: nobody waits for minutes here
        gone.set()

    with talking(talk, names=(HOST,)) as server:
        run = Run(held(*rules(server, GET)), f"{HOST}:{server.port}")

        def leave(made: socket.socket) -> bool:
            with run.tls(made, server) as secured:
                secured.sendall(ask("GET", "/", server))
                assert asked.wait(10)
            made.close()
            return gone.wait(10)

        assert run.talks(leave) == [True]


# Upgrades -------------------------------------------------------------------------------------------------------------

WEBSOCKET = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"


async def sockets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if b"upgrade: websocket" not in head.lower():
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain")
    else:
        writer.write(
            b"HTTP/1.1 101 Ok\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: y\r\n\r\nhi "
        )
        while data := await reader.read(100):
            writer.write(data.upper())
            if data.endswith(b"."):
                break
    await writer.drain()


def test_an_upgrade_needs_the_rule_for_a_tunnel() -> None:
    with talking(sockets, names=(HOST,)) as server:
        request = ask("GET", "/", server, WEBSOCKET)
        allowed, bare = held(*rules(server, GET, f"network:tcp:{HOST}")), held(*rules(server, GET))

        def talk(made: socket.socket) -> bytes:
            with run.tls(made, server) as secured:
                secured.sendall(request + b"first ")
                data = b""
                while b"FIRST " not in data:
                    data += secured.recv(1000)
                secured.sendall(b"then.")
                return data + all_of(secured)

        run = Run(allowed, f"{HOST}:{server.port}")
        (answer,) = run.talks(talk)
        run = Run(bare, f"{HOST}:{server.port}")
        connections = server.connections
        (refused,) = run.talks(run.says(server, request))
        assert server.connections == connections
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 101 Switching"
    assert b"sec-websocket-accept: y" in head.lower()
    assert rest == b"hi FIRST THEN."
    assert refused.split()[1] == b"403"
    assert f"network:tcp:{HOST}:{server.port}".encode() in refused
    assert f"add `network:tcp:{HOST}:{server.port}`" in bare.events[-1].rule or reasons(bare) == ["HOST_NOT_ALLOWED"]


NO_UPGRADES = {
    "another version of HTTP": ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n", "200"),
    "not said of the connection": ("Upgrade: websocket\r\n", "200"),
}


@pytest.mark.parametrize(("more", "status"), NO_UPGRADES.values(), ids=NO_UPGRADES.keys())
def test_what_is_no_upgrade_is_a_request(more: str, status: str) -> None:
    with talking(sockets, names=(HOST,)) as server:
        run = Run(held(*rules(server, GET)), f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("GET", "/", server, f"{LAST}{more}")))
    assert answer.split()[1] == status.encode()
    assert answer.endswith(b"plain")


# Clients that do not let themselves be looked into --------------------------------------------------------------------


def test_a_program_that_trusts_another_authority_is_named_once() -> None:
    with site() as server:
        call = held(*rules(server, GET))
        run = Run(call, f"{HOST}:{server.port}")

        def pins(made: socket.socket) -> None:
            by_connect(made, HOST, server.port)
            with pytest.raises(ssl.SSLError):
                ssl.create_default_context().wrap_socket(made, server_hostname=HOST)

        run.talks(pins, pins)
        assert server.connections == 0
    (event,) = call.events
    assert event.reason == "CONNECT_FAILED"
    assert f"its connection to {HOST}:{server.port} be looked into" in event.rule
    assert "does not accept the certificate of this run" in event.rule


def test_a_program_that_speaks_http2_unasked_is_named() -> None:
    with site() as server:
        call = held(*rules(server, GET))
        run = Run(call, f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"))
        assert server.connections == 0
    assert answer.split()[1] == b"505"
    assert "HTTP/2 alone" in call.events[-1].rule


def test_a_program_that_leaves_without_http2_is_named() -> None:
    with site() as server:
        call = held(*rules(server, GET))
        run = Run(call, f"{HOST}:{server.port}")

        def leaves(made: socket.socket) -> Any:
            by_connect(made, HOST, server.port)
            context = run.trust()
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(made, server_hostname=HOST) as secured:
                return secured.selected_alpn_protocol()

        def noticed(made: socket.socket) -> bool:
            for _ in range(1000):
                if call.events:
                    return True
                time.sleep(0.01)
            return False

        assert run.talks(leaves, noticed) == [None, True]
        assert server.connections == 0
    assert "HTTP/2 alone" in call.events[-1].rule


# Limits ---------------------------------------------------------------------------------------------------------------


def test_requests_that_are_looked_into_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "MOST_REQUESTS", 1)
    with site() as server:
        run = Run(held(*rules(server, GET)), f"{HOST}:{server.port}")
        one = run.says(server, ask("GET", "/", server), ask("GET", "/", server, LAST))

        def plainly(made: socket.socket) -> bytes:
            made.sendall(b"GET http://evil.test/ HTTP/1.1\r\n\r\n")
            return all_of(made)

        first, second, plain, none = run.talks(one, one, plainly, plainly)
    assert [answer.count(b"HTTP/1.1 200 ") for answer in (first, second)] == [2, 2]
    assert (plain.split()[1], none) == (b"403", b"")


@pytest.mark.parametrize("limit", ["connections", "files"])
def test_idle_connections_make_room(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit == "connections":
        monkeypatch.setattr(egress, "MOST_CONNECTIONS", 2)
    with site() as server:
        made = held(*rules(server, GET))
        limits = {"host_files": 8} if limit == "files" else {}
        call = type(made)(made.request, made.reach, made.manifest_digest, (), made._ask, limits)  # type: ignore[arg-type]
        run = Run(call, f"{HOST}:{server.port}")

        def many(first: socket.socket) -> Any:
            address, opened = first.getpeername(), [run.tls(first, server)]
            answers = []
            for number in range(6):
                if number:
                    opened.append(run.tls(socket.create_connection(address, 20), server))
                opened[-1].sendall(ask("GET", "/", server))
                data = b""
                while not data.endswith(b"a page "):
                    data += opened[-1].recv(1000)
                answers.append(data.split()[1])
            ended = [all_of(one) for one in opened[:2]]
            for one in opened:
                one.close()
            return answers, ended

        ((answers, ended),) = run.talks(many)
    assert answers == [b"200"] * 6
    assert ended == [b""] * 2
    assert "LIMIT_HOST_FILES" not in reasons(call)


def test_a_call_that_is_over_gets_nothing() -> None:
    with site() as server:
        call = held(*rules(server, GET))
        call.end()
        run = Run(call, f"{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("GET", "/", server)))
        assert server.connections == 0
    assert b"SESSION_ENDED" in answer


def test_header_lines_are_limited() -> None:
    with site() as server:
        call = held(*rules(server, GET))
        run = Run(call, f"{HOST}:{server.port}")
        lines = "".join(f"x-{number}: y\r\n" for number in range(300))
        (answer,) = run.talks(run.says(server, ask("GET", "/", server, lines)))
    assert answer.split()[1] == b"431"
    assert reasons(call) == ["LIMIT_HEADERS"]


def test_a_network_that_cannot_stream_is_refused() -> None:
    class Whole:
        """Only what the port of requests asks for."""

        def __init__(self, **_: Any) -> None:
            self._net = Names()
            self.resolve, self.send, self.close = self._net.resolve, self._net.send, self._net.close

    with site() as server:
        call = held(*rules(server, POST))
        run = Run(call, f"{HOST}:{server.port}", net=Whole)
        (answer,) = run.talks(run.says(server, ask("POST", "/", server, body=b"abc")))
        assert server.connections == 0
    assert answer.split()[1] == b"403"
    assert reasons(call) == ["BACKEND_MISSING"]


# What makes a request no request, or one for another place. No rule allows it, and one for its host would open more.
REFUSED_BY_NO_RULE = {
    **{name: head for name, (head, status) in FORMS.items() if status != "200"},
    "a folded header": "GET /x HTTP/1.1\r\nHost: {place}\r\nX-A: b\r\n  c\r\n",
    "two lengths": "POST /x HTTP/1.1\r\nHost: {place}\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
    "no request at all": "anything\r\n",
    "an upgrade with a body": (
        "POST /x HTTP/1.1\r\nHost: {place}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n"
    ),
}
ADVICE = re.compile(r"\badd\b|\btake\b|to allow it|--allow-|network:tcp")


@pytest.mark.parametrize("case", REFUSED_BY_NO_RULE)
def test_a_refusal_that_no_rule_would_lift_has_neither_a_use_nor_advice(case: str) -> None:
    with site() as server:
        call = held(*rules(server, "network:https:good.test"))
        run = Run(call, f"{HOST}:{server.port}")
        head = REFUSED_BY_NO_RULE[case].format(place=f"{HOST}:{server.port}", port=server.port)
        run.talks(run.says(server, f"{head}{LAST}\r\n".encode()))
        assert not server.seen
    (event,) = [event for event in call.events if isinstance(event, CapabilityDenied)]
    assert event.capability in ("tool:call:worker", "network:*:<malformed>")  # so `licet learn` reads none, either
    assert not ADVICE.search(refusal_line(event, call.reach)), event


def test_a_run_shows_who_does_not_let_itself_be_looked_into() -> None:
    with site() as server:
        call = held(*rules(server, GET))
        run = Run(call, f"{HOST}:{server.port}")
        run.talks(run.says(server, b"PRI * HTTP/2.0\r\n\r\n"))
        place = f"{HOST}:{server.port}"
    (event,) = [event for event in call.events if isinstance(event, CapabilityDenied)]
    line = refusal_line(event, call.reach)
    assert place in line
    assert not ADVICE.search(line)  # any program can break off a handshake, and a tunnel sees no request


def test_nothing_is_imported_where_nothing_is_looked_into() -> None:
    code = (
        "import sys, licet.sandbox.programs.proxy; print([one for one in sys.modules if 'sandbox.inspection' in one])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []
