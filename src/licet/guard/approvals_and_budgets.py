"""Asks an approver about a call, and turns the answer into an approval or a refusal.

Budgets on the path of a call: read the usage, reserve before any effect, settle afterwards.

If the bundle of a tool has a budget, a call spends from the bundle's account and from its agent's.
"""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from time import monotonic
from typing import NoReturn, get_args

from msgspec.structs import replace

from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide
from licet.core.decision.decision import (
    ApprovalAnswered,
    ApprovalAsked,
    Ask,
    BudgetRefunded,
    BudgetReserved,
    BudgetSettled,
    BudgetUnsettled,
    Deny,
    Happened,
)
from licet.core.decision.reach import Reach
from licet.core.decision.request import Approval, Ground, Reason, Usage, bundle_account
from licet.core.values import money_text
from licet.declare.arguments import exact
from licet.guard.deadlines import Deadline, finish, in_time
from licet.guard.facts import Call
from licet.guard.flow_steps import unmet_lines
from licet.guard.grant import Grant
from licet.guard.ports import (
    Agreement,
    Answer,
    Answered,
    Approver,
    ApproverFunction,
    Budgets,
    Claim,
    Opened,
    Question,
    Reservation,
    Unavailable,
    answer_of,
)
from licet.guard.registration import Registered
from licet.guard.session_end import HOW_TO_THAW, check_session, look_up_end, look_up_freeze

_ANSWERS = get_args(Answer)
_REFUSALS: dict[str, tuple[Reason, str]] = {
    "denied": ("APPROVAL_DENIED", "the person who was asked said no"),
    "expired": ("APPROVAL_EXPIRED", "nobody answered in time"),
}


async def ask_approver(call: Call, decision: Ask, *, optional: bool = False) -> tuple[Approval, ...]:
    """Ask the approver, and return the approvals that were given; raise `Refused` if there are none.

    They are the call itself and, if the approver was shown them and agreed, the deletes that the call is known to make.
    If the answer is `optional`, none are returned where nobody has given one. `call.approvals` then has who agreed.
    """
    approver, reach = call.ports.approver, call.registered.reach if call.registered else None
    answered, grant, asked = Answered("absent"), call.grant, call.clock.monotonic()
    assert grant is not None  # noqa: S101 - a call has its grant before it asks
    also = decision.also
    reasons = decision.rules if decision.approval.deletes else decision.rules[:1]
    if not optional:
        _note_asked(grant, decision, reasons)
    if approver is not None and reach is not None:
        question = replace(_question(call, decision, reach, tuple(one.use for one in also)), optional=optional)
        if question.signed and not getattr(approver, "verifies", False):
            text = "the policy needs signed approvals, but the approver cannot verify a signature"
            call.refuse("APPROVAL_REQUIRED", text, use=decision.use)
        try:
            began = monotonic()
            answered = await _answer(approver, question)
            call.stores.until += monotonic() - began  # the time of the approver does not count
        except Unavailable as broken:
            call.refuse("BACKEND_MISSING", "the store of approvals cannot be used", str(broken), decision.use)
        if call.deadline is None:  # nothing has run, so the end of the session by another process still stops it
            await look_up_end(call.session, call.stores)
            check_session(call, decision.use)
        if call.clock.monotonic() - asked >= question.expires_seconds:  # a late answer counts as none
            answered = replace(answered, answer="expired")
    if decision.approval.flow:
        call.flow_request = answered.request
    answer = answered.answer if answered.answer in _ANSWERS else "absent"  # a callback may return anything
    if optional:
        if answer == "absent":
            return ()
        _note_asked(grant, decision, reasons)
    if answered.first_only:
        also = ()
    grant.note_of(ApprovalAnswered, decision.use, rule=answer)
    for one in also:
        grant.note_of(ApprovalAnswered, Use(one.use), rule=answer)
    if answered.answer == "approved":
        if answered.to_use:
            if call.ports.opening is None:
                call.refuse("BACKEND_MISSING", "nothing here could use the approval up, so it does not count")
            call.to_use += (answered.request,)
        agreed = (decision.approval, *also)
        first, *rest = (Agreement(one, answered.by, answered.request) for one in agreed)
        call.approvals += (first, *rest)
        if not (decision.approval.arguments or answered.asks_again):  # the approval is for the session
            seconds = reach.approvals.expires_seconds if reach is not None else 0
            call.session.agree(first, call.policy, asked, seconds)
        return agreed
    note = (Ground("APPROVAL_REQUIRED", answered.note, fix=answered.fix),) if answered.note or answered.fix else ()
    stop: Ask | Deny = replace(decision, rules=(*decision.rules, *note))
    if answered.answer in _REFUSALS:
        reason, text = _REFUSALS[answered.answer]
        stop = Deny(call.request, (Ground(reason, text), *note), decision.use)
    grant.deny(stop)


