"""Programs that a library in a walled tool starts with `subprocess`: the host starts them, behind walls of their own.

They are checked like programs of `ctx.process`. The worker gets pipes that the host made, and one more pipe for the
exit code; no open file of the worker is passed to a program. Output is copied without the secrets that were placed for
the program. At most one piece of output is buffered: a tool that does not read blocks the program, as with a pipe.
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
    """Copy one pipe into another until one of them ends; both are closed when the task ends."""

    def close(_: "asyncio.Task[None]") -> None:  # also if the task is cancelled before it starts
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
    except OSError:  # the reader is gone; the program notices when its own pipe is closed
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
# SIGSTOP would stop the process that waits for the program inside the walls, and not the program.
_SENT = signal.valid_signals() - {signal.SIGSTOP} if hasattr(signal, "SIGSTOP") else set()


class CallPrograms:
    """The programs that one call has started; they end with it at the latest."""

    def __init__(self, context: BoundContext) -> None:
        self._context = context
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running: dict[int, Running] = {}
        self._copying: set[asyncio.Task[None]] = set()  # copies of output that was not read yet

    async def start(
        self, number: int, name: str, args: list[Any], streams: Streams, env: Mapping[str, str] | None, cwd: str | None
    ) -> tuple[int, ...]:
        """Start one. Returns our ends of its streams, and of the pipe for its exit code, when it runs."""
        if len(self._tasks) >= MOST_RUNNING:
            raise BlockingIOError(errno.EAGAIN, f"{MOST_RUNNING} programs of this call are running already")
        started: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._tasks[number] = asyncio.ensure_future(self._live(number, (name, args, streams, env, cwd), started))
        try:
            return await started
        except asyncio.CancelledError:
            if started.done() and not started.cancelled():  # the files of a question that was cancelled
                for file in started.result():
                    os.close(file)
            raise

    async def _live(self, number: int, asked: tuple[Any, ...], started: "asyncio.Future[tuple[int, ...]]") -> None:
        """The task of one program; the program ends with it."""
        writing, code, text = -1, 0, ""
        try:
            async with self._context.process._started(*asked) as running:
                if started.cancelled():
                    return
                reading, writing = os.pipe()
                started.set_result((*self._redacted(running, asked[2]), reading))
                self._running[number] = running
                try:
                    code = await running.ended()
                finally:
                    del self._running[number]
            text = str(code)  # only here: an exit that could not be recorded is not reported
        except Exception as wrong:
            if not started.done():
                started.set_exception(wrong)
        finally:
            del self._tasks[number]
            if writing != -1:  # an empty pipe means that the program was killed
                with suppress(OSError):  # the worker may be gone
                    os.write(writing, text.encode())
                os.close(writing)

    def _redacted(self, running: Running, streams: Streams) -> tuple[int, ...]:
        """Our ends of the streams. Output may hold secrets that were placed for the program, so it is redacted."""
        files = running.handed()
        if not any(rule.domain == "secret" for rule in self._context._grant.capabilities.allow):
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
            raise OSError(errno.EINVAL, "this signal cannot be sent to a program behind walls")
        running = self._running.get(number)
        if running is None:
            raise ProcessLookupError(errno.ESRCH, "the program has ended")
        running.signal(which)

    async def finish(self) -> None:
        """End all programs of the call."""
        tasks = (*self._tasks.values(), *self._copying)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
