"""Checks of foreign data that may take long: begun in the event loop, and if they are not short, done in a thread."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_MOST_WAITING = 4  # threads
_IN_LOOP = ContextVar("_IN_LOOP", default=False)
P = ParamSpec("P")
T = TypeVar("T")


class Unfinished(Exception):
    """A check was begun in the event loop, and takes so long that others would notice."""


async def patiently(check: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Do a check here if it is short, and otherwise in a thread."""
    before = _IN_LOOP.set(True)
    try:
        return check(*args, **options)
    except Unfinished:
        loop = asyncio.get_running_loop()
        work: Awaitable[T] = loop.run_in_executor(_threads(os.getpid()), lambda: check(*args, **options))
    finally:
        _IN_LOOP.reset(before)
    return await work


def leave_loop() -> None:
    """Raise `Unfinished` if `patiently` tries this check in the event loop: it would take long."""
    if _IN_LOOP.get():
        raise Unfinished


def may_wait() -> None:
    """As `leave_loop`, for a check that has to wait for a process. No event loop may wait, whoever began this."""
    if asyncio._get_running_loop() is not None:
        raise Unfinished


@cache
def _threads(_: int) -> "ThreadPoolExecutor":
    """The threads of this process for such checks: others than those that stores and files need."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_MOST_WAITING, "licet checks")
