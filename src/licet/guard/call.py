"""The path of one call: declare, validate, decide, can it run, flow, ask, reserve, record, bind, run, close, remember.

A call with an id is looked up between flow and ask: one that comes again gets what the first one returned.

There is no middleware to reorder, and no shared object stores anything about a call. An error before the tool runs
refuses the call. An error inside the tool ends only that call.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from msgspec.structs import replace

from licet.core.algebra.rules import Use
from licet.core.decision.decide import decide, delete_ground
from licet.core.decision.decision import (
    Allow,
    ApprovalRemembered,
    Ask,
    Deny,
    SandboxEntered,
    SandboxStopped,
    SessionOpened,
)
from licet.core.decision.fixes import call_denials
from licet.core.decision.request import UNUSED, Approval, Ground, Request
from licet.core.policy.servers import tool_parts
from licet.core.values import money_text
from licet.declare.arguments import InvalidArguments
from licet.declare.check_cost import patiently
from licet.errors import Refused
from licet.guard.approvals_and_budgets import ask_approver, reserve, spent, take_opened, unreserved, use_now
from licet.guard.argument_checks import arguments_digest, known_deletes, named_deletes, validate
from licet.guard.bind import BoundContext, why_unavailable
from licet.guard.close import close
from licet.guard.deadlines import CURRENT, Deadline, in_time
from licet.guard.execution import SandboxUnavailable, Stopped, ToolCall, is_from_operator
from licet.guard.facts import Call, SessionFacts, begun, in_opening
from licet.guard.flow_steps import judge_call
from licet.guard.grant import Grant
from licet.guard.memory import Moment
from licet.guard.ports import Agreement, Beginning, LedgerUnavailable, Unavailable
from licet.guard.read_elsewhere import keep_entry, open_entry
from licet.guard.receipt import decision_of, progress_of
from licet.guard.registration import Registered
from licet.guard.repeated_calls import find_first, result_again
from licet.guard.result import Result
from licet.guard.result_parts import ResultParts, interrupted, outcome, succeeded
from licet.guard.session_end import (
    caller_cancelled,
    check_frozen,
    check_policy,
    check_session,
    look_up_end,
    look_up_freeze,
    prepare_opening,
    session_end,
)


async def run_call(
    session: SessionFacts,
    admission: "CallAdmission",
    tool: str,
    arguments: object,
    purpose: str | None = None,
    moment: Moment | None = None,
    id: str = "",  # noqa: A002
) -> Result:
    """Run one tool, and return its result or its refusal. No error of a tool, a model or a policy is raised.

    A call with an id runs once: one that comes again gets the result of the first.
    """
    call = await begin(session, tool, purpose, moment, id)
    result = await step(call, _open_and_run(call, admission, arguments))
    assert result is not None  # noqa: S101 - it leaves no call open
    return result


async def _open_and_run(call: Call, admission: "CallAdmission", arguments: object) -> ResultParts:
    registered, grant = await admit_and_record(call, admission, arguments)
    if call.repeated is not None:
        return result_again(call, call.repeated)
    return await bind_and_run(call, registered, grant)


async def begin(
    session: SessionFacts,
    tool: str,
    purpose: str | None = None,
    moment: Moment | None = None,
    id: str = "",  # noqa: A002
) -> Call:
    """Begin a call, after a look at what other processes may have ended: its session, and a standing approval."""
    with in_opening(session.gate.policy, tool) as stores:
        stores.is_opening = False  # a call that its tool makes has its own time
        if session.looked_in is not stores:  # at each call: `licet session end` is another process
            await look_up_end(session, stores)
        if not session.store_error:
            await prepare_opening(session, tool, stores)
        session.gate.renew_standing()
    return begun(session, tool, purpose, moment, id, stores)


async def step(call: Call, work: Coroutine[Any, Any, ResultParts | None]) -> Result | None:
    """Do a part of a call. Then close the call, whatever happens, unless `work` returns None: the call stays open."""
    outer, running = CURRENT.get(), call.session.gate.running  # `outer` is set if the tool of another call makes this
    call.task = asyncio.current_task()  # an open call may be continued by another task
    CURRENT.set(call.stores)
    running.add(call)  # before the session is checked, so that its end finds this call or is found by it
    call.session.gate.watch.begin()
    try:
        return await _closed_after(call, work)
    finally:
        running.discard(call)
        CURRENT.set(outer)
        if call.was_cut:
            caller_cancelled(call)


async def _closed_after(call: Call, work: Coroutine[Any, Any, ResultParts | None]) -> Result | None:
    try:
        result = await work
    except asyncio.CancelledError as error:
        if caller_cancelled(call):  # otherwise its session has ended, or the tool raised it itself
            await close(call, interrupted(call.request, call.running))
            raise
        result = outcome(call, session_end(call) if call.was_cut else error)
    except GeneratorExit as error:
        if call.deadline is None or not call.deadline.runs_now:  # the coroutine was closed from outside
            if call.grant is not None:
                call.grant.end()
            raise  # a closed coroutine cannot await a receipt
        result = outcome(call, error)
    except KeyboardInterrupt as error:
        if is_from_operator(error):  # otherwise the tool raised it itself
            await close(call, interrupted(call.request, call.running))
            raise
        result = outcome(call, error)
    except BaseException as error:  # a refusal, or any error of the tool
        result = outcome(call, error)
    return None if result is None else await close(call, result)


async def admit_and_record(call: Call, admission: "CallAdmission", arguments: object) -> tuple[Registered, Grant]:
    """Open a call: every step up to `record`, after which the call counts as made. One that repeats another is not."""
    check_session(call)
    registered, grant = await admission.admit(call, arguments)
    if call.repeated is not None:
        if call.ports.opening is not None:  # it is not opened, where this would be asked
            await look_up_freeze(call.session, call.tool, call.stores)
            check_session(call)
    else:
        grant.begin()
        await record(call)
        check_frozen(call)  # a freeze that returned while the decision was written is not overtaken
    return registered, grant


async def bind_and_run(call: Call, registered: Registered, grant: Grant) -> ResultParts:
    """Run the tool of an open call."""
    context = bind(call, registered, grant)  # the fail-closed guard
    return await succeeded(call, await run(call, registered, grant, context))


class CallAdmission:
    """The steps of a call before anything happens. A session may be given others."""

    opens_at_once = True  # whether the budget is set aside with the decision, where the backends can do that

    async def admit(self, call: Call, arguments: object) -> tuple[Registered, Grant]:
        """Declare, validate, decide, check that it can run, judge origins, ask and reserve. Each can only refuse.

        A call that repeats another is asked about nothing and spends nothing, so what was spent cannot refuse it.
        """
        registered = call.registered = declare(call)
        call.stores.set_by(call.stores.began + registered.seconds)
        if registered.misfits:
            await deny_misfit(call, registered, arguments)
        call.arguments = await validate(call, registered, arguments)
        call.digest = arguments_digest(call.arguments)  # before the tool runs: it could change its arguments
        if registered.needs_approval:
            await look_up_usage(call, registered, spending=not call.id)
        grant = make_grant(call, registered)
        objection = resolve(call)  # call-time resolution
        if isinstance(objection, Deny):
            grant.deny(objection)
        await self.check_runnable(call, registered, grant)  # nobody is asked about a call that cannot run
        if call.flow is not None and call.policy.flow is not None:  # not if a call is only observed
            judgement = await judge_call(call, registered, grant, call.flow)
            if judgement.stops and not registered.needs_approval:
                await look_up_usage(call, registered, spending=not call.id)  # an approval names its exact arguments
                grant.request = call.request
            call.usage = replace(call.usage, flow=judgement)
            objection = resolve(call)
        if call.id and call.first is None:
            if isinstance(objection, Deny):
                grant.deny(objection)
            await find_first(call)
            if call.repeated is not None:
                return registered, grant
            if call.request.arguments:  # what was approved was looked up, and what was spent was not
                flow = call.usage.flow
                await look_up_usage(call, registered)
                call.usage = replace(call.usage, flow=flow)
                objection = resolve(call)
        while objection is not None:
            await self.refuse_or_ask(call, grant, objection)
            objection = resolve(call)
        if registered.budgeted and not (self.opens_at_once and call.ports.opening is not None):
            await reserve(call, registered, grant)
        return registered, grant

    async def check_runnable(self, call: Call, registered: Registered, grant: Grant) -> None:
        """Refuse a call without its backends or its sandbox, or if the tool's own availability check fails."""
        check_backends(call, registered)
        if registered.tool.available is None:
            return
        if call.session.gate.checks.is_blocked(registered.tool.available):
            call.refuse("TOOL_NOT_AVAILABLE", f"the availability check of {call.tool} blocks: the tool cannot run here")
        try:
            with Deadline(registered.seconds):
                why, advice = await why_unavailable(call.session, registered, grant)
        except TimeoutError:
            call.refuse(
                "LIMIT_TIME", f"the availability check of {call.tool} took longer than {registered.seconds:g} seconds"
            )
        if why:
            call.refuse("TOOL_NOT_AVAILABLE", f"{call.tool} cannot run here: {why}", advice)

    async def refuse_or_ask(self, call: Call, grant: Grant, decision: Ask | Deny) -> None:
        """Raise the refusal of a denied call; otherwise ask the approver."""
        if isinstance(decision, Deny):
            grant.deny(decision)
        check_program(call, grant)
        is_optional = call.session.gate.narrows and _asks_deletes_alone(call, decision)
        agreed = await ask_approver(call, decision, optional=is_optional)
        check_session(call)  # it may have ended while the approver was asked
        check_policy(call)
        if not agreed:
            call.request = grant.request = replace(call.request, narrowed=True)
            grant.reach = grant.reach.without_approved_deletes
        call.usage = replace(call.usage, approved=call.usage.approved | {*agreed})

    def note_unrun(self, call: Call, why: tuple[Ground, ...]) -> None:
        """Note a call that runs no tool, before its receipt is written; `why` is empty if it was not refused."""


