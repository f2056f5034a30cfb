"""Calls of a framework to the tools of a gate: which tools it is shown, how a call runs, what the model reads.

- A call runs in the caller's event loop, or in a thread with a loop if the caller has none.
- A result is text for the model. A refusal is a result too: one line with its reason code.
- An exception inside licet is a refusal. The tool runs only inside `session.call`, so nothing runs past the guard.
- The task, for policies with `flow:`, is what `say` was told, and what the listener of an adapter (`hears`) has heard:
  the own input of a run that a person began. Messages of the history are never words of the user, whatever their role.

Tools as OpenAI and Anthropic take them in a request, and answers to the calls that come back.

    tools = openai_tools(gate, session="s-42")
    reply = client.chat.completions.create(model=…, messages=messages, tools=list(tools))
    messages += tools.answer_blocking(reply.choices[0].message.tool_calls)

No client library is imported: a call is an object of one, or a dict with the same fields. Which message is the user's
is not known here: `tools.say("…")` says it, else the session has no task.

Runs coroutines for code without an event loop: in an asyncio loop in a thread of its own.
"""

import asyncio
import atexit
import contextvars
import inspect
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Generic, Literal, Self, TypeVar

from msgspec import Struct

from licet.adapters.approver import TURN, Pending, Turn, installed_in, pending_question
from licet.declare.plain_json import plain_json
from licet.guard.freezing import waited_for
from licet.guard.gate import BareGate
from licet.guard.result import Result
from licet.guard.session import Session
from licet.mcp.limits import LONGEST_SHOWN_NAME
from licet.mcp.shown_names import Clash, shown_names

T = TypeVar("T")


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the asyncio thread, and block this thread until it has ended.

    An exception here, such as Ctrl-C, cancels the coroutine and waits for its end, so that its receipt is written.
    """
    loop, ended = _thread.loop(), threading.Event()
    if _thread.is_this_thread():
        coroutine.close()
        raise RuntimeError("this thread runs the event loop of licet: await the call instead of waiting for it")
    task: asyncio.Task[T] | None = None

    def begin() -> None:
        nonlocal task
        task = loop.create_task(coroutine)
        task.add_done_callback(lambda _: ended.set())

    loop.call_soon_threadsafe(begin, context=contextvars.copy_context())
    try:
        ended.wait()
    except BaseException:
        loop.call_soon_threadsafe(lambda: task is not None and task.cancel())
        ended.wait()
        raise
    assert task is not None  # noqa: S101 - it has ended
    if task.cancelled():
        raise RuntimeError("the asyncio task of this call was cancelled, and not by its caller")
    return task.result()


class _Thread:
    """An asyncio loop in a thread, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[threading.Thread, asyncio.AbstractEventLoop] | None = None
        self._over = False

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._running is None:
                started: Future[asyncio.AbstractEventLoop] = Future()
                thread = threading.Thread(target=self._run, args=(started,), name="licet-asyncio", daemon=True)
                thread.start()
                self._running = thread, started.result()
            return self._running[1]

    def is_this_thread(self) -> bool:
        """Whether the code that asks runs in the thread of the loop."""
        return self._running is not None and self._running[0] is threading.current_thread()

    def _run(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        runner = asyncio.Runner()
        try:
            loop = runner.get_loop()
        except BaseException as wrong:  # such as too many open files: `loop` raises it
            started.set_exception(wrong)
            return
        with runner:
            started.set_result(loop)
            while not self._over:
                with suppress(KeyboardInterrupt, SystemExit):  # of one task, whose caller gets it; other tasks continue
                    loop.run_forever()

    def close(self) -> None:
        """End the loop; the next use starts another."""
        with self._lock:
            if self._running is not None:
                thread, loop = self._running
                self._over = True
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                self._running, self._over = None, False


_thread = _Thread()


def _in_a_fork() -> None:
    global _thread
    _thread = _Thread()  # a fork has no threads of its parent


def close_loop() -> None:
    """End the asyncio loop; the next use starts another."""
    _thread.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)
atexit.register(close_loop)


_log = logging.getLogger("licet.adapters")

BEGUN_ELSEWHERE = "the first run began with a history that this session has not seen"  # why it is tainted

# The framework's own context object of the running call, for tools that `governed` has taken from that framework.
FRAMEWORK_CONTEXT: ContextVar[object] = ContextVar("FRAMEWORK_CONTEXT", default=None)


class Offered(Struct, frozen=True):
    """One tool as a model sees it."""

    name: str  # as shown: `[A-Za-z0-9_-]{1,64}`
    tool: str  # as licet knows it
    description: str
    schema: Mapping[str, Any]


