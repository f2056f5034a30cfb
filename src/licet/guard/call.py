"""The path of one call: declare, validate, decide, can it run, ask, reserve, record, bind, run, close.

There is no middleware to reorder, and no shared object stores anything about a call. An error before the tool runs
refuses the call. An error inside the tool ends only that call.

Tells a Ctrl-C of the operator from a `KeyboardInterrupt` that a tool raised by itself.

Both leave a receipt. The first is raised to the caller, because it is meant for the program. The second is treated as
any error of the tool.

Checks the arguments of a call against the rules of the manifest and what is tied, and computes their digest.
"""

import asyncio
import dis
import functools
import os
import signal
import threading
from contextlib import suppress
from time import monotonic
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from licet.core.algebra.rules import Use, use_of_path
from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.argument_rules import (
    PathReading,
    argument_denial,
    likely_deletes,
    opened_paths,
    tie_denial,
    tied,
    unheld,
    untying,
    use_of_argument,
    uses_of_argument,
)
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
from licet.core.decision.reach import Reach
from licet.core.decision.request import UNUSED, Approval, Ground, Reason
from licet.core.ledger.entry import ObservedFact
from licet.core.limits import MOST_OF_A_GROUND
from licet.core.policy.servers import tool_parts
from licet.core.values import data_digest
from licet.declare.arguments import InvalidArguments, exact, received
from licet.declare.check_cost import patiently
from licet.declare.plain_json import data_again, plain_json
from licet.errors import Refused
from licet.guard.approvals_and_budgets import ask_approver, reserve, spent
from licet.guard.bind import BoundContext, is_available
from licet.guard.close import close, outcome, succeeded
from licet.guard.execution import SandboxUnavailable, Stopped, ToolCall
from licet.guard.grant import CallIdentity, Grant, held_paths
from licet.guard.limits import CURRENT, STORE_SECONDS, Deadline, StoreDeadline, in_time
from licet.guard.ports import Agreement, Clock, LedgerUnavailable, Reservation, Unavailable
from licet.guard.receipt import keep_decision
from licet.guard.redaction.redact import Redactor
from licet.guard.registration import Registered, RegisteredTools, Rules
from licet.guard.result import Result, interrupted
from licet.guard.session_end import caller_cancelled, check_policy, check_session, session_end

if TYPE_CHECKING:
    from licet.guard.session import Session

_traceback: Any = BaseException.__dict__["__traceback__"]


def is_from_operator(error: KeyboardInterrupt) -> bool:
    """Whether a signal caused it: it was raised in the main thread, and not by a `raise` in the tool's code."""
    if type(error) is not KeyboardInterrupt or threading.current_thread() is not threading.main_thread():
        return False
    last: TracebackType | None = _traceback.__get__(error)
    handler, codes = _handler_code(), set[CodeType]()
    while last is not None:
        codes.add(last.tb_frame.f_code)
        if last.tb_next is None:
            break
        last = last.tb_next
    # A signal handler in Python, such as that of `asyncio.run`, also has a `raise`.
    return handler in codes or last is None or not _is_raise(last)


def _handler_code() -> CodeType | None:
    """The code of the SIGINT handler; None if the handler is not written in Python."""
    handler: Any = signal.getsignal(signal.SIGINT)
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


def _is_raise(trace: TracebackType) -> bool:
    """Whether the line that an error came from was a `raise` statement."""
    code = trace.tb_frame.f_code.co_code
    return dis.opname[code[trace.tb_lasti]] == "RAISE_VARARGS"


def check_rules(call: "Call", registered: Registered, one: Rules, data: dict[str, Any]) -> None:
    """Check arguments against the rules of one admission; raise `Refused` if they break one."""
    reach = registered.reach
    assert reach is not None  # noqa: S101
    reading = _reading(call, registered)
    denied = argument_denial(call.request, reach, one.rules, one.check, data, reading, one.origin)
    if denied is not None:
        raise Refused(denied)
    if reading.by_code or reach.level == "native":  # around other tools are walls, which look at links
        _check_links(call, reach, one.rules, data, reading)


def check_ties(call: "Call", registered: Registered, given: dict[str, Any]) -> None:
    """Check what the code of a tool without handles gets against its grant; raise `Refused` if it is not held.

    This is about the text of the arguments, and about links that exist now. What the code makes of them, and links
    that change before it opens a file, are not seen.
    """
    ties, reach = registered.ties, registered.reach
    assert ties is not None  # noqa: S101
    assert reach is not None  # noqa: S101
    got = {name: received(given[name], by_fields=True) for name in ties.rules if name in given}
    reading = _reading(call, registered)
    if (denied := tie_denial(call.request, reach, ties, got, reading)) is not None:
        raise Refused(denied)
    _check_links(call, reach, ties.rules, got, reading)


