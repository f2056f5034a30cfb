"""The last step of a call: settles the budget, writes the receipt, remembers the result, and returns it."""

import asyncio
from contextlib import suppress
from decimal import Decimal

from licet.core.algebra.scope import visible
from licet.core.decision.decision import Deny, ToolPrinted, all_events
from licet.core.decision.request import Ground
from licet.errors import Refused
from licet.guard.approvals_and_budgets import settle
from licet.guard.deadlines import finish
from licet.guard.facts import Call
from licet.guard.flow_steps import Handed, hand_over, unrecorded
from licet.guard.grant import Grant
from licet.guard.limits import CLOSING_SECONDS, GIVE_UP_EARLY, MOST_OF_LOGS
from licet.guard.ports import LedgerUnavailable, Unavailable
from licet.guard.read_elsewhere import keep_entry
from licet.guard.receipt import made_receipt
from licet.guard.redaction.redact import encoded, in_turn, shown
from licet.guard.registration import Registered
from licet.guard.repeated_calls import end_first
from licet.guard.result import Result
from licet.guard.result_parts import NOTHING, ResultParts
from licet.guard.session_end import caller_cancelled


async def close(call: Call, parts: ResultParts) -> Result:
    """Settle the budget, write the receipt, and return the result. Every call gets here, refused or not.

    A cancel of the caller is raised when all of it is done.
    """
    grant, ledger = call.grant, call.ports.ledger
    # What ran is recorded if there is any way. Of a call that was refused because a server is away, nothing was kept.
    call.stores.at_least(GIVE_UP_EARLY if call.stores.is_unreached and not call.running else CLOSING_SECONDS)
    if grant is not None:
        grant.end()  # first: its handles refuse from here on
    if call.running and call.registered is not None:
        parts.layers = () if call.is_elsewhere else call.registered.layers
        parts.cost_usd = _cost(call, call.registered)
    else:
        parts.layers, parts.cost_usd = (), NOTHING
    if (call.reservation is not None or call.bundle_reservations) and grant is not None:
        try:
            settled = await settle(call, parts.cost_usd)
            if settled is not None:
                grant.note(settled)
        except Refused as refusal:  # an observer failed
            parts.refuse("execution_failed" if call.running else "denied", refusal)
    if grant is not None:
        parts.programs, parts.program_access = grant.programs, grant.program_access
        parts.access = grant.access if call.running else None
        if grant.printed:
            with suppress(asyncio.CancelledError, Exception):  # what was not searched for secrets is not kept
                parts.logs = await finish(call.stores, _logs(call, grant), "the search for secrets")
    else:
        parts.programs = None
        _notify_observers(call, parts)
    if call.approvals:
        parts.approvals = call.shown_approvals
    parts.receipt = call.receipt
    parts.duration_ms = (call.clock.monotonic() - call.started) * 1000
    handed: Handed | None = None
    if ledger is not None:
        try:
            handed, made = await finish(call.stores, made_receipt(call, parts), "the receipt")
            await finish(call.stores, keep_entry(call, ledger, made), "the ledger")
        except (asyncio.CancelledError, Exception) as error:  # a ledger, which may be a user's, can cancel itself
            _unrecorded(call, parts, error)
            handed = unrecorded(call, handed, parts.error) if handed is not None else None
    await end_first(call, parts, handed)
    hand_over(call, handed)
    if call.session.memory is not None and call.session.memory.is_behind:
        with suppress(asyncio.CancelledError, Exception):  # the next question reads it
            await finish(call.stores, call.session.memory.catch_up(), "the memory of the session")
    if call.stores.cancelled is not None and caller_cancelled(call):
        raise call.stores.cancelled
    return parts.sealed(grant, None if grant is not None else call.identity)


async def _logs(call: Call, grant: Grant) -> str:
    """What the tool printed, as text without secrets. Observers get it as an event; the ledger does not keep it."""
    text = grant.printed.decode("utf-8", "replace")
    cut = len(grant.printed) > MOST_OF_LOGS
    if call.redactor is not None:
        try:
            work = call.redactor.work_on_beginning(encoded(text), MOST_OF_LOGS)
            text = shown(await in_turn(work, CLOSING_SECONDS))
        except TimeoutError:
            text = "… (what the tool printed could not be searched for secrets in time, and was not kept)\n"
    text = "\n".join(visible(line.expandtabs(4)) for line in text[:MOST_OF_LOGS].split("\n"))
    if cut:
        text = f"{text}\n… (the tool printed more, which was not kept)\n"
    with suppress(Refused):  # an observer failed; the call has ended, and its result stays
        grant.note(ToolPrinted(f"tool:call:{call.tool}", call.tool, "", text), kept=False)
    return text


def _unrecorded(call: Call, parts: ResultParts, error: BaseException) -> None:
    """Turn a result into a refusal: its receipt could not be written. It says whether the tool ran."""
    known = isinstance(error, LedgerUnavailable | Unavailable)
    text = "the ledger could not keep the receipt" + ("" if known else f": {type(error).__name__}")
    if call.running:
        text = f"{call.tool} ran, and {text}: what it did is done"
    else:  # the ledger has not even the decision: there is nothing under this id
        parts.receipt = ""
    refusal = Refused(Deny(call.request, (Ground("LEDGER_UNAVAILABLE", text, fix=str(error) if known else ""),)))
    parts.refuse("execution_failed" if call.running else "not_available", refusal)


def _cost(call: Call, registered: Registered) -> Decimal:
    """The cost of a call that ran: what the tool charged, or else what it declares."""
    charged = call.charged() if call.charged is not None else None
    return charged if charged is not None else registered.cost_usd


def _notify_observers(call: Call, parts: ResultParts) -> None:
    """Pass the events of a call that was refused before it had a grant."""
    if parts.refusal is None:
        return
    for observer in call.session.gate.observers:
        try:
            for event in all_events(parts.refusal):
                observer(call.identity.stamped(event, call.clock.monotonic()))
        except Exception as error:
            text = f"an observer failed: {type(error).__name__}"
            parts.refuse("denied", Refused(Deny(call.request, (Ground("DECISION_FAILED", text),))))
