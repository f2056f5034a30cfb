"""The end of a call: whatever happened becomes one `Result`, redacted and capped, and leaves a receipt."""

import asyncio
import os
import traceback
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from licet.core.canonical import money_text
from licet.core.decision import Ask, Deny, Ground, Reason
from licet.core.happened import BudgetRefunded, BudgetSettled, BudgetUnsettled, Happened, all_events
from licet.core.origin import Origin
from licet.core.scope import visible
from licet.declare.json_data import data_again, plain_json
from licet.errors import Refused
from licet.guard.asking import told_agreements
from licet.guard.endings import LIMIT_KEYS, Raised, limit_name
from licet.guard.ports import LedgerUnavailable, Reservation
from licet.guard.redact import in_turn
from licet.guard.registration import Registered
from licet.guard.result import NOTHING, Result, ResultParts, code_of
from licet.guard.secrets import redacted_refusal
from licet.values import replace

if TYPE_CHECKING:
    from licet.guard.call import Call

MOST_OF_AN_ERROR = 1000  # characters
_USE_HANDLES = (
    "if a wall stopped this: declare what it touches, and use its handle (`ctx.fs`, `ctx.fetch`, `ctx.process`)"
)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


async def succeeded(call: "Call", value: Any) -> ResultParts:
    """The result of a tool that returned: plain data, frozen here, and no longer than its limit."""
    if value is None or value is True or value is False:
        return ResultParts(call.tool, value)
    text = result_text(value)
    limit, redactor = call.registered.output_bytes if call.registered else 0, call.redactor
    if redactor is not None and len(text) <= limit:  # once over the whole text: it may hold very many strings
        text, redactor = await in_turn(redactor.work(text, as_json=True)), None
    data = data_again(text)
    if len(text) <= limit:
        return ResultParts(call.tool, data)
    # A text is cut as a text; of anything else the beginning of its JSON is shown.
    whole = data.encode(errors="surrogatepass") if type(data) is str else text
    shown = whole[:limit] if redactor is None else await in_turn(redactor.work_on_beginning(whole, limit))
    parts = ResultParts(call.tool, shown.decode(errors="ignore"))
    parts.truncated = True
    return parts


def result_text(value: Any) -> bytes:
    """What a tool returned, as JSON; `TypeError` if that cannot be. The same wherever the tool ran."""
    if hasattr(value, "__next__") or hasattr(value, "__anext__"):
        raise TypeError("it returned a generator: return a list")
    try:
        return plain_json(value)
    except ValueError as error:  # its text may show the value
        raise TypeError(f"it returned what JSON cannot carry: {type(value).__name__}") from error


def refused(call: "Call", refusal: Refused) -> ResultParts:
    """The result of a call that was refused, before its tool ran or by a handle inside it."""
    code, decision = code_of(refusal.code), refusal.decision
    if call.running:
        code = "timed_out" if call.deadline and call.deadline.expired else "execution_failed"
        if decision.use is None and refusal.code in LIMIT_KEYS:
            decision = _with_advice(call, decision)
    told = Refused(decision)
    return ResultParts(call.tool).refuse(code, told if call.redactor is None else redacted_refusal(call.redactor, told))


def _with_advice(call: "Call", decision: Deny | Ask) -> Deny | Ask:
    """A tool that was ended at a limit of its own, with what would let it go on."""
    ground, manifest = decision.rules[0], call.policy.manifest
    if isinstance(decision, Ask) or ground.fix or ground.reason == "LIMIT_OUTPUT":  # that one of answers is ours
        return decision
    name = limit_name(ground.reason)
    fix, place = f"set a higher {name} under `capabilities` ({manifest.origin.file})", ground.origin
    if found := _limit_place(call, LIMIT_KEYS[ground.reason]):
        whose, place = found
        fix = f"raise {name}{whose} ({place})"
    return Deny(decision.request, (replace(ground, fix=fix, origin=place),), None)


def _limit_place(call: "Call", key: str) -> tuple[str, Origin] | None:
    """Who states the limit that holds for this call, and where; None if nobody does."""
    manifest, registered = call.policy.manifest, call.registered
    limit = registered.limits.get(key) if registered is not None else None
    if limit is None:
        return None
    if manifest.limits.get(key) == limit:
        place = manifest.places.get(f"limits.{key}", manifest.origin)
        # A personality has the keys of `capabilities` at its top level.
        return " under `capabilities`" if place.file == manifest.origin.file else "", place
    for seat in manifest.seats.get(call.tool, ()):
        if seat.limits.get(key) == limit:
            return f" of the bundle `{seat.bundle}`" if seat.bundle else f" of `{call.tool}`", seat.origin
    return None