def _reading(call: "Call", registered: Registered) -> PathReading:
    gate = call.session.gate
    if registered.ties is None:
        return PathReading(gate.workdir, gate.home)
    try:
        return PathReading(os.getcwd(), gate.home, by_code=True)  # where its code opens relative paths
    except FileNotFoundError:  # the directory was removed; relative paths are then refused
        return PathReading("", gate.home, by_code=True)


def _check_links(call: "Call", reach: Reach, rules: Any, data: dict[str, Any], reading: PathReading) -> None:
    """Refuse a path that leads out of the grant through a link, both as it is written and without its `..`.

    Code may open the text as it is, or clean it first: `notes/link/../a` is then `notes/a`.
    """
    for value in tied(rules, data):
        # A URL of a host has a use, and no path.
        uses = [use for use in uses_of_argument(value, reach.grant, reading) if use.domain == "fs"]
        for use, path in zip(uses, opened_paths(value, reading), strict=False):
            for real in dict.fromkeys((os.path.realpath(use.target), os.path.realpath(path))):
                if (away := _linked_away(use, real, reach.grant)) is not None:
                    raise Refused(unheld(call.request, reach, value.argument, away, untying(reach, value.argument)))


def _linked_away(use: Use, real: str, grant: CapabilitySet) -> Use | None:
    """The use of the real path, if a path leads through a link to something that is not held; otherwise None."""
    if real == use.target:
        return None
    found, held = use_of_path(use.action, real), held_paths(grant)
    if (known := grant.verdict(found)) is not None:
        return None if known else found
    # The grant may name a directory by a path with links, such as a working directory below one.
    roots, denied = (map(os.path.realpath, paths(use.action)) for paths in (held.allowed, held.denied))
    return None if inside(real, list(roots)) and not inside(real, list(denied)) else found


def known_deletes(call: "Call", registered: Registered) -> tuple[Use, ...]:
    """The deletes that are known from the arguments: those that a rule ties to `fs:delete`."""
    if not (registered.asks and registered.rules):
        return ()
    found: dict[Use, None] = {}
    reading = PathReading(call.session.gate.workdir, call.session.gate.home)
    for one in registered.rules:
        got = {name: received(call.arguments[one.parameters[name]]) for name in one.rules}
        for value in tied(one.rules, got):
            if value.scope == "fs:delete":
                found[use_of_argument(value, CapabilitySet(), reading)] = None
    return tuple(found)


def named_deletes(call: "Call", registered: Registered) -> tuple[Use, ...]:
    """The deletes that are likely: of the paths that arguments name, by a tool that deletes through `ctx.fs`."""
    tool, reach = registered.tool, registered.reach
    if not registered.asks or reach is None or not tool.uses_handles or reach.delete_approval != "call":
        return ()
    names = tool.parameter_names()
    got = {name: received(call.arguments[held]) for name, held in names.items() if held in call.arguments}
    return likely_deletes(tool.schema, got, call.session.gate.workdir)


def arguments_digest(arguments: dict[str, Any]) -> str:
    return data_digest(exact(arguments))


_LONGEST = 128  # characters; no tool has a longer name, and a receipt leaves it out


