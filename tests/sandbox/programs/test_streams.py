"""Streams: what one side sends the other reads, in whatever pieces, and nobody waits for ever."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from licet.sandbox.programs.streams import CHUNK, FOR_EVER, MOST_READS, Stream, TooFar

Reading = Callable[[Stream, float], Awaitable[bytes]]
READINGS: dict[str, tuple[Reading, bytes]] = {
    "some": (lambda stream, until: stream.read(3, until), b"one"),
    "as many": (lambda stream, until: stream.exactly(7, until), b"one two"),
    "through a mark": (lambda stream, until: stream.through(b"\r\n", until), b"one two\r\n"),
}


def between(work: Callable[[Stream, socket.socket], Awaitable[Any]]) -> Any:
    """Do something with one end of a connection as a stream, and the other as a socket."""

    async def run() -> Any:
        with socket.create_server(("127.0.0.1", 0)) as server:
            far = socket.create_connection(server.getsockname())
            near = Stream(server.accept()[0])
        try:
            with far:
                return await work(near, far)
        finally:
            near.abort()

    return asyncio.run(run())


async def arrived(near: Stream) -> None:
    """Until there is something to be read."""
    while True:
        try:
            near._end.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            await asyncio.sleep(0.001)
        else:
            return


@pytest.mark.parametrize(("reading", "expected"), READINGS.values(), ids=READINGS)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_sent_is_read_in_whatever_pieces(reading: Reading, expected: bytes, at_once: bool) -> None:
    async def work(near: Stream, far: socket.socket) -> tuple[bytes, bytes]:
        whole = b"one two\r\nthree"
        if at_once:
            far.sendall(whole)
            first = await reading(near, FOR_EVER)
        else:
            task = asyncio.ensure_future(reading(near, FOR_EVER))
            for byte in whole:
                far.sendall(bytes([byte]))
                await asyncio.sleep(0.001)
            first = await task
        far.shutdown(socket.SHUT_WR)
        rest = b""
        while piece := await near.read(100, FOR_EVER):
            rest += piece
        return first, first + rest

    first, whole = between(work)
    assert whole == b"one two\r\nthree"
    assert first == expected or (reading is READINGS["some"][0] and expected.startswith(first) and first)


@pytest.mark.parametrize("reading", [reading for reading, _ in READINGS.values()], ids=READINGS)
def test_nothing_is_waited_for_beyond_its_time(reading: Reading) -> None:
    async def work(near: Stream, far: socket.socket) -> None:
        far.sendall(b"")
        with pytest.raises(TimeoutError):
            await reading(near, near.clock(0.02))

    between(work)


@pytest.mark.parametrize("name", ["as many", "through a mark"])
def test_an_early_end_is_none(name: str) -> None:
    async def work(near: Stream, far: socket.socket) -> None:
        far.sendall(b"one")
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            await READINGS[name][0](near, FOR_EVER)

    between(work)


def test_a_mark_is_not_looked_for_without_end() -> None:
    async def work(near: Stream, far: socket.socket) -> None:
        sending = asyncio.get_running_loop().run_in_executor(None, far.sendall, bytes(2 * CHUNK))
        with pytest.raises(TooFar):
            await near.through(b"\r\n", FOR_EVER)
        near.abort()
        await asyncio.gather(sending, return_exceptions=True)

    between(work)


def test_more_than_the_kernel_holds_is_sent_as_it_is_taken() -> None:
    async def work(near: Stream, far: socket.socket) -> bytes:
        def taken() -> bytes:
            found = bytearray()
            while piece := far.recv(1 << 20):
                found += piece
            return bytes(found)

        taking = asyncio.get_running_loop().run_in_executor(None, taken)
        near.write(b"first")
        await near.send(bytes(30 << 20))
        near.end_writing()
        return await taking

    assert between(work) == b"first" + bytes(30 << 20)


def test_what_was_sent_arrives_though_the_other_side_is_not_heard_out() -> None:
    async def work(near: Stream, far: socket.socket) -> list[bytes]:
        far.sendall(b"x")
        await arrived(near)
        await near.send(b"enough")
        near.close()
        return list(iter(lambda: far.recv(100), b""))

    assert between(work) == [b"enough"]


def test_a_connection_that_is_broken_off_has_no_quiet_end() -> None:
    async def work(near: Stream, far: socket.socket) -> None:
        await near.send(b"half")
        near.break_off()
        with pytest.raises(ConnectionResetError):
            list(iter(lambda: far.recv(100), b""))

    between(work)


def test_what_is_kept_together_leaves_before_the_other_side_is_waited_for() -> None:
    order: list[str] = []

    async def work(near: Stream, far: socket.socket) -> None:
        async def before() -> None:
            order.append("before")
            far.sendall(b"x")

        waiting = Stream(near._end, before)
        assert await waiting.exactly(1, FOR_EVER) == b"x"
        far.sendall(b"y")
        await arrived(near)  # what is there already is not waited for
        assert await waiting.exactly(1, FOR_EVER) == b"y"

    between(work)
    assert order == ["before"]


MANY = 2000
FLOODS: dict[str, Reading] = {
    "some": lambda stream, until: stream.read(3, until),
    "as many": lambda stream, until: stream.exactly(3, until),
    "through a mark": lambda stream, until: stream.through(b"\r\n", until),
}


async def flooded(near: Stream, far: socket.socket) -> None:
    """Until so much has come that nothing has to be waited for."""
    far.sendall(b"1\r\n" * MANY)
    await arrived(near)
    await asyncio.wait_for(_all_there(near), 60)


async def _all_there(near: Stream) -> None:
    while len(near._end.recv(CHUNK, socket.MSG_PEEK)) < 3 * MANY:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("reading", FLOODS.values(), ids=FLOODS)
def test_others_have_their_turn_while_there_is_always_more_to_read(reading: Reading) -> None:
    async def work(near: Stream, far: socket.socket) -> int:
        await flooded(near, far)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(others())
        for _ in range(MANY):
            assert await reading(near, FOR_EVER) == b"1\r\n"
        task.cancel()
        return turns

    assert between(work) >= MANY // MOST_READS // 2


@pytest.mark.parametrize("reading", FLOODS.values(), ids=FLOODS)
def test_time_passes_while_there_is_always_more_to_read(reading: Reading) -> None:
    async def work(near: Stream, far: socket.socket) -> None:
        await flooded(near, far)

        async def all_of_it() -> None:
            for _ in range(MANY):
                await reading(near, near.clock(-1))

        with pytest.raises(TimeoutError):
            await all_of_it()

    between(work)
