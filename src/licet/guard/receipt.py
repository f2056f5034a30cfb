"""Decides which facts of a call a ledger keeps: `decision_of` before the tool runs, `receipt_of` at the end.

`progress_of` is for what must be on disk while the tool still runs; `guard/progress.py` decides when.

The schema is `core.ledger.entry`. A new fact is one line there and one line here. Nothing here is secret: arguments and
results are digests, and texts are redacted. With `record: full` the redacted arguments and result are kept as well.
"""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.decision.decision import Ask, BudgetSettled, Deny, Event, Happened, SandboxEntered, all_events
from licet.core.decision.request import Spent, plus, spent_of
from licet.core.ledger.entry import (
    AccessCounts,
    AccessFact,
    AgentFact,
    ApprovalFact,
    BodiesFact,
    BudgetFact,
    BundleBudgetFact,
    Entry,
    EventFact,
    ParentFact,
    ProgramAccessFact,
    ProgramsFact,
    SandboxFact,
    SpentFact,
    Texts,
    time_text,
)
from licet.core.limits import MOST_PURPOSE
from licet.core.values import data_digest, data_json, milliseconds, money_text
from licet.declare.plain_json import data_again, plain_json
from licet.guard.execution import Layers
from licet.guard.facts import Call
from licet.guard.flow_steps import Handed, flow_fact, handed_of
from licet.guard.grant import Access
from licet.guard.limits import MOST_OF_A_CLAIM
from licet.guard.ports import ASKED_IN_AGENT
from licet.guard.registration import admission_rules, entry_of
from licet.guard.result_parts import INTERRUPTED, REPORTED, REPORTED_BY_AGENT, UNREPORTED, ResultParts

# The tool ran, or its use was granted, and something else went wrong: such a call was not denied.
_FAILURES = frozenset({"TOOL_FAILED", "TOOL_CRASHED", "CONNECT_FAILED", "RESOLVE_FAILED"})
_NOTHING = Decimal(0)
_ELSEWHERE = (BudgetSettled, SandboxEntered)  # the rule of these events is in `cost_usd` or `sandbox`
_OWN_TEXTS = (INTERRUPTED, REPORTED, REPORTED_BY_AGENT, UNREPORTED)  # of failures; every other text is the tool's


async def made_receipt(call: Call, parts: ResultParts) -> tuple[Handed | None, Entry]:
    """The receipt of a call, and what its session is to remember; None if it remembers nothing.

    Long ones are made in a thread, so that other calls can run.
    """
    return await asyncio.to_thread(_made, call, parts) if call.is_long else _made(call, parts)


def _made(call: Call, parts: ResultParts) -> tuple[Handed | None, Entry]:
    handed = handed_of(call, parts, call.flow) if call.flow is not None else None
    return handed, receipt_of(call, parts, handed)


def decision_of(call: Call) -> Entry:
    """The facts that are known when a call is allowed, and nothing has happened yet."""
    session, parent = call.session, call.session.parent
    cost = call.reservation.claim.cost_usd if call.reservation is not None else _NOTHING
    return replace(
        _known(call),
        id=call.receipt,
        agent=session.agent,
        session=session.id,
        parent=ParentFact(agent=parent.agent, session=parent.id) if parent is not None else None,
        caller=session.caller,
        time=time_text(call.time),
        flags=tuple(map(visible, session.gate.flags)) or UNSET,
        arguments=call.digest or None,
        approvals=_approvals(call) if call.approvals else (),
        budget=_budget(call, cost, spent=True),
        cost_usd=money_text(cost),
        events=tuple(map(event_fact, call.grant.events if call.grant is not None else ())),
        coding_agent=_coding_agent(call),
        observed=call.observed,
        flow=flow_fact(call),
        call_id=call.id or UNSET,
    )


def progress_of(call: Call, events: Sequence[Event]) -> Entry:
    """What has happened since the last entry of a call that still runs, under what identifies the call."""
    known = call.decision or decision_of(call)
    return replace(
        known,
        kind="progress",
        approvals=(),
        budget=None,
        cost_usd="0",
        events=tuple(map(event_fact, events)),
        flow=UNSET,
    )


