"""`Session`: one conversation of one agent, with its calls, approvals and storage.

Receipts about calls that run no tool: one that a surface does not pass on, and a question of a server on its own.

If a client calls a tool that is hidden from it, the answer says that there is no such tool. The receipt has the name of
the tool and the reason.
"""

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from operator import length_hint
from time import monotonic
from typing import TYPE_CHECKING, Any

from licet.core.algebra.rules import Use
from licet.core.algebra.set import Rules
from licet.core.decision.decision import Deny
from licet.core.decision.request import Approval, Ground, Request, bundle_account
from licet.core.ledger.entry import Caller
from licet.core.policy.terms import Budget
from licet.core.values import data_digest
from licet.declare.arguments import InvalidArguments
from licet.declare.check_cost import patiently
from licet.declare.plain_json import plain_data, plain_json
from licet.errors import Refused
from licet.guard.bind import is_available
from licet.guard.call import (
    Call,
    CallAdmission,
    arguments_digest,
    declare,
    deny_misfit,
    make_grant,
    resolve,
    run_call,
)
from licet.guard.close import close, outcome
from licet.guard.grant import Grant
from licet.guard.handles.secrets_and_kv import scope_id
from licet.guard.limits import Deadline
from licet.guard.ports import Agreement, Claim, Unavailable
from licet.guard.registration import Registered, RegisteredTools
from licet.guard.result import NOTHING, Result, ResultParts
from licet.guard.session_end import check_session, end_with_session, is_ended, mark_ended

if TYPE_CHECKING:
    from licet.guard.gate import BareGate

_ADMISSION = CallAdmission()
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
CONCURRENT_CALLS = 64
_END_SECONDS, _END_PAUSE = 5.0, 0.005  # how long `end` waits for calls that it has cancelled, and between two looks


