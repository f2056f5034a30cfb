"""The path of one call, read top to bottom: declare, validate, decide, ask, reserve, record, bind, run, close.

There is no middleware to reorder, and nothing about a call is stored on a shared object. Whatever goes wrong before
the tool runs refuses the call; whatever goes wrong inside it ends only that call.
"""

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from licet.core.algebra.use import Use
from licet.core.decision.admission import call_denials
from licet.core.decision.decide import decide, delete_ground
from licet.core.decision.decision import (
    Allow,
    ApprovalRemembered,
    Ask,
    Deny,
    SandboxEntered,
    SandboxStopped,
    SessionEnded,
    SessionOpened,
)
from licet.core.decision.request import UNUSED, Approval, Ground, Reason
from licet.declare.arguments import InvalidArguments
from licet.declare.plain_json import data_again, plain_json
from licet.declare.received import received
from licet.errors import Refused
from licet.guard.approvals import settled
from licet.guard.argument_check import arguments_digest, check_rules, known_deletes
from licet.guard.bind import BoundContext, is_available
from licet.guard.close import close, outcome, succeeded
from licet.guard.deadline import CURRENT, STORE_SECONDS, Deadline, StoreDeadline, in_time, was_cancelled
from licet.guard.execution import SandboxUnavailable, Stopped, ToolCall
from licet.guard.grant import MOST_OF_A_GROUND, Grant
from licet.guard.interrupts import is_from_operator
from licet.guard.people import Agreement
from licet.guard.ports import Clock, LedgerUnavailable, Reservation, Unavailable
from licet.guard.receipt import keep_decision
from licet.guard.redaction.redact import Redactor
from licet.guard.registration import Registered, RegisteredTools
from licet.guard.result import Result, interrupted
from licet.guard.spending import reserve, spent

if TYPE_CHECKING:
    from licet.guard.session import Session


_LONGEST = 128  # characters of the name of a tool: a longer one is nobody's, and goes into no receipt


class Call:
    """What is known about one call so far. It belongs to that call alone."""

    __slots__ = (
        *(
            "approvals",
            "arguments",
            "clock",
            "context",
            "deadline",
            "digest",
            "grant",
            "long_result",
            "of_bundles",
            "policy",
            "ports",
            "purpose",
        ),
        *("receipt", "registered", "request", "reservation", "running", "session", "started", "stores", "time", "tool"),
        "usage",
    )

    arguments: dict[str, Any]  # once they are validated

    def __init__(self, session: "Session", tool: str, purpose: str | None = None) -> None:
        gate, clock = session.gate, session.gate.clock
        self.session = session
        self.tool = tool if type(tool) is str and len(tool) <= _LONGEST else ""
        self.policy: RegisteredTools = gate.policy  # taken once: what is reloaded meanwhile is for later calls
        self.ports = gate.ports
        self.clock: Clock = clock
        self.receipt: str = gate.next_receipt()
        self.time = clock.now()
        self.started = clock.monotonic()
        self.request = session.request(self.tool)
        self.usage = UNUSED
        self.digest = ""  # of the arguments, once they are validated
        self.approvals: tuple[Agreement, ...] = ()  # what was agreed to for it, and by whom
        self.registered: Registered | None = None
        self.grant: Grant | None = None
        self.reservation: Reservation | None = None
        self.of_bundles: dict[str, Reservation] = {}  # what was set aside from the budgets of its tool's bundles
        self.context: BoundContext | None = None
        self.deadline: Deadline | None = None
        self.stores = StoreDeadline(STORE_SECONDS)  # until the tool is known, and with it the time of its call
        self.running = False
        self.long_result = False
        self.purpose = purpose  # why the caller makes this call

    @property
    def is_long(self) -> bool:
        """Whether it has so many events, or such a long result, that putting its receipt together takes a while."""
        return self.long_result or (self.grant is not None and self.grant.is_long)

    @property
    def redactor(self) -> Redactor | None:
        """What knows the secrets that this call has seen."""
        return self.grant.redactor if self.grant is not None else None

    async def ask(self, approval: Approval, use: Use) -> None:
        """Ask about one delete inside this call; the clock stands still meanwhile."""
        assert self.grant is not None  # noqa: S101 - it is what asks
        if approval in self.usage.approved:  # it was asked about with the call, and that was for once
            self.usage = replace(self.usage, approved=self.usage.approved - {approval})
            return
        ground = delete_ground(self.grant.reach)
        if self.deadline is not None:
            self.deadline.pause()
        try:
            await settled(self, Ask(self.request, approval, (ground,), use))
            standing(self, use)
            same_policy(self, use)
        finally:
            if self.deadline is not None:
                self.deadline.resume()
                self.stores.set_by(self.deadline.when)

    def refuse(self, reason: Reason, text: str, fix: str = "", use: Use | None = None) -> NoReturn:
        """Refuse this call, or one use inside it, for a reason that is in no rule."""
        if self.grant is not None:
            self.grant.refuse(reason, text, use, fix)
        raise Refused(Deny(self.request, (Ground(reason, text[:MOST_OF_A_GROUND], fix=fix),), use))


