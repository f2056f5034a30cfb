"""What comes back from a host that has a key: in parts, or over a connection that was upgraded."""

import asyncio
import re
import socket
from typing import Any

import pytest
from msgspec.structs import replace

from licet.backends.memory import Answer
from loopback import Server, serving, talking
from sandbox.inspection.programs_talk import ENTRY, HOST, LAST, SECRET, STAND_IN, Keys, Run, all_of, ask, held

PLACED = f"X-Key: {STAND_IN.decode()}\r\n"


def keyed(server: Server, *rules: str) -> Run:
    place = f"{HOST}:{server.port}"
    call = held(f"network:https:{HOST}:{server.port}", *rules)
    return Run(call, place, keys=Keys, stand_ins=(replace(ENTRY, hosts=(place,)),))


def in_parts(exchange: Any) -> Answer:
    headers = dict(exchange.headers)
    content = headers.get("x-key", "").encode()
    asked = next((headers[name] for name in ("range", "request-range", "x-ms-range") if name in headers), "")
    if found := re.fullmatch(r"bytes=(\d+)-(\d+)", asked):
        return Answer(206, (), content[int(found[1]) : int(found[2]) + 1])
    return Answer(200, (), content)


@pytest.mark.parametrize("name", ["Range", "RANGE", "Request-Range", "x-ms-range"])
def test_a_key_does_not_come_back_in_parts(name: str) -> None:
    with serving(in_parts, names=(HOST,)) as server:
        run = keyed(server)
        more = [f'If-Range: "x"\r\n{name}: bytes={start}-{start + 8}\r\n{PLACED}{LAST}' for start in (0, 9)]
        answers = run.talks(*(run.says(server, ask("GET", "/", server, one)) for one in more))
        assert not {"range", "if-range", name.lower()} & {name for one in server.seen for name, _ in one.headers}
    assert all(answer.endswith(STAND_IN) for answer in answers)


def test_other_answers_still_come_in_parts() -> None:
    with serving(in_parts, names=(HOST,)) as server:
        run = Run(held(f"network:https:{HOST}:{server.port}"), f"{HOST}:{server.port}")
        more = f"Range: bytes=0-5\r\n{PLACED}{LAST}"
        (answer,) = run.talks(run.says(server, ask("GET", "/", server, more)))
    assert answer.startswith(b"HTTP/1.1 206 ")
    assert answer.endswith(STAND_IN[:6])


# Upgrades -------------------------------------------------------------------------------------------------------------

UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
SWITCHED = b"HTTP/1.1 101 Ok\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"


async def sockets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Agrees to an upgrade, and says what it was asked, in two pieces."""
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(SWITCHED + b"\r\n")
    await writer.drain()
    begin, found, rest = head.partition(SECRET[:6])
    writer.write(begin + found)
    await writer.drain()
    assert await reader.read(100) == b"more"
    writer.write(rest)
    await writer.drain()


def upgraded(run: Run, server: Server, before: bytes) -> bytes:
    def talk(made: socket.socket) -> bytes:
        with run.tls(made, server) as secured:
            secured.sendall(ask("GET", "/", server, UPGRADE + PLACED))
            data = b""
            while before not in data:
                data += secured.recv(1000)
            secured.sendall(b"more")
            return data + all_of(secured)

    (answer,) = run.talks(talk)
    return bytes(answer)


def test_a_key_does_not_come_back_after_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("licet.sandbox.inspection.key_checks.HELD_BACK_SECONDS", 60)
    with talking(sockets, names=(HOST,)) as server:
        run = keyed(server, f"network:tcp:{HOST}:{server.port}")
        answer = upgraded(run, server, b"ey: ")
    assert SECRET not in answer
    assert STAND_IN in answer
    assert b"permessage-deflate" not in answer


def test_both_sides_of_an_upgraded_connection_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("licet.sandbox.inspection.key_checks.HELD_BACK_SECONDS", 0.01)
    with talking(sockets, names=(HOST,)) as server:
        run = keyed(server, f"network:tcp:{HOST}:{server.port}")
        answer = upgraded(run, server, SECRET[:6])  # a server that is silent after it has sent no whole key
    assert answer.split(b"\r\n\r\n", 1)[1].startswith(b"GET / ")


def test_no_extension_is_agreed_to_that_hides_a_key() -> None:
    async def compressing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
        await writer.drain()
        await reader.read()

    with talking(compressing, names=(HOST,)) as server:
        run = keyed(server, f"network:tcp:{HOST}:{server.port}")
        (answer,) = run.talks(run.says(server, ask("GET", "/", server, UPGRADE + PLACED)))
    assert answer.split()[1] == b"502"