class Outcome(Struct, frozen=True):
    """The end of one call: the text for the model, and the question if a person must be asked first."""

    text: str
    ok: bool
    result: Result | None = None  # None if licet itself failed
    question: Pending | None = None


class GateTools:
    """The tools of a gate in one session, which is opened here and closed with `close`.

    `session` may also be an open session, such as a delegate's; then closing it is its owner's part. `by` is recorded
    as the approver of calls that a person approves in the framework. With `asks=False` the framework cannot ask, and
    every question goes to the approver of the gate.
    """

    def __init__(self, gate: BareGate, session: str | Session, by: str = "framework", *, asks: bool = True) -> None:
        if not isinstance(gate, BareGate):
            raise TypeError(f"expected a Gate, found {type(gate).__name__}")
        if isinstance(session, Session) and session.gate is not gate and session.parent is None:
            raise ValueError("the session belongs to another gate")
        if not (isinstance(by, str) and by.strip() and not by.startswith("ed25519:")):
            raise ValueError("expected `by` to be a name for receipts: `framework`, or who answers; never a key")
        self.session = session if isinstance(session, Session) else gate.session(session)
        self.gate = self.session.gate
        self._owned = not isinstance(session, Session)
        self._by, self.asks = by, asks
        self._has_heard = False  # whether a run was heard before
        self._told: set[str] = set()  # the tools that it was logged of why they are not shown
        self._approver = installed_in(self.gate)
        ready = (name for name, one in sorted(self.gate.policy.tools.items()) if one.ready)
        try:
            self._shown = shown_names(ready, "whole")
        except Clash as clash:
            raise ValueError(f"{clash}: rename one of them") from None

    def offered(self, *, checked: bool = True) -> list[Offered]:
        """The tools that this agent may call, by name; without those that cannot run here, as they say themselves now.

        With `checked=False` the framework asks `is_offered` of each whenever it shows them to a model.
        """
        tools = self.gate.policy.tools
        unavailable: Mapping[str, str] = {}
        if checked and any(one.ready and one.tool.available is not None for one in tools.values()):
            unavailable = waited_for(self.session.unavailable)
            self._tell(unavailable)
        return [
            Offered(shown, name, tools[name].tool.description, _object_schema(tools[name].tool.schema))
            for shown, name in self._shown.items()
            if self.is_ready(shown) and name not in unavailable
        ]

    async def is_offered(self, shown: str) -> bool:
        """Whether a tool can still be called, and can run here, as it says itself now."""
        if not self.is_ready(shown):
            return False
        name = self._shown[shown]
        unavailable = await self.gate.checks.unavailable(self.session, (name,))
        self._tell(unavailable)
        if name not in unavailable:
            self._told.discard(name)
        return name not in unavailable

    def _tell(self, unavailable: Mapping[str, str]) -> None:
        """Log why tools are not shown, once as long as they are not."""
        for name, why in unavailable.items():
            if name not in self._told:
                self._told.add(name)
                _log.warning("%s is not shown to the model: %s", name, why)

    def is_ready(self, shown: str) -> bool:
        """Whether a tool can still be called: another manifest may have been loaded."""
        registered = self.gate.policy.tools.get(self._shown.get(shown, ""))
        return registered is not None and registered.ready and not self.session.over

    async def call(
        self,
        shown: str,
        arguments: object,
        *,
        call_id: str = "",
        yes: bool | None = None,
        asks: bool = True,
        context: object = None,
    ) -> Outcome:
        """Call one tool. `yes` is what a person answered about this call in the framework; None: nobody was asked.

        If a person must be asked first, the outcome has the question; ask, and call again with the answer. `asks=False`
        says that the framework cannot ask now.
        """
        try:
            name, given = self._shown.get(shown, shown), _parsed(arguments)
            return await self._call(name, given, call_id, yes, asks, context)
        except Exception as error:
            return _failed(shown, error)

    async def _call(
        self, name: str, arguments: Any, call_id: str, yes: bool | None, asks: bool, context: object
    ) -> Outcome:
        pending = None
        if self.asks and asks:
            pending = await pending_question(self.session, name, arguments, call_id)
        if yes is False and pending is None:  # a no runs nothing, also if the policy no longer asks
            return Outcome("APPROVAL_DENIED: the person who was asked said no", False)
        turn = Turn(pending, self.session.id, yes=self._by if yes is True else "", no=self._by if yes is False else "")
        before, outside = TURN.set(turn), FRAMEWORK_CONTEXT.set(context)
        try:
            result = await self.session.call(name, arguments)
        finally:
            TURN.reset(before)
            FRAMEWORK_CONTEXT.reset(outside)
        return Outcome(text_of(result), result.ok, result, pending if turn.unanswered and not result.ok else None)

    def call_blocking(
        self,
        shown: str,
        arguments: object,
        *,
        call_id: str = "",
        yes: bool | None = None,
        asks: bool = True,
        context: object = None,
    ) -> Outcome:
        """The same from code without an event loop. It waits for the end of the call, in any thread."""
        try:
            return wait_for(self.call(shown, arguments, call_id=call_id, yes=yes, asks=asks, context=context))
        except Exception as error:
            return _failed(shown, error)

    async def question(self, shown: str, arguments: object, call_id: str = "") -> Pending | None:
        """The question that a call would ask a person; None if it asks none. The person counts as asked from now on."""
        return await self._question(self._shown.get(shown, shown), _parsed(arguments), call_id)

    async def _question(self, name: str, arguments: Any, call_id: str) -> Pending | None:
        pending = await pending_question(self.session, name, arguments, call_id) if self.asks else None
        if pending is not None:
            await self._approver.open(pending)
        return pending

    def say(self, text: str) -> None:
        """Add what the user said to the task. Only words of the user belong here."""
        self.session.remembering().say(text)

    def hear(self, words: object, *, history: bool = False) -> None:
        """Add the own input of a run to the task, if it is text and the run is not that of a sub-agent.

        `history` says that the run begins with more messages: nobody knows where those of the first run come from.
        """
        if self.gate.policy.flow is None:
            return
        first, self._has_heard = not self._has_heard, True
        if history and first:
            self.session.remembering().taint(BEGUN_ELSEWHERE)
        # A model writes the input of a delegate, and of a run that a tool begins.
        is_nested = self.session.parent is not None or TURN.get() is not None
        if isinstance(words, str) and words.strip() and not is_nested:
            self.say(words)

    def close(self) -> None:
        """Close the session; later calls are refused. Opening its id again continues it."""
        if self._owned and not self.session.over:
            wait_for(self.session.__aexit__())


