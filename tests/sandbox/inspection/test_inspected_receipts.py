"""What a receipt has of the requests of programs: all that were sent, answered or not, and all that were none."""

import asyncio
import socket
from typing import Any

import pytest

from licet.backends.memory import Answer
from licet.core.decision.decision import RequestMade
from loopback import serving, talking
from sandbox.inspection.programs_talk import HOST, LAST, Run, all_of, ask, held, reasons


def site(**given: Any) -> Any:
    return serving(lambda exchange: Answer(200, (), b"heard"), **given)


def made(run: Run) -> list[str]:
    return [event.rule for event in run.call.events if isinstance(event, RequestMade)]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("form", ["inspected", "absolute", "plain"])
def test_a_request_without_an_answer_is_in_the_receipt(form: str) -> None:
    with talking(silent, names=() if form == "plain" else (HOST,)) as server:
        place = f"{HOST}:{1 if form == 'plain' else server.port}"
        run = Run(held(f"network:*:{HOST}:{server.port}", effect="full"), place)
        scheme = "http" if form == "plain" else "https"

        def asks(made: socket.socket) -> bytes:
            made.sendall(ask("GET", f"{scheme}://{HOST}:{server.port}/x?q", server))
            return all_of(made)

        run.talks(run.says(server, ask("GET", "/x?q", server)) if form == "inspected" else asks)
    assert made(run) == ["GET /x → no answer"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_to_the_proxy_itself_is_in_the_receipt(scheme: str) -> None:
    with site(names=(HOST,) if scheme == "https" else ()) as server:
        place = f"{HOST}:{server.port if scheme == 'https' else 1}"
        run = Run(held(f"network:{scheme}:{HOST}:{server.port}"), place)

        def asks(made: socket.socket) -> bytes:
            made.sendall(ask("GET", f"{scheme}://{HOST}:{server.port}/x?q", server))
            return all_of(made)

        (answer,) = run.talks(asks)
    assert answer.endswith(b"heard")
    assert made(run) == ["GET /x → 200, 5 bytes"]


def test_what_reached_no_server_is_not_in_the_receipt() -> None:
    with site(names=(HOST,)) as server:
        pass
    run = Run(held(f"network:https:{HOST}:{server.port}"), f"{HOST}:{server.port}")
    run.talks(run.says(server, ask("GET", "/", server)))
    assert made(run) == []
    assert reasons(run.call) == ["CONNECT_FAILED"]


MALFORMED = {
    "another method in a header": ("POST", "/", "X-HTTP-Method-Override: DELETE\r\n", b"a"),
    "two lengths": ("POST", "/", "Content-Length: 9\r\n", b"a"),
    "a length and chunks": ("POST", "/", "Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "a header on two lines": ("GET", "/", "A: b\r\n hidden\r\n", b""),
    "no header": ("GET", "/", "hidden\r\n", b""),
    "a long head": ("GET", "/" + "a" * 70_000, "", b""),
    "chunks that are none": ("POST", "/", "Transfer-Encoding: chunked\r\n\r\nhidden\r\n", b""),
}


@pytest.mark.parametrize("plain", [False, True], ids=["inspected", "plain"])
@pytest.mark.parametrize(("method", "path", "more", "body"), MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_request_is_in_the_receipt(method: str, path: str, more: str, body: bytes, plain: bool) -> None:
    with site(names=() if plain else (HOST,)) as server:
        place = f"{HOST}:{1 if plain else server.port}"
        run = Run(held(f"network:*:{HOST}:{server.port}", effect="full"), place)

        def asks(made: socket.socket) -> bytes:
            made.sendall(ask(method, f"http://{HOST}:{server.port}{path}", server, more, body))
            return all_of(made)

        (answer,) = run.talks(asks if plain else run.says(server, ask(method, path, server, more, body)))
    assert answer.split()[1] in (b"400", b"431", b"502")
    assert "INPUT_INVALID" in reasons(run.call)
    assert not [event for event in run.call.events if "hidden" in event.rule]


def test_a_program_that_has_ended_its_side_gets_its_answer() -> None:
    with site(names=(HOST,)) as server:
        run = Run(held(f"network:https:{HOST}:{server.port}"), f"{HOST}:{server.port}")

        def half(made: socket.socket) -> bytes:
            with run.tls(made, server) as secured:
                secured.sendall(ask("GET", "/", server, LAST))
                socket.socket.shutdown(secured, socket.SHUT_WR)
                return all_of(secured)

        (answer,) = run.talks(half)
    assert b"heard" in answer
