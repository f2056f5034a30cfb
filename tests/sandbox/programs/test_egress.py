"""The proxy of a call: what it lets through, what it refuses, and that nothing is passed on unread."""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from guard.grants import grant
from licet.backends.http import HttpClient
from licet.backends.memory import Answer
from licet.guard.grant import Grant
from licet.sandbox.programs import proxy as egress
from licet.sandbox.programs.proxy import Egress
from loopback import Server, serving, talking


class Names(HttpClient):
    """The network of this machine, with names of our own."""

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        known = {"good.test": ("127.0.0.1",), "meta.test": ("169.254.169.254",), "inner.test": ("10.0.0.1",)}
        return known.get(host) or tuple(await super().resolve(host, port))


def held(*rules: str, **given: Any) -> Grant:
    return grant(rules, private=["127.0.0.0/8"], **given)


GRANT = ("network:http:good.test", "network:tcp:good.test")


def proxied(call: Grant, *talks: Callable[[socket.socket], Any]) -> list[Any]:
    """What some clients, one after the other, get from the proxy of a call."""

    async def run() -> list[Any]:
        proxy = Egress(call, Names())
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        proxy.serve(listener)
        found = []
        for talk in talks:

            def client(talk: Callable[[socket.socket], Any] = talk) -> Any:
                with socket.create_connection(address, 10) as made:
                    return talk(made)

            found.append(await asyncio.to_thread(client))
        await proxy.close()
        return found

    return asyncio.run(run())


def all_of(made: socket.socket) -> bytes:
    data = b""
    while more := made.recv(65536):
        data += more
    return data


def saying(request: bytes) -> Callable[[socket.socket], bytes]:
    def talk(made: socket.socket) -> bytes:
        made.sendall(request)
        return all_of(made)

    return talk


def page(exchange: Any) -> Answer:
    return Answer(200, (("content-type", "text/plain"), ("keep-alive", "x")), b"a page for " + exchange.body)


def get(server: Server, host: str = "good.test", method: str = "GET", more: str = "") -> bytes:
    return f"{method} http://{host}:{server.port}/x HTTP/1.1\r\nHost: other.test\r\n{more}\r\n".encode()


def test_a_request_is_checked_and_sent_anew() -> None:
    call = held(*GRANT)
    with serving(page) as server:
        lines = "X-Mine: 1\r\nProxy-Authorization: secret\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n"
        (answer,) = proxied(call, saying(get(server, more=lines)))
        seen = server.seen[0]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (head.splitlines()[:2], body) == ([b"HTTP/1.1 200 OK", b"Connection: close"], b"a page for ")
    assert b"keep-alive" not in head.lower()
    names = {name for name, _ in seen.headers}
    assert (seen.host, seen.url) == ("good.test", f"http://good.test:{server.port}/x")  # not what `Host` says
    assert "x-mine" in names
    assert not names & {"proxy-authorization", "x-hop"}
    assert [event.capability for event in call.events] == [f"network:http:get@good.test:{server.port}"]


REFUSED = {
    "a host that is not granted": ("GET", "evil.test", "403", "HOST_NOT_ALLOWED"),
    "a method beyond the class": ("DELETE", "good.test", "403", "SIDE_EFFECT_EXCEEDED"),
    "an address of its own": ("GET", "127.0.0.1", "403", "HOST_NOT_ALLOWED"),
    "metadata by name": ("GET", "meta.test", "403", "ADDRESS_NOT_ALLOWED"),
    "the inner network by name": ("GET", "inner.test", "403", "ADDRESS_NOT_ALLOWED"),
    "a name that nobody knows": ("GET", "unknown.invalid", "502", "RESOLVE_FAILED"),
    "tracing": ("TRACE", "good.test", "403", "HOST_NOT_ALLOWED"),
    "a user in the name": ("GET", "good.test@evil.test", "403", "HOST_NOT_ALLOWED"),
}


