"""A call that stays open after `record`: run here later, done by somebody else, or continued by another process.

`run_call` opens, runs and closes a call in one go, with the same functions. Hooks of coding agents need the parts: they
open a call before the agent makes it. Then the agent does it and reports its end, or licet runs it in its place.

An open call is closed exactly once: by `run_open`, `close_reported` or `never_ran`. In one process a second attempt
raises `CallNotOpen`. Across processes nothing here can know: `kept` says what its keeper has to do.
"""

from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.decision.decision import CapabilityDenied, CapabilityGranted, Deny, Event, Happened
from licet.core.decision.request import Approval, Ground, Reason, Usage
from licet.core.ledger.entry import AgentFact, Entry
from licet.core.values import canonical_json, data_json
from licet.declare.plain_json import data_again, plain_json
from licet.errors import LicetError, Refused
from licet.guard.argument_checks import arguments_digest
from licet.guard.call import (
    CallAdmission,
    admit_and_record,
    begin,
    bind_and_run,
    empty_grant,
    full_request,
    step,
)
from licet.guard.deadlines import StoreDeadline
from licet.guard.facts import Call, SessionFacts
from licet.guard.flow_steps import is_program, narrow_program
from licet.guard.grant import CheckQuotas, Grant
from licet.guard.limits import STORE_SECONDS
from licet.guard.ports import Agreement, Approver, Reservation
from licet.guard.registration import Registered
from licet.guard.result import Result
from licet.guard.result_parts import REPORTED_BY_AGENT, UNREPORTED, ResultParts, succeeded
from licet.guard.session_end import check_session, look_up_end


class CallNotOpen(LicetError):
    """A call cannot be continued here: it was closed, or what is kept of it is of another session or policy."""


async def open_call(
    session: SessionFacts,
    admission: CallAdmission,
    tool: str,
    arguments: object,
    purpose: str | None = None,
    *,
    agent: AgentFact | None = None,
    approver: Approver | None = None,
) -> Call | Result:
    """Take a call up to its decision in the ledger; a `Result` if it was refused, whose receipt is then written.

    `approver` is asked instead of the gate's. The tool has not run, and nothing holds a handle yet.
    """
    call = await begin(session, tool, purpose)
    if agent is not None:
        call.coding_agent = agent
    if approver is not None:
        call.ports = replace(call.ports, approver=approver)
    refused = await step(call, _open(call, admission, arguments))
    return call if refused is None else refused


async def _open(call: Call, admission: CallAdmission, arguments: object) -> None:
    await admit_and_record(call, admission, arguments)
    check_session(call)  # nothing cancels an open call: its session may have ended while the decision was written


async def run_open(call: Call) -> Result:
    """Run the tool of an open call in its sandbox, and close the call. Its time begins now.

    The call is refused if its session has ended since, or the policy is another one.
    """
    registered, grant = _taken(call, "seen")
    return await _closing(call, _run(call, registered, grant))


async def _run(call: Call, registered: Registered, grant: Grant) -> ResultParts:
    await look_up_end(call.session, call.stores)
    check_session(call)
    if call.session.gate.policy.digest != call.policy.digest:
        call.refuse("MANIFEST_CHANGED", "another manifest was loaded since this call was decided: call again")
    if call.flow is not None and is_program(registered):
        await narrow_program(call, grant, call.flow)
    return await bind_and_run(call, registered, grant)


async def close_reported(
    call: Call, *, failed: bool = False, result: object = None, end: Literal["reported", "unknown"] = "reported"
) -> Result:
    """Close an open call that somebody else ran, outside of licet's walls. Its budget is settled at the full cost.

    `result` and `failed` are a claim, which the receipt marks as such. With `unknown` nobody has claimed anything: the
    call counts as one that ran, since it may have, and as failed.
    """
    _taken(call, end)
    call.is_elsewhere = call.running = True
    return await _closing(call, _reported(call, failed, result, end))


async def _reported(call: Call, failed: bool, result: object, end: str) -> ResultParts:
    if end == "unknown":
        return _failed(call, UNREPORTED, None)
    parts = await succeeded(call, result)
    return _failed(call, REPORTED_BY_AGENT, parts) if failed else parts


def _failed(call: Call, text: str, claimed: ResultParts | None) -> ResultParts:
    parts = claimed or ResultParts(call.tool)
    value = parts.value
    parts.refuse("execution_failed", Refused(Deny(call.request, (Ground("TOOL_FAILED", text),))))
    parts.value = value  # what it says about its failure
    return parts