async def run_call(session: "Session", tool: str, arguments: object, purpose: str | None = None) -> Result:
    """Run one tool, or say why not; nothing that a tool, a model or a policy did raises out of here."""
    if not session.known:
        await session.look()
    call = Call(session, tool, purpose)
    outer = CURRENT.get()  # of a call whose tool makes this one
    CURRENT.set(call.stores)
    try:
        return await _run_call(call, arguments)
    finally:
        CURRENT.set(outer)


async def _run_call(call: Call, arguments: object) -> Result:
    try:
        standing(call)
        registered = call.registered = declare(call)
        call.stores.until = monotonic() + registered.seconds
        if registered.misfits:
            deny_misfit(call, registered, arguments)
        call.arguments = validate(call, registered, arguments)
        call.digest = arguments_digest(call.arguments)  # now: a tool could change what it was given
        if registered.weighed:
            await weigh(call, registered)
        grant = hold(call, registered)
        while (objection := resolve(call)) is not None:  # call-time resolution
            await refuse_or_ask(call, grant, objection)
        if registered.budgeted:
            await reserve(call, registered, grant)
        grant.begin()
        await record(call)
        if registered.tool.available is not None:
            await look_around(call, registered, grant)
        context = bind(call, registered, grant)  # the fail-closed guard
        result = await succeeded(call, await run(call, registered, grant, context))
    except asyncio.CancelledError as error:
        if was_cancelled():  # otherwise the tool raised it by itself
            await close(call, interrupted(call.request, call.running))
            raise
        result = outcome(call, error)
    except GeneratorExit as error:
        if call.deadline is None or not call.deadline.runs_now:  # nobody waits for this call any more
            if call.grant is not None:
                call.grant.end()
            raise  # and nothing can be awaited
        result = outcome(call, error)
    except KeyboardInterrupt as error:
        if is_from_operator(error):  # otherwise the tool raised it by itself
            await close(call, interrupted(call.request, call.running))
            raise
        result = outcome(call, error)
    except BaseException as error:  # a refusal, or whatever else a tool raises: it ends its call alone
        result = outcome(call, error)
    return await close(call, result)


def standing(call: Call, use: Use | None = None) -> None:
    """Always: nothing runs at a frozen gate, or in a session that is over."""
    session = call.session
    if frozen := session.gate.frozen:
        call.refuse("FROZEN", frozen, "", use)
    if session.over:
        if call.grant is not None:
            call.grant.note_of(SessionEnded)
        call.refuse("SESSION_ENDED", "this session has ended", "", use)
    if (now := session.other_agent(call.policy)) and not call.policy.unusable:
        text = f"this session is of the agent `{session.agent}`, and the manifest that was loaded last is of `{now}`"
        call.refuse("SESSION_ENDED", text, "open a session again: it is one of the new agent", use)
    if session.broken:
        call.refuse("BACKEND_MISSING", "the store of this session cannot be read", session.broken, use)


