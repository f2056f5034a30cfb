"""Lists that a worker asks for: one at a time, counted by the meter, written in steps, the same when they arrive."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from licet.guard.meter import Exceeded, Meter
from licet.sandbox.bridge.broker import Broker
from licet.sandbox.bridge.wire import FROM_HOST, Frame, Unpacker, names_in, packed, packed_names
from licet.sandbox.limits import NAMES_AT_ONCE

ODD = ['"', "\\", "a,b", "[]", "\0", "\n\t\x7f", "ü", "\u2028", "😀", "\udcff", "\ud83d\ude00", " ", "null", "0"]
LISTS: dict[str, list[str]] = {
    "none": [],
    "one": ["a"],
    "odd": ODD,
    "a step": [f"{n}" for n in range(NAMES_AT_ONCE)],
    "one more": [f"{n}" for n in range(NAMES_AT_ONCE + 1)],
    "many": [f"{n}{ODD[n % len(ODD)]}" for n in range(20 * NAMES_AT_ONCE)],
}


@pytest.mark.parametrize("names", LISTS.values(), ids=LISTS)
def test_a_list_arrives_as_it_was(names: list[str]) -> None:
    meter = Meter()
    assert names_in(asyncio.run(packed_names(names, meter))) == names
    assert meter.memory == 0


def test_a_list_is_counted_and_written_in_steps() -> None:
    names = [f"{n:0200}" for n in range(20 * NAMES_AT_ONCE)]
    meter, seen = Meter(), []

    async def run() -> bytes:
        task = asyncio.ensure_future(packed_names(names, meter))
        while not task.done():
            await asyncio.sleep(0)
            seen.append(meter.memory)
        return task.result()

    size = len(asyncio.run(run()))
    held = sum(map(sys.getsizeof, names))
    assert len(set(seen)) == 20  # after each step: the last one gives all of it back
    assert held < seen[0] < held + size / 10
    assert held + size * 0.9 < max(seen) <= held + size
    assert seen[-1] == 0


@pytest.mark.parametrize("name", ["x" * 1000, "\x01" * 150], ids=["the list", "its JSON"])
def test_a_list_that_the_host_may_not_hold_is_refused(name: str) -> None:
    meter = Meter({"host_memory_mb": 1})
    with pytest.raises(Exceeded, match="more than 1 MB"):
        asyncio.run(packed_names([name] * 1500, meter))
    assert meter.memory == 0


class Listing:
    """A context with one large list, which counts how often it was asked for and by how many at once."""

    def __init__(self, meter: Meter, names: list[str]) -> None:
        self.meter, self.names = meter, names
        self.asked = self.now = self.most = 0
        self.fs = self.kv = self._session = self._registered = self._ports = self._grant = self

    async def list(self, _: object) -> list[str]:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return [*self.names]


async def frames(far: socket.socket) -> AsyncIterator[Frame]:
    unpacker = Unpacker(FROM_HOST)
    while True:
        for frame in unpacker.feed(await asyncio.get_running_loop().sock_recv(far, 1 << 18)):
            yield frame


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)


@pytest.mark.parametrize("op", ["fs.list", "kv.list"])
def test_lists_that_are_asked_for_at_once_wait_for_each_other(op: str) -> None:
    """Of a worker that does not read, the host looks up no more lists than may wait; then all of them arrive."""
    many, meter = 16, Meter({"waiting_kb": 1024})
    names = [f"{n:0500}" for n in range(1500)]
    listing = Listing(meter, names)
    size = len(json.dumps(names))

    async def run() -> dict[int, list[str]]:
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            far.setblocking(False)
            context: Any = listing
            at = Broker(near, context, 1, "a_tool", direct=False, meter=meter)
            serving = asyncio.ensure_future(at.serve(b""))
            loop = asyncio.get_running_loop()
            for number in range(1, many + 1):
                await loop.sock_sendall(far, packed({"op": op, "id": number, "call": 1, "path": "/", "prefix": ""}))
            # One is being sent, two wait behind it and are more than 1 MB, and one waits for room.
            await until(lambda: listing.asked >= 4)
            for _ in range(500):  # in which many more would be looked up
                await asyncio.sleep(0)
            assert listing.asked == 4
            assert 3 * size < meter.memory < 5 * size
            found = {}
            async for frame in frames(far):
                found[frame.head["id"]] = names_in(frame.blob)
                if len(found) == many:
                    break
            await until(lambda: meter.memory == 0)
            await loop.sock_sendall(far, packed({"op": "result", "call": 1}))
            await serving
            return found

    assert asyncio.run(asyncio.wait_for(run(), 60)) == dict.fromkeys(range(1, many + 1), names)
    assert (listing.asked, listing.most) == (many, 1)
