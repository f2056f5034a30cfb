"""What the host keeps of the refusals of one call: enough to know one again, however many there are."""

import asyncio
import gc
import socket
import weakref
from collections.abc import Callable
from typing import Any

from licet.core.decision import Deny, Ground, Request
from licet.errors import Refused
from licet.sandbox.broker import MOST_REFUSALS, Broker


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
