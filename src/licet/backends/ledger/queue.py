"""The calls that wait until their entry is on the disk, with their deadlines and their event loops.

One thread writes for the calls of several event loops; `writer` has that thread.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from licet.core.ledger.entry import Entry
from licet.guard.ports import LedgerUnavailable


class WaitingEntry(Struct, frozen=True, eq=False):
    """An entry that a call waits for."""

    entry: Entry
    future: "asyncio.Future[None]"
    loop: asyncio.AbstractEventLoop
    since: float
    until: float  # when the call gives up, by `time.monotonic`


def give_up(pending: deque[WaitingEntry]) -> list[WaitingEntry]:
    """Remove and return those whose deadline has passed."""
    now = time.monotonic()
    late = [one for one in pending if one.until <= now]
    if late:
        rest = [one for one in pending if one.until > now]
        pending.clear()
        pending.extend(rest)
    return late


def answer(batch: Sequence[WaitingEntry], failure: LedgerUnavailable | None) -> None:
    """Wake up every waiting call, in one step for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for one in batch:
        loops.setdefault(one.loop, []).append(one.future)
    for loop, futures in loops.items():
        with suppress(RuntimeError):  # the loop is closed, so no call waits in it
            loop.call_soon_threadsafe(_wake, futures, failure)


def _wake(futures: list["asyncio.Future[None]"], failure: LedgerUnavailable | None) -> None:
    for future in futures:
        if future.done():  # its call was cancelled meanwhile
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(LedgerUnavailable(*failure.args))  # one each: a raised exception keeps a traceback
