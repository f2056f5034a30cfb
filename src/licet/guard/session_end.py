"""How the end of a session, a freeze, and a changed policy reach the calls that are under way."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from licet.core.algebra.rules import Use
from licet.core.algebra.scope import visible
from licet.core.decision.decision import SessionEnded
from licet.core.ledger.entry import Entry, EventFact
from licet.core.limits import MOST_PURPOSE
from licet.errors import Refused
from licet.guard.deadlines import CURRENT, StoreDeadline, in_time, was_cancelled
from licet.guard.facts import Call, SessionFacts
from licet.guard.handles.secrets_and_kv import scope_id
from licet.guard.ports import ENDED, Kv, Ledger, Unavailable

HOW_TO_THAW = "`licet thaw` lets calls go on; `licet freeze --list` shows what is frozen"
UNREADABLE_FREEZES = "whether this was frozen cannot be read"


async def look_up_end(session: SessionFacts, stores: StoreDeadline) -> None:
    """Read from the store whether a session, or one that delegated to it, was ended by any process."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("sessions need the loop of asyncio: under another, use `licet.run` in a thread") from None
    if session.parent is not None:
        await look_up_end(session.parent, stores)
    gate, session.store_error = session.gate, session.parent.store_error if session.parent is not None else ""
    kv = gate.ports.kv
    if kv is None or session.name in gate.ended:
        return
    try:
        if await in_time(stores, is_ended(kv, *session.name), "the store of sessions"):
            _note_end(session)
    except Exception as error:  # a user's store may raise anything
        # The session may have been ended, so its calls are refused with this text.
        session.store_error = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"


def _note_end(session: SessionFacts) -> None:
    """Know from now on that a session has ended, and forget what it knew."""
    gate = session.gate
    gate.ended.add(session.name)
    gate.agreed.pop(session.name, None)
    gate.memories.end(session.name)
    if session.memory is not None:
        session.memory.hand_back()
    session.memory = None


async def cut_ended(calls: Sequence[Call]) -> None:
    """Cut the calls whose session, or one that delegated to it, was ended by another process or node meanwhile.

    A store that cannot be read cuts nothing: the next call of the session is refused.
    """
    sessions: dict[int, SessionFacts] = {}
    for call in calls:
        one: SessionFacts | None = call.session
        while one is not None:
            sessions[id(one)] = one
            one = one.parent
    CURRENT.set(None)  # this is a task of its own, and no call's time runs out in it
    await asyncio.gather(*(_look_for_end(session) for session in sessions.values()))
    for call in calls:
        if call.session.ended:
            cut(call, None)


async def _look_for_end(session: SessionFacts) -> None:
    kv = session.gate.ports.kv
    if kv is not None and session.name not in session.gate.ended:
        with suppress(Exception):  # a user's store may raise anything
            if await is_ended(kv, *session.name):
                _note_end(session)


async def prepare_opening(session: SessionFacts, tool: str, stores: StoreDeadline) -> None:
    """Learn of a freeze on another node, unless the opening asks for that; it then prepares for it."""
    if (opening := session.gate.ports.opening) is None:
        await look_up_freeze(session, tool, stores)
        return
    try:
        await in_time(stores, opening.prepare(), "the store of freezes")
    except Exception as error:
        session.store_error = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"


async def look_up_freeze(session: SessionFacts, tool: str, stores: StoreDeadline) -> None:
    """Learn of a freeze on another node, before the session is checked. Where it cannot be read, the check says so."""
    freezes = session.gate.ports.freezes
    if freezes is not None and type(tool) is str:
        try:
            await in_time(stores, freezes.look_up(session.agent, tool), "the store of freezes")
        except Exception as error:  # a user's store may raise anything
            session.store_error = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"


def check_session(call: Call, use: Use | None = None) -> None:
    """Refuse if the gate is frozen, or the session has ended or belongs to another agent."""
    session = call.session
    if not session.store_error:  # otherwise it is refused below, and another look would only take more time
        check_frozen(call, use)
    if session.over:
        if call.grant is not None:
            call.grant.note_of(SessionEnded)
        call.refuse("SESSION_ENDED", "this session has ended", "open a session with another id", use)
    if (now := session.other_agent(call.policy)) and not call.policy.unusable:
        text = f"this session is of the agent `{session.agent}`, and the manifest that was loaded last is of `{now}`"
        call.refuse("SESSION_ENDED", text, "open a session again: it is one of the new agent", use)
    if session.store_error:
        call.refuse("BACKEND_MISSING", "the store of this session cannot be read", session.store_error, use)


