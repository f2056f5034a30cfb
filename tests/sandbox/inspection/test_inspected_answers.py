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
