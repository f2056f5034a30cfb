"""Copies what a program says to the tool that started it, without the secrets that were placed for it.

No more than one piece is kept here: a tool that does not read makes the program wait, as a pipe would.

Programs that libraries in a walled tool start by themselves: the host starts them, each behind walls of its own.

Whether one may start, and with what, is decided as for `ctx.process`. The child gets pipes that were made here, and one
more on which it is told how the program ended; nothing that the child has open is ever handed to a program.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from licet.guard.bind import BoundContext
from licet.guard.execution import Running, Streams
from licet.guard.redaction.redact import BLOCK, Redactor, in_turn


def start_redacted_copy(source: int, sink: int, redactor: Redactor) -> "asyncio.Task[None]":
    """Copy one pipe into another until one of them ends; both are closed when the task is over, however it ends."""

    def close(_: "asyncio.Task[None]") -> None:  # a task that is cancelled before it starts runs none of its code
        os.close(source)
        os.close(sink)

    task = asyncio.ensure_future(_copy(source, sink, redactor))
    task.add_done_callback(close)
    return task


async def _copy(source: int, sink: int, redactor: Redactor) -> None:
    try:
        os.set_blocking(source, False)
        os.set_blocking(sink, False)
        stream = redactor.stream()
        while piece := await _read(source):
            await _write(sink, await in_turn(stream.work(piece)))
        await _write(sink, stream.finish())
    except OSError:  # nobody reads any more: the program finds out when its own pipe is closed
        return


async def _read(source: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(source, BLOCK)
        except BlockingIOError:
            await _ready(source, loop.add_reader, loop.remove_reader)


async def _write(sink: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    while data:
        try:
            data = data[os.write(sink, data) :]
        except BlockingIOError:
            await _ready(sink, loop.add_writer, loop.remove_writer)


async def _ready(file: int, watch: Callable[..., Any], leave: Callable[[int], Any]) -> None:
    ready = asyncio.Event()
    watch(file, ready.set)
    try:
        await ready.wait()
    finally:
        leave(file)


MOST_RUNNING = 16  # of one call at once
# Whoever stops a program stops what waits for it inside the walls, and not the program.
_SENT = signal.valid_signals() - {signal.SIGSTOP} if hasattr(signal, "SIGSTOP") else set()


class Programs:
    """The programs of one call that run beside it; they end with it at the latest."""

    def __init__(self, context: BoundContext) -> None:
        self._context = context
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running: dict[int, Running] = {}
        self._copying: set[asyncio.Task[None]] = set()  # what programs have said and nobody has read yet

    async def start(
        self, number: int, name: str, args: list[Any], streams: Streams, env: Mapping[str, str] | None, cwd: str | None
    ) -> tuple[int, ...]:
        """Start one: the near ends of its streams, and of the pipe that its code will come on, when it runs."""
        if len(self._tasks) >= MOST_RUNNING:
            raise BlockingIOError(errno.EAGAIN, f"{MOST_RUNNING} programs of this call are running already")
        started: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._tasks[number] = asyncio.ensure_future(self._live(number, (name, args, streams, env, cwd), started))
        try:
            return await started
        except asyncio.CancelledError:
            if started.done() and not started.cancelled():  # they were on their way to somebody who has gone
                for file in started.result():
                    os.close(file)
            raise

    async def _live(self, number: int, asked: tuple[Any, ...], started: "asyncio.Future[tuple[int, ...]]") -> None:
        """One task from start to end: whoever leaves a program, or is cancelled, ends it."""
        telling, code, said = -1, 0, ""
        try:
            async with self._context.process._started(*asked) as running:
                if started.cancelled():
                    return
                told, telling = os.pipe()
                started.set_result((*self._relayed(running, asked[2]), told))
                self._running[number] = running
                try:
                    code = await running.ended()
                finally:
                    del self._running[number]
            said = str(code)  # only now: nobody hears of an ending that could not be recorded
        except Exception as wrong:
            if not started.done():
                started.set_exception(wrong)
        finally:
            del self._tasks[number]
            if telling != -1:  # all of it is gone; a pipe that ends without a word says enough of what went wrong
                with suppress(OSError):  # nobody has to listen
                    os.write(telling, said.encode())
                os.close(telling)

    def _relayed(self, running: Running, streams: Streams) -> tuple[int, ...]:
        """The near ends of the streams. What a program says may hold secrets that were placed: it is redacted here."""
        files = running.handed()
        if not any(rule.domain == "secret" for rule in self._context._holding.reach.grant.allow):
            return files
        given = []
        for index, file in enumerate(files):
            if streams.stdin and not index:
                given.append(file)
                continue
            near, far = os.pipe()
            task = start_redacted_copy(file, far, self._context.secrets.placed)
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)
            given.append(near)
        return tuple(given)

    def signal(self, number: int, which: int) -> None:
        """Send a signal to a program of this call, and to nothing else."""
        if which not in _SENT:
            raise OSError(errno.EINVAL, "no signal that a program behind walls can be sent")
        running = self._running.get(number)
        if running is None:
            raise ProcessLookupError(errno.ESRCH, "the program has ended")
        running.signal(which)

    async def finish(self) -> None:
        """End them all."""
        tasks = (*self._tasks.values(), *self._copying)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