def failed(call: "Call", error: BaseException) -> ResultParts:
    """The result of a call that something went wrong in: the tool's own error, or one of ours before it ran."""
    reason: Reason = "TOOL_FAILED" if call.running else "DECISION_FAILED"
    said = error.kind if isinstance(error, Raised) else type(error).__name__
    if call.running and (text := _text(error)):
        said = f"{said}: {text}"
    said = said.strip()
    if call.redactor is not None:  # with the lines after the first: a secret may have several
        raw = said.encode(errors="surrogatepass")
        said = call.redactor.beginning(raw, 4 * MOST_OF_AN_ERROR).decode(errors="ignore")
    said = visible(said.partition("\n")[0][:MOST_OF_AN_ERROR])[:MOST_OF_AN_ERROR]
    at = _raised_behind_walls(call, error) if isinstance(error, Raised) else _raised_at(error)
    fix = _USE_HANDLES if isinstance(error, Raised) and error.forbidden else ""
    refusal = Refused(Deny(call.request, (Ground(reason, said, at, fix),)))
    return ResultParts(call.tool).refuse("execution_failed" if call.running else "denied", refusal)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # it is the tool's own class: what it does here is as good as silence
        return ""


def _raised_at(error: BaseException) -> Origin | None:
    """The line of the tool, or of what it called, that an error came from; our own lines help nobody."""
    lines = [
        Origin(frame.filename, frame.lineno or 1, 1)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OURS)
    ]
    return lines[-1] if lines else None


def _raised_behind_walls(call: "Call", error: Raised) -> Origin | None:
    """The line that the tool's process names, in the file that we know: it can lie about no more than a number."""
    code = getattr(call.registered.tool.fn, "__code__", None) if call.registered is not None else None
    return Origin(code.co_filename, error.line, 1) if code is not None and error.line else None


async def close(call: "Call", parts: ResultParts) -> Result:
    """Settle, redact and record: every exit leaves a receipt, refusals too."""
    holding, ledger = call.holding, call.ports.ledger
    if holding is not None:
        holding.end()  # before anything is added up or waited for: from here on its handles refuse
    if call.running and call.registered is not None:
        parts.layers = call.registered.layers
        parts.cost_usd = _cost(call, call.registered)
    else:
        parts.layers, parts.cost_usd = (), NOTHING
    cancelled = None
    if call.reservation is not None and holding is not None:
        try:
            holding.note(await _settle(call, call.reservation, parts.cost_usd))
        except Refused as refusal:  # an observer has failed
            parts.refuse("execution_failed" if call.running else "denied", refusal)
        except asyncio.CancelledError as error:  # whoever called has gone; there is still a receipt to leave
            cancelled = error
    if holding is not None:
        parts.programs = holding.programs
    else:
        parts.programs = None
        _tell(call, parts)
    if call.approvals:
        parts.approvals = told_agreements(call)
    parts.receipt = call.receipt
    parts.duration_ms = (call.clock.monotonic() - call.started) * 1000
    if ledger is not None:
        try:
            await ledger.record(call.entry("receipt", parts))
        except Exception as error:
            known = isinstance(error, LedgerUnavailable)
            text = "the ledger could not keep the receipt" + ("" if known else f": {type(error).__name__}")
            fix = str(error) if known else ""
            if call.running:
                text = f"{call.tool} ran, and {text}: what it did is done"
            else:  # then not even the decision was kept, and nobody would find anything under that name
                parts.receipt = ""
            unkept = Refused(Deny(call.request, (Ground("LEDGER_UNAVAILABLE", text, fix=fix),)))
            parts.refuse("execution_failed" if call.running else "not_available", unkept)
    if cancelled is not None:
        raise cancelled
    return parts.sealed(holding)


def _cost(call: "Call", registered: Registered) -> Decimal:
    """What a call that ran has cost: what the tool reported, or what it declares."""
    charged = call.context.settled() if call.context is not None else None
    return charged if charged is not None else registered.cost_usd


async def _settle(call: "Call", reservation: Reservation, cost: Decimal) -> Happened:
    """Turn what was set aside into what was spent; for a call that never ran it goes back."""
    budgets, registered, about = call.ports.budgets, call.registered, (f"tool:call:{call.tool}", call.tool)
    assert budgets is not None and registered is not None  # noqa: PT018, S101 - they have made the reservation
    try:
        if not call.running:
            await budgets.refund(reservation)
            return BudgetRefunded(*about)
        await budgets.settle(reservation, cost)
    except Exception as error:
        # What stays reserved counts as spent: a store that fails here can only make the budget smaller.
        return BudgetUnsettled(*about, rule=type(error).__name__)
    if cost is registered.cost_usd:
        return registered.usual.settled
    return BudgetSettled(*about, rule=f"{money_text(cost)} USD")


def _tell(call: "Call", parts: ResultParts) -> None:
    """Let observers know of a refusal that came before anything was held."""
    if parts._refusal is None:
        return
    for observer in call.session.gate.observers:
        try:
            for event in all_events(parts._refusal):
                observer(event)
        except Exception as error:
            text = f"an observer failed: {type(error).__name__}"
            parts.refuse("denied", Refused(Deny(call.request, (Ground("DECISION_FAILED", text),))))
