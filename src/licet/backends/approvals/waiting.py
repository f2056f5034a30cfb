"""An approver that stores a request and lets the call wait until it is answered.

The tool is not run again for each answer. Approvers use `licet approvals`, in another terminal or process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from licet.backends.approvals.requests import ApprovalStore, CannotAnswer, StoredRequest
from licet.backends.limits import LOOK_SECONDS
from licet.core.decision.approval import time_text
from licet.guard.deadlines import CURRENT
from licet.guard.ports import Answered, Question

Announce = Callable[[Question, StoredRequest, str], None]  # with the command that approves the request

_T = TypeVar("_T")


class WaitingApprover:
    """Waits until a request is approved, denied or expired. `announce` is called once for each request."""

    verifies = True

    def __init__(self, store: ApprovalStore, announce: Announce | None = None, interval: float = LOOK_SECONDS) -> None:
        self._store = store
        self._announce = announce
        self._interval = interval

    def load_code(self) -> None:
        self._store.load_code()

    def close(self) -> None:
        self._store.close()

    async def ask(self, question: Question) -> Answered:
        """Wait for the answer and return it; `expired` if there is none in time."""
        waited_for, was_told = "", False
        while True:
            answered = await _with_time(self._store.ask(question))
            if answered.answer in ("approved", "denied") or not answered.request:
                return answered
            if answered.request != waited_for:
                if self._announce is not None:
                    kept = await _with_time(self._store.find(answered.request))
                    self._announce(question, kept, answered.fix)
            elif not was_told:  # the request was answered, but not for this call
                await asyncio.sleep(self._interval)
            waited_for = answered.request
            try:
                found = await self._answer(waited_for)
            except CannotAnswer as gone:
                return Answered("absent", (), waited_for, str(gone))
            was_told = found is None
            if found is not None and found.state(self._store.now()) == "expired":
                note = f"request {waited_for} expired at {time_text(found.request.expires)}"
                return Answered("expired", (), waited_for, note)

    async def _answer(self, request: str) -> StoredRequest | None:
        """Wait until a request is no longer waiting, and return it; None as soon as the store tells of an answer."""
        with self._store.watch(request) as changed:
            while True:
                kept = await _with_time(self._store.find(request))
                now = self._store.now()
                if kept.state(now) != "waiting":
                    return kept
                if await changed(self._interval, (kept.request.expires - now) / 1000):
                    return None


async def _with_time(work: Awaitable[_T]) -> _T:
    """Use the store with its own time limit: the deadline of the call is paused while a person is asked."""
    before = CURRENT.set(None)
    try:
        return await work
    finally:
        CURRENT.reset(before)