def _asks_deletes_alone(call: Call, decision: Ask) -> bool:
    """Whether a person is asked about nothing but the deletes that a call may make."""
    approval, reach = decision.approval, call.registered.reach if call.registered is not None else None
    is_exact = decision.use is not None or approval.arguments or decision.also
    return reach is not None and reach.asks_deletes_alone and not is_exact


def declare(call: Call) -> Registered:
    """Return the registered tool, if this gate has it and the manifest admits it."""
    if call.policy.grounds:
        raise Refused(Deny(call.request, call.policy.grounds))
    if call.policy.unusable:
        call.refuse("MANIFEST_CHANGED", call.policy.unusable, "correct the manifest, and load it again")
    registered = call.policy.tools.get(call.tool)
    if registered is None or registered.reach is None:
        manifest = call.policy.manifest
        if registered is None and call.tool in manifest.admissions and not call_denials(manifest, call.tool):
            if why := manifest.withheld.get(call.tool):
                call.refuse("TOOL_NOT_AVAILABLE", f"{call.tool} is admitted, but {why}")
            if (parts := tool_parts(call.tool, manifest.servers)) is not None:
                text = f"{call.tool} is a tool of the server `{parts[0]}`, which this gate does not start"
                call.refuse("TOOL_NOT_AVAILABLE", text, "tools of servers are called through `licet gateway`")
            text = f"{call.tool} is admitted, but this gate was not given its function"
            named = f'name its source under `tools`: `{call.tool}: {{from: "module:function"}}`'
            call.refuse("TOOL_NOT_AVAILABLE", text, f"{named}; or in code, pass it: `Gate(…, tools=[{call.tool}])`")
        decision = decide(call.request, manifest)
        if isinstance(decision, Deny):
            raise Refused(decision)
        call.refuse("DECISION_FAILED", "a tool without a decision")
    return registered