def check_frozen(call: Call, use: Use | None = None) -> None:
    """Refuse if people have stopped this call, its agent or everything on the state."""
    try:
        frozen = call.session.gate.frozen_for(call.session.agent, call.tool)
    except Unavailable as broken:  # it may be frozen
        call.refuse("BACKEND_MISSING", UNREADABLE_FREEZES, str(broken), use)
    if frozen:
        call.refuse("FROZEN", frozen, HOW_TO_THAW, use)


def check_policy(call: Call, use: Use | None = None) -> None:
    """Refuse if the policy changed while an approver was asked: the answer was about the old one."""
    gate = call.session.gate
    if gate.policy is not call.policy or gate.is_outdated():
        text = "another manifest was loaded while a person was asked: call again"
        call.refuse("MANIFEST_CHANGED", text, "", use)


SESSION_END = "licet session end"  # what the ledger calls it; no tool can have this name, since names have no spaces


async def mark_ended(kv: Kv, agent: str, session: str) -> None:
    """Refuse later calls of a session, and values for its store."""
    await kv.set(ENDED, ended_key(agent, session), True)
    await kv.set(ENDED, scope_id("session", "", session, None, agent), True)


async def is_ended(kv: Kv, agent: str, session: str) -> bool:
    """Whether a session was ended, by any process."""
    return await kv.get(ENDED, ended_key(agent, session)) is not None


async def end_stored_session(ledger: Ledger, kv: Kv, entry: Entry) -> None:
    """End the session of an entry that says so, from outside: record it, then mark it, then delete its storage.

    Budgets stay as they are: what was spent in a day or by an agent counts for its next session too.
    """
    await ledger.record(entry)
    await mark_ended(kv, entry.agent, entry.session)
    await kv.clear(scope_id("session", "", entry.session, None, entry.agent))


def session_end_entry(id: str, agent: str, session: str, time: str, manifest: str, purpose: str | None) -> Entry:  # noqa: A002
    """The entry of a session that is ended; `manifest` is the digest of the policy of its last call."""
    return Entry(
        kind="receipt",
        id=id,
        agent=agent,
        session=session,
        tool=SESSION_END,
        time=time,
        manifest=manifest,
        purpose=None if purpose is None else visible(purpose)[:MOST_PURPOSE],
        events=(EventFact(kind=SessionEnded.__name__),),
        code="ok",
    )


def ended_key(agent: str, session: str) -> str:
    """The key of a session in the list of ended ones."""
    return f"{agent}\n{session}"


def cut(call: Call, ending: "asyncio.Task[Any] | None", frozen: str = "") -> None:
    """Cancel a call whose session has ended, or that was frozen, from any thread. Its handles refuse from now on.

    A call whose tool ends its own session, or freezes itself (its task is `ending`), is not cancelled.
    """
    if frozen and not call.was_cut:
        call.frozen = frozen
    if call.grant is not None:
        call.grant.end(call.frozen)
    if call.task is not None and call.task is not ending and not call.was_cut:
        call.was_cut = True
        with suppress(RuntimeError):  # its loop is closed
            call.task.get_loop().call_soon_threadsafe(_cut, call)


def _cut(call: Call) -> None:
    if call.task is not None and call in call.session.gate.running:  # so its task waits inside this call
        call.cuts += 1
        call.task.cancel()
        if call.deadline is not None:
            call.deadline.when = 0.0  # a tool that swallows the cancel is cancelled again


def caller_cancelled(call: Call) -> bool:
    """Whether the caller was cancelled. A cancel by `cut` is taken back: it was for this call."""
    while call.cuts and call.task is not None:
        call.cuts -= 1
        call.task.uncancel()
    return was_cancelled()


def session_end(call: Call) -> Refused:
    """The refusal of a call that was cancelled because its session has ended, or because it was frozen."""
    try:
        if call.frozen:
            call.refuse("FROZEN", call.frozen, HOW_TO_THAW)
        if call.grant is not None:
            call.grant.note_of(SessionEnded)
        call.refuse("SESSION_ENDED", "the session was ended while this call ran")
    except Refused as refusal:
        return refusal