async def never_ran(call: Call, why: str | Refused, reason: Reason = "INTERRUPTED") -> Result:
    """Close an open call that will not run, such as one that somebody else refused. Its budget is refunded."""
    _taken(call, UNSET)
    return await _closing(call, _refused(call, reason, why))


async def _refused(call: Call, reason: Reason, why: str | Refused) -> ResultParts:
    if isinstance(why, Refused):  # by its grant, which has recorded it
        raise why
    call.refuse(reason, why)


def _taken(call: Call, end: Literal["seen", "reported", "unknown"] | UnsetType) -> tuple[Registered, Grant]:
    """Take the right to close a call, before anything is awaited: two tasks may try."""
    registered, grant = call.registered, call.grant
    if call.is_closed or call.decision is None or registered is None or grant is None:
        raise CallNotOpen(f"the call {call.receipt} is not open")
    call.is_closed = True
    if isinstance(call.coding_agent, AgentFact):
        call.coding_agent = replace(call.coding_agent, end=end)
    return registered, grant


async def _closing(call: Call, work: Coroutine[Any, Any, ResultParts]) -> Result:
    call.stores = StoreDeadline(STORE_SECONDS)  # the time of the steps that opened it may be up
    result = await step(call, work)
    assert result is not None  # noqa: S101 - the work ends with a result
    return result


# For another process -------------------------------------------------------------------------------------------------


