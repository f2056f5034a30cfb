"""Attacks by the answers of a permitted server: packed, slow, or in very many parts."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx2
import pytest

from attacks.granted import refused
from attacks.nets import fetching, unguarded
from licet.testing import Answer
from loopback import serving, talking

# A few kilobytes that unpack to gigabytes, or to nothing for ever -----------------------------------------------------


MEGABYTE = 1 << 20
SIZE = 100 * MEGABYTE


def bomb(form: int) -> bytes:
    packer = zlib.compressobj(9, wbits=form)
    packed = [packer.compress(bytes(MEGABYTE)) for _ in range(SIZE // MEGABYTE)]
    return b"".join([*packed, packer.flush()])


@pytest.mark.parametrize(("coding", "form"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
@pytest.mark.sampled(1)
def test_a_bomb_is_stopped_while_it_unpacks(coding: str, form: int) -> None:
    packed = bomb(form)
    assert len(packed) < MEGABYTE
    assert len(zlib.decompressobj(form).decompress(packed, 50 * MEGABYTE)) == 50 * MEGABYTE  # and on it goes

    with serving(lambda _: Answer(200, [("Content-Encoding", coding)], packed)) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        tracemalloc.start()
        try:
            assert refused(fetch(server.url)) == "LIMIT_SIZE"
            assert tracemalloc.get_traced_memory()[1] < 25 * MEGABYTE
        finally:
            tracemalloc.stop()


def test_members_that_hold_nothing_do_not_go_on_for_ever() -> None:
    empty = gzip.compress(b"") * 60_000
    assert len(empty) > MEGABYTE
    assert gzip.decompress(empty[:2000]) == b""

    with serving(lambda _: Answer(200, [("Content-Encoding", "gzip")], empty)) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        assert refused(fetch(server.url, max_bytes=MEGABYTE)) == "LIMIT_SIZE"


def test_what_is_packed_twice_is_unpacked_never() -> None:
    twice = gzip.compress(gzip.compress(bytes(50 * MEGABYTE), 9), 9)
    assert len(twice) < 2000

    with serving(lambda _: Answer(200, [("Content-Encoding", "gzip, gzip")], twice)) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        response = asyncio.run(fetch(server.url))
        assert response.content == twice


# A server that always sends a little more just before a client would give up on the next byte -------------------------


SLOW = [
    b"HTTP/1.1 200 ok\r\n",  # one header after the other
    b"HTTP/1.1 200 ok\r\ncontent-length: 1000000\r\n\r\n",  # one byte after the other
    b"HTTP/1.1 200 ok\r\ntransfer-encoding: chunked\r\n\r\n",
    b"",  # one promise after the other
]


def drip(start: bytes) -> bytes:
    if start.endswith(b"chunked\r\n\r\n"):
        return b"1\r\nx\r\n"
    return b"x" if start.endswith(b"\r\n\r\n") else b"x: y\r\n" if start else b"HTTP/1.1 103 early\r\n\r\n"


@pytest.mark.parametrize("start", SLOW)
def test_time_is_counted_in_all_and_not_from_byte_to_byte(start: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(start)
        while True:
            writer.write(drip(start))
            await writer.drain()
            await asyncio.sleep(0.02)

    async def patient(url: str) -> str:
        """A client with a timeout of 0.1 s waits for far longer than that, unless the machine holds up the server."""
        async with unguarded() as client:
            try:
                async with asyncio.timeout(0.3):
                    await client.get(url, timeout=0.1)
            except TimeoutError:
                return "still waiting"
            except httpx2.TimeoutException:
                return "gave up"
            return "done"

    with talking(talk) as server:
        assert "still waiting" in (asyncio.run(patient(server.url)) for _ in range(20))

        assert refused(fetching(None, "network:*:127.0.0.1")(server.url, timeout=0.3)) == "LIMIT_TIME"


# A permitted server that answers in very many small parts: other tasks of the host go on meanwhile --------------------


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
        unprotected, protected = asyncio.run(plain(server.url)), asyncio.run(guarded(server.url))
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
        assert asyncio.run(fetching(None, "network:*:127.0.0.1")(server.url)).content == body


@pytest.mark.parametrize("case", INTERIM)
def test_what_comes_before_a_body_is_bounded(case: str) -> None:
    hints, reason = INTERIM[case]
    long = {"a long head": 60_000, "too long a head": 80_000}.get(case, 1)
    hints *= 20 if case == "long interim answers" else 1
    lines = LINES.get(case, b"")
    answer = hints + HEAD + lines + b"x: " + b"y" * long + b"\r\ncontent-length: 2\r\n\r\nok"
    with talking(answering(answer)) as server:
        fetch = fetching(None, "network:*:127.0.0.1")
        if reason:
            assert refused(fetch(server.url)) == reason
        else:
            assert asyncio.run(fetch(server.url)).content == b"ok"
