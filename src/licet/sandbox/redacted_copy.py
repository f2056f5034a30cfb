"""Copies what a program says to the tool that started it, without the secrets that were placed for it.

No more than one piece is kept here: a tool that does not read makes the program wait, as a pipe would.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from licet.guard.redact import BLOCK, Redactor, in_turn


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
