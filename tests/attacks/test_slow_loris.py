"""A server that always sends a little more just before a client would give up on the next byte."""

import asyncio

import httpx2
import pytest

from attacks.granted import refused
from attacks.nets import fetching, unguarded
from loopback import talking

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
        url = f"http://127.0.0.1:{server.port}/"
        assert "still waiting" in (asyncio.run(patient(url)) for _ in range(20))

        assert refused(fetching(None, "network:*:127.0.0.1")(url, timeout=0.3)) == "LIMIT_TIME"
