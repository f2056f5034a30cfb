"""Tunnels beside places that are looked into: none of them leads there under another name, or by an address."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from licet.backends.memory import Answer
from licet.guard.ports import Unresolved
from licet.sandbox.inspection import tunnels
from loopback import Server, serving, talking
from sandbox.inspection.programs_talk import (
    ENTRY,
    HOST,
    LAST,
    Names,
    Run,
    all_of,
    ask,
    by_connect,
    by_socks,
    held,
    reasons,
)

OTHER = "other.test"


def site() -> Any:
    return serving(lambda exchange: Answer(200, (), b"reached"), names=(HOST,))


def beside(server: Server, *rules: str, inspect: str = HOST, **given: Any) -> Run:
    """A run that may open a tunnel to anything, beside a place that it looks into."""
    port = server.port
    call = held(f"network:tcp:*:{port}", f"network:https:get@{HOST}:{port}", *rules)
    return Run(call, f"{inspect}:{port}", **given)


class Moving(Names):
    """A resolver with another answer for the inspected host each time; the last one stays. None is a failure."""

    def __init__(self, answers: Sequence[str | None], **given: Any) -> None:
        super().__init__(**given)
        self._answers = list(answers)

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        if host != HOST:
            return await super().resolve(host, port)
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if found is None:
            raise Unresolved("the resolver does not answer")
        return (found,)


class Silent(Names):
    """A resolver that never answers for the inspected host."""

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        if host == HOST:
            await asyncio.sleep(3600)
        return await super().resolve(host, port)


def moving(*answers: str | None) -> Any:
    return partial(Moving, answers)


def opens(server: Server, host: str) -> Any:
    """Whether a program gets a tunnel."""

    def talk(made: socket.socket) -> bool:
        made.sendall(f"CONNECT {host}:{server.port} HTTP/1.1\r\n\r\n".encode())
        made.shutdown(socket.SHUT_WR)
        return all_of(made).startswith(b"HTTP/1.1 200 ")

    return talk


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
        run = beside(server, f"network:tcp:127.0.0.1:{server.port}")
        (answer,) = run.talks(deletes(server, name, host, way, sent))
        assert server.seen == []
    assert answer == b""
    assert reasons(run.call) == ["HOST_NOT_ALLOWED"]


def test_a_tunnel_for_another_host_goes_on() -> None:
    with site() as server:
        run = beside(server, net=moving("127.0.0.9"))
        answers = run.talks(
            deletes(server, OTHER, OTHER), deletes(server, None, OTHER), deletes(server, None, "127.0.0.1")
        )
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


# Before the first request to the place -----------------------------------------------------------------------------


def test_no_first_tunnel_leads_to_the_address_of_a_place_that_is_looked_into() -> None:
    with site() as server:
        run = beside(server)
        assert run.talks(opens(server, "127.0.0.1")) == [False]
    assert reasons(run.call) == ["HOST_NOT_ALLOWED"]


def test_no_first_tunnel_over_socks_leads_there() -> None:
    with site() as server:
        run = beside(server)

        def talk(made: socket.socket) -> int:
            made.sendall(b"\5\1\0" + b"\5\1\0\1" + socket.inet_aton("127.0.0.1") + struct.pack(">H", server.port))
            return all_of(made)[3]

        assert run.talks(talk) == [2]  # not allowed


def test_no_first_tunnel_by_another_name_asks_for_no_host() -> None:
    with site() as server:
        run = beside(server)
        assert run.talks(deletes(server, None, OTHER)) == [b""]
        assert server.seen == []
    assert reasons(run.call) == ["HOST_NOT_ALLOWED"]


def test_a_host_of_a_key_is_known_although_a_wildcard_covers_it() -> None:
    with site() as server:
        entry = replace(ENTRY, hosts=(f"{HOST}:{server.port}",))
        runs = [beside(server, inspect="*.test", stand_ins=keys) for keys in ((), (entry,))]
        assert [run.talks(opens(server, "127.0.0.1")) for run in runs] == [[True], [False]]  # see docs/limits.md


@pytest.mark.parametrize("net", [moving(None), Silent])
def test_while_a_place_cannot_be_looked_up_no_tunnel_may_lead_there(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "LOOK_UP_SECONDS", 0.05)
    with site() as server:
        run = beside(server, net=net)
        opened, nameless, other = run.talks(
            opens(server, "127.0.0.1"), deletes(server, None, OTHER), deletes(server, OTHER, OTHER)
        )
        assert len(server.seen) == 1
    assert (opened, nameless, other.endswith(b"reached")) == (False, b"", True)
    assert reasons(run.call) == ["RESOLVE_FAILED", "HOST_NOT_ALLOWED"]
    refused = next(event for event in run.call.events if event.reason == "RESOLVE_FAILED")
    assert f"{HOST}, which is under `inspect` and cannot be looked up" in str(refused)


def test_a_lookup_that_failed_is_repeated_and_so_is_one_that_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_UP_SECONDS", "ADDRESS_SECONDS"):
        monkeypatch.setattr(tunnels, name, 0.05)
    with site() as server:
        run = beside(server, net=moving(None, "127.0.0.9", "127.0.0.9", "127.0.0.1", None))

        def later(made: socket.socket) -> bool:
            time.sleep(0.06)
            opened: bool = opens(server, "127.0.0.1")(made)
            return opened

        assert run.talks(*[later] * 5) == [False, True, True, False, False]


def test_for_a_tunnel_that_is_named_or_not_allowed_nothing_is_looked_up() -> None:
    with site() as server:
        call = held(f"network:tcp:127.0.0.1:{server.port}", f"network:tcp:{OTHER}:{server.port}")
        run = Run(call, f"{HOST}:{server.port}", net=Silent)
        assert run.talks(*(opens(server, host) for host in ("127.0.0.1", OTHER, "127.0.0.2"))) == [True, True, False]


def test_a_tunnel_to_the_address_goes_on_at_a_port_that_is_not_looked_into() -> None:
    with site() as server:
        run = Run(held(f"network:tcp:*:{server.port}", f"network:https:get@{HOST}"), HOST)
        assert run.talks(opens(server, "127.0.0.1")) == [True]


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
