"""Tools as OpenAI and Anthropic take them in a request, and answers to the calls that come back.

    tools = openai_tools(gate, session="s-42")
    reply = client.chat.completions.create(model=…, messages=messages, tools=list(tools))
    messages += tools.answer_blocking(reply.choices[0].message.tool_calls)

No client library is imported: a call is an object of one, or a dict with the same fields.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal

from licet.guard.gate import BareGate
from licet.guard.session import Session
from licet.guard.trio_host import anywhere, wait_for
from licet.surfaces.adapters.calls import GateTools, Offered, Outcome, Tools

# Shows a question (`Pending.shown`) to a person, and returns whether they approve this one call.
AskPerson = Callable[[dict[str, Any]], bool | Awaitable[bool]]
Api = Literal["chat", "responses", "anthropic"]


class PlainTools(Tools[dict[str, Any]]):
    """Tool definitions for a request, and `answer` for the calls in the reply."""

    def __init__(self, gate_tools: GateTools, api: Api, ask: AskPerson | None) -> None:
        super().__init__([_definition(api, one) for one in gate_tools.offered()], gate_tools)
        self._api, self._ask = api, ask

    async def answer(self, calls: Iterable[Any] | None) -> list[dict[str, Any]]:
        """Run the calls of one reply concurrently, and return their results as messages, in the same order."""
        return await anywhere(self._answers(list(calls or ())))

    def answer_blocking(self, calls: Iterable[Any] | None) -> list[dict[str, Any]]:
        """The same from code without an event loop."""
        return wait_for(self._answers(list(calls or ())))

    async def _answers(self, calls: list[Any]) -> list[dict[str, Any]]:
        return list(await asyncio.gather(*map(self._answer, calls)))

    async def _answer(self, call: Any) -> dict[str, Any]:
        id_, name, arguments = _read(self._api, call)
        outcome = await self.gate_tools.call(name, arguments, call_id=id_)
        if outcome.question is not None:
            yes = await self._answered(outcome.question.shown())
            if yes is not None:
                outcome = await self.gate_tools.call(name, arguments, call_id=id_, yes=yes)
        return _message(self._api, id_, outcome)

    async def _answered(self, question: dict[str, Any]) -> bool | None:
        try:
            assert self._ask is not None  # noqa: S101 - otherwise there is no question
            answer = await asyncio.to_thread(self._ask, question)  # a function may wait for a person
            answer = await answer if inspect.isawaitable(answer) else answer
        except Exception:
            return None
        return answer if isinstance(answer, bool) else None


def openai_tools(
    gate: BareGate,
    *,
    session: str | Session,
    ask: AskPerson | None = None,
    by: str = "framework",
    api: Literal["chat", "responses"] = "chat",
) -> PlainTools:
    """The tools that this agent may call, as OpenAI takes them: for Chat Completions, or for `responses`.

    `ask` shows a question to a person and returns True to approve that one call. Without it, questions go to the
    approver of the gate.
    """
    return PlainTools(GateTools(gate, session, by, asks=ask is not None), api, ask)


def anthropic_tools(
    gate: BareGate, *, session: str | Session, ask: AskPerson | None = None, by: str = "framework"
) -> PlainTools:
    """The tools that this agent may call, as Anthropic takes them; the rest is as in `openai_tools`."""
    return PlainTools(GateTools(gate, session, by, asks=ask is not None), "anthropic", ask)


def _definition(api: Api, one: Offered) -> dict[str, Any]:
    named = {"name": one.name, "description": one.description}
    match api:
        case "anthropic":
            return {**named, "input_schema": dict(one.schema)}
        case "responses":
            return {"type": "function", **named, "parameters": dict(one.schema), "strict": False}
        case "chat":
            return {"type": "function", "function": {**named, "parameters": dict(one.schema)}}


def _read(api: Api, call: Any) -> tuple[str, str, Any]:
    """The id, the name and the arguments of a call."""
    match api:
        case "anthropic":
            return str(_field(call, "id")), _field(call, "name"), _field(call, "input")
        case "responses":
            return str(_field(call, "call_id")), _field(call, "name"), _field(call, "arguments")
        case "chat":
            function = _field(call, "function")
            return str(_field(call, "id")), _field(function, "name"), _field(function, "arguments")


def _message(api: Api, id_: str, outcome: Outcome) -> dict[str, Any]:
    match api:
        case "anthropic":
            return {"type": "tool_result", "tool_use_id": id_, "content": outcome.text, "is_error": not outcome.ok}
        case "responses":
            return {"type": "function_call_output", "call_id": id_, "output": outcome.text}
        case "chat":
            return {"role": "tool", "tool_call_id": id_, "content": outcome.text}


def _field(call: Any, name: str) -> Any:
    return call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)