@pytest.mark.parametrize(("method", "host", "status", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_says_why_and_is_recorded(method: str, host: str, status: str, reason: str) -> None:
    call = held(
        "network:http:good.test", "network:http:*.test", "network:http:unknown.invalid", deny=("network:*:evil.test",)
    )
    with serving(page) as server:
        (answer,) = proxied(call, saying(get(server, host, method)))
        assert server.connections == 0
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert reason in answer.decode()
    assert call.events[-1].reason == reason


TUNNEL = "network:tcp:good.test"
# (rules, denies, method, status, what is recorded last)
PLAIN = {
    "a tunnel covers a request": ((TUNNEL,), (), "GET", "200", "network:tcp:good.test"),
    "with any method": ((TUNNEL,), (), "DELETE", "200", "network:tcp:good.test"),
    "rules about requests decide first": (
        (TUNNEL, "network:http:good.test"),
        (),
        "GET",
        "200",
        "network:http:get@good.test",
    ),
    "and alone": ((TUNNEL, "network:http:get@good.test"), (), "POST", "403", "network:http:post@good.test"),
    "and with the class": ((TUNNEL, "network:http:good.test"), (), "DELETE", "403", "network:http:delete@good.test"),
    "a denied request stays denied": (
        (TUNNEL,),
        ("network:write:good.test",),
        "POST",
        "403",
        "network:http:post@good.test",
    ),
    "a tunnel to another port does not": (("network:tcp:good.test:1",), (), "GET", "403", "network:http:get@good.test"),
}


@pytest.mark.parametrize(("rules", "denies", "method", "status", "use"), PLAIN.values(), ids=PLAIN)
def test_where_only_a_tunnel_is_allowed_a_plain_request_is_one(
    rules: tuple[str, ...], denies: tuple[str, ...], method: str, status: str, use: str
) -> None:
    call = held(*rules, deny=denies)
    with serving(page) as server:
        (answer,) = proxied(call, saying(get(server, "good.test", method)))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert call.events[-1].capability == f"{use}:{server.port}"


BAD = {
    "no request": b"hello\r\n\r\n",
    "two lengths": b"POST {u} HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "the same length twice": b"POST {u} HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "a list of lengths": b"POST {u} HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\na",
    "a length and chunks": b"POST {u} HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an odd coding": b"POST {u} HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a negative length": b"POST {u} HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "a folded line": b"GET {u} HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
    "another method beside it": b"GET {u} HTTP/1.1\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
    "chunks, to some servers": b"POST {u} HTTP/1.1\r\nContent-Length: 1\r\nTransfer_Encoding: chunked\r\n\r\na",
    "a length, to some servers": b"GET {u} HTTP/1.1\r\ncontent_length: 5\r\n\r\n",
    "a header of the proxy, to some servers": b"GET {u} HTTP/1.1\r\nProxy_Connection: close\r\n\r\n",
    "a space before the colon": b"GET {u} HTTP/1.1\r\nX : a\r\n\r\n",
    "a bare line feed": b"GET {u} HTTP/1.1\r\nX: a\nY: b\r\n\r\n",
    "letters that are not ASCII": b"GET {u} HTTP/1.1\r\nX: \xff\r\n\r\n",
    "a control character": b"GET {u} HTTP/1.1\r\nX: a\x01b\r\n\r\n",
    "a bare carriage return": b"GET {u} HTTP/1.1\r\nX: a\rY: b\r\n\r\n",
    "a head without end": b"GET {u} HTTP/1.1\r\nX: " + b"a" * 100_000,
    "two hosts": b"GET {u} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "another version": b"GET {u} HTTP/3.0\r\n\r\n",
    "too much": b"POST {u} HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
    "a chunk without a size": b"POST {u} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk that is longer": b"POST {u} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("request_", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_read_is_not_passed_on(request_: bytes) -> None:
    with serving(page) as server:
        url = f"http://good.test:{server.port}/".encode()
        (answer,) = proxied(held(*GRANT), saying(request_.replace(b"{u}", url)))
        assert server.seen == []
    assert answer.split()[1] in (b"400", b"413", b"431")


def test_bodies_by_length_and_in_chunks() -> None:
    with serving(page) as server:
        start = f"POST http://good.test:{server.port}/ HTTP/1.1\r\n".encode()
        answers = proxied(
            held(*GRANT),
            saying(start + b"Content-Length: 3\r\n\r\nabc"),
            saying(start + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\nTrailer: x\r\n\r\n"),
            saying(start + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc"),
        )
    assert [answer.endswith(b"a page for abc") for answer in answers] == [True] * 3
    assert answers[2].startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


@pytest.mark.parametrize(("chunks", "status"), [(2, b"200"), (3, b"413")])
def test_a_body_comes_in_so_many_chunks(chunks: int, status: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = "licet.sandbox.programs.http_connection.MOST_CHUNKS"
    monkeypatch.setattr(limit, 3)  # the last chunk, which is empty, is one of them
    with serving(page) as server:
        start = f"POST http://good.test:{server.port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        (answer,) = proxied(held(*GRANT), saying(start + b"1\r\na\r\n" * chunks + b"0\r\n\r\n"))
    assert answer.split()[1] == status


def test_a_second_request_on_the_same_connection_is_not_served() -> None:
    with serving(page) as server:
        (answer,) = proxied(held(*GRANT), saying(get(server) + get(server)))
        assert len(server.seen) == 1
    assert answer.count(b"HTTP/1.1 200") == 1


def test_an_answer_without_a_length_is_sent_in_chunks_or_ends_with_the_connection() -> None:
    def pieces(exchange: Any) -> Answer:
        return Answer(200, (), [b"one ", b"two"])

    with serving(pieces) as server:
        answer, old, bare = proxied(
            held(*GRANT),
            saying(get(server)),
            saying(get(server).replace(b"HTTP/1.1", b"HTTP/1.0")),
            saying(get(server, method="HEAD")),
        )
    assert answer.endswith(b"\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")
    assert old.endswith(b"\r\n\r\none two")
    assert bare.endswith(b"\r\n\r\n")


# Tunnels


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"heard " + await reader.read())
    await writer.drain()
    writer.close()


def by_connect(host: str, port: int) -> Callable[[socket.socket], bytes]:
    def talk(made: socket.socket) -> bytes:
        made.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        opened = made.recv(1000)
        if b" 200 " not in opened:
            return opened + all_of(made)
        made.sendall(b"you")
        made.shutdown(socket.SHUT_WR)
        return all_of(made)

    return talk


def by_socks(host: str, port: int, command: int = 1, methods: bytes = b"\0") -> Callable[[socket.socket], bytes]:
    def talk(made: socket.socket) -> bytes:
        made.sendall(bytes((5, len(methods))) + methods)
        if made.recv(2) != b"\5\0":
            return b"no method"
        try:
            where = b"\1" + socket.inet_aton(host)
        except OSError:
            where = b"\3" + bytes((len(host),)) + host.encode()
        made.sendall(bytes((5, command, 0)) + where + struct.pack(">H", port))
        code = made.recv(10)[1]
        if code:
            return f"code {code}".encode()
        made.sendall(b"you")
        made.shutdown(socket.SHUT_WR)
        return all_of(made)

    return talk


@pytest.mark.parametrize("way", [by_connect, by_socks])
def test_a_tunnel_to_what_is_granted(way: Any) -> None:
    call = held(*GRANT)
    with talking(echo) as server:
        assert proxied(call, way("good.test", server.port)) == [b"heard you"]
    assert [event.capability for event in call.events] == [f"network:tcp:good.test:{server.port}"]


TUNNELS: dict[str, tuple[tuple[str, ...], str, dict[str, Any], str]] = {
    "a host that is not granted": (GRANT, "evil.test", {}, "HOST_NOT_ALLOWED"),
    "requests are not connections": (("network:https:good.test",), "good.test", {}, "HOST_NOT_ALLOWED"),
    "a rule for everything, at a class that is watched": (
        ("network:*:good.test",),
        "good.test",
        {},
        "SIDE_EFFECT_EXCEEDED",
    ),
    "a call that only reads": (GRANT, "good.test", {"effect": "read_only"}, "SIDE_EFFECT_EXCEEDED"),
    "metadata by name": (("network:tcp:meta.test",), "meta.test", {}, "ADDRESS_NOT_ALLOWED"),
    "metadata": (("network:tcp:169.254.169.254",), "169.254.169.254", {}, "ADDRESS_NOT_ALLOWED"),
    "a star": (GRANT, "*", {}, "HOST_NOT_ALLOWED"),
}


@pytest.mark.parametrize("way", [by_connect, by_socks])
@pytest.mark.parametrize(("rules", "host", "given", "reason"), TUNNELS.values(), ids=TUNNELS.keys())
def test_a_tunnel_needs_what_a_direct_connection_needs(
    way: Any, rules: tuple[str, ...], host: str, given: dict[str, Any], reason: str
) -> None:
    call = held(*rules, **given)
    with talking(echo) as server:
        (answer,) = proxied(call, way(host, server.port))
        assert server.connections == 0
    assert call.events[-1].reason == reason
    assert reason.encode() in answer or answer == b"code 2"


@pytest.mark.parametrize(
    ("talk", "said"),
    [
        (by_socks("good.test", 1, command=2), b"code 7"),  # to listen
        (by_socks("good.test", 1, command=3), b"code 7"),  # datagrams
        (by_socks("good.test", 1, methods=b"\2"), b"no method"),
        (by_socks("good.test", 1), b"code 4"),  # nobody is there
        (saying(b"CONNECT good.test HTTP/1.1\r\n\r\n"), b"HTTP/1.1 403"),
        (saying(b"CONNECT good.test:0 HTTP/1.1\r\n\r\n"), b"HTTP/1.1 403"),
        (saying(b"CONNECT good.test:0000001 HTTP/1.1\r\n\r\n"), b"HTTP/1.1 403"),  # not read as port 0
        (saying(b"CONNECT good.test:0009001 HTTP/1.1\r\n\r\n"), b"HTTP/1.1 403"),  # not read as port 900
        (saying(b"CONNECT good.test:99999 HTTP/1.1\r\n\r\n"), b"HTTP/1.1 403"),
        (saying(b"CONNECT good.test:1 HTTP/1.1\r\n\r\n"), b"HTTP/1.1 502"),
    ],
)
def test_what_a_tunnel_is_not_for(talk: Any, said: bytes) -> None:
    assert proxied(held(*GRANT), talk)[0].startswith(said)


# Limits


def test_a_call_that_is_over_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    call = held(*GRANT)
    call.end()
    with serving(page) as server:
        answer, tunnel = proxied(call, saying(get(server)), by_socks("good.test", server.port))
        assert server.connections == 0
    assert b"SESSION_ENDED" in answer
    assert tunnel == b"code 2"


@contextmanager
def smaller(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> Iterator[None]:
    for name, value in limits.items():
        monkeypatch.setattr(egress, name, value)
    yield


def test_requests_of_one_call_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(made: socket.socket) -> bytes:
        try:
            return saying(get(server))(made)
        except ConnectionError:
            return b""

    with serving(page) as server, smaller(monkeypatch, MOST_REQUESTS=2):
        answers = proxied(held(*GRANT), tried, tried, tried)
    assert [bool(answer) for answer in answers] == [True, True, False]


def test_a_client_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with smaller(monkeypatch, _SECONDS=0.2):
        assert proxied(held(*GRANT), all_of) == [b""]


ANSWERS = {
    "by its length": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", b"200 OK", b"abc"),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x\r\nbc\r\n0\r\n\r\n",
        b"200 OK",
        b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
    ),
    "to the end": (b"HTTP/1.0 404 What\r\n\r\nabc", b"404 Not Found", b"abc"),
    "after a word before it": (b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"204 No Content", b""),
    "no answer": (b"hello\r\n\r\n", b"502 Bad Gateway", b"CONNECT_FAILED"),
    "nothing": (b"", b"502 Bad Gateway", b"CONNECT_FAILED"),
    "a header that is none": (b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", b"502 Bad Gateway", b"CONNECT_FAILED"),
    "a head without end": (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000, b"502 Bad Gateway", b"CONNECT_FAILED"),
    "less than its length": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", None, b""),
    "a chunk of no size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", None, b""),
}


@pytest.mark.parametrize(("answer", "status", "body"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_ends_where_it_says(answer: bytes, status: bytes | None, body: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    def asked(made: socket.socket) -> bytes:
        try:
            return saying(get(server))(made)
        except ConnectionError:  # broken off, so that nobody takes it for the whole
            return b"broken"

    with talking(talk) as server:
        (found,) = proxied(held(*GRANT), asked)
    if status is None:
        assert found == b"broken"
    else:
        assert found.startswith(b"HTTP/1.1 " + status)
        assert body in found.partition(b"\r\n\r\n")[2]


# What requests cost the host ------------------------------------------------------------------------------------------


def limited(**limits: int) -> Grant:
    made = held("network:http:good.test", effect="full")
    return Grant(made.request, made.reach, made.manifest_digest, (), made._ask, limits)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "get", "Get", "options"])
@pytest.mark.parametrize(
    "framing", ["Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
@pytest.mark.sampled(5)
def test_a_request_that_only_reads_has_no_body(method: str, framing: str) -> None:
    with serving(page) as server:
        where = f"http://good.test:{server.port}/"
        bad, good = proxied(
            held("network:http:good.test"),
            saying(f"{method} {where} HTTP/1.1\r\nHost: x\r\n{framing}".encode()),
            saying(f"{method} {where} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()),
        )
    assert bad.startswith(b"HTTP/1.1 400 ")
    assert f"{method.upper()} has no body".encode() in bad or method == "HEAD"  # whose answer has none
    assert good.startswith(b"HTTP/1.1 200 ")
    assert len(server.seen) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_count_as_memory_of_the_call(chunked: bool) -> None:
    body = bytes(2 << 20)
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    with serving(page) as server:
        request = f"POST http://good.test:{server.port}/ HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode() + framed
        call = limited(host_memory_mb=1)
        (refused,) = proxied(call, _to_the_end(request))
        call_with_more = limited(host_memory_mb=5)
        fine, again = proxied(call_with_more, saying(request), saying(request))
    assert refused.startswith(b"HTTP/1.1 413 "), refused
    assert b"LIMIT_HOST_MEMORY" in refused
    assert "LIMIT_HOST_MEMORY" in [event.reason for event in call.events if hasattr(event, "reason")]
    assert fine.startswith(b"HTTP/1.1 200 ")
    assert again.startswith(b"HTTP/1.1 200 ")  # what was sent is given back
    assert (call.meter.memory, call_with_more.meter.memory) == (0, 0)


def _to_the_end(request: bytes) -> Callable[[socket.socket], bytes]:
    """Send as much as is taken, and read what was said before the end."""

    def talk(made: socket.socket) -> bytes:
        with suppress(OSError):
            made.sendall(request)
        data = b""
        with suppress(OSError):
            while more := made.recv(65536):
                data += more
        return data

    return talk


def test_header_lines_of_a_request_are_limited() -> None:
    with serving(page) as server:
        start = f"GET http://good.test:{server.port}/ HTTP/1.1\r\n"
        lines = "".join(f"x-{number}: y\r\n" for number in range(8))
        call = limited(request_headers=8)
        fine, many = proxied(
            call,
            saying(f"{start}{lines}\r\n".encode()),
            saying(f"{start}{lines}y: y\r\n\r\n".encode()),
        )
    assert fine.startswith(b"HTTP/1.1 200 ")
    assert many.startswith(b"HTTP/1.1 431 ")
    assert b"LIMIT_HEADERS" in many


def test_connections_beyond_the_open_files_of_a_call_wait() -> None:
    call = limited(host_files=16)

    async def run() -> list[int]:
        proxy = Egress(call, Names())
        listener = socket.create_server(("127.0.0.1", 0))
        proxy.serve(listener)
        address, open_then = listener.getsockname(), []
        made = [await asyncio.open_connection(*address) for _ in range(20)]
        for left in (8, 8, 4):
            while len(proxy._open) < left:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.15)
            open_then.append(len(proxy._open))
            for _, writer in made[:8]:
                writer.close()
            del made[:8]
        await proxy.close()
        return open_then

    assert asyncio.run(run()) == [8, 8, 4]
    assert [event.reason for event in call.events if hasattr(event, "reason")].count("LIMIT_HOST_FILES") == 1