class Session:
    """One conversation of one agent. It is identified by (agent, id); opening it again continues it, until it is ended.

        async with gate.session("s-42") as session:
            result = await session.call("read_note", {"name": "oslo"})
            print(result.value if result.ok else result.explain())

    See docs/calls.md.
    """

    def __init__(
        self,
        gate: "BareGate",
        id: str,  # noqa: A002
        parent: "Session | None" = None,
        *,
        admission: CallAdmission = _ADMISSION,
    ) -> None:
        _check_name("a session id", id)
        self.gate = gate
        self.id = id
        self.agent = gate.manifest.agent
        self._name = (self.agent, id)
        self.parent = parent
        # A delegate spends from the account of the first session, so delegating does not raise a budget.
        self.account: tuple[str, str] = parent.account if parent else (self.agent, id)
        self.store_error = ""  # why `check_ended` could not read the store
        self._closed = False
        self.reported_open = False  # whether observers have seen `SessionOpened`
        self.caller: Caller | None = None  # who calls, as a gateway reports it; a claim that decides nothing
        self.admission = admission
        self._requests: dict[str, Request] = {}
        self._claims: dict[str, tuple[Registered, int, Claim, dict[str, Claim]]] = {}

    def __repr__(self) -> str:
        return f"Session({self.id!r} of {self.agent!r}{', over' if self.over else ''})"

    async def __aenter__(self) -> "Session":
        await self.check_ended()
        return self

    async def check_ended(self) -> None:
        """Read from the store whether this session, or one that delegated to it, was ended by any process."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "sessions need the loop of asyncio: under another, use `licet.run` in a thread"
            ) from None
        if self.parent is not None:
            await self.parent.check_ended()
        kv, self.store_error = self.gate.ports.kv, self.parent.store_error if self.parent is not None else ""
        if kv is None or self._name in self.gate.ended:
            return
        try:
            if await is_ended(kv, *self._name):
                self.gate.ended.add(self._name)
                self.gate.agreed.pop(self._name, None)
        except Exception as error:  # a user's store may raise anything
            # The session may have been ended, so its calls are refused with this text.
            self.store_error = str(error) if isinstance(error, Unavailable) else f"{type(error).__name__}: {error}"

    def agreed(self, policy: RegisteredTools, now: float) -> dict[Approval, Agreement]:
        """The approvals for this session that were given under this policy and have not expired."""
        known = list(self.gate.agreed.get(self._name, {}).items())  # a copy: another thread may change it
        return {approval: agreement for approval, (under, until, agreement) in known if under is policy and now < until}

    def agree(self, agreement: Agreement, policy: RegisteredTools, asked: float, seconds: int) -> None:
        """Remember an approval for this session until it expires, counted from the time of the question."""
        if self.ended:
            return
        agreed = self.gate.agreed
        for name, known in list(agreed.items()):  # remove expired ones, also of sessions that are never ended
            if all(until <= asked for _, until, _ in list(known.values())):
                agreed.pop(name, None)
        agreed.setdefault(self._name, {})[agreement.approval] = (policy, asked + seconds, agreement)

    async def __aexit__(self, *_: object) -> None:
        self._closed = True

    @property
    def over(self) -> bool:
        """Whether this session accepts no more calls."""
        return self._closed or self._name in self.gate.ended or (self.parent is not None and self.parent.over)

    @property
    def ended(self) -> bool:
        """Whether this session, or one that delegated to it, was ended for good."""
        return self._name in self.gate.ended or (self.parent is not None and self.parent.ended)

    def other_agent(self, policy: RegisteredTools) -> str:
        """The agent of the manifest in force, if it is not that of this session or of a parent; otherwise empty."""
        if policy.manifest.agent != self.agent:
            return policy.manifest.agent
        return self.parent.other_agent(self.parent.gate.policy) if self.parent is not None else ""

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, purpose: str | None = None
    ) -> Coroutine[Any, Any, Result]:
        """Run one tool, and return its result or its refusal. No error of a tool, a model or a policy is raised.

        `purpose` says why the call is made. The receipt keeps it, redacted and cut to 500 characters.
        """
        if purpose is not None and not isinstance(purpose, str):
            raise TypeError("expected `purpose` to be text: why this call is made")
        return run_call(self, tool, {} if arguments is None else arguments, purpose)

    async def call_many(
        self, calls: Iterable[tuple[str, Mapping[str, Any] | None]], *, at_once: int = CONCURRENT_CALLS
    ) -> list[Result]:
        """Run several calls concurrently. Results are in the order of the calls; one failure affects no other call."""
        asked = list(calls)
        if not all(isinstance(one, tuple | list) and len(one) == 2 for one in asked):
            raise TypeError('expected pairs of a tool\'s name and its arguments: [("read_file", {"path": "a"}), …]')
        if type(at_once) is not int or at_once < 1:
            raise ValueError("expected `at_once` to be 1 or more")
        return await self._many(asked, at_once)

    async def _many(
        self, asked: list[tuple[str, Mapping[str, Any] | None]], at_once: int, purpose: str | None = None
    ) -> list[Result]:
        results: list[Result | None] = [None] * len(asked)
        waiting = iter(range(len(asked)))

        async def work() -> None:
            for number in waiting:
                tool, arguments = asked[number]
                results[number] = await self.call(tool, arguments, purpose=purpose)

        while left := length_hint(waiting):  # a call that cancels its own task leaves later calls undone
            async with asyncio.TaskGroup() as group:
                for _ in range(min(at_once, left)):
                    group.create_task(work())
        return [result or self._lost(tool) for result, (tool, _) in zip(results, asked, strict=True)]

    def _lost(self, tool: str) -> Result:
        """The result of a call whose task was cancelled from inside; its receipt is in the ledger."""
        ground = Ground("TOOL_FAILED", "the task of this call was cancelled by what ran in it")
        parts = ResultParts(tool).refuse("execution_failed", Refused(Deny(self.request(tool), (ground,))))
        parts.layers, parts.programs, parts.cost_usd, parts.receipt, parts.duration_ms = (), None, NOTHING, "", 0.0
        return parts.sealed(None)

    async def available(self) -> list[str]:
        """The tools that are admitted and could run here; budgets and approvals are not considered."""
        policy = self.gate.policy
        found: list[str] = []
        if self.other_agent(policy):  # every call is refused
            return found
        for name, registered in sorted(policy.tools.items()):
            if registered.ready and registered.reach is not None:
                grant = Grant(self.request(name), registered.reach, policy.digest, self.gate.observers, _ask_nobody)
                with suppress(TimeoutError), Deadline(registered.seconds):
                    if await is_available(self, registered, grant):
                        found.append(name)
        return found

    def delegate(self, *, agent: str, allow: Rules) -> "Session":
        """A session for another agent, limited to the listed rules and to what this session holds."""
        _check_name("the name of an agent", agent)
        return Session(self.gate.delegated(agent, allow), self.id, self)

    async def end(self) -> None:
        """Cancel the session's calls, delete its storage, and refuse all later calls under its id.

        Calls of other processes are not cancelled. They can store nothing more in the session's storage.
        """
        self.gate.ended.add(self._name)
        running, this = self.gate.running, asyncio.current_task()
        calls = [call for call in list(running) if call.session.ended]
        for call in calls:
            end_with_session(call, this)
        kv, scope = self.gate.ports.kv, scope_id("session", "", self.id, None, self.agent)
        if kv is not None:
            await mark_ended(kv, *self._name)
        until = monotonic() + _END_SECONDS
        while any(call in running and call.task is not this for call in calls) and monotonic() < until:
            await asyncio.sleep(_END_PAUSE)
        self.gate.agreed.pop(self._name, None)
        if kv is not None:
            await kv.clear(scope)

    def request(self, tool: str) -> Request:
        """The request to call a tool, cached for the tools of this gate."""
        if type(tool) is not str:
            return Request(tool, (), self.id)
        found = self._requests.get(tool)
        if found is None:
            found = Request(tool, (), self.id)
            if tool in self.gate.policy.tools:  # names that models make up are not kept
                self._requests[tool] = found
        return found

    def claims(self, registered: Registered, budget: Budget, moment: datetime) -> tuple[Claim, dict[str, Claim]]:
        """The claims of a call on the budget of its agent and on those of its bundles, cached for a day."""
        tool, day = registered.tool.name, moment.toordinal()
        cached = self._claims.get(tool)
        if cached is not None and cached[0] is registered and cached[1] == day:
            return cached[2], cached[3]
        reach = registered.reach
        assert reach is not None  # noqa: S101 - only admitted tools have claims
        own = reach.max_calls, reach.max_cost_usd
        (agent, session), date, cost = self.account, moment.date().isoformat(), registered.cost_usd
        claim = Claim(agent, session, tool, date, cost, budget, *own)
        bundle_claims = {
            bundle.name: Claim(bundle_account(agent, bundle.name), session, tool, date, cost, bundle.budget, None, None)
            for bundle in reach.bundles
            if bundle.budget
        }
        self._claims[tool] = registered, day, claim, bundle_claims
        return claim, bundle_claims


def _check_name(what: str, name: object) -> None:
    if type(name) is not str or not _NAME.fullmatch(name):
        raise ValueError(f"expected {what} of 1 to 128 letters, digits, `_`, `.`, `/` or `-`")


async def _ask_nobody(approval: Approval, use: Use) -> None:
    raise PermissionError(f"no approver is asked about {use} by an availability check")


async def refuse_call(session: "Session", tool: str, arguments: Mapping[str, Any], ground: Ground) -> Result:
    """Refuse and record a call: for the reason of the policy if it has one, otherwise for `ground`. Nothing runs."""
    call = Call(session, tool)
    try:
        check_session(call)
        registered = call.registered = declare(call)
        if registered.misfits:
            await deny_misfit(call, registered, arguments)
        with suppress(InvalidArguments):  # the receipt then has no digest of them
            call.arguments = await patiently(registered.validate, arguments)
            call.digest = arguments_digest(call.arguments)
        denied = resolve(call)
        make_grant(call, registered).deny(denied if isinstance(denied, Deny) else Deny(call.request, (ground,)))
    except Exception as error:
        return await _closed(call, outcome(call, error))


async def record_question(
    session: "Session", name: str, params: Mapping[str, Any] | None, ground: Ground | None
) -> Result:
    """Record a question that a server asks while none of its calls runs, as a call of `name`.

    With `ground` it is refused. It is recorded before the client is asked: if that fails, the result is a refusal too.
    """
    call = Call(session, name, "asked by the server itself, outside of a call")
    parts = ResultParts(name)
    try:
        check_session(call)
        if params is not None:
            call.digest = data_digest(plain_data(plain_json(params)))
        if ground is not None:
            parts = outcome(call, Refused(Deny(call.request, (ground,))))
    except Exception as error:
        parts = outcome(call, error)
    return await _closed(call, parts)


async def _closed(call: Call, parts: ResultParts) -> Result:
    """Write the receipt."""
    call.session.admission.note_unrun(call, parts.refusal.rules if parts.refusal is not None else ())
    return await close(call, parts)
