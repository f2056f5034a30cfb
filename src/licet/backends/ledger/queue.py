"""Calls that wait until their entry is in the ledger: what they wait for, until when, and how they are told.

The thread that writes serves calls of several event loops. How entries are written is in `ledger_sqlite`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from licet.core.ledger.entry import Stem
from licet.guard.ports import LedgerUnavailable


class Waiting(NamedTuple):
    """An entry that a call waits for."""

    stem: Stem
    future: "asyncio.Future[None]"
    loop: asyncio.AbstractEventLoop
    since: float
    until: float  # when the call gives up, by `time.monotonic`


def give_up(pending: deque[Waiting]) -> list[Waiting]:
    """Take out those whose deadline has come."""
    now = time.monotonic()
    late = [one for one in pending if one.until <= now]
    if late:
        rest = [one for one in pending if one.until > now]
        pending.clear()
        pending.extend(rest)
    return late


def answer(batch: Sequence[Waiting], failure: LedgerUnavailable | None) -> None:
    """Tell everybody who waits, in one step for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for one in batch:
        loops.setdefault(one.loop, []).append(one.future)
    for loop, futures in loops.items():
        with suppress(RuntimeError):  # a loop that is closed: nobody waits any more
            loop.call_soon_threadsafe(_tell, futures, failure)


def _tell(futures: list["asyncio.Future[None]"], failure: LedgerUnavailable | None) -> None:
    for future in futures:
        if future.done():  # its call was cancelled meanwhile
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(LedgerUnavailable(*failure.args))  # its own: each is raised, and keeps a traceback
