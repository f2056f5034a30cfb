"""Tunnels beside places that are looked into: none of them leads there under another name, or by an address."""

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from typing import Any

import pytest

from licet.backends.memory import Answer
from loopback import Server, serving, talking
from sandbox.inspection.programs_talk import HOST, LAST, Run, all_of, ask, by_connect, by_socks, held, reasons

OTHER = "other.test"


def site() -> Any:
    return serving(lambda exchange: Answer(200, (), b"reached"), names=(HOST,))


def beside(server: Server, *rules: str) -> Run:
    """A run that may open a tunnel to anything, beside a place that it looks into."""
    port = server.port
    return Run(held(f"network:tcp:*:{port}", f"network:https:get@{HOST}:{port}", *rules), f"{HOST}:{port}")


def by_number(made: socket.socket, host: str, port: int) -> None:
    made.sendall(b"\5\1\0")
    assert made.recv(2) == b"\5\0"
    made.sendall(b"\5\1\0\1" + socket.inet_aton(host) + struct.pack(">H", port))
    assert made.recv(10)[1] == 0


def whole(message: bytes) -> list[bytes]:
    return [message]


def deletes(server: Server, name: str | None, host: str, way: Any = by_connect, sent: Any = whole) -> Any:
    """A program that asks for a name in a tunnel to a host; `sent` cuts its first message."""

    def talk(made: socket.socket) -> bytes:
        way(made, host, server.port)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        secured = context.wrap_bio(incoming, outgoing, server_hostname=name)
        heard = b""
        try:
            while True:
                try:
                    secured.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    for piece in sent(outgoing.read()):
                        made.sendall(piece)
                    if not (data := made.recv(65536)):
                        return b""
                    incoming.write(data)
            secured.write(ask("DELETE", "/", server, LAST))
            made.sendall(outgoing.read())
            while not heard.endswith(b"reached") and (data := made.recv(65536)):
                incoming.write(data)
                with suppress(ssl.SSLWantReadError):
                    while more := secured.read(65536):
                        heard += more
        except OSError:
            pass
        return heard

    return talk


def in_bytes(message: bytes) -> list[bytes]:
    return [message[number : number + 1] for number in range(len(message))]


def in_records(message: bytes) -> list[bytes]:
    """The same handshake in records of 20 bytes."""
    version, content = message[:3], message[5:]
    parts = [content[start : start + 20] for start in range(0, len(content), 20)]
    return [b"".join(version + struct.pack(">H", len(part)) + part for part in parts)]


WAYS = {
    "by its address": ("127.0.0.1", by_connect, whole),
    "by its address, over SOCKS": ("127.0.0.1", by_number, whole),
    "by another name": (OTHER, by_connect, whole),
    "by another name, over SOCKS": (OTHER, by_socks, whole),
    "in small pieces": (OTHER, by_connect, in_bytes),
    "in small records": (OTHER, by_connect, in_records),
}


@pytest.mark.parametrize("name", [HOST, "GOOD.test"])
@pytest.mark.parametrize(("host", "way", "sent"), WAYS.values(), ids=WAYS.keys())
def test_no_tunnel_asks_for_a_place_that_is_looked_into(host: str, way: Any, sent: Any, name: str) -> None:
    with site() as server:
        run = beside(server)
        (answer,) = run.talks(deletes(server, name, host, way, sent))
        assert server.seen == []
    assert answer == b""
    assert reasons(run.call) == ["HOST_NOT_ALLOWED"]


def test_a_tunnel_for_another_host_goes_on() -> None:
    with site() as server:
        run = beside(server)
        answers = run.talks(deletes(server, OTHER, OTHER), deletes(server, None, "127.0.0.1"))
    assert all(answer.endswith(b"reached") for answer in answers)
    assert reasons(run.call) == []


@pytest.mark.parametrize(("host", "is_open"), [("127.0.0.1", False), ("[::ffff:127.0.0.1]", False), (OTHER, True)])
def test_no_tunnel_leads_to_the_address_of_a_place_that_is_looked_into(host: str, is_open: bool) -> None:
    with site() as server:
        run = beside(server)

        def asks(made: socket.socket) -> bytes:
            made.sendall(f"CONNECT {host}:{server.port} HTTP/1.1\r\n\r\n".encode())
            made.shutdown(socket.SHUT_WR)
            return all_of(made)

        first, answer = run.talks(run.says(server, ask("GET", "/", server, LAST)), asks)
    assert first.endswith(b"reached")
    assert answer.split()[1] == (b"200" if is_open else b"403")


@pytest.mark.parametrize(("host", "named"), [(OTHER, False), ("127.0.0.1", True)])
def test_at_such_an_address_a_tunnel_says_whom_it_asks_for(host: str, named: bool) -> None:
    with site() as server:
        run = beside(server, *([f"network:tcp:127.0.0.1:{server.port}"] if named else []))
        _, answer = run.talks(run.says(server, ask("GET", "/", server, LAST)), deletes(server, None, host))
        assert len(server.seen) == 1 + named
    assert answer.endswith(b"reached") == named


async def first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that speaks first."""
    writer.write(b"ready ")
    await writer.drain()
    writer.write(b"heard " + await reader.read())
    await writer.drain()
    writer.close()


def test_a_tunnel_without_tls_goes_on() -> None:
    with talking(first) as server:
        run = beside(server)

        def talk(made: socket.socket) -> bytes:
            by_connect(made, OTHER, server.port)
            heard = made.recv(6)
            made.sendall(b"you")
            made.shutdown(socket.SHUT_WR)
            return heard + all_of(made)

        assert run.talks(talk) == [b"ready heard you"]


@pytest.mark.parametrize(
    "message", [b"\x16\x03\x01\x00\x05\x01\x00", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x16" * 100]
)
def test_tls_that_cannot_be_read_is_not_sent_on(message: bytes) -> None:
    with talking(first) as server:
        run = beside(server)

        def talk(made: socket.socket) -> bytes:
            by_connect(made, OTHER, server.port)
            made.sendall(message)
            made.shutdown(socket.SHUT_WR)
            return all_of(made)

        (answer,) = run.talks(talk)
    assert b"heard" not in answer
    assert reasons(run.call) == ["HOST_NOT_ALLOWED"]
