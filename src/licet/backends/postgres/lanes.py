"""What waits for the database at the same time goes over together, from any event loop: a lane for each kind."""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from licet.backends.postgres.address import Connection
from licet.guard.deadlines import note_unreached, store_deadline
from licet.guard.ports import Unavailable

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Asks(Protocol):
    """What a lane uses of the database."""

    def start(self, work: Coroutine[Any, Any, Any]) -> None: ...
    def no_answer(self) -> Unavailable: ...
    async def asked(self, act: Callable[[Connection], Awaitable[T]], until: float, transaction: bool) -> T: ...


class Unreachable(Unavailable):
    """A server was waited for until the deadline, and gave no answer."""


class _Waiting(Struct, Generic[Item, Answer], frozen=True, eq=False):
    """An item of a lane, and the call that waits for its answer."""

    item: Item
    future: "asyncio.Future[Answer]"
    loop: asyncio.AbstractEventLoop
    until: float


class Lane(Generic[Item, Answer]):
    """Items of one kind. Those that arrive while some are under way go over together, as the next ones.

    The function gets them in the order of their arrival and returns an answer for each; an exception among the answers
    is raised for its item alone. It may be called again with the same items, after a connection was lost.
    """

    def __init__(
        self,
        database: _Asks,
        act: Callable[[Connection, Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        most: int,
    ) -> None:
        self._database, self._act, self._most = database, act, most
        self.reset()

    def reset(self) -> None:
        """Start empty, in a new object and in a forked child."""
        self._lock = threading.Lock()
        self._pending: deque[_Waiting[Item, Answer]] = deque()
        self._is_working = False

    async def do(self, item: Item) -> Answer:
        """The answer to one item; `Unavailable` if there was none until the deadline of the call."""
        return await self.ask(item)

    def ask(self, item: Item) -> "asyncio.Future[Answer]":
        """The same, for a caller that wants the answer also after it was cancelled: it shields the future."""
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Item, Answer] = _Waiting(item, loop.create_future(), loop, store_deadline())
        with self._lock:
            self._pending.append(waiting)
            begins, self._is_working = not self._is_working, True
        if begins:
            self._database.start(self._work())
        # Those before it may have more time, and one that is sent together with it too.
        timer = loop.call_later(waiting.until - monotonic(), self._give_up, waiting.future)

        def ended(future: "asyncio.Future[Answer]") -> None:
            timer.cancel()
            if not future.cancelled() and isinstance(future.exception(), Unreachable):
                note_unreached()

        waiting.future.add_done_callback(ended)
        return waiting.future

    def _give_up(self, future: "asyncio.Future[Answer]") -> None:
        if not future.done():
            future.set_exception(self._database.no_answer())

    async def _work(self) -> None:
        """In the thread of the database: send what waits, until nothing does."""
        while True:
            with self._lock:
                batch = [self._pending.popleft() for _ in range(min(len(self._pending), self._most))]
                if not batch:
                    self._is_working = False
                    return
            batch = [one for one in batch if not one.future.done()]  # some callers have given up
            if not batch:
                continue
            items = [one.item for one in batch]
            outcomes: Sequence[Answer | Exception]
            try:
                outcomes = await self._database.asked(
                    lambda connection, items=items: self._act(connection, items),  # type: ignore[misc]
                    max(one.until for one in batch),
                    transaction=False,
                )
            except Exception as wrong:  # any error must wake the callers
                outcomes = [_again(wrong) for _ in batch]
            _answer(batch, outcomes)


def _again(wrong: Exception) -> Exception:
    """The same error for one more caller: a raised error keeps a traceback."""
    if isinstance(wrong, Unavailable):
        return type(wrong)(*wrong.args)
    return Unavailable(f"the database cannot be used: {type(wrong).__name__}: {wrong}")


def _answer(batch: Sequence[_Waiting[Any, Any]], outcomes: Sequence[Any]) -> None:
    """Wake the callers, in one step for each of their event loops."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for one, outcome in zip(batch, outcomes, strict=True):
        loops.setdefault(one.loop, []).append((one.future, outcome))
    for loop, answers in loops.items():
        with suppress(RuntimeError):  # the loop is closed, so nobody waits in it
            loop.call_soon_threadsafe(_wake, answers)


def _wake(answers: list[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, outcome in answers:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
