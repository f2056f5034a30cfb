"""Asking a person: what they are shown, and what their answer means for the call that waits for it."""

from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from licet.core.algebra.use import Use
from licet.core.decision.decision import ApprovalAnswered, ApprovalAsked, Ask, Deny
from licet.core.decision.reach import Reach
from licet.core.decision.request import Approval, Ground, Reason
from licet.declare.received import exact
from licet.guard.deadline import Deadline
from licet.guard.people import Agreement, Answer, Answered, Approver, ApproverFunction, Question
from licet.guard.ports import Unavailable

if TYPE_CHECKING:
    from licet.guard.call import Call

_ANSWERS = get_args(Answer)
_SAID: dict[str, tuple[Reason, str]] = {
    "denied": ("APPROVAL_DENIED", "the person who was asked said no"),
    "expired": ("APPROVAL_EXPIRED", "nobody answered in time"),
}


async def settled(call: "Call", decision: Ask) -> tuple[Approval, ...]:
    """Ask a person, and return what they agree to, the first thing at least; who did stays on the call."""
    approver, reach = call.ports.approver, call.registered.reach if call.registered else None
    answered, grant, asked = Answered("absent"), call.grant, call.clock.monotonic()
    assert grant is not None  # noqa: S101 - a call is held before anybody is asked about it
    also = decision.also if getattr(approver, "shows_acts", False) else ()
    grant.note_of(ApprovalAsked, decision.use, rule=str(decision.rules[0]))
    for one in also:
        grant.note_of(ApprovalAsked, Use(one.use), rule=str(decision.rules[-1]))
    if approver is not None and reach is not None:
        question = _question(call, decision, reach, tuple(one.use for one in also))
        if question.signed and not getattr(approver, "verifies", False):
            text = "signed approvals are asked for, and nothing here can verify a signature"
            call.refuse("APPROVAL_REQUIRED", text, use=decision.use)
        try:
            answered = await _answer(approver, question)
        except Unavailable as broken:
            call.refuse("BACKEND_MISSING", "the store of approvals cannot be used", str(broken), decision.use)
        if call.clock.monotonic() - asked >= question.expires_seconds:  # whatever it was
            answered = replace(answered, answer="expired")
    said = answered.answer if answered.answer in _ANSWERS else "absent"  # whatever else a callback says is no answer
    if answered.first_only:
        also = ()
    grant.note_of(ApprovalAnswered, decision.use, rule=said)
    for one in also:
        grant.note_of(ApprovalAnswered, Use(one.use), rule=said)
    if answered.answer == "approved":
        agreed = (decision.approval, *also)
        first, *rest = (Agreement(one, answered.by, answered.request) for one in agreed)
        call.approvals += (first, *rest)
        if not (decision.approval.arguments or answered.asks_again):  # for the session, not for one call
            seconds = reach.approvals.expires_seconds if reach is not None else 0
            call.session.agree(first, call.policy, asked, seconds)
        return agreed
    note = (Ground("APPROVAL_REQUIRED", answered.note, fix=answered.fix),) if answered.note or answered.fix else ()
    stop: Ask | Deny = replace(decision, rules=(*decision.rules, *note))
    if answered.answer in _SAID:
        reason, text = _SAID[answered.answer]
        stop = Deny(call.request, (Ground(reason, text), *note), decision.use)
    grant.deny(stop)


def told_agreements(call: "Call") -> tuple[Agreement, ...]:
    """What people have agreed to for a call, without its secrets: a path that was deleted may have been made of one."""
    redactor = call.redactor
    if redactor is None:
        return call.approvals
    return tuple(
        replace(agreed, approval=replace(agreed.approval, use=redactor.text(agreed.approval.use)))
        for agreed in call.approvals
    )


async def _answer(approver: Approver | ApproverFunction, question: Question) -> Answered:
    """What an approver says, who is waited for until the question expires and no longer."""
    limit = Deadline(question.expires_seconds)
    try:
        with limit:
            answer = await (approver.ask(question) if isinstance(approver, Approver) else approver(question))
    except TimeoutError:
        if not limit.expired:  # one of its own
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
        acts=acts,
    )
