"""Closes the calls of coding agents whose end nobody has reported, and forgets sessions that are not used any more.

An agent that was killed sends no event. So a resident looks at all sessions from time to time, and so does the start of
each session. A look is bounded: what it does not reach is left for the next one.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from licet.guard.open_call import close_reported, never_ran, restored
from licet.guard.session import Session
from licet.hooks.agent_gate import AgentGate
from licet.hooks.agent_sessions import AgentSession, AgentSessions, opened_at
from licet.hooks.agents import agent_named
from licet.hooks.agents.dialect import Dialect
from licet.hooks.limits import TICKET_SECONDS, UNKNOWN_AFTER_SECONDS, UPKEEP_SECONDS

UNUSED = "the agent did not run the line that it was handed back"

Opened = Callable[[AgentSession, Dialect, str], tuple[AgentGate, Session]]


class Upkeep:
    """What is done about calls without an end. `opened` is the gate and session of a session, or of a subagent."""

    def __init__(self, sessions: AgentSessions, opened: Opened) -> None:
        self._sessions, self._opened = sessions, opened

    async def close_all(self, session: AgentSession) -> None:
        """Close every open call of a session, which has ended."""
        for key in list(self._sessions.open_calls(session)):
            with suppress(Exception):  # each by itself: the policy of one may be gone
                await self._close(session, key)

    async def close_old(self, session: AgentSession) -> None:
        """Close the calls whose end nobody has reported for an hour, and the lines whose ticket has ended."""
        now = time.time()
        for key in list(self._sessions.open_calls(session)):
            age = now - opened_at(key)
            if age < 2 * TICKET_SECONDS:
                return
            with suppress(Exception):  # it is not what this event is about
                found = self._sessions.look(session, key)
                if found is not None and (found.by_licet or age > UNKNOWN_AFTER_SECONDS):
                    await self._close(session, key)

    async def look(self) -> None:
        """Close what is old in all sessions, and forget the sessions that had no event for long."""
        until = time.monotonic() + UPKEEP_SECONDS
        for session in await asyncio.to_thread(self._with_old_calls):
            await self.close_old(session)
            if time.monotonic() > until:
                return
        for name, used, unused in await asyncio.to_thread(self._sessions.unused):
            if unused is not None:
                await self.close_all(unused)
            await asyncio.to_thread(self._sessions.forget, name, used)
            if time.monotonic() > until:
                return

    def _with_old_calls(self) -> list[AgentSession]:
        latest = time.time() - 2 * TICKET_SECONDS
        first = ((one, next(self._sessions.open_calls(one), None)) for one in self._sessions.every())
        return [one for one, key in first if key is not None and opened_at(key) < latest]

    async def _close(self, session: AgentSession, key: str) -> None:
        found = self._sessions.look(session, key)
        if found is None:
            return
        # First, since it raises an error while the policy cannot be used: then the call stays open until it can.
        _, opened = self._opened(session, agent_named(session.agent), found.subagent)
        taken = self._sessions.take(session, key)
        if taken is None:
            return
        call = restored(opened, taken.kept)
        if taken.by_licet:
            await never_ran(call, UNUSED)
        else:
            await close_reported(call, end="unknown")