class _Event(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    kind: str
    capability: str
    after_us: int  # since the call began
    reason: str = ""
    rule: str = ""
    count: int = 0


class _Quotas(Struct, frozen=True, forbid_unknown_fields=True):
    left: tuple[int, int, int]
    more: tuple[int, int, int]
    happened: dict[str, int]


class _Kept(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1] = 1
    decision: Entry  # with the session, the receipt's id, the time, the manifest's digest, the digest of the arguments
    arguments: str  # JSON as text: canonical JSON has no floats
    asked: tuple[str, ...]  # names of arguments
    purpose: str | None
    coding_agent: AgentFact | UnsetType = UNSET
    usage: Usage  # without its approvals: a set has no order
    approved: tuple[Approval, ...]
    approvals: tuple[Agreement, ...]
    reservation: Reservation | None
    bundle_reservations: dict[str, Reservation]
    listed_all: bool
    events: tuple[_Event, ...]
    quotas: _Quotas
    plain: str = "{}"  # JSON as text, as `arguments`
    from_task: bool = False
    narrowed: bool = False


_DECODER = msgspec.json.Decoder(_Kept)
_HAPPENED = {kind.__name__: kind for kind in Happened.__subclasses__()}
_KINDS: Mapping[str, Callable[..., Event]] = {
    **_HAPPENED,
    CapabilityGranted.__name__: CapabilityGranted,
    CapabilityDenied.__name__: CapabilityDenied,
}


def kept(call: Call) -> bytes:
    """An open call as canonical JSON, for a process that calls `restored`. `TypeError` if JSON cannot carry it.

    It has the complete arguments, which may hold secrets: keep it in a file of mode 0600, and only while the call is
    open. Who closes the call removes that file first, atomically (`os.unlink` or `os.rename`, which succeed for one
    process alone), and closes only if that succeeded. This is what makes a call end once. A second end would settle
    nothing, since a store settles a reservation once, but it would write a second receipt under the same id, which
    `licet receipts verify` reports as tampering. If the process stops between both, the call has a decision and no
    receipt, and its reservation counts as spent: as for every process that is killed in a call.
    """
    decision, grant = call.decision, call.grant
    if call.is_closed or decision is None or grant is None:
        raise CallNotOpen(f"the call {call.receipt} is not open")
    if call.redactor or not isinstance(call.observed, UnsetType):
        raise TypeError(f"the call {call.receipt} has seen secrets, or is only observed: it cannot be kept")
    try:
        arguments = plain_json(call.arguments)
        is_plain = data_again(arguments) == call.arguments
        text = canonical_json(_kept(call, decision, grant, arguments.decode()))
    except ValueError as wrong:
        raise TypeError(f"the arguments of {call.tool}, or what is said about it, cannot be kept: {wrong}") from None
    if not is_plain:
        raise TypeError(f"the arguments of {call.tool} are more than JSON: the call cannot be kept")
    return text


def _kept(call: Call, decision: Entry, grant: Grant, arguments: str) -> _Kept:
    events, moments, quotas = grant.record
    return _Kept(
        decision=decision,
        arguments=arguments,
        asked=call.asked,
        purpose=call.purpose,
        coding_agent=call.coding_agent,
        usage=replace(call.usage, approved=frozenset(), flow=None),  # the decision has what a receipt keeps of it
        approved=tuple(sorted(call.usage.approved, key=msgspec.structs.astuple)),
        approvals=call.approvals,
        reservation=call.reservation,
        bundle_reservations=call.bundle_reservations,
        listed_all=call.listed_all,
        events=tuple(_kept_event(event, at - call.started) for event, at in zip(events, moments, strict=True)),
        quotas=_Quotas(
            quotas.left,
            (quotas.more_granted, quotas.more_refused, quotas.more_asked),
            {kind.__name__: number for kind, number in quotas.happened.items()},
        ),
        plain=data_json(call.plain).decode(),
        from_task=call.from_task,
        narrowed=call.request.narrowed,
    )


def _kept_event(event: Event, after: float) -> _Event:
    shown, rule = visible(event.capability), visible(event.rule)  # as receipts have them
    return _Event(type(event).__name__, shown, round(after * 1e6), event.reason, rule, event.count)


def restored(session: SessionFacts, data: bytes) -> Call:
    """The open call that another process has kept; `CallNotOpen` if it is not of this session, policy and tool.

    It has the same receipt id, request, arguments, decision, reservations, approvals and events. Its handles are made
    when it is bound. Observers of this process see the events from here on.
    """
    try:
        found = _DECODER.decode(data)
        arguments, plain = data_again(found.arguments.encode()), data_again(found.plain.encode())
        began = datetime.fromisoformat(found.decision.time).astimezone(UTC)
    except (ValueError, RecursionError):
        raise CallNotOpen("what is kept of the call cannot be read") from None
    session.gate.renew_standing()
    gate, decision = session.gate, found.decision
    policy, clock = gate.policy, gate.clock
    registered = policy.tools.get(decision.tool)
    _check_same(session, found, registered, arguments)
    assert registered is not None  # noqa: S101 - it has just been checked
    call = Call(
        session,
        decision.tool,
        policy,
        gate.ports,
        clock,
        decision.id,
        began,
        # No monotonic clock counts across a restart of the machine.
        clock.monotonic() - max(0.0, (clock.now() - began).total_seconds()),
        session.request(decision.tool),
        found.purpose,
        StoreDeadline(STORE_SECONDS),
        None,
        arguments,
        decision.arguments or "",
        found.asked,
        registered,
        replace(found.usage, approved=frozenset(found.approved)),
        found.approvals,
        coding_agent=found.coding_agent,
        reservation=found.reservation,
        bundle_reservations=found.bundle_reservations,
        decision=decision,
        listed_all=found.listed_all,
        flow=policy.flow,
        plain=plain,
        from_task=found.from_task,
    )
    if policy.flow is not None:
        session.remembering()
    if registered.needs_approval:
        call.request = replace(full_request(call, registered), narrowed=found.narrowed)
    call.grant = empty_grant(call, registered)
    call.grant.resume(
        [
            _KINDS[one.kind](one.capability, decision.tool, one.reason, one.rule, count=one.count)
            for one in found.events
        ],
        [call.started + one.after_us / 1e6 for one in found.events],
        CheckQuotas(
            *found.quotas.left,
            *found.quotas.more,
            {_HAPPENED[name]: number for name, number in found.quotas.happened.items()},
        ),
    )
    return call


def _check_same(session: SessionFacts, found: _Kept, registered: Registered | None, arguments: dict[str, Any]) -> None:
    """Raise `CallNotOpen` if a kept call was decided by anything else than what is in force for this session."""
    decision, policy = found.decision, session.gate.policy
    parent = decision.parent
    named = (parent.agent, parent.session) if parent is not None else None
    above = tuple(one.digest for one in policy.manifest.organisations) or UNSET
    known = _KINDS.keys() >= {one.kind for one in found.events} and _HAPPENED.keys() >= found.quotas.happened.keys()
    if decision.kind != "decision" or not known:
        wrong = "what is kept of the call cannot be read"
    elif (decision.agent, decision.session) != session.name or named != (session.parent and session.parent.name):
        wrong = f"the call {decision.id} is of another session"
    elif policy.digest != decision.manifest or policy.unusable or above != decision.organisation:
        wrong = f"the policy has changed since the call {decision.id} was decided"
    elif registered is None or registered.reach is None or registered.entry.tool_digest != decision.tool_digest:
        wrong = f"the tool of the call {decision.id} is another one"
    elif type(arguments) is not dict or arguments_digest(arguments) != decision.arguments:
        wrong = f"the arguments of the call {decision.id} are others than those that were decided"
    else:
        return
    raise CallNotOpen(wrong)