def _note_asked(grant: Grant, decision: Ask, reasons: Sequence[Ground]) -> None:
    grant.note_of(ApprovalAsked, decision.use, rule="; ".join(map(str, reasons)))
    for one in decision.also:
        grant.note_of(ApprovalAsked, Use(one.use), rule=str(decision.rules[-1]))


async def _answer(approver: Approver | ApproverFunction, question: Question) -> Answered:
    """The answer of an approver, or `expired` when the time of the question is up."""
    limit = Deadline(question.expires_seconds)
    try:
        with limit:
            answer = await answer_of(approver, question)
    except TimeoutError:
        if not limit.expired:  # raised by the approver itself
            raise
        return Answered("expired")
    return answer if isinstance(answer, Answered) else Answered(answer, ("callback",))


def _question(call: Call, decision: Ask, reach: Reach, acts: tuple[str, ...]) -> Question:
    approvals = reach.approvals
    return Question(
        approval=decision.approval,
        spec=reach.spec,
        arguments=exact(call.arguments),
        stakes=reach.grant.allow,
        why="; ".join(dict.fromkeys(rule.text for rule in decision.rules)),
        expires_seconds=approvals.expires_seconds,
        agent=call.session.agent,
        effect=reach.effect or "",
        workdir=call.session.gate.workdir,
        since=call.session.gate.reloaded,
        quorum=approvals.quorum,
        keys=approvals.keys,
        names=approvals.names,
        acts=acts,
        deletes=tuple(map(str, reach.free_deletes.allow)) if decision.approval.deletes else (),
        rules=tuple(decision.rules),
        unmet=unmet_lines(call.usage.flow, call.redactor) if decision.approval.flow else (),
    )


_STORE = "the store of budgets"


async def spent(call: Call, registered: Registered, budgets: Budgets) -> Usage:
    """The usage of the session of a call, and of the bundles of its tool."""
    (agent, session), day = call.session.account, call.time.date().isoformat()
    bundles = registered.reach.bundles if registered.reach is not None else ()
    try:
        usage = await in_time(call.stores, budgets.usage(agent, session, day), _STORE)
        bundle_usage = {
            bundle.name: await in_time(
                call.stores, budgets.usage(bundle_account(agent, bundle.name), session, day), _STORE
            )
            for bundle in bundles
            if bundle.budget
        }
    except Unavailable as broken:
        call.refuse("BACKEND_MISSING", f"{_STORE} cannot be used", str(broken))
    return replace(usage, bundles=bundle_usage) if bundle_usage else usage


async def reserve(call: Call, registered: Registered, grant: Grant) -> None:
    """Reserve one call and its cost, or refuse the call."""
    budgets = call.ports.budgets
    if budgets is None:
        call.refuse("BACKEND_MISSING", f"Tool {call.tool} has a budget, but no backend keeps one")
    claim, bundle_claims = _claims(call, registered)
    try:
        # The bundles first: a call that its bundle refuses then takes nothing from the other tools of its agent.
        for name, wanted in bundle_claims.items():
            taken = await in_time(call.stores, budgets.reserve(wanted), _STORE)
            if taken is None:
                break
            call.bundle_reservations[name] = taken
        else:
            call.reservation = await in_time(call.stores, budgets.reserve(claim), _STORE)
    except Unavailable as broken:
        call.refuse("BACKEND_MISSING", f"{_STORE} cannot be used", str(broken))
    if call.reservation is None:
        await _deny_overspent(call, registered, grant)
    grant.note_of(BudgetReserved, rule=f"{money_text(claim.cost_usd)} USD" if claim.cost_usd else "")


def unreserved(call: Call) -> tuple[Claim, ...]:
    """What a call still has to set aside: for its bundles, and last for its agent."""
    registered = call.registered
    if registered is None or not registered.budgeted or call.reservation is not None:
        return ()
    if call.ports.budgets is None:
        call.refuse("BACKEND_MISSING", f"Tool {call.tool} has a budget, but no backend keeps one")
    claim, bundle_claims = _claims(call, registered)
    return (*bundle_claims.values(), claim)