class Call:
    """The state of one call, filled in step by step."""

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
            "bundle_reservations",
            "observed",
            "policy",
            "ports",
            "purpose",
        ),
        *("receipt", "registered", "request", "reservation", "running", "session", "started", "stores", "time", "tool"),
        *("cuts", "task", "usage", "was_cut"),
    )

    arguments: dict[str, Any]  # once they are validated

    def __init__(self, session: "Session", tool: str, purpose: str | None = None) -> None:
        gate, clock = session.gate, session.gate.clock
        self.session = session
        self.task: asyncio.Task[Any] | None = asyncio.current_task()
        self.was_cut, self.cuts = False, 0  # whether the end of its session has cancelled it, and how often
        self.tool = tool if type(tool) is str and len(tool) <= _LONGEST else ""
        self.policy: RegisteredTools = gate.policy  # read once: a reload affects later calls only
        self.ports = gate.ports
        self.clock: Clock = clock
        self.receipt: str = gate.next_receipt()
        self.time = clock.now()
        self.started = clock.monotonic()
        self.request = session.request(self.tool)
        self.usage = UNUSED
        self.digest = ""  # of the arguments, once they are validated
        self.approvals: tuple[Agreement, ...] = ()  # with who agreed
        self.observed: ObservedFact | UnsetType = UNSET  # for its receipts, if nothing was enforced
        self.registered: Registered | None = None
        self.grant: Grant | None = None
        self.reservation: Reservation | None = None
        self.bundle_reservations: dict[str, Reservation] = {}  # in the budgets of its tool's bundles
        self.context: BoundContext | None = None
        self.deadline: Deadline | None = None
        self.stores = StoreDeadline(STORE_SECONDS)  # until the tool, and so its time limit, is known
        self.running = False
        self.long_result = False
        self.purpose = purpose  # why the caller makes this call

    @property
    def identity(self) -> CallIdentity:
        """Which call this is, for its events."""
        session = self.session
        return CallIdentity(session.agent, session.id, self.receipt, self.time, self.started, self.clock)

    @property
    def is_long(self) -> bool:
        """Whether its events or its result are so long that building the receipt would block the event loop."""
        return self.long_result or (self.grant is not None and self.grant.is_long)

    @property
    def redactor(self) -> Redactor | None:
        """The redactor of the secrets that this call has seen; None if it has seen none."""
        return self.grant.redactor if self.grant is not None else None

    async def ask(self, approval: Approval, use: Use) -> None:
        """Ask about one delete inside this call. Its deadline is paused meanwhile."""
        assert self.grant is not None  # noqa: S101 - the grant calls this
        if approval in self.usage.approved:  # given with the call, and valid once
            self.usage = replace(self.usage, approved=self.usage.approved - {approval})
            return
        ground = delete_ground(self.grant.reach, use)
        if self.deadline is not None:
            self.deadline.pause()
        try:
            await ask_approver(self, Ask(self.request, approval, (ground,), use))
            check_session(self, use)
            check_policy(self, use)
        finally:
            if self.deadline is not None:
                self.deadline.resume()
                self.stores.set_by(self.deadline.when)

    def refuse(self, reason: Reason, text: str, fix: str = "", use: Use | None = None) -> NoReturn:
        """Refuse this call, or one use inside it, for a reason that no rule states, such as a missing backend."""
        if self.grant is not None:
            self.grant.refuse(reason, text, use, fix)
        raise Refused(Deny(self.request, (Ground(reason, text[:MOST_OF_A_GROUND], fix=fix),), use))


async def run_call(session: "Session", tool: str, arguments: object, purpose: str | None = None) -> Result:
    """Run one tool, and return its result or its refusal. No error of a tool, a model or a policy is raised."""
    await session.check_ended()  # at each call: `licet session end` is another process
    session.gate.renew_standing()
    call = Call(session, tool, purpose)
    outer, running = CURRENT.get(), session.gate.running  # `outer` is set if the tool of another call makes this one
    CURRENT.set(call.stores)
    running.add(call)  # before the session is checked, so that its end finds this call or is found by it
    try:
        return await _run_call(call, arguments)
    finally:
        running.discard(call)
        CURRENT.set(outer)
        if call.was_cut:
            caller_cancelled(call)


async def _run_call(call: Call, arguments: object) -> Result:
    try:
        check_session(call)
        registered, grant = await call.session.admission.admit(call, arguments)
        grant.begin()
        await record(call)
        context = bind(call, registered, grant)  # the fail-closed guard
        result = await succeeded(call, await run(call, registered, grant, context))
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
    return await close(call, result)


class CallAdmission:
    """The steps of a call before anything happens. A session may be given others."""

    async def admit(self, call: Call, arguments: object) -> tuple[Registered, Grant]:
        """Declare, validate, decide, check that it can run, ask and reserve. Each step can only refuse."""
        registered = call.registered = declare(call)
        call.stores.until = monotonic() + registered.seconds
        if registered.misfits:
            await deny_misfit(call, registered, arguments)
        call.arguments = await validate(call, registered, arguments)
        call.digest = arguments_digest(call.arguments)  # before the tool runs: it could change its arguments
        if registered.needs_approval:
            await look_up_usage(call, registered)
        grant = make_grant(call, registered)
        objection = resolve(call)  # call-time resolution
        if isinstance(objection, Deny):
            grant.deny(objection)
        await self.check_runnable(call, registered, grant)  # nobody is asked about a call that cannot run
        while objection is not None:
            await self.refuse_or_ask(call, grant, objection)
            objection = resolve(call)
        if registered.budgeted:
            await reserve(call, registered, grant)
        return registered, grant

    async def check_runnable(self, call: Call, registered: Registered, grant: Grant) -> None:
        """Refuse a call without its backends or its sandbox, or if the tool's own availability check fails."""
        check_backends(call, registered)
        if registered.tool.available is None:
            return
        try:
            with Deadline(registered.seconds):
                fine = await is_available(call.session, registered, grant)
        except TimeoutError:
            call.refuse(
                "LIMIT_TIME", f"the availability check of {call.tool} took longer than {registered.seconds:g} seconds"
            )
        if not fine:
            call.refuse("TOOL_NOT_AVAILABLE", f"the availability check of {call.tool} failed: the tool cannot run here")

    async def refuse_or_ask(self, call: Call, grant: Grant, decision: Ask | Deny) -> None:
        """Raise the refusal of a denied call; otherwise ask the approver."""
        if isinstance(decision, Deny):
            grant.deny(decision)
        check_program(call, grant)
        agreed = await ask_approver(call, decision)
        check_session(call)  # it may have ended while the approver was asked
        check_policy(call)
        call.usage = replace(call.usage, approved=call.usage.approved | {*agreed})

    def note_unrun(self, call: Call, why: tuple[Ground, ...]) -> None:
        """Note a call that runs no tool, before its receipt is written; `why` is empty if it was not refused."""


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