async def deny_misfit(call: Call, registered: Registered, arguments: object) -> NoReturn:
    """Deny a call of a tool that does not fit the manifest, before any approval or reservation."""
    with suppress(InvalidArguments):  # the receipt then has no digest of them
        call.arguments = await patiently(registered.validate, arguments)
        call.digest = arguments_digest(call.arguments)
    make_grant(call, registered).deny_for_each(Deny(call.request, registered.misfits))


async def look_up_usage(call: Call, registered: Registered, *, spending: bool = True) -> None:
    """Add to the request its arguments and deletes, and to the usage what was spent and approved in this session."""
    call.request = full_request(call, registered)
    usage = UNUSED
    if spending and registered.budgeted and call.ports.budgets is not None:
        usage = await spent(call, registered, call.ports.budgets)
    agreed = call.session.agreed(call.policy, call.clock.monotonic())
    call.usage = replace(usage, approved=frozenset(agreed))
    call.approvals = tuple(agreement for approval, agreement in agreed.items() if approval.tool == call.tool)
    if (standing := registered.reach.standing if registered.reach is not None else None) is not None:
        covered = Approval(call.policy.digest, call.tool, call.session.id, deletes=True)
        call.approvals += (Agreement(covered, standing.by, standing.id, standing=True),)


def full_request(call: Call, registered: Registered) -> Request:
    """The request of a call with what its arguments tell: their digest, the deletes that they name, what asks."""
    certain, likely = known_deletes(call, registered), named_deletes(call, registered)
    return replace(call.request, arguments=call.digest, uses=certain, likely=likely, asked=call.asked)


