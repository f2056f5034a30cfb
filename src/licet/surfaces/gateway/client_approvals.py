"""Approvals through the client of the gateway: the client's user is shown what waits for an approval.

By default an answer of the client approves nothing. It only means "look again": the call runs if somebody has answered
with `licet approvals` meanwhile. With `approvals: {through_client: true}` a yes is the approval, recorded as `client`.
It never counts as a signature: where the policy wants signed approvals, it is "look again" there too.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec

from licet.core.algebra.scope import visible
from licet.guard.people import Answer, Answered, Approver, Question
from licet.surfaces.gateway.caller import CallerLink
from licet.surfaces.gateway.eras import ProtocolError
from licet.surfaces.gateway.jsonrpc import Request
from licet.surfaces.gateway.questions import CannotAsk

# The request of the client that the current task works on.
CALLER: ContextVar[CallerLink | None] = ContextVar("licet_gateway_caller", default=None)

BY = "client"
_LONGEST = 16_000  # characters of the arguments that are shown
_MOST_LINES = 20  # of deletes that are shown


class ClientApprover:
    """Asks `behind` first, and then shows the question to the client, if it can be asked.

    `through_client` says for which tools a yes of the client approves.
    """

    def __init__(self, behind: Approver, through_client: Callable[[str], bool]) -> None:
        self._behind, self._through_client = behind, through_client
        self.verifies = getattr(behind, "verifies", False)

    async def ask(self, question: Question) -> Answer | Answered:
        """The answer of the store or of the client; `absent` if nobody has answered."""
        first = await self._behind.ask(question)
        answered = first if isinstance(first, Answered) else Answered(first)
        caller = CALLER.get()
        if answered.answer not in ("absent", "expired") or caller is None:
            return answered
        approves = self._through_client(question.approval.tool) and not question.signed and _is_shown_whole(question)
        try:
            said = await caller.ask(Request(0, "elicitation/create", _form(question, answered, approves)))
        except (CannotAsk, ProtocolError):
            return answered
        if said.get("action") == "accept" and approves:
            content = said.get("content")
            if isinstance(content, dict) and content.get("approve") is True:
                return Answered("approved", (BY,), answered.request)
            return Answered("denied", (BY,), answered.request, "the client's user said no")
        if said.get("action") == "decline" and approves:
            return Answered("denied", (BY,), answered.request, "the client's user said no")
        again = await self._behind.ask(question)
        return again if isinstance(again, Answered) else Answered(again)

    def close(self) -> None:
        """Close the store behind it."""
        close = getattr(self._behind, "close", None)
        if close is not None:
            close()


def _is_shown_whole(question: Question) -> bool:
    """Whether a person at the client sees all that a yes would approve."""
    few = max(len(question.acts), len(question.deletes)) <= _MOST_LINES
    return few and len(_arguments(question)) <= _LONGEST


def _arguments(question: Question) -> str:
    return msgspec.json.encode(dict(question.arguments)).decode()


def _form(question: Question, answered: Answered, approves: bool) -> dict[str, Any]:
    shown = _arguments(question)
    cut = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    lines = [f"{question.approval.tool} wants to run with {cut}", f"Why it asks: {question.why}"]
    lines += [f"It deletes: {act}" for act in question.acts[:_MOST_LINES]]
    lines += [f"It may delete and rename without asking again: {rule}" for rule in question.deletes[:_MOST_LINES]]
    if not _is_shown_whole(question):
        lines.append("There is more of it than can be shown here, so an answer here approves nothing.")
    if approves:
        lines.append("May it run?")
        wanted = {"approve": {"type": "boolean", "title": "Let it run", "description": "Yes lets this call run once."}}
    else:
        lines.append(f"To answer, {answered.fix or 'ask the operator'}, then continue here.")
        wanted = {"continue": {"type": "boolean", "title": "Look again", "description": "This approves nothing."}}
    schema = {"type": "object", "properties": wanted, "required": list(wanted) if approves else []}
    return {"message": visible_lines(lines), "requestedSchema": schema}


def visible_lines(lines: list[str]) -> str:
    """Lines for a person, without hidden characters."""
    return "\n".join(visible(line) for line in lines)
