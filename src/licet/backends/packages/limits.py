"""Bounds how long installing takes, and stops it from outside: registries may be slow, or silent.

Whatever asks a registry runs in a thread of its own, with a deadline. What it waits for, it waits for in short steps,
and looks at the deadline between them.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from threading import Event
from typing import TypeVar

from msgspec import Struct

from licet.backends.packages.errors import PackageError

__all__ = ["STEP_SECONDS", "check_time", "in_thread"]

STEP_SECONDS = 0.1  # between two looks at the deadline

Result = TypeVar("Result")


class _Limit(Struct, frozen=True):
    seconds: float
    deadline: float
    stopped: Event


_limit: ContextVar[_Limit | None] = ContextVar("_limit", default=None)


def check_time(doing: str) -> None:
    """Raise `PackageError` if there is no more time, or nobody waits for the result any more."""
    limit = _limit.get()
    if limit is None:
        return
    if limit.stopped.is_set():
        raise PackageError(f"{doing} was stopped")
    if time.monotonic() > limit.deadline:
        raise PackageError(f"{doing} failed: installing took longer than {limit.seconds:g} s")


async def in_thread(seconds: float, work: Callable[[], Result]) -> Result:
    """Run what may ask a registry, and return its result. It is stopped after so many seconds, or if this is cancelled.

    It has its own thread: in the common pool, a few silent registries would keep everything else waiting.
    """
    stopped = Event()

    def limited() -> Result:
        _limit.set(_Limit(seconds, time.monotonic() + seconds, stopped))
        return work()

    pool = ThreadPoolExecutor(1, thread_name_prefix="licet packages")
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, limited)
    finally:
        stopped.set()
        pool.shutdown(wait=False)