def make_grant(call: Call, registered: Registered) -> Grant:
    """Make the grant of this call. No handle gets it before the call is allowed."""
    grant = call.grant = empty_grant(call, registered)
    if not call.session.reported_open:
        grant.note_of(SessionOpened)
        call.session.reported_open = True  # after every observer has seen the event
    for agreement in call.approvals:
        by = f"standing approval {agreement.request}" if agreement.standing else agreement.approval.use
        grant.note_of(ApprovalRemembered, rule=by)
    return grant


def empty_grant(call: Call, registered: Registered) -> Grant:
    """The grant of this call, before anything was recorded in it."""
    assert registered.reach is not None  # noqa: S101
    gate, standing = call.session.gate, registered.reach.standing
    return Grant(
        call.request,
        registered.reach.without_approved_deletes if call.request.narrowed else registered.reach,
        call.policy.digest,
        gate.observers,
        partial(_ask_about_delete, call) if registered.asks else _unasked,
        registered.limits,
        call.identity,
        None if standing is None else lambda: gate.stands(standing),
        partial(gate.frozen_for, call.session.agent, call.tool),
    )


async def _ask_about_delete(call: Call, approval: Approval, use: Use) -> None:
    """Ask about one delete inside a call. Its deadline is paused meanwhile."""
    assert call.grant is not None  # noqa: S101 - the grant calls this
    if approval in call.usage.approved:  # given with the call, and valid once
        call.usage = replace(call.usage, approved=call.usage.approved - {approval})
        return
    ground = delete_ground(call.grant.reach, use)
    if call.deadline is not None:
        call.deadline.pause()
    try:
        await ask_approver(call, Ask(call.request, approval, (ground,), use))
        await use_now(call, use)
        check_session(call, use)
        check_policy(call, use)
    finally:
        if call.deadline is not None:
            call.deadline.resume()
            call.stores.set_by(call.deadline.when)


async def _unasked(approval: Approval, use: Use) -> None:
    raise RuntimeError(f"a class that asks about nothing asks about {use}")  # an error refuses the use


def resolve(call: Call) -> Ask | Deny | None:
    """Decide the call, by the manifest, the usage and the approvals; None if it is allowed."""
    decision = decide(call.request, call.policy.manifest, call.usage)
    return None if isinstance(decision, Allow) else decision


def check_program(call: Call, grant: Grant) -> None:
    """Refuse a command whose program is not allowed or not there: nobody is asked about what cannot run."""
    registered = call.registered
    if registered is not None and (command := call.arguments.get(registered.tool.command_argument)):
        BoundContext(call.session, registered, call.ports, grant).process.check_startable(command[0])


