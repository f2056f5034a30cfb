"""Turns a yes in an agent framework into an approval of one call.

The framework pauses, a person answers there, and the framework makes the call again. The yes counts for the question
that was asked: the same call of the framework, tool, arguments, session, manifest and deletes, once, until it expires.
It has no signature, so it never counts where the policy asks for `keys` or a `quorum`. Other questions, such as about
a delete in the middle of a call, go to the approver that the gate had before.
"""

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.adapters.limits import REMEMBERED_SECONDS
from licet.backends.kv import MemoryKv
from licet.core.decision.decision import Ask
from licet.core.values import data_digest
from licet.declare.arguments import InvalidArguments, exact
from licet.declare.plain_json import data_again, plain_json
from licet.errors import Refused
from licet.guard.argument_checks import arguments_digest, validate
from licet.guard.call import empty_grant, look_up_usage, resolve
from licet.guard.facts import GateFacts, begun
from licet.guard.flow_steps import judge_call, unmet_lines
from licet.guard.ports import (
    Answer,
    Answered,
    Approver,
    ApproverFunction,
    Clock,
    Kv,
    Question,
    answer_of,
    free_after_fork,
)
from licet.guard.session import Session

_SCOPE = "licet:asked"  # of the gate's kv store; no tool can name it
_UNSIGNED = "a yes in the agent framework has no signature, and does not count here"
_NOT_ASKED = "the yes in the agent framework answers no open question about these arguments"
_USED = "the yes in the agent framework was used already"


class Pending(Struct, frozen=True):
    """A question for the person at the framework: the exact call, why it asks, and what it could reach."""

    tool: str
    arguments: Mapping[str, Any]
    why: str
    effect: str
    reaches: tuple[str, ...]
    deletes: tuple[str, ...]  # one approval covers the call and these deletes
    expires_seconds: int
    key: str  # what the answer is bound to
    call_id: str  # the framework's id of the call; empty if it has none
    acts: tuple[str, ...]  # the use that is asked about, if it is not the whole call, and the further deletes
    unmet: tuple[str, ...] = ()  # where values come from that meet no rule of flow

    def shown(self) -> dict[str, Any]:
        """The question as plain data, for the framework to show."""
        fields: tuple[str, ...] = ("tool", "arguments", "why", "effect", "reaches", "deletes", "expires_seconds")
        fields += ("unmet",) if self.unmet else ()
        shown: dict[str, Any] = data_again(plain_json({name: getattr(self, name) for name in fields}))
        return shown


class Turn:
    """One call through an adapter: its question if it asks one, and who said yes or no to it (empty: nobody yet)."""

    __slots__ = ("answered", "no", "pending", "session", "unanswered", "yes")

    def __init__(self, pending: Pending | None, session: str, yes: str = "", no: str = "") -> None:
        self.pending, self.session, self.yes, self.no = pending, session, yes, no
        self.answered = False  # whether the question came up
        self.unanswered = False  # whether the framework must ask it


TURN: ContextVar[Turn | None] = ContextVar("TURN", default=None)


async def pending_question(session: Session, tool: str, arguments: object, call_id: str) -> Pending | None:
    """The question that a call would ask a person now; None if it asks nothing, is refused, or needs signatures.

    Decided by the same functions as the call itself. Nothing is reserved or recorded.
    """
    registered = session.gate.policy.tools.get(tool)
    reach = registered.reach if registered is not None else None
    may_ask = registered is not None and (registered.needs_approval or session.gate.policy.flow is not None)
    if registered is None or reach is None or not (registered.ready and may_ask):
        return None
    if reach.approvals.quorum > 1 or reach.approvals.keys is not None:
        return None
    call = begun(session, tool)
    try:
        call.arguments = await validate(call, registered, arguments)
        call.digest = arguments_digest(call.arguments)
        await look_up_usage(call, registered)
        if call.flow is not None:
            judgement = await judge_call(call, registered, empty_grant(call, registered), call.flow)
            call.usage = replace(call.usage, flow=judgement)
        decision = resolve(call)
    except (Refused, InvalidArguments):
        return None
    if not isinstance(decision, Ask):
        return None
    shown = exact(call.arguments)
    deletes = tuple(one.use for one in (decision.approval, *decision.also) if one.use)
    acts = (decision.approval.use, *(one.use for one in decision.also))
    bound = [session.agent, session.id, call_id, tool, registered.entry.tool_digest, call.policy.digest, *acts]
    if decision.approval.flow and call.usage.flow is not None:  # a yes is for the origins that the person has seen
        unmet = call.usage.flow.unmet
        bound += [f"{one.argument}{one.pointer} {sorted({at.origin for at in one.found})}" for one in unmet]
    return Pending(
        tool=tool,
        arguments=shown,
        why="; ".join(dict.fromkeys(rule.text for rule in decision.rules)),
        effect=reach.effect or "",
        reaches=tuple(map(str, reach.grant.allow)),
        deletes=deletes,
        expires_seconds=reach.approvals.expires_seconds,
        key=data_digest([bound, shown]),
        call_id=call_id,
        acts=acts,
        unmet=unmet_lines(call.usage.flow),
    )


