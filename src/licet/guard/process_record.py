"""What does the ledger keep of a process that runs outside of any call, such as that of an MCP server?

Nothing, unless its proxy settles something: a refused request, or the first use of a key. Then the process has entries
like those of a call: a decision, what happened so far, and a receipt when it ends. They are in a session of its own,
whose name no session of an agent can have, since those have no spaces.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from licet.core.decision.decision import Event, Happened
from licet.core.ledger.entry import Entry, time_text
from licet.guard.deadlines import StoreDeadline, in_time
from licet.guard.grant import Grant
from licet.guard.limits import CLOSING_SECONDS
from licet.guard.ports import Ledger, LedgerUnavailable, Ports
from licet.guard.receipt import event_fact
from licet.guard.registration import entry_of


@asynccontextmanager
async def recorded_process(grant: Grant, ports: Ports) -> AsyncIterator[None]:
    """Let `grant.settle` write to the ledger while a process runs that holds this grant, and end its record after it.

    Without a ledger nothing is kept, as of the calls of such a gate nothing would be.
    """
    if ports.ledger is None:
        yield
        return
    record = ProcessRecord(grant, ports.ledger, ports.clock.now() if ports.clock is not None else datetime.now(UTC))
    grant.keep_in(record, record.progress, grant.recorded)
    try:
        yield
    finally:
        await record.end()


class ProcessRecord:
    """The ledger of one process: it writes the decision before the first entry, and the receipt at the end."""

    def __init__(self, grant: Grant, ledger: Ledger, began: datetime) -> None:
        name, manifest = grant.request.tool, grant.reach.manifest
        self._grant, self._ledger = grant, ledger
        self._first = grant.recorded  # events of an earlier process with the same grant
        self._facts = replace(
            entry_of(name, manifest),
            id=f"r-{secrets.token_hex(6)}-1",
            agent=manifest.agent,
            session=name,
            time=time_text(began),
        )
        self._turn = asyncio.Lock()  # one entry after the other
        self._begun = self._over = False

    def progress(self, events: Sequence[Event]) -> Entry:
        """The entry of what has happened since the last one."""
        return replace(self._facts, kind="progress", events=tuple(map(event_fact, events)))

    async def record(self, entry: Entry) -> None:
        """Store an entry, after the decision; `LedgerUnavailable` if that fails or the process has ended."""
        async with self._turn:
            if self._over:
                raise LedgerUnavailable("the process has ended")
            await self._begin()
            await self._ledger.record(entry)

    async def end(self) -> None:
        """Store the receipt, with all that happened. Without one, the ledger shows that the process did not end."""
        async with self._turn:
            self._over = True
            events = self._grant.events_after(self._first)
            if not self._begun and not any(isinstance(event, Happened) for event in events):
                return
            receipt = replace(self._facts, kind="receipt", code="ok", events=tuple(map(event_fact, events)))
            with suppress(Exception):
                await in_time(StoreDeadline(CLOSING_SECONDS), self._last(receipt), "the ledger")

    async def _last(self, receipt: Entry) -> None:
        await self._begin()
        await self._ledger.record(receipt)

    async def _begin(self) -> None:
        if not self._begun:
            await self._ledger.record(self._facts)
            self._begun = True
