"""Which tools their own checks say cannot run here, whenever a list of tools is made for a model.

A check is code of whoever wrote the tool: it may raise, hang, block, or cancel its task. So each has a limited time and
its own task, all run at once, and a plain function runs in a thread of its own. One that still blocks is not started
again.
"""

import asyncio
import inspect
import threading
from collections.abc import Collection
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from licet.core.algebra.rules import Use
from licet.core.decision.request import Approval
from licet.declare.context import Available
from licet.guard.availability_answers import answer_text, error_text
from licet.guard.bind import AvailabilityView, BoundContext
from licet.guard.contained import Raised, contained
from licet.guard.deadlines import Deadline
from licet.guard.facts import SessionFacts, ToolChecks
from licet.guard.grant import Grant
from licet.guard.limits import AVAILABILITY_SECONDS
from licet.guard.registration import Registered


class AvailabilityChecks(ToolChecks):
    """The availability checks of the tools of one gate."""

    def __init__(self) -> None:
        self._blocked: dict[int, threading.Thread] = {}  # by the identity of the check, which its tool keeps

    def is_blocked(self, check: Available) -> bool:
        thread = self._blocked.get(id(check))
        return thread is not None and thread.is_alive()

    async def unavailable(self, session: SessionFacts, names: Collection[str] | None = None) -> dict[str, str]:
        tools = session.gate.policy.tools
        asked = [
            (name, one)
            for name, one in sorted(tools.items())
            if one.ready and one.tool.available is not None and (names is None or name in names)
        ]
        if not asked:
            return {}
        answers = await asyncio.gather(*(self._why_not(session, name, one) for name, one in asked))
        return {name: why for (name, _), why in zip(asked, answers, strict=True) if why}

    async def _why_not(self, session: SessionFacts, name: str, registered: Registered) -> str:
        check, policy = registered.tool.available, session.gate.policy
        assert check is not None  # noqa: S101 - the others are not asked
        assert registered.reach is not None  # noqa: S101 - it is ready
        seconds = min(registered.seconds, AVAILABILITY_SECONDS)
        if self.is_blocked(check):
            return "its availability check blocks, and has not returned yet"
        grant = Grant(session.request(name), registered.reach, policy.digest, session.gate.observers, _ask_nobody)
        view = AvailabilityView(BoundContext(session, registered, session.gate.ports, grant), grant, registered)
        try:
            with Deadline(seconds):
                answer = await contained(self._answer(check, view))
        except TimeoutError:
            return f"its availability check took longer than {seconds:g} seconds"
        except Raised as raised:
            return error_text(raised.error)
        return answer_text(check, answer)

    async def _answer(self, check: Available, view: AvailabilityView) -> object:
        if inspect.iscoroutinefunction(check):
            return await check(view)
        outcome: Future[Any] = Future()

        def run() -> None:
            with suppress(InvalidStateError):  # nobody waits for it any more
                try:
                    answer: object = check(view)
                except BaseException as error:  # a future takes no `StopIteration`, and a cancel as its own
                    answer = Raised(error)
                outcome.set_result(answer)

        thread = threading.Thread(target=copy_context().run, args=(run,), name="licet-available", daemon=True)
        thread.start()
        try:
            answer = await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            self._blocked[id(check)] = thread
            raise
        if isinstance(answer, Raised):
            raise answer.error
        return await answer if inspect.isawaitable(answer) else answer


async def _ask_nobody(approval: Approval, use: Use) -> None:
    raise PermissionError(f"no approver is asked about {use} by an availability check")
