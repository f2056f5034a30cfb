"""Deadlines: in several event loops, paused, and stopped."""

import asyncio
import contextlib

import pytest

from licet.guard.deadlines import Deadline

SHORT, AGES = 0.2, 60.0  # seconds: long before anything here, and never


async def within(seconds: float) -> None:
    """Wait for ever, against a deadline."""
    with Deadline(seconds):
        await asyncio.sleep(AGES)


def test_a_deadline_ends_what_is_awaited() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(within(SHORT))


def test_deadlines_work_in_two_loops_that_alternate_in_one_thread() -> None:
    with contextlib.closing(asyncio.new_event_loop()) as one, contextlib.closing(asyncio.new_event_loop()) as two:
        first, second = one.create_task(within(SHORT)), two.create_task(within(SHORT))
        for loop in (one, two, one):
            loop.run_until_complete(asyncio.sleep(0))
        for loop, task in ((one, first), (two, second)):
            with pytest.raises(TimeoutError):
                loop.run_until_complete(task)


def test_a_deadline_is_paused_until_all_approvers_have_answered() -> None:
    answered: list[str] = []

    async def run() -> None:
        with Deadline(SHORT) as deadline:
            deadline.pause()
            deadline.pause()
            answered.append("one")
            deadline.resume()
            await asyncio.sleep(3 * SHORT)  # the second person still thinks
            answered.append("two")
            deadline.resume()
            await asyncio.sleep(AGES)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert answered == ["one", "two"]


@pytest.mark.parametrize("asked", ["before the end", "after the end"])
def test_resuming_a_stopped_deadline_does_nothing(asked: str) -> None:
    async def run() -> None:
        with Deadline(SHORT) as deadline:
            if asked == "before the end":
                deadline.pause()
        if asked == "after the end":
            deadline.pause()
        deadline.resume()
        await asyncio.sleep(3 * SHORT)  # a clock that ran would cancel this

    asyncio.run(run())