class FrameworkApprover:
    """The approver of a gate whose tools an agent framework calls.

    Calls that are made in another way are asked about as before.
    """

    def __init__(self, behind: Approver | ApproverFunction | None, kv: Kv | None, clock: Clock) -> None:
        self._behind = behind
        self._kv: Kv = kv if kv is not None else MemoryKv(lambda: clock.now().timestamp())
        self._clock = clock

    @property
    def verifies(self) -> bool:
        """Whether the approver behind this one checks signatures."""
        return bool(getattr(self._behind, "verifies", False))

    def load_code(self) -> None:
        """Import what the approver behind this one needs."""
        load = getattr(self._behind, "load_code", None)
        if load is not None:
            load()

    def close(self) -> None:
        """Close the approver behind this one."""
        end = getattr(self._behind, "close", None)
        if callable(end):
            end()

    async def open(self, pending: Pending) -> None:
        """Remember that a question was asked. Asking it again does not extend its time."""
        now = self._clock.now().timestamp()
        asked = await self._kv.get(_SCOPE, pending.key)
        if not isinstance(asked, int | float) or now - asked >= pending.expires_seconds:
            await self._kv.set(_SCOPE, pending.key, now, pending.expires_seconds + REMEMBERED_SECONDS)

    async def ask(self, question: Question) -> Answer | Answered:
        """The answer that was given in the framework, or that of the approver behind this one."""
        turn = TURN.get()
        pending = turn.pending if turn is not None else None
        if turn is None or pending is None or not _is_about(turn, pending, question):
            answered = await self._ask_behind(question)
            return _with_note(answered, _UNSIGNED) if question.signed and turn is not None else answered
        turn.answered = True
        if turn.no:
            return Answered("denied", (turn.no,))
        spent = await self._spend(pending, question, turn.yes) if turn.yes else None
        if spent is not None:
            return spent
        await self.open(pending)
        turn.unanswered = True
        return Answered("absent", note=_NOT_ASKED if turn.yes else "the agent framework was asked")

    async def _spend(self, pending: Pending, question: Question, yes: str) -> Answered | None:
        """The answer that a yes gives; None if the question was never asked, so that it must be asked now.

        One yes serves one call: the framework's id of the call is marked as used first, and of several calls at once
        only one can delete the question.
        """
        used = f"{pending.key} used"
        if pending.call_id and await self._kv.get(_SCOPE, used) is not None:
            return Answered("absent", note=_USED)
        asked = await self._kv.get(_SCOPE, pending.key)
        if not isinstance(asked, int | float) or asked < question.since:
            # Without an id, a yes for another call and a yes for this one look the same.
            return None if pending.call_id else Answered("absent", note=_NOT_ASKED)
        if pending.call_id:
            await self._kv.set(_SCOPE, used, True, pending.expires_seconds + REMEMBERED_SECONDS)
        if not await self._kv.delete(_SCOPE, pending.key):
            return Answered("absent", note=_USED)
        if self._clock.now().timestamp() - asked >= question.expires_seconds:
            return Answered("expired", (yes,))
        return Answered("approved", (yes,), asks_again=True)

    async def _ask_behind(self, question: Question) -> Answered:
        behind = self._behind
        if behind is None:
            return Answered("absent")
        answer = await answer_of(behind, question)
        return answer if isinstance(answer, Answered) else Answered(answer, ("callback",))


def _is_about(turn: Turn, pending: Pending, question: Question) -> bool:
    """Whether a question is the one that the framework was, or will be, asked: it comes first, and names the same."""
    asked = question.approval
    same = asked.tool == pending.tool and asked.session == turn.session
    # A tool that calls other tools of the gate makes further questions, with other arguments.
    exactly = same and (asked.use, *question.acts) == pending.acts and question.arguments == pending.arguments
    return exactly and not turn.answered and not question.signed


def _with_note(answered: Answered, note: str) -> Answered:
    if answered.answer == "approved":
        return answered
    return replace(answered, note=f"{answered.note}; {note}" if answered.note else note)


_installing = free_after_fork(threading.Lock())


def installed_in(gate: GateFacts) -> FrameworkApprover:
    """Make the framework's yes known to a gate, in front of the approver that it has."""
    with _installing:
        found = gate.ports.approver
        if isinstance(found, FrameworkApprover):
            return found
        made = FrameworkApprover(found, gate.ports.kv, gate.clock)
        gate.ports = replace(gate.ports, approver=made)
        return made