async def validate(call: Call, registered: Registered, arguments: object) -> dict[str, Any]:
    """Return the arguments as the tool will get them, checked against its type hints and the manifest's rules."""
    try:
        given = await patiently(registered.validate, arguments)
    except InvalidArguments as wrong:
        call.refuse("INPUT_INVALID", str(wrong))
    if registered.rules:
        sent = data_again(plain_json(arguments))
        for one in registered.rules:
            await patiently(check_rules, call, registered, one, {**one.defaults, **sent})
            # Type hints trim, convert and fill in defaults: check what the tool gets, too.
            got = {name: received(given[one.parameters[name]]) for name in one.rules}
            await patiently(check_rules, call, registered, one, got)
    if registered.ties is not None:
        await patiently(check_ties, call, registered, given)
    return given


async def look_up_usage(call: Call, registered: Registered) -> None:
    """Add to the request its arguments and deletes, and to the usage what was spent and approved in this session."""
    certain, likely = known_deletes(call, registered), named_deletes(call, registered)
    call.request = replace(call.request, arguments=call.digest, uses=certain, likely=likely)
    usage = UNUSED
    if registered.budgeted and call.ports.budgets is not None:
        usage = await spent(call, registered, call.ports.budgets)
    agreed = call.session.agreed(call.policy, call.clock.monotonic())
    call.usage = replace(usage, approved=frozenset(agreed))
    call.approvals = tuple(agreement for approval, agreement in agreed.items() if approval.tool == call.tool)
    if (standing := registered.reach.standing if registered.reach is not None else None) is not None:
        covered = Approval(call.policy.digest, call.tool, call.session.id, deletes=True)
        call.approvals += (Agreement(covered, standing.by, standing.id, standing=True),)


def make_grant(call: Call, registered: Registered) -> Grant:
    """Make the grant of this call. No handle gets it before the call is allowed."""
    assert registered.reach is not None  # noqa: S101
    gate, standing = call.session.gate, registered.reach.standing
    grant = call.grant = Grant(
        call.request,
        registered.reach,
        call.policy.digest,
        gate.observers,
        call.ask if registered.asks else _unasked,
        registered.limits,
        call.identity,
        None if standing is None else lambda: gate.stands(standing),
    )
    if not call.session.reported_open:
        grant.note_of(SessionOpened)
        call.session.reported_open = True  # after every observer has seen the event
    for agreement in call.approvals:
        by = f"standing approval {agreement.request}" if agreement.standing else agreement.approval.use
        grant.note_of(ApprovalRemembered, rule=by)
    return grant


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
    """Write the decision to the ledger, on disk, before any effect; refuse the call if that fails."""
    ledger = call.ports.ledger
    if ledger is None:
        call.refuse("LEDGER_UNAVAILABLE", "no ledger is configured")
    try:
        await in_time(call.stores, keep_decision(call, ledger), "the ledger")
    except Exception as error:
        fix = str(error) if isinstance(error, LedgerUnavailable | Unavailable) else ""
        call.refuse("LEDGER_UNAVAILABLE", f"the ledger could not keep the decision: {type(error).__name__}", fix)


def bind(call: Call, registered: Registered, grant: Grant) -> BoundContext | None:
    """Make the context of the call; refuse if a backend or the sandbox that the tool needs is missing."""
    check_backends(call, registered)
    if registered.needs_context:  # otherwise nothing would use it
        call.context = BoundContext(call.session, registered, call.ports, grant)
    return call.context


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
