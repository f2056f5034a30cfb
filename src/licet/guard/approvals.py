"""Asks an approver about a call, and turns the answer into an approval or a refusal."""

from time import monotonic
from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from licet.core.algebra.use import Use
from licet.core.decision.decision import ApprovalAnswered, ApprovalAsked, Ask, Deny
from licet.core.decision.reach import Reach
from licet.core.decision.request import Approval, Ground, Reason
from licet.declare.received import exact
from licet.guard.deadline import Deadline
from licet.guard.ending import check_session
from licet.guard.people import Agreement, Answer, Answered, Approver, ApproverFunction, Question, answer_of
from licet.guard.ports import Unavailable

if TYPE_CHECKING:
    from licet.guard.call import Call

_ANSWERS = get_args(Answer)
_REFUSALS: dict[str, tuple[Reason, str]] = {
    "denied": ("APPROVAL_DENIED", "the person who was asked said no"),
    "expired": ("APPROVAL_EXPIRED", "nobody answered in time"),
}


async def ask_approver(call: "Call", decision: Ask) -> tuple[Approval, ...]:
    """Ask the approver, and return the approvals that were given; raise `Refused` if there are none.

    They are the call itself and, if the approver was shown them and agreed, the deletes that the call is known to make.
    `call.approvals` then has who agreed.
    """
    approver, reach = call.ports.approver, call.registered.reach if call.registered else None
    answered, grant, asked = Answered("absent"), call.grant, call.clock.monotonic()
    assert grant is not None  # noqa: S101 - a call has its grant before it asks
    also = decision.also
    reasons = decision.rules if decision.approval.deletes else decision.rules[:1]
    grant.note_of(ApprovalAsked, decision.use, rule="; ".join(map(str, reasons)))
    for one in also:
        grant.note_of(ApprovalAsked, Use(one.use), rule=str(decision.rules[-1]))
    if approver is not None and reach is not None:
        question = _question(call, decision, reach, tuple(one.use for one in also))
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
            await call.session.check_ended()
            check_session(call, decision.use)
        if call.clock.monotonic() - asked >= question.expires_seconds:  # a late answer counts as none
            answered = replace(answered, answer="expired")
    answer = answered.answer if answered.answer in _ANSWERS else "absent"  # a callback may return anything
    if answered.first_only:
        also = ()
    grant.note_of(ApprovalAnswered, decision.use, rule=answer)
    for one in also:
        grant.note_of(ApprovalAnswered, Use(one.use), rule=answer)
    if answered.answer == "approved":
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


def redacted_agreements(call: "Call") -> tuple[Agreement, ...]:
    """The agreements of a call without its secrets: the path of a delete may contain one."""
    redactor = call.redactor
    if redactor is None:
        return call.approvals
    return tuple(
        replace(agreed, approval=replace(agreed.approval, use=redactor.text(agreed.approval.use)))
        for agreed in call.approvals
    )


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


def _question(call: "Call", decision: Ask, reach: Reach, acts: tuple[str, ...]) -> Question:
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
    )
