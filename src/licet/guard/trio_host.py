"""A host whose loop is trio's: what needs asyncio runs in one loop of its own, in a thread beside it.

trio is not imported here: whoever runs it has done so. A task of trio's waits for what runs in that thread, and whoever
cancels the one cancels the other.
"""

import asyncio
import atexit
import contextvars
import os
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def under_trio() -> bool:
    """Whether this is a task of trio's, and not one of an asyncio loop that was started inside of it."""
    lowlevel: Any = sys.modules.get("trio.lowlevel")
    if lowlevel is None:
        return False
    try:
        if asyncio.current_task() is not None:
            return False
    except RuntimeError:  # no loop of asyncio runs here; and if one does, trio may be its guest
        pass
    return bool(lowlevel.in_trio_task())


async def anywhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, in whichever loop this is awaited."""
    return await (_beside(coroutine) if under_trio() else coroutine)


async def _beside(coroutine: Coroutine[Any, Any, T]) -> T:
    trio: Any = sys.modules["trio"]
    done, token = trio.Event(), trio.lowlevel.current_trio_token()
    try:
        context, loop = _context(), _thread.loop()
    except BaseException:
        coroutine.close()
        raise
    task: asyncio.Task[T] | None = None

    def begin() -> None:
        nonlocal task
        task = loop.create_task(coroutine, context=context)
        task.add_done_callback(over)

    def over(_: object) -> None:
        with suppress(trio.RunFinishedError):  # nobody waits any more
            token.run_sync_soon(done.set)

    loop.call_soon_threadsafe(begin)
    try:
        await done.wait()
    except BaseException:
        # It ends in its own time, and its receipt is written before anybody here goes on.
        loop.call_soon_threadsafe(lambda: task is not None and task.cancel())
        with trio.CancelScope(shield=True):
            await done.wait()
        raise
    assert task is not None  # noqa: S101 - it is over
    if task.cancelled():  # asyncio's way to say so means nothing here
        raise RuntimeError("what ran for this task was cancelled, and not by it")
    return task.result()


def _context() -> contextvars.Context:
    """The variables of the task that waits, without the one that says which loop it is in."""
    context = contextvars.copy_context()
    sniffio: Any = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context


class _Thread:
    """An asyncio loop that runs in a thread, from when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[threading.Thread, asyncio.AbstractEventLoop] | None = None
        self._over = False

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs."""
        with self._lock:
            if self._running is None:
                begun: Future[asyncio.AbstractEventLoop] = Future()
                thread = threading.Thread(target=self._run, args=(begun,), name="licet-asyncio", daemon=True)
                thread.start()
                self._running = thread, begun.result()
            return self._running[1]

    def _run(self, begun: "Future[asyncio.AbstractEventLoop]") -> None:
        runner = asyncio.Runner()
        try:
            loop = runner.get_loop()
        except BaseException as wrong:  # too many files are open, say: whoever waits for the loop must hear of it
            begun.set_exception(wrong)
            return
        with runner:
            begun.set_result(loop)
            while not self._over:
                with suppress(KeyboardInterrupt, SystemExit):  # of a task, for whoever waits for it; others go on
                    loop.run_forever()

    def close(self) -> None:
        """End it, and what it has open; whoever needs it again starts another."""
        with self._lock:
            if self._running is not None:
                thread, loop = self._running
                self._over = True
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                self._running, self._over = None, False


_thread = _Thread()


def _in_a_fork() -> None:
    global _thread
    _thread = _Thread()  # threads stay with the parent


def close_loop() -> None:
    """End the loop beside; the next that needs it starts another."""
    _thread.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
atexit.register(close_loop)