class Tools(list[T], Generic[T]):
    """A framework's tools, as the list that it takes.

    `with`, `async with` or `close` closes the session at the end.
    """

    def __init__(self, tools: Iterable[T], gate_tools: GateTools) -> None:
        super().__init__(tools)
        self.gate_tools = gate_tools

    def say(self, text: str) -> None:
        """Add what the user said to the task, which policies with `flow:` compare arguments with.

        Only words of the user belong here, never those of a tool or a model.
        """
        self.gate_tools.say(text)

    def close(self) -> None:
        """Close the session; later calls are refused. Opening its id again continues it."""
        self.gate_tools.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def text_of(result: Result) -> str:
    """The result as text for a model: the value as text or JSON, or one line that says why it was refused."""
    if not result.ok:
        return result.error
    text = result.value if isinstance(result.value, str) else plain_json(result.value).decode()
    return f"{text}\n[cut: the result was longer than its limit]" if result.truncated else text


def _object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with the two keys that providers demand, also of a tool without arguments."""
    return {"type": "object", "properties": {}, **schema}


def _parsed(arguments: object) -> Any:
    """Arguments as data. A text that is no JSON object stays a text, which the call then refuses as invalid."""
    if not isinstance(arguments, str | bytes):
        return arguments
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments


def _failed(shown: str, error: Exception) -> Outcome:
    _log.error("the call of %s was refused, because licet failed", shown, exc_info=error)
    return Outcome(
        f"DECISION_FAILED: {shown[:LONGEST_SHOWN_NAME]} could not be called: {type(error).__name__} in the guard", False
    )


# Shows a question (`Pending.shown`) to a person, and returns whether they approve this one call.
AskPerson = Callable[[dict[str, Any]], bool | Awaitable[bool]]
Api = Literal["chat", "responses", "anthropic"]


class PlainTools(Tools[dict[str, Any]]):
    """Tool definitions for a request, and `answer` for the calls in the reply."""

    def __init__(self, gate_tools: GateTools, api: Api, ask: AskPerson | None) -> None:
        super().__init__([_definition(api, one) for one in gate_tools.offered()], gate_tools)
        self._api, self._ask = api, ask

    async def answer(self, calls: Iterable[object] | None) -> list[dict[str, Any]]:
        """Run the calls of one reply concurrently, and return their results as messages, in the same order."""
        return await self._answers(list(calls or ()))

    def answer_blocking(self, calls: Iterable[object] | None) -> list[dict[str, Any]]:
        """The same from code without an event loop."""
        return wait_for(self._answers(list(calls or ())))

    async def _answers(self, calls: list[object]) -> list[dict[str, Any]]:
        return list(await asyncio.gather(*map(self._answer, calls)))

    async def _answer(self, call: object) -> dict[str, Any]:
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


def _read(api: Api, call: object) -> tuple[str, str, Any]:
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


def _field(call: object, name: str) -> Any:
    return call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)