def receipt_of(call: Call, parts: ResultParts, handed: Handed | None = None) -> Entry:
    """The facts of a call that has ended, however it ended. `handed` is what its session remembers of it."""
    refusal, full = parts.refusal, call.policy.manifest.record == "full"
    known = _known(call)
    failed = parts.reason == "TOOL_FAILED"
    # A tool's error text is a result: it is kept with `record: full` alone, and otherwise as a digest.
    withheld = failed and not full
    returned = refusal is None or parts.value is not None  # a server's tool may say in its result that it failed
    result = parts.value if returned else parts.error
    return replace(  # what identifies the call is the same in both
        call.decision or decision_of(call),
        kind="receipt",
        purpose=_purpose(call, call.purpose) if call.purpose is not None else None,
        approvals=_approvals(call) if call.approvals else (),
        bodies=_bodies(call, parts) if full else UNSET,
        budget=_budget(call, parts.cost_usd, spent=call.running),
        code=parts.code,
        coding_agent=_coding_agent(call),
        cost_usd=money_text(parts.cost_usd),
        duration_ms=milliseconds(parts.duration_ms),
        error=visible(parts.error) if refusal is not None and not _hides_error(parts, full) else None,
        events=_events(call, refusal),
        observed=call.observed,
        reason=parts.reason,
        result=data_digest(result) if returned or withheld else None,
        rules=known.rules if refusal is None else _rules(parts, refusal, full),
        sandbox=_sandbox(call, parts, known.sandbox),
        truncated=parts.truncated,
        verdict=_verdict(parts),
        flow=flow_fact(call, handed),
        repeats=call.repeated.receipt if call.repeated is not None else UNSET,
    )


_NARROWED = "nobody has approved its deletes of files: it removes only what is in scratch, or was made meanwhile"


def _known(call: Call) -> Entry:
    """The facts that all calls of its tool share."""
    registered = call.registered
    if registered is None:
        return entry_of(call.tool, call.policy.manifest)
    if not call.request.narrowed or registered.reach is None:
        return registered.entry
    rules = admission_rules(call.tool, registered.reach.without_approved_deletes)
    return replace(registered.entry, rules=(*rules, _NARROWED))


def _purpose(call: Call, text: str) -> str:
    """Why the caller made this call, redacted and cut to 500 characters.

    A decision has no purpose: the secrets that the call will see, and that must not be in it, are not known then.
    """
    enough = 4 * (MOST_PURPOSE + 1)  # bytes of that many characters
    # Only the beginning is redacted, and no secret is cut in half.
    text = visible(text[:enough] if call.redactor is None else call.redactor.beginning_of(text, enough))
    return text if len(text) <= MOST_PURPOSE else text[: MOST_PURPOSE - 1] + "…"


def _verdict(parts: ResultParts) -> Literal["allow", "ask", "deny"]:
    if parts.refusal is None or parts.reason in _FAILURES:
        return "allow"
    return "ask" if isinstance(parts.refusal, Ask) else "deny"


def _hides_error(parts: ResultParts, full: bool) -> bool:
    """Whether the error is text of the tool, which a receipt keeps only with `record: full`."""
    if parts.refusal is None or full:
        return False
    return parts.reason == "TOOL_FAILED" and parts.refusal.rules[0].text not in _OWN_TEXTS


def _rules(parts: ResultParts, refusal: Deny | Ask, full: bool) -> Texts:
    """The rules that decided how a call ended that was refused, or failed."""
    if _hides_error(parts, full):
        origin = refusal.rules[0].origin
        return (f"the tool raised an error ({visible(str(origin))})" if origin else "the tool raised an error",)
    return tuple(visible(str(rule)) for rule in refusal.rules)


def _approvals(call: Call) -> tuple[ApprovalFact, ...]:
    return tuple(
        ApprovalFact(
            arguments=agreed.approval.arguments or None,
            by=tuple(map(visible, agreed.by)),
            request=agreed.request or None,
            use=visible(agreed.approval.use) or None,
            deletes=agreed.approval.deletes or UNSET,
            standing=agreed.standing or UNSET,
        )
        for agreed in call.shown_approvals
    )


def _coding_agent(call: Call) -> AgentFact | UnsetType:
    """The facts about the agent whose hook made this call, readable and cut: they are the agent's texts."""
    fact = call.coding_agent
    if isinstance(fact, UnsetType):
        return UNSET
    texts = {
        name: visible(getattr(fact, name)[:MOST_OF_A_CLAIM])
        for name in ("name", "version", "call", "subagent", "event")
    }
    asked = fact.asked or any(ASKED_IN_AGENT in agreed.by for agreed in call.approvals)
    return replace(fact, **texts, asked=asked)


def _sandbox(call: Call, parts: ResultParts, walls: SandboxFact) -> SandboxFact:
    """The walls that were in force around the tool, of those of its level, and the rules that the kernel enforced."""
    if not call.running or call.is_elsewhere:
        walls = SandboxFact(level=walls.level)
    if parts.access is None and parts.programs is None:
        return walls
    access = _access(parts.access) if parts.access is not None else None
    programs = _programs(call, parts, parts.programs) if parts.programs is not None else None
    return replace(walls, access=access, programs=programs)