async def record(call: Call) -> None:
    """Write the decision to the ledger, on disk, before any effect; refuse the call if that fails.

    Where the backends can, its budget is set aside and its approvals are used up in the same step.
    """
    ledger, opening = call.ports.ledger, call.ports.opening
    if ledger is None:
        call.refuse("LEDGER_UNAVAILABLE", "no ledger is configured")
    claims = unreserved(call) if opening is not None else ()
    try:
        call.decision = decision_of(call)
        call.listed_all = call.grant is not None and call.grant.lists_all
        if opening is None:
            await in_time(call.stores, keep_entry(call, ledger, call.decision), "the ledger")
            return
        if claims:  # what was spent before is not known yet: the receipt has it
            call.decision = replace(call.decision, budget=None, cost_usd=money_text(claims[-1].cost_usd))
        begins = Beginning(call.decision, claims, call.to_use)
        opened = await in_time(call.stores, open_entry(call, opening, begins), "the ledger")
    except Exception as error:
        fix = str(error) if isinstance(error, LedgerUnavailable | Unavailable) else ""
        call.refuse("LEDGER_UNAVAILABLE", f"the ledger could not keep the decision: {type(error).__name__}", fix)
    if opened.refused:
        call.decision = None  # nothing was kept
    await take_opened(call, opened)


def bind(call: Call, registered: Registered, grant: Grant) -> BoundContext | None:
    """Make the context of the call; refuse if a backend or the sandbox that the tool needs is missing."""
    check_backends(call, registered)
    if not registered.needs_context:  # nothing would use it
        return None
    context = BoundContext(call.session, registered, call.ports, grant)
    call.charged = context.settled
    if call.ports.ledger is not None and call.decision is not None:
        written = len(call.decision.events) if call.listed_all else 0
        grant.keep_in(call.ports.ledger, partial(progress_of, call), written)
    return context


def check_backends(call: Call, registered: Registered) -> None:
    """Refuse if a backend that the tool needs is missing, or the sandbox of its level."""
    if registered.missing:
        if call.ports.empty:
            text = f"Tool {call.tool} declares capabilities but no capability backends are configured"
            call.refuse("BACKEND_MISSING", text, "pass `backends=Backends.local()`")
        missing = ", ".join(registered.missing)
        parts = ", ".join(f"{port}=…" for port in registered.missing.values())
        text = f"Tool {call.tool} needs a backend that is not configured: {missing}"
        call.refuse("BACKEND_MISSING", text, f"pass `backends=Backends.local()`, or `backends=Backends({parts})`")
    if registered.unavailable:
        call.refuse("SANDBOX_UNAVAILABLE", registered.unavailable)


async def run(call: Call, registered: Registered, grant: Grant, context: BoundContext | None) -> Any:
    """Run the tool in its sandbox until it ends or its time is up."""
    sandbox, reach = call.ports.sandbox, registered.reach
    assert sandbox is not None  # noqa: S101
    assert reach is not None  # noqa: S101
    assert reach.level is not None  # noqa: S101
    grant.note_of(SandboxEntered, rule=registered.walls)
    deadline = call.deadline = Deadline(registered.seconds)
    deadline.start()
    call.stores.set_by(deadline.when)
    call.running = True
    try:
        work = ToolCall(registered.tool, call.arguments, registered.seconds, registered.limits, deadline)
        return await sandbox.run(reach.level, work, context)
    except SandboxUnavailable as missing:
        call.running = False
        call.refuse("SANDBOX_UNAVAILABLE", str(missing))
    except Stopped as stopped:
        call.running = stopped.ran
        grant.note_of(SandboxStopped, reason=stopped.reason)
        call.refuse(stopped.reason, str(stopped))
    finally:
        if deadline.stop():  # also if the tool swallowed the cancel
            grant.note_of(SandboxStopped, reason="LIMIT_TIME")
            call.refuse("LIMIT_TIME", f"{call.tool} ran for longer than {registered.seconds:g} seconds")
        if call.cuts and not caller_cancelled(call):  # the same
            raise session_end(call)
