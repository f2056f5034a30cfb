"""How the end of a session, and a changed policy, reach the calls that are under way."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from licet.core.algebra.use import Use
from licet.core.decision.decision import SessionEnded
from licet.errors import Refused
from licet.guard.deadline import was_cancelled

if TYPE_CHECKING:
    from licet.guard.call import Call


def check_session(call: "Call", use: Use | None = None) -> None:
    """Refuse if the gate is frozen, or the session has ended or belongs to another agent."""
    session = call.session
    if frozen := session.gate.frozen:
        call.refuse("FROZEN", frozen, "", use)
    if session.over:
        if call.grant is not None:
            call.grant.note_of(SessionEnded)
        call.refuse("SESSION_ENDED", "this session has ended", "", use)
    if (now := session.other_agent(call.policy)) and not call.policy.unusable:
        text = f"this session is of the agent `{session.agent}`, and the manifest that was loaded last is of `{now}`"
        call.refuse("SESSION_ENDED", text, "open a session again: it is one of the new agent", use)
    if session.store_error:
        call.refuse("BACKEND_MISSING", "the store of this session cannot be read", session.store_error, use)


def check_policy(call: "Call", use: Use | None = None) -> None:
    """Refuse if the policy was reloaded while an approver was asked: the answer was about the old one."""
    if call.session.gate.policy is not call.policy:
        text = "another manifest was loaded while a person was asked: call again"
        call.refuse("MANIFEST_CHANGED", text, "", use)


def end_with_session(call: "Call", ending: "asyncio.Task[Any] | None") -> None:
    """Cancel a call whose session has ended, from any thread. Its handles refuse from now on.

    A call whose tool ends its own session (its task is `ending`) is not cancelled.
    """
    if call.grant is not None:
        call.grant.end()
    if call.task is not None and call.task is not ending and not call.was_cut:
        call.was_cut = True
        with suppress(RuntimeError):  # its loop is closed
            call.task.get_loop().call_soon_threadsafe(_cut, call)


def _cut(call: "Call") -> None:
    if call.task is not None and call in call.session.gate.running:  # so its task waits inside this call
        call.cuts += 1
        call.task.cancel()
        if call.deadline is not None:
            call.deadline.when = 0.0  # a tool that swallows the cancel is cancelled again


def caller_cancelled(call: "Call") -> bool:
    """Whether the caller was cancelled. A cancel by the end of the session is taken back: it was for this call."""
    while call.cuts and call.task is not None:
        call.cuts -= 1
        call.task.uncancel()
    return was_cancelled()


def session_end(call: "Call") -> Refused:
    """The refusal of a call that was cancelled because its session has ended."""
    try:
        if call.grant is not None:
            call.grant.note_of(SessionEnded)
        call.refuse("SESSION_ENDED", "the session was ended while this call ran")
    except Refused as refusal:
        return refusal
