"""Runs coroutines for code without an event loop: in an asyncio loop in a thread of its own."""

import asyncio
import atexit
import contextvars
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the asyncio thread, and block this thread until it has ended.

    An exception here, such as Ctrl-C, cancels the coroutine and waits for its end, so that its receipt is written.
    """
    loop, ended = _thread.loop(), threading.Event()
    if _thread.is_this_thread():
        coroutine.close()
        raise RuntimeError("this thread runs the event loop of licet: await the call instead of waiting for it")
    task: asyncio.Task[T] | None = None

    def begin() -> None:
        nonlocal task
        task = loop.create_task(coroutine)
        task.add_done_callback(lambda _: ended.set())

    loop.call_soon_threadsafe(begin, context=contextvars.copy_context())
    try:
        ended.wait()
    except BaseException:
        loop.call_soon_threadsafe(lambda: task is not None and task.cancel())
        ended.wait()
        raise
    assert task is not None  # noqa: S101 - it has ended
    if task.cancelled():
        raise RuntimeError("the asyncio task of this call was cancelled, and not by its caller")
    return task.result()


class _Thread:
    """An asyncio loop in a thread, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[threading.Thread, asyncio.AbstractEventLoop] | None = None
        self._over = False

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._running is None:
                started: Future[asyncio.AbstractEventLoop] = Future()
                thread = threading.Thread(target=self._run, args=(started,), name="licet-asyncio", daemon=True)
                thread.start()
                self._running = thread, started.result()
            return self._running[1]

    def is_this_thread(self) -> bool:
        """Whether the code that asks runs in the thread of the loop."""
        return self._running is not None and self._running[0] is threading.current_thread()

    def _run(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        runner = asyncio.Runner()
        try:
            loop = runner.get_loop()
        except BaseException as wrong:  # such as too many open files: `loop` raises it
            started.set_exception(wrong)
            return
        with runner:
            started.set_result(loop)
            while not self._over:
                with suppress(KeyboardInterrupt, SystemExit):  # of one task, whose caller gets it; other tasks continue
                    loop.run_forever()

    def close(self) -> None:
        """End the loop; the next use starts another."""
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
    _thread = _Thread()  # a fork has no threads of its parent


def close_loop() -> None:
    """End the asyncio loop; the next use starts another."""
    _thread.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
atexit.register(close_loop)