def _access(found: Access) -> AccessFact:
    granted, closed, rules, runtime = found.counts
    return AccessFact(
        granted=found.granted,
        closed=found.closed,
        rules=found.rules,
        runtime=found.runtime,
        counts=AccessCounts(granted=granted, closed=closed, rules=rules, runtime=runtime),
        digest=found.digest,
        direct=found.direct,
    )


def _programs(call: Call, parts: ResultParts, layers: Layers) -> ProgramsFact:
    found = parts.program_access
    return ProgramsFact(
        access=ProgramAccessFact(sets=tuple(map(_access, found.sets)), more=found.more, digest=found.digest or None),
        ended=call.grant.ended if call.grant is not None else (),
        layers=tuple(layers.in_force),
        missing=tuple(layers.missing),
    )


def _events(call: Call, refusal: Deny | Ask | None) -> tuple[EventFact, ...]:
    """The events of a call that has ended. Those of its decision stay, unless they hold what is known as secret now."""
    if call.grant is None:
        return tuple(map(event_fact, all_events(refusal))) if refusal is not None else ()
    before = call.decision.events if call.decision is not None and call.listed_all and not call.grant.redactor else ()
    return (*before, *map(event_fact, call.grant.events_after(len(before))))


def event_fact(event: Event) -> EventFact:
    """One event as an entry has it. Events that are no checks leave out what another field of the entry has."""
    kind, about, rule = type(event), event.capability, event.rule
    if not issubclass(kind, Happened):
        return EventFact(kind=kind.__name__, capability=visible(about), reason=event.reason, rule=visible(rule))
    return EventFact(
        kind=kind.__name__,
        capability=UNSET if about == f"tool:call:{event.tool_name}" else visible(about),
        reason=event.reason or UNSET,
        rule=UNSET if kind in _ELSEWHERE else visible(rule) or UNSET,
        count=event.count or UNSET,
    )


def _budget(call: Call, cost: Decimal, *, spent: bool) -> BudgetFact | None:
    """What was spent before this call, and with it; None if nothing was reserved and nothing was looked up."""
    usage = call.usage
    if call.reservation is not None:
        before = call.reservation.before
    elif usage.calls or usage.calls_today or usage.cost_usd_today:  # refused after what was spent had been looked up
        before = spent_of(usage, call.tool)
    else:
        return None
    after = _with_call(before, cost) if spent else before
    money = bool(cost or before.cost_usd or before.cost_usd_today)
    return BudgetFact(
        before=_spent(before, money=money), after=_spent(after, money=money), bundles=_bundles(call, cost, spent=spent)
    )


def _bundles(call: Call, cost: Decimal, *, spent: bool) -> dict[str, BundleBudgetFact] | UnsetType:
    """The same for each bundle that has a budget."""
    found = {name: spent_of(usage, "") for name, usage in call.usage.bundles.items()}
    found |= {name: reservation.before for name, reservation in call.bundle_reservations.items()}
    return {
        name: BundleBudgetFact(
            before=_bundle_spent(before), after=_bundle_spent(_with_call(before, cost) if spent else before)
        )
        for name, before in found.items()
    } or UNSET


def _with_call(before: Spent, cost: Decimal) -> Spent:
    return Spent(
        calls=before.calls + 1,
        calls_of_tool=before.calls_of_tool + 1,
        calls_today=before.calls_today + 1,
        cost_usd=plus(before.cost_usd, cost),
        cost_usd_of_tool=plus(before.cost_usd_of_tool, cost),
        cost_usd_today=plus(before.cost_usd_today, cost),
    )


def _spent(spent: Spent, *, money: bool) -> SpentFact:
    return SpentFact(
        calls=spent.calls,
        calls_of_tool=spent.calls_of_tool,
        calls_today=spent.calls_today,
        cost_usd=money_text(spent.cost_usd) if money else UNSET,
        cost_usd_of_tool=money_text(spent.cost_usd_of_tool) if money else UNSET,
        cost_usd_today=money_text(spent.cost_usd_today) if money else UNSET,
    )


def _bundle_spent(spent: Spent) -> SpentFact:
    return SpentFact(
        calls=spent.calls,
        calls_today=spent.calls_today,
        cost_usd=money_text(spent.cost_usd),
        cost_usd_today=money_text(spent.cost_usd_today),
    )


def _bodies(call: Call, parts: ResultParts) -> BodiesFact:
    """Arguments and result as JSON text: as text they may hold floats, which an entry itself may not."""
    arguments = None
    if call.digest:
        text = plain_json(call.arguments)
        given = data_again(text if call.redactor is None else call.redactor.json(text))
        arguments = data_json(given).decode()
    returned = parts.refusal is None or parts.value is not None
    return BodiesFact(arguments=arguments, result=data_json(parts.value).decode() if returned else None)
