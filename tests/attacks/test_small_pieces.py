"""A permitted server that answers in very many small parts: other tasks of the host go on meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from attacks.granted import refused
from attacks.nets import fetching, unguarded
from loopback import talking

CHUNKS = 20_000
LONG = 1 << 20  # bytes of an answer that nobody reads to its end
TURNS = 60  # of other tasks; a read of 64 KB holds more than 10,000 chunks
HINT = b"HTTP/1.1 103 early\r\n\r\n"
HEAD = b"HTTP/1.1 200 ok\r\n"


def answering(answer: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A server that sends these bytes at once."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        try:
            with suppress(OSError):  # the client has hung up
                await writer.drain()
        finally:
            writer.transport.abort() if len(answer) > LONG else writer.close()

    return talk


async def turns_during(answer: Awaitable[object]) -> int:
    """How often another task runs until an answer is there, once the first bytes of it could be read."""
    turns, asked = 0, asyncio.ensure_future(answer)
    while not asked.done():
        turns += 1
        await asyncio.sleep(0.0005)
    await asked
    return turns


def test_a_body_in_chunks_of_one_byte_lets_other_tasks_run() -> None:
    body = HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * CHUNKS + b"0\r\n\r\n"

    async def plain(url: str) -> int:
        async with unguarded() as client:
            return await turns_during(client.get(url))

    async def guarded(url: str) -> int:
        return await turns_during(fetching(None, "network:*:127.0.0.1")(url))

    with talking(answering(body)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        unprotected, protected = asyncio.run(plain(url)), asyncio.run(guarded(url))
    assert protected > TURNS > unprotected, (protected, unprotected)


INTERIM = {
    "a few interim answers": (HINT * 5, ""),
    "too many interim answers": (HINT * 50, "CONNECT_FAILED"),
    "a flood of interim answers": (HINT * 100_000, "CONNECT_FAILED"),
    "a long head": (b"", ""),
    "too long a head": (b"", "LIMIT_SIZE"),
    "some lines": (b"", ""),
    "too many lines": (b"", "CONNECT_FAILED"),
    "too many lines without returns": (b"", "CONNECT_FAILED"),
    "long interim answers": (HINT[:-2] + b"x: " + b"y" * 9_000 + b"\r\n\r\n", "CONNECT_FAILED"),
}


LINES = {
    "some lines": b"a: b\r\n" * 200,
    "too many lines": b"a:\r\n" * 10_000,  # fewer bytes than a head may have
    "too many lines without returns": b"a:\n" * 10_000,
}


def test_the_lines_of_a_body_are_not_those_of_its_head() -> None:
    body = b"\n" * 5_000
    with talking(answering(HEAD + b"content-length: 5000\r\n\r\n" + body)) as server:
        assert asyncio.run(fetching(None, "network:*:127.0.0.1")(f"http://127.0.0.1:{server.port}/")).content == body


@pytest.mark.parametrize("case", INTERIM)
def test_what_comes_before_a_body_is_bounded(case: str) -> None:
    hints, reason = INTERIM[case]
    long = {"a long head": 60_000, "too long a head": 80_000}.get(case, 1)
    hints *= 20 if case == "long interim answers" else 1
    lines = LINES.get(case, b"")
    answer = hints + HEAD + lines + b"x: " + b"y" * long + b"\r\ncontent-length: 2\r\n\r\nok"
    with talking(answering(answer)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        fetch = fetching(None, "network:*:127.0.0.1")
        if reason:
            assert refused(fetch(url)) == reason
        else:
            assert asyncio.run(fetch(url)).content == b"ok"
