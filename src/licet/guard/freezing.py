"""Freezes: how one is made and ended, and how it reaches the calls that are under way.

While a gate has calls under way, it looks now and then whether one of them was frozen, or its session ended, by another
process.
"""

import asyncio
import secrets
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import UNSET

from licet.core.algebra.scope import visible
from licet.core.ledger.entry import StateFact, time_text
from licet.core.ledger.operator_acts import OperatorAct, act_bytes
from licet.core.ledger.state_acts import Kind, StateAct, StateView, entry_of
from licet.core.limits import MOST_PURPOSE
from licet.errors import LicetError
from licet.guard.facts import Call, CallWatch, GateFacts
from licet.guard.limits import FREEZE_LOOK_SECONDS
from licet.guard.ports import Freezes, Ledger, Unavailable, free_after_fork
from licet.guard.session_end import cut, cut_ended

_T = TypeVar("_T")


class ActRefused(LicetError):
    """A freeze that was not ended, or keys of operators that were not changed. The text says why, and what to do."""


class OperatorKey(Protocol):
    """The private key of an operator."""

    @property
    def public(self) -> str:
        """The public half, as `ed25519:…`."""

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""


def freeze_act(now: datetime, why: str, by: str, agent: str | None = None, tool: str | None = None) -> StateAct:
    """A freeze of an agent, of a tool, of both together, or of everything."""
    fact = StateFact(
        by=by,
        agent=UNSET if agent is None else agent,
        tool=UNSET if tool is None else tool,
        why=visible(why)[:MOST_PURPOSE] or "frozen",
    )
    return StateAct("freeze", f"f-{secrets.token_hex(8)}", time_text(now), fact)


def operator_act(
    kind: Kind, about: Sequence[str], now: datetime, view: StateView, by: str, key: OperatorKey | None
) -> StateAct:
    """An act that needs an operator, if the state has any. `ActRefused` if the key is none of theirs."""
    name, time = f"{kind[0]}-{secrets.token_hex(8)}", time_text(now)
    if not view.keys:
        return StateAct(kind, name, time, StateFact(by=by, about=tuple(about)))
    if key is None:
        known = ", ".join(view.keys)
        raise ActRefused(f"this state has operators: sign with the key of one of them, {known}")
    if key.public not in view.keys:
        raise ActRefused(f"{key.public} is no key of an operator of this state: these are {', '.join(view.keys)}")
    act = OperatorAct("thaw" if kind == "thaw" else "operators", view.ledger, tuple(about), time, secrets.token_hex(16))
    body = act_bytes(act)
    fact = StateFact(by=key.public, about=tuple(about), act=body.decode(), signature=key.sign(body).hex())
    return StateAct(kind, name, time, fact)


def thaw_act(ids: Sequence[str], now: datetime, view: StateView, by: str, key: OperatorKey | None) -> StateAct:
    """The end of freezes; of all that are in force, if none is named."""
    active = [one.id for one in view.freezes]
    if unknown := [name for name in ids if name not in active]:
        raise ActRefused(f"there is no freeze `{visible(unknown[0])}` in force; see `licet freeze --list`")
    if not active:
        raise ActRefused("nothing is frozen")
    return operator_act("thaw", ids or active, now, view, by, key)


async def freeze_state(freezes: Freezes, ledger: Ledger | None, act: StateAct) -> None:
    """Stop calls at once, then write the entry. If the ledger cannot keep it, the freeze is in force all the same."""
    await freezes.add(act)
    if ledger is not None:
        await ledger.record(entry_of(act))


async def keep_act(freezes: Freezes, ledger: Ledger | None, act: StateAct) -> None:
    """Write the entry of a thaw, then let it count: nothing goes on without an entry that says who let it."""
    if ledger is not None:
        await ledger.record(entry_of(act))
    await freezes.add(act)


def waited_for(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Do something async for a caller that cannot await, in a thread with a loop of its own: one may run here."""
    outcome: list[_T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work()))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="licet freeze")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return outcome[0]


class FreezeWatch(CallWatch):
    """Cuts the calls of one gate, and of its delegates, that are frozen or whose session is ended while they run."""

    def __init__(self, gate: GateFacts) -> None:
        self._running = gate.running
        self._lock = free_after_fork(threading.Lock())
        self._loops: set[asyncio.AbstractEventLoop] = set()  # those with a timer
        self._looking: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}  # for ended sessions

    def begin(self) -> None:
        """Look from now on, as long as calls run in this event loop."""
        loop = asyncio.get_running_loop()
        if loop in self._loops:
            return
        with self._lock:
            self._loops = {one for one in self._loops if not one.is_closed()} | {loop}
            self._looking = {one: task for one, task in self._looking.items() if not one.is_closed()}
        loop.call_later(FREEZE_LOOK_SECONDS, self._again, loop)

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        self.look(loop)
        calls = [call for call in list(self._running) if _loop_of(call) is loop]
        before = self._looking.pop(loop, None)
        if calls:
            if before is not None and not before.done():
                self._looking[loop] = before  # a store that is slow is not asked twice
            else:
                self._looking[loop] = loop.create_task(cut_ended(calls))
            loop.call_later(FREEZE_LOOK_SECONDS, self._again, loop)
            return
        with self._lock:
            self._loops = self._loops - {loop}

    def look(self, loop: asyncio.AbstractEventLoop | None = None, this: "asyncio.Task[Any] | None" = None) -> None:
        """Cut the calls that are frozen, of one loop or of all; not that of the task which has frozen them."""
        known: dict[tuple[str, str], str] = {}
        for call in list(self._running):
            if loop is not None and _loop_of(call) is not loop:
                continue
            name = call.session.agent, call.tool
            if name not in known:
                # A store that cannot be read cuts nothing: the next check of the call refuses, and so do new calls.
                with suppress(Unavailable):
                    known[name] = call.session.gate.frozen_for(*name)
            if why := known.get(name):
                cut(call, this, why)


def _loop_of(call: Call) -> asyncio.AbstractEventLoop | None:
    return None if call.task is None else call.task.get_loop()