def same_policy(call: Call, use: Use | None = None) -> None:
    """After a person was asked: their answer is about the policy that they were asked under, and about no other."""
    if call.session.gate.policy is not call.policy:
        text = "another manifest was loaded while a person was asked: call again"
        call.refuse("MANIFEST_CHANGED", text, "", use)


def declare(call: Call) -> Registered:
    """The tool, if it is known and admitted for this agent."""
    if call.policy.unusable:
        call.refuse("MANIFEST_CHANGED", call.policy.unusable, "correct the manifest, and load it again")
    registered = call.policy.tools.get(call.tool)
    if registered is None or registered.reach is None:
        manifest = call.policy.manifest
        if registered is None and call.tool in manifest.admissions and not call_denials(manifest, call.tool):
            text = f"{call.tool} is admitted, but this gate was not given its function"
            named = f'name its source under `tools`: `{call.tool}: {{from: "module:function"}}`'
            call.refuse("TOOL_NOT_AVAILABLE", text, f"{named}; or in code, pass it: `Gate(…, tools=[{call.tool}])`")
        decision = decide(call.request, manifest)
        if isinstance(decision, Deny):
            raise Refused(decision)
        call.refuse("DECISION_FAILED", "a tool without a decision")
    return registered


def deny_misfit(call: Call, registered: Registered, arguments: object) -> NoReturn:
    """Deny a call of a tool that does not fit the manifest: nobody is asked, nothing is set aside, nothing runs."""
    with suppress(InvalidArguments):  # they decide nothing here; the receipt has their digest where they have one
        call.arguments = registered.validate(arguments)
        call.digest = arguments_digest(call.arguments)
    hold(call, registered).deny_for_each(Deny(call.request, registered.misfits))


def validate(call: Call, registered: Registered, arguments: object) -> dict[str, Any]:
    """The arguments as the tool will get them, if they fit its type hints and the manifest's rules."""
    try:
        given = registered.validate(arguments)
    except InvalidArguments as wrong:
        call.refuse("INPUT_INVALID", str(wrong))
    if registered.rules:
        sent = data_again(plain_json(arguments))
        for one in registered.rules:
            check_rules(call, registered, one, {**one.defaults, **sent})
            # Type hints trim, convert and fill in: a tool acts on what it gets, not on what was sent.
            got = {name: received(given[one.parameters[name]]) for name in one.rules}
            check_rules(call, registered, one, got)
    return given


async def weigh(call: Call, registered: Registered) -> None:
    """Look at this call as such: at its arguments, at what was spent, and at what people have agreed to."""
    call.request = replace(call.request, arguments=call.digest, uses=known_deletes(call, registered))
    usage = UNUSED
    if registered.budgeted and call.ports.budgets is not None:
        usage = await spent(call, registered, call.ports.budgets)
    agreed = call.session.agreed(call.policy, call.clock.monotonic())
    call.usage = replace(usage, approved=frozenset(agreed))
    call.approvals = tuple(agreement for approval, agreement in agreed.items() if approval.tool == call.tool)


def hold(call: Call, registered: Registered) -> Grant:
    """What this call would hold, from this manifest and for this session; nothing is held before it is decided."""
    assert registered.reach is not None  # noqa: S101
    observers, ask = call.session.gate.observers, call.ask if registered.asks else _unasked
    grant = call.grant = Grant(call.request, registered.reach, call.policy.digest, observers, ask, registered.limits)
    if not call.session.told:
        grant.note_of(SessionOpened)
        call.session.told = True  # not before everybody was told
    for agreement in call.approvals:
        grant.note_of(ApprovalRemembered, rule=agreement.approval.use)
    return grant


async def _unasked(approval: Approval, use: Use) -> None:
    raise RuntimeError(f"a class that asks about nothing asks about {use}")  # and so it is refused


