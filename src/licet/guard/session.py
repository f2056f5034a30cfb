"""`Session`: one conversation of one agent, with its calls, approvals and storage.

Receipts about calls that run no tool: one that a surface does not pass on, and a question of a server on its own.

If a client calls a tool that is hidden from it, the answer says that there is no such tool. The receipt has the name of
the tool and the reason.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from operator import length_hint
from time import monotonic
from typing import Any

from licet.core.algebra.scope import visible
from licet.core.algebra.set import Rules
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground
from licet.core.flow.session_knowledge import Reading
from licet.core.late_pattern import late_pattern
from licet.core.ledger.entry import AgentFact
from licet.core.limits import MOST_REMEMBERED
from licet.core.values import data_digest
from licet.declare.arguments import InvalidArguments
from licet.declare.check_cost import patiently
from licet.declare.plain_json import plain_data, plain_json
from licet.errors import Refused
from licet.guard.argument_checks import arguments_digest
from licet.guard.call import CallAdmission, declare, deny_misfit, make_grant, resolve, run_call
from licet.guard.close import close
from licet.guard.facts import Call, GateFacts, SessionFacts, begun, in_opening
from licet.guard.flow_steps import are_longer
from licet.guard.handles.secrets_and_kv import scope_id
from licet.guard.limits import CONCURRENT_CALLS, END_PAUSE, END_SECONDS, LONG_RESULT, MOST_OF_A_CLAIM
from licet.guard.memory import Moment
from licet.guard.read_elsewhere import keep_given
from licet.guard.repeated_calls import ID_FORM, is_call_id
from licet.guard.result import Result
from licet.guard.result_parts import NOTHING, ResultParts, outcome
from licet.guard.session_end import check_session, cut, look_up_end, mark_ended

_ADMISSION = CallAdmission()
_NAME = late_pattern(r"[A-Za-z0-9_./-]{1,128}")


class Session(SessionFacts):
    """One conversation of one agent. It is identified by (agent, id); opening it again continues it, until it is ended.

        async with gate.session("s-42") as session:
            result = await session.call("read_note", {"name": "oslo"})
            print(result.value if result.ok else result.explain())

    See docs/calls.md.
    """

    def __init__(
        self,
        gate: GateFacts,
        id: str,  # noqa: A002
        parent: SessionFacts | None = None,
        *,
        admission: CallAdmission = _ADMISSION,
    ) -> None:
        _check_name("a session id", id)
        super().__init__(gate, id, parent)
        self.admission = admission
        if parent is not None and parent.memory is not None:
            self.remembering()  # a delegate begins with what its parent knows now

    def __repr__(self) -> str:
        return f"Session({self.id!r} of {self.agent!r}{', over' if self.over else ''})"

    async def __aenter__(self) -> "Session":
        with in_opening(self.gate.policy) as stores:
            await look_up_end(self, stores)
            self.looked_in = stores
        if self.parent is not None and self.gate.policy.flow is not None:
            self.remembering().hold()
        with suppress(Refused):  # the next call tries again, before anything is handed out
            await keep_given(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True
        if self.memory is not None:
            self.memory.hand_back()

    @property
    def task(self) -> str:
        """What the user has said, turn by turn. Policies with `flow:` compare arguments with it."""
        return self.memory.task if self.memory is not None else ""

    async def say(self, text: str) -> None:
        """Add a turn of the user to the task. Only words of the user belong here, never those of a tool or a model."""
        self.remembering().say(text)

    def read(self, source: str, value: object) -> Coroutine[Any, Any, None]:
        """Remember what reaches the model without a call, such as a resource or a file in its prompt, as untrusted.

        It is remembered at once. Await it before the model gets the text: then every process knows that this session is
        tainted. Raises `Refused` if that could not be kept, and then the model must not get it.
        """
        self.be_given(source, value)
        return keep_given(self)

    def be_given(self, source: str, value: object) -> None:
        """The same without keeping it: other processes know of it from the next call that is decided here."""
        about = visible(source)[:MOST_OF_A_CLAIM]
        if self.gate.policy.flow is None:
            self._note(about)
            return
        memory = self.remembering()
        most = MOST_REMEMBERED if type(value) is str else LONG_RESULT
        if are_longer((value,), most):  # nobody waits until all of it is read; its values are unknown
            memory.hear_of(Reading("", "", None, about=about, is_untrusted=True))
            return
        if type(value) is str and len(value) > LONG_RESULT:
            given, size = value, len(value)
        else:
            text = plain_json(value)
            given, size = plain_data(text), len(text)
        memory.be_given(Reading(receipt="", tool="", value=given, about=about, size=size, is_untrusted=True))

    def _note(self, about: str) -> None:
        """Note that there was something, without a memory of it: a policy that is loaded later has to know."""
        one: SessionFacts = self
        while one.memory is None and one.parent is not None:
            one = one.parent
        if one.memory is not None:
            one.memory.taint(about)
        else:
            one.gate.memories.taint(one.name, about)

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        purpose: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> Coroutine[Any, Any, Result]:
        """Run one tool, and return its result or its refusal. No error of a tool, a model or a policy is raised.

        `purpose` says why the call is made. The receipt keeps it, redacted and cut to 500 characters.

        A call with an `id` that this session has used for the tool within 24 hours is decided again, and then gets the
        result of the first one: nothing runs, is spent or asked about again. The id stands in receipts.
        """
        return self._call(tool, arguments, purpose, None, id)

    def _call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None,
        purpose: str | None,
        moment: Moment | None,
        id: str | None = None,  # noqa: A002
    ) -> Coroutine[Any, Any, Result]:
        if id is not None and not is_call_id(id):
            raise ValueError(f"expected the `id` of a call to be text of {ID_FORM}")
        if purpose is not None and not isinstance(purpose, str):
            raise TypeError("expected `purpose` to be text: why this call is made")
        if moment is None and self.memory is not None:
            moment = self.memory.moment()  # now, also if the call is awaited later, together with others
        given = {} if arguments is None else arguments
        return run_call(self, self.admission, tool, given, purpose, moment, id or "")

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
        together = self.remembering().together() if self.gate.policy.flow is not None else None

        async def work() -> None:
            for number in waiting:
                tool, arguments = asked[number]
                results[number] = await self._call(tool, arguments, purpose, together)

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
        if self.other_agent(self.gate.policy):  # every call is refused
            return []
        unavailable = await self.unavailable()
        return [name for name, one in sorted(self.gate.policy.tools.items()) if one.ready and name not in unavailable]

    async def unavailable(self) -> dict[str, str]:
        """The tools that are admitted, and whose own `available=` says now that they cannot run here: name to reason.

        A check that raises, blocks or takes longer than two seconds counts as a no.
        """
        return await self.gate.checks.unavailable(self)

    def delegate(self, *, agent: str, allow: Rules) -> "Session":
        """A session for another agent, limited to the listed rules and to what this session holds."""
        _check_name("the name of an agent", agent)
        return Session(self.gate.delegated(agent, allow), self.id, self)

    async def end(self) -> None:
        """Cancel the session's calls, delete its storage, and refuse all later calls under its id.

        Calls of other processes are not cancelled. They can store nothing more in the session's storage.
        """
        self.gate.ended.add(self.name)
        running, this = self.gate.running, asyncio.current_task()
        calls = [call for call in list(running) if call.session.ended]
        for call in calls:
            cut(call, this)
        kv, scope = self.gate.ports.kv, scope_id("session", "", self.id, None, self.agent)
        if kv is not None:
            await mark_ended(kv, *self.name)
        until = monotonic() + END_SECONDS
        while any(call in running and call.task is not this for call in calls) and monotonic() < until:
            await asyncio.sleep(END_PAUSE)
        self.gate.agreed.pop(self.name, None)
        self.gate.memories.end(self.name)
        if self.memory is not None:
            self.memory.hand_back()  # what was read goes on to the code that has ended it
        self.memory = None
        if kv is not None:
            await kv.clear(scope)


def _check_name(what: str, name: object) -> None:
    if type(name) is not str or not _NAME.fullmatch(name):
        raise ValueError(f"expected {what} of 1 to 128 letters, digits, `_`, `.`, `/` or `-`")


async def refuse_call(
    session: Session, tool: str, arguments: Mapping[str, Any], ground: Ground, *, agent: AgentFact | None = None
) -> Result:
    """Refuse and record a call: for the reason of the policy if it has one, otherwise for `ground`. Nothing runs."""
    call = begun(session, tool)
    if agent is not None:
        call.coding_agent = agent
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
        return await _closed(session, call, outcome(call, error))


async def refuse_unread(session: Session, tool: str, digest: str, ground: Ground, agent: AgentFact) -> Result:
    """Refuse and record a call that could not be read or decided: `digest` is that of all that came of it."""
    call = begun(session, tool)
    call.digest, call.coding_agent = digest, agent
    return await _closed(session, call, outcome(call, Refused(Deny(call.request, (ground,)))))


async def record_question(
    session: Session, name: str, params: Mapping[str, Any] | None, ground: Ground | None
) -> Result:
    """Record a question that a server asks while none of its calls runs, as a call of `name`.

    With `ground` it is refused. It is recorded before the client is asked: if that fails, the result is a refusal too.
    """
    call = begun(session, name, "asked by the server itself, outside of a call")
    parts = ResultParts(name)
    try:
        check_session(call)
        if params is not None:
            call.digest = data_digest(plain_data(plain_json(params)))
        if ground is not None:
            parts = outcome(call, Refused(Deny(call.request, (ground,))))
    except Exception as error:
        parts = outcome(call, error)
    return await _closed(session, call, parts)


async def _closed(session: Session, call: Call, parts: ResultParts) -> Result:
    """Write the receipt."""
    session.admission.note_unrun(call, parts.refusal.rules if parts.refusal is not None else ())
    return await close(call, parts)
