"""Attacks of a program on the proxy that looks into its HTTPS, each of which works against a naive one."""

import socket
import ssl
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from licet.backends.memory import Answer
from licet.sandbox.inspection import kept_http
from loopback import Server, authority_file, serving
from sandbox.inspection.programs_talk import HOST, LAST, Run, Talk, all_of, ask, by_connect, held

HIDDEN = "hidden"


def page(exchange: Any) -> Answer:
    return Answer(200, (), b"a page")


def site() -> Any:
    return serving(page, names=(HOST, "other.test"))


def run_for(server: Server, *rules: str) -> Run:
    return Run(held(*(f"{rule}:{server.port}" for rule in rules)), f"{HOST}:{server.port}")


def naive(run: Run, server: Server, talk: Talk, *, trusting: bool) -> None:
    """Let a program talk to a proxy that checks the first line of each request that it notices, and passes bytes on.

    One that is `trusting` does so for the first request of a connection.
    """

    def serve() -> None:
        made, _ = listener.accept()
        with made, suppress(OSError, EOFError):
            _head(made)
            made.sendall(b"HTTP/1.1 200 Ok\r\n\r\n")
            with (
                run.authority.context(HOST).wrap_socket(made, server_side=True) as program,
                socket.create_connection(("127.0.0.1", server.port), 20) as there,
                trust.wrap_socket(there, server_hostname=HOST) as onwards,
            ):
                while True:
                    head = _head(program)
                    if not head.startswith((b"GET ", b"POST ")):
                        program.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")
                        continue  # and the body of what was refused is read as the next request
                    lines = head.lower().split(b"\r\n")
                    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                    onwards.sendall(head + b"".join(program.recv(1) for _ in range(length)))
                    while trusting and (more := program.recv(65536)):
                        onwards.sendall(more)

    with TemporaryDirectory() as place:
        trust = ssl.create_default_context(cafile=authority_file(Path(place)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with socket.create_connection(listener.getsockname(), 20) as made:
            talk(made)
        thread.join(20)


def _head(made: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        if not (more := made.recv(1)):
            raise EOFError
        head += more
    return head


def inner(method: str, server: Server) -> bytes:
    return ask(method, f"/{HIDDEN}", server)


def attacks(server: Server) -> dict[str, bytes]:
    """Requests by attack; each makes a server that trusts its proxy do what is hidden."""
    place, delete = f"{HOST}:{server.port}", inner("DELETE", server)
    absolute = f"GET https://other.test/{HIDDEN} HTTP/1.1\r\nHost: {place}\r\n{LAST}\r\n"
    chunks = b"0\r\n\r\n" + delete
    return {
        "another host": ask("GET", f"/{HIDDEN}", server, LAST, host="other.test"),
        "the absolute form of another host": absolute.encode(),
        "behind an allowed request": ask("GET", "/", server) + delete,
        "the body of a refused one": ask("PUT", "/", server, body=inner("GET", server)),
        "two lengths": ask("POST", "/", server, f"Content-Length: {len(delete)}\r\nContent-Length: 0\r\n") + delete,
        "a length and chunks": ask(
            "POST", "/", server, f"Content-Length: {len(chunks)}\r\nTransfer-Encoding: chunked\r\n"
        )
        + chunks,
    }


ATTACKS = tuple(attacks(Server("", 0)))


def reached(server: Server) -> bool:
    """Whether the server was asked for what the proxy should not let through."""
    return any(HIDDEN in one.url or one.host != HOST for one in server.seen)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_request_hides_in_another_one(attack: str) -> None:
    with site() as server:
        run = run_for(server, f"network:https:get@{HOST}", f"network:https:post@{HOST}", "network:https:get@other.test")
        request = attacks(server)[attack]

        def talk(made: socket.socket) -> None:
            with run.tls(made, server) as secured:
                secured.sendall(request)
                secured.settimeout(0.02)
                for _ in range(500):
                    if reached(server):
                        return
                    try:
                        if not secured.recv(65536):
                            return
                    except TimeoutError:
                        continue
                    except OSError:
                        return

        naive(run, server, talk, trusting=attack == "behind an allowed request")
        assert reached(server), "the attack does not work"
        server.seen.clear()
        run.talks(talk)
        assert not reached(server)


TRICKS = {
    "a bare line feed after a size": b"3\nabc\r\n0\r\n\r\n",
    "a bare line feed at the end": b"3\r\nabc\n0\r\n\r\n",
    "an endless size": b"0000000000000000000000003\r\nabc\r\n0\r\n\r\n",
    "a size that overflows": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "a negative size": b"-3\r\nabc\r\n0\r\n\r\n",
    "a size with a sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "a size in another form": b"0x3\r\nabc\r\n0\r\n\r\n",
    "a size with an underscore": b"0_3\r\nabc\r\n0\r\n\r\n",
    "a chunk that is longer than its size": b"2\r\nabc\r\n0\r\n\r\n",
    "an extension that ends with a bare line feed": b"3;\nabc\r\n0\r\n\r\n",
    "an endless extension": b"3;" + b"x" * 100_000 + b"\r\nabc\r\n0\r\n\r\n",
    "endless trailers": b"3\r\nabc\r\n0\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
    "a trailer that is folded": b"3\r\nabc\r\n0\r\nX: y\n z\r\n\r\n",
}


@pytest.mark.parametrize("chunks", TRICKS.values(), ids=TRICKS.keys())
def test_chunks_that_others_read_differently_are_not_sent_on(chunks: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_http, "ANSWER_SECONDS", 0.5)  # a size of many digits is that of a body which never ends
    with site() as server:
        run = run_for(server, f"network:https:post@{HOST}")
        request = ask("POST", "/", server, "Transfer-Encoding: chunked\r\n") + chunks
        (answer,) = run.talks(run.says(server, request + inner("DELETE", server)))
        assert not reached(server)
        assert all(one.body == b"abc" for one in server.seen)  # what is harmless goes on, written anew
    assert server.seen or answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 408")


def test_nothing_behind_a_refused_request_counts() -> None:
    with site() as server:
        run = run_for(server, f"network:https:get@{HOST}")
        first = ask("PUT", "/", server, body=b"x" * 100)
        (answer,) = run.talks(run.says(server, first, ask("GET", "/", server), ask("GET", "/", server)))
        assert server.connections == 0
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_head_of_a_hundred_megabytes_is_not_held() -> None:
    with site() as server:
        run = run_for(server, f"network:https:get@{HOST}")
        block = b"X: " + b"a" * (1 << 20) + b"\r\n"

        def talk(made: socket.socket) -> bytes:
            with run.tls(made, server) as secured:
                try:
                    secured.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n".encode())
                    for _ in range(100):
                        secured.sendall(block)
                except OSError:
                    pass
                return all_of(secured)

        tracemalloc.start()
        try:
            (answer,) = run.talks(talk)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert server.connections == 0
    assert answer[:12] in (b"HTTP/1.1 431", b"<broken off>")
    assert peak < 16 << 20


SLOW = {
    "no handshake": ("REQUEST_SECONDS", None),
    "half a head": ("REQUEST_SECONDS", b"GET / HTTP/1.1\r\nHost"),
    "half a body": ("ANSWER_SECONDS", b"POST / HTTP/1.1\r\nHost: {place}\r\nContent-Length: 9\r\n\r\nabc"),
    "no request": ("IDLE_SECONDS", b""),
}


@pytest.mark.parametrize(("limit", "said"), SLOW.values(), ids=SLOW.keys())
def test_a_program_that_stops_in_the_middle_is_not_waited_for(
    limit: str, said: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_http, limit, 0.5)
    with site() as server:
        run = run_for(server, f"network:https:post@{HOST}", f"network:https:get@{HOST}")

        def talk(made: socket.socket) -> bytes:
            if said is None:
                by_connect(made, HOST, server.port)
                return all_of(made)
            with run.tls(made, server) as secured:
                secured.sendall(said.replace(b"{place}", f"{HOST}:{server.port}".encode()))
                return all_of(secured)

        (answer,) = run.talks(talk)
        assert server.seen == []
    assert answer[:12] == (b"HTTP/1.1 408" if said else b"")


def test_hundreds_of_idle_connections_do_not_keep_out_the_next() -> None:
    with site() as server:
        run = run_for(server, f"network:https:get@{HOST}")

        def talk(first: socket.socket) -> bytes:
            address, opened = first.getpeername(), [run.tls(first, server)]
            try:
                opened += [run.tls(socket.create_connection(address, 20), server) for _ in range(200)]
                assert len(run.proxy._open) <= 128
                opened[-1].sendall(ask("GET", "/", server, LAST))
                return all_of(opened[-1])
            finally:
                for one in opened:
                    one.close()

        (answer,) = run.talks(talk)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert run.call.meter.check_files(run.call.meter.host_files) is None  # type: ignore[func-returns-value]