def resolve(call: Call) -> Ask | Deny | None:
    """What stands between this call and its tool, by this manifest and what was agreed to; None only if allowed."""
    decision = decide(call.request, call.policy.manifest, call.usage)
    return None if isinstance(decision, Allow) else decision


async def refuse_or_ask(call: Call, grant: Grant, decision: Ask | Deny) -> None:
    """Ask a person where the decision says so, and refuse a call that is denied."""
    if isinstance(decision, Deny):
        grant.deny(decision)
    asked = monotonic()
    agreed = await settled(call, decision)
    call.stores.until += monotonic() - asked  # the clock stands still while a person thinks
    standing(call)  # the world may have changed while a person thought
    same_policy(call)
    call.usage = replace(call.usage, approved=call.usage.approved | {*agreed})


async def record(call: Call) -> None:
    """Write the decision to the ledger before any effect: without a ledger, no call runs."""
    ledger = call.ports.ledger
    if ledger is None:
        call.refuse("LEDGER_UNAVAILABLE", "no ledger is configured")
    try:
        await in_time(call.stores, keep_decision(call, ledger), "the ledger")
    except Exception as error:
        fix = str(error) if isinstance(error, LedgerUnavailable | Unavailable) else ""
        call.refuse("LEDGER_UNAVAILABLE", f"the ledger could not keep the decision: {type(error).__name__}", fix)


async def look_around(call: Call, registered: Registered, grant: Grant) -> None:
    """Let the tool say whether it can run here, from what it declares and nothing else."""
    try:
        with Deadline(registered.seconds):
            fine = bool(registered.missing) or await is_available(call.session, registered, grant)
    except TimeoutError:
        call.refuse("LIMIT_TIME", f"{call.tool} looked around for longer than {registered.seconds:g} seconds")
    if not fine:
        call.refuse("TOOL_NOT_AVAILABLE", f"{call.tool} says that it cannot run here")


def bind(call: Call, registered: Registered, grant: Grant) -> BoundContext | None:
    """The handles for exactly what is held; a part that is needed and not there refuses the call."""
    if registered.missing:
        if call.ports.empty:
            text = f"Tool {call.tool} declares capabilities but no capability backends are configured"
            call.refuse("BACKEND_MISSING", text, "pass `backends=Backends.local()` to the gate")
        missing = ", ".join(registered.missing)
        parts = ", ".join(f"{port}=…" for port in registered.missing.values())
        text = f"Tool {call.tool} needs a backend that is not configured: {missing}"
        call.refuse("BACKEND_MISSING", text, f"pass `Backends.local()`, or `Backends({parts})`, to the gate")
    if registered.unavailable:
        call.refuse("SANDBOX_UNAVAILABLE", registered.unavailable)
    if registered.bound:  # otherwise there is nobody to hand it to
        call.context = BoundContext(call.session, registered, call.ports, grant)
    return call.context


def work_of(call: Call, registered: Registered) -> ToolCall:
    """What a sandbox is asked to run."""
    return ToolCall(registered.tool, call.arguments, registered.seconds, registered.limits)


async def run(call: Call, registered: Registered, grant: Grant, context: BoundContext | None) -> Any:
    """Run the tool in its sandbox, against the clock; every handle checks every use."""
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
        return await sandbox.run(reach.level, work_of(call, registered), context)
    except SandboxUnavailable as missing:
        call.running = False
        call.refuse("SANDBOX_UNAVAILABLE", str(missing))
    except Stopped as stopped:
        grant.note_of(SandboxStopped, reason=stopped.reason)
        call.refuse(stopped.reason, str(stopped))
    finally:
        if deadline.stop():  # whatever the tool made of it
            grant.note_of(SandboxStopped, reason="LIMIT_TIME")
            call.refuse("LIMIT_TIME", f"{call.tool} ran for longer than {registered.seconds:g} seconds")