async def take_opened(call: Call, opened: Opened) -> None:
    """Note what was set aside for a call that was opened; refuse one that was not."""
    registered, grant = call.registered, call.grant
    assert registered is not None  # noqa: S101 - a call that is recorded has both
    assert grant is not None  # noqa: S101
    match opened.refused:
        case "":
            if opened.reservations:
                _, bundle_claims = _claims(call, registered)
                *of_bundles, call.reservation = opened.reservations
                call.bundle_reservations = dict(zip(bundle_claims, of_bundles, strict=True))
                cost = call.reservation.claim.cost_usd
                grant.note_of(BudgetReserved, rule=f"{money_text(cost)} USD" if cost else "")
        case "BUDGET_EXCEEDED":
            await _deny_overspent(call, registered, grant)
        case "APPROVAL_REQUIRED":
            text = "the approval of this call was used meanwhile by another one"
            call.refuse("APPROVAL_REQUIRED", text, "ask again: each approval is for one call")
        case _:
            # Anybody who can write the table may have chosen that reason: the model is told what is signed.
            await look_up_freeze(call.session, call.tool, call.stores)
            check_session(call)
            call.refuse("FROZEN", "it was frozen a moment ago", HOW_TO_THAW)


async def use_now(call: Call, use: Use) -> None:
    """Use up an approval that was given to a call which was opened before."""
    to_use, call.to_use, opening = call.to_use, (), call.ports.opening
    for request in to_use:
        assert opening is not None  # noqa: S101 - otherwise the approval did not count
        try:
            used = await in_time(call.stores, opening.use(request, call.receipt), "the store of approvals")
        except Unavailable as broken:
            call.refuse("BACKEND_MISSING", "the store of approvals cannot be used", str(broken), use)
        if not used:
            text = "the approval of this use was used meanwhile by another call"
            call.refuse("APPROVAL_REQUIRED", text, "ask again: each approval is for one call", use)


async def _deny_overspent(call: Call, registered: Registered, grant: Grant) -> NoReturn:
    assert call.ports.budgets is not None  # noqa: S101 - it has refused
    call.usage = replace(
        await spent(call, registered, call.ports.budgets), approved=call.usage.approved, flow=call.usage.flow
    )
    decision = decide(call.request, call.policy.manifest, call.usage)
    if isinstance(decision, Deny):  # it names the limit, and where that is stated
        grant.deny(decision)
    call.refuse("BUDGET_EXCEEDED", "other calls have spent what was left")  # but one was refunded meanwhile


def _claims(call: Call, registered: Registered) -> tuple[Claim, dict[str, Claim]]:
    """What a call claims of the budget of its agent, and of those of its bundles."""
    reach = registered.reach
    assert reach is not None  # noqa: S101 - only admitted tools have claims
    (agent, session), day, cost = call.session.account, call.time.date().isoformat(), registered.cost_usd
    budget, own = call.policy.manifest.budget, (reach.max_calls, reach.max_cost_usd)
    bundle_claims = {
        bundle.name: Claim(bundle_account(agent, bundle.name), session, call.tool, day, cost, bundle.budget, None, None)
        for bundle in reach.bundles
        if bundle.budget
    }
    return Claim(agent, session, call.tool, day, cost, budget, *own), bundle_claims


async def settle(call: Call, cost: Decimal) -> Happened | None:
    """Settle the reservations of a call that ran, or refund those of one that did not; return the event."""
    registered, about = call.registered, (f"tool:call:{call.tool}", call.tool)
    assert registered is not None  # noqa: S101 - it has made the reservation
    reservations = [one for one in (call.reservation, *call.bundle_reservations.values()) if one is not None]
    failed = ""
    for reservation in reservations:
        try:
            await _end(call, reservation, cost)
        except (asyncio.CancelledError, Exception) as error:  # the store's own cancel: that of the caller is kept
            # An unsettled reservation counts as spent: a store that fails here can only make the budget smaller.
            failed = type(error).__name__
    if failed:
        return BudgetUnsettled(*about, rule=failed)
    if call.reservation is None:  # a bundle refused: there was no event about a reservation
        return None
    if not call.running:
        return BudgetRefunded(*about)
    return BudgetSettled(*about, rule=f"{money_text(cost)} USD" if cost or registered.cost_usd else "")


async def _end(call: Call, reservation: Reservation, cost: Decimal) -> None:
    budgets = call.ports.budgets
    assert budgets is not None  # noqa: S101 - it has made the reservation
    await finish(
        call.stores, budgets.settle(reservation, cost) if call.running else budgets.refund(reservation), _STORE
    )
