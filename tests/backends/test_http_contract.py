"""The contract of the http port, on the memory twin and on real sockets at loopback addresses."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from licet.backends.http import HttpClient
from licet.backends.memory import Answer, MemoryHttp
from licet.guard.ports import Exchange, Reply, StreamingHttp, Unconnected, Unreached, Unresolved
from loopback import authority_file, serving, talking

HOST = "site.test"


def site(asked: Exchange) -> Answer:
    """A site with one page for each case."""
    match asked.url.partition("://")[2].partition("/")[2]:
        case "echo":
            kept = [line for line in asked.headers if line[0].lower().startswith("x-")]
            cookies = ("X-Cookies", str(sum(line[0].lower() == "cookie" for line in asked.headers)))
            return Answer(200, [("X-Method", asked.method), cookies, *kept], asked.body)
        case "pieces":
            return Answer(200, (), [b"one ", b"two ", b"three"])
        case "moved":
            return Answer(302, [("Location", "http://elsewhere.test/"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
        case "packed":
            return Answer(200, [("Content-Encoding", "gzip")], gzip.compress(b"packed", mtime=0))
        case "large":
            return Answer(200, (), bytes(200_000))
        case "broken":
            return Answer(200, (), breaking())
        case "none":
            return Answer(204)
        case _:
            return Answer(404, (), b"nothing here")


def breaking() -> Iterator[bytes]:
    yield b"a beginning"
    raise ValueError("and no end")


@dataclass(frozen=True)
class Net:
    """A network with the site on it, and its address."""

    http: StreamingHttp
    origin: str
    port: int
    address: str
    version: str

    def to(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Exchange:
        lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return Exchange(method, f"{self.origin}/{path}", HOST, self.port, self.address, lines, body, 5.0)


@contextmanager
def in_memory(_: Path) -> Iterator[Net]:
    yield Net(MemoryHttp(site, {HOST: ["192.0.2.1"]}), f"http://{HOST}:81", 81, "192.0.2.1", "HTTP/1.1")


@contextmanager
def plain(_: Path) -> Iterator[Net]:
    with serving(site) as server:
        yield Net(HttpClient(), f"http://{HOST}:{server.port}", server.port, "127.0.0.1", "HTTP/1.1")


@contextmanager
def over_tls(place: Path) -> Iterator[Net]:
    with serving(site, names=(HOST,)) as server:
        client = HttpClient(ca_file=authority_file(place))
        yield Net(client, f"https://{HOST}:{server.port}", server.port, "127.0.0.1", "HTTP/1.1")


@contextmanager
def over_http2(place: Path) -> Iterator[Net]:
    with serving(site, "127.0.0.2", names=(HOST,), http2=True) as server:
        client = HttpClient(ca_file=authority_file(place))
        yield Net(client, f"https://{HOST}:{server.port}", server.port, "127.0.0.2", "HTTP/2")


NETS: list[Callable[[Path], AbstractContextManager[Net]]] = [in_memory, plain, over_tls, over_http2]


@pytest.fixture(params=NETS, ids=lambda made: made.__name__)
def net(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Net]:
    with request.param(tmp_path) as made:
        yield made


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def ask(net: Net, exchange: Exchange) -> tuple[int, dict[str, str], bytes]:
    async with net.http.send(exchange) as reply:
        headers = {name.lower(): value for name, value in reply.headers}
        return reply.status, headers, b"".join([piece async for piece in reply.body])


def test_an_answer_has_status_headers_and_body(net: Net) -> None:
    async def work() -> None:
        async with net.http.send(net.to("pieces")) as reply:
            assert (reply.status, reply.http_version) == (200, net.version)
            assert b"".join([piece async for piece in reply.body]) == b"one two three"
        assert (await ask(net, net.to("missing")))[::2] == (404, b"nothing here")

    run(work())


@pytest.mark.parametrize(
    ("method", "body"), [("GET", b""), ("POST", b"a body"), ("PUT", b""), ("DELETE", b"x" * 70_000), ("PROPFIND", b"")]
)
def test_method_headers_and_body_arrive(net: Net, method: str, body: bytes) -> None:
    status, headers, echoed = run(ask(net, net.to("echo", method, body, x_one="1", X_Two="zwei")))
    assert (status, headers["x-method"], echoed) == (200, method, body)
    assert (headers["x-one"], headers["x-two"]) == ("1", "zwei")


async def pieces(*given: bytes, then: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece
    if then is not None:
        raise then


async def stream(net: Net, body: AsyncIterator[bytes], length: int | None, method: str = "POST") -> tuple[str, bytes]:
    asked = net.to("echo", method)
    async with net.http.send_streamed(asked, body, length) as reply:
        return dict(reply.headers)["X-Method" if net.version == "HTTP/1.1" else "x-method"], await whole(reply)


async def whole(reply: Reply) -> bytes:
    return b"".join([piece async for piece in reply.body])


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("length", [140_003, None])
def test_a_body_is_sent_in_pieces(net: Net, method: str, length: int | None) -> None:
    async def work() -> None:
        for _ in range(2):  # the second one on the same connection, if that is kept
            body = pieces(b"one", b"", b"x" * 70_000, b"y" * 70_000)
            assert await stream(net, body, length, method) == (method, b"one" + b"x" * 70_000 + b"y" * 70_000)

    run(work())


def test_an_empty_body_is_sent_in_pieces(net: Net) -> None:
    assert run(stream(net, pieces(), 0)) == ("POST", b"")
    assert run(stream(net, pieces(), None)) == ("POST", b"")


def test_an_error_of_a_body_comes_out_and_nobody_is_answered(net: Net) -> None:
    async def work() -> None:
        for length in (None, 9):
            with pytest.raises(KeyError, match="mine"):
                await stream(net, pieces(b"abc", then=KeyError("mine")), length)
        assert (await ask(net, net.to("none")))[0] == 204

    run(work())


@pytest.mark.parametrize("length", [2, 4])
def test_a_body_has_the_length_that_was_stated(net: Net, length: int) -> None:
    with pytest.raises(Unconnected, match="cannot be sent"):
        run(stream(net, pieces(b"abc"), length))


def test_an_unreached_server_asks_for_no_piece() -> None:
    begun = []

    async def body() -> AsyncIterator[bytes]:
        begun.append(True)
        yield b"abc"

    async def work() -> None:
        net = Net(HttpClient(), "http://site.test:1", 1, "127.0.0.1", "HTTP/1.1")
        with pytest.raises(Unreached):
            await stream(net, body(), 3)

    run(work())
    assert not begun


async def shouting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"get /loud" not in head or b"\r\nconnection: upgrade\r\nupgrade: shouts\r\n" not in head:
        writer.write(b"HTTP/1.1 426 No\r\nContent-Length: 2\r\n\r\nno")
    else:
        writer.write(b"HTTP/1.1 101 Yes\r\nUpgrade: shouts\r\nConnection: upgrade\r\n\r\nFIRST")
        while said := await reader.read(100):
            writer.write(said.upper())
    await writer.drain()


def shouts(asked: Exchange) -> Answer:
    loud = asked.url.endswith("/loud") and ("upgrade", "shouts") in asked.headers
    return Answer(101, [("Upgrade", "shouts")], talk=bytes.upper) if loud else Answer(426, (), b"no")


@contextmanager
def upgrading_in_memory(_: Path) -> Iterator[Net]:
    yield Net(MemoryHttp(shouts, {HOST: ["192.0.2.1"]}), f"http://{HOST}:81", 81, "192.0.2.1", "HTTP/1.1")


@contextmanager
def upgrading(place: Path) -> Iterator[Net]:
    with talking(shouting, names=(HOST,)) as server:
        client = HttpClient(ca_file=authority_file(place))
        yield Net(client, f"https://{HOST}:{server.port}", server.port, "127.0.0.1", "HTTP/1.1")


@pytest.mark.parametrize("made", [upgrading_in_memory, upgrading], ids=lambda made: made.__name__)
def test_a_connection_is_upgraded(made: Any, tmp_path: Path) -> None:
    async def work(net: Net) -> None:
        async with net.http.upgrade(net.to("loud"), "shouts") as reply:
            assert (reply.status, dict(reply.headers)["Upgrade"]) == (101, "shouts")
            assert reply.upgraded is not None
            heard = b"" if made is upgrading_in_memory else await reply.upgraded.read()
            for word in (b"one ", b"two"):
                await reply.upgraded.write(word)
                heard += await reply.upgraded.read()
            assert heard in (b"ONE TWO", b"FIRSTONE TWO")
        async with net.http.upgrade(net.to("quiet"), "shouts") as reply:
            assert (reply.status, reply.upgraded, await whole(reply)) == (426, None, b"no")

    with made(tmp_path) as net:
        run(work(net))


def test_nothing_is_followed_decoded_or_remembered(net: Net) -> None:
    async def work() -> None:
        async with net.http.send(net.to("moved")) as reply:
            assert reply.status == 302
            cookies = [value for name, value in reply.headers if name.lower() == "set-cookie"]
            assert cookies == ["a=1", "b=2"]
            assert [piece async for piece in reply.body] == []
        status, headers, packed = await ask(net, net.to("packed"))
        assert (status, headers["content-encoding"], gzip.decompress(packed)) == (200, "gzip", b"packed")
        _, echoed, _ = await ask(net, net.to("echo"))
        assert echoed["x-cookies"] == "0"

    run(work())


def test_answers_without_a_body_have_none(net: Net) -> None:
    async def work() -> None:
        assert (await ask(net, net.to("none")))[::2] == (204, b"")

    run(work())


def test_after_an_unfinished_answer_the_next_one_is_complete(net: Net) -> None:
    async def work() -> None:
        for _ in range(3):
            async with net.http.send(net.to("large")) as reply:
                async for _ in reply.body:
                    break
        status, _, body = await ask(net, net.to("large"))
        assert (status, len(body)) == (200, 200_000)

    run(work())


def test_an_error_inside_comes_out_and_the_next_request_works(net: Net) -> None:
    async def work() -> None:
        with pytest.raises(KeyError, match="mine"):
            async with net.http.send(net.to("large")):
                raise KeyError("mine")
        assert (await ask(net, net.to("none")))[0] == 204

    run(work())


def test_a_body_that_breaks_off_is_no_answer(net: Net) -> None:
    with pytest.raises(Unconnected) as broken:
        run(ask(net, net.to("broken")))
    assert not isinstance(broken.value, Unreached)
    assert "and no end" not in str(broken.value)


def test_many_requests_at_once_do_not_mix(net: Net) -> None:
    async def work() -> None:
        bodies = [str(number).encode() * 50 for number in range(20)]
        found = await asyncio.gather(*(ask(net, net.to("echo", "POST", body)) for body in bodies))
        assert [body for _, _, body in found] == bodies

    run(work())


def test_a_network_works_in_one_loop_after_another(net: Net) -> None:
    for _ in range(3):
        assert run(ask(net, net.to("none")))[0] == 204


def test_an_address_is_its_own_answer(net: Net) -> None:
    assert tuple(run(net.http.resolve("127.0.0.1", 80))) == ("127.0.0.1",)
    assert tuple(run(net.http.resolve("[::1]", 80))) == ("::1",)


def test_an_unknown_name_is_unresolved(net: Net) -> None:
    with pytest.raises(Unresolved):
        run(net.http.resolve("no-such-name.invalid", 80))


def test_closing_twice_is_fine_and_the_network_can_be_used_again(net: Net) -> None:
    async def work() -> None:
        await ask(net, net.to("none"))
        await net.http.close()
        await net.http.close()
        assert (await ask(net, net.to("none")))[0] == 204

    run(work())


def test_a_port_without_a_server_is_unreached() -> None:
    with serving(site) as server:
        port = server.port
    exchange = Exchange("GET", f"http://{HOST}:{port}/", HOST, port, "127.0.0.1", (), b"", 5.0)
    for http in (HttpClient(), MemoryHttp({}, {HOST: ["127.0.0.1"]})):
        with pytest.raises(Unreached, match="connection refused"):
            run(ask(Net(http, "", port, "", ""), exchange))


# Only for the real network ------------------------------------------------------------------------------------------


def test_localhost_resolves_to_loopback_addresses() -> None:
    found: Sequence[str] = run(HttpClient().resolve("localhost", 80))
    assert set(found) <= {"127.0.0.1", "::1"}
    assert len(set(found)) == len(found) > 0


@pytest.mark.parametrize("http2", [False, True])
def test_connections_are_kept_and_used_again(tmp_path: Path, http2: bool) -> None:
    async def work() -> None:
        for _ in range(5):
            assert (await ask(there, there.to("echo", "POST", b"x")))[0] == 200

    with serving(site, names=(HOST,), http2=http2) as server:
        client = HttpClient(ca_file=authority_file(tmp_path))
        there = Net(client, f"https://{HOST}:{server.port}", server.port, "127.0.0.1", "")
        run(work())
        assert server.connections == 1
        assert {asked.url for asked in server.seen} == {f"https://{HOST}:{server.port}/echo"}


def test_a_connection_made_for_one_name_or_address_is_not_used_for_another(tmp_path: Path) -> None:
    async def work() -> None:
        for host in (HOST, "other.test"):
            url = f"https://{host}:{server.port}/none"
            async with client.send(Exchange("GET", url, host, server.port, "127.0.0.1", (), b"", 5.0)) as reply:
                assert reply.status == 204

    with serving(site, names=(HOST, "other.test"), http2=True) as server:
        client = HttpClient(ca_file=authority_file(tmp_path))
        run(work())
        assert server.connections == 2


@pytest.mark.parametrize("http2", [False, True])
def test_a_connection_whose_answer_was_left_early_is_not_used_again(tmp_path: Path, http2: bool) -> None:
    # Over HTTP/2 the rest of the answer would fill the window that all streams of a connection share.
    async def work() -> None:
        async with there.http.send(there.to("large")):
            assert (await ask(there, there.to("echo", "POST", b"beside")))[2] == b"beside"
        assert (await ask(there, there.to("echo", "POST", b"after")))[2] == b"after"

    with serving(site, names=(HOST,), http2=http2) as server:
        client = HttpClient(ca_file=authority_file(tmp_path))
        there = Net(client, f"https://{HOST}:{server.port}", server.port, "127.0.0.1", "")
        run(work())
        assert server.connections == 2


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize(
    ("method", "body", "connections"),
    [("POST", b"x", 1), ("PUT", b"x", 1), ("PATCH", b"x", 1), ("DELETE", b"", 1), ("DELETE", b"x", 2), ("GET", b"x", 2)]
    + [("PROPFIND", b"x", 2), ("post", b"x", 2)],
)
@pytest.mark.sampled(8)
def test_a_body_that_servers_may_leave_unread_is_the_last_of_its_connection(
    tmp_path: Path, http2: bool, method: str, body: bytes, connections: int
) -> None:
    async def work() -> None:
        assert (await ask(there, there.to("echo", method, body)))[2] == body
        assert (await ask(there, there.to("none")))[0] == 204

    with serving(site, names=(HOST,), http2=http2) as server:
        client = HttpClient(ca_file=authority_file(tmp_path))
        there = Net(client, f"https://{HOST}:{server.port}", server.port, "127.0.0.1", "")
        run(work())
        assert server.connections == connections
    told = ("connection", "close") in server.seen[0].headers
    assert told is (connections == 2 and not http2)  # HTTP/2 has no such header


def answer_of(size: int) -> bytes:
    """An answer of so many bytes in all: as many as are read at once, or a multiple."""
    length = size - 43
    return b"HTTP/1.1 200 ok\r\ncontent-length: %06d\r\n\r\n" % length + b"x" * length


EXTRA = b"HTTP/1.1 200 ok\r\ncontent-length: 4\r\n\r\nevil"
ANSWERS = {
    "behind a body": ("GET", b"HTTP/1.1 200 ok\r\ncontent-length: 2\r\n\r\nok"),
    "behind chunks": ("GET", b"HTTP/1.1 200 ok\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    "behind no content": ("GET", b"HTTP/1.1 204 ok\r\n\r\n"),
    "behind a head": ("HEAD", b"HTTP/1.1 200 ok\r\ncontent-length: 70\r\n\r\n"),
    **{f"behind {size} bytes": ("GET", answer_of(size)) for size in (16_384, 32_768, 65_536, 131_072)},
}


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "over TLS"])
@pytest.mark.parametrize(("method", "answer"), ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.sampled(8)
def test_bytes_behind_an_answer_are_not_the_next_answer(
    tmp_path: Path, method: str, answer: bytes, secured: bool
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first = head.split()[1] == b"/first"
            writer.write(answer + EXTRA if first else b"HTTP/1.1 200 ok\r\ncontent-length: 4\r\n\r\nmine")
            await writer.drain()

    async def work() -> None:
        await ask(there, there.to("first", method))
        assert (await ask(there, there.to("second")))[2] == b"mine"
        assert (await ask(there, there.to("third")))[2] == b"mine"

    with talking(talk, names=(HOST,) if secured else ()) as server:
        origin = f"{'https' if secured else 'http'}://{HOST}:{server.port}"
        there = Net(HttpClient(ca_file=authority_file(tmp_path)), origin, server.port, "127.0.0.1", "")
        run(work())
        assert server.connections == 2  # and the second is kept


@pytest.mark.parametrize(
    ("host", "trusted", "words"),
    [
        ("other.test", True, "its certificate is not trusted: Hostname mismatch"),
        (HOST, False, "its certificate is not trusted: "),
        ("127.0.0.1", True, "its certificate is not trusted: IP address mismatch"),
    ],
)
def test_a_certificate_must_be_trusted_and_for_the_name(tmp_path: Path, host: str, trusted: bool, words: str) -> None:
    with serving(site, names=(HOST,)) as server:
        client = HttpClient(ca_file=authority_file(tmp_path)) if trusted else HttpClient()
        url = f"https://{host}:{server.port}/none"
        exchange = Exchange("GET", url, host, server.port, "127.0.0.1", (), b"", 5.0)
        with pytest.raises(Unreached) as refused:
            run(ask(Net(client, "", 0, "", ""), exchange))
        assert str(refused.value).startswith(words)
        assert server.seen == []


def test_a_certificate_for_an_address_is_one_for_its_url(tmp_path: Path) -> None:
    with serving(site, names=("127.0.0.1",)) as server:
        client = HttpClient(ca_file=authority_file(tmp_path))
        url = f"https://127.0.0.1:{server.port}/none"
        exchange = Exchange("GET", url, "127.0.0.1", server.port, "127.0.0.1", (), b"", 5.0)
        assert run(ask(Net(client, "", 0, "", ""), exchange))[0] == 204


def test_only_so_many_hosts_are_kept_open() -> None:
    async def work() -> None:
        for number in (0, 1, 2, 0, 3):
            host = f"h{number}.test"
            url = f"http://{host}:{server.port}/none"
            await ask(Net(client, "", 0, "", ""), Exchange("GET", url, host, server.port, "127.0.0.1", (), b"", 5.0))
        (pools,) = client._loops.values()
        assert [key[1] for key, _ in pools.idle] == ["h0.test", "h3.test"]

    with serving(site) as server:
        client = HttpClient(most_idle=2)
        run(work())
    assert server.connections == 5


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"", "ended too early"),
        (b"hello\r\n\r\n", "not valid HTTP"),
        (b"HTTP/1.1 200 ok\r\n" + b"x: y\r\n" * 40_000, "too long a head"),
        (b"HTTP/1.1 200 ok\r\ncontent-length: 9\r\n\r\nshort", "ended too early"),
        (b"HTTP/1.1 200 ok\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx", "not valid HTTP"),
        (b"HTTP/1.1 200 ok\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "not valid HTTP"),
    ],
)
def test_an_answer_that_is_not_http_is_an_error(sent: bytes, words: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    with talking(talk) as server:
        net = Net(HttpClient(), f"http://{HOST}:{server.port}", server.port, "127.0.0.1", "")
        with pytest.raises(Unconnected, match=words):
            run(ask(net, net.to("")))


def test_a_silent_server_is_given_up() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with talking(talk) as server:
        net = Net(HttpClient(), f"http://{HOST}:{server.port}", server.port, "127.0.0.1", "")
        with pytest.raises(Unconnected, match="no answer in time"):
            run(ask(net, replace(net.to(""), timeout=1.0)))
