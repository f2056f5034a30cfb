"""What the host keeps of the refusals of one call: enough to know one again, however many there are."""

import asyncio
import gc
import socket
import weakref
from collections.abc import Callable
from typing import Any

from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground, Request
from licet.errors import Refused
from licet.guard.meter import Meter
from licet.sandbox.bridge.broker import Broker
from licet.sandbox.bridge.wire import packed
from licet.sandbox.limits import MOST_REFUSALS


class Asked:
    """Stands for what a question carries."""


def refusing(text: str, kept: list[Any]) -> None:
    asked = Asked()
    kept.append(weakref.ref(asked))
    try:
        int(text)
    except ValueError as cause:
        raise Refused(Deny(Request("a_tool"), (Ground("LIMIT_SIZE", text),))) from cause


def broker(work: Callable[[Broker], None]) -> None:
    """Do something with the broker of a call; a child that does not read listens."""

    async def run() -> None:
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            loop = asyncio.get_running_loop()
            context: Any = None  # which nothing asks for here
            work(Broker(near, context, 1, "a_tool", direct=False))
            loop.remove_reader(near)
            loop.remove_writer(near)

    asyncio.run(run())


def refused(at: Broker, number: int, kept: list[Any]) -> Refused:
    try:
        refusing(f"number {number}", kept)
    except Refused as error:
        at._wrong(number, error)
        return error
    raise AssertionError


def test_a_refusal_does_not_hold_on_to_what_was_asked() -> None:
    def work(at: Broker) -> None:
        kept: list[Any] = []
        refusal = refused(at, 1, kept)
        gc.collect()
        assert at._own(0) is refusal
        assert [one() for one in kept] == [None]

    broker(work)


def test_only_the_latest_refusals_are_known_again() -> None:
    def work(at: Broker) -> None:
        all_of_them = [refused(at, number, []) for number in range(3 * MOST_REFUSALS)]
        known = [at._own(number) for number in range(len(all_of_them))]
        assert known == [None] * (2 * MOST_REFUSALS) + all_of_them[-MOST_REFUSALS:]
        others: list[object] = [-1, len(all_of_them), "0", None, []]
        assert [at._own(other) for other in others] == [None] * len(others)

    broker(work)


class Stuck:
    """A context whose every question waits for ever."""

    @property
    def fetch(self) -> "Stuck":
        return self

    async def __call__(self, *_: Any, **__: Any) -> None:
        await asyncio.Event().wait()


def test_no_more_is_taken_than_may_wait_for_answers() -> None:
    """A child that asks with large bodies and gets no answer makes the host no larger than a few of them."""
    meter = Meter({"host_memory_mb": 32})
    half = meter.host_memory // 2
    body = bytes(half // 4)

    async def asking(far: socket.socket) -> None:
        for number in range(1, 33):
            head = {"op": "fetch", "id": number, "call": 1, "url": "http://a/", "method": "POST"}
            await asyncio.get_running_loop().sock_sendall(far, packed(head, body))

    async def run() -> int:
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            far.setblocking(False)
            context: Any = Stuck()
            at = Broker(near, context, 1, "a_tool", direct=False, meter=meter)
            tasks = [asyncio.ensure_future(at.serve(b"x")), asyncio.ensure_future(asking(far))]
            while sum(at._asked.values()) <= half:
                await asyncio.sleep(0.01)
            for _ in range(50):  # in which as much again would come
                await asyncio.sleep(0.01)
            held = sum(at._asked.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return held

    assert asyncio.run(run()) <= half + 2 * len(body)
