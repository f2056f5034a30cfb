"""Supervisors that were started ahead, so that a shell line does not wait for the start of an interpreter.

Each serves one line. Another is started when an event is answered that a line will follow, and when a line has ended:
not while one starts, which would wait for the same cores. They know nothing of any policy, and nothing of a line stays
in them.
"""

import asyncio
import sys
from contextlib import suppress

from licet.hooks.limits import MOST_READY
from licet.sandbox.programs.supervisor_client import Supervisor


class ReadySupervisors:
    """The supervisors of one resident that wait for their line."""

    def __init__(self) -> None:
        self._ready: list[Supervisor] = []
        self._starting: asyncio.Task[None] | None = None
        self._closed = False

    def take(self) -> Supervisor | None:
        """One that waits; None if none does."""
        while self._ready:
            candidate = self._ready.pop(0)
            if candidate.process.poll() is None:
                return candidate
            candidate.discard()
        return None

    def prepare(self) -> None:
        """Start some in the background, if there are too few."""
        if sys.platform == "linux" and not self._closed and (self._starting is None or self._starting.done()):
            self._starting = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        with suppress(OSError):  # without one, a line starts its own, and says what is wrong
            while len(self._ready) < MOST_READY:
                made = await asyncio.to_thread(Supervisor, walled=True)
                if self._closed:
                    made.discard()
                    return
                self._ready.append(made)

    async def close(self) -> None:
        """End those that wait."""
        self._closed = True
        if self._starting is not None:
            await asyncio.wait([self._starting])
        while self._ready:
            self._ready.pop().discard()
