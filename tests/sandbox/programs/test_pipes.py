"""Pipes in the loop: whatever ends first, the pipe or whoever waits for it, both ends are quiet."""

import asyncio
from typing import Any

import pytest

from licet.sandbox.programs.supervisor_client import Pipes
from licet.sandbox.streams import Receiver, Sender


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "left alone"])
@pytest.mark.parametrize("kind", ["receiver", "sender"])
def test_a_pipe_may_end_after_whoever_waited_for_it_was_cancelled(kind: str, stopped: bool) -> None:
    complaints: list[Any] = []

    async def run() -> bool:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        pipes = Pipes()
        near, far = pipes.pipe()
        try:
            if kind == "receiver":
                stream: Receiver | Sender = Receiver(near, 10)
                fd, left = near, loop.remove_reader
            else:
                stream = Sender(far, b"x" * (1 << 22))
                fd, left = far, loop.remove_writer
            waiting = asyncio.ensure_future(_wait(stream))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert stream.done.cancelled()
            if stopped:
                stream.stop()
            else:
                pipes.shut(far if kind == "receiver" else near)
                while stream._watched:
                    await asyncio.sleep(0.001)
            return left(fd)
        finally:
            pipes.close()

    assert not asyncio.run(asyncio.wait_for(run(), 60)), "the loop still looks at the pipe"
    assert complaints == []


async def _wait(stream: Receiver | Sender) -> None:
    await stream.done
